//! Sessions and leases: no member is lost while its lease lets permissions live.
//!
//! One node and two replicas of a coordinator, each with a clock that runs too fast or too slow.
//! Messages are late and lost, connections close and come back, leaders are replaced and learn of
//! it late, replicas sleep.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use tollgate::coordinator::{
    Action, Event, Lease, OnCoordinatorLoss, SessionOptions, Sessions, StartNumber,
};
use tollgate::{Instant, NodeId};

use crate::support::cases;

const NODE: NodeId = NodeId::new(1);
const START: StartNumber = StartNumber::new(1);
const MS: u64 = 1_000_000;
const END: u64 = 12_000 * MS;

/// Reads true time, which nobody knows.
#[derive(Debug, Clone, Copy)]
struct Drifting {
    offset: u64,
    /// Ticks in a million nanoseconds.
    rate: u64,
}

impl Drifting {
    fn read(self, time: u64) -> Instant {
        let ticks = u128::from(time) * u128::from(self.rate) / 1_000_000;
        Instant::from_nanos(self.offset + ticks as u64)
    }

    /// The first time at which it reads `instant` or more.
    fn time_of(self, instant: Instant) -> u64 {
        let ticks = u128::from(instant.as_nanos().saturating_sub(self.offset));
        (ticks * 1_000_000).div_ceil(u128::from(self.rate)) as u64
    }
}

/// What happens to the fleet from outside.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// The node's connection to a replica closes; the replica sees it so many ms later.
    Close(usize, u64),
    Open(usize),
    /// A replica leads from now on; it learns of it so many ms later, the other one some more.
    Lead(usize, u64, u64),
    /// A replica does nothing for so many ms.
    Sleep(usize, u64),
    /// Every message is lost from now on, and no connection closes.
    Mute,
}

#[derive(Debug, Clone)]
struct Plan {
    node: Drifting,
    replicas: [Drifting; 2],
    /// Each with the ms since the one before.
    faults: Vec<(u64, Fault)>,
    late_ms_max: u64,
    lost_percent: u64,
    seed: u64,
}

/// What is under way.
#[derive(Debug, Clone, Copy)]
enum Step {
    Fault(Fault),
    Hear { replica: usize, connection: u64, sent_at: Instant },
    SeeClose { replica: usize, connection: u64 },
    Acknowledged { replica: usize, connection: u64, sent_at: Instant },
    Leads { replica: usize, term: u64 },
    Follows { replica: usize, term: u64 },
}

struct Replica {
    clock: Drifting,
    sessions: Sessions,
    timeout: Option<Instant>,
    awake_at: u64,
    /// Connections up to this one are closed, as it sees it.
    closed: u64,
    term: u64,
}

struct World {
    time: u64,
    clock: Drifting,
    lease: Lease,
    replicas: [Replica; 2],
    /// The node's open connections.
    connections: [Option<u64>; 2],
    connections_made: u64,
    leader: usize,
    term: u64,
    steps: BTreeMap<(u64, u64), Step>,
    made: u64,
    plan: Plan,
    denies: bool,
    lost: bool,
}

impl World {
    fn new(plan: Plan, options: SessionOptions) -> Self {
        let replica = |clock: Drifting| {
            let mut sessions = Sessions::new(options).expect("sound");
            sessions.handle(Event::Members(vec![(NODE, START)]), clock.read(0));
            Replica { clock, sessions, timeout: None, awake_at: 0, closed: 0, term: 0 }
        };
        let mut world = Self {
            time: 0,
            clock: plan.node,
            lease: Lease::new(options).expect("sound"),
            replicas: plan.replicas.map(replica),
            connections: [Some(1), Some(2)],
            connections_made: 2,
            leader: 0,
            term: 1,
            steps: BTreeMap::new(),
            made: 0,
            plan,
            denies: options.on_coordinator_loss == OnCoordinatorLoss::Deny,
            lost: false,
        };
        world.add(0, Step::Leads { replica: 0, term: 1 });
        let mut time = 0;
        for (after, fault) in world.plan.faults.clone() {
            time += after * MS;
            world.add(time, Step::Fault(fault));
        }
        world
    }

    /// Runs to the end, and says whether the node was lost.
    fn run(mut self) -> bool {
        loop {
            let next = self.steps.first_key_value().map_or(END, |(&(time, _), _)| time);
            let wakes = [0, 1].map(|replica| self.wakes_at(replica));
            let beats = match self.connections {
                [None, None] => END,
                _ => self.clock.time_of(self.lease.heartbeat_at()),
            };
            let time = next.min(wakes[0]).min(wakes[1]).min(beats).max(self.time);
            if time >= END {
                return self.lost;
            }
            self.time = time;
            if beats <= time {
                self.beat();
            } else if next <= time {
                let (_, step) = self.steps.pop_first().expect("the next");
                self.step(step);
            } else {
                // Only when nothing is left to read.
                let replica = usize::from(wakes[1] < wakes[0]);
                self.tell(replica, Event::Timeout, None);
            }
            let lives = self.lease.grants_until() > self.clock.read(self.time);
            let safe = !self.lost || !lives || !self.denies;
            assert!(safe, "lost at {}, lives until {:?}", self.time, self.lease);
        }
    }

    fn wakes_at(&self, replica: usize) -> u64 {
        let replica = &self.replicas[replica];
        replica.timeout.map_or(END, |at| replica.clock.time_of(at).max(replica.awake_at))
    }

    fn beat(&mut self) {
        let sent_at = self.clock.read(self.time);
        self.lease.sent(sent_at);
        for replica in [0, 1] {
            if let Some(connection) = self.connections[replica] {
                self.send(Step::Hear { replica, connection, sent_at });
            }
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Fault(fault) => self.suffer(fault),
            // It is read once the replica runs again.
            Step::Hear { replica, .. }
            | Step::SeeClose { replica, .. }
            | Step::Leads { replica, .. }
            | Step::Follows { replica, .. }
                if self.replicas[replica].awake_at > self.time =>
            {
                self.add(self.replicas[replica].awake_at, step);
            }
            Step::Hear { replica, connection, sent_at } => {
                if connection > self.replicas[replica].closed {
                    let event = Event::Heartbeat { node: NODE, start: START, connection };
                    self.tell(replica, event, Some(sent_at));
                }
            }
            Step::SeeClose { replica, connection } => {
                let closed = &mut self.replicas[replica].closed;
                *closed = connection.max(*closed);
                let event = Event::Closed { node: NODE, start: START, connection };
                self.tell(replica, event, None);
            }
            Step::Acknowledged { replica, connection, sent_at } => {
                if self.connections[replica] == Some(connection) {
                    self.lease.acknowledged(sent_at);
                }
            }
            Step::Leads { replica, term } => {
                if term > self.replicas[replica].term {
                    self.replicas[replica].term = term;
                    self.tell(replica, Event::Leads { term }, None);
                }
            }
            Step::Follows { replica, term } => {
                if term > self.replicas[replica].term {
                    self.replicas[replica].term = term;
                    self.tell(replica, Event::Follows, None);
                }
            }
        }
    }

    fn suffer(&mut self, fault: Fault) {
        match fault {
            Fault::Close(replica, late) => {
                if let Some(connection) = self.connections[replica].take() {
                    self.lease.closed(self.clock.read(self.time));
                    self.add(self.time + late * MS, Step::SeeClose { replica, connection });
                }
            }
            Fault::Open(replica) => {
                if self.connections[replica].is_none() {
                    self.connections_made += 1;
                    self.connections[replica] = Some(self.connections_made);
                    self.lease.reconnected(self.clock.read(self.time));
                }
            }
            Fault::Lead(replica, late, later) => {
                (self.leader, self.term) = (replica, self.term + 1);
                let term = self.term;
                self.add(self.time + late * MS, Step::Leads { replica, term });
                let replica = 1 - replica;
                self.add(self.time + (late + later) * MS, Step::Follows { replica, term });
            }
            Fault::Mute => self.plan.lost_percent = 100,
            Fault::Sleep(replica, ms) => {
                let awake_at = &mut self.replicas[replica].awake_at;
                *awake_at = (*awake_at).max(self.time + ms * MS);
            }
        }
    }

    fn tell(&mut self, index: usize, event: Event, sent_at: Option<Instant>) {
        let replica = &mut self.replicas[index];
        replica.sessions.handle(event, replica.clock.read(self.time));
        replica.timeout = None;
        while let Some(action) = self.replicas[index].sessions.poll() {
            match action {
                Action::Acknowledge { connection, .. } => {
                    // A round trip to a quorum tells who leads.
                    let replica = &self.replicas[index];
                    if self.leader == index && replica.term == self.term {
                        let sent_at = sent_at.expect("answers a heartbeat");
                        self.send(Step::Acknowledged { replica: index, connection, sent_at });
                    }
                }
                Action::Propose { term, .. } => {
                    // And so does the log; whoever leads later has applied the loss before.
                    if self.leader == index && term == self.term {
                        self.lost = true;
                        for Replica { sessions, clock, .. } in &mut self.replicas {
                            sessions.handle(Event::Members(vec![]), clock.read(self.time));
                        }
                    }
                }
                Action::Timeout(at) => self.replicas[index].timeout = Some(at),
            }
        }
    }

    fn send(&mut self, step: Step) {
        if self.draw(100) >= self.plan.lost_percent {
            let late = self.draw(self.plan.late_ms_max * MS + 1);
            self.add(self.time + late, step);
        }
    }

    fn add(&mut self, time: u64, step: Step) {
        self.made += 1;
        self.steps.insert((time, self.made), step);
    }

    fn draw(&mut self, below: u64) -> u64 {
        let state = &mut self.plan.seed;
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (*state ^ *state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ mixed >> 27) % below
    }
}

fn options(drift_ppm: u32, on_coordinator_loss: OnCoordinatorLoss) -> SessionOptions {
    SessionOptions { drift_ppm, on_coordinator_loss, ..SessionOptions::default() }
}

/// At the bound of its rate, more often than not.
fn clock(drift: u64) -> impl Strategy<Value = Drifting> {
    let rate = prop_oneof![
        Just(1_000_000 - drift),
        Just(1_000_000 + drift),
        1_000_000 - drift..=1_000_000 + drift,
    ];
    (0..1_000_000 * MS, rate).prop_map(|(offset, rate)| Drifting { offset, rate })
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        4 => (0..2_usize, 0..30_u64).prop_map(|(replica, late)| Fault::Close(replica, late)),
        4 => (0..2_usize).prop_map(Fault::Open),
        2 => (0..2_usize, 0..100_u64, 0..1_000_u64)
            .prop_map(|(replica, late, later)| Fault::Lead(replica, late, later)),
        1 => (0..2_usize, 0..3_000_u64).prop_map(|(replica, ms)| Fault::Sleep(replica, ms)),
        1 => Just(Fault::Mute),
    ]
}

fn plan(
    drift: u64,
    fault: impl Strategy<Value = Fault>,
    late_ms_max: impl Strategy<Value = u64>,
    lost_percent: impl Strategy<Value = u64>,
) -> impl Strategy<Value = Plan> {
    let clocks = (clock(drift), clock(drift), clock(drift));
    let faults = vec((0..700_u64, fault), 0..24);
    (clocks, faults, late_ms_max, lost_percent, any::<u64>()).prop_map(
        |((node, one, other), faults, late_ms_max, lost_percent, seed)| Plan {
            node,
            replicas: [one, other],
            faults,
            late_ms_max,
            lost_percent,
            seed,
        },
    )
}

#[test]
fn an_owner_that_denies_stops_before_its_loss_is_proposed_whoever_drifts() {
    // The slowest node and the fastest coordinator, and the other way round; a close, and silence.
    let (slow, fast) = (900_000, 1_100_000);
    let close = vec![(3_000, Fault::Close(1, 0)), (0, Fault::Close(0, 0))];
    let silence = vec![(3_000, Fault::Mute)];
    for (node, coordinator) in [(slow, fast), (fast, slow)] {
        for faults in [close.clone(), silence.clone()] {
            let drifting = |rate| Drifting { offset: 5, rate };
            let replicas = [drifting(coordinator); 2];
            let node = drifting(node);
            let plan = Plan { node, replicas, faults, late_ms_max: 0, lost_percent: 0, seed: 1 };
            assert!(World::new(plan, options(100_000, OnCoordinatorLoss::Deny)).run());
        }
    }
}

#[test]
fn a_replaced_leader_that_does_not_know_it_proposes_nothing_that_counts_and_renews_nothing() {
    // The node speaks to the old leader alone, and is lost once the new one has missed it.
    let drifting = Drifting { offset: 0, rate: 1_000_000 };
    let faults = vec![(1_000, Fault::Close(1, 0)), (600, Fault::Lead(1, 0, 9_000))];
    let (node, replicas) = (drifting, [drifting; 2]);
    let plan = Plan { node, replicas, faults, late_ms_max: 0, lost_percent: 0, seed: 1 };
    assert!(World::new(plan, options(0, OnCoordinatorLoss::Deny)).run());
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn no_member_is_lost_while_its_lease_lets_permissions_live(
        plan in plan(100_000, fault(), 0..400_u64, prop_oneof![Just(0_u64), 0..60_u64]),
    ) {
        World::new(plan, options(100_000, OnCoordinatorLoss::Deny)).run();
    }

    #[test]
    fn a_node_that_is_heard_is_not_lost_when_leaders_change_or_sleep(
        plan in plan(
            500,
            prop_oneof![
                (0..2_usize, 0..100_u64, 0..1_000_u64)
                    .prop_map(|(replica, late, later)| Fault::Lead(replica, late, later)),
                (0..2_usize, 0..9_000_u64).prop_map(|(replica, ms)| Fault::Sleep(replica, ms)),
            ],
            0..100_u64,
            Just(0_u64),
        ),
        denies in any::<bool>(),
    ) {
        let loss = if denies { OnCoordinatorLoss::Deny } else { OnCoordinatorLoss::Serve };
        prop_assert!(!World::new(plan, options(500, loss)).run());
    }

    #[test]
    fn a_connection_that_is_back_within_ttl_max_costs_nothing(
        closes in vec((60..500_u64, 0..250_u64), 0..12),
        seed in any::<u64>(),
    ) {
        let drifting = Drifting { offset: 0, rate: 1_000_000 };
        let close = |(after, away): (u64, u64)| {
            [(after, Fault::Close(0, 20)), (away, Fault::Open(0))]
        };
        let faults = closes.into_iter().flat_map(close).collect();
        let (node, replicas) = (drifting, [drifting; 2]);
        let plan = Plan { node, replicas, faults, late_ms_max: 50, lost_percent: 0, seed };
        prop_assert!(!World::new(plan, options(500, OnCoordinatorLoss::Serve)).run());
    }
}

#[test]
fn what_a_dead_owner_permitted_has_expired_by_the_slowest_clock_when_it_is_lost() {
    for drift_ppm in [0, 500, 100_000] {
        let options = options(drift_ppm, OnCoordinatorLoss::Serve);
        let mut sessions = Sessions::new(options).expect("sound");
        sessions.handle(Event::Members(vec![(NODE, START)]), Instant::ZERO);
        sessions.handle(Event::Leads { term: 1 }, Instant::ZERO);
        // It granted for ttl_max and died, both just now.
        sessions.handle(Event::Closed { node: NODE, start: START, connection: 1 }, Instant::ZERO);
        let Some(Action::Timeout(lost_at)) = sessions.poll() else { panic!("no wait") };
        let (drift, offset) = (u64::from(drift_ppm), 0);
        let coordinator = Drifting { offset, rate: 1_000_000 + drift };
        let worker = Drifting { offset, rate: 1_000_000 - drift };
        let lost_at = coordinator.time_of(lost_at);
        assert!(worker.read(lost_at).as_nanos() >= 400 * MS, "{drift_ppm}");
        // And it waits no longer than that takes.
        assert!(worker.read(lost_at).as_nanos() <= 400 * MS + 2, "{drift_ppm}");
    }
}
