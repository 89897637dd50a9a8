//! What passes between processes, and between them and the coordinator.

use std::time::Duration;

use tollgate::{Input, Message, NodeId};

use super::node::Effect;
use super::{Fleet, Step};
use crate::control::{Ask, Tell};
use crate::scenario::{MS, Nanos, SECOND};
use crate::share::ledger::{By, Heard};

impl Fleet {
    /// Sends what a process has to send, notes what its cells have, and sees to it that it is
    /// woken.
    pub(super) fn settle(&mut self, node: u32) {
        let Some(process) = &mut self.places[node as usize].process else { return };
        for effect in std::mem::take(&mut process.effects) {
            match effect {
                Effect::Send { to, message } => self.send(node, to.get() - 1, message),
                Effect::Give { key, given } => self.note_given(node, key, &given),
                Effect::Evicted { key } => {
                    let key = self.number(key);
                    self.note(node, key, |state| (state.by, state.global) = (By::Nothing, None));
                }
            }
        }
        let now = self.now;
        let Some(process) = &mut self.places[node as usize].process else { return };
        if process.is_leaving && process.node.is_handed_over() {
            return self.end_process(node);
        }
        let at = process.due(now);
        if at < process.woken_at {
            process.woken_at = at;
            let life = process.life;
            self.push(at, Step::Look { node, life });
        }
    }

    fn send(&mut self, from: u32, to: u32, message: Message) {
        if from == to {
            return self.note_message(from, to, &message);
        }
        self.count(&message);
        let network = self.scenario.network;
        if self.cuts.is_cut(from, to, self.now) || self.chance.happens(network.loss) {
            return;
        }
        let copies = 1 + u32::from(self.chance.happens(network.repeats));
        for _ in 0..copies {
            let is_slow = self.chance.happens(network.slow);
            let most = if is_slow { network.slow_max } else { network.delay_max };
            let delay = self.chance.between(network.delay_min, most.max(network.delay_min));
            let message = Box::new(message.clone());
            self.push(self.now + delay, Step::Deliver { to, from, message });
        }
    }

    fn count(&mut self, message: &Message) {
        let traffic = &mut self.ledger.traffic;
        let (count, entries) = match message {
            Message::Reports(batch) => (&mut traffic.reports, batch.demands.len()),
            Message::Snapshots(batch) if batch.answers.is_some() => {
                (&mut traffic.answers, batch.allotments.len())
            }
            Message::Snapshots(batch) => (&mut traffic.pushes, batch.allotments.len()),
            Message::Refused { .. } | Message::Handover(_) | Message::HandoverArrived { .. } => {
                return;
            }
        };
        (count.0, count.1) = (count.0 + 1, count.1 + entries as u64);
    }

    pub(super) fn deliver(&mut self, to: u32, from: u32, message: Message) {
        self.note_message(from, to, &message);
        let now = self.now;
        let Some(process) = &mut self.places[to as usize].process else { return };
        process.hear(Input::Message { from: NodeId::new(from + 1), message }, now);
        self.settle(to);
    }

    /// Notes what an owner takes in, and what a member is told.
    fn note_message(&mut self, from: u32, to: u32, message: &Message) {
        let Some(process) = &self.places[to as usize].process else { return };
        if let Message::Snapshots(batch) = message {
            for given in &batch.allotments {
                let key = self.number(given.key);
                self.ledger.told.push(Heard { at: self.now, key, from, by: to });
            }
        }
        let Message::Reports(batch) = message else { return };
        for demand in &batch.demands {
            if process.node.owns(demand.key) && process.node.ring_epoch() == batch.ring_epoch {
                let key = self.number(demand.key);
                // What comes late is not taken in.
                let place = (demand.epoch, demand.sequence);
                let none = (tollgate::CellEpoch { start: 0, cell: 0 }, 0);
                let last = self.reported.entry((to, from, key)).or_insert(none);
                if place <= *last {
                    continue;
                }
                *last = place;
                self.ledger.heard.push(Heard { at: self.now, key, from, by: to });
            }
        }
    }

    pub(super) fn ask_control(&mut self, node: u32, ask: Ask) {
        if !self.cuts.is_silent(node, self.now) {
            let delay = self.chance.between(200_000, MS);
            let place = &mut self.places[node as usize];
            place.asked_until = place.asked_until.max(self.now + delay);
            let at = place.asked_until;
            self.push(at, Step::Ask { node, ask });
        }
    }

    pub(super) fn heartbeat(&mut self, node: u32, life: u32) {
        if !self.is_alive(node, life) {
            return;
        }
        self.push(self.now + 500 * MS, Step::Heartbeat { node, life });
        let now = self.now;
        let Some(process) = &mut self.places[node as usize].process else { return };
        if !process.serves() {
            return self.ask_control(node, Ask::Join);
        }
        let ask = Ask::Heartbeat {
            start: process.start,
            connection: process.connection,
            sent_at: process.now(now),
            ring_epoch: process.node.ring_epoch().get(),
            revision: process.revision,
        };
        self.ask_control(node, ask);
    }

    pub(super) fn hear_control(&mut self) {
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
            self.push(at, Step::Tell { node, life, tell: Box::new(tell) });
        }
        if self.control.wakes_at < self.control_wakes_at {
            self.control_wakes_at = self.control.wakes_at;
            self.push(self.control.wakes_at, Step::Control);
        }
    }

    pub(super) fn told(&mut self, node: u32, life: u32, tell: Tell) {
        if !self.is_alive(node, life) {
            return;
        }
        match tell {
            Tell::Welcome { start, change, decided, is_restart } => {
                let Some(process) = &mut self.places[node as usize].process else { return };
                if start <= process.start {
                    return;
                }
                let is_new = !process.serves();
                process.start = start;
                process.connection += 1;
                if is_new {
                    // It knows the limits before anybody asks it.
                    self.enforce(node, self.control.rules.revision);
                }
                // The ring that a run begins with is an old one.
                let age = if decided == 0 { self.now + 10 * SECOND } else { self.now - decided };
                self.turn(node, change, age, is_restart);
            }
            Tell::Ring { change, decided } => {
                let Some(process) = &self.places[node as usize].process else { return };
                let id = NodeId::new(node + 1);
                let is_out = !change.ring.contains(id) && !process.is_leaving;
                if process.serves() {
                    self.turn(node, change, self.now - decided, false);
                }
                if is_out {
                    self.ask_control(node, Ask::Join);
                }
            }
            Tell::Rules(rules) => self.enforce(node, rules.revision),
            // Nothing is leased.
            Tell::Heard { .. } => {}
        }
    }

    fn turn(
        &mut self,
        node: u32,
        change: tollgate::coordinator::RingChange,
        age: Nanos,
        is_restart: bool,
    ) {
        let now = self.now;
        let Some(process) = &mut self.places[node as usize].process else { return };
        let members = change.ring.members().len() as u64;
        let (start, age) = (process.start, Duration::from_nanos(age));
        process.set_members(members);
        let before = process.node.ring_epoch();
        process.hear(Input::Ring { change, age, start, is_restart }, now);
        if process.node.ring_epoch() != before {
            self.ledger.rings.push((now, node, members));
        }
        self.settle(node);
    }

    fn enforce(&mut self, node: u32, revision: u64) {
        let now = self.now;
        let Some(rules) = self.revisions.iter().find(|rules| rules.revision == revision) else {
            return;
        };
        let Some(process) = &mut self.places[node as usize].process else { return };
        if process.revision >= revision {
            return;
        }
        process.enforce(rules, now);
        self.ledger.rules.push((now, node, rules.units));
        // What decides has changed, whatever is given.
        for key in 0..self.names.len() as u32 {
            self.note(node, key, |_| {});
        }
        self.settle(node);
    }
}
