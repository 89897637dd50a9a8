//! Nodes with limiters of their own, their stores and all that is under way between them, in
//! virtual time.

mod node;
mod talk;

use std::collections::BTreeMap;

use tollgate::TallyNode;

use super::ledger::{Ask, Ledger};
use super::scenario::{Fault, Scenario, Way};
use super::store::Store;
use crate::chance::Chance;
use crate::scenario::{MS, Nanos, Shape};
use node::Node;
use talk::{Answer, Arrival, Open};

/// A fleet whose time goes on as it is told.
pub struct Fleet {
    scenario: Scenario,
    chance: Chance,
    now: Nanos,
    nodes: Vec<Node>,
    stores: Vec<Store>,
    way: Way,
    events: BTreeMap<(Nanos, u64), Event>,
    /// Commands that were not answered yet.
    open: BTreeMap<u64, Open>,
    sequence: u64,
    /// The names of keys, as requests have them.
    names: Vec<String>,
    ledger: Ledger,
}

enum Event {
    /// One of a demand's requests comes to a node.
    Ask { demand: usize, node: u32 },
    /// A node looks at its cells.
    Drain(u32),
    /// The time that a node asked for has come.
    Wake(u32),
    /// A command comes to its store.
    Arrive(Arrival),
    /// An answer comes to its node, or the node gives up waiting.
    Answer(u64, Answer),
    /// Something goes wrong.
    Fault(Fault),
}

/// Plays a scenario.
#[must_use]
pub fn run(scenario: &Scenario) -> Ledger {
    let mut fleet = Fleet::new(scenario.clone());
    fleet.until(scenario.lasts);
    fleet.rest()
}

impl Fleet {
    /// At its start.
    #[must_use]
    pub fn new(scenario: Scenario) -> Self {
        let mut chance = Chance::new(scenario.seed);
        let keys = scenario.demands.iter().map(|demand| demand.key + 1).max().unwrap_or(0);
        let stores = scenario.options.stores.max(1);
        let mut fleet = Self {
            nodes: (0..scenario.nodes).map(|number| Node::new(&scenario, number)).collect(),
            stores: (0..stores).map(|_| Store::default()).collect(),
            way: scenario.way,
            now: 0,
            events: BTreeMap::new(),
            open: BTreeMap::new(),
            sequence: 0,
            names: (0..keys).map(|key| key.to_string()).collect(),
            ledger: Ledger {
                cut_off: vec![Vec::new(); scenario.nodes as usize],
                ..Ledger::default()
            },
            chance: chance.clone(),
            scenario,
        };
        for node in 0..fleet.scenario.nodes {
            let first = chance.between(0, fleet.scenario.drains - 1);
            fleet.push(first, Event::Drain(node));
            // Ticks of nodes are not at the same time.
            fleet.push(chance.between(0, fleet.scenario.tick() - 1), Event::Wake(node));
        }
        for demand in 0..fleet.scenario.demands.len() {
            fleet.begin(demand, &mut chance);
        }
        for (at, fault) in fleet.scenario.faults.clone() {
            fleet.push(at, Event::Fault(fault));
        }
        fleet.chance = chance;
        fleet
    }

    /// Plays until then.
    pub fn until(&mut self, at: Nanos) {
        while let Some(((due, _), _)) = self.events.first_key_value()
            && *due <= at
        {
            let Some(((due, _), event)) = self.events.pop_first() else { break };
            self.now = due;
            self.ledger.steps += 1;
            match event {
                Event::Ask { demand, node } => self.come(demand, node),
                Event::Drain(node) => self.look(node),
                Event::Wake(node) => self.wake(node),
                Event::Arrive(arrival) => self.arrive(arrival),
                Event::Answer(number, answer) => self.answer(number, answer),
                Event::Fault(fault) => self.fault(fault),
            }
        }
        self.now = self.now.max(at);
    }

    /// Asks for units of a key on a node; returns whether they passed.
    pub fn ask(&mut self, node: u32, key: u32, cost: u64) -> bool {
        while self.names.len() <= key as usize {
            self.names.push(self.names.len().to_string());
        }
        let passed = self.nodes[node as usize].ask(key, &self.names[key as usize], cost, self.now);
        self.ledger.asks.push(Ask { at: self.now, key, node, cost, passed });
        passed
    }

    /// Of so many requests of one unit, those that pass.
    pub fn passed(&mut self, node: u32, key: u32, times: u64) -> u64 {
        (0..times).filter(|_| self.ask(node, key, 1)).count() as u64
    }

    /// When it is.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// What a node does with its stores.
    #[must_use]
    pub fn tally(&self, node: u32) -> &TallyNode {
        &self.nodes[node as usize].tally
    }

    /// Something goes wrong from now on.
    pub fn fault(&mut self, fault: Fault) {
        let now = self.now;
        match fault {
            Fault::Refuses { store, lasts } => self.stores[store].refuses_until = now + lasts,
            Fault::Swallows { store, lasts } => self.stores[store].swallows_until = now + lasts,
            Fault::ReadsOnly { store, lasts } => self.stores[store].reads_only_until = now + lasts,
            Fault::Evicts { store, share } => self.stores[store].evict(share, &mut self.chance),
            Fault::FailsOver { store, lacks } => self.stores[store].fail_over(lacks, now),
            Fault::Steps { node, by } => self.nodes[node as usize].step(by),
        }
    }

    /// Ends all faults, lets what waits be written, and says what happened.
    #[must_use]
    pub fn rest(mut self) -> Ledger {
        for store in &mut self.stores {
            (store.refuses_until, store.swallows_until, store.reads_only_until) = (0, 0, 0);
        }
        self.way = Way::QUIET;
        self.events.retain(|_, event| !matches!(event, Event::Ask { .. } | Event::Fault(_)));
        self.until(self.now + self.scenario.rests);
        for node in &self.nodes {
            self.ledger.counts.push(node.tally.counts());
            self.ledger.waiting.push(node.tally.workers().iter().map(|one| one.waiting()).sum());
        }
        for (name, units) in self.stores.iter().flat_map(|store| &store.added) {
            let (key, number) = talk::parse(name);
            self.ledger.added.push((key, number, *units));
        }
        self.ledger
    }

    fn push(&mut self, at: Nanos, event: Event) {
        self.sequence += 1;
        self.events.insert((at.max(self.now), self.sequence), event);
    }

    /// Finds the first request of a demand on each of its nodes.
    fn begin(&mut self, demand: usize, chance: &mut Chance) {
        let all: Vec<u32> = (0..self.scenario.nodes).collect();
        let of = &self.scenario.demands[demand];
        let nodes = if of.nodes.is_empty() { all } else { of.nodes.clone() };
        let (from, shape, per_second) = (of.from, of.shape, of.per_second);
        let step = (1e9 / per_second) as u64;
        for node in nodes {
            let first = match shape {
                Shape::Random => chance.gap(per_second),
                Shape::Even => chance.between(0, step),
                Shape::Bursts(_) => 0,
            };
            self.push(from + first, Event::Ask { demand, node });
        }
    }

    fn come(&mut self, demand: usize, node: u32) {
        let of = &self.scenario.demands[demand];
        let (key, cost, until, shape) = (of.key, of.cost, of.until, of.shape);
        if self.now >= until {
            return;
        }
        let times = match shape {
            Shape::Bursts(times) => times,
            Shape::Random | Shape::Even => 1,
        };
        let step = (1e9 * f64::from(times) / of.per_second) as u64;
        let next = if shape == Shape::Random { self.chance.gap(of.per_second) } else { step };
        for _ in 0..times {
            let cost = self.chance.between(cost.0, cost.1);
            self.ask(node, key, cost);
        }
        self.push(self.now + next.max(1), Event::Ask { demand, node });
    }

    /// A node looks at its cells.
    fn look(&mut self, number: u32) {
        self.note_silence(number);
        self.nodes[number as usize].drain(number, self.now, &mut self.ledger.drains);
        self.poll(number);
        let wait = self.scenario.drains + self.chance.between(0, self.scenario.drains / 10);
        self.push(self.now + wait, Event::Drain(number));
    }

    fn note_silence(&mut self, number: u32) {
        if self.nodes[number as usize].is_cut_off(self.scenario.outage_max(), self.now) {
            self.ledger.cut_off[number as usize].push(self.now);
        }
    }

    fn wake(&mut self, number: u32) {
        self.note_silence(number);
        let node = &mut self.nodes[number as usize];
        node.wakes_at = Nanos::MAX;
        let (now, wall) = node.times(self.now);
        node.tally.handle_timeout(now, wall);
        self.poll(number);
    }

    fn wake_at(&mut self, number: u32, at: Nanos) {
        let at = at.max(self.now + MS / 10);
        let node = &mut self.nodes[number as usize];
        if at < node.wakes_at {
            node.wakes_at = at;
            self.push(at, Event::Wake(number));
        }
    }
}
