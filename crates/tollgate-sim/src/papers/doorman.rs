//! E7: capacity that is handed out to clients. Doorman's simulation (YouTube): steady clients, and
//! an hour with a mishap every minute.
//!
//! Doorman hands out capacity for the next seconds; here clients ask for each unit, and what is
//! admitted in a second is compared with it. The owner is a node that asks for nothing, so that its
//! loss takes no demand away.

use super::measure::{
    admitted, excess, fleet, load, most, per_second, percent, settles, time, units,
};
use super::{Row, Table};
use crate::chance::Chance;
use crate::cluster::key_owned_in_turn;
use crate::ledger::Ledger;
use crate::scenario::{Demand, Fault, MS, Nanos, SECOND, Scenario, Shape};

/// One run.
#[derive(Debug, Clone, Copy)]
struct Case {
    clients: u32,
    /// What one wants, at least and at most.
    wants: (f64, f64),
    seconds: u64,
    /// The time between mishaps, if there are any.
    every: Option<Nanos>,
}

#[derive(Debug, Clone, Copy)]
struct Outcome {
    most: u64,
    used: f64,
    excess: f64,
    /// The longest time from a mishap until 95 % is handed out again.
    caught_up: Option<Nanos>,
    mishaps: usize,
}

pub(super) fn full() -> Table {
    let five = Case { clients: 5, wants: (100.0, 110.0), seconds: 600, every: None };
    let many = Case { clients: 45, wants: (14.0, 15.0), seconds: 600, every: None };
    let hour = |case| Case { seconds: 3_600, every: Some(60 * SECOND), ..case };
    let rows = vec![
        row("1", five, &["—", "—", "—"]),
        row("1, with mishaps for an hour", hour(five), &["—", "—", "—"]),
        row("5", many, &["—", "96.8 %", "—"]),
        row("7: mishaps for an hour", hour(many), &["530.24", "96.6 %", "≤ 2 min"]),
    ];
    Table {
        title: "E7: an hour of mishaps (Doorman)".into(),
        text: format!(
            "{CAPACITY}/s, B = {BURST} (6 % of a second), requests at even times that wait for \
             up to {} ms, sync interval 5 ms. Every 60 s one of: 100/s more for 30 s, the \
             coordinator's leader changes, the owner is killed and comes back after up to 50 s. \
             Line: nothing over B + R·t, so at most {} in any second; 96.6 % used; 95 % again 2 s \
             after a mishap.",
            WAITS / MS,
            CAPACITY + BURST
        ),
        published: vec!["published most", "published used", "published catch-up"],
        ours: vec!["most in 1 s", "used", "caught up in", "worst over B + R·t"],
        rows,
    }
}

fn row(number: &str, case: Case, published: &[&str]) -> Row {
    let outcome = measure(case, 1);
    let (low, high) = case.wants;
    let caught_up = if outcome.mishaps == 0 { "—".into() } else { time(outcome.caught_up) };
    Row {
        what: format!("scenario {number}: {} clients, {low}–{high}/s each", case.clients),
        published: published.iter().map(|cell| (*cell).into()).collect(),
        ours: vec![
            outcome.most.to_string(),
            percent(outcome.used, 1),
            caught_up,
            units(outcome.excess),
        ],
        pass: Some(passes(&outcome)),
    }
}

fn passes(outcome: &Outcome) -> bool {
    let caught_up = outcome.caught_up.is_some_and(|after| after <= 2 * SECOND);
    let is_bounded = outcome.excess <= 0.0 && outcome.most <= CAPACITY + BURST;
    is_bounded && outcome.used >= 0.966 && caught_up
}

fn measure(case: Case, seed: u64) -> Outcome {
    let (scenario, mishaps) = scenario(case, seed);
    let ledger = crate::run(&scenario);
    let counted = admitted(&ledger, WARM_UP, scenario.lasts) as f64;
    Outcome {
        most: most(&ledger, SECOND, WARM_UP),
        used: counted / (CAPACITY * case.seconds) as f64,
        excess: excess(&scenario, &ledger),
        caught_up: catch_up(&ledger, &mishaps, case.every.unwrap_or(0) / 3),
        mishaps: mishaps.len(),
    }
}

/// The longest time from a mishap on until what is handed out stays near the capacity.
fn catch_up(ledger: &Ledger, mishaps: &[Nanos], within: Nanos) -> Option<Nanos> {
    let least = CAPACITY as f64 * 0.95;
    let settle = |at: &Nanos| settles(ledger, least, SECOND, (*at, at + within));
    mishaps.iter().map(settle).try_fold(0, |longest, after| Some(longest.max(after?)))
}

/// A scenario and when something happens in it.
fn scenario(case: Case, seed: u64) -> (Scenario, Vec<Nanos>) {
    let Case { clients, wants, seconds, every } = case;
    let key = key_owned_in_turn(&[clients], clients + 1);
    let lasts = WARM_UP + seconds * SECOND;
    let mut scenario = fleet(clients + 1, per_second(CAPACITY), BURST, lasts);
    scenario.seed = seed;
    let chance = &mut Chance::new(seed);
    let wants = |chance: &mut Chance| wants.0 + (wants.1 - wants.0) * chance.fraction();
    scenario.demands = (0..clients).map(|client| steady(client, key, wants(chance))).collect();
    let mut times = Vec::new();
    let Some(every) = every else { return (scenario, times) };
    for at in (WARM_UP + 5 * SECOND..lasts - every / 3).step_by(every as usize) {
        times.push(at);
        match chance.between(0, 2) {
            0 => {
                let client = chance.between(0, u64::from(clients) - 1) as u32;
                let spike = steady(client, key, 100.0);
                scenario.demands.push(Demand { from: at, until: at + every / 2, ..spike });
            }
            1 => scenario.faults.push((at, Fault::Failover)),
            _ => {
                let back_after = Some(chance.between(1, every / 6 * 5));
                scenario.faults.push((at, Fault::Crash { node: clients, back_after }));
            }
        }
    }
    (scenario, times)
}

fn steady(client: u32, key: u32, wants: f64) -> Demand {
    Demand { waits: WAITS, shape: Shape::Even, ..load([client], key, wants) }
}

const CAPACITY: u64 = 500;
const BURST: u64 = 30;
const WAITS: Nanos = 50 * MS;
const WARM_UP: Nanos = 2 * SECOND;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_clients_get_what_there_is_and_no_second_more_than_the_bound() {
        let case = Case { clients: 5, wants: (100.0, 110.0), seconds: 20, every: None };
        let outcome = measure(case, 1);
        assert!(passes(&outcome), "{outcome:?}");
    }

    #[test]
    fn mishaps_cost_less_than_two_seconds_each() {
        let every = Some(12 * SECOND);
        let case = Case { clients: 5, wants: (100.0, 110.0), seconds: 36, every };
        let has_all = |seed: &u64| {
            let (scenario, times) = scenario(case, *seed);
            let crashes = |(_, fault): &(Nanos, Fault)| matches!(fault, Fault::Crash { .. });
            let crashes = scenario.faults.iter().filter(|fault| crashes(fault)).count();
            // A spike, a crash, and a leader that changes.
            (times.len(), scenario.demands.len(), scenario.faults.len(), crashes) == (3, 6, 2, 1)
        };
        for seed in (0..).filter(has_all).take(2) {
            let outcome = measure(case, seed);
            assert!(passes(&outcome), "seed {seed}: {outcome:?}");
        }
    }
}
