//! What daemons ask a replica for people, and the answers, as bytes: they travel on the session of
//! whoever asks, so that a daemon that is no replica asks like one that is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tollgate::NodeId;
use tollgate::coordinator::{Answer, Command, DecodeError, Document, Refused, Revision};

use super::backup::backup_of;
use super::error::ProposeError;
use super::leadership::{Leadership, Voters};
use super::members::ChangeError;
use super::network::Network;
use super::record::{self, RecordError};
use super::replica::Replica;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// Have this command applied: [`Command::encode`].
    Propose(Vec<u8>),
    /// All policies that are kept.
    History,
    /// The policy of this revision.
    Document(u64),
    /// All nodes that are members or have a replica.
    Nodes,
    /// This node, which is stopped for good, is to have no replica any more. Only the leader does
    /// that.
    Remove(u32),
    /// All that the fleet has agreed on, as a backup has it.
    Backup,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The command was applied: [`Answer::encode`].
    Applied(Vec<u8>),
    /// It was refused: [`Refused::encode`].
    Refused(Vec<u8>),
    /// It was not applied and won't be.
    NotProposed(String),
    /// Nobody led for as long as was waited: it was not applied and won't be.
    NoLeader,
    /// It may have been applied, or may be yet.
    Unknown(String),
    /// The policies that are kept, oldest first.
    History(Vec<Kept>),
    /// That policy: [`Document::encode`]; `None` if it is not kept.
    Document(Option<Vec<u8>>),
    /// The question makes no sense.
    Malformed(String),
    /// The nodes, by their numbers.
    Nodes(Vec<NodeLine>),
    /// It has no replica any more.
    Removed,
    /// Another replica leads, and is to be asked.
    NotLeader,
    /// The bytes of a backup.
    Backup(Vec<u8>),
}

/// A node, as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLine {
    /// Its number.
    pub node: u32,
    /// Where others reach it.
    pub address: String,
    /// Its start; `None` if it is no member now: it has stopped, or is dead.
    pub start: Option<u64>,
    /// Its share of the keys in proportion to others'; 0 if it owns none.
    pub weight: u32,
    /// What it has of the coordinator.
    pub replica: ReplicaKind,
}

/// What a node has of the coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicaKind {
    /// Nothing.
    None,
    /// A replica that learns, and does not vote.
    Learner,
    /// One that votes.
    Voter,
    /// The voter that leads.
    Leader,
}

/// A policy that is kept, without its limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Its number.
    pub revision: u64,
    /// Who put it.
    pub author: String,
    /// On what grounds.
    pub comment: String,
    /// When, by the proposer's clock.
    pub unix_seconds: u64,
    /// How many limits it has.
    pub limits: u64,
    /// How many of them are new or changed in it.
    pub changed: u64,
}

impl Question {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        record::seal_value(self)
    }
}

impl Reply {
    /// The answer that these bytes are.
    ///
    /// # Errors
    /// [`RecordError`] if they are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        record::open_value(bytes)
    }

    /// What became of a command.
    ///
    /// # Errors
    /// As [`Replica::propose`].
    pub fn applied(self) -> Result<Answer, ProposeError> {
        let unread = |error: DecodeError| ProposeError::Unknown(error.to_string());
        match self {
            Self::Applied(answer) => Answer::decode(&answer).map_err(unread),
            Self::Refused(refused) => {
                Err(ProposeError::Refused(Refused::decode(&refused).map_err(unread)?))
            }
            Self::NotProposed(why) | Self::Malformed(why) => Err(ProposeError::Failed(why)),
            Self::NoLeader => Err(ProposeError::NoLeader),
            Self::Unknown(why) => Err(ProposeError::Unknown(why)),
            Self::History(_)
            | Self::Document(_)
            | Self::Nodes(_)
            | Self::Removed
            | Self::NotLeader
            | Self::Backup(_) => {
                Err(ProposeError::Unknown("the answer is to another question".into()))
            }
        }
    }
}

/// A replica's answer to whatever bytes it was asked.
pub(super) async fn answer<N: Network>(replica: &Replica<N>, question: &[u8]) -> Vec<u8> {
    let reply = match record::open_value::<Question>(question) {
        Ok(question) => reply(replica, question).await,
        Err(error) => Reply::Malformed(error.to_string()),
    };
    record::seal_value(&reply)
}

async fn reply<N: Network>(replica: &Replica<N>, question: Question) -> Reply {
    match question {
        Question::Propose(command) => match Command::decode(&command) {
            // Members come and go by their own sessions.
            Ok(command) => proposed(replica.propose(command).await),
            Err(error) => Reply::Malformed(error.to_string()),
        },
        Question::History => {
            let state = replica.watch().borrow().state.clone();
            Reply::History(state.history().map(Kept::of).collect())
        }
        Question::Document(revision) => {
            let (state, revision) =
                (replica.watch().borrow().state.clone(), Revision::new(revision));
            let found = state.history().find(|kept| kept.revision == revision);
            Reply::Document(found.map(|document| document.encode()))
        }
        Question::Nodes => Reply::Nodes(nodes(replica)),
        Question::Remove(node) => remove(replica, NodeId::new(node)).await,
        Question::Backup => {
            let bytes = backup_of(&replica.watch().borrow().state);
            if bytes.len() > BACKUP_BYTES_MAX {
                return Reply::NotProposed(format!(
                    "the backup has {} bytes, more than a session carries: stop a daemon that has \
                     a replica, and use `tollgate store backup --data`",
                    bytes.len()
                ));
            }
            Reply::Backup(bytes)
        }
    }
}

fn nodes<N: Network>(replica: &Replica<N>) -> Vec<NodeLine> {
    let (state, voters) = (replica.watch().borrow().state.clone(), replica.voters());
    let leader = match &*replica.leadership().borrow() {
        Leadership::Leads { .. } => Some(replica.identity().node),
        Leadership::Follows { leader } => *leader,
        Leadership::Failed { .. } => None,
    };
    let mut lines: BTreeMap<NodeId, NodeLine> = BTreeMap::new();
    for seat in state.members() {
        let (address, start) = (seat.address.clone(), Some(seat.start.get()));
        let (node, weight, replica) = (seat.node.get(), seat.weight, ReplicaKind::None);
        lines.insert(seat.node, NodeLine { node, address, start, weight, replica });
    }
    let learners = voters.learners.iter().map(|learner| (learner, ReplicaKind::Learner));
    let voting = voters.voters.iter().map(|voter| (voter, ReplicaKind::Voter));
    for ((node, address), kind) in learners.chain(voting) {
        let is_leader = kind == ReplicaKind::Voter && leader == Some(*node);
        let replica = if is_leader { ReplicaKind::Leader } else { kind };
        let (number, address, start) = (node.get(), address.clone(), None);
        let line = NodeLine { node: number, address, start, weight: 0, replica };
        lines.entry(*node).or_insert(line).replica = replica;
    }
    lines.into_values().collect()
}

async fn remove<N: Network>(replica: &Replica<N>, node: NodeId) -> Reply {
    if !matches!(*replica.leadership().borrow(), Leadership::Leads { .. }) {
        return Reply::NotLeader;
    }
    let is_member = replica.watch().borrow().state.members().any(|seat| seat.node == node);
    if is_member {
        return Reply::NotProposed(format!(
            "node {node} is a member: stop its process, which leaves on SIGTERM; one that is dead \
             is none any more some seconds later"
        ));
    }
    let Voters { mut voters, learners, .. } = replica.voters();
    let changed = if voters.remove(&node).is_some() {
        if voters.is_empty() {
            return Reply::NotProposed(format!("node {node} is the only one that votes"));
        }
        replica.set_voters(&voters).await
    } else if learners.contains_key(&node) {
        replica.forget_learners(&BTreeSet::from([node])).await
    } else {
        return Reply::NotProposed(format!("there is nothing of node {node} to remove"));
    };
    match changed {
        Ok(()) => Reply::Removed,
        Err(ChangeError::NotLeader) => Reply::NotLeader,
        Err(error @ (ChangeError::Late { .. } | ChangeError::Other(_))) => {
            Reply::Unknown(error.to_string())
        }
    }
}

fn proposed(outcome: Result<Answer, ProposeError>) -> Reply {
    match outcome {
        Ok(answer) => Reply::Applied(answer.encode()),
        Err(ProposeError::Refused(refused)) => Reply::Refused(refused.encode()),
        Err(error @ ProposeError::TooLarge { .. }) => Reply::NotProposed(error.to_string()),
        Err(ProposeError::Failed(why)) => Reply::NotProposed(why),
        Err(ProposeError::NoLeader) => Reply::NoLeader,
        Err(ProposeError::Unknown(why)) => Reply::Unknown(why),
    }
}

impl Kept {
    /// What is said of a policy.
    pub(crate) fn of(document: &Arc<Document>) -> Self {
        let changed =
            document.limits.iter().filter(|limit| limit.generation == document.revision).count();
        Self {
            revision: document.revision.get(),
            author: document.author.clone(),
            comment: document.comment.clone(),
            unix_seconds: document.unix_seconds,
            limits: document.limits.len() as u64,
            changed: changed as u64,
        }
    }
}

/// Less than a frame of a session has room for.
const BACKUP_BYTES_MAX: usize = 12 << 20;
