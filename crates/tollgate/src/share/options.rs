//! How averages are kept and when a node falls back: what can be chosen, and what must hold of it.

use std::fmt;
use std::time::Duration;

/// How averages are kept and when a node falls back; the same on all nodes of a fleet.
///
/// With the defaults a member that falls silent counts in full for 2 s, with a quarter then, half
/// of that each second later, and not at all from 10 s on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShareOptions {
    /// How often a member reports; typically 1 s. At most an hour.
    pub interval: Duration,
    /// The shortest time by which counts are divided, so that a report that comes early is no
    /// spike; typically 100 ms (the seed's: 1 s). Above zero, at most `interval`.
    pub elapsed_min: Duration,
    /// The part of a new sample in an average; typically 0.5. Above 0, at most 1.
    pub new_weight: f64,
    /// After how many intervals of silence an average begins to decay; typically 2.
    pub decay_after: u32,
    /// After how many intervals of silence it is forgotten; typically 10. More than `decay_after`,
    /// at most 100.
    pub forget_after: u32,
    /// A sample that differs from the average by more than this part of it takes its place;
    /// typically 0.25. Finite and above 0; `None` never does so, which is the seed's rule.
    pub replace_above: Option<f64>,
    /// How many failed updates in a row a node bears before it falls back; typically 9.
    pub failures_max: u32,
}

impl ShareOptions {
    /// The seed's: 3 s, counts divided by 1 s or more, α 0.5, decay from 6 s on, forgotten at 30 s.
    pub const SEED: Self = Self {
        interval: Duration::from_secs(3),
        elapsed_min: Duration::from_secs(1),
        new_weight: 0.5,
        decay_after: 2,
        forget_after: 10,
        replace_above: None,
        failures_max: 9,
    };

    /// Whether averages can be kept by these options: the defaults can, with `new_weight` 0 they
    /// can't.
    ///
    /// # Errors
    /// When a value is out of its range, or averages would be forgotten before they decay.
    pub fn check(&self) -> Result<(), ShareOptionsError> {
        let Self { interval, elapsed_min, new_weight, decay_after, forget_after, .. } = *self;
        if interval.is_zero() || interval > INTERVAL_MAX {
            return Err(ShareOptionsError::Interval { interval });
        }
        if elapsed_min.is_zero() || elapsed_min > interval {
            return Err(ShareOptionsError::ElapsedMin { elapsed_min, interval });
        }
        // Also false of what is no number.
        if !(new_weight > 0.0 && new_weight <= 1.0) {
            return Err(ShareOptionsError::NewWeight { new_weight });
        }
        if decay_after >= forget_after {
            return Err(ShareOptionsError::ForgottenBeforeDecay { decay_after, forget_after });
        }
        if forget_after > FORGET_AFTER_MAX {
            return Err(ShareOptionsError::ForgetAfter { forget_after });
        }
        match self.replace_above {
            Some(part) if !(part > 0.0 && part.is_finite()) => {
                Err(ShareOptionsError::ReplaceAbove { replace_above: part })
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl Default for ShareOptions {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            elapsed_min: Duration::from_millis(100),
            replace_above: Some(0.25),
            ..Self::SEED
        }
    }
}

/// Why averages can't be kept by some options.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ShareOptionsError {
    /// An interval that is zero or above an hour.
    Interval {
        /// The value.
        interval: Duration,
    },
    /// A shortest time that is zero or above the interval.
    ElapsedMin {
        /// The value.
        elapsed_min: Duration,
        /// How often a member reports.
        interval: Duration,
    },
    /// A part of new samples that is not above 0, or above 1.
    NewWeight {
        /// The value.
        new_weight: f64,
    },
    /// Averages that are forgotten no later than they begin to decay.
    ForgottenBeforeDecay {
        /// When they decay, in intervals.
        decay_after: u32,
        /// When they are forgotten, in intervals.
        forget_after: u32,
    },
    /// Averages that are kept for more than 100 intervals.
    ForgetAfter {
        /// The value.
        forget_after: u32,
    },
    /// A part that is not above 0, or not finite.
    ReplaceAbove {
        /// The value.
        replace_above: f64,
    },
}

impl fmt::Display for ShareOptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interval { interval } => {
                write!(f, "interval must be above zero and at most an hour, not {interval:?}")
            }
            Self::ElapsedMin { elapsed_min, interval } => write!(
                f,
                "elapsed_min ({elapsed_min:?}) must be above zero and at most interval \
                 ({interval:?})"
            ),
            Self::NewWeight { new_weight } => {
                write!(f, "new_weight must be above 0 and at most 1, not {new_weight}")
            }
            Self::ForgottenBeforeDecay { decay_after, forget_after } => write!(
                f,
                "forget_after ({forget_after} intervals) must be more than decay_after \
                 ({decay_after})"
            ),
            Self::ForgetAfter { forget_after } => {
                write!(f, "forget_after must be at most {FORGET_AFTER_MAX}, not {forget_after}")
            }
            Self::ReplaceAbove { replace_above } => {
                write!(f, "replace_above must be finite and above 0, not {replace_above}")
            }
        }
    }
}

impl std::error::Error for ShareOptionsError {}

/// Beyond it nobody waits for a share.
const INTERVAL_MAX: Duration = Duration::from_secs(3_600);
/// Bounds the products by which an average decays.
pub(super) const FORGET_AFTER_MAX: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: ShareOptions = ShareOptions {
        interval: Duration::from_secs(1),
        elapsed_min: Duration::from_millis(100),
        replace_above: Some(0.25),
        ..ShareOptions::SEED
    };

    #[test]
    fn the_defaults_and_the_seeds_are_sound() {
        assert_eq!(ShareOptions::default(), SOUND);
        assert_eq!(SOUND.check(), Ok(()));
        assert_eq!(ShareOptions::SEED.check(), Ok(()));
    }

    #[test]
    fn each_cause_of_a_refusal_is_named_with_its_value() {
        let second = Duration::from_secs(1);
        let cases = [
            (
                ShareOptions { interval: Duration::ZERO, ..SOUND },
                "interval must be above zero and at most an hour, not 0ns",
            ),
            (
                ShareOptions { interval: INTERVAL_MAX + second, ..SOUND },
                "interval must be above zero and at most an hour, not 3601s",
            ),
            (
                ShareOptions { elapsed_min: Duration::ZERO, ..SOUND },
                "elapsed_min (0ns) must be above zero and at most interval (1s)",
            ),
            (
                ShareOptions { elapsed_min: second * 2, ..SOUND },
                "elapsed_min (2s) must be above zero and at most interval (1s)",
            ),
            (
                ShareOptions { new_weight: 0.0, ..SOUND },
                "new_weight must be above 0 and at most 1, not 0",
            ),
            (
                ShareOptions { new_weight: 1.01, ..SOUND },
                "new_weight must be above 0 and at most 1, not 1.01",
            ),
            (
                ShareOptions { new_weight: f64::NAN, ..SOUND },
                "new_weight must be above 0 and at most 1, not NaN",
            ),
            (
                ShareOptions { decay_after: 10, ..SOUND },
                "forget_after (10 intervals) must be more than decay_after (10)",
            ),
            (
                ShareOptions { forget_after: 101, ..SOUND },
                "forget_after must be at most 100, not 101",
            ),
            (
                ShareOptions { replace_above: Some(0.0), ..SOUND },
                "replace_above must be finite and above 0, not 0",
            ),
            (
                ShareOptions { replace_above: Some(f64::INFINITY), ..SOUND },
                "replace_above must be finite and above 0, not inf",
            ),
        ];
        for (options, text) in cases {
            let error = options.check().expect_err(text);
            assert_eq!(error.to_string(), text);
        }
        assert_eq!(ShareOptions { new_weight: 1.0, elapsed_min: second, ..SOUND }.check(), Ok(()));
    }
}
