//! Schedules of whole fleets: what goes wrong is written by hand, how messages travel is not.

use tollgate::Rate;

use crate::check::{self, Violation, utilisation};
use crate::cluster::{key_owned_in_turn, run};
use crate::scenario::{Demand, Fault, MS, SECOND, Scenario, Shape};

/// Y crashed, and nobody knows yet; X leaves as planned, and Y is its heir; Y is lost, and Z is in
/// charge while X's permissions live.
pub(super) fn whoever_follows_a_lost_heir_waits_for_its_predecessor() -> Vec<Violation> {
    let [x, y, z] = [0, 1, 2];
    let key = key_owned_in_turn(&[x, y, z], 4);
    let leaves = 1_500 * MS;
    let mut scenario = utilisation::fleet(4, 1_000, 50, 0.3);
    scenario.limits[0].local_cap = Some(50);
    scenario.lasts = 4 * SECOND;
    let each = Demand { key, nodes: vec![3], ..scenario.demands[0].clone() };
    let burst = |node, at| Demand {
        nodes: vec![node],
        from: at,
        until: at + MS,
        per_second: 100.0,
        shape: Shape::Bursts(100),
        ..each.clone()
    };
    let trickle = Demand {
        per_second: 20.0,
        from: leaves - 400 * MS,
        until: leaves + 400 * MS,
        shape: Shape::Even,
        ..each.clone()
    };
    scenario.faults = vec![
        (leaves - 380 * MS, Fault::Crash { node: y, back_after: None }),
        (leaves, Fault::Stop { node: x, back_after: None }),
    ];
    let of_seed = |seed: u64| {
        let then = leaves + 80 * MS + seed * 2 * MS;
        let bursts = [(3, leaves - 200 * MS), (3, then + 22 * MS), (z, then), (z, then + 10 * MS)];
        let mut demands: Vec<Demand> = bursts.map(|(node, at)| burst(node, at)).into();
        demands.extend([burst(z, then + 20 * MS), trickle.clone()]);
        Scenario { seed, demands, ..scenario.clone() }
    };
    (0..20).flat_map(|seed| judge(&of_seed(seed))).collect()
}

/// A limit is taken away from a fleet that is busy with it.
pub(super) fn a_limit_that_is_gone_admits_nothing() -> Vec<Violation> {
    let mut scenario = utilisation::fleet(3, 1_000, 50, 0.3);
    scenario.lasts = 4 * SECOND;
    let rate = Rate::new(1_000, SECOND).expect("a rate");
    scenario.faults = vec![
        (SECOND, Fault::Remove { limit: 0 }),
        (3 * SECOND, Fault::Change { limit: 0, rate, burst: 50 }),
    ];
    judge(&scenario)
}

fn judge(scenario: &Scenario) -> Vec<Violation> {
    check::all(scenario, &run(scenario))
}
