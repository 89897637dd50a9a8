//! How nearly every charge is made, in as few instructions as we know.
//!
//! It charges a key that is in its slot, under its limit's own meter, at a cost within the burst.
//! Everything else is declined and left to `charge`, which can do all that this can.

use crate::cell::{HELD, Mark, Meta, Slot};
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
        match self.meter.judge_plainly(state, cost, now)? {
            Verdict::Conforms { next } if slot.exchange(state, next) => {
                Some((Outcome::Allowed, next))
            }
            Verdict::Conforms { .. } => self.charge_in_turn(slot, mark, cost, now),
            Verdict::Wait | Verdict::Never if state == HELD => None,
            Verdict::Wait | Verdict::Never => Some((Outcome::Denied(Reason::OverLimit), state)),
        }
    }

    /// Tries again after another charge of the key went through. Two threads that keep taking the
    /// line from each other are slower than two that take turns, so each try is preceded by a
    /// pause.
    #[cold]
    #[inline(never)]
    fn charge_in_turn(
        &self,
        slot: &Slot,
        mark: &Mark,
        cost: u64,
        now: Instant,
    ) -> Option<(Outcome, u64)> {
        loop {
            std::hint::spin_loop();
            let state = slot.read_as(mark)?;
            match self.meter.judge_plainly(state, cost, now)? {
                Verdict::Conforms { next } => {
                    if slot.exchange(state, next) {
                        return Some((Outcome::Allowed, next));
                    }
                }
                Verdict::Wait | Verdict::Never if state == HELD => return None,
                Verdict::Wait | Verdict::Never => {
                    return Some((Outcome::Denied(Reason::OverLimit), state));
                }
            }
        }
    }
}
