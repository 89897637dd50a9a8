//! What passes between processes and the coordinator.

use tollgate::Input;

use super::{Cluster, Step};
use crate::control::{Ask, Tell};
use crate::scenario::{MS, SECOND};

impl Cluster<'_> {
    pub(super) fn ask_control(&mut self, node: u32, ask: Ask) {
        if !self.cuts.is_silent(node, self.now) {
            let delay = self.chance.between(200_000, MS);
            let place = &mut self.places[node as usize];
            place.asked_until = place.asked_until.max(self.now + delay);
            let at = place.asked_until;
            self.at(at, Step::Ask { node, ask });
        }
    }

    pub(super) fn heartbeat(&mut self, node: u32, life: u32) {
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
            self.at(at, Step::Tell { node, life, tell: Box::new(tell) });
        }
        if self.control.wakes_at < self.control_wakes_at {
            self.control_wakes_at = self.control.wakes_at;
            self.at(self.control.wakes_at, Step::Control);
        }
    }

    pub(super) fn told(&mut self, node: u32, life: u32, tell: Tell) {
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
                let until = process.lease.grants_until();
                self.tell(node, Input::Lease(until));
                // The ring that a run begins with is an old one.
                let since = if decided == 0 { self.now + 10 * SECOND } else { self.now - decided };
                let age = std::time::Duration::from_nanos(since);
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

    pub(super) fn reconnect(&mut self, node: u32, life: u32) {
        if !self.is_alive(node, life) {
            return;
        }
        let Some(process) = &mut self.places[node as usize].process else { return };
        process.is_connected = true;
        process.connection += 1;
        process.lease.reconnected(process.machine.clock.read(self.now));
        self.at(self.now, Step::Heartbeat { node, life });
    }
}
