//! One step for a key that is decided by credit: look at it, charge it, refuse it, give back.
//!
//! What is permitted comes from the key's owner; here it is only spent. A step counts no refusal by
//! itself, so that of several limits those that are not to blame are told of none.

use crate::cell::Meta;
use crate::charge::{By, Core, Passed, Step, TableFull, Trace, Want};
use crate::counts::Event;
use crate::credits::{Asked, Charged};
use crate::decision::{Outcome, Reason};
use crate::fleet::{Arrival, Parts};
use crate::gcra::{Charge, Meter};
use crate::key::KeyId;
use crate::rules::{Kind, Rule, Shared};
use crate::time::Instant;

impl Core {
    /// Charges a key, or sees why not, having given it a cell in any case.
    #[inline]
    pub(crate) fn charge_shared<'r>(
        &self,
        rule: &'r Rule,
        shared: &'r Shared,
        want: &Want,
        now: Instant,
    ) -> Step<'r> {
        let Some(meter) = rule.shared_meter(shared, want.key) else { return Step::unmetered() };
        // Such a cost must not wait at the owner, before all others and for ever.
        if want.cost == 0 || want.cost > meter.burst() {
            return self.look_shared(rule, shared, want, now);
        }
        let asked = Asked::new(want.key, shared.number, want.cost).waiting();
        match shared.credits.charge_as(&asked, now) {
            Charged::Full => self.charge_spare(rule, shared, meter, &asked, now),
            charged => Step::of_charged(charged, meter, asked.key, want.cost, now),
        }
    }

    /// Charges a key as nearly every charge is made: of one limit alone, at a cost within the
    /// burst, and with a cell. Tells the cell what was refused. `None` leaves it to others, and
    /// nothing was done.
    #[inline(always)]
    pub(crate) fn charge_known<'r>(
        rule: &'r Rule,
        shared: &'r Shared,
        key: KeyId,
        cost: u64,
        now: Instant,
    ) -> Option<(Outcome, u64, &'r Meter)> {
        let meter = rule.shared_meter(shared, key)?;
        if cost.wrapping_sub(1) >= meter.burst() {
            return None;
        }
        let asked = Asked::new(key, shared.number, cost);
        Some(match shared.credits.charge_known(&asked, now)? {
            Charged::Allowed { remaining } => (Outcome::Allowed, remaining, meter),
            Charged::OverLimit { remaining } => {
                (Outcome::Denied(Reason::OverLimit), remaining, meter)
            }
            Charged::Stale { .. } => (Outcome::Denied(Reason::Stale), 0, meter),
            Charged::Full => (Outcome::Denied(Reason::KeyTableFull), 0, meter),
        })
    }

    #[cold]
    fn charge_spare<'r>(
        &self,
        rule: &Rule,
        shared: &Shared,
        meter: &'r Meter,
        asked: &Asked,
        now: Instant,
    ) -> Step<'r> {
        let (charged, key) = match self.spare(rule, asked) {
            Some(spare) => {
                let others = u64::from(spare.key != asked.key);
                rule.counts.count_many(Event::Overflowed, others);
                (shared.credits.charge_as(&spare, now), spare.key)
            }
            None => (Charged::Full, asked.key),
        };
        Step::of_charged(charged, meter, key, asked.cost, now)
    }

    /// Who stands in for a key that found no room, if anybody does.
    fn spare<'a>(&self, rule: &Rule, asked: &Asked<'a>) -> Option<Asked<'a>> {
        // A limit's only key always finds room, as in the table of rates.
        let stands_in = self.table_full == TableFull::Share || rule.anchor == asked.key;
        stands_in.then(|| asked.of_spare(rule.anchor))
    }

    /// What [`charge_shared`](Self::charge_shared) would do, without doing it.
    pub(crate) fn look_shared<'r>(
        &self,
        rule: &'r Rule,
        shared: &'r Shared,
        want: &Want,
        now: Instant,
    ) -> Step<'r> {
        let Some(meter) = rule.shared_meter(shared, want.key) else { return Step::unmetered() };
        let asked = Asked::new(want.key, shared.number, want.cost);
        let charged =
            match (shared.credits.peek(want.key, want.cost, now), self.spare(rule, &asked)) {
                // It would have one.
                (Charged::Full, Some(spare)) => {
                    match shared.credits.peek(spare.key, want.cost, now) {
                        Charged::Full => Charged::Stale { is_new: false },
                        charged => charged,
                    }
                }
                (charged, _) => charged,
            };
        let step = Step::of_charged(charged, meter, want.key, 0, now);
        let outcome = if want.cost == 0 {
            Outcome::Allowed
        } else if want.cost <= meter.burst() {
            step.outcome
        } else if meter.burst() > 0 {
            Outcome::Denied(Reason::CostExceedsBurst)
        } else {
            Outcome::Denied(Reason::OverLimit)
        };
        Step { outcome, trace: Trace::None, ..step }
    }

    /// Tells a key's cell, and so its owner, that a cost was refused or, if the caller waits, that
    /// the key is there. Returns the key whose cell it is, and whether it is new; none if there is
    /// no room for one.
    pub(crate) fn note_shared(
        &self,
        rule: &Rule,
        shared: &Shared,
        want: &Want,
        waits: bool,
    ) -> Option<(KeyId, bool)> {
        let asked = Asked::new(want.key, shared.number, want.cost);
        let asked = if waits { asked.waiting() } else { asked };
        if let Ok(is_new) = shared.credits.note(&asked) {
            return Some((asked.key, is_new));
        }
        let spare = self.spare(rule, &asked)?;
        let is_new = shared.credits.note(&spare).ok()?;
        Some((spare.key, is_new))
    }

    /// Whether a cost that was refused may be permitted in a moment, to the key or to the one that
    /// stands in for it.
    pub(crate) fn may_come(&self, rule: &Rule, shared: &Shared, want: &Want, now: Instant) -> bool {
        let outlook = |key| shared.credits.outlook(key, want.cost, now);
        let of_spare = || {
            let asked = Asked::new(want.key, shared.number, want.cost);
            self.spare(rule, &asked).and_then(|spare| outlook(spare.key))
        };
        outlook(want.key).or_else(of_spare).unwrap_or(false)
    }

    /// Charges as much of a cost as is permitted. Returns the rest, and whose it is.
    pub(crate) fn take_shared(
        &self,
        rule: &Rule,
        shared: &Shared,
        want: &Want,
        now: Instant,
    ) -> (u64, KeyId) {
        if rule.shared_meter(shared, want.key).is_none() {
            return (0, want.key);
        }
        let asked = Asked::new(want.key, shared.number, want.cost).waiting();
        if let Ok(units) = shared.credits.charge_part(&asked, now) {
            return (want.cost - units, want.key);
        }
        let Some(spare) = self.spare(rule, &asked) else { return (want.cost, want.key) };
        let units = shared.credits.charge_part(&spare, now).unwrap_or(0);
        (want.cost - units, spare.key)
    }

    /// Keeps the name of a key that has a new cell, in which others have a say.
    #[cold]
    pub(crate) fn arrived(&self, rule: &Rule, key: KeyId, want: &Want, names: Names<'_>) {
        let (place, limit) = match &rule.kind {
            Kind::Credit(shared) => (self.member.as_ref().map(|of| &of.names), shared.number),
            Kind::Count(tallied) => (self.tally.as_ref().map(|of| &of.names), tallied.number),
            Kind::Share(divided) => (self.share.as_ref().map(|of| &of.names), divided.number),
            Kind::Open | Kind::Rate => return,
        };
        let Some(place) = place else { return };
        // The key that stands in for others has no name.
        let parts = if key == want.key { names(want) } else { Parts::default() };
        place.arrived(Arrival { key, limit, parts });
    }
}

impl<'r> Step<'r> {
    #[inline(always)]
    fn of_charged(charged: Charged, meter: &'r Meter, key: KeyId, cost: u64, now: Instant) -> Self {
        let (outcome, left, trace) = match charged {
            Charged::Allowed { remaining } => {
                let charge = Charge { cost, tat: 0, at: now };
                let passed = Passed { charge, before: 0, key, meta: Meta::NONE, began: false };
                (Outcome::Allowed, remaining, Trace::Charge(passed))
            }
            Charged::OverLimit { remaining } => {
                (Outcome::Denied(Reason::OverLimit), remaining, Trace::None)
            }
            Charged::Stale { is_new } => {
                let trace = if is_new { Trace::Cell(key) } else { Trace::None };
                (Outcome::Denied(Reason::Stale), 0, trace)
            }
            Charged::Full => (Outcome::Denied(Reason::KeyTableFull), 0, Trace::None),
        };
        Self { outcome, tat: left, meter: Some(By::Rule(meter)), trace }
    }
}

/// Tells the values of a key that is charged.
pub(crate) type Names<'a> = &'a dyn Fn(&Want) -> Parts;
