//! Limits that a fleet counts in a store, among those in force: by what their keys are judged here,
//! and what whoever writes and reads their counts is to know of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::allowance::Allowance;
use crate::cell::TUNINGS_MAX;
use crate::credits::Credits;
use crate::decision::LimitId;
use crate::gcra::{Meter, Oversize};
use crate::key::{KeyHashing, KeyId, Secret};
use crate::limit::Limit;
use crate::policy::FleetLimitId;
use crate::rules::shared::override_key;
use crate::rules::{Kind, Rule, RuleSet, Tuning};
use crate::tally::{Leak, Meets, OnStale, Window};
use crate::time::Instant;

/// A limit that a fleet counts in a store.
#[derive(Debug)]
pub(crate) struct Tallied {
    /// What its cells have as their limit's number.
    pub(crate) number: FleetLimitId,
    pub(crate) credits: Arc<Credits>,
    /// By what keys are judged; none if everything passes.
    all: Option<Counting>,
    /// The same of keys with an allowance of their own.
    overrides: HashMap<KeyId, Option<Counting>, KeyHashing>,
}

/// By what a key is judged, and what is said of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counting {
    pub(crate) leak: Leak,
    pub(crate) meter: Meter,
}

/// What whoever writes and reads counts is to know of the limits in force.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TallyRules {
    /// The revision; later ones are greater.
    pub revision: u64,
    /// The limits, by the number that [`Drained`](crate::Drained) has.
    pub limits: BTreeMap<FleetLimitId, TallyLimit>,
}

/// A limit as whoever writes and reads its counts needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TallyLimit {
    /// Its domain.
    pub domain: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its id in decisions.
    pub id: LimitId,
    /// Its windows; none if it meters no key, or lets nothing pass.
    pub window: Option<Window>,
    /// What it says of outages.
    pub on_stale: OnStale,
    /// The windows of keys with an allowance of their own.
    pub overrides: BTreeMap<KeyId, Option<Window>>,
}

impl TallyLimit {
    /// The windows of a key; none if it is not metered, or nothing of it passes.
    #[must_use]
    pub fn window_of(&self, key: KeyId) -> Option<Window> {
        self.overrides.get(&key).copied().unwrap_or(self.window)
    }
}

impl RuleSet {
    /// What whoever writes and reads the counts of limits needs.
    pub(crate) fn of_stores(&self, secret: &Secret) -> TallyRules {
        let mut rules = TallyRules { revision: self.revision, ..TallyRules::default() };
        for rule in &self.rules {
            let Some(tallied) = rule.tallied() else { continue };
            let limit = &rule.limit;
            let own = |written| override_key(&rule.salt, secret, written);
            let overrides = limit.overrides().iter();
            let known = TallyLimit {
                domain: limit.domain().into(),
                name: limit.name().into(),
                id: rule.id,
                window: limit.window_of(limit.allowance()),
                on_stale: limit.on_stale().unwrap_or_default(),
                overrides: overrides
                    .map(|written| (own(written), limit.window_of(written.allowance)))
                    .collect(),
            };
            rules.limits.insert(tallied.number, known);
        }
        rules
    }

    /// By what a limit's keys are judged that are counted in a store. No state is read by these
    /// meters, so that they have no numbers.
    pub(super) fn tally(
        &self,
        limit: &Limit,
        number: FleetLimitId,
        credits: &Arc<Credits>,
        keys: &[KeyId],
    ) -> (Tuning, Kind) {
        let counting = |allowance| Counting::of(limit, allowance, self.since);
        let (allowance, all) = (limit.allowance(), counting(limit.allowance()));
        let own = limit.overrides().iter().map(|written| counting(written.allowance));
        let overrides: HashMap<_, _, _> = keys.iter().copied().zip(own).collect();
        let meter = all.map(|all| all.meter);
        let tuning = Tuning { number: TUNINGS_MAX, allowance, meter };
        if all.is_none() && overrides.is_empty() {
            return (tuning, Kind::Open);
        }
        (tuning, Kind::Count(Tallied { number, credits: credits.clone(), all, overrides }))
    }
}

impl Counting {
    fn of(limit: &Limit, allowance: Allowance, since: Instant) -> Option<Self> {
        let Allowance::Metered { rate, .. } = allowance else { return None };
        let leak = match limit.window_of(allowance) {
            Some(window) => Leak::new(window),
            None => Leak::closed(Window::SHORTEST),
        };
        // It only tells what is left, and when: rounded where its granules are several units.
        let burst = leak.whole() - leak.whole() % Meter::granule(rate);
        let meter = Meter::new(rate, burst, Oversize::Never, since).counting();
        Some(Self { leak, meter })
    }
}

impl Tallied {
    /// By what a key is judged; none if everything passes.
    #[inline]
    pub(crate) fn counting(&self, key: KeyId) -> Option<&Counting> {
        if self.overrides.is_empty() {
            return self.all.as_ref();
        }
        self.overrides.get(&key).unwrap_or(&self.all).as_ref()
    }
}

impl Rule {
    /// What it is to the store in which its keys are counted, if they are.
    #[inline]
    pub(crate) fn tallied(&self) -> Option<&Tallied> {
        match &self.kind {
            Kind::Count(tallied) => Some(tallied),
            Kind::Open | Kind::Rate | Kind::Credit(_) | Kind::Share(_) => None,
        }
    }

    /// Whether others have a say in its keys' cells.
    pub(crate) fn is_others(&self) -> bool {
        matches!(self.kind, Kind::Credit(_) | Kind::Count(_) | Kind::Share(_))
    }

    /// The cells of its keys, if they are credit or counted in a store.
    #[inline]
    pub(crate) fn credits(&self) -> Option<&Arc<Credits>> {
        match &self.kind {
            Kind::Credit(shared) => Some(&shared.credits),
            Kind::Count(tallied) => Some(&tallied.credits),
            Kind::Open | Kind::Rate | Kind::Share(_) => None,
        }
    }
}

impl Window {
    /// One unit in a second.
    const SHORTEST: Self = Self::of_second(Meets::Passes);
}
