//! One key on a worker: what was counted of it here, what was read, and when it is read again.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{OnStale, Output, WorkerOptions};
use crate::key::KeyId;
use crate::mutant::lacks;
use crate::tally::{Estimate, Floor, Tier, WallTime, Window};
use crate::time::Instant;

/// Where the units of one window of a key wait: first what is read the shortest.
pub(super) type Place = (WallTime, u64, KeyId);

pub(super) fn place(window: &Window, number: u64, key: KeyId) -> Place {
    (window.end(number), number, key)
}

/// Units that wait to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub(super) units: i64,
    pub(super) window: Window,
}

/// A key that is being read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) key: KeyId,
    pub(super) window: Window,
    /// How far its cell has counted.
    pub(super) taken: u64,
    /// In the previous window, and in this one: what waits here, and what this node has counted.
    pub(super) waits: [i64; 2],
    pub(super) own: [u64; 2],
}

#[derive(Debug)]
pub(super) struct Key {
    pub(super) window: Window,
    pub(super) on_stale: OnStale,
    pub(super) taken: u64,
    /// Of how many windows counts wait to be written, or are being.
    pub(super) unwritten: u32,
    /// What was counted here in the last two windows in which anything was: a store may forget.
    pub(super) own: [(u64, u64); 2],
    /// Up to where the estimate knows.
    pub(super) base: u64,
    pub(super) estimate: Estimate,
    /// From when on that leaks.
    pub(super) leaks_from: Instant,
    /// The same as they were read, whatever it is judged by.
    pub(super) was_read: (Estimate, Instant),
    /// Since when its reads have failed.
    pub(super) failed_since: Option<Instant>,
    pub(super) read_at: Option<Instant>,
    /// How soon it may be at its limit at the speed at which it rose until it was read.
    pub(super) near: Option<Duration>,
    pub(super) is_asked: bool,
    /// Units that were refused here, and whether some were since it was read.
    pub(super) denied: u64,
    pub(super) is_contested: bool,
    /// It is not read again before that.
    pub(super) rests_until: Instant,
    pub(super) began_at: Instant,
    pub(super) used_at: Instant,
    pub(super) due: Instant,
}

impl Asked {
    /// What was counted in the previous window and in this one: what the store has, with what waits
    /// here; and what this node knows is there even if the store has lost it.
    fn counts(&self, stored: (u64, u64)) -> (u64, u64) {
        let sum = |place: usize, stored: u64| {
            let waits = if lacks("what_waits_counts") { 0 } else { self.waits[place] };
            let own = if lacks("own_record_kept") { 0 } else { self.own[place] };
            stored.saturating_add_signed(waits).max(own)
        };
        (sum(0, stored.0), sum(1, stored.1))
    }
}

impl Key {
    /// A key whose cell begins at `base`.
    pub(super) fn new(window: Window, on_stale: OnStale, base: u64, now: Instant) -> Self {
        Self {
            window,
            on_stale,
            taken: base,
            unwritten: 0,
            own: [(0, 0); 2],
            base,
            estimate: Estimate::default(),
            leaks_from: now,
            was_read: (Estimate::default(), now),
            failed_since: None,
            read_at: None,
            near: None,
            is_asked: false,
            denied: 0,
            is_contested: false,
            rests_until: now,
            began_at: now,
            used_at: now,
            due: Instant::MAX,
        }
    }

    /// Takes in what was read.
    pub(super) fn take_in(
        &mut self,
        asked: &Asked,
        stored: (u64, u64),
        (sent_at, wall): (Instant, WallTime),
        options: &WorkerOptions,
    ) {
        let (previous, current) = asked.counts(stored);
        let estimate = self.window.estimate(previous, current, wall);
        let (before, since) = match self.read_at {
            Some(read_at) => (self.was_read.0, read_at),
            None => (Estimate::default(), self.began_at),
        };
        let time = sent_at.saturating_since(since);
        self.near = self.window.time_to_threshold(before, estimate, time);
        (self.estimate, self.base) = (estimate, asked.taken.min(self.taken));
        self.read_at = Some(sent_at);
        let own = asked.own.iter().sum();
        if std::mem::take(&mut self.is_contested) && !lacks("room_is_shared") {
            self.estimate = self.window.shared(estimate, (previous, current), own);
        }
        let tier = Tier::of(&self.window, estimate, estimate);
        // Ticks come late, and half a window is as far as anything is planned.
        let next = self.interval(options, tier).saturating_add(options.tick);
        self.leaks_from = sent_at;
        if !lacks("leaks_as_counts_do") {
            let rest = self.window.rest((previous, current), own, wall, next);
            self.leaks_from = sent_at.saturating_add(rest);
        }
        (self.was_read, self.failed_since) = ((estimate, self.leaks_from), None);
    }

    /// A read of it failed that was sent then.
    pub(super) fn note_failed(&mut self, sent_at: Instant) {
        self.failed_since.get_or_insert(sent_at);
    }

    /// Since when its store has been silent, of which nothing was heard since then, or for it.
    pub(super) fn silent_since(&self, store: Option<Instant>) -> Option<Instant> {
        let own = self.failed_since.filter(|_| !lacks("keys_fail_alone"));
        match (own, store) {
            (Some(own), Some(store)) => Some(own.min(store)),
            (own, store) => own.or(store),
        }
    }

    /// Notes how much was refused since the cell began.
    pub(super) fn note_denied(&mut self, denied: u64) {
        self.is_contested |= denied > self.denied;
        self.denied = denied;
    }

    /// Counts units of a window here.
    pub(super) fn note(&mut self, number: u64, units: u64) {
        // A clock may go back.
        match self.own.iter_mut().find(|(own, _)| *own == number) {
            Some(own) => own.1 += units,
            None => self.own = [self.own[1], (number, units)],
        }
    }

    /// Takes back units that were counted in a window; returns how many were known to be.
    pub(super) fn take_back(&mut self, number: u64, units: u64, wall: WallTime) -> u64 {
        let Some((_, own)) = self.own.iter_mut().find(|(own, _)| *own == number) else { return 0 };
        let back = units.min(*own);
        *own -= back;
        // What was counted in the window before weighs less than what is counted here now.
        if number == self.window.number(wall) || lacks("given_back_by_its_weight") {
            let here = back.min(self.taken - self.base);
            self.base += here;
            self.estimate = self.window.without(self.estimate, back - here);
        }
        back
    }

    /// By what it is judged when its store has been silent for too long.
    pub(super) fn judge_alone(&mut self, nodes: u64, wall: WallTime, now: Instant) {
        self.base = self.taken;
        (self.estimate, self.leaks_from) = self.was_read;
        if lacks("what_was_known_counts_on") {
            self.estimate = Estimate::default();
        }
        let number = self.window.number(wall);
        let own = |number| self.own_in(number).saturating_mul(nodes);
        let alone = match self.on_stale {
            OnStale::Allow => return,
            OnStale::Share => {
                let before = number.checked_sub(1).map_or(0, own);
                self.window.estimate(before, own(number), wall)
            }
            OnStale::Deny => Estimate::MAX,
        };
        let left = self.window.leaked(self.estimate, now.saturating_since(self.leaks_from));
        (self.estimate, self.leaks_from) = (left.max(alone), now);
    }

    fn own_in(&self, number: u64) -> u64 {
        self.own.iter().filter(|(own, _)| *own == number).map(|(_, units)| units).sum()
    }

    /// What is known of it when its reading begins.
    pub(super) fn asked(
        &self,
        id: KeyId,
        writes: &BTreeMap<Place, Waiting>,
        wall: WallTime,
    ) -> Asked {
        let number = self.window.number(wall);
        let numbers = [number.checked_sub(1), Some(number)];
        let waits = |number| {
            let waiting = writes.get(&place(&self.window, number, id));
            waiting.map_or(0, |waiting| waiting.units)
        };
        Asked {
            key: id,
            window: self.window,
            taken: self.taken,
            waits: numbers.map(|number| number.map_or(0, waits)),
            own: numbers.map(|number| number.map_or(0, |number| self.own_in(number))),
        }
    }

    pub(super) fn told(&self, id: KeyId) -> Output {
        let (window, base) = (self.window, self.base);
        let (estimate, leaks_from) = (self.estimate, self.leaks_from);
        Output::Estimate { key: id, window, base, estimate, leaks_from }
    }

    pub(super) fn level(&self, now: Instant) -> Estimate {
        let age = now.saturating_since(self.leaks_from);
        self.window.level(self.estimate, age, self.taken - self.base)
    }

    pub(super) fn tier(&self, now: Instant) -> Tier {
        Tier::of(&self.window, self.level(now), self.estimate)
    }

    /// When it is to be read, if it is at all: nothing that nobody has asked for since.
    pub(super) fn reads_at(&self, options: &WorkerOptions, now: Instant) -> Option<Instant> {
        let tier = self.tier(now);
        let floor = Floor::new(options.floor, &self.window);
        let counted = self.own.iter().map(|(_, units)| units).sum();
        let is_since = |read_at| self.used_at > read_at || self.taken > self.base;
        let is_used = self.read_at.is_none_or(is_since);
        if !is_used || self.is_asked || !floor.reads(tier, counted) {
            return None;
        }
        let Some(read_at) = self.read_at else {
            let late = lacks("first_read_at_once");
            let wait = if late { tier.interval(options.sync) } else { Duration::ZERO };
            return Some(self.began_at.saturating_add(wait).max(self.rests_until));
        };
        // At once what has come nearer to its limit than was read.
        let has_risen = !lacks("risen_is_read_at_once")
            && tier > Tier::of(&self.window, self.estimate, Estimate::default());
        let interval = if has_risen { options.tick } else { self.interval(options, tier) };
        // With the tick that is the nearest.
        let interval = interval.saturating_sub(options.tick / 2);
        Some(read_at.saturating_add(interval).max(self.rests_until))
    }

    /// How long what was read counts.
    fn interval(&self, options: &WorkerOptions, tier: Tier) -> Duration {
        // What is new may be about to be asked for everywhere, and was read when others had not
        // written yet: it is read again after as long as it was known then.
        let read_at = self.read_at.unwrap_or(self.began_at);
        let known = read_at.saturating_since(self.began_at).max(options.tick);
        let known = if lacks("new_keys_are_read_again") { Duration::MAX } else { known };
        // Before others can have used what is left, at the speed at which it went; and above the
        // limit before all of them let pass what leaks.
        let least = self.window.length() / NEAR_PARTS;
        let near = self.near.map_or(Duration::MAX, |near| (near / 2).max(least));
        let near = if lacks("near_is_read") { Duration::MAX } else { near };
        let sync = options.sync.min(self.window.length() / 4);
        tier.interval(sync).min(known).min(near).max(options.tick)
    }

    /// Whether it may make room for others: nothing of it waits, and little is known of it.
    pub(super) fn may_leave(&self, now: Instant) -> bool {
        let tier = || Tier::of(&self.window, self.level(now), Estimate::default());
        self.unwritten == 0 && !self.is_asked && tier() == Tier::Idle
    }

    pub(super) fn rests_at(&self, options: &WorkerOptions) -> Instant {
        let short = lacks("idle_outlives_two_windows");
        let windows = if short { Duration::ZERO } else { self.window.length() * 2 };
        let idle = options.idle.max(windows);
        self.used_at.saturating_add(idle)
    }

    pub(super) fn is_rested(&self, options: &WorkerOptions, now: Instant) -> bool {
        now >= self.rests_at(options) && self.unwritten == 0 && !self.is_asked
    }

    /// When it is to be looked at next.
    pub(super) fn due_at(&self, options: &WorkerOptions, now: Instant) -> Instant {
        // What it still waits for comes with some tick.
        let rests_at = self.rests_at(options);
        let rests_at = if rests_at > now { rests_at } else { now.saturating_add(options.tick) };
        self.reads_at(options, now).map_or(rests_at, |at| at.min(rests_at))
    }
}

/// A key that is at its limit is read so often in a window, or with each tick if that is less.
const NEAR_PARTS: u32 = 40;
