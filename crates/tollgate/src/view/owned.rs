//! One key at its owner: the level, who may spend how much, and who waits.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use crate::key::{KeyHashing, KeyId};
use crate::mutant::lacks;
use crate::policy::{FleetLimitId, ViewLimit};
use crate::ring::NodeId;
use crate::time::Instant;
use crate::view::excess::Excess;
use crate::view::meter::Meter;
use crate::view::record::{Applied, Record};
use crate::view::share::{self, Wish};
use crate::view::status::OwnedKey;
use crate::view::tenure::Began;
use crate::view::{CellEpoch, Report, Snapshot, ViewTimes};

/// One cell of one worker.
pub(crate) type Who = (NodeId, CellEpoch);
type Agenda = BinaryHeap<Reverse<(Instant, KeyId, Option<Who>)>>;

/// One key.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(super) limit: FleetLimitId,
    pub(super) generation: u64,
    pub(super) meter: Meter,
    /// No grants before this.
    pub(super) held_until: Instant,
    pub(super) records: HashMap<Who, Record, KeyHashing>,
    /// What all records have outstanding.
    outstanding: u64,
    /// What all workers ask for (units a second).
    demand: f64,
    /// Who waits for room, in the order in which they came.
    queue: VecDeque<Who>,
    /// Not before this is the queue looked at again.
    served_until: Instant,
    /// When the agenda comes to the key.
    planned: Option<Instant>,
    /// When nothing was left last.
    exhausted_at: Instant,
    pub(super) excess: Excess,
}

/// Who reports, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reporter {
    pub(crate) node: NodeId,
    /// How far away it is.
    pub(crate) round_trip: Duration,
    /// Whether a later batch of it came before this one.
    pub(crate) is_overtaken: bool,
}

/// What the owner's answers stand on, besides the key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    /// The start number of its process.
    pub(crate) start: u64,
    /// Until when this node may let permissions live.
    pub(crate) grants_until: Instant,
    /// How many sync intervals its load asks workers to leave between reports, at least.
    pub(crate) stretch: u32,
}

/// What the answers of an owner stand on.
#[derive(Clone, Copy)]
pub(super) struct Grounds<'a> {
    /// The limit as it is here; `None` if it is unknown.
    pub(super) limit: Option<&'a ViewLimit>,
    pub(super) standing: &'a Standing,
    pub(super) times: &'a ViewTimes,
    /// Of what is said now. Of one owner, not of one key: a key that was forgotten comes back.
    pub(super) version: u64,
}

impl Owned {
    /// A key that was never reported to this owner.
    pub(super) fn unknown(id: FleetLimitId, limit: &ViewLimit, began: Began, now: Instant) -> Self {
        let meter = Meter::unknown(limit.rate, limit.burst, began, now);
        let mut owned = Self::with_meter(id, limit.generation, meter, began.at);
        if began.is_held {
            owned.excess = Excess::after(began.at);
        }
        owned
    }

    pub(super) fn with_meter(
        limit: FleetLimitId,
        generation: u64,
        meter: Meter,
        held_until: Instant,
    ) -> Self {
        Self {
            limit,
            generation,
            meter,
            held_until,
            records: HashMap::default(),
            outstanding: 0,
            demand: 0.0,
            queue: VecDeque::new(),
            served_until: Instant::ZERO,
            planned: None,
            exhausted_at: Instant::ZERO,
            excess: Excess::default(),
        }
    }

    /// Adds a record that another owner handed over.
    pub(super) fn add_record(&mut self, who: Who, record: Record) {
        if self.has_room_for(who) {
            self.outstanding += record.outstanding();
            let before = self.records.insert(who, record);
            self.outstanding -= before.map_or(0, |before| before.outstanding());
        }
    }

    /// Reads the records that a report of `who` is answered by; what it returns means nothing.
    pub(super) fn fetch(&self, who: Who) -> u64 {
        let first = self.queue.front().and_then(|first| self.records.get(first));
        let mine = self.records.get(&who);
        let read = |record: &Record| record.sequence ^ record.reported_at.as_nanos();
        mine.map_or(0, read) ^ first.map_or(0, read)
    }

    pub(super) fn has_room_for(&self, who: Who) -> bool {
        self.records.len() < RECORDS_MAX || self.records.contains_key(&who)
    }

    /// Lets the level leak, by the limit as it is now: what was spent stays spent (rule 7).
    pub(super) fn follow(&mut self, grounds: &Grounds<'_>, now: Instant) {
        self.meter.advance(now);
        self.excess.settle(self.meter.above(self.outstanding, now));
        let Some(limit) = grounds.limit else { return };
        if self.generation == limit.generation {
            return;
        }
        if lacks("changed_limit_keeps_level") {
            self.meter = Meter::with_level(limit.rate, limit.burst, 0, now);
        }
        if lacks("changed_limit_keeps_outstanding") {
            self.records.clear();
            self.outstanding = 0;
        }
        self.meter.change(limit.rate, limit.burst, now);
        self.generation = limit.generation;
        self.records.values_mut().for_each(|record| record.is_current = false);
        self.leave_queue();
    }

    /// Nobody is served for now: who still waits reports again.
    fn leave_queue(&mut self) {
        for who in self.queue.drain(..) {
            if let Some(record) = self.records.get_mut(&who) {
                record.queued = false;
            }
        }
    }

    /// Applies a report. Returns the units that it newly tells as spent, and whether the key has
    /// come to have an excess by them.
    pub(super) fn apply(
        &mut self,
        by: Reporter,
        report: &Report,
        grounds: &Grounds<'_>,
        now: Instant,
    ) -> (u64, bool) {
        let who = (by.node, report.cell_epoch);
        let by_worker = who.1;
        if lacks("records_by_cell_epoch") {
            // As if a worker's name were all there is to it.
            self.records.retain(|other, _| other.0 != who.0 || other.1 == by_worker);
            self.outstanding = self.records.values().map(Record::outstanding).sum();
        }
        let record = self.records.entry(who).or_insert_with(|| {
            self.excess.cover(grounds.limit.map_or(0, |limit| limit.bootstrap));
            Record { is_doubtful: by.is_overtaken, ..Record::unknown(report, now) }
        });
        self.outstanding -= record.outstanding();
        self.demand -= record.demand;
        // Its time may be over without the agenda having come to it.
        record.expire(&mut self.meter, now);
        let start = grounds.standing.start;
        let Applied { spent, unpermitted } = record.apply(report, start, &mut self.meter, now);
        record.is_current = report.generation == self.generation || lacks("known_generation");
        record.round_trip = by.round_trip;
        // A record that a late repetition has brought back tells again what was known once.
        let is_doubtful = by.is_overtaken || record.is_doubtful;
        record.is_doubtful &= by.is_overtaken;
        self.outstanding += record.outstanding();
        self.demand = (self.demand + record.demand).max(0.0);
        if record.need() > 0 && !record.queued {
            record.queued = true;
            self.queue.push_back(who);
        }
        let is_breach = unpermitted > 0
            && !is_doubtful
            && self.excess.add(unpermitted, self.meter.above(self.outstanding, now), now);
        (spent, is_breach)
    }

    /// Permits what there is room for: to those who wait, in their order, and to `who`, which is
    /// answered anyway. Names the others that were given something, or are to know that nothing is
    /// left. Returns the units.
    pub(super) fn grant(
        &mut self,
        who: Who,
        grounds: &Grounds<'_>,
        now: Instant,
        told: &mut Vec<Who>,
    ) -> u64 {
        let mut granted = 0;
        if now >= self.served_until {
            granted += self.serve(grounds, now, told);
            told.retain(|to| *to != who);
        }
        granted += self.top_up(who, grounds, now);
        if self.meter.room(self.outstanding) == 0 && granted > 0 {
            let was = std::mem::replace(&mut self.exhausted_at, now);
            if now.saturating_since(was) > grounds.times.cadence_max() {
                // They are told, and nothing is cut.
                let young = |(to, record): (&Who, &Record)| {
                    (*to != who && !told.contains(to) && record.is_young(now)).then_some(*to)
                };
                let others: Vec<Who> = self.records.iter().filter_map(young).collect();
                told.extend(others);
            }
        }
        granted
    }

    /// Permits to those who wait, as long as there is room. Returns the units.
    pub(super) fn serve(
        &mut self,
        grounds: &Grounds<'_>,
        now: Instant,
        told: &mut Vec<Who>,
    ) -> u64 {
        let Some(limit) = grounds.granting(self.held_until, now) else {
            self.leave_queue();
            return 0;
        };
        let mut room = self.room();
        let mut granted = 0;
        let demand_of = |who: &Who| self.records.get(who).map_or(0.0, |record| record.demand);
        let mut demand: f64 = self.queue.iter().map(demand_of).sum();
        while let Some(who) = self.queue.front().copied() {
            let Some(record) = self.records.get_mut(&who) else {
                self.queue.pop_front();
                continue;
            };
            let need = record.need();
            if need == 0 || !record.is_current || !record.is_young(now) {
                record.queued = false;
                demand -= record.demand;
                self.queue.pop_front();
                continue;
            }
            if need > room {
                break;
            }
            let part = share::part(room, record.demand, demand);
            let wish = record.wish().units(record.cadence, limit.local_cap);
            let units = need.max(part.min(wish.saturating_sub(record.outstanding()))).min(room);
            record.grant(units);
            record.queued = false;
            demand -= record.demand;
            room -= units;
            granted += units;
            self.queue.pop_front();
            told.push(who);
        }
        self.outstanding += granted;
        self.served_until = if self.queue.is_empty() {
            Instant::ZERO
        } else {
            now.saturating_add(grounds.times.sync_interval / 2)
        };
        granted
    }

    /// Permits a worker as much as it is expected to use, of the room that nobody waits for.
    fn top_up(&mut self, who: Who, grounds: &Grounds<'_>, now: Instant) -> u64 {
        let Some(limit) = grounds.granting(self.held_until, now) else { return 0 };
        let free = self.free();
        let workers = self.records.len() as u64;
        let total = self.demand;
        let cadence = self.cadence_of(who, grounds);
        let Some(record) = self.records.get_mut(&who) else { return 0 };
        if !record.is_current || record.queued {
            return 0;
        }
        let mut wish = record.wish().units(cadence, limit.local_cap);
        if record.asked > 0 {
            // While there is room, a surge should find credit in place.
            wish = wish.max((free / (2 * workers)).min(limit.local_cap));
        }
        let have = record.outstanding();
        if lacks("ceiling_never_cut") && wish < have {
            record.ceiling -= have - wish;
            self.outstanding -= have - wish;
            return 0;
        }
        let units = share::part(free, record.demand, total).min(wish.saturating_sub(have));
        record.grant(units);
        self.outstanding += units;
        units
    }

    /// What the worker is to know now. Its permission lives on, if this node may let it.
    pub(super) fn snapshot(
        &mut self,
        key: KeyId,
        who: Who,
        grounds: &Grounds<'_>,
        now: Instant,
        agenda: &mut Agenda,
    ) -> Snapshot {
        let cadence = self.cadence_of(who, grounds);
        let remaining = self.meter.room(0);
        let others_wait = !self.queue.is_empty();
        let granting = grounds.granting(self.held_until, now);
        let free = if granting.is_some() { self.free() } else { 0 };
        let record = self.records.get_mut(&who).expect("only workers with a record are told");
        record.cadence = cadence;
        let ttl = match granting {
            // What nobody has use for is not kept while others wait.
            Some(_) if others_wait && record.asked == 0 && !record.queued => Duration::ZERO,
            Some(_) if record.is_current => {
                grounds.cut(share::ttl(cadence, record.demand, grounds.times), now)
            }
            _ => Duration::ZERO,
        };
        let expiry = now.saturating_add(grounds.times.widened(ttl));
        record.expiry =
            if lacks("expiry_moves_forward") { expiry } else { record.expiry.max(expiry) };
        // Before the agenda would come to it, or when it never would.
        if record.listed.is_none_or(|listed| record.expiry < listed) {
            record.listed = Some(record.expiry);
            agenda.push(Reverse((record.expiry, key, Some(who))));
        }
        Snapshot {
            key,
            cell_epoch: who.1,
            version: grounds.version,
            ack_sequence: record.sequence,
            acked: record.acked,
            floor: if lacks("floor_is_told") { 0 } else { record.floor },
            ceiling: record.ceiling,
            ttl,
            cadence,
            remaining,
            free,
            generation: self.generation,
            stamp: now,
        }
    }

    /// What is due about one record. Returns the units that are taken for spent.
    pub(super) fn visit_record(
        &mut self,
        key: KeyId,
        who: Who,
        at: Instant,
        now: Instant,
        agenda: &mut Agenda,
    ) -> u64 {
        let Some(record) = self.records.get_mut(&who) else { return 0 };
        if record.listed != Some(at) {
            return 0;
        }
        let expired = record.expire(&mut self.meter, now);
        self.outstanding -= expired;
        let forgotten_at = record.reported_at.saturating_add(RECORD_SILENCE);
        if record.is_settled(now) || now >= forgotten_at {
            let demand = record.demand;
            // What a worker of which nothing is known any more has not told, it tells anew.
            self.excess.cover(record.acked.max(record.floor).saturating_sub(record.base));
            self.records.remove(&who);
            self.demand =
                if self.records.is_empty() { 0.0 } else { (self.demand - demand).max(0.0) };
            return expired;
        }
        let next = if now < record.expiry { record.expiry } else { forgotten_at };
        if now >= record.expiry {
            // It asks for nothing any more.
            self.demand = (self.demand - record.demand).max(0.0);
            record.demand = 0.0;
        }
        record.listed = Some(next);
        agenda.push(Reverse((next, key, Some(who))));
        expired
    }

    /// Has the agenda come to all records of a key that was handed over.
    pub(super) fn enlist(&mut self, key: KeyId, agenda: &mut Agenda) {
        for (who, record) in &mut self.records {
            record.listed = Some(record.expiry);
            agenda.push(Reverse((record.expiry, key, Some(*who))));
        }
    }

    /// Has the agenda come again when there may be room for who waits, or when the key is as new.
    pub(super) fn plan(&mut self, key: KeyId, now: Instant, agenda: &mut Agenda) {
        let need = self.queue.iter().find_map(|who| self.records.get(who)).map(Record::need);
        let at = if let Some(need) = need {
            let room_at = self.meter.room_at(need, self.outstanding);
            room_at.map(|at| at.max(self.served_until).max(self.held_until))
        } else if self.records.is_empty() {
            self.meter.empty_at()
        } else {
            None
        };
        let Some(at) = at.map(|at| at.max(now)) else { return };
        if self.planned.is_none_or(|planned| at < planned || planned < now) {
            self.planned = Some(at);
            agenda.push(Reverse((at, key, None)));
        }
    }

    /// Whether the agenda came to the key as planned, and not by an older plan.
    pub(super) fn is_planned_for(&mut self, at: Instant) -> bool {
        self.planned.take_if(|planned| *planned == at).is_some()
    }

    /// Whether forgetting the key changes nothing.
    pub(super) fn is_as_new(&self) -> bool {
        self.records.is_empty() && self.meter.level() == 0
    }

    /// Units that the whole fleet has left.
    pub(crate) fn remaining(&self) -> u64 {
        self.meter.room(0)
    }

    pub(crate) fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Units that it has too much at `now`.
    pub(super) fn excess_at(&self, now: Instant) -> u64 {
        self.excess.units().min(self.meter.above(self.outstanding, now))
    }

    /// The key as people look at it, as of `now`.
    pub(super) fn status(&self, key: KeyId, times: &ViewTimes, now: Instant) -> OwnedKey {
        let level = self.meter.level_at(now);
        let last = self.records.iter().max_by_key(|(who, record)| (record.reported_at, **who));
        let is_active = |record: &&Record| {
            now.saturating_since(record.reported_at) <= times.ttl_max && record.sequence > 0
        };
        let reporters = self.records.values().filter(is_active).count() as u32;
        let rates = self.records.values().map(|record| record.rates(now));
        let (admitted, denied) =
            rates.fold((0.0, 0.0), |sum, rates| (sum.0 + rates.0, sum.1 + rates.1));
        OwnedKey {
            key,
            limit: self.limit,
            generation: self.generation,
            rate: self.meter.rate(),
            burst: self.meter.burst(),
            level,
            outstanding: self.outstanding,
            remaining: self.meter.burst().saturating_sub(level),
            excess: self.excess_at(now),
            reporters,
            reporter: last.map(|((node, _), _)| *node),
            reported_ago: last.map(|(_, record)| now.saturating_since(record.reported_at)),
            admitted_per_second: admitted,
            denied_per_second: denied,
            is_in_charge: now >= self.held_until,
        }
    }

    /// What there is besides what the first of the queue waits for.
    fn free(&self) -> u64 {
        let first = self.queue.front().and_then(|first| self.records.get(first));
        self.room().saturating_sub(first.map_or(0, Record::need))
    }

    fn room(&self) -> u64 {
        if lacks("outstanding_counts") {
            return self.meter.room(0);
        }
        self.meter.room(self.outstanding)
    }

    fn pressure(&self) -> f64 {
        share::pressure(self.demand, self.meter.level(), self.meter.rate(), self.meter.burst())
    }

    fn cadence_of(&self, who: Who, grounds: &Grounds<'_>) -> Duration {
        let round_trip = self.records.get(&who).map_or(Duration::ZERO, |record| record.round_trip);
        let stretch = grounds.standing.stretch;
        share::cadence(self.pressure(), self.meter.rate(), stretch, round_trip, grounds.times)
    }
}

impl Record {
    /// Whether what it is permitted on its last report reaches it alive.
    fn is_young(&self, now: Instant) -> bool {
        now.saturating_since(self.reported_at) <= self.cadence.saturating_mul(3) / 2
    }

    fn wish(&self) -> Wish {
        Wish { demand: self.demand, asked: self.asked, waiting: self.waiting }
    }
}

impl<'a> Grounds<'a> {
    /// The limit by which something may be permitted at `now`, if any may.
    fn granting(&self, held_until: Instant, now: Instant) -> Option<&'a ViewLimit> {
        let held = now < held_until && !lacks("hold");
        self.limit.filter(|_| !held && now < self.standing.grants_until)
    }

    /// A TTL that ends, on any clock, before this node may no longer let permissions live.
    fn cut(&self, ttl: Duration, now: Instant) -> Duration {
        if lacks("ttl_ends_with_lease") {
            return ttl;
        }
        let left = self.standing.grants_until.saturating_since(now);
        ttl.min(left.saturating_sub(self.times.widened(left).saturating_sub(left)))
    }
}

/// Workers that one key may have.
const RECORDS_MAX: usize = 4_096;
/// A worker that says nothing for so long is forgotten: what it has yet to tell is then told anew,
/// and counted again rather than not at all.
const RECORD_SILENCE: Duration = Duration::from_secs(10);
