//! How much of a limit is used when enough is asked for: admitted / min(R·t, offered).
//!
//! A promise that is kept by admitting nothing is worth nothing. Each case is a fleet under a load;
//! the first second is not counted, since a new owner begins with the burst spent.

use std::time::Duration;

use tollgate::{Rate, ViewTimes};

use crate::chance::Chance;
use crate::cluster::owner_of;
use crate::ledger::Ledger;
use crate::scenario::{Demand, Fault, MS, Nanos, Network, SECOND, Scenario, Shape, SimLimit};

/// A case and what it must reach.
#[derive(Debug, Clone)]
pub struct Case {
    /// What it is.
    pub name: &'static str,
    /// The fleet.
    pub scenario: Scenario,
    /// The least utilisation, over what [one bucket](of_one_bucket) for all would reach.
    pub least: f64,
}

/// All cases.
#[must_use]
pub fn cases() -> Vec<Case> {
    let fast = |name, least, change: &dyn Fn(&mut Scenario)| {
        let mut scenario = fleet(20, 1_000, 200, 2.5);
        change(&mut scenario);
        Case { name, scenario, least }
    };
    let waits = |scenario: &mut Scenario, waits| {
        scenario.demands.iter_mut().for_each(|demand| demand.waits = waits);
    };
    let hot = |scenario: &mut Scenario, total: f64| {
        let each = scenario.demands[0].clone();
        let trickle = Demand { per_second: 1.0, ..each.clone() };
        // Not the owner, which has no way to go.
        let node = (owner_of(scenario, 0, 0) + 1) % scenario.nodes;
        let hot = Demand { nodes: vec![node], per_second: total, ..each };
        scenario.demands = vec![hot, trickle];
    };
    let zipf = |scenario: &mut Scenario| {
        let each = scenario.demands[0].clone();
        let nodes = scenario.nodes;
        let sum: f64 = (1..=nodes).map(|n| 1.0 / f64::from(n)).sum();
        let total = each.per_second * f64::from(nodes);
        let of = |node: u32| Demand {
            nodes: vec![node],
            per_second: total / sum / f64::from(node + 1),
            ..each.clone()
        };
        scenario.demands = (0..nodes).map(of).collect();
    };
    let loss = |scenario: &mut Scenario, loss| {
        scenario.network.loss = loss;
        scenario.network.repeats = 0.1;
    };
    let mut cases = vec![
        fast("even, 20 workers", 0.99, &|_| {}),
        fast("Zipf over 20 workers", 0.99, &zipf),
        fast("one hot worker, 19 trickle", 0.99, &|scenario| hot(scenario, 2_500.0)),
        fast("one hot worker, 2 ms hops", 0.99, &|scenario| {
            hot(scenario, 2_500.0);
            scenario.network = hops(2 * MS);
        }),
        fast("10 % lost, 10 % twice", 0.99, &|scenario| loss(scenario, 0.1)),
        fast("30 % lost, Zipf", 0.99, &|scenario| {
            zipf(scenario);
            loss(scenario, 0.3);
        }),
        fast("10 ms hops", 0.99, &|scenario| scenario.network = hops(10 * MS)),
        fast("20 % refunded after 10 ms", 0.99, &|scenario| {
            scenario.demands[0].refunds = 0.2;
            scenario.demands[0].refund_after = 10 * MS;
        }),
        fast("callers wait 10 ms", 0.99, &|scenario| waits(scenario, 10 * MS)),
        fast("demand at 90 %", 0.99, &|scenario| scenario.demands[0].per_second = 45.0),
        fast("demand at 99 %, Zipf", 0.98, &|scenario| {
            scenario.demands[0].per_second = 49.5;
            zipf(scenario);
        }),
        fast("a worker crashes 20 times a second", 0.95, &|scenario| {
            let owner = owner_of(scenario, 0, 0);
            let crash = |n: u64| {
                let node = (owner + 1 + (n % 19) as u32) % 20;
                (SECOND + n * 50 * MS, Fault::Crash { node, back_after: Some(20 * MS) })
            };
            scenario.faults = (0..180).map(crash).collect();
        }),
    ];
    cases.extend(slow_cases());
    cases
}

/// Limits of a few units a second, over many workers.
fn slow_cases() -> Vec<Case> {
    let slow = |units, nodes, burst, wait: Nanos| {
        let mut scenario = fleet(nodes, units, burst, 2.5);
        scenario.lasts = 61 * SECOND;
        scenario.demands[0].waits = wait;
        scenario
    };
    let case = |name, scenario, least| Case { name, scenario, least };
    vec![
        case("10/s over 20 workers, callers wait 10 ms", slow(10, 20, 10, 10 * MS), 0.99),
        case("10/s over 20 workers, burst 2, callers wait 10 ms", slow(10, 20, 2, 10 * MS), 0.99),
        case("10/s over 20 workers, callers do not wait", slow(10, 20, 10, 0), 0.85),
        case("1/s over 50 workers, callers wait 50 ms", slow(1, 50, 5, 50 * MS), 0.99),
        // Units lie with workers whose next caller comes in 20 s: whoever does not wait finds
        // nothing. `docs/bounds.md` says so.
        case("1/s over 50 workers, callers do not wait", slow(1, 50, 5, 0), 0.0),
    ]
}

/// A fleet of `nodes` under one limit, all of which ask the same.
#[must_use]
pub fn fleet(nodes: u32, per_second: u64, burst: u64, load: f64) -> Scenario {
    let lasts = 11 * SECOND;
    Scenario {
        seed: 1,
        nodes,
        lasts,
        rests: 0,
        limits: vec![SimLimit {
            rate: Rate::new(per_second, SECOND).expect("a rate"),
            burst,
            local_cap: None,
            bootstrap: 0,
        }],
        demands: vec![Demand {
            limit: 0,
            key: 0,
            nodes: Vec::new(),
            per_second: per_second as f64 * load / f64::from(nodes),
            from: 0,
            until: 100 * SECOND,
            shape: Shape::Random,
            cost: (1, 1),
            waits: 0,
            refunds: 0.0,
            refund_after: 0,
        }],
        network: Network::QUIET,
        times: ViewTimes { sync_interval: Duration::from_millis(5), ..ViewTimes::default() },
        drift_ppm: 0,
        serves_alone: true,
        reports_per_second_max: 500_000,
        faults: Vec::new(),
    }
}

/// A network whose hops take so long, give or take a tenth.
#[must_use]
pub fn hops(delay: Nanos) -> Network {
    Network { delay_min: delay * 9 / 10, delay_max: delay * 11 / 10, ..Network::QUIET }
}

/// What one bucket for the whole fleet, asked by everybody without delay, would use of the limit of
/// a case whose requests cost 1 and come at random: with a small burst not even that uses all.
#[must_use]
pub fn of_one_bucket(scenario: &Scenario) -> f64 {
    let mut chance = Chance::new(1);
    let limit = scenario.limits[0];
    let asking = |demand: &Demand| match demand.nodes.len() {
        0 => f64::from(scenario.nodes),
        some => some as f64,
    };
    let per_second: f64 =
        scenario.demands.iter().map(|demand| demand.per_second * asking(demand)).sum();
    let waits = scenario.demands[0].waits as f64 / 1e9;
    let rate = limit.rate.per_second();
    let (mut tokens, mut filled_at, mut now, mut admitted) = (0.0_f64, 0.0, 0.0, 0.0);
    for _ in 0..ONE_BUCKET_REQUESTS {
        now += chance.gap(per_second) as f64 / 1e9;
        // Whoever waits takes its unit when it comes, if that is soon enough.
        let at = f64::max(now, filled_at + (1.0 - tokens).max(0.0) / rate);
        if at <= now + waits {
            tokens = (tokens + (at - filled_at) * rate).min(limit.burst as f64) - 1.0;
            filled_at = at;
            admitted += 1.0;
        }
    }
    admitted / (now * rate.min(per_second))
}

/// Admitted units over what could have been, after the first second; fleet-wide, of the first
/// limit.
#[must_use]
pub fn of(scenario: &Scenario, ledger: &Ledger) -> f64 {
    let counted = scenario.lasts - WARM_UP;
    let after = |at: Nanos| at >= WARM_UP && at < scenario.lasts;
    let admitted: u64 = ledger
        .admissions
        .iter()
        .filter(|admission| admission.limit == 0 && after(admission.at))
        .map(|admission| admission.net())
        .sum();
    let limit = scenario.limits[0];
    let could = limit.rate.units() as f64 * counted as f64 / limit.rate.period_ns() as f64;
    let offered: u64 = ledger.offered.values().map(|offered| offered.units).sum();
    let offered = offered as f64 * counted as f64 / scenario.lasts as f64;
    admitted as f64 / could.min(offered)
}

const ONE_BUCKET_REQUESTS: u32 = 200_000;
/// A new owner begins with the burst spent.
const WARM_UP: Nanos = SECOND;
