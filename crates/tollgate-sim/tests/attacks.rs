//! Schedules by which a reader of the rules broke an earlier version of them.

use tollgate::{Event, Rate};
use tollgate_sim::check::{self, utilisation};
use tollgate_sim::ledger::Ledger;
use tollgate_sim::scenario::{Demand, Fault, MS, SECOND, Scenario, SimLimit};
use tollgate_sim::{key_owned_in_turn, owner_among, run};

fn fleet(seed: u64, nodes: u32, burst: u64) -> Scenario {
    Scenario { seed, rests: 7 * SECOND, ..utilisation::fleet(nodes, 1_000, burst, 0.3) }
}

fn holds(scenario: &Scenario) -> Ledger {
    let ledger = run(scenario);
    let violations = check::all(scenario, &ledger);
    assert!(violations.is_empty(), "seed {}: {violations:?} {:?}", scenario.seed, ledger.events);
    ledger
}

/// X is silent and goes on for its lease; Y is back, and waits for X.
fn awaits_a_silent_owner(seed: u64) -> (Scenario, u64) {
    let mut scenario = fleet(seed, 4, 50);
    scenario.lasts = 5 * SECOND;
    scenario.serves_alone = false;
    let [x, y] = [0, 1];
    let key = key_owned_in_turn(&[y, x], 4);
    let each = scenario.demands[0].clone();
    scenario.demands = vec![Demand { key, nodes: vec![0, 1], per_second: 2_000.0, ..each }];
    let silent = 2 * SECOND;
    scenario.faults = vec![
        (100 * MS, Fault::Stop { node: y, back_after: Some(silent - 80 * MS) }),
        (silent, Fault::Silence { node: x, lasts: 2 * SECOND }),
    ];
    (scenario, silent + 60 * MS + seed % 20 * 5 * MS)
}

#[test]
fn another_change_of_the_ring_ends_no_wait_for_an_owner() {
    for seed in 0..20 {
        let (mut scenario, then) = awaits_a_silent_owner(seed);
        scenario.faults.push((then, Fault::Stop { node: 2, back_after: None }));
        holds(&scenario);
    }
}

#[test]
fn a_restart_ends_no_wait_for_an_owner() {
    for seed in 0..20 {
        let (mut scenario, then) = awaits_a_silent_owner(seed);
        scenario.faults.push((then, Fault::Crash { node: 1, back_after: Some(20 * MS) }));
        holds(&scenario);
    }
}

#[test]
fn owners_that_overlap_around_a_planned_change_are_counted() {
    for seed in 0..10 {
        let (mut scenario, _) = awaits_a_silent_owner(seed);
        (scenario.serves_alone, scenario.lasts) = (true, 7 * SECOND);
        scenario.faults[1].1 = Fault::Silence { node: 0, lasts: 4 * SECOND };
        let ledger = holds(&scenario);
        let is_overlap = |(_, _, event): &(u64, u32, Event)| matches!(event, Event::Overlap { .. });
        assert!(ledger.events.iter().any(is_overlap), "seed {seed}");
    }
}

#[test]
fn a_burst_below_what_one_worker_was_granted_kills_no_key() {
    for seed in 0..40 {
        let mut scenario = fleet(seed, 3, 60);
        (scenario.lasts, scenario.rests) = (4 * SECOND, 0);
        scenario.network = utilisation::hops(2 * MS);
        scenario.demands[0].per_second = [500.0, 1_000.0][seed as usize % 2];
        let rate = Rate::new(1_000, SECOND).expect("a rate");
        let change = Fault::Change { limit: 0, rate, burst: 2 };
        scenario.faults = vec![(SECOND + seed * MS, change)];
        let ledger = holds(&scenario);
        let late = ledger.admissions.iter().filter(|admission| admission.at > 2 * SECOND).count();
        assert!(late > 300, "seed {seed}: {late} in two seconds");
    }
}

#[test]
fn nobody_goes_on_reporting_a_limit_that_is_gone() {
    let messages = |rests| {
        let mut scenario = fleet(1, 3, 60);
        (scenario.lasts, scenario.rests) = (SECOND, rests * SECOND);
        let each = scenario.demands[0].clone();
        let of = |key| Demand { key, from: 480 * MS + u64::from(key) * MS, ..each.clone() };
        scenario.demands = (0..40).map(of).collect();
        scenario.faults = vec![(500 * MS, Fault::Remove { limit: 0 })];
        run(&scenario).messages
    };
    assert_eq!(messages(7), messages(17));
}

#[test]
fn a_planned_stop_after_a_limit_has_gone_holds_no_other_up() {
    let mut scenario = fleet(1, 3, 50);
    (scenario.lasts, scenario.rests) = (6 * SECOND, 0);
    scenario.demands[0].per_second = 500.0;
    let rate = Rate::new(1, SECOND).expect("a rate");
    scenario.limits.push(SimLimit { rate, burst: 100, local_cap: None, bootstrap: 0 });
    let each = scenario.demands[0].clone();
    let keys = (0..400).filter(|key| owner_among(&[0, 1, 2], 0, *key) == 0).take(5);
    let busy = keys.map(|key| Demand { key, nodes: vec![1, 2], ..each.clone() });
    let quiet = (0..20).map(|key| Demand { limit: 1, key, per_second: 1.0, ..each.clone() });
    scenario.demands = busy.chain(quiet).collect();
    scenario.faults = vec![
        (1_900 * MS, Fault::Remove { limit: 1 }),
        (2 * SECOND, Fault::Stop { node: 0, back_after: None }),
    ];
    let ledger = holds(&scenario);
    let late = |at: &u64| *at > 1_500 * MS;
    let all = ledger.admissions.iter().filter(|admission| admission.limit == 0);
    let at: Vec<u64> = all.map(|admission| admission.at).filter(late).collect();
    let gap = at.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(gap.is_some_and(|gap| gap < 50 * MS), "a gap of {gap:?} ns");
}
