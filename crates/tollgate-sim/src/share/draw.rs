//! A scenario of `share` for each seed: every kind of load and fault by itself and all together.

use tollgate::ShareMode;

use super::scenario::{Fault, Load, Scenario, Units};
use crate::chance::Chance;
use crate::scenario::{MS, Nanos, Network, SECOND, Shape};

/// The scenario of a seed.
#[must_use]
pub fn scenario(seed: u64) -> Scenario {
    let chance = &mut Chance::new(seed ^ 0x54A2E);
    let nodes = chance.of(&[2, 3, 4, 4, 5, 8, 20]) as u32;
    let units = chance.of(&[10, 100, 100, 100, 300]);
    let burst = (units * chance.of(&[1, 2, 4, 8]) / 4).max(1);
    let period = chance.of(&[1, 1, 1, 1, 2]);
    let lasts = chance.between(20, 40) * SECOND;
    let scenario = Scenario {
        seed,
        units: Units { units, period, burst },
        mode: ShareMode::Global,
        network: network(chance),
        drift_ppm: chance.of(&[0, 0, 100, 500]) as u32,
        ..Scenario::quiet(nodes, Units::per_second(units, burst), lasts)
    };
    let keys = chance.of(&[1, 1, 1, 3]) as u32;
    let loads = (0..keys).flat_map(|key| loads(chance, &scenario, key)).collect();
    let faults = faults(chance, &scenario);
    Scenario { loads, faults, ..scenario }
}

/// What is asked of a key: one division of demand after another.
fn loads(chance: &mut Chance, scenario: &Scenario, key: u32) -> Vec<Load> {
    let Scenario { nodes, units, lasts, .. } = *scenario;
    let shape = chance.of(&[Shape::Even, Shape::Random]);
    let costs = [1, 1, 1, (units.burst / u64::from(nodes)).clamp(1, 10)];
    let cost = (1, chance.of(&costs));
    let patience = chance.of(&[0, 0, 0, 3_000]) * MS;
    let (mut loads, mut at) = (Vec::new(), 0);
    while at < lasts {
        let until = at + chance.between(9, 25) * SECOND + chance.between(0, 999) * MS;
        let times = chance.of(&[0.5, 0.8, 1.0, 1.1, 1.5, 2.5]);
        let all = units.rate() * times / f64::from(key + 1).powf(1.2);
        for (node, part) in parts(chance, nodes) {
            let per_second = all * part;
            if per_second > 0.0 {
                let load = Load { shape, cost, patience, ..Load::even(key, node, per_second) };
                loads.push(load.during(at, until.min(lasts)));
            }
        }
        at = until;
    }
    loads
}

/// Which node is asked for which part.
fn parts(chance: &mut Chance, nodes: u32) -> Vec<(u32, f64)> {
    let mut weights: Vec<f64> = match chance.between(0, 4) {
        0 => vec![1.0; nodes as usize],
        1 => (1..=nodes).map(|rank| f64::from(rank).powf(-1.2)).collect(),
        // Two that change places.
        2 => (0..nodes).map(|node| [9.0, 1.0, 0.0][node.min(2) as usize]).collect(),
        3 => (0..nodes).map(|node| if node == 0 { 10.0 } else { 0.1 }).collect(),
        _ => (0..nodes).map(|node| if node == 0 { 1.0 } else { 0.0 }).collect(),
    };
    // Who is first is chance.
    let first = chance.between(0, u64::from(nodes) - 1) as usize;
    weights.rotate_right(first);
    let all: f64 = weights.iter().sum();
    (0..).zip(weights).map(|(node, weight)| (node, weight / all)).collect()
}

fn network(chance: &mut Chance) -> Network {
    let delay_min = chance.of(&[400_000, 400_000, 5 * MS, 40 * MS]);
    let sound = Network { delay_min, delay_max: delay_min * 3 / 2, ..Network::QUIET };
    if chance.happens(0.6) {
        return sound;
    }
    Network {
        slow: chance.of(&[0.0, 0.05, 0.3]),
        slow_max: chance.of(&[50, 200, 1_500]) * MS,
        loss: chance.of(&[0.0, 0.02, 0.1, 0.3]),
        repeats: chance.of(&[0.0, 0.1]),
        ..sound
    }
}

fn faults(chance: &mut Chance, scenario: &Scenario) -> Vec<(Nanos, Fault)> {
    let kinds: Vec<u64> = match chance.between(0, 3) {
        0 | 1 => return Vec::new(),
        2 => vec![chance.between(0, 7)],
        _ => (0..8).collect(),
    };
    let mut faults = Vec::new();
    for _ in 0..chance.between(1, 3) {
        let at = chance.between(0, scenario.lasts / SECOND) * SECOND;
        let node = chance.between(0, u64::from(scenario.nodes) - 1) as u32;
        let other = chance.between(0, u64::from(scenario.nodes) - 1) as u32;
        let long = chance.between(500, 20_000) * MS;
        let back_after = chance.happens(0.7).then_some(long);
        let fault = match kinds[chance.between(0, kinds.len() as u64 - 1) as usize] {
            0 => Fault::Crash { node, back_after },
            1 => Fault::Owner { key: 0, back_after },
            2 => Fault::Stop { node, back_after },
            3 => Fault::Cut { from: node, to: None, lasts: long },
            4 => Fault::Cut { from: node, to: (other != node).then_some(other), lasts: long },
            5 => Fault::Silence { node, lasts: long.min(5 * SECOND) },
            6 => {
                let units = scenario.units.units * chance.of(&[1, 2, 3, 4, 8]) / 2;
                let burst = scenario.units.burst * chance.of(&[1, 2, 4]) / 2;
                let units = units.max(1);
                Fault::Change(Units { units, burst: burst.max(1), ..scenario.units })
            }
            _ => Fault::Mode(chance.of(&ShareMode::ALL)),
        };
        faults.push((at, fault));
    }
    faults.sort_by_key(|(at, _)| *at);
    faults
}
