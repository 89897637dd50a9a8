//! Who is still there, as one replica of the coordinator sees it, and whose loss it proposes.
//!
//! A close starts a clock, silence starts the same clock once it has lasted `session_timeout`, and
//! the same process heard again stops it. A member whose clock has run for `ttl_max`, by whichever
//! clock, is lost: none of its permissions lives any more. Every replica keeps the clocks, so that
//! a new leader does not start from nothing; only the leader proposes. Connections, and the log,
//! are the driver's.

use std::collections::{BTreeMap, BTreeSet};

use super::command::{Command, StartNumber};
use super::options::{OnCoordinatorLoss, SessionOptions, SessionOptionsError};
use super::state::State;
use crate::ring::NodeId;
use crate::time::Instant;

/// What a replica of the coordinator hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A process spoke on a connection to this replica. Its first message on each connection says
    /// who it is, and counts.
    Heartbeat {
        /// Its node.
        node: NodeId,
        /// Its start.
        start: StartNumber,
        /// The connection's number: later ones of this replica have larger numbers.
        connection: u64,
    },
    /// The other end of a process's connection is gone.
    ///
    /// Not for connections that this replica ended itself, which the node may not have noticed yet,
    /// nor for those that the node ended on purpose and said so: these end in silence.
    Closed {
        /// Its node.
        node: NodeId,
        /// Its start.
        start: StartNumber,
        /// The connection's number.
        connection: u64,
    },
    /// This replica leads, and has applied all that was committed before.
    Leads {
        /// In which term of the log. Told again under another term, it has not led all the time.
        term: u64,
    },
    /// This replica does not lead.
    Follows,
    /// The members have changed: all of them, as [`State::members`] gives them.
    Members(Vec<(NodeId, StartNumber)>),
    /// The instant of [`Action::Timeout`] has come, and nothing that has arrived is left to read.
    Timeout,
}

/// What a replica of the coordinator does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Answer the heartbeat just handled, once a round trip to a quorum that begins now has
    /// confirmed that this replica leads.
    Acknowledge {
        /// The node that spoke.
        node: NodeId,
        /// Its start.
        start: StartNumber,
        /// On which connection.
        connection: u64,
    },
    /// Propose to the log, in this term only.
    Propose {
        /// A [`Command::Lose`].
        command: Command,
        /// The term in which this replica leads.
        term: u64,
    },
    /// Handle [`Event::Timeout`] at this instant, and forget earlier ones.
    Timeout(Instant),
}

/// The sessions of all members with one replica.
///
/// After each event, [`Self::poll`] is asked until it has nothing. Costs a logarithm of the
/// members an event, and all of them when they change or the leader does.
///
/// ```
/// use tollgate::coordinator::{Action, Event, SessionOptions, Sessions, StartNumber};
/// use tollgate::{Instant, NodeId};
/// let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
/// let (node, start, connection) = (NodeId::new(1), StartNumber::new(1), 1);
/// let mut sessions = Sessions::new(SessionOptions::default())?;
/// sessions.handle(Event::Members(vec![(node, start)]), at(0));
/// sessions.handle(Event::Leads { term: 1 }, at(0));
/// sessions.handle(Event::Closed { node, start, connection }, at(1_000));
/// // ttl_max by whichever of two clocks that are 500 ppm off.
/// let Some(Action::Timeout(lost_at)) = sessions.poll() else { panic!() };
/// assert_eq!(lost_at.as_nanos(), 1_400_400_202);
/// sessions.handle(Event::Timeout, lost_at);
/// assert!(matches!(sessions.poll(), Some(Action::Propose { .. })));
/// # Ok::<(), tollgate::coordinator::SessionOptionsError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Sessions {
    options: SessionOptions,
    /// The term in which this replica leads.
    term: Option<u64>,
    /// Before that it proposes no loss.
    proposes_from: Instant,
    now: Instant,
    sessions: BTreeMap<NodeId, Session>,
    /// When the leader proposes whose loss; empty on followers.
    due: BTreeSet<(Instant, NodeId)>,
    acknowledge: Option<Action>,
    /// Whether losses may be proposed now: what proves them wrong may be on its way otherwise.
    proposes: bool,
    timeout_is_told: bool,
}

#[derive(Debug, Clone)]
struct Session {
    start: StartNumber,
    /// The newest connection that it spoke on; 0 before the first.
    connection: u64,
    /// When it was last heard, or from when it is missed.
    heard: Instant,
    /// When its newest connection closed, if it was not heard since.
    closed: Option<Instant>,
    /// When its loss was last proposed in this term.
    proposed: Option<Instant>,
}

impl Sessions {
    /// The sessions of a replica that has just started, follows and knows of no members.
    ///
    /// # Errors
    /// When `options` don't [check](SessionOptions::check).
    pub fn new(options: SessionOptions) -> Result<Self, SessionOptionsError> {
        options.check()?;
        Ok(Self {
            options,
            term: None,
            proposes_from: Instant::ZERO,
            now: Instant::ZERO,
            sessions: BTreeMap::new(),
            due: BTreeSet::new(),
            acknowledge: None,
            proposes: false,
            timeout_is_told: true,
        })
    }

    /// Takes in what this replica heard.
    ///
    /// What comes from or of a process that is not a member's current one changes nothing.
    pub fn handle(&mut self, event: Event, now: Instant) {
        self.now = self.now.max(now);
        self.acknowledge = None;
        self.proposes = event == Event::Timeout;
        self.timeout_is_told = false;
        if self.has_slept() {
            self.count_anew();
        }
        match event {
            Event::Heartbeat { node, start, connection } => self.hear(node, start, connection),
            Event::Closed { node, start, connection } => self.close(node, start, connection),
            Event::Leads { term } if self.term == Some(term) => {}
            Event::Leads { term } => {
                self.term = Some(term);
                // Nothing that was proposed before is still to be committed.
                self.sessions.values_mut().for_each(|session| session.proposed = None);
                self.proposes_from = self.leases_end();
                self.count_anew();
            }
            Event::Follows => {
                self.term = None;
                self.due.clear();
            }
            Event::Members(members) => self.replace(&members),
            Event::Timeout => {}
        }
        assert!(self.sessions.len() <= State::MEMBERS_MAX, "no more than the state has");
        let due = if self.term.is_some() { self.sessions.len() } else { 0 };
        assert_eq!(self.due.len(), due, "every member is due at some time, if this is the leader");
    }

    /// What is to be done next; [`Action::Timeout`] comes last, and may be in the past.
    ///
    /// A loss that was proposed and is not committed is proposed again after each `heartbeat`.
    pub fn poll(&mut self) -> Option<Action> {
        if let Some(acknowledge) = self.acknowledge.take() {
            return Some(acknowledge);
        }
        let (&(at, node), term) = (self.due.first()?, self.term?);
        if at <= self.now && self.proposes {
            let session = self.sessions.get_mut(&node).expect("whoever is due is a member");
            session.proposed = Some(self.now);
            let command = Command::Lose { node, start: session.start };
            self.due.pop_first();
            self.due.insert((self.now.saturating_add(self.options.heartbeat), node));
            return Some(Action::Propose { command, term });
        }
        (!std::mem::replace(&mut self.timeout_is_told, true)).then_some(Action::Timeout(at))
    }

    fn hear(&mut self, node: NodeId, start: StartNumber, connection: u64) {
        let Some(session) = self.sessions.get(&node) else { return };
        // Once its loss is proposed, it may be committed: it is told so, and joins again.
        if session.start != start || session.proposed.is_some() {
            return;
        }
        let mut session = session.clone();
        session.connection = session.connection.max(connection);
        session.heard = self.now;
        if !crate::mutant::lacks("reconnect_ignored") {
            session.closed = None;
        }
        self.put(node, session);
        if self.term.is_some() {
            self.acknowledge = Some(Action::Acknowledge { node, start, connection });
        }
    }

    fn close(&mut self, node: NodeId, start: StartNumber, connection: u64) {
        let Some(session) = self.sessions.get(&node) else { return };
        // The close of an old connection may be noticed long after it was replaced.
        let is_old = connection < session.connection && !crate::mutant::lacks("old_close_breaks");
        if session.start == start && !is_old && session.closed.is_none() {
            self.put(node, Session { closed: Some(self.now), ..session.clone() });
        }
    }

    fn replace(&mut self, members: &[(NodeId, StartNumber)]) {
        let members: BTreeMap<NodeId, StartNumber> = members.iter().copied().collect();
        let gone = |(node, session): (&NodeId, &Session)| {
            (members.get(node) != Some(&session.start)).then_some(*node)
        };
        let gone: Vec<NodeId> = self.sessions.iter().filter_map(gone).collect();
        for node in gone {
            let session = self.sessions.remove(&node).expect("listed above");
            self.due.remove(&(self.due_at(&session), node));
        }
        for (node, start) in members {
            if !self.sessions.contains_key(&node) {
                let (heard, closed, proposed) = (self.now, None, None);
                self.put(node, Session { start, connection: 0, heard, closed, proposed });
            }
        }
    }

    /// Misses every member from now on, as far as it can't have been missed before.
    ///
    /// Members speak to whoever leads, so to a new leader their silence so far says nothing. What
    /// it saw close says that a process is dead, but not for long: had it died then, the leader
    /// before would have seen that too, and it would be no member any more.
    fn count_anew(&mut self) {
        let (options, now) = (self.options, self.now);
        self.due.clear();
        for session in self.sessions.values_mut() {
            session.heard = now;
            session.closed = session
                .closed
                .filter(|&closed| now.saturating_since(closed) <= options.session_timeout);
        }
        let due = |(&node, session): (&NodeId, &Session)| (self.due_at(session), node);
        self.due = self.sessions.iter().map(due).collect();
    }

    /// When every lease is over that was renewed before this replica led.
    ///
    /// Its own stamps of a close say nothing about them: a node goes on when the leader before has
    /// heard it after the close. Only under `Serve`, where there are no leases, is no need to wait.
    fn leases_end(&self) -> Instant {
        let options = &self.options;
        match options.on_coordinator_loss {
            OnCoordinatorLoss::Serve => Instant::ZERO,
            OnCoordinatorLoss::Deny if crate::mutant::lacks("leases_forgotten") => Instant::ZERO,
            OnCoordinatorLoss::Deny => {
                self.now.saturating_add(options.session_timeout).saturating_add(options.loss_wait())
            }
        }
    }

    /// Whether this replica was due to do something long ago: it did not run, and what was sent to
    /// it meanwhile is still to be read.
    fn has_slept(&self) -> bool {
        let late =
            |&(at, _): &(Instant, NodeId)| self.now > at.saturating_add(self.options.heartbeat);
        self.due.first().is_some_and(late)
    }

    fn put(&mut self, node: NodeId, session: Session) {
        if let Some(before) = self.sessions.get(&node) {
            self.due.remove(&(self.due_at(before), node));
        }
        if self.term.is_some() {
            self.due.insert((self.due_at(&session), node));
        }
        self.sessions.insert(node, session);
    }

    /// When the leader proposes the loss of this member.
    fn due_at(&self, session: &Session) -> Instant {
        if let Some(proposed) = session.proposed {
            return proposed.saturating_add(self.options.heartbeat);
        }
        let silent = session.heard.saturating_add(self.options.session_timeout);
        let broken = session.closed.map_or(silent, |closed| closed.min(silent));
        broken.saturating_add(self.options.loss_wait()).max(self.proposes_from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    const NODE: NodeId = NodeId::new(1);
    const START: StartNumber = StartNumber::new(7);

    /// Under clocks that are exact, but for the nanosecond by which they are read.
    fn sessions(on_coordinator_loss: OnCoordinatorLoss) -> Sessions {
        let options = SessionOptions { drift_ppm: 0, on_coordinator_loss, ..Default::default() };
        let mut sessions = Sessions::new(options).expect("sound");
        sessions.handle(Event::Members(vec![(NODE, START)]), at(0));
        sessions
    }

    fn leader() -> Sessions {
        let mut sessions = sessions(OnCoordinatorLoss::Serve);
        sessions.handle(Event::Leads { term: 1 }, at(0));
        sessions
    }

    fn heard(connection: u64) -> Event {
        Event::Heartbeat { node: NODE, start: START, connection }
    }

    fn closed(connection: u64) -> Event {
        Event::Closed { node: NODE, start: START, connection }
    }

    fn lose() -> Option<Action> {
        let command = Command::Lose { node: NODE, start: START };
        Some(Action::Propose { command, term: 1 })
    }

    /// The milliseconds after which the loss is proposed.
    fn due(sessions: &mut Sessions) -> u64 {
        loop {
            match sessions.poll().expect("a leader of members waits") {
                Action::Timeout(at) => break at.as_nanos() / 1_000_000,
                Action::Acknowledge { .. } => {}
                Action::Propose { .. } => panic!("proposed"),
            }
        }
    }

    #[test]
    fn a_closed_connection_is_a_loss_after_ttl_max_and_not_before() {
        let mut sessions = leader();
        sessions.handle(heard(1), at(900));
        sessions.handle(closed(1), at(1_000));
        sessions.handle(Event::Timeout, at(1_400));
        assert_eq!(sessions.poll(), Some(Action::Timeout(Instant::from_nanos(1_400_000_001))));
        assert_eq!(sessions.poll(), None);
        sessions.handle(Event::Timeout, at(1_401));
        assert_eq!(sessions.poll(), lose());
    }

    #[test]
    fn the_same_process_back_within_ttl_max_keeps_its_session() {
        let mut sessions = leader();
        sessions.handle(heard(1), at(900));
        sessions.handle(closed(1), at(1_000));
        sessions.handle(heard(2), at(1_399));
        let acknowledge = Action::Acknowledge { node: NODE, start: START, connection: 2 };
        assert_eq!(sessions.poll(), Some(acknowledge));
        assert_eq!(due(&mut sessions), 1_399 + 2_100);
    }

    #[test]
    fn silence_is_a_loss_after_the_session_timeout_and_ttl_max() {
        let mut sessions = leader();
        sessions.handle(heard(1), at(1_000));
        assert_eq!(due(&mut sessions), 1_000 + 1_700 + 400);
        // A close after the session is broken starts no later clock.
        sessions.handle(closed(1), at(3_000));
        assert_eq!(due(&mut sessions), 3_100);
        // Heard at the last moment, it is kept.
        sessions.handle(heard(1), at(3_099));
        assert_eq!(due(&mut sessions), 3_099 + 2_100);
    }

    #[test]
    fn the_late_close_of_a_replaced_connection_breaks_nothing() {
        let mut sessions = leader();
        sessions.handle(heard(2), at(1_000));
        sessions.handle(closed(1), at(1_200));
        assert_eq!(due(&mut sessions), 3_100);
    }

    #[test]
    fn a_new_leader_counts_from_its_own_stamp_of_a_close() {
        let mut sessions = sessions(OnCoordinatorLoss::Serve);
        sessions.handle(closed(1), at(1_000));
        assert_eq!(sessions.poll(), None);
        sessions.handle(Event::Leads { term: 1 }, at(1_300));
        assert_eq!(due(&mut sessions), 1_400);
        sessions.handle(Event::Follows, at(1_350));
        assert_eq!(sessions.poll(), None);
        // When an election takes longer than ttl_max, there is nothing to wait for.
        sessions.handle(Event::Leads { term: 2 }, at(1_500));
        assert_eq!(due(&mut sessions), 1_400);
        sessions.handle(Event::Timeout, at(1_500));
        assert!(matches!(sessions.poll(), Some(Action::Propose { term: 2, .. })));
    }

    #[test]
    fn a_close_that_the_last_leader_knew_better_is_no_loss() {
        // A node that lives and speaks to the leader may have lost a follower long ago.
        let mut sessions = sessions(OnCoordinatorLoss::Serve);
        sessions.handle(closed(1), at(1_000));
        sessions.handle(Event::Leads { term: 1 }, at(2_701));
        assert_eq!(due(&mut sessions), 2_701 + 2_100);
    }

    #[test]
    fn under_deny_a_new_leader_waits_for_leases_that_the_last_one_renewed() {
        let mut sessions = sessions(OnCoordinatorLoss::Deny);
        sessions.handle(closed(1), at(1_000));
        sessions.handle(Event::Leads { term: 1 }, at(1_300));
        assert_eq!(due(&mut sessions), 1_300 + 2_100);
        // And a close that it sees only now may be one that the last one knew better.
        sessions.handle(heard(2), at(1_350));
        sessions.handle(closed(2), at(1_400));
        assert_eq!(due(&mut sessions), 1_300 + 2_100);
        sessions.handle(heard(3), at(3_300));
        sessions.handle(closed(3), at(3_500));
        assert_eq!(due(&mut sessions), 3_900);
    }

    #[test]
    fn whoever_was_never_heard_is_missed_from_when_the_replica_led_or_learned_of_it() {
        let mut sessions = sessions(OnCoordinatorLoss::Serve);
        sessions.handle(Event::Leads { term: 1 }, at(5_000));
        assert_eq!(due(&mut sessions), 5_000 + 2_100);
        let newcomer = (NodeId::new(2), StartNumber::new(8));
        sessions.handle(Event::Members(vec![newcomer]), at(6_000));
        assert_eq!(due(&mut sessions), 6_000 + 2_100);
    }

    #[test]
    fn leading_again_under_another_term_counts_anew() {
        // Another replica may have led in between, and renewed leases.
        let mut sessions = leader();
        sessions.handle(Event::Leads { term: 1 }, at(1_000));
        assert_eq!(due(&mut sessions), 2_100);
        sessions.handle(Event::Leads { term: 3 }, at(1_000));
        assert_eq!(due(&mut sessions), 3_100);
    }

    #[test]
    fn once_its_loss_is_proposed_a_process_is_not_acknowledged() {
        let mut sessions = leader();
        sessions.handle(Event::Timeout, at(2_101));
        assert_eq!(sessions.poll(), lose());
        sessions.handle(heard(1), at(2_200));
        assert_eq!(sessions.poll(), Some(Action::Timeout(at(2_601))));
        // Not even by one that slept, as long as it leads in that term.
        let mut slept = sessions.clone();
        slept.handle(heard(1), at(60_000));
        assert_eq!(slept.poll(), Some(Action::Timeout(at(2_601))));
        // Nobody committed it.
        sessions.handle(Event::Timeout, at(2_601));
        assert_eq!(sessions.poll(), lose());
        sessions.handle(Event::Members(vec![]), at(2_700));
        assert_eq!(sessions.poll(), None);
    }

    #[test]
    fn another_start_has_a_session_of_its_own() {
        let mut sessions = leader();
        sessions.handle(closed(1), at(1_000));
        sessions.handle(Event::Members(vec![(NODE, StartNumber::new(8))]), at(1_200));
        // What is still said of the start before is of no account.
        sessions.handle(closed(1), at(1_201));
        sessions.handle(heard(1), at(1_202));
        assert_eq!(due(&mut sessions), 1_200 + 2_100);
    }

    #[test]
    fn a_coordinator_that_slept_misses_nobody_for_what_it_did_not_read() {
        let mut sessions = leader();
        sessions.handle(heard(1), at(1_000));
        assert_eq!(due(&mut sessions), 3_100);
        sessions.handle(Event::Timeout, at(60_000));
        assert_eq!(due(&mut sessions), 60_000 + 2_100);
        // A little late is no sleep, but what was sent meanwhile is read first.
        let mut heard_late = sessions.clone();
        heard_late.handle(heard(1), at(62_500));
        heard_late.handle(Event::Timeout, at(62_500));
        assert_eq!(due(&mut heard_late), 62_500 + 2_100);
        sessions.handle(Event::Timeout, at(62_500));
        assert_eq!(sessions.poll(), lose());
    }
}
