//! One key, one step: look at it, charge it, undo a charge, give back.
//!
//! The way of a charge: find the key's slot, read its state by the tuning written beside it, judge,
//! and exchange. Whatever is not that (a new key, a full table, a state from before a change of the
//! limits) goes through the lock of the key's segment, out of line.

mod divided;
mod shared;
mod tallied;
mod wants;

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::bucket::Bucket;
use crate::cell::{Meta, Mutex, Number};
use crate::counts::Event;
use crate::decision::{Decided, Outcome, Reason};
use crate::fleet::{Divided, Membership};
use crate::gcra::{Charge, Meter, Verdict};
use crate::key::{KeyId, Secret};
use crate::mutant::lacks;
use crate::rules::{Kind, Rule, RuleSet, Tuning};
use crate::table::{Found, Full, Locked, Table};
use crate::time::{Clock, Instant};

pub(crate) use shared::Names;
pub(crate) use wants::{Charges, Want, Wants};

/// What all clones of a limiter share.
pub(crate) struct Core {
    pub(crate) rules: Arc<ArcSwap<RuleSet>>,
    pub(crate) table: Table,
    pub(crate) clock: Clock,
    pub(crate) secret: Secret,
    pub(crate) table_full: TableFull,
    /// The revision of the rule set, or [`NONE_IN_FORCE`]: read before the clock, and by callers
    /// who kept something of the set that they used last.
    pub(crate) revision: Number,
    pub(crate) keys_max: u64,
    /// Held while the rule set is changed, so that changes come one after another.
    pub(crate) changing: Mutex<()>,
    /// What a member of a fleet has besides.
    pub(crate) member: Option<Membership>,
    /// The same for limits that are counted in a store.
    pub(crate) tally: Option<Membership>,
    /// The same for limits that nodes divide.
    pub(crate) share: Option<Divided>,
}

/// What becomes of a new key when the table is full of keys that are not as new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TableFull {
    /// It shares one cell of its limit with the others that found no place.
    #[default]
    Share,
    /// It is denied with [`Reason::KeyTableFull`].
    Deny,
}

/// What a step did and saw.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step<'r> {
    pub(crate) outcome: Outcome,
    /// The key's state after the step, as the meter's basis says.
    pub(crate) tat: u64,
    /// How the state is read; no meter when the key is unlimited.
    pub(crate) meter: Option<By<'r>>,
    pub(crate) trace: Trace,
}

/// By what a state is read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum By<'r> {
    /// A meter of the limit, or of an override.
    Rule(&'r Meter),
    /// One that is the key's own.
    Bucket(Bucket),
}

impl By<'_> {
    #[inline]
    fn meter(&self) -> Meter {
        match self {
            Self::Rule(meter) => **meter,
            Self::Bucket(bucket) => bucket.meter(),
        }
    }
}

/// What a step left behind.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Trace {
    None,
    /// A charge, and what undoes it.
    Charge(Passed),
    /// A new cell of credit, and whose it is.
    Cell(KeyId),
}

impl Trace {
    pub(crate) fn passed(self) -> Option<Passed> {
        match self {
            Self::Charge(passed) => Some(passed),
            Self::None | Self::Cell(_) => None,
        }
    }

    /// Whose cell began with the step.
    pub(crate) fn began(self) -> Option<KeyId> {
        match self {
            Self::Charge(Passed { key, began: true, .. }) | Self::Cell(key) => Some(key),
            Self::Charge(_) | Self::None => None,
        }
    }
}

/// A charge that was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Passed {
    charge: Charge,
    /// The key's state before; what a new key would have had.
    before: u64,
    /// The cell that was charged: the key's own, or the one that stands in for it.
    key: KeyId,
    meta: Meta,
    /// Whether the cell, which others have a say in, began with it.
    began: bool,
}

/// The rule set is no longer in force; the step had no effect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stale;

impl Core {
    /// Charges a key of any limit, or sees why not.
    pub(crate) fn step<'r>(
        &self,
        rules: &'r RuleSet,
        want: &Want,
        now: Instant,
    ) -> Result<Step<'r>, Stale> {
        let rule = &*rules.rules[want.rule as usize];
        match &rule.kind {
            Kind::Credit(shared) => Ok(self.charge_shared(rule, shared, want, now)),
            Kind::Count(tallied) => Ok(self.charge_tallied(rule, tallied, want, now)),
            Kind::Share(divided) => Ok(self.charge_divided(rule, divided, want, now)),
            Kind::Open | Kind::Rate => self.charge(rules, want, now),
        }
    }

    /// Charges a key of the table of rates, or sees why not.
    pub(crate) fn charge<'r>(
        &self,
        rules: &'r RuleSet,
        want: &Want,
        now: Instant,
    ) -> Result<Step<'r>, Stale> {
        match self.table.find(want.key) {
            Some(found) => self.charge_found(rules, want, now, found),
            None => self.charge_absent(rules, want, now),
        }
    }

    pub(crate) fn charge_found<'r>(
        &self,
        rules: &'r RuleSet,
        want: &Want,
        now: Instant,
        mut found: Found,
    ) -> Result<Step<'r>, Stale> {
        let rule = &rules.rules[want.rule as usize];
        // Each further turn means that another charge of this key went through meanwhile.
        loop {
            let Some(tuning) = rules.tuning(rule, found.meta) else {
                return self.charge_absent(rules, want, now);
            };
            let Some(meter) = &tuning.meter else { return Ok(Step::unmetered()) };
            match meter.judge(found.state, want.cost, now) {
                Verdict::Conforms { next } => {
                    if want.cost == 0 || self.table.exchange(&found, next) {
                        return Ok(Step::passed(
                            want,
                            meter,
                            found.meta,
                            now,
                            Moved { before: found.state, next },
                        ));
                    }
                }
                verdict => return Ok(Step::denied(meter, verdict, want, found)),
            }
            // Two that keep taking the line from each other are slower than two that take turns.
            std::hint::spin_loop();
            match self.table.find_at(found.place, want.key) {
                Some(again) => found = again,
                None => return self.charge_absent(rules, want, now),
            }
        }
    }

    /// Charges a key that was not found, is being changed, or whose state means something unknown.
    #[cold]
    #[inline(never)]
    fn charge_absent<'r>(
        &self,
        rules: &'r RuleSet,
        want: &Want,
        now: Instant,
    ) -> Result<Step<'r>, Stale> {
        let rule = &rules.rules[want.rule as usize];
        let mut locked = self.table.lock(want.key);
        if !self.is_current(rules) {
            return Err(Stale);
        }
        if let Some(found) = locked.find(want.key)
            && !lacks("miss_is_final")
        {
            if rules.tuning(rule, found.meta).is_none() {
                self.carry_over(&mut locked, rules, found.place);
            }
            drop(locked);
            return self.charge(rules, want, now);
        }
        let (meta, tuning) = rules.tuning_for(rule, want.key);
        let Some(meter) = &tuning.meter else { return Ok(Step::unmetered()) };
        // Not before the latest eviction here, by a thread whose clock reading is newer.
        let now = locked.starts_at(now);
        let before = meter.fresh(now);
        let next = match meter.judge(before, want.cost, now) {
            Verdict::Conforms { next } => next,
            verdict => {
                let found = Found { place: 0, meta, state: before };
                return Ok(Step::denied(meter, verdict, want, found));
            }
        };
        let moved = Moved { before, next };
        if want.cost == 0 {
            return Ok(Step::passed(want, meter, meta, now, moved));
        }
        let is_as_new = |meta, state| rules.is_as_new(meta, state, now);
        match locked.add(want.key, meta, next, now, is_as_new) {
            Ok(evicted) => {
                rule.counts.count_many(Event::Evicted, evicted);
                Ok(Step::passed(want, meter, meta, now, moved))
            }
            Err(Full) if lacks("full_table_allows") => Ok(Step::unmetered()),
            Err(Full) => {
                drop(locked);
                self.charge_overflow(rules, want, now, meter)
            }
        }
    }

    /// Charges a new key that found no place.
    fn charge_overflow<'r>(
        &self,
        rules: &'r RuleSet,
        want: &Want,
        now: Instant,
        meter: &'r Meter,
    ) -> Result<Step<'r>, Stale> {
        let rule = &rules.rules[want.rule as usize];
        match self.table_full {
            // A pinned key finds a place, so that this does not come round again.
            TableFull::Share if rule.anchor != want.key => {
                rule.counts.count_many(Event::Overflowed, 1);
                self.charge(rules, &Want { key: rule.anchor, ..*want }, now)
            }
            TableFull::Share | TableFull::Deny => Ok(Step {
                outcome: Outcome::Denied(Reason::KeyTableFull),
                tat: meter.fresh(now),
                meter: Some(By::Rule(meter)),
                trace: Trace::None,
            }),
        }
    }

    /// What [`step`](Self::step) would do, without doing it.
    pub(crate) fn look<'r>(
        &self,
        rules: &'r RuleSet,
        want: &Want,
        now: Instant,
    ) -> Result<Step<'r>, Stale> {
        let rule = &*rules.rules[want.rule as usize];
        match &rule.kind {
            Kind::Credit(shared) => return Ok(self.look_shared(rule, shared, want, now)),
            Kind::Count(tallied) => return Ok(self.look_tallied(tallied, want, now)),
            Kind::Share(divided) => return Ok(self.look_divided(divided, want, now)),
            Kind::Open | Kind::Rate => {}
        }
        let (tuning, found) = match self.find_tuned(rules, want)? {
            Some((tuning, found)) => (tuning, found),
            None => {
                let (meta, tuning) = rules.tuning_for(rule, want.key);
                let state = tuning.meter.as_ref().map_or(0, |meter| meter.fresh(now));
                (tuning, Found { place: 0, meta, state })
            }
        };
        let Some(meter) = &tuning.meter else { return Ok(Step::unmetered()) };
        Ok(match meter.judge(found.state, want.cost, now) {
            Verdict::Conforms { .. } => Step {
                outcome: Outcome::Allowed,
                tat: found.state,
                meter: Some(By::Rule(meter)),
                trace: Trace::None,
            },
            verdict => Step::denied(meter, verdict, want, found),
        })
    }

    /// Takes a charge back as if it had not been made.
    ///
    /// If nobody charged the key since, its state before is put back. Otherwise the granules are
    /// taken off the state, less what has leaked since: that may have been spent again.
    pub(crate) fn undo(&self, rules: &RuleSet, want: &Want, passed: &Passed) {
        let rule = &*rules.rules[want.rule as usize];
        let Charge { cost, at, .. } = passed.charge;
        if let Some(credits) = rule.credits() {
            return credits.refund(passed.key, cost, at, self.clock.now());
        }
        if let Some(divided) = rule.divided() {
            return divided.shares.give_back(passed.key, cost, at, self.clock.now());
        }
        let own = Want { key: passed.key, ..*want };
        loop {
            let (tuning, found) = match self.find_tuned(rules, &own) {
                Ok(Some(known)) => known,
                // A key that left the table had rested, and owes nothing.
                Ok(None) => return,
                Err(Stale) => break,
            };
            let Some(meter) = &tuning.meter else { return };
            let untouched = found.meta == passed.meta && found.state == passed.charge.tat;
            let state = if untouched {
                passed.before
            } else {
                meter.undo(found.state, &passed.charge, self.clock.now())
            };
            if self.table.exchange(&found, state) {
                return;
            }
        }
        // The limits were replaced since, and the key with them.
        let current = self.rules.load_full();
        if let Some((position, _)) = current.rule_of(rules.rules[want.rule as usize].id) {
            self.undo(&current, &Want { rule: position as u32, ..*want }, passed);
        }
    }

    /// Gives a key back what it still owes, up to the cost.
    pub(crate) fn give_back(&self, rules: &RuleSet, want: &Want, now: Instant) {
        let rule = &*rules.rules[want.rule as usize];
        if let Some(credits) = rule.credits() {
            return credits.refund(want.key, want.cost, now, now);
        }
        if let Some(divided) = rule.divided() {
            return divided.shares.give_back(want.key, want.cost, now, now);
        }
        self.adjust(rules, want, |tuning, state| {
            tuning.meter.map(|meter| meter.give_back(state, want.cost, now))
        });
    }

    /// Moves the state of a key that has a cell to what `next` makes of it, if anything. Returns
    /// whether it had one.
    pub(crate) fn adjust(
        &self,
        rules: &RuleSet,
        want: &Want,
        next: impl Fn(&Tuning, u64) -> Option<u64>,
    ) -> bool {
        while let Ok(Some((tuning, found))) = self.find_tuned(rules, want) {
            let Some(state) = next(tuning, found.state) else { return true };
            if state == found.state || self.table.exchange(&found, state) {
                return true;
            }
        }
        false
    }

    /// Finds a key and how its state is read; `None` if it has no cell.
    fn find_tuned<'r>(
        &self,
        rules: &'r RuleSet,
        want: &Want,
    ) -> Result<Option<(&'r Tuning, Found)>, Stale> {
        let rule = &rules.rules[want.rule as usize];
        if let Some(found) = self.table.find(want.key)
            && let Some(tuning) = rules.tuning(rule, found.meta)
        {
            return Ok(Some((tuning, found)));
        }
        let mut locked = self.table.lock(want.key);
        let Some(found) = locked.find(want.key) else { return Ok(None) };
        if let Some(tuning) = rules.tuning(rule, found.meta) {
            return Ok(Some((tuning, found)));
        }
        if !self.is_current(rules) {
            return Err(Stale);
        }
        self.carry_over(&mut locked, rules, found.place);
        let found = locked.find(want.key);
        Ok(found.and_then(|found| Some((rules.tuning(rule, found.meta)?, found))))
    }

    /// Converts a key of the rule set before.
    fn carry_over(&self, locked: &mut Locked<'_>, rules: &RuleSet, place: usize) {
        let carry = |key, meta, state| rules.carry_over(key, meta, state, &self.clock);
        locked.visit(place, &mut { carry });
    }

    pub(crate) fn is_current(&self, rules: &RuleSet) -> bool {
        self.rules.load().revision == rules.revision
    }
}

/// How a charge moved a state.
struct Moved {
    before: u64,
    next: u64,
}

impl<'r> Step<'r> {
    #[inline]
    fn passed(want: &Want, meter: &'r Meter, meta: Meta, at: Instant, moved: Moved) -> Self {
        let charge = Charge { cost: want.cost, tat: moved.next, at };
        let (key, before) = (want.key, moved.before);
        let passed = Passed { charge, before, key, meta, began: false };
        Self {
            outcome: Outcome::Allowed,
            tat: moved.next,
            meter: Some(By::Rule(meter)),
            trace: Trace::Charge(passed),
        }
    }

    #[inline]
    fn denied(meter: &'r Meter, verdict: Verdict, want: &Want, found: Found) -> Self {
        debug_assert!(!matches!(verdict, Verdict::Conforms { .. }));
        // A limit that is closed (`zero`, without a burst) has no burst that a cost could exceed.
        let above = want.cost > meter.burst() && meter.burst() > 0;
        let reason = if above && verdict == Verdict::Never {
            Reason::CostExceedsBurst
        } else {
            Reason::OverLimit
        };
        Self {
            outcome: Outcome::Denied(reason),
            tat: found.state,
            meter: Some(By::Rule(meter)),
            trace: Trace::None,
        }
    }

    /// What a decision says of the step.
    #[inline]
    pub(crate) fn decided(&self, rule: &Rule, want: &Want) -> Option<Decided> {
        let of = |by: By<'_>| Decided {
            limit: rule.id,
            cost: want.cost,
            tat: self.tat,
            meter: by.meter(),
        };
        self.meter.map(of)
    }

    pub(super) fn unmetered() -> Self {
        Self { outcome: Outcome::Allowed, tat: 0, meter: None, trace: Trace::None }
    }
}

/// The revision of a limiter without limits.
pub(crate) const NONE_IN_FORCE: u64 = 0;
