//! Whoever hears nothing enforces an equal part: a member that asked its owner and heard nothing
//! for 11 intervals decides by R / nodes, as do all that never heard anything.

use std::collections::BTreeMap;

use super::{Run, seconds};
use crate::check::Violation;
use crate::scenario::{MS, Nanos};
use crate::share::ledger::By;

pub(super) fn check(run: &Run<'_>) -> Vec<Violation> {
    let mut told: BTreeMap<u32, Vec<Nanos>> = BTreeMap::new();
    for one in run.ledger.told.iter().filter(|told| told.key == run.key) {
        told.entry(one.by).or_default().push(one.at);
    }
    let silence = 11 * run.scenario.interval() + 200 * MS;
    let mut violations = Vec::new();
    // Of each node that decides by its owner's word, since when.
    let mut by_owner: BTreeMap<u32, Nanos> = BTreeMap::new();
    let mut asked: BTreeMap<u32, (Nanos, Nanos)> = BTreeMap::new();
    let mut states = run.ledger.states.iter().filter(|state| state.key == run.key).peekable();
    for ask in run.ledger.asks.iter().filter(|ask| ask.key == run.key) {
        while let Some(state) = states.next_if(|state| state.at <= ask.at) {
            if state.by == By::Owner {
                by_owner.entry(state.node).or_insert(state.at);
            } else {
                by_owner.remove(&state.node);
            }
        }
        // Since when it was asked without a rest.
        let (since, last) = asked.entry(ask.node).or_insert((ask.at, ask.at));
        if ask.at > *last + run.scenario.interval() {
            *since = ask.at;
        }
        *last = ask.at;
        let Some(_) = by_owner.get(&ask.node) else { continue };
        let heard = told
            .get(&ask.node)
            .and_then(|times| times[..times.partition_point(|at| *at <= ask.at)].last().copied());
        let quiet_since = heard.unwrap_or(0).max(*since);
        if quiet_since + silence < ask.at {
            let what = format!(
                "node {} decides by its owner's word at {:.3} s and heard nothing since {:.3} s",
                ask.node,
                seconds(ask.at),
                seconds(quiet_since)
            );
            violations.push(run.violation("share_fallback", what));
            by_owner.remove(&ask.node);
        }
    }
    violations
}
