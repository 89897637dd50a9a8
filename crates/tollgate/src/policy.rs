//! The limits of the fleet as a node knows them: one cached rule set, replaced by newer ones only.
//!
//! Admission never asks the coordinator. A limit that is not in the cache is unknown, and nothing
//! is admitted under it. It knows neither names nor texts: what a limit says is in `limit`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::guarantee::{ShareMode, default_cap};
use crate::key::KeyId;
use crate::limit::Limit;
use crate::mutant::lacks;
use crate::rate::Rate;

/// Which limit of the fleet: its number in the replicated rule set, never used for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FleetLimitId(pub u32);

/// A limit as owners and workers need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewLimit {
    /// R: units per period.
    pub rate: Rate,
    /// B: units at once after a rest.
    pub burst: u64,
    /// b: the most units that one worker may hold for one key, unless a single cost is above it.
    pub local_cap: u64,
    /// Units that a worker may spend on first contact, before it has heard from the owner. Default
    /// 0; the bound grows by as much for each first contact.
    pub bootstrap: u64,
    /// The revision that last changed the limit.
    pub generation: u64,
}

impl ViewLimit {
    /// A limit with the default local cap: min(B, max(1, 2·R·TTL)) with the TTL of a hot key,
    /// 4 × `sync_interval`.
    ///
    /// 5,000/s at 5 ms: 2 · 5,000/s · 20 ms = 200 units.
    #[must_use]
    pub fn new(rate: Rate, burst: u64, generation: u64, sync_interval: Duration) -> Self {
        let local_cap = default_cap(rate, burst.max(1), sync_interval * TTL_CADENCES);
        Self { rate, burst, local_cap, bootstrap: 0, generation }
    }

    /// N · max(b, c) + R · d: by how much the promise can be exceeded at worst, for N `workers`,
    /// requests that cost c at most, and two owners at once for d. A process that stands still past
    /// the end of its permissions adds nothing to d.
    ///
    /// 20 workers with b = 200, c = 1, 5,000/s and 2.1 s: 4,000 + 10,500 = 14,500.
    #[must_use]
    pub fn envelope(&self, workers: u64, largest_cost: u64, overlap: Duration) -> u64 {
        let held = workers.saturating_mul(self.local_cap.max(largest_cost));
        held.saturating_add(self.rate.brings(overlap))
    }
}

/// A limit of the fleet with what the fleet knows it by.
#[derive(Debug, Clone, PartialEq)]
pub struct Numbered {
    /// The limit.
    pub limit: Limit,
    /// Its number.
    pub number: FleetLimitId,
    /// The revision that last changed it.
    pub generation: u64,
}

/// A limit that nodes divide, as its owners and workers need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareLimit {
    /// R: units per period, of all nodes.
    pub rate: Rate,
    /// B: units at once after a rest, of all nodes.
    pub burst: u64,
    /// What decides.
    pub mode: ShareMode,
    /// The revision that last changed the limit.
    pub generation: u64,
}

/// One revision of the fleet's limits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetRules {
    /// The revision; later ones are greater.
    pub revision: u64,
    /// The limits, each with the revision that last changed it as its generation.
    pub limits: BTreeMap<FleetLimitId, ViewLimit>,
    /// Keys with an allowance of their own.
    pub overrides: BTreeMap<KeyId, FleetOverride>,
    /// The limits that nodes divide.
    pub shares: BTreeMap<FleetLimitId, ShareLimit>,
    /// Keys with an allowance of their own under those, and whose they are.
    pub share_overrides: BTreeMap<KeyId, (FleetLimitId, ShareLimit)>,
}

/// What one key has instead of what its limit says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetOverride {
    /// The limit that it belongs to. Under another one it is nothing.
    pub limit: FleetLimitId,
    /// What the key has; its generation is the limit's.
    pub view: ViewLimit,
}

impl FleetRules {
    /// Puts a newer revision in force. An older one changes nothing.
    pub(crate) fn adopt(&mut self, rules: Self) {
        if rules.revision <= self.revision {
            return;
        }
        let known = std::mem::replace(self, rules);
        if lacks("removed_limit_goes") {
            for (id, limit) in known.limits {
                self.limits.entry(id).or_insert(limit);
            }
        }
    }

    /// What a key has under a limit: its own allowance, or else the limit's; `None` if that limit
    /// is unknown here, or does not meter the key.
    #[must_use]
    pub fn limit(&self, key: KeyId, id: FleetLimitId) -> Option<&ViewLimit> {
        let is_of = |own: &&FleetOverride| own.limit == id || lacks("override_of_any_limit");
        let own = self.overrides.get(&key).filter(is_of);
        own.map(|own| &own.view).or_else(|| self.limits.get(&id))
    }

    /// The same under a limit that nodes divide.
    #[must_use]
    pub fn share(&self, key: KeyId, id: FleetLimitId) -> Option<&ShareLimit> {
        let own = self.share_overrides.get(&key).filter(|(limit, _)| *limit == id);
        own.map(|(_, own)| own).or_else(|| self.shares.get(&id))
    }
}

/// A permission lives for so many cadences.
pub(crate) const TTL_CADENCES: u32 = 4;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_with_an_allowance_of_its_own_has_it_under_its_limit_alone() {
        let (key, other) = (KeyId::from_bits(7, 7), KeyId::from_bits(8, 8));
        let (limit, gone) = (FleetLimitId(1), FleetLimitId(2));
        let rate = Rate::parse("10/s").expect("a rate");
        let view = |burst| ViewLimit::new(rate, burst, 1, Duration::from_millis(5));
        let rules = FleetRules {
            revision: 1,
            limits: BTreeMap::from([(limit, view(10))]),
            overrides: BTreeMap::from([(key, FleetOverride { limit, view: view(50) })]),
            ..FleetRules::default()
        };
        let burst = |key, limit| rules.limit(key, limit).map(|limit| limit.burst);
        assert_eq!((burst(key, limit), burst(other, limit)), (Some(50), Some(10)));
        assert_eq!((burst(key, gone), burst(other, gone)), (None, None));
    }
}
