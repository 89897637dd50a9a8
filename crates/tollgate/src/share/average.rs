//! What one member asks for of one key: an average of its samples that decays while it is silent.
//!
//! The seed's rule to the letter (`algorithm/requestweighted.go`), but for two options: by how much
//! time counts are divided at least, and that a sample far off takes the average's place.

use std::time::Duration;

use super::counted::Collected;
use super::options::{FORGET_AFTER_MAX, ShareOptions, ShareOptionsError};
use crate::mutant::lacks;
use crate::time::Instant;

/// How averages are kept: options that were found sound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Averaging {
    interval: Duration,
    elapsed_min: Duration,
    new_weight: f64,
    decay_after: Duration,
    forget_after: Duration,
    replace_above: Option<f64>,
}

impl Default for Averaging {
    fn default() -> Self {
        Self::of(&ShareOptions::default())
    }
}

impl Averaging {
    /// By these options; the defaults forget a member after 10 s.
    ///
    /// # Errors
    /// Those of [`ShareOptions::check`].
    pub fn new(options: &ShareOptions) -> Result<Self, ShareOptionsError> {
        options.check()?;
        Ok(Self::of(options))
    }

    fn of(options: &ShareOptions) -> Self {
        Self {
            interval: options.interval,
            elapsed_min: options.elapsed_min,
            new_weight: options.new_weight,
            decay_after: options.interval * options.decay_after,
            forget_after: options.interval * options.forget_after,
            replace_above: options.replace_above,
        }
    }

    /// The rates of what was counted in `elapsed`; `None` if nothing was, because zeros are never
    /// stored.
    ///
    /// 30 allowed and 10 denied in 2 s are 15 and 5 a second; 3 allowed in 10 ms are 30 a second if
    /// `elapsed_min` is 100 ms.
    #[must_use]
    pub(crate) fn sample(&self, collected: Collected, elapsed: Duration) -> Option<Sample> {
        if collected.is_empty() && !lacks("share_zeros_are_skipped") {
            return None;
        }
        let has_minimum = !lacks("share_elapsed_has_a_minimum");
        let elapsed = if has_minimum { elapsed.max(self.elapsed_min) } else { elapsed };
        let seconds = elapsed.as_secs_f64();
        let Collected { allowed, denied } = collected;
        Some(Sample { allowed: allowed as f64 / seconds, denied: denied as f64 / seconds })
    }

    /// The part that is left of an average of this age: 1 before it decays, 0 once it is forgotten,
    /// else (1 - α) for each whole interval.
    ///
    /// With the seed's options 1 at 5.9 s, 0.25 at 6 s, 0.125 at 9 s and 0 at 30 s.
    #[must_use]
    pub(crate) fn left(&self, age: Duration) -> f64 {
        if self.forgets(age) {
            return 0.0;
        }
        if age < self.decay_after || lacks("share_silence_decays") {
            return 1.0;
        }
        let intervals = age.as_nanos() / self.interval.as_nanos();
        debug_assert!(intervals < u128::from(FORGET_AFTER_MAX));
        (0..intervals).fold(1.0, |left, _| left * (1.0 - self.new_weight))
    }

    fn forgets(&self, age: Duration) -> bool {
        age >= self.forget_after && !lacks("share_silence_is_forgotten")
    }
}

/// What a member allowed and denied, in units a second; never below 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    allowed: f64,
    denied: f64,
}

impl Sample {
    /// All that was asked for: 20 of 15 allowed and 5 denied.
    #[must_use]
    pub(crate) fn demand(self) -> f64 {
        self.allowed + self.denied
    }

    fn scaled(self, by: f64) -> Self {
        Self { allowed: self.allowed * by, denied: self.denied * by }
    }
}

/// A member's average, and when it was last heard.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Average {
    sample: Sample,
    updated_at: Instant,
}

impl Average {
    /// The first sample counts in full: after 15 and 5 a second it is 15 and 5.
    #[must_use]
    pub(crate) fn new(sample: Sample, now: Instant) -> Self {
        Self { sample, updated_at: now }
    }

    /// Takes a sample in: α of it and the rest of what is left of the average. After a silence in
    /// which the average was forgotten, or if the sample is far off, it counts in full.
    ///
    /// At α 0.5 an average of 8 becomes 9 by a sample of 10; with `replace_above` 0.25 it becomes
    /// 11 by one of 11.
    pub(crate) fn update(&mut self, sample: Sample, averaging: &Averaging, now: Instant) {
        let age = now.saturating_since(self.updated_at);
        let old = self.sample.scaled(averaging.left(age));
        let is_first = averaging.forgets(age) && !lacks("share_the_forgotten_count_in_full");
        self.sample = if is_first || is_jump(sample, old, averaging) {
            sample
        } else {
            let (new, old) =
                (sample.scaled(averaging.new_weight), old.scaled(1.0 - averaging.new_weight));
            Sample { allowed: new.allowed + old.allowed, denied: new.denied + old.denied }
        };
        self.updated_at = self.updated_at.max(now);
    }

    /// Units a second that it is allowed by now, in the average.
    ///
    /// Of 15 allowed and 5 denied it is 15, and a quarter of that after 2 s of silence by default.
    #[must_use]
    pub(crate) fn allowed(&self, averaging: &Averaging, now: Instant) -> f64 {
        self.at(averaging, now).allowed
    }

    /// Units a second that it asks for by now, in the average, whether they were allowed or denied.
    ///
    /// Of 15 allowed and 5 denied it is 20, and a quarter of that after 2 s of silence by default.
    #[must_use]
    pub(crate) fn demand(&self, averaging: &Averaging, now: Instant) -> f64 {
        if lacks("share_the_denied_are_demand") {
            return self.allowed(averaging, now);
        }
        self.at(averaging, now).demand()
    }

    /// Whether nothing is left of it: 10 s after its last sample by default.
    #[must_use]
    pub(crate) fn is_forgotten(&self, averaging: &Averaging, now: Instant) -> bool {
        averaging.forgets(now.saturating_since(self.updated_at))
    }

    /// Decay is applied on reading, never stored: nobody needs to come by for it.
    fn at(&self, averaging: &Averaging, now: Instant) -> Sample {
        self.sample.scaled(averaging.left(now.saturating_since(self.updated_at)))
    }
}

/// Whether a sample is so far from the average that it takes its place.
///
/// Not the seed's: with it an average needs four updates to come within a tenth of a new load.
fn is_jump(sample: Sample, old: Sample, averaging: &Averaging) -> bool {
    let Some(part) = averaging.replace_above else { return false };
    let off = (sample.demand() - old.demand()).abs();
    off > part * old.demand() && !lacks("share_jumps_replace")
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn averaging(options: ShareOptions) -> Averaging {
        Averaging::new(&options).expect("sound options")
    }

    fn seed() -> Averaging {
        averaging(ShareOptions::SEED)
    }

    fn sample(allowed: u64, denied: u64) -> Sample {
        Sample { allowed: allowed as f64, denied: denied as f64 }
    }

    /// What both options make of updates at these times: allowed and denied.
    fn after(averaging: &Averaging, updates: &[(u64, u64, u64)]) -> (f64, f64) {
        let mut average: Option<Average> = None;
        for &(millis, allowed, denied) in updates {
            let (sample, now) = (sample(allowed, denied), at(millis));
            match &mut average {
                Some(average) => average.update(sample, averaging, now),
                None => average = Some(Average::new(sample, now)),
            }
        }
        let sample = average.expect("an update").sample;
        (sample.allowed, sample.denied)
    }

    #[test]
    fn counts_are_divided_by_the_time_they_took_or_by_the_least() {
        let collected = Collected { allowed: 30, denied: 10 };
        assert_eq!(seed().sample(collected, ms(2_000)), Some(sample(15, 5)));
        assert_eq!(seed().sample(collected, ms(10)), Some(sample(30, 10)));
        assert_eq!(seed().sample(collected, ms(0)), Some(sample(30, 10)));
        let ours = averaging(ShareOptions::default());
        assert_eq!(ours.sample(collected, ms(10)), Some(sample(300, 100)));
        assert_eq!(ours.sample(collected, ms(500)), Some(sample(60, 20)));
    }

    #[test]
    fn zeros_are_no_sample() {
        assert_eq!(seed().sample(Collected::default(), ms(3_000)), None);
        let denied = Collected { allowed: 0, denied: 1 };
        assert_eq!(seed().sample(denied, ms(1_000)), Some(sample(0, 1)));
    }

    #[test]
    fn silence_counts_in_full_then_halves_each_interval_and_is_forgotten() {
        let left = |millis| seed().left(ms(millis));
        let cases = [
            (0, 1.0),
            (5_999, 1.0),
            (6_000, 0.25),
            (8_999, 0.25),
            (9_000, 0.125),
            (29_999, 1.0 / 512.0),
        ];
        for (millis, expected) in cases {
            assert_eq!(left(millis), expected, "{millis} ms");
        }
        // With no time before it, decay begins with the first whole interval.
        let at_once = averaging(ShareOptions { decay_after: 0, ..ShareOptions::SEED });
        assert_eq!([2_999, 3_000].map(|millis| at_once.left(ms(millis))), [1.0, 0.5]);
        let all = averaging(ShareOptions { new_weight: 1.0, ..ShareOptions::SEED });
        assert_eq!([5_999, 6_000].map(|millis| all.left(ms(millis))), [1.0, 0.0]);
    }

    #[test]
    fn nothing_is_left_once_it_is_forgotten() {
        assert_eq!([30_000, 3_600_000].map(|millis| seed().left(ms(millis))), [0.0, 0.0]);
        let average = Average::new(sample(15, 5), at(0));
        assert!(!average.is_forgotten(&seed(), at(29_999)));
        assert!(average.is_forgotten(&seed(), at(30_000)));
        assert_eq!(average.demand(&seed(), at(30_000)), 0.0);
    }

    #[test]
    fn a_sample_and_what_is_left_are_averaged() {
        let seed = seed();
        assert_eq!(after(&seed, &[(0, 8, 4)]), (8.0, 4.0));
        assert_eq!(after(&seed, &[(0, 8, 4), (3_000, 10, 0)]), (9.0, 2.0));
        // Of 8 and 4 a quarter is left after 6 s.
        assert_eq!(after(&seed, &[(0, 8, 4), (6_000, 10, 0)]), (6.0, 0.5));
        // A clock that goes back changes no more than a clock that stands.
        assert_eq!(after(&seed, &[(3_000, 8, 4), (0, 10, 0)]), (9.0, 2.0));
    }

    #[test]
    fn after_it_was_forgotten_a_sample_counts_in_full() {
        let seed = seed();
        assert_eq!(after(&seed, &[(0, 8, 4), (29_999, 10, 0)]).0, 5.0 + 4.0 / 512.0);
        assert_eq!(after(&seed, &[(0, 8, 4), (30_000, 10, 0)]), (10.0, 0.0));
    }

    #[test]
    fn a_sample_that_is_a_quarter_off_is_averaged_and_one_beyond_takes_its_place() {
        let ours = averaging(ShareOptions::default());
        assert_eq!(after(&ours, &[(0, 80, 20), (1_000, 75, 0)]), (77.5, 10.0));
        assert_eq!(after(&ours, &[(0, 80, 20), (1_000, 74, 0)]), (74.0, 0.0));
        assert_eq!(after(&ours, &[(0, 80, 20), (1_000, 120, 5)]), (100.0, 12.5));
        assert_eq!(after(&ours, &[(0, 80, 20), (1_000, 120, 6)]), (120.0, 6.0));
        // It is compared with what is left: a quarter of 100 after 2 s.
        assert_eq!(after(&ours, &[(0, 80, 20), (2_000, 30, 0)]), (25.0, 2.5));
        // What is allowed of the same demand is no jump.
        assert_eq!(after(&ours, &[(0, 80, 20), (1_000, 20, 80)]), (50.0, 50.0));
        // The seed averages whatever comes.
        assert_eq!(after(&seed(), &[(0, 80, 20), (1_000, 0, 900)]), (40.0, 460.0));
    }
}
