//! How a stage goes on between two lines of its script: what happens by itself, one thing after
//! another, and what comes of it. It decides nothing: the script does.

use std::time::Duration;

use tollgate::{Input, Instant, Message, NodeId, ViewTimes};

use super::stage::{Actor, HOP, LIMIT, Letter, RESTED, Setting, Stage, Way, key, rate};
use crate::ledger::Admission;
use crate::machine::{Answer, Asked, Effect};
use crate::scenario::{Demand, Nanos, Network, Scenario, SimLimit};

impl Stage {
    pub(super) fn actor(&mut self, node: u32) -> &mut Actor {
        self.actors.get_mut(&node).expect("a node of the stage")
    }

    pub(super) fn now_and(&mut self, nanos: Nanos) {
        let ms = (self.now + nanos - RESTED) as f64 / 1e6;
        self.until(ms);
    }

    /// What happens next, and when.
    pub(super) fn next(&self) -> Option<(Nanos, Happening)> {
        let running = self.actors.iter().filter(|(_, actor)| actor.paused.is_none());
        let of_actor = |(node, actor): (&u32, &Actor)| {
            let machine = actor.machine.as_ref()?;
            let wakes = (machine.wakes_at != Instant::MAX)
                .then(|| (machine.clock.shows(machine.wakes_at), Happening::Wake(*node)));
            let gives_up = actor.waiters.first().map(|(at, ..)| (*at, Happening::GiveUp(*node)));
            [wakes, gives_up].into_iter().flatten().min_by_key(|(at, _)| *at)
        };
        let letter = self.post.iter().find(|(_, letter)| self.hears(letter.to));
        let letter = letter.map(|(place, _)| (place.0, Happening::Letter(*place)));
        running.filter_map(of_actor).chain(letter).min_by_key(|(at, _)| *at)
    }

    /// Messages to a process that stands still wait; those to a dead one are lost on arrival.
    pub(super) fn hears(&self, node: u32) -> bool {
        self.actors.get(&node).is_none_or(|actor| actor.paused.is_none())
    }

    pub(super) fn happen(&mut self, what: Happening) {
        match what {
            Happening::Wake(node) => self.tell(node, Input::Timeout),
            Happening::GiveUp(node) => {
                let actor = self.actor(node);
                let (_, key, id) = actor.waiters.remove(0);
                if let Some(machine) = &mut actor.machine {
                    machine.give_up(key, id);
                }
                self.drain(node);
            }
            Happening::Letter(place) => {
                let Some(Letter { from, to, message }) = self.post.remove(&place) else { return };
                // Members without a process are dead.
                if self.actors.contains_key(&to) {
                    self.tell(to, Input::Message { from, message });
                }
            }
        }
    }

    pub(super) fn tell(&mut self, node: u32, input: Input) {
        let (at, mut effects) = (self.now, Vec::new());
        if let Some(machine) = &mut self.actor(node).machine {
            machine.tell(input, at, &mut effects);
        }
        self.settle(node, effects);
    }

    pub(super) fn drain(&mut self, node: u32) {
        let (at, mut effects) = (self.now, Vec::new());
        if let Some(machine) = &mut self.actor(node).machine {
            machine.drain(at, &mut effects);
        }
        self.settle(node, effects);
    }

    pub(super) fn settle(&mut self, node: u32, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send { to, message } => self.send(node, to.get(), message),
                Effect::Event(event) => self.ledger.events.push((self.now, node, event)),
                // The schedule says how many there are.
                Effect::Contact { .. } => {}
                Effect::Admitted { waiter } => {
                    self.admitted(node, 0, waiter.cost);
                    self.drain(node);
                }
            }
        }
    }

    pub(super) fn send(&mut self, from: u32, to: u32, message: Message) {
        let way = self.ways.entry((from, to)).or_insert(Way::Usual);
        let delays = match way {
            Way::Usual => vec![HOP],
            Way::Takes(ms) => vec![(*ms * 1e6) as Nanos],
            Way::Twice(later) => vec![HOP, HOP + (*later * 1e6) as Nanos],
            Way::Lost | Way::Only(0) => Vec::new(),
            Way::Only(left) => {
                *left -= 1;
                vec![HOP]
            }
        };
        for delay in delays {
            self.letters += 1;
            let letter = Letter { from: NodeId::new(from), to, message: message.clone() };
            self.post.insert((self.now + delay, self.letters), letter);
        }
    }

    pub(super) fn ask_as_of(
        &mut self,
        node: u32,
        number: u32,
        cost: u64,
        as_of: Option<Instant>,
    ) -> bool {
        let at = self.now;
        let Some(machine) = &mut self.actor(node).machine else { return false };
        let now = as_of.unwrap_or_else(|| machine.clock.read(at));
        let asked = Asked { cost, waits: false, demand: 0 };
        let is_admitted = matches!(machine.ask(key(number), LIMIT, asked, now), Answer::Admitted);
        if is_admitted {
            self.admitted(node, number, cost);
        }
        self.drain(node);
        is_admitted
    }

    pub(super) fn admitted(&mut self, node: u32, key: u32, cost: u64) {
        let at = self.now;
        self.ledger.admissions.push(Admission { at, limit: 0, key, node, cost, refunded: 0 });
    }

    pub(super) fn tell_changes(&mut self, node: u32, known: usize) {
        let changes: Vec<_> = self.changes[known..].to_vec();
        let (all, at) = (self.changes.len(), self.now);
        let actor = self.actor(node);
        actor.told = all;
        let start = actor.start;
        for (decided, change) in changes {
            let age = Duration::from_nanos(at - decided);
            self.tell(node, Input::Ring { change, age, start, is_restart: false });
        }
    }

    pub(super) fn times(&self) -> ViewTimes {
        ViewTimes {
            sync_interval: Duration::from_millis(5),
            ttl_max: Duration::from_millis(self.setting.ttl_max_ms),
            drift_ppm: self.setting.drift_ppm,
            ..ViewTimes::default()
        }
    }

    /// The largest excess that a running node saw of keys that it owns, and the units that workers
    /// may have spent late.
    pub(super) fn seen(&self) -> (u64, u64) {
        let machines = self.actors.values().filter_map(|actor| actor.machine.as_ref());
        let counts = machines.map(|machine| machine.node.counts());
        counts
            .fold((0, 0), |(excess, late), one| (excess.max(one.owner.excess_max), late + one.late))
    }

    /// How often a key of this owner's came to have an excess.
    pub(super) fn breaches(&self, node: u32) -> u64 {
        let machine = self.actors[&node].machine.as_ref();
        machine.map_or(0, |machine| machine.node.counts().owner.breaches)
    }

    /// The excess that an owner sees now; none if it has no key.
    pub(super) fn excess_now(&self, node: u32) -> Option<u64> {
        let machine = self.actors[&node].machine.as_ref()?;
        let now = machine.clock.read(self.now);
        machine.node.limit_units(now).get(&LIMIT).map(|of| of.excess)
    }

    /// What the run is judged by.
    pub(super) fn scenario(&self) -> Scenario {
        let Setting { per_second, burst, drift_ppm, bootstrap, serves_alone, .. } = self.setting;
        let rate = rate(per_second);
        let limit = SimLimit { rate, burst, local_cap: Some(burst), bootstrap };
        Scenario {
            seed: 0,
            nodes: 4,
            lasts: self.now,
            rests: 0,
            limits: vec![limit],
            demands: Vec::<Demand>::new(),
            network: Network::QUIET,
            times: self.times(),
            drift_ppm,
            serves_alone,
            reports_per_second_max: 500_000,
            faults: Vec::new(),
        }
    }
}

/// What happens by itself.
pub(super) enum Happening {
    Wake(u32),
    GiveUp(u32),
    Letter((Nanos, u64)),
}
