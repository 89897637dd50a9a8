//! Runs of whole fleets: they can be had again, the checker of the bound agrees with the
//! definition, and a few seeds keep every promise.

use tollgate::Rate;
use tollgate_sim::check::{self, bound};
use tollgate_sim::ledger::Change;
use tollgate_sim::scenario::{MS, SECOND, Scenario};
use tollgate_sim::{draw, run, share, tally};

/// A seed's scenario, shortened.
fn short(seed: u64) -> Scenario {
    let mut scenario = draw::scenario(seed);
    scenario.lasts = scenario.lasts.min(800 * MS);
    scenario
}

#[test]
fn a_few_dozen_seeds_keep_every_promise() {
    for seed in SEEDS {
        let scenario = draw::scenario(seed);
        let violations = check::all(&scenario, &run(&scenario));
        assert_eq!(violations, [], "seed {seed}");
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in [3, 11, 20] {
        let scenario = short(seed);
        let (first, again) = (run(&scenario), run(&scenario));
        assert_eq!(first.admissions, again.admissions);
        assert_eq!(first.events, again.events);
        assert_eq!((first.steps, first.messages), (again.steps, again.messages));
    }
}

#[test]
fn a_few_dozen_seeds_of_fleets_that_count_in_stores_keep_every_promise() {
    let mut most_used = (0.0_f64, 0.0_f64);
    for seed in SEEDS {
        let scenario = tally::scenario(seed);
        let ledger = tally::run(&scenario);
        assert_eq!(tally::check::all(&scenario, &ledger), [], "seed {seed}");
        let (ceiling, informed) = tally::check::used(&scenario, &ledger);
        most_used = (most_used.0.max(ceiling), most_used.1.max(informed));
    }
    // The bounds are near enough to be felt.
    assert!(most_used.0 > 0.6 && most_used.1 > 0.95, "{most_used:?}");
}

#[test]
fn a_seed_of_a_fleet_that_counts_in_stores_gives_the_same_run_again() {
    for seed in [1, 4, 9] {
        let scenario = tally::scenario(seed);
        let (first, again) = (tally::run(&scenario), tally::run(&scenario));
        assert_eq!((first.asks, first.drains), (again.asks, again.drains));
        assert_eq!((first.reads, first.added), (again.reads, again.added));
        assert_eq!(first.counts, again.counts);
    }
}

#[test]
fn a_few_dozen_seeds_of_fleets_that_divide_a_limit_keep_every_promise() {
    for seed in SEEDS {
        let scenario = share::scenario(seed);
        let ledger = share::run(&scenario);
        assert_eq!(share::check::all(&scenario, &ledger), [], "seed {seed}");
        assert_eq!(ledger.insane, 0, "seed {seed}");
    }
}

#[test]
fn a_seed_of_a_fleet_that_divides_a_limit_gives_the_same_run_again() {
    for seed in [1, 4, 9] {
        let scenario = share::scenario(seed);
        let (first, again) = (share::run(&scenario), share::run(&scenario));
        assert_eq!((first.asks, first.states), (again.asks, again.states));
        assert_eq!((first.traffic, first.counts), (again.traffic, again.counts));
    }
}

#[test]
fn the_curve_finds_the_worst_window_that_looking_at_each_finds() {
    let mut compared = 0;
    for seed in 0..60 {
        let scenario = short(seed);
        let mut ledger = run(&scenario);
        // Judged by a tenth of its limit, so that there is something to find.
        for change in &mut ledger.changes {
            change.burst = change.burst.div_ceil(10);
            change.rate = Rate::new(change.rate.units().div_ceil(10), SECOND).expect("a rate");
        }
        for worst in bound::worst_windows(&scenario, &ledger) {
            // Brute force knows one limit only, and takes the square of the admissions.
            let changes = ledger.changes.iter().filter(|change| change.limit == worst.limit);
            let changes: Vec<_> = changes.collect();
            let admissions: Vec<_> = ledger
                .admissions
                .iter()
                .filter(|admission| (admission.limit, admission.key) == (worst.limit, worst.key))
                .copied()
                .collect();
            if changes.len() > 1 || admissions.len() > 2_000 {
                continue;
            }
            let Change { rate, burst, .. } = *changes[0];
            let allowance = scenario.limits[worst.limit].bootstrap * ledger.contacts[worst.limit];
            let burst = burst + allowance;
            let found = bound::brute_force(&admissions, rate, burst, scenario.drift_ppm);
            assert!((found - worst.excess).abs() < 1e-3, "seed {seed}: {found}, not {worst:?}");
            compared += usize::from(found > 0.0);
        }
    }
    assert!(compared > 20, "{compared} keys were small enough");
}

/// Few enough to take a second.
const SEEDS: std::ops::Range<u64> = 0..40;
