//! One node's side of all stores: what its cells have counted goes to the worker of the key's
//! store, and what workers want is done to cells, or asked of a store by the names of counters.
//!
//! It holds no connection and reads no clock. The driver and the simulator drive the same type:
//! [`drain`](TallyNode::drain) when cells have something to tell,
//! [`handle`](TallyNode::handle) what a store answered, and after each of them
//! [`poll`](TallyNode::poll) until [`Command::Timeout`].

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::credits::{Credits, Drained};
use crate::fleet::Arrival;
use crate::key::{KeyHashing, KeyId};
use crate::limiter::Limiter;
use crate::policy::FleetLimitId;
use crate::rules::{TallyLimit, TallyRules};
use crate::tally::{
    Count, Counted, Input, KeyName, Leak, OnStale, Output, WallTime, Wanted, Window, Worker,
    WorkerCounts, WorkerOptions, limit_prefix,
};
use crate::time::Instant;

/// What a node's side of its stores is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TallyOptions {
    /// What the names of all counters begin with. Typically `tollgate`; the same on all nodes.
    pub prefix: String,
    /// How many stores there are; the same on all nodes. Each key is counted in one of them.
    pub stores: usize,
    /// How each store is used. Its `keys_max` is for all stores together.
    pub worker: WorkerOptions,
    /// For how long a counter is kept after it can be read for the last time.
    pub grace: Duration,
}

impl Default for TallyOptions {
    fn default() -> Self {
        Self {
            prefix: "tollgate".into(),
            stores: 1,
            worker: WorkerOptions::default(),
            grace: Duration::from_secs(5),
        }
    }
}

/// Units to be added to a counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addition {
    /// The counter's name.
    pub name: String,
    /// How many; may be below 0.
    pub units: i64,
    /// When the counter may go, in whole seconds since 1970.
    pub expires_at: u64,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Add to counters, each once at most; [`Input::Written`] tells what became of it.
    Write {
        /// Which store.
        store: usize,
        /// The command's number.
        command: u64,
        /// What is added.
        additions: Vec<Addition>,
    },
    /// Read two counters of each key, of the previous window and of this one; [`Input::Read`] tells
    /// what they were.
    Read {
        /// Which store.
        store: usize,
        /// The command's number.
        command: u64,
        /// The counters' names.
        names: Vec<[String; 2]>,
    },
    /// Nothing now; call [`handle`](TallyNode::handle) with [`Input::Timeout`] then.
    Timeout(Instant),
}

/// One node's side of all stores.
#[derive(Debug)]
pub struct TallyNode {
    limiter: Limiter,
    credits: Arc<Credits>,
    options: TallyOptions,
    workers: Vec<Worker>,
    rules: TallyRules,
    /// What the names of each limit's counters begin with.
    prefixes: HashMap<FleetLimitId, Arc<str>>,
    keys: HashMap<KeyId, Kept, KeyHashing>,
    orphans: HashMap<KeyId, Orphan, KeyHashing>,
    commands: VecDeque<Command>,
    nameless: u64,
}

/// A cell that was drained and can't be counted: its key's name was not told yet, or was lost, or
/// its limit is gone.
#[derive(Debug, Clone, Copy)]
struct Orphan {
    drained: Drained,
    since: Instant,
}

/// What is kept of a key besides its cell.
#[derive(Debug)]
struct Kept {
    limit: FleetLimitId,
    /// What the names of its limit's counters began with when it came, should that be gone.
    prefix: Arc<str>,
    name: KeyName,
    store: usize,
}

impl TallyNode {
    /// For a limiter whose [`Options::tally`](crate::Options::tally) is on; none for others.
    #[must_use]
    pub fn new(limiter: Limiter, options: TallyOptions) -> Option<Self> {
        let credits = limiter.tally()?.clone();
        let stores = options.stores.max(1);
        // Those that stand in for others besides are not for ordinary keys.
        let keys_max = options.worker.keys_max.min(credits.made_for() as usize);
        let worker = WorkerOptions { keys_max: keys_max / stores, ..options.worker };
        Some(Self {
            limiter,
            credits,
            workers: (0..stores).map(|_| Worker::new(worker)).collect(),
            options,
            rules: TallyRules::default(),
            prefixes: HashMap::new(),
            keys: HashMap::default(),
            orphans: HashMap::default(),
            commands: VecDeque::new(),
            nameless: 0,
        })
    }

    /// Takes in what cells have counted since.
    pub fn drain(&mut self, now: Instant, wall: WallTime) {
        let mut drained = Vec::new();
        self.credits.drain(now, |one| drained.push(one));
        // After the cells: of most that are new the name has been told by now.
        self.take_names();
        for one in drained {
            let before = self.orphans.remove(&one.key);
            let base = before.and_then(|one| one.drained.base).or(one.base);
            let since = before.map_or(now, |one| one.since);
            self.count(Drained { base, ..one }, since, now, wall);
        }
        let is_over = |one: &Orphan| now.saturating_since(one.since) >= ORPHANS_WAIT;
        let has_come = |one: &Orphan| self.place_of(&one.drained).is_some();
        let ripe = |one: &&Orphan| is_over(one) || has_come(one);
        for Orphan { drained, since } in
            self.orphans.values().filter(ripe).copied().collect::<Vec<_>>()
        {
            let key = drained.key;
            if self.place_of(&drained).is_some() {
                self.orphans.remove(&key);
                self.count(drained, since, now, wall);
            } else if self.credits.evict(key, drained.taken) || !self.credits.has_cell(key) {
                // Its next request makes a cell anew, and tells its name.
                self.orphans.remove(&key);
                self.nameless += 1;
                if let Some(kept) = self.keys.remove(&key) {
                    self.workers[kept.store].forget(key);
                }
            }
        }
    }

    /// Where a cell's key is counted, if that is known.
    fn place_of(&self, drained: &Drained) -> Option<(usize, Window, OnStale)> {
        let limit = self.rules.limits.get(&drained.limit)?;
        let window = limit.window_of(drained.key)?;
        Some((self.keys.get(&drained.key)?.store, window, limit.on_stale))
    }

    /// Takes in what became of a command, or that the time of the last timeout has come.
    pub fn handle(&mut self, store: usize, input: Input, now: Instant, wall: WallTime) {
        let Some(worker) = self.workers.get_mut(store) else { return };
        worker.handle(input, now, wall);
        self.settle(store, now, wall);
    }

    /// The time of [`Command::Timeout`] has come.
    pub fn handle_timeout(&mut self, now: Instant, wall: WallTime) {
        for store in 0..self.workers.len() {
            self.handle(store, Input::Timeout, now, wall);
        }
    }

    /// Has all that waits written now, and not with the next tick.
    pub fn flush(&mut self, now: Instant, wall: WallTime) {
        self.workers.iter_mut().for_each(|worker| worker.hurry(now));
        self.handle_timeout(now, wall);
    }

    /// The next thing to do; ends with [`Command::Timeout`].
    pub fn poll(&mut self) -> Command {
        self.commands.pop_front().unwrap_or_else(|| {
            let at = self.workers.iter().map(Worker::ticks_at).min();
            Command::Timeout(at.unwrap_or(Instant::MAX))
        })
    }

    /// How many nodes share the stores now.
    pub fn set_nodes(&mut self, nodes: u64) {
        self.workers.iter_mut().for_each(|worker| worker.set_nodes(nodes));
    }

    /// Each store's worker.
    #[must_use]
    pub fn workers(&self) -> &[Worker] {
        &self.workers
    }

    /// Cells that left uncounted, since their key's name was lost or their limit is gone.
    #[must_use]
    pub fn nameless(&self) -> u64 {
        self.nameless
    }

    /// What all workers did so far.
    #[must_use]
    pub fn counts(&self) -> WorkerCounts {
        let mut sum = WorkerCounts::default();
        self.workers.iter().for_each(|worker| sum += worker.counts());
        sum
    }

    /// Whether everything that was counted is written, or will not be.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.workers.iter().all(|worker| worker.waiting() == 0)
    }

    fn take_names(&mut self) {
        let arrivals = self.limiter.take_tally_arrivals();
        // After the names, each of which is of a limit that was in force before.
        if self.limiter.revision() != self.rules.revision {
            self.rules = self.limiter.tally_rules();
            let prefix = |(number, limit): (&FleetLimitId, &TallyLimit)| {
                let prefix = limit_prefix(&self.options.prefix, &limit.domain, &limit.name);
                (*number, prefix.into())
            };
            self.prefixes = self.rules.limits.iter().map(prefix).collect();
        }
        for Arrival { key, limit, parts } in arrivals {
            let values: Vec<Option<&[u8]>> = parts.iter().map(Option::as_deref).collect();
            let name = KeyName::new(&values);
            let store = name.store_of(self.workers.len());
            if let Some(prefix) = self.prefixes.get(&limit).cloned() {
                self.keys.insert(key, Kept { limit, prefix, name, store });
            }
        }
    }

    fn count(&mut self, drained: Drained, since: Instant, now: Instant, wall: WallTime) {
        let Drained { key, base, taken, denied, .. } = drained;
        let Some((store, window, on_stale)) = self.place_of(&drained) else {
            self.orphans.insert(key, Orphan { drained, since });
            return;
        };
        let at = |charged: Instant| {
            let age = now.saturating_since(charged).as_nanos();
            let age = u64::try_from(age).unwrap_or(u64::MAX);
            WallTime::from_nanos(wall.as_nanos().saturating_sub(age))
        };
        let refund = drained.refund.map(|(units, charged)| (units, at(charged)));
        let counted = Counted { key, window, on_stale, base, taken, denied, refund };
        self.handle(store, Input::Counted(counted), now, wall);
    }

    /// Does what a worker wants, as far as it is done here.
    fn settle(&mut self, store: usize, now: Instant, wall: WallTime) {
        loop {
            match self.workers[store].poll() {
                Output::Write { command, counts } => {
                    let additions = counts.iter().map(|count| self.addition(count)).collect();
                    self.commands.push_back(Command::Write { store, command, additions });
                }
                Output::Read { command, keys } => {
                    let names = keys.iter().map(|wanted| self.names(wanted)).collect();
                    self.commands.push_back(Command::Read { store, command, names });
                }
                Output::Estimate { key, window, base, estimate, leaks_from } => {
                    let leak = Leak::new(window);
                    let leaks_until = leak.leaks_until(estimate, leaks_from);
                    self.credits.estimate(key, leaks_until, leak.units(estimate), base);
                }
                Output::Evict { key, taken } => {
                    let gone = self.credits.evict(key, taken) || !self.credits.has_cell(key);
                    if gone {
                        self.keys.remove(&key);
                    }
                    self.workers[store].handle(Input::Evicted { key, gone }, now, wall);
                }
                Output::Timeout(_) => break,
            }
        }
    }

    fn addition(&self, count: &Count) -> Addition {
        let Count { key, number, units, window } = count;
        let name = self.counter(*key, window, *number);
        let spread = self.keys.get(key).map_or(0, |kept| kept.name.spread());
        let expires_at = window.expires_at(*number, self.options.grace, spread);
        // Rounded up, so that it is never gone while it is read.
        let expires_at = expires_at.as_nanos().div_ceil(NANOS_PER_SECOND);
        Addition { name, units: *units, expires_at }
    }

    fn names(&self, wanted: &Wanted) -> [String; 2] {
        let Wanted { key, number, window } = wanted;
        [number.saturating_sub(1), *number].map(|number| self.counter(*key, window, number))
    }

    /// The name of a key's counter. A key that a worker knows has one.
    fn counter(&self, key: KeyId, window: &Window, number: u64) -> String {
        let name = |kept: &Kept| {
            // A limit may have another name now.
            let prefix = self.prefixes.get(&kept.limit).unwrap_or(&kept.prefix);
            kept.name.counter(prefix, window, number)
        };
        self.keys.get(&key).map(name).unwrap_or_default()
    }
}

/// How long a cell may wait for its key's name.
const ORPHANS_WAIT: Duration = Duration::from_secs(1);
const NANOS_PER_SECOND: u64 = 1_000_000_000;
