//! The fleet as people look at it through this member: who is there, what is promised, and what was
//! observed beside it.
//!
//! How members ask each other is not known here; whoever answers is handed in.

use std::time::Duration;

use tollgate::{FleetLimitId, LimitStatus, LimitUnits, NodeId, ViewLimit, ViewTimes};
use tollgate_tokio::{
    DelayCounts, FleetCounted, FleetShares, KeyPage, KeyParts, KeyQuery, MemberStatus,
};

use crate::agreement::Later;

/// What a member of a fleet can tell.
pub(crate) trait Overview: Send + Sync {
    /// How this member fares, as of a quarter of a second ago at most, and under the ring it knows.
    fn status(&self) -> MemberStatus;

    /// The fleet's number.
    fn fleet(&self) -> u64;

    /// The times that the whole fleet shares.
    fn times(&self) -> ViewTimes;

    /// From sending a batch of reports to having its answer.
    fn report_delays(&self) -> DelayCounts;

    /// How old what a permission stands on was when the permission came.
    fn snapshot_delays(&self) -> DelayCounts;

    /// What all members counted, as far as they answer in half a second.
    fn counted(&self) -> Later<'_, FleetCounted>;

    /// How limits that nodes divide stand, as far as members answer in half a second.
    fn shares(&self) -> Later<'_, FleetShares>;

    /// Keys of the fleet, as far as members answer in half a second.
    fn keys(&self, query: KeyQuery) -> Later<'_, KeyPage>;

    /// Who owns a key of a limit.
    fn owner_of(&self, limit: FleetLimitId, parts: KeyParts) -> Later<'_, Option<NodeId>>;
}

/// A limit that the whole fleet shares: its promise, and by how much it can be exceeded.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Promised {
    pub(crate) status: LimitStatus,
    pub(crate) number: FleetLimitId,
    pub(crate) view: ViewLimit,
    /// N: members that decide.
    pub(crate) workers: u64,
    /// c: the largest cost that a worker waited for, if that is above the local cap; 1 otherwise.
    pub(crate) largest_cost: u64,
    /// N · max(b, c) + R · d for the longest overlap that is planned for.
    pub(crate) possible: u64,
    /// The same for what has happened; 0 while no two owners overlapped and nothing was spent late.
    pub(crate) observed: u64,
}

/// What has happened that the promise makes an exception for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mishaps {
    /// The longest time that two owners were in charge at once; zero if they never were.
    pub(crate) overlapped: Duration,
    /// Units that may have been spent when their permission was over, a process having stood still.
    pub(crate) late: u64,
}

impl Promised {
    /// A limit in force, if the whole fleet shares it. `units` is what owners counted of it.
    pub(crate) fn of(
        status: &LimitStatus,
        units: impl Fn(FleetLimitId) -> LimitUnits,
        workers: u64,
        mishaps: Mishaps,
        times: &ViewTimes,
    ) -> Option<Self> {
        let (number, view) = status.of_fleet?;
        let largest_cost = units(number).cost_max.max(1);
        let envelope = |overlap| view.envelope(workers, largest_cost, overlap);
        let Mishaps { overlapped, late } = mishaps;
        let observed = if !overlapped.is_zero() {
            // What an owner permits outlives its time in charge.
            envelope(overlapped.saturating_add(times.ttl_max))
        } else if late > 0 {
            envelope(Duration::ZERO)
        } else {
            0
        };
        let possible = envelope(times.overlap());
        let status = status.clone();
        Some(Self { status, number, view, workers, largest_cost, possible, observed })
    }
}

/// A member without a fleet, for tests.
#[cfg(test)]
#[derive(Debug, Clone, Default)]
pub(crate) struct Told {
    pub(crate) status: MemberStatus,
    pub(crate) counted: FleetCounted,
    pub(crate) shares: FleetShares,
    pub(crate) page: KeyPage,
    /// The last query.
    pub(crate) asked: std::sync::Arc<std::sync::Mutex<Option<KeyQuery>>>,
}

#[cfg(test)]
impl Overview for Told {
    fn status(&self) -> MemberStatus {
        self.status.clone()
    }

    fn fleet(&self) -> u64 {
        0xf1ee7
    }

    fn times(&self) -> ViewTimes {
        ViewTimes::default()
    }

    fn report_delays(&self) -> DelayCounts {
        let buckets = vec![(Duration::from_millis(1), 3), (Duration::MAX, 1)];
        DelayCounts { buckets, sum: Duration::from_millis(2_000) }
    }

    fn snapshot_delays(&self) -> DelayCounts {
        DelayCounts::default()
    }

    fn counted(&self) -> Later<'_, FleetCounted> {
        Box::pin(std::future::ready(self.counted.clone()))
    }

    fn shares(&self) -> Later<'_, FleetShares> {
        Box::pin(std::future::ready(self.shares.clone()))
    }

    fn keys(&self, query: KeyQuery) -> Later<'_, KeyPage> {
        *self.asked.lock().expect("no test panicked in it") = Some(query);
        Box::pin(std::future::ready(self.page.clone()))
    }

    fn owner_of(&self, _: FleetLimitId, parts: KeyParts) -> Later<'_, Option<NodeId>> {
        let owner = parts.first().cloned().flatten().map(|value| NodeId::new(value.len() as u32));
        Box::pin(std::future::ready(owner))
    }
}

#[cfg(test)]
mod tests {
    use tollgate::{Limit, LimitSpec, Limiter, Numbered, Options};

    use super::*;

    fn shared() -> LimitStatus {
        let spec = LimitSpec {
            name: "api",
            key: &["tenant"],
            rate: "1000/s",
            guarantee: "eventual",
            ..LimitSpec::DEFAULT
        };
        let limit = Limit::parse(&spec).expect("a limit");
        let limiter = Limiter::new(Vec::new(), Options { fleet: true, ..Options::default() });
        let limiter = limiter.expect("sound options");
        let numbered = Numbered { limit, number: FleetLimitId(4), generation: 1 };
        let _ = limiter.replace_numbered(vec![numbered], 1).expect("sound limits");
        limiter.limits().remove(0)
    }

    fn promised(overlapped: u64, late: u64, cost_max: u64) -> Promised {
        let units = |_| LimitUnits { cost_max, ..LimitUnits::default() };
        let mishaps = Mishaps { overlapped: Duration::from_millis(overlapped), late };
        let times = ViewTimes::default();
        Promised::of(&shared(), units, 5, mishaps, &times).expect("it is the fleet's")
    }

    #[test]
    fn the_envelope_stands_on_live_values_and_is_nothing_while_nothing_has_happened() {
        // b = 2 · 1,000/s · 20 ms = 40; 5 · 40 + 1,000/s · 2.1 s
        let promised_at = |overlapped, late, cost_max| {
            let promised = promised(overlapped, late, cost_max);
            (promised.possible, promised.observed)
        };
        assert_eq!(promised_at(0, 0, 0), (2_300, 0));
        assert_eq!(promised_at(0, 3, 0), (2_300, 200));
        // 300 ms and the 400 ms that a permission may live.
        assert_eq!(promised_at(300, 3, 0), (2_300, 900));
        // A request of 100 is given 100 though b is 40.
        assert_eq!(promised_at(0, 3, 100), (2_600, 500));
    }
}
