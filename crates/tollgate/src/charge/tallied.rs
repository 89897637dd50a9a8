//! One step for a key that is counted in a store: look at it, charge it, count what was refused.
//!
//! A key is judged by what its cell has counted beside what the fleet had when it was read last.
//! The first request of a key passes, and has the store's worker know it. What is read and written
//! is known elsewhere.

use crate::cell::Meta;
use crate::charge::{By, Core, Passed, Step, TableFull, Trace, Want};
use crate::counts::Event;
use crate::credits::{Asked, Charged};
use crate::decision::{Outcome, Reason};
use crate::gcra::{Charge, Meter};
use crate::key::KeyId;
use crate::rules::{Counting, Rule, Tallied};
use crate::time::Instant;

impl Core {
    /// Charges a key, or sees why not, having given it a cell in any case.
    #[inline]
    pub(crate) fn charge_tallied<'r>(
        &self,
        rule: &Rule,
        tallied: &'r Tallied,
        want: &Want,
        now: Instant,
    ) -> Step<'r> {
        let Some(counting) = tallied.counting(want.key) else { return Step::unmetered() };
        let never = want.cost > counting.leak.whole() && !counting.leak.counts_refused();
        if want.cost == 0 || never {
            return self.look_tallied(tallied, want, now);
        }
        let asked = Asked::counted(want.key, tallied.number, want.cost, &counting.leak).waiting();
        let mut began = false;
        // Ends: a cell that was just made is dirty, and stays until it was drained.
        loop {
            match tallied.credits.charge_known(&asked, now) {
                Some(Charged::Stale { is_new: true }) => began = true,
                Some(charged) => {
                    return Step::of_counted(tallied, counting, charged, want, now, began);
                }
                None => match tallied.credits.note(&asked) {
                    Ok(is_new) => began |= is_new,
                    Err(_) => return self.beyond_table(rule, counting, want),
                },
            }
        }
    }

    /// Charges a key as nearly every charge is made: it passes, and the key has a cell. `None`
    /// leaves it to others, and nothing was done.
    #[inline(always)]
    pub(crate) fn charge_counted(
        tallied: &Tallied,
        key: KeyId,
        cost: u64,
        now: Instant,
    ) -> Option<(Outcome, u64, &Meter)> {
        let Counting { leak, meter } = tallied.counting(key)?;
        if cost.wrapping_sub(1) >= leak.whole() {
            return None;
        }
        let asked = Asked::counted(key, tallied.number, cost, leak).waiting();
        match tallied.credits.charge_known(&asked, now)? {
            Charged::Allowed { remaining } => {
                let level = leak.whole().saturating_sub(remaining);
                Some((Outcome::Allowed, level, meter))
            }
            // One that was refused is counted elsewhere; a cell that was made here is found there.
            Charged::OverLimit { .. } | Charged::Stale { .. } | Charged::Full => None,
        }
    }

    /// What [`charge_tallied`](Self::charge_tallied) would do, without doing it.
    pub(crate) fn look_tallied<'r>(
        &self,
        tallied: &'r Tallied,
        want: &Want,
        now: Instant,
    ) -> Step<'r> {
        let Some(counting) = tallied.counting(want.key) else { return Step::unmetered() };
        let asked = Asked::counted(want.key, tallied.number, want.cost, &counting.leak);
        let charged = match tallied.credits.look(&asked, now) {
            Charged::Full if self.table_full == TableFull::Share => {
                Charged::Allowed { remaining: counting.leak.whole() }
            }
            charged => charged,
        };
        let step = Step::of_counted(tallied, counting, charged, want, now, false);
        let outcome = if want.cost == 0 { Outcome::Allowed } else { step.outcome };
        Step { outcome, trace: Trace::None, ..step }
    }

    /// Has a key's cell know that it was asked for, and counts there what was refused, if its limit
    /// counts that. Returns whether it made the cell.
    pub(crate) fn refuse_tallied(&self, tallied: &Tallied, want: &Want) -> bool {
        let Some(Counting { leak, .. }) = tallied.counting(want.key) else { return false };
        // What never passes needs no cell.
        if want.cost > leak.whole() && !leak.counts_refused() {
            return false;
        }
        let asked = Asked::counted(want.key, tallied.number, want.cost, leak);
        tallied.credits.refuse(&asked).unwrap_or(false)
    }

    /// A key for which there is no cell: it is not counted.
    #[cold]
    fn beyond_table<'r>(&self, rule: &Rule, counting: &'r Counting, want: &Want) -> Step<'r> {
        let outcome = match self.table_full {
            TableFull::Share => Outcome::Allowed,
            TableFull::Deny => Outcome::Denied(Reason::KeyTableFull),
        };
        rule.counts.count_many(Event::Overflowed, u64::from(outcome == Outcome::Allowed));
        Step { outcome, tat: want.cost, meter: Some(By::Rule(&counting.meter)), trace: Trace::None }
    }
}

impl<'r> Step<'r> {
    #[inline(always)]
    fn of_counted(
        tallied: &Tallied,
        counting: &'r Counting,
        charged: Charged,
        want: &Want,
        now: Instant,
        began: bool,
    ) -> Self {
        let Counting { leak, meter } = counting;
        let (outcome, level) = match charged {
            Charged::Allowed { remaining } => {
                (Outcome::Allowed, leak.whole().saturating_sub(remaining))
            }
            Charged::OverLimit { .. } => {
                let never = want.cost > leak.whole() && leak.whole() > 0;
                let reason = if never { Reason::CostExceedsBurst } else { Reason::OverLimit };
                (Outcome::Denied(reason), tallied.credits.level(want.key, leak, now))
            }
            Charged::Stale { .. } => (Outcome::Denied(Reason::Stale), leak.whole()),
            Charged::Full => (Outcome::Denied(Reason::KeyTableFull), leak.whole()),
        };
        let trace = match outcome {
            Outcome::Allowed => {
                let charge = Charge { cost: want.cost, tat: 0, at: now };
                Trace::Charge(Passed { charge, before: 0, key: want.key, meta: Meta::NONE, began })
            }
            Outcome::Denied(_) if began => Trace::Cell(want.key),
            Outcome::Denied(_) => Trace::None,
        };
        Self { outcome, tat: level, meter: Some(By::Rule(meter)), trace }
    }
}
