//! While the fleet leaves something no member has less than an equal part gives: in each stretch of
//! steady demand below R (0.9 · R at random times), on each node,
//!
//! > admitted ≥ 0.99 · ideal - √(c · ideal) - 2 · c
//!
//! where `ideal` is what a bucket with R / members and B / members admits of its requests; the rest
//! is as in `average`.

use super::{Run, ideal, seconds};
use crate::check::Violation;
use crate::scenario::SECOND;

pub(super) fn check(run: &Run<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    if !run.asks_once() {
        return violations;
    }
    for stretch in run.course.stretches(3 * run.scenario.interval(), 5 * SECOND) {
        let (from, until) = (stretch.from, stretch.until);
        let demands = run.demands(from, until);
        let (rate, members) = (stretch.units.rate(), run.members(from));
        let most = if run.is_random() { 0.9 * rate } else { rate };
        if !run.is_global(from, until) || demands.iter().sum::<f64>() > most {
            continue;
        }
        let burst = (stretch.units.burst / members).max(1) as f64;
        for node in 0..run.scenario.nodes {
            let asks = run.ledger.asks.iter().filter(|ask| {
                (ask.key, ask.node) == (run.key, node) && (from..until).contains(&ask.at)
            });
            let ideal = ideal::admits(asks, rate / members as f64, burst);
            let admitted = run.ledger.admitted_by(node, run.key, from, until) as f64;
            let slack = run.chance(ideal) + 2.0 * run.cost() as f64;
            if run.promised(from).is_some_and(|part| admitted < part * ideal - slack) {
                let what = format!(
                    "{admitted} units on node {node} from {:.3} to {:.3} s, where an equal part \
                     admits {ideal}",
                    seconds(from),
                    seconds(until)
                );
                violations.push(run.violation("share_floor", what));
            }
        }
    }
    violations
}
