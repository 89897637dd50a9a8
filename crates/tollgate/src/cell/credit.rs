//! The atomics of credit cells: what such a cell has besides its state.
//!
//! The state is a [`Position`] on a line that is only ever walked forward. Anybody moves it on;
//! what is permitted is changed by one writer. It knows nothing of time: a deadline is a number.

use super::{AtomicU64, HELD, Ordering, Slot};
use crate::mutant::lacks;

/// What a credit cell has besides its state.
#[derive(Debug, Default)]
pub(crate) struct Credit {
    /// Positions that may be taken, up to here, before the deadline.
    ceiling: AtomicU64,
    deadline: AtomicU64,
    /// Units of charges that were not made.
    denied: AtomicU64,
    /// The position at which the owner's published remainder is used up.
    line: AtomicU64,
    /// What was given back and not yet drained, packed by `credits`; 0 when there is none.
    refund: AtomicU64,
}

/// What a credit cell has where only its beginning, a denial and the writer look.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    /// The number of the limit by which the cell began, or was denied last.
    limit: AtomicU64,
    /// The last cost that was refused and not yet drained; 0 when there is none.
    refused: AtomicU64,
    /// The position up to which the owner could have permitted, and until when that counts.
    reach: AtomicU64,
    word_until: AtomicU64,
}

impl Aside {
    /// Says whose limit's the cell is. It comes before the cell is listed or marked, which orders
    /// it before the writer's look.
    pub(crate) fn set_limit(&self, number: u32) {
        self.limit.store(u64::from(number), Ordering::Relaxed);
    }

    pub(crate) fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed) as u32
    }

    /// Says up to where more may yet be permitted, and until when that counts. Nothing rests on
    /// it; it comes before the permission, which orders it before looks at that.
    pub(crate) fn set_word(&self, reach: u64, until: u64) {
        self.reach.store(reach, Ordering::Relaxed);
        self.word_until.store(until, Ordering::Relaxed);
    }

    pub(crate) fn word(&self) -> (u64, u64) {
        (self.reach.load(Ordering::Relaxed), self.word_until.load(Ordering::Relaxed))
    }

    /// Notes a cost that was refused; in the order of [`set_limit`](Self::set_limit).
    pub(crate) fn refuse(&self, cost: u64) {
        self.refused.store(cost, Ordering::Relaxed);
    }

    /// Takes the cost that was refused last, and leaves none.
    pub(crate) fn take_refused(&self) -> u64 {
        if self.refused.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.refused.swap(0, Ordering::Relaxed)
    }
}

/// How far a credit cell has walked, and whether the writer has yet to be told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) taken: u64,
    pub(crate) is_dirty: bool,
}

impl Position {
    #[inline(always)]
    pub(crate) fn of(state: u64) -> Self {
        Self { taken: state >> 1, is_dirty: state & DIRTY != 0 }
    }

    #[inline(always)]
    pub(crate) fn state(self) -> u64 {
        self.taken << 1 | u64::from(self.is_dirty)
    }
}

impl Credit {
    /// Nothing taken, permitted or denied yet, at this position.
    pub(super) fn begin_at(&self, taken: u64) {
        // Release: who reads one of these cannot see the state from before HELD afterwards, so
        // what was read of one cell is never charged to another.
        self.ceiling.store(taken, Ordering::Release);
        self.deadline.store(0, Ordering::Release);
        self.denied.store(0, Ordering::Release);
        self.line.store(taken, Ordering::Release);
        self.refund.store(0, Ordering::Release);
    }

    /// The deadline, and a ceiling that is at least as new.
    #[inline(always)]
    pub(crate) fn permission(&self) -> (u64, u64) {
        // Acquire, in this order: the first pairs with the last store of `permit`, so that a new
        // deadline never comes with an old ceiling. Both pair with `begin_at`.
        let deadline = self.deadline.load(Ordering::Acquire);
        (deadline, self.ceiling.load(Ordering::Acquire))
    }

    #[inline(always)]
    pub(crate) fn line(&self) -> u64 {
        self.line.load(Ordering::Acquire)
    }

    /// Permits what is beyond what was permitted before. The caller is the one writer.
    pub(crate) fn permit(&self, ceiling: u64, deadline: u64, line: u64) {
        self.line.store(line, Ordering::Release);
        let cuts = lacks("permit_cuts_ceiling");
        let least = if cuts { 0 } else { self.ceiling.load(Ordering::Relaxed) };
        let ceiling = ceiling.max(least);
        let cuts = lacks("permit_cuts_deadline");
        let least = if cuts { 0 } else { self.deadline.load(Ordering::Relaxed) };
        let deadline = deadline.max(least);
        if lacks("deadline_before_ceiling") {
            self.deadline.store(deadline, Ordering::Release);
        }
        self.ceiling.store(ceiling, Ordering::Release);
        // Release: pairs with `permission`.
        self.deadline.store(deadline, Ordering::Release);
    }

    /// What a cell that is judged by an estimate has in the place of its ceiling, its line and its
    /// deadline: until when the estimate leaks, how much it is at most, and where what was counted
    /// beside it begins. The caller is the one writer.
    pub(crate) fn set_estimate(&self, leaks_until: u64, most: u64, base: u64) {
        // In this order, so that a new base never comes with an old estimate; an old base with a
        // new one has a charge see less room than there is.
        if self.deadline.load(Ordering::Relaxed) == 0 && !lacks("first_estimate_tells_base") {
            // Where it began moves to the base before its place is another's: until the rest is
            // there, nothing is left of an estimate.
            self.ceiling.store(0, Ordering::Release);
            self.deadline.store(self.line.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
        if lacks("estimate_before_base") {
            self.deadline.store(base + 1, Ordering::Release);
        }
        self.ceiling.store(leaks_until, Ordering::Release);
        self.line.store(most, Ordering::Release);
        self.deadline.store(base + 1, Ordering::Release);
    }

    /// The same, as it was written; in a cell that began and was told nothing yet, where it began.
    #[inline(always)]
    pub(crate) fn estimate(&self) -> Result<(u64, u64, u64), u64> {
        // Ends: a cell is told its first estimate once.
        loop {
            let (base, leaks_until) = self.permission();
            let line = self.line();
            if let Some(base) = base.checked_sub(1) {
                return Ok((leaks_until, line, base));
            }
            // Whoever sees the line of an estimate sees that there is one.
            if self.deadline.load(Ordering::Acquire) == 0 {
                return Err(line);
            }
        }
    }

    /// Lowers the ceiling to the position that was looked at: what a return must not do.
    pub(crate) fn cut(&self, taken: u64) {
        self.ceiling.store(taken, Ordering::Release);
    }

    /// Counts units that were refused; the cell is to be [marked](Slot::mark) afterwards.
    pub(crate) fn deny(&self, cost: u64) {
        // It stops long before it wraps, however many threads are between the two.
        if self.denied.load(Ordering::Relaxed) < DENIED_MAX {
            self.denied.fetch_add(cost.min(COST_MAX), Ordering::AcqRel);
        }
    }

    pub(crate) fn denied(&self) -> u64 {
        self.denied.load(Ordering::Acquire)
    }

    /// Replaces what was given back by what `add` makes of it; the cell is to be
    /// [marked](Slot::mark) afterwards.
    pub(crate) fn add_refund(&self, add: impl Fn(u64) -> u64) {
        let mut seen = self.refund.load(Ordering::Relaxed);
        // Each further turn means that another refund was added, or that all were drained.
        // Release: who drains it sees the charge that is given back.
        while let Err(other) =
            self.refund.compare_exchange_weak(seen, add(seen), Ordering::AcqRel, Ordering::Relaxed)
        {
            seen = other;
        }
    }

    /// Takes what was given back, and leaves none.
    pub(crate) fn take_refund(&self) -> u64 {
        if self.refund.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.refund.swap(0, Ordering::AcqRel)
    }
}

impl Slot<Credit> {
    #[inline(always)]
    pub(crate) fn credit(&self) -> &Credit {
        &self.rest
    }

    /// How far the cell has walked. The caller is the one writer, who alone lets cells leave.
    pub(crate) fn position(&self) -> Position {
        Position::of(self.state.load(Ordering::Acquire))
    }

    /// Makes the cell dirty; returns whether it was clean, so that the caller has to
    /// [list](Dirty::push) it. What the caller changed before is seen by whoever clears the mark.
    ///
    /// The slot may be another key's by now: then that one is shown to the writer once in vain.
    pub(crate) fn mark(&self) -> bool {
        if crate::mutant::lacks("marked_by_looking") && self.position().is_dirty {
            return false;
        }
        // An exchange even if it is marked already. It comes either before the writer's, which then
        // sees the caller's change, or after it, and finds the mark gone. HELD has the bit.
        self.state.fetch_or(DIRTY, Ordering::AcqRel) & DIRTY == 0
    }

    /// Makes the cell clean, before its totals are read. The caller is the one writer.
    pub(crate) fn clear(&self) {
        let state = self.state.fetch_and(!DIRTY, Ordering::AcqRel);
        debug_assert!(state != HELD);
        debug_assert!(state & DIRTY != 0);
    }
}

const DIRTY: u64 = 1;
/// What one refused charge counts at most, and where counting ends: half of what fits.
const COST_MAX: u64 = 1 << 40;
const DENIED_MAX: u64 = 1 << 63;
