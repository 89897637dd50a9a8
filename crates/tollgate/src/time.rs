//! Instants, and the clock that reads them: the one file that asks the operating system for time.
//!
//! Everything else is handed an [`Instant`]. Wall-clock time is unknown here, so that a stepped
//! system clock can neither lock a key out nor hand it a second burst.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Nanoseconds since the clock's start: for the system's clock, since about the machine's.
///
/// A `u64` of nanoseconds lasts for 584 years; limits are exact for ten years after they are
/// loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The clock's start.
    pub const ZERO: Self = Self(0);
    /// The last instant that can be named; sums stop here instead of wrapping.
    pub const MAX: Self = Self(u64::MAX);

    /// The instant `nanos` nanoseconds after the clock's start.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's start.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This instant moved forward by `duration`, or [`Instant::MAX`] beyond the range.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    /// This instant moved back by `duration`, or [`Instant::ZERO`] before the range.
    pub(crate) fn saturating_sub(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(nanos))
    }

    /// Time from `earlier` to this instant; zero when `earlier` is the later one.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Reads the time: the processor's counter, or a hand that a test turns.
///
/// Clones of one clock agree. On machines without a usable counter it reads the operating system's
/// monotonic clock, at about twice the cost.
#[derive(Debug, Clone)]
pub struct Clock {
    /// Nanoseconds in 2^64 counts of the processor's counter, if that is the source and `quanta`
    /// found it fit and faster than a gigahertz; else 0.
    per_count: u64,
    source: Source,
}

/// What is asked when the processor's counter is not.
#[derive(Debug, Clone)]
enum Source {
    Quanta(quanta::Clock),
    /// The operating system's monotonic clock, since this process first asked it.
    Monotonic(std::time::Instant),
}

impl Clock {
    /// The machine's monotonic clock.
    ///
    /// The first call in a process measures the counter, which takes up to 0.2 s.
    #[must_use]
    pub fn system() -> Self {
        static SYSTEM: OnceLock<Clock> = OnceLock::new();
        SYSTEM.get_or_init(|| Self::over(quanta::Clock::new())).clone()
    }

    /// The operating system's monotonic clock, which is kept at the right speed while it runs; the
    /// processor's counter is measured once, and may be off by some parts in ten thousand when the
    /// machine was busy then. Reading it takes some 20 ns more.
    #[must_use]
    pub fn monotonic() -> Self {
        static START: OnceLock<std::time::Instant> = OnceLock::new();
        let start = *START.get_or_init(std::time::Instant::now);
        Self { per_count: 0, source: Source::Monotonic(start) }
    }

    /// A clock that stands at [`Instant::ZERO`] until its hand is turned.
    ///
    /// ```
    /// let (clock, hand) = tollgate::Clock::manual();
    /// hand.advance(std::time::Duration::from_millis(100));
    /// assert_eq!(clock.now().as_nanos(), 100_000_000);
    /// ```
    #[must_use]
    pub fn manual() -> (Self, ClockHand) {
        let (source, mock) = quanta::Clock::mock();
        (Self::over(source), ClockHand(mock))
    }

    /// The current instant.
    #[inline(always)]
    #[must_use]
    pub fn now(&self) -> Instant {
        if self.per_count == 0 {
            return self.source.now();
        }
        Instant(((u128::from(counter()) * u128::from(self.per_count)) >> 64) as u64)
    }

    fn over(source: quanta::Clock) -> Self {
        let scaled = source.delta_as_nanos(0, 1 << 62);
        // Only a counter is scaled; all else counts in nanoseconds.
        let is_fast = cfg!(target_arch = "x86_64") && scaled < 1 << 62;
        let source = Source::Quanta(source);
        Self { per_count: if is_fast { scaled << 2 } else { 0 }, source }
    }
}

impl Source {
    fn now(&self) -> Instant {
        match self {
            Self::Quanta(clock) => Instant(clock.delta_as_nanos(0, clock.raw())),
            Self::Monotonic(start) => {
                let nanos = start.elapsed().as_nanos();
                Instant(u64::try_from(nanos).unwrap_or(u64::MAX))
            }
        }
    }
}

/// The processor's counter. It is read here and not through `quanta`, whose own dispatch is a tenth
/// of a decision (`bench/RESULTS.md`).
#[inline(always)]
fn counter() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("`over` chooses it on x86-64 alone");
}

/// Turns a [manual clock](Clock::manual), forwards or back.
#[derive(Debug, Clone)]
pub struct ClockHand(Arc<quanta::Mock>);

impl ClockHand {
    /// Moves the clock forward, up to [`Instant::MAX`].
    pub fn advance(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.0.increment(nanos.min(u64::MAX - self.0.value()));
    }

    /// Moves the clock back, as a broken time source would.
    ///
    /// Going back beyond the start leaves the clock at [`Instant::ZERO`].
    pub fn turn_back(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.0.decrement(nanos.min(self.0.value()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_runs_at_the_speed_of_the_operating_systems() {
        let clock = Clock::system();
        let theirs = std::time::Instant::now;
        let (before, start, after) = (theirs(), clock.now(), theirs());
        while after.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        let (least, end, most) = (after.elapsed(), clock.now(), before.elapsed());
        // Ours was read between the two of theirs at both ends, however long the thread was kept
        // out.
        let ours = end.saturating_since(start);
        assert!(ours >= least.mul_f64(0.999), "{ours:?} in {least:?} to {most:?}");
        assert!(ours <= most.mul_f64(1.001), "{ours:?} in {least:?} to {most:?}");
    }

    #[test]
    fn the_monotonic_clock_is_the_operating_systems() {
        let clock = Clock::monotonic();
        let theirs = std::time::Instant::now;
        let (before, start, after) = (theirs(), clock.now(), theirs());
        let (least, end, most) = (after.elapsed(), Clock::monotonic().now(), before.elapsed());
        let ours = end.saturating_since(start);
        assert!(least <= ours && ours <= most, "{ours:?} in {least:?} to {most:?}");
    }

    #[test]
    fn a_manual_clock_goes_back_no_further_than_its_start() {
        let (clock, hand) = Clock::manual();
        hand.advance(Duration::from_nanos(5));
        hand.turn_back(Duration::from_nanos(2));
        assert_eq!(clock.now(), Instant::from_nanos(3));
        hand.turn_back(Duration::from_secs(1));
        assert_eq!(clock.now(), Instant::ZERO);
        hand.advance(Duration::MAX);
        hand.advance(Duration::MAX);
        assert_eq!(clock.now(), Instant::MAX);
    }

    #[test]
    fn sums_and_differences_stop_at_the_ends_of_the_range() {
        assert_eq!(Instant::MAX.saturating_add(Duration::from_nanos(1)), Instant::MAX);
        assert_eq!(Instant::ZERO.saturating_since(Instant::MAX), Duration::ZERO);
    }
}
