//! How limits with the guarantee `share` stand on this node, alone or in a fleet.
//!
//! What other members of a fleet have of them is for `overview` to ask.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate::{FleetLimitId, NodeCounts, ShareLimitStatus};
use tollgate_tokio::ShareRow;

use crate::division::Owners;

/// How what is divided stands, as of a quarter of a second ago at most.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShareStatus {
    /// What the node did.
    pub(crate) counts: NodeCounts,
    /// What it has of each limit.
    pub(crate) limits: BTreeMap<FleetLimitId, ShareLimitStatus>,
    /// How many nodes divide a limit.
    pub(crate) nodes: u64,
    /// The keys of each limit of which most is asked for; none in a fleet, where they are asked of
    /// all members.
    pub(crate) keys: Option<Vec<ShareRow>>,
}

/// Who tells how it stands.
pub(crate) type ShareSource = Arc<dyn Fn() -> ShareStatus + Send + Sync>;

/// What those tell who own the keys that are divided.
pub(crate) fn source(owners: Owners) -> ShareSource {
    Arc::new(move || match &owners {
        Owners::Alone(alone) => {
            let status = alone.status();
            let (counts, limits, keys) = (status.counts, status.limits, Some(status.keys));
            ShareStatus { counts, limits, nodes: 1, keys }
        }
        Owners::Fleet(fleet) => {
            let status = fleet.status();
            let status = status.borrow();
            let nodes = status.ring.len().max(1) as u64;
            let (counts, limits) = (status.counts, status.shares.clone());
            ShareStatus { counts, limits, nodes, keys: None }
        }
    })
}
