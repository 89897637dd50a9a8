//! Keys that leave only when they are told to, and take no other key's place when they come.
//!
//! For cells that are never as new by themselves: what they used has been reported to somebody.

use super::{Full, Locked};
use crate::cell::{Meta, Rest, Seen};
use crate::key::KeyId;
use crate::mutant::lacks;
use crate::time::Instant;

impl<R: Rest> Locked<'_, R> {
    /// Adds a key that was not found, if that takes no other key's place: as many as the table was
    /// made for, and `spare` more. Returns where it is.
    ///
    /// # Errors
    /// [`Full`], and nothing was added.
    pub(crate) fn add_if_free(
        &mut self,
        key: KeyId,
        meta: Meta,
        state: u64,
        spare: u64,
    ) -> Result<usize, Full> {
        debug_assert!(self.find(key).is_none());
        debug_assert!(!meta.is_pinned());
        let way = self.search(key, Instant::ZERO, &|_, _| false);
        let bound = self.table.keys_max.saturating_add(spare);
        let place = way.free.filter(|_| self.count_below(bound)).ok_or(Full)?;
        self.table.slots[place].settle(key, meta, state);
        Ok(place)
    }

    /// Counts one more key that is used, unless there are so many.
    pub(super) fn count_below(&self, bound: u64) -> bool {
        self.table.used.add_below(if lacks("no_bound") { u64::MAX } else { bound })
    }

    /// A number above every state in which a key of the segment was told to leave.
    pub(crate) fn left_below(&self) -> u64 {
        self.segment.left_below
    }

    /// Lets the unpinned key at a place leave if its state still is this one; returns whether it
    /// was.
    pub(crate) fn leave_at(&mut self, place: usize, state: u64) -> bool {
        if !self.table.slots[place].take(state) {
            return false;
        }
        self.segment.left_below = self.segment.left_below.max(state + 1);
        self.leave(place);
        self.table.used.sub();
        // Searches end at an empty slot, so those that left before it need not be walked over.
        let ring = self.table.segment_slots - 1;
        let mut last = place;
        for _ in 0..ring {
            let before = self.start + ((last - self.start).wrapping_sub(1) & ring);
            let is_last = !self.table.slots[last].goes_on();
            if !is_last || self.table.slots[before].look() != Seen::Vacant {
                break;
            }
            self.leave(before);
            last = before;
        }
        true
    }
}
