//! The bounded table of cells: open addressing in one block of memory, searched without locks.
//!
//! It decides where a key lives and which key leaves; what a state means is told by the caller.
//! Slots are probed in a line that stays inside a **segment**; adding, evicting and converting take
//! the segment's lock, charging takes none. A cell that is as new is indistinguishable from no
//! cell, so it is re-used first, on the way of a search or by a hand that moves on by a bounded
//! step: there is no pause in which the whole table is swept. One table algorithm serves every
//! shape of cell.

mod leave;

use std::ptr::NonNull;
use std::time::Duration;

use crate::cell::{Counter, Mark, Meta, Mutex, MutexGuard, Number, Read, Rest, Seen, Slot};
use crate::key::KeyId;
use crate::mutant::lacks;
use crate::time::Instant;
#[cfg(not(loom))]
use crate::zeroed::Zeroed;

/// One for each slot.
#[cfg(not(loom))]
type Slots<T> = Zeroed<T>;
#[cfg(loom)]
type Slots<T> = Box<[T]>;

/// Slots for at most `keys_max` keys, and a lock for each segment of them.
pub(crate) struct Table<R: Rest = ()> {
    slots: Slots<Slot<R>>,
    /// What each slot has besides.
    asides: Slots<R::Aside>,
    segments: Box<[Mutex<Segment>]>,
    segment_slots: usize,
    keys_max: u64,
    used: Counter,
    pinned: Counter,
    /// Which segment helps out next when one that is full has nothing to free.
    next_other: Counter,
    /// Until when no segment tries a whole round, after one that looked at others too found nothing
    /// to free (ns): under a flood of new keys each would come to another segment and try its own.
    in_vain_until: Number,
}

/// What a segment's lock guards, besides the right to change owners.
#[derive(Debug, Default)]
pub(crate) struct Segment {
    /// The latest instant at which a key of the segment was found as new and evicted: a key that
    /// comes back starts no earlier, whatever its caller's clock says.
    evicted_at: Instant,
    /// Above every state in which a key of the segment [left](Locked::leave_at).
    left_below: u64,
    /// Where the next sweep step begins.
    hand: usize,
    /// Until when a whole round is not worth trying again.
    in_vain_until: Instant,
}

/// A key's slot, meaning and state at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) place: usize,
    pub(crate) meta: Meta,
    pub(crate) state: u64,
}

/// A slot that a handle comes back to, without its place being computed and checked anew each time:
/// six instructions of sixty (`bench/RESULTS.md`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotRef(NonNull<Slot>);

// SAFETY: it stands for a `&Slot`, and `Slot` is `Sync`.
unsafe impl Send for SlotRef {}
// SAFETY: as above.
unsafe impl Sync for SlotRef {}

impl SlotRef {
    /// A reference to nothing, which must not be used.
    pub(crate) fn dangling() -> Self {
        Self(NonNull::dangling())
    }

    /// The slot.
    ///
    /// # Safety
    /// It came from [`Table::anchor`], and `_keeper` keeps that table.
    #[inline(always)]
    pub(crate) unsafe fn get<T>(self, _keeper: &T) -> &Slot {
        // SAFETY: a table neither moves nor frees its slots while it lives, which the caller sees
        // to; slots are only ever shared.
        unsafe { self.0.as_ref() }
    }
}

/// What becomes of a slot that a [sweep](Table::sweep) visits.
pub(crate) enum Visit {
    Keep,
    /// Nobody's any more.
    Drop,
    /// As new at this instant: it makes room, and a key that comes back starts no earlier.
    Evict(Instant),
    /// Another meaning, and the state in it.
    Move(Meta, u64),
}

/// The table, or the key's segment of it, is full of keys that are not as new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// A locked segment: nobody else adds, evicts or converts keys in it.
pub(crate) struct Locked<'t, R: Rest = ()> {
    table: &'t Table<R>,
    segment: MutexGuard<'t, Segment>,
    start: usize,
}

impl<R: Rest> Table<R> {
    /// A table for at most `keys_max` keys besides the pinned ones. It takes 32 bytes of address
    /// space a key, and memory where keys come: by 2 MB at a time, if the system has huge pages.
    pub(crate) fn new(keys_max: u64) -> Self {
        let wanted = (keys_max as usize).saturating_mul(4) / 3 + PINNED_SLOTS;
        let segment_slots = wanted.next_power_of_two().clamp(SEGMENT_SLOTS_MIN, SEGMENT_SLOTS_MAX);
        let count = wanted.div_ceil(segment_slots);
        Self {
            slots: empty_slots(count * segment_slots),
            asides: empty_asides::<R>(count * segment_slots),
            segments: (0..count).map(|_| Mutex::new(Segment::default())).collect(),
            segment_slots,
            keys_max,
            used: Counter::default(),
            pinned: Counter::default(),
            next_other: Counter::default(),
            in_vain_until: Number::default(),
        }
    }

    /// Finds a key. Takes no lock; a key that is being changed counts as not found, so a miss is
    /// final only under the [lock](Self::lock).
    // By a call, what is found would be read from memory in other words than it was written.
    #[inline(always)]
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

    /// Starts to bring the slot here in which a key is most likely, and returns its place.
    #[inline(always)]
    pub(crate) fn fetch(&self, key: KeyId) -> usize {
        let home = self.home(key);
        self.slots[home].fetch();
        home
    }

    /// A key's slot and state, if it has that meaning and lies at home or a little behind.
    #[inline(always)]
    pub(crate) fn read_as(&self, home: usize, mark: &Mark) -> Option<(&Slot<R>, u64)> {
        let slot = &self.slots[home];
        match slot.read_as(mark) {
            Some(state) => Some((slot, state)),
            None => self.read_behind(home, mark),
        }
    }

    #[inline(never)]
    fn read_behind(&self, home: usize, mark: &Mark) -> Option<(&Slot<R>, u64)> {
        let last = home | (self.segment_slots - 1);
        // What lies before home is left to `find`, which goes round.
        let mut way = self.slots[home..=last].iter().take_while(|slot| slot.goes_on());
        way.find_map(|slot| Some((slot, slot.read_as(mark)?)))
    }

    /// The slot at a place.
    #[inline]
    pub(crate) fn slot(&self, place: usize) -> &Slot<R> {
        &self.slots[place]
    }

    /// What the slot at a place has besides.
    pub(crate) fn aside(&self, place: usize) -> &R::Aside {
        &self.asides[place]
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
    pub(crate) fn lock(&self, key: KeyId) -> Locked<'_, R> {
        self.lock_segment(self.home(key) / self.segment_slots)
    }

    /// Shows every key to `visit`, one segment's lock at a time, and does what it says. What it
    /// says of a state holds only for that state: it is asked again when a charge came between.
    pub(crate) fn sweep(&self, mut visit: impl FnMut(KeyId, Meta, u64) -> Visit) {
        for index in 0..self.segments.len() {
            let mut locked = self.lock_segment(index);
            for place in locked.start..locked.start + self.segment_slots {
                locked.visit(place, &mut visit);
            }
        }
    }

    /// Whether no key can be added that takes no other key's place.
    pub(crate) fn is_full(&self) -> bool {
        self.used.get() >= self.keys_max
    }

    /// Keys that have a cell.
    pub(crate) fn used(&self) -> u64 {
        self.used.get() + self.pinned.get()
    }

    fn count_of(&self, meta: Meta) -> &Counter {
        if meta.is_pinned() { &self.pinned } else { &self.used }
    }

    fn lock_segment(&self, index: usize) -> Locked<'_, R> {
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

impl Table {
    /// A lasting reference to the slot at a place.
    pub(crate) fn anchor(&self, place: usize) -> SlotRef {
        SlotRef(NonNull::from(&self.slots[place]))
    }
}

impl<R: Rest> Locked<'_, R> {
    /// Finds a key; a miss is final while the lock is held.
    pub(crate) fn find(&self, key: KeyId) -> Option<Found> {
        self.table.find(key)
    }

    /// The instant from which a key that is added now counts: `now`, or the latest eviction here.
    pub(crate) fn starts_at(&self, now: Instant) -> Instant {
        if lacks("eviction_forgotten") {
            return now;
        }
        now.max(self.segment.evicted_at)
    }

    /// Adds a key that was not found. Pinned keys are not held to `keys_max`.
    ///
    /// `is_as_new` says whether a state may be forgotten at `now`. Returns how many keys were
    /// evicted.
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
                if meta.is_pinned() {
                    self.table.used.sub();
                    self.table.pinned.add(1);
                }
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
            evicted = self.make_room(now, &is_as_new);
            if evicted == 0 {
                return Err(Full);
            }
        }
    }

    fn count_one(&self, meta: Meta) -> bool {
        if meta.is_pinned() {
            self.table.pinned.add(1);
            return true;
        }
        self.count_below(self.table.keys_max)
    }

    /// Walks the way on which `key` is searched, evicting the first key that is as new.
    fn search(&mut self, key: KeyId, now: Instant, is_as_new: &impl Fn(Meta, u64) -> bool) -> Way {
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

    /// Frees keys that are as new here, or else in another segment. Returns how many.
    ///
    /// After a round that freed nothing, only a short step is tried for a while: a flood of new
    /// keys finds the answer "full" at that price.
    fn make_room(&mut self, now: Instant, is_as_new: &impl Fn(Meta, u64) -> bool) -> u64 {
        let vain = self.segment.in_vain_until > now;
        if vain || self.table.in_vain_until.get() > now.as_nanos() {
            return self.sweep_step(now, is_as_new);
        }
        let freed = self.sweep_round(now, is_as_new);
        if freed > 0 {
            return freed;
        }
        let table = self.table;
        for _ in 0..OTHERS_TRIED {
            let other = table.next_other.add_before(1) as usize % table.segments.len();
            // Never waited for: two segments that waited for each other would wait for ever.
            if let Ok(segment) = table.segments[other].try_lock() {
                let start = other * table.segment_slots;
                let freed = Locked { table, segment, start }.sweep_round(now, is_as_new);
                if freed > 0 {
                    return freed;
                }
            }
        }
        self.segment.in_vain_until = now.saturating_add(SWEEP_PAUSE);
        table.in_vain_until.set(self.segment.in_vain_until.as_nanos());
        0
    }

    /// Moves the hand on until a step has freed something, once round the segment at most.
    fn sweep_round(&mut self, now: Instant, is_as_new: &impl Fn(Meta, u64) -> bool) -> u64 {
        let steps = self.table.segment_slots.div_ceil(SWEEP_STEP);
        let mut freed = (0..steps).map(|_| self.sweep_step(now, is_as_new));
        freed.find(|freed| *freed > 0).unwrap_or(0)
    }

    /// Moves the hand on by a step, freeing keys that are as new. Returns how many.
    fn sweep_step(&mut self, now: Instant, is_as_new: &impl Fn(Meta, u64) -> bool) -> u64 {
        (0..SWEEP_STEP).map(|_| u64::from(self.sweep_slot(now, is_as_new))).sum()
    }

    /// Frees the next slot if its key is as new.
    fn sweep_slot(&mut self, now: Instant, is_as_new: &impl Fn(Meta, u64) -> bool) -> bool {
        // Backwards, so that a freed slot finds out whether the next one is empty already.
        self.segment.hand = self.segment.hand.wrapping_sub(1) & (self.table.segment_slots - 1);
        let place = self.start + self.segment.hand;
        match self.table.slots[place].look() {
            Seen::Empty => false,
            Seen::Vacant => {
                self.leave(place);
                false
            }
            Seen::Key { meta, state, .. } => {
                let evicts = self.evict(place, meta, state, now, is_as_new);
                if evicts {
                    self.vacate(place, meta);
                }
                evicts
            }
        }
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
        let pinned = meta.is_pinned() && !lacks("pinned_keys_leave");
        let as_new = is_as_new(meta, state) || lacks("live_keys_leave");
        let evicts = as_new && !pinned;
        if !evicts || !self.table.slots[place].take(state) {
            return false; // In use, or charged a moment ago.
        }
        self.segment.evicted_at = self.segment.evicted_at.max(now);
        true
    }

    fn vacate(&mut self, place: usize, meta: Meta) {
        self.leave(place);
        self.table.count_of(meta).sub();
    }

    /// Marks a slot as nobody's; searches stop there if they would have stopped at the next.
    fn leave(&mut self, place: usize) {
        let next = self.start + ((place - self.start + 1) & (self.table.segment_slots - 1));
        let next_is_empty = self.table.slots[next].look() == Seen::Empty;
        self.table.slots[place].vacate(next_is_empty);
    }

    /// Does with one key what `visit` says of it; see [`Table::sweep`].
    pub(crate) fn visit(
        &mut self,
        place: usize,
        visit: &mut impl FnMut(KeyId, Meta, u64) -> Visit,
    ) {
        let slot = &self.table.slots[place];
        // Ends when no charge comes between looking and taking.
        while let Seen::Key { key, meta, state } = slot.look() {
            match visit(key, meta, state) {
                Visit::Keep => return,
                Visit::Drop => {
                    if slot.take(state) {
                        return self.vacate(place, meta);
                    }
                }
                Visit::Evict(now) => {
                    if slot.take(state) {
                        self.segment.evicted_at = self.segment.evicted_at.max(now);
                        return self.vacate(place, meta);
                    }
                }
                Visit::Move(next_meta, next) => {
                    if slot.take(state) {
                        self.table.count_of(meta).sub();
                        self.table.count_of(next_meta).add(1);
                        // Never the same number under another meaning: a charge that still holds
                        // the old state must fail.
                        let next = if next == state { next + 1 } else { next };
                        return slot.settle(key, next_meta, next);
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
fn empty_slots<R: Rest>(count: usize) -> Zeroed<Slot<R>> {
    // SAFETY: a `Slot` is three `AtomicU64`, for which all-zero memory is a value (they have no
    // niche and no invalid bits), and a `Rest`, for which it is one too. Zeroed pages are given by
    // the system when they are touched, so a table of a million keys starts at no memory instead of
    // 32 MB (`bench/RESULTS.md`).
    let slots = unsafe { Zeroed::new(count) };
    advise_huge_pages(&slots);
    slots
}

#[cfg(not(loom))]
fn empty_asides<R: Rest>(count: usize) -> Zeroed<R::Aside> {
    // SAFETY: all-zero memory is a value of what lies aside, as a `Rest` promises.
    unsafe { Zeroed::new(count) }
}

/// Asks the system to back a large table with huge pages: at a million keys nearly every check
/// touches another page, and looking the page up costs as much as the memory itself
/// (`bench/RESULTS.md`).
#[cfg(all(not(loom), target_os = "linux"))]
fn advise_huge_pages<T>(slots: &[T]) {
    use std::ffi::{c_int, c_void};
    unsafe extern "C" {
        fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int;
    }
    let range = slots.as_ptr_range();
    let start = (range.start as usize).next_multiple_of(HUGE_PAGE_BYTES);
    let end = range.end as usize / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if start < end {
        // SAFETY: MADV_HUGEPAGE changes how whole pages inside our own block are backed, not what
        // they hold. A refusal leaves the pages as they are.
        unsafe { madvise(start as *mut c_void, end - start, MADV_HUGEPAGE) };
    }
}

#[cfg(all(not(loom), not(target_os = "linux")))]
fn advise_huge_pages<T>(_slots: &[T]) {}

#[cfg(loom)]
fn empty_slots<R: Rest>(count: usize) -> Box<[Slot<R>]> {
    (0..count).map(|_| Slot::empty()).collect()
}

#[cfg(loom)]
fn empty_asides<R: Rest>(count: usize) -> Box<[R::Aside]> {
    (0..count).map(|_| R::Aside::default()).collect()
}

#[cfg(all(not(loom), target_os = "linux"))]
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Linux's number for it, on every architecture.
#[cfg(all(not(loom), target_os = "linux"))]
const MADV_HUGEPAGE: std::ffi::c_int = 14;
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
/// Slots that an addition looks at, at least, when the table is full: a fraction of a microsecond.
const SWEEP_STEP: usize = 32;
/// Other segments that an addition looks at when its own has nothing to free.
const OTHERS_TRIED: usize = 4;
/// How long a segment that is full of live keys answers so without a whole round.
const SWEEP_PAUSE: Duration = Duration::from_millis(1);

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn key(high: u64, low: u32) -> KeyId {
        KeyId { high: high + 2, low }
    }

    const FREE: Meta = Meta::FREE;

    #[test]
    fn a_key_is_found_where_it_was_added_and_only_by_its_whole_identity() {
        let table = Table::<()>::new(100);
        let at = |n: u64| key(n << 40, n as u32);
        for n in 0..100 {
            let state = n * 10;
            let added = table.lock(at(n)).add(at(n), FREE, state, Instant::ZERO, |_, _| false);
            assert_eq!(added, Ok(0));
        }
        for n in 0..100 {
            let found = table.find(at(n)).expect("added");
            assert_eq!((found.meta, found.state), (FREE, n * 10));
            assert_eq!(table.find(key(n << 40, n as u32 + 1)), None);
        }
        assert_eq!(table.used(), 100);
    }

    #[test]
    fn a_full_table_takes_a_new_key_only_in_the_place_of_one_that_is_as_new() {
        let table = Table::<()>::new(50);
        let add = |n: u64, as_new: u64| {
            let is_as_new = |_, state| state == as_new;
            table.lock(key(n, 0)).add(key(n, 0), FREE, n, Instant::ZERO, is_as_new)
        };
        for n in 0..50 {
            assert_eq!(add(n, u64::MAX), Ok(0));
        }
        assert_eq!(add(50, u64::MAX), Err(Full));
        assert_eq!(add(51, 17), Ok(1));
        assert_eq!(table.find(key(17, 0)), None);
        assert_eq!(table.used(), 50);
        assert!((0..50).filter(|n| *n != 17).all(|n| table.find(key(n, 0)).is_some()));
    }

    #[test]
    fn a_pinned_key_comes_in_when_the_table_is_full_and_never_leaves() {
        let table = Table::<()>::new(10);
        for n in 0..10 {
            let added = table.lock(key(n, 0)).add(key(n, 0), FREE, 0, Instant::ZERO, |_, _| false);
            assert_eq!(added, Ok(0));
        }
        let pinned = Meta::new(1, true);
        let mut locked = table.lock(key(99, 0));
        assert_eq!(locked.add(key(99, 0), pinned, 7, Instant::ZERO, |_, _| false), Ok(0));
        drop(locked);
        for n in 100..200 {
            // By its state the pinned key, and no other, is as new.
            let is_as_new = |_, state| state == 7;
            let added = table.lock(key(n, 0)).add(key(n, 0), FREE, 0, Instant::ZERO, is_as_new);
            assert_eq!(added, Err(Full));
        }
        assert_eq!(table.find(key(99, 0)).map(|found| found.state), Some(7));
    }

    #[test]
    fn a_key_that_comes_back_starts_no_earlier_than_the_eviction() {
        let table = Table::<()>::new(1);
        let (late, early) = (Instant::from_nanos(100), Instant::from_nanos(50));
        assert_eq!(table.lock(key(1, 0)).add(key(1, 0), FREE, 9, early, |_, _| true), Ok(0));
        assert_eq!(table.lock(key(2, 0)).add(key(2, 0), FREE, 9, late, |_, _| true), Ok(1));
        assert_eq!(table.lock(key(1, 0)).starts_at(early), late);
    }

    #[test]
    fn keys_that_are_told_to_leave_leave_no_trace_but_a_number() {
        let table = Table::<()>::new(100);
        // Close together, so that the way of a search is long, and around the segment's end.
        let at = |n: u64| key(u64::MAX / 3 - (n << 50), n as u32);
        for n in 0..100 {
            assert!(table.lock(at(n)).add_if_free(at(n), FREE, n * 10, 0).is_ok());
        }
        assert_eq!(table.lock(key(9, 9)).add_if_free(key(9, 9), FREE, 0, 0), Err(Full));
        for n in (0..100).map(|n| n * 37 % 100) {
            let mut locked = table.lock(at(n));
            let place = locked.find(at(n)).expect("added").place;
            assert!(!locked.leave_at(place, n * 10 + 1));
            assert!(locked.leave_at(place, n * 10));
        }
        assert_eq!((table.used(), table.lock(at(0)).left_below()), (0, 991));
        assert!(table.slots.iter().all(|slot| !slot.goes_on()));
    }

    #[test]
    fn a_sweep_moves_drops_and_keeps_what_it_is_told() {
        let table = Table::<()>::new(3_000);
        let spread = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 2;
        let at = |n: u64| KeyId { high: spread(n), low: n as u32 };
        for n in 0..3_000 {
            let added = table.lock(at(n)).add(at(n), FREE, n, Instant::ZERO, |_, _| false);
            assert_eq!(added, Ok(0));
        }
        let other = Meta::new(5, false);
        table.sweep(|_, _, state| match state % 3 {
            0 => Visit::Keep,
            1 => Visit::Drop,
            _ => Visit::Move(other, state + 1_000_000),
        });
        assert_eq!(table.used(), 2_000);
        for n in 0..3_000 {
            let seen = table.find(at(n)).map(|found| (found.meta, found.state));
            let expected = [Some((FREE, n)), None, Some((other, n + 1_000_000))];
            assert_eq!(seen, expected[n as usize % 3]);
        }
    }
}
