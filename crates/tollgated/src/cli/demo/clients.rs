//! The tenants' clients: tasks that ask the node beside them, as often as they are to.
//!
//! All of them run in one thread, so that what they decide has an order.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tollgate::{Descriptor, Entry, Request};
use tollgate_tokio::Fleet;

use super::members::{Members, NODES, NOISY, runtime};
use super::tally::{Tally, Who};

/// Clients that ask until this is dropped.
pub(super) struct Clients {
    ends: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Clients {
    /// The noisy tenant's on all nodes, the quiet one's on those that will not be killed.
    pub(super) fn start(members: &Members, tally: &Arc<Tally>) -> Result<Self, String> {
        let roles = tally.roles();
        let mut clients = Vec::new();
        for (place, fleet) in members.living() {
            let (tally, tenant) = (tally.clone(), String::from(NOISY));
            let per_second = NOISY_PER_SECOND / NODES as f64;
            let fleet = fleet.clone();
            let noisy = Client { who: Who::Noisy, tenant, per_second, place, fleet, tally };
            if place != roles.noisy_owner {
                let per_second = QUIET_PER_SECOND / (NODES - 1) as f64;
                let (who, tenant) = (Who::Quiet, roles.quiet.clone());
                let (fleet, tally) = (noisy.fleet.clone(), noisy.tally.clone());
                clients.push(Client { who, tenant, per_second, place, fleet, tally });
            }
            clients.push(noisy);
        }
        let (ends, ended) = oneshot::channel::<()>();
        let runtime = runtime()?;
        let thread = std::thread::Builder::new().name("clients".into()).spawn(move || {
            runtime.block_on(async {
                let mut asking = JoinSet::new();
                for client in clients {
                    asking.spawn(client.run());
                }
                drop(ended.await);
            });
        });
        let thread = thread.map_err(|error| format!("no thread: {error}"))?;
        Ok(Self { ends: Some(ends), thread: Some(thread) })
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.ends = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Client {
    who: Who,
    tenant: String,
    per_second: f64,
    place: usize,
    fleet: Fleet,
    tally: Arc<Tally>,
}

impl Client {
    async fn run(self) {
        let entries = [Entry::new("tenant", &*self.tenant)];
        // A name of a few letters is one.
        let Ok(descriptor) = Descriptor::new(&entries) else { return };
        let descriptors = [descriptor];
        let request = Request::new(&descriptors);
        let (began, mut asked) = (Instant::now(), 0);
        loop {
            tokio::time::sleep(TICK).await;
            let due = (began.elapsed().as_secs_f64() * self.per_second) as u64;
            // Where the machine stood still, the clients did too.
            asked = asked.max(due.saturating_sub(AT_ONCE_MAX));
            while asked < due {
                asked += 1;
                if !self.tally.lives(self.place) {
                    return;
                }
                let asks = Instant::now();
                let decision = match self.who {
                    // It does not wait for anything.
                    Who::Noisy => self.fleet.limiter().check(&request),
                    // As daemons decide, and services that want no denial by chance.
                    Who::Quiet => self.fleet.check(&request).await,
                };
                self.tally.note(self.who, self.place, decision.is_allowed(), asks.elapsed());
            }
        }
    }
}

/// Five times what it may have.
const NOISY_PER_SECOND: f64 = 5_000.0;
const QUIET_PER_SECOND: f64 = 50.0;
const TICK: Duration = Duration::from_millis(1);
/// What a client makes up for at once.
const AT_ONCE_MAX: u64 = 100;
