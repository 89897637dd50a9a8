//! The coordinator in a run: the product's state machine and sessions, and a log that is always at
//! hand. Messages between it and nodes travel in order; what a cut swallows is told again when the
//! node is next heard.

use std::collections::BTreeMap;

use tollgate::coordinator::{
    Action, Answer, Command, Event, FleetSecret, RingChange, SessionOptions, Sessions, StartNumber,
    State,
};
use tollgate::{FleetRules, Instant, NodeId};

use crate::scenario::Nanos;

/// A node to the coordinator.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ask {
    /// A process has started, or was told that it is lost.
    Join,
    /// It lives; `sent_at` is its own clock's. It knows this ring and this revision.
    Heartbeat { start: u64, connection: u64, sent_at: Instant, ring_epoch: u64, revision: u64 },
    /// Its connection was closed, by whatever.
    Closed { start: u64, connection: u64 },
    /// It stops as planned.
    Leave { start: u64 },
}

/// The coordinator to a node.
#[derive(Debug, Clone)]
pub(crate) enum Tell {
    /// You are this start; the ring is as after this change.
    Welcome { start: u64, change: RingChange, decided: Nanos, is_restart: bool },
    /// Your heartbeat was heard.
    Heard { sent_at: Instant },
    /// The ring has changed.
    Ring { change: RingChange, decided: Nanos },
    /// The limits.
    Rules(FleetRules),
}

/// The coordinator: one log, two replicas that keep sessions.
pub(crate) struct Control {
    state: State,
    replicas: [Sessions; 2],
    leader: usize,
    term: u64,
    changes: Vec<(Nanos, RingChange)>,
    pub(crate) rules: FleetRules,
    /// How much of the changes, and which revision, each node was told.
    told: BTreeMap<NodeId, Told>,
    /// When the leader wants to be woken.
    pub(crate) wakes_at: Nanos,
    pub(crate) out: Vec<(NodeId, Tell)>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Told {
    changes: usize,
    revision: u64,
}

impl Control {
    /// A coordinator of which `nodes` nodes are members, whose processes have yet to start.
    pub(crate) fn new(options: SessionOptions, rules: FleetRules, nodes: u32) -> Self {
        let sessions = || Sessions::new(options).expect("the scenario was checked");
        let mut state = State::default();
        let secret = FleetSecret::new([7; 32]);
        let found = Command::Found { secret, fleet: 7, voters_max: 3 };
        state.apply(found).expect("the first command");
        let mut changes = Vec::new();
        for _ in 0..nodes {
            let effects = state.apply(joining(None)).expect("few nodes");
            changes = effects.ring.map(|change| (0, change)).into_iter().collect();
        }
        let mut control = Self {
            state,
            replicas: [sessions(), sessions()],
            leader: 0,
            term: 1,
            changes,
            rules,
            told: BTreeMap::new(),
            wakes_at: Nanos::MAX,
            out: Vec::new(),
        };
        control.lead(0, 0);
        control.membership_changed(0);
        control
    }

    pub(crate) fn handle(&mut self, from: NodeId, ask: Ask, at: Nanos) {
        match ask {
            Ask::Join => self.join(from, at),
            Ask::Heartbeat { start, connection, sent_at, ring_epoch, revision } => {
                // What it does not know by now may have been lost on the way.
                if let Some(told) = self.told.get_mut(&from) {
                    let known =
                        |change: &&(Nanos, RingChange)| change.1.ring.epoch().get() <= ring_epoch;
                    told.changes = self.changes.iter().take_while(known).count();
                    told.revision = revision;
                }
                let start = StartNumber::new(start);
                self.hear(Event::Heartbeat { node: from, start, connection }, at);
                let actions = self.act(at);
                let is_heard = |action: &Action| matches!(action, Action::Acknowledge { .. });
                // Before it learns that it is still the owner of what it owned, it learns of what
                // it does not own any more.
                self.catch_up(from);
                if actions.iter().any(is_heard) {
                    self.out.push((from, Tell::Heard { sent_at }));
                }
            }
            Ask::Closed { start, connection } => {
                let start = StartNumber::new(start);
                for replica in 0..self.replicas.len() {
                    let event = Event::Closed { node: from, start, connection };
                    self.replicas[replica].handle(event, Instant::from_nanos(at));
                }
                self.act(at);
            }
            Ask::Leave { start } => {
                let start = StartNumber::new(start);
                self.apply(Command::Leave { node: from, start }, at);
            }
        }
    }

    /// The leader's time has come.
    pub(crate) fn wake(&mut self, at: Nanos) {
        self.hear(Event::Timeout, at);
        self.act(at);
    }

    /// The other replica leads.
    pub(crate) fn fail_over(&mut self, at: Nanos) {
        self.replicas[self.leader].handle(Event::Follows, Instant::from_nanos(at));
        self.term += 1;
        self.lead(1 - self.leader, at);
    }

    /// Other limits take force.
    pub(crate) fn put_rules(&mut self, rules: FleetRules) {
        self.rules = rules;
        let nodes: Vec<NodeId> = self.told.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.catch_up(node));
    }

    fn lead(&mut self, replica: usize, at: Nanos) {
        self.leader = replica;
        self.hear(Event::Leads { term: self.term }, at);
        self.act(at);
    }

    fn hear(&mut self, event: Event, at: Nanos) {
        self.replicas[self.leader].handle(event, Instant::from_nanos(at));
    }

    /// Does what the leader says. Returns it.
    fn act(&mut self, at: Nanos) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some(action) = self.replicas[self.leader].poll() {
            match &action {
                Action::Propose { command, .. } => self.apply(command.clone(), at),
                Action::Timeout(wakes_at) => self.wakes_at = wakes_at.as_nanos(),
                Action::Acknowledge { .. } => {}
            }
            actions.push(action);
        }
        actions
    }

    fn join(&mut self, node: NodeId, at: Nanos) {
        let effects = match self.state.apply(joining(Some(node))) {
            Ok(effects) => effects,
            Err(refused) => unreachable!("a scenario's nodes can join: {refused}"),
        };
        let Answer::Joined { start, is_restart, .. } = effects.answer else {
            unreachable!("a join is answered so")
        };
        if let Some(change) = effects.ring {
            self.changes.push((at, change));
        }
        let (decided, change) = self.changes.last().cloned().expect("it has joined");
        self.told.insert(node, Told { changes: self.changes.len(), revision: 0 });
        let start = start.get();
        self.out.push((node, Tell::Welcome { start, change, decided, is_restart }));
        self.membership_changed(at);
    }

    fn apply(&mut self, command: Command, at: Nanos) {
        let Ok(effects) = self.state.apply(command) else { return };
        if let Some(change) = effects.ring {
            self.changes.push((at, change));
            self.membership_changed(at);
        }
    }

    fn membership_changed(&mut self, at: Nanos) {
        let members: Vec<_> = self.state.members().map(|seat| (seat.node, seat.start)).collect();
        for replica in &mut self.replicas {
            replica.handle(Event::Members(members.clone()), Instant::from_nanos(at));
        }
        self.act(at);
        let nodes: Vec<NodeId> = self.told.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.catch_up(node));
    }

    /// Tells a node what it was not told yet.
    fn catch_up(&mut self, node: NodeId) {
        let Some(told) = self.told.get_mut(&node) else { return };
        for (decided, change) in &self.changes[told.changes..] {
            let tell = Tell::Ring { change: change.clone(), decided: *decided };
            self.out.push((node, tell));
        }
        told.changes = self.changes.len();
        if told.revision < self.rules.revision {
            told.revision = self.rules.revision;
            self.out.push((node, Tell::Rules(self.rules.clone())));
        }
    }
}

/// A process of no known address: messages in a run go by nodes' numbers.
fn joining(node: Option<NodeId>) -> Command {
    Command::Join { node, weight: 1, address: String::new(), is_candidate: false }
}
