//! When something was decided, by the clock that all processes of a machine read alike.
//!
//! A fleet on one machine can then be held to its promise: the decisions of all its daemons, put in
//! one order. Whether anybody asks for it is a door's to know.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tollgate::{Clock, Instant};

/// What turns this process's instants into readings of the system's monotonic clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamps {
    /// The reading at [`Instant::ZERO`], in nanoseconds.
    origin: u64,
}

impl Stamps {
    /// Reads both clocks, several times: the origin is off by the time between two readings at
    /// most, some 50 ns, and never by less than nothing.
    pub(crate) fn new(clock: &Clock) -> Self {
        let read = || {
            let before = clock.now();
            let reading = monotonic();
            let took = clock.now().saturating_since(before);
            (took, reading.saturating_sub(before.as_nanos()))
        };
        let (_, origin) = (1..READINGS).map(|_| read()).fold(read(), Ord::min);
        Self { origin }
    }

    /// The reading at this instant, in nanoseconds.
    pub(crate) fn at(self, instant: Instant) -> u64 {
        self.origin.saturating_add(instant.as_nanos())
    }
}

/// The system's monotonic clock, in nanoseconds.
fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    // Neither is negative: it counts from the machine's start.
    let since = Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0));
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// One of them is disturbed by nothing.
const READINGS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_lies_between_two_readings_around_it() {
        let clock = Clock::monotonic();
        let stamps = Stamps::new(&clock);
        let before = monotonic();
        let stamp = stamps.at(clock.now());
        let origin = stamps.origin;
        assert!(stamp >= before, "{stamp} is before {before}");
        // What it is late by is the time between two readings, of which the shortest is taken.
        let after = loop {
            let again = Stamps::new(&clock);
            if again.origin.abs_diff(origin) < 1_000_000 {
                break monotonic();
            }
        };
        assert!(stamp <= after, "{stamp} is after {after}");
    }
}
