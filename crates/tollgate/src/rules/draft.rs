//! Limits on their way into force: all that takes long, and all that can be refused, is done before
//! the moment at which they take it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::cell::TUNINGS_MAX;
use crate::credits::Credits;
use crate::key::{KeyId, Salt, Secret};
use crate::limit::{Limit, LimitError};
use crate::matcher::{Matcher, TooManyShapes};
use crate::policy::{FleetLimitId, Numbered};
use crate::rules::shared::override_key;
use crate::rules::{Domain, Retired, Rule, RuleSet};
use crate::shares::Shares;
use crate::time::Instant;
use crate::walk::{Paths, Taken};

/// A set of limits with all that takes long already done, and no time in it yet.
pub(crate) struct Draft {
    set: RuleSet,
    limits: Vec<DraftLimit>,
}

pub(super) struct DraftLimit {
    pub(super) limit: Limit,
    pub(super) salt: Salt,
    /// The keys of its overrides, in their order.
    pub(super) keys: Vec<KeyId>,
    /// The position of the rule that it replaces.
    pub(super) old: Option<u32>,
    pub(super) group: Option<u32>,
    pub(super) replaces: Box<[u32]>,
    pub(super) of_fleet: Option<OfFleet>,
}

/// Cells for keys in which others have a say, besides those of credit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stores<'a> {
    /// For limits that are counted in a store.
    pub(crate) tally: Option<&'a Arc<Credits>>,
    /// For limits that nodes divide.
    pub(crate) shares: Option<&'a Arc<Shares>>,
}

/// What a limit is in a fleet.
pub(super) struct OfFleet {
    pub(super) number: FleetLimitId,
    /// The revision that last changed it there.
    pub(super) generation: u64,
    pub(super) credits: Arc<Credits>,
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
            let key = |written| override_key(&salt, secret, written);
            let keys = limit.overrides().iter().map(key).collect();
            let old = old.get(&(limit.domain().into(), identity)).copied();
            if !names.insert(name) {
                let name = limit.name().into();
                return Err(LimitError::of(&limit, "name", name, "is taken by an earlier limit"));
            }
            let group = Some(limit.group()).filter(|group| !group.is_empty());
            let group = group.map(|group| groups.number(limit.domain(), group));
            let replaces = groups.numbers(&limit);
            let of_fleet = None;
            drafts.push(DraftLimit { limit, salt, keys, old, group, replaces, of_fleet });
        }
        Ok(Self { set, limits: drafts })
    }

    /// The same for a member of a fleet, whose rule set has this revision.
    ///
    /// # Errors
    /// As [`new`](Self::new), and when two limits have one number.
    pub(crate) fn numbered(
        numbered: Vec<Numbered>,
        revision: u64,
        credits: &Arc<Credits>,
        before: &RuleSet,
        secret: &Secret,
        keys_max: u64,
    ) -> Result<Self, LimitError> {
        let mut known = HashSet::new();
        for Numbered { limit, number, .. } in &numbered {
            if !known.insert(*number) {
                let reason = "is that of an earlier limit";
                return Err(LimitError::of(limit, "number", number.0.to_string(), reason));
            }
        }
        let of_fleet = |one: &Numbered| OfFleet {
            number: one.number,
            generation: one.generation,
            credits: credits.clone(),
        };
        let numbers: Vec<OfFleet> = numbered.iter().map(of_fleet).collect();
        let limits = numbered.into_iter().map(|one| one.limit).collect();
        let mut draft = Self::new(limits, before, secret, keys_max)?;
        draft.set.revision = revision;
        for (limit, of_fleet) in draft.limits.iter_mut().zip(numbers) {
            limit.of_fleet = Some(of_fleet);
        }
        Ok(draft)
    }

    /// The set as it is from `now` on; it is to be put in force at once, since until then the rates
    /// of `before` go on.
    ///
    /// Keys in which others have a say have cells of these, if there are any.
    pub(crate) fn at(self, now: Instant, before: &RuleSet, stores: Stores<'_>) -> RuleSet {
        let Self { mut set, limits } = self;
        set.since = now;
        let mut successors = HashMap::new();
        for (draft, position) in limits.into_iter().zip(0..) {
            if let Some(old) = draft.old {
                successors.insert(old, position);
            }
            set.add(draft, position, before, stores);
        }
        // Overrides that a limit no longer has go back to the limit's own tuning.
        for (number, (rule, tuning)) in &before.tunings {
            let (Some(tuning), Some(&successor)) = (tuning, successors.get(rule)) else { continue };
            let next = &set.rules[successor as usize];
            let same_keys = next.salt == before.rules[*rule as usize].salt;
            if same_keys && !next.is_others() && !set.tunings.contains_key(number) {
                set.retired.insert(*number, Retired { meter: tuning.meter, rule: successor });
            }
        }
        set
    }
}

impl RuleSet {
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
}

const SEVENTEENTH: &str =
    "is the 17th combination of entries in its domain; at most 16 are matched";
/// Limits and overrides that any table has room for, besides its keys.
const PINNED_FREE: u64 = 64;
