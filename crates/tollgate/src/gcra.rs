//! GCRA (ITU-T I.371) in token time: one theoretical arrival time (TAT) per key decides everything.
//!
//! Arithmetic only; atomics live in `cell`, keys in `table`, and callers pass `now`. A [`Meter`]
//! maps time to **token time**, the tokens that the rate has produced since the meter began, in
//! granules of 2^-shift token. A key's TAT is kept in granules, so charges and refunds are exact
//! sums, and a change of rate bends the map while every TAT stays as it is. `docs/bounds.md` has
//! the proof.

mod line;

pub(crate) use line::line_shift;

use crate::mutant::lacks;
use crate::rate::Rate;
use crate::time::Instant;

/// Turns instants into token time, and judges costs in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Meter {
    /// Token time is `base` until `origin` (ns), then gains `numerator / denominator` granules a
    /// ns.
    origin: u64,
    base: u64,
    /// floor(numerator x 2^59 / denominator): the same slope without a division.
    slope: u64,
    numerator: u64,
    denominator: u64,
    burst: u64,
    burst_granules: u64,
    /// The burst if [`Self::judge_plainly`] may judge, else 0.
    plain_burst: u64,
    /// Granules in a token, or 0 when a granule is several tokens.
    per_token: u64,
    /// Granules by which a rested key starts after the floor of token time: 0 on the grid, else 1.
    late: u64,
    /// Granules in a token, as a power of two; negative when a granule is several tokens.
    shift: i8,
    oversize: Oversize,
    basis: Basis,
}

/// From what is known of a key that which is said of it follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Basis {
    /// Its TAT.
    #[default]
    Tat,
    /// The tokens that are left, about.
    Left,
    /// The tokens that it owes, about.
    Level,
    /// Its TAT, at a rate that others may change.
    Part,
}

/// What becomes of a cost above the burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Oversize {
    /// It is denied for good.
    #[default]
    Never,
    /// It passes when the key has fully rested; the key then pays off its whole cost.
    Pace,
}

/// What a meter says of a cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It conforms, and the TAT becomes `next`.
    Conforms { next: u64 },
    /// It does not conform yet.
    Wait,
    /// It never will.
    Never,
}

/// A charge that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Charge {
    pub(crate) cost: u64,
    /// The TAT that it led to.
    pub(crate) tat: u64,
    pub(crate) at: Instant,
}

/// The first instant at which a denied request could pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retry {
    /// At this instant and not a nanosecond before, if nothing else is spent until then.
    At(Instant),
    /// Waiting does not help.
    Never,
}

impl Meter {
    /// A meter whose token time starts at 0 at `now`.
    pub(crate) fn new(rate: Rate, burst: u64, oversize: Oversize, now: Instant) -> Self {
        Self::with_shift(shift_for(rate, burst), rate, burst, oversize, now)
    }

    fn with_shift(shift: i8, rate: Rate, burst: u64, oversize: Oversize, now: Instant) -> Self {
        debug_assert!(burst <= BURST_MAX);
        debug_assert!(burst.is_multiple_of(1 << -shift.min(0)));
        let burst_granules = granules_of(burst, shift);
        let (numerator, denominator) = slope_of(rate, shift);
        let slope = (u128::from(numerator) << SLOPE_BITS) / u128::from(denominator);
        // Whole tokens appear at multiples of period/units ns: off the grid by 1/parts ns or more.
        let parts = rate.units() / gcd(rate.units(), rate.period_ns());
        let on_grid = u128::from(numerator) >= u128::from(denominator) * u128::from(parts);
        let is_plain = shift >= 0 && numerator > 0;
        Self {
            origin: now.as_nanos(),
            base: 0,
            slope: u64::try_from(slope).expect("below 2^64: see SLOPE_BITS"),
            numerator,
            denominator,
            burst,
            burst_granules: burst_granules as u64,
            plain_burst: if is_plain { burst } else { 0 },
            per_token: if shift >= 0 { 1 << shift } else { 0 },
            late: u64::from(!on_grid),
            shift,
            oversize,
            basis: Basis::Tat,
        }
    }

    /// The same for keys of which only the tokens that are left are known, and they only about.
    pub(crate) fn estimating(self) -> Self {
        Self { basis: Basis::Left, ..self }
    }

    /// The same for keys whose level is known only about.
    pub(crate) fn counting(self) -> Self {
        Self { basis: Basis::Level, ..self }
    }

    /// From what is known of a key that which is said of it follows.
    pub(crate) fn basis(&self) -> Basis {
        self.basis
    }

    /// Whether what a key has left is known from others, and only about.
    pub(crate) fn estimates(&self) -> bool {
        self.basis != Basis::Tat
    }

    /// The TAT of a key that owes so many tokens at `now`.
    pub(crate) fn tat_owing(&self, level: u64, now: Instant) -> u64 {
        let next = u128::from(self.floor(now)) + granules_of(level, self.shift);
        u64::try_from(next).unwrap_or(TAT_MAX).min(TAT_MAX)
    }

    /// The TAT of a key that has so many tokens left at `now`.
    pub(crate) fn tat_with(&self, remaining: u64, now: Instant) -> u64 {
        let used = self.granules(self.burst.saturating_sub(remaining));
        self.floor(now).saturating_add(used).min(TAT_MAX)
    }

    /// Tokens in a granule at this rate, at least 1: a burst is a multiple of it.
    pub(crate) fn granule(rate: Rate) -> u64 {
        1 << -shift_for(rate, 1).min(0)
    }

    /// The meter under another allowance, its token time running on from `now`, so that every TAT
    /// keeps its meaning; `None` when the new rate needs other granules.
    pub(crate) fn bend(
        &self,
        rate: Rate,
        burst: u64,
        oversize: Oversize,
        now: Instant,
    ) -> Option<Self> {
        let finest = shift_for(rate, burst);
        if self.shift > finest || self.shift < finest - COARSER_MAX {
            return None;
        }
        if !burst.is_multiple_of(1 << -self.shift.min(0)) {
            return None; // No whole number of these granules.
        }
        let next = Self::with_shift(self.shift, rate, burst, oversize, now);
        if (next.numerator, next.denominator) == (self.numerator, self.denominator) {
            let Self { origin, base, .. } = *self;
            return Some(Self { origin, base, ..next });
        }
        if lacks("change_starts_anew") {
            return Some(next);
        }
        let base = self.floor(now);
        // A nanosecond's rest covers the fraction of a granule that `floor` drops.
        let origin = now.as_nanos().saturating_add(1);
        (base <= BASE_MAX).then_some(Self { origin, base, ..next })
    }

    /// What a TAT of this meter becomes under a meter with other granules that takes over at `now`:
    /// the same tokens are owed, rounded up.
    pub(crate) fn convert(&self, tat: u64, next: &Self, now: Instant) -> u64 {
        let owed = u128::from(tat.saturating_sub(self.floor(now)));
        let change = i32::from(next.shift) - i32::from(self.shift);
        let owed = if change >= 0 {
            owed.checked_shl(change as u32).filter(|moved| moved >> change == owed)
        } else {
            let down = change.unsigned_abs();
            Some((owed + ((1 << down) - 1)) >> down)
        };
        let owed = owed.and_then(|owed| u64::try_from(owed).ok()).unwrap_or(TAT_MAX);
        if lacks("conversion_forgives") {
            return next.floor(now);
        }
        next.floor(now).saturating_add(owed).min(TAT_MAX)
    }

    /// Judges `cost` tokens at `now` against a key's TAT. A cost of 0 conforms and changes nothing.
    ///
    /// With 10 tokens/s and burst 10, ten costs of 1 conform at one instant; the eleventh conforms
    /// 100 ms later and not a nanosecond before.
    #[inline]
    pub(crate) fn judge(&self, tat: u64, cost: u64, now: Instant) -> Verdict {
        if cost > self.burst {
            return self.judge_oversize(tat, cost, now);
        }
        let granules = self.granules(cost);
        let floor = self.floor(now);
        if tat <= floor {
            if cost == 0 {
                return Verdict::Conforms { next: tat };
            }
            if lacks("restart_from_the_past") {
                return Verdict::Conforms { next: tat + granules };
            }
            return Verdict::Conforms { next: self.restart(floor, now) + granules };
        }
        // The latest TAT from which the cost conforms; no sum wraps, since the cost is in the
        // burst.
        if tat <= floor + (self.burst_granules - granules) {
            return Verdict::Conforms { next: tat + granules };
        }
        if cost == 0 {
            return Verdict::Conforms { next: tat };
        }
        if self.numerator == 0 { Verdict::Never } else { Verdict::Wait }
    }

    /// Judges as [`judge`](Self::judge) does, in a few instructions: costs from 1 to the burst, and
    /// unless a division would be needed. `None` leaves it to `judge`.
    #[inline(always)]
    pub(crate) fn judge_plainly(&self, tat: u64, cost: u64, now: Instant) -> Option<Verdict> {
        if cost.wrapping_sub(1) >= self.plain_burst {
            return None;
        }
        let floor = self.base + self.gained(now)?;
        let granules = cost * self.per_token;
        // The latest TAT from which the cost conforms; no sum wraps, since the cost is in the
        // burst.
        if tat > floor + (self.burst_granules - granules) {
            return Some(Verdict::Wait);
        }
        let late = if lacks("restart_early") { 0 } else { self.late };
        Some(Verdict::Conforms { next: tat.max(floor + late) + granules })
    }

    /// When a denied `cost` conforms: the exact instant, rounded up to the nanosecond.
    pub(crate) fn retry(&self, tat: u64, cost: u64, now: Instant) -> Retry {
        if tat >= TAT_MAX {
            return Retry::At(Instant::MAX); // Beyond the range of token time.
        }
        let need = if cost <= self.burst {
            tat.saturating_sub(self.burst_granules - self.granules(cost))
        } else if self.oversize == Oversize::Pace {
            tat
        } else {
            return Retry::Never;
        };
        // Beyond the range of token time, which stands still there, the way back tells an instant
        // that has passed.
        let later = |at| if at > now { at } else { Instant::MAX };
        self.instant_of(need).map_or(Retry::Never, |at| Retry::At(later(at)))
    }

    /// Whole tokens that could be spent at `now`.
    pub(crate) fn remaining(&self, tat: u64, now: Instant) -> u64 {
        let floor = self.floor(now);
        if tat <= floor {
            return self.burst;
        }
        let free = (floor + self.burst_granules).saturating_sub(tat);
        if self.shift >= 0 { free >> self.shift } else { free << -self.shift }
    }

    /// When the key is as new; `Never` when its tokens do not come back.
    pub(crate) fn reset(&self, tat: u64, now: Instant) -> Retry {
        if tat >= TAT_MAX {
            return Retry::At(Instant::MAX);
        }
        self.instant_of(tat).map_or(Retry::Never, |at| Retry::At(at.max(now)))
    }

    /// Whether a key with this TAT is indistinguishable from a new one.
    #[inline]
    pub(crate) fn is_as_new(&self, tat: u64, now: Instant) -> bool {
        tat <= self.floor(now)
    }

    /// The TAT after `cost` tokens are given back: earlier by the whole cost, or as new.
    ///
    /// A TAT beyond the range of token time keeps no exact debt and is left as it is.
    pub(crate) fn give_back(&self, tat: u64, cost: u64, now: Instant) -> u64 {
        self.give_back_above(tat, cost, 0, now)
    }

    /// The TAT after `cost` tokens of a charge are given back, the charge having been made when
    /// token time was `start`: at most what they are above what has leaked since.
    pub(crate) fn correct(&self, tat: u64, cost: u64, start: u64, now: Instant) -> u64 {
        let leaked = if lacks("correction_of_what_leaked") {
            0
        } else {
            self.floor(now).saturating_sub(start)
        };
        self.give_back_above(tat, cost, leaked, now)
    }

    /// Gives back what `cost` tokens are above so many granules.
    fn give_back_above(&self, tat: u64, cost: u64, kept: u64, now: Instant) -> u64 {
        let floor = self.floor(now);
        if tat >= TAT_MAX || tat <= floor {
            return tat;
        }
        let granules = if self.shift >= 0 {
            granules_of(cost, self.shift)
        } else {
            u128::from(cost >> -self.shift) // Rounded down: a refund never adds tokens.
        };
        let back = u64::try_from(granules).unwrap_or(u64::MAX).saturating_sub(kept);
        let next = tat.saturating_sub(back);
        if lacks("refund_overfills") { next } else { next.max(floor) }
    }

    /// The TAT after `cost` tokens that were used already are charged, whether they conform or not.
    pub(crate) fn owe(&self, tat: u64, cost: u64, now: Instant) -> u64 {
        let floor = self.floor(now);
        let start = if tat <= floor { self.restart(floor, now) } else { tat };
        let next = u128::from(start) + granules_of(cost, self.shift);
        u64::try_from(next).unwrap_or(TAT_MAX).min(TAT_MAX)
    }

    /// The TAT after a charge of `cost` that led to `charged` at `then` is undone at `now`, others
    /// having charged in between. What has leaked since `then` may have been spent again, so it
    /// stays charged.
    pub(crate) fn undo(&self, tat: u64, charge: &Charge, now: Instant) -> u64 {
        let start = self.floor(charge.at);
        let moved = if charge.cost <= self.burst {
            self.granules(charge.cost)
        } else {
            charge.tat.saturating_sub(start)
        };
        let leaked =
            if lacks("undo_of_what_leaked") { 0 } else { self.floor(now).saturating_sub(start) };
        tat.saturating_sub(moved.saturating_sub(leaked))
    }

    /// The TAT of a key that is as new at `now`.
    #[inline]
    pub(crate) fn fresh(&self, now: Instant) -> u64 {
        self.floor(now)
    }

    pub(crate) fn oversize(&self) -> Oversize {
        self.oversize
    }

    pub(crate) fn burst(&self) -> u64 {
        self.burst
    }

    /// The time in which the rate produces `cost` tokens, rounded up; `None` when it produces none.
    pub(crate) fn time_for(&self, cost: u64) -> Option<u64> {
        let granules = granules_of(cost, self.shift);
        self.nanos_for(u64::try_from(granules).unwrap_or(u64::MAX))
    }

    #[inline]
    fn granules(&self, cost: u64) -> u64 {
        debug_assert!(cost <= self.burst);
        if self.shift >= 0 {
            cost << self.shift
        } else {
            let down = -self.shift;
            let round = if lacks("cost_rounded_down") { 0 } else { (1 << down) - 1 };
            (cost + round) >> down // Rounded up: rounding never admits extra.
        }
    }

    /// Token time at `now`, rounded down.
    #[inline]
    pub(crate) fn floor(&self, now: Instant) -> u64 {
        self.gained(now).map_or_else(|| self.exact(now).0, |gained| self.base + gained)
    }

    /// Whole granules gained since the origin, and surely no whole number, without a division;
    /// `None` when only a division tells, or time is out of range.
    #[inline(always)]
    fn gained(&self, now: Instant) -> Option<u64> {
        // A `now` at the origin or before it wraps out of range.
        let elapsed = now.as_nanos().wrapping_sub(self.origin);
        if elapsed.wrapping_sub(1) >= ELAPSED_MAX - 1 {
            return None;
        }
        let scaled = elapsed << (64 - SLOPE_BITS);
        let product = u128::from(scaled) * u128::from(self.slope);
        // The slope is short by less than 2^-59, the product by less than `scaled` 2^64ths.
        (product as u64).checked_add(scaled)?;
        Some((product >> 64) as u64)
    }

    /// Where a rested key starts again, given the floor of token time at `now`.
    ///
    /// On the grid at the floor: the times at which whole tokens appear lie at least a granule away
    /// from every other nanosecond. Beside it at the granule after now: late by less than a
    /// granule, never early.
    #[inline]
    fn restart(&self, floor: u64, now: Instant) -> u64 {
        if self.late == 0 || lacks("restart_early") {
            return floor;
        }
        match self.gained(now) {
            Some(_) => floor + 1,
            None => floor + u64::from(!self.exact(now).1),
        }
    }

    /// Token time and whether it is a whole number of granules, by division.
    #[cold]
    #[inline(never)]
    fn exact(&self, now: Instant) -> (u64, bool) {
        let elapsed = now.as_nanos().saturating_sub(self.origin);
        let product = u128::from(elapsed) * u128::from(self.numerator);
        let denominator = u128::from(self.denominator);
        let gained = u64::try_from(product / denominator).unwrap_or(u64::MAX);
        let whole = product.is_multiple_of(denominator);
        (self.base.saturating_add(gained).min(TOKEN_TIME_MAX), whole)
    }

    #[cold]
    fn judge_oversize(&self, tat: u64, cost: u64, now: Instant) -> Verdict {
        if lacks("oversize_waits") {
            return Verdict::Wait;
        }
        if self.oversize == Oversize::Never || self.numerator == 0 {
            return Verdict::Never;
        }
        let floor = self.floor(now);
        if tat > floor && !lacks("pace_without_rest") {
            return Verdict::Wait;
        }
        let start = u128::from(self.restart(floor, now));
        let next = start + granules_of(cost, self.shift);
        Verdict::Conforms { next: u64::try_from(next).unwrap_or(TAT_MAX).min(TAT_MAX) }
    }

    /// The first instant at which token time reaches `granules`.
    fn instant_of(&self, granules: u64) -> Option<Instant> {
        let missing = granules.saturating_sub(self.base);
        let nanos = if missing == 0 { 0 } else { self.nanos_for(missing)? };
        Some(Instant::from_nanos(self.origin.saturating_add(nanos)))
    }

    fn nanos_for(&self, granules: u64) -> Option<u64> {
        if self.numerator == 0 {
            return None;
        }
        let product = u128::from(granules) * u128::from(self.denominator);
        let numerator = u128::from(self.numerator);
        let nanos = if lacks("retry_rounded_down") {
            product / numerator
        } else {
            product.div_ceil(numerator)
        };
        Some(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The finest granules (2^-shift token) in which ten years of the rate, and the burst, still fit.
fn shift_for(rate: Rate, burst: u64) -> i8 {
    let tokens =
        u128::from(rate.units()) * u128::from(UPTIME_NS_MAX) / u128::from(rate.period_ns());
    let for_rate = 63 - bits(tokens);
    let for_burst = 62 - bits(u128::from(burst));
    for_rate.min(for_burst.max(0)).clamp(SHIFT_MIN, SHIFT_MAX)
}

/// The power of two at or above `n`, as an exponent.
fn bits(n: u128) -> i8 {
    (u128::BITS - n.saturating_sub(1).leading_zeros()) as i8
}

/// Granules per nanosecond, in lowest terms.
fn slope_of(rate: Rate, shift: i8) -> (u64, u64) {
    if rate.units() == 0 {
        return (0, 1);
    }
    let common = gcd(rate.units(), rate.period_ns());
    let (mut numerator, mut denominator) = (rate.units() / common, rate.period_ns() / common);
    for _ in 0..shift.max(0) {
        if denominator.is_multiple_of(2) { denominator /= 2 } else { numerator *= 2 }
    }
    for _ in shift..0 {
        if numerator.is_multiple_of(2) { numerator /= 2 } else { denominator *= 2 }
    }
    (numerator, denominator)
}

/// Tokens in granules, rounded up.
pub(crate) fn granules_of(tokens: u64, shift: i8) -> u128 {
    let tokens = u128::from(tokens);
    if shift >= 0 { tokens << shift } else { (tokens + ((1 << -shift) - 1)) >> -shift }
}

pub(crate) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Ten years of 365.25 days.
const UPTIME_NS_MAX: u64 = 315_576_000 * 1_000_000_000;
/// At 10^12 units per second ten years are 2^68.1 units, and a granule is 64.
const SHIFT_MIN: i8 = -6;
const SHIFT_MAX: i8 = 61;
/// How much coarser than the finest a meter's granules may be left by a lowered rate.
const COARSER_MAX: i8 = 3;
/// Ten years (2^58.1 ns) gain at most 2^63 granules, so the slope is below 32 and fits 64 bits with
/// 59 behind the point.
pub(crate) const SLOPE_BITS: u32 = 59;
/// Nine years in ns: until then a multiplication nearly always tells, afterwards a division.
const ELAPSED_MAX: u64 = 1 << 58;
/// The largest burst, which lies at most as many granules ahead of token time.
pub(crate) const BURST_MAX: u64 = 1 << 62;
/// Where the token time of a meter may begin.
const BASE_MAX: u64 = 1 << 61;
/// Beyond ten years token time stands still instead of wrapping.
const TOKEN_TIME_MAX: u64 = (1 << 63) + (1 << 62) - (1 << 60);
/// The largest TAT; the table's mark for a cell in other hands lies above it, by one more than it
/// needs.
pub(crate) const TAT_MAX: u64 = u64::MAX - 2;

const _: () = assert!(BASE_MAX + (1 << 63) <= TOKEN_TIME_MAX, "ten years fit");
const _: () = assert!(TOKEN_TIME_MAX < TAT_MAX - BURST_MAX, "no sum of them wraps");

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn meter(rate: &str, burst: u64) -> Meter {
        Meter::new(Rate::parse(rate).expect("sound"), burst, Oversize::Never, Instant::ZERO)
    }

    fn charge(meter: &Meter, tat: u64, cost: u64, now: Instant) -> Charge {
        match meter.judge(tat, cost, now) {
            Verdict::Conforms { next } => Charge { cost, tat: next, at: now },
            verdict => panic!("{verdict:?}"),
        }
    }

    #[test]
    fn an_undo_gives_back_all_of_a_charge_that_has_not_leaked_and_no_more() {
        let meter = meter("1/s", 10);
        let first = charge(&meter, 0, 10, at(0));
        assert_eq!(meter.undo(first.tat, &first, at(0)), 0);
        // Four seconds later another spent 4: of the first 10, 4 have leaked into those.
        let second = charge(&meter, first.tat, 4, at(4_000_000_000));
        let undone = meter.undo(second.tat, &first, at(4_000_000_000));
        assert_eq!(meter.remaining(undone, at(4_000_000_000)), 6);
        // The whole charge has leaked, and the other's is not touched.
        let later = charge(&meter, first.tat, 10, at(20_000_000_000));
        assert_eq!(meter.undo(later.tat, &first, at(20_000_000_000)), later.tat);
    }

    #[test]
    fn granules_are_as_fine_as_ten_years_allow_and_never_above_64_units() {
        for (rate, shift) in [("1/365d", 59), ("1/s", 34), ("1000/s", 24), ("1GiB/s", 4)] {
            assert_eq!(meter(rate, 1).shift, shift, "{rate}");
        }
        assert_eq!(Meter::granule(Rate::parse("29000000000/s").expect("sound")), 1);
        assert_eq!(Meter::granule(Rate::parse("1000000000000/s").expect("sound")), 64);
    }

    #[test]
    fn a_tenfold_rate_cannot_keep_its_granules_for_another_ten_years() {
        // Why a change that needs other granules converts states instead of bending the map: with
        // the old granules, ten years at the new rate would end beyond the range of a TAT.
        let slow = meter("2000/s", 10);
        let rate = Rate::parse("20000/s").expect("sound");
        assert_eq!(slow.bend(rate, 10, Oversize::Never, at(1)), None);
        let ten_years = 20_000 * u128::from(UPTIME_NS_MAX / 1_000_000_000);
        assert!(ten_years << slow.shift > u128::from(TAT_MAX));
        // Up to twice the rate, or down to an eighth of it, the map bends.
        for rate in ["2100/s", "250/s"] {
            let rate = Rate::parse(rate).expect("sound");
            assert!(slow.bend(rate, 10, Oversize::Never, at(1)).is_some());
        }
    }

    #[test]
    fn judging_at_the_floor_with_bases_rounded_up_would_lose_the_last_unit_of_a_burst() {
        // Why rates on the grid start from the floor: 12.4 s at 5/min is no whole number of
        // granules.
        let grid = meter("5/min", 5);
        let late = Meter { late: 1, ..grid };
        let passed = |meter: &Meter| {
            let mut tat = 0;
            let now = at(12_400_000_000);
            (0..5)
                .filter(|_| match meter.judge(tat, 1, now) {
                    Verdict::Conforms { next } => {
                        tat = next;
                        true
                    }
                    _ => false,
                })
                .count()
        };
        assert_eq!((passed(&grid), passed(&late)), (5, 4));
    }

    #[test]
    fn token_time_is_the_same_with_and_without_a_division() {
        for rate in ["1/365d", "7/11s", "1GiB/s", "999999937/s", "1000000000000/s"] {
            let meter = meter(rate, 64);
            for bits in 0..58 {
                for near in 0..3_u64 {
                    let elapsed = (1_u64 << bits) * 3 / 2 + near;
                    assert_eq!(
                        meter.floor(at(elapsed)),
                        meter.exact(at(elapsed)).0,
                        "{rate} {elapsed}"
                    );
                }
            }
        }
    }
}
