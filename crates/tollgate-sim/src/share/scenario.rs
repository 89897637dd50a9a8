//! What is to be simulated of the guarantee `share`: a fleet, the limit that its nodes divide, what
//! is asked of it and what goes wrong.

use tollgate::ShareMode;
use tollgate::share::ShareOptions;

use crate::scenario::{MS, Nanos, Network, SECOND, Shape};

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// What chance comes from.
    pub seed: u64,
    /// How many nodes there are.
    pub nodes: u32,
    /// How long it lasts.
    pub lasts: Nanos,
    /// What each key has in the beginning.
    pub units: Units,
    /// What decides in the beginning.
    pub mode: ShareMode,
    /// How it is divided.
    pub options: ShareOptions,
    /// What is asked.
    pub loads: Vec<Load>,
    /// How messages travel.
    pub network: Network,
    /// The clocks' rate error, at most, either way (parts per million).
    pub drift_ppm: u32,
    /// What goes wrong, and when.
    pub faults: Vec<(Nanos, Fault)>,
}

/// An allowance: R and B.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Units {
    /// Units in each `period`.
    pub units: u64,
    /// In seconds.
    pub period: u64,
    /// Units at once.
    pub burst: u64,
}

impl Units {
    /// So many a second.
    #[must_use]
    pub const fn per_second(units: u64, burst: u64) -> Self {
        Self { units, period: 1, burst }
    }

    /// R, a second.
    #[must_use]
    pub fn rate(self) -> f64 {
        self.units as f64 / self.period as f64
    }
}

/// What is asked of one key on one node.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Which key.
    pub key: u32,
    /// On which node.
    pub node: u32,
    /// Units a second.
    pub per_second: f64,
    /// When.
    pub from: Nanos,
    /// Until when.
    pub until: Nanos,
    /// How requests come.
    pub shape: Shape,
    /// What one costs, at least and at most.
    pub cost: (u64, u64),
    /// For how long a request that was denied is made again, each time when it was told to.
    pub patience: Nanos,
}

impl Load {
    /// Requests of one unit at even times in all of the run, which are not made again.
    #[must_use]
    pub fn even(key: u32, node: u32, per_second: f64) -> Self {
        Self {
            key,
            node,
            per_second,
            from: 0,
            until: Nanos::MAX,
            shape: Shape::Even,
            cost: (1, 1),
            patience: 0,
        }
    }

    /// In this time alone.
    #[must_use]
    pub fn during(self, from: Nanos, until: Nanos) -> Self {
        Self { from, until, ..self }
    }

    /// Requests a second.
    #[must_use]
    pub fn requests(&self) -> f64 {
        self.per_second / ((self.cost.0 + self.cost.1) as f64 / 2.0)
    }
}

/// What goes wrong, or is done by operators.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// A process is killed. It starts again after a while, if at all.
    Crash {
        /// Which.
        node: u32,
        /// When it starts again.
        back_after: Option<Nanos>,
    },
    /// The process that owns a key then is killed.
    Owner {
        /// Which key.
        key: u32,
        /// When it starts again.
        back_after: Option<Nanos>,
    },
    /// A process leaves as planned. It comes back after a while, if at all.
    Stop {
        /// Which.
        node: u32,
        /// When it comes back.
        back_after: Option<Nanos>,
    },
    /// Messages from a node, to one or to all others, are lost for a while.
    Cut {
        /// From whom.
        from: u32,
        /// To whom.
        to: Option<u32>,
        /// For how long.
        lasts: Nanos,
    },
    /// A node and the coordinator do not hear each other for a while.
    Silence {
        /// Which.
        node: u32,
        /// For how long.
        lasts: Nanos,
    },
    /// Each key has another allowance from now on.
    Change(Units),
    /// Something else decides from now on.
    Mode(ShareMode),
}

impl Scenario {
    /// A quiet fleet under one limit, of which nothing is asked.
    #[must_use]
    pub fn quiet(nodes: u32, units: Units, lasts: Nanos) -> Self {
        Self {
            seed: 1,
            nodes,
            lasts,
            units,
            mode: ShareMode::Global,
            options: ShareOptions::default(),
            loads: Vec::new(),
            network: Network::QUIET,
            drift_ppm: 0,
            faults: Vec::new(),
        }
    }

    /// How often members report.
    #[must_use]
    pub fn interval(&self) -> Nanos {
        self.options.interval.as_nanos() as Nanos
    }

    /// How many keys are asked for.
    #[must_use]
    pub fn keys(&self) -> u32 {
        self.loads.iter().map(|load| load.key + 1).max().unwrap_or(1)
    }

    /// The longest time from a message to its answer, but for those that are slow.
    #[must_use]
    pub fn round_trip(&self) -> Nanos {
        2 * self.network.delay_max.max(self.network.delay_min)
    }

    /// Whether every message comes, once, and in time.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let Network { slow, loss, repeats, .. } = self.network;
        [slow, loss, repeats] == [0.0; 3]
    }

    /// What can ask for units of a key.
    pub fn loads_of(&self, key: u32) -> impl Iterator<Item = &Load> + Clone {
        self.loads.iter().filter(move |load| load.key == key)
    }
}

impl Fault {
    /// How long it goes on by itself: what follows a crash is seen in the rings.
    #[must_use]
    pub fn lasts(&self) -> Nanos {
        match *self {
            Self::Cut { lasts, .. } | Self::Silence { lasts, .. } => lasts,
            Self::Crash { back_after, .. }
            | Self::Owner { back_after, .. }
            | Self::Stop { back_after, .. } => back_after.unwrap_or(LOST_AFTER).max(LOST_AFTER),
            Self::Change(_) | Self::Mode(_) => 0,
        }
    }
}

/// A process that is silent is out of the ring by then.
const LOST_AFTER: Nanos = 2 * SECOND + 500 * MS;
