//! A store: counters that expire by its own clock, and all that can become of a command.
//!
//! It knows neither nodes nor time but what it is told. Names are the product's own.

use std::collections::{BTreeMap, VecDeque};

use tollgate::Addition;

use crate::chance::Chance;
use crate::scenario::{Nanos, SECOND};

/// A counter.
#[derive(Debug, Clone, Copy, Default)]
struct Counter {
    units: i64,
    /// In seconds since 1970.
    expires_at: u64,
}

/// One store.
#[derive(Debug, Default)]
pub(super) struct Store {
    counters: BTreeMap<String, Counter>,
    /// What was added lately, for a replica that lacks it.
    lately: VecDeque<(Nanos, String, i64)>,
    /// What was ever added, by counter; expiry and loss take nothing off.
    pub(super) added: BTreeMap<String, u64>,
    pub(super) refuses_until: Nanos,
    pub(super) swallows_until: Nanos,
    pub(super) reads_only_until: Nanos,
}

impl Store {
    pub(super) fn add(&mut self, addition: &Addition, now: Nanos, wall: u64) {
        let Addition { name, units, expires_at } = addition;
        *self.added.entry(name.clone()).or_default() += units.unsigned_abs();
        while self.lately.front().is_some_and(|(at, ..)| at + LATELY < now) {
            self.lately.pop_front();
        }
        self.lately.push_back((now, name.clone(), *units));
        let lives = self.lives(name, wall);
        let counter = self.counters.entry(name.clone()).or_default();
        let before = if lives { counter.units } else { 0 };
        *counter = Counter { units: before + units, expires_at: *expires_at };
    }

    /// What a counter has; nothing if it has expired.
    pub(super) fn read(&self, name: &str, wall: u64) -> u64 {
        let units = if self.lives(name, wall) { self.counters[name].units } else { 0 };
        u64::try_from(units).unwrap_or(0)
    }

    /// Loses each counter with this probability.
    pub(super) fn evict(&mut self, share: f64, chance: &mut Chance) {
        self.counters.retain(|_, _| !chance.happens(share));
    }

    /// A replica takes over, without what was added in so long a time.
    pub(super) fn fail_over(&mut self, lacks: Nanos, now: Nanos) {
        let since = now.saturating_sub(lacks);
        while let Some((at, name, units)) = self.lately.pop_back() {
            if at < since {
                break;
            }
            if let Some(counter) = self.counters.get_mut(&name) {
                counter.units = (counter.units - units).max(0);
            }
        }
        self.lately.clear();
    }

    fn lives(&self, name: &str, wall: u64) -> bool {
        self.counters.get(name).is_some_and(|counter| counter.expires_at * SECOND > wall)
    }
}

/// For how long it is known what was added when.
const LATELY: Nanos = 2 * SECOND;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, units: i64) -> Addition {
        Addition { name: name.into(), units, expires_at: 100 }
    }

    #[test]
    fn a_counter_is_gone_at_its_time_and_a_replica_lacks_what_came_last() {
        let mut store = Store::default();
        store.add(&of("a", 3), SECOND, 50 * SECOND);
        store.add(&of("a", 4), 2 * SECOND, 51 * SECOND);
        assert_eq!(store.read("a", 99 * SECOND), 7);
        assert_eq!(store.read("a", 100 * SECOND), 0);
        store.fail_over(SECOND / 2, 2 * SECOND);
        assert_eq!((store.read("a", 99 * SECOND), store.added["a"]), (3, 7));
        store.evict(1.0, &mut Chance::new(1));
        assert_eq!(store.read("a", 99 * SECOND), 0);
    }
}
