//! The limits in force, compiled: which apply, how each key is metered, and what became of the
//! limits before. Immutable; a change is a new set, and keys keep what they used.
//!
//! A **tuning** is one way to read a key's state: a number, written beside the state, and a meter.
//! A change that a meter can bend to keeps its tuning; one that it cannot gets the next number, and
//! states under the old one are converted when they are met.

mod divided;
mod draft;
mod shared;
mod tallied;

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use crate::allowance::Allowance;
use crate::cell::Meta;
use crate::counts::LimitCounts;
use crate::decision::LimitId;
use crate::gcra::{Meter, Oversize};
use crate::guarantee::Guarantee;
use crate::key::{KeyId, Part, Salt, Secret};
use crate::limit::Limit;
use crate::matcher::{DigestHasher, Matcher};
use crate::mutant::lacks;
use crate::plain::Plain;
use crate::policy::FleetLimitId;
use crate::request::Descriptor;
use crate::table::Visit;
use crate::time::{Clock, Instant};
use crate::walk::{Hows, Paths, key_parts};

pub(crate) use divided::Divided;
use draft::DraftLimit;
pub(crate) use draft::{Draft, Stores};
pub(crate) use shared::Shared;
pub(crate) use tallied::{Counting, Tallied};
pub use tallied::{TallyLimit, TallyRules};

/// All limits in force.
#[derive(Debug, Default)]
pub(crate) struct RuleSet {
    pub(crate) revision: u64,
    pub(crate) rules: Vec<Arc<Rule>>,
    domains: BTreeMap<Box<str>, Domain>,
    /// Keys with an allowance of their own.
    overrides: HashMap<KeyId, Tuning>,
    /// Whose each tuning in force is: the rule's position, and its meter if it is an override's.
    tunings: ByNumber<(u32, Option<Tuning>)>,
    /// Tunings of the set before that are no longer in force.
    retired: ByNumber<Retired>,
    since: Instant,
    next: Next,
}

/// How the limits of a domain are found.
#[derive(Debug)]
pub(crate) enum Domain {
    /// Every limit whose match holds applies.
    Set(Matcher),
    /// The limit at the end of the descriptor's path applies.
    Path(Paths),
}

/// How limits are matched in a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DomainKind {
    /// Every limit whose match holds applies to a descriptor.
    Set,
    /// The limit at the end of a descriptor's path applies to it.
    Path,
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
    pub(crate) kind: Kind,
    /// How keys without an override are charged, if they are metered and the limit is no shadow.
    pub(crate) plain: Plain,
    pub(crate) counts: Arc<LimitCounts>,
    /// The key that always has a cell: a limit's only key, or the one that stands in for the others
    /// when the table is full.
    pub(crate) anchor: KeyId,
    /// The number of its group, if it has one.
    pub(crate) group: Option<u32>,
    /// Groups whose limits do not apply where this one does.
    pub(crate) replaces: Box<[u32]>,
    salt: Salt,
}

/// What decides about the keys of a limit.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Nothing: everything passes.
    Open,
    /// A cell of the table of rates.
    Rate,
    /// Credit that other nodes of the fleet permit.
    Credit(Shared),
    /// What was counted here, beside what a store has.
    Count(Tallied),
    /// This node's part of what a fleet divides.
    Share(Divided),
}

/// How the state of a key is read; no meter when everything passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tuning {
    pub(crate) number: u32,
    allowance: Allowance,
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

impl RuleSet {
    /// How the limits of a domain are found, if any limit is in it.
    #[inline]
    pub(crate) fn domain(&self, domain: &str) -> Option<&Domain> {
        self.domains.get(domain)
    }

    /// The rule with this id, and its position.
    pub(crate) fn rule_of(&self, id: LimitId) -> Option<(usize, &Arc<Rule>)> {
        self.rules.iter().enumerate().find(|(_, rule)| rule.id == id)
    }

    /// The rule of this name, and its position.
    pub(crate) fn rule_named(&self, domain: &str, name: &str) -> Option<(usize, &Arc<Rule>)> {
        let named = |rule: &Rule| rule.limit.name() == name && rule.limit.domain() == domain;
        self.rules.iter().enumerate().find(|(_, rule)| named(rule))
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
            Some(tuning) if !lacks("overrides_ignored") => (Meta::new(tuning.number, true), tuning),
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
                // Of a limit that is gone; but what a later set numbered is not ours to forget.
                None => return meta.tuning() < self.next.tuning,
            },
        };
        meter.is_none_or(|meter| meter.is_as_new(state, now))
    }

    /// What becomes of a key of the set before under this one.
    ///
    /// A state is converted as of the moment at which it is met: until then, threads that still
    /// have the set before go on charging by its meters.
    pub(crate) fn carry_over(&self, key: KeyId, meta: Meta, state: u64, clock: &Clock) -> Visit {
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
        let met = if lacks("converted_too_late") { self.since } else { clock.now() };
        let now = met.max(self.since);
        let state = match meter {
            Some(meter) => meter.convert(state, next_meter, now),
            None => next_meter.fresh(now),
        };
        Visit::Move(next_meta, state)
    }

    /// Whether keys of the set before need a visit.
    pub(crate) fn changes_keys_of(&self, before: &Self) -> bool {
        let gone = |number: &u32| !self.tunings.contains_key(number);
        let known = |key: &KeyId| before.overrides.contains_key(key);
        if lacks("keys_not_visited") {
            return false;
        }
        before.tunings.keys().any(gone) || !self.overrides.keys().all(known)
    }

    /// Keys that always have a cell, with the rule that they belong to.
    pub(crate) fn pinned(&self) -> impl Iterator<Item = (KeyId, &Rule)> {
        let rule_at = |tuning: &Tuning| &*self.rules[self.tunings[&tuning.number].0 as usize];
        let overridden = self.overrides.iter().map(move |(key, tuning)| (*key, rule_at(tuning)));
        let is_metered = |rule: &&Arc<Rule>| match rule.kind {
            Kind::Rate => rule.tuning.meter.is_some(),
            Kind::Open | Kind::Credit(_) | Kind::Count(_) | Kind::Share(_) => false,
        };
        let anchors = self.rules.iter().filter(is_metered);
        anchors.map(|rule| (rule.anchor, &**rule)).chain(overridden)
    }

    fn add(&mut self, draft: DraftLimit, position: u32, before: &Self, stores: Stores<'_>) {
        let DraftLimit { limit, salt, keys, old, group, replaces, of_fleet } = draft;
        let old = old.map(|old| &*before.rules[old as usize]);
        // Another key is another set of cells, even under one name, and so is credit.
        let old_cells = old.filter(|old| old.salt == salt && !old.is_others());
        let in_fleet = of_fleet.as_ref().map(|of_fleet| of_fleet.generation);
        let id = old.map_or_else(|| LimitId(post_increment(&mut self.next.limit)), |old| old.id);
        let Stores { tally, shares } = stores;
        let (tuning, kind) = match (limit.guarantee(), of_fleet, tally, shares) {
            (Guarantee::Eventual, Some(of_fleet), ..) => self.share(&limit, of_fleet, &keys),
            (Guarantee::Tally, _, Some(credits), _) => {
                let number = self.number_of(&salt);
                self.tally(&limit, number, credits, &keys)
            }
            (Guarantee::Share, of_fleet, _, Some(shares)) => {
                let number = of_fleet.map_or_else(|| self.number_of(&salt), |of| of.number);
                self.divide(&limit, number, shares, &keys)
            }
            // Alone it is all of its fleet.
            (Guarantee::Local | Guarantee::Eventual | Guarantee::Tally | Guarantee::Share, ..) => {
                self.tune_all(&limit, &keys, position, old_cells, before)
            }
        };
        let unchanged = old.filter(|old| old.limit == limit);
        let generation = unchanged.map_or(self.revision, |old| old.generation);
        // A limit without a key has one cell, which is pinned; a shadow's denials are no denials.
        let keyless = limit.key_names().is_empty();
        let plain = match (&kind, tuning.meter) {
            (Kind::Rate, Some(meter)) if !limit.is_shadow() => {
                Plain { meta: Meta::new(tuning.number, keyless), meter }
            }
            (_, meter) => Plain { meta: Meta::NONE, meter: meter.unwrap_or_default() },
        };
        self.rules.push(Arc::new(Rule {
            id,
            generation: in_fleet.unwrap_or(generation),
            tuning,
            kind,
            plain,
            counts: old.map_or_else(|| Arc::new(LimitCounts::new()), |old| old.counts.clone()),
            anchor: if keyless { salt.only_key() } else { salt.overflow_key() },
            group,
            replaces,
            salt,
            limit,
        }));
    }

    /// The number of a limit that has none of a fleet: the same whenever it is in force, since
    /// its cells outlive it.
    fn number_of(&self, salt: &Salt) -> FleetLimitId {
        let is_taken = |number| {
            let of = |rule: &Arc<Rule>| {
                rule.tallied().is_some_and(|of| of.number == number)
                    || rule.divided().is_some_and(|of| of.number == number)
            };
            self.rules.iter().any(of)
        };
        let first = salt.number();
        let mut numbers = (0..).map(|next| FleetLimitId(first.wrapping_add(next)));
        numbers.find(|number| !is_taken(*number)).unwrap_or(FleetLimitId(first))
    }

    /// How a limit's keys are read in the table of rates.
    fn tune_all(
        &mut self,
        limit: &Limit,
        keys: &[KeyId],
        position: u32,
        old: Option<&Rule>,
        before: &Self,
    ) -> (Tuning, Kind) {
        let tuning = self.tune(limit, limit.allowance(), position, old.map(|old| old.tuning));
        self.tunings.insert(tuning.number, (position, None));
        for (key, written) in keys.iter().zip(limit.overrides()) {
            let old_tuning = old.and_then(|_| before.overrides.get(key).copied());
            let tuning = self.tune(limit, written.allowance, position, old_tuning);
            self.tunings.insert(tuning.number, (position, Some(tuning)));
            self.overrides.insert(*key, tuning);
        }
        let is_open = tuning.meter.is_none() && keys.is_empty();
        (tuning, if is_open { Kind::Open } else { Kind::Rate })
    }

    /// The tuning for an allowance, given the one before it: the same or bent if that can be, else
    /// a new one that retires it.
    fn tune(
        &mut self,
        limit: &Limit,
        allowance: Allowance,
        rule: u32,
        old: Option<Tuning>,
    ) -> Tuning {
        if let Some(tuning) = old {
            if let Some(meter) = tuning.bend(allowance, limit.oversize(), self.since) {
                return Tuning { meter, allowance, ..tuning };
            }
            self.retired.insert(tuning.number, Retired { meter: tuning.meter, rule });
        }
        // What is owed is carried over in granules rounded up; a nanosecond's rest covers the
        // fraction that the old meter's token time drops.
        let start = if old.is_some() { self.since.saturating_add(NANOSECOND) } else { self.since };
        let meter = match allowance {
            Allowance::Unlimited => None,
            Allowance::Metered { rate, burst } => {
                Some(Meter::new(rate, burst, limit.oversize(), start))
            }
        };
        Tuning { number: post_increment(&mut self.next.tuning), allowance, meter }
    }
}

impl Tuning {
    /// The meter for another allowance, if states keep their meaning under it.
    fn bend(
        &self,
        allowance: Allowance,
        oversize: Oversize,
        now: Instant,
    ) -> Option<Option<Meter>> {
        match (self.meter, allowance) {
            (None, Allowance::Unlimited) => Some(None),
            (Some(meter), Allowance::Metered { rate, burst }) => {
                if self.allowance == allowance && meter.oversize() == oversize {
                    return Some(Some(meter));
                }
                meter.bend(rate, burst, oversize, now).map(Some)
            }
            (None, Allowance::Metered { .. }) | (Some(_), Allowance::Unlimited) => None,
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

    /// The key of a descriptor that reached this limit on its path.
    #[inline]
    pub(crate) fn key_on_path(
        &self,
        secret: &Secret,
        descriptor: &Descriptor<'_>,
        hows: &Hows,
    ) -> KeyId {
        self.salt.key(secret, key_parts(&self.limit, descriptor, hows))
    }

    /// The key with these parts.
    #[inline]
    pub(crate) fn key_with(&self, secret: &Secret, parts: &[Part<'_>]) -> KeyId {
        self.salt.key(secret, parts.iter().copied())
    }

    /// Whether no key of this limit has a meter, so that none needs to be looked up.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.kind, Kind::Open)
    }
}

fn post_increment(n: &mut u32) -> u32 {
    let given = *n;
    *n = n.saturating_add(1);
    given
}

const NANOSECOND: std::time::Duration = std::time::Duration::from_nanos(1);
#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::gcra::Verdict;
    use crate::spec::LimitSpec;

    fn draft(rate: &str, before: &RuleSet, secret: &Secret) -> Draft {
        let spec = LimitSpec { name: "api", key: &["tenant"], rate, ..LimitSpec::DEFAULT };
        let limit = Limit::parse(&LimitSpec { burst: Some(10), ..spec }).expect("sound");
        Draft::new(vec![limit], before, secret, 100).expect("sound")
    }

    /// The replacement of a limit of a million a second by one of a single a second began at 1 s; a
    /// thread that did not know spent a unit at 10 s. The key once owed the nine million that the
    /// old rate had produced in between.
    #[test]
    fn a_key_owes_what_it_spent_under_the_old_rules_and_not_the_time_in_which_it_did() {
        let (secret, (clock, hand)) = (Secret::random(), Clock::manual());
        let before = RuleSet::default();
        let before =
            draft("1000000/s", &before, &secret).at(Instant::ZERO, &before, Stores::default());
        let after = draft("1/s", &before, &secret).at(
            Instant::from_nanos(1_000_000_000),
            &before,
            Stores::default(),
        );
        hand.advance(Duration::from_secs(10));
        let (old, new) = (&before.rules[0], &after.rules[0]);
        let key = old.key_with(&secret, &["a".into()]);
        let (meta, tuning) = before.tuning_for(old, key);
        let meter = tuning.meter.expect("metered");
        let Verdict::Conforms { next } = meter.judge(0, 1, clock.now()) else { panic!("rested") };
        let Visit::Move(meta, state) = after.carry_over(key, meta, next, &clock) else {
            panic!("it needs other granules");
        };
        assert_eq!(meta.tuning(), new.tuning.number);
        let meter = new.tuning.meter.expect("metered");
        assert_eq!(meter.remaining(state, clock.now()), 9);
    }

    #[test]
    fn a_set_does_not_forget_what_a_later_one_numbered() {
        let secret = Secret::random();
        let before = RuleSet::default();
        let before =
            draft("1000000/s", &before, &secret).at(Instant::ZERO, &before, Stores::default());
        let after = draft("1/s", &before, &secret).at(Instant::ZERO, &before, Stores::default());
        let (meta, _) = after.tuning_for(&after.rules[0], KeyId { high: 9, low: 9 });
        assert!(!before.is_as_new(meta, u64::MAX / 2, Instant::ZERO));
    }
}
