//! Cells of keys whose limit the nodes of a fleet divide among them: two buckets each, and what was
//! counted.
//!
//! The **global** bucket has the rate that the key's owner gave this node, by what was asked for
//! here and elsewhere; the **local** one an equal part of the limit, whatever others do. One of
//! them decides and every charge spends from both, so that what decides may change without a second
//! burst. Any thread charges; one writer, the driver, gives rates, drains counts, and lets cells
//! leave. Who is given how much is decided elsewhere.

use std::fmt;

use crate::bucket::{Bucket, Spent};
use crate::cell::{Dirty, Meta, Number, PLACES_MAX, Share, Side, Slot, Tally};
use crate::key::KeyId;
use crate::listed::Listed;
use crate::mutant::lacks;
use crate::policy::FleetLimitId;
use crate::table::{Found, Full, Table};
use crate::time::Instant;

/// The sharing cells of a node, used by all of its threads.
pub struct Shares {
    table: Table<Share>,
    listed: Listed,
    keys_max: u64,
    spare: u64,
    /// How many share: the members of the fleet.
    members: Number,
}

/// What is asked of a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asks<'a> {
    pub(crate) key: KeyId,
    pub(crate) cost: u64,
    pub(crate) of: &'a Dividing,
    /// Whether the owner's rate decides, if there is one that can be relied on.
    pub(crate) is_global: bool,
    /// Whether the key stands in for others of its limit that found no room: there is more for it.
    pub(crate) is_spare: bool,
}

/// What is divided: a key's allowance in the whole fleet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Dividing {
    pub(crate) limit: FleetLimitId,
    pub(crate) per_second: f64,
    pub(crate) burst: u64,
    /// Granules of its cells that begin from now on.
    pub(crate) shift: i8,
}

/// What became of a charge, or would, and by which bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) is_allowed: bool,
    /// How far the line of the bucket that decided is taken.
    pub(crate) taken: u64,
    pub(crate) bucket: Bucket,
    /// Whether the charge added the key's cell.
    pub(crate) is_new: bool,
}

/// What was counted of a key since its cell began, in units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainedShare {
    /// Whose cell it is.
    pub key: KeyId,
    /// The limit by which it began.
    pub limit: FleetLimitId,
    /// Whether it was never drained before.
    pub is_new: bool,
    /// Where the global bucket's line is; what [`evict`](Shares::evict) is asked with.
    pub position: u64,
    /// Units that were allowed, less those that were [given back](Shares::give_back). The sum wraps
    /// at 2^63.
    pub allowed: u64,
    /// Units that were denied.
    pub denied: u64,
    /// Units that were allowed, and that the other bucket would have denied.
    pub other_denied: u64,
    /// Units that were denied, and that the other bucket would have allowed.
    pub other_allowed: u64,
}

/// What one node has of a key from now on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Given {
    /// Units a second, by equal parts.
    pub local: f64,
    /// Units at once, by equal parts.
    pub local_burst: u64,
    /// Units a second and at once that the owner gave; none before it did.
    pub global: Option<(f64, u64)>,
    /// Whether that can be relied on: it came lately.
    pub is_global_sound: bool,
}

impl Shares {
    /// Room for at most `keys_max` keys. It takes 171 bytes of address space a key (128 at three
    /// quarters full), and memory where keys come.
    #[must_use]
    pub fn new(keys_max: u64) -> Self {
        let keys_max = keys_max.min(KEYS_MAX);
        let members = Number::default();
        members.set(1);
        Self {
            table: Table::new(keys_max),
            listed: Listed::default(),
            keys_max,
            spare: keys_max / 8 + SPARE_MIN,
            members,
        }
    }

    /// How many nodes share: of keys that are new from now on each has one part of so many. At
    /// least 1.
    pub fn set_members(&self, members: u64) {
        self.members.set(members.max(1));
    }

    /// How many nodes share.
    #[must_use]
    pub fn members(&self) -> u64 {
        self.members.get()
    }

    /// Has `wake` called whenever there is something to [drain](Self::drain) after there was
    /// nothing. Only the first one is kept; returns whether it is this.
    pub fn on_dirty(&self, wake: Box<dyn Fn() + Send + Sync>) -> bool {
        self.listed.on_dirty(wake)
    }

    /// Keys that have a cell.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.table.used()
    }

    /// Keys that can have a cell at most, those among them that stand in for others.
    #[must_use]
    pub fn keys_max(&self) -> u64 {
        self.keys_max + self.spare
    }

    /// Charges a key: what passes is spent from both buckets, and counted; what does not changes
    /// nothing, and is to be [refused](Self::refuse).
    ///
    /// # Errors
    /// When the key has no cell, and there is no room for one.
    pub(crate) fn charge(&self, asks: &Asks, now: Instant) -> Result<Answer, Full> {
        let mut is_new = false;
        // Each further turn means that somebody else changed the cell.
        loop {
            let Some(found) = self.table.find(asks.key) else {
                is_new |= self.add(asks, now)?;
                continue;
            };
            let slot = self.table.slot(found.place);
            let Some(seen) = Seen::of(slot, found.state, asks) else {
                is_new |= self.add(asks, now)?;
                continue;
            };
            let (taken, bucket) = seen.decides();
            let Spent::Passes { taken: next } = bucket.judge(taken, asks.cost, now) else {
                if slot.still_has(found.state) {
                    return Ok(Answer { is_allowed: false, taken, bucket, is_new });
                }
                continue;
            };
            if !self.take(slot, &found, &seen, next) {
                std::hint::spin_loop();
                continue;
            }
            let other_passes = self.take_other(slot, &found, &seen, asks.cost, now);
            if other_passes == Some(false) {
                slot.share().differ(true, asks.cost);
            }
            if slot.share().allow(asks.cost) {
                self.mark(found.place);
            }
            return Ok(Answer { is_allowed: true, taken: next, bucket, is_new });
        }
    }

    /// What a charge would come to. Changes nothing; none for a key without a cell.
    pub(crate) fn look(&self, asks: &Asks, now: Instant) -> Option<Answer> {
        loop {
            let found = self.table.find(asks.key)?;
            let slot = self.table.slot(found.place);
            let seen = Seen::of(slot, found.state, asks)?;
            let (taken, bucket) = seen.decides();
            let is_allowed = bucket.judge(taken, asks.cost, now) != Spent::Waits;
            if slot.still_has(found.state) {
                return Some(Answer { is_allowed, taken, bucket, is_new: false });
            }
        }
    }

    /// The bucket that decides about a key that has no cell yet.
    pub(crate) fn first(&self, of: &Dividing, now: Instant) -> Bucket {
        self.local_bucket(of, 0, now)
    }

    /// Counts a cost that was denied, and spends it from the bucket that did not decide. Returns
    /// whether it added the key's cell.
    ///
    /// # Errors
    /// When the key has no cell, and there is no room for one.
    pub(crate) fn refuse(&self, asks: &Asks, now: Instant) -> Result<bool, Full> {
        let mut is_new = false;
        loop {
            let found = self.table.find(asks.key);
            let slot = found.as_ref().map(|found| self.table.slot(found.place));
            let seen = found.zip(slot).and_then(|(found, slot)| Seen::of(slot, found.state, asks));
            let (Some(found), Some(slot), Some(seen)) = (found, slot, seen) else {
                is_new |= self.add(asks, now)?;
                continue;
            };
            // What does not pass is spent from the other one all the same, or that would be fuller
            // than if it had decided.
            let other = self.take_other(slot, &found, &seen, asks.cost, now);
            if other == Some(true) {
                slot.share().differ(false, asks.cost);
            }
            slot.share().deny(asks.cost);
            self.mark(found.place);
            return Ok(is_new);
        }
    }

    /// Gives back units of a charge that was made at `charged_at`, as if they had not been asked
    /// for, but for what has leaked since; nothing for a key without a cell.
    pub fn give_back(&self, key: KeyId, units: u64, charged_at: Instant, now: Instant) {
        if units == 0 {
            return;
        }
        // Locked, so that the cell cannot leave.
        let locked = self.table.lock(key);
        let Some(found) = locked.find(key) else { return };
        let share = self.table.slot(found.place).share();
        for side in [Side::Global, Side::Local] {
            if let Some((bucket, _)) = share.bucket(side) {
                share.move_on(side, bucket.given_back(units, charged_at, now));
            }
        }
        if !lacks("share_cancelled_counts") {
            share.cancel(units);
        }
        let was_clean = share.mark();
        drop(locked);
        if was_clean {
            self.listed.list(found.place, self.table.slot(found.place));
        }
    }

    /// Whether a cost was charged to a key whether it had room or not: it is paid off.
    pub(crate) fn owe(&self, asks: &Asks, now: Instant) -> bool {
        while let Some(found) = self.table.find(asks.key) {
            let slot = self.table.slot(found.place);
            let Some(seen) = Seen::of(slot, found.state, asks) else { return false };
            let (taken, bucket) = seen.decides();
            let next = bucket.owing(taken, asks.cost, now);
            if self.take(slot, &found, &seen, next) {
                if slot.share().allow(asks.cost) {
                    self.mark(found.place);
                }
                return true;
            }
        }
        false
    }

    /// Gives a key's cell its rates. What a bucket has left stays, up to its burst; a global rate
    /// that is the first makes a full bucket. No effect for a key without a cell.
    pub fn give(&self, key: KeyId, given: &Given, now: Instant) {
        let Some(found) = self.table.find(key) else { return };
        let slot = self.table.slot(found.place);
        let share = slot.share();
        if !slot.is_met() {
            return;
        }
        share.set_bucket(Side::Local, || {
            let bent =
                |(bucket, _): (Bucket, bool)| bucket.bend(given.local, given.local_burst, now);
            (share.bucket(Side::Local).map_or_else(Bucket::default, bent), true)
        });
        let Some((per_second, burst)) = given.global else {
            return share.forget_bucket(Side::Global);
        };
        share.set_bucket(Side::Global, || {
            let bucket = match share.bucket(Side::Global) {
                Some((bucket, _)) => bucket.bend(per_second, burst, now),
                None if lacks("share_begins_full") => Bucket {
                    base: slot.taken() + 1,
                    ..Bucket::full(0, per_second, burst, share.shift(), now)
                },
                // Nothing was spent from it before, and so it is full.
                None => Bucket::full(slot.taken(), per_second, burst, share.shift(), now),
            };
            (bucket, given.is_global_sound)
        });
    }

    /// Shows what was counted in each cell since the last time, once. `each` must not panic.
    pub fn drain(&self, mut each: impl FnMut(DrainedShare)) {
        let mut next = self.listed.take();
        // Ends: each cell is listed once, and those listed from now on are for the next time.
        while let Some(place) = next {
            let slot = self.table.slot(place);
            let is_new = !slot.is_met();
            next = Dirty::follow(slot);
            let counted = slot.share().collect();
            each(drained(slot, is_new, counted));
        }
    }

    /// Lets a key's cell leave if it was not charged since it was last drained, when its line was
    /// at `position`; returns whether it went.
    pub fn evict(&self, key: KeyId, position: u64) -> bool {
        let mut locked = self.table.lock(key);
        let Some(found) = locked.find(key) else { return false };
        let is_clean = !self.table.slot(found.place).share().is_dirty();
        is_clean && found.state == position && locked.leave_at(found.place, found.state)
    }

    /// Whether a key has a cell.
    #[must_use]
    pub fn has_cell(&self, key: KeyId) -> bool {
        self.table.lock(key).find(key).is_some()
    }

    /// Takes the line of the bucket that decides on to `next`.
    fn take(&self, slot: &Slot<Share>, found: &Found, seen: &Seen, next: u64) -> bool {
        match seen.by {
            Side::Global => slot.exchange(found.state, next),
            // Nobody else's cell is here: cells that are in use do not leave.
            Side::Local => {
                slot.still_has(found.state) && slot.share().take_local(seen.local_taken, next)
            }
        }
    }

    /// Spends a cost from the bucket that does not decide, if it has it. None if there is none.
    fn take_other(
        &self,
        slot: &Slot<Share>,
        found: &Found,
        seen: &Seen,
        cost: u64,
        now: Instant,
    ) -> Option<bool> {
        if lacks("share_spends_from_both") {
            return None;
        }
        match seen.by {
            Side::Global => {
                let mut taken = seen.local_taken;
                loop {
                    let Spent::Passes { taken: next } = seen.local.judge(taken, cost, now) else {
                        return Some(false);
                    };
                    if slot.share().take_local(taken, next) {
                        return Some(true);
                    }
                    taken = slot.share().local_taken();
                }
            }
            Side::Local => {
                let global = seen.global?;
                let mut at = *found;
                loop {
                    let Spent::Passes { taken: next } = global.judge(at.state, cost, now) else {
                        return Some(false);
                    };
                    if slot.exchange(at.state, next) {
                        return Some(true);
                    }
                    at = self.table.find_at(found.place, slot.key())?;
                }
            }
        }
    }

    #[cold]
    fn mark(&self, place: usize) {
        let slot = self.table.slot(place);
        if slot.share().mark() {
            self.listed.list(place, slot);
        }
    }

    /// Adds a cell for a key unless it has one; returns whether it did.
    #[cold]
    fn add(&self, asks: &Asks, now: Instant) -> Result<bool, Full> {
        let mut locked = self.table.lock(asks.key);
        if locked.find(asks.key).is_some() {
            return Ok(false);
        }
        // Beyond whatever a cell here has had: a charge that still holds the state of a cell that
        // left must fail.
        let taken = locked.left_below();
        let spare = if asks.is_spare { self.spare } else { 0 };
        let place = locked.add_if_free(asks.key, Meta::new(0, false), taken, spare)?;
        let slot = self.table.slot(place);
        let local = self.local_bucket(asks.of, taken, now);
        slot.share().set_about(asks.of.limit.0, asks.of.shift);
        // Until it is told of a bucket, others wait for the lock.
        slot.share().set_bucket(Side::Local, || (local, true));
        drop(locked);
        // Dirty from the start, so it stays, and nobody else lists it.
        self.listed.list(place, slot);
        Ok(true)
    }

    fn local_bucket(&self, of: &Dividing, taken: u64, now: Instant) -> Bucket {
        let members = self.members();
        let (per_second, burst) = equal_part(of.per_second, of.burst, members);
        Bucket::full(taken, per_second, burst, of.shift, now)
    }
}

/// What each of so many members has of an allowance: units a second, and at once at least 1.
///
/// Of 5/s with a burst of 5, each of 8 has 0.625/s and a burst of 1.
#[must_use]
pub fn equal_part(per_second: f64, burst: u64, members: u64) -> (f64, u64) {
    let members = members.max(1);
    (per_second / members as f64, (burst / members).max(1))
}

/// What was read of a cell.
struct Seen {
    by: Side,
    global_taken: u64,
    global: Option<Bucket>,
    local_taken: u64,
    local: Bucket,
}

impl Seen {
    /// None of a cell that is just being added.
    #[inline]
    fn of(slot: &Slot<Share>, state: u64, asks: &Asks) -> Option<Self> {
        let share = slot.share();
        let local_taken = share.local_taken();
        let (local, _) = share.bucket(Side::Local)?;
        let global = share.bucket(Side::Global);
        let decides = asks.is_global && global.is_some_and(|(_, is_sound)| is_sound);
        let by = if decides { Side::Global } else { Side::Local };
        let global = global.map(|(bucket, _)| bucket);
        Some(Self { by, global_taken: state, global, local_taken, local })
    }

    /// The bucket that decides, and how far its line is taken.
    fn decides(&self) -> (u64, Bucket) {
        match (self.by, self.global) {
            (Side::Global, Some(global)) => (self.global_taken, global),
            _ => (self.local_taken, self.local),
        }
    }
}

fn drained(slot: &Slot<Share>, is_new: bool, counted: Tally) -> DrainedShare {
    DrainedShare {
        key: slot.key(),
        limit: FleetLimitId(slot.share().limit()),
        is_new,
        position: slot.taken(),
        allowed: counted.allowed.saturating_sub(counted.cancelled),
        denied: counted.denied,
        other_denied: counted.other_denied,
        other_allowed: counted.other_allowed,
    }
}

impl fmt::Debug for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shares").field("used", &self.used()).finish_non_exhaustive()
    }
}

/// Keys that stand in for others, at least.
const SPARE_MIN: u64 = 64;
const KEYS_MAX: u64 = 1 << 29;
// The list of dirty cells has numbers for all places of the largest table.
const _: () = assert!(KEYS_MAX as usize / 3 * 4 + 4096 < PLACES_MAX);

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
