//! The owner's level of one key: a leaky bucket in exact integers, and what may be given back.
//!
//! The level leaks at the rate and is never clamped at the burst: what was spent was spent. It
//! knows nothing of workers, permissions or messages. Rules 3 and 7 of `docs/bounds.md`.

use std::time::Duration;

use crate::mutant::lacks;
use crate::rate::Rate;
use crate::time::Instant;
use crate::view::tenure::Began;

/// One key's level L.
#[derive(Debug, Clone)]
pub(super) struct Meter {
    rate: Rate,
    burst: u64,
    /// Units times the rate's period in ns, so that a nanosecond leaks `rate.units()` of it.
    level: u128,
    /// Up to when it has leaked; in the future while it is held.
    at: Instant,
    /// Nothing that entered before this gives anything back.
    began: Instant,
    lows: Lows,
}

impl Meter {
    /// A key that is first met by an owner whose tenure of it began at `began`: whatever may have
    /// been spent under others has leaked since. A tenure that begins in the future is held: the
    /// level is the burst and does not leak until then.
    pub(super) fn unknown(rate: Rate, burst: u64, began: Began, now: Instant) -> Self {
        let Began { at, earlier, is_held: _ } = began;
        let mut meter = Self::with_level(rate, burst, 0, now.max(at));
        let leaked = earlier.as_nanos().saturating_mul(u128::from(rate.units()));
        meter.level = (u128::from(burst) * u128::from(rate.period_ns())).saturating_sub(leaked);
        meter.at = if lacks("unknown_has_leaked") { now.max(at) } else { at };
        meter.advance(now);
        if lacks("unknown_starts_spent") {
            meter.level = 0;
        }
        meter
    }

    /// A key whose level another owner handed over, in whole units rounded up.
    pub(super) fn with_level(rate: Rate, burst: u64, units: u64, now: Instant) -> Self {
        let level = u128::from(units) * u128::from(rate.period_ns());
        Self { rate, burst, level, at: now, began: now, lows: Lows::default() }
    }

    /// Holds the level: it does not leak before `until`.
    pub(super) fn hold(&mut self, until: Instant) {
        self.at = self.at.max(until);
    }

    /// Leaks until `now`.
    pub(super) fn advance(&mut self, now: Instant) {
        self.level = self.leaked(now);
        self.at = self.at.max(now);
    }

    /// What it will have leaked to by `now`.
    fn leaked(&self, now: Instant) -> u128 {
        let nanos = now.saturating_since(self.at).as_nanos();
        self.level.saturating_sub(nanos.saturating_mul(u128::from(self.rate.units())))
    }

    /// Adds what was spent, or is assumed to be. Returns when it entered, for
    /// [`lower`](Self::lower).
    pub(super) fn add(&mut self, units: u64, now: Instant) -> Instant {
        self.advance(now);
        let entered = self.lows.note(self.level, now);
        self.level = self.level.saturating_add(self.scaled(units));
        entered
    }

    /// Gives back units that entered at `since` or later, as far as they have not leaked: at most
    /// the lowest level since then. Returns how many whole units came back, rounded down.
    pub(super) fn lower(&mut self, units: u64, since: Instant, now: Instant) -> u64 {
        self.advance(now);
        let lowest = if since < self.began && !lacks("nothing_from_before") {
            0
        } else {
            self.lows.lowest_after(since).unwrap_or(self.level).min(self.level)
        };
        let mut back = self.scaled(units).min(lowest);
        if lacks("leaked_stays_leaked") {
            back = self.scaled(units).min(self.level);
        }
        self.level -= back;
        if !lacks("lows_are_lowered") {
            self.lows.lower(back, since);
        }
        (back / self.period()) as u64
    }

    /// Whole units that may still be permitted when `outstanding` are: floor(B - L - outstanding).
    pub(super) fn room(&self, outstanding: u64) -> u64 {
        let free = self.burst.saturating_sub(outstanding);
        (self.scaled(free).saturating_sub(self.level) / self.period()) as u64
    }

    /// Units by which the level and what is outstanding are above the burst at `now`, rounded up.
    pub(super) fn above(&self, outstanding: u64, now: Instant) -> u64 {
        let held = self.leaked(now).saturating_add(self.scaled(outstanding));
        let above = held.saturating_sub(self.scaled(self.burst));
        u64::try_from(above.div_ceil(self.period())).unwrap_or(u64::MAX)
    }

    /// The first instant at which [`room`](Self::room) is at least `units`; `None` if leaking alone
    /// never makes it.
    pub(super) fn room_at(&self, units: u64, outstanding: u64) -> Option<Instant> {
        let free = self.burst.checked_sub(outstanding)?.checked_sub(units)?;
        self.leaked_at(self.level.saturating_sub(self.scaled(free)))
    }

    /// When the level is zero, if nothing enters.
    pub(super) fn empty_at(&self) -> Option<Instant> {
        self.leaked_at(self.level)
    }

    /// When so much of the level has leaked.
    fn leaked_at(&self, part: u128) -> Option<Instant> {
        if part == 0 {
            return Some(self.at);
        }
        if self.rate.units() == 0 {
            return None;
        }
        let nanos = part.div_ceil(u128::from(self.rate.units()));
        Some(self.at.saturating_add(Duration::from_nanos(u64::try_from(nanos).ok()?)))
    }

    /// Puts another rate and burst in force; what was spent stays spent.
    pub(super) fn change(&mut self, rate: Rate, burst: u64, now: Instant) {
        self.advance(now);
        if lacks("changed_limit_applies") {
            return;
        }
        self.burst = burst;
        if rate == self.rate {
            return;
        }
        let (old, new) = (self.period(), u128::from(rate.period_ns()));
        self.level = self.level / old * new + (self.level % old * new).div_ceil(old);
        self.lows.convert(|low| low / old * new + low % old * new / old);
        self.rate = rate;
    }

    /// The level in whole units, rounded up.
    pub(super) fn level(&self) -> u64 {
        u64::try_from(self.level.div_ceil(self.period())).unwrap_or(u64::MAX)
    }

    /// The level in whole units at `now`, if nothing enters until then.
    pub(super) fn level_at(&self, now: Instant) -> u64 {
        u64::try_from(self.leaked(now).div_ceil(self.period())).unwrap_or(u64::MAX)
    }

    pub(super) fn burst(&self) -> u64 {
        self.burst
    }

    pub(super) fn rate(&self) -> Rate {
        self.rate
    }

    fn period(&self) -> u128 {
        u128::from(self.rate.period_ns())
    }

    fn scaled(&self, units: u64) -> u128 {
        u128::from(units) * self.period()
    }
}

/// The lowest levels of the past: for any instant, the lowest that the level has been since.
///
/// A level leaks, so it is lowest right before something enters. Of those points only they matter
/// than which no later one is lower: times and levels both rise. When there are too many, two
/// neighbours that are close for their age become one, with the later time and the lower level:
/// less comes back, never more.
#[derive(Debug, Clone, Default)]
struct Lows {
    points: Vec<(Instant, u128)>,
    last: Instant,
}

impl Lows {
    /// Something enters at `now`, when the level is `level`. Returns a time of its own for it: no
    /// two entries have the same.
    fn note(&mut self, level: u128, now: Instant) -> Instant {
        self.last = now.max(self.last.saturating_add(Duration::from_nanos(1)));
        while self.points.last().is_some_and(|(_, low)| *low >= level) {
            self.points.pop();
        }
        self.points.push((self.last, level));
        if self.points.len() > LOWS_MAX {
            self.merge();
        }
        self.last
    }

    fn merge(&mut self) {
        let closeness = |first: usize| {
            let (from, to) = (self.points[first].0, self.points[first + 1].0);
            let age = self.last.saturating_since(to) + LOWS_GRAIN;
            to.saturating_since(from).as_secs_f64() / age.as_secs_f64()
        };
        let pairs = 0..self.points.len() - 1;
        let closest = pairs.min_by(|a, b| closeness(*a).total_cmp(&closeness(*b)));
        if let Some(first) = closest {
            self.points[first].0 = self.points[first + 1].0;
            self.points.remove(first + 1);
        }
    }

    /// The lowest level at which something entered after `since`.
    fn lowest_after(&self, since: Instant) -> Option<u128> {
        self.points.iter().find(|(at, _)| *at > since).map(|(_, low)| *low)
    }

    /// As if so much had never entered at `since`.
    fn lower(&mut self, by: u128, since: Instant) {
        let mut lowest = u128::MAX;
        for (at, low) in self.points.iter_mut().rev() {
            if *at > since {
                *low = low.saturating_sub(by);
            }
            lowest = lowest.min(*low);
            *low = lowest;
        }
    }

    fn convert(&mut self, convert: impl Fn(u128) -> u128) {
        self.points.iter_mut().for_each(|(_, low)| *low = convert(*low));
    }
}

/// Points kept a key.
const LOWS_MAX: usize = 12;
/// Points that are closer together than this need not be told apart.
const LOWS_GRAIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn rate(text: &str) -> Rate {
        Rate::parse(text).expect("a rate")
    }

    #[test]
    fn what_leaked_does_not_come_back() {
        // 1,000/s, burst 50: an expired permission of 50 enters at 20 ms and has leaked at 70 ms;
        // another worker spends 50 then; the first one's return finds nothing of its own left.
        let mut meter = Meter::with_level(rate("1000/s"), 50, 0, ms(0));
        let entered = meter.add(50, ms(20));
        meter.add(50, ms(70));
        assert_eq!(meter.lower(50, entered, ms(70)), 0);
        assert_eq!(meter.level(), 50);
    }

    #[test]
    fn what_has_not_leaked_comes_back() {
        let mut meter = Meter::with_level(rate("1000/s"), 50, 0, ms(0));
        let entered = meter.add(50, ms(20));
        assert_eq!(meter.lower(50, entered, ms(30)), 40);
        assert_eq!((meter.level(), meter.room(0)), (0, 50));
    }

    #[test]
    fn room_comes_at_the_instant_that_is_told() {
        let mut meter = Meter::unknown(rate("10/s"), 5, Began::at(ms(0)), ms(0));
        assert_eq!(meter.room(0), 0);
        let at = meter.room_at(2, 1).expect("it leaks");
        assert_eq!(at, ms(300));
        meter.advance(Instant::from_nanos(at.as_nanos() - 1));
        assert_eq!(meter.room(1), 1);
        meter.advance(at);
        assert_eq!(meter.room(1), 2);
    }

    #[test]
    fn what_leaked_before_the_process_began_has_leaked() {
        let hour = Began { earlier: Duration::from_secs(3_600), ..Began::at(ms(0)) };
        assert_eq!(Meter::unknown(rate("3/h"), 5, hour, ms(0)).room(0), 3);
        assert_eq!(Meter::unknown(rate("3/h"), 5, hour, ms(1_200_000)).room(0), 4);
        let ever = Began { earlier: Duration::MAX, ..Began::at(ms(0)) };
        assert_eq!(Meter::unknown(rate("1/365d"), 5, ever, ms(0)).room(0), 5);
    }

    #[test]
    fn a_changed_limit_keeps_what_was_spent() {
        let mut meter = Meter::with_level(rate("10/s"), 10, 10, ms(0));
        meter.change(rate("10/min"), 20, ms(0));
        assert_eq!((meter.level(), meter.room(0)), (10, 10));
        meter.change(rate("10/s"), 5, ms(0));
        assert_eq!((meter.level(), meter.room(0)), (10, 0));
    }

    #[test]
    fn a_held_level_does_not_leak() {
        let mut meter = Meter::unknown(rate("1000/s"), 50, Began::at(ms(400)), ms(10));
        meter.advance(ms(399));
        assert_eq!(meter.room(0), 0);
        meter.advance(ms(410));
        assert_eq!(meter.room(0), 10);
    }

    /// The level of a queue by its history alone: what entered when, in milliseconds, at one unit a
    /// millisecond.
    fn replayed(entries: &[(u64, u64)], now: u64) -> u64 {
        let (mut level, mut at) = (0_u64, 0);
        for (entered, units) in entries {
            level = level.saturating_sub(entered - at) + units;
            at = *entered;
        }
        level.saturating_sub(now - at)
    }

    proptest! {
        /// Units that are given back count as if they had never entered: the level is that of the
        /// history without them, exactly while points are few, and never below it.
        #[test]
        fn the_level_is_that_of_a_history_without_what_was_given_back(
            steps in prop::collection::vec((0_u64..40, 0_u64..30, 0_usize..40, 0_u64..30), 1..60),
        ) {
            let mut meter = Meter::with_level(rate("1/ms"), 1_000, 0, ms(0));
            let mut entries: Vec<(u64, u64)> = Vec::new();
            let mut stamps = Vec::new();
            let mut now = 0;
            for (wait, units, which, back) in steps {
                now += wait;
                if units > 0 {
                    stamps.push(meter.add(units, ms(now)));
                    entries.push((now, units));
                }
                if let Some((_, entered)) = entries.get_mut(which) {
                    let back = back.min(*entered);
                    *entered -= back;
                    meter.lower(back, stamps[which], ms(now));
                }
                meter.advance(ms(now));
                let expected = replayed(&entries, now);
                // Two entries at one instant are a nanosecond apart.
                let few = stamps.len() <= LOWS_MAX;
                prop_assert!(meter.level() >= expected, "{} < {expected}", meter.level());
                prop_assert!(!few || meter.level() <= expected, "{} > {expected}", meter.level());
            }
        }
    }
}
