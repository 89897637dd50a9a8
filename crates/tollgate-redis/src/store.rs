//! A store: how many calls it takes at once, and which servers they go to.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use crate::cluster::Cluster;
use crate::connection::Access;
use crate::health::{Board, Health};
use crate::link::{Link, LinkLimits, Times};
use crate::options::{StoreError, StoreOptions, Topology};
use crate::pipeline::{Reads, Writes};
use crate::seek::{Seek, Sentinel};
use crate::tls;
use tollgate::Addition;
use tollgate::tally::Outcome;

/// A Redis or Valkey deployment in which counters are added to and read.
///
/// It is connected by the calls that need it, and by nothing between them. Its calls want a tokio
/// runtime. What a call that is dropped was to write may be there.
pub struct Store {
    servers: Servers,
    board: Arc<Board>,
    calls: Semaphore,
    limits: LinkLimits,
    read_timeout: Duration,
    write_timeout: Duration,
}

enum Servers {
    One(Box<Link>),
    Cluster(Box<Cluster>),
}

impl Store {
    /// A store that is not connected yet.
    ///
    /// # Errors
    /// Options that can be no store, and certificates that can't be read.
    pub fn new(options: StoreOptions) -> Result<Self, StoreError> {
        options.check()?;
        let tls = options.tls.as_ref().map(tls::connector).transpose()?;
        let access = Access {
            username: options.username,
            password: options.password,
            database: options.database,
            tls: tls.clone(),
        };
        let limits = LinkLimits {
            connect_timeout: options.connect_timeout,
            reconnect_interval: options.reconnect_interval,
            connections_max: options.commands_max,
        };
        let (addresses, board) = (options.addresses, Arc::new(Board::default()));
        let one = |seek| Servers::One(Box::new(Link::new(seek, limits, Arc::clone(&board))));
        let servers = match options.topology {
            Topology::Replicated => one(Seek { addresses, access, sentinel: None }),
            Topology::Sentinel { service, username, password } => {
                let of_sentinels = Access { username, password, database: 0, tls };
                let sentinel = Sentinel { service, access: of_sentinels };
                one(Seek { addresses, access, sentinel: Some(sentinel) })
            }
            Topology::Cluster => {
                let cluster = Cluster::new(addresses, access, limits, Arc::clone(&board));
                Servers::Cluster(Box::new(cluster))
            }
        };
        Ok(Self {
            servers,
            board,
            calls: Semaphore::new(options.commands_max.min(Semaphore::MAX_PERMITS)),
            limits,
            read_timeout: options.read_timeout,
            write_timeout: options.write_timeout,
        })
    }

    /// Adds to counters and sets when they expire; tells what became of each addition, in order.
    ///
    /// It takes no longer than `write_timeout` and, if a connection is to be made,
    /// `connect_timeout`. A counter of which the expiry could not be set is [`Outcome::Done`], and
    /// counted in [`Health`].
    pub async fn write(&self, additions: &[Addition]) -> Vec<Outcome> {
        if additions.is_empty() {
            return Vec::new();
        }
        let Some((_turn, times)) = self.turn(self.write_timeout).await else {
            return vec![Outcome::NotSent; additions.len()];
        };
        match &self.servers {
            Servers::One(link) => link.write(Writes::new(additions), times).await.values,
            Servers::Cluster(cluster) => cluster.write(additions, times).await,
        }
    }

    /// Reads pairs of counters, in order; `None` is a pair that could not be read.
    ///
    /// A counter that is missing, is no number or is negative is read as 0. In a cluster the two
    /// names of a pair must have one hash tag. It takes no longer than `read_timeout` and, if a
    /// connection is to be made, `connect_timeout`.
    pub async fn read(&self, names: &[[String; 2]]) -> Vec<Option<(u64, u64)>> {
        if names.is_empty() {
            return Vec::new();
        }
        let Some((_turn, times)) = self.turn(self.read_timeout).await else {
            return vec![None; names.len()];
        };
        match &self.servers {
            Servers::One(link) => link.read(Reads::together(names), times).await.values,
            Servers::Cluster(cluster) => cluster.read(names, times).await,
        }
    }

    /// How it fares; of a server what was seen when it was last used.
    #[must_use]
    pub fn health(&self) -> Health {
        let servers = match &self.servers {
            Servers::One(link) => link.server().into_iter().collect(),
            Servers::Cluster(cluster) => cluster.servers(),
        };
        let notes = self.board.lock();
        Health {
            servers,
            last_failure: notes.last_failure.clone(),
            latency: notes.latency,
            counts: notes.counts,
        }
    }

    /// Waits until few enough others are under way. Half of the time is left then: who sends with
    /// less to go would not learn what became of it.
    async fn turn(&self, whole: Duration) -> Option<(SemaphorePermit<'_>, Times)> {
        let began = Instant::now();
        let turn = timeout(whole / 2, self.calls.acquire()).await.ok()?.ok()?;
        let now = Instant::now();
        let connect_by = now + self.limits.connect_timeout;
        Some((turn, Times { connect_by, answer: whole.saturating_sub(now - began) }))
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("health", &self.health()).finish_non_exhaustive()
    }
}
