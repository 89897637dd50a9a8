//! How much an owner permits to whom, and how often it wants to hear of a key. None of it touches
//! the promise, which stands on the meter's room alone; all of it decides how much of the limit is
//! used and at how many messages.

use std::time::Duration;

use crate::policy::TTL_CADENCES;
use crate::rate::Rate;
use crate::view::ViewTimes;

/// How near a key is to its limit: 1 is at it.
pub(super) fn pressure(demand: f64, level: u64, rate: Rate, burst: u64) -> f64 {
    let per_second = rate.per_second();
    let used = if per_second > 0.0 { demand / per_second } else { 1.0 };
    used.max(level as f64 / burst.max(1) as f64)
}

/// The time between a worker's reports of a key: the sync interval near the limit, 20 of them far
/// from it; never shorter than the way there and back or half the time of one unit, nor so long
/// that a TTL would be above `ttl_max`.
pub(super) fn cadence(
    pressure: f64,
    rate: Rate,
    stretch: u32,
    round_trip: Duration,
    times: &ViewTimes,
) -> Duration {
    let intervals = TIERS.iter().find(|(below, _)| pressure < *below).map_or(1, |(_, n)| *n);
    let wanted = times.sync_interval.saturating_mul(intervals.max(stretch));
    let unit = Duration::from_nanos(rate.period_ns() / rate.units().max(1));
    wanted.max(round_trip).max(unit / 2).min(times.cadence_max())
}

/// How long a permission lives: four cadences, or so long that whoever asks seldom comes again.
pub(super) fn ttl(cadence: Duration, demand: f64, times: &ViewTimes) -> Duration {
    let gaps = Duration::try_from_secs_f64(GAPS / demand).unwrap_or(Duration::MAX);
    cadence.saturating_mul(TTL_CADENCES).max(gaps).min(times.ttl_max)
}

/// What a worker will use before its next snapshot comes.
pub(super) struct Wish {
    /// Units a second.
    pub(super) demand: f64,
    /// What it asked for since its last report.
    pub(super) asked: u64,
    /// The first cost that waits, or 0.
    pub(super) waiting: u64,
}

impl Wish {
    /// The units that it should hold, if there is room: at most `cap`, at least the cost that
    /// waits.
    pub(super) fn units(&self, cadence: Duration, cap: u64) -> u64 {
        // Whoever asked for nothing, and gave back what it had, is not to have it again.
        if self.asked == 0 {
            return self.waiting;
        }
        let expected = self.demand * cadence.as_secs_f64() * HORIZON_CADENCES;
        (expected.ceil() as u64).max(self.asked).min(cap).max(self.waiting)
    }
}

/// A part of the room by demand.
pub(super) fn part(room: u64, demand: f64, of: f64) -> u64 {
    if of <= 0.0 {
        return room;
    }
    ((room as f64 * (demand / of).clamp(0.0, 1.0)) as u64).min(room)
}

/// Below each pressure, so many sync intervals.
const TIERS: [(f64, u32); 3] = [(0.1, 20), (0.5, 4), (0.8, 2)];
/// Times between requests that a permission outlives.
const GAPS: f64 = 20.0;
/// A snapshot that is lost or late should find something left.
const HORIZON_CADENCES: f64 = 2.0;
