//! A member of a fleet, as a service has it: joined in ten lines, asked like a limiter.

mod inquire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant as Tick;
use tollgate::coordinator::{Document, Lease, SessionOptions};
use tollgate::{
    Attempt, Clock, Credits, Decision, FleetLimitId, KeyId, Limiter, Node, NodeId, NodeOptions,
    Numbered, Options, Owed, Patience, Reason, Request, Secret, StreamUsage, TableFull, ViewTimes,
    Wait,
};

use crate::delays::{DelayCounts, Delays};
use crate::door::{Door, Routes};
use crate::driver::{AskError, Driver, Inlets, Order, Shared, State};
use crate::join::{JoinError, Joining};
use crate::limit_text;
use crate::links::Links;
use crate::policy::{Enforce, Policies};
use crate::sessions::Replicas;
use crate::status::MemberStatus;
use crate::streams::Streams;
use crate::waiting::{QueueFull, Turn, Waiting};
use crate::wire::{Hello, PeerSecret, Purpose};

/// How a member is set up.
#[derive(Debug, Clone)]
pub struct FleetOptions {
    /// Addresses (`host:port`) of any members; one that answers suffices.
    pub seeds: Vec<String>,
    /// Where other members reach this one. Port 0 is any free one.
    pub listen: SocketAddr,
    /// As others write it, `host:port`, where that is not `listen`.
    pub advertise: Option<String>,
    /// What all members of the fleet know. Needed where `listen` is not a loopback address.
    pub secret: PeerSecret,
    /// Its share of the keys in proportion to others'; typically 1.
    pub weight: u32,
    /// Keys that have a cell, of each kind, at most. Typically 1,000,000.
    pub keys_max: u64,
    /// What becomes of a new key when that many are in use.
    pub table_full: TableFull,
    /// Whether limits with the guarantee `tally` are counted in a store; see
    /// [`Options::tally`].
    pub tally: bool,
    /// Where the time comes from.
    pub clock: Clock,
    /// Times of the whole fleet: the same on all members.
    pub sessions: SessionOptions,
}

impl Default for FleetOptions {
    fn default() -> Self {
        Self {
            seeds: Vec::new(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertise: None,
            secret: PeerSecret::default(),
            weight: 1,
            keys_max: 1_000_000,
            table_full: TableFull::default(),
            tally: false,
            clock: Clock::monotonic(),
            sessions: SessionOptions::default(),
        }
    }
}

/// What a member keeps beyond the life of its process; a service that keeps nothing begins anew
/// each time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seat {
    /// The fleet, by its number; 0 if none is known.
    pub fleet: u64,
    /// The number that the node got when it first joined.
    pub node: Option<NodeId>,
    /// Whether it can be a replica of the coordinator.
    pub is_candidate: bool,
}

/// A member of a fleet. Clones are the same member; when all are dropped it is gone as if it had
/// been killed, so [leave](Self::leave) first.
///
/// A limit with guarantee `eventual` is the whole fleet's, one with `local` this process's alone.
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate::{Descriptor, Entry, Request};
/// use tollgate_tokio::{Fleet, FleetOptions};
///
/// # async fn service() -> Result<(), Box<dyn std::error::Error>> {
/// let seeds = vec!["127.0.0.1:7800".into()];
/// let fleet = Fleet::join(FleetOptions { seeds, ..FleetOptions::default() }).await?;
/// let entries = [Entry::new("tenant", "acme")];
/// let descriptors = [Descriptor::new(&entries)?];
/// let request = Request::new(&descriptors);
/// if fleet.acquire(&request, Duration::from_millis(500)).await.is_allowed() {
///     // It may go on.
/// }
/// fleet.leave().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Fleet {
    limiter: Limiter,
    waiting: Arc<Waiting>,
    shared: Arc<Shared>,
    orders: mpsc::Sender<Order>,
    node: NodeId,
    fleet: u64,
    times: ViewTimes,
}

/// What came of waiting for a word of owners. Until it is dropped, what was permitted for a request
/// stays here: hold it until the request is decided.
#[derive(Debug)]
#[must_use = "what was permitted goes back when nobody waits for it"]
pub struct Contact {
    _turns: Vec<Turn>,
}

/// Makes what decides, once the secret of the fleet's keys is known, and what puts its limits in
/// force there.
pub type Build = Box<dyn FnOnce(Secret) -> Result<(Limiter, Arc<Enforce>), String> + Send>;

impl Fleet {
    /// Joins a fleet, trying until it has.
    ///
    /// # Errors
    /// [`JoinError`]: the address can't be used, or the fleet refuses this member. Nothing is left
    /// behind.
    pub async fn join(options: FleetOptions) -> Result<Self, JoinError> {
        let listen = options.listen;
        let door = Door::bind(listen, options.secret.clone()).await;
        let door =
            door.map_err(|error| JoinError::Address { address: listen.to_string(), error })?;
        let address = options.advertise.clone().unwrap_or_else(|| door.address().to_string());
        let routes = door.routes();
        // Whoever gives up joining leaves no door open.
        let running = Running(tokio::spawn(door.run()));
        let limiter_options = options.clone();
        let build = Box::new(move |secret| limiter_of(&limiter_options, secret));
        let (fleet, driving) =
            Self::begin(&routes, address, options, Seat::default(), build).await?;
        tokio::spawn(async move {
            let _ = driving.await;
            drop(running);
        });
        Ok(fleet)
    }

    /// Joins as a process that has a [`Door`] already and decides by a limiter of its own, as the
    /// daemon does. `address` is where others reach the door.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub async fn join_behind(
        routes: &Arc<Routes>,
        address: String,
        options: FleetOptions,
        seat: Seat,
        build: Build,
    ) -> Result<Self, JoinError> {
        Self::begin(routes, address, options, seat, build).await.map(|(fleet, _)| fleet)
    }

    /// Joins, and starts the member's task.
    async fn begin(
        routes: &Arc<Routes>,
        address: String,
        options: FleetOptions,
        seat: Seat,
        build: Build,
    ) -> Result<(Self, JoinHandle<()>), JoinError> {
        let lease = Lease::new(options.sessions);
        let lease = lease.map_err(|error| JoinError::Options { why: error.to_string() })?;
        // Before anybody can hear of this member.
        let arrivals = routes.take(Purpose::Peer);
        let mut joining = joining(&options, address, seat);
        let joined = joining.run().await?;
        joining.node = Some(joined.node);
        routes.set_member(joined.fleet, joined.node);
        let (limiter, enforce) =
            build(joined.secret.secret()).map_err(|why| JoinError::Options { why })?;
        let credits = limiter.credits().cloned().ok_or_else(|| JoinError::Options {
            why: "the limiter is not one of a fleet's member".into(),
        })?;
        let shares = limiter
            .shares()
            .cloned()
            .ok_or_else(|| JoinError::Options { why: "the limiter divides no limits".into() })?;
        shares.set_members(joined.change.ring.members().len() as u64);
        let mut policies = Policies::new(enforce);
        let rules = match joined.policy.clone() {
            // Before anybody is asked, so that nothing passes that a limit is there for.
            Some(document) => {
                let rules = policies.begin(document).await;
                Some(rules.map_err(|why| JoinError::Policy { why })?)
            }
            None => None,
        };
        let shared = Arc::new(shared());
        let notified = shared.clone();
        credits.on_dirty(Box::new(move || notified.dirty.notify_one()));
        let notified = shared.clone();
        shares.on_dirty(Box::new(move || notified.shares_dirty.notify_one()));
        let (node, start) = (joined.node, joined.start.get());
        let hello = Hello {
            fleet: joined.fleet,
            purpose: Purpose::Peer,
            to: None,
            node: Some(node),
            start,
        };
        let (links, inbox) = Links::new(hello, options.secret.clone());
        let listening = links.listen(arrivals);
        let (replicas, heard) = Replicas::new(hello, options.secret.clone());
        let (orders, taken) = mpsc::channel(ORDERS_MAX);
        let waiting = Arc::new(Waiting::default());
        let fleet = joined.fleet;
        let node_options = node_options(&options.sessions, &credits);
        let times = node_options.times;
        let driver = Driver {
            me: node,
            start,
            node: Node::new(node, node_options),
            limiter: limiter.clone(),
            routes: routes.clone(),
            credits,
            shares,
            clock: options.clock.clone(),
            waiting: waiting.clone(),
            links,
            replicas,
            policies,
            rules,
            lease,
            shared: shared.clone(),
            joined,
            joining,
            members: Vec::new(),
            state: State::default(),
        };
        let driving = tokio::spawn(async move {
            driver.run(Inlets { inbox, heard, orders: taken }).await;
            listening.abort();
        });
        let mut status = shared.status.subscribe();
        // What is asked for before it is linked is stale. Whoever is dead holds up nobody for long.
        let ready = status.wait_for(|status| status.is_ready);
        let _ = tokio::time::timeout(READY_MAX, ready).await;
        Ok((Self { limiter, waiting, shared, orders, node, fleet, times }, driving))
    }

    /// What decides, for callers that don't wait. On first contact with a key of the whole fleet
    /// it answers [`Reason::Stale`] once.
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Has `allotted` called with what streams have of keys: units a second, or none if that cannot
    /// be relied on any more. It is called by the member's task, and should be short. Only the
    /// first is kept; returns whether it is this.
    pub fn on_allotted(
        &self,
        allotted: Box<dyn Fn(KeyId, u64, Option<f64>) + Send + Sync>,
    ) -> bool {
        self.shared.streams.on_allotted(allotted)
    }

    /// Tells what a stream of this node has counted of a key that nodes divide: from now on it is a
    /// member of the key's division. Returns false if there is no room for it; at most 100,000 keys
    /// of streams wait to be told.
    pub fn tell_stream(&self, usage: StreamUsage) -> bool {
        self.shared.streams.tell(usage)
    }

    /// Tells that a stream asks no more for a key.
    pub fn stream_gone(&self, key: KeyId, stream: u64) {
        self.shared.streams.gone(key, stream);
    }

    /// Waits for what the owners of a request's keys say of keys that are new here, or of which
    /// more may be permitted, for 10 ms at most: so that whatever decides the request then, decides
    /// it on what the fleet knows.
    pub async fn contact(&self, request: &Request<'_>) -> Contact {
        self.meet(|limiter| limiter.contact(request)).await
    }

    /// The same for whoever can't hold on to a request while it waits: `look` makes it anew each
    /// time, and asks [`Limiter::contact`].
    pub async fn meet(&self, mut look: impl FnMut(&Limiter) -> Option<Wait>) -> Contact {
        let mut until = None;
        let mut turns: Vec<Turn> = Vec::new();
        // Ends: no key is waited for longer than that.
        while let Some(Wait::Credit { key, cost, .. }) = look(&self.limiter) {
            // Since the first look, which may have taken the system a while: memory for a new cell.
            let until = *until.get_or_insert_with(|| Tick::now() + WORD_MAX);
            match turns.iter().find(|turn| turn.key() == key) {
                Some(mine) => {
                    if tokio::time::timeout_at(until, mine.called()).await.is_err() {
                        break;
                    }
                    mine.wait_on();
                }
                // Its cell may have left since the look; it can't any more once somebody waits.
                None => match self.waiting.join(key, cost, Patience::Word) {
                    Ok(mine) => turns.push(mine),
                    Err(QueueFull) => break,
                },
            }
        }
        Contact { _turns: turns }
    }

    /// Decides a request as [`Limiter::check`] does, once the owners of its keys have said what
    /// they know if that may matter, or 10 ms later: see [`Patience::Word`].
    pub async fn check(&self, request: &Request<'_>) -> Decision {
        match self.limiter.attempt(request, Patience::Word) {
            Attempt::Decided(decision) => decision,
            Attempt::Waits(_) => {
                let _contact = self.contact(request).await;
                self.limiter.check(request)
            }
        }
    }

    /// Decides a request, and lets it wait for room for `patience` at most. Requests for one key
    /// are served in the order in which they came.
    ///
    /// Denied are what waiting can't help, what found 1,024 requests waiting for its key
    /// ([`Reason::QueueFull`]), and what had no room in time ([`Reason::Deadline`]).
    pub async fn acquire(&self, request: &Request<'_>, patience: Duration) -> Decision {
        match self.limiter.attempt(request, Patience::Room) {
            Attempt::Decided(decision) => decision,
            Attempt::Waits(wait) => self.wait(request, wait, Tick::now() + patience).await,
        }
    }

    async fn wait(&self, request: &Request<'_>, mut wait: Wait, until: Tick) -> Decision {
        let (mut turn, mut was_called): (Option<Turn>, _) = (None, false);
        loop {
            let in_time = match wait {
                Wait::Until(at) => {
                    turn = None;
                    let wakes = Tick::now() + at.saturating_since(self.limiter.now());
                    tokio::time::sleep_until(wakes.min(until)).await;
                    wakes <= until
                }
                Wait::Credit { key, cost, .. } => match turn.take_if(|turn| turn.key() == key) {
                    Some(mine) => {
                        if was_called {
                            mine.wait_on();
                        }
                        was_called = tokio::time::timeout_at(until, mine.called()).await.is_ok();
                        turn = Some(mine);
                        was_called
                    }
                    // Since the look its cell may have left, or have got what it lacked: only a
                    // look from the queue counts.
                    None => match self.waiting.join(key, cost, Patience::Room) {
                        Ok(mine) => {
                            (turn, was_called) = (Some(mine), false);
                            true
                        }
                        Err(QueueFull) => {
                            return self.limiter.refuse(request, Reason::QueueFull);
                        }
                    },
                },
            };
            if !in_time {
                return self.limiter.refuse(request, Reason::Deadline);
            }
            match self.limiter.attempt(request, Patience::Room) {
                Attempt::Decided(decision) => return decision,
                Attempt::Waits(next) => wait = next,
            }
        }
    }

    /// Charges what a settled reservation [owes](Limiter::settle), as the key's owner permits it,
    /// for
    /// `patience` at most; returns what was not charged.
    ///
    /// It goes an eighth of the burst at a time, in its turn among the requests that wait for the
    /// key: of a debt of 100 with a burst of 80, ten times 10.
    pub async fn collect(&self, owed: &Owed, patience: Duration) -> u64 {
        let until = Tick::now() + patience;
        let Some(credits) = self.limiter.credits() else { return owed.cost };
        let mut left = owed.cost;
        loop {
            left -= credits.charge_up_to(owed.key, owed.limit, left, self.limiter.now());
            let part = left.min(owed.burst.div_ceil(8));
            if part == 0 {
                return left;
            }
            let Ok(turn) = self.waiting.join(owed.key, part, Patience::Room) else { return left };
            if tokio::time::timeout_at(until, turn.called()).await.is_err() {
                return left;
            }
        }
    }

    /// Leaves the fleet: others take over the keys that this member owns, without a gap. Returns
    /// when they have, which takes some 10 ms where all goes well.
    ///
    /// Requests are decided meanwhile. Afterwards limits of the whole fleet are stale here.
    pub async fn leave(&self) {
        let (done, left) = oneshot::channel();
        if self.orders.send(Order::Leave(done)).await.is_ok() {
            // An error means that somebody else had it leave before.
            let _ = left.await;
        }
    }

    /// What a replica of the coordinator answers to a question in the daemons' encoding.
    ///
    /// # Errors
    /// [`AskError`]: with [`AskError::NotAsked`] nobody has heard the question.
    pub async fn ask(&self, question: Vec<u8>) -> Result<Vec<u8>, AskError> {
        let (answer, answered) = oneshot::channel();
        let ordered = self.orders.send(Order::Ask(question, answer)).await;
        ordered.map_err(|_| AskError::NotAsked)?;
        answered.await.unwrap_or(Err(AskError::Lost))
    }

    /// How it fares: the last that was told, and a way to wait for more.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<MemberStatus> {
        self.shared.status.subscribe()
    }

    /// From sending a batch of reports to having its answer.
    #[must_use]
    pub fn report_delays(&self) -> DelayCounts {
        self.shared.report_delays.read()
    }

    /// How old what a permission stands on was when the permission came.
    #[must_use]
    pub fn snapshot_delays(&self) -> DelayCounts {
        self.shared.snapshot_delays.read()
    }

    /// This member's number.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The times that the whole fleet shares.
    #[must_use]
    pub fn times(&self) -> ViewTimes {
        self.times
    }

    /// The fleet's number.
    #[must_use]
    pub fn fleet(&self) -> u64 {
        self.fleet
    }
}

/// What a member says when it joins.
fn joining(options: &FleetOptions, address: String, seat: Seat) -> Joining {
    Joining {
        seeds: options.seeds.clone(),
        secret: options.secret.clone(),
        fleet: seat.fleet,
        node: seat.node,
        weight: options.weight,
        address,
        is_candidate: seat.is_candidate,
    }
}

fn shared() -> Shared {
    Shared {
        dirty: Notify::new(),
        shares_dirty: Notify::new(),
        streams: Streams::default(),
        status: watch::Sender::new(MemberStatus::default()),
        report_delays: Delays::default(),
        snapshot_delays: Delays::default(),
    }
}

/// A task that ends when this is dropped.
struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A limiter that has the fleet's limits and no others.
fn limiter_of(options: &FleetOptions, secret: Secret) -> Result<(Limiter, Arc<Enforce>), String> {
    let options = Options {
        keys_max: options.keys_max,
        table_full: options.table_full,
        clock: options.clock.clone(),
        secret,
        fleet: true,
        tally: options.tally,
        share: true,
    };
    let limiter = Limiter::new(Vec::new(), options).map_err(|error| error.to_string())?;
    let enforced = limiter.clone();
    let enforce = move |document: &Document| {
        let numbered = numbered_of(document)?;
        let enforced = enforced.replace_numbered(numbered, document.revision.get());
        enforced.map_err(|error| error.to_string())
    };
    Ok((limiter, Arc::new(enforce)))
}

/// The limits of a document with their numbers in the fleet, or, for people, why it has none that
/// can be read here.
///
/// # Errors
/// Names the limit; a newer version may have written it.
pub fn numbered_of(document: &Document) -> Result<Vec<Numbered>, String> {
    let limits = limit_text::from_document(document).map_err(|error| error.to_string())?;
    let numbered = limits.into_iter().zip(&document.limits).map(|(limit, kept)| Numbered {
        limit,
        number: FleetLimitId(kept.number),
        generation: kept.generation.get(),
    });
    Ok(numbered.collect())
}

/// A node's options, which follow from its member's: every cell has a view.
fn node_options(sessions: &SessionOptions, credits: &Credits) -> NodeOptions {
    let mut node = NodeOptions::default();
    let SessionOptions { session_timeout, ttl_max, drift_ppm, .. } = *sessions;
    (node.times.session_timeout, node.times.ttl_max) = (session_timeout, ttl_max);
    node.times.drift_ppm = drift_ppm;
    node.keys_max = usize::try_from(credits.keys_max()).unwrap_or(usize::MAX);
    node
}

/// How long whoever has joined waits until it is ready.
const READY_MAX: Duration = Duration::from_millis(500);
/// How long a check waits for what the key's owner says.
const WORD_MAX: Duration = Duration::from_millis(10);
/// Orders that the task has not taken.
const ORDERS_MAX: usize = 16;
