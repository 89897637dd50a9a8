//! Makes a scenario that breaks a promise as small as it can be while it still breaks it.

use super::{Scenario, Way, check, run};
use crate::shrink::smallest;

/// The smallest scenario found that the same checker objects to, after at most 400 runs.
#[must_use]
pub fn shrink(scenario: &Scenario, checker: &str) -> Scenario {
    smallest(scenario, candidates, |candidate| {
        let violations = check::all(candidate, &run(candidate));
        violations.iter().any(|violation| violation.checker == checker)
    })
}

/// Scenarios that are a little simpler, the boldest first.
fn candidates(scenario: &Scenario) -> Vec<Scenario> {
    let mut simpler = Vec::new();
    let mut with = |change: &dyn Fn(&mut Scenario)| {
        let mut candidate = scenario.clone();
        change(&mut candidate);
        if candidate != *scenario {
            simpler.push(candidate);
        }
    };
    with(&|candidate| candidate.faults.clear());
    with(&|candidate| candidate.way = Way::QUIET);
    with(&|candidate| candidate.skews.clear());
    with(&|candidate| candidate.own.clear());
    for index in 0..scenario.faults.len() {
        with(&|candidate| {
            candidate.faults.remove(index);
        });
    }
    for index in 0..scenario.demands.len() {
        with(&|candidate| {
            candidate.demands.remove(index);
        });
        with(&|candidate| candidate.demands[index].cost = (1, 1));
    }
    with(&|candidate| (candidate.way.slow, candidate.way.slow_max) = (0.0, 0));
    with(&|candidate| candidate.way.lost = 0.0);
    with(&|candidate| candidate.way.unanswered = 0.0);
    with(&|candidate| candidate.way.cut = 0.0);
    with(&|candidate| candidate.way.refused = 0.0);
    with(&|candidate| candidate.lasts = candidate.lasts / 4 * 3);
    simpler
}
