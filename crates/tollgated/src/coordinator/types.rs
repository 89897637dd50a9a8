//! The types that the consensus library is filled in with: what a log entry carries, what applying
//! it yields, and how replicas are named.
//!
//! A replica's number is its node's. Everything here is written to disk or sent, in the encodings
//! of `tollgate::coordinator` and, for the library's own parts, of postcard.

use std::fmt;
use std::sync::Arc;

use openraft::{BasicNode, EntryPayload};
use serde::{Deserialize, Serialize};
use tollgate::NodeId;
use tollgate::coordinator::{Answer, Command, DecodeError, Refused};

openraft::declare_raft_types!(
    /// The coordinator of a daemon.
    pub OnTokio:
        D = Proposal,
        R = Reply,
);

#[cfg(test)]
openraft::declare_raft_types!(
    /// The same in virtual time.
    pub Simulated:
        D = Proposal,
        R = Reply,
        AsyncRuntime = openraft_rt_sim::SimRuntime,
);

/// What a replica needs of its types; only the runtime is open.
pub trait Types:
    openraft::RaftTypeConfig<
        D = Proposal,
        R = Reply,
        NodeId = u64,
        Node = BasicNode,
        Term = u64,
        LeaderId = Leader,
        Vote = Vote,
        Payload = Payload,
        Entry = Entry,
    >
{
}

impl<C> Types for C where
    C: openraft::RaftTypeConfig<
            D = Proposal,
            R = Reply,
            NodeId = u64,
            Node = BasicNode,
            Term = u64,
            LeaderId = Leader,
            Vote = Vote,
            Payload = Payload,
            Entry = Entry,
        >
{
}

pub(super) type Leader = openraft::impls::leader_id_adv::LeaderId<u64, u64>;
pub(super) type LogId = openraft::LogId<Leader>;
pub(super) type Vote = openraft::impls::Vote<Leader>;
pub(super) type Payload = EntryPayload<Proposal, u64, BasicNode>;
pub(super) type Entry = openraft::Entry<Leader, Payload>;
pub(super) type Voting = openraft::StoredMembership<Leader, u64, BasicNode>;
pub(super) type Meta = openraft::storage::SnapshotMeta<Leader, u64, BasicNode>;

/// The node of a replica's number.
pub(super) fn node_of(id: u64) -> NodeId {
    // Replicas are numbered as their nodes are; any other number is nobody's.
    NodeId::new(u32::try_from(id).unwrap_or(u32::MAX))
}

/// The number of a node's replica.
pub(super) fn id_of(node: NodeId) -> u64 {
    u64::from(node.get())
}

/// A command on its way through the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<u8>", try_from = "Vec<u8>")]
pub struct Proposal(pub(super) Arc<Command>);

impl From<Proposal> for Vec<u8> {
    fn from(proposal: Proposal) -> Self {
        proposal.0.encode()
    }
}

impl TryFrom<Vec<u8>> for Proposal {
    type Error = DecodeError;

    fn try_from(bytes: Vec<u8>) -> Result<Self, DecodeError> {
        Ok(Self(Arc::new(Command::decode(&bytes)?)))
    }
}

impl fmt::Display for Proposal {
    /// The kind alone: texts are long, and a secret is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &*self.0 {
            Command::Found { .. } => "found",
            Command::Join { .. } => "join",
            Command::Leave { .. } => "leave",
            Command::Lose { .. } => "lose",
            Command::SetWeight { .. } => "set weight",
            Command::PutPolicy { .. } => "put policy",
            Command::Rollback { .. } => "roll back",
        })
    }
}

/// What came of a log entry: `None` for those that carry no command.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(into = "Vec<u8>", try_from = "Vec<u8>")]
pub struct Reply(pub(super) Option<Result<Answer, Refused>>);

impl From<Reply> for Vec<u8> {
    fn from(reply: Reply) -> Self {
        let (kind, bytes) = match reply.0 {
            None => (0, Self::new()),
            Some(Ok(answer)) => (1, answer.encode()),
            Some(Err(refused)) => (2, refused.encode()),
        };
        [&[kind], &*bytes].concat()
    }
}

impl TryFrom<Vec<u8>> for Reply {
    type Error = DecodeError;

    fn try_from(bytes: Vec<u8>) -> Result<Self, DecodeError> {
        match bytes.split_first() {
            Some((0, [])) => Ok(Self(None)),
            Some((1, answer)) => Ok(Self(Some(Ok(Answer::decode(answer)?)))),
            Some((2, refused)) => Ok(Self(Some(Err(Refused::decode(refused)?)))),
            Some(_) => Err(DecodeError::Malformed("reply")),
            None => Err(DecodeError::TooShort),
        }
    }
}
