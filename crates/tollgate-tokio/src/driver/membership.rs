//! A member's life in its fleet: its session, the rings that it is told of, how it comes back when
//! it was taken for lost, and how it leaves.

use std::time::Duration;

use tokio::sync::oneshot;
use tollgate::coordinator::{Revision, RingChange, StartNumber};
use tollgate::{Input, Instant, NodeId, RingEpoch};
use tracing::{info, warn};

use super::Driver;
use crate::sessions::Heard;
use crate::status::MemberStatus;
use crate::wire::{Ask, Tell};

/// Where a member is in its life.
#[derive(Debug, Default)]
pub(super) enum Phase {
    /// It is in the ring, as far as it knows.
    #[default]
    Member,
    /// It was taken for lost, and has asked to join again.
    Lost {
        /// When it asks again.
        asks_at: Instant,
        /// What a replica answered: the next ring is that of the new start.
        welcome: Option<(StartNumber, bool)>,
    },
    /// It stops.
    Leaving {
        /// When it asks again.
        asks_at: Instant,
        /// Who waits for the end of it.
        done: Option<oneshot::Sender<()>>,
        /// When it was out of the ring with all handed over.
        out_at: Option<Instant>,
    },
    /// It has left.
    Left,
}

impl Phase {
    /// When the phase is to be looked at, if nothing happens before.
    pub(super) fn looks_at(&self) -> Instant {
        match self {
            Self::Member | Self::Left => Instant::MAX,
            Self::Lost { asks_at, .. } | Self::Leaving { asks_at, .. } => *asks_at,
        }
    }
}

impl Driver {
    /// Tells the node what it begins with.
    pub(super) fn begin(&mut self) {
        let joined = self.joined.clone();
        self.links.set_nodes(&joined.members);
        self.replicas.set(joined.replicas.0, &joined.replicas.1);
        self.members = joined.members;
        self.tell(Input::Lease(self.lease.grants_until()));
        if let Some(rules) = self.rules.take() {
            self.handle_rules((joined.policy.map_or(Revision::ZERO, |one| one.revision), rules));
        }
        self.turn_ring(joined.change, joined.age, joined.is_restart);
    }

    pub(super) fn handle_heard(&mut self, heard: Heard) {
        let now = self.clock.now();
        match heard {
            Heard::Connected => self.lease.reconnected(now),
            Heard::Closed(replica, at) => {
                self.forget_questions(replica);
                let waited = u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX);
                self.lease.closed(Instant::from_nanos(now.as_nanos().saturating_sub(waited)));
                self.tell(Input::Lease(self.lease.grants_until()));
            }
            Heard::Tell(from, tell) => self.handle_tell(from, tell),
        }
    }

    fn handle_tell(&mut self, from: NodeId, tell: Tell) {
        match tell {
            Tell::Joined { node, start, is_restart, .. } => {
                if let Phase::Lost { welcome, .. } = &mut self.state.phase
                    && node == self.me
                    && start.get() > self.start
                {
                    *welcome = Some((start, is_restart));
                }
            }
            Tell::Refused { why } => {
                warn!(target: "fleet", replica = from.get(), "refused: {why}");
            }
            Tell::Replicas { as_of, replicas } => self.replicas.set(as_of, &replicas),
            Tell::Other { number, body } => self.answered(number, body),
            Tell::Alive => {}
            Tell::Heard { sent_at } => {
                self.lease.acknowledged(sent_at);
                self.tell(Input::Lease(self.lease.grants_until()));
            }
            Tell::Ring { change, age, members } => self.handle_ring(from, change, age, &members),
            Tell::Policy(document) => self.policies.put(document),
        }
    }

    fn handle_ring(
        &mut self,
        from: NodeId,
        change: RingChange,
        age: Duration,
        members: &[(NodeId, String)],
    ) {
        // A member may be one without being in the ring: it owns nothing then.
        let is_in = members.iter().any(|(node, _)| *node == self.me);
        let mut is_restart = false;
        match &mut self.state.phase {
            Phase::Lost { welcome: None, .. } if is_in => {
                // The ring of a start that is not known here yet; it is told again with that.
                return;
            }
            Phase::Lost { welcome: Some((start, restart)), .. } if is_in => {
                (self.start, is_restart) = (start.get(), *restart);
                self.state.phase = Phase::Member;
                self.links.set_start(self.start);
                self.replicas.set_start(self.start);
                info!(target: "fleet", start = self.start, "joined the fleet again");
            }
            Phase::Member if !is_in && change.ring.epoch() > self.node.ring_epoch() => {
                warn!(target: "fleet", epoch = change.ring.epoch().get(),
                      "this member was taken for lost; it joins again");
                let asks_at = self.clock.now();
                self.state.phase = Phase::Lost { asks_at, welcome: None };
                self.ask_again(Some(from));
            }
            Phase::Member | Phase::Lost { .. } | Phase::Leaving { .. } | Phase::Left => {}
        }
        self.links.set_nodes(members);
        self.members = members.to_vec();
        self.turn_ring(change, age, is_restart);
    }

    fn turn_ring(&mut self, change: RingChange, age: Duration, is_restart: bool) {
        let (epoch, members) = (change.ring.epoch().get(), change.ring.members().len());
        let start = self.start;
        self.shares.set_members(members as u64);
        self.tell(Input::Ring { change, age, start, is_restart });
        let now = self.clock.now();
        // So that a replica that pushed it need not push it again.
        self.lease.reconnected(now);
        // Whoever asks for the status is to hear of nobody who has left, and of all who have come.
        self.publish(now);
        info!(target: "fleet", epoch, members, "the ring has turned");
    }

    /// Keeps the session, and asks again what was not answered.
    pub(super) fn keep_session(&mut self, now: Instant) {
        if self.lease.heartbeat_at() <= now {
            // Noted before it is written to any connection.
            self.lease.sent(now);
            self.replicas.ask_all(&Ask::Heartbeat {
                sent_at: now,
                ring_epoch: self.node.ring_epoch(),
                revision: self.policies.revision(),
            });
        }
        if self.state.phase.looks_at() <= now {
            self.ask_again(None);
        }
        self.finish_leaving(now);
    }

    fn ask_again(&mut self, of: Option<NodeId>) {
        let at = self.clock.now().saturating_add(ASK_INTERVAL);
        let ask = match &mut self.state.phase {
            Phase::Lost { asks_at, .. } => {
                *asks_at = at;
                self.joining.to_ask()
            }
            Phase::Leaving { asks_at, out_at: None, .. } => {
                *asks_at = at;
                Ask::Leave
            }
            Phase::Leaving { asks_at, .. } => {
                *asks_at = at;
                return;
            }
            Phase::Member | Phase::Left => return,
        };
        let replicas: Vec<NodeId> = of.into_iter().chain(self.replicas.connected()).collect();
        // One of them suffices; those to which no connection stands can't be asked.
        let _ = replicas.into_iter().any(|replica| self.replicas.ask_one(replica, &ask));
    }

    /// Begins to leave the fleet.
    pub(super) fn leave(&mut self, done: oneshot::Sender<()>) {
        let asks_at = self.clock.now();
        self.state.phase = Phase::Leaving { asks_at, done: Some(done), out_at: None };
        self.ask_again(None);
    }

    /// Once it is out of the ring and has handed over what it owned, it tells other owners what it
    /// spent of theirs, and has left.
    fn finish_leaving(&mut self, now: Instant) {
        let epoch = self.node.ring_epoch();
        let is_handed_over = epoch != RingEpoch::ZERO && self.node.is_handed_over();
        let Phase::Leaving { done, out_at, asks_at } = &mut self.state.phase else { return };
        if !is_handed_over {
            return;
        }
        let since = *out_at.get_or_insert(now);
        *asks_at = now.saturating_add(LINGER_LOOK);
        if self.node.counts().views == 0 || now.saturating_since(since) >= LINGER_MAX {
            if let Some(done) = done.take() {
                let _ = done.send(());
            }
            info!(target: "fleet", "left the fleet");
            self.state.phase = Phase::Left;
        }
    }

    /// Whether a link stands for each other member of the ring.
    pub(super) fn is_linked(&self) -> bool {
        let others = self.node.ring_members().iter().filter(|member| member.node != self.me);
        self.links.status().connected >= others.count() as u64
    }

    pub(super) fn has_left(&self) -> bool {
        matches!(self.state.phase, Phase::Left)
    }

    /// What the status says of the fleet.
    pub(super) fn membership_status(&self) -> MemberStatus {
        let replicas = self.replicas.all();
        MemberStatus {
            is_member: matches!(self.state.phase, Phase::Member),
            members: self.members.clone(),
            replicas: replicas.map(|(node, address)| (node, address.to_owned())).collect(),
            sessions: self.replicas.connected().collect(),
            links: self.links.status(),
            ..MemberStatus::default()
        }
    }
}

/// How often a replica is asked again for what has not happened yet.
const ASK_INTERVAL: Duration = Duration::from_millis(500);
/// How long a member that has left goes on, for its last reports to be answered.
const LINGER_MAX: Duration = Duration::from_millis(1_000);
const LINGER_LOOK: Duration = Duration::from_millis(20);
