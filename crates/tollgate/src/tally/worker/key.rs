//! One key on a worker: what was counted of it here, what was read, and when it is read again.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Output, WorkerOptions};
use crate::key::KeyId;
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
    pub(super) units: u64,
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
    pub(super) waits: [u64; 2],
    pub(super) own: [u64; 2],
}

#[derive(Debug)]
pub(super) struct Key {
    pub(super) window: Window,
    pub(super) taken: u64,
    /// Of those, what waits to be written or is being.
    pub(super) unwritten: u64,
    /// What was counted here in the last two windows in which anything was: a store may forget.
    pub(super) own: [(u64, u64); 2],
    /// Up to where the estimate knows.
    pub(super) base: u64,
    pub(super) estimate: Estimate,
    pub(super) read_at: Option<Instant>,
    pub(super) is_asked: bool,
    /// It is not read again before that.
    pub(super) rests_until: Instant,
    pub(super) began_at: Instant,
    pub(super) used_at: Instant,
    pub(super) due: Instant,
}

impl Asked {
    /// What a key used lately, of what the store has in the previous window and in this one: what
    /// waits here comes to that, and what this node knows is there even if the store has lost it.
    pub(super) fn estimate(&self, stored: (u64, u64), wall: WallTime) -> Estimate {
        let sum = |place: usize, stored: u64| {
            stored.saturating_add(self.waits[place]).max(self.own[place])
        };
        self.window.estimate(sum(0, stored.0), sum(1, stored.1), wall)
    }
}

impl Key {
    pub(super) fn new(window: Window, now: Instant) -> Self {
        Self {
            window,
            taken: 0,
            unwritten: 0,
            own: [(0, 0); 2],
            base: 0,
            estimate: Estimate::default(),
            read_at: None,
            is_asked: false,
            rests_until: now,
            began_at: now,
            used_at: now,
            due: Instant::MAX,
        }
    }

    /// Counts units of a window here.
    pub(super) fn note(&mut self, number: u64, units: u64) {
        // A clock may go back.
        match self.own.iter_mut().find(|(own, _)| *own == number) {
            Some(own) => own.1 += units,
            None => self.own = [self.own[1], (number, units)],
        }
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
        let own = |number| {
            self.own.iter().filter(|(own, _)| *own == number).map(|(_, units)| units).sum()
        };
        Asked {
            key: id,
            window: self.window,
            taken: self.taken,
            waits: numbers.map(|number| number.map_or(0, waits)),
            own: numbers.map(|number| number.map_or(0, own)),
        }
    }

    pub(super) fn told(&self, id: KeyId, base: u64, now: Instant) -> Output {
        let read_at = self.read_at.unwrap_or(now);
        Output::Estimate { key: id, base, estimate: self.estimate, read_at }
    }

    /// When it is to be read, if it is at all: nothing that nobody has asked for since.
    pub(super) fn reads_at(&self, options: &WorkerOptions, now: Instant) -> Option<Instant> {
        let age = self.read_at.map_or(Duration::ZERO, |at| now.saturating_since(at));
        let level = self.window.level(self.estimate, age, self.taken - self.base);
        let tier = Tier::of(&self.window, level, self.estimate);
        let floor = Floor::new(options.floor, &self.window);
        let counted = self.own.iter().map(|(_, units)| units).sum();
        let is_since = |read_at| self.used_at > read_at || self.taken > self.base;
        let is_used = self.read_at.is_none_or(is_since);
        if !is_used || self.is_asked || !floor.reads(tier, counted) {
            return None;
        }
        let Some(read_at) = self.read_at else { return Some(self.began_at.max(self.rests_until)) };
        // What is new may be about to be asked for everywhere, and was read when others had not
        // written yet: it is read again after as long as it was known then. And at once what has
        // come nearer to its limit than was read.
        let known = read_at.saturating_since(self.began_at).max(options.tick);
        let has_risen = tier > Tier::of(&self.window, self.estimate, Estimate::default());
        let sync = options.sync.min(self.window.length() / 4);
        let interval = if has_risen { options.tick } else { tier.interval(sync).min(known) };
        Some(read_at.saturating_add(interval).max(self.rests_until))
    }

    pub(super) fn rests_at(&self, options: &WorkerOptions) -> Instant {
        let idle = options.idle.max(self.window.length() * 2);
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
