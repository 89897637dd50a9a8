//! Windows of wall time, and what the counts of two of them say of a key.

use std::fmt;
use std::time::Duration;

use crate::mutant::lacks;

/// Nanoseconds since 1970 (UTC), as some node's clock has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(u64);

impl WallTime {
    /// So many nanoseconds since 1970.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// So many seconds since 1970; those beyond 2554 are that year's last moment.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(NANOS_PER_SECOND))
    }

    /// Nanoseconds since 1970.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole seconds since 1970.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0 / NANOS_PER_SECOND
    }
}

/// What becomes of a request that brings a key's level to the threshold exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meets {
    /// It passes: the threshold is what a key may use.
    Passes,
    /// It is limited, as in the limiter that this guarantee comes from: one unit less may be used.
    IsLimited,
}

/// A threshold for each window of wall time.
///
/// Windows are numbered from 1970 on, so that all nodes agree on which one it is as far as their
/// clocks do. A clock that is `s` wrong puts what it counts near an edge into the wrong window: up
/// to `s / window` of what is counted there is weighted wrongly. One that steps by two windows or
/// more begins all keys anew on its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    threshold: u64,
    length: u64,
    meets: Meets,
}

/// Why there is no such window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowError {
    /// A threshold of zero.
    NoThreshold,
    /// No whole number of seconds, or none at all: nodes would number windows differently.
    NotWholeSeconds,
    /// Longer than 365 days.
    TooLong,
}

impl fmt::Display for WindowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoThreshold => "the threshold must be 1 or more",
            Self::NotWholeSeconds => "the window must be a whole number of seconds, 1 or more",
            Self::TooLong => "the window must be 365 days at most",
        })
    }
}

impl std::error::Error for WindowError {}

/// How much a key has used lately, exactly: a sum of units, each weighted by a part of the window.
///
/// It has a meaning only beside the [`Window`] that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Estimate {
    /// Units times the window's nanoseconds.
    parts: u128,
}

impl Estimate {
    /// More than leaks away in any time.
    pub const MAX: Self = Self { parts: u128::MAX };
}

impl Window {
    /// `threshold` units in each window of this length.
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn new(threshold: u64, length: Duration, meets: Meets) -> Result<Self, WindowError> {
        if threshold == 0 {
            return Err(WindowError::NoThreshold);
        }
        if length.is_zero() || length.subsec_nanos() != 0 {
            return Err(WindowError::NotWholeSeconds);
        }
        if length > LENGTH_MAX {
            return Err(WindowError::TooLong);
        }
        let length = length.as_secs() * NANOS_PER_SECOND;
        Ok(Self { threshold, length, meets })
    }

    /// One unit in a second.
    pub(crate) const fn of_second(meets: Meets) -> Self {
        Self { threshold: 1, length: NANOS_PER_SECOND, meets }
    }

    /// Units that a key may use in a window, or is limited at.
    #[must_use]
    pub fn threshold(&self) -> u64 {
        self.threshold
    }

    /// How long a window is.
    #[must_use]
    pub fn length(&self) -> Duration {
        Duration::from_nanos(self.length)
    }

    /// What becomes of who meets the threshold.
    #[must_use]
    pub fn meets(&self) -> Meets {
        self.meets
    }

    /// The number of the window that holds an instant: with windows of 60 s, second 119 is in
    /// number 1 and second 120 in number 2.
    #[must_use]
    pub fn number(&self, at: WallTime) -> u64 {
        at.0 / self.length
    }

    /// When a window ends, and the next one begins.
    #[must_use]
    pub fn end(&self, number: u64) -> WallTime {
        WallTime(number.saturating_add(1).saturating_mul(self.length))
    }

    /// What a key used in the time of one window before `at`, if what was counted in the `previous`
    /// window was counted evenly: `previous` by the part of it that still lies in that time, and
    /// all of `current`.
    ///
    /// With 42 in the previous minute and 18 in this one, 15 s old: 42 · 45 / 60 + 18 = 49.5.
    #[must_use]
    pub fn estimate(&self, previous: u64, current: u64, at: WallTime) -> Estimate {
        let left = self.length - at.0 % self.length;
        let parts = u128::from(previous) * u128::from(left) + self.parts(current);
        Estimate { parts }
    }

    /// What is left of an estimate, `age` after it was read: it leaks at the threshold in each
    /// window.
    ///
    /// Of 600 at 1,000 in 10 s, 300 are left after 3 s, and none after 6.
    #[must_use]
    pub fn leaked(&self, estimate: Estimate, age: Duration) -> Estimate {
        let leak = u128::from(self.threshold).saturating_mul(age.as_nanos());
        Estimate { parts: estimate.parts.saturating_sub(leak) }
    }

    /// An estimate of so old an age with what was `counted` here since, which does not leak.
    #[must_use]
    pub fn level(&self, estimate: Estimate, age: Duration, counted: u64) -> Estimate {
        let leaked = self.leaked(estimate, age);
        Estimate { parts: leaked.parts.saturating_add(self.parts(counted)) }
    }

    /// An estimate without so many units.
    #[must_use]
    pub fn without(&self, estimate: Estimate, units: u64) -> Estimate {
        Estimate { parts: estimate.parts.saturating_sub(self.parts(units)) }
    }

    /// Whether a cost passes, at an estimate of so old an age with so much counted here since.
    ///
    /// At a threshold of 100 with 85 estimated just now, 15 more pass; if the request that
    /// [meets](Meets) the threshold is limited, 14.
    #[must_use]
    pub fn admits(&self, estimate: Estimate, age: Duration, counted: u64, cost: u64) -> bool {
        counted.checked_add(cost).is_some_and(|all| all <= self.room(estimate, age))
    }

    /// The most that may be counted here beside an estimate of so old an age.
    #[must_use]
    pub fn room(&self, estimate: Estimate, age: Duration) -> u64 {
        let leaked = self.leaked(estimate, age).parts;
        let whole = self.parts(self.threshold);
        let free = match self.meets {
            Meets::Passes => whole.checked_sub(leaked),
            Meets::IsLimited => whole.checked_sub(leaked).and_then(|free| free.checked_sub(1)),
        };
        // At most the threshold.
        free.map_or(0, |free| (free / u128::from(self.length)) as u64)
    }

    /// When the count of a window may leave the store: after the window that follows it, in which
    /// it is read, and after `grace`, which is a window at most. `spread` moves it by a part of
    /// what is left of a window then, in 2^64ths, so that the keys of a window do not all leave at
    /// once: it lives for three windows at most.
    ///
    /// With windows of 60 s, window 2 (seconds 120 to 180) is read until 240; with a grace of 5 s
    /// and a half as spread it leaves at 272.5.
    #[must_use]
    pub fn expires_at(&self, number: u64, grace: Duration, spread: u64) -> WallTime {
        let grace = u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX).min(self.length);
        let part = (u128::from(self.length - grace) * u128::from(spread)) >> 64;
        let follows = u64::from(!lacks("expiry_after_two_windows"));
        let read_until = self.end(number.saturating_add(follows)).0;
        let part = if lacks("expiries_are_spread") { 0 } else { part };
        WallTime(read_until.saturating_add(grace).saturating_add(part as u64))
    }

    /// An estimate in units, as a number to show.
    #[must_use]
    pub fn units(&self, estimate: Estimate) -> f64 {
        estimate.parts as f64 / self.length as f64
    }

    /// How long an estimate of these counts, of the previous window and of this one, read at `at`,
    /// is to wait before it leaks, so that it is at no time below what the counts themselves say
    /// until `next` later, when they are read again; and that of what leaves them until then only
    /// the part is used here that they have by this node's `own`. All nodes see the same room.
    ///
    /// What is counted in this window counts whole until its end. With 600 in this minute and none
    /// in the previous one an estimate of 1,000 a minute waits for as long as `next`. With 1,000 in
    /// the previous one that are this node's, it leaks as they leave, and waits for nothing; with
    /// 500 of them it waits for half of the time.
    pub(super) fn rest(
        &self,
        (previous, current): (u64, u64),
        own: u64,
        at: WallTime,
        next: Duration,
    ) -> Duration {
        let began = self.estimate(previous, current, at);
        let all = (u128::from(previous) + u128::from(current)).max(1);
        let own = if lacks("leaks_by_its_part") { all } else { u128::from(own).min(all) };
        let end = self.end(self.number(at)).0 - at.0;
        let next = u64::try_from(next.as_nanos()).unwrap_or(u64::MAX).min(2 * self.length);
        // What is left is a line between these, and so is what leaks.
        let rest = |after: u64| {
            let then = WallTime(at.0.saturating_add(after));
            let left = match self.number(then) - self.number(at) {
                0 => self.estimate(previous, current, then),
                1 => self.estimate(current, 0, then),
                _ => Estimate::default(),
            };
            let gone = began.parts.saturating_sub(left.parts);
            let gone = match gone.checked_mul(own) {
                Some(product) => product / all,
                None => gone / all * own,
            };
            let gone = Estimate { parts: gone };
            after.saturating_sub(self.age_of(gone).0)
        };
        Duration::from_nanos(rest(next).max(if end < next { rest(end) } else { 0 }))
    }

    /// How long it takes at the speed at which one estimate became another in `time` until that is
    /// the threshold; nothing if it falls. One that is above it: until it has leaked to it.
    pub(super) fn time_to_threshold(
        &self,
        before: Estimate,
        now: Estimate,
        time: Duration,
    ) -> Option<Duration> {
        let whole = self.parts(self.threshold);
        if now.parts >= whole {
            let above = Estimate { parts: now.parts - whole };
            return Some(Duration::from_nanos(self.age_of(above).1));
        }
        let risen = now.parts.checked_sub(before.parts).filter(|risen| *risen > 0)? as f64;
        let seconds = (whole - now.parts) as f64 / risen * time.as_secs_f64();
        Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }

    /// How far two estimates are apart, in parts of the threshold.
    pub(super) fn apart(&self, one: Estimate, other: Estimate) -> f64 {
        one.parts.abs_diff(other.parts) as f64 / self.parts(self.threshold) as f64
    }

    /// How an estimate compares with a part of the threshold, `tenths` of it.
    pub(super) fn is_below(&self, estimate: Estimate, tenths: u32) -> bool {
        estimate.parts.saturating_mul(10) < self.parts(self.threshold) * u128::from(tenths)
    }

    pub(super) fn length_nanos(&self) -> u64 {
        self.length
    }

    /// An estimate in units, rounded down and up.
    pub(super) fn whole_units(&self, estimate: Estimate) -> (u64, u64) {
        let length = u128::from(self.length);
        let units = |units: u128| u64::try_from(units).unwrap_or(u64::MAX);
        (units(estimate.parts / length), units(estimate.parts.div_ceil(length)))
    }

    /// How long an estimate leaks, in nanoseconds rounded down and up.
    pub(super) fn age_of(&self, estimate: Estimate) -> (u64, u64) {
        let threshold = u128::from(self.threshold);
        let nanos = |nanos: u128| u64::try_from(nanos).unwrap_or(u64::MAX);
        (nanos(estimate.parts / threshold), nanos(estimate.parts.div_ceil(threshold)))
    }

    fn parts(&self, units: u64) -> u128 {
        // Below 2^64 · 2^55.
        u128::from(units) * u128::from(self.length)
    }
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;
const LENGTH_MAX: Duration = Duration::from_secs(365 * 86_400);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn window(threshold: u64, seconds: u64, meets: Meets) -> Window {
        Window::new(threshold, Duration::from_secs(seconds), meets).expect("a window")
    }

    /// 100 in 60 s.
    fn hundred() -> Window {
        window(100, 60, Meets::Passes)
    }

    fn at(seconds: f64) -> WallTime {
        WallTime::from_nanos((seconds * 1e9) as u64)
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn windows_are_numbered_from_1970_on() {
        let number = |seconds, length| window(1, length, Meets::Passes).number(at(seconds));
        let cases = [(0.0, 60, 0), (59.999, 60, 0), (60.0, 60, 1), (61.0, 60, 1), (120.0, 60, 2)];
        for (seconds, length, expected) in cases {
            assert_eq!(number(seconds, length), expected, "{seconds} of {length}");
        }
        assert_eq!(number(1_700_000_000.0, 60), 28_333_333);
        assert_eq!(number(1_700_000_000.0, 10), 170_000_000);
        assert_eq!(hundred().end(1), at(120.0));
    }

    #[test]
    fn what_is_no_window_is_refused() {
        let new = |threshold, length| Window::new(threshold, length, Meets::Passes);
        assert_eq!(new(0, ms(1_000)), Err(WindowError::NoThreshold));
        for length in [ms(0), ms(999), ms(1_500)] {
            assert_eq!(new(1, length), Err(WindowError::NotWholeSeconds), "{length:?}");
        }
        assert_eq!(new(1, LENGTH_MAX + ms(1_000)), Err(WindowError::TooLong));
        assert!(new(u64::MAX, LENGTH_MAX).is_ok());
    }

    #[test]
    fn the_previous_window_counts_by_what_is_left_of_it() {
        let units = |previous, current, part: f64| {
            let window = hundred();
            window.units(window.estimate(previous, current, at(600.0 + 60.0 * part)))
        };
        let cases = [
            (100, 0, 0.0, 100.0),
            (100, 0, 0.5, 50.0),
            (100, 50, 0.5, 100.0),
            (0, 100, 0.25, 100.0),
            (0, 0, 0.5, 0.0),
            (100, 100, 0.0, 200.0),
            (7, 3, 0.5, 6.5),
            // Cloudflare's.
            (42, 18, 0.25, 49.5),
        ];
        for (previous, current, part, expected) in cases {
            assert_eq!(units(previous, current, part), expected, "{previous} {current} {part}");
        }
    }

    #[test]
    fn a_nanosecond_before_the_edge_nearly_nothing_of_the_previous_window_is_left() {
        let window = hundred();
        let last = WallTime::from_nanos(659_999_999_999);
        assert_eq!(window.estimate(60_000_000_000, 0, last), window.estimate(0, 1, last));
        assert_eq!(window.number(last), 10);
        // Of what was counted in it all is left a nanosecond later, as the previous one's.
        let next = WallTime::from_nanos(660_000_000_000);
        assert_eq!(window.estimate(0, 37, last), window.estimate(37, 0, next));
    }

    #[test]
    fn an_estimate_leaks_and_what_is_counted_here_does_not() {
        let window = window(100, 10, Meets::Passes);
        let fifty = window.estimate(0, 50, at(0.0));
        let level = |millis, counted| window.units(window.level(fifty, ms(millis), counted));
        let cases = [
            (0, 0, 50.0),
            (5_000, 0, 0.0),
            (2_000, 0, 30.0),
            (0, 20, 70.0),
            (2_000, 20, 50.0),
            (60_000, 0, 0.0),
            (60_000, 20, 20.0),
        ];
        for (millis, counted, expected) in cases {
            assert_eq!(level(millis, counted), expected, "{millis} {counted}");
        }
    }

    #[test]
    fn who_meets_the_threshold_passes_or_is_limited_as_said() {
        for (meets, most) in [(Meets::Passes, 100), (Meets::IsLimited, 99)] {
            let window = window(100, 60, meets);
            let nothing = Estimate::default();
            assert_eq!(window.room(nothing, Duration::ZERO), most);
            assert!(window.admits(nothing, Duration::ZERO, most - 1, 1));
            assert!(!window.admits(nothing, Duration::ZERO, most, 1));
            assert!(!window.admits(nothing, Duration::ZERO, u64::MAX, 1));
            let over = window.estimate(200, 200, at(0.0));
            assert_eq!(window.room(over, Duration::ZERO), 0);
        }
    }

    /// 600 in this window, of which nothing leaves before the next one: an estimate of them waits
    /// as long as it is to last. Of 1,000 in the previous window as much leaves as leaks.
    #[test]
    fn an_estimate_waits_as_long_as_the_counts_in_it_stay() {
        let limit = window(1_000, 60, Meets::Passes);
        let all = |counts, own, second: f64, next| {
            limit.rest(counts, own, at(second), Duration::from_secs(next)).as_millis()
        };
        let rest =
            |previous, current, second, next| all((previous, current), u64::MAX, second, next);
        assert_eq!(rest(0, 600, 120.0, 10), 10_000);
        assert_eq!(rest(1_000, 0, 120.0, 10), 0);
        assert_eq!(rest(500, 600, 120.0, 10), 5_000);
        // It leaks as they do from the edge on, a second after it.
        assert_eq!(rest(0, 1_000, 170.0, 11), 10_000);
        // What is above the limit leaves faster than it leaks.
        assert_eq!(rest(3_000, 0, 120.0, 10), 0);
        assert_eq!(rest(0, 3_000, 170.0, 11), 10_000);
        assert_eq!(rest(0, 0, 170.0, 11), 11_000);
        // Of what leaves, others use their part.
        assert_eq!(all((1_000, 0), 500, 120.0, 10), 5_000);
        assert_eq!(all((1_000, 0), 0, 120.0, 10), 10_000);
        assert_eq!(all((u64::MAX, 0), 1 << 63, 120.0, 10), 0);
    }

    /// 90 at second 10 of windows of 180 s, and 100 more at second 190: 85 of the 90 still count.
    #[test]
    fn the_previous_window_is_known_to_the_end() {
        let limit = window(100, 180, Meets::Passes);
        let estimate = limit.estimate(90, 0, at(190.0));
        assert_eq!((limit.units(estimate), limit.room(estimate, Duration::ZERO)), (85.0, 15));
        let seeds = window(100, 180, Meets::IsLimited);
        assert_eq!(seeds.room(estimate, Duration::ZERO), 14);
    }

    #[test]
    fn a_count_leaves_the_store_after_it_can_be_read_and_not_with_all_others() {
        let window = hundred();
        let leaves = |spread| window.expires_at(2, Duration::from_secs(5), spread);
        assert_eq!(leaves(0), at(245.0));
        assert_eq!(leaves(1 << 63), at(272.5));
        assert!(leaves(u64::MAX) < at(300.0));
        // Asked for at the beginning of a window it lives for two windows, and three at most.
        assert!(window.expires_at(2, Duration::ZERO, u64::MAX) <= at(120.0 + 3.0 * 60.0));
    }

    #[derive(Debug, Clone)]
    struct Arrival {
        gap_ns: u64,
        cost: u64,
    }

    fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
        let gap = prop_oneof![Just(0), 0..1_000_000_u64, 0..2_000_000_000_u64];
        let one = (gap, 1..4_u64).prop_map(|(gap_ns, cost)| Arrival { gap_ns, cost });
        prop::collection::vec(one, 0..300)
    }

    proptest! {
        /// Until the counts are read again, an estimate leaks to no less than what they say.
        #[test]
        fn an_estimate_never_leaks_below_the_counts_before_they_are_read_again(
            threshold in 1_u64..100_000,
            counts in (0_u64..300_000, 0_u64..300_000),
            second in 0.0_f64..240.0,
            (next, part) in (1_u64..130_000, 0.0_f64..=1.0),
            own in prop_oneof![Just(u64::MAX), 0_u64..300_000],
        ) {
            let limit = window(threshold, 60, Meets::Passes);
            let (previous, current) = counts;
            let (read_at, next) = (at(second), ms(next));
            let after = next.min(ms(120_000)).mul_f64(part);
            let then = WallTime::from_nanos(read_at.0 + after.as_nanos() as u64);
            let read = limit.estimate(previous, current, read_at);
            let rest = limit.rest(counts, own, read_at, next);
            let left = limit.leaked(read, after.saturating_sub(rest));
            let still = match limit.number(then) - limit.number(read_at) {
                0 => limit.estimate(previous, current, then),
                1 => limit.estimate(current, 0, then),
                _ => Estimate::default(),
            };
            // But for the nanosecond to which it is rounded.
            let nanosecond = u128::from(threshold);
            prop_assert!(left.parts + nanosecond >= still.parts, "{left:?} {still:?} {rest:?}");
            prop_assert!(left <= read);
        }

        /// One node that always knows the counts: in no time as long as a window does more than
        /// twice the threshold pass, less one. And level and verdict are those of plain fractions.
        #[test]
        fn never_does_twice_the_threshold_pass_in_a_windows_time(arrivals in arrivals()) {
            let limit = window(10, 5, Meets::Passes);
            let length = 5_000_000_000_u64;
            let (mut now, mut passed) = (0_u64, Vec::<(u64, u64)>::new());
            for Arrival { gap_ns, cost } in arrivals {
                now += gap_ns;
                let number = now / length;
                let counted = |wanted| -> u64 {
                    passed.iter().filter(|(at, _)| at / length == wanted).map(|(_, c)| c).sum()
                };
                let current = counted(number);
                let previous = number.checked_sub(1).map_or(0, counted);
                let estimate = limit.estimate(previous, current, WallTime::from_nanos(now));
                let passes = limit.admits(estimate, Duration::ZERO, 0, cost);
                // By fractions of 5 · 10^9.
                let left = length - now % length;
                let sum = u128::from(previous * left) + u128::from((current + cost) * length);
                prop_assert_eq!(passes, sum <= u128::from(10 * length));
                if passes {
                    passed.push((now, cost));
                    let since = now.saturating_sub(length - 1);
                    let lately: u64 =
                        passed.iter().filter(|(at, _)| *at >= since).map(|(_, c)| c).sum();
                    prop_assert!(lately < 2 * 10, "{lately} in the time of one window");
                }
            }
        }

        /// Whatever is asked for costs no more room than it takes, and time only gives.
        #[test]
        fn room_only_grows_with_time(
            counts in (0..1_000_u64, 0..1_000_u64),
            elapsed in 0..60_000_u64,
            ages in (0..200_000_u64, 0..200_000_u64),
        ) {
            let window = hundred();
            let wall = WallTime::from_nanos(600_000_000_000 + elapsed * 1_000_000);
            let estimate = window.estimate(counts.0, counts.1, wall);
            let (younger, older) = (ages.0.min(ages.1), ages.0.max(ages.1));
            prop_assert!(window.room(estimate, ms(younger)) <= window.room(estimate, ms(older)));
            prop_assert!(window.room(estimate, ms(older)) <= 100);
        }
    }
}
