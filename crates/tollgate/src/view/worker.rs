//! One key on a worker: what it spent, what it may spend, when it reports.
//!
//! It knows nothing of cells (the driver tells what they hold, and writes what comes out into them)
//! and nothing of the other keys of its owner (`report` batches). Rules 1, 2, 4 and 5.

use std::time::Duration;

use crate::credits::{Drained, Permit};
use crate::key::KeyId;
use crate::mutant::lacks;
use crate::policy::{FleetLimitId, TTL_CADENCES, ViewLimit};
use crate::ring::{NodeId, RingEpoch};
use crate::time::Instant;
use crate::view::status::SpentKey;
use crate::view::{CellEpoch, OwnerEpoch, Report, Snapshot, Stamp, ViewTimes};

/// What a key's cell holds, and who waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The key's limit.
    pub limit: FleetLimitId,
    /// The cell, as it was drained.
    pub drained: Drained,
    /// Positions that were taken as returned since the last time.
    pub returned: u64,
    /// The cost of the first request that waits for credit; 0 if none does.
    pub waiting: u64,
    /// Whether it waits for a moment only, as those will that come after it: what they do not use
    /// at once is kept for them, while there is enough for others.
    pub is_brief: bool,
    /// The cost of a request that was refused since the last time and did not wait; 0 if none was.
    pub refused: u64,
}

/// One key on a worker.
#[derive(Debug, Clone)]
pub(crate) struct View {
    key: KeyId,
    pub(crate) limit: FleetLimitId,
    cell_epoch: CellEpoch,
    /// Where and when the cell began, for people.
    began: (u64, Instant),
    taken: u64,
    returned: u64,
    refunded: u64,
    denied: u64,
    waiting: u64,
    refused: u64,
    /// Of the refunds, those of which an owner has heard.
    refunds_known: u64,
    /// If there are refunds of which the owner is not known to have heard.
    refunds: Option<Refunds>,
    floor: u64,
    ceiling: u64,
    deadline: Instant,
    ring_epoch: RingEpoch,
    /// The highest acknowledged total of this ring epoch, or the total when it was adopted.
    base: u64,
    adopted: (OwnerEpoch, u64),
    /// When the last snapshot was adopted, and when it was made.
    adopted_at: Option<(Instant, Stamp)>,
    sequence: u64,
    /// The highest sequence that was acknowledged.
    acked_sequence: u64,
    /// The last reports that were sent: their sequences and when.
    sent: [(u64, Instant); SENT_MAX],
    /// What the last report told.
    told: Told,
    cadence: Duration,
    /// What the whole fleet had left when the owner was heard, and what of it nobody was permitted.
    remaining: u64,
    free: u64,
    /// How long the last permission was to live.
    ttl: Duration,
    used_at: Instant,
    keeps: Keeps,
}

/// How long what is not used is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keeps {
    /// Callers that do not wait should find what the last of them did not.
    UntilOver,
    /// Those who wait for a moment should not have to, unless others lack it.
    WhileFree,
    /// Those who wait for long can have it back when they come.
    WhileUsed,
}

#[derive(Debug, Clone, Copy)]
struct Refunds {
    /// An instant before the oldest charge behind them; `None` if no one clock tells it.
    since: Option<Stamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    taken: u64,
    refunded: u64,
    denied: u64,
    /// Whether somebody waited: the owner is to know when nobody does any more.
    waited: bool,
}

impl Told {
    /// No totals are these.
    const NOTHING: Self =
        Self { taken: u64::MAX, refunded: u64::MAX, denied: u64::MAX, waited: false };
}

/// What is to be done with a key whose time has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// It is to be reported.
    Report,
    /// Its cell is to return what it has; it is reported when the cell has.
    Return(Permit),
    /// It has said all, and holds nothing: its cell may go.
    Forget,
    /// Nothing yet.
    Wait,
}

impl View {
    /// A cell that has just begun at position `base`.
    pub(crate) fn new(
        key: KeyId,
        limit: FleetLimitId,
        cell_epoch: CellEpoch,
        base: u64,
        ring_epoch: RingEpoch,
        now: Instant,
    ) -> Self {
        Self {
            key,
            limit,
            cell_epoch,
            began: (base, now),
            taken: base,
            returned: 0,
            refunded: 0,
            denied: 0,
            waiting: 0,
            refused: 0,
            refunds_known: 0,
            refunds: None,
            floor: base,
            ceiling: base,
            deadline: Instant::ZERO,
            ring_epoch,
            base,
            adopted: (OwnerEpoch::NONE, 0),
            adopted_at: None,
            sequence: 0,
            acked_sequence: 0,
            sent: [(0, Instant::ZERO); SENT_MAX],
            told: Told { taken: base, refunded: 0, denied: 0, waited: false },
            cadence: Duration::ZERO,
            remaining: 0,
            free: 0,
            ttl: Duration::ZERO,
            used_at: now,
            keeps: Keeps::UntilOver,
        }
    }

    /// Permits the limit's bootstrap allowance, if it has one.
    pub(crate) fn bootstrap(
        &mut self,
        limit: &ViewLimit,
        times: &ViewTimes,
        now: Instant,
    ) -> Option<Permit> {
        if limit.bootstrap == 0 {
            return None;
        }
        self.ceiling = self.base + limit.bootstrap;
        self.deadline = now.saturating_add(times.ttl_max);
        self.remaining = limit.bootstrap;
        Some(self.permission(times))
    }

    /// Takes in what the cell holds. The process last stood still until `resumed`. Returns the
    /// units that may have been spent when their permission was over.
    pub(crate) fn handle_usage(
        &mut self,
        usage: &Usage,
        times: &ViewTimes,
        resumed: Instant,
        now: Instant,
    ) -> u64 {
        let Drained { taken, denied, refund, .. } = usage.drained;
        debug_assert!(taken >= self.taken);
        debug_assert!(denied >= self.denied);
        let walked = taken - self.taken;
        debug_assert!(usage.returned <= walked);
        let is_late = self.used_at < resumed && self.deadline <= now;
        let late = if is_late && !lacks("late_is_counted") { walked - usage.returned } else { 0 };
        if walked > usage.returned || denied > self.denied || usage.waiting > 0 {
            self.used_at = now;
        }
        if usage.limit != self.limit {
            // The key is another limit's now, and so are its positions: its owner is to know.
            self.limit = usage.limit;
            self.told = Told::NOTHING;
        }
        self.taken = taken;
        self.returned += usage.returned;
        self.remaining = self.remaining.saturating_sub(walked.saturating_sub(usage.returned));
        self.denied = denied;
        self.waiting = usage.waiting;
        if usage.refused > 0 {
            self.refused = usage.refused;
            self.keeps = Keeps::UntilOver;
        }
        if usage.waiting > 0 {
            self.keeps = if usage.is_brief { Keeps::WhileFree } else { Keeps::WhileUsed };
        }
        if let Some((units, charged_at)) = refund {
            self.refund(units, charged_at, times, now);
        }
        late
    }

    fn refund(&mut self, units: u64, charged_at: Instant, times: &ViewTimes, now: Instant) {
        debug_assert!(charged_at <= now);
        self.refunded += units;
        // The owner's clock at the last snapshot, less the time from the charge to its adoption:
        // the snapshot was made before it was adopted.
        let since = self.adopted_at.map(|(adopted_at, stamp)| {
            let before = times.widened(adopted_at.saturating_since(charged_at));
            Stamp { at: stamp.at.saturating_sub(before), ..stamp }
        });
        let since = match (self.refunds, since) {
            (None, since) => since,
            (Some(Refunds { since: Some(_) }), Some(since)) if lacks("oldest_refund") => {
                Some(since)
            }
            (Some(Refunds { since: Some(older) }), Some(since)) if older.start == since.start => {
                Some(Stamp { at: older.at.min(since.at), ..since })
            }
            (Some(_), _) => None,
        };
        self.refunds = Some(Refunds { since });
    }

    /// Adopts what the owner says, if it is news of this cell. Returns what is to be written into
    /// the cell.
    pub(crate) fn handle_snapshot(
        &mut self,
        snapshot: &Snapshot,
        owner_epoch: OwnerEpoch,
        limit: Option<&ViewLimit>,
        times: &ViewTimes,
        now: Instant,
    ) -> Option<Permit> {
        if snapshot.cell_epoch != self.cell_epoch && !lacks("cell_epoch_in_snapshots") {
            return None;
        }
        if owner_epoch.ring != self.ring_epoch && !lacks("equal_ring_epoch") {
            return None;
        }
        if (owner_epoch, snapshot.version) <= self.adopted && !lacks("snapshots_in_order") {
            return None;
        }
        // What was said of another life of the cell makes no sense of this one either.
        if !self.is_sane(snapshot) && !lacks("cell_epoch_in_snapshots") {
            return None;
        }
        self.adopted = (owner_epoch, snapshot.version);
        self.adopted_at = Some((now, Stamp { start: owner_epoch.start, at: snapshot.stamp }));
        self.base = self.base.max(snapshot.acked);
        self.cadence = snapshot.cadence.max(times.sync_interval).min(times.cadence_max());
        self.acked_sequence = self.acked_sequence.max(snapshot.ack_sequence);
        // What the acknowledged report told of refunds is known.
        if self.is_heard() && self.told.refunded != u64::MAX {
            self.refunds_known = self.told.refunded;
            if self.refunds_known == self.refunded {
                self.refunds = None;
            }
        }
        let is_known = limit.is_some_and(|limit| limit.generation == snapshot.generation);
        if !is_known && !lacks("known_generation") {
            return None;
        }
        // A permission whose time is over was taken for spent by its owner.
        let is_returned = now >= self.deadline && !lacks("expired_returns");
        let expired = if is_returned { self.ceiling } else { 0 };
        let old_floor = self.floor;
        (self.remaining, self.free) = (snapshot.remaining, snapshot.free);
        self.floor = self.floor.max(snapshot.floor).max(expired);
        if lacks("floor_is_taken") {
            self.floor = old_floor;
        }
        let granted = snapshot.ceiling > self.ceiling;
        self.ceiling = self.ceiling.max(snapshot.ceiling);
        if lacks("ceiling_never_cut_here") {
            self.ceiling = snapshot.ceiling;
        }
        let sent_at = if lacks("deadline_since_sent") {
            Some(now)
        } else {
            self.sent_at(snapshot.ack_sequence)
        };
        if let Some(sent_at) = sent_at {
            let ttl = snapshot.ttl.min(times.ttl_max);
            self.deadline = self.deadline.max(sent_at.saturating_add(ttl));
            self.ttl = if ttl.is_zero() { self.ttl } else { ttl };
        }
        if granted {
            self.refused = 0;
        }
        Some(self.permission(times))
    }

    /// Whether an owner may have said so of this cell. Positions run out, so that no wrong number
    /// may move it on.
    fn is_sane(&self, snapshot: &Snapshot) -> bool {
        let known = self.ceiling.max(self.taken);
        snapshot.acked <= self.taken
            && snapshot.floor <= snapshot.ceiling
            && snapshot.ceiling.saturating_sub(known) <= AHEAD_MAX
    }

    /// The ring has changed. What is spent from now on is this ring's owner's business, and what an
    /// owner before has not acknowledged is told again: it may have handed the key over.
    pub(crate) fn handle_ring(&mut self, ring_epoch: RingEpoch, start: u64) {
        // Nobody has heard of a cell that began before the first ring.
        if self.sequence == 0 {
            self.cell_epoch.start = start;
        }
        let is_settled = self.is_heard() && self.told == self.totals() && !self.holds();
        self.ring_epoch = ring_epoch;
        self.base = self.taken;
        if !is_settled {
            self.told = Told::NOTHING;
        }
    }

    /// The next report, as of `now`, when it is sent.
    pub(crate) fn report(&mut self, generation: u64, times: &ViewTimes, now: Instant) -> Report {
        self.sequence += 1;
        self.sent[self.sequence as usize % SENT_MAX] = (self.sequence, now);
        self.told = self.totals();
        let waiting = self.wants(times, now);
        Report {
            key: self.key,
            limit: self.limit,
            generation,
            cell_epoch: self.cell_epoch,
            sequence: self.sequence,
            taken: self.taken,
            returned: self.returned,
            refunded: self.refunded,
            refund_news: self.refunded - self.refunds_known,
            refund_since: self.refunds.and_then(|refunds| refunds.since),
            denied: self.denied,
            waiting,
            base: self.base,
        }
    }

    /// What is to be done now, when its time has come. `is_known` says whether its limit is.
    pub(crate) fn act(&mut self, is_known: bool, times: &ViewTimes, now: Instant) -> Act {
        let rested = now.saturating_since(self.used_at) >= FORGET_AFTER;
        if !is_known && rested && !self.holds() {
            // Its limit is gone, and may be gone where it is owned: nobody may answer any more.
            return Act::Forget;
        }
        if self.is_renewed(times, now) {
            return Act::Report;
        }
        if self.holds() && self.is_over(times, now) && !lacks("expired_returns") {
            // Whoever comes next may have it again.
            let returned = self.ceiling - self.taken.max(self.floor);
            self.free = self.free.saturating_add(returned);
            self.floor = self.ceiling;
            return Act::Return(self.permission(times));
        }
        if self.is_dirty(times, now) {
            return Act::Report;
        }
        if rested && !self.holds() && self.refunds.is_none() {
            return Act::Forget;
        }
        Act::Wait
    }

    /// When it is to be looked at next: when its next report is due, or its permission is over, or
    /// its cell may go.
    pub(crate) fn due(
        &self,
        limit: Option<&ViewLimit>,
        times: &ViewTimes,
        now: Instant,
    ) -> Instant {
        let last = self.last_sent();
        let regular = last.saturating_add(self.cadence.max(times.sync_interval));
        if self.is_dirty(times, now) {
            let soon = last.saturating_add(times.sync_interval / 2);
            // A hot key of which everything is permitted to somebody is asked for often enough: to
            // hurry would double the messages and get nobody more.
            let is_known = self.adopted_at.is_some();
            let is_vain = is_known && self.free == 0 && self.cadence <= times.sync_interval;
            let hurries = self.is_short(limit) && !is_vain;
            return if hurries { soon } else { regular };
        }
        if self.holds() && !(now >= self.deadline && lacks("expired_returns")) {
            if !self.keeps_unused() {
                return self.used_at.saturating_add(times.sync_interval).min(self.deadline);
            }
            let renewal = self.renewed_from(times);
            return if now < renewal { renewal } else { self.deadline };
        }
        let rests_since = if lacks("expired_returns") { now } else { self.used_at };
        rests_since.saturating_add(FORGET_AFTER)
    }

    /// Whether there is something that the owner has not been told, or is to be told again.
    fn is_dirty(&self, times: &ViewTimes, now: Instant) -> bool {
        self.told != self.totals() || !self.is_heard() || self.wants(times, now) > 0
    }

    /// The cost that waits, or that was refused so lately that another like it may come.
    fn wants(&self, times: &ViewTimes, now: Instant) -> u64 {
        if self.waiting > 0 {
            return self.waiting;
        }
        let lately = now.saturating_since(self.used_at) < times.ttl_max;
        if lately { self.refused } else { 0 }
    }

    /// Whether its credit would end before the next snapshot comes by itself.
    fn is_short(&self, limit: Option<&ViewLimit>) -> bool {
        let left_waiting = self.told.waited && self.waiting == 0;
        if self.waiting > 0 || left_waiting || self.denied != self.told.denied || self.sequence == 0
        {
            return true;
        }
        let used = self.taken.saturating_sub(self.told.taken);
        let many = |limit: &ViewLimit| used >= REPORT_UNITS.min(limit.local_cap.div_ceil(2));
        let left = self.ceiling.saturating_sub(self.taken);
        // What is spent only leaks once it is told.
        used > 0 && left == 0 || limit.is_some_and(many) && left <= used
    }

    /// Whether what it holds goes back: its time is over, or nobody wants it.
    fn is_over(&self, times: &ViewTimes, now: Instant) -> bool {
        let idle = now.saturating_since(self.used_at) >= times.sync_interval;
        now >= self.deadline || (idle && self.waiting == 0 && !self.keeps_unused())
    }

    fn keeps_unused(&self) -> bool {
        match self.keeps {
            Keeps::UntilOver => true,
            Keeps::WhileFree => self.free > 0,
            Keeps::WhileUsed => false,
        }
    }

    /// Whether it is time to ask that what it keeps may live on.
    fn is_renewed(&self, times: &ViewTimes, now: Instant) -> bool {
        let lately = now.saturating_since(self.used_at) < self.ttl * KEEPS_TTLS;
        self.keeps_unused()
            && lately
            && self.holds()
            && now >= self.renewed_from(times)
            && now < self.deadline
            && self.last_sent() < self.renewed_from(times)
    }

    fn renewed_from(&self, times: &ViewTimes) -> Instant {
        self.deadline.saturating_sub(self.cadence.max(times.sync_interval) * 2)
    }

    fn holds(&self) -> bool {
        self.taken < self.ceiling
    }

    /// Whether the last report was acknowledged.
    fn is_heard(&self) -> bool {
        self.sequence > 0 && self.acked_sequence >= self.sequence
    }

    fn totals(&self) -> Told {
        Told {
            taken: self.taken,
            refunded: self.refunded,
            denied: self.denied,
            waited: self.waiting > 0,
        }
    }

    fn permission(&self, times: &ViewTimes) -> Permit {
        let Self { floor, ceiling, deadline, remaining, free, .. } = *self;
        let heard_at = self.adopted_at.map_or(Instant::ZERO, |(at, _)| at);
        let word_until = heard_at.saturating_add(times.sync_interval * TTL_CADENCES);
        Permit { floor, ceiling, deadline, remaining, free, word_until }
    }

    fn sent_at(&self, sequence: u64) -> Option<Instant> {
        let (known, at) = self.sent[sequence as usize % SENT_MAX];
        (known == sequence && sequence > 0).then_some(at)
    }

    fn last_sent(&self) -> Instant {
        self.sent_at(self.sequence).unwrap_or(Instant::ZERO)
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// The key as people look at it, as of `now`.
    pub(crate) fn status(&self, owner: Option<NodeId>, now: Instant) -> SpentKey {
        let (base, began_at) = self.began;
        let spent = (self.taken - base).saturating_sub(self.returned);
        SpentKey {
            key: self.key,
            limit: self.limit,
            owner,
            spent: spent.saturating_sub(self.refunded),
            denied: self.denied,
            age: now.saturating_since(began_at),
            credit: self.ceiling.saturating_sub(self.taken),
            credit_for: self.deadline.saturating_since(now),
            waiting: self.waiting,
            heard_ago: self.adopted_at.map(|(at, _)| now.saturating_since(at)),
        }
    }
}

/// Reports whose time of sending is remembered; an older one's acknowledgement permits nothing.
const SENT_MAX: usize = 8;
/// Units after which a report may come forward.
const REPORT_UNITS: u64 = 32;
/// Units that an owner may have permitted since the last snapshot that came: of 2^62 positions.
const AHEAD_MAX: u64 = 1 << 48;
/// For how many TTLs credit is kept for callers that do not wait, since the last one came.
const KEEPS_TTLS: u32 = 5;
/// How long a key rests before its cell goes.
const FORGET_AFTER: Duration = Duration::from_secs(1);
