//! Three intervals after a change of what is asked for, in a fleet without faults and with both
//! ways in time, each node enforces at least 95 % of its fair part: of what it asks for, or of R by
//! what it asks for if that is more in all; less what chance makes of a second's counts. Most do
//! after two (`papers`, E9); who waits for others to rest waits until they know that they do.

use super::{Run, seconds};
use crate::check::Violation;
use crate::scenario::{MS, Nanos, SECOND};
use crate::share::course::Course;
use crate::share::ledger::Ledger;
use crate::share::scenario::{Load, Scenario};

pub(super) fn check(run: &Run<'_>) -> Vec<Violation> {
    if !run.scenario.is_sound() || !run.asks_once() || run.is_random() {
        return Vec::new();
    }
    let mut violations = Vec::new();
    for (began, from) in moments(run) {
        for (node, fair) in fair(run, began) {
            let Some(state) = run.ledger.state(node, run.key, from) else { continue };
            // Who is no node is not asked.
            if run.ledger.offered_by(node, run.key, began, from) == 0 {
                continue;
            }
            let least = 0.95 * fair - noise(run, fair);
            if state.rate() < least {
                let what = format!(
                    "node {node} enforces {:.2} at {:.3} s, after a change at {:.3} s, and \
                     {fair:.2} are fair",
                    state.rate(),
                    seconds(from),
                    seconds(began)
                );
                violations.push(run.violation("share_convergence", what));
            }
        }
    }
    violations
}

/// Changes of demand between stretches without any, and three intervals after each.
fn moments(run: &Run<'_>) -> Vec<(Nanos, Nanos)> {
    let interval = run.scenario.interval();
    let after = 3 * interval + 4 * run.scenario.round_trip();
    let steady = run.course.stretches(after, 2 * SECOND);
    let is_steady = |at: Nanos| steady.iter().any(|one| (one.from..one.until).contains(&at));
    let mut loads: Vec<Nanos> = run.scenario.loads_of(run.key).map(|load| load.from).collect();
    loads.sort_unstable();
    loads.dedup();
    let is_moment = |at: &Nanos| {
        *at > 0 && is_steady(*at - 1) && is_steady(*at + after) && run.is_global(*at, *at + after)
    };
    loads.into_iter().filter(is_moment).map(|at| (at, at + after)).collect()
}

/// What each node is asked for from an instant on, as far as it is fair.
fn fair(run: &Run<'_>, at: Nanos) -> Vec<(u32, f64)> {
    let mut demands = vec![0.0; run.scenario.nodes as usize];
    for load in active(run, at) {
        demands[load.node as usize] += load.per_second;
    }
    let (rate, all) = (run.course.units(at).rate(), demands.iter().sum::<f64>());
    let part = if all > rate { rate / all } else { 1.0 };
    (0..).zip(demands).filter(|(_, demand)| *demand > 0.0).map(|(n, d)| (n, d * part)).collect()
}

fn active<'a>(run: &'a Run<'_>, at: Nanos) -> impl Iterator<Item = &'a Load> {
    let is_active = move |load: &&Load| (load.from..load.until).contains(&at);
    run.scenario.loads_of(run.key).filter(is_active)
}

/// One and a half deviations of a second's counts.
fn noise(run: &Run<'_>, fair: f64) -> f64 {
    let cost = run.cost() as f64;
    1.5 * (fair * cost).sqrt() + cost
}

/// How long after each change of demand each node's rate has come within a twentieth of its fair
/// part, and stays there until the next change.
#[must_use]
pub fn times(scenario: &Scenario, ledger: &Ledger, key: u32) -> Vec<Option<Nanos>> {
    let run = Run { scenario, ledger, key, course: Course::new(scenario, ledger, key) };
    let mut times = Vec::new();
    for (began, _) in moments(&run) {
        let until = run.course.changes().find(|at| *at > began).unwrap_or(scenario.lasts);
        for (node, fair) in fair(&run, began) {
            let is_low = |at: Nanos| {
                ledger.state(node, key, at).is_none_or(|state| state.rate() < 0.95 * fair - 1.0)
            };
            let step = 10 * MS;
            let last_low = (0..(until - began) / step).rev().find(|at| is_low(began + at * step));
            let time = last_low.map_or(0, |at| (at + 1) * step);
            times.push((began + time < until).then_some(time));
        }
    }
    times
}
