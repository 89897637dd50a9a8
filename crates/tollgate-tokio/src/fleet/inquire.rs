//! What people ask of the whole fleet through one member: asked of all members at once, and
//! answered in half a second with what has come by then.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant as Tick, timeout_at};
use tollgate::{FleetLimitId, KeyId, NodeId, Part};

use super::Fleet;
use crate::driver::Order;
use crate::keys::{
    Firsts, FleetCounted, FleetShares, Inquiry, KeyPage, KeyParts, KeyQuery, NAMES_MAX, Told, page,
    rows,
};

impl Fleet {
    /// The keys of the fleet in the order that is asked for: what their owners say of them, and of
    /// owners that do not answer in time what workers spent. Takes half a second at most, and costs
    /// each member a look at all its keys.
    ///
    /// Pages go down to [`KeyQuery::KEYS_MAX`] keys; what is behind them is
    /// [omitted](KeyPage::omitted).
    pub async fn keys(&self, query: KeyQuery) -> KeyPage {
        let began = Tick::now();
        let members = self.members();
        let KeyQuery { limit, sort, .. } = query;
        let count = u32::try_from(query.end()).unwrap_or(u32::MAX);
        let owned = Inquiry::Owned { limit, sort, count };
        let (mut told, missing) = self.gather(&members, owned, began + OWNERS_WITHIN).await;
        if !missing.is_empty() {
            let there: Vec<NodeId> = told.iter().map(|(node, _)| *node).collect();
            let spent = Inquiry::Spent { limit, sort, count, owners: missing.clone() };
            told.extend(self.gather(&there, spent, began + WORKERS_WITHIN).await.0);
        }
        let mut page = page(&query, told, missing);
        self.name(&mut page, began + NAMES_WITHIN).await;
        page
    }

    /// What all members counted since their processes began. Takes half a second at most.
    pub async fn counted(&self) -> FleetCounted {
        let within = Tick::now() + NAMES_WITHIN;
        let (told, missing) = self.gather(&self.members(), Inquiry::Counted, within).await;
        let mut counted = FleetCounted { missing, ..FleetCounted::default() };
        for (_, told) in told {
            if let Told::Counted(one) = told {
                counted.all.add(&one);
            }
        }
        counted
    }

    /// How the limits that nodes divide stand, and of each the keys of which most is asked for.
    /// Takes half a second at most, and costs each member two looks at all keys that it divides.
    pub async fn shares(&self) -> FleetShares {
        let began = Tick::now();
        let divided = Inquiry::Divided(FleetShares::KEYS_OF_LIMIT);
        let (told, missing) = self.gather(&self.members(), divided, began + OWNERS_WITHIN).await;
        let mut shares = FleetShares { missing, ..FleetShares::default() };
        let mut firsts = Firsts::new(FleetShares::KEYS_OF_LIMIT);
        for (node, told) in told {
            if let Told::Divided(one) = told {
                one.keys.into_iter().for_each(|key| firsts.add(node, key));
                shares.members.insert(node, one.limits);
            }
        }
        let keys = firsts.rows();
        let there: Vec<NodeId> = shares.members.keys().copied().collect();
        let asked = keys.iter().map(|(_, key)| key.key).take(NAMES_MAX).collect();
        let parts = match keys.is_empty() {
            true => Vec::new(),
            false => self.gather(&there, Inquiry::Parts(asked), began + NAMES_WITHIN).await.0,
        };
        let parts = parts.into_iter().flat_map(|(node, told)| {
            let parts = if let Told::Parts(parts) = told { parts } else { Vec::new() };
            parts.into_iter().map(move |part| (node, part))
        });
        shares.keys = rows(keys, parts);
        shares
    }

    /// The owner of the key of a limit that has these values, by the ring that this member knows;
    /// `None` if no such limit is in force, its key has another number of values, or the member has
    /// left.
    pub async fn owner_of(&self, limit: FleetLimitId, parts: &[Part<'_>]) -> Option<NodeId> {
        let key = self.limiter.fleet_key(limit, parts)?;
        let (answer, answered) = oneshot::channel();
        self.orders.send(Order::Owner(key, answer)).await.ok()?;
        answered.await.ok()?
    }

    /// The members, as this one was last told.
    fn members(&self) -> Vec<NodeId> {
        let status = self.shared.status.borrow();
        let others = status.members.iter().map(|(node, _)| *node);
        others.chain([self.node]).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// What these members answer until then to the same question, and those that do not.
    async fn gather(
        &self,
        of: &[NodeId],
        inquiry: Inquiry,
        until: Tick,
    ) -> (Vec<(NodeId, Told)>, Vec<NodeId>) {
        self.inquire(of.iter().map(|node| (*node, inquiry.clone())).collect(), until).await
    }

    /// What members answer until then, and those that do not.
    async fn inquire(
        &self,
        of: Vec<(NodeId, Inquiry)>,
        until: Tick,
    ) -> (Vec<(NodeId, Told)>, Vec<NodeId>) {
        let mut missing: BTreeSet<NodeId> = of.iter().map(|(node, _)| *node).collect();
        let (answers, mut answered) = mpsc::channel(of.len().max(1));
        let mut told = Vec::new();
        if self.orders.send(Order::Inquire(of, answers)).await.is_ok() {
            while !missing.is_empty()
                && let Ok(Some((from, one))) = timeout_at(until, answered.recv()).await
            {
                if missing.remove(&from) {
                    told.push((from, one));
                }
            }
        }
        (told, missing.into_iter().collect())
    }

    /// Says what the keys of a page are made of, as far as workers tell until then.
    async fn name(&self, page: &mut KeyPage, until: Tick) {
        let mut of: BTreeMap<NodeId, Vec<KeyId>> = BTreeMap::new();
        for row in &page.rows {
            if let Some(worker) = row.worker {
                of.entry(worker).or_default().push(row.key);
            }
        }
        let of = of.into_iter().map(|(node, keys)| (node, Inquiry::Names(keys))).collect();
        let (told, _) = self.inquire(of, until).await;
        let mut names: BTreeMap<KeyId, KeyParts> = BTreeMap::new();
        for (_, told) in told {
            if let Told::Names(of) = told {
                names.extend(of.into_iter().map(|name| (name.key, name.parts)));
            }
        }
        for row in &mut page.rows {
            row.parts = names.remove(&row.key);
        }
    }
}

/// How long owners may take, workers in the place of those that did not answer, and all of it.
const OWNERS_WITHIN: Duration = Duration::from_millis(250);
const WORKERS_WITHIN: Duration = Duration::from_millis(400);
const NAMES_WITHIN: Duration = Duration::from_millis(500);
