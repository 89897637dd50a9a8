//! How the voters become others, one step at a time.
//!
//! A newcomer is told everything before it votes, so that a change never waits for a replica that
//! knows nothing; old and new voters decide together until the change is done. Who should vote is
//! `steward`'s to decide. A change that was begun and not finished is finished by asking again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ClientWriteError, RaftError};
use openraft::{BasicNode, ChangeMembers, ServerState};
use tollgate::NodeId;

use super::network::Network;
use super::replica::Replica;
use super::types::{Types, id_of};

impl<N: Network, C: Types> Replica<N, C> {
    /// Makes `to`, by node with their addresses, the voters; all others leave.
    ///
    /// Newcomers first learn what there is, within 10 s each. Nobody may ever have voted under a
    /// node's number with a store that is lost now.
    ///
    /// # Errors
    /// When this replica does not lead, a newcomer is late, or no majority answers. Newcomers may
    /// have been told everything then, and the change may be half done.
    pub async fn set_voters(&self, to: &BTreeMap<NodeId, String>) -> Result<(), ChangeError> {
        let now = self.voters();
        let is_new = |node: &&NodeId| !now.voters.contains_key(node);
        let newcomers: Vec<NodeId> = to.keys().filter(is_new).copied().collect();
        for node in &newcomers {
            let there = BasicNode { addr: to[node].clone() };
            self.raft.add_learner(id_of(*node), there, false).await?;
        }
        for node in newcomers {
            self.wait_for(node).await?;
        }
        let voters: BTreeSet<u64> = to.keys().copied().map(id_of).collect();
        self.raft.change_membership(voters, false).await?;
        Ok(())
    }

    /// A replica is reached at another address from now on.
    ///
    /// # Errors
    /// When this replica does not lead, or no majority answers.
    pub async fn set_address(&self, node: NodeId, address: &str) -> Result<(), ChangeError> {
        let there = BasicNode { addr: address.to_owned() };
        let change = ChangeMembers::SetNodes(BTreeMap::from([(id_of(node), there)]));
        self.raft.change_membership(change, true).await?;
        Ok(())
    }

    /// Replicas that don't vote are told nothing any more.
    ///
    /// # Errors
    /// When this replica does not lead, or no majority answers.
    pub async fn forget_learners(&self, nodes: &BTreeSet<NodeId>) -> Result<(), ChangeError> {
        let change = ChangeMembers::RemoveNodes(nodes.iter().copied().map(id_of).collect());
        self.raft.change_membership(change, true).await?;
        Ok(())
    }

    /// Waits until a newcomer has what is applied here now.
    async fn wait_for(&self, node: NodeId) -> Result<(), ChangeError> {
        let applied = self.raft.metrics().borrow_watched().last_applied.map(|last| last.index);
        let wait = self.raft.wait(Some(CATCH_UP_WITHIN));
        let waited = wait.metrics(
            move |metrics| {
                let matched = metrics.replication.as_ref().and_then(|all| all.get(&id_of(node)));
                let matched = matched.copied().flatten().map(|last| last.index);
                metrics.state != ServerState::Leader || matched >= applied
            },
            "a newcomer has caught up",
        );
        match waited.await {
            Ok(metrics) if metrics.state == ServerState::Leader => Ok(()),
            Ok(_) => Err(ChangeError::NotLeader),
            Err(_) => Err(ChangeError::Late { node }),
        }
    }
}

/// Why the voters are not those that were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeError {
    /// This replica does not lead.
    NotLeader,
    /// A newcomer has not learned in time what there is; it does not vote.
    Late {
        /// The newcomer.
        node: NodeId,
    },
    /// Anything else, for people.
    Other(String),
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeader => f.write_str("this replica does not lead"),
            Self::Late { node } => write!(f, "node {node} has not learned in time what there is"),
            Self::Other(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ChangeError {}

impl<C: Types> From<RaftError<C, ClientWriteError<C>>> for ChangeError {
    fn from(error: RaftError<C, ClientWriteError<C>>) -> Self {
        match error {
            RaftError::APIError(ClientWriteError::ForwardToLeader(_)) => Self::NotLeader,
            RaftError::APIError(error) => Self::Other(error.to_string()),
            RaftError::Fatal(error) => Self::Other(error.to_string()),
        }
    }
}

/// How long a newcomer may take.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(10);
