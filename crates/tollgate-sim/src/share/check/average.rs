//! On average over steady demand the fleet admits what there is: in each stretch of t without a
//! change that begins 3 intervals after the last one, of at least 5 s,
//!
//! > admitted ≤ 1.01 · R · t + 2 · B + N
//! > admitted ≥ 0.99 · Σ ideal - √(c · Σ ideal) - 2 · c
//!
//! (half the root at even times). With R / N below 10 requests an interval 0.8 is promised instead
//! of 0.99, and 0.85 where up to a fiftieth of the messages is lost. Below 2 requests, with a burst
//! of less than 2 each, or when more are lost, nothing is.
//!
//! Where more than a tenth of the messages is lost or late, nothing is promised from above either:
//! owners give away what they have not heard of for two intervals, and its holder goes on.
//!
//! `ideal` is what a bucket with a member's fair rate (`share::divide` of what was asked for
//! in the stretch) and a burst of the same part of B, not less than an equal one, admits of the
//! member's requests. A bucket that is divided admits less than one for all (E20); by as much as
//! chance, and bursts that are too small, make of it the promise is less than min(R, demand).

use super::{Run, ideal, seconds};
use crate::check::Violation;
use crate::scenario::SECOND;

pub(super) fn check(run: &Run<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for stretch in run.course.stretches(3 * run.scenario.interval(), 5 * SECOND) {
        let (from, until) = (stretch.from, stretch.until);
        if !run.is_global(from, until) {
            continue;
        }
        let (rate, burst) = (stretch.units.rate(), stretch.units.burst as f64);
        let members = run.members(from);
        let admitted = run.ledger.admitted(run.key, from, until) as f64;
        let most = 1.01 * rate * stretch.seconds() + 2.0 * burst + members as f64;
        // A member that is not heard for two intervals has its part given to others, and goes on.
        let most = if run.is_heard() { most } else { f64::MAX };
        let demands = run.demands(from, until);
        let mut fair = Vec::new();
        tollgate::share::divide(rate, rate / members as f64, &demands, &mut fair);
        let ideal: f64 = (0..run.scenario.nodes)
            .zip(&fair)
            .map(|(node, fair)| {
                let asks = run.ledger.asks.iter().filter(|ask| {
                    (ask.key, ask.node) == (run.key, node) && (from..until).contains(&ask.at)
                });
                let part = (fair / rate).max(1.0 / members as f64);
                ideal::admits(asks, *fair, (burst * part).floor().max(1.0))
            })
            .sum();
        let part = run.promised(from).filter(|_| run.asks_once());
        let slack = run.chance(ideal) + 2.0 * run.cost() as f64;
        let least = part.map_or(0.0, |part| part * ideal - slack);
        if admitted > most || admitted < least {
            let what = format!(
                "{admitted} units from {:.3} to {:.3} s, not {least:.1} to {most:.1}",
                seconds(from),
                seconds(until)
            );
            violations.push(run.violation("share_average", what));
        }
    }
    violations
}
