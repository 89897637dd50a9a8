//! Limits of the whole fleet among those in force: what decides about their keys here, and what
//! their owners are to know of them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::allowance::Allowance;
use crate::cell::TUNINGS_MAX;
use crate::credits::Credits;
use crate::gcra::Meter;
use crate::guarantee::Sharing;
use crate::key::{KeyHashing, KeyId, Part, Salt, Secret};
use crate::limit::{Limit, Override};
use crate::policy::{FleetLimitId, FleetOverride, FleetRules, ViewLimit};
use crate::rules::draft::OfFleet;
use crate::rules::{Kind, Rule, RuleSet, Tuning};

/// A limit of the whole fleet.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) number: FleetLimitId,
    pub(crate) credits: Arc<Credits>,
    /// The meters of keys with an allowance of their own; none if everything passes.
    overrides: HashMap<KeyId, Option<Meter>, KeyHashing>,
}

impl RuleSet {
    /// What owners and workers need of the limits that the whole fleet shares.
    pub(crate) fn of_fleet(&self, secret: &Secret) -> FleetRules {
        let mut rules = FleetRules { revision: self.revision, ..FleetRules::default() };
        for rule in &self.rules {
            let Some(Shared { number, .. }) = rule.shared() else { continue };
            let number = *number;
            rules.limits.extend(rule.of_fleet());
            for written in rule.limit.overrides() {
                let view = rule.view(written.allowance, written.sharing);
                let key = override_key(&rule.salt, secret, written);
                let own = view.map(|view| (key, FleetOverride { limit: number, view }));
                rules.overrides.extend(own);
            }
        }
        self.add_divided(secret, &mut rules);
        rules
    }

    /// What is said of a limit's keys that are decided by credit. No state is read by these meters,
    /// so that they have no numbers.
    pub(super) fn share(&self, limit: &Limit, of_fleet: OfFleet, keys: &[KeyId]) -> (Tuning, Kind) {
        let meter = |allowance| match allowance {
            Allowance::Unlimited => None,
            Allowance::Metered { rate, burst } => {
                Some(Meter::new(rate, burst, limit.oversize(), self.since).estimating())
            }
        };
        let allowance = limit.allowance();
        let tuning = Tuning { number: TUNINGS_MAX, allowance, meter: meter(allowance) };
        let own = limit.overrides().iter().map(|written| meter(written.allowance));
        let overrides: HashMap<_, _, _> = keys.iter().copied().zip(own).collect();
        let is_open = tuning.meter.is_none() && overrides.is_empty();
        let OfFleet { number, credits, .. } = of_fleet;
        let shared = Shared { number, credits, overrides };
        (tuning, if is_open { Kind::Open } else { Kind::Credit(shared) })
    }
}

impl Rule {
    /// What it is in the fleet, if its keys are decided by credit.
    #[inline]
    pub(crate) fn shared(&self) -> Option<&Shared> {
        match &self.kind {
            Kind::Credit(shared) => Some(shared),
            Kind::Open | Kind::Rate | Kind::Count(_) | Kind::Share(_) => None,
        }
    }

    /// What owners and workers need of it, if the whole fleet shares it and it is metered.
    pub(crate) fn of_fleet(&self) -> Option<(FleetLimitId, ViewLimit)> {
        let view = self.view(self.limit.allowance(), self.limit.sharing())?;
        self.shared().map(|shared| (shared.number, view))
    }

    fn view(&self, allowance: Allowance, sharing: Option<Sharing>) -> Option<ViewLimit> {
        let generation = self.generation;
        match (allowance, sharing) {
            (Allowance::Metered { rate, burst }, Some(Sharing { local_cap, bootstrap })) => {
                Some(ViewLimit { rate, burst, local_cap, bootstrap, generation })
            }
            (Allowance::Metered { .. } | Allowance::Unlimited, _) => None,
        }
    }

    /// By what a key is judged that is decided by credit; none if everything passes.
    #[inline]
    pub(crate) fn shared_meter<'r>(&'r self, shared: &'r Shared, key: KeyId) -> Option<&'r Meter> {
        if shared.overrides.is_empty() {
            return self.tuning.meter.as_ref();
        }
        shared.overrides.get(&key).unwrap_or(&self.tuning.meter).as_ref()
    }
}

pub(super) fn override_key(salt: &Salt, secret: &Secret, written: &Override) -> KeyId {
    salt.key(secret, written.parts.iter().map(|part| Part::from(&**part)))
}
