//! The limits in force, compiled: which apply, how each key is metered, and what became of the
//! limits before. Immutable; a change is a new set, and keys keep what they used.
//!
//! A **tuning** is one way to read a key's state: a number, written beside the state, and a meter.
//! A change that a meter can bend to keeps its tuning; one that it cannot gets the next number, and
//! states under the old one are converted when they are met.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use crate::cell::{Meta, TUNINGS_MAX};
use crate::counts::LimitCounts;
use crate::decision::LimitId;
use crate::gcra::{Meter, Oversize};
use crate::key::{KeyId, Part, Salt, Secret};
use crate::limit::{Allowance, Limit, LimitError};
use crate::matcher::{DigestHasher, Matcher};
use crate::plain::Plain;
use crate::request::Descriptor;
use crate::table::Visit;
use crate::time::Instant;

/// All limits in force.
#[derive(Debug, Default)]
pub(crate) struct RuleSet {
    pub(crate) revision: u64,
    pub(crate) rules: Vec<Arc<Rule>>,
    domains: BTreeMap<Box<str>, Matcher>,
    /// Keys with an allowance of their own.
    overrides: HashMap<KeyId, Tuning>,
    /// Whose each tuning in force is: the rule's position, and its meter if it is an override's.
    tunings: ByNumber<(u32, Option<Tuning>)>,
    /// Tunings of the set before that are no longer in force.
    retired: ByNumber<Retired>,
    since: Instant,
    next: Next,
}

/// Looked up for every key that a sweep comes by.
type ByNumber<T> = HashMap<u32, T, BuildHasherDefault<DigestHasher>>;

/// One limit in force.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) limit: Limit,
    pub(crate) id: LimitId,
    /// The revision that last changed it.
    pub(crate) generation: u64,
    pub(crate) tuning: Tuning,
    /// How keys without an override are charged.
    pub(crate) plain: Plain,
    pub(crate) counts: Arc<LimitCounts>,
    /// The key that always has a cell: a limit's only key, or the one that stands in for the others
    /// when the table is full.
    pub(crate) anchor: KeyId,
    salt: Salt,
}

/// How the state of a key is read; no meter when everything passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tuning {
    number: u32,
    pub(crate) meter: Option<Meter>,
}

/// A tuning that was in force, and the position of the rule that its keys belong to now.
#[derive(Debug, Clone, Copy)]
struct Retired {
    meter: Option<Meter>,
    rule: u32,
}

/// Numbers that were not given yet; none is given twice.
#[derive(Debug, Clone, Copy, Default)]
struct Next {
    tuning: u32,
    limit: u32,
}

/// What a set of limits was compiled from, besides the limits.
pub(crate) struct Compile<'a> {
    pub(crate) secret: &'a Secret,
    pub(crate) before: &'a RuleSet,
    pub(crate) keys_max: u64,
    pub(crate) now: Instant,
}

impl RuleSet {
    /// The set that follows `before` with these limits.
    ///
    /// # Errors
    /// When two limits have one name, a domain has more than 16 match shapes, or there are more
    /// limits and overrides than the table can keep cells for. Nothing is changed.
    pub(crate) fn compile(limits: Vec<Limit>, with: &Compile<'_>) -> Result<Self, LimitError> {
        let before = with.before;
        let known: HashMap<_, _> = before
            .rules
            .iter()
            .map(|rule| ((rule.limit.domain(), rule.limit.name()), rule))
            .collect();
        let mut set = Self {
            revision: before.revision + 1,
            since: with.now,
            next: before.next,
            ..Self::default()
        };
        let mut names = std::collections::HashSet::new();
        let pinned_max = PINNED_FREE + with.keys_max / 8;
        let mut pinned = 0;
        for limit in &limits {
            if !names.insert((limit.domain(), limit.name())) {
                let name = limit.name().into();
                return Err(LimitError::of(limit, "name", name, "is taken by an earlier limit"));
            }
            pinned += 1 + limit.overrides().len() as u64;
            if pinned > pinned_max {
                let reason = "more limits and overrides than keys_max / 8 + 64; raise keys_max";
                return Err(LimitError::of(limit, "override", pinned.to_string(), reason));
            }
        }
        for limit in limits {
            let old = known.get(&(limit.domain(), limit.name())).copied();
            set.add(limit, old.map(|rule| &**rule), with)?;
        }
        if set.next.tuning >= TUNINGS_MAX || set.next.limit == u32::MAX {
            let Some(rule) = set.rules.first() else { return Ok(set) };
            let reason = "the limits changed two billion times; restart the process";
            return Err(LimitError::of(&rule.limit, "rate", String::new(), reason));
        }
        Ok(set)
    }

    /// The matcher of a domain, if any limit is in it.
    #[inline]
    pub(crate) fn domain(&self, domain: &str) -> Option<&Matcher> {
        self.domains.get(domain)
    }

    /// The rule with this id, and its position.
    pub(crate) fn rule_of(&self, id: LimitId) -> Option<(usize, &Arc<Rule>)> {
        self.rules.iter().enumerate().find(|(_, rule)| rule.id == id)
    }

    /// How a key's state is read; `None` when its meaning is not of this set.
    #[inline]
    pub(crate) fn tuning<'r>(&'r self, rule: &'r Rule, meta: Meta) -> Option<&'r Tuning> {
        if meta.tuning() == rule.tuning.number {
            return Some(&rule.tuning);
        }
        self.tunings.get(&meta.tuning()).and_then(|(_, tuning)| tuning.as_ref())
    }

    /// How the state of a key that is not in the table starts, and what is written beside it.
    pub(crate) fn tuning_for<'r>(&'r self, rule: &'r Rule, key: KeyId) -> (Meta, &'r Tuning) {
        match self.overrides.get(&key) {
            Some(tuning) if !cfg!(tollgate_mutant = "overrides_ignored") => {
                (Meta::new(tuning.number, true), tuning)
            }
            _ => (Meta::new(rule.tuning.number, key == rule.anchor), &rule.tuning),
        }
    }

    /// Whether a state may be forgotten: its key is as new, or its limit is gone.
    pub(crate) fn is_as_new(&self, meta: Meta, state: u64, now: Instant) -> bool {
        let meter = match self.tunings.get(&meta.tuning()) {
            Some((_, Some(tuning))) => tuning.meter,
            Some(&(rule, None)) => self.rules[rule as usize].tuning.meter,
            None => match self.retired.get(&meta.tuning()) {
                Some(retired) => retired.meter,
                None => return true,
            },
        };
        meter.is_none_or(|meter| meter.is_as_new(state, now))
    }

    /// What becomes of a key of the set before under this one.
    pub(crate) fn carry_over(&self, key: KeyId, meta: Meta, state: u64) -> Visit {
        let (rule, meter) =
            match (self.tunings.get(&meta.tuning()), self.retired.get(&meta.tuning())) {
                (Some(&(rule, tuning)), _) => {
                    let rule = &self.rules[rule as usize];
                    (rule, tuning.unwrap_or(rule.tuning).meter)
                }
                (None, Some(retired)) => (&self.rules[retired.rule as usize], retired.meter),
                (None, None) => return Visit::Drop,
            };
        let (next_meta, next) = self.tuning_for(rule, key);
        if next_meta == meta {
            return Visit::Keep;
        }
        let Some(next_meter) = &next.meter else {
            return if next_meta.is_pinned() { Visit::Move(next_meta, 0) } else { Visit::Drop };
        };
        let state = match meter {
            Some(meter) => meter.convert(state, next_meter, self.since),
            None => next_meter.fresh(self.since),
        };
        Visit::Move(next_meta, state)
    }

    /// Whether keys of the set before need a visit.
    pub(crate) fn changes_keys_of(&self, before: &Self) -> bool {
        let gone = |number: &u32| !self.tunings.contains_key(number);
        let known = |key: &KeyId| before.overrides.contains_key(key);
        if cfg!(tollgate_mutant = "keys_not_visited") {
            return false;
        }
        before.tunings.keys().any(gone) || !self.overrides.keys().all(known)
    }

    /// Keys that always have a cell, with the rule that they belong to.
    pub(crate) fn pinned(&self) -> impl Iterator<Item = (KeyId, &Rule)> {
        let rule_at = |tuning: &Tuning| &*self.rules[self.tunings[&tuning.number].0 as usize];
        let overridden = self.overrides.iter().map(move |(key, tuning)| (*key, rule_at(tuning)));
        let anchors = self.rules.iter().filter(|rule| rule.tuning.meter.is_some());
        anchors.map(|rule| (rule.anchor, &**rule)).chain(overridden)
    }

    fn add(
        &mut self,
        limit: Limit,
        old: Option<&Rule>,
        with: &Compile<'_>,
    ) -> Result<(), LimitError> {
        let position = self.rules.len() as u32;
        let matcher = self.domains.entry(limit.domain().into()).or_default();
        if matcher.add(with.secret, &limit, position).is_err() {
            let names: Vec<&str> = limit.matches().iter().map(|entry| &*entry.name).collect();
            let reason = "is the 17th combination of entries in its domain; at most 16 are matched";
            return Err(LimitError::of(&limit, "match", names.join(", "), reason));
        }
        let salt = with.secret.salt(limit.domain(), limit.name(), limit.key_names());
        // Another key is another set of cells, even under one name.
        let old_cells = old.filter(|old| old.salt == salt);
        let old_tuning = old_cells.map(|old| (old.tuning, old.limit.allowance()));
        let tuning = self.tune(&limit, limit.allowance(), position, old_tuning, with.now);
        self.tunings.insert(tuning.number, (position, None));
        for written in limit.overrides() {
            let parts = written.parts.iter().map(|part| Part::from(&**part));
            let key = salt.key(with.secret, parts.clone());
            let old_tuning = old_cells.and_then(|old| {
                let same = |other: &&crate::limit::Override| other.parts == written.parts;
                let allowance = old.limit.overrides().iter().find(same)?.allowance;
                Some((*with.before.overrides.get(&key)?, allowance))
            });
            let tuning = self.tune(&limit, written.allowance, position, old_tuning, with.now);
            self.tunings.insert(tuning.number, (position, Some(tuning)));
            self.overrides.insert(key, tuning);
        }
        if old_cells.is_some() {
            self.retire_overrides(position, with.before, old);
        }
        let id = old.map_or_else(|| LimitId(post_increment(&mut self.next.limit)), |old| old.id);
        let unchanged = old.filter(|old| old.limit == limit);
        let anchor = if limit.key_names().is_empty() {
            salt.key(with.secret, [])
        } else {
            salt.overflow_key()
        };
        // A limit without a key has one cell, which is pinned; a shadow's denials are no denials.
        let plain = match tuning.meter {
            Some(meter) if !limit.is_shadow() => {
                let meta = Meta::new(tuning.number, limit.key_names().is_empty());
                Plain { meta, meter }
            }
            meter => Plain { meta: Meta::NONE, meter: meter.unwrap_or_default() },
        };
        self.rules.push(Arc::new(Rule {
            id,
            generation: unchanged.map_or(self.revision, |old| old.generation),
            tuning,
            plain,
            counts: old.map_or_else(|| Arc::new(LimitCounts::new()), |old| old.counts.clone()),
            anchor,
            salt,
            limit,
        }));
        Ok(())
    }

    /// The tuning for an allowance, given the one before it: the same or bent if that can be, else
    /// a new one that retires it.
    fn tune(
        &mut self,
        limit: &Limit,
        allowance: Allowance,
        rule: u32,
        old: Option<(Tuning, Allowance)>,
        now: Instant,
    ) -> Tuning {
        if let Some((tuning, was)) = old {
            let bent = bend(tuning.meter, was, allowance, limit.oversize(), now);
            if let Some(meter) = bent {
                return Tuning { meter, ..tuning };
            }
            self.retired.insert(tuning.number, Retired { meter: tuning.meter, rule });
        }
        // What is owed is carried over in granules rounded up; a nanosecond's rest covers the
        // fraction that the old meter's token time drops.
        let start = if old.is_some() { now.saturating_add(NANOSECOND) } else { now };
        let meter = match allowance {
            Allowance::Unlimited => None,
            Allowance::Metered { rate, burst } => {
                Some(Meter::new(rate, burst, limit.oversize(), start))
            }
        };
        Tuning { number: post_increment(&mut self.next.tuning), meter }
    }

    /// Overrides that a limit no longer has go back to the limit's own tuning.
    fn retire_overrides(&mut self, rule: u32, before: &Self, old: Option<&Rule>) {
        for (number, (old_rule, tuning)) in &before.tunings {
            let Some(tuning) = tuning else { continue };
            let of_old = old.is_some_and(|old| before.rules[*old_rule as usize].id == old.id);
            if of_old && !self.tunings.contains_key(number) {
                self.retired.insert(*number, Retired { meter: tuning.meter, rule });
            }
        }
    }
}

impl Rule {
    /// The key of a descriptor under this limit.
    #[inline]
    pub(crate) fn key_of(&self, secret: &Secret, descriptor: &Descriptor<'_>) -> KeyId {
        let part = |name| descriptor.value(name).map_or(Part::Undeclared, Part::Text);
        self.salt.key(secret, self.limit.key().map(part))
    }

    /// The key with these parts.
    #[inline]
    pub(crate) fn key_with(&self, secret: &Secret, parts: &[Part<'_>]) -> KeyId {
        self.salt.key(secret, parts.iter().copied())
    }

    /// Whether no key of this limit has a meter, so that none needs to be looked up.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.tuning.meter.is_none() && self.limit.overrides().is_empty()
    }
}

/// The meter for another allowance, if states keep their meaning under it.
fn bend(
    meter: Option<Meter>,
    was: Allowance,
    allowance: Allowance,
    oversize: Oversize,
    now: Instant,
) -> Option<Option<Meter>> {
    match (meter, allowance) {
        (None, Allowance::Unlimited) => Some(None),
        (Some(meter), Allowance::Metered { rate, burst }) => {
            if was == allowance && meter.oversize() == oversize {
                return Some(Some(meter));
            }
            meter.bend(rate, burst, oversize, now).map(Some)
        }
        (None, Allowance::Metered { .. }) | (Some(_), Allowance::Unlimited) => None,
    }
}

fn post_increment(n: &mut u32) -> u32 {
    let given = *n;
    *n = n.saturating_add(1);
    given
}

const NANOSECOND: std::time::Duration = std::time::Duration::from_nanos(1);
/// Limits and overrides that any table has room for, besides its keys.
const PINNED_FREE: u64 = 64;
