//! What the daemon counts by itself, door by door; what each limit decided is counted by the
//! library.
//!
//! Plain atomics, added to without a lock. How they are shown is in `exposition`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tollgate::{Decision, Outcome, Reason};

use crate::face::Face;

/// All counters of the process.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    faces: [FaceMetrics; Face::ALL.len()],
    pub(crate) loads_good: AtomicU64,
    pub(crate) loads_bad: AtomicU64,
    pub(crate) quota: Arc<QuotaMetrics>,
}

/// The counters of one door.
#[derive(Debug, Default)]
pub(crate) struct FaceMetrics {
    /// By [`outcome_index`].
    pub(crate) decisions: [AtomicU64; OUTCOMES.len()],
    /// Requests to which no limit applied, or unlimited ones alone.
    pub(crate) unlimited: AtomicU64,
    /// Requests that were refused: understood, but wrong.
    pub(crate) invalid: AtomicU64,
    /// Bytes that were no request of the protocol.
    pub(crate) malformed: AtomicU64,
    pub(crate) open: AtomicI64,
    pub(crate) opened: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    pub(crate) took: Histogram,
}

/// The counters of buckets that are used by assignment.
#[derive(Debug, Default)]
pub(crate) struct QuotaMetrics {
    /// Streams that are open.
    pub(crate) streams: AtomicUsize,
    /// Buckets of all streams.
    pub(crate) buckets: AtomicUsize,
    /// Bytes that are kept of buckets.
    pub(crate) kept_bytes: AtomicUsize,
    /// Usages of buckets that were reported.
    pub(crate) reports: AtomicU64,
    /// Assignments of a strategy that a bucket did not have.
    pub(crate) assigned: AtomicU64,
    /// Assignments of the strategy that a bucket has.
    pub(crate) extended: AtomicU64,
    pub(crate) abandoned: AtomicU64,
    /// Streams that were refused, as many being open as may be.
    pub(crate) refused_streams: AtomicU64,
    /// Usages of buckets for which there was no room.
    pub(crate) refused_buckets: AtomicU64,
    /// Messages that were wrong, and ended their stream.
    pub(crate) refused_messages: AtomicU64,
}

/// A decision's words in metrics: the answer, and the reason of a denial.
pub(crate) const OUTCOMES: [(Outcome, &str, &str); 7] = [
    (Outcome::Allowed, "allowed", ""),
    denied(Reason::OverLimit),
    denied(Reason::CostExceedsBurst),
    denied(Reason::KeyTableFull),
    denied(Reason::Stale),
    denied(Reason::QueueFull),
    denied(Reason::Deadline),
];

const fn denied(reason: Reason) -> (Outcome, &'static str, &'static str) {
    (Outcome::Denied(reason), "denied", reason.as_str())
}

fn outcome_index(outcome: Outcome) -> usize {
    match outcome {
        Outcome::Allowed => 0,
        Outcome::Denied(Reason::OverLimit) => 1,
        Outcome::Denied(Reason::CostExceedsBurst) => 2,
        Outcome::Denied(Reason::KeyTableFull) => 3,
        Outcome::Denied(Reason::Stale) => 4,
        Outcome::Denied(Reason::QueueFull) => 5,
        Outcome::Denied(Reason::Deadline) => 6,
    }
}

impl Metrics {
    /// Counts a decision.
    pub(crate) fn decided(&self, face: Face, decision: &Decision) {
        let of = self.face(face);
        of.decisions[outcome_index(decision.outcome())].fetch_add(1, Relaxed);
        if decision.limit().is_none() && decision.shadow_denied_by().is_none() {
            of.unlimited.fetch_add(1, Relaxed);
        }
    }

    /// Counts a request that was understood and refused.
    pub(crate) fn invalid(&self, face: Face) {
        self.face(face).invalid.fetch_add(1, Relaxed);
    }

    /// Counts bytes that were no request.
    pub(crate) fn malformed(&self, face: Face) {
        self.face(face).malformed.fetch_add(1, Relaxed);
    }

    /// Notes that answering `count` requests took so long, each an equal part of it.
    pub(crate) fn took(&self, face: Face, all: Duration, count: u32) {
        if count > 0 {
            self.face(face).took.add(all, count);
        }
    }

    pub(crate) fn face(&self, face: Face) -> &FaceMetrics {
        &self.faces[face as usize]
    }

    pub(crate) fn faces(&self) -> impl Iterator<Item = (Face, &FaceMetrics)> {
        Face::ALL.into_iter().map(|face| (face, self.face(face)))
    }
}

/// How long answers took: buckets from 1 us up, each twice the one before.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS + 1],
    nanos: AtomicU64,
}

impl Histogram {
    fn add(&self, all: Duration, count: u32) {
        let each = (all / count).as_nanos();
        // The first bucket whose bound, 2^index us, is not below it.
        let micros = each.div_ceil(1_000).max(1);
        let index = (u128::BITS - (micros - 1).leading_zeros()) as usize;
        self.buckets[index.min(BUCKETS)].fetch_add(u64::from(count), Relaxed);
        self.nanos.fetch_add(u64::try_from(all.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// The sum in seconds, the count, and (bound in seconds, count up to it) of each bucket.
    pub(crate) fn read(&self) -> (f64, u64, Vec<(f64, u64)>) {
        let mut count = 0;
        let mut buckets = Vec::with_capacity(BUCKETS + 1);
        for (index, bucket) in self.buckets.iter().enumerate() {
            let alone = bucket.load(Relaxed);
            count += alone;
            let bound =
                if index == BUCKETS { f64::INFINITY } else { 1e-6 * f64::from(1_u32 << index) };
            // The encoder sums up by itself.
            buckets.push((bound, alone));
        }
        (self.nanos.load(Relaxed) as f64 * 1e-9, count, buckets)
    }
}

/// Up to 2^14 us, 16 ms; what took longer is in one more.
const BUCKETS: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_the_first_bucket_that_is_not_below_it() {
        let histogram = Histogram::default();
        for nanos in [0, 1, 1_000, 1_001, 2_000, 2_001, 1_000_000_000] {
            histogram.add(Duration::from_nanos(nanos), 1);
        }
        histogram.add(Duration::from_micros(30), 10);
        let (sum, count, buckets) = histogram.read();
        let alone: Vec<u64> = buckets.iter().map(|(_, count)| *count).collect();
        assert_eq!(alone[..4], [3, 2, 11, 0]);
        assert_eq!((count, alone[BUCKETS]), (17, 1));
        assert!((sum - 1.000_036_003).abs() < 1e-9);
    }
}
