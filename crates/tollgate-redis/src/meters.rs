//! How the task and its stores fare, in numbers for people and dashboards. Nothing is decided by
//! it.

use std::time::Duration;

use tollgate::tally::{Histogram, WorkerCounts};

use crate::health::Health;

/// How a process's side of its stores fares.
#[derive(Debug, Clone, Default)]
pub struct TallyStatus {
    /// Each store, in the order in which they were given. None before the first tick.
    pub stores: Vec<StoreStatus>,
    /// Cells that left uncounted, since their key's name was lost or their limit is gone.
    pub nameless: u64,
}

/// How one store fares.
#[derive(Debug, Clone)]
pub struct StoreStatus {
    /// Its servers and connections.
    pub health: Health,
    /// Keys that are counted in it here.
    pub keys: usize,
    /// How many of them are idle, low, normal and hot; of more than 10,000 keys looked at every
    /// 30 ticks.
    pub tiers: [usize; 4],
    /// Counts that wait to be written, or are being.
    pub waiting: usize,
    /// Keys that are due to be read.
    pub due: usize,
    /// For how long reads have gone unanswered, if they do.
    pub silent_for: Option<Duration>,
    /// What was done so far.
    pub counts: WorkerCounts,
    /// How long it took, and how much it was.
    pub meters: Meters,
}

/// How long commands and ticks took, in milliseconds, and how many keys were in each command.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Meters {
    /// From a command's turn to its last answer.
    pub writes: Histogram<{ MILLIS_BOUNDS.len() }>,
    /// The same of reads.
    pub reads: Histogram<{ MILLIS_BOUNDS.len() }>,
    /// From the first command of a tick to its last answer.
    pub ticks: Histogram<{ MILLIS_BOUNDS.len() }>,
    /// Counts in a command.
    pub write_sizes: Histogram<{ SIZE_BOUNDS.len() }>,
    /// Keys in a command.
    pub read_sizes: Histogram<{ SIZE_BOUNDS.len() }>,
}

/// Up to where each count of milliseconds goes.
pub const MILLIS_BOUNDS: [f64; 10] = [0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 1_000.0];
/// Up to where each count of keys goes.
pub const SIZE_BOUNDS: [f64; 6] = [1.0, 10.0, 100.0, 500.0, 1_000.0, 2_000.0];
