//! One node's side of one store: what it writes there, what it reads, and when.
//!
//! Each tick has two steps, one after the other: what was counted since goes out, and when the
//! store has it, what is due is read. So nothing is on its way while something is read, and an
//! estimate is the sum of what the store has and of what still waits here. A unit is written once:
//! what may have been written is never written again. It knows no cell (the driver tells how far
//! they have counted, and gives them the estimates), no connection and no name of a key.

mod io;
mod key;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use super::{Estimate, WallTime, Window};
use crate::key::{KeyHashing, KeyId};
use crate::time::Instant;
pub use io::{Count, Input, Outcome, Output, WorkerCounts, WorkerOptions};
use key::{Asked, Key, Place, Waiting, place};

/// One node's side of one store. It has as many keys as there are cells.
#[derive(Debug)]
pub struct Worker {
    options: WorkerOptions,
    keys: HashMap<KeyId, Key, KeyHashing>,
    /// What waits to be written, first what is read the shortest.
    writes: BTreeMap<Place, Waiting>,
    /// When keys are to be looked at.
    due: BTreeSet<(Instant, KeyId)>,
    under_way: Option<Step>,
    commands: u64,
    ticks_at: Instant,
    /// When the first read went out that was not answered, since the last one that was.
    silent_since: Option<Instant>,
    outputs: VecDeque<Output>,
    counts: WorkerCounts,
}

/// A step of a tick, until all of its commands have been answered.
#[derive(Debug)]
enum Step {
    Writes(HashMap<u64, Vec<Count>>),
    Reads { sent_at: Instant, wall: WallTime, commands: HashMap<u64, Vec<Asked>> },
}

impl Worker {
    /// Nothing counted yet.
    #[must_use]
    pub fn new(options: WorkerOptions) -> Self {
        let at_least_one = |number: usize| number.max(1);
        let options = WorkerOptions {
            tick: options.tick.max(TICK_MIN),
            writes_per_tick: at_least_one(options.writes_per_tick),
            reads_per_tick: at_least_one(options.reads_per_tick),
            keys_per_command: at_least_one(options.keys_per_command),
            ..options
        };
        Self {
            options,
            keys: HashMap::default(),
            writes: BTreeMap::new(),
            due: BTreeSet::new(),
            under_way: None,
            commands: 0,
            ticks_at: Instant::ZERO,
            silent_since: None,
            outputs: VecDeque::new(),
            counts: WorkerCounts::default(),
        }
    }

    /// Takes in what has happened; `now` and `wall` are read for it.
    pub fn handle(&mut self, input: Input, now: Instant, wall: WallTime) {
        match input {
            Input::Counted { key, window, taken } => {
                // What comes with it in one drain is to go with it.
                return self.count(key, window, taken, now, wall);
            }
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
        let timeout = if self.under_way.is_some() { Instant::MAX } else { self.ticks_at };
        self.outputs.pop_front().unwrap_or(Output::Timeout(timeout))
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
        let key = self.keys.entry(id).or_insert_with(|| Key::new(window, now));
        if key.window.length() != window.length() {
            // Other windows have other numbers: nothing of the old ones says anything of them.
            (key.own, key.estimate, key.read_at) = ([(0, 0); 2], Estimate::default(), None);
            (key.base, key.began_at) = (key.taken, now);
            self.outputs.push_back(key.told(id, key.base, now));
        }
        key.window = window;
        if taken < key.taken {
            // Another cell, which began anew. What its predecessor counted is in `own`.
            (key.taken, key.base) = (0, 0);
            self.outputs.push_back(key.told(id, 0, now));
        }
        let units = taken - key.taken;
        (key.taken, key.used_at) = (taken, now);
        if units > 0 {
            let number = window.number(wall);
            key.note(number, units);
            let is_full = self.writes.len() >= self.options.writes_max;
            let place = place(&window, number, id);
            // What waits for the same window of the same key takes no other place.
            match self.writes.get_mut(&place) {
                Some(waiting) => {
                    waiting.units += units;
                    key.unwritten += units;
                }
                None if is_full => self.counts.dropped += units,
                None => {
                    self.writes.insert(place, Waiting { units, window });
                    key.unwritten += units;
                }
            }
        }
        let outage_max = self.options.read_outage_max.unwrap_or(window.length());
        let is_long = |since| now.saturating_since(since) > outage_max;
        if self.silent_since.is_some_and(is_long) {
            self.outputs.push_back(key.told(id, key.taken, now));
        }
        self.plan(id, now);
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
            && let Some(((_, number, id), Waiting { units, window })) = self.writes.pop_first()
        {
            if number.saturating_add(1) < window.number(wall) {
                self.settle(id, units);
                self.counts.late += units;
                continue;
            }
            counts.push(Count { key: id, number, units, window });
        }
        if counts.is_empty() {
            return;
        }
        let write = |command, part: &[Count]| Output::Write { command, counts: part.to_vec() };
        self.under_way = Some(Step::Writes(self.command(&counts, write)));
    }

    /// Goes with as many commands as it takes; returns what each of them has.
    fn command<T: Copy>(
        &mut self,
        all: &[T],
        output: impl Fn(u64, &[T]) -> Output,
    ) -> HashMap<u64, Vec<T>> {
        let mut commands = HashMap::new();
        for part in all.chunks(self.options.keys_per_command) {
            self.commands += 1;
            self.outputs.push_back(output(self.commands, part));
            commands.insert(self.commands, part.to_vec());
        }
        commands
    }

    fn written(&mut self, command: u64, outcome: Outcome, now: Instant, wall: WallTime) {
        let Some(Step::Writes(commands)) = &mut self.under_way else { return };
        let Some(counts) = commands.remove(&command) else { return };
        let is_last = commands.is_empty();
        for Count { key: id, number, units, window } in counts {
            let counted = match outcome {
                Outcome::NotSent => {
                    let place = place(&window, number, id);
                    let waiting = self.writes.entry(place).or_insert(Waiting { units: 0, window });
                    waiting.units += units;
                    continue;
                }
                Outcome::Done => &mut self.counts.written,
                // It may be there: a second time would be one too many.
                Outcome::Unknown => &mut self.counts.unknown,
            };
            *counted += units;
            self.settle(id, units);
        }
        if is_last {
            self.under_way = None;
            self.begin_reads(now, wall);
        }
    }

    /// Units of a key wait no more.
    fn settle(&mut self, id: KeyId, units: u64) {
        if let Some(key) = self.keys.get_mut(&id) {
            key.unwritten = key.unwritten.saturating_sub(units);
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
            if key.reads_at(&self.options, now).is_none_or(|at| at > now) {
                self.plan(id, now);
                continue;
            }
            key.is_asked = true;
            asked.push(key.asked(id, &self.writes, wall));
        }
        if asked.is_empty() {
            return;
        }
        self.silent_since.get_or_insert(now);
        let read = |command, part: &[Asked]| {
            let keys = part.iter().map(|asked| (asked.key, asked.window.number(wall))).collect();
            Output::Read { command, keys }
        };
        let commands = self.command(&asked, read);
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
                self.silent_since = None;
                self.counts.read += asked.len() as u64;
            }
            None => self.counts.read_failed += asked.len() as u64,
        }
        for (place, asked) in asked.into_iter().enumerate() {
            let Some(key) = self.keys.get_mut(&asked.key) else { continue };
            key.is_asked = false;
            key.rests_until = now.saturating_add(self.options.tick);
            if let Some(counts) = &counts
                && key.window.length() == asked.window.length()
            {
                key.estimate = asked.estimate(counts[place], wall);
                (key.read_at, key.base) = (Some(sent_at), asked.taken.min(key.taken));
                self.outputs.push_back(key.told(asked.key, key.base, now));
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

/// No worker looks at its store more often.
const TICK_MIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
