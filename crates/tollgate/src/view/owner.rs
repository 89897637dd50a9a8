//! The owner of keys: applies reports to meters, and permits workers to spend what is left.
//!
//! It knows nothing of cells, of transport, or of who became owner why (`tenure`). What it promises
//! rests on one inequality: a grant never lifts L + outstanding above B.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::time::Duration;

use crate::key::{KeyHashing, KeyId};
use crate::mutant::lacks;
use crate::ring::NodeId;
use crate::time::Instant;
use crate::view::owned::{Grounds, Owned, Standing, Who};
use crate::view::{FleetLimitId, Report, Snapshot, ViewLimit, ViewTimes};

/// Keys that this node owns.
#[derive(Debug)]
pub(crate) struct Owner {
    times: ViewTimes,
    keys_max: usize,
    keys: HashMap<KeyId, Owned, KeyHashing>,
    /// What is to be done when: about a key, or about one of its records.
    agenda: BinaryHeap<Reverse<(Instant, KeyId, Option<Who>)>>,
    /// Snapshots that answer no report.
    pushes: BTreeMap<NodeId, Vec<Snapshot>>,
    counts: OwnerCounts,
    /// Of the last snapshots.
    version: u64,
}

/// What an owner did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OwnerCounts {
    /// Reports that were applied.
    pub reports: u64,
    /// Units that workers reported as spent.
    pub units: u64,
    /// Units that were permitted.
    pub granted: u64,
    /// Units that were permitted, not reported in time, and so taken for spent.
    pub expired: u64,
    /// Snapshots that answered no report.
    pub pushed: u64,
}

/// Who reports, and from how far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reporter {
    pub(crate) node: NodeId,
    pub(crate) round_trip: Duration,
}

/// There is no room for another key or another worker of it; nothing was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnerFull;

/// The limits in force, by number.
pub(crate) type Limits<'a> = &'a dyn Fn(FleetLimitId) -> Option<ViewLimit>;

impl Owner {
    pub(crate) fn new(times: ViewTimes, keys_max: usize) -> Self {
        Self {
            times,
            keys_max,
            keys: HashMap::default(),
            agenda: BinaryHeap::new(),
            pushes: BTreeMap::new(),
            counts: OwnerCounts::default(),
            version: 0,
        }
    }

    /// Applies a report and answers it. `began` is when this node's tenure of the key did, should
    /// the key be unknown. A report of a limit that is unknown here is not answered: there is
    /// nothing to apply it to.
    ///
    /// What was due by `now` must have been [done](Self::handle_timeout).
    ///
    /// # Errors
    /// [`OwnerFull`]; nothing was applied.
    pub(crate) fn handle_report(
        &mut self,
        report: &Report,
        by: Reporter,
        limit: Option<&ViewLimit>,
        began: Instant,
        standing: &Standing,
        now: Instant,
    ) -> Result<Option<Snapshot>, OwnerFull> {
        let is_full = self.keys.len() >= self.keys_max;
        let owned = match self.keys.entry(report.key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(_) if is_full => return Err(OwnerFull),
            Entry::Vacant(entry) => {
                let Some(limit) = limit else { return Ok(None) };
                if lacks("versions_go_on") {
                    self.version = 0;
                }
                entry.insert(Owned::unknown(report.limit, limit, began, now))
            }
        };
        let who = (by.node, report.cell_epoch);
        if !owned.has_room_for(who) {
            return Err(OwnerFull);
        }
        self.version += 1;
        let grounds = Grounds { limit, standing, times: &self.times, version: self.version };
        owned.follow(&grounds, now);
        self.counts.reports += 1;
        let units = owned.apply(who, report, by.round_trip, standing.start, now);
        self.counts.units = self.counts.units.saturating_add(units);
        let mut told = Vec::new();
        self.counts.granted += owned.grant(who, &grounds, now, &mut told);
        for to in told {
            let snapshot = owned.snapshot(report.key, to, &grounds, now, &mut self.agenda);
            self.counts.pushed += 1;
            self.pushes.entry(to.0).or_default().push(snapshot);
        }
        let snapshot = owned.snapshot(report.key, who, &grounds, now, &mut self.agenda);
        owned.plan(report.key, now, &mut self.agenda);
        Ok(Some(snapshot))
    }

    /// Reads what the reports are about to need, so that the memory of all of it comes at once and
    /// not one after another: most of what a report costs is waiting for that. Changes nothing.
    pub(crate) fn fetch(&self, by: NodeId, reports: &[Report]) {
        let fetched = |report: &Report| {
            let owned = self.keys.get(&report.key)?;
            Some(owned.fetch((by, report.cell_epoch)))
        };
        std::hint::black_box(reports.iter().filter_map(fetched).fold(0, u64::wrapping_add));
    }

    /// Does what is due: takes expired permissions for spent, serves who waits, forgets what is
    /// settled.
    pub(crate) fn handle_timeout(&mut self, limits: Limits<'_>, standing: &Standing, now: Instant) {
        while let Some(Reverse((at, key, who))) = self.agenda.peek().copied()
            && at <= now
        {
            self.agenda.pop();
            let Some(owned) = self.keys.get_mut(&key) else { continue };
            if let Some(who) = who {
                let expired = owned.visit_record(key, who, at, now, &mut self.agenda);
                self.counts.expired = self.counts.expired.saturating_add(expired);
                owned.plan(key, now, &mut self.agenda);
                continue;
            }
            if !owned.is_planned_for(at) {
                continue;
            }
            let limit = limits(owned.limit);
            self.version += 1;
            let (times, version) = (&self.times, self.version);
            let grounds = Grounds { limit: limit.as_ref(), standing, times, version };
            owned.follow(&grounds, now);
            if owned.is_as_new() {
                self.keys.remove(&key);
                continue;
            }
            let mut told = Vec::new();
            self.counts.granted += owned.serve(&grounds, now, &mut told);
            for to in told {
                let snapshot = owned.snapshot(key, to, &grounds, now, &mut self.agenda);
                self.counts.pushed += 1;
                self.pushes.entry(to.0).or_default().push(snapshot);
            }
            owned.plan(key, now, &mut self.agenda);
        }
    }

    /// Snapshots to be sent, by worker.
    pub(crate) fn poll_push(&mut self) -> Option<(NodeId, Vec<Snapshot>)> {
        self.pushes.pop_first()
    }

    /// Forgets snapshots that were to be sent: they were made under another ring.
    pub(crate) fn forget_pushes(&mut self) {
        self.pushes.clear();
    }

    /// When something is due next.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.agenda.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes away the keys that `moves` names: they are frozen for good, and nothing about them is
    /// done here any more.
    pub(crate) fn take(&mut self, moves: impl Fn(KeyId) -> bool) -> Vec<(KeyId, Owned)> {
        let mut moved: Vec<KeyId> = self.keys.keys().copied().filter(|key| moves(*key)).collect();
        // In an order that does not depend on the map's.
        moved.sort_unstable();
        moved.into_iter().filter_map(|key| Some((key, self.keys.remove(&key)?))).collect()
    }

    /// Puts a key in that another owner handed over.
    ///
    /// # Errors
    /// [`OwnerFull`]; the key is unknown here, as if nothing had been handed over.
    pub(crate) fn put(&mut self, key: KeyId, owned: Owned, now: Instant) -> Result<(), OwnerFull> {
        if self.keys.len() >= self.keys_max {
            return Err(OwnerFull);
        }
        let owned = self.keys.entry(key).insert_entry(owned).into_mut();
        owned.enlist(key, &mut self.agenda);
        owned.plan(key, now, &mut self.agenda);
        Ok(())
    }

    pub(crate) fn counts(&self) -> OwnerCounts {
        self.counts
    }

    /// Keys that have state here.
    pub(crate) fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// A key's state, to look at.
    pub(crate) fn key(&self, key: KeyId) -> Option<&Owned> {
        self.keys.get(&key)
    }
}
