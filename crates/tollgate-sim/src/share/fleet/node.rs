//! One process: its limiter, its node and its clock, driven as a member's task drives them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tollgate::{
    Clock, ClockHand, Decision, Descriptor, Entry, FleetLimitId, FleetRules, Given, Input, Instant,
    KeyId, Limit, LimitSpec, Limiter, Message, Node, NodeId, NodeOptions, Numbered, Options,
    Output, Part, Request, Retry, Secret, ShareMode, ShareUsage, Shares,
};

use crate::machine::DriftingClock;
use crate::scenario::{MS, Nanos};
use crate::share::scenario::{Scenario, Units};

pub(super) struct Process {
    pub(super) node: Node,
    pub(super) limiter: Limiter,
    shares: Arc<Shares>,
    me: NodeId,
    dirty: Arc<AtomicBool>,
    hand: ClockHand,
    clock: DriftingClock,
    /// Up to where its clock was moved.
    shown: Instant,
    pub(super) life: u32,
    pub(super) start: u64,
    pub(super) connection: u64,
    pub(super) revision: u64,
    pub(super) mode: ShareMode,
    pub(super) is_leaving: bool,
    /// When the node wants to be woken (its own clock), and for when it is in the agenda.
    wakes_at: Instant,
    pub(super) woken_at: Nanos,
    drained_at: Instant,
    drains_at: Option<Instant>,
    /// What the node says to itself.
    own: VecDeque<Message>,
    pub(super) effects: Vec<Effect>,
}

/// What comes out of a process.
pub(super) enum Effect {
    Send { to: NodeId, message: Message },
    Give { key: KeyId, given: Given },
    Evicted { key: KeyId },
}

impl Process {
    pub(super) fn new(scenario: &Scenario, me: NodeId, life: u32, clock: DriftingClock) -> Self {
        let (limiter, hand) = limiter();
        let shares = limiter.shares().expect("it divides limits").clone();
        let dirty = Arc::new(AtomicBool::new(false));
        let wake = dirty.clone();
        shares.on_dirty(Box::new(move || wake.store(true, Ordering::Relaxed)));
        let options =
            NodeOptions { share: scenario.options, keys_max: 1_000, ..NodeOptions::default() };
        Self {
            node: Node::new(me, options),
            limiter,
            shares,
            me,
            dirty,
            hand,
            clock,
            shown: Instant::ZERO,
            life,
            start: 0,
            connection: 0,
            revision: 0,
            mode: ShareMode::Disabled,
            is_leaving: false,
            wakes_at: Instant::MAX,
            woken_at: Nanos::MAX,
            drained_at: Instant::ZERO,
            drains_at: None,
            own: VecDeque::new(),
            effects: Vec::new(),
        }
    }

    /// Whether it has joined, and so is asked.
    pub(super) fn serves(&self) -> bool {
        self.start != 0
    }

    /// What its clock shows.
    pub(super) fn now(&mut self, at: Nanos) -> Instant {
        let now = self.clock.read(at).max(self.shown);
        self.hand.advance(now.saturating_since(self.shown));
        self.shown = now;
        now
    }

    /// Decides a request. If it is denied also until when, in true time, it is to wait.
    pub(super) fn ask(&mut self, name: &str, cost: u64, at: Nanos) -> (bool, Option<Nanos>) {
        self.now(at);
        let entries = [Entry::new("k", name)];
        let descriptors = [Descriptor::new(&entries).expect("one entry").with_cost(cost)];
        let decision: Decision = self.limiter.check(&Request::new(&descriptors));
        let again = match decision.retry_at() {
            Some(Retry::At(instant)) => Some(self.clock.shows(instant)),
            Some(Retry::Never) | None => None,
        };
        (decision.is_allowed(), again)
    }

    pub(super) fn has_cell(&self, key: KeyId) -> bool {
        self.shares.has_cell(key)
    }

    /// Puts limits in force.
    pub(super) fn enforce(&mut self, rules: &Rules, at: Nanos) {
        let now = self.now(at);
        let revised = self.limiter.replace_numbered(vec![rules.numbered()], rules.revision);
        self.revision = rules.revision;
        self.mode = rules.mode;
        self.tell(Input::Rules(revised.expect("a sound limit")), now);
    }

    /// The ring has so many members.
    pub(super) fn set_members(&self, members: u64) {
        self.shares.set_members(members);
    }

    /// Tells the node one thing.
    pub(super) fn hear(&mut self, input: Input, at: Nanos) {
        let now = self.now(at);
        self.tell(input, now);
    }

    /// Does what has become due.
    pub(super) fn look(&mut self, at: Nanos) {
        let now = self.now(at);
        self.notice_dirty(now);
        if self.drains_at.is_some_and(|at| at <= now) {
            self.drain(now);
            self.settle(now);
        }
        if self.wakes_at <= now {
            // What is due is to be told as it is now.
            self.drain(now);
            self.tell(Input::Timeout, now);
        }
    }

    /// When something is due, in true time.
    pub(super) fn due(&mut self, at: Nanos) -> Nanos {
        let now = self.now(at);
        self.notice_dirty(now);
        let due = self.wakes_at.min(self.drains_at.unwrap_or(Instant::MAX));
        if due == Instant::MAX { Nanos::MAX } else { self.clock.shows(due).max(at) }
    }

    fn notice_dirty(&mut self, now: Instant) {
        // As with a notification that is kept until somebody waits for it.
        if self.drains_at.is_none() && self.dirty.swap(false, Ordering::Relaxed) {
            self.drains_at = Some(self.drained_at.saturating_add(DRAIN_GAP).max(now));
        }
    }

    fn drain(&mut self, now: Instant) {
        (self.drains_at, self.drained_at) = (None, now);
        let mut usages = Vec::new();
        self.shares.drain(|drained| usages.push(ShareUsage { drained }));
        for usage in usages {
            self.handle(Input::Shared(usage), now);
        }
    }

    fn tell(&mut self, input: Input, now: Instant) {
        self.handle(input, now);
        self.settle(now);
    }

    fn settle(&mut self, now: Instant) {
        while let Some(message) = self.own.pop_front() {
            self.handle(Input::Message { from: self.me, message }, now);
        }
    }

    fn handle(&mut self, input: Input, now: Instant) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.node.handle(input, now);
            loop {
                match self.node.poll() {
                    Output::Give { key, given } => {
                        self.shares.give(key, &given, now);
                        self.effects.push(Effect::Give { key, given });
                    }
                    Output::EvictShare { key, position } => {
                        let gone = self.shares.evict(key, position) || !self.shares.has_cell(key);
                        if gone {
                            self.effects.push(Effect::Evicted { key });
                        }
                        inputs.push_back(Input::ShareEvicted { key, gone });
                    }
                    Output::Send { to, message } if to == self.me => {
                        // What it is told by itself is seen as what it is told by others.
                        self.effects.push(Effect::Send { to, message: message.clone() });
                        self.own.push_back(message);
                    }
                    Output::Send { to, message } => {
                        self.effects.push(Effect::Send { to, message });
                    }
                    // No stream asks, no limit is shared otherwise.
                    Output::Permit { .. }
                    | Output::Evict { .. }
                    | Output::Allot { .. }
                    | Output::Event(_) => {}
                    Output::Timeout(at) => {
                        self.wakes_at = at;
                        break;
                    }
                }
            }
        }
    }
}

/// A revision of the limits: one limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rules {
    pub(super) revision: u64,
    pub(super) units: Units,
    pub(super) mode: ShareMode,
}

impl Rules {
    fn numbered(&self) -> Numbered {
        let Units { units, period, burst } = self.units;
        let spec = LimitSpec {
            name: "api",
            key: &["k"],
            rate: &format!("{units}/{period}s"),
            burst: Some(burst),
            guarantee: "share",
            mode: Some(self.mode.name()),
            ..LimitSpec::DEFAULT
        };
        let limit = Limit::parse(&spec).expect("a sound limit");
        Numbered { limit, number: NUMBER, generation: self.revision }
    }

    /// What the coordinator has of it: that there is a later revision.
    pub(super) fn told(&self) -> FleetRules {
        FleetRules { revision: self.revision, ..FleetRules::default() }
    }

    /// The keys of these names.
    pub(super) fn keys(&self, names: &[String]) -> Vec<KeyId> {
        let (limiter, _) = limiter();
        let put = limiter.replace_numbered(vec![self.numbered()], self.revision);
        put.expect("a sound limit");
        let key = |name: &String| limiter.fleet_key(NUMBER, &[Part::Text(name.as_bytes())]);
        names.iter().map(|name| key(name).expect("a key of one part")).collect()
    }
}

fn limiter() -> (Limiter, ClockHand) {
    let (clock, hand) = Clock::manual();
    let options = Options {
        clock,
        keys_max: 1_000,
        fleet: true,
        share: true,
        secret: Secret::from_seed([7; 32]),
        ..Options::default()
    };
    (Limiter::new(Vec::new(), options).expect("sound options"), hand)
}

const NUMBER: FleetLimitId = FleetLimitId(0);
/// As in a member's task.
const DRAIN_GAP: Duration = Duration::from_nanos(20 * MS);
