//! A run: a fleet in virtual time, one event after another, all of it from one seed.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

use tollgate::coordinator::{Lease, OnCoordinatorLoss, SessionOptions};
use tollgate::{
    FleetLimitId, FleetRules, Input, Instant, KeyId, Message, NodeId, NodeOptions, ViewLimit,
};

use crate::chance::Chance;
use crate::control::{Ask, Control, Tell};
use crate::ledger::{Admission, Change, Ledger};
use crate::machine::{Answer, Asked, DriftingClock, Effect, Machine};
use crate::network::Cuts;
use crate::scenario::{Demand, Fault, MS, Nanos, Scenario, Shape};

/// Runs a scenario to its end.
#[must_use]
pub fn run(scenario: &Scenario) -> Ledger {
    let mut cluster = Cluster::new(scenario);
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
}

/// Where a node's processes run, one after another.
struct Place {
    id: NodeId,
    process: Option<Process>,
    /// How many processes there were.
    lives: u32,
    /// When the last message from the coordinator arrives, so that they stay in order.
    told_until: Nanos,
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
            ledger.changes.push(Change { at: 0, limit, rate: of.rate, burst: of.burst });
        }
        let place =
            |node| Place { id: NodeId::new(node + 1), process: None, lives: 0, told_until: 0 };
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
                // It may have been put off since this was planned.
                self.hear_control();
            }
            Step::Fault(index) => self.fault(self.scenario.faults[index].1),
            Step::Start { node } => self.start(node),
            Step::Reconnect { node, life } => self.reconnect(node, life),
            Step::Resume { node, life, began } => self.resume(node, life, began),
        }
    }

    // What clients do.

    fn arrive(&mut self, index: usize, node: u32) {
        let demand = &self.scenario.demands[index];
        let (count, gap) = match demand.shape {
            Shape::Random => (1, self.chance.gap(demand.per_second)),
            Shape::Even => (1, even_gap(demand)),
            Shape::Bursts(count) => (count, even_gap(demand).saturating_mul(u64::from(count))),
        };
        let next = self.now + gap.max(1);
        if next < demand.until.min(self.scenario.lasts) {
            self.at(next, Step::Arrive { demand: index, node });
        }
        if self.now >= demand.until {
            return;
        }
        for _ in 0..count {
            self.ask(index, node, None);
        }
    }

    /// A request; `as_of` is when it read its clock, if it stood still since.
    fn ask(&mut self, index: usize, node: u32, as_of: Option<Instant>) {
        let demand = &self.scenario.demands[index];
        let cost = self.chance.between(demand.cost.0, demand.cost.1);
        let (limit, key) = (demand.limit, demand.key);
        let at = self.now;
        let Some(process) = &mut self.places[node as usize].process else { return };
        if process.paused_until > at || process.start == 0 {
            return;
        }
        let offered = self.ledger.offered.entry((limit, key, node)).or_default();
        offered.units += cost;
        let id = FleetLimitId(limit as u32);
        if process.machine.node.limit(id).is_none() {
            offered.refused += cost;
            return;
        }
        let asked = Asked { cost, waits: demand.waits > 0, demand: index };
        let now = as_of.unwrap_or_else(|| process.machine.clock.read(at));
        let key_id = key_of(limit, key);
        match process.machine.ask(key_id, id, asked, now) {
            Answer::Admitted => {
                self.admitted(index, node, cost);
                self.drain_soon(node);
            }
            Answer::Waits(waiter) => {
                let (life, until) = (process.life, at + demand.waits);
                self.at(until, Step::GiveUp { node, life, key: key_id, waiter });
                self.drain(node);
            }
            Answer::Refused { stale } => {
                offered.refused += cost;
                offered.stale += if stale { cost } else { 0 };
                self.drain(node);
            }
        }
    }

    fn admitted(&mut self, index: usize, node: u32, cost: u64) {
        let demand = &self.scenario.demands[index];
        let (limit, key, at) = (demand.limit, demand.key, self.now);
        self.ledger.admissions.push(Admission { at, limit, key, node, cost, refunded: 0 });
        let admission = self.ledger.admissions.len() - 1;
        if demand.refunds > 0.0 && self.chance.happens(demand.refunds) {
            let Some(process) = &self.places[node as usize].process else { return };
            let life = process.life;
            let after = self.chance.between(0, demand.refund_after);
            let units = self.chance.between(1, cost);
            let key = key_of(limit, key);
            self.at(at + after, Step::Refund { node, life, key, units, admission });
        }
    }

    fn give_up(&mut self, node: u32, life: u32, key: KeyId, waiter: u64) {
        if !self.is_alive(node, life) {
            return;
        }
        let Some(process) = &mut self.places[node as usize].process else { return };
        if let Some(waiter) = process.machine.give_up(key, waiter) {
            let demand = &self.scenario.demands[waiter.demand];
            let place = (demand.limit, demand.key, node);
            self.ledger.offered.entry(place).or_default().refused += waiter.cost;
            if self.paused(node).is_none() {
                self.drain(node);
            }
        }
    }

    fn refund(&mut self, node: u32, life: u32, key: KeyId, units: u64, admission: usize) {
        if !self.is_alive(node, life) || self.paused(node).is_some() {
            return;
        }
        let at = self.now;
        let charged = self.ledger.admissions[admission].at;
        let Some(process) = &mut self.places[node as usize].process else { return };
        let machine = &mut process.machine;
        let (charged_at, now) = (machine.clock.read(charged), machine.clock.read(at));
        machine.credits.refund(key, units, charged_at, now);
        self.ledger.admissions[admission].refunded += units;
        self.drain_soon(node);
    }

    // What processes do.

    fn start(&mut self, node: u32) {
        let scenario = self.scenario;
        let place = &mut self.places[node as usize];
        if place.process.is_some() {
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
                Effect::Admitted { waiter } => {
                    self.admitted(waiter.demand, node, waiter.cost);
                    self.drain_soon(node);
                }
            }
        }
        let Some(process) = &mut self.places[node as usize].process else { return };
        if process.is_leaving && process.machine.node.is_handed_over() {
            self.places[node as usize].process = None;
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
        if from != to {
            self.ledger.messages += 1;
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

    // What passes between processes and the coordinator.

    fn ask_control(&mut self, node: u32, ask: Ask) {
        if !self.cuts.is_silent(node, self.now) {
            let delay = self.chance.between(200_000, MS);
            self.at(self.now + delay, Step::Ask { node, ask });
        }
    }

    fn heartbeat(&mut self, node: u32, life: u32) {
        if !self.is_alive(node, life) {
            return;
        }
        if let Some(until) = self.paused(node) {
            return self.at(until, Step::Heartbeat { node, life });
        }
        self.at(self.now + 100 * MS, Step::Heartbeat { node, life });
        let Some(process) = &mut self.places[node as usize].process else { return };
        if process.start == 0 {
            return self.ask_control(node, Ask::Join);
        }
        let now = process.machine.clock.read(self.now);
        if !process.is_connected || now < process.lease.heartbeat_at() {
            return;
        }
        process.lease.sent(now);
        let ask = Ask::Heartbeat {
            start: process.start,
            connection: process.connection,
            sent_at: now,
            ring_epoch: process.machine.node.ring_epoch().get(),
            revision: process.revision,
        };
        self.ask_control(node, ask);
    }

    fn hear_control(&mut self) {
        for (to, tell) in std::mem::take(&mut self.control.out) {
            let node = to.get() - 1;
            if self.cuts.is_silent(node, self.now) {
                continue;
            }
            let delay = self.chance.between(200_000, MS);
            let place = &mut self.places[node as usize];
            let Some(process) = &place.process else { continue };
            let life = process.life;
            place.told_until = place.told_until.max(self.now + delay);
            let at = place.told_until;
            self.at(at, Step::Tell { node, life, tell: Box::new(tell) });
        }
        if self.control.wakes_at < self.control_wakes_at {
            self.control_wakes_at = self.control.wakes_at;
            self.at(self.control.wakes_at, Step::Control);
        }
    }

    fn told(&mut self, node: u32, life: u32, tell: Tell) {
        if !self.is_alive(node, life) {
            return;
        }
        if let Some(until) = self.paused(node) {
            return self.at(until, Step::Tell { node, life, tell: Box::new(tell) });
        }
        let id = self.places[node as usize].id;
        let Some(process) = &mut self.places[node as usize].process else { return };
        match tell {
            Tell::Welcome { start, change, decided, is_restart } => {
                if start <= process.start {
                    return;
                }
                process.start = start;
                process.connection += 1;
                let age = std::time::Duration::from_nanos(self.now - decided);
                self.tell(node, Input::Ring { change, age, start, is_restart });
            }
            Tell::Heard { sent_at } => {
                process.lease.acknowledged(sent_at);
                let until = process.lease.grants_until();
                self.tell(node, Input::Lease(until));
            }
            Tell::Ring { change, decided } => {
                let start = process.start;
                let is_out = !change.ring.contains(id) && !process.is_leaving;
                let age = std::time::Duration::from_nanos(self.now - decided);
                let is_restart = false;
                if start != 0 {
                    self.tell(node, Input::Ring { change, age, start, is_restart });
                }
                if is_out {
                    self.ask_control(node, Ask::Join);
                }
            }
            Tell::Rules(rules) => {
                process.revision = rules.revision;
                self.tell(node, Input::Rules(rules));
            }
        }
    }

    fn reconnect(&mut self, node: u32, life: u32) {
        if !self.is_alive(node, life) {
            return;
        }
        let Some(process) = &mut self.places[node as usize].process else { return };
        process.is_connected = true;
        process.connection += 1;
        process.lease.reconnected(process.machine.clock.read(self.now));
        self.at(self.now, Step::Heartbeat { node, life });
    }

    // What goes wrong.

    fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::Crash { node, back_after } => {
                let Some(process) = self.places[node as usize].process.take() else { return };
                let (start, connection) = (process.start, process.connection);
                self.ask_control(node, Ask::Closed { start, connection });
                self.start_again(node, back_after);
            }
            Fault::Stop { node, back_after } => {
                let Some(process) = &mut self.places[node as usize].process else { return };
                process.is_leaving = true;
                let start = process.start;
                self.ask_control(node, Ask::Leave { start });
                self.start_again(node, back_after);
            }
            Fault::Pause { node, lasts } => {
                let until = self.now + lasts;
                let Some(process) = &mut self.places[node as usize].process else { return };
                process.paused_until = process.paused_until.max(until);
                let (life, began) = (process.life, process.machine.clock.read(self.now));
                self.at(until, Step::Resume { node, life, began });
            }
            Fault::Cut { from, to, lasts } => self.cuts.cut(from, to, self.now + lasts),
            Fault::Silence { node, lasts } => self.cuts.silence(node, self.now + lasts),
            Fault::Reset { node, back_after } => {
                let at = self.now;
                let Some(process) = &mut self.places[node as usize].process else { return };
                if !process.is_connected || process.start == 0 {
                    return;
                }
                process.is_connected = false;
                process.lease.closed(process.machine.clock.read(at));
                let (start, connection, life) = (process.start, process.connection, process.life);
                let until = process.lease.grants_until();
                self.ask_control(node, Ask::Closed { start, connection });
                self.tell(node, Input::Lease(until));
                self.at(at + back_after, Step::Reconnect { node, life });
            }
            Fault::Change { limit, rate, burst } => {
                let mut rules = self.control.rules.clone();
                rules.revision += 1;
                let id = FleetLimitId(limit as u32);
                let cap = self.scenario.limits[limit].local_cap;
                let bootstrap = self.scenario.limits[limit].bootstrap;
                let view = ViewLimit::new(rate, burst, rules.revision, self.interval());
                let local_cap = cap.unwrap_or(view.local_cap);
                rules.limits.insert(id, ViewLimit { local_cap, bootstrap, ..view });
                self.ledger.changes.push(Change { at: self.now, limit, rate, burst });
                self.control.put_rules(rules);
                self.hear_control();
            }
            Fault::Failover => {
                self.control.fail_over(self.now);
                self.hear_control();
            }
        }
    }

    fn start_again(&mut self, node: u32, back_after: Option<Nanos>) {
        if let Some(after) = back_after {
            self.at(self.now + after, Step::Start { node });
        }
    }

    /// A process goes on. A request on each demand had read its clock before, and now spends.
    fn resume(&mut self, node: u32, life: u32, began: Instant) {
        if !self.is_alive(node, life) || self.paused(node).is_some() {
            return;
        }
        for index in 0..self.scenario.demands.len() {
            let demand = &self.scenario.demands[index];
            let asks = demand.nodes.is_empty() || demand.nodes.contains(&node);
            if asks && demand.waits == 0 {
                self.ask(index, node, Some(began));
            }
        }
        self.tell(node, Input::Timeout);
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
        for place in &self.places {
            if let Some(process) = &place.process {
                self.ledger.counts.push((place.id.get() - 1, process.machine.node.counts()));
            }
        }
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
        self.ledger
    }
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
    FleetRules { revision: 1, limits: scenario.limits.iter().enumerate().map(view).collect() }
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
