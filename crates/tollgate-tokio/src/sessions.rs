//! This node's connections to the replicas of the coordinator: one to each, made again whenever it
//! breaks.
//!
//! What is said on them, and what it means for the lease, is the driver's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant as Tick;
use tollgate::NodeId;
use tracing::{debug, info, warn};

use crate::dial::{Backoff, Dialled, Outgoing, Pulse, SILENCE_MAX, dial};
use crate::wire::{Ask, Hello, PeerSecret, Purpose, SESSION_FRAME_MAX, Tell, put_frame};

/// What comes from the replicas.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A connection to a replica stands.
    Connected,
    /// It is gone, known since then. Comes for each that stood, whoever ended it: a replica that
    /// leads counts from when it sees the end of it, and the lease must not count from later.
    Closed(NodeId, Tick),
    /// It tells.
    Tell(NodeId, Tell),
}

/// The connections to all replicas.
pub(crate) struct Replicas {
    hello: Hello,
    secret: PeerSecret,
    heard: mpsc::Sender<Heard>,
    ways: BTreeMap<NodeId, Way>,
    /// The replicas as they were told, the leader first.
    order: Vec<NodeId>,
    /// The entry of the log by which they were.
    as_of: u64,
}

struct Way {
    address: String,
    /// Whether a connection stands.
    stands: Arc<AtomicBool>,
    asks: mpsc::Sender<Arc<[u8]>>,
    task: JoinHandle<()>,
}

impl Drop for Way {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Replicas {
    /// Sessions of the node that `hello` says.
    pub(crate) fn new(hello: Hello, secret: PeerSecret) -> (Self, mpsc::Receiver<Heard>) {
        let hello = Hello { purpose: Purpose::Session, ..hello };
        let (heard, hears) = mpsc::channel(HEARD_MAX);
        (Self { hello, secret, heard, ways: BTreeMap::new(), order: Vec::new(), as_of: 0 }, hears)
    }

    /// This process has another start number: all connections are made anew, to say so.
    pub(crate) fn set_start(&mut self, start: u64) {
        self.hello.start = start;
        let replicas: Vec<(NodeId, String)> =
            self.all().map(|(node, address)| (node, address.to_owned())).collect();
        self.ways.clear();
        self.set(self.as_of, &replicas);
    }

    /// The replicas are these, at these addresses, as of an entry of the log; from one that is
    /// behind what is known is not believed. Nor is that there is none: nobody could say anything
    /// else any more.
    pub(crate) fn set(&mut self, as_of: u64, replicas: &[(NodeId, String)]) {
        let replicas = &replicas[..replicas.len().min(REPLICAS_MAX)];
        if replicas.is_empty() || as_of < self.as_of {
            return;
        }
        self.as_of = as_of;
        let is_there = |node: &NodeId, way: &Way| {
            replicas.iter().any(|(other, address)| other == node && *address == way.address)
        };
        self.ways.retain(|node, way| is_there(node, way));
        self.order = replicas.iter().map(|(node, _)| *node).collect();
        for (node, address) in replicas {
            if self.ways.contains_key(node) {
                continue;
            }
            let (asks, taken) = mpsc::channel(ASKS_MAX);
            let stands = Arc::default();
            let session = Session {
                replica: *node,
                address: address.clone(),
                hello: Hello { to: Some(*node), ..self.hello },
                secret: self.secret.clone(),
                heard: self.heard.clone(),
                stands: Arc::clone(&stands),
            };
            let task = tokio::spawn(session.run(taken));
            self.ways.insert(*node, Way { address: address.clone(), stands, asks, task });
        }
    }

    /// Asks all replicas to which a connection stands. What a connection can't take is lost.
    pub(crate) fn ask_all(&self, ask: &Ask) {
        let Some(frame) = framed(ask) else { return };
        for way in self.ways.values() {
            let _ = way.asks.try_send(frame.clone());
        }
    }

    /// Asks some replica. Returns whether it could be: a connection stands and has room, and no
    /// message is too long.
    pub(crate) fn ask_one(&self, replica: NodeId, ask: &Ask) -> bool {
        let way = self.ways.get(&replica).filter(|way| way.stands.load(Relaxed));
        way.zip(framed(ask)).is_some_and(|(way, frame)| way.asks.try_send(frame).is_ok())
    }

    /// The replicas to which a connection stands, the leader first if it is one of them.
    pub(crate) fn connected(&self) -> impl Iterator<Item = NodeId> {
        let stands =
            |node: &&NodeId| self.ways.get(node).is_some_and(|way| way.stands.load(Relaxed));
        self.order.iter().filter(stands).copied()
    }

    /// The replicas and where they are, as they were told.
    pub(crate) fn all(&self) -> impl Iterator<Item = (NodeId, &str)> {
        self.order.iter().filter_map(|node| Some((*node, &*self.ways.get(node)?.address)))
    }
}

/// A question as it is sent; `None` if it is longer than a replica takes.
pub(crate) fn framed(ask: &Ask) -> Option<Arc<[u8]>> {
    let mut bytes = Vec::new();
    put_frame(&mut bytes, |out| ask.encode(out));
    let is_sent = bytes.len() <= SESSION_FRAME_MAX as usize;
    if !is_sent {
        warn!(target: "fleet", bytes = bytes.len(), "a question is too long to be sent");
    }
    is_sent.then(|| bytes.into())
}

/// One connection that is made, and made again.
struct Session {
    replica: NodeId,
    address: String,
    hello: Hello,
    secret: PeerSecret,
    heard: mpsc::Sender<Heard>,
    stands: Arc<AtomicBool>,
}

impl Session {
    async fn run(self, mut asks: mpsc::Receiver<Arc<[u8]>>) {
        let (mut backoff, mut is_told) = (Backoff::default(), false);
        let replica = self.replica.get();
        loop {
            match dial(&self.address, &self.secret, &self.hello, SESSION_FRAME_MAX).await {
                Ok(dialled) => {
                    is_told = false;
                    info!(target: "fleet", replica, address = %self.address, "in session");
                    let began = Tick::now();
                    let Some(why) = self.keep(dialled, &mut asks).await else { return };
                    if began.elapsed() > SILENCE_MAX {
                        backoff.reset();
                    }
                    info!(target: "fleet", replica, "session's connection lost: {why}");
                }
                Err(error) if !is_told => {
                    is_told = true;
                    warn!(target: "fleet", replica, address = %self.address, "no session: {error}");
                }
                Err(error) => debug!(target: "fleet", replica, "no session: {error}"),
            }
            tokio::time::sleep(backoff.next()).await;
        }
    }

    /// Says and hears until the connection is lost, and says why it was; `None` if nobody hears it
    /// any more.
    async fn keep(&self, dialled: Dialled, asks: &mut mpsc::Receiver<Arc<[u8]>>) -> Option<String> {
        let Dialled { mut reader, mut writer } = dialled;
        // Dropped before the connection is.
        let _standing = Standing::new(self).await?;
        // What was asked while there was no connection has been asked of others.
        while asks.try_recv().is_ok() {}
        self.stands.store(true, Relaxed);
        self.heard.send(Heard::Connected).await.ok()?;
        let (mut beats, mut pulse) = (Pulse::beats(), Pulse::default());
        let mut out = Outgoing::default();
        loop {
            tokio::select! {
                _ = beats.tick() => if let Err(why) = pulse.beat(reader.bytes_read(), &out) {
                    return Some(why.into());
                },
                ask = asks.recv(), if out.is_empty() => match ask {
                    Some(ask) => out.bytes.extend_from_slice(&ask),
                    None => return Some("no longer a replica".into()),
                },
                written = out.write(&mut writer), if !out.is_empty() => {
                    if let Err(error) = written {
                        return Some(error.to_string());
                    }
                }
                frame = reader.next() => {
                    let tell = match frame {
                        Ok(Some((kind, body))) => Tell::decode(kind, &body),
                        Ok(None) => return Some("it hung up".into()),
                        Err(error) => return Some(error.to_string()),
                    };
                    match tell {
                        Ok(Tell::Alive) => {}
                        Ok(tell) => self.heard.send(Heard::Tell(self.replica, tell)).await.ok()?,
                        Err(error) => return Some(error.to_string()),
                    }
                }
            }
        }
    }
}

/// A connection that stands. Dropped, be it with its task, it tells that the connection is gone;
/// room for that is kept, so that it can't be lost.
struct Standing<'a> {
    session: &'a Session,
    room: Option<mpsc::OwnedPermit<Heard>>,
}

impl<'a> Standing<'a> {
    /// `None` if nobody hears any more.
    async fn new(session: &'a Session) -> Option<Self> {
        let room = session.heard.clone().reserve_owned().await.ok()?;
        Some(Self { session, room: Some(room) })
    }
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        self.session.stands.store(false, Relaxed);
        if let Some(room) = self.room.take() {
            room.send(Heard::Closed(self.session.replica, Tick::now()));
        }
    }
}

/// Replicas that are believed: there are five at most, and as many while they are replaced.
const REPLICAS_MAX: usize = 16;
/// What replicas told and the driver has not taken.
const HEARD_MAX: usize = 256;
/// What is to be said to one replica.
const ASKS_MAX: usize = 64;
