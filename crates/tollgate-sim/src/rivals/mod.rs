//! Other rules for a limit of a fleet, as small models: under the same loads, network and crashes
//! as the product, and judged by the same checkers.
//!
//! A model knows one key and true time, and its fleet agrees on owners at once: whatever it does
//! worse than the product, it does with better clocks and a better coordinator. [`global`] is what
//! Gubernator's `GLOBAL` does, [`literal`] what the proposal that `eventual` comes from says.

pub mod global;
pub mod literal;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::chance::Chance;
use crate::ledger::{Admission, Change, Ledger};
use crate::scenario::{Fault, MS, Nanos, Scenario, Shape, SimLimit};

/// How one process of a rival's fleet decides and what it says.
pub trait Rule: Sized {
    /// What processes say to each other.
    type Message: Clone;

    /// A process that has just started: the `life`-th of its node.
    fn new(node: u32, life: u32, limit: &SimLimit) -> Self;

    /// Whether a request of this cost passes now.
    fn ask(&mut self, cost: u64, owner: u32, now: Nanos) -> bool;

    /// What is to be said now, to whom; asked every millisecond.
    fn tick(&mut self, fleet: &Fleet, now: Nanos, out: &mut Vec<(u32, Self::Message)>);

    /// Another process says something; what is to be said at once.
    fn hear(
        &mut self,
        from: u32,
        message: Self::Message,
        fleet: &Fleet,
        now: Nanos,
        out: &mut Vec<(u32, Self::Message)>,
    );
}

/// Who is a member, and so who owns the key.
#[derive(Debug, Clone)]
pub struct Fleet {
    members: Vec<bool>,
    /// How often the owner has changed.
    pub epoch: u64,
}

impl Fleet {
    /// The member that comes first, as on a ring: whoever comes back takes the key back.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.members.iter().position(|is_member| *is_member).unwrap_or(0) as u32
    }

    /// All members.
    pub fn members(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.members).filter(|(_, is_member)| **is_member).map(|(node, _)| node)
    }
}

/// Runs a scenario of one key under a rule: no waiting, no refunds, and of all faults the crashes.
#[must_use]
pub fn run<R: Rule>(scenario: &Scenario) -> Ledger {
    let mut run = Run::<R>::new(scenario);
    run.begin();
    let end = scenario.lasts + scenario.rests;
    while let Some(Reverse((at, _, place))) = run.agenda.pop() {
        if at > end {
            break;
        }
        run.now = at;
        run.ledger.steps += 1;
        if let Some(step) = run.steps[place].take() {
            run.free.push(place);
            run.step(step);
        }
    }
    run.ledger
}

struct Run<'s, R: Rule> {
    scenario: &'s Scenario,
    chance: Chance,
    /// When, in which order, and where the step is kept.
    agenda: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    steps: Vec<Option<Step<R::Message>>>,
    free: Vec<usize>,
    number: u64,
    now: Nanos,
    processes: Vec<Option<R>>,
    lives: Vec<u32>,
    fleet: Fleet,
    ledger: Ledger,
}

enum Step<M> {
    Arrive { demand: usize, node: u32 },
    Tick,
    Deliver { to: u32, from: u32, message: M },
    Crash { node: u32, back_after: Option<Nanos> },
    Start { node: u32 },
    Membership { node: u32, life: u32, is_member: bool },
}

impl<'s, R: Rule> Run<'s, R> {
    fn new(scenario: &'s Scenario) -> Self {
        let limit = scenario.limits[0];
        let mut ledger = Ledger { contacts: vec![0], ..Ledger::default() };
        ledger.changes.push(Change {
            at: 0,
            limit: 0,
            rate: limit.rate,
            burst: limit.burst,
            is_removal: false,
        });
        let nodes = scenario.nodes as usize;
        Self {
            scenario,
            chance: Chance::new(scenario.seed),
            agenda: BinaryHeap::new(),
            steps: Vec::new(),
            free: Vec::new(),
            number: 0,
            now: 0,
            processes: (0..scenario.nodes).map(|node| Some(R::new(node, 1, &limit))).collect(),
            lives: vec![1; nodes],
            fleet: Fleet { members: vec![true; nodes], epoch: 1 },
            ledger,
        }
    }

    fn begin(&mut self) {
        self.at(MS, Step::Tick);
        for (at, fault) in &self.scenario.faults {
            if let Fault::Crash { node, back_after } = *fault {
                self.at(*at, Step::Crash { node, back_after });
            }
        }
        for (index, demand) in self.scenario.demands.iter().enumerate() {
            let all: Vec<u32> = (0..self.scenario.nodes).collect();
            let nodes = if demand.nodes.is_empty() { &all } else { &demand.nodes };
            for node in nodes {
                let first = match demand.shape {
                    Shape::Bursts(_) => 0,
                    Shape::Even => self.chance.between(0, (1e9 / demand.per_second) as Nanos),
                    Shape::Random => self.chance.gap(demand.per_second),
                };
                self.at(demand.from + first, Step::Arrive { demand: index, node: *node });
            }
        }
    }

    fn at(&mut self, at: Nanos, step: Step<R::Message>) {
        self.number += 1;
        let place = self.free.pop().unwrap_or(self.steps.len());
        if place == self.steps.len() {
            self.steps.push(None);
        }
        self.steps[place] = Some(step);
        self.agenda.push(Reverse((at, self.number, place)));
    }

    fn step(&mut self, step: Step<R::Message>) {
        match step {
            Step::Arrive { demand, node } => self.arrive(demand, node),
            Step::Tick => self.tick(),
            Step::Deliver { to, from, message } => {
                let mut out = Vec::new();
                if let Some(process) = &mut self.processes[to as usize] {
                    process.hear(from, message, &self.fleet, self.now, &mut out);
                }
                self.send_all(to, out);
            }
            Step::Crash { node, back_after } => {
                self.processes[node as usize] = None;
                let life = self.lives[node as usize];
                // As the product's coordinator finds out, and everybody at once.
                let lost_after = self.scenario.times.ttl_max.as_nanos() as Nanos;
                let lost = Step::Membership { node, life, is_member: false };
                self.at(self.now + lost_after, lost);
                if let Some(after) = back_after {
                    self.at(self.now + after, Step::Start { node });
                }
            }
            Step::Start { node } => {
                self.lives[node as usize] += 1;
                let life = self.lives[node as usize];
                let limit = &self.scenario.limits[0];
                self.processes[node as usize] = Some(R::new(node, life, limit));
                self.at(self.now + MS, Step::Membership { node, life, is_member: true });
            }
            Step::Membership { node, life, is_member } => {
                if self.lives[node as usize] == life {
                    let before = self.fleet.owner();
                    self.fleet.members[node as usize] = is_member;
                    self.fleet.epoch += u64::from(self.fleet.owner() != before);
                }
            }
        }
    }

    fn tick(&mut self) {
        self.at(self.now + MS, Step::Tick);
        for node in 0..self.scenario.nodes {
            let mut out = Vec::new();
            if let Some(process) = &mut self.processes[node as usize] {
                process.tick(&self.fleet, self.now, &mut out);
            }
            self.send_all(node, out);
        }
    }

    fn arrive(&mut self, index: usize, node: u32) {
        let demand = &self.scenario.demands[index];
        let (count, gap) = match demand.shape {
            Shape::Random => (1, self.chance.gap(demand.per_second) as f64),
            Shape::Even => (1, 1e9 / demand.per_second),
            Shape::Bursts(count) => (count, 1e9 / demand.per_second * f64::from(count)),
        };
        let next = self.now + gap.clamp(1.0, 1e18) as Nanos;
        if next < demand.until.min(self.scenario.lasts) {
            self.at(next, Step::Arrive { demand: index, node });
        }
        if self.now >= demand.until {
            return;
        }
        let (limit, key, at) = (demand.limit, demand.key, self.now);
        for _ in 0..count {
            let cost = self.chance.between(demand.cost.0, demand.cost.1);
            let Some(process) = &mut self.processes[node as usize] else { return };
            let offered = self.ledger.offered.entry((limit, key, node)).or_default();
            offered.units += cost;
            if process.ask(cost, self.fleet.owner(), at) {
                let admission = Admission { at, limit, key, node, cost, refunded: 0 };
                self.ledger.admissions.push(admission);
            } else {
                offered.refused += cost;
            }
        }
    }

    fn send_all(&mut self, from: u32, messages: Vec<(u32, R::Message)>) {
        let network = self.scenario.network;
        for (to, message) in messages {
            if from == to {
                self.at(self.now + 1_000, Step::Deliver { to, from, message });
                continue;
            }
            self.ledger.messages += 1;
            self.ledger.entries += 1;
            if self.chance.happens(network.loss) {
                continue;
            }
            let copies = 1 + u32::from(self.chance.happens(network.repeats));
            for _ in 0..copies {
                let is_slow = self.chance.happens(network.slow);
                let max = if is_slow { network.slow_max } else { network.delay_max };
                let delay = self.chance.between(network.delay_min, max.max(network.delay_min));
                let message = message.clone();
                self.at(self.now + delay, Step::Deliver { to, from, message });
            }
        }
    }
}

/// A limit's rate in units a nanosecond.
fn per_nano(limit: &SimLimit) -> f64 {
    limit.rate.units() as f64 / limit.rate.period_ns() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::utilisation::fleet;

    #[test]
    fn a_node_that_is_killed_is_no_member_until_it_is_back() {
        let mut fleet = Fleet { members: vec![true; 3], epoch: 1 };
        assert_eq!(fleet.owner(), 0);
        fleet.members[0] = false;
        assert_eq!((fleet.owner(), fleet.members().collect::<Vec<_>>()), (1, vec![1, 2]));
    }

    #[test]
    fn a_model_is_had_again_from_its_seed() {
        let scenario = fleet(3, 100, 100, 2.5);
        let admissions = || run::<literal::Literal>(&scenario).admissions;
        assert!(!admissions().is_empty());
        assert_eq!(admissions(), admissions());
    }
}
