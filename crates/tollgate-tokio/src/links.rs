//! The ways to and from other nodes: one connection that this node made to each member, for what
//! it says, and one that each made to it.
//!
//! Who is no member has no address, and is answered on the connection that it made: a node that
//! leaves, or was drained, still hears what it is permitted.
//!
//! What can't be sent at once is dropped and counted: messages hold totals and are sent again by
//! whoever needs an answer, and an old one is worth nothing. It knows frames, and not what is in
//! them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant as Tick;
use tollgate::NodeId;
use tracing::{debug, info, warn};

use crate::dial::{Backoff, Dialled, Outgoing, Pulse, SILENCE_MAX, dial};
use crate::door::Arrival;
use crate::status::LinkStatus;
use crate::wire::{FrameReader, Hello, HelloError, PeerFrame, PeerSecret, Purpose, put_frame};

/// Frames that came in, by who sent them.
pub(crate) type Inbox = mpsc::Receiver<(NodeId, PeerFrame)>;

/// The ways to all other nodes.
pub(crate) struct Links {
    hello: Hello,
    secret: PeerSecret,
    ways: BTreeMap<NodeId, Way>,
    /// The last connection that each node made to this one.
    back: Arc<Mutex<BTreeMap<NodeId, Lane>>>,
    inbox: mpsc::Sender<(NodeId, PeerFrame)>,
    counts: Arc<LinkCounts>,
}

/// What [`LinkStatus`] tells.
#[derive(Debug, Default)]
struct LinkCounts {
    frames: AtomicU64,
    bytes: AtomicU64,
    dropped: AtomicU64,
    received: AtomicU64,
    malformed: AtomicU64,
    connected: AtomicU64,
}

/// The way to one node.
struct Way {
    address: String,
    lane: Lane,
    task: JoinHandle<()>,
}

/// Where frames for one connection wait.
#[derive(Clone)]
struct Lane {
    frames: mpsc::Sender<Vec<u8>>,
    /// Bytes of the frames that wait.
    queued: Arc<AtomicUsize>,
}

impl Drop for Way {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Links {
    /// Links of the node that `hello` says, which dials others for [`Purpose::Peer`], and where
    /// all that other nodes say comes out.
    pub(crate) fn new(hello: Hello, secret: PeerSecret) -> (Self, Inbox) {
        let hello = Hello { purpose: Purpose::Peer, ..hello };
        let (inbox, frames) = mpsc::channel(FRAMES_MAX);
        let (ways, back, counts) = (BTreeMap::new(), Arc::default(), Arc::default());
        (Self { hello, secret, ways, back, inbox, counts }, frames)
    }

    /// What went over all links so far.
    pub(crate) fn status(&self) -> LinkStatus {
        let LinkCounts { frames, bytes, dropped, received, malformed, connected } = &*self.counts;
        LinkStatus {
            frames: frames.load(Relaxed),
            bytes: bytes.load(Relaxed),
            dropped: dropped.load(Relaxed),
            received: received.load(Relaxed),
            malformed: malformed.load(Relaxed),
            connected: connected.load(Relaxed),
        }
    }

    /// This process has another start number: all connections are made anew with the next
    /// [`Self::set_nodes`], to say so.
    pub(crate) fn set_start(&mut self, start: u64) {
        self.hello.start = start;
        self.ways.clear();
    }

    /// These nodes are there, at these addresses.
    pub(crate) fn set_nodes(&mut self, nodes: &[(NodeId, String)]) {
        let me = self.hello.node;
        let nodes: BTreeMap<NodeId, &str> =
            nodes.iter().map(|(node, address)| (*node, &**address)).take(NODES_MAX).collect();
        self.ways.retain(|node, way| nodes.get(node) == Some(&&*way.address));
        for (node, address) in nodes {
            if Some(node) == me || self.ways.contains_key(&node) {
                continue;
            }
            let (lane, queue) = lane();
            let link = Link {
                to: node,
                address: address.to_owned(),
                hello: Hello { to: Some(node), ..self.hello },
                secret: self.secret.clone(),
                queue,
                inbox: self.inbox.clone(),
                counts: self.counts.clone(),
            };
            let task = tokio::spawn(link.run());
            self.ways.insert(node, Way { address: address.to_owned(), lane, task });
        }
    }

    /// Sends a frame, or drops it.
    pub(crate) fn send(&self, to: NodeId, frame: &PeerFrame) {
        let mut bytes = Vec::with_capacity(FRAME_BYTES);
        put_frame(&mut bytes, |out| frame.encode(out));
        let is_sent = match self.ways.get(&to) {
            Some(way) => way.lane.send(bytes),
            None => back(&self.back).get(&to).is_some_and(|lane| lane.send(bytes)),
        };
        if !is_sent {
            self.counts.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Takes in what other nodes of this fleet say on connections that they made.
    pub(crate) fn listen(&self, mut arrivals: mpsc::Receiver<Arrival>) -> JoinHandle<()> {
        let (inbox, fleet, counts) = (self.inbox.clone(), self.hello.fleet, self.counts.clone());
        let lanes = self.back.clone();
        tokio::spawn(async move {
            let mut hearing = tokio::task::JoinSet::new();
            while let Some(arrival) = arrivals.recv().await {
                while hearing.try_join_next().is_some() {}
                // Whoever came before this process knew its fleet was not asked for its own.
                let from = arrival.hello.node.filter(|_| arrival.hello.fleet == fleet);
                let Some(from) = from else { continue };
                if hearing.len() >= PEERS_MAX {
                    warn!(target: "fleet", node = from.get(), "too many connections from nodes");
                    continue;
                }
                let (lane, queue) = lane();
                back(&lanes).insert(from, lane.clone());
                let hears = Hears { from, queue, inbox: inbox.clone(), counts: counts.clone() };
                let lanes = lanes.clone();
                hearing.spawn(async move {
                    hears.run(arrival).await;
                    // Unless it has made another since.
                    let mut lanes = back(&lanes);
                    if lanes.get(&from).is_some_and(|last| last.frames.same_channel(&lane.frames)) {
                        lanes.remove(&from);
                    }
                });
            }
        })
    }
}

fn back(lanes: &Mutex<BTreeMap<NodeId, Lane>>) -> MutexGuard<'_, BTreeMap<NodeId, Lane>> {
    lanes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where frames wait, and where they are taken from there.
fn lane() -> (Lane, Queue) {
    let (frames, taken) = mpsc::channel(FRAMES_MAX);
    let queued: Arc<AtomicUsize> = Arc::default();
    (Lane { frames, queued: queued.clone() }, Queue { frames: taken, queued })
}

impl Lane {
    fn send(&self, bytes: Vec<u8>) -> bool {
        let count = bytes.len();
        if count > PEER_FRAME_MAX as usize {
            // The other side would hang up on it.
            warn!(target: "fleet", bytes = count, "a message is too long to be sent");
            return false;
        }
        if self.queued.fetch_add(count, Relaxed) + count <= QUEUE_BYTES_MAX
            && self.frames.try_send(bytes).is_ok()
        {
            return true;
        }
        self.queued.fetch_sub(count, Relaxed);
        false
    }
}

/// What is to be sent to one node.
struct Queue {
    frames: mpsc::Receiver<Vec<u8>>,
    queued: Arc<AtomicUsize>,
}

impl Queue {
    /// The next frame; `None` if there will be none.
    async fn next(&mut self) -> Option<Vec<u8>> {
        let frame = self.frames.recv().await;
        self.queued.fetch_sub(frame.as_ref().map_or(0, Vec::len), Relaxed);
        frame
    }

    /// The next frame if there is one.
    fn try_next(&mut self) -> Option<Vec<u8>> {
        let frame = self.frames.try_recv().ok()?;
        self.queued.fetch_sub(frame.len(), Relaxed);
        Some(frame)
    }

    /// All that waits to be sent, up to a bound, as one write. Returns how many frames that is.
    fn gather(&mut self, first: &[u8], out: &mut Outgoing) -> u64 {
        let mut count = 1;
        out.bytes.extend_from_slice(first);
        while out.bytes.len() < WRITE_BYTES
            && let Some(frame) = self.try_next()
        {
            count += 1;
            out.bytes.extend_from_slice(&frame);
        }
        count
    }
}

/// One connection that is made, and made again.
struct Link {
    to: NodeId,
    address: String,
    hello: Hello,
    secret: PeerSecret,
    queue: Queue,
    inbox: mpsc::Sender<(NodeId, PeerFrame)>,
    counts: Arc<LinkCounts>,
}

impl Link {
    async fn run(mut self) {
        let (mut backoff, mut is_told) = (Backoff::default(), false);
        let node = self.to.get();
        loop {
            let (address, secret, hello) = (self.address.clone(), self.secret.clone(), self.hello);
            let dialling = dial(&address, &secret, &hello, PEER_FRAME_MAX);
            match self.while_dropping(dialling).await {
                Ok(dialled) => {
                    is_told = false;
                    info!(target: "fleet", node, address = %self.address, "linked");
                    let began = Tick::now();
                    let why = self.keep(dialled).await;
                    if began.elapsed() > SILENCE_MAX {
                        backoff.reset();
                    }
                    info!(target: "fleet", node, "link lost: {why}");
                }
                // It was heard of before it had heard of itself, and will have in a moment.
                Err(error) if !is_told && !matches!(error, HelloError::Node { node: None }) => {
                    is_told = true;
                    warn!(target: "fleet", node, address = %self.address, "no link: {error}");
                }
                Err(error) => debug!(target: "fleet", node, "no link: {error}"),
            }
            let resting = tokio::time::sleep(backoff.next());
            self.while_dropping(resting).await;
        }
    }

    /// Drops what is to be sent while there is no connection: by the time that there is one it says
    /// nothing true any more.
    async fn while_dropping<T>(&mut self, doing: impl Future<Output = T>) -> T {
        let mut doing = std::pin::pin!(doing);
        loop {
            tokio::select! {
                done = &mut doing => return done,
                Some(_) = self.queue.next() => {
                    self.counts.dropped.fetch_add(1, Relaxed);
                }
            }
        }
    }

    /// Sends on a connection until it is lost, and says why it was.
    async fn keep(&mut self, dialled: Dialled) -> String {
        let Dialled { mut reader, mut writer } = dialled;
        let _standing = Standing::new(&self.counts);
        let (mut beats, mut pulse) = (Pulse::beats(), Pulse::default());
        let (mut out, mut pings) = (Outgoing::default(), 0);
        let mut frames = 0;
        let why = loop {
            tokio::select! {
                _ = beats.tick() => {
                    if let Err(why) = pulse.beat(reader.bytes_read(), &out) {
                        break why.into();
                    }
                    pings += 1;
                    if out.is_empty() {
                        out.put(|out| PeerFrame::Ping(pings).encode(out));
                    }
                }
                frame = self.queue.next(), if out.is_empty() => {
                    let Some(frame) = frame else { break "no longer a member".into() };
                    frames = self.queue.gather(&frame, &mut out);
                    self.counts.bytes.fetch_add(out.bytes.len() as u64, Relaxed);
                }
                written = out.write(&mut writer), if !out.is_empty() => {
                    if let Err(error) = written {
                        break error.to_string();
                    }
                    if out.is_empty() {
                        self.counts.frames.fetch_add(std::mem::take(&mut frames), Relaxed);
                    }
                }
                answer = reader.next() => match answer {
                    Ok(Some((kind, body))) => match PeerFrame::decode(kind, &body) {
                        Ok(PeerFrame::Pong(_) | PeerFrame::Ping(_)) => {}
                        // It takes this node for one that is no member.
                        Ok(frame) => {
                            self.counts.received.fetch_add(1, Relaxed);
                            if self.inbox.send((self.to, frame)).await.is_err() {
                                break "nobody hears it any more".into();
                            }
                        }
                        Err(error) => {
                            self.counts.malformed.fetch_add(1, Relaxed);
                            break error.to_string();
                        }
                    },
                    Ok(None) => break "it hung up".into(),
                    Err(error) => {
                        self.counts.malformed.fetch_add(u64::from(error.is_malformed()), Relaxed);
                        break error.to_string();
                    }
                },
            }
        };
        self.counts.dropped.fetch_add(frames, Relaxed);
        why
    }
}

/// Counts a connection as standing until it is dropped, be it with its task.
struct Standing(Arc<LinkCounts>);

impl Standing {
    fn new(counts: &Arc<LinkCounts>) -> Self {
        counts.connected.fetch_add(1, Relaxed);
        Self(counts.clone())
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.0.connected.fetch_sub(1, Relaxed);
    }
}

/// A node that is heard on a connection that it made.
struct Hears {
    from: NodeId,
    /// What it is answered there.
    queue: Queue,
    inbox: mpsc::Sender<(NodeId, PeerFrame)>,
    counts: Arc<LinkCounts>,
}

impl Hears {
    /// Hears it until the connection is lost.
    async fn run(self, arrival: Arrival) {
        let Self { from, mut queue, inbox, counts } = self;
        let node = from.get();
        let Ok(stream) = tokio::net::TcpStream::from_std(arrival.stream) else { return };
        let (reader, mut writer) = stream.into_split();
        let mut reader = FrameReader::new(reader, PEER_FRAME_MAX);
        let (mut beats, mut pulse) = (Pulse::beats(), Pulse::default());
        let mut out = Outgoing::default();
        loop {
            let frame = tokio::select! {
                frame = reader.next() => frame,
                Some(answer) = queue.next(), if out.is_empty() => {
                    let count = queue.gather(&answer, &mut out);
                    counts.frames.fetch_add(count, Relaxed);
                    counts.bytes.fetch_add(out.bytes.len() as u64, Relaxed);
                    continue;
                }
                written = out.write(&mut writer), if !out.is_empty() => match written {
                    Ok(()) => continue,
                    Err(error) => return debug!(target: "fleet", node, "it is gone: {error}"),
                },
                // Whoever is there pings.
                _ = beats.tick() => match pulse.beat(reader.bytes_read(), &out) {
                    Ok(()) => continue,
                    Err(why) => return debug!(target: "fleet", node, "hung up on it: {why}"),
                },
            };
            let decoded = match &frame {
                Ok(Some((kind, body))) => PeerFrame::decode(*kind, body).map_err(|e| e.to_string()),
                Err(error) if error.is_malformed() => Err(error.to_string()),
                Ok(None) => return debug!(target: "fleet", node, "it hung up"),
                Err(error) => return debug!(target: "fleet", node, "it is gone: {error}"),
            };
            match decoded {
                Ok(PeerFrame::Ping(number)) if out.bytes.len() < PONGS_BYTES => {
                    out.put(|out| PeerFrame::Pong(number).encode(out));
                }
                // It does not take the answers to those before.
                Ok(PeerFrame::Ping(_)) => {}
                Ok(frame) => {
                    counts.received.fetch_add(1, Relaxed);
                    // What arrives is taken in no faster than it is dealt with.
                    if inbox.send((from, frame)).await.is_err() {
                        return;
                    }
                }
                Err(why) => {
                    counts.malformed.fetch_add(1, Relaxed);
                    return warn!(target: "fleet", node, "hung up on it: {why}");
                }
            }
        }
    }
}

/// Nodes that are linked: a fleet has at most 1,000, and one of them is this one.
const NODES_MAX: usize = 1_000;
/// Frames that wait to be sent to one node, or to be dealt with here.
const FRAMES_MAX: usize = 1_024;
/// Bytes of them that wait to be sent to one node.
const QUEUE_BYTES_MAX: usize = 8 << 20;
/// Connections that other nodes made: each may have made another before it knows that the last is
/// gone.
const PEERS_MAX: usize = 2_048;
/// Most frames fit.
const FRAME_BYTES: usize = 256;
/// What one write takes at most, and a frame more.
const WRITE_BYTES: usize = 256 << 10;
/// Answers to pings that were not taken yet.
const PONGS_BYTES: usize = 1 << 10;
/// Bytes of one frame between nodes at most: a batch of 512 reports has some 50 KiB, 4,096
/// snapshots with the longest numbers have 528 KiB.
pub(crate) const PEER_FRAME_MAX: u32 = 1 << 20;
