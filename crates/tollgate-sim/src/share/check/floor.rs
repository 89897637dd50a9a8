//! While the fleet leaves something no member has less than an equal part gives: in each stretch of
//! steady demand below R, on each node,
//!
//! > admitted ≥ 0.99 · what a bucket with R / members and B / members admits of its requests - 2 · c

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
            if std::env::var("SHOW").is_ok() {
                println!("floor key {} node {node} {:.1}-{:.1}: admitted {admitted} ideal {ideal:.0} {:.4}", run.key, seconds(from), seconds(until), admitted/ideal.max(1.0));
            }
            if admitted < 0.99 * ideal - run.chance(ideal) - 2.0 * run.cost() as f64 {
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
