//! One daemon's part of the coordinator: proposing, applying, confirming that it leads.
//!
//! A replica that does not lead forwards what it is asked to propose, once; whoever leads proposes.
//! What became of a proposal is one of three: applied, refused or not proposed, or *unknown*, which
//! only the one who proposed can resolve. When a member counts as lost, and who is told what, is
//! not decided here.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ClientWriteError, ForwardToLeader, InitializeError, RaftError};
use openraft::raft::ReadPolicy;
use openraft::raft::linearizable_read::LinearizerOption;
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::InstantOf;
use openraft::{BasicNode, Config, Raft, SnapshotPolicy};
use tokio::sync::{Mutex, watch};
use tollgate::coordinator::{Answer, Command, FleetSecret, Refused};
use tollgate::mutant::lacks;
use tollgate::{Clock, NodeId};

use super::error::{ConfirmError, OpenError, ProposeError};
use super::leadership::{self, Leadership, Voters};
use super::machine::{Applied, Machine, SnapshotOf};
use super::network::{
    Arriving, CallError, Envelope, Forwarded, Link, Links, Network, Part, Request, Response,
};
use super::record;
use super::store::{Identity, Store, StoreError};
use super::types::{Leader, OnTokio, Proposal, Reply, Types, id_of};

/// A replica of the coordinator; clones are the same one.
pub struct Replica<N: Network, C: Types = OnTokio> {
    pub(super) raft: Raft<C, Machine>,
    network: N,
    identity: Identity,
    options: ReplicaOptions,
    applied: watch::Receiver<Applied>,
    leadership: watch::Receiver<Leadership>,
    arriving: Arc<Mutex<Arriving>>,
}

impl<N: Network, C: Types> Clone for Replica<N, C> {
    fn clone(&self) -> Self {
        Self {
            raft: self.raft.clone(),
            network: self.network.clone(),
            identity: self.identity,
            options: self.options.clone(),
            applied: self.applied.clone(),
            leadership: self.leadership.clone(),
            arriving: self.arriving.clone(),
        }
    }
}

/// How a replica works.
#[derive(Debug, Clone)]
pub struct ReplicaOptions {
    /// What tells when a change was applied.
    pub clock: Clock,
    /// How long [`Replica::propose`] tries; typically 5 s, more than two elections.
    pub propose_within: Duration,
    /// How long [`Replica::confirm`] waits for others; typically 200 ms, less than a lease.
    pub confirm_within: Duration,
}

impl Default for ReplicaOptions {
    /// The system's clock, 5 s and 200 ms.
    fn default() -> Self {
        Self {
            clock: Clock::monotonic(),
            propose_within: Duration::from_secs(5),
            confirm_within: Duration::from_millis(200),
        }
    }
}

impl<N: Network> Replica<N> {
    /// Starts the replica of `identity`, with what `folder` has of it; with nothing if there is no
    /// store yet.
    ///
    /// A node whose store is lost must not come back under its number: its replica would have
    /// forgotten what it promised. Its tasks run where this is called. Writing waits for the disk,
    /// so that had better be a thread that serves nobody else.
    ///
    /// # Errors
    /// When the store is another's, or can't be read or written.
    pub async fn open(
        folder: &Path,
        identity: Identity,
        network: N,
        options: ReplicaOptions,
    ) -> Result<Self, OpenError> {
        let store = match Store::open(folder) {
            Err(StoreError::Missing) => Store::create(folder, identity),
            found => found,
        };
        Self::start(store.and_then(|store| store.of(identity))?, network, options).await
    }
}

impl<N: Network, C: Types> Replica<N, C> {
    /// Starts the replica whose store this is.
    pub(super) async fn start(
        store: Store,
        network: N,
        options: ReplicaOptions,
    ) -> Result<Self, OpenError> {
        let identity = store.identity();
        let (machine, applied) = Machine::new(store.clone(), options.clock.clone())?;
        let links = Links { network: network.clone(), fleet: identity.fleet };
        let id = id_of(identity.node);
        let config = Arc::new(config()?);
        let raft = Raft::new(id, config, links, store, machine);
        let raft = raft.await.map_err(|error| OpenError::Stopped(error.to_string()))?;
        // Once it answers it also tells what it knows, and not that it knows nothing yet.
        let ready = raft.with_raft_state(|_| ()).await;
        ready.map_err(|error| OpenError::Stopped(error.to_string()))?;
        let leadership = leadership::watch(&raft);
        let arriving = Arc::default();
        Ok(Self { raft, network, identity, options, applied, leadership, arriving })
    }

    /// Founds the fleet with this replica as its only voter, at `address`. Founded already, it is
    /// left as it is: whoever was interrupted here asks again.
    ///
    /// # Errors
    /// As [`Self::propose`].
    pub async fn found(
        &self,
        address: &str,
        secret: FleetSecret,
        voters_max: u32,
    ) -> Result<(), ProposeError> {
        let only = BasicNode { addr: address.to_owned() };
        let members = BTreeMap::from([(id_of(self.identity.node), only)]);
        match self.raft.initialize(members).await {
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {}
            Err(error) => return Err(ProposeError::Failed(error.to_string())),
        }
        let fleet = self.identity.fleet;
        match self.propose(Command::Found { secret, fleet, voters_max }).await {
            Ok(_) | Err(ProposeError::Refused(Refused::AlreadyFounded)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Has a command applied, by whoever leads, and tells what came of it.
    ///
    /// While there is no leader it is tried again, within [`ReplicaOptions::propose_within`]. An
    /// answer is only given once a majority has the command on disk and the leader has applied it;
    /// [`Self::watch`] of this replica may learn of it later.
    ///
    /// # Errors
    /// [`ProposeError::Unknown`] if it may have been applied, or may be yet; with any other, it has
    /// changed nothing and won't.
    pub async fn propose(&self, command: Command) -> Result<Answer, ProposeError> {
        let proposal = Proposal(Arc::new(command));
        let bytes = proposal.0.encode().len();
        if bytes > COMMAND_BYTES_MAX {
            return Err(ProposeError::TooLarge { bytes });
        }
        let until = C::now() + self.options.propose_within;
        loop {
            let outcome = match self.propose_here(&proposal, until).await? {
                Proposed::Replied(reply) => reply.0,
                Proposed::Elsewhere(leader) => self.forward(&proposal, leader, until).await?,
                Proposed::Nowhere => None,
            };
            match outcome {
                Some(outcome) => return outcome.map_err(ProposeError::Refused),
                None if C::now() + RETRY_AFTER >= until => return Err(ProposeError::NoLeader),
                None => C::sleep(RETRY_AFTER).await,
            }
        }
    }

    /// Proposes a command to this replica's own log, in this term only: another leader, or this one
    /// elected again, would not have said it. What becomes of it is seen by [`Self::watch`].
    pub async fn propose_in_term(&self, command: Command, term: u64) {
        let leader = Leader { term, node_id: id_of(self.identity.node) };
        // It fails only where the replica has stopped, which is seen by `leadership`.
        let _ = self.raft.write(Proposal(Arc::new(command))).with_leader(leader).await;
    }

    async fn propose_here(
        &self,
        proposal: &Proposal,
        until: InstantOf<C>,
    ) -> Result<Proposed, ProposeError> {
        // What has stopped proposes nothing, and says so.
        if let Leadership::Failed { why } = &*self.leadership.borrow() {
            let what = "the replica has stopped; mend this and start its daemon again";
            return Err(ProposeError::Failed(format!("{what}: {why}")));
        }
        let written = C::timeout_at(until, self.raft.client_write(proposal.clone())).await;
        let Ok(written) = written else {
            return Err(ProposeError::Unknown(String::from("no majority has answered in time")));
        };
        match written {
            Ok(response) => Ok(Proposed::Replied(response.data)),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward))) => {
                Ok(Proposed::elsewhere(forward, self.identity.node))
            }
            Err(RaftError::APIError(ClientWriteError::LogEntryDiscarded(_))) => {
                Err(ProposeError::Unknown(String::from("another leader was elected")))
            }
            Err(RaftError::APIError(
                error @ (ClientWriteError::ChangeMembershipError(_)
                | ClientWriteError::PreconditionFailed(_)),
            )) => Err(ProposeError::Failed(error.to_string())),
            Err(RaftError::Fatal(error)) => Err(ProposeError::Unknown(error.to_string())),
        }
    }

    /// What the leader made of it; `None` if it did not propose it.
    async fn forward(
        &self,
        proposal: &Proposal,
        (leader, node): (u64, BasicNode),
        until: InstantOf<C>,
    ) -> Result<Option<Result<Answer, Refused>>, ProposeError> {
        let link = Link::new(self.network.clone(), self.identity.fleet, leader, &node);
        let bound = FORWARD_WITHIN.min(until - C::now());
        match link.ask::<C>(Request::Propose(proposal.clone()), bound).await {
            Ok(Response::Propose(Forwarded::Replied(reply))) => Ok(reply.0),
            Ok(Response::Propose(Forwarded::NotLeader)) | Err(CallError::NotSent(_)) => Ok(None),
            Ok(Response::Propose(Forwarded::Unknown(why))) | Err(CallError::Unanswered(why)) => {
                Err(ProposeError::Unknown(why))
            }
            Ok(_other) => Err(ProposeError::Unknown(String::from("the answer makes no sense"))),
        }
    }

    /// Confirms with a majority that this replica still leads, by messages sent after the call.
    ///
    /// Whatever was committed before the call is applied here when it returns. A fleet of one voter
    /// is its own majority.
    ///
    /// # Errors
    /// When it does not lead, or no majority has answered within
    /// [`ReplicaOptions::confirm_within`].
    pub async fn confirm(&self) -> Result<(), ConfirmError> {
        let within = self.options.confirm_within;
        let option = LinearizerOption::from(ReadPolicy::ReadIndex).with_wait_timeout(within);
        // Twice: the majority's answer, and what is still to be applied.
        match C::timeout(within * 2, self.raft.ensure_linearizable(option)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(RaftError::APIError(error))) => Err(ConfirmError::from(error)),
            Ok(Err(RaftError::Fatal(error))) => Err(ConfirmError::Failed(error.to_string())),
            Err(_elapsed) => Err(ConfirmError::NoMajority),
        }
    }

    /// Whose replica this is.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// What tells when something was applied.
    pub fn clock(&self) -> &Clock {
        &self.options.clock
    }

    /// What is applied here.
    pub fn watch(&self) -> watch::Receiver<Applied> {
        self.applied.clone()
    }

    /// Who leads.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Who votes, as far as this replica knows.
    pub fn voters(&self) -> Voters {
        leadership::voters(&self.raft.metrics().borrow_watched())
    }

    /// Stops. What was written stays; another replica may open the store afterwards.
    pub async fn stop(&self) {
        // It can only fail to stop what has stopped.
        let _ = self.raft.shutdown().await;
    }

    /// The answer to another replica's request, whatever its bytes are.
    pub async fn answer(&self, request: &[u8]) -> Vec<u8> {
        let response = match record::open_value::<Envelope<C>>(request) {
            Ok(envelope) if envelope.fleet != self.identity.fleet => {
                Response::Failed(String::from("the request is another fleet's"))
            }
            Ok(envelope)
                if envelope.to != id_of(self.identity.node) && !lacks("meant_for_this_replica") =>
            {
                Response::Failed(format!("this is node {}", self.identity.node))
            }
            Ok(envelope) => self.serve(envelope.request).await,
            Err(error) => Response::Failed(error.to_string()),
        };
        record::seal_value(&response)
    }

    async fn serve(&self, request: Request<C>) -> Response<C> {
        let failed = |error: &dyn std::error::Error| Response::Failed(error.to_string());
        match request {
            Request::Append(request) => match self.raft.append_entries(request).await {
                Ok(response) => Response::Append(response),
                Err(error) => failed(&error),
            },
            Request::Vote(request) => match self.raft.vote(request).await {
                Ok(response) => Response::Vote(response),
                Err(error) => failed(&error),
            },
            Request::PreVote(request) => match self.raft.pre_vote(request).await {
                Ok(response) => Response::Vote(response),
                Err(error) => failed(&error),
            },
            Request::Transfer(request) => match self.raft.handle_transfer_leader(request).await {
                Ok(response) => Response::Transfer(response),
                Err(error) => failed(&error),
            },
            Request::Snapshot(part) => self.take_part(part).await,
            Request::Propose(proposal) => {
                // A little less than the one who asks waits.
                let until = C::now() + FORWARD_WITHIN * 3 / 4;
                Response::Propose(match self.propose_here(&proposal, until).await {
                    Ok(Proposed::Replied(reply)) => Forwarded::Replied(reply),
                    Ok(Proposed::Elsewhere(_) | Proposed::Nowhere)
                    | Err(ProposeError::Failed(_)) => Forwarded::NotLeader,
                    Err(ProposeError::Unknown(why)) => Forwarded::Unknown(why),
                    Err(error) => Forwarded::Unknown(error.to_string()),
                })
            }
        }
    }

    async fn take_part(&self, part: Part) -> Response<C> {
        let (vote, meta) = (part.vote, part.meta.clone());
        let state = match self.arriving.lock().await.take(part) {
            Ok(Some(state)) => Arc::new(state),
            Ok(None) => return Response::Snapshot(None),
            Err(why) => return Response::Failed(why),
        };
        let snapshot = SnapshotOf { meta, snapshot: state };
        match self.raft.install_full_snapshot(vote, snapshot).await {
            Ok(response) => Response::Snapshot(Some(response.vote)),
            Err(error) => Response::Failed(error.to_string()),
        }
    }
}

/// What came of a proposal to this replica's own log.
enum Proposed {
    Replied(Reply),
    /// Another one leads.
    Elsewhere((u64, BasicNode)),
    /// Nobody does, as far as is known, or not surely enough.
    Nowhere,
}

impl Proposed {
    fn elsewhere<C: Types>(forward: ForwardToLeader<C>, own: NodeId) -> Self {
        match (forward.leader_id, forward.leader_node) {
            (Some(leader), Some(node)) if leader != id_of(own) => Self::Elsewhere((leader, node)),
            // A new leader is not sure of itself before its first heartbeats are answered.
            (Some(_) | None, _) => Self::Nowhere,
        }
    }
}

fn config() -> Result<Config, OpenError> {
    let config = Config {
        cluster_name: String::from("tollgate"),
        heartbeat_interval: HEARTBEAT_MS,
        election_timeout_min: ELECTION_MIN_MS,
        election_timeout_max: ELECTION_MAX_MS,
        enable_pre_vote: Some(true),
        // One that led when it was killed no longer knows how much was committed: it is elected
        // again, or confirms what it has not applied.
        enable_leader_restore: Some(false),
        max_payload_entries: 64,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(SNAPSHOT_EVERY),
        max_in_snapshot_log_to_keep: KEPT_BEHIND_SNAPSHOT,
        replication_lag_threshold: SNAPSHOT_EVERY + KEPT_BEHIND_SNAPSHOT,
        ..Config::default()
    };
    config.validate().map_err(|error| OpenError::Stopped(error.to_string()))
}

/// How soon a proposal that nobody took is offered again.
const RETRY_AFTER: Duration = Duration::from_millis(20);
/// How long a replica waits for the leader that it has forwarded a proposal to.
const FORWARD_WITHIN: Duration = Duration::from_secs(2);
/// More than the largest policy that is not refused, which has 8 MiB and 8 bytes a limit.
const COMMAND_BYTES_MAX: usize = 9 << 20;
const HEARTBEAT_MS: u64 = 100;
/// Several heartbeats: one that is late is no lost leader. An owner's keys pause longer than the
/// longest election takes to begin.
const ELECTION_MIN_MS: u64 = 400;
const ELECTION_MAX_MS: u64 = 800;
/// So many entries are applied again at most after a restart, and kept beyond the snapshot for
/// replicas that are a little behind.
const SNAPSHOT_EVERY: u64 = 512;
const KEPT_BEHIND_SNAPSHOT: u64 = 128;
