//! What a node sends when: reports of what is due, and what owners tell unasked.

use crate::key::KeyId;
use crate::message::{Message, ReportBatch, SnapshotBatch};
use crate::node::{Event, Node, Output};
use crate::report::Lot;
use crate::ring::NodeId;
use crate::time::Instant;
use crate::view::OwnerEpoch;
use crate::view::worker::Act;

impl Node {
    /// Sends what is due.
    pub(super) fn run(&mut self, now: Instant) {
        if let Some(tenure) = &mut self.tenure {
            for from in tenure.handle_timeout(&self.options.times, now) {
                // What has come of it is not all of it.
                self.owner.take(|key| tenure.was_of(key, from));
                self.outputs.push_back(Output::Event(Event::HandoverLate { from }));
            }
        }
        for (to, handover) in self.sending.due(now) {
            self.outputs.push_back(Output::Send { to, message: Message::Handover(handover) });
        }
        while let Some((owner, keys)) = self.pipeline.next_due(now) {
            self.report(owner, keys, now);
        }
        let owner_epoch = OwnerEpoch { ring: self.ring_epoch(), start: self.start };
        while let Some((to, snapshots)) = self.owner.poll_push() {
            let allotments = Vec::new();
            let batch = SnapshotBatch { answers: None, owner_epoch, snapshots, allotments };
            self.outputs.push_back(Output::Send { to, message: Message::Snapshots(batch) });
        }
        while let Some((to, allotments)) = self.dividing.owner.poll_push() {
            let snapshots = Vec::new();
            let batch = SnapshotBatch { answers: None, owner_epoch, snapshots, allotments };
            self.outputs.push_back(Output::Send { to, message: Message::Snapshots(batch) });
        }
    }

    /// Looks at keys whose time has come, and reports those that have something to tell.
    fn report(&mut self, owner: NodeId, lots: Vec<(Instant, Lot)>, now: Instant) {
        let times = self.options.times;
        let (mut reports, mut demands) = (Vec::new(), self.dividing.take_farewells(owner));
        for (_, lot) in &lots {
            let key = match lot {
                Lot::View(key) => key,
                Lot::Share(key, stream) => {
                    demands.extend(self.demand(*key, *stream, now));
                    continue;
                }
            };
            let Some(entry) = self.views.get_mut(key) else { continue };
            (entry.at, entry.refused) = (None, None);
            let limit = self.rules.limit(*key, entry.view.limit);
            match entry.view.act(limit.is_some(), &times, now) {
                Act::Report => {
                    let generation = limit.map_or(0, |limit| limit.generation);
                    reports.push(entry.view.report(generation, &times, now));
                    self.schedule(*key, now);
                }
                // It is looked at again when its usage comes.
                Act::Return(permit) => {
                    self.outputs.push_back(Output::Permit { key: *key, permit });
                }
                Act::Forget => {
                    let taken = entry.view.taken();
                    entry.is_leaving = true;
                    self.outputs.push_back(Output::Evict { key: *key, taken });
                }
                Act::Wait => self.schedule(*key, now),
            }
        }
        if reports.is_empty() && demands.is_empty() {
            return;
        }
        self.counts.reports += (reports.len() + demands.len()) as u64;
        self.counts.batches += 1;
        let (batch, round_trip) = self.pipeline.sent(owner, lots, now);
        let ring_epoch = self.ring_epoch();
        let batch = ReportBatch { batch, ring_epoch, round_trip, reports, demands };
        let message = Message::Reports(batch);
        self.outputs.push_back(Output::Send { to: owner, message });
    }

    /// Sees to it that a key is looked at when it is due.
    pub(super) fn schedule(&mut self, key: KeyId, now: Instant) {
        let Some(entry) = self.views.get_mut(&key) else { return };
        let Some(owner) = entry.owner else { return };
        let limit = self.rules.limit(key, entry.view.limit);
        let due = entry.view.due(limit, &self.options.times, now);
        let at = entry.refused.map_or(due, |refused| refused.min(due));
        if entry.at == Some(at) {
            return;
        }
        if let Some(at) = entry.at.replace(at) {
            self.pipeline.cancel(owner, Lot::View(key), at);
        }
        self.pipeline.schedule(owner, Lot::View(key), at);
    }
}
