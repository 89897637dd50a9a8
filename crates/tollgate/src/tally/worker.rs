//! One node's side of one store: what it writes there, what it reads, and when.
//!
//! Each tick has two steps, one after the other: what was counted since goes out, and when the
//! store has it, what is due is read. So nothing is on its way while something is read, and an
//! estimate is the sum of what the store has and of what still waits here. A unit is written once:
//! what may have been written is never written again. It knows no cell (the driver tells how far
//! they have counted, and gives them the estimates), no connection and no name of a key.

mod io;
mod key;
mod stats;

use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use super::{Estimate, Tier, WallTime, Window};
use crate::key::{KeyHashing, KeyId};
use crate::mutant::lacks;
use crate::time::Instant;
pub use io::{Count, Counted, Input, OnStale, Outcome, Output, Wanted, WorkerOptions};
use key::{Asked, Key, Place, Waiting, place};
pub use stats::{DRIFT_BOUNDS, Histogram, STALENESS_BOUNDS, WorkerCounts};

/// One node's side of one store. It has as many keys as there are cells.
#[derive(Debug)]
pub struct Worker {
    options: WorkerOptions,
    keys: HashMap<KeyId, Key, KeyHashing>,
    /// What waits to be written, first what is read the shortest.
    writes: BTreeMap<Place, Waiting>,
    /// When keys are to be looked at.
    due: BTreeSet<(Instant, KeyId)>,
    /// How many have been sent, and were not answered.
    sent: usize,
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
        let is_bounded = !lacks("ticks_are_bounded");
        let at_least_one = |number: usize| if is_bounded { number.max(1) } else { usize::MAX };
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
            sent: 0,
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
            Input::Counted(counted) => {
                // What comes with it in one drain is to go with it.
                return self.count(&counted, now, wall);
            }
            Input::Written { command, outcomes } => self.written(command, &outcomes, now, wall),
            Input::Read { command, counts } => self.read(command, &counts, now),
            Input::Evicted { key, gone } => self.evicted(key, gone, now),
            Input::Timeout => {}
        }
        if self.under_way.is_none() && now >= self.ticks_at {
            self.ticks_at = now.saturating_add(self.options.tick);
            self.make_room(now);
            self.free_innocent(now, wall);
            if lacks("writes_before_reads") {
                self.begin_reads(now, wall);
            }
            if self.under_way.is_none() {
                self.begin_writes(wall);
            }
            if self.under_way.is_none() {
                self.begin_reads(now, wall);
            }
        }
    }

    /// The next thing to do; ends with [`Output::Timeout`].
    pub fn poll(&mut self) -> Output {
        self.outputs.pop_front().unwrap_or(Output::Timeout(self.ticks_at()))
    }

    /// What it did so far.
    #[must_use]
    pub fn counts(&self) -> WorkerCounts {
        self.counts
    }

    /// Counts that wait to be written, or are being.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.writes.len() + self.sent
    }

    /// How many nodes share the store now.
    pub fn set_nodes(&mut self, nodes: u64) {
        self.options.nodes = nodes.max(1);
    }

    /// Keys that are due to be read.
    #[must_use]
    pub fn pending_reads(&self, now: Instant) -> usize {
        self.due.range(..=(now, KeyId::from_bits(u64::MAX, u32::MAX))).count()
    }

    /// A key's cell is gone, and so is its name: what of it waits is dropped.
    pub fn forget(&mut self, id: KeyId) {
        if let Some(key) = self.keys.remove(&id) {
            self.due.remove(&(key.due, id));
        }
        let dropped = &mut self.counts.dropped;
        self.writes.retain(|(_, _, of), waiting| {
            *dropped += if *of == id { waiting.units.unsigned_abs() } else { 0 };
            *of != id
        });
    }

    /// Has the next tick come at once.
    pub fn hurry(&mut self, now: Instant) {
        self.ticks_at = self.ticks_at.min(now);
    }

    /// When it wants [`Input::Timeout`].
    #[must_use]
    pub fn ticks_at(&self) -> Instant {
        if self.under_way.is_some() { Instant::MAX } else { self.ticks_at }
    }

    /// Keys that it knows.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Since when no read was answered, if one is waited for or failed.
    #[must_use]
    pub fn silent_since(&self) -> Option<Instant> {
        self.silent_since
    }

    /// How many keys are in each [`Tier`], from idle to hot. It looks at all.
    #[must_use]
    pub fn tiers(&self, now: Instant) -> [usize; 4] {
        let mut tiers = [0; 4];
        for key in self.keys.values() {
            tiers[key.tier(now) as usize] += 1;
        }
        tiers
    }

    fn count(&mut self, counted: &Counted, now: Instant, wall: WallTime) {
        let Counted { key: id, window, on_stale, base, taken, denied, refund } = *counted;
        let begins = base.unwrap_or(taken).min(taken);
        self.counts.begun += u64::from(base.is_some());
        let key = self.keys.entry(id).or_insert_with(|| Key::new(window, on_stale, begins, now));
        if key.window.length() != window.length() {
            // Other windows have other numbers: nothing of the old ones says anything of them.
            let taken = key.taken;
            let (unwritten, is_asked, due) = (key.unwritten, key.is_asked, key.due);
            *key = Key { unwritten, is_asked, due, ..Key::new(window, on_stale, taken, now) };
            self.outputs.push_back(key.told(id));
        } else if key.window != window {
            // Another threshold leaks at another rate.
            key.window = window;
            self.outputs.push_back(key.told(id));
        }
        key.on_stale = on_stale;
        key.note_denied(denied);
        if base.is_some() && key.taken != begins {
            // Another cell. What its predecessor counted is in `own`.
            (key.taken, key.base) = (begins, begins);
            self.outputs.push_back(key.told(id));
        }
        let units = taken.saturating_sub(key.taken);
        (key.taken, key.used_at) = (taken.max(key.taken), now);
        if units > 0 {
            let number = window.number(wall);
            key.note(number, units);
            let units = i64::try_from(units).unwrap_or(i64::MAX);
            self.put(id, window, number, units);
        }
        if let Some((units, at)) = refund {
            self.take_back(id, units, at, wall);
        }
        self.judge_if_silent(id, now, wall);
        self.plan(id, now);
    }

    /// Puts units among those that wait, if there is room. Those of one window of one key take one
    /// place.
    fn put(&mut self, id: KeyId, window: Window, number: u64, units: i64) {
        let is_full = self.waiting() >= self.options.writes_max;
        match self.writes.entry(place(&window, number, id)) {
            Entry::Occupied(mut waiting) => {
                let waiting = waiting.get_mut();
                waiting.units = waiting.units.saturating_add(units);
            }
            Entry::Vacant(_) if is_full && !lacks("writes_are_bounded") => {
                self.counts.dropped += units.unsigned_abs();
            }
            Entry::Vacant(place) => {
                place.insert(Waiting { units, window });
                if let Some(key) = self.keys.get_mut(&id) {
                    key.unwritten += 1;
                }
            }
        }
    }

    /// Units were given back that had been charged at `at`.
    fn take_back(&mut self, id: KeyId, units: u64, at: WallTime, wall: WallTime) {
        let Some(key) = self.keys.get_mut(&id) else { return };
        let (window, number) = (key.window, key.window.number(at));
        let back = key.take_back(number, units, wall);
        if back > 0 {
            self.outputs.push_back(key.told(id));
            self.put(id, window, number, -i64::try_from(back).unwrap_or(i64::MAX));
        }
    }

    /// Whether a key of such windows has been without an answer for too long.
    fn is_cut_off(&self, key: &Key, now: Instant) -> bool {
        let outage_max = self.options.read_outage_max.unwrap_or(key.window.length());
        let is_long = |since| now.saturating_since(since) > outage_max;
        key.silent_since(self.silent_since).is_some_and(is_long) && !lacks("outage_ends_own_counts")
    }

    fn judge_if_silent(&mut self, id: KeyId, now: Instant, wall: WallTime) {
        if self.keys.get(&id).is_some_and(|key| self.is_cut_off(key, now))
            && let Some(key) = self.keys.get_mut(&id)
        {
            key.judge_alone(self.options.nodes, wall, now);
            self.outputs.push_back(key.told(id));
        }
    }

    /// Once a store has been silent for too long, keys that are near their limits by what was
    /// counted here are judged anew before anybody asks for them.
    fn free_innocent(&mut self, now: Instant, wall: WallTime) {
        // What nearly always tells comes first: each tick looks at all keys.
        let is_near = |key: &Key| {
            let level = || Tier::of(&key.window, key.level(now), Estimate::default());
            self.is_cut_off(key, now) && key.taken > key.base && level() == Tier::Hot
        };
        let near = self.keys.iter().filter(|(_, key)| is_near(key));
        for id in near.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.judge_if_silent(id, now, wall);
        }
    }

    /// Lets keys leave that nobody has asked for the longest, when there are too many.
    fn make_room(&mut self, now: Instant) {
        let many = self.options.keys_max / 8 * 7;
        if self.keys.len() <= many || lacks("keys_make_room") {
            return;
        }
        let may_leave = self.keys.iter().filter(|(_, key)| key.may_leave(now));
        let mut leave: Vec<(Instant, KeyId)> =
            may_leave.map(|(id, key)| (key.used_at, *id)).collect();
        let count = (self.keys.len() - self.options.keys_max / 4 * 3).min(leave.len());
        if count < leave.len() {
            leave.select_nth_unstable(count);
        }
        for (_, id) in &leave[..count] {
            let taken = self.keys[id].taken;
            self.outputs.push_back(Output::Evict { key: *id, taken });
        }
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
            let is_late = number.saturating_add(1) < window.number(wall);
            if is_late && !lacks("late_windows_are_dropped") {
                self.settle(id);
                self.counts.late += units.unsigned_abs();
                continue;
            }
            counts.push(Count { key: id, number, units, window });
        }
        if counts.is_empty() {
            return;
        }
        self.sent = counts.len();
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

    fn written(&mut self, command: u64, outcomes: &[Outcome], now: Instant, wall: WallTime) {
        let Some(Step::Writes(commands)) = &mut self.under_way else { return };
        let Some(counts) = commands.remove(&command) else { return };
        let is_last = commands.is_empty();
        for (place, Count { key: id, number, units, window }) in counts.into_iter().enumerate() {
            self.settle(id);
            self.sent -= 1;
            let counted = match outcomes.get(place).copied().unwrap_or(Outcome::Unknown) {
                // There is room: it was counted among those that wait.
                Outcome::NotSent => {
                    self.put(id, window, number, units);
                    continue;
                }
                Outcome::Unknown if lacks("unknown_is_not_resent") => {
                    self.put(id, window, number, units);
                    continue;
                }
                Outcome::Done => &mut self.counts.written,
                Outcome::Refused => &mut self.counts.refused,
                // It may be there: a second time would be one too many.
                Outcome::Unknown => &mut self.counts.unknown,
            };
            *counted += units.unsigned_abs();
        }
        if is_last {
            self.under_way = None;
            self.begin_reads(now, wall);
        }
    }

    /// Units of a window of a key wait no more.
    fn settle(&mut self, id: KeyId) {
        if let Some(key) = self.keys.get_mut(&id) {
            key.unwritten = key.unwritten.saturating_sub(1);
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
            let wanted = |asked: &Asked| {
                let Asked { key, window, .. } = *asked;
                Wanted { key, number: window.number(wall), window }
            };
            Output::Read { command, keys: part.iter().map(wanted).collect() }
        };
        let commands = self.command(&asked, read);
        self.under_way = Some(Step::Reads { sent_at: now, wall, commands });
    }

    fn read(&mut self, command: u64, counts: &[Option<(u64, u64)>], now: Instant) {
        let Some(Step::Reads { sent_at, wall, commands }) = &mut self.under_way else { return };
        let Some(asked) = commands.remove(&command) else { return };
        let (sent_at, wall, is_last) = (*sent_at, *wall, commands.is_empty());
        if counts.iter().any(Option::is_some) {
            self.silent_since = None;
        }
        for (place, asked) in asked.into_iter().enumerate() {
            let stored = counts.get(place).copied().flatten();
            let Some(key) = self.keys.get_mut(&asked.key) else { continue };
            if stored.is_none() {
                self.counts.read_failed += 1;
                key.note_failed(sent_at);
            }
            key.is_asked = false;
            // The next tick may read it again, unless this answer came too late for that.
            key.rests_until = now.saturating_add(self.options.tick / 2);
            if let Some(stored) = stored
                && key.window.length() == asked.window.length()
            {
                let (before, was) = (key.level(now), key.tier(now));
                let age = key.read_at.map(|at| now.saturating_since(at));
                key.take_in(&asked, stored, (sent_at, wall), &self.options);
                if lacks("counts_in_flight_stay") {
                    key.base = key.taken;
                }
                let drift = key.window.apart(before, key.level(now));
                self.counts.note_read(drift, age, (was, key.tier(now)));
                self.outputs.push_back(key.told(asked.key));
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
            let has_rested = now >= key.rests_at(&self.options);
            let left =
                if has_rested { &mut self.counts.rested } else { &mut self.counts.displaced };
            *left += 1;
        }
    }
}

/// No worker looks at its store more often.
const TICK_MIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
