//! Why ours: the same loads under our rules, the proposal's by the letter, and Gubernator's.

use super::measure::{admitted, excess, fleet, load, per_second, percent, units};
use super::{Row, Table};
use crate::cluster::key_owned_in_turn;
use crate::ledger::Ledger;
use crate::rivals::{self, global, literal};
use crate::scenario::{Demand, Fault, Nanos, SECOND, Scenario, Shape};

/// A load under which rules are compared.
#[derive(Debug, Clone, Copy)]
enum Load {
    /// So many nodes that ask for 2.5 × the limit.
    Even(u32),
    /// The same on 8 nodes; a tenth of all messages is lost.
    Loss,
    /// 8 nodes that ask for little; then each asks for the whole burst at one instant.
    Burst,
    /// 3 nodes that ask for 2.5 × the limit; the owner is killed and comes back 2 s later.
    Crash,
}

pub(super) fn full() -> Table {
    let loads =
        [Load::Even(3), Load::Even(8), Load::Even(20), Load::Burst, Load::Crash, Load::Loss];
    Table {
        title: "Why ours: three rules under the same loads".into(),
        text: format!(
            "R = 1,000/s, B = 1,000, sync interval 5 ms (Gubernator's 100 ms), half a \
             millisecond one way, {} s. Each cell: units over B + R·t in the worst window · \
             admitted of what the limit gives, after the first second or a second after the \
             burst · messages between nodes a second. The \
             others' rules are models with true clocks and a fleet that agrees on its owners.",
            LASTS / SECOND
        ),
        published: vec![
            "proposal by the letter",
            "proposal, capped at b",
            "`GLOBAL`, windows",
            "`GLOBAL`, leaky",
        ],
        ours: vec!["ours"],
        rows: loads.into_iter().map(row).collect(),
    }
}

fn row(load: Load) -> Row {
    let ours = scenario(load, true);
    let theirs = scenario(load, false);
    let from = if matches!(load, Load::Burst) { 6 * SECOND } else { SECOND };
    let measured = |ledger: &Ledger| Outcome::new(&theirs, ledger, from).cell();
    let outcome = Outcome::new(&ours, &crate::run(&ours), from);
    Row {
        what: match load {
            Load::Even(nodes) => format!("2.5 × on {nodes} nodes"),
            Load::Loss => "2.5 × on 8 nodes, 10 % lost".into(),
            Load::Burst => "a burst on all 8 nodes at once".into(),
            Load::Crash => "2.5 × on 3 nodes, the owner killed".into(),
        },
        published: vec![
            measured(&rivals::run::<literal::Literal>(&theirs)),
            measured(&rivals::run::<literal::Capped>(&theirs)),
            measured(&rivals::run::<global::Windows>(&theirs)),
            measured(&rivals::run::<global::Leaky>(&theirs)),
        ],
        ours: vec![outcome.cell()],
        pass: Some(outcome.excess <= 0.0),
    }
}

#[derive(Debug, Clone, Copy)]
struct Outcome {
    excess: f64,
    used: f64,
    messages: f64,
}

impl Outcome {
    fn new(scenario: &Scenario, ledger: &Ledger, from: Nanos) -> Self {
        let seconds = (scenario.lasts - from) as f64 / 1e9;
        Self {
            excess: excess(scenario, ledger),
            used: admitted(ledger, from, scenario.lasts) as f64 / (RATE as f64 * seconds),
            messages: ledger.messages as f64 / (scenario.lasts as f64 / 1e9),
        }
    }

    fn cell(&self) -> String {
        let messages = crate::number(self.messages.round());
        format!("{} · {} · {messages}", units(self.excess), percent(self.used, 0))
    }
}

/// The models' first node owns the key; ours is asked under a key that it owns.
fn scenario(load_of: Load, is_ours: bool) -> Scenario {
    let nodes = match load_of {
        Load::Even(nodes) => nodes,
        Load::Loss | Load::Burst => 8,
        Load::Crash => 3,
    };
    let key = if is_ours { key_owned_in_turn(&[0], nodes) } else { 0 };
    let mut scenario = fleet(nodes, per_second(RATE), RATE, LASTS);
    let even = load(0..nodes, key, RATE as f64 * 2.5 / f64::from(nodes));
    scenario.demands = vec![even];
    match load_of {
        Load::Even(_) => {}
        Load::Loss => scenario.network.loss = 0.1,
        Load::Burst => {
            let trickle = load(0..nodes, key, 20.0);
            let mut burst = load(0..nodes, key, RATE as f64);
            burst.shape = Shape::Bursts(RATE as u32);
            (burst.from, burst.until) = (5 * SECOND, 5 * SECOND + 1);
            let rest = Demand { from: 5 * SECOND, ..scenario.demands[0].clone() };
            scenario.demands = vec![trickle, burst, rest];
        }
        Load::Crash => {
            let back_after = Some(2 * SECOND);
            scenario.faults = vec![(4 * SECOND, Fault::Crash { node: 0, back_after })];
        }
    }
    scenario
}

const RATE: u64 = 1_000;
const LASTS: Nanos = 11 * SECOND;

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(load: Load, from: Nanos) -> Outcome {
        let scenario = scenario(load, true);
        Outcome::new(&scenario, &crate::run(&scenario), from)
    }

    fn theirs<R: rivals::Rule>(load: Load) -> Outcome {
        let scenario = scenario(load, false);
        Outcome::new(&scenario, &rivals::run::<R>(&scenario), SECOND)
    }

    #[test]
    fn ours_keeps_the_bound_and_uses_the_limit() {
        for (load, least) in [(Load::Even(8), 0.99), (Load::Loss, 0.99), (Load::Crash, 0.93)] {
            let outcome = ours(load, SECOND);
            assert!(outcome.excess <= 0.0 && outcome.used >= least, "{load:?}: {outcome:?}");
        }
        let outcome = ours(Load::Burst, 6 * SECOND);
        assert!(outcome.excess <= 0.0 && outcome.used >= 0.98, "{outcome:?}");
    }

    #[test]
    fn the_letter_of_the_proposal_lets_every_worker_spend_the_burst() {
        let outcome = theirs::<literal::Literal>(Load::Burst);
        assert!(outcome.excess > 6_000.0, "{outcome:?}");
        // Capped, it keeps its own envelope: N·b.
        let outcome = theirs::<literal::Capped>(Load::Burst);
        assert!(outcome.excess > 0.0 && outcome.excess <= 8.0 * 40.0, "{outcome:?}");
        let outcome = theirs::<literal::Literal>(Load::Even(8));
        assert!(outcome.excess <= 0.0 && outcome.used >= 0.99, "{outcome:?}");
    }

    #[test]
    fn buckets_that_refill_on_every_node_do_not_hold_a_limit() {
        let outcome = theirs::<global::Leaky>(Load::Even(8));
        assert!(outcome.used >= 2.0, "{outcome:?}");
        // Windows hold it but for what is asked between broadcasts.
        let outcome = theirs::<global::Windows>(Load::Even(8));
        assert!((1.0..1.3).contains(&outcome.used) && outcome.excess > 0.0, "{outcome:?}");
        let outcome = theirs::<global::Windows>(Load::Burst);
        assert!(outcome.excess > 6_000.0, "{outcome:?}");
    }
}
