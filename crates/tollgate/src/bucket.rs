//! A bucket whose rate others change while it is in use: a line that time walks on, and a burst.
//!
//! Arithmetic only; whose bucket it is, and who changes it, is known elsewhere. Units are taken from
//! the line, which is never walked back: what a change of the rate or the burst leaves is what there
//! was, at most the new burst, so that no change of either makes a unit.

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

    /// By how many granules the line is moved on when a charge is given back: all that it took, less
    /// what the line has brought since.
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
