//! Nodes that divide a limit, their network and their coordinator, in virtual time.

mod node;
mod talk;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

use tollgate::coordinator::SessionOptions;
use tollgate::{CellEpoch, Given, KeyId, Message, NodeId, equal_part};

use super::ledger::{Ask, By, Ledger, State};
use super::scenario::{Fault, Load, Scenario};
use crate::chance::Chance;
use crate::control::{self, Control, Tell};
use crate::machine::DriftingClock;
use crate::network::Cuts;
use crate::scenario::{MS, Nanos, Shape};
use node::{Process, Rules};

/// A fleet whose time goes on as it is told.
pub struct Fleet {
    scenario: Scenario,
    chance: Chance,
    agenda: BinaryHeap<Due>,
    sequence: u64,
    now: Nanos,
    places: Vec<Place>,
    control: Control,
    control_wakes_at: Nanos,
    cuts: Cuts,
    /// The limit's revisions.
    revisions: Vec<Rules>,
    /// The names of keys, as requests have them.
    names: Vec<String>,
    keys: Vec<KeyId>,
    numbers: BTreeMap<KeyId, u32>,
    /// What each node has of each key.
    states: BTreeMap<(u32, u32), State>,
    /// The last report of a key, by its owner and its member.
    reported: BTreeMap<(u32, u32, u32), (CellEpoch, u64)>,
    ledger: Ledger,
}

/// Where a process may be.
struct Place {
    process: Option<Process>,
    lives: u32,
    /// When the last message from the coordinator arrives, and the last to it: they stay in order.
    told_until: Nanos,
    asked_until: Nanos,
}

enum Step {
    Arrive(usize),
    Again { load: usize, cost: u64, until: Nanos },
    Deliver { to: u32, from: u32, message: Box<Message> },
    Look { node: u32, life: u32 },
    Heartbeat { node: u32, life: u32 },
    Ask { node: u32, ask: control::Ask },
    Tell { node: u32, life: u32, tell: Box<Tell> },
    Control,
    Fault(Fault),
    Start(u32),
}

/// A step and its turn: at its time, in the order in which steps were planned.
struct Due {
    at: Nanos,
    number: u64,
    step: Step,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        // The earliest is the greatest, which a heap gives first.
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// Plays a scenario.
#[must_use]
pub fn run(scenario: &Scenario) -> Ledger {
    let mut fleet = Fleet::new(scenario.clone());
    fleet.until(scenario.lasts);
    fleet.end()
}

impl Fleet {
    /// At its start.
    #[must_use]
    pub fn new(scenario: Scenario) -> Self {
        let rules = Rules { revision: 1, units: scenario.units, mode: scenario.mode };
        let names: Vec<String> = (0..scenario.keys()).map(|key| key.to_string()).collect();
        let keys = rules.keys(&names);
        let place = |_| Place { process: None, lives: 0, told_until: 0, asked_until: 0 };
        let options = SessionOptions::default();
        let mut fleet = Self {
            chance: Chance::new(scenario.seed),
            agenda: BinaryHeap::new(),
            sequence: 0,
            now: 0,
            places: (0..scenario.nodes).map(place).collect(),
            control: Control::new(options, rules.told(), scenario.nodes),
            control_wakes_at: Nanos::MAX,
            cuts: Cuts::default(),
            revisions: vec![rules],
            numbers: keys.iter().copied().zip(0..).collect(),
            names,
            keys,
            states: BTreeMap::new(),
            reported: BTreeMap::new(),
            ledger: Ledger::default(),
            scenario,
        };
        fleet.begin();
        fleet
    }

    fn begin(&mut self) {
        for node in 0..self.scenario.nodes {
            self.push(u64::from(node) * 1_000, Step::Start(node));
        }
        for (at, fault) in self.scenario.faults.clone() {
            self.push(at, Step::Fault(fault));
        }
        for index in 0..self.scenario.loads.len() {
            let load = &self.scenario.loads[index];
            let (from, requests, shape) = (load.from.max(BEGINS), load.requests(), load.shape);
            let first = match shape {
                Shape::Random => self.chance.gap(requests),
                Shape::Even => self.chance.between(0, gap(requests)),
                Shape::Bursts(_) => 0,
            };
            self.push(from + first, Step::Arrive(index));
        }
    }

    /// Plays until then.
    pub fn until(&mut self, at: Nanos) {
        while self.agenda.peek().is_some_and(|due| due.at <= at) {
            let Some(Due { at, step, .. }) = self.agenda.pop() else { break };
            self.now = at;
            self.ledger.steps += 1;
            self.step(step);
        }
        self.now = self.now.max(at);
    }

    /// When it is.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Who owns a key by the newest ring of those that say they do.
    #[must_use]
    pub fn owner(&self, key: u32) -> Option<u32> {
        let owners = (0..).zip(&self.places).filter_map(|(node, place)| {
            let process = &place.process.as_ref()?.node;
            process.owns(self.keys[key as usize]).then(|| (process.ring_epoch(), node))
        });
        owners.max().map(|(_, node)| node)
    }

    /// What happened until now.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Asks for units of a key on a node; returns whether they passed.
    pub fn ask(&mut self, node: u32, key: u32, cost: u64) -> bool {
        self.come(node, key, cost, false).0
    }

    /// Something goes wrong from now on.
    pub fn fault(&mut self, fault: Fault) {
        let fault = match fault {
            Fault::Owner { key, back_after } => match self.owner(key) {
                Some(node) => Fault::Crash { node, back_after },
                None => return,
            },
            known => known,
        };
        self.ledger.faults.push((self.now, fault));
        self.strike(fault);
    }

    /// Another load from now on.
    pub fn load(&mut self, load: Load) {
        self.scenario.loads.push(load);
        self.push(self.now, Step::Arrive(self.scenario.loads.len() - 1));
    }

    /// Ends the run.
    #[must_use]
    pub fn end(mut self) -> Ledger {
        for node in 0..self.scenario.nodes {
            self.end_process(node);
        }
        self.ledger
    }

    fn push(&mut self, at: Nanos, step: Step) {
        self.sequence += 1;
        self.agenda.push(Due { at: at.max(self.now), number: self.sequence, step });
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Arrive(load) => self.arrive(load),
            Step::Again { load, cost, until } => self.come_again(load, cost, until),
            Step::Deliver { to, from, message } => self.deliver(to, from, *message),
            Step::Look { node, life } => self.look(node, life),
            Step::Heartbeat { node, life } => self.heartbeat(node, life),
            Step::Ask { node, ask } => {
                self.control.handle(NodeId::new(node + 1), ask, self.now);
                self.hear_control();
            }
            Step::Tell { node, life, tell } => self.told(node, life, *tell),
            Step::Control => {
                self.control_wakes_at = Nanos::MAX;
                if self.control.wakes_at <= self.now {
                    self.control.wakes_at = Nanos::MAX;
                    self.control.wake(self.now);
                }
                self.hear_control();
            }
            Step::Fault(fault) => self.fault(fault),
            Step::Start(node) => self.start(node),
        }
    }

    fn is_alive(&self, node: u32, life: u32) -> bool {
        self.places[node as usize].process.as_ref().is_some_and(|process| process.life == life)
    }

    // What is asked.

    fn arrive(&mut self, index: usize) {
        let load = self.scenario.loads[index].clone();
        if self.now >= load.until {
            return;
        }
        let times = match load.shape {
            Shape::Bursts(times) => times,
            Shape::Random | Shape::Even => 1,
        };
        let next = match load.shape {
            Shape::Random => self.chance.gap(load.requests()),
            Shape::Even | Shape::Bursts(_) => gap(load.requests()) * u64::from(times),
        };
        for _ in 0..times {
            let cost = self.chance.between(load.cost.0, load.cost.1);
            let until = self.now + load.patience;
            let (passed, again) = self.come(load.node, load.key, cost, false);
            self.wait(passed, again, index, cost, until);
        }
        self.push(self.now + next.max(1), Step::Arrive(index));
    }

    fn come_again(&mut self, index: usize, cost: u64, until: Nanos) {
        let Load { node, key, .. } = self.scenario.loads[index];
        let (passed, again) = self.come(node, key, cost, true);
        self.wait(passed, again, index, cost, until);
    }

    /// A request that was denied is made again when it was told to, and a little later.
    fn wait(&mut self, passed: bool, again: Option<Nanos>, load: usize, cost: u64, until: Nanos) {
        if let Some(at) = again.filter(|_| !passed)
            && self.now < until
        {
            let at = at.max(self.now + MS) + self.chance.between(0, MS);
            if at < until {
                self.push(at, Step::Again { load, cost, until });
            }
        }
    }

    fn come(&mut self, node: u32, key: u32, cost: u64, again: bool) -> (bool, Option<Nanos>) {
        let (at, id) = (self.now, self.keys[key as usize]);
        let Some(process) = &mut self.places[node as usize].process else { return (false, None) };
        if !process.serves() {
            return (false, None);
        }
        let is_new = !process.has_cell(id);
        let (passed, retry) = process.ask(&self.names[key as usize], cost, at);
        let has_come = is_new && process.has_cell(id);
        self.ledger.asks.push(Ask { at, key, node, cost, passed, again });
        if has_come {
            self.note_cell(node, key);
        }
        self.settle(node);
        (passed, retry)
    }

    // What processes do.

    fn start(&mut self, node: u32) {
        if let Some(process) = &self.places[node as usize].process {
            if process.is_leaving {
                self.push(self.now + 50 * MS, Step::Start(node));
            }
            return;
        }
        let drift = i64::from(self.scenario.drift_ppm);
        let drift_ppm = self.chance.between(0, 2 * drift as u64) as i64 - drift;
        let offset = self.chance.between(1, 1 << 40);
        let place = &mut self.places[node as usize];
        place.lives += 1;
        let life = place.lives;
        let clock = DriftingClock { offset, drift_ppm };
        place.process = Some(Process::new(&self.scenario, NodeId::new(node + 1), life, clock));
        self.ask_control(node, control::Ask::Join);
        self.push(self.now + 1, Step::Heartbeat { node, life });
    }

    fn look(&mut self, node: u32, life: u32) {
        if !self.is_alive(node, life) {
            return;
        }
        let now = self.now;
        let Some(process) = &mut self.places[node as usize].process else { return };
        if process.woken_at > now {
            return;
        }
        process.woken_at = Nanos::MAX;
        process.look(now);
        self.settle(node);
    }

    fn end_process(&mut self, node: u32) {
        let Some(process) = self.places[node as usize].process.take() else { return };
        let counts = process.node.counts();
        self.ledger.counts.push((node, counts.division));
        self.ledger.insane += counts.insane;
        self.ledger.ended.push((self.now, node));
        for key in 0..self.names.len() as u32 {
            if self.states.contains_key(&(node, key)) {
                self.note(node, key, |state| (state.by, state.global) = (By::Nothing, None));
            }
        }
    }

    fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::Crash { node, back_after } => {
                let Some(process) = &self.places[node as usize].process else { return };
                let (start, connection) = (process.start, process.connection);
                self.end_process(node);
                self.ask_control(node, control::Ask::Closed { start, connection });
                self.start_again(node, back_after);
            }
            Fault::Stop { node, back_after } => {
                let Some(process) = &mut self.places[node as usize].process else { return };
                process.is_leaving = true;
                let start = process.start;
                self.ask_control(node, control::Ask::Leave { start });
                self.start_again(node, back_after);
            }
            Fault::Cut { from, to, lasts } => self.cuts.cut(from, to, self.now + lasts),
            Fault::Silence { node, lasts } => self.cuts.silence(node, self.now + lasts),
            Fault::Change(units) => self.revise(|rules| rules.units = units),
            Fault::Mode(mode) => self.revise(|rules| rules.mode = mode),
            // It was looked for before.
            Fault::Owner { .. } => {}
        }
    }

    fn start_again(&mut self, node: u32, back_after: Option<Nanos>) {
        if let Some(after) = back_after {
            self.push(self.now + after, Step::Start(node));
        }
    }

    fn revise(&mut self, change: impl FnOnce(&mut Rules)) {
        let mut rules = *self.revisions.last().expect("there is a first one");
        rules.revision += 1;
        change(&mut rules);
        self.revisions.push(rules);
        self.control.put_rules(rules.told());
        self.hear_control();
    }

    // What is noted.

    fn number(&self, key: KeyId) -> u32 {
        self.numbers.get(&key).copied().expect("a key that was asked for")
    }

    /// A key has a cell by an equal part, as the limiter knows it.
    fn note_cell(&mut self, node: u32, key: u32) {
        let Some(process) = &self.places[node as usize].process else { return };
        let known = |rules: &&Rules| rules.revision == process.revision;
        let Some(rules) = self.revisions.iter().find(known) else { return };
        let members = process.limiter.shares().map_or(1, |shares| shares.members());
        let local = equal_part(rules.units.rate(), rules.units.burst, members);
        let state =
            State { at: self.now, key, node, by: By::Equal, local, global: None, fresh: local.1 };
        self.states.insert((node, key), state);
        self.ledger.states.push(state);
    }

    fn note_given(&mut self, node: u32, key: KeyId, given: &Given) {
        let number = self.number(key);
        let mode = self.places[node as usize].process.as_ref().map(|process| process.mode);
        let is_global = mode.is_some_and(|mode| mode.is_global()) && given.is_global_sound;
        self.note(node, number, |state| {
            state.fresh = match (state.global, given.global) {
                (None, Some((_, burst))) => burst,
                _ => 0,
            };
            (state.local, state.global) = ((given.local, given.local_burst), given.global);
            state.by = if is_global && given.global.is_some() { By::Owner } else { By::Equal };
        });
    }

    /// Notes what has changed of what a node has, if it has anything.
    fn note(&mut self, node: u32, key: u32, change: impl FnOnce(&mut State)) {
        let Some(state) = self.states.get_mut(&(node, key)) else { return };
        if state.by == By::Nothing {
            return;
        }
        let before = *state;
        (state.at, state.fresh) = (self.now, 0);
        change(state);
        if *state != (State { at: self.now, fresh: 0, ..before }) {
            self.ledger.states.push(*state);
        }
    }
}

/// When the first is asked: all have joined by then.
const BEGINS: Nanos = 10 * MS;

fn gap(requests: f64) -> Nanos {
    (1e9 / requests).max(1.0) as Nanos
}
