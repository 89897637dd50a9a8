//! By what a key is judged between two reads: how much of the estimate is left, in whole units.
//!
//! The same as [`Window::admits`] says, without a division: an estimate is kept as the instant at
//! which it will have leaked away.

use super::window::{Estimate, Meets, Window};
use crate::time::Instant;

/// How the estimates of a threshold leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leak {
    window: Window,
    /// floor(threshold · 2^shift / length): between 2^61 and 2^63, units a nanosecond.
    slope: u64,
    shift: u32,
    /// Units that may be counted when nothing of an estimate is left.
    whole: u64,
}

impl Leak {
    /// At this threshold.
    #[must_use]
    pub fn new(window: Window) -> Self {
        let whole = match window.meets() {
            Meets::Passes => window.threshold(),
            Meets::IsLimited => window.threshold() - 1,
        };
        let threshold = u128::from(window.threshold());
        let length = u128::from(window.length_nanos());
        // The quotient of numbers with so many bits has as many, or one less.
        let bits = length.ilog2() as i32 - threshold.ilog2() as i32;
        let shift = (SLOPE_BITS + bits).unsigned_abs();
        let slope = (threshold << shift) / length;
        Self { window, slope: slope as u64, shift, whole }
    }

    /// Nothing passes.
    #[must_use]
    pub fn closed(window: Window) -> Self {
        Self { whole: 0, ..Self::new(window) }
    }

    /// Units that may be counted when nothing of an estimate is left: the threshold, or one less if
    /// who meets it is limited.
    #[inline]
    #[must_use]
    pub fn whole(&self) -> u64 {
        self.whole
    }

    /// Whether what is refused is counted too.
    #[inline]
    #[must_use]
    pub fn counts_refused(&self) -> bool {
        self.window.meets() == Meets::IsLimited
    }

    /// When an estimate will have leaked away, in nanoseconds of the clock by which it was read:
    /// less than one too early, or too late if who meets the threshold is limited, so that whole
    /// units are whole.
    ///
    /// At 100 in 10 s, 50 that were read at 3 s have at 8 s.
    #[must_use]
    pub fn leaks_until(&self, estimate: Estimate, read_at: Instant) -> u64 {
        let age = self.window.age_of(estimate);
        let age = match self.window.meets() {
            Meets::Passes => age.0,
            Meets::IsLimited => age.1,
        };
        read_at.as_nanos().saturating_add(age)
    }

    /// Units that are left at `now` of what leaks until then: with a part of one as a whole one, or
    /// without it if who meets the threshold is limited.
    ///
    /// At 100 in 10 s, of what leaks for another 0.55 s 6 are left, or 5.
    #[inline]
    #[must_use]
    pub fn left(&self, leaks_until: u64, now: Instant) -> u64 {
        match leaks_until.checked_sub(now.as_nanos()) {
            None | Some(0) => 0,
            Some(nanos) => self.leaking_for(nanos),
        }
    }

    fn leaking_for(&self, nanos: u64) -> u64 {
        let units = (u128::from(nanos) * u128::from(self.slope)) >> self.shift;
        if units >= UNITS_MAX {
            return UNITS_MAX as u64;
        }
        // The slope is short by less than 2^-61 of it, and so are the units by less than one.
        let exact = u128::from(nanos) * u128::from(self.window.threshold());
        let length = u128::from(self.window.length_nanos());
        let whole = units + u128::from((units + 1) * length <= exact);
        let part = u128::from(whole * length < exact);
        let units = match self.window.meets() {
            Meets::Passes => whole + part,
            Meets::IsLimited => whole,
        };
        units as u64
    }
}

const SLOPE_BITS: i32 = 62;
/// More than any threshold is as good as this.
const UNITS_MAX: u128 = 1 << 61;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::tally::WallTime;

    fn leak(threshold: u64, seconds: u64, meets: Meets) -> Leak {
        Leak::new(Window::new(threshold, Duration::from_secs(seconds), meets).expect("a window"))
    }

    #[test]
    fn what_is_left_is_whole_units() {
        for (meets, left) in [(Meets::Passes, 6), (Meets::IsLimited, 5)] {
            let leak = leak(100, 10, meets);
            let now = Instant::from_nanos(7_450_000_000);
            assert_eq!(leak.left(8_000_000_000, now), left);
            assert_eq!(leak.left(8_000_000_000, Instant::from_nanos(8_000_000_000)), 0);
            assert_eq!(leak.left(8_000_000_000, Instant::from_nanos(7_900_000_000)), 1);
            assert!(leak.left(u64::MAX, now) > leak.whole());
        }
        assert_eq!(leak(100, 10, Meets::IsLimited).whole(), 99);
        assert_eq!(Leak::closed(leak(100, 10, Meets::Passes).window).whole(), 0);
    }

    #[test]
    fn the_longest_windows_and_the_largest_thresholds_have_a_slope() {
        for threshold in [1, 2, 3, 1_000, u64::MAX >> 2] {
            for seconds in [1, 60, 365 * 86_400] {
                let leak = leak(threshold, seconds, Meets::Passes);
                assert!((1 << 61..=1 << 63).contains(&leak.slope), "{leak:?}");
                let length = seconds * 1_000_000_000;
                let expected = threshold.min(UNITS_MAX as u64);
                assert_eq!(leak.leaking_for(length), expected, "{threshold} {seconds}");
            }
        }
    }

    proptest! {
        /// The verdict is that of the exact sum, at this nanosecond or at the one beside it.
        #[test]
        fn it_says_what_the_exact_sum_says(
            threshold in prop_oneof![1_u64..50, 1_u64..2_000_000, 1_u64..1 << 60],
            seconds in prop_oneof![1_u64..100, 1_u64..400_000],
            counts in (0_u64..300, 0_u64..300, 1_u64..100),
            at in 0_u64..1_000_000_000_000,
            (age, here, cost) in (0_u64..200_000_000_000, 0_u64..60, 1_u64..4),
            is_limited: bool,
        ) {
            let meets = if is_limited { Meets::IsLimited } else { Meets::Passes };
            let Leak { window, .. } = leak(threshold, seconds, meets);
            let leak = Leak::new(window);
            let parts = |count: u64| count.saturating_mul(threshold / 100 + 1) / counts.2;
            let (previous, current) = (parts(counts.0), parts(counts.1));
            let estimate = window.estimate(previous, current, WallTime::from_nanos(at));
            let read_at = Instant::from_nanos(at);
            let until = leak.leaks_until(estimate, read_at);
            let left = leak.left(until, Instant::from_nanos(at + age));
            let here = here.saturating_mul(threshold / 50 + 1);
            let quick = here + cost + left <= leak.whole();
            let exact =
                |age| window.admits(estimate, Duration::from_nanos(age), here, cost);
            let (now, before, after) = (exact(age), exact(age.saturating_sub(1)), exact(age + 1));
            prop_assert!(quick == now || quick == before || quick == after, "{left} {until}");
            if before == after {
                prop_assert_eq!(quick, now);
            }
        }
    }
}
