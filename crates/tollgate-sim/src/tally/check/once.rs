//! Nothing is written twice, and nothing is lost without a count: for each key and window,
//!
//! > added to the store ≤ counted
//!
//! and for each node counted = written + unknown + refused + dropped + late, once nothing waits.
//! What is known to be written was added, and what was added is known or unknown.

use std::collections::BTreeMap;

use crate::check::Violation;
use crate::tally::ledger::Ledger;

pub(super) fn check(ledger: &Ledger) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut wrong = |what: String| violations.push(Violation { checker: "tally_once", what });
    let mut counted: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    let mut by_node = vec![0; ledger.counts.len()];
    for drain in &ledger.drains {
        *counted.entry((drain.key, drain.number)).or_default() += drain.counted;
        by_node[drain.node as usize] += drain.counted;
    }
    for (key, number, added) in &ledger.added {
        let counted = counted.get(&(*key, *number)).copied().unwrap_or(0);
        if *added > counted {
            wrong(format!("{added} added to key {key} in window {number}, {counted} counted"));
        }
    }
    for (node, (counts, waiting)) in ledger.counts.iter().zip(&ledger.waiting).enumerate() {
        let known = counts.written + counts.unknown + counts.refused;
        let all = known + counts.dropped + counts.late;
        if all > by_node[node] || (*waiting == 0 && all < by_node[node]) {
            wrong(format!("node {node} counted {}, and tells of {all}", by_node[node]));
        }
    }
    let added: u64 = ledger.added.iter().map(|(_, _, units)| units).sum();
    let written: u64 = ledger.counts.iter().map(|counts| counts.written).sum();
    let unknown: u64 = ledger.counts.iter().map(|counts| counts.unknown).sum();
    if added < written || added > written + unknown {
        wrong(format!("{added} added, {written} known to be and {unknown} not known"));
    }
    violations
}
