//! Who leads and who votes, as one replica knows it.
//!
//! What follows from leading is not known here.

use std::collections::BTreeMap;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::metrics::RaftMetrics;
use openraft::type_config::TypeConfigExt;
use openraft::{BasicNode, Raft, ServerState};
use tokio::sync::watch;
use tollgate::NodeId;
use tollgate::mutant::lacks;
use tracing::error;

use super::machine::Machine;
use super::types::{Leader, Types, node_of};

/// Who leads, as far as a replica knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leadership {
    /// This replica does not lead.
    Follows {
        /// Who does, if it has heard of one.
        leader: Option<NodeId>,
    },
    /// This replica leads, and has applied all that was committed before it did.
    Leads {
        /// Its term: no other replica has led between two moments at which it leads in the same
        /// one, and each process leads in terms of its own.
        term: u64,
    },
    /// This replica has stopped for good, until its process is started again.
    Failed {
        /// Why, for people.
        why: String,
    },
}

/// Who votes, and who is about to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Voters {
    /// The entry of the log that says so.
    pub as_of: u64,
    /// Those who vote, and their addresses.
    pub voters: BTreeMap<NodeId, String>,
    /// Those who are told everything and don't vote.
    pub learners: BTreeMap<NodeId, String>,
    /// Whether a change was begun and not finished.
    pub is_changing: bool,
}

/// Follows the leadership of a replica, until it stops.
pub(super) fn watch<C: Types>(raft: &Raft<C, Machine>) -> watch::Receiver<Leadership> {
    let mut metrics = raft.metrics();
    let (sender, receiver) = watch::channel(leadership(&metrics.borrow_watched()));
    let following = async move {
        while metrics.changed().await.is_ok() {
            let now = leadership(&metrics.borrow_watched());
            let is_news =
                sender.send_if_modified(|before| std::mem::replace(before, now.clone()) != now);
            if let Leadership::Failed { why } = now
                && is_news
            {
                error!(target: "coordinator",
                       "this replica has stopped: {why}; its daemon goes on by the limits that it \
                        knows, and is to be started again once that is mended");
            }
        }
        let why = String::from("the replica was stopped");
        sender.send_if_modified(|last| match last {
            Leadership::Failed { .. } => false,
            Leadership::Follows { .. } | Leadership::Leads { .. } => {
                *last = Leadership::Failed { why };
                true
            }
        });
    };
    // It ends with the replica.
    drop(C::spawn(following));
    receiver
}

fn leadership<C: Types>(metrics: &RaftMetrics<C>) -> Leadership {
    if let Err(fatal) = &metrics.running_state {
        return Leadership::Failed { why: fatal.to_string() };
    }
    let term = metrics.current_term;
    // Whoever is elected begins with an entry; once that is applied, so is all before it.
    let own = Leader { term, node_id: metrics.id };
    let begun = metrics.last_applied.is_some_and(|last| last.leader_id == own);
    if metrics.state == ServerState::Leader && (begun || lacks("leader_knows_all")) {
        return Leadership::Leads { term };
    }
    let leader = metrics.current_leader.filter(|leader| *leader != metrics.id).map(node_of);
    Leadership::Follows { leader }
}

pub(super) fn voters<C: Types>(metrics: &RaftMetrics<C>) -> Voters {
    let stored = &metrics.membership_config;
    let membership = stored.membership();
    let voting: Vec<u64> = membership.voter_ids().collect();
    let mut voters = Voters {
        as_of: stored.log_id().as_ref().map_or(0, |entry| entry.index),
        is_changing: membership.get_joint_config().len() > 1,
        ..Voters::default()
    };
    for (id, BasicNode { addr }) in membership.nodes() {
        let list = match voting.contains(id) {
            true => &mut voters.voters,
            false => &mut voters.learners,
        };
        list.insert(node_of(*id), addr.clone());
    }
    voters
}
