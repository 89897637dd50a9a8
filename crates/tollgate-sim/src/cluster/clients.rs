//! What clients do: requests that come, wait, give up and give back.

use tollgate::{FleetLimitId, Instant, KeyId};

use super::{Cluster, Step, even_gap, key_of};
use crate::ledger::Admission;
use crate::machine::{Answer, Asked};
use crate::scenario::Shape;

impl Cluster<'_> {
    pub(super) fn arrive(&mut self, index: usize, node: u32) {
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
    pub(super) fn ask(&mut self, index: usize, node: u32, as_of: Option<Instant>) {
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
        self.ledger.samples.ask(limit, key, cost, at);
        let id = FleetLimitId(limit as u32);
        let key_id = key_of(limit, key);
        if process.machine.node.limit(key_id, id).is_none() {
            offered.refused += cost;
            return;
        }
        let asked = Asked { cost, waits: demand.waits > 0, demand: index };
        let now = as_of.unwrap_or_else(|| process.machine.clock.read(at));
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

    pub(super) fn admitted(&mut self, index: usize, node: u32, cost: u64) {
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

    pub(super) fn give_up(&mut self, node: u32, life: u32, key: KeyId, waiter: u64) {
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

    pub(super) fn refund(
        &mut self,
        node: u32,
        life: u32,
        key: KeyId,
        units: u64,
        admission: usize,
    ) {
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
}
