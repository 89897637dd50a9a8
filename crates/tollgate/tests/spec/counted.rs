//! Limits that are counted in a store, where something odd happens: limits that change, costs that
//! are huge, tables that are small, charges that are given back late.

use tollgate::{LimitSpec, Options, Outcome, Reason, StepSpec, TallyOptions};

use crate::support::{ask, ask_of, limits, passed, with_request};
use crate::tally::{Fleet, TALLY};

#[test]
fn a_limit_that_comes_back_goes_on_with_what_was_counted() {
    let mut fleet = Fleet::new(1, &[TALLY]);
    let limiter = fleet.nodes[0].limiter.clone();
    assert_eq!(passed(&limiter, "acme", 700), 700);
    fleet.pass(1_000);
    limiter.replace(vec![]).expect("none");
    fleet.pass(500);
    limiter.replace(limits(&[TALLY])).expect("limits");
    assert_eq!(passed(&limiter, "acme", 700), 300);
    fleet.pass(1_000);
    assert_eq!(fleet.stored("acme"), 1_000);
    // One that is gone for good leaves no cell.
    assert_eq!(passed(&limiter, "acme", 10), 0);
    limiter.replace(vec![]).expect("none");
    fleet.pass(700_000);
    assert_eq!(limiter.keys_used(), 0);
}

#[test]
fn what_never_passes_has_no_cell_and_does_not_pass_where_there_is_none() {
    let zero = LimitSpec { name: "zero", rate: "zero", matches: &[("kind", "zero")], ..TALLY };
    let api = LimitSpec { matches: &[("kind", "api")], ..TALLY };
    let options = |options| Options { keys_max: 8, ..options };
    let mut fleet = Fleet::with(1, &[zero, api], TallyOptions::default(), options);
    let limiter = fleet.nodes[0].limiter.clone();
    let ask = |kind, tenant: &str, cost| {
        ask_of(&limiter, &[("kind", kind), ("tenant", tenant)], cost).outcome()
    };
    for key in 0..200 {
        assert_eq!(ask("zero", &key.to_string(), 1), Outcome::Denied(Reason::OverLimit));
    }
    fleet.pass(2_000);
    // So others have room.
    assert_eq!(ask("api", "acme", 1_000), Outcome::Allowed);
    assert_eq!(ask("api", "acme", 1), Outcome::Denied(Reason::OverLimit));
    for key in 0..20 {
        let _ = ask("api", &key.to_string(), 1);
    }
    let never = Outcome::Denied(Reason::CostExceedsBurst);
    assert_eq!(ask("api", "without a cell", 1_001), never);
    assert_eq!(ask("zero", "without a cell", 1), Outcome::Denied(Reason::OverLimit));
}

#[test]
fn a_huge_first_cost_leaves_room_for_others() {
    let offered = LimitSpec { count: Some("offered"), ..TALLY };
    let mut fleet = Fleet::new(1, &[offered]);
    let limiter = fleet.nodes[0].limiter.clone();
    for key in 0..200 {
        assert!(ask(&limiter, &format!("evil {key}"), (1 << 62) - 1).is_allowed());
    }
    fleet.pass(700_000);
    for key in 0..100 {
        assert!(ask(&limiter, &key.to_string(), 1).is_allowed(), "{key}");
    }
}

/// As many keys as a daemon with few cells has, at most.
#[test]
fn a_small_table_makes_room_too() {
    let options = |options| Options { keys_max: 500, ..options };
    let mut fleet = Fleet::with(1, &[TALLY], TallyOptions::default(), options);
    let limiter = fleet.nodes[0].limiter.clone();
    for second in 0..30 {
        for key in 0..60 {
            let _ = ask(&limiter, &format!("{second}-{key}"), 1);
        }
        fleet.pass(1_000);
    }
    assert!(fleet.nodes[0].tally.counts().displaced > 1_000);
    assert_eq!(passed(&limiter, "hot", 5_000), 1_000);
}

/// 900 at 9 s are given back at 18 s, when what counts of them is 180: no more comes back.
#[test]
fn what_is_given_back_of_the_window_before_weighs_what_it_counted() {
    let mut fleet = Fleet::new(1, &[TALLY]);
    let limiter = fleet.nodes[0].limiter.clone();
    fleet.until(9_100);
    let reserve = |cost| with_request(&[("tenant", "acme")], cost, |asked| limiter.reserve(asked));
    let (_, early) = reserve(900);
    fleet.until(18_100);
    assert_eq!(passed(&limiter, "acme", 700), 700);
    limiter.cancel(early.expect("it passed"));
    fleet.pass(100);
    assert!(passed(&limiter, "acme", 1_000) <= 300);
}

#[test]
fn what_is_to_be_done_in_an_outage_can_be_changed_in_it() {
    let closed = LimitSpec { on_stale: Some("deny"), ..TALLY };
    let mut fleet = Fleet::new(1, &[closed]);
    let limiter = fleet.nodes[0].limiter.clone();
    assert_eq!(passed(&limiter, "acme", 20), 20);
    fleet.pass(1_000);
    fleet.reads = false;
    for _ in 0..30 {
        passed(&limiter, "acme", 20);
        fleet.pass(1_000);
    }
    assert_eq!(passed(&limiter, "acme", 20), 0);
    limiter.replace(limits(&[TALLY])).expect("limits");
    passed(&limiter, "acme", 1);
    fleet.pass(100);
    assert_eq!(passed(&limiter, "acme", 20), 20);
}

/// A step of a path is reached by another name and value that join to the same: two keys, which
/// have counters of their own, under the limit's name of now.
#[test]
fn keys_of_a_path_have_counters_of_their_own_under_the_limits_name() {
    let step = StepSpec { name: "k", value: "v*", shared: false };
    let path = [step];
    let limit = |name| LimitSpec { name, key: &[], path: &path, ..TALLY };
    let mut fleet = Fleet::new(1, &[limit("one")]);
    let limiter = fleet.nodes[0].limiter.clone();
    let ask = |name, cost| ask_of(&limiter, &[(name, "v_x")], cost);
    assert!(ask("k", 600).is_allowed() && ask("k_v", 600).is_allowed());
    fleet.pass(1_000);
    let counts: Vec<i64> = fleet.stores[0].values().map(|(units, _)| *units).collect();
    assert_eq!(counts, [600, 600], "{:?}", fleet.stores[0]);
    limiter.replace(limits(&[limit("two")])).expect("limits");
    assert!(ask("k", 100).is_allowed());
    fleet.pass(1_000);
    assert!(fleet.stores[0].keys().any(|name| name.contains(":two:")), "{:?}", fleet.stores[0]);
}
