//! A rate as Envoy keeps it: whole tokens in whole seconds.
//!
//! Envoy (1.40) cuts a fill interval to whole seconds, fills all the time, and takes two buckets
//! for the same whose number of tokens and size are the same, whatever their seconds: a bucket that
//! differs from the one before in its seconds alone would not be taken.

use tollgate::mutant::lacks;

use super::divider::Part;

/// How a client is to use a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    AllowAll,
    DenyAll,
    TokenBucket(TokenBucket),
}

/// It holds `max_tokens`, also at first, and gets `tokens_per_fill` in `fill_seconds`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenBucket {
    pub(crate) max_tokens: u32,
    pub(crate) tokens_per_fill: u32,
    pub(crate) fill_seconds: u32,
}

impl Strategy {
    /// The strategy for a part; none if there is nothing to assign.
    pub(super) fn of(part: Part) -> Option<Self> {
        match part {
            Part::Rate { per_second, burst_cap } => {
                Some(bucket_of(per_second, burst_cap).map_or(Self::DenyAll, Self::TokenBucket))
            }
            Part::AllowAll => Some(Self::AllowAll),
            Part::DenyAll => Some(Self::DenyAll),
            Part::Unknown => None,
        }
    }

    /// The same strategy, in numbers that a client with the strategy `before` takes for new.
    pub(super) fn after(self, before: Self) -> Self {
        match (self, before) {
            (Self::TokenBucket(bucket), Self::TokenBucket(before)) => {
                Self::TokenBucket(bucket.after(before))
            }
            (strategy, _) => strategy,
        }
    }

    /// Nothing, something, everything.
    pub(super) fn rank(self) -> u8 {
        match self {
            Self::DenyAll => 0,
            Self::TokenBucket(_) => 1,
            Self::AllowAll => 2,
        }
    }
}

impl TokenBucket {
    pub(super) fn per_second(self) -> f64 {
        f64::from(self.tokens_per_fill) / f64::from(self.fill_seconds)
    }

    fn after(self, before: Self) -> Self {
        let looks_the_same = self.max_tokens == before.max_tokens
            && self.tokens_per_fill == before.tokens_per_fill
            && self.fill_seconds != before.fill_seconds;
        if !looks_the_same || lacks("quota_seconds_alone_change") {
            return self;
        }
        // Fill times differ for rates below about 1,000/s alone: these numbers are small.
        Self {
            tokens_per_fill: self.tokens_per_fill.saturating_mul(2),
            fill_seconds: self.fill_seconds.saturating_mul(2),
            ..self
        }
    }
}

/// The bucket for a rate: at most that rate, and 0.1 % less at most, in the shortest time that says
/// so; none if nothing may pass. It holds what comes in 100 ms, 2 tokens at least, since with one a
/// client loses what arrives while it is full; and no more than `burst_cap`, which is 1 at least.
///
/// 33.4/s are 167 in 5 s, of which it holds 3; rates above 2^32 are cut there.
pub(super) fn bucket_of(per_second: f64, burst_cap: u64) -> Option<TokenBucket> {
    // What is no number is not above it either.
    if per_second.is_nan() || per_second < PER_SECOND_MIN {
        return None;
    }
    let rate = per_second.min(f64::from(u32::MAX));
    let most = rate * (1.0 + ROUNDING);
    let seconds = smallest_denominator(rate * (1.0 - LOSS_MAX), most)?;
    let tokens = most * seconds;
    let tokens = if lacks("quota_rate_rounded_up") { tokens.ceil() } else { tokens.floor() };
    // Both are within the numbers of 32 bits, and casts stop at their ends.
    let (tokens_per_fill, fill_seconds) = (tokens as u32, seconds as u32);
    let cap = u32::try_from(burst_cap.max(1)).unwrap_or(u32::MAX);
    let max_tokens = ((rate * BURST_SECONDS) as u32).max(MAX_TOKENS_LEAST).min(cap);
    Some(TokenBucket { max_tokens, tokens_per_fill, fill_seconds })
}

/// The smallest denominator of a fraction from `low` to `high`, both positive: their continued
/// fractions agree up to its last term.
fn smallest_denominator(mut low: f64, mut high: f64) -> Option<f64> {
    let (mut before, mut last) = (1.0, 0.0);
    for _ in 0..TERMS_MAX {
        let whole = low.ceil();
        if whole <= high {
            return Some(whole * last + before);
        }
        let whole = low.floor();
        (before, last) = (last, whole * last + before);
        (low, high) = (1.0 / (high - whole), 1.0 / (low - whole));
    }
    None
}

/// How much less than a rate its bucket may get.
const LOSS_MAX: f64 = 1e-3;
/// What arithmetic may take from a whole number.
const ROUNDING: f64 = 1e-12;
/// Lower rates are none: one request in thirty years.
const PER_SECOND_MIN: f64 = 1e-9;
/// For how long a bucket holds what comes.
const BURST_SECONDS: f64 = 0.1;
const MAX_TOKENS_LEAST: u32 = 2;
/// Numbers within a thousandth of each other part earlier.
const TERMS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop, prop_assert, proptest};

    use super::*;

    fn bucket(per_second: f64) -> (u32, u32, u32) {
        let TokenBucket { max_tokens, tokens_per_fill, fill_seconds } =
            bucket_of(per_second, u64::MAX).expect("something passes");
        (max_tokens, tokens_per_fill, fill_seconds)
    }

    #[test]
    fn a_rate_is_whole_tokens_in_as_few_seconds_as_say_it() {
        for (rate, expected) in [
            (50.0, (5, 50, 1)),
            (100.0, (10, 100, 1)),
            (0.01, (2, 1, 100)),
            (2.5, (2, 5, 2)),
            (0.57, (2, 41, 72)),
            (33.4, (3, 167, 5)),
            (100.0 / 3.0, (3, 100, 3)),
            (1_000_000.7, (100_000, 1_000_000, 1)),
            (1e9, (100_000_000, 1_000_000_000, 1)),
            (1e12, (429_496_729, u32::MAX, 1)),
            (f64::INFINITY, (429_496_729, u32::MAX, 1)),
            // Ten a day.
            (10.0 / 86_400.0, (2, 1, 8_640)),
        ] {
            assert_eq!(bucket(rate), expected, "{rate}");
        }
        for nothing in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY, 1e-10] {
            assert_eq!(bucket_of(nothing, 10), None);
            let part = Part::Rate { per_second: nothing, burst_cap: 10 };
            assert_eq!(Strategy::of(part), Some(Strategy::DenyAll));
        }
    }

    #[test]
    fn a_bucket_holds_no_more_than_its_cap_and_at_least_one() {
        let max_tokens = |cap| bucket_of(1_000.0, cap).map(|bucket| bucket.max_tokens);
        assert_eq!(
            [1_000, 100, 99, 2, 1, 0].map(max_tokens),
            [Some(100), Some(100), Some(99), Some(2), Some(1), Some(1)]
        );
    }

    /// Envoy 1.40 kept 50/s when 50 in 1 s became 50 in 10 s.
    #[test]
    fn a_bucket_never_differs_from_the_one_before_in_its_seconds_alone() {
        let (five, half) = (bucket_of(5.0, 9).expect("some"), bucket_of(2.5, 9).expect("some"));
        assert_eq!((five.tokens_per_fill, half.tokens_per_fill), (5, 5));
        let half = half.after(five);
        let expected = TokenBucket { max_tokens: 2, tokens_per_fill: 10, fill_seconds: 4 };
        assert_eq!(half, expected);
        assert_eq!(five.after(half), five);
        assert_eq!(five.after(five), five);
        let strategy = Strategy::TokenBucket(five);
        assert_eq!(strategy.after(Strategy::DenyAll), strategy);
        assert_eq!(Strategy::DenyAll.after(strategy), Strategy::DenyAll);
    }

    /// What a client lets pass at these instants, in seconds: it fills all the time, as Envoy does.
    fn admitted(bucket: TokenBucket, arrivals: &[f64]) -> Vec<f64> {
        let (mut tokens, mut then) = (f64::from(bucket.max_tokens), 0.0);
        let passes = |now: &f64| {
            let filled = tokens + (now - then) * bucket.per_second();
            (tokens, then) = (filled.min(f64::from(bucket.max_tokens)), *now);
            let passes = tokens >= 1.0;
            tokens -= f64::from(u8::from(passes));
            passes
        };
        arrivals.iter().copied().filter(passes).collect()
    }

    proptest! {
        #[test]
        fn a_bucket_gets_its_rate_and_never_more(exponent in -2.0..9.0_f64) {
            let rate = 10_f64.powf(exponent);
            let bucket = bucket_of(rate, u64::MAX).expect("something passes");
            let got = bucket.per_second();
            prop_assert!(got <= rate * (1.0 + 2.0 * ROUNDING), "{rate}: {bucket:?}");
            prop_assert!(got >= rate * (1.0 - LOSS_MAX - ROUNDING), "{rate}: {bucket:?}");
            prop_assert!(bucket.fill_seconds >= 1);
            prop_assert!(bucket.tokens_per_fill >= 1);
            prop_assert!(f64::from(bucket.max_tokens) <= (rate * BURST_SECONDS).max(2.0));
        }

        /// By brute force, over every window.
        #[test]
        fn in_any_time_no_more_passes_than_the_bucket_holds_and_the_rate_produces(
            exponent in -2.0..4.0_f64,
            cap in 1..200_u64,
            gaps in prop::collection::vec(0.0..3.0_f64, 1..120),
        ) {
            let rate = 10_f64.powf(exponent);
            let bucket = bucket_of(rate, cap).expect("something passes");
            let mut now = 0.0;
            let arrivals: Vec<f64> = gaps
                .iter()
                .map(|gap| {
                    now += gap / rate;
                    now
                })
                .collect();
            let passed = admitted(bucket, &arrivals);
            for (index, first) in passed.iter().enumerate() {
                for (count, last) in passed[index..].iter().enumerate() {
                    let most = f64::from(bucket.max_tokens) + rate * (last - first) + 1e-6;
                    prop_assert!((count + 1) as f64 <= most, "{count} in {}", last - first);
                }
            }
        }
    }
}
