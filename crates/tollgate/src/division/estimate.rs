//! What one member asks for, from counts of any length: short ones weigh less, and what chance may
//! have made of a few units is no change.
//!
//! Not the seed's average (`share::average`), which takes each report for as much as any other:
//! with reports that come at once some are a tenth as long as others, and a member that is asked
//! for less than once in an interval would have had nothing in most of them.

use std::time::Duration;

use crate::mutant::lacks;
use crate::share::{Averaging, Collected, ShareOptions};

/// An average, in units a second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Estimate {
    pub(super) allowed: f64,
    pub(super) denied: f64,
    /// Of how many seconds it is.
    seen: f64,
}

impl Estimate {
    /// Takes in what was counted in `elapsed`, of which all but `age` was told before.
    ///
    /// After 8 a second for long, 4 in half a second change nothing, and none in a tenth of a
    /// second are no news; 30 in half a second are 60 a second from then on.
    pub(super) fn take(
        &mut self,
        counted: Collected,
        elapsed: Duration,
        age: Duration,
        options: &ShareOptions,
        interval: Duration,
    ) {
        // Who asks for the first time has not asked in the interval before, and may say so again.
        let is_first = elapsed.is_zero();
        let least = if is_first && !lacks("share_a_first_request_is_no_rate") {
            interval
        } else {
            options.elapsed_min
        };
        let seconds = elapsed.max(least).as_secs_f64();
        let (allowed, denied) = (counted.allowed as f64, counted.denied as f64);
        let is_change = self.is_change(allowed + denied, seconds, options);
        let news = seconds.min(age.max(options.elapsed_min).as_secs_f64());
        let part = if is_change { 1.0 } else { self.part(news, options, interval) };
        self.allowed += (allowed / seconds - self.allowed) * part;
        self.denied += (denied / seconds - self.denied) * part;
        self.seen = if is_change { seconds } else { self.seen + news };
    }

    pub(super) fn demand(&self) -> f64 {
        self.allowed + self.denied
    }

    /// The part that is left of it after a silence.
    pub(super) fn left(&self, averaging: &Averaging, age: Duration) -> f64 {
        let left = averaging.left(age);
        if left >= 1.0 || left <= 0.0 || lacks("share_the_sparse_are_remembered") {
            return left;
        }
        let units = self.demand() * age.as_secs_f64();
        left.max((-units / UNITS_MIN).exp())
    }

    /// How much a sample counts: by its length, and in full as long as there is none before it.
    fn part(&self, seconds: f64, options: &ShareOptions, interval: Duration) -> f64 {
        if lacks("share_samples_weigh_by_their_length") {
            return options.new_weight;
        }
        (1.0 - (-seconds / self.memory(options, interval)).exp())
            .max(seconds / (seconds + self.seen))
    }

    /// In so many seconds what was before comes to weigh a 2.7th of what it did.
    fn memory(&self, options: &ShareOptions, interval: Duration) -> f64 {
        let usual = interval.as_secs_f64() / -(1.0 - options.new_weight).max(1e-9).ln();
        let sparse = if lacks("share_the_sparse_are_remembered") {
            0.0
        } else {
            UNITS_MIN / self.demand().max(1e-9)
        };
        let longest = interval.as_secs_f64() * f64::from(options.forget_after) / 2.0;
        usual.max(sparse.min(longest))
    }

    /// Whether it is so far off that the demand must have changed.
    fn is_change(&self, units: f64, seconds: f64, options: &ShareOptions) -> bool {
        let Some(part) = options.replace_above else { return false };
        let expected = self.demand() * seconds;
        let off = (units - expected).abs();
        let chance = CHANCE * units.max(expected).sqrt();
        off > part * expected && (off > chance || lacks("share_chance_is_no_change"))
    }
}

/// An average is at least of the time that so many units take.
const UNITS_MIN: f64 = 4.0;
/// Counts that are so many deviations off are no chance.
const CHANCE: f64 = 3.0;
