//! A run: a fleet in virtual time, one event after another, all of it from one seed.

mod clients;
mod talk;
mod wrong;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use tollgate::coordinator::{Lease, OnCoordinatorLoss, SessionOptions};
use tollgate::{
    FleetLimitId, FleetRules, Input, Instant, KeyId, Member, Message, NodeId, NodeOptions, Ring,
    RingEpoch, ViewLimit,
};

use crate::chance::Chance;
use crate::control::{Ask, Control, Tell};
use crate::ledger::{Change, Ledger};
use crate::machine::{DriftingClock, Effect, Machine};
use crate::network::Cuts;
use crate::scenario::{Demand, MS, Nanos, Scenario, Shape};

/// Runs a scenario to its end.
#[must_use]
pub fn run(scenario: &Scenario) -> Ledger {
    watch(scenario, 0)
}

/// The same, and what is asked and sent is sampled every so often; the longer, the less is kept.
#[must_use]
pub fn watch(scenario: &Scenario, every: Nanos) -> Ledger {
    let mut cluster = Cluster::new(scenario);
    cluster.ledger.samples.every = every;
    cluster.begin();
    cluster.go_on();
    cluster.end()
}

struct Cluster<'s> {
    scenario: &'s Scenario,
    chance: Chance,
    agenda: BinaryHeap<Due>,
    steps: u64,
    now: Nanos,
    places: Vec<Place>,
    control: Control,
    control_wakes_at: Nanos,
    cuts: Cuts,
    keys: BTreeMap<KeyId, (usize, u32)>,
    ledger: Ledger,
    effects: Vec<Effect>,
    /// Who first answered for a key in a ring epoch.
    answered: HashMap<(KeyId, u64), NodeId>,
}

/// Where a node's processes run, one after another.
struct Place {
    id: NodeId,
    process: Option<Process>,
    /// How many processes there were.
    lives: u32,
    /// When the last message from the coordinator arrives, so that they stay in order.
    told_until: Nanos,
    /// When the last message to it does.
    asked_until: Nanos,
}

struct Process {
    machine: Machine,
    life: u32,
    start: u64,
    lease: Lease,
    connection: u64,
    is_connected: bool,
    paused_until: Nanos,
    /// For which time the agenda will wake it.
    wakes_at: Nanos,
    drains_at: Nanos,
    is_leaving: bool,
    revision: u64,
}

/// What happens next to whom.
enum Step {
    Arrive { demand: usize, node: u32 },
    Deliver { to: u32, from: NodeId, message: Box<Message> },
    Wake { node: u32, life: u32 },
    Drain { node: u32, life: u32 },
    GiveUp { node: u32, life: u32, key: KeyId, waiter: u64 },
    Refund { node: u32, life: u32, key: KeyId, units: u64, admission: usize },
    Heartbeat { node: u32, life: u32 },
    Ask { node: u32, ask: Ask },
    Tell { node: u32, life: u32, tell: Box<Tell> },
    Control,
    Fault(usize),
    Start { node: u32 },
    Reconnect { node: u32, life: u32 },
    Resume { node: u32, life: u32, began: Instant },
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

impl<'s> Cluster<'s> {
    fn new(scenario: &'s Scenario) -> Self {
        let rules = rules_of(scenario);
        let mut ledger = Ledger { contacts: vec![0; scenario.limits.len()], ..Ledger::default() };
        for (limit, of) in scenario.limits.iter().enumerate() {
            let (rate, burst) = (of.rate, of.burst);
            ledger.changes.push(Change { at: 0, limit, rate, burst, is_removal: false });
        }
        let place = |node| Place {
            id: NodeId::new(node + 1),
            process: None,
            lives: 0,
            told_until: 0,
            asked_until: 0,
        };
        let mut keys = BTreeMap::new();
        for demand in &scenario.demands {
            keys.insert(key_of(demand.limit, demand.key), (demand.limit, demand.key));
        }
        Self {
            chance: Chance::new(scenario.seed),
            agenda: BinaryHeap::new(),
            steps: 0,
            now: 0,
            places: (0..scenario.nodes).map(place).collect(),
            control: Control::new(session_options(scenario), rules, scenario.nodes),
            control_wakes_at: Nanos::MAX,
            cuts: Cuts::default(),
            keys,
            ledger,
            effects: Vec::new(),
            answered: HashMap::new(),
            scenario,
        }
    }

    fn begin(&mut self) {
        for node in 0..self.scenario.nodes {
            self.at(u64::from(node) * 1_000, Step::Start { node });
        }
        for (fault, (at, _)) in self.scenario.faults.iter().enumerate() {
            self.at(*at, Step::Fault(fault));
        }
        for (index, demand) in self.scenario.demands.iter().enumerate() {
            for node in self.asking(demand) {
                let first = match demand.shape {
                    Shape::Bursts(_) => 0,
                    Shape::Even => self.chance.between(0, even_gap(demand)),
                    Shape::Random => self.chance.gap(demand.per_second),
                };
                self.at(demand.from + first, Step::Arrive { demand: index, node });
            }
        }
    }

    fn asking(&self, demand: &Demand) -> Vec<u32> {
        if demand.nodes.is_empty() {
            return (0..self.scenario.nodes).collect();
        }
        demand.nodes.clone()
    }

    fn go_on(&mut self) {
        let end = self.scenario.lasts + self.scenario.rests;
        while let Some(Due { at, step, .. }) = self.agenda.pop() {
            if at > end {
                break;
            }
            self.now = at;
            self.ledger.steps += 1;
            self.step(step);
        }
        self.now = end;
    }

    fn at(&mut self, at: Nanos, step: Step) {
        self.steps += 1;
        self.agenda.push(Due { at: at.max(self.now), number: self.steps, step });
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Arrive { demand, node } => self.arrive(demand, node),
            Step::Deliver { to, from, message } => {
                if let Some(until) = self.paused(to) {
                    return self.at(until, Step::Deliver { to, from, message });
                }
                self.tell(to, Input::Message { from, message: *message });
            }
            Step::Wake { node, life } => self.wake(node, life),
            Step::Drain { node, life } => {
                if self.is_alive(node, life) && self.paused(node).is_none() {
                    self.drain(node);
                }
            }
            Step::GiveUp { node, life, key, waiter } => self.give_up(node, life, key, waiter),
            Step::Refund { node, life, key, units, admission } => {
                self.refund(node, life, key, units, admission);
            }
            Step::Heartbeat { node, life } => self.heartbeat(node, life),
            Step::Ask { node, ask } => {
                let id = self.places[node as usize].id;
                self.control.handle(id, ask, self.now);
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
            Step::Fault(index) => self.fault(self.scenario.faults[index].1),
            Step::Start { node } => self.start(node),
            Step::Reconnect { node, life } => self.reconnect(node, life),
            Step::Resume { node, life, began } => self.resume(node, life, began),
        }
    }

    // What processes do.

    fn start(&mut self, node: u32) {
        let scenario = self.scenario;
        let place = &mut self.places[node as usize];
        if let Some(process) = &place.process {
            if process.is_leaving {
                self.at(self.now + 50 * MS, Step::Start { node });
            }
            return;
        }
        place.lives += 1;
        let drift = i64::from(scenario.drift_ppm);
        let drift_ppm = self.chance.between(0, 2 * drift as u64) as i64 - drift;
        let offset = self.chance.between(1, 1 << 40);
        let options = NodeOptions {
            times: scenario.times,
            keys_max: 10_000,
            reports_per_second_max: scenario.reports_per_second_max,
            ..NodeOptions::default()
        };
        let life = place.lives;
        let lease = Lease::new(session_options(scenario)).expect("the scenario was checked");
        place.process = Some(Process {
            machine: Machine::new(place.id, options, DriftingClock { offset, drift_ppm }),
            life,
            start: 0,
            lease,
            connection: 0,
            is_connected: true,
            paused_until: 0,
            wakes_at: Nanos::MAX,
            drains_at: 0,
            is_leaving: false,
            revision: 0,
        });
        self.ask_control(node, Ask::Join);
        self.at(self.now + 1, Step::Heartbeat { node, life });
    }

    fn wake(&mut self, node: u32, life: u32) {
        if !self.is_alive(node, life) {
            return;
        }
        if let Some(until) = self.paused(node) {
            return self.at(until, Step::Wake { node, life });
        }
        let Some(process) = &mut self.places[node as usize].process else { return };
        if process.wakes_at > self.now {
            return;
        }
        process.wakes_at = Nanos::MAX;
        if process.machine.clock.read(self.now) >= process.machine.wakes_at {
            self.tell(node, Input::Timeout);
        }
        self.settle(node);
    }

    fn tell(&mut self, node: u32, input: Input) {
        if let Some(process) = &mut self.places[node as usize].process {
            process.machine.tell(input, self.now, &mut self.effects);
            self.settle(node);
        }
    }

    fn drain(&mut self, node: u32) {
        if let Some(process) = &mut self.places[node as usize].process {
            process.drains_at = 0;
            process.machine.drain(self.now, &mut self.effects);
            self.settle(node);
        }
    }

    /// Cells are drained a little after they became dirty, all at once.
    fn drain_soon(&mut self, node: u32) {
        let at = self.now + MS;
        let Some(process) = &mut self.places[node as usize].process else { return };
        if process.drains_at <= self.now {
            process.drains_at = at;
            let life = process.life;
            self.at(at, Step::Drain { node, life });
        }
    }

    /// Sends what a process has to send, and sees to it that it is woken.
    fn settle(&mut self, node: u32) {
        let from = self.places[node as usize].id;
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Send { to, message } => self.send(from, to, message),
                Effect::Event(event) => self.ledger.events.push((self.now, node, event)),
                Effect::Contact { limit } => self.ledger.contacts[limit.0 as usize] += 1,
                Effect::Admitted { waiter } => {
                    self.admitted(waiter.demand, node, waiter.cost);
                    self.drain_soon(node);
                }
            }
        }
        let Some(process) = &mut self.places[node as usize].process else { return };
        if process.is_leaving && process.machine.node.is_handed_over() {
            self.end_process(node);
            return;
        }
        if process.machine.wakes_at == Instant::MAX {
            return;
        }
        let at = process.machine.clock.shows(process.machine.wakes_at).max(self.now);
        if at < process.wakes_at {
            process.wakes_at = at;
            let life = process.life;
            self.at(at, Step::Wake { node, life });
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: Message) {
        if let Message::Snapshots(batch) = &message {
            let ring_epoch = batch.owner_epoch.ring.get();
            for snapshot in &batch.snapshots {
                let first = *self.answered.entry((snapshot.key, ring_epoch)).or_insert(from);
                if first != from {
                    let two = (self.now, snapshot.key, first.get() - 1, from.get() - 1);
                    self.ledger.double_owners.push(two);
                }
            }
        }
        if from != to {
            self.ledger.messages += 1;
            self.ledger.samples.send(self.now);
            self.ledger.entries += match &message {
                Message::Reports(batch) => batch.reports.len() as u64,
                Message::Snapshots(batch) => batch.snapshots.len() as u64,
                Message::Refused { .. }
                | Message::Handover(_)
                | Message::HandoverArrived { .. } => 1,
            };
        }
        let (from_place, to_place) = (from.get() - 1, to.get() - 1);
        let network = self.scenario.network;
        if self.cuts.is_cut(from_place, to_place, self.now) {
            return;
        }
        // A message to itself takes no network, and no time to speak of.
        if from == to {
            let step = Step::Deliver { to: to_place, from, message: Box::new(message) };
            return self.at(self.now + 1_000, step);
        }
        if self.chance.happens(network.loss) {
            return;
        }
        let copies = 1 + u32::from(self.chance.happens(network.repeats));
        for _ in 0..copies {
            let slow = self.chance.happens(network.slow);
            let max = if slow { network.slow_max } else { network.delay_max };
            let delay = self.chance.between(network.delay_min, max.max(network.delay_min));
            let message = Box::new(message.clone());
            self.at(self.now + delay, Step::Deliver { to: to_place, from, message });
        }
    }

    fn is_alive(&self, node: u32, life: u32) -> bool {
        self.places[node as usize].process.as_ref().is_some_and(|process| process.life == life)
    }

    /// Until when a process stands still, if it does.
    fn paused(&self, node: u32) -> Option<Nanos> {
        let process = self.places[node as usize].process.as_ref()?;
        (process.paused_until > self.now).then_some(process.paused_until)
    }

    fn interval(&self) -> std::time::Duration {
        self.scenario.times.sync_interval
    }

    // What is seen at the end.

    fn end(mut self) -> Ledger {
        for (key, (limit, number)) in &self.keys {
            let owners: Vec<u32> = self
                .places
                .iter()
                .filter(|place| {
                    place.process.as_ref().is_some_and(|process| process.machine.node.owns(*key))
                })
                .map(|place| place.id.get() - 1)
                .collect();
            let any_runs = self.places.iter().any(|place| place.process.is_some());
            if owners.len() != 1 && any_runs {
                let what = format!("limit {limit} key {number} is owned by {owners:?}");
                self.ledger.unsettled.push(what);
            }
            let of = self.scenario.limits[*limit];
            for place in &self.places {
                let owned =
                    place.process.as_ref().and_then(|process| process.machine.node.owned(*key));
                let Some((_, outstanding)) = owned else { continue };
                if outstanding > 0 {
                    let what = format!(
                        "limit {limit} key {number}: {outstanding} of {} are still outstanding",
                        of.burst
                    );
                    self.ledger.unsettled.push(what);
                }
            }
        }
        for node in 0..self.scenario.nodes {
            self.end_process(node);
        }
        self.ledger
    }

    /// A process ends. Returns what it leaves.
    fn end_process(&mut self, node: u32) -> Option<Process> {
        let process = self.places[node as usize].process.take()?;
        self.ledger.counts.push((node, process.machine.node.counts()));
        Some(process)
    }
}

/// The node that owns a limit's key while all are members.
#[must_use]
pub fn owner_of(scenario: &Scenario, limit: usize, key: u32) -> u32 {
    let all: Vec<u32> = (0..scenario.nodes).collect();
    owner_among(&all, limit, key)
}

/// The node that owns a limit's key while these are the members.
#[must_use]
pub fn owner_among(nodes: &[u32], limit: usize, key: u32) -> u32 {
    let member = |node: &u32| Member { node: NodeId::new(node + 1), weight: 1 };
    let ring = Ring::new(RingEpoch::ZERO, nodes.iter().map(member)).expect("few nodes");
    ring.owner(key_of(limit, key)).map_or(0, |node| node.get() - 1)
}

/// A key of the first limit that these of so many nodes own one after another, as those before
/// leave.
#[must_use]
pub fn key_owned_in_turn(order: &[u32], nodes: u32) -> u32 {
    let is_so = |key: &u32| {
        let mut left: Vec<u32> = (0..nodes).collect();
        order.iter().all(|owner| {
            let is_owner = owner_among(&left, 0, *key) == *owner;
            left.retain(|node| node != owner);
            is_owner
        })
    };
    (0..10_000).find(is_so).expect("each node owns one key of a few")
}

/// The key of a limit, as its nodes know it.
pub(crate) fn key_of(limit: usize, key: u32) -> KeyId {
    let mut chance = Chance::new((limit as u64) << 32 | u64::from(key));
    KeyId::from_bits(chance.bits(), chance.bits() as u32)
}

fn even_gap(demand: &Demand) -> Nanos {
    (1e9 / demand.per_second).max(1.0) as Nanos
}

fn rules_of(scenario: &Scenario) -> FleetRules {
    let interval = scenario.times.sync_interval;
    let view = |(index, limit): (usize, &crate::scenario::SimLimit)| {
        let view = ViewLimit::new(limit.rate, limit.burst, 1, interval);
        let local_cap = limit.local_cap.unwrap_or(view.local_cap);
        let id = FleetLimitId(index as u32);
        (id, ViewLimit { local_cap, bootstrap: limit.bootstrap, ..view })
    };
    let limits = scenario.limits.iter().enumerate().map(view).collect();
    FleetRules { revision: 1, limits, ..FleetRules::default() }
}

fn session_options(scenario: &Scenario) -> SessionOptions {
    let on_coordinator_loss =
        if scenario.serves_alone { OnCoordinatorLoss::Serve } else { OnCoordinatorLoss::Deny };
    SessionOptions {
        ttl_max: scenario.times.ttl_max,
        drift_ppm: scenario.times.drift_ppm,
        on_coordinator_loss,
        ..SessionOptions::default()
    }
}
