//! Makes a scenario that breaks a promise as small as it can be while it still breaks it.

use crate::check;
use crate::cluster::run;
use crate::scenario::{Demand, Fault, Network, Scenario, Shape};

/// The smallest scenario found that the same checker objects to, after at most
/// 400 runs.
#[must_use]
pub fn shrink(scenario: &Scenario, checker: &str) -> Scenario {
    smallest(scenario, candidates, |candidate| breaks(candidate, checker))
}

/// Goes on from one that is simpler and still `breaks` to the next, as long as there is one and at
/// most 400 were tried.
pub(crate) fn smallest<S: Clone>(
    scenario: &S,
    candidates: impl Fn(&S) -> Vec<S>,
    breaks: impl Fn(&S) -> bool,
) -> S {
    let mut smallest = scenario.clone();
    let mut left = RUNS_MAX;
    while let Some(smaller) = candidates(&smallest).into_iter().take(left).find(|candidate| {
        left -= 1;
        breaks(candidate)
    }) {
        smallest = smaller;
    }
    smallest
}

fn breaks(scenario: &Scenario, checker: &str) -> bool {
    check::all(scenario, &run(scenario)).iter().any(|violation| violation.checker == checker)
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
    for index in 0..scenario.faults.len() {
        with(&|candidate| {
            candidate.faults.remove(index);
        });
    }
    for index in 0..scenario.demands.len() {
        with(&|candidate| {
            candidate.demands.remove(index);
        });
        with(&|candidate| simplify(&mut candidate.demands[index]));
    }
    with(&|candidate| candidate.network.slow = 0.0);
    with(&|candidate| candidate.network.loss = 0.0);
    with(&|candidate| candidate.network.repeats = 0.0);
    let last = scenario.nodes - 1;
    if last > 0 && !names(scenario, last) {
        with(&|candidate| candidate.nodes -= 1);
    }
    with(&|candidate| candidate.lasts = candidate.lasts / 4 * 3);
    simpler
}

fn simplify(demand: &mut Demand) {
    demand.cost = (1, 1);
    demand.refunds = 0.0;
    demand.waits = 0;
    if demand.shape == Shape::Random {
        demand.shape = Shape::Even;
    }
}

/// Whether anything of the scenario is about this node alone.
fn names(scenario: &Scenario, node: u32) -> bool {
    let of = |fault: &Fault| match fault {
        Fault::Crash { node, .. }
        | Fault::Stop { node, .. }
        | Fault::Pause { node, .. }
        | Fault::Silence { node, .. }
        | Fault::Reset { node, .. } => vec![*node],
        Fault::Cut { from, to, .. } => [Some(*from), *to].into_iter().flatten().collect(),
        Fault::Change { .. } | Fault::Remove { .. } | Fault::Owner { .. } | Fault::Failover => {
            Vec::new()
        }
    };
    scenario.faults.iter().any(|(_, fault)| of(fault).contains(&node))
        || scenario.demands.iter().any(|demand| demand.nodes.contains(&node))
}

/// Runs in all.
const RUNS_MAX: usize = 400;
