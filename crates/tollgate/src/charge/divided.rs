//! One step for a key that nodes divide: look at it, charge it, count what was refused, give back.
//!
//! A key is judged by its cell's buckets, whose rates others give. Who gets how much is known
//! elsewhere.

use crate::cell::Meta;
use crate::charge::{By, Core, Passed, Step, TableFull, Trace, Want};
use crate::counts::Event;
use crate::decision::{Outcome, Reason};
use crate::gcra::Charge;
use crate::key::KeyId;
use crate::rules::{Divided, Rule};
use crate::shares::{Answer, Asks, Dividing};
use crate::table::Full;
use crate::time::Instant;

impl Core {
    /// Charges a key, or sees why not, having given it a cell in any case.
    #[inline]
    pub(crate) fn charge_divided<'r>(
        &self,
        rule: &Rule,
        divided: &'r Divided,
        want: &Want,
        now: Instant,
    ) -> Step<'r> {
        let Some(part) = divided.part(want.key) else { return Step::unmetered() };
        if want.cost == 0 || want.cost > part.dividing.burst {
            return self.look_divided(divided, want, now);
        }
        let asks = divided.asks(want, &part.dividing);
        let own = divided.shares.charge(&asks, now).map(|answer| (answer, asks.key));
        let answer = own.or_else(|full| {
            let spare = self.stand_in(rule, &asks).ok_or(full)?;
            rule.counts.count_many(Event::Overflowed, u64::from(spare.key != asks.key));
            divided.shares.charge(&spare, now).map(|answer| (answer, spare.key))
        });
        match answer {
            Ok((answer, key)) => Step::of_answer(&answer, key, want.cost, now),
            Err(Full) => Step {
                outcome: Outcome::Denied(Reason::KeyTableFull),
                tat: 0,
                meter: Some(By::Rule(&part.meter)),
                trace: Trace::None,
            },
        }
    }

    /// What [`charge_divided`](Self::charge_divided) would do, without doing it.
    pub(crate) fn look_divided<'r>(
        &self,
        divided: &'r Divided,
        want: &Want,
        now: Instant,
    ) -> Step<'r> {
        let Some(part) = divided.part(want.key) else { return Step::unmetered() };
        let dividing = &part.dividing;
        let asks = divided.asks(want, dividing);
        let answer = divided.shares.look(&asks, now).unwrap_or_else(|| {
            // Nothing of it is taken before it has a cell.
            let bucket = divided.shares.first(dividing, now);
            Answer { is_allowed: true, taken: 0, bucket, is_new: false }
        });
        let step = Step::of_answer(&answer, want.key, want.cost, now);
        let outcome = if want.cost == 0 {
            Outcome::Allowed
        } else if want.cost <= dividing.burst {
            step.outcome
        } else if dividing.burst > 0 {
            Outcome::Denied(Reason::CostExceedsBurst)
        } else {
            Outcome::Denied(Reason::OverLimit)
        };
        let meter = if dividing.burst > 0 { step.meter } else { Some(By::Rule(&part.meter)) };
        Step { outcome, meter, trace: Trace::None, ..step }
    }

    /// Has a key's cell count what was refused. Returns whether it made the cell.
    pub(crate) fn refuse_divided(
        &self,
        rule: &Rule,
        divided: &Divided,
        want: &Want,
        now: Instant,
    ) -> bool {
        let Some(part) = divided.part(want.key) else { return false };
        // What never passes needs no cell.
        if want.cost > part.dividing.burst {
            return false;
        }
        let asks = divided.asks(want, &part.dividing);
        divided.shares.refuse(&asks, now).unwrap_or_else(|Full| {
            // The key that stands in has no name.
            self.stand_in(rule, &asks).map(|spare| divided.shares.refuse(&spare, now));
            false
        })
    }

    /// Who stands in for a key that found no room, if anybody does.
    fn stand_in<'a>(&self, rule: &Rule, asks: &Asks<'a>) -> Option<Asks<'a>> {
        let stands_in = self.table_full == TableFull::Share || rule.anchor == asks.key;
        stands_in.then_some(Asks { key: rule.anchor, is_spare: true, ..*asks })
    }
}

impl Divided {
    pub(crate) fn asks<'a>(&self, want: &Want, of: &'a Dividing) -> Asks<'a> {
        let is_global = self.mode.is_global();
        Asks { key: want.key, cost: want.cost, of, is_global, is_spare: false }
    }
}

impl Step<'_> {
    #[inline(always)]
    fn of_answer(answer: &Answer, key: KeyId, cost: u64, now: Instant) -> Self {
        let Answer { is_allowed, taken, bucket, is_new } = *answer;
        let trace = if is_allowed {
            let charge = Charge { cost, tat: 0, at: now };
            Trace::Charge(Passed { charge, before: 0, key, meta: Meta::NONE, began: is_new })
        } else if is_new {
            Trace::Cell(key)
        } else {
            Trace::None
        };
        let outcome =
            if is_allowed { Outcome::Allowed } else { Outcome::Denied(Reason::OverLimit) };
        Self { outcome, tat: bucket.tat(taken), meter: Some(By::Bucket(bucket)), trace }
    }
}
