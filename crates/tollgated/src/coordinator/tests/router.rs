//! A network in one process, in virtual time: messages take a while, and may be cut off.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use openraft::type_config::TypeConfigExt;
use tollgate::NodeId;

use super::random::Random;
use crate::coordinator::types::Types;
use crate::coordinator::{CallError, Network, Peer, Replica};

/// All replicas, by address.
pub(super) struct Router<C: Types>(Arc<Mutex<Inner<C>>>);

struct Inner<C: Types> {
    replicas: BTreeMap<String, Replica<Wire<C>, C>>,
    /// Whose messages are lost, whichever way they go.
    isolated: BTreeSet<NodeId>,
    random: Random,
}

impl<C: Types> Clone for Router<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C: Types> Router<C> {
    pub(super) fn new(seed: u64) -> Self {
        let (replicas, isolated, random) = (BTreeMap::new(), BTreeSet::new(), Random::new(seed));
        Self(Arc::new(Mutex::new(Inner { replicas, isolated, random })))
    }

    /// The network as `from` sees it.
    pub(super) fn wire(&self, from: NodeId) -> Wire<C> {
        Wire { router: self.clone(), from }
    }

    pub(super) fn connect(&self, address: &str, replica: Replica<Wire<C>, C>) {
        self.inner().replicas.insert(address.to_owned(), replica);
    }

    pub(super) fn disconnect(&self, address: &str) {
        self.inner().replicas.remove(address);
    }

    /// The replicas that run.
    pub(super) fn replicas(&self) -> Vec<Replica<Wire<C>, C>> {
        self.inner().replicas.values().cloned().collect()
    }

    pub(super) fn isolate(&self, node: NodeId) {
        self.inner().isolated.insert(node);
    }

    pub(super) fn rejoin(&self, node: NodeId) {
        self.inner().isolated.remove(&node);
    }

    pub(super) fn heal(&self) {
        self.inner().isolated.clear();
    }

    fn inner(&self) -> MutexGuard<'_, Inner<C>> {
        self.0.lock().expect("no test panics while it holds the lock")
    }

    /// A message arrives, unless a side is cut off before it does.
    async fn travel(&self, from: NodeId, to: NodeId) {
        let delay = Duration::from_micros(200 + self.inner().random.below(4_000));
        C::sleep(delay).await;
        let is_cut = {
            let inner = self.inner();
            inner.isolated.contains(&from) || inner.isolated.contains(&to)
        };
        if is_cut {
            std::future::pending::<()>().await;
        }
    }
}

/// The network as one replica sees it.
pub(super) struct Wire<C: Types> {
    router: Router<C>,
    from: NodeId,
}

impl<C: Types> Clone for Wire<C> {
    fn clone(&self) -> Self {
        Self { router: self.router.clone(), from: self.from }
    }
}

impl<C: Types> Network for Wire<C> {
    async fn call(&self, peer: &Peer, request: Vec<u8>) -> Result<Vec<u8>, CallError> {
        self.router.travel(self.from, peer.node).await;
        let replica = self.router.inner().replicas.get(&peer.address).cloned();
        let Some(replica) = replica else {
            return Err(CallError::NotSent(String::from("nobody is there")));
        };
        let answer = replica.answer(&request).await;
        self.router.travel(peer.node, self.from).await;
        Ok(answer)
    }
}
