//! A process that is all of its fleet: it divides limits between its own callers and its streams.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tollgate::coordinator::RingChange;
use tollgate::{
    DividedKey, FleetLimitId, Input, Instant, KeyId, Limiter, Member, Message, Node, NodeCounts,
    NodeId, NodeOptions, Output, Ring, RingEpoch, ShareLimitStatus, ShareUsage, Shares,
    StreamUsage,
};

use crate::keys::{Firsts, FleetShares, KeyParts, Parts, ShareRow, rows};
use crate::streams::Streams;

/// Divides the limits of one process.
#[derive(Debug, Clone)]
pub struct Alone {
    streams: Arc<Streams>,
    status: Arc<Mutex<AloneStatus>>,
}

/// How what one process divides stands.
#[derive(Debug, Clone, Default)]
pub struct AloneStatus {
    /// What was done so far.
    pub counts: NodeCounts,
    /// How what there is of each limit fares.
    pub limits: BTreeMap<FleetLimitId, ShareLimitStatus>,
    /// The keys of each limit of which most is asked for,
    /// [`KEYS_OF_LIMIT`](FleetShares::KEYS_OF_LIMIT) at most. They are looked for among all keys,
    /// some 10,000 of them in a second.
    pub keys: Vec<ShareRow>,
}

impl Alone {
    /// Divides a limiter's limits from now on, in a task of the runtime that this is called in;
    /// `None` if the limiter [does not](tollgate::Options::share) leave that to others. It is told
    /// of limits that change within a quarter of a second.
    #[must_use]
    pub fn start(limiter: &Limiter) -> Option<Self> {
        let shares = limiter.shares()?.clone();
        let (dirty, streams) = (Arc::new(Notify::new()), Arc::<Streams>::default());
        let notified = dirty.clone();
        shares.on_dirty(Box::new(move || notified.notify_one()));
        let status = Arc::<Mutex<AloneStatus>>::default();
        let task = Task {
            node: Node::new(ME, NodeOptions::default()),
            limiter: limiter.clone(),
            shares,
            streams: streams.clone(),
            status: status.clone(),
            names: HashMap::new(),
            look: Look::default(),
            keys: Vec::new(),
            own: VecDeque::new(),
            wakes_at: Instant::ZERO,
            drains_at: None,
            revision: None,
        };
        tokio::spawn(task.run(dirty));
        Some(Self { streams, status })
    }

    /// As [`Fleet::on_allotted`](crate::Fleet::on_allotted).
    pub fn on_allotted(
        &self,
        allotted: Box<dyn Fn(KeyId, u64, Option<f64>) + Send + Sync>,
    ) -> bool {
        self.streams.on_allotted(allotted)
    }

    /// As [`Fleet::tell_stream`](crate::Fleet::tell_stream).
    pub fn tell_stream(&self, usage: StreamUsage) -> bool {
        self.streams.tell(usage)
    }

    /// As [`Fleet::stream_gone`](crate::Fleet::stream_gone).
    pub fn stream_gone(&self, key: KeyId, stream: u64) {
        self.streams.gone(key, stream);
    }

    /// How it stood a quarter of a second ago at most.
    #[must_use]
    pub fn status(&self) -> AloneStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Task {
    node: Node,
    limiter: Limiter,
    shares: Arc<Shares>,
    streams: Arc<Streams>,
    status: Arc<Mutex<AloneStatus>>,
    names: HashMap<KeyId, KeyParts>,
    look: Look,
    /// What was found last.
    keys: Vec<ShareRow>,
    /// What the node says to itself.
    own: VecDeque<Message>,
    wakes_at: Instant,
    drains_at: Option<Instant>,
    /// Of the limits that the node knows.
    revision: Option<u64>,
}

impl Task {
    async fn run(mut self, dirty: Arc<Notify>) {
        self.begin();
        let streams = self.streams.clone();
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let wakes_at = self.wakes_at.min(self.drains_at.unwrap_or(Instant::MAX));
            let rests = wakes_at.saturating_since(self.limiter.now());
            tokio::select! {
                () = dirty.notified(), if self.drains_at.is_none() => {
                    self.drains_at = Some(self.limiter.now().saturating_add(DRAIN_GAP));
                }
                () = streams.changed() => {
                    for input in streams.take() {
                        self.tell(input);
                    }
                }
                () = tokio::time::sleep(rests) => {}
                _ = looks.tick() => {
                    self.follow_limits();
                    self.publish();
                }
            }
            let now = self.limiter.now();
            if self.drains_at.is_some_and(|at| at <= now) {
                self.drain();
            }
            if self.wakes_at <= now {
                self.drain();
                self.tell(Input::Timeout);
            }
        }
    }

    fn begin(&mut self) {
        let ring = |epoch, members: &[Member]| {
            Ring::new(RingEpoch::new(epoch), members.iter().copied()).map(Arc::new)
        };
        let me = Member { node: ME, weight: 1 };
        if let (Ok(previous), Ok(ring)) = (ring(0, &[]), ring(1, &[me])) {
            let change = RingChange { ring, previous, lost: Box::default() };
            let age = Duration::ZERO;
            self.tell(Input::Ring { change, age, start: 1, is_restart: false });
        }
        self.follow_limits();
    }

    fn follow_limits(&mut self) {
        let revision = self.limiter.revision();
        if self.revision != Some(revision) {
            self.revision = Some(revision);
            self.tell(Input::Rules(self.limiter.fleet_rules()));
        }
    }

    fn drain(&mut self) {
        self.drains_at = None;
        let mut usages = Vec::new();
        self.shares.drain(|drained| usages.push(ShareUsage { drained }));
        for usage in usages {
            self.tell(Input::Shared(usage));
        }
    }

    /// Tells the node one thing, and does what comes of it, what it says to itself included.
    fn tell(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        loop {
            let input = match (inputs.pop_front(), self.own.pop_front()) {
                (Some(input), own) => {
                    own.into_iter().for_each(|own| self.own.push_front(own));
                    input
                }
                (None, Some(message)) => Input::Message { from: ME, message },
                (None, None) => return,
            };
            self.node.handle(input, self.limiter.now());
            loop {
                match self.node.poll() {
                    Output::Give { key, given } => {
                        self.shares.give(key, &given, self.limiter.now());
                    }
                    Output::Allot { key, stream, rate } => self.streams.allot(key, stream, rate),
                    Output::EvictShare { key, position } => {
                        let gone = self.shares.evict(key, position) || !self.shares.has_cell(key);
                        if gone {
                            self.names.remove(&key);
                        }
                        inputs.push_back(Input::ShareEvicted { key, gone });
                    }
                    Output::Send { message, .. } => self.own.push_back(message),
                    // Nothing is shared by credit here, and what happened is counted.
                    Output::Permit { .. } | Output::Evict { .. } | Output::Event(_) => {}
                    Output::Timeout(at) => {
                        self.wakes_at = at;
                        break;
                    }
                }
            }
        }
    }

    fn publish(&mut self) {
        for arrival in self.limiter.take_share_arrivals() {
            let bytes: usize = arrival.parts.iter().flatten().map(|part| part.len()).sum();
            if bytes <= NAME_BYTES_MAX && self.shares.has_cell(arrival.key) {
                self.names.insert(arrival.key, arrival.parts);
            }
        }
        // Twice: of few keys it is all known at once.
        self.look_on();
        self.look_on();
        let status = AloneStatus {
            counts: self.node.counts(),
            limits: self.node.share_limits(),
            keys: self.keys.clone(),
        };
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    /// Looks through some more keys.
    fn look_on(&mut self) {
        let now = self.limiter.now();
        let mut looked = 0;
        match &mut self.look {
            Look::Keys(skip, firsts) => {
                for key in self.node.divided_keys(*skip, now).take(LOOK_KEYS) {
                    looked += 1;
                    firsts.add(ME, key);
                }
                *skip += looked;
            }
            Look::Parts(skip, _, parts) => {
                for member in self.node.shared_keys(*skip).take(LOOK_KEYS) {
                    looked += 1;
                    parts.add(&member);
                }
                *skip += looked;
            }
        }
        if looked == LOOK_KEYS {
            return;
        }
        self.look = match std::mem::take(&mut self.look) {
            Look::Keys(_, firsts) => {
                let keys = firsts.rows();
                let parts = Parts::of(keys.iter().map(|(_, key)| key.key));
                Look::Parts(0, keys, parts)
            }
            Look::Parts(_, keys, parts) => {
                let parts = parts.rows(|key| self.names.get(key).cloned());
                self.keys = rows(keys, parts.into_iter().map(|part| (ME, part)));
                Look::default()
            }
        };
    }
}

/// Keys that are being looked through, from the first on: for those of which most is asked for, and
/// then for what there is of these.
enum Look {
    Keys(usize, Firsts),
    Parts(usize, Vec<(NodeId, DividedKey)>, Parts),
}

impl Default for Look {
    fn default() -> Self {
        Self::Keys(0, Firsts::new(FleetShares::KEYS_OF_LIMIT))
    }
}

const ME: NodeId = NodeId::new(1);
/// How often limits that changed are looked for.
const LOOK: Duration = Duration::from_millis(250);
/// Cells are drained no sooner after the first of them became dirty.
const DRAIN_GAP: Duration = Duration::from_millis(20);
/// Keys that are looked through in one turn: less than a millisecond.
const LOOK_KEYS: usize = 2_048;
/// The values of a key that has longer ones are not kept.
const NAME_BYTES_MAX: usize = 512;
