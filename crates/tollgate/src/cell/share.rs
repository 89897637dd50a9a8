//! The atomics of cells that share a limit: two buckets, of which one decides, and what was
//! counted.
//!
//! The state of such a cell is how far the global bucket's line is taken. It knows neither rates
//! nor time: how a bucket is read is decided in `bucket`. Anybody takes from lines and counts; one
//! writer changes paces and bursts, and is shown what was counted.

use super::{AtomicU64, Ordering, Slot};
use crate::bucket::{Bucket, Pace};
use crate::mutant::lacks;

/// What a sharing cell has besides its state.
#[derive(Debug, Default)]
pub(crate) struct Share {
    /// How far the local bucket's line is taken.
    local_taken: AtomicU64,
    global: Line,
    local: Line,
    /// Units that were allowed, twice, and one more while the cell is dirty.
    allowed: AtomicU64,
    denied: AtomicU64,
    /// Units of those allowed that were given back.
    cancelled: AtomicU64,
    /// Units that were allowed and that the other bucket would have denied, and the other way.
    other_denied: AtomicU64,
    other_allowed: AtomicU64,
    /// The limit's number, and what a token is in granules (as an `i8`) above it.
    about: AtomicU64,
}

/// Which bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// What the key's owner gave this node of the limit.
    Global,
    /// An equal part of it.
    Local,
}

/// What a bucket is besides how far its line is taken.
#[derive(Debug, Default)]
struct Line {
    base: AtomicU64,
    pace: AtomicU64,
    /// The burst; its highest bit says that the bucket is not to decide.
    burst: AtomicU64,
}

/// What was counted in a cell since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) cancelled: u64,
    pub(crate) other_denied: u64,
    pub(crate) other_allowed: u64,
}

impl Share {
    /// Nothing told or counted yet, and lines that are taken up to here.
    pub(super) fn begin_at(&self, taken: u64) {
        // Release, as for the state that is stored afterwards.
        for line in [&self.global, &self.local] {
            line.base.store(0, Ordering::Release);
            line.pace.store(0, Ordering::Release);
            line.burst.store(0, Ordering::Release);
        }
        self.local_taken.store(taken, Ordering::Release);
        let counts = [&self.denied, &self.cancelled, &self.other_denied, &self.other_allowed];
        counts.iter().for_each(|count| count.store(0, Ordering::Release));
        self.allowed.store(DIRTY, Ordering::Release);
        self.about.store(0, Ordering::Release);
    }

    /// Says whose limit's the cell is, and its granules. Before its buckets are told of.
    pub(crate) fn set_about(&self, limit: u32, shift: i8) {
        let shift = u64::from(shift.cast_unsigned());
        self.about.store(u64::from(limit) | shift << 32, Ordering::Release);
    }

    pub(crate) fn limit(&self) -> u32 {
        self.about.load(Ordering::Acquire) as u32
    }

    pub(crate) fn shift(&self) -> i8 {
        ((self.about.load(Ordering::Acquire) >> 32) as u8).cast_signed()
    }

    /// A bucket, and whether it may decide; none before it was told of.
    #[inline(always)]
    pub(crate) fn bucket(&self, side: Side) -> Option<(Bucket, bool)> {
        let line = self.line(side);
        // Acquire, and in this order: a new base never comes with an old pace, by which the line
        // would be further on than it is. An old base with a new pace lies behind.
        let base = line.base.load(Ordering::Acquire);
        let pace = Pace(line.pace.load(Ordering::Acquire));
        let burst = line.burst.load(Ordering::Acquire);
        if base == 0 {
            return None;
        }
        let bucket = Bucket { base, pace, burst: burst & !RESTS, shift: self.shift() };
        Some((bucket, burst & RESTS == 0))
    }

    /// Changes a bucket; `change` may be asked again when units were given back meanwhile. The
    /// caller is the one writer.
    pub(crate) fn set_bucket(&self, side: Side, mut change: impl FnMut() -> (Bucket, bool)) {
        let line = self.line(side);
        loop {
            let seen = line.base.load(Ordering::Acquire);
            let (bucket, decides) = change();
            let rests = if decides { 0 } else { RESTS };
            line.burst.store(bucket.burst.min(RESTS - 1) | rests, Ordering::Release);
            let early = lacks("share_base_before_pace");
            if !early {
                line.pace.store(bucket.pace.0, Ordering::Release);
            }
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            let is_done = line.base.compare_exchange(seen, bucket.base, order.0, order.1).is_ok();
            if early {
                line.pace.store(bucket.pace.0, Ordering::Release);
            }
            if is_done {
                return;
            }
        }
    }

    /// Forgets a bucket, as if it had never been told of. The caller is the one writer.
    pub(crate) fn forget_bucket(&self, side: Side) {
        self.line(side).base.store(0, Ordering::Release);
    }

    /// Moves a bucket's line on: units were given back.
    pub(crate) fn move_on(&self, side: Side, granules: u64) {
        let base = &self.line(side).base;
        let mut seen = base.load(Ordering::Relaxed);
        // Each further turn means that somebody else changed it.
        while seen != 0 {
            let next = seen.saturating_add(granules).min(BASE_MAX);
            match base.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => seen = other,
            }
        }
    }

    pub(crate) fn local_taken(&self) -> u64 {
        self.local_taken.load(Ordering::Acquire)
    }

    /// Takes the local bucket's line on if it still is where it was.
    #[inline(always)]
    pub(crate) fn take_local(&self, seen: u64, next: u64) -> bool {
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        self.local_taken.compare_exchange(seen, next, order.0, order.1).is_ok()
    }

    /// Counts units that were allowed. Returns whether the cell was clean: then the caller has to
    /// [mark](Self::mark) it.
    #[inline(always)]
    pub(crate) fn allow(&self, cost: u64) -> bool {
        // In one exchange with the mark: whoever clears that afterwards sees the count.
        let before = self.allowed.fetch_add(cost.min(COST_MAX) << 1, Ordering::AcqRel);
        before & DIRTY == 0
    }

    /// Counts units that were denied; the cell is to be [marked](Self::mark) afterwards.
    pub(crate) fn deny(&self, cost: u64) {
        // Bounded as what is allowed is, by so many charges that they never come.
        self.denied.fetch_add(cost.min(COST_MAX), Ordering::AcqRel);
    }

    /// Counts allowed units that were given back; the cell is to be [marked](Self::mark)
    /// afterwards.
    pub(crate) fn cancel(&self, cost: u64) {
        self.cancelled.fetch_add(cost.min(COST_MAX), Ordering::AcqRel);
    }

    /// Counts units of which the other bucket thought otherwise.
    pub(crate) fn differ(&self, was_allowed: bool, cost: u64) {
        let count = if was_allowed { &self.other_denied } else { &self.other_allowed };
        count.fetch_add(cost.min(COST_MAX), Ordering::Relaxed);
    }

    /// Makes the cell dirty; returns whether it was clean, so that the caller has to list it.
    pub(crate) fn mark(&self) -> bool {
        self.allowed.fetch_or(DIRTY, Ordering::AcqRel) & DIRTY == 0
    }

    /// Makes the cell clean and shows what was counted. The caller is the one writer.
    pub(crate) fn collect(&self) -> Tally {
        if lacks("share_collect_looks") {
            let seen = self.counted();
            self.allowed.fetch_and(!DIRTY, Ordering::AcqRel);
            return seen;
        }
        self.allowed.fetch_and(!DIRTY, Ordering::AcqRel);
        self.counted()
    }

    /// What was counted, and whether the cell is clean.
    pub(crate) fn counted(&self) -> Tally {
        Tally {
            cancelled: self.cancelled.load(Ordering::Acquire),
            denied: self.denied.load(Ordering::Acquire),
            other_denied: self.other_denied.load(Ordering::Relaxed),
            other_allowed: self.other_allowed.load(Ordering::Relaxed),
            // Last: what was given back was allowed before.
            allowed: self.allowed.load(Ordering::Acquire) >> 1,
        }
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.allowed.load(Ordering::Acquire) & DIRTY != 0
    }

    fn line(&self, side: Side) -> &Line {
        match side {
            Side::Global => &self.global,
            Side::Local => &self.local,
        }
    }
}

impl Slot<Share> {
    #[inline(always)]
    pub(crate) fn share(&self) -> &Share {
        &self.rest
    }

    /// How far the global bucket's line is taken. The caller is the one writer, who alone lets
    /// cells leave.
    pub(crate) fn taken(&self) -> u64 {
        self.state.load(Ordering::Acquire)
    }
}

const DIRTY: u64 = 1;
/// Of a burst: the bucket is not to decide.
const RESTS: u64 = 1 << 63;
/// What one charge counts at most: a million of the largest fit.
const COST_MAX: u64 = 1 << 40;
/// Lines end far below the state of a cell in other hands.
const BASE_MAX: u64 = 1 << 63;
