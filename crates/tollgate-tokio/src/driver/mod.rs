//! The task that owns a member's node: it tells it what happens, and does what comes of it.
//!
//! Everything that the node is told comes through [`Driver::tell`], after all that its cells hold,
//! as the simulator's machine does it in virtual time. It decides nothing about limits.

mod cells;
mod inquiries;
mod membership;
mod questions;
mod shares;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tollgate::coordinator::{Lease, Revision};
use tollgate::{
    Clock, Credits, Event, FleetRules, Input, Instant, KeyId, Limiter, Message, Node, NodeId,
    Output, Shares, SnapshotBatch,
};
use tracing::{debug, warn};

use crate::delays::Delays;
use crate::door::Routes;
use crate::join::{Joined, Joining};
use crate::keys::{Inquiry, KeyParts};
use crate::links::{Inbox, Links};
use crate::policy::Policies;
use crate::sessions::{Heard, Replicas};
use crate::status::{EventCounts, MemberStatus};
use crate::streams::Streams;
use crate::waiting::Waiting;
use crate::wire::PeerFrame;
use cells::Kept;
pub(crate) use inquiries::Answers;
use inquiries::Inquiries;
use membership::Phase;
pub use questions::AskError;
use questions::{Answer, Questions};

/// A member's task.
pub(crate) struct Driver {
    pub(crate) me: NodeId,
    pub(crate) start: u64,
    pub(crate) node: Node,
    pub(crate) limiter: Limiter,
    pub(crate) routes: Arc<Routes>,
    pub(crate) credits: Arc<Credits>,
    pub(crate) shares: Arc<Shares>,
    pub(crate) clock: Clock,
    pub(crate) waiting: Arc<Waiting>,
    pub(crate) links: Links,
    pub(crate) replicas: Replicas,
    pub(crate) policies: Policies,
    pub(crate) lease: Lease,
    pub(crate) shared: Arc<Shared>,
    pub(crate) joined: Joined,
    /// The limits that are in force when it begins.
    pub(crate) rules: Option<FleetRules>,
    /// How it joins again, once it was taken for lost.
    pub(crate) joining: Joining,
    /// Who is there, and where.
    pub(crate) members: Vec<(NodeId, String)>,
    pub(crate) state: State,
}

/// What the task and its handles share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Cells have become dirty since the last drain.
    pub(crate) dirty: Notify,
    /// Cells of keys that nodes divide have.
    pub(crate) shares_dirty: Notify,
    pub(crate) status: watch::Sender<MemberStatus>,
    /// What streams ask, and who is told what they have.
    pub(crate) streams: Streams,
    /// From when a batch of reports was sent to when its answer came.
    pub(crate) report_delays: Delays,
    /// How old what a permission stands on was when it came.
    pub(crate) snapshot_delays: Delays,
}

/// What changes while the task runs.
#[derive(Default)]
pub(crate) struct State {
    keys: HashMap<KeyId, Kept>,
    /// Keys whose usage is to be told though their cells are clean.
    to_tell: Vec<KeyId>,
    /// New cells of which the node was not told yet, each since when.
    unasked: VecDeque<(Instant, KeyId)>,
    /// Turns of drains so far.
    turn: u64,
    /// What the node says to itself.
    own: VecDeque<Message>,
    wakes_at: Instant,
    drained_at: Instant,
    /// Cells are dirty, and are drained then.
    drains_at: Option<Instant>,
    /// The same of keys that nodes divide.
    shares_drained_at: Instant,
    shares_drain_at: Option<Instant>,
    /// What those keys are made of, as far as it is known.
    share_names: HashMap<KeyId, KeyParts>,
    published_at: Instant,
    is_ready: bool,
    phase: Phase,
    revision: Revision,
    events: EventCounts,
    questions: Questions,
    inquiries: Inquiries,
    /// Batches that were not answered yet.
    sent: VecDeque<(NodeId, u64, Instant)>,
    /// A snapshot that is being handled, and how long its permission lives.
    sample: Option<(KeyId, Duration)>,
}

/// What handles ask of the task.
#[derive(Debug)]
pub(crate) enum Order {
    /// Leave the fleet, and say when all is handed over.
    Leave(oneshot::Sender<()>),
    /// Ask a replica something that only daemons ask.
    Ask(Vec<u8>, Answer),
    /// Ask these members something for people.
    Inquire(Vec<(NodeId, Inquiry)>, Answers),
    /// Say who owns a key.
    Owner(KeyId, oneshot::Sender<Option<NodeId>>),
}

/// What comes in.
pub(crate) struct Inlets {
    pub(crate) inbox: Inbox,
    pub(crate) heard: mpsc::Receiver<Heard>,
    pub(crate) orders: mpsc::Receiver<Order>,
}

impl Driver {
    /// Runs until the member has left, or nobody holds a handle of it any more.
    pub(crate) async fn run(mut self, mut inlets: Inlets) {
        self.begin();
        let shared = self.shared.clone();
        let waiting = self.waiting.clone();
        loop {
            let wakes_at = self.next_wake();
            let resting = self.clock.now() < wakes_at && !self.is_searching();
            // In no order: whatever comes all the time would keep the others out, and a member
            // that does not hear its heartbeats acknowledged stops granting.
            tokio::select! {
                frame = inlets.inbox.recv() => match frame {
                    Some((from, frame)) => self.handle_frame(from, frame),
                    None => return,
                },
                heard = inlets.heard.recv() => match heard {
                    Some(heard) => self.handle_heard(heard),
                    None => return,
                },
                order = inlets.orders.recv() => match order {
                    Some(order) => self.handle_order(order),
                    None => return,
                },
                rules = self.policies.next() => self.handle_rules(rules),
                () = waiting.changed() => self.handle_waiting(),
                () = shared.dirty.notified(), if self.state.drains_at.is_none() => {
                    let at = self.state.drained_at.saturating_add(DRAIN_GAP);
                    self.state.drains_at = Some(at.max(self.clock.now()));
                }
                () = shared.shares_dirty.notified(), if self.state.shares_drain_at.is_none() => {
                    let at = self.state.shares_drained_at.saturating_add(SHARES_DRAIN_GAP);
                    self.state.shares_drain_at = Some(at.max(self.clock.now()));
                }
                () = shared.streams.changed() => self.handle_streams(),
                () = sleep_until(&self.clock, wakes_at), if resting => {}
                () = std::future::ready(()), if !resting => {}
            }
            self.handle_time();
            if self.has_left() {
                return;
            }
        }
    }

    /// When something is due, if nothing comes in before.
    fn next_wake(&self) -> Instant {
        let state = &self.state;
        let due = [
            state.wakes_at,
            state.drains_at.unwrap_or(Instant::MAX),
            state.shares_drain_at.unwrap_or(Instant::MAX),
            self.lease.heartbeat_at(),
            state.phase.looks_at(),
            state.published_at.saturating_add(self.publish_interval()),
        ];
        due.into_iter().min().unwrap_or(Instant::MAX)
    }

    /// Does what has become due.
    fn handle_time(&mut self) {
        let now = self.clock.now();
        if self.state.drains_at.is_some_and(|at| at <= now) {
            self.settle();
        }
        if self.state.shares_drain_at.is_some_and(|at| at <= now) {
            self.drain_shares();
            self.settle();
        }
        if self.state.wakes_at <= now {
            // What is due is to be told as it is now.
            self.drain_shares();
            self.tell(Input::Timeout);
        }
        self.keep_session(now);
        if now.saturating_since(self.state.published_at) >= self.publish_interval() {
            self.take_names();
            self.publish(now);
        }
        self.search_on();
    }

    fn handle_order(&mut self, order: Order) {
        match order {
            Order::Leave(done) => self.leave(done),
            Order::Ask(body, answer) => self.ask(body, answer),
            Order::Inquire(of, answers) => self.inquire(of, answers),
            Order::Owner(key, answer) => drop(answer.send(self.node.owner_of(key))),
        }
    }

    pub(super) fn handle_rules(&mut self, (revision, rules): (Revision, FleetRules)) {
        self.state.revision = self.state.revision.max(revision);
        self.tell(Input::Rules(rules));
        // Somebody may wait for it.
        self.publish(self.clock.now());
    }

    fn handle_frame(&mut self, from: NodeId, frame: PeerFrame) {
        match frame {
            PeerFrame::Message(message) => self.hear(from, message),
            PeerFrame::Inquiry(number, inquiry) => self.handle_inquiry(from, number, inquiry),
            PeerFrame::Told(number, told) => self.handle_told(from, number, told),
            // Links answer these themselves.
            PeerFrame::Ping(_) | PeerFrame::Pong(_) => {}
        }
    }

    fn hear(&mut self, from: NodeId, message: Message) {
        if let Message::Snapshots(batch) = &message {
            self.time_snapshots(from, batch);
        }
        self.tell(Input::Message { from, message });
        self.state.sample = None;
    }

    /// Tells the node one thing, after all that its cells hold, and does what comes of it.
    pub(super) fn tell(&mut self, input: Input) {
        self.drain();
        self.handle(input);
        self.settle();
    }

    /// Tells the node what its cells hold, and what it says to itself thereupon.
    pub(super) fn settle(&mut self) {
        self.drain();
        while let Some(message) = self.state.own.pop_front() {
            self.handle(Input::Message { from: self.me, message });
            self.drain();
        }
    }

    /// Hands the node one input, and what it leads to.
    fn handle(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.node.handle(input, self.clock.now());
            loop {
                match self.node.poll() {
                    Output::Permit { key, permit } => self.permit(key, &permit),
                    Output::Evict { key, taken } => {
                        let gone = self.evict(key, taken);
                        inputs.push_back(Input::Evicted { key, gone });
                    }
                    Output::Give { key, given } => {
                        self.shares.give(key, &given, self.clock.now());
                    }
                    Output::Allot { key, stream, rate } => {
                        self.shared.streams.allot(key, stream, rate);
                    }
                    Output::EvictShare { key, position } => {
                        let gone = self.evict_share(key, position);
                        inputs.push_back(Input::ShareEvicted { key, gone });
                    }
                    Output::Send { to, message } => self.send(to, message),
                    Output::Event(event) => self.note(event),
                    Output::Timeout(at) => {
                        self.state.wakes_at = at;
                        break;
                    }
                }
            }
        }
    }

    fn send(&mut self, to: NodeId, message: Message) {
        if let Message::Reports(batch) = &message {
            if self.state.sent.len() == SENT_MAX {
                self.state.sent.pop_front();
            }
            self.state.sent.push_back((to, batch.batch, self.clock.now()));
        }
        if to == self.me {
            return self.state.own.push_back(message);
        }
        match message {
            // What nobody asked for has no bound of its own.
            Message::Snapshots(batch) if batch.answers.is_none() => {
                for snapshots in batch.snapshots.chunks(SNAPSHOTS_MAX) {
                    let (snapshots, allotments) = (snapshots.to_vec(), Vec::new());
                    let part = SnapshotBatch { snapshots, allotments, ..batch };
                    self.links.send(to, &PeerFrame::Message(Message::Snapshots(part)));
                }
                for allotments in batch.allotments.chunks(SNAPSHOTS_MAX) {
                    let (snapshots, allotments) = (Vec::new(), allotments.to_vec());
                    let part = SnapshotBatch { snapshots, allotments, ..batch };
                    self.links.send(to, &PeerFrame::Message(Message::Snapshots(part)));
                }
            }
            message => self.links.send(to, &PeerFrame::Message(message)),
        }
    }

    /// Notes how long the answer took, and has the first of the snapshots timed.
    fn time_snapshots(&mut self, from: NodeId, batch: &SnapshotBatch) {
        let now = self.clock.now();
        if let Some(answered) = batch.answers
            && let Some(at) =
                self.state.sent.iter().position(|&(to, batch, _)| (to, batch) == (from, answered))
            && let Some((.., sent_at)) = self.state.sent.remove(at)
        {
            self.shared.report_delays.count(now.saturating_since(sent_at));
        }
        let timed = batch.snapshots.iter().find(|snapshot| !snapshot.ttl.is_zero());
        self.state.sample = timed.map(|snapshot| (snapshot.key, snapshot.ttl));
    }

    fn note(&mut self, event: Event) {
        let events = &mut self.state.events;
        match event {
            Event::Overlap { lasted, keys } => {
                events.overlaps += 1;
                events.overlapped = events.overlapped.max(lasted);
                let lasted_ms = lasted.as_millis();
                warn!(target: "fleet", lasted_ms, keys, "two owners for a while");
            }
            Event::Paused { lasted } => {
                events.pauses += 1;
                events.paused = events.paused.max(lasted);
                debug!(target: "fleet", lasted_ms = lasted.as_millis(), "this process stood still");
            }
            Event::HandoverLate { from } => {
                events.late_handovers += 1;
                warn!(target: "fleet", node = from.get(), "its keys were not handed over in time");
            }
            Event::Full => events.full += 1,
        }
    }

    /// Whoever joins waits for it to be ready.
    fn publish_interval(&self) -> Duration {
        if self.state.is_ready { PUBLISH_INTERVAL } else { READY_LOOK }
    }

    fn publish(&mut self, now: Instant) {
        self.state.published_at = now;
        self.state.is_ready = self.state.is_ready || self.is_linked() && self.node.is_settled();
        let (waiting, refused) = self.waiting.counts();
        let status = MemberStatus {
            node: self.me,
            start: self.start,
            is_ready: self.state.is_ready,
            ring_epoch: self.node.ring_epoch(),
            revision: self.state.revision,
            counts: self.node.counts(),
            limits: self.node.limit_units(now),
            shares: self.node.share_limits(),
            reporters: self.node.reporters(now),
            names_lost: self.limiter.arrivals_dropped(),
            events: self.state.events,
            waiting,
            waiting_refused: refused,
            handshakes_refused: self.routes.refused(),
            ring: self.node.ring_members().to_vec(),
            ..self.membership_status()
        };
        self.shared.status.send_replace(status);
    }
}

/// Waits until this instant by the member's clock.
async fn sleep_until(clock: &Clock, at: Instant) {
    tokio::time::sleep(at.saturating_since(clock.now())).await;
}

/// Cells are drained no sooner again, unless something else happens: one that is drained more often
/// costs more and tells nothing more, since no report goes sooner than half a sync interval.
const DRAIN_GAP: Duration = Duration::from_millis(1);
/// The same of keys that nodes divide, which are reported each second: who begins to deny is to say
/// so at once.
const SHARES_DRAIN_GAP: Duration = Duration::from_millis(20);
/// How often the member's status is told.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(250);
/// The same while it is not ready.
const READY_LOOK: Duration = Duration::from_millis(5);
/// Batches whose answers are timed.
const SENT_MAX: usize = 64;
/// Snapshots in one frame.
const SNAPSHOTS_MAX: usize = 4_096;
