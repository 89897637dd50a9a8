//! What a node knows of others counts until it has leaked: for each unit that passes at t on a node
//! whose last read, at r, found an estimate E,
//!
//! > E - L/w · (t - r) + cost ≤ L
//!
//! with E = previous · (w - elapsed) / w + current, of what the store had. So a key that was over
//! its limit when a store went away stays limited, in an outage of any length and whatever its
//! limit says of outages, for (E - L) · w / L. A cell's first request, where what is offered
//! counts, comes before any read.

use super::Reads;
use crate::check::Violation;
use crate::tally::ledger::Ledger;
use crate::tally::scenario::Scenario;

pub(super) fn check(scenario: &Scenario, ledger: &Ledger) -> Vec<Violation> {
    let reads = Reads::new(ledger);
    let length = scenario.length() as f64;
    let mut violations = Vec::new();
    for ask in ledger.asks.iter().filter(|ask| ask.passed) {
        let Some(read) = reads.last(ask.node, ask.key, ask.at) else { continue };
        let threshold = scenario.threshold_of(ask.key) as f64;
        let left = 1.0 - read.elapsed as f64 / length;
        let estimate = read.stored.0 as f64 * left + read.stored.1 as f64;
        let leaked = threshold * (ask.at - read.sent_at) as f64 / length;
        let level = (estimate - leaked).max(0.0) + ask.cost as f64;
        if level > threshold + ROUNDING {
            let what = format!(
                "key {} passed on node {} at {:.3} s with {level:.3} known",
                ask.key,
                ask.node,
                ask.at as f64 / 1e9
            );
            violations.push(Violation { checker: "tally_known", what });
        }
    }
    violations
}

/// Of floating-point sums.
const ROUNDING: f64 = 1e-3;
