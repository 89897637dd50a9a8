//! Meters for lines whose rate others change while they are in use.

use super::{Basis, Meter, Oversize, SLOPE_BITS, bits, granules_of, shift_for};
use crate::rate::Rate;

impl Meter {
    /// A meter whose token time is `base` until `origin`, and then gains `slope` / 2^59 granules of
    /// 2^-shift token a ns; for keys whose rates others change. A cost above the burst passes when
    /// the key has rested, and is paid off.
    pub(crate) fn walking(origin: u64, base: u64, slope: u64, burst: u64, shift: i8) -> Self {
        let is_plain = shift >= 0 && slope > 0;
        Self {
            origin,
            base,
            slope,
            numerator: slope,
            denominator: 1 << SLOPE_BITS,
            burst,
            burst_granules: granules_of(burst, shift) as u64,
            plain_burst: if is_plain { burst } else { 0 },
            per_token: if shift >= 0 { 1 << shift } else { 0 },
            // Early by less than a granule, which here is nothing.
            late: 0,
            shift,
            oversize: Oversize::Pace,
            basis: Basis::Part,
        }
    }
}

/// The granules of a line that is only walked forward: ten years of the rate fit, and so do bursts
/// of a key that comes and goes all the time.
pub(crate) fn line_shift(rate: Rate, burst: u64) -> i8 {
    shift_for(rate, burst).min(LINE_BURST_BITS - bits(u128::from(burst)))
}

/// Granules of a burst on a line, as a power of two: a line of 2^63 holds 2^27 of them.
const LINE_BURST_BITS: i8 = 36;
