//! What the one writer does with credit cells: permits, drains, and lets them leave.
//!
//! It knows neither why so much is permitted, nor who is told of what was drained.

use crate::cell::{Dirty, Meta, Position};
use crate::credits::refund::Refund;
use crate::credits::{Credits, POSITIONS_MAX};
use crate::key::KeyId;
use crate::mutant::lacks;
use crate::policy::FleetLimitId;
use crate::table::Found;
use crate::time::Instant;

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
    /// Those of them that nobody is permitted, or waits for.
    pub free: u64,
    /// Before this instant there are no more than that.
    pub word_until: Instant,
}

/// What became of a key since the last drain; totals since its cell began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Whose cell it is.
    pub key: KeyId,
    /// The limit by which the cell was begun, or was denied last.
    pub limit: FleetLimitId,
    /// For a cell that was never drained before: the position at which it began.
    pub base: Option<u64>,
    /// The position up to which the line was taken, by charges and by returns.
    pub taken: u64,
    /// Units of all charges that were not allowed; a cost counts as 2^40 at most, and the sum stops
    /// at about 2^63.
    pub denied: u64,
    /// The cost of one charge that was not allowed since the last drain; 0 if there was none.
    pub refused: u64,
    /// Units given back since the last drain (below 2^40), and when the oldest of them was charged
    /// or a little earlier (up to 4.2 ms). Those units were taken: they are in `taken`.
    pub refund: Option<(u64, Instant)>,
}

impl Credits {
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
        let reach = ceiling.saturating_add(permit.free);
        self.table.aside(place).set_word(reach, permit.word_until.as_nanos());
        slot.credit().permit(ceiling, permit.deadline.as_nanos(), line);
        if late {
            returned = self.take_up_to(place, floor);
        }
        Some(returned)
    }

    /// Has a key that is counted in a store be judged by an estimate from now on: of what leaks
    /// until then ([`Leak::leaks_until`](crate::tally::Leak::leaks_until)) at `most` so many
    /// [units](crate::tally::Leak::units); what was taken from `base` on comes on top. Until the
    /// first one a key is judged by what was taken since its cell began.
    ///
    /// With 10 taken, a base of 8 and an estimate of which 90 are left, 8 more pass of a limit
    /// of 100. No effect for a key without a cell, or with one that was not
    /// [drained](Self::drain) yet.
    pub fn estimate(&self, key: KeyId, leaks_until: u64, most: u64, base: u64) {
        let Some(found) = self.table.find(key) else { return };
        let slot = self.table.slot(found.place);
        if slot.is_met() {
            slot.credit().set_estimate(leaks_until, most, base.min(POSITIONS_MAX));
        }
    }

    /// Shows each cell that was charged, denied, given back or begun since the last drain, once.
    ///
    /// Whatever happens to a cell after it was made clean makes it dirty again, so nothing is
    /// missed; what is shown may be newer than that, and then is shown again. `each` must not
    /// panic: cells that were not shown yet would be forgotten.
    pub fn drain(&self, now: Instant, mut each: impl FnMut(Drained)) {
        let mut next = self.listed.take();
        // Ends: each cell is listed once, and those listed from now on are for the next drain.
        while let Some(place) = next {
            let slot = self.table.slot(place);
            let is_new = !slot.is_met();
            next = Dirty::follow(slot);
            each(self.drain_one(place, is_new, now));
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

    fn drain_one(&self, place: usize, is_new: bool, now: Instant) -> Drained {
        let (slot, aside) = (self.table.slot(place), self.table.aside(place));
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
        Drained {
            key: slot.key(),
            limit: FleetLimitId(aside.limit()),
            // Only a permission moves it, and none was given to a cell that was not drained yet.
            base: is_new.then(|| credit.line()),
            taken,
            denied,
            refused: aside.take_refused(),
            refund,
        }
    }
}
