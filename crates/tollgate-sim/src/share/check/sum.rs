//! What nodes enforce by their owner's word sums to the rate: at any instant
//!
//! > Σ over members that were heard in the last two intervals ≤ R · (1 + 1/9 + 1/20) + N · floor / 1000

use std::collections::BTreeMap;

use super::{Run, seconds};
use crate::check::Violation;
use crate::scenario::{Nanos, SECOND};
use crate::share::ledger::{By, Ledger};
use crate::share::scenario::{Fault, Scenario};
use crate::share::course::Course;

pub(super) fn check(run: &Run<'_>) -> Vec<Violation> {
    let (worst, at) = worst(run);
    if std::env::var("SHOW").is_ok() { println!("sum key {} worst {worst:.4} at {:.3}", run.key, seconds(at)); }
    if worst <= 1.0 / 0.9 + 0.05 + 1e-3 + 1e-9 {
        return Vec::new();
    }
    let what = format!("{worst:.4} times the rate is enforced at {:.3} s", seconds(at));
    vec![run.violation("share_sum", what)]
}

/// Whether a node is about to leave: nobody waits for what it has, since it ends soon.
fn leaves(run: &Run<'_>, node: u32, at: Nanos) -> bool {
    let is_it = |(since, fault): &(Nanos, Fault)| {
        matches!(fault, Fault::Stop { node: of, .. } if *of == node)
            && (*since..since + 2 * SECOND).contains(&at)
    };
    run.ledger.faults.iter().any(is_it)
}

/// The largest part of the rate that nodes enforced by their owner's word at once, and when.
#[must_use]
pub fn most(scenario: &Scenario, ledger: &Ledger, key: u32) -> (f64, Nanos) {
    worst(&Run { scenario, ledger, key, course: Course::new(scenario, ledger, key) })
}

fn worst(run: &Run<'_>) -> (f64, Nanos) {
    let mut rates: BTreeMap<u32, f64> = BTreeMap::new();
    let mut heard: BTreeMap<u32, Nanos> = BTreeMap::new();
    let mut reports = run.ledger.heard.iter().filter(|heard| heard.key == run.key).peekable();
    let mut worst = (0.0, 0);
    let lately = 2 * run.scenario.interval();
    let states: Vec<_> = run.ledger.states.iter().filter(|state| state.key == run.key).collect();
    for (index, state) in states.iter().enumerate() {
        let rate = if state.by == By::Owner { state.rate() } else { 0.0 };
        rates.insert(state.node, rate);
        while let Some(report) = reports.next_if(|report| report.at <= state.at) {
            heard.insert(report.from, report.at);
        }
        if states.get(index + 1).is_some_and(|next| next.at == state.at) {
            continue;
        }
        let is_heard = |node: &u32| {
            heard.get(node).is_some_and(|at| at + lately > state.at) && !leaves(run, *node, state.at)
        };
        let sum: f64 =
            rates.iter().filter(|(node, _)| is_heard(node)).map(|(_, rate)| rate).sum();
        let part = sum / run.course.rate_lately(state.at, lately);
        if part > worst.0 {
            worst = (part, state.at);
        }
    }
    worst
}
