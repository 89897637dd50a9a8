//! What replicas say to each other, as requests and answers of bytes.
//!
//! A [`Network`] carries bytes to an address and brings the answer back; connections, frames and
//! who may connect are its own. A request names the fleet and the replica that it is meant for, so
//! that an address that has another owner now does no harm. A snapshot goes in parts: no message
//! is longer than [`MESSAGE_BYTES_MAX`].

use std::fmt;
use std::future::Future;
use std::time::Duration;

use openraft::BasicNode;
use openraft::async_runtime::Select2;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::TypeConfigExt;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tollgate::NodeId;
use tollgate::coordinator::State;

use super::machine::SnapshotOf;
use super::record;
use super::types::{Meta, Proposal, Reply, Types, Vote, id_of, node_of};

/// Carries requests to other replicas.
pub trait Network: Clone + Send + Sync + 'static {
    /// The answer of `peer` to a request of at most [`MESSAGE_BYTES_MAX`].
    ///
    /// Who waits no longer drops the future. The peer's address is what the voters agreed on; a
    /// network that knows a newer one of the node may use that.
    ///
    /// # Errors
    /// [`CallError::NotSent`] only if the peer has not seen the request and never will.
    fn call(
        &self,
        peer: &Peer,
        request: Vec<u8>,
    ) -> impl Future<Output = Result<Vec<u8>, CallError>> + Send;
}

/// Another replica.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Its node.
    pub node: NodeId,
    /// Where it is reached.
    pub address: String,
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallError {
    /// It was not sent.
    NotSent(String),
    /// It may have arrived, or may arrive yet.
    Unanswered(String),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(why) => write!(f, "the request was not sent: {why}"),
            Self::Unanswered(why) => write!(f, "the request was not answered: {why}"),
        }
    }
}

impl std::error::Error for CallError {}

/// The longest request or answer: the largest policy, and the rest of an entry.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// A request, and for whom it is.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub(super) struct Envelope<C: Types> {
    pub(super) fleet: u64,
    pub(super) to: u64,
    pub(super) request: Request<C>,
}

#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub(super) enum Request<C: Types> {
    Append(AppendEntriesRequest<C>),
    Vote(VoteRequest<C>),
    PreVote(VoteRequest<C>),
    Snapshot(Part),
    Transfer(TransferLeaderRequest<C>),
    Propose(Proposal),
}

/// A part of a snapshot.
#[derive(Serialize, Deserialize)]
pub(super) struct Part {
    /// The leader that sends it.
    pub(super) vote: Vote,
    pub(super) meta: Meta,
    /// Which one of how many, from 0.
    pub(super) part: u32,
    pub(super) parts: u32,
    pub(super) bytes: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub(super) enum Response<C: Types> {
    Append(AppendEntriesResponse<C>),
    Vote(VoteResponse<C>),
    /// The follower's vote once all parts have arrived.
    Snapshot(Option<Vote>),
    Transfer(TransferLeaderResponse<C>),
    Propose(Forwarded),
    /// It was meant for another replica, or can't be read, or the replica has failed.
    Failed(String),
}

/// What came of a forwarded proposal.
#[derive(Serialize, Deserialize)]
pub(super) enum Forwarded {
    Replied(Reply),
    /// It was not proposed.
    NotLeader,
    /// It may have been committed, or may be yet.
    Unknown(String),
}

/// Makes links to other replicas.
pub(super) struct Links<N> {
    pub(super) network: N,
    pub(super) fleet: u64,
}

impl<C: Types, N: Network> RaftNetworkFactory<C> for Links<N> {
    type Network = Link<N>;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Link<N> {
        Link::new(self.network.clone(), self.fleet, target, node)
    }
}

/// The way to one other replica.
pub(super) struct Link<N> {
    network: N,
    fleet: u64,
    peer: Peer,
}

impl<N: Network> Link<N> {
    pub(super) fn new(network: N, fleet: u64, target: u64, node: &BasicNode) -> Self {
        let peer = Peer { node: node_of(target), address: node.addr.clone() };
        Self { network, fleet, peer }
    }

    /// Asks, and waits for the answer until `bound` has passed, and the time that so many bytes may
    /// take on a slow line.
    pub(super) async fn ask<C: Types>(
        &self,
        request: Request<C>,
        bound: Duration,
    ) -> Result<Response<C>, CallError> {
        let to = id_of(self.peer.node);
        let bytes = record::seal_value(&Envelope { fleet: self.fleet, to, request });
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(CallError::NotSent(format!("{} bytes are too many", bytes.len())));
        }
        let bound = bound + Duration::from_micros(bytes.len() as u64 / BYTES_A_MICROSECOND_MIN);
        let answer = C::timeout(bound, self.network.call(&self.peer, bytes)).await;
        let answer =
            answer.map_err(|_| CallError::Unanswered(format!("not within {bound:?}")))??;
        match record::open_value(&answer) {
            Ok(Response::Failed(why)) => Err(CallError::Unanswered(why)),
            Ok(response) => Ok(response),
            Err(error) => Err(CallError::Unanswered(error.to_string())),
        }
    }

    async fn ask_rpc<C: Types>(
        &self,
        request: Request<C>,
        bound: Duration,
    ) -> Result<Response<C>, RPCError<C>> {
        self.ask(request, bound).await.map_err(|error| Unreachable::new(&error).into())
    }
}

fn astray<C: Types>() -> RPCError<C> {
    Unreachable::from_string("the answer is to another request").into()
}

impl<C: Types, N: Network> RaftNetworkV2<C> for Link<N> {
    type SnapshotData = Arc<State>;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<C>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<C>, RPCError<C>> {
        // Entries wait for the disk; a heartbeat has none.
        let bound = if rpc.entries.is_empty() { option.soft_ttl() } else { WRITTEN_WITHIN };
        match self.ask_rpc(Request::Append(rpc), bound).await? {
            Response::Append(response) => Ok(response),
            _other => Err(astray()),
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<C>,
        option: RPCOption,
    ) -> Result<VoteResponse<C>, RPCError<C>> {
        match self.ask_rpc(Request::Vote(rpc), option.soft_ttl()).await? {
            Response::Vote(response) => Ok(response),
            _other => Err(astray()),
        }
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<C>,
        option: RPCOption,
    ) -> Result<VoteResponse<C>, RPCError<C>> {
        match self.ask_rpc(Request::PreVote(rpc), option.soft_ttl()).await? {
            Response::Vote(response) => Ok(response),
            _other => Err(astray()),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<C>, StreamingError<C>> {
        let sealed = record::seal(&snapshot.snapshot.encode());
        let sent = self.send_parts::<C>(vote, &snapshot.meta, &sealed);
        match C::select2(cancel, sent).await {
            Select2::First(closed) => Err(closed.into()),
            Select2::Second(sent) => Ok(SnapshotResponse::new(sent?)),
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<C>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<C>, RPCError<C>> {
        match self.ask_rpc(Request::Transfer(request), option.soft_ttl()).await? {
            Response::Transfer(response) => Ok(response),
            _other => Err(astray()),
        }
    }
}

impl<N: Network> Link<N> {
    /// The follower's vote after the last part.
    async fn send_parts<C: Types>(
        &self,
        vote: Vote,
        meta: &Meta,
        sealed: &[u8],
    ) -> Result<Vote, StreamingError<C>> {
        let chunks = sealed.chunks(PART_BYTES);
        let parts = u32::try_from(chunks.len()).unwrap_or(u32::MAX);
        for (part, bytes) in (0..parts).zip(chunks) {
            let part = Part { vote, meta: meta.clone(), part, parts, bytes: bytes.to_vec() };
            match self.ask_rpc::<C>(Request::Snapshot(part), INSTALLED_WITHIN).await? {
                Response::Snapshot(None) => {}
                Response::Snapshot(Some(theirs)) => return Ok(theirs),
                _other => return Err(astray().into()),
            }
        }
        Err(Unreachable::from_string("the snapshot was taken and not installed").into())
    }
}

/// The parts of a snapshot that have arrived so far, in their order.
#[derive(Default)]
pub(super) struct Arriving {
    of: Option<(Vote, Meta)>,
    next: u32,
    bytes: Vec<u8>,
}

impl Arriving {
    /// Takes the next part; yields the state once it was the last.
    ///
    /// The first part of a snapshot puts an unfinished one out: only one is ever kept.
    ///
    /// # Errors
    /// When it is not the next part, or the parts together are no state.
    pub(super) fn take(&mut self, part: Part) -> Result<Option<State>, String> {
        let of = Some((part.vote, part.meta));
        if part.part == 0 {
            *self = Self { of: of.clone(), next: 0, bytes: Vec::new() };
        }
        if self.of != of || self.next != part.part {
            return Err(format!("part {} of a snapshot is not the next one", part.part));
        }
        if self.bytes.len() + part.bytes.len() > SNAPSHOT_BYTES_MAX {
            *self = Self::default();
            return Err(format!("a snapshot has more than {SNAPSHOT_BYTES_MAX} bytes"));
        }
        self.bytes.extend(&part.bytes);
        self.next += 1;
        if self.next < part.parts {
            return Ok(None);
        }
        let sealed = std::mem::take(self).bytes;
        let state = record::open(&sealed).map_err(|error| error.to_string())?;
        State::decode(state).map(Some).map_err(|error| error.to_string())
    }
}

/// How long a follower may take to write entries, besides their way to it. One that was cut off
/// hears nothing for so long.
const WRITTEN_WITHIN: Duration = Duration::from_millis(500);
/// How long it may take to write a whole snapshot.
const INSTALLED_WITHIN: Duration = Duration::from_secs(5);
/// A line that carries less, 1 MB a second, carries no policy of the largest size in time.
const BYTES_A_MICROSECOND_MIN: u64 = 1;
/// How much of a snapshot goes into one message.
const PART_BYTES: usize = 4 << 20;
/// More than a state with every list at its bound.
const SNAPSHOT_BYTES_MAX: usize = 256 << 20;

const _: () = assert!(PART_BYTES < MESSAGE_BYTES_MAX);

#[cfg(test)]
mod tests {
    use tollgate::coordinator::{Command, FleetSecret};

    use super::*;

    fn state() -> State {
        let mut state = State::default();
        let secret = FleetSecret::new([7; 32]);
        state.apply(Command::Found { secret, fleet: 9, voters_max: 3 }).expect("the first");
        state
    }

    /// A snapshot in parts of 10 bytes, from the leader of this term.
    fn parts(term: u64) -> Vec<Part> {
        let sealed = record::seal(&state().encode());
        let chunks = sealed.chunks(10);
        let parts = chunks.len() as u32;
        let vote = Vote::new_committed(term, 1);
        let part = |(part, bytes): (u32, &[u8])| Part {
            vote,
            meta: Meta::default(),
            part,
            parts,
            bytes: bytes.to_vec(),
        };
        (0..).zip(chunks).map(part).collect()
    }

    #[test]
    fn parts_in_their_order_are_a_state() {
        let mut arriving = Arriving::default();
        let mut taken: Vec<_> = parts(1).into_iter().map(|part| arriving.take(part)).collect();
        assert_eq!(taken.pop(), Some(Ok(Some(state()))));
        assert!(taken.iter().all(|early| *early == Ok(None)));
        assert!(arriving.bytes.is_empty());
    }

    #[test]
    fn a_part_that_is_missing_repeated_or_of_another_snapshot_is_refused() {
        let mut arriving = Arriving::default();
        let mut parts_of = parts(1);
        let mut take = |part: Part| arriving.take(part).is_ok();
        assert!(!take(parts_of.swap_remove(3)));
        let mut parts_of = parts(1).into_iter();
        assert!(take(parts_of.next().expect("the first")));
        assert!(!take(parts(2).swap_remove(1)));
        assert!(!take(parts_of.nth(1).expect("the third")));
        // A first part begins anew.
        assert!(parts(2).into_iter().all(take));
    }

    #[test]
    fn parts_that_were_changed_on_the_way_are_no_state() {
        let mut changed = parts(1);
        changed[2].bytes[0] ^= 1;
        let mut arriving = Arriving::default();
        let mut taken: Vec<_> = changed.into_iter().map(|part| arriving.take(part)).collect();
        assert_eq!(taken.pop(), Some(Err(String::from("a record is not what was written"))));
    }

    #[test]
    fn a_snapshot_without_end_is_given_up() {
        let mut arriving = Arriving::default();
        let mut part = parts(1).swap_remove(0);
        part.parts = u32::MAX;
        part.bytes = vec![0; SNAPSHOT_BYTES_MAX / 4];
        for number in 0..4 {
            let Part { vote, meta, parts, bytes, .. } = &part;
            let next = Part {
                vote: *vote,
                meta: meta.clone(),
                part: number,
                parts: *parts,
                bytes: bytes.clone(),
            };
            assert_eq!(arriving.take(next), Ok(None));
        }
        part.part = 4;
        arriving.take(part).expect_err("too long");
        assert!(arriving.bytes.is_empty());
    }
}
