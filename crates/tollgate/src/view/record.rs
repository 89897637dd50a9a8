//! What an owner remembers of one cell of one worker, and how a report moves it.
//!
//! A line of positions: below `acked` known to be taken, below `floor` counted as spent, below
//! `ceiling` permitted until `expiry`. None of them ever goes down. Rules 1 to 5.

use std::time::Duration;

use crate::mutant::lacks;
use crate::time::Instant;
use crate::view::meter::Meter;
use crate::view::{Report, Stamp};

/// One cell of one worker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Record {
    pub(super) sequence: u64,
    /// The highest `taken` that a report told.
    pub(super) acked: u64,
    pub(super) returned: u64,
    pub(super) refunded: u64,
    pub(super) denied: u64,
    pub(super) floor: u64,
    pub(super) ceiling: u64,
    pub(super) expiry: Instant,
    /// When the oldest positions below `floor` that no report has told yet entered the level.
    pub(super) floor_since: Instant,
    /// The highest acknowledged total that the worker has shown to know.
    pub(super) base: u64,
    pub(super) reported_at: Instant,
    /// Units a second that it asks for, admitted and refused.
    pub(super) demand: f64,
    /// Units a second that were admitted and refused lately, for people.
    pub(super) admitted: f64,
    pub(super) refused: f64,
    /// Units that it asked for between its last two reports.
    pub(super) asked: u64,
    /// What it waits for; 0 if it doesn't.
    pub(super) waiting: u64,
    /// Whether it knows the limit as it is here.
    pub(super) is_current: bool,
    pub(super) round_trip: Duration,
    /// How often it was told to report.
    pub(super) cadence: Duration,
    /// Whether all that is known of it came late, after a later batch: it may have been told
    /// before.
    pub(super) is_doubtful: bool,
    /// Whether it has a place in the key's queue.
    pub(super) queued: bool,
    /// When the owner's agenda comes to it.
    pub(super) listed: Option<Instant>,
}

impl Record {
    /// The record of a cell that is unknown here: what is above the report's base is news.
    pub(super) fn unknown(report: &Report, now: Instant) -> Self {
        let base = if lacks("baseline") { report.taken } else { report.base };
        let base = base.min(POSITIONS_MAX);
        // What the cell gave back and refused before is not told anew.
        Self {
            sequence: 0,
            acked: base,
            returned: report.returned,
            refunded: report.refunded,
            // The first report of a cell tells of nothing that is old.
            denied: if report.sequence > 1 { report.denied } else { 0 },
            floor: base,
            ceiling: base,
            expiry: Instant::ZERO,
            floor_since: Instant::ZERO,
            base,
            reported_at: now,
            demand: 0.0,
            admitted: 0.0,
            refused: 0.0,
            asked: 0,
            waiting: 0,
            is_current: true,
            round_trip: Duration::ZERO,
            cadence: Duration::ZERO,
            is_doubtful: false,
            queued: false,
            listed: None,
        }
    }

    /// Units that are permitted and not known to be spent.
    pub(super) fn outstanding(&self) -> u64 {
        self.ceiling.saturating_sub(self.acked.max(self.floor))
    }

    /// What it still lacks for the cost that waits.
    pub(super) fn need(&self) -> u64 {
        self.waiting.saturating_sub(self.outstanding())
    }

    /// Permits more.
    pub(super) fn grant(&mut self, units: u64) {
        self.ceiling = self.ceiling.max(self.acked).max(self.floor).saturating_add(units);
    }

    /// Assumes what is outstanding to be spent, if its time is over. Returns how much that was.
    pub(super) fn expire(&mut self, meter: &mut Meter, now: Instant) -> u64 {
        let outstanding = self.outstanding();
        if now < self.expiry || outstanding == 0 {
            return 0;
        }
        if lacks("assumed_spent") {
            self.ceiling = self.acked.max(self.floor);
            return outstanding;
        }
        let entered = meter.add(outstanding, now);
        if self.acked >= self.floor || lacks("oldest_expiry") {
            self.floor_since = entered;
        }
        self.floor = self.ceiling;
        outstanding
    }

    /// Applies what a report tells beyond the last one, if it is the latest. `start` is this
    /// owner's process.
    pub(super) fn apply(
        &mut self,
        report: &Report,
        start: u64,
        meter: &mut Meter,
        now: Instant,
    ) -> Applied {
        if report.sequence <= self.sequence {
            return Applied::default();
        }
        // What of it came back since the base is not told to an owner that knew nothing.
        let came_back = if self.sequence == 0 { report.returned } else { 0 };
        self.sequence = report.sequence;
        let taken = report.taken.min(POSITIONS_MAX).max(self.acked);
        let returned = report.returned.saturating_sub(self.returned);
        // A record that a late repetition has brought back knows less than was told.
        let refunded = report.refunded.saturating_sub(self.refunded).min(report.refund_news);
        // Positions below the floor are in the level already.
        let known = self.acked.max(self.floor);
        let fresh = taken.saturating_sub(known);
        let below = taken.min(self.floor).saturating_sub(self.acked.min(self.floor));
        // A position that was returned was taken in the same breath: it is matched to those below
        // the floor first, for which less comes back.
        let matched = if lacks("floor_matched_first") { 0 } else { returned };
        let returned_below = matched.min(below);
        let returned_fresh = (returned - returned_below).min(fresh);
        let spent = fresh - returned_fresh;
        let unpermitted = spent.saturating_sub(self.outstanding()).saturating_sub(came_back);
        if spent > 0 {
            meter.add(spent, now);
        }
        if lacks("only_returns_correct") && taken < self.floor {
            meter.lower(self.floor - taken, self.floor_since, now);
        }
        if returned_below > 0 {
            meter.lower(returned_below, self.floor_since, now);
        }
        if refunded > 0 {
            // Another owner's clock may be anywhere.
            let is_mine = |stamp: &Stamp| stamp.start == start || lacks("refunds_by_one_clock");
            let since = report.refund_since.filter(is_mine).map_or(Instant::ZERO, |stamp| stamp.at);
            let since = if lacks("refund_since") { now } else { since };
            meter.lower(refunded, since, now);
        }
        self.measure(report, taken, returned, now);
        self.acked = taken;
        self.returned = self.returned.max(report.returned);
        self.refunded = self.refunded.max(report.refunded);
        self.denied = self.denied.max(report.denied);
        self.base = self.base.max(report.base);
        // What is above the burst would wait for ever.
        self.waiting = if report.waiting > meter.burst() { 0 } else { report.waiting };
        self.reported_at = now;
        Applied { spent, unpermitted }
    }

    /// Moves the average of what it asks for towards what it asked for since the last report.
    fn measure(&mut self, report: &Report, taken: u64, returned: u64, now: Instant) {
        let spent = (taken - self.acked).saturating_sub(returned);
        let seconds = now.saturating_since(self.reported_at).as_secs_f64();
        let refused = report.denied.saturating_sub(self.denied);
        self.asked = spent.saturating_add(refused);
        self.admitted = lately(self.admitted, spent, seconds);
        self.refused = lately(self.refused, refused, seconds);
        if seconds < SAMPLE_SECONDS_MIN {
            return;
        }
        // Half of what is new, more of it after a long silence.
        let weight = (seconds / (seconds + HALF_LIFE_SECONDS)).max(0.5);
        self.demand += (self.asked as f64 / seconds - self.demand) * weight;
    }

    /// Units a second that were admitted and refused lately, as of `now`.
    pub(super) fn rates(&self, now: Instant) -> (f64, f64) {
        let seconds = now.saturating_since(self.reported_at).as_secs_f64();
        (lately(self.admitted, 0, seconds), lately(self.refused, 0, seconds))
    }

    /// Whether nothing is lost when it is forgotten at `now`.
    pub(super) fn is_settled(&self, now: Instant) -> bool {
        now >= self.expiry && self.outstanding() == 0 && self.base >= self.acked.max(self.floor)
    }
}

/// What a report told that was news.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Applied {
    /// Units that were spent.
    pub(super) spent: u64,
    /// Those of them, at least, that this owner had not permitted.
    pub(super) unpermitted: u64,
}

/// Where lines of positions end: no honest worker comes so far.
pub(super) const POSITIONS_MAX: u64 = 1 << 62;
/// Reports that come closer together than this tell no rate.
const SAMPLE_SECONDS_MIN: f64 = 0.000_5;
const HALF_LIFE_SECONDS: f64 = 0.05;
/// Over how long rates that people look at are averaged.
const LATELY_SECONDS: f64 = 2.0;

/// A rate that has so many units more after so long: what is steady is told as it is, however often
/// and how evenly it is told.
fn lately(rate: f64, units: u64, seconds: f64) -> f64 {
    (rate + units as f64 / LATELY_SECONDS) / (1.0 + seconds / LATELY_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three nodes that told of one request in 140 ms each, in turn and at all distances, were said
    /// to admit 160 a second.
    #[test]
    fn a_steady_rate_is_told_as_it_is_however_unevenly_it_is_reported() {
        let (mut rate, mut told, mut at) = (0.0, 0_u64, 0.0_f64);
        for step in 0..400 {
            let gap = [0.002, 0.1, 0.0, 0.037, 0.35][step % 5];
            at += gap;
            let due = (at * 7.1) as u64;
            rate = lately(rate, due - told, gap);
            told = due;
            if at > 10.0 {
                assert!((rate - 7.1).abs() < 0.6, "{rate} after {at}");
            }
        }
        assert!(lately(rate, 0, 20.0) < 1.0);
    }
}
