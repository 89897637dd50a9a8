//! Makes a scenario that breaks a promise as small as it can be while it still breaks it.

use super::{Scenario, check, run};
use crate::scenario::{Network, Shape};
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
    with(&|candidate| candidate.network = Network::QUIET);
    with(&|candidate| candidate.drift_ppm = 0);
    let keys = scenario.keys();
    if keys > 1 {
        for key in 0..keys {
            with(&|candidate| candidate.loads.retain(|load| load.key != key));
        }
    }
    for index in 0..scenario.faults.len() {
        with(&|candidate| {
            candidate.faults.remove(index);
        });
    }
    for index in 0..scenario.loads.len() {
        with(&|candidate| {
            candidate.loads.remove(index);
        });
        with(&|candidate| {
            let load = &mut candidate.loads[index];
            (load.cost, load.patience, load.shape) = ((1, 1), 0, Shape::Even);
        });
    }
    with(&|candidate| candidate.network.slow = 0.0);
    with(&|candidate| candidate.network.loss = 0.0);
    with(&|candidate| candidate.network.repeats = 0.0);
    with(&|candidate| candidate.lasts = candidate.lasts / 4 * 3);
    simpler
}
