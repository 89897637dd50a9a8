//! The fleet as its member sees it, asked of that member's handle.

use tollgate::{FleetLimitId, NodeId, Part, ViewTimes};
use tollgate_tokio::{
    DelayCounts, Fleet, FleetCounted, FleetShares, KeyPage, KeyParts, KeyQuery, MemberStatus,
};

use crate::agreement::Later;
use crate::overview::Overview;

/// A fleet, as its member reaches it.
#[derive(Debug, Clone)]
pub(crate) struct FleetOverview(Fleet);

impl FleetOverview {
    pub(crate) fn new(fleet: Fleet) -> Self {
        Self(fleet)
    }
}

impl Overview for FleetOverview {
    fn status(&self) -> MemberStatus {
        self.0.status().borrow().clone()
    }

    fn fleet(&self) -> u64 {
        self.0.fleet()
    }

    fn times(&self) -> ViewTimes {
        self.0.times()
    }

    fn report_delays(&self) -> DelayCounts {
        self.0.report_delays()
    }

    fn snapshot_delays(&self) -> DelayCounts {
        self.0.snapshot_delays()
    }

    fn counted(&self) -> Later<'_, FleetCounted> {
        Box::pin(self.0.counted())
    }

    fn shares(&self) -> Later<'_, FleetShares> {
        Box::pin(self.0.shares())
    }

    fn keys(&self, query: KeyQuery) -> Later<'_, KeyPage> {
        Box::pin(self.0.keys(query))
    }

    fn owner_of(&self, limit: FleetLimitId, parts: KeyParts) -> Later<'_, Option<NodeId>> {
        Box::pin(async move {
            let values = parts.iter().map(Option::as_deref);
            let parts: Vec<Part<'_>> =
                values.map(|value| value.map_or(Part::Undeclared, Part::Text)).collect();
            self.0.owner_of(limit, &parts).await
        })
    }
}
