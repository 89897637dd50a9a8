//! One checker for each promise of `share`; each says at its top what may be, and why.

mod average;
mod bound;
mod convergence;
mod fallback;
mod floor;
mod ideal;
mod sum;

use super::course::Course;
use super::ledger::Ledger;
use super::scenario::Scenario;
use crate::check::Violation;
use crate::scenario::{Network, Shape};

pub use convergence::times as convergence_times;
pub use sum::most as most_enforced;

/// Everything that is wrong with a run.
#[must_use]
pub fn all(scenario: &Scenario, ledger: &Ledger) -> Vec<Violation> {
    let mut violations = Vec::new();
    for key in 0..scenario.keys() {
        let run = Run { scenario, ledger, key, course: Course::new(scenario, ledger, key) };
        violations.extend(average::check(&run));
        violations.extend(floor::check(&run));
        violations.extend(convergence::check(&run));
        violations.extend(sum::check(&run));
        violations.extend(bound::check(&run));
        violations.extend(fallback::check(&run));
    }
    violations
}

/// What happened to one key.
struct Run<'a> {
    scenario: &'a Scenario,
    ledger: &'a Ledger,
    key: u32,
    course: Course,
}

impl Run<'_> {
    /// Units a second that were asked for on each node from an instant on and before another.
    fn demands(&self, from: u64, until: u64) -> Vec<f64> {
        let seconds = (until - from) as f64 / 1e9;
        let of = |node| self.ledger.offered_by(node, self.key, from, until) as f64 / seconds;
        (0..self.scenario.nodes).map(of).collect()
    }

    /// How many members the ring has.
    fn members(&self, at: u64) -> u64 {
        let known = self.ledger.rings.iter().rfind(|(since, ..)| *since <= at);
        known.map_or(u64::from(self.scenario.nodes), |(_, _, members)| *members)
    }

    /// Whether the owner's word decides in all of this time.
    fn is_global(&self, from: u64, until: u64) -> bool {
        use super::scenario::Fault;
        let mut mode = self.scenario.mode;
        let mut is_global = true;
        for (at, fault) in &self.scenario.faults {
            if let Fault::Mode(next) = fault {
                if *at > from && *at < until {
                    is_global = false;
                }
                if *at <= from {
                    mode = *next;
                }
            }
        }
        is_global && mode.is_global()
    }

    /// Whether nobody asks again: who does asks for more than there is to ask for.
    fn asks_once(&self) -> bool {
        self.scenario.loads_of(self.key).all(|load| load.patience == 0)
    }

    /// One deviation of so many units that are asked for at random times. Half of one at even
    /// times, which owners cannot tell from random ones.
    fn chance(&self, units: f64) -> f64 {
        (if self.is_random() { 1.0 } else { 0.5 }) * (units * self.cost() as f64).sqrt()
    }

    /// Which part of what is ideal is promised. Of a few units in an interval little is known; a
    /// message that is lost is made up for an interval later.
    fn promised(&self, at: u64) -> Option<f64> {
        let part = self.course.units(at).rate() / self.members(at) as f64;
        let requests = part * self.scenario.interval() as f64 / 1e9 / self.cost() as f64;
        let is_sparse = requests < 10.0;
        let Network { loss, slow, .. } = self.scenario.network;
        match (is_sparse, loss.max(slow)) {
            (false, 0.0) => Some(0.99),
            (true, 0.0) if requests >= 2.0 && self.burst(at) >= 2.0 => Some(0.8),
            (false, bad) if bad <= 0.02 => Some(0.85),
            (true | false, _) => None,
        }
    }

    /// Whether at most a tenth of the messages is lost or late.
    fn is_heard(&self) -> bool {
        let Network { loss, slow, .. } = self.scenario.network;
        loss.max(slow) <= 0.1
    }

    /// Units at once of an equal part.
    fn burst(&self, at: u64) -> f64 {
        self.course.units(at).burst as f64 / self.members(at) as f64
    }

    fn is_random(&self) -> bool {
        self.scenario.loads_of(self.key).any(|load| load.shape != Shape::Even)
    }

    /// The largest cost.
    fn cost(&self) -> u64 {
        self.scenario.loads_of(self.key).map(|load| load.cost.1).max().unwrap_or(1)
    }

    fn violation(&self, checker: &'static str, what: String) -> Violation {
        Violation { checker, what: format!("key {}: {what}", self.key) }
    }
}

fn seconds(at: u64) -> f64 {
    at as f64 / 1e9
}
