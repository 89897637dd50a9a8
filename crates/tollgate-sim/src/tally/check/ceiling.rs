//! What may be admitted whatever stores do: for each key and each time of a window w,
//!
//! > admitted ≤ Σ over nodes that were asked of (2 + steps) · (L + L/w · min(age, w) + c)
//!
//! with the threshold L, `steps` of the node's wall clock, `age` the longest after which it still
//! admitted by what it had read, and c the largest cost where a cell's first request passes always
//! (0 where what is admitted counts).
//!
//! Why: a node remembers what it counted in its last two windows, so each estimate that it makes
//! has its own units of the window in it, even if the store has lost them. Let it admit its last
//! unit of a window by an estimate E that is `age` old, with `here` counted since. Then
//! E - L/w · age + here ≤ L, and its units of that window are E and `here` at most. What it counts
//! before the first estimate, or by one of a window before, is `here` alone. A time of w meets two
//! windows of a node's clock, and one more with each step of it. How far clocks are apart does not
//! matter, since each node is counted by itself.
//!
//! It is met when all nodes are asked for all at once. A key that a node has judged as limits say
//! of long outages is not promised this much.

use std::collections::BTreeMap;

use super::{Reads, was_cut_off};
use crate::check::Violation;
use crate::scenario::Nanos;
use crate::tally::ledger::{Ask, Ledger, most_in};
use crate::tally::scenario::{Fault, Scenario};

/// What is wrong, and the largest part of the ceiling that was admitted.
pub(super) fn check(scenario: &Scenario, ledger: &Ledger) -> (Vec<Violation>, f64) {
    let reads = Reads::new(ledger);
    let mut keys: BTreeMap<u32, Vec<&Ask>> = BTreeMap::new();
    for ask in &ledger.asks {
        if ask.passed {
            keys.entry(ask.key).or_default().push(ask);
        }
    }
    let (mut violations, mut most_used) = (Vec::new(), 0.0_f64);
    for (key, asks) in keys {
        let mut ages: BTreeMap<u32, Nanos> = BTreeMap::new();
        let mut is_cut_off = false;
        for ask in &asks {
            let read = reads.last(ask.node, key, ask.at);
            is_cut_off |= was_cut_off(ledger, ask.node, read.map_or(0, |read| read.at), ask.at);
            let age = read.map_or(0, |read| ask.at - read.sent_at);
            let oldest = ages.entry(ask.node).or_default();
            *oldest = age.max(*oldest);
        }
        if is_cut_off {
            continue;
        }
        let cost = asks.iter().map(|ask| ask.cost).max().unwrap_or(0);
        let allowed: f64 =
            ages.iter().map(|(node, age)| of_node(scenario, key, *node, *age, cost)).sum();
        let passed = asks.iter().copied();
        let (most, at) = most_in(passed, scenario.length(), |ask| ask.cost);
        most_used = most_used.max(most as f64 / allowed);
        if most as f64 > allowed {
            let what = format!(
                "{most} units of key {key} in a window's time until {:.3} s, above {allowed:.0}",
                at as f64 / 1e9
            );
            violations.push(Violation { checker: "tally_ceiling", what });
        }
    }
    (violations, most_used)
}

/// What one node may admit of a key in any time of a window.
fn of_node(scenario: &Scenario, key: u32, node: u32, age: Nanos, cost: u64) -> f64 {
    let threshold = scenario.threshold_of(key) as f64;
    let length = scenario.length();
    let leaks = threshold * age.min(length) as f64 / length as f64;
    let first = if scenario.counts_offered { cost as f64 } else { 0.0 };
    let mine = |(_, fault): &&(Nanos, Fault)| match fault {
        Fault::Steps { node: of, .. } => *of == node,
        _ => false,
    };
    let windows = 2 + scenario.faults.iter().filter(mine).count();
    windows as f64 * (threshold + leaks + first)
}
