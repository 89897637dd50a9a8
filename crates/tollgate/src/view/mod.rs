//! `eventual`: a limit of the whole fleet, decided on each node without asking anyone.
//!
//! *Promise.* While one owner at a time is in charge of a key, its crash and replacement included:
//!
//! > admitted(s, t] <= B + R · (t - s), fleet-wide, for every interval, net of refunds.
//!
//! When two owners overlap for d, or a process pauses past its deadline, at most N·max(b, c) + R·d
//! more. The key's [owner](owner) keeps the level of a meter and permits workers to spend; a
//! [worker](worker) spends from its cell and reports what it spent. `docs/bounds.md` numbers the
//! rules; neither half knows transport, cells, or how members are found.

mod excess;
pub(crate) mod handover;
pub(crate) mod load;
mod meter;
pub(crate) mod owned;
pub(crate) mod owner;
mod record;
mod share;
pub(crate) mod status;
pub(crate) mod tenure;
pub(crate) mod worker;

use std::time::Duration;

use crate::key::KeyId;
use crate::mutant::lacks;
use crate::policy::{FleetLimitId, TTL_CADENCES};
use crate::ring::RingEpoch;
use crate::time::Instant;

/// One life of one cell on one worker; never used again by that worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellEpoch {
    /// The start number of the worker's process.
    pub start: u64,
    /// Which cell of that process.
    pub cell: u64,
}

/// One owner's time in charge. Later ones are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerEpoch {
    /// The ring by which it owns.
    pub ring: RingEpoch,
    /// The start number of its process.
    pub start: u64,
}

impl OwnerEpoch {
    /// Before any.
    pub const NONE: Self = Self { ring: RingEpoch::ZERO, start: 0 };
}

/// An instant on an owner's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The start number of the owner's process, whose clock it is.
    pub start: u64,
    /// When.
    pub at: Instant,
}

/// What a worker says of one key: totals since its cell began, so that a report that is lost,
/// repeated or overtaken does no harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// The key.
    pub key: KeyId,
    /// Its limit.
    pub limit: FleetLimitId,
    /// The limit's generation, as the worker knows it.
    pub generation: u64,
    /// The life of the cell.
    pub cell_epoch: CellEpoch,
    /// Rises with each report of the cell.
    pub sequence: u64,
    /// Positions used, returned ones included.
    pub taken: u64,
    /// Positions that were used by giving them back.
    pub returned: u64,
    /// Units given back after they were spent.
    pub refunded: u64,
    /// How many of those no owner is known to have heard of.
    pub refund_news: u64,
    /// An instant before the oldest charge of the refunds that may be news to the owner; `None` if
    /// no owner's clock tells it. Of another owner's clock it says nothing.
    pub refund_since: Option<Stamp>,
    /// Units that were refused.
    pub denied: u64,
    /// The cost of the first request that was refused or waits for want of credit; 0 if none.
    pub waiting: u64,
    /// The highest acknowledged total of this ring epoch, or the total when the worker adopted it.
    pub base: u64,
}

/// What the owner says to one worker of one key: what it knows, and what the worker may spend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    /// The key.
    pub key: KeyId,
    /// The life of the worker's cell.
    pub cell_epoch: CellEpoch,
    /// Rises with each snapshot of its owner.
    pub version: u64,
    /// The report that it stands on.
    pub ack_sequence: u64,
    /// That report's `taken`, or a later one's.
    pub acked: u64,
    /// Positions below it are spent, whether the worker used them or not.
    pub floor: u64,
    /// Positions below it are permitted.
    pub ceiling: u64,
    /// How long after it sent that report the worker may spend them; zero permits nothing new.
    pub ttl: Duration,
    /// How often the owner wants to hear of the key.
    pub cadence: Duration,
    /// Units that the whole fleet has left.
    pub remaining: u64,
    /// Those of them that nobody is permitted or waits for, so that they may be had: if there are
    /// none, asking sooner gets nobody more.
    pub free: u64,
    /// The generation by which it was granted.
    pub generation: u64,
    /// The owner's clock when it was made.
    pub stamp: Instant,
}

/// Times that owners and workers of a fleet share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewTimes {
    /// How often a worker reports a key near its limit. Typically 5 ms.
    pub sync_interval: Duration,
    /// The longest that any permission lives. Typically 400 ms.
    pub ttl_max: Duration,
    /// After how much silence the coordinator takes a node for lost. Typically 1.7 s; as in
    /// [`SessionOptions`](crate::coordinator::SessionOptions), and so are `ttl_max` and
    /// `drift_ppm`.
    pub session_timeout: Duration,
    /// The bound on each clock's rate error, in parts per million. Typically 500.
    pub drift_ppm: u32,
}

impl Default for ViewTimes {
    fn default() -> Self {
        Self {
            sync_interval: Duration::from_millis(5),
            ttl_max: Duration::from_millis(400),
            session_timeout: Duration::from_millis(1_700),
            drift_ppm: 500,
        }
    }
}

impl ViewTimes {
    /// A duration on another node's clock, as long as it may be on this one's:
    /// × (1 + ρ) / (1 - ρ), which is 1 + 2ρ and a little more.
    pub(crate) fn widened(&self, span: Duration) -> Duration {
        if lacks("drift_is_allowed_for") {
            return span;
        }
        let ppm = u128::from(self.drift_ppm.min(DRIFT_PPM_MAX));
        let more = span.as_nanos().saturating_mul(2 * ppm).div_ceil(1_000_000 - ppm);
        span.saturating_add(Duration::from_nanos(u64::try_from(more).unwrap_or(u64::MAX)))
    }

    /// For how long two owners of one key are planned for, where owners go on that have lost the
    /// coordinator: the successor of one begins `session_timeout + ttl_max` after it fell silent,
    /// and a partition may last as long again.
    ///
    /// 1.7 s + 0.4 s = 2.1 s.
    #[must_use]
    pub fn overlap(&self) -> Duration {
        self.session_timeout.saturating_add(self.ttl_max)
    }

    /// How long a handover is waited for: longer than an owner that has not heard of the change may
    /// let permissions live, if it does not serve alone.
    pub(crate) fn handover_max(&self) -> Duration {
        self.widened(self.session_timeout.saturating_add(self.ttl_max)) + HANDOVER_MARGIN
    }

    /// The longest time between reports of a key.
    pub(crate) fn cadence_max(&self) -> Duration {
        self.ttl_max / TTL_CADENCES
    }
}

/// As for sessions.
const DRIFT_PPM_MAX: u32 = 100_000;
/// For the way of what tells of a change.
const HANDOVER_MARGIN: Duration = Duration::from_millis(390);
