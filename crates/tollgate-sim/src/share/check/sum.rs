//! What nodes enforce by their owner's word sums to the rate: at any instant, but for the three
//! intervals after something went wrong, a ring changed or a limit did,
//!
//! > Σ over members that are heard ≤ R · (1 / 0.9 + 1/20) + N · floor / 1000
//!
//! A member is heard if its owner never waited for two intervals in the last four. What a member
//! was told to give up counts as held until it says that it did, unless it is less than a tenth of
//! it, or than a twentieth of an equal part.
//!
//! After a ring has changed, members keep what they say that they hold, and one that holds nothing
//! is given an equal part meanwhile: R / N more for each.

use std::collections::BTreeMap;

use super::{Run, seconds};
use crate::check::Violation;
use crate::scenario::Nanos;
use crate::share::course::Course;
use crate::share::ledger::{By, Ledger};
use crate::share::scenario::Scenario;

pub(super) fn check(run: &Run<'_>) -> Vec<Violation> {
    let (worst, at) = worst(run);
    if worst <= 1.0 / 0.9 + 0.05 + 1e-3 + 1e-9 {
        return Vec::new();
    }
    let what = format!("{worst:.4} times the rate is enforced at {:.3} s", seconds(at));
    vec![run.violation("share_sum", what)]
}

/// The largest part of the rate that nodes enforced by their owner's word at once, and when.
#[must_use]
pub fn most(scenario: &Scenario, ledger: &Ledger, key: u32) -> (f64, Nanos) {
    worst(&Run { scenario, ledger, key, course: Course::new(scenario, ledger, key) })
}

fn worst(run: &Run<'_>) -> (f64, Nanos) {
    let mut rates: BTreeMap<u32, f64> = BTreeMap::new();
    // When each was heard last, and when its owner had waited too long for it.
    let mut heard: BTreeMap<u32, (Nanos, Nanos)> = BTreeMap::new();
    let mut reports = run.ledger.heard.iter().filter(|heard| heard.key == run.key).peekable();
    let mut worst = (0.0, 0);
    let lately = 2 * run.scenario.interval();
    let states: Vec<_> = run.ledger.states.iter().filter(|state| state.key == run.key).collect();
    for (index, state) in states.iter().enumerate() {
        let rate = if state.by == By::Owner { state.rate() } else { 0.0 };
        rates.insert(state.node, rate);
        while let Some(report) = reports.next_if(|report| report.at <= state.at) {
            let known = heard.entry(report.from).or_insert((report.at, 0));
            if report.at >= known.0 + lately {
                known.1 = report.at;
            }
            known.0 = report.at;
        }
        if states.get(index + 1).is_some_and(|next| next.at == state.at) {
            continue;
        }
        let is_heard = |node: &u32| {
            heard.get(node).is_some_and(|(at, missed)| {
                at + lately > state.at && (*missed == 0 || missed + 2 * lately < state.at)
            })
        };
        if run.course.is_disturbed(state.at, 3 * run.scenario.interval()) {
            continue;
        }
        let sum: f64 = rates.iter().filter(|(node, _)| is_heard(node)).map(|(_, rate)| rate).sum();
        let part = sum / run.course.rate_lately(state.at, lately);
        if part > worst.0 {
            worst = (part, state.at);
        }
    }
    worst
}
