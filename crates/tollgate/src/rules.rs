//! The limits in force, compiled: which apply, how each key is metered, and what became of the
//! limits before. Immutable; a change is a new set, and keys keep what they used.
//!
//! A **tuning** is one way to read a key's state: a number, written beside the state, and a meter.
//! A change that a meter can bend to keeps its tuning; one that it cannot gets the next number, and
//! states under the old one are converted when they are met.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use crate::allowance::Allowance;
use crate::cell::{Meta, TUNINGS_MAX};
use crate::counts::LimitCounts;
use crate::decision::LimitId;
use crate::gcra::{Meter, Oversize};
use crate::key::{KeyId, Part, Salt, Secret};
use crate::limit::{Limit, LimitError, Override};
use crate::matcher::{DigestHasher, Matcher, TooManyShapes};
use crate::mutant::lacks;
use crate::plain::Plain;
use crate::request::Descriptor;
use crate::table::Visit;
use crate::time::{Clock, Instant};
use crate::walk::{Hows, Paths, Taken, key_parts};

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

/// A set of limits with all that takes long already done, and no time in it yet.
pub(crate) struct Draft {
    set: RuleSet,
    limits: Vec<DraftLimit>,
}

struct DraftLimit {
    limit: Limit,
    salt: Salt,
    /// The keys of its overrides, in their order.
    keys: Vec<KeyId>,
    /// The position of the rule that it replaces.
    old: Option<u32>,
    group: Option<u32>,
    replaces: Box<[u32]>,
}

/// Groups by their domains and names.
#[derive(Default)]
struct Groups(HashMap<(Box<str>, Box<str>), u32>);

impl Groups {
    fn number(&mut self, domain: &str, group: &str) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry((domain.into(), group.into())).or_insert(next)
    }

    /// The groups that a limit replaces, each once.
    fn numbers(&mut self, limit: &Limit) -> Box<[u32]> {
        let mut numbers: Vec<u32> =
            limit.replaces().map(|group| self.number(limit.domain(), group)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into()
    }
}

impl Draft {
    /// The set that is to follow `before` with these limits.
    ///
    /// # Errors
    /// When two limits have one name or path, a domain has more than 16 match shapes, or limits
    /// with and without paths, or there are more limits and overrides than the table can keep cells
    /// for. Nothing is changed.
    pub(crate) fn new(
        limits: Vec<Limit>,
        before: &RuleSet,
        secret: &Secret,
        keys_max: u64,
    ) -> Result<Self, LimitError> {
        let identity = |rule: &Arc<Rule>| (rule.limit.domain().into(), rule.limit.identity());
        let old: HashMap<(Box<str>, String), u32> =
            before.rules.iter().map(identity).zip(0..).collect();
        let mut names: HashSet<(Box<str>, Box<str>)> = HashSet::new();
        let mut groups = Groups::default();
        let mut set =
            RuleSet { revision: before.revision + 1, next: before.next, ..RuleSet::default() };
        let mut drafts = Vec::with_capacity(limits.len());
        let mut pinned = 0;
        for (limit, position) in limits.into_iter().zip(0..) {
            let name = (limit.domain().into(), limit.name().into());
            let identity = limit.identity();
            pinned += 1 + limit.overrides().len() as u64;
            if pinned > PINNED_FREE + keys_max / 8 {
                let reason = "more limits and overrides than keys_max / 8 + 64; raise keys_max";
                return Err(LimitError::of(&limit, "override", pinned.to_string(), reason));
            }
            if pinned > u64::from(TUNINGS_MAX - before.next.tuning) {
                let reason = "the limits changed two billion times; restart the process";
                return Err(LimitError::of(&limit, "rate", String::new(), reason));
            }
            set.add_to_matcher(&limit, position, secret)?;
            let salt = secret.salt(limit.domain(), &identity, limit.key_names());
            let key = |written: &Override| {
                salt.key(secret, written.parts.iter().map(|part| Part::from(&**part)))
            };
            let keys = limit.overrides().iter().map(key).collect();
            let old = old.get(&(limit.domain().into(), identity)).copied();
            if !names.insert(name) {
                let name = limit.name().into();
                return Err(LimitError::of(&limit, "name", name, "is taken by an earlier limit"));
            }
            let group = Some(limit.group()).filter(|group| !group.is_empty());
            let group = group.map(|group| groups.number(limit.domain(), group));
            let replaces = groups.numbers(&limit);
            drafts.push(DraftLimit { limit, salt, keys, old, group, replaces });
        }
        Ok(Self { set, limits: drafts })
    }

    /// The set as it is from `now` on; it is to be put in force at once, since until then the rates
    /// of `before` go on.
    pub(crate) fn at(self, now: Instant, before: &RuleSet) -> RuleSet {
        let Self { mut set, limits } = self;
        set.since = now;
        let mut successors = HashMap::new();
        for (draft, position) in limits.into_iter().zip(0..) {
            if let Some(old) = draft.old {
                successors.insert(old, position);
            }
            set.add(draft, position, before);
        }
        // Overrides that a limit no longer has go back to the limit's own tuning.
        for (number, (rule, tuning)) in &before.tunings {
            let (Some(tuning), Some(&successor)) = (tuning, successors.get(rule)) else { continue };
            let same_keys = set.rules[successor as usize].salt == before.rules[*rule as usize].salt;
            if same_keys && !set.tunings.contains_key(number) {
                set.retired.insert(*number, Retired { meter: tuning.meter, rule: successor });
            }
        }
        set
    }
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
        let anchors = self.rules.iter().filter(|rule| rule.tuning.meter.is_some());
        anchors.map(|rule| (rule.anchor, &**rule)).chain(overridden)
    }

    fn add_to_matcher(
        &mut self,
        limit: &Limit,
        position: u32,
        secret: &Secret,
    ) -> Result<(), LimitError> {
        let without_path = limit.steps().is_empty();
        let domain = self.domains.entry(limit.domain().into()).or_insert_with(|| {
            if without_path {
                Domain::Set(Matcher::default())
            } else {
                Domain::Path(Paths::default())
            }
        });
        match (domain, without_path) {
            (Domain::Set(matcher), true) => {
                matcher.add(secret, limit, position).map_err(|TooManyShapes| {
                    let names = limit.matches().iter().map(|entry| &*entry.name);
                    let names: Vec<&str> = names.collect();
                    LimitError::of(limit, "match", names.join(", "), SEVENTEENTH)
                })
            }
            (Domain::Path(paths), false) => paths.add(secret, limit, position).map_err(|Taken| {
                LimitError::of(limit, "path", limit.path_text(), "is that of an earlier limit")
            }),
            (Domain::Path(_), true) => {
                let reason = "is empty, and the other limits of the domain have paths";
                Err(LimitError::of(limit, "path", String::new(), reason))
            }
            (Domain::Set(_), false) => {
                let reason = "the other limits of the domain have none";
                Err(LimitError::of(limit, "path", limit.path_text(), reason))
            }
        }
    }

    fn add(&mut self, draft: DraftLimit, position: u32, before: &Self) {
        let DraftLimit { limit, salt, keys, old, group, replaces } = draft;
        let old = old.map(|old| &*before.rules[old as usize]);
        // Another key is another set of cells, even under one name.
        let old_cells = old.filter(|old| old.salt == salt);
        let old_tuning = old_cells.map(|old| old.tuning);
        let tuning = self.tune(&limit, limit.allowance(), position, old_tuning);
        self.tunings.insert(tuning.number, (position, None));
        for (key, written) in keys.iter().zip(limit.overrides()) {
            let old_tuning = old_cells.and_then(|_| before.overrides.get(key).copied());
            let tuning = self.tune(&limit, written.allowance, position, old_tuning);
            self.tunings.insert(tuning.number, (position, Some(tuning)));
            self.overrides.insert(*key, tuning);
        }
        let id = old.map_or_else(|| LimitId(post_increment(&mut self.next.limit)), |old| old.id);
        let unchanged = old.filter(|old| old.limit == limit);
        // A limit without a key has one cell, which is pinned; a shadow's denials are no denials.
        let keyless = limit.key_names().is_empty();
        let plain = match tuning.meter {
            Some(meter) if !limit.is_shadow() => {
                Plain { meta: Meta::new(tuning.number, keyless), meter }
            }
            meter => Plain { meta: Meta::NONE, meter: meter.unwrap_or_default() },
        };
        self.rules.push(Arc::new(Rule {
            id,
            generation: unchanged.map_or(self.revision, |old| old.generation),
            tuning,
            plain,
            counts: old.map_or_else(|| Arc::new(LimitCounts::new()), |old| old.counts.clone()),
            anchor: if keyless { salt.only_key() } else { salt.overflow_key() },
            group,
            replaces,
            salt,
            limit,
        }));
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
        self.tuning.meter.is_none() && self.limit.overrides().is_empty()
    }
}

fn post_increment(n: &mut u32) -> u32 {
    let given = *n;
    *n = n.saturating_add(1);
    given
}

const SEVENTEENTH: &str =
    "is the 17th combination of entries in its domain; at most 16 are matched";
const NANOSECOND: std::time::Duration = std::time::Duration::from_nanos(1);
/// Limits and overrides that any table has room for, besides its keys.
const PINNED_FREE: u64 = 64;

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
        let before = draft("1000000/s", &before, &secret).at(Instant::ZERO, &before);
        let after = draft("1/s", &before, &secret).at(Instant::from_nanos(1_000_000_000), &before);
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
        let before = draft("1000000/s", &before, &secret).at(Instant::ZERO, &before);
        let after = draft("1/s", &before, &secret).at(Instant::ZERO, &before);
        let (meta, _) = after.tuning_for(&after.rules[0], KeyId { high: 9, low: 9 });
        assert!(!before.is_as_new(meta, u64::MAX / 2, Instant::ZERO));
    }
}
