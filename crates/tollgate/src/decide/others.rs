//! One limit in whose cells others have a say: charged at once, its key's name told when its cell
//! is new, and the cell told of what was refused.

use crate::charge::{Core, Names, Trace, Want};
use crate::decide::conclude;
use crate::decision::{Decision, Outcome, Reason};
use crate::rules::{Divided, Rule, Shared, Tallied};
use crate::time::Instant;

impl Core {
    /// Decides by credit. Not inlined, so that limits of this node are none the slower.
    #[inline(never)]
    pub(super) fn decide_shared(
        &self,
        rule: &Rule,
        shared: &Shared,
        want: &Want,
        now: Instant,
        names: Names<'_>,
    ) -> Decision {
        let step = self.charge_shared(rule, shared, want, now);
        if let Trace::Cell(key) = step.trace {
            self.arrived(rule, key, want, names);
        }
        if step.outcome != Outcome::Allowed {
            self.refuse_shared(rule, shared, want, step.outcome, names);
        }
        conclude(rule, want, &step, now)
    }

    /// The same for a key that is counted in a store.
    #[inline(never)]
    pub(super) fn decide_tallied(
        &self,
        rule: &Rule,
        tallied: &Tallied,
        want: &Want,
        now: Instant,
        names: Names<'_>,
    ) -> Decision {
        let step = self.charge_tallied(rule, tallied, want, now);
        if let Some(key) = step.trace.began() {
            self.arrived(rule, key, want, names);
        }
        if step.outcome != Outcome::Allowed {
            self.refuse_counted(rule, tallied, want, names);
        }
        conclude(rule, want, &step, now)
    }

    /// The same for a key that nodes divide.
    #[inline(never)]
    pub(super) fn decide_divided(
        &self,
        rule: &Rule,
        divided: &Divided,
        want: &Want,
        now: Instant,
        names: Names<'_>,
    ) -> Decision {
        let step = self.charge_divided(rule, divided, want, now);
        if let Some(key) = step.trace.began() {
            self.arrived(rule, key, want, names);
        }
        if step.outcome != Outcome::Allowed {
            self.refuse_part(rule, divided, want, now, names);
        }
        conclude(rule, want, &step, now)
    }

    pub(super) fn refuse_part(
        &self,
        rule: &Rule,
        divided: &Divided,
        want: &Want,
        now: Instant,
        names: Names<'_>,
    ) {
        if self.refuse_divided(rule, divided, want, now) {
            self.arrived(rule, want.key, want, names);
        }
    }

    pub(super) fn refuse_counted(
        &self,
        rule: &Rule,
        tallied: &Tallied,
        want: &Want,
        names: Names<'_>,
    ) {
        if self.refuse_tallied(tallied, want) {
            self.arrived(rule, want.key, want, names);
        }
    }

    /// Tells a key that is decided by credit what it was refused, if more of it would help.
    pub(super) fn refuse_shared(
        &self,
        rule: &Rule,
        shared: &Shared,
        want: &Want,
        outcome: Outcome,
        names: Names<'_>,
    ) {
        let helps = match outcome {
            Outcome::Denied(Reason::Stale | Reason::OverLimit) => true,
            Outcome::Denied(
                Reason::CostExceedsBurst
                | Reason::KeyTableFull
                | Reason::QueueFull
                | Reason::Deadline,
            )
            | Outcome::Allowed => false,
        };
        let meter = rule.shared_meter(shared, want.key);
        if helps
            && meter.is_some_and(|meter| want.cost <= meter.burst())
            && let Some((key, true)) = self.note_shared(rule, shared, want, false)
        {
            self.arrived(rule, key, want, names);
        }
    }
}
