//! The sessions of all nodes with this replica: who was heard when, whose loss is proposed, whose
//! heartbeats the leader acknowledges.
//!
//! The rules are `tollgate::coordinator::Sessions`; here are the clock, the log and the quorum
//! that they ask for.

use tokio::sync::mpsc;
use tollgate::coordinator::{
    Action, Command, Event, SessionOptions, SessionOptionsError, Sessions, StartNumber,
};
use tollgate::{Clock, Instant, NodeId};
use tollgate_tokio::wire::Tell;
use tracing::{debug, info};

use super::leadership::Leadership;
use super::machine::Applied;
use super::replica::Replica;
use super::tcp::Tcp;

/// What happens on a connection to a node.
#[derive(Debug)]
pub(super) enum Spoken {
    /// It spoke.
    Heartbeat {
        node: NodeId,
        start: StartNumber,
        connection: u64,
        /// The node's clock, for the answer.
        sent_at: Instant,
        /// Where the answer goes.
        answers: mpsc::Sender<Tell>,
    },
    /// It is gone, without having said so.
    Closed { node: NodeId, start: StartNumber, connection: u64 },
}

/// Keeps the sessions.
pub(super) struct Keeper {
    replica: Replica<Tcp>,
    sessions: Sessions,
    clock: Clock,
    /// When the rules want to be woken.
    wakes_at: Option<Instant>,
    /// Heartbeats that the leader is to acknowledge once it knows that it leads.
    unconfirmed: Vec<(mpsc::Sender<Tell>, Instant)>,
    /// Whether a quorum is being asked for those before.
    is_confirming: bool,
    confirmed: mpsc::Sender<Vec<(mpsc::Sender<Tell>, Instant)>>,
}

impl Keeper {
    /// Keeps sessions until nobody can speak any more.
    pub(super) async fn run(
        replica: Replica<Tcp>,
        options: SessionOptions,
        mut spoken: mpsc::Receiver<Spoken>,
    ) -> Result<(), SessionOptionsError> {
        let (confirmed, mut confirmations) = mpsc::channel(1);
        let mut keeper = Self {
            sessions: Sessions::new(options)?,
            clock: replica.clock().clone(),
            wakes_at: None,
            unconfirmed: Vec::new(),
            is_confirming: false,
            confirmed,
            replica: replica.clone(),
        };
        let (mut applied, mut leads) = (replica.watch(), replica.leadership());
        keeper.follow_members(&applied.borrow_and_update().clone());
        let leader = leads.borrow_and_update().clone();
        keeper.follow_leader(&leader);
        loop {
            tokio::select! {
                biased;
                one = spoken.recv() => match one {
                    Some(one) => keeper.hear(one),
                    None => return Ok(()),
                },
                Some(heard) = confirmations.recv() => keeper.confirm(heard),
                Ok(()) = applied.changed() => {
                    let now = applied.borrow_and_update().clone();
                    keeper.follow_members(&now);
                }
                Ok(()) = leads.changed() => {
                    let now = leads.borrow_and_update().clone();
                    keeper.follow_leader(&now);
                }
                () = keeper.woken() => {
                    // What has arrived meanwhile is read first: it may say that somebody lives.
                    for _ in 0..READS_FIRST {
                        tokio::task::yield_now().await;
                        while let Ok(one) = spoken.try_recv() {
                            keeper.hear(one);
                        }
                    }
                    keeper.tell(Event::Timeout);
                }
            }
        }
    }

    async fn woken(&self) {
        match self.wakes_at {
            Some(at) => tokio::time::sleep(at.saturating_since(self.clock.now())).await,
            None => std::future::pending().await,
        }
    }

    fn hear(&mut self, spoken: Spoken) {
        match spoken {
            Spoken::Heartbeat { node, start, connection, sent_at, answers } => {
                let is_acknowledged = self.tell(Event::Heartbeat { node, start, connection });
                if is_acknowledged && self.unconfirmed.len() < UNCONFIRMED_MAX {
                    self.unconfirmed.push((answers, sent_at));
                    self.ask_quorum();
                }
            }
            Spoken::Closed { node, start, connection } => {
                debug!(target: "coordinator", node = node.get(), "a node's connection closed");
                self.tell(Event::Closed { node, start, connection });
            }
        }
    }

    fn follow_members(&mut self, applied: &Applied) {
        let members = applied.state.members().map(|seat| (seat.node, seat.start)).collect();
        self.tell(Event::Members(members));
    }

    fn follow_leader(&mut self, leadership: &Leadership) {
        match leadership {
            Leadership::Leads { term } => self.tell(Event::Leads { term: *term }),
            Leadership::Follows { .. } | Leadership::Failed { .. } => self.tell(Event::Follows),
        };
    }

    /// Tells the rules one thing and does what comes of it. Returns whether a heartbeat is to be
    /// acknowledged.
    fn tell(&mut self, event: Event) -> bool {
        self.sessions.handle(event, self.clock.now());
        let mut acknowledges = false;
        self.wakes_at = None;
        while let Some(action) = self.sessions.poll() {
            match action {
                Action::Acknowledge { .. } => acknowledges = true,
                Action::Propose { command, term } => self.propose(command, term),
                Action::Timeout(at) => self.wakes_at = Some(at),
            }
        }
        acknowledges
    }

    /// Proposes a loss. One that is not committed is proposed again by the rules.
    fn propose(&self, command: Command, term: u64) {
        let replica = self.replica.clone();
        info!(target: "coordinator", ?command, "a node is lost");
        tokio::spawn(async move { replica.propose_in_term(command, term).await });
    }

    /// Has a quorum asked whether this replica leads, once for all heartbeats that were heard
    /// before.
    fn ask_quorum(&mut self) {
        if self.is_confirming || self.unconfirmed.is_empty() {
            return;
        }
        self.is_confirming = true;
        let heard = std::mem::take(&mut self.unconfirmed);
        let (replica, confirmed) = (self.replica.clone(), self.confirmed.clone());
        tokio::spawn(async move {
            let leads = replica.confirm().await.is_ok();
            let _ = confirmed.send(if leads { heard } else { Vec::new() }).await;
        });
    }

    fn confirm(&mut self, heard: Vec<(mpsc::Sender<Tell>, Instant)>) {
        self.is_confirming = false;
        for (answers, sent_at) in heard {
            // A node that does not read misses it, and speaks again.
            let _ = answers.try_send(Tell::Heard { sent_at });
        }
        self.ask_quorum();
    }
}

/// Times that other tasks get to read before somebody is taken for silent.
const READS_FIRST: usize = 4;
/// Heartbeats that wait for a quorum; beyond them nodes speak again.
const UNCONFIRMED_MAX: usize = 4_096;
