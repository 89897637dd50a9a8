//! How far a key is beyond its promise, as far as its owner hears of it.
//!
//! It counts units that were spent though this owner had permitted them to nobody, and for which
//! there was no room: with them the level and what is outstanding are above the burst. Nothing
//! that is only assumed to be spent counts. It decides nothing, and no promise rests on it.

use std::time::Duration;

use crate::mutant::lacks;
use crate::time::Instant;

/// What one key has too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Excess {
    units: u64,
    /// Units that may yet be told as spent though this owner did not permit them, and were
    /// permitted all the same: by an owner before it, on first contact, or by itself to a worker
    /// that it has forgotten.
    covered: u64,
    /// Before this nothing that is told says anything: how much owners before this one permitted,
    /// by limits that may have been others, is not known.
    judges_from: Instant,
}

impl Excess {
    /// Of a key that others were in charge of until `held_until`, when the last of what they
    /// permitted was over.
    pub(super) fn after(held_until: Instant) -> Self {
        Self { judges_from: held_until.saturating_add(TOLD_WITHIN), ..Self::default() }
    }

    /// So many more units may be told that are no excess.
    pub(super) fn cover(&mut self, units: u64) {
        self.covered = self.covered.saturating_add(units);
    }

    /// The level and what is outstanding are `above` the burst by so much now: what leaked is no
    /// excess any more.
    pub(super) fn settle(&mut self, above: u64) {
        self.units = self.units.min(above);
    }

    /// Units were told as spent that this owner has not permitted; with them it is so much `above`.
    /// Returns whether the key has come to have too much by them.
    pub(super) fn add(&mut self, unpermitted: u64, above: u64, now: Instant) -> bool {
        if now < self.judges_from && !lacks("excess_is_covered") {
            return false;
        }
        let covered = if lacks("excess_is_covered") { 0 } else { unpermitted.min(self.covered) };
        self.covered -= covered;
        if lacks("excess_is_counted") {
            return false;
        }
        let was = self.units;
        self.units = was.saturating_add(unpermitted - covered).min(above);
        was == 0 && self.units > 0
    }

    pub(super) fn units(&self) -> u64 {
        self.units
    }
}

/// What was spent last is told by then, be it that some reports are lost.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ZERO;

    #[test]
    fn what_owners_before_this_one_permitted_is_not_judged() {
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let mut excess = Excess::after(at(400));
        assert!(!excess.add(20, 20, at(1_399)));
        assert!(excess.add(1, 21, at(1_400)));
        assert_eq!(excess.units(), 1);
    }

    #[test]
    fn what_nobody_permitted_is_excess_as_far_as_there_was_no_room_for_it() {
        let mut excess = Excess::default();
        assert!(excess.add(20, 5, NOW));
        assert_eq!(excess.units(), 5);
        assert!(!excess.add(3, 8, NOW));
        assert_eq!(excess.units(), 8);
        excess.settle(2);
        assert_eq!(excess.units(), 2);
        excess.settle(0);
        assert!(excess.add(1, 1, NOW));
    }

    #[test]
    fn what_others_permitted_is_none() {
        let mut excess = Excess::default();
        excess.cover(50);
        assert!(!excess.add(40, 40, NOW));
        assert!(excess.add(20, 60, NOW));
        assert_eq!(excess.units(), 10);
    }
}
