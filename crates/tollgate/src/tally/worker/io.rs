//! What a worker is told, and what it wants done.

use std::time::Duration;

use crate::key::KeyId;
use crate::tally::{Estimate, Window};
use crate::time::Instant;

/// How a worker uses its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerOptions {
    /// How often it writes and reads.
    pub tick: Duration,
    /// How long what was read of a key of normal pressure counts.
    pub sync: Duration,
    /// Units that a node must have counted of an idle key before it reads it; see
    /// [`Floor`](crate::tally::Floor).
    pub floor: u64,
    /// After reads have gone unanswered for so long, what this node has counted by itself limits
    /// nobody: only what was read does, and leaks. `None` is a window of the key's limit.
    pub read_outage_max: Option<Duration>,
    /// After so long without a request, or two windows if that is more, a key is forgotten once all
    /// of it is written.
    pub idle: Duration,
    /// Counts that wait to be written, at most; what finds no place among them is dropped.
    pub writes_max: usize,
    /// Counts that are written in one tick.
    pub writes_per_tick: usize,
    /// Keys that are read in one tick.
    pub reads_per_tick: usize,
    /// Keys in one command.
    pub keys_per_command: usize,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            tick: Duration::from_secs(1),
            sync: Duration::from_secs(15),
            floor: 10,
            read_outage_max: None,
            idle: Duration::from_secs(300),
            writes_max: 200_000,
            writes_per_tick: 200_000,
            reads_per_tick: 20_000,
            keys_per_command: 2_000,
        }
    }
}

/// What a worker is told.
///
/// Each command is answered exactly once, and in bounded time, or nothing goes on; a key's
/// [`Evicted`](Self::Evicted) comes before anything of its next cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// How far a key's cell has counted, which was asked for; it need not have counted more. A key
    /// that is new began at 0.
    Counted {
        /// The key.
        key: KeyId,
        /// Its limit.
        window: Window,
        /// Units since its cell began.
        taken: u64,
    },
    /// What became of a [`Output::Write`].
    Written {
        /// Its number.
        command: u64,
        /// What became of it.
        outcome: Outcome,
    },
    /// What became of a [`Output::Read`].
    Read {
        /// Its number.
        command: u64,
        /// The counts of each of its keys in their order, in the previous window and in this one;
        /// `None` if it failed.
        counts: Option<Vec<(u64, u64)>>,
    },
    /// Whether a key has no cell any more, as [`Output::Evict`] wanted.
    Evicted {
        /// The key.
        key: KeyId,
        /// Whether it has none.
        gone: bool,
    },
    /// The time of [`Output::Timeout`] has come.
    Timeout,
}

/// What became of a command that writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All of it is in the store.
    Done,
    /// The store surely has nothing of it.
    NotSent,
    /// The store may have it, or a part.
    Unknown,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Add these counts to the store.
    Write {
        /// Its number, for the answer.
        command: u64,
        /// What is added.
        counts: Vec<Count>,
    },
    /// Read the counts of these keys.
    Read {
        /// Its number, for the answer.
        command: u64,
        /// The keys, and the numbers of their windows now; each one's previous is one less.
        keys: Vec<(KeyId, u64)>,
    },
    /// A key is judged by this from now on: what its cell has counted beyond `base` comes on top of
    /// an estimate that was read at that instant.
    Estimate {
        /// The key.
        key: KeyId,
        /// Units since its cell began that are in the estimate, or count for nothing.
        base: u64,
        /// What the fleet has used lately.
        estimate: Estimate,
        /// Since when it leaks.
        read_at: Instant,
    },
    /// A key rests; its cell may go, if it is still there.
    Evict {
        /// The key.
        key: KeyId,
        /// How far it has counted.
        taken: u64,
    },
    /// Nothing now; call again then.
    Timeout(Instant),
}

/// Units that are added to one window of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// The key.
    pub key: KeyId,
    /// The window's number.
    pub number: u64,
    /// How many.
    pub units: u64,
    /// Its limit.
    pub window: Window,
}

/// What a worker did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkerCounts {
    /// Units that the store has.
    pub written: u64,
    /// Units of which it is not known whether the store has them.
    pub unknown: u64,
    /// Units that found no place among those that wait.
    pub dropped: u64,
    /// Units of windows that nobody reads any more.
    pub late: u64,
    /// Keys that were read.
    pub read: u64,
    /// Keys whose reading failed.
    pub read_failed: u64,
}
