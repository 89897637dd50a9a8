//! What goes wrong.

use tollgate::{FleetLimitId, Input, Instant, KeyId, ViewLimit};

use super::{Cluster, Step, key_of};
use crate::control::Ask;
use crate::ledger::Change;
use crate::scenario::{Fault, Nanos};

impl Cluster<'_> {
    pub(super) fn fault(&mut self, fault: Fault) {
        let fault = match fault {
            Fault::Owner { limit, key, .. } => match self.owner(key_of(limit, key)) {
                Some(owner) => fault.hitting(owner),
                None => return,
            },
            known => known,
        };
        self.ledger.faults.push((self.now, fault));
        self.strike(fault);
    }

    /// Who owns a key by the newest ring of those that say they do.
    pub(super) fn owner(&self, key: KeyId) -> Option<u32> {
        let owners = self.places.iter().filter_map(|place| {
            let node = &place.process.as_ref()?.machine.node;
            node.owns(key).then(|| (node.ring_epoch(), place.id.get() - 1))
        });
        owners.max().map(|(_, node)| node)
    }

    pub(super) fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::Crash { node, back_after } => {
                let Some(process) = self.end_process(node) else { return };
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
                if self.paused(node).is_none() {
                    self.tell(node, Input::Lease(until));
                }
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
                let at = self.now;
                self.ledger.changes.push(Change { at, limit, rate, burst, is_removal: false });
                self.control.put_rules(rules);
                self.hear_control();
            }
            Fault::Remove { limit } => {
                let mut rules = self.control.rules.clone();
                rules.revision += 1;
                if rules.limits.remove(&FleetLimitId(limit as u32)).is_none() {
                    return;
                }
                let known = self.ledger.changes.iter().rfind(|change| change.limit == limit);
                let known = *known.expect("a limit begins with a change");
                let change = Change { at: self.now, is_removal: true, ..known };
                self.ledger.changes.push(change);
                self.control.put_rules(rules);
                self.hear_control();
            }
            Fault::Failover => {
                self.control.fail_over(self.now);
                self.hear_control();
            }
            // Its node was looked for before.
            Fault::Owner { .. } => {}
        }
    }

    pub(super) fn start_again(&mut self, node: u32, back_after: Option<Nanos>) {
        if let Some(after) = back_after {
            self.at(self.now + after, Step::Start { node });
        }
    }

    /// A process goes on. A request on each demand had read its clock before, and now spends.
    pub(super) fn resume(&mut self, node: u32, life: u32, began: Instant) {
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
        // What it would have been told meanwhile.
        let Some(process) = &self.places[node as usize].process else { return };
        let until = process.lease.grants_until();
        self.tell(node, Input::Lease(until));
    }
}
