//! The type that users touch: made of limits, asked for decisions, given other limits.
//!
//! It owns the rule set, the table and the clock; how it decides is in `decide` and `charge`.

use std::fmt;
use std::sync::{Arc, PoisonError};

use arc_swap::{ArcSwap, Cache};

use crate::cell::{Mutex, Number};
use crate::charge::{Core, NONE_IN_FORCE, TableFull};
use crate::counts::Counts;
use crate::decide::unlimited;
use crate::decision::{Decision, LimitId};
use crate::key::Secret;
use crate::limit::{Limit, LimitError};
use crate::request::Request;
use crate::rules::{Domain, DomainKind, Draft, Rule, RuleSet};
use crate::table::Table;
use crate::time::{Clock, Instant};

/// Decides whether requests pass; shared by all threads and tasks, and cheap to clone: it needs no
/// `Arc` around it.
///
/// A request to which no limit applies is allowed, and [`Decision::limit`] is `None`. A misspelt
/// domain or entry therefore denies nothing; [`explain`](Self::explain) shows which limits apply
/// and why not.
///
/// ```
/// use tollgate::{Descriptor, Entry, Limit, LimitSpec, Limiter, Options, Request};
/// let limit = LimitSpec { name: "api", key: &["tenant"], rate: "10/s", ..LimitSpec::DEFAULT };
/// let limiter = Limiter::new(vec![Limit::parse(&limit)?], Options::default())?;
/// let entries = [Entry::new("tenant", "acme")];
/// let descriptors = [Descriptor::new(&entries)?.with_cost(10)];
/// assert!(limiter.check(&Request::new(&descriptors)).is_allowed());
/// assert!(!limiter.check(&Request::new(&descriptors)).is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Limiter {
    pub(crate) core: Arc<Core>,
}

/// What a limiter is made of, besides its limits.
#[derive(Debug, Clone)]
pub struct Options {
    /// Keys that have a cell at most. Typically 1,000,000, which takes 32 MB when all are in use
    /// (and soon, where the system has huge pages); 1 to 100,000,000. Limits and overrides come on
    /// top, up to an eighth of it and 64.
    pub keys_max: u64,
    /// What becomes of a new key when that many are in use.
    pub table_full: TableFull,
    /// Where the time comes from.
    pub clock: Clock,
    /// What makes keys' identities unpredictable.
    pub secret: Secret,
}

impl Options {
    /// Refuses what no table can be made of.
    pub(crate) fn check(&self) -> Result<(), LimitError> {
        if (1..=KEYS_MAX_MAX).contains(&self.keys_max) {
            return Ok(());
        }
        let reason = "must be 1 to 100,000,000";
        Err(LimitError::of_options("keys_max", self.keys_max.to_string(), reason))
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            keys_max: 1_000_000,
            table_full: TableFull::default(),
            clock: Clock::system(),
            secret: Secret::random(),
        }
    }
}

impl Limiter {
    /// A limiter with these limits in force. Without limits it allows everything and reads no
    /// clock.
    ///
    /// # Errors
    /// When limits contradict each other; see [`replace`](Self::replace).
    pub fn new(limits: Vec<Limit>, options: Options) -> Result<Self, LimitError> {
        options.check()?;
        let Options { keys_max, table_full, clock, secret } = options;
        let core = Core {
            rules: Arc::new(ArcSwap::from_pointee(RuleSet::default())),
            table: Table::new(keys_max),
            clock,
            secret,
            table_full,
            revision: Number::default(),
            keys_max,
            changing: Mutex::new(()),
        };
        let limiter = Self { core: Arc::new(core) };
        limiter.replace(limits)?;
        Ok(limiter)
    }

    /// Decides a request: all limits that apply must have room, else nothing is spent.
    #[inline]
    #[must_use = "a denied request must not go on"]
    pub fn check(&self, request: &Request<'_>) -> Decision {
        if self.core.revision.get() == NONE_IN_FORCE {
            return unlimited(Instant::ZERO);
        }
        self.core.decide(request, true)
    }

    #[must_use]
    /// What [`check`](Self::check) would decide now. Spends nothing, counts nothing, creates no
    /// key.
    pub fn peek(&self, request: &Request<'_>) -> Decision {
        self.core.decide(request, false)
    }

    /// Gives back what the request cost, to each limit that applies: a short send, a job that did
    /// not run.
    ///
    /// A key gets back at most what it still owes; a key without a cell of its own gets nothing.
    /// The bound `burst + rate x t` then holds for what was spent net of refunds. A debt of more
    /// than about 20 years, which only `pace` makes, is kept whole.
    pub fn refund(&self, request: &Request<'_>) {
        let core = &*self.core;
        let rules = core.rules.load();
        let now = core.clock.now();
        core.each_want(&rules, request, |want| core.give_back(&rules, &want, now));
    }

    /// Makes the keys of the request as new, in each limit that applies, as if they had never been
    /// used. Its cost has no say.
    ///
    /// A tool for people: the bound starts anew for these keys.
    pub fn reset(&self, request: &Request<'_>) {
        let core = &*self.core;
        let rules = core.rules.load();
        let now = core.clock.now();
        core.each_want(&rules, request, |want| {
            core.adjust(&rules, &want, |tuning, _| tuning.meter.map(|meter| meter.fresh(now)));
        });
    }

    /// Puts other limits in force, all at once, and returns their revision. These are all limits
    /// that are then in force: keep what the others were parsed from. Of two callers the later one
    /// wins.
    ///
    /// Limits of one domain and name, or path, are one limit: its keys keep what they used. A key
    /// whose limit grows gets no second burst; one whose limit shrinks may have to wait longer. A
    /// limit that is gone frees its keys. Requests that are being decided end under the limits that
    /// they began with.
    ///
    /// # Errors
    /// When two limits of a domain have one name or path, a domain matches by more than 16
    /// combinations of entries or has limits with and without paths, or there are more limits and
    /// overrides than `keys_max` has room for. The limits
    /// that were in force stay in force.
    pub fn replace(&self, limits: Vec<Limit>) -> Result<u64, LimitError> {
        let core = &*self.core;
        let _changing = core.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = core.rules.load_full();
        let draft = Draft::new(limits, &before, &core.secret, core.keys_max)?;
        // From here on nothing takes long: between this reading and the store the rates before go
        // on.
        let set = Arc::new(draft.at(core.clock.now(), &before));
        core.rules.store(set.clone());
        core.revision.set(if set.rules.is_empty() { NONE_IN_FORCE } else { set.revision });
        if set.changes_keys_of(&before) {
            core.table.sweep(|key, meta, state| set.carry_over(key, meta, state, &core.clock));
        }
        core.pin(&set);
        Ok(set.revision)
    }

    /// The limits in force, in their order.
    #[must_use]
    pub fn limits(&self) -> Vec<LimitStatus> {
        let rules = self.core.rules.load();
        let status = |rule: &Arc<Rule>| LimitStatus {
            id: rule.id,
            limit: rule.limit.clone(),
            generation: rule.generation,
            counts: rule.counts.read(),
        };
        rules.rules.iter().map(status).collect()
    }

    /// How the limits of a domain are matched; `None` if there are none.
    #[must_use]
    pub fn domain_kind(&self, domain: &str) -> Option<DomainKind> {
        self.core.rules.load().domain(domain).map(|domain| match domain {
            Domain::Set(_) => DomainKind::Set,
            Domain::Path(_) => DomainKind::Path,
        })
    }

    /// The revision of the limits in force; it grows with every change.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.core.rules.load().revision
    }

    /// The name of a limit in force.
    #[must_use]
    pub fn limit_name(&self, id: LimitId) -> Option<String> {
        self.core.rules.load().rule_of(id).map(|(_, rule)| rule.limit.name().into())
    }

    /// Keys that have a cell, limits' and overrides' own included.
    #[must_use]
    pub fn keys_used(&self) -> u64 {
        self.core.table.used()
    }

    /// The time by this limiter's clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.core.clock.now()
    }

    pub(crate) fn cached_rules(&self) -> Cache<Arc<ArcSwap<RuleSet>>, Arc<RuleSet>> {
        Cache::new(self.core.rules.clone())
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.core.rules.load();
        f.debug_struct("Limiter")
            .field("revision", &rules.revision)
            .field("limits", &rules.rules.len())
            .field("keys_used", &self.keys_used())
            .finish_non_exhaustive()
    }
}

/// A limit in force.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitStatus {
    /// Its id in decisions.
    pub id: LimitId,
    /// The limit.
    pub limit: Limit,
    /// The revision that last changed it.
    pub generation: u64,
    /// What it decided so far.
    pub counts: Counts,
}

impl Core {
    /// Gives every pinned key its cell.
    fn pin(&self, set: &RuleSet) {
        for (key, rule) in set.pinned() {
            let (meta, tuning) = set.tuning_for(rule, key);
            let mut locked = self.table.lock(key);
            let Some(found) = locked.find(key) else {
                let now = locked.starts_at(self.clock.now());
                let state = tuning.meter.as_ref().map_or(0, |meter| meter.fresh(now));
                let is_as_new = |meta, state| set.is_as_new(meta, state, now);
                // `compile` counted the pinned keys, and the table has slots for them.
                let added = locked.add(key, meta, state, now, is_as_new);
                debug_assert!(added.is_ok());
                continue;
            };
            debug_assert_eq!(found.meta, meta, "the sweep came by");
        }
    }
}

/// Such a table takes 3.2 GB of address space.
const KEYS_MAX_MAX: u64 = 100_000_000;
