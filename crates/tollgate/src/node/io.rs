//! What goes into a node and what comes out of it, as values.

use std::time::Duration;

use crate::coordinator::RingChange;
use crate::credits::Permit;
use crate::division::owner::DivisionCounts;
use crate::key::KeyId;
use crate::message::Message;
use crate::policy::{FleetLimitId, FleetRules};
use crate::ring::NodeId;
use crate::share::ShareOptions;
use crate::shares::{DrainedShare, Given};
use crate::time::Instant;
use crate::view::ViewTimes;
use crate::view::owner::OwnerCounts;
use crate::view::worker::Usage;

/// What a cell of a key that nodes divide has counted since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareUsage {
    /// As it was drained.
    pub drained: DrainedShare,
}

/// What a stream has counted of a key since it first asked for it, in units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamUsage {
    /// The key.
    pub key: KeyId,
    /// Its limit.
    pub limit: FleetLimitId,
    /// The stream; never 0.
    pub stream: u64,
    /// Units that were allowed.
    pub allowed: u64,
    /// Units that were denied.
    pub denied: u64,
    /// How often it tells.
    pub interval: Duration,
}

/// How a node is set up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodeOptions {
    /// Times that the whole fleet shares.
    pub times: ViewTimes,
    /// How limits are divided; the same in the whole fleet.
    pub share: ShareOptions,
    /// Keys that it spends from, and keys that it owns, at most: each. Typically 1,000,000.
    pub keys_max: usize,
    /// Reports that it applies in a second; beyond them it asks for fewer, then refuses. Typically
    /// 500,000.
    pub reports_per_second_max: u64,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            times: ViewTimes::default(),
            share: ShareOptions::default(),
            keys_max: 1_000_000,
            reports_per_second_max: 500_000,
        }
    }
}

/// What a node is told.
#[derive(Debug, Clone)]
pub enum Input {
    /// What a cell holds, or that a new one has begun. Cells that are dirty are told before
    /// anything else is.
    Usage(Usage),
    /// What a cell of a key that nodes divide has counted.
    Shared(ShareUsage),
    /// What a stream of this node has counted of such a key, which divides it as a member of its
    /// own.
    Stream(StreamUsage),
    /// A stream asks no more for a key.
    StreamGone {
        /// The key.
        key: KeyId,
        /// The stream.
        stream: u64,
    },
    /// A cell that was to [go](Output::EvictShare) has gone, or was in use.
    ShareEvicted {
        /// The key.
        key: KeyId,
        /// Whether it has gone.
        gone: bool,
    },
    /// A cell that was to [go](Output::Evict) has gone, or was in use.
    Evicted {
        /// The key.
        key: KeyId,
        /// Whether it has gone.
        gone: bool,
    },
    /// Another node says something.
    Message {
        /// Who.
        from: NodeId,
        /// What.
        message: Message,
    },
    /// The coordinator tells of a ring.
    Ring {
        /// The change that led to it.
        change: RingChange,
        /// How long ago it was decided.
        age: Duration,
        /// The start number of this process; whether the process before it was a member under the
        /// same ring.
        start: u64,
        /// As said for `start`.
        is_restart: bool,
    },
    /// The coordinator tells of limits.
    Rules(FleetRules),
    /// Until when this node may let permissions live; [`Instant::MAX`] if nothing bounds it.
    Lease(Instant),
    /// The time that [`Output::Timeout`] named has come.
    Timeout,
}

/// What is to be done for a node.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Write it into the key's cell, and tell what was taken as returned by the next usage.
    Permit {
        /// The key.
        key: KeyId,
        /// What its cell may spend.
        permit: Permit,
    },
    /// Forget the key's cell if it still is at that position, and tell whether it went.
    Evict {
        /// The key.
        key: KeyId,
        /// The position.
        taken: u64,
    },
    /// Write it into the cell of a key that nodes divide.
    Give {
        /// The key.
        key: KeyId,
        /// What its cell has from now on.
        given: Given,
    },
    /// Tell a stream what it has of a key.
    Allot {
        /// The key.
        key: KeyId,
        /// The stream.
        stream: u64,
        /// Units a second that its owner gave; none if that cannot be relied on any more.
        rate: Option<f64>,
    },
    /// As [`Output::Evict`], of a key that nodes divide.
    EvictShare {
        /// The key.
        key: KeyId,
        /// The position.
        position: u64,
    },
    /// Send it.
    Send {
        /// To whom.
        to: NodeId,
        /// What.
        message: Message,
    },
    /// Something happened that people may want to know of.
    Event(Event),
    /// Nothing more until this instant, or until something comes in.
    Timeout(Instant),
}

/// What people may want to know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// This node went on granting, for so long, after the fleet had given its keys to others: the
    /// promise's envelope applied to so many keys.
    Overlap {
        /// For how long.
        lasted: Duration,
        /// How many keys it had.
        keys: u64,
    },
    /// The process stood still for so long: requests that it had begun may have spent what was
    /// permitted no longer.
    Paused {
        /// For how long.
        lasted: Duration,
    },
    /// A planned change did not bring another's keys in time; they count as spent.
    HandoverLate {
        /// Whose.
        from: NodeId,
    },
    /// There was no room for a key, here as a worker or as its owner, or for a worker of it.
    Full,
}

/// What a node did so far, and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeCounts {
    /// What it did as an owner.
    pub owner: OwnerCounts,
    /// What it did as an owner of keys that nodes divide.
    pub division: DivisionCounts,
    /// Keys that it divides.
    pub divided: u64,
    /// Of keys that nodes divide those of which it is a member that decides by an equal part as it
    /// was never given one, by what it was given, and by an equal part as that is too old.
    pub starting: u64,
    /// As said for `starting`.
    pub sharing: u64,
    /// As said for `starting`.
    pub failing: u64,
    /// Answers that could not be true.
    pub insane: u64,
    /// Keys that it has state of as an owner.
    pub owned: u64,
    /// Keys that it spends from.
    pub views: u64,
    /// Reports that it sent, and the batches that they went in.
    pub reports: u64,
    /// As said for `reports`.
    pub batches: u64,
    /// Reports that it refused because it was busy.
    pub shed: u64,
    /// Reports that it refused because they were of another ring than it knows.
    pub misdirected: u64,
    /// Units that may have been spent when their permission was over: those of which it learned
    /// when the process had stood still past the permission's end. Their owner had counted them as
    /// spent before.
    pub late: u64,
}
