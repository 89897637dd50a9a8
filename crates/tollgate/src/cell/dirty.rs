//! The list of cells that are dirty, and what of a slot is for their one writer.

use super::{AtomicU64, Ordering, Rest, Slot};
use crate::key::KeyId;

impl<R: Rest> Slot<R> {
    /// Whose cell it is. The caller is the one writer.
    pub(crate) fn key(&self) -> KeyId {
        let low_meta = self.low_meta.load(Ordering::Relaxed);
        KeyId { high: self.high.load(Ordering::Relaxed), low: (low_meta >> 32) as u32 }
    }

    /// Whether the writer was shown the cell before.
    pub(crate) fn is_met(&self) -> bool {
        self.note() & MET != 0
    }

    /// The cell that follows on the list of dirty ones; notes that the writer was shown this one.
    fn leave_list(&self) -> Option<usize> {
        let next = self.note() & !MET;
        self.set_note(MET);
        place_of(next)
    }

    /// The 32 bits in which a rate cell has its meaning.
    fn note(&self) -> u32 {
        self.low_meta.load(Ordering::Relaxed) as u32
    }

    /// Only whoever made the cell dirty writes them until it is listed, and then only the writer
    /// until it is clean; what is between the two is ordered by the state and the list.
    fn set_note(&self, note: u32) {
        let low = self.low_meta.load(Ordering::Relaxed) & !u64::from(u32::MAX);
        self.low_meta.store(low | u64::from(note), Ordering::Release);
    }
}

/// The places of the cells that are dirty, each once: a chain through the cells themselves, so that
/// there is room for all.
#[derive(Debug, Default)]
// Lines are fetched in pairs. What every charge reads lies beside it.
#[repr(align(128))]
pub(crate) struct Dirty {
    /// The cell that was listed last: its place and one more, or 0.
    first: AtomicU64,
}

impl Dirty {
    /// Lists a cell that the caller has made dirty. Returns whether it is the only one: whoever
    /// takes the list is to be told of it.
    pub(crate) fn push<R: Rest>(&self, place: usize, slot: &Slot<R>) -> bool {
        debug_assert!(place < PLACES_MAX);
        let mut first = self.first.load(Ordering::Relaxed);
        loop {
            slot.set_note(slot.note() & MET | first as u32);
            // Release: who takes the list sees where it goes on. Each turn means that another cell
            // was listed, or all were taken.
            let order = (Ordering::Release, Ordering::Relaxed);
            match self.first.compare_exchange_weak(first, place as u64 + 1, order.0, order.1) {
                Ok(_) => return first == 0,
                Err(other) => first = other,
            }
        }
    }

    /// Whether none is listed.
    pub(crate) fn is_empty(&self) -> bool {
        self.first.load(Ordering::Relaxed) == 0
    }

    /// Takes all, and leaves none. Returns the first, from which [`follow`](Self::follow) goes on.
    pub(crate) fn take(&self) -> Option<usize> {
        // Acquire: pairs with every `push` since the list was taken before.
        place_of(self.first.swap(0, Ordering::Acquire) as u32)
    }

    /// The next after a cell that was taken, which must still be dirty.
    pub(crate) fn follow<R: Rest>(slot: &Slot<R>) -> Option<usize> {
        slot.leave_list()
    }
}

fn place_of(listed: u32) -> Option<usize> {
    listed.checked_sub(1).map(|place| place as usize)
}

/// Of a cell's note: the writer was shown it.
const MET: u32 = 1 << 31;
/// Places are numbered below this, so that one and [`MET`] fit in 32 bits.
pub(crate) const PLACES_MAX: usize = MET as usize - 1;
