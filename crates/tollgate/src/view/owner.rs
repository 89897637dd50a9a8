//! The owner of keys: applies reports to meters, and permits workers to spend what is left.
//!
//! It knows nothing of cells, of transport, or of who became owner why (`tenure`). What it promises
//! rests on one inequality: a grant never lifts L + outstanding above B.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

use crate::key::{KeyHashing, KeyId};
use crate::mutant::lacks;
use crate::policy::{FleetLimitId, ViewLimit};
use crate::ring::NodeId;
use crate::time::Instant;
use crate::view::owned::{Grounds, Owned, Reporter, Standing, Who};
use crate::view::status::{LimitUnits, OwnedKey};
use crate::view::tenure::Began;
use crate::view::{Report, Snapshot, ViewTimes};

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
    /// What was counted of each limit that is in force.
    limits: BTreeMap<FleetLimitId, LimitUnits>,
    /// Keys that had an excess when they were last looked at.
    exceeding: BTreeSet<KeyId>,
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
    /// Times at which a key came to have an [excess](crate::OwnedKey::excess).
    pub breaches: u64,
    /// The largest excess of any key.
    pub excess_max: u64,
}

/// There is no room for another key or another worker of it; nothing was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnerFull;

/// Counts what a report told of a key.
fn count(
    (all, of): &mut (&mut OwnerCounts, &mut LimitUnits),
    units: u64,
    is_breach: bool,
    excess: u64,
) {
    all.reports += 1;
    all.units = all.units.saturating_add(units);
    of.units = of.units.saturating_add(units);
    all.breaches += u64::from(is_breach);
    of.breaches += u64::from(is_breach);
    all.excess_max = all.excess_max.max(excess);
    of.excess_max = of.excess_max.max(excess);
}

/// What keys have under the limits in force.
pub(crate) type Limits<'a> = &'a dyn Fn(KeyId, FleetLimitId) -> Option<ViewLimit>;

impl Owner {
    pub(crate) fn new(times: ViewTimes, keys_max: usize) -> Self {
        Self {
            times,
            keys_max,
            keys: HashMap::default(),
            agenda: BinaryHeap::new(),
            pushes: BTreeMap::new(),
            counts: OwnerCounts::default(),
            limits: BTreeMap::new(),
            exceeding: BTreeSet::new(),
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
        limits: Limits<'_>,
        began: Began,
        standing: &Standing,
        now: Instant,
    ) -> Result<Option<Snapshot>, OwnerFull> {
        let is_full = self.keys.len() >= self.keys_max;
        let owned = match self.keys.entry(report.key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(_) if is_full => return Err(OwnerFull),
            Entry::Vacant(entry) => {
                let limit = limits(report.key, report.limit);
                let Some(limit) = &limit else { return Ok(None) };
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
        // By the limit that this owner knows: a worker may be behind, or ahead.
        let limit = limits(report.key, owned.limit).or_else(|| {
            let limit = limits(report.key, report.limit)?;
            owned.limit = report.limit;
            Some(limit)
        });
        let (times, version) = (&self.times, self.version);
        let grounds = Grounds { limit: limit.as_ref(), standing, times, version };
        owned.follow(&grounds, now);
        let (units, is_breach) = owned.apply(by, report, &grounds, now);
        let mut counts = (&mut self.counts, self.limits.entry(owned.limit).or_default());
        count(&mut counts, units, is_breach, owned.excess.units());
        if report.waiting > limit.map_or(u64::MAX, |limit| limit.local_cap) {
            counts.1.cost_max = counts.1.cost_max.max(report.waiting.min(owned.meter.burst()));
        }
        let mut told = Vec::new();
        self.counts.granted += owned.grant(who, &grounds, now, &mut told);
        for to in told {
            let snapshot = owned.snapshot(report.key, to, &grounds, now, &mut self.agenda);
            self.counts.pushed += 1;
            self.pushes.entry(to.0).or_default().push(snapshot);
        }
        let snapshot = owned.snapshot(report.key, who, &grounds, now, &mut self.agenda);
        owned.plan(report.key, now, &mut self.agenda);
        if is_breach {
            self.note_excess(report.key, now);
        }
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

    /// A key has come to have an excess; those that have none any more are forgotten.
    fn note_excess(&mut self, key: KeyId, now: Instant) {
        if self.exceeding.len() >= EXCEEDING_MAX {
            let keys = &self.keys;
            let exceeds = |key: &KeyId| keys.get(key).is_some_and(|owned| owned.excess_at(now) > 0);
            self.exceeding.retain(exceeds);
        }
        // Of more than that, others have an excess as well, and all are counted.
        if self.exceeding.len() < EXCEEDING_MAX {
            self.exceeding.insert(key);
        }
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
            let limit = limits(key, owned.limit);
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

    /// What was counted of each limit, with the largest excess of its keys at `now`.
    pub(crate) fn limit_units(&self, now: Instant) -> BTreeMap<FleetLimitId, LimitUnits> {
        let mut limits = self.limits.clone();
        for owned in self.exceeding.iter().filter_map(|key| self.keys.get(key)) {
            let of = limits.entry(owned.limit).or_default();
            of.excess = of.excess.max(owned.excess_at(now));
        }
        limits
    }

    /// Limits that are no longer in force are counted no longer.
    pub(crate) fn keep_limits(&mut self, is_known: impl Fn(FleetLimitId) -> bool) {
        self.limits.retain(|id, _| is_known(*id));
    }

    /// The keys that have state here but for the first ones, as of `now`.
    pub(crate) fn statuses(&self, skip: usize, now: Instant) -> impl Iterator<Item = OwnedKey> {
        self.keys.iter().skip(skip).map(move |(key, owned)| owned.status(*key, &self.times, now))
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

/// Keys of which it is looked up how much they have too much.
const EXCEEDING_MAX: usize = 4_096;
