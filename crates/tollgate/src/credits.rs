//! Credit cells: what a key may spend here until when, as the owner of a fleet's limit permits it.
//!
//! A cell is a line of positions that is only ever walked forward: how far it was `taken`, the
//! `ceiling` up to which it may be, and the `deadline` of that. Any thread charges; one writer, the
//! driver, brings permissions, drains what was used, and lets cells leave. How much is permitted is
//! decided elsewhere. The rules are those of the guarantee `eventual`: nothing that was permitted
//! is ever cut, what is returned is taken first, and units never come back into a cell.

use std::time::Duration;

use crate::cell::{Credit, Dirty, Meta, PLACES_MAX, Position, Slot};
use crate::key::KeyId;
use crate::mutant::lacks;
use crate::table::{Found, Full, Table};
use crate::time::Instant;

/// The credit cells of a node, shared by its threads.
///
/// Charges and refunds come from any thread; [`permit`](Self::permit), [`drain`](Self::drain) and
/// [`evict`](Self::evict) from one at a time, called the writer. A charge of a key that has a cell
/// takes no lock and allocates nothing.
///
/// ```
/// use tollgate::{Charged, Credits, Instant, KeyId, Permit};
/// let (credits, key) = (Credits::new(1_000), KeyId::from_bits(7, 7));
/// let (now, deadline) = (Instant::from_nanos(0), Instant::from_nanos(20_000_000));
/// // Nothing is permitted yet, and the writer is told that somebody wants three units.
/// assert_eq!(credits.charge(key, 3, now), Charged::Stale);
/// let mut base = None;
/// credits.drain(now, |drained| {
///     assert_eq!((drained.key, drained.denied), (key, 3));
///     base = drained.base;
/// });
/// // Five units until 20 ms, of a hundred that the fleet has left.
/// let base = base.expect("a new cell");
/// let permit = Permit { floor: base, ceiling: base + 5, deadline, remaining: 100 };
/// assert_eq!(credits.permit(key, &permit), Some(0));
/// assert_eq!(credits.charge(key, 3, now), Charged::Allowed { remaining: 97 });
/// assert_eq!(credits.charge(key, 3, now), Charged::OverLimit { remaining: 97 });
/// assert_eq!(credits.charge(key, 2, deadline), Charged::Stale);
/// ```
pub struct Credits {
    table: Table<Credit>,
    dirty: Dirty,
}

/// The answer to a charge. Units; `remaining` is what the fleet had left when the permission was
/// given, less what was charged here since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a denied request must not go on"]
pub enum Charged {
    /// The units were taken.
    Allowed {
        /// Of the fleet's units, those left after this charge.
        remaining: u64,
    },
    /// What is permitted does not suffice; nothing was taken.
    OverLimit {
        /// Of the fleet's units, those left; they need not be permitted here.
        remaining: u64,
    },
    /// Nothing is permitted at this instant: not yet, or not any more. Nothing was taken.
    Stale,
    /// The key has no cell, and there is no room for one.
    Full,
}

/// What the owner of a key permits: positions of its line, until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permit {
    /// Positions below this one are taken as returned before anything is permitted.
    pub floor: u64,
    /// Charges pass up to this position. A lower one than before changes nothing.
    pub ceiling: u64,
    /// Charges pass before this instant. An earlier one than before changes nothing.
    pub deadline: Instant,
    /// Units that the whole fleet has left.
    pub remaining: u64,
}

/// What became of a key since the last drain; totals since its cell began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Whose cell it is.
    pub key: KeyId,
    /// For a cell that was never drained before: the position at which it began.
    pub base: Option<u64>,
    /// The position up to which the line was taken, by charges and by returns.
    pub taken: u64,
    /// Units of all charges that were not allowed; a cost counts as 2^40 at most, and the sum stops
    /// at about 2^63.
    pub denied: u64,
    /// Units given back since the last drain (below 2^40), and when the oldest of them was charged
    /// or a little earlier (up to 4.2 ms). Those units were taken: they are in `taken`.
    pub refund: Option<(u64, Instant)>,
}

impl Credits {
    /// Room for at most `keys_max` keys, and for 2^30 at most. It takes 85 bytes of address space a
    /// key, and memory where keys come.
    #[must_use]
    pub fn new(keys_max: u64) -> Self {
        Self { table: Table::new(keys_max.min(KEYS_MAX)), dirty: Dirty::default() }
    }

    /// Charges a key: passes iff `now` is before the deadline and the positions up to the ceiling
    /// suffice.
    ///
    /// With 10 taken, a ceiling of 15 and a deadline of 20 ms, 5 units pass at 19 ms; at 20 ms it
    /// is [`Charged::Stale`]. What does not pass counts as denied. A key without a cell gets one,
    /// in which nothing is permitted yet, and the next [`drain`](Self::drain) shows it. A cost of 0
    /// is a [`peek`](Self::peek).
    #[inline]
    pub fn charge(&self, key: KeyId, cost: u64, now: Instant) -> Charged {
        if cost == 0 {
            return self.peek(key, cost, now);
        }
        match self.table.find(key) {
            Some(found) => self.charge_found(key, cost, now, found),
            None => self.charge_absent(key, cost, now),
        }
    }

    /// What [`charge`](Self::charge) would answer, except that `remaining` is what is left without
    /// it. Changes nothing.
    pub fn peek(&self, key: KeyId, cost: u64, now: Instant) -> Charged {
        // Each further turn means that somebody changed the cell meanwhile.
        while let Some(found) = self.table.find(key) {
            let slot = self.table.slot(found.place);
            let at = Position::of(found.state);
            let judged = judge(slot, at, cost, now);
            let remaining = slot.credit().line().saturating_sub(at.taken);
            if slot.still_has(found.state) {
                return judged.map_or_else(|denied| denied, |_| Charged::Allowed { remaining });
            }
        }
        if self.table.is_full() { Charged::Full } else { Charged::Stale }
    }

    /// Gives back units of a charge that was made at `charged_at`. They do not come back into the
    /// cell: the next [`drain`](Self::drain) reports them, for the key's owner to count.
    ///
    /// Nothing comes of a charge that is older than an hour, or of a key without a cell. Beyond
    /// 2^40 units between two drains the rest is lost.
    pub fn refund(&self, key: KeyId, units: u64, charged_at: Instant, now: Instant) {
        if units == 0 || now.saturating_since(charged_at) > REFUND_AGE_MAX {
            return;
        }
        // Locked, so that the cell cannot leave: another key's would be given what this one spent.
        let locked = self.table.lock(key);
        if let Some(found) = locked.find(key) {
            let refund = Refund::of(units, charged_at.min(now));
            let credit = self.table.slot(found.place).credit();
            credit.add_refund(|word| Refund::unpack(word).plus(refund).pack());
            self.mark(found.place);
        }
    }

    /// Takes, as returned, all positions below the floor that are not taken yet, and then permits
    /// what goes beyond what was permitted before. Returns how many positions it took.
    ///
    /// With 10 taken and a floor of 12 it takes 2, which no charge can have any more. `None`, and
    /// no effect, for a key without a cell or with one that was not [drained](Self::drain) yet: a
    /// permission for a cell that left says nothing of its successor.
    pub fn permit(&self, key: KeyId, permit: &Permit) -> Option<u64> {
        let place = self.table.find(key)?.place;
        let slot = self.table.slot(place);
        if !slot.is_met() {
            return None;
        }
        let floor = permit.floor.min(POSITIONS_MAX);
        let late = lacks("floor_taken_last");
        let mut returned = if late { 0 } else { self.take_up_to(place, floor) };
        // Read after the return, which the remainder knows of.
        let line = slot.position().taken.saturating_add(permit.remaining);
        let ceiling = permit.ceiling.min(POSITIONS_MAX);
        slot.credit().permit(ceiling, permit.deadline.as_nanos(), line);
        if late {
            returned = self.take_up_to(place, floor);
        }
        Some(returned)
    }

    /// Shows each cell that was charged, denied, given back or begun since the last drain, once.
    ///
    /// Whatever happens to a cell after it was made clean makes it dirty again, so nothing is
    /// missed; what is shown may be newer than that, and then is shown again. `each` must not
    /// panic: cells that were not shown yet would be forgotten.
    pub fn drain(&self, now: Instant, mut each: impl FnMut(Drained)) {
        let mut next = self.dirty.take();
        // Ends: each cell is listed once, and those listed from now on are for the next drain.
        while let Some(place) = next {
            let slot = self.table.slot(place);
            let is_new = !slot.is_met();
            next = Dirty::follow(slot);
            each(self.drain_one(slot, is_new, now));
        }
    }

    /// Lets a key's cell leave if it still is at `taken` with nothing to report; returns whether it
    /// went. A cell that is added in its place begins at a higher position.
    pub fn evict(&self, key: KeyId, taken: u64) -> bool {
        let mut locked = self.table.lock(key);
        let Some(found) = locked.find(key) else { return false };
        let clean = Position { taken: Position::of(found.state).taken, is_dirty: false };
        clean.taken == taken && locked.leave_at(found.place, clean.state())
    }

    /// Keys that have a cell.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.table.used()
    }

    #[inline]
    fn charge_found(&self, key: KeyId, cost: u64, now: Instant, mut found: Found) -> Charged {
        // Each further turn means that somebody else changed the cell.
        loop {
            let slot = self.table.slot(found.place);
            match judge(slot, Position::of(found.state), cost, now) {
                Ok(taken) => {
                    // Before the exchange, after which the cell may leave.
                    let line = slot.credit().line();
                    if self.advance(&found, taken) {
                        return Charged::Allowed { remaining: line.saturating_sub(taken) };
                    }
                }
                Err(denied) if slot.still_has(found.state) => {
                    self.deny(found.place, cost);
                    return denied;
                }
                Err(_) => {}
            }
            std::hint::spin_loop();
            match self.table.find_at(found.place, key) {
                Some(again) => found = again,
                None => return self.charge_absent(key, cost, now),
            }
        }
    }

    /// Charges a key that was not found, or that is being added or let go.
    #[cold]
    #[inline(never)]
    fn charge_absent(&self, key: KeyId, cost: u64, now: Instant) -> Charged {
        let mut locked = self.table.lock(key);
        if let Some(found) = locked.find(key) {
            drop(locked);
            return self.charge_found(key, cost, now, found);
        }
        // Beyond whatever a cell here has had: a charge that still holds the state of a cell that
        // left must fail.
        let base = if lacks("credit_begins_anew") {
            0
        } else if lacks("credit_begins_where_it_left") {
            locked.left_below() / 2
        } else {
            locked.left_below().div_ceil(2)
        };
        let begins = Position { taken: base, is_dirty: true };
        match locked.add_if_free(key, Meta::new(0, false), begins.state()) {
            Ok(place) => {
                let slot = self.table.slot(place);
                slot.credit().deny(cost);
                // Dirty from the start, so nobody else lists it.
                self.dirty.push(place, slot);
                Charged::Stale
            }
            Err(Full) => Charged::Full,
        }
    }

    /// Moves a cell that still is as it was found on to `taken`, and sees to it that the writer is
    /// told.
    #[inline(always)]
    fn advance(&self, found: &Found, taken: u64) -> bool {
        let slot = self.table.slot(found.place);
        let moved = slot.exchange(found.state, Position { taken, is_dirty: true }.state());
        if moved && !Position::of(found.state).is_dirty {
            self.dirty.push(found.place, slot);
        }
        moved
    }

    #[cold]
    fn deny(&self, place: usize, cost: u64) {
        self.table.slot(place).credit().deny(cost);
        self.mark(place);
    }

    fn mark(&self, place: usize) {
        let slot = self.table.slot(place);
        if slot.mark() {
            self.dirty.push(place, slot);
        }
    }

    /// Takes the positions below `floor` of a cell. The caller is the writer.
    fn take_up_to(&self, place: usize, floor: u64) -> u64 {
        let slot = self.table.slot(place);
        loop {
            let at = slot.position();
            let returned = floor.saturating_sub(at.taken);
            if returned == 0 {
                return 0;
            }
            if lacks("return_cuts_ceiling") {
                slot.credit().cut(at.taken);
                return returned;
            }
            let found = Found { place, meta: Meta::NONE, state: at.state() };
            if self.advance(&found, floor) {
                return returned;
            }
        }
    }

    fn drain_one(&self, slot: &Slot<Credit>, is_new: bool, now: Instant) -> Drained {
        let late = lacks("cleared_after_reading");
        if !late {
            slot.clear();
        }
        let early = crate::mutant::lacks("taken_read_first").then(|| slot.position().taken);
        let credit = slot.credit();
        let refund = Refund::unpack(credit.take_refund()).read(now);
        let denied = credit.denied();
        // Last, so that the units given back are among those taken.
        let taken = early.unwrap_or_else(|| slot.position().taken);
        if late {
            slot.clear();
        }
        // Nothing was permitted in a cell that was not drained yet.
        Drained { key: slot.key(), base: is_new.then_some(taken), taken, denied, refund }
    }
}

/// Up to where a charge takes the line, or why it does not pass.
#[inline(always)]
fn judge(slot: &Slot<Credit>, at: Position, cost: u64, now: Instant) -> Result<u64, Charged> {
    let (deadline, ceiling) = slot.credit().permission();
    if now.as_nanos() >= deadline {
        return Err(Charged::Stale);
    }
    match at.taken.checked_add(cost) {
        Some(next) if next <= ceiling => Ok(next),
        _ => Err(Charged::OverLimit { remaining: slot.credit().line().saturating_sub(at.taken) }),
    }
}

/// Units given back, and when the oldest of them was charged, as one word has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Refund {
    /// Below 2^40.
    units: u64,
    /// Steps of 2^22 ns, modulo 2^24: 19 hours.
    oldest: u32,
}

impl Refund {
    fn of(units: u64, charged_at: Instant) -> Self {
        Self { units: units.min(UNITS_MAX), oldest: step(charged_at) as u32 & STEPS }
    }

    fn plus(self, other: Self) -> Self {
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
    fn read(self, now: Instant) -> Option<(u64, Instant)> {
        let oldest = step(now).saturating_add_signed(-self.age_from(step(now) as u32 & STEPS));
        (self.units > 0).then(|| (self.units, Instant::from_nanos(oldest << STEP_BITS)))
    }

    fn pack(self) -> u64 {
        u64::from(self.oldest) << UNIT_BITS | self.units
    }

    fn unpack(word: u64) -> Self {
        Self { units: word & UNITS_MAX, oldest: (word >> UNIT_BITS) as u32 }
    }
}

/// Rounded down: a charge is made older, never younger.
fn step(at: Instant) -> u64 {
    at.as_nanos() >> STEP_BITS
}

/// Charges older than this are not given back.
const REFUND_AGE_MAX: Duration = Duration::from_secs(3_600);
const UNIT_BITS: u32 = 40;
const UNITS_MAX: u64 = (1 << UNIT_BITS) - 1;
const STEP_BITS: u32 = 22;
const STEPS: u32 = (1 << 24) - 1;
// Nine hours either way, so that what waits for a drain is still told from what comes.
const _: () = assert!((STEPS as u64 / 2) << STEP_BITS > 9 * REFUND_AGE_MAX.as_nanos() as u64);
/// Lines end here, two bits short of the word.
const POSITIONS_MAX: u64 = u64::MAX >> 2;
const KEYS_MAX: u64 = 1 << 30;
// The list of dirty cells has numbers for all places of the largest table.
const _: () = assert!(KEYS_MAX as usize / 3 * 4 + 4096 < PLACES_MAX);

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
