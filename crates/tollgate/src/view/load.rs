//! How an owner protects itself: first it asks for fewer reports, then it refuses batches.

use std::time::Duration;

use crate::time::Instant;

/// The load of one owner, in windows.
#[derive(Debug)]
pub(crate) struct Load {
    per_window_max: u64,
    window: Duration,
    ends: Instant,
    /// Reports that were offered in the window, and those that were let in.
    offered: u64,
    admitted: u64,
    stretch: u32,
    refused: u64,
}

impl Load {
    pub(crate) fn new(reports_per_second_max: u64, window: Duration) -> Self {
        let per_window_max =
            (u128::from(reports_per_second_max) * window.as_nanos() / 1_000_000_000).max(1) as u64;
        Self {
            per_window_max,
            window,
            ends: Instant::ZERO,
            offered: 0,
            admitted: 0,
            stretch: 1,
            refused: 0,
        }
    }

    /// Lets a batch in, or says when to come again.
    pub(crate) fn admit(&mut self, reports: u64, now: Instant) -> Result<(), Duration> {
        if now >= self.ends {
            self.turn(now);
        }
        self.offered += reports;
        if self.admitted > 0 && self.admitted + reports > self.per_window_max {
            self.refused += reports;
            return Err(self.ends.saturating_since(now).max(self.window / 2));
        }
        self.admitted += reports;
        Ok(())
    }

    fn turn(&mut self, now: Instant) {
        let share = self.offered * 100 / self.per_window_max;
        // In steps, so that the answer to a surge is not an oscillation.
        if share > 75 {
            self.stretch = (self.stretch * 2).min(STRETCH_MAX);
        } else if share < 25 && self.stretch > 1 {
            self.stretch /= 2;
        }
        (self.offered, self.admitted) = (0, 0);
        self.ends = now.saturating_add(self.window);
    }

    /// How many sync intervals workers are to leave between reports, at least.
    pub(crate) fn stretch(&self) -> u32 {
        self.stretch
    }

    /// Reports that were refused so far.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }
}

/// At the usual sync interval that is the longest cadence, `ttl_max` / 4, and more.
const STRETCH_MAX: u32 = 32;
