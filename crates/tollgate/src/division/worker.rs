//! One member of a key's division: what it was asked for, when it reports, what it enforces.
//!
//! It knows neither cells (the driver tells what was counted, and writes what comes out) nor other
//! members. Reports come at the ticks of a clock that all members of a node share, so that what is
//! due goes together; and at once when a member begins, begins to deny, is asked for after a rest,
//! or was given notably less than it had.

use std::time::Duration;

use crate::division::{Allotment, Demand, GAPS, is_notably_less, trifle_of};
use crate::key::KeyId;
use crate::mutant::lacks;
use crate::policy::{FleetLimitId, ShareLimit};
use crate::ring::RingEpoch;
use crate::share::{Collected, Fuse, InsaneReply, Phase, Reply, ShareOptions};
use crate::shares::{Given, equal_part};
use crate::time::Instant;
use crate::view::{CellEpoch, OwnerEpoch};

/// One member of a key's division.
#[derive(Debug, Clone)]
pub(crate) struct Sharer {
    key: KeyId,
    pub(crate) limit: FleetLimitId,
    stream: u64,
    epoch: CellEpoch,
    /// How often it reports.
    interval: Duration,
    /// What was counted so far, and what of it an owner has heard of, until when.
    totals: Collected,
    heard: Collected,
    heard_at: Instant,
    sequence: u64,
    acked_sequence: u64,
    sent: [Sent; SENT_MAX],
    /// The most that it had since it last reported what it has, and whether that report had
    /// anything to tell.
    had: f64,
    told_nothing: bool,
    /// Units in an interval, as the last report told.
    told_units: f64,
    /// Whether it has denied within the ticks before.
    was_denying: bool,
    /// The last tick whose report told of denials.
    denied_tick: u64,
    /// Whether the last report came with something that had just begun: what it is is known soon.
    follows_up: bool,
    /// The tick by which an answer to the last report should have come.
    answer_by: Option<Instant>,
    fuse: Fuse,
    adopted: (OwnerEpoch, u64),
    ring_epoch: RingEpoch,
    /// What it was given last.
    last: Option<Last>,
    used_at: Instant,
    /// Whether it is to be told to its owner whatever there is to tell.
    is_news: bool,
    /// The tick for which it reported last.
    told_tick: u64,
    /// What a stream told last, and when.
    told: Option<(Told, Instant)>,
}

/// What a stream counted since it told before, and in how long.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    counted: Collected,
    elapsed: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Last {
    rate: f64,
    /// The limit's rate by which it was given.
    of: f64,
    weight: f64,
    used: f64,
    members: u64,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    sequence: u64,
    totals: Collected,
    at: Instant,
}

/// What is to be done with a member whose time has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// It is to be reported.
    Report,
    /// It has rested, and its cell may go.
    Forget,
    /// Nothing yet.
    Wait,
}

/// What people want to know of a member.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SharedKey {
    /// The key.
    pub key: KeyId,
    /// Its limit.
    pub limit: FleetLimitId,
    /// Which member of the node: 0 is the node's own cell, others are streams.
    pub stream: u64,
    /// By what it decides.
    pub phase: Phase,
    /// Units a second that it was given last, and its part of all that was asked for.
    pub rate: f64,
    /// As said for `rate`.
    pub weight: f64,
    /// Units a second that the whole fleet was allowed, as its owner said last.
    pub used: f64,
    /// How many divide the key.
    pub members: u64,
    /// Units that it allowed and denied so far.
    pub allowed: u64,
    /// As said for `allowed`.
    pub denied: u64,
}

impl Sharer {
    /// A member that was just asked for the first time.
    pub(crate) fn new(
        key: KeyId,
        limit: FleetLimitId,
        (stream, epoch): (u64, CellEpoch),
        ring_epoch: RingEpoch,
        options: &ShareOptions,
        now: Instant,
    ) -> Self {
        let nothing = Collected::default();
        Self {
            key,
            limit,
            stream,
            epoch,
            interval: options.interval,
            totals: nothing,
            heard: nothing,
            heard_at: now,
            sequence: 0,
            acked_sequence: 0,
            sent: [Sent { sequence: 0, totals: nothing, at: now }; SENT_MAX],
            had: 0.0,
            told_nothing: true,
            told_units: 0.0,
            was_denying: false,
            denied_tick: 0,
            follows_up: false,
            answer_by: None,
            fuse: Fuse::new(options.failures_max),
            adopted: (OwnerEpoch::NONE, 0),
            ring_epoch,
            last: None,
            used_at: now,
            is_news: true,
            told_tick: 0,
            told: None,
        }
    }

    /// Takes in what was counted since the member began. `stream` has how often a stream reports,
    /// which then reports now: it counts by itself, and knows when.
    pub(crate) fn handle_usage(
        &mut self,
        limit: FleetLimitId,
        totals: Collected,
        stream: Option<Duration>,
        now: Instant,
    ) {
        if limit != self.limit {
            // The key is another limit's now.
            (self.limit, self.is_news) = (limit, true);
        }
        if totals != self.totals {
            self.used_at = now;
        }
        if let Some(interval) = stream {
            (self.interval, self.is_news) = (interval, true);
            let before = self.told.map_or(now, |(_, at)| at);
            let counted = since(totals, self.totals);
            self.told = Some((Told { counted, elapsed: now.saturating_since(before) }, now));
        }
        self.totals = totals;
    }

    /// What is to be done now, when its time comes by `soon`: what is due there goes along.
    pub(crate) fn act(&mut self, options: &ShareOptions, reports: bool, soon: Instant) -> Act {
        if self.answer_by.is_some_and(|by| by <= soon) {
            self.answer_by = None;
            self.is_news = true;
            self.fuse.failed();
        }
        let is_idle = soon.saturating_since(self.used_at) >= options.interval * IDLE_TICKS;
        if !reports {
            let goes = is_idle && self.stream == 0;
            return if goes { Act::Forget } else { Act::Wait };
        }
        if self.wants_report(soon) && self.earliest(options) <= soon {
            return Act::Report;
        }
        if is_idle && self.stream == 0 && self.answer_by.is_none() {
            Act::Forget
        } else {
            Act::Wait
        }
    }

    /// When it is to be looked at next.
    pub(crate) fn due(&self, options: &ShareOptions, reports: bool, now: Instant) -> Instant {
        let rests_at = self.used_at.saturating_add(options.interval * IDLE_TICKS);
        // Not at once again, if its cell was in use after all.
        let rests_at = if rests_at > now { rests_at } else { self.tick_after(now, options) };
        if !reports {
            return if self.stream == 0 { rests_at } else { Instant::MAX };
        }
        let urgent = if self.is_urgent() { self.earliest(options) } else { Instant::MAX };
        // A stream has no ticks of its own.
        let regular = match self.stream {
            0 if self.has_something() => {
                self.start_of(self.told_tick + 1).max(self.earliest(options))
            }
            0 => rests_at,
            _ => Instant::MAX,
        };
        urgent.min(regular).min(self.answer_by.unwrap_or(Instant::MAX))
    }

    /// The next report, as of `now`, when it is sent, for what is due by `soon`.
    pub(crate) fn report(
        &mut self,
        generation: u64,
        options: &ShareOptions,
        now: Instant,
        soon: Instant,
    ) -> Demand {
        self.told_tick = self.tick_of(soon);
        self.follows_up = self.sequence == 0 || self.begins_to_deny() || self.is_back();
        self.sequence += 1;
        let sent = Sent { sequence: self.sequence, totals: self.totals, at: now };
        self.sent[self.sequence as usize % SENT_MAX] = sent;
        // What a stream told is not less since nothing was told after it.
        let told = self.told.map(|(told, _)| (told.counted, told.elapsed));
        let (since, elapsed) = told.unwrap_or_else(|| {
            (since(self.totals, self.heard), now.saturating_since(self.heard_at))
        });
        if since.denied > 0 {
            (self.was_denying, self.denied_tick) = (true, self.told_tick);
        }
        // One report may be of a tenth of a tick, in which who denies at times does not.
        let is_of_before = self.told_tick > self.denied_tick + 1;
        if is_of_before || lacks("share_denying_is_of_a_whole_tick") {
            self.was_denying = since.denied > 0;
        }
        // A whole interval of nothing, so that its owner need not wonder.
        let is_resting = now.saturating_since(self.used_at) >= self.interval;
        self.told_nothing = since.is_empty() && is_resting;
        let units = since.allowed.saturating_add(since.denied) as f64;
        let seconds = elapsed.max(options.elapsed_min).as_secs_f64();
        self.told_units = units * (self.interval.as_secs_f64() / seconds);
        self.had = self.holds();
        self.is_news = false;
        let answer_by = self.tick_after(soon, options);
        self.answer_by = Some(self.answer_by.unwrap_or(answer_by));
        Demand {
            key: self.key,
            limit: self.limit,
            generation,
            stream: self.stream,
            epoch: self.epoch,
            sequence: self.sequence,
            allowed: since.allowed,
            denied: since.denied,
            elapsed,
            interval: self.interval,
            holds: self.had,
            is_last: false,
        }
    }

    /// The report of a member that is one no longer.
    pub(crate) fn farewell(&mut self, options: &ShareOptions, now: Instant) -> Demand {
        Demand { is_last: true, ..self.report(0, options, now, now) }
    }

    /// Adopts what the owner gives, if it is news of this member and can be true. Returns whether
    /// what the member enforces changed.
    ///
    /// # Errors
    /// When it cannot be true; nothing of it is adopted.
    pub(crate) fn handle_allotment(
        &mut self,
        given: &Allotment,
        owner_epoch: OwnerEpoch,
        limit: &ShareLimit,
    ) -> Result<bool, InsaneReply> {
        let is_mine = given.epoch == self.epoch && owner_epoch.ring == self.ring_epoch;
        let is_news = (owner_epoch, given.version) > self.adopted;
        let is_of_limit = given.generation == limit.generation;
        if !is_mine || !is_news || !is_of_limit || given.ack_sequence > self.sequence {
            return Ok(false);
        }
        let Allotment { rate, weight, used, .. } = *given;
        Reply { rate, weight, used }.check(limit.rate.per_second())?;
        self.adopted = (owner_epoch, given.version);
        self.acknowledge(given.ack_sequence);
        let before = (self.fuse.phase(), self.holds());
        self.fuse.succeeded();
        let of = limit.rate.per_second();
        self.last = Some(Last { rate, of, weight, used, members: given.members });
        // What was given up is somebody else's once the owner knows that it was.
        let is_less = is_notably_less(rate, self.had, trifle_of(of, given.members));
        if !lacks("share_less_than_it_had_is_confirmed") {
            self.had = self.had.max(rate);
        }
        if is_less && !lacks("share_less_is_confirmed") {
            self.is_news = true;
        }
        Ok(before != (self.fuse.phase(), self.holds()))
    }

    /// The ring has changed: another owner has heard of nothing yet.
    pub(crate) fn handle_ring(&mut self, ring_epoch: RingEpoch, start: u64) {
        if self.sequence == 0 {
            self.epoch.start = start;
        }
        self.ring_epoch = ring_epoch;
        self.answer_by = None;
        self.is_news = true;
    }

    /// The limit has so many units a second now: what was given is as much more, and its owner is
    /// to know that it is in force.
    pub(crate) fn rescale(&mut self, per_second: f64) {
        let Some(last) = &mut self.last else { return };
        if last.of == per_second || lacks("share_a_changed_rate_is_told") {
            return;
        }
        *last = Last { rate: last.rate_of(per_second), of: per_second, ..*last };
        self.is_news = true;
    }

    /// The limit is not reported any more: what was given is void.
    pub(crate) fn reset(&mut self) {
        self.fuse.reset();
        self.last = None;
        self.answer_by = None;
        self.is_news = true;
    }

    /// What its cell has from now on, among so many nodes.
    pub(crate) fn given(&self, limit: &ShareLimit, nodes: u64) -> Given {
        let per_second = limit.rate.per_second();
        let (local, local_burst) = equal_part(per_second, limit.burst, nodes);
        let phase = if limit.mode.reports() { self.fuse.phase() } else { Phase::StartUp };
        let global = match (phase, self.last) {
            (Phase::StartUp, _) | (_, None) => None,
            (Phase::Normal | Phase::Failing, Some(last)) => {
                let rate = last.rate_of(per_second);
                Some((rate, burst_of(limit.burst, rate / per_second, last.members)))
            }
        };
        Given { local, local_burst, global, is_global_sound: phase == Phase::Normal }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.fuse.phase()
    }

    /// The rate that it has by its owner's word, and until it was last heard; none before.
    pub(crate) fn rate(&self, per_second: f64) -> Option<f64> {
        self.last.map(|last| last.rate_of(per_second))
    }

    pub(crate) fn status(&self) -> SharedKey {
        let Last { rate, weight, used, members, .. } =
            self.last.unwrap_or(Last { rate: 0.0, of: 1.0, weight: 0.0, used: 0.0, members: 0 });
        SharedKey {
            key: self.key,
            limit: self.limit,
            stream: self.stream,
            phase: self.fuse.phase(),
            // Its last bits are for the owner, not for people.
            rate: (rate * 1e6).round() / 1e6,
            weight,
            used,
            members,
            allowed: self.totals.allowed,
            denied: self.totals.denied,
        }
    }

    /// The rate that it enforces by an owner's word.
    fn holds(&self) -> f64 {
        match (self.fuse.phase(), self.last) {
            (Phase::Normal, Some(last)) => last.rate,
            _ => 0.0,
        }
    }

    fn acknowledge(&mut self, sequence: u64) {
        if sequence <= self.acked_sequence {
            return;
        }
        self.acked_sequence = sequence;
        if sequence == self.sequence {
            self.answer_by = None;
        }
        let sent = self.sent[sequence as usize % SENT_MAX];
        if sent.sequence == sequence {
            (self.heard, self.heard_at) = (sent.totals, sent.at);
        }
    }

    fn since_told(&self) -> Collected {
        since(self.totals, self.sent[self.sequence as usize % SENT_MAX].totals)
    }

    /// Whether the next tick finds something to tell: usage, or that there is none any more.
    fn has_something(&self) -> bool {
        self.is_news || !self.told_nothing || !self.since_told().is_empty()
    }

    /// Whether it is not to wait for the next tick.
    fn is_urgent(&self) -> bool {
        if self.stream != 0 {
            // It says when it has counted.
            return self.is_news;
        }
        let since = self.since_told();
        // More in a part of an interval than in a whole one is known before the whole has passed.
        let units = since.allowed.saturating_add(since.denied) as f64;
        let is_more = since.denied > 0 && units > self.told_units * MORE;
        let has_begun = self.begins_to_deny() || self.is_back() || self.follows_up;
        self.is_news || has_begun || is_more
    }

    fn begins_to_deny(&self) -> bool {
        let denies = self.since_told().denied > 0;
        denies && !self.was_denying && !lacks("share_denying_is_told_at_once")
    }

    /// Whether it is asked for after it had told that it was not.
    fn is_back(&self) -> bool {
        self.told_nothing && !self.since_told().is_empty()
    }

    fn wants_report(&self, soon: Instant) -> bool {
        self.is_urgent() || (self.has_something() && self.tick_of(soon) > self.told_tick)
    }

    /// Not sooner than this after the last report.
    fn earliest(&self, options: &ShareOptions) -> Instant {
        if self.sequence == 0 {
            return Instant::ZERO;
        }
        let last = self.sent[self.sequence as usize % SENT_MAX].at;
        last.saturating_add(options.interval / GAPS)
    }

    fn tick_of(&self, at: Instant) -> u64 {
        at.as_nanos() / (self.interval.as_nanos() as u64).max(1)
    }

    /// The next tick after `now`; of a stream an interval and a half later, since its clock is
    /// another's.
    fn tick_after(&self, now: Instant, options: &ShareOptions) -> Instant {
        if self.stream != 0 {
            return now.saturating_add(self.interval.max(options.interval) * 3 / 2);
        }
        self.start_of(self.tick_of(now) + 1)
    }

    fn start_of(&self, tick: u64) -> Instant {
        let interval = (self.interval.as_nanos() as u64).max(1);
        Instant::from_nanos(tick.saturating_mul(interval))
    }
}

impl Last {
    /// The rate when the limit has so many units a second: it is in force at once.
    fn rate_of(self, per_second: f64) -> f64 {
        if self.of > 0.0 { self.rate * (per_second / self.of) } else { 0.0 }
    }
}

/// What came between two totals.
fn since(totals: Collected, before: Collected) -> Collected {
    Collected {
        allowed: totals.allowed.saturating_sub(before.allowed),
        denied: totals.denied.saturating_sub(before.denied),
    }
}

/// The burst of a member with this part of the rate: as much of the limit's, and no less than an
/// equal part, so that demand that comes suddenly finds something until it is known.
fn burst_of(burst: u64, part: f64, members: u64) -> u64 {
    let equal = 1.0 / members.max(1) as f64;
    ((burst as f64 * part.max(equal).min(1.0)) as u64).max(1)
}

/// A member that was not asked for in so many ticks is forgotten.
const IDLE_TICKS: u32 = 5;
/// Of what a whole interval is expected to bring, so much more says that demand has grown.
const MORE: f64 = 1.5;
/// Reports that are remembered until they are answered.
const SENT_MAX: usize = 4;
