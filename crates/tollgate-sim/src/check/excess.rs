//! How far the worst window of a key is above R·t: a leaky bucket over what was really spent.
//!
//! Its level is the largest of admitted(s, t] - R·(t - s) of any window that ends now: exactly, and
//! in constant time and memory for each admission. Who admitted what, and B, are not known here.

use tollgate::Rate;

use crate::scenario::Nanos;

/// The worst window of one key that ends now, admission by admission.
///
/// ```
/// use tollgate::Rate;
/// use tollgate_sim::check::excess::Bucket;
/// let (rate, mut bucket) = (Rate::parse("1000/s")?, Bucket::default());
/// bucket.add(200, rate);
/// bucket.leak(10_000_000, rate, 0);
/// bucket.add(11, rate);
/// // 211 in 10 ms, in which 10 leak: one more than burst 200 allows.
/// assert_eq!((bucket.units(rate), bucket.above(200, rate)), (201.0, 1.0));
/// # Ok::<(), tollgate::RateError>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bucket {
    /// In millionths of what leaks in a nanosecond per unit of the rate.
    level: u128,
    at: Nanos,
}

impl Bucket {
    /// Time goes on to `at`; an earlier one changes nothing. Clocks may be off by so many parts
    /// per million.
    pub fn leak(&mut self, at: Nanos, rate: Rate, drift_ppm: u32) {
        let passed = u128::from(at.saturating_sub(self.at));
        let leaked = u128::from(rate.units()) * passed * (MILLION + u128::from(drift_ppm));
        self.level = self.level.saturating_sub(leaked);
        self.at = at.max(self.at);
    }

    /// So many units are admitted.
    pub fn add(&mut self, units: u64, rate: Rate) {
        self.level += u128::from(units) * unit(rate);
    }

    /// From now on it leaks by another rate.
    pub fn convert(&mut self, from: Rate, to: Rate) {
        if from.period_ns() != to.period_ns() {
            self.level = self.level / u128::from(from.period_ns()) * u128::from(to.period_ns());
        }
    }

    /// Until when time has gone on.
    #[must_use]
    pub fn at(&self) -> Nanos {
        self.at
    }

    /// Units above R·t of the worst window.
    #[must_use]
    pub fn units(&self, rate: Rate) -> f64 {
        self.level as f64 / unit(rate) as f64
    }

    /// Units above `burst` + R·t of the worst window: exact in whether it is above 0.
    #[must_use]
    pub fn above(&self, burst: u64, rate: Rate) -> f64 {
        let over = self.units(rate) - burst as f64;
        let is_over = self.level > u128::from(burst) * unit(rate);
        if is_over { over.max(1e-9) } else { over.min(0.0) }
    }
}

fn unit(rate: Rate) -> u128 {
    u128::from(rate.period_ns()) * MILLION
}

const MILLION: u128 = 1_000_000;
