//! For callers that come again: a request whose limits and keys were looked up before, and a limit
//! that was looked up by name. Both follow the limits in force.
//!
//! Each belongs to one caller (`&mut self`), who holds the rule set without touching a shared
//! count.

use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};

use crate::charge::{Charges, Want};
use crate::decision::{Decision, LimitId};
use crate::key::Part;
use crate::limiter::{Limiter, conclude, unlimited};
use crate::request::{Descriptor, Entry, RequestError};
use crate::rules::RuleSet;
use crate::time::Instant;

type Rules = Cache<Arc<ArcSwap<RuleSet>>, Arc<RuleSet>>;
/// A descriptor's entry that outlives the descriptor.
type OwnedEntry = (Box<str>, Box<[u8]>);

/// One descriptor's limits and keys, looked up once: for a connection, a worker, a tenant's
/// session.
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
    rules: Rules,
    revision: u64,
    wants: Charges<Want>,
    domain: Box<str>,
    /// The descriptor, to be looked up again when the limits change.
    entries: Box<[OwnedEntry]>,
}

impl Handle {
    /// Decides a request of this descriptor at `cost`, as [`Limiter::check`] does.
    #[inline]
    pub fn check(&mut self, cost: u64) -> Decision {
        let core = &*self.limiter.core;
        if !core.enforcing.get() {
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
            let decision = if let [want] = wants {
                want.cost = cost;
                let step = match core.table.find_at(want.place, want.key) {
                    Some(found) => core.charge_found(rules, want, now, found),
                    None => core.charge(rules, want, now),
                };
                step.map(|step| {
                    want.place = step.place;
                    conclude(&rules.rules[want.rule as usize], want, &step, now)
                })
            } else {
                wants.iter_mut().for_each(|want| want.cost = cost);
                core.decide_charges(rules, wants, now, true)
            };
            if let Ok(decision) = decision {
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
    rules: Rules,
    revision: u64,
    limit: LimitId,
    position: Option<u32>,
}

impl Keyed {
    /// Decides a request of `cost` for the key with these parts, in the order of the limit's key.
    /// Other limits are not asked, nor is the limit's own match. A limit that is no longer in force
    /// allows.
    ///
    /// # Errors
    /// When the number of parts is not the limit's. Nothing is spent.
    #[inline]
    pub fn check(&mut self, parts: &[Part<'_>], cost: u64) -> Result<Decision, RequestError> {
        let core = &*self.limiter.core;
        if !core.enforcing.get() {
            return Ok(unlimited(Instant::ZERO));
        }
        let now = core.clock.now();
        loop {
            let rules = self.rules.load();
            if rules.revision != self.revision {
                self.position = rules.rule_of(self.limit).map(|(position, _)| position as u32);
                self.revision = rules.revision;
            }
            let Some(position) = self.position else { return Ok(unlimited(now)) };
            let rule = &rules.rules[position as usize];
            let expected = rule.limit.key_names().len();
            if parts.len() != expected {
                return Err(RequestError::KeyParts { given: parts.len(), expected });
            }
            if rule.is_open() {
                return Ok(unlimited(now));
            }
            let want = Want::new(position, rule.key_with(&core.secret, parts), cost);
            if let Ok(decision) = core.decide_one(rules, &want, now) {
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
            rules: self.cached_rules(),
            revision: NO_REVISION,
            wants: Charges::default(),
            domain: domain.into(),
            entries: descriptor.entries().iter().map(entry).collect(),
        }
    }

    /// The limit of this domain and name, if it is in force.
    #[must_use]
    pub fn keyed(&self, domain: &str, name: &str) -> Option<Keyed> {
        let mut rules = self.cached_rules();
        let set = rules.load();
        let named = |limit: &crate::limit::Limit| limit.domain() == domain && limit.name() == name;
        let position = set.rules.iter().position(|rule| named(&rule.limit))?;
        let (limit, revision) = (set.rules[position].id, set.revision);
        Some(Keyed {
            limiter: self.clone(),
            rules,
            revision,
            limit,
            position: Some(position as u32),
        })
    }
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
    if let Ok(descriptor) = Descriptor::new(&entries) {
        limiter.core.each_want_of(rules, domain, &descriptor, |want| wants.push(want));
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
        f.debug_struct("Keyed").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// Revisions start at 1.
const NO_REVISION: u64 = 0;
