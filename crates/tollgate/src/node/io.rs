//! What goes into a node and what comes out of it, as values.

use std::time::Duration;

use crate::coordinator::RingChange;
use crate::credits::Permit;
use crate::key::KeyId;
use crate::message::Message;
use crate::policy::FleetRules;
use crate::ring::NodeId;
use crate::time::Instant;
use crate::view::ViewTimes;
use crate::view::owner::OwnerCounts;
use crate::view::worker::Usage;

/// How a node is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeOptions {
    /// Times that the whole fleet shares.
    pub times: ViewTimes,
    /// Keys that it spends from, and keys that it owns, at most: each. Typically 1,000,000.
    pub keys_max: usize,
    /// Reports that it applies in a second; beyond them it asks for fewer, then refuses. Typically
    /// 500,000.
    pub reports_per_second_max: u64,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self { times: ViewTimes::default(), keys_max: 1_000_000, reports_per_second_max: 500_000 }
    }
}

/// What a node is told.
#[derive(Debug, Clone)]
pub enum Input {
    /// What a cell holds, or that a new one has begun. Cells that are dirty are told before
    /// anything else is.
    Usage(Usage),
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
