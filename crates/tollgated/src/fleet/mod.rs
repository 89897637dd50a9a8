//! This daemon as a member of a fleet: founded, joined or resumed, with a replica of the
//! coordinator beside it.
//!
//! Two threads besides those that serve: one has the door for other members and the replica, whose
//! writes wait for the disk; the other the member's own task, which must not wait for anything.

mod agreement;
mod overview;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tollgate::coordinator::{FleetSecret, SessionOptions};
use tollgate::{Clock, NodeId, TableFull};
use tollgate_tokio::wire::{Hello, PeerSecret, Purpose};
use tollgate_tokio::{Build, Door, Fleet, FleetOptions, Routes, Seat};
use tracing::{error, info};

use crate::coordinator::{
    Identity, OpenError, Replica, ReplicaOptions, Tcp, identity_in, in_folder, serve_replicas,
    serve_sessions,
};
pub(crate) use agreement::{FleetAgreement, InForce};
pub(crate) use overview::FleetOverview;

/// How the daemon is to be a member.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    /// Where other members come in.
    pub(crate) peer: SocketAddr,
    /// Where they are told to, if that is not `peer`.
    pub(crate) advertise: Option<String>,
    pub(crate) secret: PeerSecret,
    /// What outlives the process.
    pub(crate) data: PathBuf,
    /// Other members. Without them a fleet is founded, if none is known yet.
    pub(crate) join: Vec<String>,
    pub(crate) weight: u32,
    /// For a fleet that is founded.
    pub(crate) voters_max: u32,
    pub(crate) keys_max: u64,
    pub(crate) table_full: TableFull,
    /// Whether limits with the guarantee `tally` are counted in a store.
    pub(crate) tally: bool,
    pub(crate) sessions: SessionOptions,
}

/// A member that stands. Dropped, it is gone as if it had been killed: with its sockets, and
/// without a word to anybody.
pub(crate) struct Membership {
    pub(crate) fleet: Fleet,
    /// Where others reach it.
    pub(crate) address: String,
    _member: Running,
    _coordinator: Running,
}

/// A thread that ends when this is dropped, before the drop returns.
struct Running {
    ends: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Runs something in a thread and a runtime of its own, and tells it when that is to end.
    fn start<F>(
        name: &str,
        run: impl FnOnce(oneshot::Receiver<()>) -> F + Send + 'static,
    ) -> Result<Self, String>
    where
        F: Future<Output = ()>,
    {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
        let (ends, ended) = oneshot::channel();
        let running = move || runtime.block_on(async { run(ended).await });
        let thread = thread::Builder::new().name(name.into()).spawn(running);
        let thread = thread.map_err(|error| format!("no thread: {error}"))?;
        Ok(Self { ends: Some(ends), thread: Some(thread) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ends = None;
        if let Some(thread) = self.thread.take() {
            // It has said why, should it have panicked.
            let _ = thread.join();
        }
    }
}

/// What the coordinator's thread has when others can come in.
struct Opened {
    routes: Arc<Routes>,
    address: String,
    seat: Seat,
    seeds: Vec<String>,
    /// Where a node that had no number tells the one that it got.
    numbered: Option<oneshot::Sender<Identity>>,
}

impl Setup {
    /// Starts the threads, and returns once this daemon is a member whose limits are in force: it
    /// tries until a fleet takes it in.
    ///
    /// # Errors
    /// What can't be, for people: the folder is another's or damaged, the address is taken, the
    /// fleet refuses it.
    pub(crate) fn start(self, build: Build) -> Result<Membership, String> {
        let (opened, opens) = std::sync::mpsc::channel();
        let setup = self.clone();
        let coordinator = Running::start("coordinator", move |ends| async move {
            match setup.open(&opened).await {
                // Whatever runs in the thread goes on until then.
                Ok(()) => drop(ends.await),
                Err(why) => drop(opened.send(Err(why))),
            }
        })?;
        let ended = || String::from("the coordinator's thread has ended");
        let Opened { routes, address, seat, seeds, numbered } =
            opens.recv().map_err(|_| ended())??;
        let (joined, joins) = std::sync::mpsc::channel();
        let options = self.fleet_options(seeds);
        let there = address.clone();
        let member = Running::start("fleet", move |ends| async move {
            let fleet = Fleet::join_behind(&routes, there, options, seat, build).await;
            let is_member = fleet.is_ok();
            let _ = joined.send(fleet.map_err(|error| error.to_string()));
            if is_member {
                drop(ends.await);
            }
        })?;
        let fleet = joins.recv().map_err(|_| ended())??;
        if let Some(numbered) = numbered {
            let _ = numbered.send(Identity { fleet: fleet.fleet(), node: fleet.node() });
        }
        Ok(Membership { fleet, address, _member: member, _coordinator: coordinator })
    }

    /// Opens the door, and the replica if this daemon has been a member before or founds a fleet.
    async fn open(
        self,
        opened: &std::sync::mpsc::Sender<Result<Opened, String>>,
    ) -> Result<(), String> {
        let door = Door::bind(self.peer, self.secret.clone()).await;
        let door = door.map_err(|error| format!("--peer {}: {error}", self.peer))?;
        let address = self.advertise.clone().unwrap_or_else(|| door.address().to_string());
        info!(target: "fleet", address = %door.address(), "listening for other members");
        let routes = door.routes();
        tokio::spawn(door.run());
        let known = identity_in(&self.data).map_err(|error| self.in_data(&error.into()))?;
        let mut seeds = self.join.clone();
        let (seat, numbered) = match known {
            Some(identity) => {
                let replica = self.replica(identity, &routes).await?;
                // Itself last: it may be behind, and from when the fleet takes it in until it hears
                // of that nobody serves its keys.
                let others = replica.voters().voters.into_values();
                seeds.extend(others.filter(|other| *other != address));
                seeds.push(address.clone());
                (seat_of(identity, &replica), None)
            }
            None if self.join.is_empty() => {
                let replica = self.found(&address, &routes).await?;
                seeds.push(address.clone());
                let identity = replica.identity();
                (seat_of(identity, &replica), None)
            }
            None => {
                let folder = self.data.display();
                info!(target: "fleet", %folder, "joins as a new node: the folder holds none");
                let (numbered, number) = oneshot::channel();
                let (later, routes) = (self.clone(), routes.clone());
                tokio::spawn(async move {
                    let Ok(identity) = number.await else { return };
                    if let Err(why) = later.replica(identity, &routes).await {
                        // It stays a member, but can be no replica, and has no number to come back
                        // with.
                        error!(target: "fleet", "{why}");
                    }
                });
                let seat = Seat { is_candidate: true, ..Seat::default() };
                (seat, Some(numbered))
            }
        };
        let _ = opened.send(Ok(Opened { routes, address, seat, seeds, numbered }));
        Ok(())
    }

    /// Founds a fleet with this daemon as its first member.
    async fn found(&self, address: &str, routes: &Arc<Routes>) -> Result<Replica<Tcp>, String> {
        let fleet = u64::from_le_bytes(entropy()?).max(1);
        let identity = Identity { fleet, node: NodeId::new(1) };
        let replica = self.replica(identity, routes).await?;
        let secret = FleetSecret::new(entropy()?);
        replica
            .found(address, secret, self.voters_max)
            .await
            .map_err(|error| format!("the fleet could not be founded: {error}"))?;
        let fleet = format!("{fleet:016x}");
        info!(target: "fleet", fleet, "founded a fleet; others join with --join {address}");
        Ok(replica)
    }

    /// Opens this daemon's replica and lets others reach it.
    async fn replica(
        &self,
        identity: Identity,
        routes: &Arc<Routes>,
    ) -> Result<Replica<Tcp>, String> {
        let fleet = identity.fleet;
        let (purpose, node) = (Purpose::Coordinator, Some(identity.node));
        let hello = Hello { fleet, purpose, to: None, node, start: 0 };
        let network = Tcp::new(self.secret.clone(), hello);
        let replica = Replica::open(&self.data, identity, network, ReplicaOptions::default()).await;
        let replica = replica.map_err(|error| self.in_data(&error))?;
        routes.set_member(fleet, identity.node);
        let sessions = routes.take(Purpose::Session);
        tokio::spawn(serve_sessions(replica.clone(), self.sessions, sessions));
        let replicas = routes.take(Purpose::Coordinator);
        tokio::spawn(serve_replicas(replica.clone(), replicas));
        tokio::spawn(keep_voters(replica.clone()));
        Ok(replica)
    }

    fn in_data(&self, error: &OpenError) -> String {
        match error {
            OpenError::Store(error) => in_folder(&self.data, error),
            OpenError::Stopped(_) => format!("--data {}: {error}", self.data.display()),
        }
    }

    fn fleet_options(&self, seeds: Vec<String>) -> FleetOptions {
        FleetOptions {
            seeds,
            listen: self.peer,
            advertise: self.advertise.clone(),
            secret: self.secret.clone(),
            weight: self.weight,
            keys_max: self.keys_max,
            table_full: self.table_full,
            tally: self.tally,
            // A client that waits as long as it was told must not be early by its own clock.
            clock: Clock::monotonic(),
            sessions: self.sessions,
        }
    }
}

/// What a daemon that has a replica says of itself when it joins.
fn seat_of(identity: Identity, replica: &Replica<Tcp>) -> Seat {
    let Identity { fleet, node } = identity;
    // A founder that was interrupted has a store and was never a member.
    let never_joined = replica.watch().borrow().state.is_unjoined();
    Seat { fleet, node: Some(node).filter(|_| !never_joined), is_candidate: true }
}

/// Sees to it, whenever this replica leads, that the right ones of the fleet's daemons vote.
async fn keep_voters(replica: Replica<Tcp>) {
    let (sender, candidates) = watch::channel(BTreeMap::new());
    let (mut applied, keeping) = (replica.watch(), replica.keep_voters(candidates));
    let following = async {
        loop {
            let state = applied.borrow_and_update().state.clone();
            let there = state.members().filter(|seat| seat.is_candidate);
            let there = there.map(|seat| (seat.node, seat.address.clone())).collect();
            let now = candidates_of(there, replica.voters().voters);
            sender.send_if_modified(|before| {
                let is_news = *before != now;
                *before = now;
                is_news
            });
            if let Ok(Err(_gone)) = timeout(LOOKS_EVERY, applied.changed()).await {
                return;
            }
        }
    };
    tokio::join!(keeping, following);
}

/// Who may vote: daemons that are there, and of those that vote and are away as many as it takes
/// that no vote is lost. One that is down for a while, or stopped as planned, stays a voter unless
/// somebody else takes its place; one that is gone for good is removed by hand.
fn candidates_of(
    mut there: BTreeMap<NodeId, String>,
    voters: BTreeMap<NodeId, String>,
) -> BTreeMap<NodeId, String> {
    let least = voters.len();
    for (node, address) in voters {
        if there.len() < least {
            there.entry(node).or_insert(address);
        }
    }
    there
}

/// How often the voters are looked at when no member has come or gone.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

fn entropy<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| format!("the system gives no entropy: {error}"))?;
    Ok(bytes)
}
