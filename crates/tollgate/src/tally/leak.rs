//! By what a key is judged between two reads: how much of the estimate is left, in whole units.
//!
//! The same as [`Window::admits`] says, without a division: an estimate is kept as the instant at
//! which it will have leaked away.

use super::window::{Estimate, Meets, Window};
use crate::time::Instant;

/// How the estimates of a threshold leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leak {
    /// floor(threshold · 2^(64 + shift) / length), units a nanosecond: 2^61 and more, but for so
    /// large a threshold that the shift would be below 0.
    slope: u64,
    shift: u32,
    /// The bits below a unit: 2^shift - 1.
    mask: u64,
    /// 1 if a part of a unit is a whole one.
    up: u64,
    /// Units that may be counted when nothing of an estimate is left.
    whole: u64,
    window: Window,
}

impl Leak {
    /// At this threshold.
    #[must_use]
    pub fn new(window: Window) -> Self {
        let (up, whole) = match window.meets() {
            Meets::Passes => (1, window.threshold()),
            Meets::IsLimited => (0, window.threshold() - 1),
        };
        let threshold = u128::from(window.threshold());
        let length = u128::from(window.length_nanos());
        // The quotient of numbers with so many bits has as many, or one less.
        let bits = length.ilog2() as i32 - threshold.ilog2() as i32;
        let shift = (SLOPE_BITS + bits - 64).max(0).unsigned_abs();
        let slope = u64::try_from((threshold << (64 + shift)) / length).unwrap_or(u64::MAX);
        Self { slope, shift, mask: (1 << shift) - 1, up, whole, window }
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

    /// An estimate in whole units: with a part of one as a whole one, or without it if who meets
    /// the threshold is limited.
    #[must_use]
    pub fn units(&self, estimate: Estimate) -> u64 {
        let (down, up) = self.window.whole_units(estimate);
        if self.up == 1 { up } else { down }
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
    #[inline(always)]
    #[must_use]
    pub fn left(&self, leaks_until: u64, now: Instant) -> u64 {
        match leaks_until.checked_sub(now.as_nanos()) {
            None | Some(0) => 0,
            Some(nanos) => self.leaking_for(nanos),
        }
    }

    #[inline(always)]
    fn leaking_for(&self, nanos: u64) -> u64 {
        // The slope is short by less than one, and so is the product by less than `nanos`: at most
        // by one in its upper half.
        let upper = ((u128::from(nanos) * u128::from(self.slope)) >> 64) as u64;
        let part = upper & self.mask;
        // Surely no whole number, and surely not short of the next one.
        if part.wrapping_sub(1) < self.mask.wrapping_sub(1) && self.mask > 0 {
            return (upper >> self.shift) + self.up;
        }
        self.leaking_exactly_for(nanos)
    }

    #[cold]
    #[inline(never)]
    fn leaking_exactly_for(&self, nanos: u64) -> u64 {
        let exact = u128::from(nanos) * u128::from(self.window.threshold());
        let length = u128::from(self.window.length_nanos());
        let units =
            exact / length + u128::from(self.up) * u128::from(!exact.is_multiple_of(length));
        u64::try_from(units).unwrap_or(u64::MAX)
    }
}

const SLOPE_BITS: i32 = 62;

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
        for threshold in [1, 2, 3, 1_000, 1_000_000_000, u64::MAX >> 2, u64::MAX] {
            for seconds in [1, 60, 365 * 86_400] {
                let leak = leak(threshold, seconds, Meets::Passes);
                assert!(leak.slope >= 1 << 61, "{leak:?}");
                let length = seconds * 1_000_000_000;
                assert_eq!(leak.leaking_for(length), threshold, "{threshold} {seconds}");
                let almost = threshold.min((threshold / length).max(1));
                assert!(leak.leaking_for(length - 1) + almost >= threshold, "{leak:?}");
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
