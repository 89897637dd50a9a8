//! A node's session with this replica: what it asks, and what it has to know.
//!
//! Each connection is a task that reads what the node says and writes what has changed since the
//! node last knew: rings in their order, the policy in force, who the replicas are.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate::coordinator::{
    Answer, Command, Revision, RingChange, Seat, SessionOptions, StartNumber,
};
use tollgate::{Clock, Instant, NodeId, RingEpoch};
use tollgate_tokio::Arrival;
use tollgate_tokio::wire::{Ask, FrameReader, SESSION_FRAME_MAX, Tell, put_frame};
use tracing::{info, warn};

use super::error::ProposeError;
use super::keeper::{Keeper, Spoken};
use super::leadership::Leadership;
use super::machine::Applied;
use super::questions;
use super::replica::Replica;
use super::tcp::Tcp;

/// Serves sessions until nothing can arrive any more.
pub async fn serve_sessions(
    replica: Replica<Tcp>,
    options: SessionOptions,
    mut arrivals: mpsc::Receiver<Arrival>,
) {
    let (spoken, heard) = mpsc::channel(SPOKEN_MAX);
    let keeping = tokio::spawn(Keeper::run(replica.clone(), options, heard));
    let mut sessions = JoinSet::new();
    let (mut connections, turns) = (0, Arc::default());
    while let Some(arrival) = arrivals.recv().await {
        while sessions.try_join_next().is_some() {}
        if sessions.len() >= SESSIONS_MAX {
            warn!(target: "coordinator", "too many sessions: one more was hung up on");
            continue;
        }
        connections += 1;
        let (spoken, turns) = (spoken.clone(), Arc::clone(&turns));
        if let Some(session) = Session::new(&replica, arrival, connections, spoken, turns) {
            sessions.spawn(session.run());
        }
    }
    keeping.abort();
}

/// One connection of a node.
struct Session {
    replica: Replica<Tcp>,
    clock: Clock,
    /// Who it is; not known before it has joined.
    who: Option<(NodeId, StartNumber)>,
    connection: u64,
    reader: FrameReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    spoken: mpsc::Sender<Spoken>,
    /// Planned changes of the ring come one after another.
    turns: Arc<Mutex<()>>,
    /// Questions that are being answered.
    questions: Arc<Semaphore>,
    /// What it knows; nothing is told before it has said so.
    known: Option<Known>,
    told_replicas: (u64, Vec<(NodeId, String)>),
    out: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    ring: RingEpoch,
    revision: Revision,
}

/// Why a session's connection ends.
enum End {
    /// The node said that it would.
    Bye,
    /// The other end is gone.
    Closed,
    /// It is ended from this side, which the node may not have noticed.
    Hung,
}

impl Session {
    fn new(
        replica: &Replica<Tcp>,
        arrival: Arrival,
        connection: u64,
        spoken: mpsc::Sender<Spoken>,
        turns: Arc<Mutex<()>>,
    ) -> Option<Self> {
        let (reader, writer) = TcpStream::from_std(arrival.stream).ok()?.into_split();
        let hello = arrival.hello;
        let start = Some(hello.start).filter(|&start| start != 0).map(StartNumber::new);
        Some(Self {
            replica: replica.clone(),
            clock: replica.clock().clone(),
            who: hello.node.zip(start),
            connection,
            reader: FrameReader::new(reader, SESSION_FRAME_MAX),
            writer,
            spoken,
            turns,
            questions: Arc::new(Semaphore::new(QUESTIONS_MAX)),
            known: None,
            told_replicas: Default::default(),
            out: Vec::new(),
        })
    }

    async fn run(mut self) {
        let end = self.converse().await;
        if let (End::Closed, Some((node, start))) = (end, self.who) {
            let connection = self.connection;
            let _ = self.spoken.send(Spoken::Closed { node, start, connection }).await;
        }
    }

    async fn converse(&mut self) -> End {
        let (answers, mut answered) = mpsc::channel(ANSWERS_MAX);
        let mut applied = self.replica.watch();
        loop {
            let ended = tokio::select! {
                frame = timeout(SILENCE_MAX, self.reader.next()) => match frame {
                    Ok(Ok(Some((kind, body)))) => match Ask::decode(kind, &body) {
                        Ok(ask) => self.hear(ask, &answers).await,
                        Err(error) => {
                            let node = self.who;
                            warn!(target: "coordinator", ?node, "hung up on it: {error}");
                            Err(End::Hung)
                        }
                    },
                    Ok(Ok(None) | Err(_)) => Err(End::Closed),
                    // Silence has its own clock.
                    Err(_) => Err(End::Hung),
                },
                Some(tell) = answered.recv() => {
                    // Before it learns that it is still the owner of what it owned, it learns of
                    // what it does not own any more.
                    self.catch_up();
                    self.put(&tell);
                    Ok(())
                }
                Ok(()) = applied.changed() => {
                    applied.mark_unchanged();
                    self.catch_up();
                    Ok(())
                }
            };
            if let Err(end) = ended {
                return end;
            }
            if !self.out.is_empty() {
                match timeout(SILENCE_MAX, self.writer.write_all(&self.out)).await {
                    Ok(Ok(())) => self.out.clear(),
                    Ok(Err(_)) => return End::Closed,
                    Err(_) => return End::Hung,
                }
            }
        }
    }

    async fn hear(&mut self, ask: Ask, answers: &mpsc::Sender<Tell>) -> Result<(), End> {
        match ask {
            Ask::Join { node, weight, address, is_candidate } => {
                let is_member = |seat: &Seat| Some(seat.node) == node;
                let stays = self.replica.watch().borrow().state.members().any(is_member);
                let command = Command::Join { node, weight, address, is_candidate };
                self.join(command, stays).await;
            }
            Ask::Heartbeat { sent_at, ring_epoch, revision } => {
                let Some((node, start)) = self.who else { return Err(End::Hung) };
                self.put(&Tell::Alive);
                self.known = Some(Known { ring: ring_epoch, revision });
                self.catch_up();
                let connection = self.connection;
                let answers = answers.clone();
                let heartbeat = Spoken::Heartbeat { node, start, connection, sent_at, answers };
                let _ = self.spoken.send(heartbeat).await;
            }
            Ask::Leave => {
                let Some((node, start)) = self.who else { return Err(End::Hung) };
                let _turn = self.settled().await;
                if let Err(error) = self.replica.propose(Command::Leave { node, start }).await {
                    self.put(&Tell::Refused { why: error.to_string() });
                }
            }
            Ask::Bye => return Err(End::Bye),
            Ask::Other { number, body } => {
                // Whoever asks more at once than that is not answered.
                let Ok(place) = self.questions.clone().try_acquire_owned() else { return Ok(()) };
                let (replica, answers) = (self.replica.clone(), answers.clone());
                tokio::spawn(async move {
                    let _place = place;
                    let body = questions::answer(&replica, &body).await;
                    let _ = answers.send(Tell::Other { number, body }).await;
                });
            }
        }
        Ok(())
    }

    /// Waits until the members have had time for the last change of the ring: what was not handed
    /// over before the next one counts as spent. `None` if others are waited for too long.
    async fn settled(&self) -> Option<OwnedMutexGuard<()>> {
        let turn = timeout(TURN_MAX, self.turns.clone().lock_owned()).await.ok()?;
        let last = self.replica.watch().borrow().changes.back().map(|(at, _)| *at);
        let settled = last.map_or(Instant::ZERO, |at| at.saturating_add(SETTLE));
        tokio::time::sleep(settled.saturating_since(self.clock.now())).await;
        Some(turn)
    }

    /// Takes a process in, and tells it all that it has to know. One that `stays` where it was does
    /// not change the ring.
    async fn join(&mut self, command: Command, stays: bool) {
        let turn = if stays { None } else { self.settled().await };
        let joined = match turn {
            None if !stays => Err(ProposeError::NoLeader),
            _ => self.replica.propose(command).await,
        };
        drop(turn);
        match joined {
            Ok(Answer::Joined { node, start, is_restart, .. }) => {
                let applied = self.applied_with(node, start).await;
                let (Some(fleet), Some(secret)) = (applied.state.fleet(), applied.state.secret())
                else {
                    return;
                };
                info!(target: "coordinator", node = node.get(), start = start.get(), is_restart,
                      "a node has joined");
                let secret = secret.clone();
                self.put(&Tell::Joined { node, start, fleet, secret, is_restart });
                self.known = Some(Known { ring: RingEpoch::ZERO, revision: Revision::ZERO });
                self.told_replicas = Default::default();
                self.put_rings_after(&applied, None);
                self.catch_up();
            }
            Ok(Answer::Done | Answer::Revised { .. }) => {}
            Err(ProposeError::Refused(refused)) => {
                self.put(&Tell::Refused { why: refused.to_string() });
            }
            // Somebody else may know the leader.
            Err(error) => {
                warn!(target: "coordinator", "a node could not join yet: {error}");
                let (as_of, replicas) = replicas_of(&self.replica);
                self.put(&Tell::Replicas { as_of, replicas });
            }
        }
    }

    /// What is applied here once that start of the node is: the leader may be ahead.
    async fn applied_with(&self, node: NodeId, start: StartNumber) -> Applied {
        let mut applied = self.replica.watch();
        let has = |applied: &Applied| {
            applied.state.members().any(|seat| seat.node == node && seat.start >= start)
        };
        let waited = timeout(SILENCE_MAX, applied.wait_for(has)).await;
        drop(waited);
        self.replica.watch().borrow().clone()
    }

    /// Writes what has changed since the node last knew.
    fn catch_up(&mut self) {
        let Some(known) = self.known else { return };
        let applied = self.replica.watch().borrow().clone();
        if applied.state.ring().epoch() > known.ring {
            self.put_rings_after(&applied, Some(known.ring));
        }
        let policy = applied.state.policy().filter(|policy| policy.revision > known.revision);
        if let Some(policy) = policy {
            self.put(&Tell::Policy((**policy).clone()));
            self.known = self.known.map(|known| Known { revision: policy.revision, ..known });
        }
        let now = replicas_of(&self.replica);
        if !now.1.is_empty() && now != self.told_replicas {
            let (as_of, replicas) = now.clone();
            self.put(&Tell::Replicas { as_of, replicas });
            self.told_replicas = now;
        }
    }

    /// Writes the rings that follow the one that the node knows, or the last one alone, if it knows
    /// none or they are not all at hand.
    fn put_rings_after(&mut self, applied: &Applied, known: Option<RingEpoch>) {
        let follows = |(_, change): &(Instant, RingChange)| Some(change.previous.epoch()) == known;
        let last = applied.changes.len().saturating_sub(1);
        let first = applied.changes.iter().position(follows).unwrap_or(last);
        let missing = applied.changes.iter().skip(first);
        let addresses: Vec<(NodeId, String)> =
            applied.state.members().map(|seat| (seat.node, seat.address.clone())).collect();
        for (at, change) in missing {
            let age = self.clock.now().saturating_since(*at);
            let (change, members) = (change.clone(), addresses.clone());
            let ring = change.ring.epoch();
            self.put(&Tell::Ring { change, age, members });
            self.known = self.known.map(|known| Known { ring, ..known });
        }
    }

    fn put(&mut self, tell: &Tell) {
        put_frame(&mut self.out, |out| tell.encode(out));
    }
}

/// The replicas and where they are, the leader first if it is known, and the entry of the log by
/// which they are.
fn replicas_of(replica: &Replica<Tcp>) -> (u64, Vec<(NodeId, String)>) {
    let leader = match &*replica.leadership().borrow() {
        Leadership::Leads { .. } => Some(replica.identity().node),
        Leadership::Follows { leader } => *leader,
        Leadership::Failed { .. } => None,
    };
    let voters = replica.voters();
    let mut replicas: Vec<(NodeId, String)> = voters.voters.into_iter().collect();
    replicas.sort_by_key(|(node, _)| (Some(*node) != leader, *node));
    (voters.as_of, replicas)
}

/// So long the members have for a planned change of the ring before the next: connections to a
/// newcomer are made, and what it owns is handed over.
const SETTLE: Duration = Duration::from_millis(300);
/// How long a planned change waits for others; whoever wanted it asks again.
const TURN_MAX: Duration = Duration::from_secs(3);
/// Questions of one node that are answered at once.
const QUESTIONS_MAX: usize = 16;
/// What nodes said and the keeper has not heard.
const SPOKEN_MAX: usize = 1_024;
/// Members, each with a connection that it may have lost, and those that join.
const SESSIONS_MAX: usize = 2_100;
/// Answers that a node has not taken.
const ANSWERS_MAX: usize = 16;
/// A node speaks more often than that, and takes what it is told.
const SILENCE_MAX: Duration = Duration::from_secs(3);
