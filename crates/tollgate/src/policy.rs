//! The limits of the fleet as a node knows them: one cached rule set, replaced by newer ones only.
//!
//! Admission never asks the coordinator. A limit that is not in the cache is unknown, and nothing
//! is admitted under it.

use std::collections::BTreeMap;

use crate::mutant::lacks;
use crate::view::{FleetLimitId, ViewLimit};

/// One revision of the fleet's limits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetRules {
    /// The revision; later ones are greater.
    pub revision: u64,
    /// The limits, each with the revision that last changed it as its generation.
    pub limits: BTreeMap<FleetLimitId, ViewLimit>,
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

    /// A limit as it is known here.
    #[must_use]
    pub fn limit(&self, id: FleetLimitId) -> Option<&ViewLimit> {
        self.limits.get(&id)
    }
}
