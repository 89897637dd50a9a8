//! What was given back of a cell and not drained yet, as one word has it.
//!
//! It knows neither whose units they are, nor what becomes of them.

use std::time::Duration;

use crate::time::Instant;

/// Units given back, and when the oldest of them was charged, as one word has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refund {
    /// Below 2^40.
    units: u64,
    /// Steps of 2^22 ns, modulo 2^24: 19 hours.
    oldest: u32,
}

impl Refund {
    pub(super) fn of(units: u64, charged_at: Instant) -> Self {
        Self { units: units.min(UNITS_MAX), oldest: step(charged_at) as u32 & STEPS }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        if self.units == 0 {
            return other;
        }
        let units = self.units.saturating_add(other.units).min(UNITS_MAX);
        let oldest = if self.age_from(other.oldest) >= 0 { self.oldest } else { other.oldest };
        Self { units, oldest }
    }

    /// How many steps before another its oldest charge was, modulo 2^24: from -2^23 up.
    fn age_from(self, other: u32) -> i64 {
        let ahead = other.wrapping_sub(self.oldest) & STEPS;
        // Shifted up and down again, so that the highest of the 24 bits becomes the sign.
        i64::from((ahead << 8).cast_signed() >> 8)
    }

    /// The units and the instant, which lies within nine hours of `now`.
    pub(super) fn read(self, now: Instant) -> Option<(u64, Instant)> {
        let oldest = step(now).saturating_add_signed(-self.age_from(step(now) as u32 & STEPS));
        (self.units > 0).then(|| (self.units, Instant::from_nanos(oldest << STEP_BITS)))
    }

    pub(super) fn pack(self) -> u64 {
        u64::from(self.oldest) << UNIT_BITS | self.units
    }

    pub(super) fn unpack(word: u64) -> Self {
        Self { units: word & UNITS_MAX, oldest: (word >> UNIT_BITS) as u32 }
    }
}

/// Rounded down: a charge is made older, never younger.
fn step(at: Instant) -> u64 {
    at.as_nanos() >> STEP_BITS
}

/// Charges older than this are not given back.
pub(super) const REFUND_AGE_MAX: Duration = Duration::from_secs(3_600);
const UNIT_BITS: u32 = 40;
const UNITS_MAX: u64 = (1 << UNIT_BITS) - 1;
const STEP_BITS: u32 = 22;
const STEPS: u32 = (1 << 24) - 1;
// Nine hours either way, so that what waits for a drain is still told from what comes.
const _: () = assert!((STEPS as u64 / 2) << STEP_BITS > 9 * REFUND_AGE_MAX.as_nanos() as u64);
