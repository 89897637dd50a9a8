//! The node's side of limits that nodes divide: its members, and the keys that it divides.

use std::collections::{BTreeMap, HashMap};

use crate::division::owner::{DivisionFull, Divisions, Terms};
use crate::division::worker::{Act, SharedKey, Sharer};
use crate::division::{Allotment, Demand};
use crate::key::KeyId;
use crate::message::SnapshotBatch;
use crate::node::sums::{Part, Sums, Totals};
use crate::node::{Event, Node, Output, ShareUsage, StreamUsage};
use crate::policy::{FleetLimitId, FleetRules};
use crate::report::Lot;
use crate::ring::NodeId;
use crate::share::{Collected, Phase, ShareOptions};
use crate::time::Instant;
use crate::view::CellEpoch;
use crate::view::tenure::{Charge, Tenure};

/// What a node has of limits that nodes divide.
#[derive(Debug)]
pub(super) struct Dividing {
    options: ShareOptions,
    pub(super) owner: Divisions,
    members: HashMap<(KeyId, u64), Entry>,
    members_max: usize,
    pub(super) sums: Sums,
    /// Last reports of members that are gone, until they are sent.
    farewells: BTreeMap<NodeId, Vec<Demand>>,
    /// Answers that could not be true.
    pub(super) insane: u64,
}

/// A member, its key's owner by the ring in force, and when it is looked at next.
#[derive(Debug)]
struct Entry {
    sharer: Sharer,
    /// Where its cell's line was when it was last drained.
    position: u64,
    owner: Option<NodeId>,
    at: Option<Instant>,
    /// Whether its cell was told to go.
    is_leaving: bool,
    phase: Phase,
    /// What it adds to its limit's sums, and the most that it had counted of them.
    part: Option<Part>,
    seen: Totals,
}

impl Dividing {
    pub(super) fn new(options: ShareOptions, keys_max: usize) -> Self {
        Self {
            options,
            owner: Divisions::new(options, keys_max),
            members: HashMap::new(),
            members_max: keys_max,
            sums: Sums::default(),
            farewells: BTreeMap::new(),
            insane: 0,
        }
    }

    pub(super) fn take_farewells(&mut self, owner: NodeId) -> Vec<Demand> {
        self.farewells.remove(&owner).unwrap_or_default()
    }

    pub(super) fn statuses(&self, skip: usize) -> impl Iterator<Item = SharedKey> {
        self.members.values().skip(skip).map(|entry| entry.sharer.status())
    }

    /// Has the sums follow a member that has changed.
    fn sum(&mut self, id: (KeyId, u64), rules: &FleetRules) {
        let Some(entry) = self.members.get_mut(&id) else { return };
        let limit = entry.sharer.limit;
        let of = rules.share(id.0, limit).filter(|_| entry.phase == Phase::Normal);
        let rate = of.and_then(|of| entry.sharer.rate(of.rate.per_second())).unwrap_or_default();
        let part = Some(Part { limit, phase: entry.phase, is_cell: id.1 == 0, rate });
        self.sums.change(std::mem::replace(&mut entry.part, part), part);
    }
}

impl Node {
    /// How many nodes divide a limit.
    pub(super) fn nodes(&self) -> u64 {
        let count = |tenure: &Tenure| tenure.ring().members().len() as u64;
        self.tenure.as_ref().map_or(1, count).max(1)
    }

    /// Does what is due as an owner.
    pub(super) fn divide_on(&mut self, now: Instant) {
        let nodes = self.nodes();
        let limits = |key, id| self.rules.share(key, id).copied();
        self.dividing.owner.handle_timeout(&limits, nodes, now);
    }

    pub(super) fn handle_shared(&mut self, usage: &ShareUsage, now: Instant) {
        let drained = &usage.drained;
        let id = (drained.key, 0);
        if drained.is_new {
            self.leave(id);
        }
        let totals = Totals {
            allowed: drained.allowed,
            denied: drained.denied,
            other_denied: drained.other_denied,
            other_allowed: drained.other_allowed,
        };
        self.counted(id, drained.limit, totals, None, now);
        if let Some(entry) = self.dividing.members.get_mut(&id) {
            entry.position = drained.position;
        }
        if drained.is_new {
            self.give(id);
        }
    }

    pub(super) fn handle_stream(&mut self, usage: &StreamUsage, now: Instant) {
        let &StreamUsage { key, limit, stream, allowed, denied, interval } = usage;
        debug_assert!(stream != 0);
        let totals = Totals { allowed, denied, ..Totals::default() };
        self.counted((key, stream), limit, totals, Some(interval), now);
    }

    pub(super) fn handle_stream_gone(&mut self, key: KeyId, stream: u64, now: Instant) {
        self.say_farewell((key, stream), now);
    }

    /// Forgets a member, and has its owner know that it is one no longer.
    fn say_farewell(&mut self, id: (KeyId, u64), now: Instant) {
        let options = self.dividing.options;
        let Some(mut entry) = self.leave(id) else { return };
        let Some(owner) = entry.owner else { return };
        let farewell = entry.sharer.farewell(&options, now);
        let waiting = self.dividing.farewells.entry(owner).or_default();
        // Beyond that many its silence tells.
        if waiting.len() < FAREWELLS_MAX {
            waiting.push(farewell);
            self.pipeline.schedule(owner, Lot::Share(id.0, id.1), now);
        }
    }

    pub(super) fn handle_share_evicted(&mut self, key: KeyId, gone: bool, now: Instant) {
        let id = (key, 0);
        // Another cell may have begun meanwhile.
        let entry = self.dividing.members.get_mut(&id).filter(|entry| entry.is_leaving);
        let Some(entry) = entry else { return };
        if gone {
            self.say_farewell(id, now);
            return;
        }
        entry.is_leaving = false;
        // Not at once again.
        let at = now.saturating_add(self.dividing.options.interval);
        if let (Some(owner), None) = (entry.owner, entry.at) {
            entry.at = Some(at);
            self.pipeline.schedule(owner, Lot::Share(key, 0), at);
        }
    }

    /// Takes in what a member counted, which may be a new one.
    fn counted(
        &mut self,
        id: (KeyId, u64),
        limit: FleetLimitId,
        totals: Totals,
        stream: Option<std::time::Duration>,
        now: Instant,
    ) {
        if !self.dividing.members.contains_key(&id) && !self.begin_share(id, limit, now) {
            return;
        }
        let Some(entry) = self.dividing.members.get_mut(&id) else { return };
        let counted = Collected { allowed: totals.allowed, denied: totals.denied };
        entry.sharer.handle_usage(limit, counted, stream, now);
        self.dividing.sums.count(limit, &mut entry.seen, &totals);
        self.dividing.sum(id, &self.rules);
        self.schedule_share(id, now);
    }

    fn begin_share(&mut self, id: (KeyId, u64), limit: FleetLimitId, now: Instant) -> bool {
        if self.dividing.members.len() >= self.dividing.members_max {
            self.outputs.push_back(Output::Event(Event::Full));
            return false;
        }
        self.cells += 1;
        let epoch = CellEpoch { start: self.start, cell: self.cells };
        let (ring_epoch, options) = (self.ring_epoch(), self.dividing.options);
        let sharer = Sharer::new(id.0, limit, (id.1, epoch), ring_epoch, &options, now);
        let owner = self.tenure.as_ref().and_then(|tenure| tenure.ring().owner(id.0));
        let (at, phase) = (None, sharer.phase());
        let (position, is_leaving, part, seen) = (0, false, None, Totals::default());
        let entry = Entry { sharer, position, owner, at, is_leaving, phase, part, seen };
        self.dividing.members.insert(id, entry);
        true
    }

    /// Forgets a member.
    fn leave(&mut self, id: (KeyId, u64)) -> Option<Entry> {
        let entry = self.dividing.members.remove(&id)?;
        self.dividing.sums.change(entry.part, None);
        if let Entry { owner: Some(owner), at: Some(at), .. } = entry {
            self.pipeline.cancel(owner, Lot::Share(id.0, id.1), at);
        }
        Some(entry)
    }

    /// Has a member's cell, or stream, know what it has.
    fn give(&mut self, id: (KeyId, u64)) {
        let nodes = self.nodes();
        let Some(entry) = self.dividing.members.get_mut(&id) else { return };
        entry.phase = entry.sharer.phase();
        self.dividing.sum(id, &self.rules);
        let Some(entry) = self.dividing.members.get(&id) else { return };
        let (key, stream) = id;
        let limit = self.rules.share(key, entry.sharer.limit);
        if stream != 0 {
            let is_sound = entry.phase == Phase::Normal;
            let rate = limit.filter(|limit| is_sound && limit.mode.is_global());
            let rate = rate.and_then(|limit| entry.sharer.rate(limit.rate.per_second()));
            self.outputs.push_back(Output::Allot { key, stream, rate });
        } else if let Some(limit) = limit {
            let given = entry.sharer.given(limit, nodes);
            self.outputs.push_back(Output::Give { key, given });
        }
    }

    /// A member whose time has come: its report, if it has one.
    pub(super) fn demand(&mut self, key: KeyId, stream: u64, now: Instant) -> Option<Demand> {
        let (id, options) = ((key, stream), self.dividing.options);
        let entry = self.dividing.members.get_mut(&id)?;
        entry.at = None;
        let limit = self.rules.share(key, entry.sharer.limit);
        let reports = limit.is_some_and(|limit| limit.mode.reports());
        // As much as the pipeline takes along.
        let soon = now.saturating_add(self.options.times.sync_interval / 2);
        let act = entry.sharer.act(&options, reports, soon);
        let is_new_phase = entry.phase != entry.sharer.phase();
        let demand = match act {
            Act::Report => {
                let generation = limit.map_or(0, |limit| limit.generation);
                Some(entry.sharer.report(generation, &options, now, soon))
            }
            Act::Forget => {
                entry.is_leaving = true;
                let position = entry.position;
                self.outputs.push_back(Output::EvictShare { key, position });
                None
            }
            Act::Wait => None,
        };
        if is_new_phase {
            self.give(id);
        }
        if act != Act::Forget {
            self.schedule_share(id, now);
        }
        demand
    }

    /// Members report.
    pub(super) fn handle_demands(
        &mut self,
        from: NodeId,
        demands: &[Demand],
        now: Instant,
    ) -> Vec<Allotment> {
        let nodes = self.nodes();
        let mut allotments = Vec::with_capacity(demands.len());
        for demand in demands {
            let is_mine = self.tenure.as_ref().is_some_and(|tenure| {
                // What others would hand over is not needed: members say what they have. Whoever
                // leaves has a part no longer.
                tenure.ring().contains(from) && tenure.charge(demand.key) != Charge::Others
            });
            let Some(limit) = self.rules.share(demand.key, demand.limit).filter(|_| is_mine) else {
                continue;
            };
            let terms = Terms { limit, nodes };
            match self.dividing.owner.handle_demand(from, demand, &terms, now) {
                Ok(allotment) => allotments.extend(allotment),
                Err(DivisionFull) => self.outputs.push_back(Output::Event(Event::Full)),
            }
        }
        allotments
    }

    /// An owner gives members their parts.
    pub(super) fn handle_allotments(&mut self, from: NodeId, batch: &SnapshotBatch, now: Instant) {
        for given in &batch.allotments {
            let id = (given.key, given.stream);
            let Some(entry) = self.dividing.members.get_mut(&id) else { continue };
            let Some(limit) = self.rules.share(given.key, entry.sharer.limit) else { continue };
            if entry.owner != Some(from) || !limit.mode.reports() {
                continue;
            }
            match entry.sharer.handle_allotment(given, batch.owner_epoch, limit) {
                // A stream is told whenever it can rely on what it has.
                Ok(changed) if changed || given.stream != 0 => self.give(id),
                Ok(_) => {}
                Err(_) => self.dividing.insane += 1,
            }
            self.schedule_share(id, now);
        }
    }

    /// The ring has changed.
    pub(super) fn divide_by_ring(&mut self, now: Instant) {
        let (epoch, start, me) = (self.ring_epoch(), self.start, self.me);
        if let Some(tenure) = &self.tenure {
            let ring = tenure.ring();
            self.dividing.owner.drop_keys(|key| ring.owner(key) != Some(me));
            self.dividing.owner.drop_nodes(|node| ring.contains(node));
            self.dividing.owner.begin(now);
        }
        self.dividing.farewells.clear();
        for id in self.member_ids() {
            if let Some(entry) = self.dividing.members.get_mut(&id) {
                entry.sharer.handle_ring(epoch, start);
                entry.owner = self.tenure.as_ref().and_then(|tenure| tenure.ring().owner(id.0));
                entry.at = None;
            }
            self.give(id);
            self.schedule_share(id, now);
        }
    }

    /// Limits have changed.
    pub(super) fn divide_by_rules(&mut self, now: Instant) {
        for id in self.member_ids() {
            if let Some(entry) = self.dividing.members.get_mut(&id) {
                let limit = self.rules.share(id.0, entry.sharer.limit);
                match limit.filter(|limit| limit.mode.reports()) {
                    Some(limit) => entry.sharer.rescale(limit.rate.per_second()),
                    None => entry.sharer.reset(),
                }
            }
            self.give(id);
            self.schedule_share(id, now);
        }
        let rules = &self.rules;
        self.dividing.sums.forget(|id| rules.shares.contains_key(&id));
    }

    /// In an order that does not depend on the map's.
    fn member_ids(&self) -> Vec<(KeyId, u64)> {
        let mut ids: Vec<(KeyId, u64)> = self.dividing.members.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Sees to it that a member is looked at when it is due.
    fn schedule_share(&mut self, id: (KeyId, u64), now: Instant) {
        let options = self.dividing.options;
        let Some(entry) = self.dividing.members.get_mut(&id) else { return };
        let Some(owner) = entry.owner else { return };
        let limit = self.rules.share(id.0, entry.sharer.limit);
        let reports = limit.is_some_and(|limit| limit.mode.reports());
        let at = entry.sharer.due(&options, reports, now);
        if entry.at == Some(at) {
            return;
        }
        let lot = Lot::Share(id.0, id.1);
        if let Some(at) = entry.at.replace(at) {
            self.pipeline.cancel(owner, lot, at);
        }
        self.pipeline.schedule(owner, lot, at);
    }
}

/// Last reports to one owner that wait to be sent.
const FAREWELLS_MAX: usize = 10_000;
