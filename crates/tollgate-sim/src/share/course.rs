//! What was asked of a key, and when nothing changed: the stretches of a run that promises of
//! steady demand are about.

use super::ledger::Ledger;
use super::scenario::{Fault, Scenario, Units};
use crate::scenario::Nanos;

/// When what changed, for one key.
#[derive(Debug, Clone)]
pub struct Course {
    /// From when until when something was not as before or after, in the order of beginnings.
    changes: Vec<(Nanos, Nanos)>,
    /// The same of all but what is asked.
    wrongs: Vec<(Nanos, Nanos)>,
    lasts: Nanos,
    units: Units,
    revised: Vec<(Nanos, Units)>,
}

/// A time in which nothing changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stretch {
    /// From when; the last change was `after` before it.
    pub from: Nanos,
    /// Until when.
    pub until: Nanos,
    /// What the key has.
    pub units: Units,
}

impl Course {
    /// Of a key in a run.
    #[must_use]
    pub fn new(scenario: &Scenario, ledger: &Ledger, key: u32) -> Self {
        let loads = scenario.loads_of(key);
        let asked = loads.flat_map(|load| [load.from, load.until]).map(|at| (at, at));
        let faults = ledger.faults.iter().map(|(at, fault)| (*at, *at + fault.lasts()));
        let rings = ledger.rings.iter().map(|(at, ..)| (*at, *at));
        let rules = ledger.rules.iter().map(|(at, ..)| (*at, *at));
        let ended = ledger.ended.iter().map(|(at, _)| (*at, *at));
        let wrongs: Vec<(Nanos, Nanos)> = faults.chain(rings).chain(rules).chain(ended).collect();
        let mut changes: Vec<(Nanos, Nanos)> = asked.chain(wrongs.iter().copied()).collect();
        changes.retain(|(at, _)| *at < scenario.lasts);
        changes.push((scenario.lasts, Nanos::MAX));
        changes.sort_unstable();
        let revised = scenario.faults.iter().filter_map(|(at, fault)| match fault {
            Fault::Change(units) => Some((*at, *units)),
            _ => None,
        });
        let (lasts, units) = (scenario.lasts, scenario.units);
        Self { changes, wrongs, lasts, units, revised: revised.collect() }
    }

    /// Stretches that begin so long after what changed last, and that are at least so long.
    #[must_use]
    pub fn stretches(&self, after: Nanos, least: Nanos) -> Vec<Stretch> {
        let (mut stretches, mut settled) = (Vec::new(), 0);
        for (at, until) in &self.changes {
            let from = settled + after;
            if from + least <= *at {
                stretches.push(Stretch { from, until: *at, units: self.units(from) });
            }
            settled = settled.max(*until).min(self.lasts);
        }
        stretches
    }

    /// Whether something went wrong, or operators changed something, so short a time before.
    #[must_use]
    pub fn is_disturbed(&self, at: Nanos, lately: Nanos) -> bool {
        self.wrongs.iter().any(|(from, until)| (*from..=*until + lately).contains(&at))
    }

    /// When something changed.
    pub fn changes(&self) -> impl Iterator<Item = Nanos> {
        self.changes.iter().map(|(at, _)| *at)
    }

    /// The largest rate that a revision gave the key in so long a time.
    #[must_use]
    pub fn rate_lately(&self, at: Nanos, lately: Nanos) -> f64 {
        let was = self.units(at.saturating_sub(lately)).rate();
        let since = |(since, _): &&(Nanos, Units)| *since + lately >= at && *since <= at;
        self.revised.iter().filter(since).map(|(_, units)| units.rate()).fold(was, f64::max)
    }

    /// What the key has by the newest revision.
    #[must_use]
    pub fn units(&self, at: Nanos) -> Units {
        let known = self.revised.iter().rfind(|(since, _)| *since <= at);
        known.map_or(self.units, |(_, units)| *units)
    }
}

impl Stretch {
    /// How long it is, in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        (self.until - self.from) as f64 / 1e9
    }
}
