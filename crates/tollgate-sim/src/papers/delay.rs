//! E3: loss and delay. Raghavan and others, "Cloud Control with Distributed Rate Limiting" (SIGCOMM
//! 2007), say of their flow proportional share that it is robust to both.
//!
//! The load is 2.5 times the limit and moves from one half of the fleet to the other at once: those
//! who hold the credit do not want it any more, and those who want it have none.

use std::time::Duration;

use super::measure::{admitted, excess, fleet, load, per_second, percent, settles, time, units};
use super::{Row, Table};
use crate::cluster::key_owned_in_turn;
use crate::scenario::{MS, Nanos, Network, SECOND, Scenario};

/// One run.
#[derive(Debug, Clone, Copy)]
struct Case {
    nodes: u32,
    loss: f64,
    /// One way.
    delay: Nanos,
    ttl_max: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Outcome {
    excess: f64,
    used: f64,
    settles: Option<Nanos>,
}

pub(super) fn full() -> Table {
    let mut rows = Vec::new();
    for nodes in [2, 20] {
        for (loss, delays) in
            [(0.0, &[0, 10, 50, 100, 250, 500][..]), (0.05, &[10, 100]), (0.2, &[0, 10, 100, 500])]
        {
            rows.extend(delays.iter().map(|ms| row(nodes, loss, *ms)));
        }
    }
    Table {
        title: "E3: loss and delay (SIGCOMM 2007)".into(),
        text: format!(
            "1,000/s, B = b = 1,000, load 2.5 × the limit, which moves from one half of the nodes \
             to the other after {} s of {} s. Settled: every second from then on holds 90 % of the \
             limit. Line: nothing over B + R·t, and 90 % used with a way of 100 ms or less. \
             `ttl_max` is 400 ms, with ways of 250 ms and more 1.6 s.",
            MOVES / SECOND,
            LASTS / SECOND
        ),
        published: vec!["published"],
        ours: vec!["worst over B + R·t", "used", "settled after"],
        rows,
    }
}

fn row(nodes: u32, loss: f64, ms: u64) -> Row {
    let ttl_max = Duration::from_millis(if ms >= 250 { 1_600 } else { 400 });
    let outcome = measure(Case { nodes, loss, delay: ms * MS, ttl_max }, 1);
    let line = if ms <= 100 { 0.9 } else { 0.0 };
    Row {
        what: format!("{nodes} nodes, {} lost, {ms} ms one way", percent(loss, 0)),
        published: vec!["robust".into()],
        ours: vec![units(outcome.excess), percent(outcome.used, 1), time(outcome.settles)],
        pass: Some(outcome.excess <= 0.0 && outcome.used >= line),
    }
}

fn measure(case: Case, seed: u64) -> Outcome {
    let scenario = scenario(case, seed);
    let ledger = crate::run(&scenario);
    let counted = (SECOND, LASTS);
    let seconds = (counted.1 - counted.0) as f64 / 1e9;
    Outcome {
        excess: excess(&scenario, &ledger),
        used: admitted(&ledger, counted.0, counted.1) as f64 / (RATE as f64 * seconds),
        settles: settles(&ledger, RATE as f64 * 0.9, SECOND, (MOVES, LASTS)),
    }
}

fn scenario(case: Case, seed: u64) -> Scenario {
    let Case { nodes, loss, delay, ttl_max } = case;
    let half = nodes / 2;
    let each = RATE as f64 * 2.5 / f64::from(half);
    // The owner is one of those who come first: afterwards all are away from it.
    let key = key_owned_in_turn(&[0], nodes);
    let mut before = load(0..half, key, each);
    before.until = MOVES;
    let mut after = load(half..nodes, key, each);
    after.from = MOVES;
    let mut scenario = fleet(nodes, per_second(RATE), RATE, LASTS);
    scenario.seed = seed;
    scenario.demands = vec![before, after];
    scenario.limits[0].local_cap = Some(RATE);
    let delay = delay.max(100_000);
    scenario.network = Network { loss, ..crate::check::utilisation::hops(delay) };
    scenario.times.ttl_max = ttl_max;
    scenario
}

const RATE: u64 = 1_000;
const MOVES: Nanos = 8 * SECOND;
const LASTS: Nanos = 16 * SECOND;

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(nodes: u32, loss: f64, ms: u64) -> Outcome {
        let ttl_max = Duration::from_millis(400);
        measure(Case { nodes, loss, delay: ms * MS, ttl_max }, 2)
    }

    #[test]
    fn loss_and_delay_cost_use_and_never_the_bound() {
        for (nodes, loss, ms, least) in
            [(2, 0.0, 10, 0.98), (2, 0.2, 100, 0.85), (20, 0.05, 10, 0.98), (20, 0.0, 100, 0.95)]
        {
            let outcome = outcome(nodes, loss, ms);
            assert!(outcome.excess <= 0.0, "{nodes} nodes, {ms} ms: {outcome:?}");
            assert!(outcome.used >= least, "{nodes} nodes, {ms} ms: {outcome:?}");
        }
    }

    #[test]
    fn a_load_that_moves_is_served_again_in_a_round_trip_or_two() {
        let outcome = outcome(20, 0.0, 50);
        assert!(outcome.settles.is_some_and(|after| after <= 300 * MS), "{outcome:?}");
    }

    #[test]
    fn a_way_longer_than_half_a_permission_starves_and_exceeds_nothing() {
        let outcome = outcome(2, 0.2, 500);
        assert!(outcome.excess <= 0.0, "{outcome:?}");
    }
}
