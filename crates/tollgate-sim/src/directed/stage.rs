//! A stage on which a script moves real nodes and cells by hand: when time goes on, who asks for
//! what, what becomes of each message, who dies, and who is told what.
//!
//! Times of a script are milliseconds since its fleet has rested, so that all meters are empty. It
//! knows no coordinator: rings, leases and limits are told as the script says. What was really
//! admitted is judged like any run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tollgate::coordinator::RingChange;
use tollgate::{
    Event, FleetLimitId, FleetOverride, FleetRules, Input, Instant, KeyId, Member, Message, NodeId,
    NodeOptions, Rate, Ring, RingEpoch, ViewLimit,
};

use crate::chance::Chance;
use crate::check::{Violation, bound};
use crate::ledger::{Admission, Change, Ledger};
use crate::machine::{Answer, Asked, DriftingClock, Machine};
use crate::scenario::{MS, Nanos, SECOND};

/// The owner of the keys, at first.
pub(super) const O: u32 = 1;
/// Another owner, later.
pub(super) const X: u32 = 2;
/// The workers.
pub(super) const A: u32 = 11;
pub(super) const B: u32 = 12;
pub(super) const C: u32 = 13;
pub(super) const D: u32 = 14;

/// What a schedule may set; the rest is R = 1,000/s, B = b = 50, TTL 20 ms, hops of 0.5 ms.
#[derive(Clone, Copy)]
pub(super) struct Setting {
    pub(super) per_second: u64,
    pub(super) burst: u64,
    pub(super) ttl_max_ms: u64,
    /// The bound on each clock's rate error that the fleet goes by.
    pub(super) drift_ppm: u32,
    pub(super) bootstrap: u64,
    pub(super) keys_max: usize,
    /// Whether two owners at once are part of the promise, and measured.
    pub(super) serves_alone: bool,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            per_second: 1_000,
            burst: 50,
            ttl_max_ms: 20,
            drift_ppm: 0,
            bootstrap: 0,
            keys_max: 2_000,
            serves_alone: false,
        }
    }
}

/// What becomes of messages on their way from one node to another.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// They take half a millisecond.
    Usual,
    /// They take so long (ms).
    Takes(f64),
    /// They arrive, and then once more so much later (ms).
    Twice(f64),
    /// They are lost.
    Lost,
    /// So many more arrive, and then none.
    Only(u32),
}

/// A fleet, and what its script did so far.
pub(super) struct Stage {
    pub(super) setting: Setting,
    pub(super) now: Nanos,
    pub(super) actors: BTreeMap<u32, Actor>,
    /// The last is in force.
    pub(super) changes: Vec<(Nanos, RingChange)>,
    pub(super) rules: FleetRules,
    pub(super) starts: u64,
    pub(super) ways: BTreeMap<(u32, u32), Way>,
    pub(super) post: BTreeMap<(Nanos, u64), Letter>,
    pub(super) letters: u64,
    pub(super) ledger: Ledger,
    pub(super) broken: Vec<Violation>,
}

/// A node, and its process if it runs.
pub(super) struct Actor {
    pub(super) machine: Option<Machine>,
    pub(super) drift_ppm: i64,
    pub(super) start: u64,
    /// How many of the changes it was told.
    pub(super) told: usize,
    pub(super) paused: Option<Instant>,
    pub(super) waiters: Vec<(Nanos, KeyId, u64)>,
}

pub(super) struct Letter {
    pub(super) from: NodeId,
    pub(super) to: u32,
    pub(super) message: Message,
}

impl Stage {
    /// A fleet with one owner and four workers that have rested.
    pub(super) fn new(setting: Setting) -> Self {
        Self::with_clocks(setting, &[])
    }

    /// As [`new`](Self::new), and some clocks are wrong by so much (parts per million).
    pub(super) fn with_clocks(setting: Setting, drifts: &[(u32, i64)]) -> Self {
        let drift_of = |node| drifts.iter().find(|(n, _)| *n == node).map_or(0, |(_, ppm)| *ppm);
        let actor = |node| {
            let drift_ppm = drift_of(node);
            let (machine, waiters) = (None, Vec::new());
            (node, Actor { machine, drift_ppm, start: 0, told: 0, paused: None, waiters })
        };
        let ring = Arc::new(ring(1, &[O]));
        let first = RingChange { ring: ring.clone(), previous: ring, lost: Box::default() };
        let mut stage = Self {
            setting,
            now: 0,
            actors: [O, X, A, B, C, D].into_iter().map(actor).collect(),
            changes: vec![(0, first)],
            rules: FleetRules::default(),
            starts: 0,
            ways: BTreeMap::new(),
            post: BTreeMap::new(),
            letters: 0,
            ledger: Ledger { contacts: vec![0], ..Ledger::default() },
            broken: Vec::new(),
        };
        stage.change_limit(setting.per_second, setting.burst);
        [O, X, A, B, C, D].into_iter().for_each(|node| stage.start(node));
        stage.until(0.0);
        stage
    }

    // Time and messages.

    /// Lets time go on until then, with all that happens by itself.
    pub(super) fn until(&mut self, ms: f64) {
        let end = at_ms(ms);
        assert!(end >= self.now, "time goes on");
        let mut steps = 0;
        while let Some((at, what)) = self.next().filter(|(at, _)| *at <= end) {
            self.now = at.max(self.now);
            self.happen(what);
            steps += 1;
            if steps > STEPS_MAX {
                return self.expect("the fleet does only so much at one time", false);
            }
        }
        self.now = end;
    }

    /// From now on messages of one node to another fare so; those on their way are not concerned.
    pub(super) fn way(&mut self, from: u32, to: u32, way: Way) {
        self.ways.insert((from, to), way);
    }

    /// As [`way`](Self::way), in both directions.
    pub(super) fn ways(&mut self, one: u32, other: u32, way: Way) {
        self.way(one, other, way);
        self.way(other, one, way);
    }

    // Requests.

    /// A request that does not wait. Whether it was admitted.
    pub(super) fn ask(&mut self, node: u32, cost: u64) -> bool {
        self.ask_key(node, 0, cost)
    }

    /// As [`ask`](Self::ask), of another key.
    pub(super) fn ask_key(&mut self, node: u32, key: u32, cost: u64) -> bool {
        self.ask_as_of(node, key, cost, None)
    }

    /// A request for so many that is refused, so that the owner permits them: with nobody else
    /// there they are held, unspent, half a millisecond after the answer was sent.
    pub(super) fn want(&mut self, node: u32, cost: u64) {
        let admitted = self.ask(node, cost);
        self.expect("nothing is permitted yet", !admitted);
    }

    /// Requests for one unit each until one is refused. Returns how many were admitted.
    pub(super) fn grab(&mut self, node: u32) -> u64 {
        (0..GRAB_MAX).take_while(|_| self.ask(node, 1)).count() as u64
    }

    /// So many requests for one unit each. Returns how many were admitted.
    pub(super) fn spend(&mut self, node: u32, count: u64) -> u64 {
        (0..count).filter(|_| self.ask(node, 1)).count() as u64
    }

    /// These grab what they can in every millisecond until then. Returns how much that was.
    pub(super) fn grab_until(&mut self, nodes: &[u32], ms: f64) -> u64 {
        let mut sum = 0;
        while self.now + MS <= at_ms(ms) && self.broken.len() < BROKEN_MAX {
            sum += nodes.iter().map(|node| self.grab(*node)).sum::<u64>();
            self.now_and(MS);
        }
        sum
    }

    /// A request that waits for so long (ms).
    pub(super) fn wait(&mut self, node: u32, cost: u64, patience: f64) {
        let at = self.now + (patience * 1e6) as Nanos;
        let key = key(0);
        let actor = self.actor(node);
        let Some(machine) = &mut actor.machine else { return };
        let now = machine.clock.read(at - (patience * 1e6) as Nanos);
        let asked = Asked { cost, waits: true, demand: 0 };
        match machine.ask(key, LIMIT, asked, now) {
            Answer::Admitted => self.admitted(node, 0, cost),
            Answer::Waits(id) => actor.waiters.push((at, key, id)),
            Answer::Refused { .. } => {}
        }
        self.drain(node);
    }

    /// Gives back so many units, those that the node spent first.
    pub(super) fn refund(&mut self, node: u32, units: u64) {
        let mut left = units;
        while left > 0 {
            let is_spent = |a: &&mut Admission| a.node == node && a.net() > 0;
            let Some(admission) = self.ledger.admissions.iter_mut().find(is_spent) else { break };
            let back = left.min(admission.net());
            admission.refunded += back;
            left -= back;
            let (charged, at) = (admission.at, self.now);
            let Some(machine) = &mut self.actor(node).machine else { break };
            let (charged_at, now) = (machine.clock.read(charged), machine.clock.read(at));
            machine.credits.refund(key(0), back, charged_at, now);
        }
        self.drain(node);
    }

    // Processes.

    /// A process starts, and is told the ring and the limits.
    pub(super) fn start(&mut self, node: u32) {
        self.starts += 1;
        let (start, keys_max) = (self.starts, self.setting.keys_max);
        let times = self.times();
        let (at, rules) = (self.now, self.rules.clone());
        let (ring, told) = (self.changes.last().cloned(), self.changes.len());
        let actor = self.actor(node);
        let options = NodeOptions { times, keys_max, ..NodeOptions::default() };
        // Clocks began anywhere, the first owner's before the second's; a process that starts again
        // goes on with its machine's.
        let offset = u64::from(100 - node) * 7_777_777_777;
        let clock = DriftingClock { offset, drift_ppm: actor.drift_ppm };
        actor.machine = Some(Machine::new(NodeId::new(node), options, clock));
        let was_told = std::mem::replace(&mut actor.told, told);
        (actor.start, actor.paused) = (start, None);
        actor.waiters.clear();
        self.tell(node, Input::Rules(rules));
        let Some((decided, change)) = ring else { return };
        let is_member = change.ring.contains(NodeId::new(node));
        let is_restart = is_member && was_told == told;
        let age = Duration::from_nanos(at - decided);
        self.tell(node, Input::Ring { change, age, start, is_restart });
    }

    /// A process dies.
    pub(super) fn crash(&mut self, node: u32) {
        self.actor(node).machine = None;
    }

    /// A process dies, and the next one starts.
    pub(super) fn restart(&mut self, node: u32) {
        self.crash(node);
        self.start(node);
    }

    /// A process stands still, with a request that has just read the clock.
    pub(super) fn pause(&mut self, node: u32) {
        let at = self.now;
        let actor = self.actor(node);
        actor.paused = actor.machine.as_ref().map(|machine| machine.clock.read(at));
    }

    /// It goes on, and the request spends.
    pub(super) fn resume(&mut self, node: u32, cost: u64) {
        let as_of = self.actor(node).paused.take();
        self.ask_as_of(node, 0, cost, as_of);
        self.tell(node, Input::Timeout);
    }

    // What nodes are told.

    /// The ring changes to these members; those lost are dead as far as the fleet knows. Nobody is
    /// told yet.
    pub(super) fn change_ring(&mut self, members: &[u32], lost: &[u32]) {
        let previous = self.changes.last().expect("there is a first").1.ring.clone();
        let ring = Arc::new(ring(previous.epoch().next().get(), members));
        let lost = lost.iter().map(|node| NodeId::new(*node)).collect();
        self.changes.push((self.now, RingChange { ring, previous, lost }));
    }

    /// A node is told all changes of the ring that it was not told yet.
    pub(super) fn tell_ring(&mut self, node: u32) {
        let known = self.actor(node).told;
        self.tell_changes(node, known);
    }

    /// A node is told the last change of the ring alone.
    pub(super) fn tell_last_ring(&mut self, node: u32) {
        let known = self.changes.len() - 1;
        self.tell_changes(node, known);
    }

    /// All are told.
    pub(super) fn tell_ring_all(&mut self) {
        [O, X, A, B, C, D].into_iter().for_each(|node| self.tell_ring(node));
    }

    /// The limit changes. Nobody is told yet.
    pub(super) fn change_limit(&mut self, per_second: u64, burst: u64) {
        let revision = self.rules.revision + 1;
        let limits = [(LIMIT, self.view(per_second, burst))].into();
        self.rules = FleetRules { revision, limits, ..FleetRules::default() };
        self.changed(per_second, burst);
    }

    /// The first key gets an allowance of its own, which no other key of a script has. Nobody is
    /// told yet.
    pub(super) fn change_override(&mut self, per_second: u64, burst: u64) {
        let view = self.view(per_second, burst);
        self.rules.revision += 1;
        let generation = self.rules.revision;
        self.rules.limits.values_mut().for_each(|limit| limit.generation = generation);
        let limit = LIMIT;
        self.rules.overrides = [(key(0), FleetOverride { limit, view })].into();
        self.changed(per_second, burst);
    }

    /// A limit of the next revision.
    fn view(&self, per_second: u64, burst: u64) -> ViewLimit {
        let interval = self.times().sync_interval;
        let view = ViewLimit::new(rate(per_second), burst, self.rules.revision + 1, interval);
        ViewLimit { local_cap: burst, bootstrap: self.setting.bootstrap, ..view }
    }

    fn changed(&mut self, per_second: u64, burst: u64) {
        let (at, rate) = (self.now, rate(per_second));
        self.ledger.changes.push(Change { at, limit: 0, rate, burst, is_removal: false });
    }

    /// A node is told the limit in force.
    pub(super) fn tell_limit(&mut self, node: u32) {
        let rules = self.rules.clone();
        self.tell(node, Input::Rules(rules));
    }

    /// A node may let permissions live until then.
    pub(super) fn lease(&mut self, node: u32, until_ms: f64) {
        let Some(machine) = &self.actor(node).machine else { return };
        let until = machine.clock.read(at_ms(until_ms));
        self.tell(node, Input::Lease(until));
    }

    // Judgement.

    /// So many cells have had their allowance on first contact.
    pub(super) fn contacts(&mut self, count: u64) {
        self.ledger.contacts = vec![count];
    }

    /// Something must be so at this point.
    pub(super) fn expect(&mut self, what: &str, is_so: bool) {
        if !is_so {
            let at = (self.now - RESTED) as f64 / 1e6;
            let what = format!("at {at} ms it is not so that {what}");
            self.broken.push(Violation { checker: "script", what });
        }
    }

    /// An event of this kind must have been told.
    pub(super) fn expect_event(&mut self, what: &str, is_it: impl Fn(&Event) -> bool) {
        let told = self.ledger.events.iter().any(|(_, _, event)| is_it(event));
        self.expect(what, told);
    }

    /// Whether a node is in charge of the first key, as far as it knows.
    pub(super) fn is_in_charge(&self, node: u32) -> bool {
        self.actors[&node].machine.as_ref().is_some_and(|machine| machine.node.owns(key(0)))
    }

    /// Whether a node has state of the first key as its owner.
    pub(super) fn is_known(&self, node: u32) -> bool {
        self.actors[&node].machine.as_ref().is_some_and(|m| m.node.owned(key(0)).is_some())
    }

    /// The worst excess of any window of the first key so far, envelope or not.
    pub(super) fn excess(&self) -> f64 {
        let worst = bound::worst_windows(&self.scenario(), &self.ledger);
        worst.iter().map(|worst| worst.excess).fold(f64::MIN, f64::max)
    }

    /// What is wrong with all that happened. Unless two owners or a pause may have led to more than
    /// was promised, no node may say that it saw any of it.
    pub(super) fn judge(mut self) -> Vec<Violation> {
        let seen = self.seen();
        let is_excused = bound::envelope(&self.scenario(), &self.ledger, 0) > 0.0;
        self.expect("no node saw an excess", is_excused || seen == (0, 0));
        let mut violations = bound::check(&self.scenario(), &self.ledger);
        violations.extend(self.broken);
        violations
    }
}

/// Another member beside X, without a process, who does not get the first key.
pub(super) fn stranger() -> u32 {
    let is_none_of_its = |other: &u32| ring(1, &[X, *other]).owner(key(0)) == Some(NodeId::new(X));
    (90..).find(is_none_of_its).expect("about every second one")
}

pub(super) fn key(number: u32) -> KeyId {
    let mut chance = Chance::new(u64::from(number));
    KeyId::from_bits(chance.bits(), chance.bits() as u32)
}

fn ring(epoch: u64, members: &[u32]) -> Ring {
    let member = |node: &u32| Member { node: NodeId::new(*node), weight: 1 };
    Ring::new(RingEpoch::new(epoch), members.iter().map(member)).expect("few members")
}

pub(super) fn rate(per_second: u64) -> Rate {
    Rate::new(per_second, SECOND).expect("a rate")
}

fn at_ms(ms: f64) -> Nanos {
    RESTED + (ms * 1e6) as Nanos
}

pub(super) const LIMIT: FleetLimitId = FleetLimitId(0);
pub(super) const HOP: Nanos = 500_000;
/// When a script begins.
pub(super) const RESTED: Nanos = 10 * SECOND;
/// What happens by itself between two lines of a script.
const STEPS_MAX: u64 = 100_000;
/// Beyond so many findings a script only goes on for a while.
const BROKEN_MAX: usize = 3;
/// Requests at one instant.
const GRAB_MAX: usize = 10_000;
