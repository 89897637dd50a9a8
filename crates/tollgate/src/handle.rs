//! For callers that come again: a request whose limits and keys were looked up before, and a limit
//! that was looked up by name. Both follow the limits in force.
//!
//! Each belongs to one caller (`&mut self`), who holds the rule set without touching a shared
//! count.

use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};

use crate::cell::{Mark, Meta};
use crate::charge::{Charges, Core, NONE_IN_FORCE, Want};
use crate::counts::{Event, OwnCounts};
use crate::decide::unlimited;
use crate::decision::{Decided, Decision, LimitId, Outcome};
use crate::fleet::Parts;
use crate::gcra::Meter;
use crate::key::{KeyId, Part};
use crate::limiter::Limiter;
use crate::plain::Plain;
use crate::request::{Descriptor, Entry, Request, RequestError};
use crate::rules::{Kind, Rule, RuleSet};
use crate::table::SlotRef;
use crate::time::Instant;

type Rules = Cache<Arc<ArcSwap<RuleSet>>, Arc<RuleSet>>;
/// A descriptor's entry that outlives the descriptor.
type OwnedEntry = (Box<str>, Box<[u8]>);

/// One descriptor's limits and keys, looked up once: for a connection, a worker, a tenant's
/// session.
///
/// It belongs to one task at a time: clone it, don't share it. Where every request is another
/// tenant's, [`Limiter::check`] is the way.
///
/// ```
/// use tollgate::{Descriptor, Entry, Limit, LimitSpec, Limiter, Options};
/// let limit = LimitSpec { name: "api", key: &["tenant"], rate: "10/s", ..LimitSpec::DEFAULT };
/// let limiter = Limiter::new(vec![Limit::parse(&limit)?], Options::default())?;
/// let entries = [Entry::new("tenant", "acme")];
/// let mut acme = limiter.handle("default", &Descriptor::new(&entries)?);
/// assert!(acme.check(10).is_allowed());
/// assert!(!acme.check(10).is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Handle {
    limiter: Limiter,
    quick: Quick,
    rules: Rules,
    /// The same if it is a limit of the whole fleet.
    credit: Option<Credit>,
    wants: Charges<Want>,
    /// The revision under which `wants` were looked up.
    revision: u64,
    domain: Box<str>,
    /// The descriptor, to be looked up again when the limits change.
    entries: Box<[OwnedEntry]>,
}

/// What a check needs when one limit applies and nothing about it is special.
#[derive(Clone)]
struct Quick {
    /// The revision under which the rest is true, or [`NEVER_IN_FORCE`].
    revision: u64,
    slot: SlotRef,
    mark: Mark,
    plain: Plain,
    limit: LimitId,
    counts: OwnCounts,
}

/// What a check needs when one limit applies and it is decided by credit.
#[derive(Clone)]
struct Credit {
    /// The revision under which the rest is true.
    revision: u64,
    rule: Arc<Rule>,
    key: KeyId,
    counts: OwnCounts,
}

impl Handle {
    /// Decides a request of this descriptor at `cost`, as [`Limiter::check`] does.
    #[inline(always)]
    #[must_use = "a denied request must not go on"]
    pub fn check(&mut self, cost: u64) -> Decision {
        let core = &*self.limiter.core;
        // Before the revision, so that what was in force then judges no later instant.
        let now = core.clock.now();
        let quick = &mut self.quick;
        if core.revision.get() == quick.revision {
            // SAFETY: a revision that was in force came with a slot of this limiter's table, which
            // `core` keeps.
            let slot = unsafe { quick.slot.get(core) };
            if let Some(state) = slot.read_as(&quick.mark)
                && let Some((outcome, tat)) =
                    quick.plain.charge(slot, state, &quick.mark, cost, now)
            {
                quick.counts.count(Event::of(outcome));
                let (limit, meter) = (quick.limit, quick.plain.meter);
                let decided = Some(Decided { limit, cost, tat, meter });
                return Decision { outcome, decided, shadow: None, now };
            }
        }
        // Field by field, so that what the caller does not look at need not be written on any way.
        if let Some((outcome, tat, limit, meter)) = self.check_credit(cost, now) {
            let decided = Some(Decided { limit, cost, tat, meter: *meter });
            return Decision { outcome, decided, shadow: None, now };
        }
        let Decision { outcome, decided, shadow, now } = self.check_slowly(cost);
        Decision { outcome, decided, shadow, now }
    }

    /// The short way of a limit in whose cells others have a say. Not inlined: that took 13
    /// instructions more on the other.
    #[inline(never)]
    fn check_credit(&mut self, cost: u64, now: Instant) -> Option<(Outcome, u64, LimitId, &Meter)> {
        let credit = self.credit.as_mut()?;
        if self.limiter.core.revision.get() != credit.revision {
            return None;
        }
        let (outcome, tat, meter) = charge(&credit.rule, credit.key, cost, now)?;
        credit.counts.count(Event::of(outcome));
        Some((outcome, tat, credit.rule.id, meter))
    }

    #[cold]
    #[inline(never)]
    fn check_slowly(&mut self, cost: u64) -> Decision {
        let core = &*self.limiter.core;
        if core.revision.get() == NONE_IN_FORCE {
            return unlimited(Instant::ZERO);
        }
        let now = core.clock.now();
        loop {
            let rules = self.rules.load();
            if rules.revision != self.revision {
                self.wants = look_up(&self.limiter, rules, &self.domain, &self.entries);
                self.revision = rules.revision;
            }
            let wants = self.wants.as_mut_slice();
            wants.iter_mut().for_each(|want| want.cost = cost);
            if let [want] = wants {
                self.quick.follow(core, rules, want);
                Credit::follow(&mut self.credit, rules, want);
            }
            let names = |want: &Want| parts_of(core, rules, want, &self.entries);
            if let Ok(decision) = core.decide_charges(rules, wants, now, true, &names) {
                return decision;
            }
        }
    }

    /// Gives back `cost`, as [`Limiter::refund`] does.
    pub fn refund(&mut self, cost: u64) {
        let core = &*self.limiter.core;
        let (rules, now) = (core.rules.load(), core.clock.now());
        let mut wants = look_up(&self.limiter, &rules, &self.domain, &self.entries);
        for want in wants.as_mut_slice() {
            core.give_back(&rules, &Want { cost, ..*want }, now);
        }
    }
}

impl Quick {
    /// Nothing is known yet.
    fn unknown() -> Self {
        Self {
            revision: NEVER_IN_FORCE,
            slot: SlotRef::dangling(),
            mark: Mark::new(KeyId::default(), Meta::NONE),
            plain: Plain { meta: Meta::NONE, meter: Meter::default() },
            limit: LimitId(0),
            counts: OwnCounts::of_nobody(),
        }
    }

    /// Keeps what the next check needs, if that is all there is to it.
    fn follow(&mut self, core: &Core, rules: &RuleSet, want: &Want) {
        let rule = &rules.rules[want.rule as usize];
        let Some(found) = core.table.find(want.key).filter(|_| !rule.limit.is_shadow()) else {
            return;
        };
        let meter = rules.tuning(rule, found.meta).and_then(|tuning| tuning.meter);
        let Some(meter) = meter else { return };
        if self.limit != rule.id || self.revision == NEVER_IN_FORCE {
            self.counts = OwnCounts::new(rule.counts.clone());
        }
        self.revision = rules.revision;
        self.slot = core.table.anchor(found.place);
        self.mark = Mark::new(want.key, found.meta);
        self.plain = Plain { meta: found.meta, meter };
        self.limit = rule.id;
    }
}

impl Credit {
    /// Keeps what the next check needs, if that is all there is to it.
    fn follow(known: &mut Option<Self>, rules: &RuleSet, want: &Want) {
        let rule = &rules.rules[want.rule as usize];
        if rule.credits().is_none() || rule.limit.is_shadow() {
            *known = None;
            return;
        }
        let same = known.take().filter(|known| known.rule.id == rule.id);
        let counts = same.map_or_else(|| OwnCounts::new(rule.counts.clone()), |same| same.counts);
        let (revision, rule) = (rules.revision, rule.clone());
        *known = Some(Self { revision, rule, key: want.key, counts });
    }
}

/// One limit, looked up by name: for callers that have the key's parts at hand and no other limit
/// to mind.
///
/// ```
/// use tollgate::{Limit, LimitSpec, Limiter, Options};
/// let limit = LimitSpec { name: "api", key: &["tenant"], rate: "10/s", ..LimitSpec::DEFAULT };
/// let limiter = Limiter::new(vec![Limit::parse(&limit)?], Options::default())?;
/// let mut api = limiter.keyed("default", "api").ok_or("no such limit")?;
/// assert!(api.check(&["acme".into()], 10)?.is_allowed());
/// assert!(!api.check(&["acme".into()], 10)?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Keyed {
    limiter: Limiter,
    /// The revision under which `rule` is the limit, if its keys are in the table of rates.
    revision: u64,
    /// The same if they are decided by credit.
    credit_revision: u64,
    rule: Arc<Rule>,
    counts: OwnCounts,
    rules: Rules,
}

impl Keyed {
    /// The names of the parts of the limit's key, in their order.
    pub fn key(&self) -> impl ExactSizeIterator<Item = &str> {
        self.rule.limit.key()
    }

    /// Decides a request of `cost` for the key with these parts, in the order of the limit's key.
    /// Other limits are not asked, nor is the limit's own match. A limit that is no longer in force
    /// allows.
    ///
    /// # Errors
    /// When the number of parts is not the limit's. Nothing is spent.
    #[inline(always)]
    pub fn check(&mut self, parts: &[Part<'_>], cost: u64) -> Result<Decision, RequestError> {
        let (core, rule) = (&*self.limiter.core, &*self.rule);
        let key = rule.key_with(&core.secret, parts);
        // The slot comes from memory while the clock is read.
        let home = core.table.fetch(key);
        // Before the revision, so that what was in force then judges no later instant.
        let now = core.clock.now();
        if core.revision.get() == self.revision && rule.limit.key_names().len() == parts.len() {
            let mark = Mark::new(key, rule.plain.meta);
            if let Some((slot, state)) = core.table.read_as(home, &mark)
                && let Some((outcome, tat)) = rule.plain.charge(slot, state, &mark, cost, now)
            {
                self.counts.count(Event::of(outcome));
                let (limit, meter) = (rule.id, rule.plain.meter);
                let decided = Some(Decided { limit, cost, tat, meter });
                return Ok(Decision { outcome, decided, shadow: None, now });
            }
        } else if let Some((outcome, left, limit, meter)) =
            self.check_credit(parts.len(), key, cost, now)
        {
            let decided = Some(Decided { limit, cost, tat: left, meter: *meter });
            return Ok(Decision { outcome, decided, shadow: None, now });
        }
        let Decision { outcome, decided, shadow, now } = self.check_slowly(parts, cost)?;
        Ok(Decision { outcome, decided, shadow, now })
    }

    /// The short way of a limit of the whole fleet. Not inlined, so that the other is short.
    #[inline(never)]
    fn check_credit(
        &mut self,
        parts: usize,
        key: KeyId,
        cost: u64,
        now: Instant,
    ) -> Option<(Outcome, u64, LimitId, &Meter)> {
        let rule = &*self.rule;
        let is_current = self.limiter.core.revision.get() == self.credit_revision;
        if !is_current || rule.limit.key_names().len() != parts {
            return None;
        }
        let (outcome, left, meter) = charge(rule, key, cost, now)?;
        self.counts.count(Event::of(outcome));
        Some((outcome, left, rule.id, meter))
    }

    #[cold]
    #[inline(never)]
    fn check_slowly(&mut self, parts: &[Part<'_>], cost: u64) -> Result<Decision, RequestError> {
        let core = &*self.limiter.core;
        if core.revision.get() == NONE_IN_FORCE {
            return Ok(unlimited(Instant::ZERO));
        }
        let now = core.clock.now();
        loop {
            let rules = self.rules.load();
            let (domain, name) = (self.rule.limit.domain(), self.rule.limit.name());
            let Some((position, rule)) = rules.rule_named(domain, name) else {
                return Ok(unlimited(now));
            };
            if rule.id != self.rule.id {
                self.counts = OwnCounts::new(rule.counts.clone());
            }
            self.rule = rule.clone();
            (self.revision, self.credit_revision) = revisions(rules, rule);
            let expected = rule.limit.key_names().len();
            if parts.len() != expected {
                return Err(RequestError::KeyParts { given: parts.len(), expected });
            }
            if rule.is_open() {
                return Ok(unlimited(now));
            }
            let want = Want::new(position as u32, rule.key_with(&core.secret, parts), cost);
            let part = |part: &Part<'_>| match *part {
                Part::Text(value) => Some(value.into()),
                Part::Undeclared => None,
            };
            let names = |_: &Want| parts.iter().map(part).collect();
            if let Ok(decision) = core.decide_one(rules, &want, now, &names) {
                return Ok(decision);
            }
        }
    }
}

impl Limiter {
    /// A handle for requests of this descriptor; the descriptor's own cost is not used.
    #[must_use]
    pub fn handle(&self, domain: &str, descriptor: &Descriptor<'_>) -> Handle {
        let entry = |entry: &Entry<'_>| (entry.name().into(), entry.value().into());
        Handle {
            limiter: self.clone(),
            quick: Quick::unknown(),
            credit: None,
            rules: self.cached_rules(),
            wants: Charges::default(),
            revision: NEVER_IN_FORCE,
            domain: domain.into(),
            entries: descriptor.entries().iter().map(entry).collect(),
        }
    }

    /// The limit of this domain and name, if it is in force.
    #[must_use]
    pub fn keyed(&self, domain: &str, name: &str) -> Option<Keyed> {
        let mut rules = self.cached_rules();
        let set = rules.load();
        let rule = set.rule_named(domain, name)?.1.clone();
        let (revision, credit_revision) = revisions(set, &rule);
        let counts = OwnCounts::new(rule.counts.clone());
        Some(Keyed { limiter: self.clone(), revision, credit_revision, rule, counts, rules })
    }
}

/// Charges a key in whose cell others have a say. `None` leaves it to others.
#[inline(always)]
fn charge(rule: &Rule, key: KeyId, cost: u64, now: Instant) -> Option<(Outcome, u64, &Meter)> {
    match &rule.kind {
        Kind::Credit(shared) => Core::charge_known(rule, shared, key, cost, now),
        Kind::Count(tallied) => Core::charge_counted(tallied, key, cost, now),
        Kind::Open | Kind::Rate | Kind::Share(_) => None,
    }
}

/// The revision for the short way of a limit of this node, and that for a limit of the fleet.
fn revisions(rules: &RuleSet, rule: &Rule) -> (u64, u64) {
    match rule.credits() {
        None if rule.is_others() => (NEVER_IN_FORCE, NEVER_IN_FORCE),
        None => (rules.revision, NEVER_IN_FORCE),
        Some(_) if rule.limit.is_shadow() => (NEVER_IN_FORCE, NEVER_IN_FORCE),
        Some(_) => (NEVER_IN_FORCE, rules.revision),
    }
}

/// The values of a key under a limit that applies to these entries.
#[cold]
fn parts_of(core: &Core, rules: &RuleSet, want: &Want, entries: &[OwnedEntry]) -> Parts {
    let entries: Vec<Entry<'_>> =
        entries.iter().map(|(name, value)| Entry::new(name, value)).collect();
    // They were a descriptor's before, so they are one now.
    let Ok(descriptor) = Descriptor::ordered(&entries) else { return Parts::default() };
    core.parts_under(rules, want, &descriptor)
}

fn look_up(
    limiter: &Limiter,
    rules: &RuleSet,
    domain: &str,
    entries: &[OwnedEntry],
) -> Charges<Want> {
    let entries: Vec<Entry<'_>> =
        entries.iter().map(|(name, value)| Entry::new(name, value)).collect();
    let mut wants = Charges::default();
    // They were a descriptor's before, so they are one now.
    if let Ok(descriptor) = Descriptor::ordered(&entries) {
        let descriptors = [descriptor];
        let request = Request::new(&descriptors).in_domain(domain);
        limiter.core.each_want(rules, &request, |want| wants.push(want));
    }
    wants
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("domain", &self.domain).finish_non_exhaustive()
    }
}

impl fmt::Debug for Keyed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed").field("limit", &self.rule.limit.name()).finish_non_exhaustive()
    }
}

/// The revision of nothing.
const NEVER_IN_FORCE: u64 = u64::MAX;
