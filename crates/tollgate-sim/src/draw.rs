//! A scenario for each seed: every fault by itself and all together, greedy clients and clients
//! that hold on to what they have.

use std::time::Duration;

use tollgate::{Rate, ViewTimes};

use crate::chance::Chance;
use crate::scenario::{Demand, Fault, MS, Nanos, Network, SECOND, Scenario, Shape, SimLimit};

/// The scenario of a seed.
#[must_use]
pub fn scenario(seed: u64) -> Scenario {
    let chance = &mut Chance::new(seed ^ 0x5EED);
    let nodes = chance.of(&[1, 2, 3, 3, 4, 5, 8]);
    let limits: Vec<SimLimit> = (0..chance.of(&[1, 1, 2])).map(|_| limit(chance)).collect();
    let lasts = chance.between(800, 2_500) * MS;
    let mut demands = Vec::new();
    for (index, limit) in limits.iter().enumerate() {
        for key in 0..chance.of(&[1, 1, 2]) {
            demands.extend(demand(chance, index, limit, key, nodes, lasts));
        }
    }
    let times = ViewTimes {
        sync_interval: Duration::from_millis(chance.of(&[5, 5, 5, 2, 10])),
        ..ViewTimes::default()
    };
    let faults = faults(chance, nodes, &limits, lasts);
    Scenario {
        seed,
        nodes: nodes as u32,
        lasts,
        rests: 7 * SECOND,
        limits,
        demands,
        network: network(chance),
        times,
        drift_ppm: chance.of(&[0, 50, 500]),
        serves_alone: chance.happens(0.5),
        reports_per_second_max: chance.of(&[500_000, 500_000, 2_000]),
        faults,
    }
}

/// The seeds that once broke a promise (`seeds.txt`).
///
/// # Panics
/// When that file has a line that begins with no number.
pub fn kept() -> impl Iterator<Item = u64> {
    let lines = include_str!("../seeds.txt").lines();
    let seeds = lines.filter(|line| !line.starts_with('#')).map(str::split_whitespace);
    seeds.filter_map(|mut words| words.next()).map(|seed| seed.parse().expect("a seed"))
}

fn limit(chance: &mut Chance) -> SimLimit {
    let units = chance.of(&[10, 100, 1_000, 1_000, 3_000]);
    let rate = Rate::new(units, SECOND).expect("a rate");
    // From less than a round trip of the rate to a second of it.
    let burst = (units * chance.between(5, 1_000) / 1_000).max(1);
    let local_cap = chance.happens(0.3).then(|| chance.between(1, burst));
    let bootstrap = if chance.happens(0.1) { chance.between(1, 3) } else { 0 };
    SimLimit { rate, burst, local_cap, bootstrap }
}

fn demand(
    chance: &mut Chance,
    index: usize,
    limit: &SimLimit,
    key: u32,
    nodes: u64,
    lasts: Nanos,
) -> Vec<Demand> {
    let rate = limit.rate.units() as f64;
    let cost = (1, chance.of(&[1, 1, 1, limit.burst.min(10)]));
    let mean = (cost.0 + cost.1) as f64 / 2.0;
    let total = (rate * chance.of(&[0.3, 0.9, 1.0, 2.5, 2.5, 5.0]) / mean).max(2.0);
    let each = Demand {
        limit: index,
        key,
        nodes: Vec::new(),
        per_second: total / nodes as f64,
        from: 0,
        until: lasts,
        shape: chance.of(&[Shape::Random, Shape::Even, Shape::Random]),
        cost,
        waits: chance.of(&[0, 0, 10 * MS, 50 * MS]),
        refunds: chance.of(&[0.0, 0.0, 0.2]),
        refund_after: chance.of(&[10 * MS, 200 * MS]),
    };
    match chance.between(0, 4) {
        // Everybody the same.
        0 | 1 => vec![each],
        // One hot worker, the others hardly.
        2 => {
            let per_second = (total / 50.0 / nodes as f64).max(0.5);
            let trickle = Demand { per_second, ..each.clone() };
            let nodes = vec![chance.between(0, nodes - 1) as u32];
            vec![Demand { nodes, per_second: total, ..each }, trickle]
        }
        // Hold and spend at once: a trickle keeps permissions alive, bursts spend them everywhere.
        3 => {
            let count = (limit.burst / nodes).clamp(2, 200) as u32;
            let per_second = chance.of(&[2.0, 5.0, 11.0]) * f64::from(count);
            let bursts =
                Demand { shape: Shape::Bursts(count), per_second, waits: 0, ..each.clone() };
            vec![bursts, Demand { per_second: 20.0, ..each }]
        }
        // By Zipf's law over nodes.
        _ => {
            let sum: f64 = (1..=nodes).map(|n| 1.0 / n as f64).sum();
            let of = |node: u64| Demand {
                nodes: vec![node as u32],
                per_second: (total / sum / (node + 1) as f64).max(0.5),
                ..each.clone()
            };
            (0..nodes).map(of).collect()
        }
    }
}

fn network(chance: &mut Chance) -> Network {
    let delay_min = chance.of(&[100_000, 400_000, 1_000_000, 5_000_000]);
    Network {
        delay_min,
        delay_max: delay_min * chance.of(&[1, 2, 2, 6]),
        slow: chance.of(&[0.0, 0.02, 0.3]),
        slow_max: chance.of(&[10, 50, 500]) * MS,
        loss: chance.of(&[0.0, 0.0, 0.05, 0.1, 0.4]),
        repeats: chance.of(&[0.0, 0.0, 0.2]),
    }
}

fn faults(
    chance: &mut Chance,
    nodes: u64,
    limits: &[SimLimit],
    lasts: Nanos,
) -> Vec<(Nanos, Fault)> {
    // A third of the runs have none, a third have one kind, a third have all.
    let kinds: Vec<u64> = match chance.between(0, 2) {
        0 => return Vec::new(),
        1 => vec![chance.between(0, 8)],
        _ => (0..9).collect(),
    };
    let count = chance.between(1, 6);
    let mut faults = Vec::new();
    for _ in 0..count {
        let at = chance.between(50 * MS, lasts);
        let node = chance.between(0, nodes - 1) as u32;
        let back_after = chance.happens(0.8).then(|| chance.between(5, 900) * MS);
        let short = chance.between(5, 700) * MS;
        let fault = match kinds[chance.between(0, kinds.len() as u64 - 1) as usize] {
            0 => Fault::Crash { node, back_after },
            1 => Fault::Stop { node, back_after: back_after.or(Some(300 * MS)) },
            2 => Fault::Pause { node, lasts: chance.between(5, 3_000) * MS },
            3 => {
                let other = chance.between(0, nodes - 1) as u32;
                let to = chance.happens(0.5).then_some(other);
                Fault::Cut { from: node, to, lasts: short }
            }
            4 => Fault::Silence { node, lasts: chance.of(&[300 * MS, SECOND, 3 * SECOND]) },
            5 => Fault::Reset { node, back_after: chance.between(5, 900) * MS },
            6 => {
                let limit = chance.between(0, limits.len() as u64 - 1) as usize;
                let of = &limits[limit];
                let units = of.rate.units() * chance.of(&[1, 2, 1, 3]) / chance.of(&[1, 2, 1]);
                let burst = of.burst * chance.of(&[1, 2, 1]) / chance.of(&[1, 2, 3]);
                let rate = Rate::new(units.max(1), SECOND).expect("a rate");
                Fault::Change { limit, rate, burst: burst.max(1) }
            }
            7 => Fault::Remove { limit: chance.between(0, limits.len() as u64 - 1) as usize },
            _ => Fault::Failover,
        };
        faults.push((at, fault));
    }
    faults.sort_by_key(|(at, _)| *at);
    faults
}
