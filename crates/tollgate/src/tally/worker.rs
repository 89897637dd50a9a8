//! One node's side of one store: what it writes there, what it reads, and when.
//!
//! Each tick has two steps, one after the other: what was counted since goes out, and when the
//! store has it, what is due is read. So whatever is read has in it what this node has written, and
//! an estimate that stands on it counts from there. A unit is written once: what may have been
//! written is never written again. It knows no cell (the driver tells how far they have counted,
//! and gives them the estimates), no connection and no name of a key.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use super::{Estimate, Floor, Tier, WallTime, Window};
use crate::key::{KeyHashing, KeyId};
use crate::time::Instant;

/// How a worker uses its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerOptions {
    /// How often it writes and reads.
    pub tick: Duration,
    /// How long what was read of a key of normal pressure counts.
    pub sync: Duration,
    /// Units that a node must have counted of an idle key before it reads it; see [`Floor`].
    pub floor: u64,
    /// After so long without any answer to a read, what this node has counted by itself limits
    /// nobody: only what was read does, and leaks.
    pub read_outage_max: Duration,
    /// After so long without a request a key is forgotten; two windows if that is more.
    pub idle: Duration,
    /// Counts that wait to be written, at most; what finds no place among them is dropped.
    pub writes_max: usize,
    /// Counts that are written in one tick.
    pub writes_per_tick: usize,
    /// Keys that are read in one tick.
    pub reads_per_tick: usize,
    /// Keys in one command.
    pub keys_per_command: usize,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            tick: Duration::from_secs(1),
            sync: Duration::from_secs(15),
            floor: 10,
            read_outage_max: Duration::from_secs(60),
            idle: Duration::from_secs(300),
            writes_max: 200_000,
            writes_per_tick: 200_000,
            reads_per_tick: 20_000,
            keys_per_command: 2_000,
        }
    }
}

/// What a worker is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// How far a key's cell has counted, which was asked for; it need not have counted more. A key
    /// that is new began at 0.
    Counted {
        /// The key.
        key: KeyId,
        /// Its limit.
        window: Window,
        /// Units since its cell began.
        taken: u64,
    },
    /// What became of a [`Output::Write`].
    Written {
        /// Its number.
        command: u64,
        /// What became of it.
        outcome: Outcome,
    },
    /// What became of a [`Output::Read`].
    Read {
        /// Its number.
        command: u64,
        /// The counts of each of its keys in their order, in the previous window and in this one;
        /// `None` if it failed.
        counts: Option<Vec<(u64, u64)>>,
    },
    /// Whether a key's cell has gone, as [`Output::Evict`] wanted.
    Evicted {
        /// The key.
        key: KeyId,
        /// Whether it has.
        gone: bool,
    },
    /// The time of [`Output::Timeout`] has come.
    Timeout,
}

/// What became of a command that writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All of it is in the store.
    Done,
    /// The store surely has nothing of it.
    NotSent,
    /// The store may have it, or a part.
    Unknown,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Add these counts to the store.
    Write {
        /// Its number, for the answer.
        command: u64,
        /// What is added.
        counts: Vec<Count>,
    },
    /// Read the counts of these keys.
    Read {
        /// Its number, for the answer.
        command: u64,
        /// The keys, and the numbers of their windows now; each one's previous is one less.
        keys: Vec<(KeyId, u64)>,
    },
    /// A key is judged by this from now on: what its cell has counted beyond `base` comes on top of
    /// an estimate that was read at that instant.
    Estimate {
        /// The key.
        key: KeyId,
        /// Units since its cell began that are in the estimate.
        base: u64,
        /// What the fleet has used lately.
        estimate: Estimate,
        /// Since when it leaks.
        read_at: Instant,
    },
    /// A key rests; its cell may go, if it is still there.
    Evict {
        /// The key.
        key: KeyId,
        /// How far it has counted.
        taken: u64,
    },
    /// Nothing now; call again then.
    Timeout(Instant),
}

/// Units that are added to one window of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// The key.
    pub key: KeyId,
    /// The window's number.
    pub number: u64,
    /// How many.
    pub units: u64,
    /// Its limit.
    pub window: Window,
}

/// What a worker did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkerCounts {
    /// Units that the store has.
    pub written: u64,
    /// Units of which it is not known whether the store has them.
    pub unknown: u64,
    /// Units that found no place among those that wait.
    pub dropped: u64,
    /// Units of windows that nobody reads any more.
    pub late: u64,
    /// Keys that were read.
    pub read: u64,
    /// Keys whose reading failed.
    pub read_failed: u64,
}

/// One node's side of one store.
#[derive(Debug)]
pub struct Worker {
    options: WorkerOptions,
    keys: HashMap<KeyId, Key, KeyHashing>,
    /// What waits to be written, the oldest windows first.
    writes: BTreeMap<(u64, KeyId), u64>,
    /// When keys are to be looked at.
    due: BTreeSet<(Instant, KeyId)>,
    under_way: Option<Step>,
    commands: u64,
    ticks_at: Instant,
    /// When a read was answered last, or the first one that was not went out.
    heard_at: Option<Instant>,
    outputs: VecDeque<Output>,
    counts: WorkerCounts,
}

/// A step of a tick, until all of its commands have been answered.
#[derive(Debug)]
enum Step {
    Writes(HashMap<u64, Vec<Count>>),
    Reads { sent_at: Instant, wall: WallTime, commands: HashMap<u64, Vec<Asked>> },
}

/// A key that is being read.
#[derive(Debug, Clone, Copy)]
struct Asked {
    key: KeyId,
    /// Up to where its counts are in the store, as far as is known.
    base: u64,
    /// What this node alone has counted of that in the previous window, and in this one.
    own: (u64, u64),
}

#[derive(Debug)]
struct Key {
    window: Window,
    taken: u64,
    /// Of those, what waits to be written or is being.
    unwritten: u64,
    /// What was counted here, by window: a store may forget.
    own: [(u64, u64); 2],
    base: u64,
    estimate: Estimate,
    read_at: Option<Instant>,
    is_asked: bool,
    began_at: Instant,
    used_at: Instant,
    due: Instant,
}

impl Worker {
    /// Nothing counted yet.
    #[must_use]
    pub fn new(options: WorkerOptions) -> Self {
        Self {
            options,
            keys: HashMap::default(),
            writes: BTreeMap::new(),
            due: BTreeSet::new(),
            under_way: None,
            commands: 0,
            ticks_at: Instant::ZERO,
            heard_at: None,
            outputs: VecDeque::new(),
            counts: WorkerCounts::default(),
        }
    }

    /// Takes in what has happened; `now` and `wall` are read for it.
    pub fn handle(&mut self, input: Input, now: Instant, wall: WallTime) {
        match input {
            Input::Counted { key, window, taken } => self.count(key, window, taken, now, wall),
            Input::Written { command, outcome } => self.written(command, outcome, now, wall),
            Input::Read { command, counts } => self.read(command, counts, now),
            Input::Evicted { key, gone } => self.evicted(key, gone, now),
            Input::Timeout => {}
        }
        if self.under_way.is_none() && now >= self.ticks_at {
            self.ticks_at = now.saturating_add(self.options.tick);
            self.begin_writes(wall);
            if self.under_way.is_none() {
                self.begin_reads(now, wall);
            }
        }
    }

    /// The next thing to do; ends with [`Output::Timeout`].
    pub fn poll(&mut self) -> Output {
        self.outputs.pop_front().unwrap_or(Output::Timeout(self.ticks_at))
    }

    /// What it did so far.
    #[must_use]
    pub fn counts(&self) -> WorkerCounts {
        self.counts
    }

    /// Counts that wait to be written.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.writes.len()
    }

    fn count(&mut self, id: KeyId, window: Window, taken: u64, now: Instant, wall: WallTime) {
        let is_cut_off = self.is_cut_off(now);
        let key = self.keys.entry(id).or_insert_with(|| Key::new(window, now));
        if key.window != window {
            // Other windows have other numbers: nothing of the old ones says anything of them.
            key.window = window;
            key.own = [(0, 0); 2];
            (key.estimate, key.read_at, key.base) = (Estimate::default(), None, key.taken);
        }
        let units = taken.saturating_sub(key.taken);
        let number = window.number(wall);
        key.used_at = now;
        if units > 0 {
            key.taken = taken;
            key.note(number, units);
            // What waits for the same window of the same key takes no other place.
            let is_full = self.writes.len() >= self.options.writes_max;
            match self.writes.get_mut(&(number, id)) {
                Some(waiting) => {
                    *waiting += units;
                    key.unwritten += units;
                }
                None if is_full => self.counts.dropped += units,
                None => {
                    self.writes.insert((number, id), units);
                    key.unwritten += units;
                }
            }
        }
        if is_cut_off && key.base < key.taken {
            key.base = key.taken;
            self.outputs.extend(key.told(id));
        }
        self.plan(id, now);
    }

    /// Whether the store has told nothing for so long that what is counted here alone must limit
    /// nobody.
    fn is_cut_off(&self, now: Instant) -> bool {
        let silent = |heard_at| now.saturating_since(heard_at) > self.options.read_outage_max;
        self.heard_at.is_some_and(silent)
    }

    /// Puts a key where the next look finds it when it is to be read, or may go.
    fn plan(&mut self, id: KeyId, now: Instant) {
        let Some(key) = self.keys.get_mut(&id) else { return };
        let at = key.due_at(&self.options, now);
        if at != key.due {
            self.due.remove(&(key.due, id));
            key.due = at;
        }
        self.due.insert((at, id));
    }

    fn begin_writes(&mut self, wall: WallTime) {
        let mut counts = Vec::new();
        while counts.len() < self.options.writes_per_tick
            && let Some(((number, id), units)) = self.writes.pop_first()
        {
            let Some(key) = self.keys.get_mut(&id) else { continue };
            if number.saturating_add(1) < key.window.number(wall) {
                key.unwritten = key.unwritten.saturating_sub(units);
                self.counts.late += units;
                continue;
            }
            counts.push(Count { key: id, number, units, window: key.window });
        }
        if counts.is_empty() {
            return;
        }
        let mut commands = HashMap::new();
        for part in counts.chunks(self.options.keys_per_command.max(1)) {
            self.commands += 1;
            let command = self.commands;
            self.outputs.push_back(Output::Write { command, counts: part.to_vec() });
            commands.insert(command, part.to_vec());
        }
        self.under_way = Some(Step::Writes(commands));
    }

    fn written(&mut self, command: u64, outcome: Outcome, now: Instant, wall: WallTime) {
        let Some(Step::Writes(commands)) = &mut self.under_way else { return };
        let Some(counts) = commands.remove(&command) else { return };
        let is_last = commands.is_empty();
        for Count { key: id, number, units, .. } in counts {
            let Some(key) = self.keys.get_mut(&id) else { continue };
            match outcome {
                Outcome::NotSent => *self.writes.entry((number, id)).or_default() += units,
                Outcome::Done => {
                    key.unwritten = key.unwritten.saturating_sub(units);
                    self.counts.written += units;
                }
                // It may be there: a second time would be one too many.
                Outcome::Unknown => {
                    key.unwritten = key.unwritten.saturating_sub(units);
                    self.counts.unknown += units;
                }
            }
        }
        if is_last {
            self.under_way = None;
            self.begin_reads(now, wall);
        }
    }

    fn begin_reads(&mut self, now: Instant, wall: WallTime) {
        let mut asked = Vec::new();
        while asked.len() < self.options.reads_per_tick
            && let Some((at, id)) = self.due.first().copied()
            && at <= now
        {
            self.due.pop_first();
            let Some(key) = self.keys.get_mut(&id) else { continue };
            if key.is_rested(&self.options, now) {
                self.outputs.push_back(Output::Evict { key: id, taken: key.taken });
                continue;
            }
            if !key.is_due(&self.options, now) {
                self.plan(id, now);
                continue;
            }
            key.is_asked = true;
            asked.push(key.asked(id, &self.writes, wall));
        }
        if asked.is_empty() {
            return;
        }
        self.heard_at.get_or_insert(now);
        let mut commands = HashMap::new();
        for part in asked.chunks(self.options.keys_per_command.max(1)) {
            self.commands += 1;
            let command = self.commands;
            let number = |id: &KeyId| self.keys[id].window.number(wall);
            let keys = part.iter().map(|asked| (asked.key, number(&asked.key))).collect();
            self.outputs.push_back(Output::Read { command, keys });
            commands.insert(command, part.to_vec());
        }
        self.under_way = Some(Step::Reads { sent_at: now, wall, commands });
    }

    fn read(&mut self, command: u64, counts: Option<Vec<(u64, u64)>>, now: Instant) {
        let Some(Step::Reads { sent_at, wall, commands }) = &mut self.under_way else { return };
        let Some(asked) = commands.remove(&command) else { return };
        let (sent_at, wall, is_last) = (*sent_at, *wall, commands.is_empty());
        // An answer of another length is none.
        let counts = counts.filter(|counts| counts.len() == asked.len());
        match &counts {
            Some(_) => {
                self.heard_at = Some(now);
                self.counts.read += asked.len() as u64;
            }
            None => self.counts.read_failed += asked.len() as u64,
        }
        for (place, asked) in asked.into_iter().enumerate() {
            let Some(key) = self.keys.get_mut(&asked.key) else { continue };
            key.is_asked = false;
            if let Some(counts) = &counts {
                let (previous, current) = counts[place];
                // What this node knows is there, even if the store has lost it.
                let (previous, current) = (previous.max(asked.own.0), current.max(asked.own.1));
                key.estimate = key.window.estimate(previous, current, wall);
                (key.read_at, key.base) = (Some(sent_at), asked.base);
                self.outputs.extend(key.told(asked.key));
            }
            self.plan(asked.key, now);
        }
        if is_last {
            self.under_way = None;
        }
    }

    fn evicted(&mut self, id: KeyId, gone: bool, now: Instant) {
        if !gone {
            return self.plan(id, now);
        }
        if let Some(key) = self.keys.remove(&id) {
            self.due.remove(&(key.due, id));
        }
    }
}

impl Key {
    fn new(window: Window, now: Instant) -> Self {
        Self {
            window,
            taken: 0,
            unwritten: 0,
            own: [(0, 0); 2],
            base: 0,
            estimate: Estimate::default(),
            read_at: None,
            is_asked: false,
            began_at: now,
            used_at: now,
            due: Instant::MAX,
        }
    }

    /// Counts units of a window here.
    fn note(&mut self, number: u64, units: u64) {
        let [_, last] = &mut self.own;
        if last.0 == number {
            last.1 += units;
        } else {
            self.own = [*last, (number, units)];
        }
    }

    /// What was counted here in one window.
    fn own(&self, number: u64) -> u64 {
        self.own.iter().filter(|(own, _)| *own == number).map(|(_, units)| units).sum()
    }

    /// What is known of it when its reading begins.
    fn asked(&self, id: KeyId, writes: &BTreeMap<(u64, KeyId), u64>, wall: WallTime) -> Asked {
        let number = self.window.number(wall);
        // What waits to be written is on top of what is read.
        let known = |number| {
            let waits = writes.get(&(number, id)).copied().unwrap_or(0);
            self.own(number).saturating_sub(waits)
        };
        let own = (number.checked_sub(1).map_or(0, known), known(number));
        Asked { key: id, base: self.taken - self.unwritten, own }
    }

    fn told(&self, id: KeyId) -> Option<Output> {
        let (base, estimate) = (self.base, self.estimate);
        self.read_at.map(|read_at| Output::Estimate { key: id, base, estimate, read_at })
    }

    fn tier(&self, now: Instant) -> Tier {
        let age = self.read_at.map_or(Duration::ZERO, |at| now.saturating_since(at));
        let level = self.window.level(self.estimate, age, self.taken.saturating_sub(self.base));
        Tier::of(&self.window, level, self.estimate)
    }

    /// When it is to be read, if it is at all: nothing that nobody has asked for since.
    fn reads_at(&self, options: &WorkerOptions, now: Instant) -> Option<Instant> {
        let (tier, floor) = (self.tier(now), Floor::new(options.floor, &self.window));
        let counted = self.own.iter().map(|(_, units)| units).sum();
        let is_since = |read_at| self.used_at > read_at || self.taken > self.base;
        let is_used = self.read_at.is_none_or(is_since);
        if !is_used || self.is_asked || !floor.reads(tier, counted) {
            return None;
        }
        let Some(read_at) = self.read_at else { return Some(now) };
        // What is new may be about to be asked for everywhere, and was read when others had not
        // written yet: it is read again after as long as it was known then.
        let known = read_at.saturating_since(self.began_at).max(options.tick);
        Some(read_at.saturating_add(tier.interval(options.sync).min(known)))
    }

    fn is_due(&self, options: &WorkerOptions, now: Instant) -> bool {
        self.reads_at(options, now).is_some_and(|at| at <= now)
    }

    fn rests_at(&self, options: &WorkerOptions) -> Instant {
        let idle = options.idle.max(self.window.length() * 2);
        self.used_at.saturating_add(idle)
    }

    fn is_rested(&self, options: &WorkerOptions, now: Instant) -> bool {
        now >= self.rests_at(options) && self.unwritten == 0 && !self.is_asked
    }

    /// When it is to be looked at next.
    fn due_at(&self, options: &WorkerOptions, now: Instant) -> Instant {
        // What it still waits for comes with some tick.
        let rests_at = self.rests_at(options);
        let rests_at = if rests_at > now { rests_at } else { now.saturating_add(options.tick) };
        self.reads_at(options, now).map_or(rests_at, |at| at.min(rests_at))
    }
}

#[cfg(test)]
mod tests;
