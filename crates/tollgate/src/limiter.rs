//! The type that users touch: made of limits, asked for decisions, given other limits.
//!
//! It owns the rule set, the table and the clock; how it decides is in `decide` and `charge`.

use std::fmt;
use std::sync::{Arc, PoisonError};

use arc_swap::{ArcSwap, Cache};

use crate::cell::{Mutex, Number};
use crate::charge::{Core, NONE_IN_FORCE, TableFull};
use crate::counts::Counts;
use crate::credits::Credits;
use crate::decide::unlimited;
use crate::decision::{Decision, LimitId};
use crate::fleet::{Arrival, Divided, Membership, NewNames};
use crate::key::{KeyId, Part, Secret};
use crate::limit::{Limit, LimitError};
use crate::policy::{FleetLimitId, FleetRules, Numbered, ShareLimit, ViewLimit};
use crate::request::Request;
use crate::rules::{Domain, DomainKind, Draft, Rule, RuleSet, Stores, TallyRules};
use crate::shares::Shares;
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
    /// What makes keys' identities unpredictable; equal on all nodes of a fleet.
    pub secret: Secret,
    /// Whether it is a member of a fleet: it then takes its limits
    /// [with their numbers](Limiter::replace_numbered), and decides those with the guarantee
    /// `eventual` by [credit](Limiter::credits). Up to `keys_max` keys, an eighth more and 64 have
    /// a cell of credit besides the others; see [`Credits::new`] for what they take.
    pub fleet: bool,
    /// Whether limits with the guarantee `tally` are counted in a store, by whoever drains their
    /// [cells](Limiter::tally): as many keys have one as in a fleet. Without it they are limits of
    /// this process alone.
    pub tally: bool,
    /// Whether limits with the guarantee `share` are divided, by whoever collects what was counted
    /// in their [cells](Limiter::shares): as many keys have one as in a fleet. Without it they are
    /// limits of this process alone.
    pub share: bool,
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
            fleet: false,
            tally: false,
            share: false,
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
        let Options { keys_max, table_full, clock, secret, fleet, tally, share } = options;
        let core = Core {
            rules: Arc::new(ArcSwap::from_pointee(RuleSet::default())),
            table: Table::new(keys_max),
            clock,
            secret,
            table_full,
            revision: Number::default(),
            keys_max,
            changing: Mutex::new(()),
            member: fleet.then(|| Membership::new(keys_max)),
            tally: tally.then(|| Membership::new(keys_max)),
            share: share.then(|| Divided::new(keys_max)),
        };
        let limiter = Self { core: Arc::new(core) };
        // Those of a fleet come with numbers.
        if !fleet || !limits.is_empty() {
            limiter.replace(limits)?;
        }
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
    /// A tool for people: the bound starts anew for these keys. Keys that a fleet shares stay as
    /// they are: what they used is known elsewhere.
    pub fn reset(&self, request: &Request<'_>) {
        let core = &*self.core;
        let rules = core.rules.load();
        let now = core.clock.now();
        core.each_want(&rules, request, |want| {
            if rules.rules[want.rule as usize].is_others() {
                return;
            }
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
    /// overrides than `keys_max` has room for; when it is a member of a fleet, whose limits have
    /// [numbers](Self::replace_numbered). The limits that were in force stay in force.
    pub fn replace(&self, limits: Vec<Limit>) -> Result<u64, LimitError> {
        let core = &*self.core;
        let _changing = core.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if core.member.is_some() {
            let reason = "a member of a fleet takes limits with their numbers";
            return Err(LimitError::of_options("fleet", "true".into(), reason));
        }
        let before = core.rules.load_full();
        let draft = Draft::new(limits, &before, &core.secret, core.keys_max)?;
        Ok(core.put_in_force(draft, &before).revision)
    }

    /// Puts a revision of the fleet's limits in force, as [`replace`](Self::replace) does with
    /// limits of one process, and returns what the node is to be told of it: those of guarantee
    /// `eventual` that are not unlimited, and keys with an allowance of their own under them. Until
    /// it is first called everything is allowed.
    ///
    /// A revision that is not newer than the one in force changes nothing, and what that one says
    /// is returned. Cells of credit stay as they are; those of a limit that is gone are no
    /// request's any more, and leave when the node lets them.
    ///
    /// # Errors
    /// As for [`replace`](Self::replace); when two limits have one number; when it is no member of
    /// a fleet. The limits that were in force stay in force.
    pub fn replace_numbered(
        &self,
        limits: Vec<Numbered>,
        revision: u64,
    ) -> Result<FleetRules, LimitError> {
        let core = &*self.core;
        let _changing = core.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(member) = &core.member else {
            let reason = "only a member of a fleet takes limits with numbers";
            return Err(LimitError::of_options("fleet", "false".into(), reason));
        };
        let before = core.rules.load_full();
        if revision <= before.revision {
            return Ok(before.of_fleet(&core.secret));
        }
        let credits = &member.credits;
        let (secret, keys_max) = (&core.secret, core.keys_max);
        let draft = Draft::numbered(limits, revision, credits, &before, secret, keys_max)?;
        Ok(core.put_in_force(draft, &before).of_fleet(secret))
    }

    /// The cells of credit, if it is a member of a fleet: what its driver drains and permits.
    #[must_use]
    pub fn credits(&self) -> Option<&Arc<Credits>> {
        self.core.member.as_ref().map(|member| &member.credits)
    }

    /// The cells of keys that are counted in a store, if there is one.
    #[must_use]
    pub fn tally(&self) -> Option<&Arc<Credits>> {
        self.core.tally.as_ref().map(|tally| &tally.credits)
    }

    /// What whoever drains those cells is to know of the limits in force.
    #[must_use]
    pub fn tally_rules(&self) -> TallyRules {
        self.core.rules.load().of_stores(&self.core.secret)
    }

    /// As [`take_arrivals`](Self::take_arrivals), of keys that are counted in a store.
    #[must_use]
    pub fn take_tally_arrivals(&self) -> Vec<Arrival> {
        self.core.tally.as_ref().map(|of| of.names.take()).unwrap_or_default()
    }

    /// The cells of keys that nodes divide, if they do.
    #[must_use]
    pub fn shares(&self) -> Option<&Arc<Shares>> {
        self.core.share.as_ref().map(|share| &share.shares)
    }

    /// What owners and workers are to know of the limits in force that the fleet shares or divides.
    #[must_use]
    pub fn fleet_rules(&self) -> FleetRules {
        self.core.rules.load().of_fleet(&self.core.secret)
    }

    /// The limits that apply to a request and that nodes divide, with its keys under them; and
    /// whether others apply that are metered. Charges nothing; shadows do not count.
    #[must_use]
    pub fn divided(&self, request: &Request<'_>) -> (Vec<DividedLimit>, bool) {
        let core = &*self.core;
        let rules = core.rules.load();
        let (mut found, mut others) = (Vec::new(), false);
        core.each_want(&rules, request, |want| {
            let rule = &rules.rules[want.rule as usize];
            if rule.limit.is_shadow() {
                return;
            }
            match rule.divided() {
                Some(divided) => found.extend(divided.part(want.key).map(|part| DividedLimit {
                    limit: divided.number,
                    key: want.key,
                    burst: part.dividing.burst,
                })),
                None => others = true,
            }
        });
        (found, others)
    }

    /// As [`take_arrivals`](Self::take_arrivals), of keys that nodes divide.
    #[must_use]
    pub fn take_share_arrivals(&self) -> Vec<Arrival> {
        self.core.share.as_ref().map(|of| of.names.take()).unwrap_or_default()
    }

    /// The names of the keys that have got a cell of credit since the last time. At most 65,536 of
    /// them with 16 MiB of values are kept; of more the names are lost.
    #[must_use]
    pub fn take_arrivals(&self) -> Vec<Arrival> {
        self.core.member.as_ref().map(|of| of.names.take()).unwrap_or_default()
    }

    /// How many names were lost.
    #[must_use]
    pub fn arrivals_dropped(&self) -> u64 {
        let core = &*self.core;
        let names = [
            core.member.as_ref().map(|of| &of.names),
            core.tally.as_ref().map(|of| &of.names),
            core.share.as_ref().map(|of| &of.names),
        ];
        names.into_iter().flatten().map(NewNames::dropped).sum()
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
            of_fleet: rule.of_fleet(),
            divided: rule.share(),
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

    /// The identity of a key of the fleet's limit `number` with these values, in the order of the
    /// limit's key. `None` if no such limit is in force, or its key has another number of values;
    /// of a path it has those that its patterns take from a request.
    #[must_use]
    pub fn fleet_key(&self, number: FleetLimitId, parts: &[Part<'_>]) -> Option<KeyId> {
        let rules = self.core.rules.load();
        let is_it = |rule: &&Arc<Rule>| {
            rule.shared().is_some_and(|of| of.number == number)
                || rule.divided().is_some_and(|of| of.number == number)
        };
        let rule = rules.rules.iter().find(is_it)?;
        let is_path = rule.limit.path_steps().next().is_some();
        (is_path || rule.limit.key().len() == parts.len())
            .then(|| rule.key_with(&self.core.secret, parts))
    }

    /// Keys that have a cell, limits' and overrides' own included, and those of credit.
    #[must_use]
    pub fn keys_used(&self) -> u64 {
        let used = |credits: Option<&Arc<Credits>>| credits.map_or(0, |credits| credits.used());
        let divided = self.shares().map_or(0, |shares| shares.used());
        self.core.table.used() + used(self.credits()) + used(self.tally()) + divided
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

/// A limit that nodes divide, and a key of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DividedLimit {
    /// The limit.
    pub limit: FleetLimitId,
    /// The key.
    pub key: KeyId,
    /// Units at once that all nodes have of the key.
    pub burst: u64,
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
    /// What the whole fleet knows of it, if it shares it and it is metered.
    pub of_fleet: Option<(FleetLimitId, ViewLimit)>,
    /// What nodes divide of it, if they do and it is metered.
    pub divided: Option<(FleetLimitId, ShareLimit)>,
}

impl Core {
    fn put_in_force(&self, draft: Draft, before: &RuleSet) -> Arc<RuleSet> {
        let stores = Stores {
            tally: self.tally.as_ref().map(|tally| &tally.credits),
            shares: self.share.as_ref().map(|share| &share.shares),
        };
        // From here on nothing takes long: between this reading and the store the rates before go
        // on.
        let set = Arc::new(draft.at(self.clock.now(), before, stores));
        self.rules.store(set.clone());
        self.revision.set(if set.rules.is_empty() { NONE_IN_FORCE } else { set.revision });
        if set.changes_keys_of(before) {
            self.table.sweep(|key, meta, state| set.carry_over(key, meta, state, &self.clock));
        }
        self.pin(&set);
        set
    }

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
