//! A node as people look at it: what it did, which keys it has, and how they stand.

use std::collections::BTreeMap;

use crate::division::DividedKey;
use crate::division::worker::SharedKey;
use crate::key::KeyId;
use crate::node::{Node, NodeCounts, ShareLimitStatus};
use crate::policy::FleetLimitId;
use crate::ring::{Member, NodeId};
use crate::time::Instant;
use crate::view::status::{LimitUnits, OwnedKey, SpentKey};
use crate::view::tenure::Charge;

impl Node {
    /// What it did so far.
    #[must_use]
    pub fn counts(&self) -> NodeCounts {
        let members = self.dividing.sums.statuses().map(|(_, of)| of);
        let (starting, sharing, failing) = members.fold((0, 0, 0), |sum, of| {
            (sum.0 + of.starting, sum.1 + of.sharing, sum.2 + of.failing)
        });
        NodeCounts {
            owner: self.owner.counts(),
            division: self.dividing.owner.counts(),
            divided: self.dividing.owner.key_count() as u64,
            starting,
            sharing,
            failing,
            insane: self.dividing.insane,
            owned: self.owner.key_count() as u64,
            views: self.views.len() as u64,
            reports: self.counts.reports,
            batches: self.counts.batches,
            shed: self.load.refused(),
            misdirected: self.counts.misdirected,
            late: self.counts.late,
        }
    }

    /// Units that the fleet has left of a key that this node owns, and units outstanding.
    #[must_use]
    pub fn owned(&self, key: KeyId) -> Option<(u64, u64)> {
        self.owner.key(key).map(|owned| (owned.remaining(), owned.outstanding()))
    }

    /// The keys that it has state of as their owner, but for the first `skip`, in an order that
    /// stays as long as no key comes or goes: whoever must not stand still looks at some at a time.
    pub fn owned_keys(&self, skip: usize, now: Instant) -> impl Iterator<Item = OwnedKey> {
        self.owner.statuses(skip, now).map(move |status| OwnedKey {
            is_in_charge: status.is_in_charge && self.is_in_charge(status.key, now),
            ..status
        })
    }

    /// The keys that it spends from, as [`owned_keys`](Self::owned_keys).
    pub fn spent_keys(&self, skip: usize, now: Instant) -> impl Iterator<Item = SpentKey> {
        self.views.values().skip(skip).map(move |entry| entry.view.status(entry.owner, now))
    }

    /// The keys that it divides, as [`owned_keys`](Self::owned_keys).
    pub fn divided_keys(&self, skip: usize, now: Instant) -> impl Iterator<Item = DividedKey> {
        let nodes = self.nodes();
        self.dividing.owner.statuses(skip, now).map(move |status| {
            let limit = self.rules.share(status.key, status.limit);
            let rate = limit.map_or(0.0, |limit| limit.rate.per_second());
            let floor = rate / status.members.max(nodes) as f64;
            DividedKey { rate, floor, ..status }
        })
    }

    /// How its members of each limit in force that nodes divide fare.
    #[must_use]
    pub fn share_limits(&self) -> BTreeMap<FleetLimitId, ShareLimitStatus> {
        let all = self.dividing.sums.statuses();
        all.filter(|(id, _)| self.rules.shares.contains_key(id)).collect()
    }

    /// The members of divisions that it has, as [`owned_keys`](Self::owned_keys).
    pub fn shared_keys(&self, skip: usize) -> impl Iterator<Item = SharedKey> {
        self.dividing.statuses(skip)
    }

    /// What was counted of each limit in force of which it owns or owned keys, since its process
    /// began.
    #[must_use]
    pub fn limit_units(&self, now: Instant) -> BTreeMap<FleetLimitId, LimitUnits> {
        self.owner.limit_units(now)
    }

    /// Nodes whose reports it applied within the last `ttl_max`.
    #[must_use]
    pub fn reporters(&self, now: Instant) -> usize {
        let ttl_max = self.options.times.ttl_max;
        self.heard.values().filter(|heard| now.saturating_since(heard.at) <= ttl_max).count()
    }

    /// The members of the ring that it knows; none before the first.
    #[must_use]
    pub fn ring_members(&self) -> &[Member] {
        self.tenure.as_ref().map_or(&[], |tenure| tenure.ring().members())
    }

    /// The owner of a key by the ring that it knows.
    #[must_use]
    pub fn owner_of(&self, key: KeyId) -> Option<NodeId> {
        self.tenure.as_ref().and_then(|tenure| tenure.ring().owner(key))
    }

    fn is_in_charge(&self, key: KeyId, now: Instant) -> bool {
        let charge = self.tenure.as_ref().map(|tenure| tenure.charge(key));
        now < self.grants_until && matches!(charge, Some(Charge::Since(began)) if began.at <= now)
    }
}
