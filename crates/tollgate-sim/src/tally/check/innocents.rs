//! Who stays far enough below its limit is never denied, whatever stores do: a key of which all
//! nodes together are asked for at most L/3 in each time of w, with `on_stale = "allow"`; or L/2
//! if reads are never unanswered.
//!
//! Why: an estimate is previous · left + current ≤ what was asked in the last two windows' time.
//! What is counted here since comes on top. Before a store is found silent for long, the last
//! answered read can be as old as the read interval of the tier, w at most, the outage that is
//! allowed for, w or less, and a tick: less than 3 w, in which there is less than 3 · L/3. Without
//! an outage it is w and a tick, less than 2 w, of which the older part leaks as fast as it can
//! have come.
//!
//! Clocks that are wrong, and looks at cells that come after an edge, put units into a window that
//! has its own: for what they move, as much more is counted. So the times that are judged are
//! longer by how far clocks are apart, by a look and by each step.

use std::collections::BTreeMap;

use crate::check::Violation;
use crate::scenario::Nanos;
use crate::tally::ledger::{Ask, Ledger, most_in};
use crate::tally::scenario::{Fault, Scenario};

pub(super) fn check(scenario: &Scenario, ledger: &Ledger) -> Vec<Violation> {
    if scenario.on_stale != "allow" || scenario.outage_max() > scenario.length() {
        return Vec::new();
    }
    let mut keys: BTreeMap<u32, Vec<&Ask>> = BTreeMap::new();
    for ask in &ledger.asks {
        keys.entry(ask.key).or_default().push(ask);
    }
    let steps = |(_, fault): &(Nanos, Fault)| match fault {
        Fault::Steps { by, .. } => by.unsigned_abs(),
        _ => 0,
    };
    let moved =
        scenario.skew() + scenario.drains + scenario.faults.iter().map(steps).sum::<Nanos>();
    let time = scenario.length() + moved;
    let part = if scenario.is_sound() { 2 } else { 3 };
    let mut violations = Vec::new();
    for (key, asks) in keys {
        let Some(denied) = asks.iter().find(|ask| !ask.passed) else { continue };
        let (most, _) = most_in(asks.iter().copied(), time, |ask| ask.cost);
        let threshold = scenario.threshold_of(key);
        if most * part <= threshold.saturating_sub(u64::from(scenario.counts_offered)) {
            let what = format!(
                "key {key} was denied on node {} at {:.3} s, and never asked for more than {most} \
                 of {threshold}",
                denied.node,
                denied.at as f64 / 1e9
            );
            violations.push(Violation { checker: "tally_innocents", what });
        }
    }
    violations
}
