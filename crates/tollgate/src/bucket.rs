//! A bucket whose rate others change while it is in use: a line that time walks on, and a burst.
//!
//! Arithmetic only; whose bucket it is, and who changes it, is known elsewhere. Units are taken
//! from the line, which is never walked back: what a change of the rate or the burst leaves is what
//! there was, at most the new burst, so that no change of either makes a unit.

use crate::gcra::{Meter, SLOPE_BITS, Verdict, granules_of};
use crate::mutant::lacks;
use crate::time::Instant;

/// How fast a line walks on, since when, in one word: 42 bits of 2^16 ns, 6 of an exponent, 16 of
/// what it raises. Zero stands for a line that was never told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Pace(pub(crate) u64);

/// A bucket at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Bucket {
    /// Where the line is when its pace begins, in granules.
    pub(crate) base: u64,
    pub(crate) pace: Pace,
    /// Tokens that are kept at most.
    pub(crate) burst: u64,
    /// Granules in a token, as a power of two.
    pub(crate) shift: i8,
}

/// What becomes of a cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spent {
    /// It passes, and this is how far the line is taken then.
    Passes { taken: u64 },
    /// It does not, yet.
    Waits,
}

impl Pace {
    /// The pace of so many tokens a second, rounded down, that begins with the next 2^16 ns.
    pub(crate) fn new(per_second: f64, shift: i8, now: Instant) -> Self {
        let granules = per_second * 2f64.powi(i32::from(shift) + SLOPE_BITS as i32) / 1e9;
        // Saturates, and what is no number is none.
        let slope = granules as u64;
        let exponent = (u64::BITS - slope.leading_zeros()).saturating_sub(MANTISSA_BITS);
        let since = now.as_nanos().div_ceil(1 << TICK_BITS);
        let mantissa = slope >> exponent;
        Self(
            since << (EXPONENT_BITS + MANTISSA_BITS)
                | u64::from(exponent) << MANTISSA_BITS
                | mantissa,
        )
    }

    fn origin(self) -> u64 {
        (self.0 >> (EXPONENT_BITS + MANTISSA_BITS)) << TICK_BITS
    }

    /// 2^-59 granules a ns.
    pub(crate) fn slope(self) -> u64 {
        let exponent = self.0 >> MANTISSA_BITS & ((1 << EXPONENT_BITS) - 1);
        (self.0 & ((1 << MANTISSA_BITS) - 1)) << exponent
    }
}

impl Bucket {
    /// A full bucket, of whose line `taken` is taken, from `now` on.
    pub(crate) fn full(taken: u64, per_second: f64, burst: u64, shift: i8, now: Instant) -> Self {
        let base = taken.saturating_add(granules_of(burst, shift) as u64);
        Self { base, pace: Pace::new(per_second, shift, now), burst, shift }
    }

    /// By what it is judged.
    #[inline]
    pub(crate) fn meter(&self) -> Meter {
        Meter::walking(self.pace.origin(), self.base, self.pace.slope(), self.burst, self.shift)
    }

    /// The TAT in that meter of a line that is taken up to here.
    #[inline]
    pub(crate) fn tat(&self, taken: u64) -> u64 {
        taken.saturating_add(self.burst_granules())
    }

    /// Judges a cost at `now` of a line that is taken up to `taken`.
    ///
    /// With a burst of 10 and 10/s, a bucket that was left alone for an hour passes ten costs of 1.
    #[inline]
    pub(crate) fn judge(&self, taken: u64, cost: u64, now: Instant) -> Spent {
        match self.meter().judge(self.tat(taken), cost, now) {
            Verdict::Conforms { next } => {
                Spent::Passes { taken: next.saturating_sub(self.burst_granules()).max(taken) }
            }
            Verdict::Wait | Verdict::Never => Spent::Waits,
        }
    }

    /// How far a line is taken by a cost that is charged whether it passes or not.
    pub(crate) fn owing(&self, taken: u64, cost: u64, now: Instant) -> u64 {
        let next = self.meter().owe(self.tat(taken), cost, now);
        next.saturating_sub(self.burst_granules()).max(taken)
    }

    /// The bucket at another rate and burst from `now` on: the line goes on from where it is.
    pub(crate) fn bend(&self, per_second: f64, burst: u64, now: Instant) -> Self {
        let pace = Pace::new(per_second, self.shift, now);
        if pace.slope() == self.pace.slope() {
            return Self { burst, ..*self };
        }
        let base = if lacks("share_line_goes_on") {
            self.base.saturating_add(granules_of(burst, self.shift) as u64)
        } else {
            self.meter().floor(now)
        };
        Self { base, pace, burst, ..*self }
    }

    /// By how many granules the line is moved on when a charge is given back: all that it took,
    /// less what the line has brought since.
    pub(crate) fn given_back(&self, cost: u64, charged_at: Instant, now: Instant) -> u64 {
        let meter = self.meter();
        let leaked = meter.floor(now).saturating_sub(meter.floor(charged_at));
        let granules = u64::try_from(granules_of(cost, self.shift)).unwrap_or(u64::MAX);
        granules.saturating_sub(leaked)
    }

    #[inline]
    fn burst_granules(&self) -> u64 {
        granules_of(self.burst, self.shift) as u64
    }
}

/// 65.5 us: how late a new pace begins at most. 2^42 of them are nine years.
const TICK_BITS: u32 = 16;
const EXPONENT_BITS: u32 = 6;
/// A pace is short by less than 1 in 32,768.
const MANTISSA_BITS: u32 = 16;

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// Spends units of one until none passes; returns how many did.
    fn spend_all(bucket: &Bucket, taken: &mut u64, now: Instant) -> u64 {
        let mut units = 0;
        while let Spent::Passes { taken: next } = bucket.judge(*taken, 1, now) {
            (*taken, units) = (next, units + 1);
        }
        units
    }

    #[test]
    fn a_full_bucket_has_its_burst_and_then_what_its_rate_brings() {
        let bucket = Bucket::full(7, 100.0, 10, 20, at(1_000));
        let mut taken = 7;
        assert_eq!(spend_all(&bucket, &mut taken, at(1_000)), 10);
        // The line stood for 65.5 us at most.
        assert_eq!(spend_all(&bucket, &mut taken, at(1_010)), 0);
        assert_eq!(spend_all(&bucket, &mut taken, at(1_051)), 5);
        assert_eq!(spend_all(&bucket, &mut taken, at(9_000)), 10);
    }

    #[test]
    fn a_change_of_rate_or_burst_makes_no_unit_and_takes_none_within_the_burst() {
        let slow = Bucket::full(1, 10.0, 10, 20, at(0));
        let mut taken = 1;
        assert_eq!(spend_all(&slow, &mut taken, at(0)), 10);
        // Empty, it is empty at another rate and burst too, which begin from there.
        let fast = slow.bend(1_000.0, 500, at(0));
        assert_eq!(spend_all(&fast, &mut taken, at(0)), 0);
        assert_eq!(spend_all(&fast, &mut taken, at(101)), 100);
        // Full of 500, it keeps as much as a burst of 20 has.
        let less = fast.bend(10.0, 20, at(5_000));
        assert_eq!(spend_all(&less, &mut taken, at(5_000)), 20);
        // And with the larger burst again it has no more than before.
        let more = less.bend(10.0, 500, at(5_000));
        assert_eq!(spend_all(&more, &mut taken, at(5_000)), 0);
    }

    #[test]
    fn what_was_not_changed_goes_on_as_if_nothing_were_said() {
        let bucket = Bucket::full(1, 10.0, 10, 20, at(0));
        assert_eq!(bucket.bend(10.0, 10, at(777)), bucket);
    }

    #[test]
    fn a_cost_above_the_burst_passes_when_it_is_full_and_is_paid_off() {
        let bucket = Bucket::full(1, 10.0, 2, 20, at(0));
        let Spent::Passes { taken } = bucket.judge(1, 5, at(100)) else { panic!("it is full") };
        assert_eq!(bucket.judge(taken, 1, at(390)), Spent::Waits);
        assert!(matches!(bucket.judge(taken, 1, at(520)), Spent::Passes { .. }));
    }

    #[test]
    fn what_is_given_back_is_less_what_the_line_brought_since() {
        let bucket = Bucket::full(1, 10.0, 10, 20, at(0));
        let token = 1 << 20;
        assert_eq!(bucket.given_back(3, at(500), at(500)), 3 * token);
        let later = bucket.given_back(3, at(500), at(700));
        assert!(later.abs_diff(token) <= token / 10_000, "{later}");
        assert_eq!(bucket.given_back(3, at(500), at(900)), 0);
    }

    #[test]
    fn paces_are_short_by_less_than_1_in_30_000_and_never_long() {
        for per_second in [1e-9, 1e-4, 0.1, 1.0 / 3.0, 7.0, 999.9, 123_456.7, 9.99e11] {
            let shift = crate::gcra::line_shift(
                crate::rate::Rate::new((per_second as u64).max(1), 1_000_000_000).expect("a rate"),
                1,
            );
            let wanted = per_second * 2f64.powi(i32::from(shift) + 59) / 1e9;
            let slope = Pace::new(per_second, shift, at(5)).slope() as f64;
            assert!(slope <= wanted, "{per_second}");
            assert!(
                slope >= wanted * (1.0 - 1.0 / 30_000.0) - 1.0,
                "{per_second}: {slope} {wanted}"
            );
        }
        assert_eq!(Pace::new(0.0, 20, at(5)).slope(), 0);
        assert_eq!(Pace::new(f64::NAN, 20, at(5)).slope(), 0);
    }

    /// Rates, bursts, how long they last, and how much is asked for then.
    fn steps() -> impl Strategy<Value = Vec<(f64, u64, u64, u64)>> {
        let step = (0.0..500.0_f64, 1_u64..100, 1_u64..3_000, 0_u64..200);
        prop::collection::vec(step, 1..30)
    }

    proptest! {
        /// Whatever rates and bursts come one after another, what passes is never more than the
        /// largest burst and what the rates brought.
        #[test]
        fn changes_never_admit_more_than_the_rates_brought(
            steps in steps(),
        ) {
            let mut now = 10;
            let mut bucket = Bucket::full(5, steps[0].0, steps[0].1, 24, at(now));
            let (mut taken, mut brought, mut passed) = (5, steps[0].1 as f64, 0.0);
            for (per_second, burst, wait, asked) in steps {
                bucket = bucket.bend(per_second, burst, at(now));
                now += wait;
                brought += per_second * wait as f64 / 1e3;
                for _ in 0..asked {
                    if let Spent::Passes { taken: next } = bucket.judge(taken, 1, at(now)) {
                        (taken, passed) = (next, passed + 1.0);
                    }
                }
                prop_assert!(passed <= brought + 1e-3, "{passed} of {brought}");
            }
        }
    }
}
