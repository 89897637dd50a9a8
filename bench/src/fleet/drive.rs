//! Workers and owners of keys in virtual time: real nodes and real cells, a network that only takes
//! time, and requests in so many a tick instead of one after another. It exists for sizes that the
//! simulator has no time for; nothing is lost here and nobody fails.
//!
//! All keys have one limit. Clients do not wait and do not come again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tollgate::coordinator::RingChange;
use tollgate::{
    Charged, Credits, Event, FleetLimitId, FleetRules, Input, Instant, KeyId, Member, Message,
    Node, NodeCounts, NodeId, NodeOptions, Output, Rate, Ring, RingEpoch, Usage, ViewLimit,
};
use tollgate_sim::Chance;

use crate::measure::thread_cpu;

/// A fleet and what is asked of it.
#[derive(Debug, Clone)]
pub struct Plan {
    pub owners: u32,
    pub workers: u32,
    pub keys: u32,
    /// R, in units a second, and B of each key.
    pub rate: u64,
    pub burst: u64,
    /// Requests of one unit a second on each worker.
    pub per_second: f64,
    /// Whether key n is asked for n times less often than the first, or all alike.
    pub is_zipf: bool,
    pub options: NodeOptions,
    /// How often a worker takes requests in and tells its node of them.
    pub tick: Duration,
}

/// A fleet that runs.
pub struct Fleet {
    plan: Plan,
    chance: Chance,
    /// Key n's share of the requests and of those for all before it.
    shares: Vec<f64>,
    now: Instant,
    owners: Vec<Host>,
    workers: Vec<Worker>,
    keys: Vec<Key>,
    sent: Vec<(NodeId, Message)>,
    seen: Seen,
}

/// What was seen so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    pub asked: u64,
    pub admitted: u64,
    /// Entries of batches that workers sent, and batches.
    pub offered: u64,
    pub batches: u64,
    /// Entries of batches that owners applied.
    pub applied: u64,
    /// Answers to the refused.
    pub refusals: u64,
    /// The longest time between reports that an owner asked for.
    pub cadence_max: Duration,
    /// CPU time of the owners.
    pub owners_cpu: Duration,
    /// Keys, or workers of one, that an owner had no room for.
    pub full: u64,
}

/// A node and its mail.
struct Host {
    node: Node,
    wakes_at: Instant,
    /// In the order of time.
    mail: VecDeque<(Instant, NodeId, Message)>,
}

struct Worker {
    host: Host,
    credits: Credits,
    /// By key: what its cell returned since it was drained last.
    untold: Vec<u64>,
    usages: Vec<Usage>,
    /// What is left of a request.
    part: f64,
    /// Units that were admitted.
    admitted: u64,
}

/// What was admitted of one key: a leaky bucket whose highest level is the largest excess of any
/// window.
#[derive(Debug, Clone, Copy, Default)]
struct Key {
    /// Units × 10^9.
    level: u64,
    at: u64,
    highest: u64,
    admitted: u64,
}

impl Fleet {
    pub fn new(plan: Plan) -> Self {
        let times = plan.options.times;
        let rate = Rate::new(plan.rate, 1_000_000_000).expect("a rate");
        let limit = ViewLimit::new(rate, plan.burst, 1, times.sync_interval);
        let rules = FleetRules {
            revision: 1,
            limits: BTreeMap::from([(LIMIT, limit)]),
            ..FleetRules::default()
        };
        let none = Ring::new(RingEpoch::ZERO, []).expect("an empty ring");
        let members = (1..=plan.owners).map(|node| Member { node: NodeId::new(node), weight: 1 });
        let ring = Ring::new(RingEpoch::ZERO.next(), members).expect("each node is there once");
        let change = RingChange { ring: Arc::new(ring), previous: Arc::new(none), lost: [].into() };
        let now = Instant::from_nanos(1_000_000_000);
        let host = |number: u32| {
            let mut node = Node::new(NodeId::new(number), plan.options);
            let age = Duration::ZERO;
            let ring = Input::Ring { change: change.clone(), age, start: 1, is_restart: false };
            for input in [ring, Input::Rules(rules.clone())] {
                node.handle(input, now);
                while !matches!(node.poll(), Output::Timeout(_)) {}
            }
            Host { node, wakes_at: Instant::MAX, mail: VecDeque::new() }
        };
        let worker = |index: u32| Worker {
            host: host(plan.owners + 1 + index),
            credits: Credits::new(u64::from(plan.keys)),
            untold: vec![0; plan.keys as usize],
            usages: Vec::new(),
            part: f64::from(index) / f64::from(plan.workers),
            admitted: 0,
        };
        let share = |n: u32| if plan.is_zipf { 1.0 / f64::from(n + 1) } else { 1.0 };
        let mut sum = 0.0;
        let shares = (0..plan.keys).map(|n| {
            sum += share(n);
            sum
        });
        Self {
            chance: Chance::new(1),
            shares: shares.collect(),
            now,
            owners: (1..=plan.owners).map(host).collect(),
            workers: (0..plan.workers).map(worker).collect(),
            keys: vec![Key { at: now.as_nanos(), ..Key::default() }; plan.keys as usize],
            sent: Vec::new(),
            seen: Seen::default(),
            plan,
        }
    }

    /// Runs for so long, and tells what was seen in that time.
    pub fn run(&mut self, time: Duration) -> Seen {
        self.seen = Seen::default();
        let ticks = time.as_nanos() / self.plan.tick.as_nanos();
        let workers = self.plan.workers;
        let begin = self.now;
        let mut order: Vec<usize> = (0..workers as usize).collect();
        for tick in 0..ticks as u32 {
            // Each has its turn at a time of its own, so that their messages do not come at once,
            // nor always one's before another's.
            for last in (1..order.len()).rev() {
                order.swap(last, self.chance.between(0, last as u64) as usize);
            }
            for (turn, worker) in order.iter().enumerate() {
                let within = self.plan.tick * turn as u32 / workers;
                self.now = begin.saturating_add(self.plan.tick * tick + within);
                self.turn_of_owners();
                self.turn_of(*worker);
            }
        }
        self.now = begin.saturating_add(self.plan.tick * ticks as u32);
        self.seen
    }

    /// The most units above B + R·t that any key was admitted in any window; negative if none.
    pub fn worst_excess(&self) -> f64 {
        let highest = self.keys.iter().map(|key| key.highest).max().unwrap_or(0);
        highest as f64 / 1e9 - self.plan.burst as f64
    }

    /// Units of each key that were admitted since this was asked last.
    pub fn take_admitted(&mut self) -> Vec<u64> {
        self.keys.iter_mut().map(|key| std::mem::take(&mut key.admitted)).collect()
    }

    /// Units that each worker was admitted since this was asked last.
    pub fn take_admitted_of_workers(&mut self) -> Vec<u64> {
        self.workers.iter_mut().map(|worker| std::mem::take(&mut worker.admitted)).collect()
    }

    /// What an owner did so far.
    pub fn owner(&self, index: usize) -> NodeCounts {
        self.owners[index].node.counts()
    }

    /// The owners handle what has come, and what is due.
    fn turn_of_owners(&mut self) {
        let now = self.now;
        for (index, owner) in self.owners.iter_mut().enumerate() {
            let is_due = |owner: &Host| owner.mail.front().is_some_and(|(at, ..)| *at <= now);
            if !is_due(owner) && owner.wakes_at > now {
                continue;
            }
            let began = thread_cpu();
            let seen = &mut self.seen;
            while is_due(owner)
                && let Some((at, from, message)) = owner.mail.pop_front()
            {
                owner.tell(Input::Message { from, message }, at, &mut self.sent, seen);
            }
            if owner.wakes_at <= now {
                owner.tell(Input::Timeout, now, &mut self.sent, seen);
            }
            seen.owners_cpu += thread_cpu() - began;
            let (from, due) = (NodeId::new(index as u32 + 1), now.saturating_add(DELAY));
            for (to, message) in self.sent.drain(..) {
                seen.note(&message);
                let worker = (to.get() - 1 - self.plan.owners) as usize;
                self.workers[worker].host.mail.push_back((due, from, message));
            }
        }
    }

    /// A worker takes requests in, tells its node of them, and hands it its mail.
    fn turn_of(&mut self, index: usize) {
        self.take_requests(index);
        let now = self.now;
        let Worker { host, credits, untold, usages, .. } = &mut self.workers[index];
        let mut turn = Turn { credits, untold, sent: &mut self.sent, seen: &mut self.seen, now };
        turn.drain(host, usages);
        while host.mail.front().is_some_and(|(at, ..)| *at <= now)
            && let Some((_, from, message)) = host.mail.pop_front()
        {
            turn.tell(host, Input::Message { from, message });
            turn.drain(host, usages);
        }
        if host.wakes_at <= now {
            turn.tell(host, Input::Timeout);
            turn.drain(host, usages);
        }
        let from = NodeId::new(self.plan.owners + 1 + index as u32);
        let due = now.saturating_add(DELAY);
        for (to, message) in self.sent.drain(..) {
            self.seen.note(&message);
            self.owners[to.get() as usize - 1].mail.push_back((due, from, message));
        }
    }

    fn take_requests(&mut self, index: usize) {
        let now = self.now;
        let sum = self.shares.last().copied().unwrap_or(0.0);
        let Worker { credits, part, admitted, .. } = &mut self.workers[index];
        *part += self.plan.per_second * self.plan.tick.as_secs_f64();
        while *part >= 1.0 {
            *part -= 1.0;
            let drawn = self.chance.fraction() * sum;
            let number = self.shares.partition_point(|up_to| *up_to <= drawn);
            self.seen.asked += 1;
            match credits.charge(id(number as u32), LIMIT, 1, now) {
                Charged::Allowed { .. } => {
                    self.seen.admitted += 1;
                    *admitted += 1;
                    self.keys[number].admit(self.plan.rate, now);
                }
                Charged::OverLimit { .. } | Charged::Stale { .. } => {}
                Charged::Full => unreachable!("there is room for all keys"),
            }
        }
    }
}

impl Host {
    /// Tells an owner something.
    fn tell(
        &mut self,
        input: Input,
        at: Instant,
        sent: &mut Vec<(NodeId, Message)>,
        seen: &mut Seen,
    ) {
        self.node.handle(input, at);
        loop {
            match self.node.poll() {
                Output::Send { to, message } => sent.push((to, message)),
                Output::Event(event) => seen.full += u64::from(event == Event::Full),
                Output::Timeout(at) => {
                    self.wakes_at = at;
                    return;
                }
                Output::Permit { .. }
                | Output::Evict { .. }
                | Output::Give { .. }
                | Output::Allot { .. }
                | Output::EvictShare { .. } => {
                    unreachable!("an owner here spends nothing")
                }
            }
        }
    }
}

/// What a worker's node acts on.
struct Turn<'a> {
    credits: &'a Credits,
    untold: &'a mut [u64],
    sent: &'a mut Vec<(NodeId, Message)>,
    seen: &'a mut Seen,
    now: Instant,
}

impl Turn<'_> {
    /// Tells what cells hold, until there is nothing new.
    fn drain(&mut self, host: &mut Host, usages: &mut Vec<Usage>) {
        loop {
            self.credits.drain(self.now, |drained| {
                let returned = std::mem::take(&mut self.untold[number(drained.key) as usize]);
                let (limit, refused) = (drained.limit, drained.refused);
                usages.push(Usage {
                    limit,
                    drained,
                    returned,
                    waiting: 0,
                    is_brief: false,
                    refused,
                });
            });
            if usages.is_empty() {
                return;
            }
            for usage in usages.drain(..) {
                self.tell(host, Input::Usage(usage));
            }
        }
    }

    fn tell(&mut self, host: &mut Host, input: Input) {
        let mut next = Some(input);
        let mut evicted = Vec::new();
        while let Some(input) = next {
            host.node.handle(input, self.now);
            loop {
                match host.node.poll() {
                    Output::Permit { key, permit } => {
                        let returned = self.credits.permit(key, &permit).unwrap_or(0);
                        self.untold[number(key) as usize] += returned;
                    }
                    Output::Evict { key, taken } => evicted.push((key, taken)),
                    // Nothing is divided here.
                    Output::Give { .. } | Output::Allot { .. } | Output::EvictShare { .. } => {}
                    Output::Send { to, message } => self.sent.push((to, message)),
                    Output::Event(event) => {
                        self.seen.full += u64::from(event == Event::Full);
                    }
                    Output::Timeout(at) => {
                        host.wakes_at = at;
                        break;
                    }
                }
            }
            next = evicted.pop().map(|(key, taken)| {
                let gone = self.credits.evict(key, taken);
                Input::Evicted { key, gone }
            });
        }
    }
}

impl Key {
    fn admit(&mut self, rate: u64, now: Instant) {
        let leaked = (now.as_nanos() - self.at).saturating_mul(rate);
        self.level = self.level.saturating_sub(leaked) + 1_000_000_000;
        self.at = now.as_nanos();
        self.highest = self.highest.max(self.level);
        self.admitted += 1;
    }
}

impl Seen {
    fn note(&mut self, message: &Message) {
        match message {
            Message::Reports(batch) => {
                self.offered += batch.reports.len() as u64;
                self.batches += 1;
            }
            Message::Snapshots(batch) => {
                if batch.answers.is_some() {
                    self.applied += batch.snapshots.len() as u64;
                }
                let longest = batch.snapshots.iter().map(|snapshot| snapshot.cadence).max();
                self.cadence_max = self.cadence_max.max(longest.unwrap_or_default());
            }
            Message::Refused { .. } => self.refusals += 1,
            Message::Handover(_) | Message::HandoverArrived { .. } => {
                unreachable!("the ring does not change")
            }
        }
    }
}

/// Key n: its place in tables and on the ring is anywhere, and its number is still to be read.
fn id(number: u32) -> KeyId {
    KeyId::from_bits(Chance::new(u64::from(number)).bits(), number)
}

fn number(key: KeyId) -> u32 {
    key.to_bits().1
}

const LIMIT: FleetLimitId = FleetLimitId(0);
/// One way.
const DELAY: Duration = Duration::from_micros(500);
