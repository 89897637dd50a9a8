//! The cells that their writer is to look at, and who wakes it.

use std::sync::OnceLock;

use crate::cell::{Dirty, Rest, Slot};
use crate::mutant::lacks;

/// Dirty cells of one table, and what tells their writer of the first of them.
#[derive(Default)]
pub(crate) struct Listed {
    dirty: Dirty,
    wake: OnceLock<Wake>,
}

/// Tells the writer that there is something to drain.
type Wake = Box<dyn Fn() + Send + Sync>;

impl Listed {
    /// Lists a cell that the caller has made dirty.
    #[inline]
    pub(crate) fn list<R: Rest>(&self, place: usize, slot: &Slot<R>) {
        let is_first = self.dirty.push(place, slot);
        if is_first && !lacks("first_dirty_wakes") {
            self.wake();
        }
    }

    /// Has `wake` called whenever there is something after there was nothing. Only the first one is
    /// kept; returns whether it is this.
    pub(crate) fn on_dirty(&self, wake: Wake) -> bool {
        let is_first = self.wake.set(wake).is_ok();
        if is_first && !self.dirty.is_empty() {
            self.wake();
        }
        is_first
    }

    /// Takes all, and leaves none. Returns the first, from which [`Dirty::follow`] goes on.
    pub(crate) fn take(&self) -> Option<usize> {
        self.dirty.take()
    }

    #[cold]
    fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }
}
