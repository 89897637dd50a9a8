//! Requests of replicas over the fleet's connections: one to each other replica, on which many
//! requests are under way at once.
//!
//! ```text
//! kind 1, a request: number u64 | body      kind 2, its answer: the same number u64 | body
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant as Tick, timeout};
use tollgate_tokio::Arrival;
use tollgate_tokio::wire::{FrameReader, Hello, HelloError, PeerSecret, Purpose, put_frame};
use tracing::{debug, warn};

use super::network::{CallError, MESSAGE_BYTES_MAX, Network, Peer};
use super::replica::Replica;

/// The network between daemons; clones share their connections.
#[derive(Clone)]
pub struct Tcp(Arc<Shared>);

struct Shared {
    secret: PeerSecret,
    hello: Hello,
    ways: Mutex<HashMap<Peer, mpsc::Sender<Call>>>,
}

/// A request that waits for its answer.
struct Call {
    request: Vec<u8>,
    answer: oneshot::Sender<Result<Vec<u8>, CallError>>,
}

impl Tcp {
    /// The network of a replica that says this of itself.
    pub fn new(secret: PeerSecret, hello: Hello) -> Self {
        let hello = Hello { purpose: Purpose::Coordinator, ..hello };
        Self(Arc::new(Shared { secret, hello, ways: Mutex::default() }))
    }

    /// The way to a replica; it is there as long as it is used.
    fn way(&self, peer: &Peer) -> mpsc::Sender<Call> {
        let mut ways = self.0.ways.lock().unwrap_or_else(PoisonError::into_inner);
        ways.retain(|_, way| !way.is_closed());
        let way = ways.entry(peer.clone()).or_insert_with(|| {
            let (calls, taken) = mpsc::channel(CALLS_MAX);
            tokio::spawn(serve_way(self.0.clone(), peer.clone(), taken));
            calls
        });
        way.clone()
    }
}

impl Network for Tcp {
    async fn call(&self, peer: &Peer, request: Vec<u8>) -> Result<Vec<u8>, CallError> {
        let (answer, answered) = oneshot::channel();
        let way = self.way(peer);
        way.try_send(Call { request, answer })
            .map_err(|_| CallError::NotSent("too many requests are under way".into()))?;
        let lost = || CallError::Unanswered("the connection was lost".into());
        answered.await.unwrap_or_else(|_| Err(lost()))
    }
}

/// Keeps the connection to a replica for as long as there is something to say.
async fn serve_way(shared: Arc<Shared>, peer: Peer, mut calls: mpsc::Receiver<Call>) {
    while let Ok(Some(first)) = timeout(IDLE_MAX, calls.recv()).await {
        match connect(&shared, &peer).await {
            Ok(stream) => {
                let why = converse(stream, first, &mut calls).await;
                debug!(target: "coordinator", node = peer.node.get(), "connection lost: {why}");
            }
            Err(error) => {
                debug!(target: "coordinator", node = peer.node.get(), "no connection: {error}");
                let not_sent = || Err(CallError::NotSent(error.to_string()));
                let _ = first.answer.send(not_sent());
                while let Ok(call) = calls.try_recv() {
                    let _ = call.answer.send(not_sent());
                }
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }
    // Whoever sends a call into it from now on is told that it was not sent.
}

async fn connect(shared: &Shared, peer: &Peer) -> Result<TcpStream, HelloError> {
    // Whoever has that address now may be another: the log is not for it.
    let hello = Hello { to: Some(peer.node), ..shared.hello };
    tollgate_tokio::connect(&peer.address, CONNECT_PATIENCE, &shared.secret, &hello).await
}

/// Sends requests and hands out answers until the connection is lost, and says why it was.
async fn converse(stream: TcpStream, first: Call, calls: &mut mpsc::Receiver<Call>) -> String {
    let (reader, mut writer) = stream.into_split();
    let mut reader = FrameReader::new(reader, FRAME_MAX);
    let mut waiting: HashMap<u64, oneshot::Sender<Result<Vec<u8>, CallError>>> = HashMap::new();
    let (mut next, mut number, mut out) = (Some(first), 0_u64, Vec::new());
    let mut silent_at = Tick::now() + SILENCE_MAX;
    loop {
        if let Some(Call { request, answer }) = next.take() {
            // Who gave up need not be answered.
            waiting.retain(|_, waits| !waits.is_closed());
            if waiting.is_empty() {
                silent_at = Tick::now() + SILENCE_MAX;
            }
            number += 1;
            out.clear();
            put_numbered(&mut out, REQUEST, number, &request);
            match timeout(SILENCE_MAX, writer.write_all(&out)).await {
                Ok(Ok(())) => waiting.insert(number, answer),
                Ok(Err(error)) => return error.to_string(),
                Err(_) => return "it takes nothing".into(),
            };
        }
        tokio::select! {
            call = calls.recv() => match call {
                Some(call) => next = Some(call),
                None => return "it is not used any more".into(),
            },
            frame = reader.next() => {
                silent_at = Tick::now() + SILENCE_MAX;
                match frame {
                    Ok(Some((ANSWER, body))) => {
                        let Some((number, body)) = numbered(body) else {
                            return "it says what makes no sense".into();
                        };
                        if let Some(waits) = waiting.remove(&number) {
                            let _ = waits.send(Ok(body.to_vec()));
                        }
                    }
                    Ok(Some(_)) => return "it says what makes no sense".into(),
                    Ok(None) => return "it hung up".into(),
                    Err(error) => return error.to_string(),
                }
            }
            () = tokio::time::sleep_until(silent_at) => {
                waiting.retain(|_, waits| !waits.is_closed());
                silent_at = Tick::now() + SILENCE_MAX;
                if !waiting.is_empty() {
                    return "it is silent".into();
                }
            }
        }
    }
}

/// Answers other replicas until nothing can arrive any more.
pub async fn serve_replicas(replica: Replica<Tcp>, mut arrivals: mpsc::Receiver<Arrival>) {
    let mut connections = JoinSet::new();
    while let Some(arrival) = arrivals.recv().await {
        while connections.try_join_next().is_some() {}
        if connections.len() >= CONNECTIONS_MAX {
            warn!(target: "coordinator", "too many connections of replicas");
            continue;
        }
        connections.spawn(answer_all(replica.clone(), arrival));
    }
}

async fn answer_all(replica: Replica<Tcp>, arrival: Arrival) {
    let Ok(stream) = TcpStream::from_std(arrival.stream) else { return };
    let (reader, mut writer) = stream.into_split();
    let mut reader = FrameReader::new(reader, FRAME_MAX);
    let (answers, mut answered) = mpsc::channel::<Vec<u8>>(CALLS_MAX);
    let mut answering = JoinSet::new();
    loop {
        tokio::select! {
            // No more are read than are answered.
            frame = reader.next(), if answering.len() < CALLS_MAX => {
                let Ok(Some((REQUEST, body))) = frame else { return };
                let Some((number, body)) = numbered(body) else { return };
                let (replica, answers) = (replica.clone(), answers.clone());
                answering.spawn(async move {
                    let answer = replica.answer(&body).await;
                    let mut out = Vec::with_capacity(answer.len() + 16);
                    put_numbered(&mut out, ANSWER, number, &answer);
                    let _ = answers.send(out).await;
                });
            }
            Some(out) = answered.recv() => {
                if !matches!(timeout(SILENCE_MAX, writer.write_all(&out)).await, Ok(Ok(()))) {
                    return;
                }
            }
            Some(_) = answering.join_next() => {}
        }
    }
}

fn put_numbered(out: &mut Vec<u8>, kind: u8, number: u64, body: &[u8]) {
    put_frame(out, |out| {
        out.extend(number.to_le_bytes());
        out.extend_from_slice(body);
        kind
    });
}

fn numbered(mut body: Bytes) -> Option<(u64, Bytes)> {
    (body.len() >= 8).then(|| (body.get_u64_le(), body))
}

const REQUEST: u8 = 1;
const ANSWER: u8 = 2;
/// A message, its number and its kind.
const FRAME_MAX: u32 = MESSAGE_BYTES_MAX as u32 + 16;
/// Requests under way to one replica, and from one.
const CALLS_MAX: usize = 64;
/// Connections from other replicas: of five, each may have one that it has lost.
const CONNECTIONS_MAX: usize = 64;
const CONNECT_PATIENCE: Duration = Duration::from_millis(500);
const RETRY_AFTER: Duration = Duration::from_millis(20);
/// A way that nobody used for so long is given up.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// After so long without a word while somebody waits, the other is taken for gone.
const SILENCE_MAX: Duration = Duration::from_secs(2);
