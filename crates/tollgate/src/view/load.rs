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
    /// Reports that were refused, and were told to come in the windows after this one.
    awaited: u64,
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
            awaited: 0,
            stretch: 1,
            refused: 0,
        }
    }

    /// Lets a batch in, or says when to come again: in the first window that has room beside those
    /// who were told before. If all came in the next one, most of them would be refused again, and
    /// what they send with it would be for nothing.
    pub(crate) fn admit(&mut self, reports: u64, now: Instant) -> Result<(), Duration> {
        if now >= self.ends {
            self.turn(now);
        }
        self.offered += reports;
        if self.admitted > 0 && self.admitted + reports > self.per_window_max {
            self.refused += reports;
            let windows = (self.awaited / self.per_window_max).min(WINDOWS_MAX) as u32;
            self.awaited += reports;
            return Err(self.ends.saturating_since(now) + self.window * windows);
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
        // Who was to come in a window that has passed has come, or will not.
        let passed = 1 + now.saturating_since(self.ends).as_nanos() / self.window.as_nanos();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        self.awaited = self.awaited.saturating_sub(passed.saturating_mul(self.per_window_max));
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

/// Nobody is told to come later than so many windows after the next: at the usual times that is
/// about the longest that a worker rests.
const WINDOWS_MAX: u64 = 7;
/// At the usual sync interval that is the longest cadence, `ttl_max` / 4, and more.
const STRETCH_MAX: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// 1,000 reports a second in windows of 50 ms: 50 each.
    fn load() -> Load {
        Load::new(1_000, Duration::from_millis(50))
    }

    #[test]
    fn the_refused_are_told_to_come_one_window_after_another() {
        let mut load = load();
        assert_eq!(load.admit(50, ms(100)), Ok(()));
        let told: Vec<u64> = (0..6)
            .map(|_| load.admit(25, ms(110)).expect_err("the window is full").as_millis() as u64)
            .collect();
        assert_eq!(told, [40, 40, 90, 90, 140, 140]);
        assert_eq!(load.refused(), 150);
    }

    #[test]
    fn those_who_come_when_they_were_told_are_let_in() {
        let mut load = load();
        // Twenty batches at once, and each again when it was told.
        let mut due: Vec<u64> = vec![100; 20];
        let mut offers = 0;
        while !due.is_empty() {
            due.sort_unstable();
            let at = due.remove(0);
            offers += 1;
            if let Err(after) = load.admit(25, ms(at)) {
                due.push(at + after.as_millis() as u64);
            }
        }
        // Seven windows hold the rest of them but four, who cannot be told to come so late.
        assert!(offers <= 20 + 18 + 4, "{offers}");
    }

    #[test]
    fn nobody_is_told_to_come_later_than_the_longest_rest() {
        let mut load = load();
        assert_eq!(load.admit(50, ms(100)), Ok(()));
        for _ in 0..1_000 {
            let after = load.admit(50, ms(100)).expect_err("the window is full");
            assert!(after <= Duration::from_millis(400), "{after:?}");
        }
        // And a crowd that never came is forgotten.
        assert_eq!(load.admit(50, ms(100_000)), Ok(()));
        assert_eq!(load.admit(1, ms(100_000)), Err(Duration::from_millis(50)));
    }

    #[test]
    fn a_batch_larger_than_a_window_is_let_in_alone() {
        let mut load = load();
        assert_eq!(load.admit(512, ms(100)), Ok(()));
        assert!(load.admit(1, ms(100)).is_err());
        assert_eq!(load.admit(512, ms(150)), Ok(()));
    }

    #[test]
    fn a_surge_stretches_the_cadence_and_a_lull_gives_it_back() {
        let mut load = load();
        for window in 0..20 {
            let _ = load.admit(50, ms(100 + 50 * window));
        }
        assert_eq!(load.stretch(), STRETCH_MAX);
        for window in 20..40 {
            assert_eq!(load.admit(5, ms(100 + 50 * window)), Ok(()));
        }
        assert_eq!(load.stretch(), 1);
    }
}
