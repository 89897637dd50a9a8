//! The bounded table of cells: open addressing in one block of memory, searched without locks.
//!
//! It decides where a key lives and which key leaves; what a state means is told by the caller. Slots
//! are probed in a line that stays inside a **segment**; adding, evicting and converting take the
//! segment's lock, charging takes none. A cell that is as new is indistinguishable from no cell, so it
//! is re-used first, on the way of a search or by a hand that moves on by a bounded step: there is no
//! pause in which the whole table is swept. One table algorithm serves every shape of cell.

use crate::cell::{Counter, Meta, Mutex, MutexGuard, Read, Seen, Slot};
use crate::key::KeyId;
use crate::time::Instant;

/// Slots for at most `keys_max` keys, and a lock for each segment of them.
pub(crate) struct Table {
    slots: Box<[Slot]>,
    segments: Box<[Mutex<Segment>]>,
    segment_slots: usize,
    keys_max: u64,
    used: Counter,
}

/// What a segment's lock guards, besides the right to change owners.
#[derive(Debug, Default)]
pub(crate) struct Segment {
    /// The latest instant at which a key of the segment was found as new and evicted: a key that comes
    /// back starts no earlier, whatever its caller's clock says.
    evicted_at: Instant,
    /// Where the next sweep step begins.
    hand: usize,
}

/// A key's slot, meaning and state at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) place: usize,
    pub(crate) meta: Meta,
    pub(crate) state: u64,
}

/// What becomes of a slot that a [sweep](Table::sweep) visits.
pub(crate) enum Visit {
    Keep,
    /// Nobody's any more.
    Drop,
    /// Another meaning, and the state in it.
    Move(Meta, u64),
}

/// The table, or the key's segment of it, is full of keys that are not as new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// A locked segment: nobody else adds, evicts or converts keys in it.
pub(crate) struct Locked<'t> {
    table: &'t Table,
    segment: MutexGuard<'t, Segment>,
    start: usize,
}

impl Table {
    /// A table for at most `keys_max` keys besides the pinned ones; it takes 32 bytes of address space
    /// a key, and memory only where keys come.
    pub(crate) fn new(keys_max: u64) -> Self {
        let wanted = (keys_max as usize).saturating_mul(4) / 3 + PINNED_SLOTS;
        let segment_slots = wanted.next_power_of_two().clamp(SEGMENT_SLOTS_MIN, SEGMENT_SLOTS_MAX);
        let count = wanted.div_ceil(segment_slots);
        Self {
            slots: empty_slots(count * segment_slots),
            segments: (0..count).map(|_| Mutex::new(Segment::default())).collect(),
            segment_slots,
            keys_max,
            used: Counter::default(),
        }
    }

    /// Finds a key. Takes no lock; a key that is being changed counts as not found, so a miss is final
    /// only under the [lock](Self::lock).
    #[inline]
    pub(crate) fn find(&self, key: KeyId) -> Option<Found> {
        let home = self.home(key);
        let first = home & !(self.segment_slots - 1);
        let mut offset = home - first;
        // Bounded by the segment; nearly every search ends within a few slots.
        for _ in 0..self.segment_slots {
            let place = first + offset;
            match self.slots[place].read(key) {
                Read::Mine { meta, state } => return Some(Found { place, meta, state }),
                Read::End => return None,
                Read::Other => offset = (offset + 1) & (self.segment_slots - 1),
            }
        }
        None
    }

    /// Finds a key where it was found before.
    #[inline]
    pub(crate) fn find_at(&self, place: usize, key: KeyId) -> Option<Found> {
        match self.slots[place].read(key) {
            Read::Mine { meta, state } => Some(Found { place, meta, state }),
            Read::Other | Read::End => None,
        }
    }

    /// Moves a found key to its next state, unless somebody was faster.
    #[inline]
    pub(crate) fn exchange(&self, found: &Found, next: u64) -> bool {
        self.slots[found.place].exchange(found.state, next)
    }

    /// Locks the key's segment.
    pub(crate) fn lock(&self, key: KeyId) -> Locked<'_> {
        self.lock_segment(self.home(key) / self.segment_slots)
    }

    /// Shows every key to `visit`, one segment's lock at a time, and does what it says. What it says of a
    /// state holds only for that state: it is asked again when a charge came between.
    pub(crate) fn sweep(&self, mut visit: impl FnMut(KeyId, Meta, u64) -> Visit) {
        for index in 0..self.segments.len() {
            let mut locked = self.lock_segment(index);
            for place in locked.start..locked.start + self.segment_slots {
                locked.visit(place, &mut visit);
            }
        }
    }

    /// Keys that have a cell.
    pub(crate) fn used(&self) -> u64 {
        self.used.get()
    }

    fn lock_segment(&self, index: usize) -> Locked<'_> {
        // A panic under the lock leaves whole slots behind, so its poison is no reason to stop.
        let segment = match self.segments[index].lock() {
            Ok(segment) => segment,
            Err(poisoned) => poisoned.into_inner(),
        };
        Locked { table: self, segment, start: index * self.segment_slots }
    }

    #[inline]
    fn home(&self, key: KeyId) -> usize {
        ((u128::from(key.high) * self.slots.len() as u128) >> 64) as usize
    }
}

impl Locked<'_> {
    /// Finds a key; a miss is final while the lock is held.
    pub(crate) fn find(&self, key: KeyId) -> Option<Found> {
        self.table.find(key)
    }

    /// The instant from which a key that is added now counts: `now`, or the latest eviction here.
    pub(crate) fn starts_at(&self, now: Instant) -> Instant {
        now.max(self.segment.evicted_at)
    }

    /// Adds a key that was not found. Pinned keys are not held to `keys_max`.
    ///
    /// `is_as_new` says whether a state may be forgotten at `now`. Returns how many keys were evicted.
    ///
    /// # Errors
    /// [`Full`], and nothing was added.
    pub(crate) fn add(
        &mut self,
        key: KeyId,
        meta: Meta,
        state: u64,
        now: Instant,
        is_as_new: impl Fn(Meta, u64) -> bool,
    ) -> Result<u64, Full> {
        debug_assert!(self.find(key).is_none());
        let mut evicted = 0;
        loop {
            let way = self.search(key, now, &is_as_new);
            if let Some(place) = way.evicted {
                self.table.slots[place].settle(key, meta, state);
                return Ok(evicted + 1);
            }
            if let Some(place) = way.free
                && self.count_one(meta)
            {
                self.table.slots[place].settle(key, meta, state);
                return Ok(evicted);
            }
            // Once only: what the step freed may be gone again, taken by another segment.
            if evicted > 0 {
                return Err(Full);
            }
            evicted = self.sweep_step(now, &is_as_new);
            if evicted == 0 {
                return Err(Full);
            }
        }
    }

    /// Does with one key what `visit` says of it; see [`Table::sweep`].
    pub(crate) fn carry_over(
        &mut self,
        place: usize,
        mut visit: impl FnMut(KeyId, Meta, u64) -> Visit,
    ) {
        self.visit(place, &mut visit);
    }

    fn count_one(&self, meta: Meta) -> bool {
        self.table.used.add_below(if meta.is_pinned() { u64::MAX } else { self.table.keys_max })
    }

    /// Walks the way on which `key` is searched, evicting the first key that is as new.
    fn search(
        &mut self,
        key: KeyId,
        now: Instant,
        is_as_new: &impl Fn(Meta, u64) -> bool,
    ) -> Way {
        let mut free = None;
        let mut offset = self.table.home(key) - self.start;
        for _ in 0..self.table.segment_slots {
            let place = self.start + offset;
            match self.table.slots[place].look() {
                Seen::Empty => return Way { evicted: None, free: free.or(Some(place)) },
                Seen::Vacant => free = free.or(Some(place)),
                Seen::Key { meta, state, .. } => {
                    if self.evict(place, meta, state, now, is_as_new) {
                        return Way { evicted: Some(place), free };
                    }
                }
            }
            offset = (offset + 1) & (self.table.segment_slots - 1);
        }
        Way { evicted: None, free }
    }

    /// Moves the hand on by a bounded step, freeing keys that are as new. Returns how many.
    fn sweep_step(&mut self, now: Instant, is_as_new: &impl Fn(Meta, u64) -> bool) -> u64 {
        let mut freed = 0;
        let mask = self.table.segment_slots - 1;
        for _ in 0..SWEEP_STEP.min(self.table.segment_slots) {
            // Backwards, so that a freed slot finds out whether the next one is empty already.
            self.segment.hand = self.segment.hand.wrapping_sub(1) & mask;
            let place = self.start + self.segment.hand;
            match self.table.slots[place].look() {
                Seen::Empty => {}
                Seen::Vacant => self.leave(place),
                Seen::Key { meta, state, .. } => {
                    if self.evict(place, meta, state, now, is_as_new) {
                        self.vacate(place);
                        freed += 1;
                    }
                }
            }
        }
        freed
    }

    /// Takes a slot's state away if its key is as new.
    fn evict(
        &mut self,
        place: usize,
        meta: Meta,
        state: u64,
        now: Instant,
        is_as_new: &impl Fn(Meta, u64) -> bool,
    ) -> bool {
        let evicts = !meta.is_pinned() && is_as_new(meta, state);
        if !evicts || !self.table.slots[place].take(state) {
            return false; // In use, or charged a moment ago.
        }
        self.segment.evicted_at = self.segment.evicted_at.max(now);
        true
    }

    fn vacate(&mut self, place: usize) {
        self.leave(place);
        self.table.used.sub();
    }

    /// Marks a slot as nobody's; searches stop there if they would have stopped at the next.
    fn leave(&mut self, place: usize) {
        let next = self.start + ((place - self.start + 1) & (self.table.segment_slots - 1));
        let next_is_empty = self.table.slots[next].look() == Seen::Empty;
        self.table.slots[place].vacate(next_is_empty);
    }

    fn visit(&mut self, place: usize, visit: &mut impl FnMut(KeyId, Meta, u64) -> Visit) {
        let slot = &self.table.slots[place];
        // Ends when no charge comes between looking and taking.
        while let Seen::Key { key, meta, state } = slot.look() {
            match visit(key, meta, state) {
                Visit::Keep => return,
                Visit::Drop => {
                    if slot.take(state) {
                        return self.vacate(place);
                    }
                }
                Visit::Move(meta, next) => {
                    if slot.take(state) {
                        // Never the same number under another meaning: a charge that still holds the old
                        // state must fail.
                        let next = if next == state { next + 1 } else { next };
                        return slot.settle(key, meta, next);
                    }
                }
            }
        }
    }
}

/// What a search under the lock came by.
struct Way {
    /// A slot whose key was evicted; it is still held.
    evicted: Option<usize>,
    free: Option<usize>,
}

/// Slots that nobody ever owned.
#[cfg(not(loom))]
fn empty_slots(count: usize) -> Box<[Slot]> {
    let slots = Box::<[Slot]>::new_zeroed_slice(count);
    // SAFETY: a `Slot` is three `AtomicU64`, for which all-zero memory is a value (`Slot` and its fields
    // have no niche and no invalid bits). Zeroed pages are given by the system when they are touched, so
    // a table of a million keys starts at no memory instead of 32 MB (`bench/RESULTS.md`).
    unsafe { slots.assume_init() }
}

#[cfg(loom)]
fn empty_slots(count: usize) -> Box<[Slot]> {
    (0..count).map(|_| Slot::empty()).collect()
}

/// Room for limits and overrides in the smallest table.
#[cfg(not(loom))]
const PINNED_SLOTS: usize = 128;
#[cfg(loom)]
const PINNED_SLOTS: usize = 0;
#[cfg(not(loom))]
const SEGMENT_SLOTS_MIN: usize = 16;
/// Three and a half pages: short enough to lock and sweep, long enough to even out the hash.
#[cfg(not(loom))]
const SEGMENT_SLOTS_MAX: usize = 1024;
#[cfg(loom)]
const SEGMENT_SLOTS_MIN: usize = 2;
#[cfg(loom)]
const SEGMENT_SLOTS_MAX: usize = 2;
/// Slots that an addition looks at when the table is full: about half a microsecond.
const SWEEP_STEP: usize = 128;
