//! One server in use: its connections, one exchange at a time on each, and what their ends mean.
//!
//! After an exchange that did not end well the server counts as down, and no connection to it is
//! used again: whether late replies would still come is not worth knowing, and a server that has
//! stopped gathers no more requests than were under way. When to look for it again is for
//! `standing`, where for `seek`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant as Clock};

use tokio::sync::Mutex as Turn;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use crate::connection::{Connection, Exchange, Failed, Greeting};
use crate::health::{Board, FailureKind, Role, Server};
use crate::options::Address;
use crate::pipeline::{Answer, Pair, Reads, Writes};
use crate::refusal::Refusal;
use crate::seek::{Found, Seek};
use crate::standing::{Fault, Standing, Step};
use tollgate::tally::Outcome;

pub(crate) struct Link {
    seek: Seek,
    limits: LinkLimits,
    board: Arc<Board>,
    /// Held by the first call ever while it looks for the server; others wait for what it finds.
    first: Turn<()>,
    state: Mutex<State>,
}

/// How long what may take on a link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkLimits {
    pub(crate) connect_timeout: Duration,
    pub(crate) reconnect_interval: Duration,
    pub(crate) connections_max: usize,
}

/// How long a call may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// Until when a connection must be made, if one is to be.
    pub(crate) connect_by: Instant,
    /// How long an answer may take then.
    pub(crate) answer: Duration,
}

struct State {
    standing: Standing,
    /// Connections of the standing's generation that nobody uses.
    idle: Vec<Connection>,
    server: Option<Server>,
    /// What was last warned of, so that each is said once.
    warned: Option<(Address, String)>,
}

/// A connection in use.
struct Lease {
    connection: Connection,
    generation: u64,
}

/// Tells that a search found nothing, if it ends without having told anything.
struct Search<'a> {
    link: &'a Link,
    is_over: bool,
}

impl Link {
    pub(crate) fn new(seek: Seek, limits: LinkLimits, board: Arc<Board>) -> Self {
        let state = State {
            standing: Standing::new(limits.reconnect_interval),
            idle: Vec::new(),
            server: None,
            warned: None,
        };
        Self { seek, limits, board, first: Turn::new(()), state: Mutex::new(state) }
    }

    pub(crate) async fn write(&self, mut writes: Writes, times: Times) -> Answer<Outcome> {
        let Some(mut lease) = self.lease(true, times.connect_by).await else {
            return writes.not_sent();
        };
        let ran = self.run(&mut writes.exchange, &mut lease, times.answer).await;
        if is_timeout(&ran) {
            self.board.lock().counts.writes_timed_out += 1;
        }
        let answer = writes.answer();
        self.conclude(lease, ran, &answer);
        answer
    }

    pub(crate) async fn read(&self, mut reads: Reads, times: Times) -> Answer<Pair> {
        let Some(mut lease) = self.lease(false, times.connect_by).await else {
            return reads.not_sent();
        };
        let ran = self.run(&mut reads.exchange, &mut lease, times.answer).await;
        if is_timeout(&ran) {
            self.board.lock().counts.reads_timed_out += 1;
        }
        let answer = reads.answer();
        self.conclude(lease, ran, &answer);
        answer
    }

    pub(crate) fn server(&self) -> Option<Server> {
        self.lock().server.clone()
    }

    async fn run(
        &self,
        exchange: &mut Exchange,
        lease: &mut Lease,
        timeout: Duration,
    ) -> Result<(), Failed> {
        let began = Instant::now();
        self.board.lock().counts.commands += 1;
        let ran = timeout_at(began + timeout, exchange.run(&mut lease.connection)).await;
        let ran = ran.unwrap_or_else(|_| Err(Failed::timed_out()));
        if ran.is_ok() {
            self.board.lock().latency = Some(began.elapsed());
        }
        ran
    }

    /// Keeps the connection, or what its end means.
    fn conclude<T>(&self, lease: Lease, ran: Result<(), Failed>, answer: &Answer<T>) {
        self.board.lock().take_in(&answer.refusals, &answer.expiries_failed);
        let generation = lease.generation;
        let failed = match ran {
            Err(failed) => failed,
            Ok(()) if answer.is_lost => Failed::nonsense(),
            Ok(()) if answer.refusals.iter().any(|(one, _)| *one == Refusal::ReadOnly) => {
                return self.demoted(generation);
            }
            Ok(()) => return self.keep(lease),
        };
        self.board.lock().counts.closed += u64::from(failed.kind == FailureKind::Closed);
        self.failed(generation, fault(&failed), &failed);
    }

    /// A connection to use, if the server is not known to be down.
    async fn lease(&self, is_write: bool, deadline: Instant) -> Option<Lease> {
        let is_new = self.lock().standing.is_new();
        let _first = match is_new {
            true => Some(timeout_at(deadline, self.first.lock()).await.ok()?),
            false => None,
        };
        let step = self.lock().standing.step(is_write, Instant::now());
        match step {
            Step::GiveUp => None,
            Step::Seek => {
                let lease = self.find(deadline).await?;
                let is_replica = self.server().is_some_and(|one| one.role == Role::Replica);
                if is_write && is_replica {
                    self.keep(lease);
                    return None;
                }
                Some(lease)
            }
            Step::Use { address, generation } => {
                while let Some(mut connection) = self.idle(generation) {
                    if connection.is_quiet().await {
                        return Some(Lease { connection, generation });
                    }
                    self.board.lock().counts.closed += 1;
                }
                self.another(&address, generation, deadline).await
            }
        }
    }

    fn keep(&self, lease: Lease) {
        let mut state = self.lock();
        let is_wanted = state.idle.len() < self.limits.connections_max;
        if state.standing.generation() == lease.generation && is_wanted {
            state.idle.push(lease.connection);
        }
    }

    fn idle(&self, generation: u64) -> Option<Connection> {
        let mut state = self.lock();
        if state.standing.generation() != generation {
            return None;
        }
        state.idle.pop()
    }

    /// Looks for the server.
    async fn find(&self, deadline: Instant) -> Option<Lease> {
        let mut search = Search { link: self, is_over: false };
        let found = self.seek.find(deadline).await;
        search.is_over = true;
        match found {
            Ok(found) => Some(self.found(found)),
            Err(failed) => {
                self.not_found(&failed);
                None
            }
        }
    }

    /// Makes another connection to the server in use.
    async fn another(
        &self,
        address: &Address,
        generation: u64,
        deadline: Instant,
    ) -> Option<Lease> {
        let opened = timeout_at(deadline, self.seek.open(address)).await;
        match opened.unwrap_or_else(|_| Err(Failed::timed_out())) {
            Ok(found) => {
                self.board.lock().counts.connects += 1;
                let is_replica = found.greeting.role == Role::Replica;
                let was_replica = self.server().is_some_and(|one| one.role == Role::Replica);
                if is_replica && !was_replica {
                    self.demoted(generation);
                    return None;
                }
                Some(Lease { connection: found.connection, generation })
            }
            Err(failed) => {
                self.board.lock().counts.connects_failed += 1;
                self.failed(generation, fault(&failed), &failed);
                None
            }
        }
    }

    fn found(&self, found: Found) -> Lease {
        let Found { connection, greeting, address } = found;
        self.board.lock().counts.connects += 1;
        let mut state = self.lock();
        let before = state.standing.generation();
        let generation = state.standing.found(address.clone(), greeting.role, Instant::now());
        if generation != before {
            state.idle.clear();
            info!(target: "tally", %address, role = ?greeting.role, "connected to a store");
            state.server = Some(server(&address, &greeting));
        }
        state.warn_of_eviction(address, greeting);
        Lease { connection, generation }
    }

    fn not_found(&self, failed: &Failed) {
        {
            let mut notes = self.board.lock();
            notes.counts.connects_failed += 1;
            notes.fail(failed.kind, failed.text.clone());
        }
        let mut state = self.lock();
        let is_news = state.standing.is_new() || state.standing.is_up();
        state.standing.not_found(Instant::now());
        state.idle.clear();
        state.down();
        if is_news {
            warn!(target: "tally", "a store can't be reached: {}", failed.text);
        }
    }

    fn failed(&self, generation: u64, fault: Fault, failed: &Failed) {
        self.board.lock().fail(failed.kind, failed.text.clone());
        let mut state = self.lock();
        if state.standing.failed(generation, fault, Instant::now()) {
            state.idle.clear();
            state.down();
            warn!(target: "tally", "a store is down: {}", failed.text);
        }
    }

    /// The server in use became a replica.
    fn demoted(&self, generation: u64) {
        let mut state = self.lock();
        if state.standing.failed(generation, Fault::Demoted, Instant::now()) {
            state.idle.clear();
            if let Some(server) = &mut state.server {
                (server.role, server.since) = (Role::Replica, Clock::now());
                warn!(target: "tally", address = server.address, "a store became a replica");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Search<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.link.not_found(&Failed {
                kind: FailureKind::Connect,
                text: "a call was dropped while it looked for the server".to_owned(),
            });
        }
    }
}

impl State {
    fn down(&mut self) {
        if let Some(server) = &mut self.server
            && server.is_connected
        {
            (server.is_connected, server.since) = (false, Clock::now());
        }
    }

    fn warn_of_eviction(&mut self, address: Address, greeting: Greeting) {
        if let Some(server) = &mut self.server {
            (server.maxmemory, server.version) = (greeting.maxmemory, greeting.version);
            server.may_evict.clone_from(&greeting.may_evict);
        }
        let warning = greeting.may_evict.map(|policy| (address, policy));
        if let Some((address, policy)) = &warning
            && self.warned != warning
        {
            warn!(target: "tally", %address, policy,
                "a store may evict counters when its memory is full, and so forget what was used; \
                 its maxmemory-policy should be noeviction");
        }
        self.warned = warning;
    }
}

fn is_timeout(ran: &Result<(), Failed>) -> bool {
    ran.as_ref().is_err_and(|failed| failed.kind == FailureKind::TimedOut)
}

fn fault(failed: &Failed) -> Fault {
    match failed.kind {
        FailureKind::TimedOut => Fault::Silent,
        FailureKind::Connect
        | FailureKind::Closed
        | FailureKind::Auth
        | FailureKind::Refused
        | FailureKind::Protocol => Fault::Lost,
    }
}

fn server(address: &Address, greeting: &Greeting) -> Server {
    Server {
        address: address.to_string(),
        is_connected: true,
        since: Clock::now(),
        role: greeting.role,
        version: greeting.version.clone(),
        maxmemory: greeting.maxmemory,
        may_evict: greeting.may_evict.clone(),
    }
}
