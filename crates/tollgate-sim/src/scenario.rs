//! What is to be simulated: a fleet, its limits, what is asked of it and what goes wrong.

use tollgate::{Rate, ViewTimes};

/// Nanoseconds of true time since the run began.
pub type Nanos = u64;
/// A millisecond.
pub const MS: Nanos = 1_000_000;
/// A second.
pub const SECOND: Nanos = 1_000_000_000;

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// What chance comes from.
    pub seed: u64,
    /// How many nodes start; each is a worker, and an owner of its keys.
    pub nodes: u32,
    /// How long anything is asked.
    pub lasts: Nanos,
    /// How long the fleet then rests, without faults, so that it can be seen to settle.
    pub rests: Nanos,
    /// The limits.
    pub limits: Vec<SimLimit>,
    /// What is asked.
    pub demands: Vec<Demand>,
    /// How messages travel.
    pub network: Network,
    /// What the fleet's nodes agree on.
    pub times: ViewTimes,
    /// The clocks' rate error, at most, either way (parts per million).
    pub drift_ppm: u32,
    /// Whether owners that lose the coordinator go on for ever, or stop in time.
    pub serves_alone: bool,
    /// Reports that an owner applies in a second.
    pub reports_per_second_max: u64,
    /// What goes wrong, and when.
    pub faults: Vec<(Nanos, Fault)>,
}

/// A limit of the fleet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimLimit {
    /// R.
    pub rate: Rate,
    /// B.
    pub burst: u64,
    /// b; `None` is the product's default.
    pub local_cap: Option<u64>,
    /// Units on first contact.
    pub bootstrap: u64,
}

/// What is asked of one key.
#[derive(Debug, Clone, PartialEq)]
pub struct Demand {
    /// Which limit, by its place in the scenario.
    pub limit: usize,
    /// Which of the limit's keys.
    pub key: u32,
    /// By which nodes; empty is all that there are.
    pub nodes: Vec<u32>,
    /// Requests a second on each of those nodes.
    pub per_second: f64,
    /// When.
    pub from: Nanos,
    /// Until when.
    pub until: Nanos,
    /// How requests come.
    pub shape: Shape,
    /// What one costs, at least and at most.
    pub cost: (u64, u64),
    /// How long a request waits for credit; 0 is not at all.
    pub waits: Nanos,
    /// The share of admitted requests that give something back, and when.
    pub refunds: f64,
    /// As said for `refunds`, at most.
    pub refund_after: Nanos,
}

/// How requests come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// Independently of each other.
    Random,
    /// At even times.
    Even,
    /// So many at one instant, on all nodes at the same: the average stays as asked.
    Bursts(u32),
}

/// How messages travel between nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Network {
    /// One way, at least.
    pub delay_min: Nanos,
    /// One way, at most, for most messages; different delays reorder.
    pub delay_max: Nanos,
    /// The share of messages that are slow.
    pub slow: f64,
    /// One way, at most, for slow messages.
    pub slow_max: Nanos,
    /// The share that is lost.
    pub loss: f64,
    /// The share that comes twice.
    pub repeats: f64,
}

impl Network {
    /// A quiet local network: half a millisecond each way, give or take a fifth.
    pub const QUIET: Self = Self {
        delay_min: 400_000,
        delay_max: 600_000,
        slow: 0.0,
        slow_max: 0,
        loss: 0.0,
        repeats: 0.0,
    };
}

/// What goes wrong, or is done by operators.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// A process is killed; its connections close at once. It starts again after a while, if at
    /// all.
    Crash {
        /// Which.
        node: u32,
        /// When it starts again.
        back_after: Option<Nanos>,
    },
    /// A process stops as planned: it leaves, hands over, and ends.
    Stop {
        /// Which.
        node: u32,
        /// When it starts again.
        back_after: Option<Nanos>,
    },
    /// A process stands still.
    Pause {
        /// Which.
        node: u32,
        /// For how long.
        lasts: Nanos,
    },
    /// No message gets from one node to another, one way.
    Cut {
        /// From whom.
        from: u32,
        /// To whom; everybody else if `None`.
        to: Option<u32>,
        /// For how long.
        lasts: Nanos,
    },
    /// A node's way to the coordinator is cut, silently.
    Silence {
        /// Which.
        node: u32,
        /// For how long.
        lasts: Nanos,
    },
    /// A node's connection to the coordinator is reset; it connects again after a while.
    Reset {
        /// Which.
        node: u32,
        /// When it connects again.
        back_after: Nanos,
    },
    /// A limit is changed.
    Change {
        /// Which.
        limit: usize,
        /// R.
        rate: Rate,
        /// B.
        burst: u64,
    },
    /// A limit is taken away; a change brings it back.
    Remove {
        /// Which.
        limit: usize,
    },
    /// The coordinator's leader changes.
    Failover,
    /// Something goes wrong with the node that owns a key by then; nothing if none does.
    Owner {
        /// Of which limit, by its place in the scenario.
        limit: usize,
        /// Which of the limit's keys.
        key: u32,
        /// What goes wrong.
        wrong: Wrong,
    },
}

/// What goes wrong with a node that is known only when it does; as the [`Fault`] of this name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wrong {
    /// Its process is killed.
    Crash {
        /// When it starts again.
        back_after: Option<Nanos>,
    },
    /// Its process stops as planned.
    Stop {
        /// When it starts again.
        back_after: Option<Nanos>,
    },
    /// Its process stands still.
    Pause {
        /// For how long.
        lasts: Nanos,
    },
    /// Its way to the coordinator is cut, silently.
    Silence {
        /// For how long.
        lasts: Nanos,
    },
    /// Its connection to the coordinator is reset.
    Reset {
        /// When it connects again.
        back_after: Nanos,
    },
}

impl Fault {
    /// The fault as it is when this node owns its key.
    #[must_use]
    pub fn hitting(self, owner: u32) -> Self {
        match self {
            Self::Owner { wrong, .. } => wrong.of(owner),
            known => known,
        }
    }
}

impl Wrong {
    /// The fault of this node.
    #[must_use]
    pub fn of(self, node: u32) -> Fault {
        match self {
            Self::Crash { back_after } => Fault::Crash { node, back_after },
            Self::Stop { back_after } => Fault::Stop { node, back_after },
            Self::Pause { lasts } => Fault::Pause { node, lasts },
            Self::Silence { lasts } => Fault::Silence { node, lasts },
            Self::Reset { back_after } => Fault::Reset { node, back_after },
        }
    }
}
