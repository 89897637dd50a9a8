//! What nodes say to each other, as values; how it becomes bytes is decided elsewhere.

use std::fmt;
use std::time::Duration;

use crate::division::{Allotment, Demand};
use crate::ring::RingEpoch;
use crate::view::handover::Handover;
use crate::view::{OwnerEpoch, Report, Snapshot};

/// One message from one node to another.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// A worker to an owner.
    Reports(ReportBatch),
    /// An owner to a worker.
    Snapshots(SnapshotBatch),
    /// An owner to a worker: nothing of that batch was applied.
    Refused {
        /// Which batch.
        batch: u64,
        /// Why.
        why: Refusal,
    },
    /// An old owner to a new one.
    Handover(Handover),
    /// A new owner to an old one: this part has arrived.
    HandoverArrived {
        /// The ring of the handover.
        ring_epoch: RingEpoch,
        /// Which part.
        part: u32,
    },
}

/// Reports of keys that have one owner.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportBatch {
    /// The number of the batch, for its answer.
    pub batch: u64,
    /// The ring by which the receiver is the owner.
    pub ring_epoch: RingEpoch,
    /// The time there and back, as the worker has seen it; zero if it has not.
    pub round_trip: Duration,
    /// The reports.
    pub reports: Vec<Report>,
    /// What members of keys that nodes divide were asked for.
    pub demands: Vec<Demand>,
}

/// Snapshots for one worker.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotBatch {
    /// The batch that it answers; `None` if it was not asked for. A report in the batch that has no
    /// snapshot or allotment here was not applied.
    pub answers: Option<u64>,
    /// In whose time they were made.
    pub owner_epoch: OwnerEpoch,
    /// The snapshots.
    pub snapshots: Vec<Snapshot>,
    /// What members of keys that nodes divide are given.
    pub allotments: Vec<Allotment>,
}

/// Why an owner applied nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It knows another ring than the worker.
    NotOwner {
        /// The ring that it knows.
        ring_epoch: RingEpoch,
    },
    /// It has too much to do.
    Busy {
        /// When it wants to be asked again.
        retry_after: Duration,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOwner { ring_epoch } => {
                write!(f, "not the owner: it is in ring epoch {}", ring_epoch.get())
            }
            Self::Busy { retry_after } => write!(f, "busy for {retry_after:?}"),
        }
    }
}

/// What one entry of a batch takes on the wire, about, for estimates before there is a wire.
pub const REPORT_ENTRY_BYTES: u64 = 96;
/// As [`REPORT_ENTRY_BYTES`], for a snapshot.
pub const SNAPSHOT_ENTRY_BYTES: u64 = 96;
/// What a batch takes besides its entries.
pub const BATCH_BYTES: u64 = 40;
