//! What may be admitted in one window by a fleet that hears of itself: at any instant t at which a
//! node admits of a key in a window that it read last at r,
//!
//! > admitted in the window so far ≤ L + L/w · (t - r) + others(r - W, t] + missing + c
//!
//! with `others` what the other nodes admitted after r - W, W = tick + 5 · flight the longest until
//! what a node has looked at is in the store, and `missing` what was counted before, or by the node
//! itself before r, and is not there: lost on the way, evicted, or lost with a store. Without
//! faults nothing is missing. c is the largest cost where a cell's first request passes always, and
//! otherwise 0.
//!
//! Why: of what was admitted in the window, the node's estimate has all but `others` and `missing`;
//! `here` is the rest of its own. The estimate leaks L/w · (t - r), and what is left of it is at
//! most L with `here`.
//!
//! Windows are those in which nodes counted, so it holds however wrong clocks are; a node whose
//! clock steps is not promised to have read what it had counted. Before its first read of the
//! window a node knows nothing: all of `others` is new to it.

use std::collections::BTreeMap;

use super::{Reads, was_cut_off};
use crate::check::Violation;
use crate::scenario::Nanos;
use crate::tally::ledger::{Drain, Ledger};
use crate::tally::scenario::Scenario;

/// What is wrong, and the largest part of what is allowed that was admitted.
pub(super) fn check(scenario: &Scenario, ledger: &Ledger) -> (Vec<Violation>, f64) {
    let (mut violations, mut most_used) = (Vec::new(), 0.0_f64);
    if scenario.steps() {
        return (violations, most_used);
    }
    let reads = Reads::new(ledger);
    let cost = ledger.asks.iter().map(|ask| ask.cost).max().unwrap_or(0);
    let first = if scenario.counts_offered { cost } else { 0 };
    let mut windows: BTreeMap<(u32, u64), Counted> = BTreeMap::new();
    for drain in &ledger.drains {
        let window = windows.entry((drain.key, drain.number)).or_default();
        window.add(drain);
        let last = reads.last(drain.node, drain.key, drain.last_at);
        let since = last.map_or(0, |read| read.at);
        if drain.admitted == 0 || was_cut_off(ledger, drain.node, since, drain.at) {
            continue;
        }
        let last = last.filter(|read| read.number == drain.number);
        let (read_at, age, stored) = last
            .map_or((0, 0, 0), |read| (read.sent_at, drain.last_at - read.sent_at, read.stored.1));
        let Sums { others, before, own } = window.sums(drain, read_at, written_after(scenario));
        // Of its own a node knows what waits, but not what was lost on the way.
        let written = if scenario.is_sound() { before } else { before + own };
        let (admitted, missing) = (window.admitted, written.saturating_sub(stored));
        let threshold = scenario.threshold_of(drain.key);
        let leaks = threshold as f64 * age as f64 / scenario.length() as f64;
        let allowed = threshold as f64 + leaks + (others + missing + first) as f64;
        most_used = most_used.max(admitted as f64 / allowed);
        let is_lost = missing > 0 && scenario.is_sound();
        if admitted as f64 > allowed || is_lost {
            let what = format!(
                "{admitted} units of key {} in window {} at {:.3} s, above {allowed:.0}, of which \
                 {missing} are missing",
                drain.key,
                drain.number,
                drain.last_at as f64 / 1e9
            );
            violations.push(Violation { checker: "tally_informed", what });
        }
    }
    (violations, most_used)
}

/// W: a tick, which waits for the commands of the one before, and what is written with it.
fn written_after(scenario: &Scenario) -> Nanos {
    scenario.tick() + 5 * scenario.way.flight_max()
}

/// What was counted of a key in one window.
#[derive(Default)]
struct Counted {
    drains: Vec<Drain>,
    admitted: u64,
    counted: u64,
}

/// Units of a window.
struct Sums {
    /// That other nodes admitted after all that a node may have read.
    others: u64,
    /// That were counted before that.
    before: u64,
    /// That the node itself counted between that and its read.
    own: u64,
}

impl Counted {
    fn add(&mut self, drain: &Drain) {
        self.drains.push(*drain);
        self.admitted += drain.admitted;
        self.counted += drain.counted;
    }

    fn sums(&self, drain: &Drain, read_at: Nanos, written_after: Nanos) -> Sums {
        let (mut others, mut lately, mut own) = (0, 0, 0);
        for one in self.drains.iter().rev() {
            if one.at + written_after <= read_at {
                break;
            }
            lately += one.counted;
            if one.node != drain.node {
                others += one.admitted;
            } else if one.at <= read_at {
                own += one.counted;
            }
        }
        Sums { others, before: self.counted - lately, own }
    }
}
