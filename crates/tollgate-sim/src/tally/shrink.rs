//! Makes a scenario that breaks a promise as small as it can be while it still breaks it.

use super::{Scenario, Way, check, run};

/// The smallest scenario found that the same checker objects to, after at most 400 runs.
#[must_use]
pub fn shrink(scenario: &Scenario, checker: &str) -> Scenario {
    let mut smallest = scenario.clone();
    let mut runs = 0;
    loop {
        let mut found = None;
        for candidate in candidates(&smallest) {
            runs += 1;
            if runs > RUNS_MAX {
                return smallest;
            }
            let violations = check::all(&candidate, &run(&candidate));
            if violations.iter().any(|violation| violation.checker == checker) {
                found = Some(candidate);
                break;
            }
        }
        match found {
            Some(smaller) => smallest = smaller,
            None => return smallest,
        }
    }
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

/// Runs in all.
const RUNS_MAX: usize = 400;
