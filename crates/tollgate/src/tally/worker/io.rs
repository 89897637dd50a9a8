//! What a worker is told, and what it wants done.

use std::time::Duration;

use crate::key::KeyId;
use crate::tally::{Estimate, WallTime, Window};
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
    /// After reads have gone unanswered for so long, keys are judged as their limit's [`OnStale`]
    /// says. `None` is a window of the key's limit.
    pub read_outage_max: Option<Duration>,
    /// Nodes that share the store, as [`OnStale::Share`] counts them.
    pub nodes: u64,
    /// Keys that it should know at most. From seven eighths of it on those leave that nobody has
    /// asked for the longest, of those that are idle and written.
    pub keys_max: usize,
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
            nodes: 1,
            keys_max: 300_000,
            idle: Duration::from_secs(300),
            writes_max: 200_000,
            writes_per_tick: 200_000,
            reads_per_tick: 20_000,
            keys_per_command: 2_000,
        }
    }
}

/// By what a key is judged once its store has not answered for
/// [`read_outage_max`](WorkerOptions::read_outage_max).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnStale {
    /// By what was read last alone, which leaks: what this node has counted by itself limits
    /// nobody.
    #[default]
    Allow,
    /// As if each of the nodes counted what this one does: each enforces its part.
    Share,
    /// It is denied.
    Deny,
}

impl OnStale {
    /// Its name, as policy files have it: `allow`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Share => "share",
            Self::Deny => "deny",
        }
    }
}

/// How far a key's cell has counted, which was asked for; it need not have counted more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// The key.
    pub key: KeyId,
    /// Its limit.
    pub window: Window,
    /// What its limit says of outages.
    pub on_stale: OnStale,
    /// Where its cell began, if that is new.
    pub base: Option<u64>,
    /// Up to where it has counted.
    pub taken: u64,
    /// Units that were given back since it was told last, and when the oldest of them were charged.
    pub refund: Option<(u64, WallTime)>,
}

/// What a worker is told.
///
/// Each command is answered exactly once, and in bounded time, or nothing goes on; a key's
/// [`Evicted`](Self::Evicted) comes before anything of its next cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A cell has counted.
    Counted(Counted),
    /// What became of a [`Output::Write`].
    Written {
        /// Its number.
        command: u64,
        /// What became of each of its counts, in their order; of those that are missing it is not
        /// known.
        outcomes: Vec<Outcome>,
    },
    /// What became of a [`Output::Read`].
    Read {
        /// Its number.
        command: u64,
        /// The counts of each of its keys in their order, in the previous window and in this one;
        /// those that are `None` or missing could not be read.
        counts: Vec<Option<(u64, u64)>>,
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

/// What became of a count that was to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The store has it.
    Done,
    /// The store surely does not have it, and may take it another time.
    NotSent,
    /// The store surely does not have it, and never will.
    Refused,
    /// The store may have it: it must not be sent again.
    Unknown,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Add these counts to the store, each of them once at most.
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
        /// Which.
        keys: Vec<Wanted>,
    },
    /// A key is judged by this from now on: what its cell has counted beyond `base` comes on top of
    /// an estimate, which leaks from that instant on.
    Estimate {
        /// The key.
        key: KeyId,
        /// Its limit.
        window: Window,
        /// Up to where its cell's units are in the estimate, or count for nothing.
        base: u64,
        /// What the fleet has used lately.
        estimate: Estimate,
        /// From when on it leaks.
        leaks_from: Instant,
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
    /// How many; below 0 if more was given back than was counted.
    pub units: i64,
    /// Its limit.
    pub window: Window,
}

/// A key whose counts are to be read, in a window and in the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The key.
    pub key: KeyId,
    /// The number of the window; the previous one's is one less.
    pub number: u64,
    /// Its limit.
    pub window: Window,
}
