//! Limits that the nodes of a fleet divide, among those in force: by what their keys are judged
//! here, and what owners and workers are to know of them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::allowance::Allowance;
use crate::cell::TUNINGS_MAX;
use crate::gcra::{Meter, Oversize, line_shift};
use crate::guarantee::ShareMode;
use crate::key::{KeyHashing, KeyId, Secret};
use crate::limit::Limit;
use crate::policy::{FleetLimitId, FleetRules, ShareLimit};
use crate::rules::shared::override_key;
use crate::rules::{Kind, Rule, RuleSet, Tuning};
use crate::shares::{Dividing, Shares};
use crate::time::Instant;

/// A limit that nodes divide.
#[derive(Debug)]
pub(crate) struct Divided {
    pub(crate) number: FleetLimitId,
    pub(crate) shares: Arc<Shares>,
    pub(crate) mode: ShareMode,
    /// What is divided; none if everything passes.
    all: Option<Part>,
    /// The same of keys with an allowance of their own.
    overrides: HashMap<KeyId, Option<Part>, KeyHashing>,
}

/// What is divided of a key, and what is said of one without a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Part {
    pub(crate) dividing: Dividing,
    pub(crate) meter: Meter,
}

impl RuleSet {
    /// Adds what owners and workers need of limits that nodes divide.
    pub(super) fn add_divided(&self, secret: &Secret, rules: &mut FleetRules) {
        for rule in &self.rules {
            let Some(divided) = rule.divided() else { continue };
            let known = |allowance| rule.share_limit(divided, allowance);
            if let Some(limit) = known(rule.limit.allowance()) {
                rules.shares.insert(divided.number, limit);
            }
            for written in rule.limit.overrides() {
                if let Some(limit) = known(written.allowance) {
                    let key = override_key(&rule.salt, secret, written);
                    rules.share_overrides.insert(key, (divided.number, limit));
                }
            }
        }
    }

    /// By what a limit's keys are judged that nodes divide. No state is read by these meters, so
    /// that they have no numbers.
    pub(super) fn divide(
        &self,
        limit: &Limit,
        number: FleetLimitId,
        shares: &Arc<Shares>,
        keys: &[KeyId],
    ) -> (Tuning, Kind) {
        let part = |allowance| Part::of(number, allowance, self.since);
        let (allowance, all) = (limit.allowance(), part(limit.allowance()));
        let own = limit.overrides().iter().map(|written| part(written.allowance));
        let overrides: HashMap<_, _, _> = keys.iter().copied().zip(own).collect();
        let meter = all.map(|all| all.meter);
        let tuning = Tuning { number: TUNINGS_MAX, allowance, meter };
        if all.is_none() && overrides.is_empty() {
            return (tuning, Kind::Open);
        }
        let mode = limit.share_mode().unwrap_or_default();
        let shares = shares.clone();
        (tuning, Kind::Share(Divided { number, shares, mode, all, overrides }))
    }
}

impl Part {
    fn of(limit: FleetLimitId, allowance: Allowance, since: Instant) -> Option<Self> {
        let Allowance::Metered { rate, burst } = allowance else { return None };
        let (per_second, shift) = (rate.per_second(), raisable(line_shift(rate, burst)));
        let dividing = Dividing { limit, per_second, burst, shift };
        Some(Self { dividing, meter: Meter::new(rate, burst, Oversize::Never, since).estimating() })
    }
}

/// Cells keep their granules when the limit is changed: they are large enough for a thousand times
/// the rate, as far as a token has granules to spare.
fn raisable(shift: i8) -> i8 {
    shift.min((shift - RAISE_BITS).max(0))
}

/// A rate may be raised 2^10 times while a cell is in use.
const RAISE_BITS: i8 = 10;

impl Divided {
    /// What is divided of a key; none if everything passes.
    #[inline]
    pub(crate) fn part(&self, key: KeyId) -> Option<&Part> {
        if self.overrides.is_empty() {
            return self.all.as_ref();
        }
        self.overrides.get(&key).unwrap_or(&self.all).as_ref()
    }
}

impl Rule {
    /// What it is to the nodes that divide it, if they do.
    #[inline]
    pub(crate) fn divided(&self) -> Option<&Divided> {
        match &self.kind {
            Kind::Share(divided) => Some(divided),
            Kind::Open | Kind::Rate | Kind::Credit(_) | Kind::Count(_) => None,
        }
    }

    /// What nodes divide of it, if they do.
    pub(crate) fn share(&self) -> Option<(FleetLimitId, ShareLimit)> {
        let divided = self.divided()?;
        Some((divided.number, self.share_limit(divided, self.limit.allowance())?))
    }

    fn share_limit(&self, divided: &Divided, allowance: Allowance) -> Option<ShareLimit> {
        let Allowance::Metered { rate, burst } = allowance else { return None };
        Some(ShareLimit { rate, burst, mode: divided.mode, generation: self.generation })
    }
}
