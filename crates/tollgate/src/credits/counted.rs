//! Keys that are counted in a store: judged by what was taken here beside an estimate of what the
//! fleet has used.
//!
//! It knows neither who estimates, nor why.

use crate::cell::{Credit, Position, Slot};
use crate::credits::{Asked, Charged, Credits, POSITIONS_MAX, STALE};
use crate::key::KeyId;
use crate::mutant::lacks;
use crate::table::Full;
use crate::tally::Leak;
use crate::time::Instant;

impl Credits {
    /// What would become of a charge of a key that is judged by an estimate, and what is left
    /// without it. Changes nothing.
    pub(crate) fn look(&self, asked: &Asked, now: Instant) -> Charged {
        let Some(leak) = asked.leak else { return self.peek(asked.key, asked.cost, now) };
        while let Some(found) = self.table.find(asked.key) {
            let slot = self.table.slot(found.place);
            let at = Position::of(found.state);
            let judged = admits(slot, at, leak, asked.cost, now);
            if slot.still_has(found.state) {
                let remaining = leak.whole().saturating_sub(level(slot, at, leak, now));
                return judged.map_or_else(|denied| denied, |_| Charged::Allowed { remaining });
            }
        }
        let remaining = leak.whole();
        match asked.cost {
            cost if cost > remaining && !leak.counts_refused() => Charged::OverLimit { remaining },
            _ if self.table.is_full() => Charged::Full,
            _ => Charged::Allowed { remaining },
        }
    }

    /// How much a key that is judged by an estimate has used; 0 without a cell.
    pub(crate) fn level(&self, key: KeyId, leak: &Leak, now: Instant) -> u64 {
        while let Some(found) = self.table.find(key) {
            let slot = self.table.slot(found.place);
            let level = level(slot, Position::of(found.state), leak, now);
            if slot.still_has(found.state) {
                return level;
            }
        }
        0
    }

    /// Sees to it that a key that was refused has a cell, which the writer is told of, and counts
    /// what was refused if its limit does. Returns whether it added the cell.
    ///
    /// # Errors
    /// When there is no room for a cell.
    pub(crate) fn refuse(&self, asked: &Asked) -> Result<bool, Full> {
        if !asked.leak.is_some_and(Leak::counts_refused) {
            return self.note(asked);
        }
        let mut is_new = false;
        // Ends: a cell that was made is dirty, and stays until it was drained.
        while !self.owe(asked.key, asked.cost) {
            is_new |= self.note(&asked.waiting())?;
        }
        Ok(is_new)
    }

    /// Counts units whether there is room or not; returns whether the key has a cell.
    pub(crate) fn owe(&self, key: KeyId, units: u64) -> bool {
        let units = units.min(UNITS_MAX);
        while let Some(found) = self.table.find(key) {
            let taken = Position::of(found.state).taken;
            if self.advance(&found, taken.saturating_add(units).min(POSITIONS_MAX)) {
                return true;
            }
        }
        false
    }
}

/// Up to where a charge takes the line, and where that is used up, by what was counted beside an
/// estimate; or why it does not pass.
#[inline(always)]
pub(super) fn admits(
    slot: &Slot<Credit>,
    at: Position,
    leak: &Leak,
    cost: u64,
    now: Instant,
) -> Result<(u64, u64), Charged> {
    let (left, base, is_told) = match slot.credit().estimate() {
        Ok((NEVER, ..)) => return Err(STALE),
        Ok((leaks_until, most, base)) => (leak.left(leaks_until, now).min(most), base, true),
        Err(began) => (0, began, false),
    };
    // Where the line is used up: below what was taken if the estimate alone is above the limit.
    let line = base.saturating_add(leak.whole()).saturating_sub(left);
    let next = at.taken.saturating_add(cost);
    if next <= line && next <= POSITIONS_MAX {
        return Ok((next, line));
    }
    // As where this comes from, whatever the first request costs.
    if !is_told && leak.counts_refused() && at.taken == base {
        let most = if lacks("first_cost_is_bounded") { u64::MAX } else { UNITS_MAX };
        return Ok((at.taken.saturating_add(cost.min(most)).min(POSITIONS_MAX), line));
    }
    Err(Charged::OverLimit { remaining: line.saturating_sub(at.taken) })
}

/// What was counted beside an estimate, with what is left of that. Of a cell that was told of none
/// yet nothing is known, and all that was taken counts.
fn level(slot: &Slot<Credit>, at: Position, leak: &Leak, now: Instant) -> u64 {
    let (left, base) = match slot.credit().estimate() {
        Ok((leaks_until, most, base)) => (leak.left(leaks_until, now).min(most), base),
        Err(began) => (0, began),
    };
    at.taken.saturating_sub(base).saturating_add(left)
}

/// Until when an estimate leaks that is above every limit.
const NEVER: u64 = u64::MAX;
/// What is counted at once, at most, of what did not pass, and of a key's first request: a line
/// that was walked to its end leaves no room for cells that begin beyond it.
const UNITS_MAX: u64 = 1 << 40;
