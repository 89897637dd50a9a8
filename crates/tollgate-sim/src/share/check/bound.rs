//! What is admitted is what nodes enforce, and bursts: in any time, whatever goes wrong,
//!
//! > admitted ≤ ∫ Σ rates + 2 · B + N + fresh + switched
//!
//! where `rates` are what nodes had by what they decided by, `fresh` the bursts of buckets that
//! came into being meanwhile (a cell is new; it was given something for the first time), and
//! `switched` those of buckets to which a node went over: the smaller one of the two may have
//! filled meanwhile. That a switch releases no more than one burst is shown in `papers` (E10).
//!
//! 2 · B + N are the bursts of all members: a member has its part of B, an equal one and one unit
//! at least. What rates sum to is judged by `sum` and `fallback`.

use std::collections::BTreeMap;

use super::{Run, seconds};
use crate::check::Violation;
use crate::scenario::Nanos;
use crate::share::ledger::{By, State};

pub(super) fn check(run: &Run<'_>) -> Vec<Violation> {
    let revised = run.scenario.faults.iter().filter_map(|(_, fault)| match fault {
        crate::share::scenario::Fault::Change(units) => Some(units.burst),
        _ => None,
    });
    let burst = revised.chain([run.scenario.units.burst]).max().unwrap_or(0);
    let allowed = (2 * burst + u64::from(run.scenario.nodes)) as f64;
    let mut curve = Curve::default();
    let mut states = run.ledger.states.iter().filter(|state| state.key == run.key).peekable();
    let (mut least, mut worst) = (0.0_f64, (f64::MIN, 0));
    for ask in run.ledger.asks.iter().filter(|ask| ask.key == run.key && ask.passed) {
        while let Some(state) = states.next_if(|state| state.at <= ask.at) {
            curve.change(state);
        }
        curve.go_on(ask.at);
        least = least.min(curve.admitted - curve.brought);
        curve.admitted += ask.cost as f64;
        worst = max(worst, (curve.admitted - curve.brought - least, ask.at));
    }
    if worst.0 <= allowed + 1e-3 {
        return Vec::new();
    }
    let (over, at) = worst;
    let what = format!("{over:.1} units beyond rates until {:.3} s, above {allowed}", seconds(at));
    vec![run.violation("share_bound", what)]
}

fn max(one: (f64, Nanos), other: (f64, Nanos)) -> (f64, Nanos) {
    if other.0 > one.0 { other } else { one }
}

/// What was admitted, and what was brought by rates and new buckets.
#[derive(Default)]
struct Curve {
    at: Nanos,
    rate: f64,
    brought: f64,
    admitted: f64,
    /// By node.
    known: BTreeMap<u32, State>,
}

impl Curve {
    fn go_on(&mut self, at: Nanos) {
        self.brought += self.rate * (at - self.at) as f64 / 1e9;
        self.at = at;
    }

    fn change(&mut self, state: &State) {
        self.go_on(state.at);
        self.brought += state.fresh as f64;
        let before = self.known.insert(state.node, *state);
        if let Some(before) = before
            && before.by != state.by
            && before.by != By::Nothing
            && state.by != By::Nothing
        {
            self.brought += switched(state);
        }
        self.rate = self.known.values().map(State::rate).sum();
    }
}

/// What the other bucket may have in it: its burst.
fn switched(after: &State) -> f64 {
    let burst = match after.by {
        By::Owner => after.global.map_or(0, |(_, burst)| burst),
        By::Equal | By::Nothing => after.local.1,
    };
    burst as f64
}
