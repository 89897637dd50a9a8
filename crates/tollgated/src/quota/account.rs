//! What a stream keeps, and what all of them may keep together.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tollgate::mutant::lacks;

use crate::metrics::QuotaMetrics;

/// What one stream keeps, as long as it lives.
#[derive(Debug)]
pub(crate) struct Account {
    all: Arc<QuotaMetrics>,
    buckets: usize,
    bytes: usize,
}

impl Account {
    /// An account of nothing.
    pub(crate) fn new(all: Arc<QuotaMetrics>) -> Self {
        Self { all, buckets: 0, bytes: 0 }
    }

    /// Notes one more bucket, whose name has so many bytes, unless there is no room for it.
    pub(super) fn take(&mut self, name_bytes: usize) -> bool {
        if self.buckets >= BUCKETS_MAX && !lacks("quota_buckets_unbounded") {
            return false;
        }
        let bytes = BUCKET_BYTES + name_bytes;
        if self.all.kept_bytes.fetch_add(bytes, Relaxed) + bytes > KEPT_BYTES_MAX {
            self.all.kept_bytes.fetch_sub(bytes, Relaxed);
            return false;
        }
        self.all.buckets.fetch_add(1, Relaxed);
        self.buckets += 1;
        self.bytes += bytes;
        true
    }

    /// Notes that such a bucket is no longer kept.
    pub(super) fn give(&mut self, name_bytes: usize) {
        let bytes = BUCKET_BYTES + name_bytes;
        debug_assert!(self.bytes >= bytes, "it was taken");
        self.all.kept_bytes.fetch_sub(bytes, Relaxed);
        self.all.buckets.fetch_sub(1, Relaxed);
        self.buckets -= 1;
        self.bytes -= bytes;
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.all.kept_bytes.fetch_sub(self.bytes, Relaxed);
        self.all.buckets.fetch_sub(self.buckets, Relaxed);
    }
}

/// Buckets of one stream.
pub(super) const BUCKETS_MAX: usize = 10_000;
/// What is kept of a bucket besides its name, more or less.
const BUCKET_BYTES: usize = 512;
/// Bytes of the buckets of all streams: half a million of them.
const KEPT_BYTES_MAX: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_share_their_memory_and_give_it_back() {
        let all = Arc::<QuotaMetrics>::default();
        let (mut first, mut second) = (Account::new(all.clone()), Account::new(all.clone()));
        let large = KEPT_BYTES_MAX - 2 * BUCKET_BYTES;
        assert!(first.take(large));
        assert!(second.take(0));
        assert!(!second.take(0));
        assert!(!first.take(1));
        assert_eq!(all.kept_bytes.load(Relaxed), KEPT_BYTES_MAX);
        assert_eq!(all.buckets.load(Relaxed), 2);
        first.give(large);
        assert!(second.take(large));
        drop((first, second));
        assert_eq!(all.kept_bytes.load(Relaxed), 0);
        assert_eq!(all.buckets.load(Relaxed), 0);
    }

    #[test]
    fn a_stream_has_ten_thousand_buckets() {
        let all = Arc::<QuotaMetrics>::default();
        let (mut account, mut other) = (Account::new(all.clone()), Account::new(all));
        assert!((0..BUCKETS_MAX).all(|_| account.take(10)));
        assert!(!account.take(0));
        assert!(other.take(0));
        account.give(10);
        assert!(account.take(0));
    }
}
