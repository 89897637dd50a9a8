//! Credit cells: what a key may spend here until when, as the owner of a fleet's limit permits it.
//!
//! A cell is a line of positions that is only ever walked forward: how far it was `taken`, the
//! `ceiling` up to which it may be, and the `deadline` of that. Any thread charges; one writer, the
//! driver, brings permissions, drains what was used, and lets cells leave. How much is permitted is
//! decided elsewhere. The rules are those of the guarantee `eventual`: nothing that was permitted
//! is ever cut, what is returned is taken first, and units never come back into a cell.

mod counted;
mod refund;
mod writer;

use std::fmt;

use crate::cell::{Credit, Meta, PLACES_MAX, Position, Slot};
use crate::key::KeyId;
use crate::listed::Listed;
use crate::mutant::lacks;
use crate::policy::FleetLimitId;
use crate::table::{Found, Full, Table};
use crate::tally::Leak;
use crate::time::Instant;
use counted::admits;
use refund::{REFUND_AGE_MAX, Refund};
pub use writer::{Drained, Permit};

/// The credit cells of a node, shared by its threads.
///
/// Charges and refunds come from any thread; [`permit`](Self::permit), [`drain`](Self::drain) and
/// [`evict`](Self::evict) from one at a time, called the writer. A charge of a key that has a cell
/// takes no lock and allocates nothing.
///
/// ```
/// use tollgate::{Charged, Credits, FleetLimitId, Instant, KeyId, Permit};
/// let (credits, key, limit) = (Credits::new(1_000), KeyId::from_bits(7, 7), FleetLimitId(1));
/// let (now, deadline) = (Instant::from_nanos(0), Instant::from_nanos(20_000_000));
/// // Nothing is permitted yet, and the writer is told that somebody wants three units.
/// assert_eq!(credits.charge(key, limit, 3, now), Charged::Stale { is_new: true });
/// let mut base = None;
/// credits.drain(now, |drained| {
///     assert_eq!((drained.key, drained.limit, drained.denied), (key, limit, 3));
///     base = drained.base;
/// });
/// // Five units until 20 ms, of a hundred that the fleet has left.
/// let base = base.expect("a new cell");
/// let (ceiling, word_until) = (base + 5, deadline);
/// let permit = Permit { floor: base, ceiling, deadline, remaining: 100, free: 90, word_until };
/// assert_eq!(credits.permit(key, &permit), Some(0));
/// assert_eq!(credits.charge(key, limit, 3, now), Charged::Allowed { remaining: 97 });
/// assert_eq!(credits.charge(key, limit, 3, now), Charged::OverLimit { remaining: 97 });
/// assert_eq!(credits.charge(key, limit, 2, deadline), Charged::Stale { is_new: false });
/// ```
pub struct Credits {
    table: Table<Credit>,
    listed: Listed,
    /// Keys that it was made for, and how many may stand in for others besides.
    keys_max: u64,
    spare: u64,
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
    Stale {
        /// Whether this charge added the key's cell; true for one caller for each cell.
        is_new: bool,
    },
    /// The key has no cell, and there is no room for one.
    Full,
}

/// What is asked of a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) key: KeyId,
    limit: FleetLimitId,
    pub(crate) cost: u64,
    /// How its estimate leaks; none if it is judged by what is permitted.
    leak: Option<&'a Leak>,
    /// Whether the caller waits if it does not pass, so that it counts as no denial.
    waits: bool,
    /// Whether the key stands in for others of its limit that found no room: there is more for it.
    is_spare: bool,
}

impl<'a> Asked<'a> {
    #[inline(always)]
    pub(crate) fn new(key: KeyId, limit: FleetLimitId, cost: u64) -> Self {
        Self { key, limit, cost, leak: None, waits: false, is_spare: false }
    }

    /// Of a key that is judged by an estimate.
    #[inline(always)]
    pub(crate) fn counted(key: KeyId, limit: FleetLimitId, cost: u64, leak: &'a Leak) -> Self {
        Self { leak: Some(leak), ..Self::new(key, limit, cost) }
    }

    #[inline(always)]
    pub(crate) fn waiting(self) -> Self {
        Self { waits: true, ..self }
    }

    /// The same of the key that stands in for this one.
    pub(crate) fn of_spare(self, key: KeyId) -> Self {
        Self { key, is_spare: true, ..self }
    }
}

impl Credits {
    /// Room for at most `keys_max` keys, and for 2^30 at most. It takes 128 bytes of address space
    /// a key (64 that each charge reads and 32 for the cold ways, at three quarters full), and
    /// memory where keys come.
    #[must_use]
    pub fn new(keys_max: u64) -> Self {
        let keys_max = keys_max.min(KEYS_MAX);
        Self {
            table: Table::new(keys_max),
            listed: Listed::default(),
            keys_max,
            spare: keys_max / 8 + SPARE_MIN,
        }
    }

    /// Charges a key of a limit: passes iff `now` is before the deadline and the positions up to
    /// the ceiling suffice.
    ///
    /// With 10 taken, a ceiling of 15 and a deadline of 20 ms, 5 units pass at 19 ms; at 20 ms it
    /// is [`Charged::Stale`]. What does not pass counts as denied. A key without a cell gets one,
    /// in which nothing is permitted yet, and the next [`drain`](Self::drain) shows it. A cost of 0
    /// is a [`peek`](Self::peek).
    #[inline]
    pub fn charge(&self, key: KeyId, limit: FleetLimitId, cost: u64, now: Instant) -> Charged {
        self.charge_as(&Asked::new(key, limit, cost), now)
    }

    /// Charges as [`charge`](Self::charge) does, for a caller who waits if it does not pass: that
    /// counts as no denial, and a cell that was there stays as it was.
    #[inline]
    pub fn charge_or_wait(
        &self,
        key: KeyId,
        limit: FleetLimitId,
        cost: u64,
        now: Instant,
    ) -> Charged {
        self.charge_as(&Asked::new(key, limit, cost).waiting(), now)
    }

    /// Charges as much of a cost as is permitted, and returns how much that was; the rest waits, as
    /// in [`charge_or_wait`](Self::charge_or_wait).
    ///
    /// With 10 taken and a ceiling of 15, of 8 units 5 are taken.
    pub fn charge_up_to(&self, key: KeyId, limit: FleetLimitId, cost: u64, now: Instant) -> u64 {
        self.charge_part(&Asked::new(key, limit, cost).waiting(), now).unwrap_or(0)
    }

    /// As [`charge_up_to`](Self::charge_up_to).
    ///
    /// # Errors
    /// When the key has no cell, and there is no room for one.
    pub(crate) fn charge_part(&self, asked: &Asked, now: Instant) -> Result<u64, Full> {
        // Each further turn means that somebody else changed the cell.
        while let Some(found) = self.table.find(asked.key) {
            let slot = self.table.slot(found.place);
            let at = Position::of(found.state);
            let (deadline, ceiling) = slot.credit().permission();
            let is_over = now.as_nanos() >= deadline;
            let units = if is_over { 0 } else { asked.cost.min(ceiling.saturating_sub(at.taken)) };
            let is_done = if units == 0 {
                slot.still_has(found.state)
            } else {
                self.advance(&found, at.taken + units)
            };
            if is_done {
                return Ok(units);
            }
        }
        self.note(asked).map(|_| 0)
    }

    /// Sees to it that a key has a cell, and counts there what was refused, unless it waits.
    /// Returns whether it added the cell.
    ///
    /// # Errors
    /// When there is no room for a cell.
    pub(crate) fn note(&self, asked: &Asked) -> Result<bool, Full> {
        let found = match self.table.find(asked.key) {
            Some(found) => found,
            None => match self.add(asked)? {
                Added::Now => return Ok(true),
                Added::Before(found) => found,
            },
        };
        if !asked.waits {
            self.deny(found.place, asked);
        }
        Ok(false)
    }

    /// What [`charge`](Self::charge) would answer, except that `remaining` is what is left without
    /// it. Changes nothing.
    pub fn peek(&self, key: KeyId, cost: u64, now: Instant) -> Charged {
        // Each further turn means that somebody changed the cell meanwhile.
        while let Some(found) = self.table.find(key) {
            let slot = self.table.slot(found.place);
            let at = Position::of(found.state);
            let judged = permits(slot, at, cost, now);
            let remaining = slot.credit().line().saturating_sub(at.taken);
            if slot.still_has(found.state) {
                return judged.map_or_else(|denied| denied, |_| Charged::Allowed { remaining });
            }
        }
        if self.table.is_full() { Charged::Full } else { STALE }
    }

    /// Whether a cost that is not permitted here may be in a moment: the key's owner had room for
    /// it when it was last heard, or that was too long ago to count. False for a key without a
    /// cell.
    ///
    /// With 10 taken, a ceiling of 15 and 3 units [free](Permit::free), 8 may come, and 9 may not
    /// [for a while](Permit::word_until).
    #[must_use]
    pub fn may_come(&self, key: KeyId, cost: u64, now: Instant) -> bool {
        self.outlook(key, cost, now).unwrap_or(false)
    }

    /// The same; nothing for a key without a cell.
    pub(crate) fn outlook(&self, key: KeyId, cost: u64, now: Instant) -> Option<bool> {
        let found = self.table.find(key)?;
        let wanted = Position::of(found.state).taken.saturating_add(cost);
        let (reach, until) = self.table.aside(found.place).word();
        Some(wanted <= reach || now.as_nanos() >= until)
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
        let Some(found) = locked.find(key) else { return };
        let refund = Refund::of(units, charged_at.min(now));
        let slot = self.table.slot(found.place);
        slot.credit().add_refund(|word| Refund::unpack(word).plus(refund).pack());
        let was_clean = slot.mark();
        // Dirty, it stays. Nobody is called under a lock.
        drop(locked);
        if was_clean {
            self.list(found.place);
        }
    }

    /// Has `wake` called whenever there is something to [drain](Self::drain) after there was
    /// nothing: once for each drain at most, by the thread that charged, so that it should be
    /// short. Only the first one is kept; returns whether it is this.
    ///
    /// A writer that drains each time that it is woken misses nothing: what happens while a drain
    /// takes the list is in it, or wakes anew. A [`permit`](Self::permit) may wake its own writer.
    pub fn on_dirty(&self, wake: Box<dyn Fn() + Send + Sync>) -> bool {
        self.listed.on_dirty(wake)
    }

    /// Keys that have a cell.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.table.used()
    }

    /// Whether a key has a cell.
    pub(crate) fn has_cell(&self, key: KeyId) -> bool {
        self.table.lock(key).find(key).is_some()
    }

    /// Keys that it was made for.
    pub(crate) fn made_for(&self) -> u64 {
        self.keys_max
    }

    /// Keys that can have a cell at most, those among them that stand in for others: an eighth more
    /// than it was made for, and 64. A node must have room for as many.
    #[must_use]
    pub fn keys_max(&self) -> u64 {
        self.keys_max + self.spare
    }

    #[inline(always)]
    pub(crate) fn charge_as(&self, asked: &Asked, now: Instant) -> Charged {
        if asked.cost == 0 {
            return self.peek(asked.key, 0, now);
        }
        match self.table.find(asked.key) {
            Some(found) => self.charge_found(asked, now, found),
            None => self.charge_absent(asked, now),
        }
    }

    /// The same for a key that has a cell; nothing for others.
    #[inline(always)]
    pub(crate) fn charge_known(&self, asked: &Asked, now: Instant) -> Option<Charged> {
        let found = self.table.find(asked.key)?;
        // Nearly every charge passes, and nobody else changes its cell meanwhile.
        let slot = self.table.slot(found.place);
        if let Ok((taken, line)) = judge(slot, Position::of(found.state), asked, now)
            && self.advance(&found, taken)
        {
            return Some(Charged::Allowed { remaining: line.saturating_sub(taken) });
        }
        self.charge_known_slowly(asked, now)
    }

    #[inline(never)]
    fn charge_known_slowly(&self, asked: &Asked, now: Instant) -> Option<Charged> {
        let found = self.table.find(asked.key)?;
        Some(self.charge_found(asked, now, found))
    }

    #[inline]
    fn charge_found(&self, asked: &Asked, now: Instant, mut found: Found) -> Charged {
        // Each further turn means that somebody else changed the cell.
        loop {
            let slot = self.table.slot(found.place);
            match judge(slot, Position::of(found.state), asked, now) {
                Ok((taken, line)) => {
                    if self.advance(&found, taken) {
                        return Charged::Allowed { remaining: line.saturating_sub(taken) };
                    }
                }
                Err(denied) if slot.still_has(found.state) => {
                    if !asked.waits {
                        self.deny(found.place, asked);
                    }
                    return denied;
                }
                Err(_) => {}
            }
            std::hint::spin_loop();
            match self.table.find_at(found.place, asked.key) {
                Some(again) => found = again,
                None => return self.charge_absent(asked, now),
            }
        }
    }

    /// Charges a key that was not found, or that is being added or let go.
    #[cold]
    #[inline(never)]
    fn charge_absent(&self, asked: &Asked, now: Instant) -> Charged {
        match self.add(asked) {
            Ok(Added::Now) => Charged::Stale { is_new: true },
            Ok(Added::Before(found)) => self.charge_found(asked, now, found),
            Err(Full) => Charged::Full,
        }
    }

    /// Adds a cell for a key, in which nothing is permitted yet, unless it has one.
    #[cold]
    fn add(&self, asked: &Asked) -> Result<Added, Full> {
        let mut locked = self.table.lock(asked.key);
        if let Some(found) = locked.find(asked.key) {
            return Ok(Added::Before(found));
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
        let spare = if asked.is_spare { self.spare } else { 0 };
        let meta = Meta::new(0, false);
        let place = locked.add_if_free(asked.key, meta, begins.state(), spare)?;
        let aside = self.table.aside(place);
        aside.set_limit(asked.limit.0);
        if !asked.waits {
            aside.refuse(asked.cost);
            self.table.slot(place).credit().deny(asked.cost);
        }
        drop(locked);
        // Dirty from the start, so it stays, and nobody else lists it.
        self.list(place);
        Ok(Added::Now)
    }

    /// Moves a cell that still is as it was found on to `taken`, and sees to it that the writer is
    /// told.
    #[inline(always)]
    fn advance(&self, found: &Found, taken: u64) -> bool {
        let slot = self.table.slot(found.place);
        let moved = slot.exchange(found.state, Position { taken, is_dirty: true }.state());
        if moved && !Position::of(found.state).is_dirty {
            self.list(found.place);
        }
        moved
    }

    #[cold]
    fn deny(&self, place: usize, asked: &Asked) {
        let (slot, aside) = (self.table.slot(place), self.table.aside(place));
        // Another number than the cell began with: the limit left the fleet and came back.
        aside.set_limit(asked.limit.0);
        aside.refuse(asked.cost);
        slot.credit().deny(asked.cost);
        if slot.mark() {
            self.list(place);
        }
    }

    /// Lists a cell that the caller has made dirty.
    #[inline]
    fn list(&self, place: usize) {
        self.listed.list(place, self.table.slot(place));
    }
}

/// Whether a cell was added.
enum Added {
    Now,
    /// It was there already.
    Before(Found),
}

impl fmt::Debug for Credits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credits").field("used", &self.used()).finish_non_exhaustive()
    }
}

/// Up to where a charge takes the line, and where that is used up; or why it does not pass.
#[inline(always)]
fn judge(
    slot: &Slot<Credit>,
    at: Position,
    asked: &Asked<'_>,
    now: Instant,
) -> Result<(u64, u64), Charged> {
    match asked.leak {
        None => permits(slot, at, asked.cost, now),
        Some(leak) => admits(slot, at, leak, asked.cost, now),
    }
}

/// The same by what is permitted.
#[inline(always)]
fn permits(
    slot: &Slot<Credit>,
    at: Position,
    cost: u64,
    now: Instant,
) -> Result<(u64, u64), Charged> {
    let (deadline, ceiling) = slot.credit().permission();
    if now.as_nanos() >= deadline {
        return Err(STALE);
    }
    match at.taken.checked_add(cost) {
        // Before the exchange, after which the cell may leave.
        Some(next) if next <= ceiling => Ok((next, slot.credit().line())),
        _ => Err(Charged::OverLimit { remaining: slot.credit().line().saturating_sub(at.taken) }),
    }
}

/// A key that has a cell, or is to have one by somebody else.
const STALE: Charged = Charged::Stale { is_new: false };
/// Keys that stand in for others, at least.
const SPARE_MIN: u64 = 64;
/// Lines end here, two bits short of the word.
const POSITIONS_MAX: u64 = u64::MAX >> 2;
const KEYS_MAX: u64 = 1 << 30;
// The list of dirty cells has numbers for all places of the largest table.
const _: () = assert!(KEYS_MAX as usize / 3 * 4 + 4096 < PLACES_MAX);

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
