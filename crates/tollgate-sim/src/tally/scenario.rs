//! What is to be simulated of the guarantee `tally`: a fleet, the stores that it shares, what is
//! asked of it and what goes wrong.

use std::time::Duration;

use tollgate::TallyOptions;
use tollgate::tally::WorkerOptions;

use crate::scenario::{MS, Nanos, SECOND, Shape};

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// What chance comes from.
    pub seed: u64,
    /// How many nodes there are.
    pub nodes: u32,
    /// How long anything is asked.
    pub lasts: Nanos,
    /// How long the stores are then without faults, so that what waits can be written.
    pub rests: Nanos,
    /// L, units in each window.
    pub threshold: u64,
    /// Keys that have thresholds of their own.
    pub own: Vec<(u32, u64)>,
    /// w, in seconds.
    pub window: u64,
    /// Whether what is refused counts too.
    pub counts_offered: bool,
    /// What nodes do in long outages: `allow`, `share` or `deny`.
    pub on_stale: &'static str,
    /// How each node uses its stores.
    pub options: TallyOptions,
    /// How often a node looks at its cells.
    pub drains: Nanos,
    /// Wall time at the start of the run (nanoseconds since 1970).
    pub begins: u64,
    /// How far each node's wall clock is ahead of that, in nanoseconds; those that are missing are
    /// right.
    pub skews: Vec<i64>,
    /// What is asked.
    pub demands: Vec<Demand>,
    /// How commands travel.
    pub way: Way,
    /// What goes wrong, and when.
    pub faults: Vec<(Nanos, Fault)>,
}

/// What is asked of one key.
#[derive(Debug, Clone, PartialEq)]
pub struct Demand {
    /// Which.
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
}

/// How commands travel to a store and back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Way {
    /// One way, at least.
    pub delay_min: Nanos,
    /// One way, at most, for most.
    pub delay_max: Nanos,
    /// The share that is slow one way.
    pub slow: f64,
    /// One way, at most, for those.
    pub slow_max: Nanos,
    /// The share of commands that never arrive.
    pub lost: f64,
    /// The share of answers that never arrive.
    pub unanswered: f64,
    /// The share of commands whose connection breaks while they are carried out: a first part is
    /// answered, some more is done.
    pub cut: f64,
    /// The share of counters that refuse what is added.
    pub refused: f64,
    /// How long a node waits for an answer.
    pub timeout: Nanos,
}

impl Way {
    /// Half a millisecond each way.
    pub const QUIET: Self = Self {
        delay_min: 400_000,
        delay_max: 600_000,
        slow: 0.0,
        slow_max: 0,
        lost: 0.0,
        unanswered: 0.0,
        cut: 0.0,
        refused: 0.0,
        timeout: 250 * MS,
    };

    /// Whether nothing goes wrong on it.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        [self.slow, self.lost, self.unanswered, self.cut, self.refused] == [0.0; 5]
    }

    /// The longest that a command is under way for a node.
    #[must_use]
    pub fn flight_max(&self) -> Nanos {
        if self.is_sound() { 2 * self.delay_max } else { self.timeout }
    }
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// A store takes no connection, so that nothing leaves a node.
    Refuses {
        /// Which.
        store: usize,
        /// For how long.
        lasts: Nanos,
    },
    /// A store neither does nor answers anything.
    Swallows {
        /// Which.
        store: usize,
        /// For how long.
        lasts: Nanos,
    },
    /// A store is a replica: it answers reads alone.
    ReadsOnly {
        /// Which.
        store: usize,
        /// For how long.
        lasts: Nanos,
    },
    /// A store evicts this share of its counters.
    Evicts {
        /// Which.
        store: usize,
        /// From 0 to 1.
        share: f64,
    },
    /// A replica is promoted that lacks what was written lately.
    FailsOver {
        /// Which.
        store: usize,
        /// How much of the time before.
        lacks: Nanos,
    },
    /// A node's wall clock steps by so many nanoseconds.
    Steps {
        /// Which.
        node: u32,
        /// Forward, or back if below 0.
        by: i64,
    },
}

impl Scenario {
    /// Nodes that share one store in a quiet network, one limit of so many units in so many
    /// seconds, and nothing asked. Nodes look at their cells each 100 ms.
    #[must_use]
    pub fn quiet(nodes: u32, threshold: u64, window: u64) -> Self {
        Self {
            seed: 1,
            nodes,
            lasts: 0,
            rests: 5 * SECOND,
            threshold,
            own: Vec::new(),
            window,
            counts_offered: false,
            on_stale: "allow",
            options: TallyOptions {
                worker: WorkerOptions { nodes: u64::from(nodes), ..WorkerOptions::default() },
                ..TallyOptions::default()
            },
            drains: 100 * MS,
            begins: BEGINS,
            skews: Vec::new(),
            demands: Vec::new(),
            way: Way::QUIET,
            faults: Vec::new(),
        }
    }

    /// L of a key.
    #[must_use]
    pub fn threshold_of(&self, key: u32) -> u64 {
        let own = self.own.iter().find(|(own, _)| *own == key);
        own.map_or(self.threshold, |(_, threshold)| *threshold)
    }

    /// w.
    #[must_use]
    pub fn length(&self) -> Nanos {
        self.window * SECOND
    }

    /// After reads have been unanswered for so long, a key's own counts are not held against it.
    #[must_use]
    pub fn outage_max(&self) -> Nanos {
        let outage_max = self.options.worker.read_outage_max;
        outage_max.map_or(self.length(), |longest| longest.as_nanos() as Nanos)
    }

    /// How often nodes look at their stores.
    #[must_use]
    pub fn tick(&self) -> Nanos {
        self.options.worker.tick.as_nanos() as Nanos
    }

    /// Nothing goes wrong with stores, or on the way to them.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.way.is_sound() && self.faults.is_empty()
    }

    /// Whether any clock steps.
    #[must_use]
    pub fn steps(&self) -> bool {
        self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Steps { .. }))
    }

    /// How far apart clocks are.
    #[must_use]
    pub fn skew(&self) -> Nanos {
        let skews = || self.skews.iter().copied().chain([0]);
        let (least, most) = (skews().min().unwrap_or(0), skews().max().unwrap_or(0));
        most.abs_diff(least)
    }
}

impl Demand {
    /// Requests of one unit, by all nodes, at even times in all of the run.
    #[must_use]
    pub fn even(key: u32, per_second: f64) -> Self {
        Self {
            key,
            nodes: Vec::new(),
            per_second,
            from: 0,
            until: Nanos::MAX,
            shape: Shape::Even,
            cost: (1, 1),
        }
    }
}

/// A whole number of windows of 5, 10, 20, 30 and 60 s.
const BEGINS: u64 = Duration::from_secs(1_700_000_040).as_nanos() as u64;
