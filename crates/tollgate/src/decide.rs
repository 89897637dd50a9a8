//! One decision for all limits that apply: all must allow, and a denial spends nothing.
//!
//! One limit is charged at once. Several are looked at first, charged only if all would pass, and
//! undone in reverse if a race is lost. Which limits there are, and how a key is charged, is known
//! elsewhere.

use crate::charge::{Charges, Core, Passed, Stale, Step, Want};
use crate::counts::Event;
use crate::decision::{Decided, Decision, LimitId, Outcome, Reason};
use crate::gcra::Retry;
use crate::request::{Descriptor, Request};
use crate::rules::{Rule, RuleSet};
use crate::time::Instant;

impl Core {
    pub(crate) fn decide(&self, request: &Request<'_>, spend: bool) -> Decision {
        let now = self.clock.now();
        loop {
            let rules = self.rules.load();
            let mut wants = Charges::default();
            self.each_want(&rules, request, |want| wants.add(want));
            if let Ok(decision) = self.decide_charges(&rules, wants.as_slice(), now, spend) {
                return decision;
            }
            // The limits were replaced meanwhile; a replacement waits for no request, so this ends.
        }
    }

    /// Decides one or several charges as one.
    #[inline]
    pub(crate) fn decide_charges(
        &self,
        rules: &RuleSet,
        wants: &[Want],
        now: Instant,
        spend: bool,
    ) -> Result<Decision, Stale> {
        match wants {
            [] => Ok(unlimited(now)),
            [want] if spend => self.decide_one(rules, want, now),
            wants => self.decide_all(rules, wants, now, spend),
        }
    }

    /// One limit: charged at once, since there is nothing to undo.
    #[inline]
    pub(crate) fn decide_one(
        &self,
        rules: &RuleSet,
        want: &Want,
        now: Instant,
    ) -> Result<Decision, Stale> {
        let step = self.charge(rules, want, now)?;
        Ok(conclude(&rules.rules[want.rule as usize], want, &step, now))
    }

    /// Several limits: look at all, charge only if all would pass, undo if a race is lost.
    fn decide_all(
        &self,
        rules: &RuleSet,
        wants: &[Want],
        now: Instant,
        spend: bool,
    ) -> Result<Decision, Stale> {
        let mut findings = Findings::default();
        for want in wants {
            let rule = &*rules.rules[want.rule as usize];
            findings.add(rule, want, &self.look(rules, want, now)?, now);
        }
        if findings.denied.is_none() && spend {
            findings = self.charge_all(rules, wants, now)?;
        }
        if spend {
            findings.count(rules, wants);
        }
        Ok(findings.decision(now))
    }

    /// Charges all or none, in order.
    fn charge_all<'r>(
        &self,
        rules: &'r RuleSet,
        wants: &[Want],
        now: Instant,
    ) -> Result<Findings<'r>, Stale> {
        let mut findings = Findings::default();
        let mut made: Charges<Option<Passed>> = Charges::default();
        for want in wants {
            let rule = &*rules.rules[want.rule as usize];
            match self.charge(rules, want, now) {
                Ok(step) => {
                    made.push(step.passed);
                    findings.add(rule, want, &step, now);
                }
                Err(stale) => {
                    self.undo_all(rules, wants, made.as_slice());
                    return Err(stale);
                }
            }
            if findings.denied.is_some() {
                self.undo_all(rules, wants, made.as_slice());
                break;
            }
        }
        Ok(findings)
    }

    fn undo_all(&self, rules: &RuleSet, wants: &[Want], made: &[Option<Passed>]) {
        for (want, passed) in wants.iter().zip(made).rev() {
            if let Some(passed) = passed
                && !cfg!(tollgate_mutant = "denial_spends")
            {
                self.undo(rules, want, passed);
            }
        }
    }

    /// Calls `found` with what each limit that applies is to be charged.
    pub(crate) fn each_want(
        &self,
        rules: &RuleSet,
        request: &Request<'_>,
        mut found: impl FnMut(Want),
    ) {
        for descriptor in request.descriptors() {
            self.each_want_of(rules, request.domain(), descriptor, &mut found);
        }
    }

    /// The same for one descriptor.
    #[inline]
    pub(crate) fn each_want_of(
        &self,
        rules: &RuleSet,
        domain: &str,
        descriptor: &Descriptor<'_>,
        mut found: impl FnMut(Want),
    ) {
        let Some(matcher) = rules.domain(domain) else { return };
        matcher.each(&self.secret, descriptor, |position| {
            let rule = &rules.rules[position as usize];
            if !rule.is_open() {
                let key = rule.key_of(&self.secret, descriptor);
                found(Want::new(position, key, descriptor.cost()));
            }
        });
    }
}

/// Counts the one step that a decision took, and says what it means.
#[inline]
pub(crate) fn conclude(rule: &Rule, want: &Want, step: &Step<'_>, now: Instant) -> Decision {
    if want.cost > 0 {
        rule.counts.count(event(rule, step.outcome));
    }
    if decides_nothing(rule) {
        let shadow = (step.outcome != Outcome::Allowed).then_some(rule.id);
        return Decision { shadow, ..unlimited(now) };
    }
    Decision { outcome: step.outcome, decided: step.decided(rule, want), shadow: None, now }
}

/// What the steps of a decision come to.
#[derive(Default)]
struct Findings<'r> {
    /// The denial that lasts the longest.
    denied: Option<Denial<'r>>,
    /// Of the limits that allow the one with the least remaining.
    closest: Option<Decided>,
    /// The first shadow limit that would have denied.
    shadow: Option<LimitId>,
    /// What each want came to, in their order.
    outcomes: Charges<Option<Outcome>>,
}

impl<'r> Findings<'r> {
    fn add(&mut self, rule: &'r Rule, want: &Want, step: &Step<'_>, now: Instant) {
        self.outcomes.push(Some(step.outcome));
        if decides_nothing(rule) {
            let denied = step.outcome != Outcome::Allowed;
            self.shadow = self.shadow.or(denied.then_some(rule.id));
            return;
        }
        // An unlimited key has nothing to say.
        let Some(decided) = step.decided(rule, want) else { return };
        match step.outcome {
            Outcome::Allowed => self.closest = closer(self.closest, decided, now),
            Outcome::Denied(reason) => {
                self.denied = longer(self.denied, (reason, rule, decided), now);
            }
        }
    }

    /// A success counts for all, a denial for the limit that decided; shadows count what they saw.
    fn count(&self, rules: &RuleSet, wants: &[Want]) {
        if let Some((reason, rule, _)) = self.denied {
            rule.counts.count(Event::Denied(reason));
        }
        for (want, outcome) in wants.iter().zip(self.outcomes.as_slice()) {
            let rule = &*rules.rules[want.rule as usize];
            let event = outcome.map(|outcome| event(rule, outcome));
            let counts = event == Some(Event::ShadowDenied) || self.denied.is_none();
            if let Some(event) = event.filter(|_| counts && want.cost > 0) {
                rule.counts.count(event);
            }
        }
    }

    fn decision(&self, now: Instant) -> Decision {
        let (outcome, decided) = match self.denied {
            Some((reason, _, decided)) => (Outcome::Denied(reason), Some(decided)),
            None => (Outcome::Allowed, self.closest),
        };
        Decision { outcome, decided, shadow: self.shadow, now }
    }
}

/// A shadow is counted and reported, and that is all.
fn decides_nothing(rule: &Rule) -> bool {
    rule.limit.is_shadow() && !cfg!(tollgate_mutant = "shadow_denies")
}

fn event(rule: &Rule, outcome: Outcome) -> Event {
    match outcome {
        Outcome::Denied(_) if rule.limit.is_shadow() => Event::ShadowDenied,
        outcome => Event::of(outcome),
    }
}

/// The answer when no limit applies.
pub(crate) fn unlimited(now: Instant) -> Decision {
    Decision { outcome: Outcome::Allowed, decided: None, shadow: None, now }
}

type Denial<'r> = (Reason, &'r Rule, Decided);

/// Of two denials the one that lasts longer: the request must outwait both.
fn longer<'r>(known: Option<Denial<'r>>, other: Denial<'r>, now: Instant) -> Option<Denial<'r>> {
    let retry = |(reason, _, decided): Denial<'_>| {
        let outcome = Outcome::Denied(reason);
        let denial = Decision { outcome, decided: Some(decided), shadow: None, now };
        denial.retry_at().unwrap_or(Retry::Never)
    };
    match known {
        Some(known) if cfg!(tollgate_mutant = "first_denial_stands") => Some(known),
        Some(known) if retry(known) >= retry(other) => Some(known),
        _ => Some(other),
    }
}

/// Of two limits that allow the one with less remaining.
fn closer(known: Option<Decided>, other: Decided, now: Instant) -> Option<Decided> {
    let remaining = |decided: &Decided| decided.meter.remaining(decided.tat, now);
    match known {
        Some(known) if cfg!(tollgate_mutant = "first_limit_speaks") => Some(known),
        Some(known) if remaining(&known) <= remaining(&other) => Some(known),
        _ => Some(other),
    }
}
