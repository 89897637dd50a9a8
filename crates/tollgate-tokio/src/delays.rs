//! How long things took, counted in buckets that double.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Durations that were seen, from 16 µs to 8.4 s in buckets of which each is twice the one before.
#[derive(Debug, Default)]
pub(crate) struct Delays {
    buckets: [AtomicU64; BUCKETS + 1],
    sum_ns: AtomicU64,
}

/// A reading of durations that were seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DelayCounts {
    /// How many were at most so long and longer than the bucket before, the shortest first. What is
    /// above all of them has [`Duration::MAX`].
    pub buckets: Vec<(Duration, u64)>,
    /// All of them together.
    pub sum: Duration,
}

impl DelayCounts {
    /// How many were seen.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// A duration that at least this part of them did not exceed: an upper bound of the quantile,
    /// at most twice it. Zero if none was seen.
    ///
    /// Of 99 durations of 20 µs and one of 1 s the quantile 0.99 is 32 µs.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Duration {
        let wanted = (self.count() as f64 * part).ceil().max(1.0) as u64;
        let mut seen = 0;
        let within = self.buckets.iter().find(|(_, count)| {
            seen += count;
            seen >= wanted
        });
        within.map_or(Duration::ZERO, |(most, _)| *most)
    }
}

impl Delays {
    pub(crate) fn count(&self, took: Duration) {
        let within = (0..BUCKETS).find(|&bucket| took <= most(bucket)).unwrap_or(BUCKETS);
        self.buckets[within].fetch_add(1, Relaxed);
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.fetch_add(ns, Relaxed);
    }

    pub(crate) fn read(&self) -> DelayCounts {
        let read = |(bucket, count): (usize, &AtomicU64)| {
            let most = if bucket < BUCKETS { most(bucket) } else { Duration::MAX };
            (most, count.load(Relaxed))
        };
        DelayCounts {
            buckets: self.buckets.iter().enumerate().map(read).collect(),
            sum: Duration::from_nanos(self.sum_ns.load(Relaxed)),
        }
    }
}

fn most(bucket: usize) -> Duration {
    Duration::from_micros(16 << bucket)
}

const BUCKETS: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_end_of_its_bucket() {
        let delays = Delays::default();
        assert_eq!(delays.read().quantile(0.5), Duration::ZERO);
        (0..99).for_each(|_| delays.count(Duration::from_micros(20)));
        delays.count(Duration::from_secs(1));
        let read = delays.read();
        assert_eq!((read.count(), read.quantile(0.99)), (100, Duration::from_micros(32)));
        assert!(read.quantile(1.0) >= Duration::from_secs(1));
        delays.count(Duration::from_secs(100));
        assert_eq!(delays.read().quantile(1.0), Duration::MAX);
    }
}
