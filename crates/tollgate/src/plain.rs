//! How nearly every charge is made, in as few instructions as we know.
//!
//! It charges a key that is in its slot, under its limit's own meter, at a cost within the burst.
//! Everything else is declined and left to `charge`, which can do all that this can.

use crate::cell::{Mark, Meta, Slot};
use crate::decision::{Outcome, Reason};
use crate::gcra::{Meter, Verdict};
use crate::time::Instant;

/// One meter, for states that mean one thing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plain {
    /// [`Meta::NONE`] when there is no such way.
    pub(crate) meta: Meta,
    pub(crate) meter: Meter,
}

impl Plain {
    /// Charges the key in this slot, which was read as `state`, if nothing about it is special;
    /// returns the answer and the state after it.
    #[inline(always)]
    pub(crate) fn charge(
        &self,
        slot: &Slot,
        state: u64,
        mark: &Mark,
        cost: u64,
        now: Instant,
    ) -> Option<(Outcome, u64)> {
        match self.attempt(slot, state, cost, now)? {
            Some(done) => Some(done),
            None => self.charge_in_turn(slot, mark, cost, now),
        }
    }

    /// Tries again after somebody else changed the state. Two threads that keep taking the line
    /// from each other are slower than two that take turns, so there is a pause before each try.
    #[cold]
    #[inline(never)]
    fn charge_in_turn(
        &self,
        slot: &Slot,
        mark: &Mark,
        cost: u64,
        now: Instant,
    ) -> Option<(Outcome, u64)> {
        // Each further turn means that another charge of the key went through.
        loop {
            std::hint::spin_loop();
            // What is in other hands now is not worth waiting for here.
            let state = slot.read_as(mark).filter(|state| slot.still_has(*state))?;
            if let Some(done) = self.attempt(slot, state, cost, now)? {
                return Some(done);
            }
        }
    }

    /// Charges once; the inner `None` is a state that is no longer what it was.
    #[inline(always)]
    fn attempt(
        &self,
        slot: &Slot,
        state: u64,
        cost: u64,
        now: Instant,
    ) -> Option<Option<(Outcome, u64)>> {
        Some(match self.meter.judge_plainly(state, cost, now)? {
            Verdict::Conforms { next } => {
                slot.exchange(state, next).then_some((Outcome::Allowed, next))
            }
            Verdict::Wait | Verdict::Never => {
                slot.still_has(state).then_some((Outcome::Denied(Reason::OverLimit), state))
            }
        })
    }
}
