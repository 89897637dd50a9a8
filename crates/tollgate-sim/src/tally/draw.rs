//! A scenario of `tally` for each seed: every fault by itself and all together.

use std::time::Duration;

use tollgate::TallyOptions;
use tollgate::tally::WorkerOptions;

use super::scenario::{Demand, Fault, Scenario, Way};
use crate::chance::Chance;
use crate::scenario::{MS, Nanos, SECOND, Shape};

/// The scenario of a seed.
#[must_use]
pub fn scenario(seed: u64) -> Scenario {
    let chance = &mut Chance::new(seed ^ 0x7A11);
    let nodes = chance.of(&[1, 2, 3, 3, 5, 8, 20]) as u32;
    let window = chance.of(&[5, 10, 10, 30]);
    let threshold = chance.of(&[1, 10, 100, 100, 1_000]);
    let quiet = Scenario::quiet(nodes, threshold, window);
    let lasts = window * SECOND * chance.between(2, 6);
    let keys = chance.of(&[1, 2, 4, 8]) as u32;
    let stores = chance.of(&[1, 1, 1, 3]);
    let (sync, floor) = (chance.of(&[1, 4, 15]), chance.of(&[1, 10, 10]));
    let worker = WorkerOptions {
        tick: Duration::from_millis(chance.of(&[200, 1_000, 1_000])),
        sync: Duration::from_secs(sync),
        floor,
        read_outage_max: chance.happens(0.3).then(|| Duration::from_secs(window / 2)),
        nodes: u64::from(nodes),
        ..WorkerOptions::default()
    };
    let skew = chance.of(&[0, 0, 100, 2_000]);
    let skews: Vec<i64> = (0..nodes)
        .map(|_| chance.between(0, 2 * skew) as i64 - skew as i64)
        .map(|millis| millis * MS as i64)
        .collect();
    Scenario {
        seed,
        lasts,
        rests: 4 * SECOND,
        own: if chance.happens(0.3) { vec![(0, threshold * 3)] } else { Vec::new() },
        counts_offered: chance.happens(0.25),
        on_stale: chance.of(&["allow", "allow", "share", "deny"]),
        options: TallyOptions { stores: stores as usize, worker, ..TallyOptions::default() },
        drains: chance.between(50, 100) * MS,
        begins: quiet.begins + chance.between(0, 2 * window * 1_000) * MS,
        skews,
        demands: demands(chance, nodes, keys, threshold, lasts, window),
        way: way(chance),
        faults: faults(chance, nodes, stores, window, lasts),
        ..quiet
    }
}

fn demands(
    chance: &mut Chance,
    nodes: u32,
    keys: u32,
    threshold: u64,
    lasts: Nanos,
    window: u64,
) -> Vec<Demand> {
    let mut demands = Vec::new();
    let most = chance.of(&[1.0, 2.5, 5.0, 5.0]);
    for key in 0..keys {
        // By a power law, the first as much as it says.
        let part = most / f64::from(key + 1).powf(1.2);
        let cost = (1, chance.of(&[1, 1, 1, threshold.min(10)]));
        let mean = (cost.0 + cost.1) as f64 / 2.0;
        let total = (threshold as f64 * part / window as f64 / mean).max(0.05);
        let who: Vec<u32> = if chance.happens(0.3) {
            vec![chance.between(0, u64::from(nodes) - 1) as u32]
        } else {
            Vec::new()
        };
        let asked = if who.is_empty() { f64::from(nodes) } else { 1.0 };
        let from = if chance.happens(0.3) { chance.between(0, lasts / 2) } else { 0 };
        let per_second = total / asked;
        let shape = match chance.between(0, 3) {
            0 | 1 => Shape::Random,
            2 => Shape::Even,
            // All nodes at the same time.
            _ => Shape::Bursts(chance.between(1, (threshold + 1).min(300)) as u32),
        };
        demands.push(Demand { key, nodes: who, per_second, from, until: lasts, shape, cost });
    }
    demands
}

fn way(chance: &mut Chance) -> Way {
    let delay_min = chance.of(&[100_000, 400_000, 5 * MS]);
    let sound = Way { delay_min, delay_max: delay_min * chance.of(&[1, 2, 6]), ..Way::QUIET };
    if chance.happens(0.4) {
        return sound;
    }
    Way {
        slow: chance.of(&[0.0, 0.05, 0.3]),
        slow_max: chance.of(&[100, 400, 3_000]) * MS,
        lost: chance.of(&[0.0, 0.02, 0.2]),
        unanswered: chance.of(&[0.0, 0.02, 0.2]),
        cut: chance.of(&[0.0, 0.1]),
        refused: chance.of(&[0.0, 0.0, 0.05]),
        ..sound
    }
}

fn faults(
    chance: &mut Chance,
    nodes: u32,
    stores: u64,
    window: u64,
    lasts: Nanos,
) -> Vec<(Nanos, Fault)> {
    let kinds: Vec<u64> = match chance.between(0, 2) {
        0 => return Vec::new(),
        1 => vec![chance.between(0, 6)],
        _ => (0..7).collect(),
    };
    let mut faults = Vec::new();
    for _ in 0..chance.between(1, 5) {
        let at = chance.between(SECOND, lasts);
        let store = chance.between(0, stores - 1) as usize;
        let long = chance.between(100, window * 3_000) * MS;
        let fault = match kinds[chance.between(0, kinds.len() as u64 - 1) as usize] {
            0 => Fault::Refuses { store, lasts: long },
            1 => Fault::Swallows { store, lasts: long },
            2 => Fault::ReadsOnly { store, lasts: long },
            3 => Fault::Evicts { store, share: chance.fraction() },
            4 => Fault::Evicts { store, share: 1.0 },
            5 => Fault::FailsOver { store, lacks: chance.between(0, 1_000) * MS },
            _ => {
                let by = chance.between(0, 4_000) as i64 - 2_000;
                let node = chance.between(0, u64::from(nodes) - 1) as u32;
                Fault::Steps { node, by: by * MS as i64 }
            }
        };
        faults.push((at, fault));
    }
    faults.sort_by_key(|(at, _)| *at);
    faults
}
