//! Messages and bytes: what workers and owners of `eventual` limits say to each other.
//!
//! A worker has at most one report in flight to each owner and gets one snapshot back, each with an
//! entry for every key that is due. How often a key is due depends on how near its limit it is; a
//! key without requests is never due.

use std::time::Duration;

use super::Inputs;

/// What one worker sends and is sent, on average. The whole fleet has N times as much. An owner, of
/// which there are as many as workers, has as much the other way round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Traffic {
    /// Keys reported in a second; as many come back.
    pub entries_per_second: f64,
    /// Reports sent in a second, each with at least one entry; as many snapshots come back.
    pub batches_per_second: f64,
    /// Bytes of all reports of a second.
    pub report_bytes_per_second: f64,
    /// Bytes of all snapshots of a second.
    pub snapshot_bytes_per_second: f64,
    /// Entries in a second if every key were reported as often as a hot one.
    pub entries_per_second_if_all_hot: f64,
}

impl Inputs {
    /// How often a key is reported that has used `pressure` (0 to 1) of what it may.
    ///
    /// With an interval of 5 ms: 100 ms below a tenth, 20 ms below a half, 10 ms below 0.8, or else
    /// 5 ms; never more than a quarter of `ttl_max`, so that a permission outlasts three lost ones.
    #[must_use]
    pub fn cadence(&self, pressure: f64) -> Duration {
        let tier = TIERS.into_iter().find(|(below, _)| pressure < *below);
        let stretched = self.sync_interval.saturating_mul(tier.map_or(1, |(_, times)| times));
        let longest = self.sync_interval.max(self.ttl_max / 4);
        stretched.min(longest).max(Duration::from_nanos(1))
    }

    /// What a worker sends and is sent, when its keys that are not hot are far from their limits.
    ///
    /// 10,000 keys on each of 20 workers, 1,000 of them hot, each with an entry in 5 ms, and 9,000
    /// with one in 100 ms: 290,000 entries/s each way, in 20 x 200 = 4,000 reports/s, which are
    /// 290,000 x 96 B + 4,000 x 40 B = 28 MB/s.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let per_second = |pressure| 1.0 / self.cadence(pressure).as_secs_f64();
        let hot = self.hot_keys.min(self.keys);
        let cold = (self.keys - hot) as f64;
        let entries = hot as f64 * per_second(HOT) + cold * per_second(0.0);
        let owners = self.workers.min(self.keys) as f64;
        let batches = (owners * per_second(HOT)).min(entries);
        let bytes = |entry: u64| entries * entry as f64 + batches * BATCH_BYTES as f64;
        Traffic {
            entries_per_second: entries,
            batches_per_second: batches,
            report_bytes_per_second: bytes(REPORT_ENTRY_BYTES),
            snapshot_bytes_per_second: bytes(SNAPSHOT_ENTRY_BYTES),
            entries_per_second_if_all_hot: self.keys as f64 * per_second(HOT),
        }
    }
}

/// A key in a report.
pub const REPORT_ENTRY_BYTES: u64 = 96;
/// A key in a snapshot.
pub const SNAPSHOT_ENTRY_BYTES: u64 = 96;
/// A report or a snapshot, without its entries.
pub const BATCH_BYTES: u64 = 40;
/// Below which part of its limit a key is due only every so many sync intervals.
const TIERS: [(f64, u32); 3] = [(0.1, 20), (0.5, 4), (0.8, 2)];
const HOT: f64 = 1.0;

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    fn same(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-6 * right.abs().max(1.0), "{left} is not {right}");
    }

    #[test]
    fn a_key_far_from_its_limit_is_reported_rarely() {
        let cadence = |pressure| example().cadence(pressure).as_millis();
        let seen = [0.0, 0.099, 0.1, 0.499, 0.5, 0.799, 0.8, 1.0].map(cadence);
        assert_eq!(seen, [100, 100, 20, 20, 10, 10, 5, 5]);
        // 20 x 20 ms would be 400 ms; a quarter of ttl_max is 100 ms.
        let slow = Inputs { sync_interval: Duration::from_millis(20), ..example() };
        assert_eq!(slow.cadence(0.0), Duration::from_millis(100));
    }

    #[test]
    fn one_hot_key_is_one_entry_in_one_report_every_interval() {
        let one = example().traffic();
        same(one.entries_per_second, 200.0);
        same(one.batches_per_second, 200.0);
        // 200 x (96 + 40)
        same(one.report_bytes_per_second, 27_200.0);
        same(one.snapshot_bytes_per_second, 27_200.0);
    }

    #[test]
    fn many_keys_share_the_reports_to_their_owners() {
        let many = Inputs { keys: 10_000, hot_keys: 1_000, ..example() }.traffic();
        // 1,000 x 200 + 9,000 x 10
        same(many.entries_per_second, 290_000.0);
        // 20 owners x 200
        same(many.batches_per_second, 4_000.0);
        // 290,000 x 96 + 4,000 x 40
        same(many.report_bytes_per_second, 28_000_000.0);
        same(many.entries_per_second_if_all_hot, 2_000_000.0);
    }

    #[test]
    fn there_are_no_reports_without_an_entry() {
        // 5 owners could have 1,000 reports a second, but 5 cold keys have 50 entries.
        let cold = Inputs { keys: 5, hot_keys: 0, ..example() }.traffic();
        same(cold.entries_per_second, 50.0);
        same(cold.batches_per_second, 50.0);
        let none = Inputs { keys: 0, ..example() }.traffic();
        same(none.report_bytes_per_second, 0.0);
    }
}
