//! E11: a key that nobody knows yet, hit on all nodes at once. In Gubernator's `GLOBAL` every node
//! answers from a full bucket of its own until the owner's first broadcast: up to N·L.

use super::measure::{admitted, excess, fleet, load, per_second, units};
use super::{Row, Table};
use crate::cluster::key_owned_in_turn;
use crate::ledger::Ledger;
use crate::rivals::{self, global};
use crate::scenario::{MS, Nanos, SECOND, Scenario, Shape};

pub(super) fn full() -> Table {
    let rows = vec![
        global_row("Gubernator's rule, as modelled", |scenario| {
            rivals::run::<global::Windows>(scenario)
        }),
        row(0),
        row(2),
    ];
    Table {
        title: "E11: a cold key on 8 nodes (Gubernator)".into(),
        text: format!(
            "L = {LIMIT} per second, B = {LIMIT}, {NODES} nodes that do not own the key, {LIMIT} \
             requests on each of them at one instant and {LIMIT} more in 100 ms; half a \
             millisecond one way. Line: before a snapshot could have come, no more than the \
             bootstrap allowance × N; nothing over B + R·t and the allowance."
        ),
        published: vec!["published"],
        ours: vec!["before a snapshot", "in 100 ms", "worst over B + R·t"],
        rows,
    }
}

fn row(bootstrap: u64) -> Row {
    let scenario = scenario(bootstrap);
    let outcome = measure(&scenario, &crate::run(&scenario));
    let allowed = bootstrap * u64::from(NODES);
    Row {
        what: format!("ours, bootstrap allowance {bootstrap}"),
        published: vec![format!("≤ {allowed} (the proposal)")],
        ours: outcome.cells(),
        pass: Some(outcome.early <= allowed && outcome.excess <= allowed as f64),
    }
}

fn global_row(what: &str, run: impl Fn(&Scenario) -> Ledger) -> Row {
    let scenario = scenario(0);
    let outcome = measure(&scenario, &run(&scenario));
    let published = vec![format!("up to N·L = {}", u64::from(NODES) * LIMIT)];
    Row { what: what.into(), published, ours: outcome.cells(), pass: None }
}

#[derive(Debug, Clone, Copy)]
struct Outcome {
    early: u64,
    soon: u64,
    excess: f64,
}

impl Outcome {
    fn cells(&self) -> Vec<String> {
        vec![self.early.to_string(), self.soon.to_string(), units(self.excess)]
    }
}

fn measure(scenario: &Scenario, ledger: &Ledger) -> Outcome {
    // There and back.
    let first = 2 * scenario.network.delay_min;
    Outcome {
        early: admitted(ledger, BEGINS, BEGINS + first),
        soon: admitted(ledger, BEGINS, BEGINS + 100 * MS),
        excess: excess(scenario, ledger),
    }
}

fn scenario(bootstrap: u64) -> Scenario {
    let mut scenario = fleet(NODES + 1, per_second(LIMIT), LIMIT, BEGINS + SECOND);
    // The owner's ring began long enough ago: the key is unknown, and its burst is there.
    let key = key_owned_in_turn(&[NODES], NODES + 1);
    scenario.limits[0].bootstrap = bootstrap;
    let mut burst = load(0..NODES, key, LIMIT as f64);
    (burst.from, burst.until, burst.shape) = (BEGINS, BEGINS + 1, Shape::Bursts(LIMIT as u32));
    let mut more = load(0..NODES, key, LIMIT as f64 * 10.0);
    (more.from, more.until) = (BEGINS, BEGINS + 100 * MS);
    scenario.demands = vec![burst, more];
    scenario
}

const NODES: u32 = 8;
const LIMIT: u64 = 100;
const BEGINS: Nanos = 3 * SECOND;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cold_key_gives_the_bootstrap_allowance_and_no_more() {
        assert_eq!(row(0).pass, Some(true));
        assert_eq!(row(2).pass, Some(true));
    }

    #[test]
    fn a_full_bucket_on_every_node_gives_n_times_the_limit() {
        let scenario = scenario(0);
        let outcome = measure(&scenario, &rivals::run::<global::Windows>(&scenario));
        assert_eq!(outcome.early, 800);
    }
}
