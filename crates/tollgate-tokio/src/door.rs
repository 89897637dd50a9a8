//! Where other members of the fleet come in: one listener for all that they say, told apart by
//! what each connection says that it is for.
//!
//! It knows no message. Who takes a connection may live in another runtime: it gets the socket.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant as Tick;
use tollgate::NodeId;
use tracing::{debug, warn};

use crate::wire::{self, Hello, Host, PeerSecret, Purpose};

/// A connection that was introduced: from now on frames come on it.
#[derive(Debug)]
pub struct Arrival {
    /// Who dialled, what for.
    pub hello: Hello,
    /// The socket, which does not block.
    pub stream: std::net::TcpStream,
}

/// A listener that is bound and does not listen yet.
#[derive(Debug)]
pub struct Door {
    listener: TcpListener,
    address: SocketAddr,
    secret: PeerSecret,
    routes: Arc<Routes>,
}

/// Who takes connections of which purpose, and what this side says of itself.
#[derive(Debug, Default)]
pub struct Routes {
    state: Mutex<State>,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    host: Host,
    takers: [Option<mpsc::Sender<Arrival>>; 3],
    /// When a refusal was last told: whoever knocks must not fill the log.
    told: Option<Tick>,
}

impl Routes {
    /// From now on connections of this purpose go to the receiver. Before, and when it is dropped,
    /// they are refused.
    #[must_use = "a receiver that is dropped takes nothing"]
    pub fn take(&self, purpose: Purpose) -> mpsc::Receiver<Arrival> {
        let (sender, receiver) = mpsc::channel(ARRIVALS_MAX);
        self.lock().takers[place(purpose)] = Some(sender);
        receiver
    }

    /// From now on this side is `node` of `fleet`: members of other fleets are refused, and so is
    /// whoever means another node. Before, whoever means a certain node is refused.
    pub fn set_member(&self, fleet: u64, node: NodeId) {
        self.lock().host = Host { fleet, node: Some(node) };
    }

    /// Connections that were refused so far, or gave way to others before they were introduced.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    fn refuse(&self, from: SocketAddr, why: &str) {
        self.refused.fetch_add(1, Relaxed);
        if self.is_to_be_told() {
            warn!(target: "fleet", %from, "a connection was refused: {why}");
        } else {
            debug!(target: "fleet", %from, "a connection was refused: {why}");
        }
    }

    fn is_to_be_told(&self) -> bool {
        let (now, mut state) = (Tick::now(), self.lock());
        let is_told = state.told.is_some_and(|told| now.duration_since(told) < TELL_REST);
        if !is_told {
            state.told = Some(now);
        }
        !is_told
    }

    fn taker(&self, purpose: Purpose) -> Option<mpsc::Sender<Arrival>> {
        self.lock().takers[place(purpose)].clone().filter(|taker| !taker.is_closed())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place(purpose: Purpose) -> usize {
    match purpose {
        Purpose::Peer => 0,
        Purpose::Session => 1,
        Purpose::Coordinator => 2,
    }
}

impl Door {
    /// Binds `address`; port 0 is any free one.
    ///
    /// # Errors
    /// When the address can't be bound, or is not a loopback address and there is no secret: other
    /// machines could join the fleet.
    pub async fn bind(address: SocketAddr, secret: PeerSecret) -> io::Result<Self> {
        if !address.ip().is_loopback() && !secret.is_some() {
            let why = "other machines could join the fleet here; give a peer secret, or listen at \
                       a loopback address";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, secret, routes: Arc::default() })
    }

    /// Where it is bound.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Who takes what.
    #[must_use]
    pub fn routes(&self) -> Arc<Routes> {
        self.routes.clone()
    }

    /// Takes connections until it is dropped.
    pub async fn run(self) {
        // Those that have not introduced themselves, the oldest first.
        let mut strangers: VecDeque<(AbortHandle, SocketAddr)> = VecDeque::new();
        let mut meetings = JoinSet::new();
        loop {
            let (stream, from) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    warn!(target: "fleet", %error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_REST).await;
                    continue;
                }
            };
            while meetings.try_join_next().is_some() {}
            strangers.retain(|(meeting, _)| !meeting.is_finished());
            // A member introduces itself within milliseconds: whoever came long ago and has not
            // gives way to whoever comes.
            if strangers.len() >= STRANGERS_MAX
                && let Some((oldest, from)) = strangers.pop_front()
            {
                oldest.abort();
                self.routes.refuse(from, "it did not introduce itself before many others came");
            }
            let (secret, routes) = (self.secret.clone(), self.routes.clone());
            let meeting = meetings.spawn(async move {
                if let Err(error) = meet(stream, &secret, &routes).await {
                    routes.refuse(from, &error.to_string());
                }
            });
            strangers.push_back((meeting, from));
        }
    }
}

async fn meet(
    mut stream: TcpStream,
    secret: &PeerSecret,
    routes: &Routes,
) -> Result<(), wire::HelloError> {
    stream.set_nodelay(true)?;
    let host = routes.lock().host;
    let serves = |purpose| routes.taker(purpose).is_some();
    let hello = match wire::answer(&mut stream, secret, host, serves).await {
        // Others know already that this side has joined: they come again.
        Err(wire::HelloError::Node { .. }) if host.node.is_none() => return Ok(()),
        answered => answered?,
    };
    debug!(target: "fleet", ?hello, "a connection is introduced");
    let taker = routes.taker(hello.purpose).ok_or(wire::HelloError::NotServed)?;
    let arrival = Arrival { hello, stream: stream.into_std()? };
    taker.try_send(arrival).map_err(|_| wire::HelloError::NotServed)
}

/// Connections that have not introduced themselves yet.
const STRANGERS_MAX: usize = 64;
/// Introduced connections that their taker has not taken yet.
const ARRIVALS_MAX: usize = 64;
/// After a connection could not be accepted, which means that something is used up.
const ACCEPT_REST: Duration = Duration::from_millis(100);
/// Between two refusals that are told.
const TELL_REST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_machines_can_come_in_only_with_a_secret() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let everywhere: SocketAddr = "0.0.0.0:0".parse().expect("an address");
        runtime.block_on(async {
            let error = Door::bind(everywhere, PeerSecret::default()).await.expect_err("refused");
            assert!(error.to_string().contains("give a peer secret"), "{error}");
            assert!(Door::bind(everywhere, PeerSecret::new(b"open sesame")).await.is_ok());
        });
    }
}
