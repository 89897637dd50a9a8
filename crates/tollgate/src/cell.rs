//! Every atomic of the crate: slots of the table, what credit cells have besides, counters, and a
//! number.
//!
//! It knows nothing of limits or time: a TAT is a number here. What makes each operation safe is
//! said where it is done; the tests of `table` and `credits` let loom try every interleaving
//! (`--cfg loom`).

mod credit;
mod dirty;
mod share;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};

pub(crate) use credit::{Aside, Credit, Position};
pub(crate) use dirty::{Dirty, PLACES_MAX};
pub(crate) use share::{Share, Side, Tally};

use crate::key::KeyId;
use crate::mutant::lacks;

/// One key's place in the table: whose it is, its state, and what cells of its shape have besides.
/// 24 bytes for a rate cell, a cache line for a credit cell.
///
/// A slot is charged without a lock. Whoever changes its owner or meaning holds the lock of its
/// segment and takes the state away first ([`HELD`]), so that a charge that read the old state
/// fails.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Slot<R: Rest = ()> {
    state: AtomicU64,
    high: AtomicU64,
    /// The key's low 32 bits, then [`Meta`].
    low_meta: AtomicU64,
    rest: R,
    aligned: [R::Aligned; 0],
}

/// What a cell has besides its state: nothing when it is a rate, five words when it is credit.
///
/// # Safety
/// All-zero memory is a value of it, and of what lies aside.
pub(crate) unsafe trait Rest: Default {
    /// Has the alignment of a slot.
    type Aligned;
    /// What a cell has besides in other memory, since hardly any charge touches it.
    type Aside: Default;

    /// Starts anew, for a key whose cell begins with this state. The caller holds the slot.
    fn begin(&self, state: u64);
}

// SAFETY: neither has memory.
unsafe impl Rest for () {
    type Aligned = u64;
    type Aside = ();

    fn begin(&self, _state: u64) {}
}

// SAFETY: they are five `AtomicU64` and four, for which all-zero memory is a value.
unsafe impl Rest for Credit {
    type Aligned = CacheLine;
    type Aside = Aside;

    fn begin(&self, state: u64) {
        self.begin_at(Position::of(state).taken);
    }
}

// SAFETY: they are `AtomicU64`, for which all-zero memory is a value.
unsafe impl Rest for Share {
    type Aligned = TwoLines;
    type Aside = ();

    fn begin(&self, state: u64) {
        self.begin_at(state);
    }
}

/// Two lines that are fetched together.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct TwoLines;

/// A slot of this alignment and size is brought whole by one fetch.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct CacheLine;

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 24);
#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot<Credit>>() == 64 && align_of::<Slot<Credit>>() == 64);
#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot<Share>>() == 128);

/// What the state of a slot means: a tuning's number, and whether the slot may be evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meta(u32);

impl Meta {
    /// The first tuning, unpinned.
    #[cfg(test)]
    pub(crate) const FREE: Self = Self(0);

    pub(crate) fn new(tuning: u32, pinned: bool) -> Self {
        debug_assert!(tuning < PINNED);
        Self(if pinned { tuning | PINNED } else { tuning })
    }

    /// What no slot means.
    pub(crate) const NONE: Self = Self(u32::MAX);

    #[inline]
    pub(crate) fn tuning(self) -> u32 {
        self.0 & !PINNED
    }

    pub(crate) fn is_pinned(self) -> bool {
        self.0 & PINNED != 0
    }
}

/// What a slot held at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// No key was ever here, or behind it.
    Empty,
    /// A key was here.
    Vacant,
    /// A key is here; its state is [`HELD`] while somebody changes it.
    Key { key: KeyId, meta: Meta, state: u64 },
}

impl<R: Rest> Slot<R> {
    #[cfg(loom)]
    pub(crate) fn empty() -> Self {
        let word = |value| AtomicU64::new(value);
        let (state, high, low_meta) = (word(0), word(EMPTY), word(0));
        Self { state, high, low_meta, rest: R::default(), aligned: [] }
    }

    /// Whether `key` is here, with its meaning and state unless somebody is changing them.
    ///
    /// The state is read before the owner. Whoever re-uses the slot writes the new owner before the
    /// new state, so a state that is read together with its owner is that owner's, or no longer
    /// there to be exchanged.
    #[inline]
    pub(crate) fn read(&self, key: KeyId) -> Read {
        // Ends when no charge comes between the two looks at the state.
        loop {
            // Acquire, three times: each pairs with the releases of `settle`, so that whoever sees
            // a new owner or meaning can no longer exchange the state from before HELD.
            let state = self.state.load(Ordering::Acquire);
            let high = self.high.load(Ordering::Acquire);
            if high != key.high {
                return if high == EMPTY { Read::End } else { Read::Other };
            }
            let low_meta = self.low_meta.load(Ordering::Acquire);
            if (low_meta >> 32) as u32 != key.low || state == HELD {
                return Read::Other;
            }
            if self.still_has(state) {
                return Read::Mine { meta: Meta(low_meta as u32), state };
            }
        }
    }

    /// Whether the state is what it was, and nobody's is taking it. A denial exchanges nothing, so
    /// it has to look: the state may be from before the meaning that was read with it.
    #[inline]
    pub(crate) fn still_has(&self, state: u64) -> bool {
        state != HELD && self.state.load(Ordering::Acquire) == state
    }

    /// The state of the key that `mark` marks, if it is here with that meaning; [`HELD`] while
    /// somebody is changing it. In the order of [`read`](Self::read).
    #[inline(always)]
    pub(crate) fn read_as(&self, mark: &Mark) -> Option<u64> {
        let state = self.state.load(Ordering::Acquire);
        let mine = self.high.load(Ordering::Acquire) == mark.high
            && self.low_meta.load(Ordering::Acquire) == mark.low_meta;
        mine.then_some(state)
    }

    /// Starts to bring the slot here, while something else is done.
    #[inline(always)]
    pub(crate) fn fetch(&self) {
        #[cfg(all(not(loom), target_arch = "x86_64"))]
        {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: it is a hint; it reads and writes nothing, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(self).cast()) };
        }
    }

    /// Whether keys may lie behind this slot.
    #[inline]
    pub(crate) fn goes_on(&self) -> bool {
        self.high.load(Ordering::Relaxed) != EMPTY
    }

    /// Replaces the state if it still is `seen`; otherwise nothing happens, and the slot is to be
    /// read again.
    #[inline]
    pub(crate) fn exchange(&self, seen: u64, next: u64) -> bool {
        debug_assert!(next != HELD);
        // Acquire and release, so that one charge's exchange is before the next one's in every
        // view.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        self.state.compare_exchange(seen, next, order.0, order.1).is_ok()
    }

    /// What is here; the caller holds the segment's lock, so only the state may move.
    pub(crate) fn look(&self) -> Seen {
        let state = self.state.load(Ordering::Acquire);
        match self.high.load(Ordering::Relaxed) {
            EMPTY => Seen::Empty,
            VACANT => Seen::Vacant,
            high => {
                let low_meta = self.low_meta.load(Ordering::Relaxed);
                let key = KeyId { high, low: (low_meta >> 32) as u32 };
                Seen::Key { key, meta: Meta(low_meta as u32), state }
            }
        }
    }

    /// Takes the state away if it still is `seen`. The caller holds the segment's lock.
    pub(crate) fn take(&self, seen: u64) -> bool {
        if lacks("taken_by_looking") {
            return self.state.load(Ordering::Acquire) == seen;
        }
        self.state.compare_exchange(seen, HELD, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Makes the slot `key`'s. The caller holds the segment's lock, and has taken the state or seen
    /// that nobody is here.
    pub(crate) fn settle(&self, key: KeyId, meta: Meta, state: u64) {
        debug_assert!(state != HELD);
        self.state.store(HELD, Ordering::Relaxed);
        // Release: a reader that sees the new owner cannot see the state from before HELD.
        self.high.store(key.high, Ordering::Release);
        self.low_meta.store(low_meta(key, meta), Ordering::Release);
        self.rest.begin(state);
        self.state.store(state, Ordering::Release);
    }

    /// Leaves the slot without an owner. The caller holds the segment's lock and has taken the
    /// state.
    pub(crate) fn vacate(&self, next_is_empty: bool) {
        self.high.store(if next_is_empty { EMPTY } else { VACANT }, Ordering::Release);
    }
}

#[inline(always)]
fn low_meta(key: KeyId, meta: Meta) -> u64 {
    u64::from(key.low) << 32 | u64::from(meta.0)
}

/// A key and a meaning, as a slot has them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    high: u64,
    low_meta: u64,
}

impl Mark {
    #[inline(always)]
    pub(crate) fn new(key: KeyId, meta: Meta) -> Self {
        Self { high: key.high, low_meta: low_meta(key, meta) }
    }
}

/// What a search for a key finds in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// The key, and nobody is changing it.
    Mine { meta: Meta, state: u64 },
    /// Another key, or nobody's, or one that is being changed.
    Other,
    /// No key lies here or behind.
    End,
}

/// A count that one thread writes, or many.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds one; the caller is the only writer, which saves the locked instruction.
    #[inline]
    pub(crate) fn add_alone(&self) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Adds `n`, among other writers.
    pub(crate) fn add(&self, n: u64) {
        self.add_before(n);
    }

    /// Adds `n`, among other writers, and returns the count from before.
    pub(crate) fn add_before(&self, n: u64) -> u64 {
        self.0.fetch_add(n, Ordering::Relaxed)
    }

    /// Takes one off, among other writers.
    pub(crate) fn sub(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds one unless the count is at `max` already.
    pub(crate) fn add_below(&self, max: u64) -> bool {
        let below = |count| (count < max).then_some(count + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, below).is_ok()
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that is read on every decision and hardly ever changed.
#[derive(Debug, Default)]
pub(crate) struct Number(AtomicU64);

impl Number {
    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        // Acquire: pairs with `set`, so that whoever sees the number sees what was stored before
        // it.
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, number: u64) {
        self.0.store(number, Ordering::Release);
    }
}

/// The owner of a slot that never had one; zeroed memory is a table of them.
const EMPTY: u64 = 0;
/// The owner of a slot whose key has left.
const VACANT: u64 = 1;
/// The state of a slot that somebody is changing under the segment's lock.
const HELD: u64 = u64::MAX;
const PINNED: u32 = 1 << 31;
/// Tunings are numbered below this.
pub(crate) const TUNINGS_MAX: u32 = PINNED - 1;
