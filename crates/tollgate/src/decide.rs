//! One decision for all limits that apply: all must allow, and a denial spends nothing.
//!
//! One limit is charged at once. Several are looked at first, charged only if all would pass, and
//! undone in reverse if a race is lost. Which limits there are, and how a key is charged, is known
//! elsewhere.

mod others;

use std::collections::HashSet;

use crate::charge::{Charges, Core, Names, Passed, Stale, Step, Want, Wants};
use crate::counts::Event;
use crate::decision::{Decided, Decision, LimitId, Outcome, Reason};
use crate::fleet::Parts;
use crate::gcra::Retry;
use crate::key::Part;
use crate::mutant::lacks;
use crate::request::{Descriptor, Request};
use crate::rules::{Domain, Kind, Rule, RuleSet};
use crate::time::Instant;
use crate::walk::{End, Paths, key_parts};

impl Core {
    pub(crate) fn decide(&self, request: &Request<'_>, spend: bool) -> Decision {
        let now = self.clock.now();
        self.with_wants(request, |rules, wants, names| {
            self.decide_charges(rules, wants, now, spend, names)
        })
    }

    /// Does something with what the limits that apply are to be charged, and again if they were
    /// replaced meanwhile; a replacement waits for no request, so this ends.
    #[inline(always)]
    pub(crate) fn with_wants<T>(
        &self,
        request: &Request<'_>,
        work: impl Fn(&RuleSet, &[Want], Names<'_>) -> Result<T, Stale>,
    ) -> T {
        loop {
            let rules = self.rules.load();
            let mut wants = Wants::default();
            self.each_want(&rules, request, |want| {
                wants.add(want);
            });
            let names = |want: &Want| self.parts_of(&rules, request, want);
            if let Ok(done) = work(&rules, wants.as_slice(), &names) {
                return done;
            }
        }
    }

    /// Decides one or several charges as one.
    #[inline(always)]
    pub(crate) fn decide_charges(
        &self,
        rules: &RuleSet,
        wants: &[Want],
        now: Instant,
        spend: bool,
        names: Names<'_>,
    ) -> Result<Decision, Stale> {
        match wants {
            [] => Ok(unlimited(now)),
            [want] if spend => self.decide_one(rules, want, now, names),
            wants => Ok(self.find(rules, wants, now, spend, names)?.decision(now)),
        }
    }

    /// One limit: charged at once, since there is nothing to undo.
    #[inline]
    pub(crate) fn decide_one(
        &self,
        rules: &RuleSet,
        want: &Want,
        now: Instant,
        names: Names<'_>,
    ) -> Result<Decision, Stale> {
        let rule = &*rules.rules[want.rule as usize];
        match &rule.kind {
            Kind::Credit(shared) => {
                return Ok(self.decide_shared(rule, shared, want, now, names));
            }
            Kind::Count(tallied) => {
                return Ok(self.decide_tallied(rule, tallied, want, now, names));
            }
            Kind::Share(divided) => {
                return Ok(self.decide_divided(rule, divided, want, now, names));
            }
            Kind::Open | Kind::Rate => {}
        }
        let step = self.charge(rules, want, now)?;
        Ok(conclude(rule, want, &step, now))
    }

    /// What the steps of a decision come to. One limit is charged at once; of several all are
    /// looked at, charged only if all would pass, and undone if a race is lost.
    pub(crate) fn find<'r>(
        &self,
        rules: &'r RuleSet,
        wants: &[Want],
        now: Instant,
        spend: bool,
        names: Names<'_>,
    ) -> Result<Findings<'r>, Stale> {
        let findings = self.seek(rules, wants, now, spend, names)?;
        if spend {
            self.finish(rules, wants, &findings, names);
        }
        Ok(findings)
    }

    /// The same, and nothing is counted or told yet.
    pub(crate) fn seek<'r>(
        &self,
        rules: &'r RuleSet,
        wants: &[Want],
        now: Instant,
        spend: bool,
        names: Names<'_>,
    ) -> Result<Findings<'r>, Stale> {
        let mut findings = Findings::default();
        let charges_at_once =
            spend && (wants.len() == 1 || self.all_would_pass(rules, wants, now)?);
        if !charges_at_once {
            findings.seen.reserve(wants.len());
            for want in wants {
                let rule = &*rules.rules[want.rule as usize];
                findings.add(rule, want, &self.look(rules, want, now)?, now);
            }
            findings.close(now);
        }
        if findings.denied.is_none() && spend {
            findings = self.charge_all(rules, wants, now, names)?;
        }
        Ok(findings)
    }

    /// Counts what was found, and tells keys that are decided by credit what they were refused.
    pub(crate) fn finish(
        &self,
        rules: &RuleSet,
        wants: &[Want],
        findings: &Findings<'_>,
        names: Names<'_>,
    ) {
        findings.count(rules, wants);
        for (index, want) in wants.iter().enumerate() {
            let Some(seen) = findings.seen(index).filter(|_| want.cost > 0) else { continue };
            match &seen.rule.kind {
                Kind::Credit(shared) => {
                    self.refuse_shared(seen.rule, shared, want, seen.outcome, names);
                }
                Kind::Count(tallied) if seen.outcome != Outcome::Allowed => {
                    self.refuse_counted(seen.rule, tallied, want, names);
                }
                Kind::Share(divided) if seen.outcome != Outcome::Allowed => {
                    let now = self.clock.now();
                    self.refuse_part(seen.rule, divided, want, now, names);
                }
                Kind::Open | Kind::Rate | Kind::Count(_) | Kind::Share(_) => {}
            }
        }
    }

    /// Whether nothing denies, not even a shadow: the short way of nearly every request.
    fn all_would_pass(&self, rules: &RuleSet, wants: &[Want], now: Instant) -> Result<bool, Stale> {
        for want in wants {
            if self.look(rules, want, now)?.outcome != Outcome::Allowed {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Charges all or none, in order.
    fn charge_all<'r>(
        &self,
        rules: &'r RuleSet,
        wants: &[Want],
        now: Instant,
        names: Names<'_>,
    ) -> Result<Findings<'r>, Stale> {
        let mut findings = Findings::default();
        let mut made: Charges<Option<Passed>> = Charges::default();
        findings.seen.reserve(wants.len());
        made.reserve(wants.len());
        for (want, left) in wants.iter().zip((0..wants.len()).rev()) {
            let rule = &*rules.rules[want.rule as usize];
            match self.step(rules, want, now) {
                Ok(step) => {
                    made.push(step.trace.passed());
                    if let Some(key) = step.trace.began() {
                        self.arrived(rule, key, want, names);
                    }
                    findings.add(rule, want, &step, now);
                }
                Err(stale) => {
                    self.undo_all(rules, wants, made.as_slice());
                    return Err(stale);
                }
            }
            if left == 0 {
                findings.close(now);
            }
            if findings.denied.is_some() {
                self.undo_all(rules, wants, made.as_slice());
                findings.undone = true;
                break;
            }
        }
        Ok(findings)
    }

    fn undo_all(&self, rules: &RuleSet, wants: &[Want], made: &[Option<Passed>]) {
        for (want, passed) in wants.iter().zip(made).rev() {
            if let Some(passed) = passed
                && !lacks("denial_spends")
            {
                self.undo(rules, want, passed);
            }
        }
    }

    /// The values of a key that a request is charged under.
    #[cold]
    pub(crate) fn parts_of(&self, rules: &RuleSet, request: &Request<'_>, want: &Want) -> Parts {
        let mut parts = None;
        self.each_match(rules, request, |index, other| {
            let is_it = other.is_some_and(|other| (other.rule, other.key) == (want.rule, want.key));
            if is_it && parts.is_none() {
                parts = Some(self.parts_under(rules, want, &request.descriptors()[index]));
            }
        });
        parts.unwrap_or_default()
    }

    /// The values of a key under a limit that applies to this descriptor. Of one that is counted
    /// under its name they are those of which the key is made.
    pub(crate) fn parts_under(
        &self,
        rules: &RuleSet,
        want: &Want,
        descriptor: &Descriptor<'_>,
    ) -> Parts {
        let rule = &rules.rules[want.rule as usize];
        let of_path = match rules.domain(rule.limit.domain()) {
            Some(Domain::Path(paths)) if rule.tallied().is_some() => {
                paths.walk(&self.secret, descriptor)
            }
            Some(Domain::Path(_) | Domain::Set(_)) | None => None,
        };
        let value = |part| match part {
            Part::Text(value) => Some(Box::from(value)),
            Part::Undeclared => None,
        };
        match of_path {
            Some((_, hows)) => key_parts(&rule.limit, descriptor, &hows).map(value).collect(),
            None => rule.limit.key_of(descriptor).map(|(_, value)| value.map(Box::from)).collect(),
        }
    }

    /// Calls `found` with what each limit that applies is to be charged.
    pub(crate) fn each_want(
        &self,
        rules: &RuleSet,
        request: &Request<'_>,
        mut found: impl FnMut(Want),
    ) {
        self.each_match(rules, request, |_, want| want.into_iter().for_each(&mut found));
    }

    /// Calls `found` with each limit that applies: the descriptor's position, and what the limit is
    /// to be charged, which is nothing if it is unlimited.
    #[inline]
    pub(crate) fn each_match(
        &self,
        rules: &RuleSet,
        request: &Request<'_>,
        mut found: impl FnMut(usize, Option<Want>),
    ) {
        match rules.domain(request.domain()) {
            None => {}
            Some(Domain::Set(matcher)) => {
                for (index, descriptor) in request.descriptors().iter().enumerate() {
                    matcher.each(&self.secret, descriptor, |position| {
                        let rule = &rules.rules[position as usize];
                        let key = || rule.key_of(&self.secret, descriptor);
                        found(index, Want::of(rule, position, key, descriptor.cost()));
                    });
                }
            }
            Some(Domain::Path(paths)) => self.each_reached(rules, paths, request, found),
        }
    }

    /// The same in a domain of paths, where one limit may put others out of force.
    fn each_reached(
        &self,
        rules: &RuleSet,
        paths: &Paths,
        request: &Request<'_>,
        mut found: impl FnMut(usize, Option<Want>),
    ) {
        let reached = |descriptor| match paths.walk(&self.secret, descriptor)? {
            (End::Limit(position), hows) => Some((position, hows)),
            (End::Blank, _) => None,
        };
        let mut replaced: HashSet<u32> = HashSet::new();
        if paths.have_replaced() && !lacks("replaced_applies") {
            let mut known: HashSet<u32> = HashSet::new();
            for (position, _) in request.descriptors().iter().filter_map(reached) {
                if known.insert(position) {
                    replaced.extend(&rules.rules[position as usize].replaces);
                }
            }
        }
        for (index, descriptor) in request.descriptors().iter().enumerate() {
            let Some((position, hows)) = reached(descriptor) else { continue };
            let rule = &rules.rules[position as usize];
            if rule.group.is_none_or(|group| !replaced.contains(&group)) {
                let key = || rule.key_on_path(&self.secret, descriptor, &hows);
                found(index, Want::of(rule, position, key, descriptor.cost()));
            }
        }
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
pub(crate) struct Findings<'r> {
    /// The denial that lasts the longest.
    denied: Option<Denial<'r>>,
    /// Of the limits that allow the one with the least remaining.
    closest: Option<Decided>,
    /// The first shadow limit that would have denied.
    shadow: Option<LimitId>,
    /// Of the quotas that deny the one that does so for the shortest time.
    quota_denied: Option<Denial<'r>>,
    /// Whether a quota allows, which is enough for all.
    quota_allows: bool,
    /// Whether charges were made and taken back.
    undone: bool,
    /// What each want came to, in their order.
    seen: Charges<Option<Seen<'r>>>,
}

/// A step without what undoes it.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'r> {
    pub(crate) rule: &'r Rule,
    pub(crate) outcome: Outcome,
    decided: Option<Decided>,
}

impl<'r> Seen<'r> {
    pub(crate) fn of(rule: &'r Rule, want: &Want, step: &Step<'_>) -> Self {
        Self { rule, outcome: step.outcome, decided: step.decided(rule, want) }
    }

    /// What is said of it alone.
    pub(crate) fn standing(&self, now: Instant) -> Decision {
        let denied = self.outcome != Outcome::Allowed;
        if decides_nothing(self.rule) {
            let shadow = denied.then_some(self.rule.id);
            return Decision { outcome: Outcome::Allowed, decided: self.decided, shadow, now };
        }
        Decision { outcome: self.outcome, decided: self.decided, shadow: None, now }
    }
}

impl<'r> Findings<'r> {
    /// What a want came to; nothing if a denial came before it, or had it undone.
    pub(crate) fn seen(&self, want: usize) -> Option<Seen<'r>> {
        let seen = self.seen.as_slice().get(want).copied().flatten();
        seen.filter(|seen| !self.undone || seen.outcome != Outcome::Allowed)
    }

    /// Whether a want's own limit allows it, and charged it if the request passes.
    pub(crate) fn allowed(&self, want: usize) -> bool {
        self.seen(want).is_some_and(|seen| seen.outcome == Outcome::Allowed)
    }

    fn add(&mut self, rule: &'r Rule, want: &Want, step: &Step<'_>, now: Instant) {
        let seen = Seen::of(rule, want, step);
        let Seen { outcome, decided, .. } = seen;
        self.seen.push(Some(seen));
        if decides_nothing(rule) {
            let denied = outcome != Outcome::Allowed;
            self.shadow = self.shadow.or(denied.then_some(rule.id));
            return;
        }
        // An unlimited key has nothing to say.
        let Some(decided) = decided else { return };
        match outcome {
            Outcome::Allowed => {
                self.quota_allows |= rule.limit.is_quota();
                self.closest = closer(self.closest, decided, now);
            }
            Outcome::Denied(reason) => {
                let denial = (reason, rule, decided);
                if rule.limit.is_quota() {
                    self.quota_denied = shorter(self.quota_denied, denial, now);
                } else {
                    self.denied = longer(self.denied, denial, now);
                }
            }
        }
    }

    /// Whether nothing stands against the request.
    pub(crate) fn passes(&self) -> bool {
        self.denied.is_none()
    }

    /// Whether a limit's denial is one of the request: no shadow's, nor a quota's that another
    /// makes up for.
    pub(crate) fn is_blamed(&self, seen: &Seen<'_>) -> bool {
        let made_up = seen.rule.limit.is_quota() && self.quota_allows;
        seen.outcome != Outcome::Allowed && !decides_nothing(seen.rule) && !made_up
    }

    /// The request's denial for another reason than what was seen, by the limit that denies or is
    /// the closest to it. Counts it there.
    pub(crate) fn refused(&self, rules: &RuleSet, reason: Reason, now: Instant) -> Decision {
        let decided = self.denied.map(|(_, _, decided)| decided).or(self.closest);
        if let Some((_, rule)) = decided.and_then(|decided| rules.rule_of(decided.limit)) {
            rule.counts.count(Event::Denied(reason));
        }
        Decision { outcome: Outcome::Denied(reason), decided, shadow: self.shadow, now }
    }

    /// Once all are added: quotas deny if none of them allows.
    fn close(&mut self, now: Instant) {
        if let Some(denial) = self.quota_denied
            && (!self.quota_allows || lacks("each_quota_denies"))
        {
            self.denied = longer(self.denied, denial, now);
        }
    }

    /// A success counts for all, a denial for the limit that decided; shadows count what they saw.
    fn count(&self, rules: &RuleSet, wants: &[Want]) {
        if let Some((reason, rule, _)) = self.denied {
            rule.counts.count(Event::Denied(reason));
        }
        for (want, seen) in wants.iter().zip(self.seen.as_slice()) {
            let rule = &*rules.rules[want.rule as usize];
            let event = seen.map(|seen| event(rule, seen.outcome));
            let counts = event == Some(Event::ShadowDenied) || self.denied.is_none();
            if let Some(event) = event.filter(|_| counts && want.cost > 0) {
                rule.counts.count(event);
            }
        }
    }

    pub(crate) fn decision(&self, now: Instant) -> Decision {
        let (outcome, decided) = match self.denied {
            Some((reason, _, decided)) => (Outcome::Denied(reason), Some(decided)),
            None => (Outcome::Allowed, self.closest),
        };
        Decision { outcome, decided, shadow: self.shadow, now }
    }
}

/// A shadow is counted and reported, and that is all.
fn decides_nothing(rule: &Rule) -> bool {
    rule.limit.is_shadow() && !lacks("shadow_denies")
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
    match known {
        Some(known) if lacks("first_denial_stands") => Some(known),
        Some(known) if retry(known, now) >= retry(other, now) => Some(known),
        _ => Some(other),
    }
}

/// Of two denials the one that ends sooner.
fn shorter<'r>(known: Option<Denial<'r>>, other: Denial<'r>, now: Instant) -> Option<Denial<'r>> {
    match known {
        Some(known) if retry(known, now) <= retry(other, now) => Some(known),
        _ => Some(other),
    }
}

fn retry((reason, _, decided): Denial<'_>, now: Instant) -> Retry {
    let outcome = Outcome::Denied(reason);
    let denial = Decision { outcome, decided: Some(decided), shadow: None, now };
    denial.retry_at().unwrap_or(Retry::Never)
}

/// Of two limits that allow the one with less remaining.
fn closer(known: Option<Decided>, other: Decided, now: Instant) -> Option<Decided> {
    let remaining = |decided: &Decided| decided.remaining(now);
    match known {
        Some(known) if lacks("first_limit_speaks") => Some(known),
        Some(known) if remaining(&known) <= remaining(&other) => Some(known),
        _ => Some(other),
    }
}
