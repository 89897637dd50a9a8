//! From a limit with the guarantee `eventual` and the fleet that shares it to what is promised, how
//! far it can be exceeded at worst, and what it costs.
//!
//! Arithmetic only, and total: every input has an answer. The letters are those of the promise:
//! rate R, burst B, workers N, local cap b, one-way delay d, largest cost c. What the formulae rest
//! on is in `docs/plan.md`.

mod traffic;
mod warning;

use std::time::Duration;

use tollgate::{Rate, ViewLimit, ViewTimes};

pub use traffic::{BATCH_BYTES, REPORT_ENTRY_BYTES, SNAPSHOT_ENTRY_BYTES, Traffic};
pub use warning::{Warning, warnings};

/// A limit and its fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inputs {
    /// R. With `Rate::ZERO` nothing ever comes back.
    pub rate: Rate,
    /// B, in units; at least 1 to admit anything.
    pub burst: u64,
    /// N, the processes that decide; each of them also owns its part of the keys.
    pub workers: u64,
    /// d, what a message takes one way; 0.1 to 1 ms within a site.
    pub delay: Duration,
    /// How often a worker reports a key that is near its limit; typically 5 ms.
    pub sync_interval: Duration,
    /// c, the most that one request costs; at most B, or it never passes.
    pub largest_cost: u64,
    /// b, the most that one worker may hold of one key; none for the product's own choice.
    pub local_cap: Option<u64>,
    /// Keys in use on each worker.
    pub keys: u64,
    /// How many of them are near their limit; at most `keys`.
    pub hot_keys: u64,
    /// The longest that a permission may last; must be below `session_timeout`.
    pub ttl_max: Duration,
    /// How long a node may be silent before it counts as gone; typically 1.7 s.
    pub session_timeout: Duration,
    /// For how long two owners of one key are planned for; none for `session_timeout + ttl_max`.
    pub overlap: Option<Duration>,
}

impl Inputs {
    /// This limit in this fleet, all else as the product has it: one key, which is hot.
    #[must_use]
    pub const fn new(rate: Rate, burst: u64, workers: u64, delay: Duration) -> Self {
        Self {
            rate,
            burst,
            workers,
            delay,
            sync_interval: SYNC_INTERVAL,
            largest_cost: 1,
            local_cap: None,
            keys: 1,
            hot_keys: 1,
            ttl_max: TTL_MAX,
            session_timeout: SESSION_TIMEOUT,
            overlap: None,
        }
    }

    /// How long a permission of a hot key lasts: four sync intervals, at most `ttl_max`.
    ///
    /// With the default interval of 5 ms that is 20 ms.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.sync_interval.saturating_mul(4).min(self.ttl_max)
    }

    /// From a report to the permission that answers it: two ways, and half a sync interval in which
    /// reports wait for each other.
    ///
    /// With 1 ms one way and an interval of 5 ms that is 4.5 ms.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.delay.saturating_mul(2).saturating_add(self.sync_interval / 2)
    }

    /// b, the most that one worker may hold of one key: what is given, or else twice what the rate
    /// brings in a TTL. No more than B is ever given out.
    ///
    /// At 5,000/s and a TTL of 20 ms it is 200.
    #[must_use]
    pub fn local_cap(&self) -> u64 {
        let own = || self.brings(self.ttl().saturating_mul(2)).max(1);
        self.local_cap.unwrap_or_else(own).min(self.burst)
    }

    /// The least b with which one worker that has all the traffic can use the whole rate: it spends
    /// at most b in each round trip. At least 1, and at least c.
    ///
    /// At 5,000/s and a round trip of 4.5 ms, 22.5 units come in one: 23.
    #[must_use]
    pub fn least_local_cap(&self) -> u64 {
        self.brings(self.round_trip()).max(self.largest_cost).max(1)
    }

    /// The part of the rate, 0 to 1, that one worker with all the traffic reaches with `local_cap`.
    ///
    /// With b = 9 at 5,000/s and a round trip of 4.5 ms: 9 / 22.5 = 0.4.
    #[must_use]
    pub fn hot_worker_share(&self, local_cap: u64) -> f64 {
        let needed = self.per_second() * self.round_trip().as_secs_f64();
        let held = self.held_by_one(local_cap) as f64;
        if held >= needed { 1.0 } else { held / needed }
    }

    /// B + R x t: the most that is admitted in any interval of this length in normal operation.
    /// That includes lost messages, and crashed owners and their replacement.
    ///
    /// 10,000 at once and 5,000/s: 20,000 in 2 s.
    #[must_use]
    pub fn promise(&self, interval: Duration) -> u64 {
        self.burst.saturating_add(self.brings_whole(interval))
    }

    /// N x max(b, c) + R x overlap: by how much the promise can be exceeded at worst, when two
    /// owners of one key are in charge for `overlap`.
    ///
    /// 20 workers with b = 200, 5,000/s and 2.1 s: 4,000 + 10,500 = 14,500.
    #[must_use]
    pub fn envelope(&self, local_cap: u64, overlap: Duration) -> u64 {
        self.limit(local_cap).envelope(self.workers, self.largest_cost, overlap)
    }

    /// N x max(b, c): by how much the promise can be exceeded when every worker is paused past its
    /// deadline between looking and charging; one paused worker is a part of N of it.
    ///
    /// 20 workers with b = 200: 4,000, of which 200 each.
    #[must_use]
    pub fn held(&self, local_cap: u64) -> u64 {
        self.envelope(local_cap, Duration::ZERO)
    }

    /// max(b, c): one worker's part of that.
    ///
    /// With b = 200 and c = 1: 200.
    #[must_use]
    pub fn held_by_one(&self, local_cap: u64) -> u64 {
        local_cap.max(self.largest_cost)
    }

    /// For how long two owners are planned for.
    ///
    /// An owner that the coordinator no longer hears, but some workers do, goes on under
    /// `on_coordinator_loss = "serve"`; its successor begins `session_timeout + ttl_max` later. The
    /// default is a partition that lasts as long again: 1.7 s + 0.4 s = 2.1 s.
    #[must_use]
    pub fn overlap(&self) -> Duration {
        let Self { session_timeout, ttl_max, .. } = *self;
        let times = ViewTimes { session_timeout, ttl_max, ..ViewTimes::default() };
        self.overlap.unwrap_or_else(|| times.overlap())
    }

    /// From the `kill -9` of an owner until a request of cost c passes again, or none if the rate
    /// is zero: `ttl_max`, 200 ms to hear of it and to change the ring, and c/R.
    ///
    /// 400 ms + 200 ms + 1 / 5,000/s = 600.2 ms.
    #[must_use]
    pub fn served_again_after_kill(&self) -> Option<Duration> {
        Some(self.ttl_max.saturating_add(RING_CHANGE).saturating_add(self.emission()?))
    }

    /// From the silent death of an owner (its machine loses power) until a request of cost c passes
    /// again, or none if the rate is zero: `session_timeout`, `ttl_max`, 100 ms to change the ring,
    /// and c/R.
    ///
    /// 1.7 s + 0.4 s + 0.1 s + 1 / 5,000/s = 2.2002 s.
    #[must_use]
    pub fn served_again_after_silence(&self) -> Option<Duration> {
        let successor = self.session_timeout.saturating_add(self.ttl_max);
        Some(successor.saturating_add(RING_CHANGE / 2).saturating_add(self.emission()?))
    }

    /// Units per second, as a number to draw and to show.
    ///
    /// 100 per minute is 1.666....
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.rate.units() as f64 / (self.rate.period_ns() as f64 / 1e9)
    }

    /// Units that come in this time, rounded up.
    fn brings(&self, time: Duration) -> u64 {
        self.rate.brings(time)
    }

    /// Units that come in this time, rounded down.
    fn brings_whole(&self, time: Duration) -> u64 {
        let units = u128::from(self.rate.units()).saturating_mul(time.as_nanos());
        u64::try_from(units / u128::from(self.rate.period_ns())).unwrap_or(u64::MAX)
    }

    /// The limit with this local cap.
    fn limit(&self, local_cap: u64) -> ViewLimit {
        let Self { rate, burst, .. } = *self;
        ViewLimit { rate, burst, local_cap, bootstrap: 0, generation: 0 }
    }

    /// c/R, rounded up.
    fn emission(&self) -> Option<Duration> {
        let units = u128::from(self.rate.units());
        let nanos = u128::from(self.largest_cost) * u128::from(self.rate.period_ns());
        let nanos = (units > 0).then(|| nanos.div_ceil(units))?;
        let seconds = u64::try_from(nanos / NANOS_PER_SECOND).unwrap_or(u64::MAX);
        Some(Duration::new(seconds, (nanos % NANOS_PER_SECOND) as u32))
    }
}

/// How often a worker reports a hot key, unless it is told otherwise.
pub const SYNC_INTERVAL: Duration = Duration::from_millis(5);
/// The longest that a permission lasts, unless it is told otherwise.
pub const TTL_MAX: Duration = Duration::from_millis(400);
/// How long a node may be silent, unless it is told otherwise.
pub const SESSION_TIMEOUT: Duration = Duration::from_millis(1_700);
/// To hear of a broken connection, commit another ring and reach the workers with it.
const RING_CHANGE: Duration = Duration::from_millis(200);
const NANOS_PER_SECOND: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn inputs(rate: &str, burst: u64, workers: u64, delay_us: u64) -> Inputs {
        let rate = Rate::parse(rate).expect("a rate");
        Inputs::new(rate, burst, workers, Duration::from_micros(delay_us))
    }

    /// The example of every document: 5,000/s, 10,000, 20 workers, 1 ms.
    pub(super) fn example() -> Inputs {
        inputs("5000/s", 10_000, 20, 1_000)
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_permission_lasts_four_intervals_and_at_most_ttl_max() {
        assert_eq!(example().ttl(), ms(20));
        assert_eq!(Inputs { sync_interval: ms(100), ..example() }.ttl(), ms(400));
        assert_eq!(Inputs { sync_interval: ms(101), ..example() }.ttl(), ms(400));
    }

    #[test]
    fn the_local_cap_is_two_ttls_of_the_rate_and_between_1_and_the_burst() {
        // 2 x 5,000/s x 0.02 s
        assert_eq!(example().local_cap(), 200);
        // 2 x 100/60 s x 0.02 s = 0.067, rounded up
        assert_eq!(inputs("100/min", 100, 20, 1_000).local_cap(), 1);
        assert_eq!(inputs("5000/s", 50, 20, 1_000).local_cap(), 50);
        assert_eq!(Inputs { local_cap: Some(10), ..example() }.local_cap(), 10);
        assert_eq!(Inputs { local_cap: Some(20_000), ..example() }.local_cap(), 10_000);
    }

    #[test]
    fn the_least_local_cap_is_what_the_rate_brings_in_a_round_trip() {
        // 2 x 1 ms + 5 ms / 2
        assert_eq!(example().round_trip(), Duration::from_micros(4_500));
        // 5,000/s x 4.5 ms = 22.5
        assert_eq!(example().least_local_cap(), 23);
        // 4,000/s x 4.5 ms = 18, exactly
        assert_eq!(inputs("4000/s", 10_000, 20, 1_000).least_local_cap(), 18);
        assert_eq!(inputs("1/h", 10, 20, 1_000).least_local_cap(), 1);
        assert_eq!(Inputs { largest_cost: 64, ..example() }.least_local_cap(), 64);
    }

    #[test]
    fn a_hot_worker_reaches_what_it_may_hold_over_what_comes_in_a_round_trip() {
        // 9 / 22.5
        assert!((example().hot_worker_share(9) - 0.4).abs() < 1e-12);
        assert!((example().hot_worker_share(23) - 1.0).abs() < 1e-12);
        // A request of cost 18 is given 18 though b is 9.
        let large = Inputs { largest_cost: 18, ..example() };
        assert!((large.hot_worker_share(9) - 0.8).abs() < 1e-12);
    }

    #[test]
    fn the_promise_is_the_burst_and_what_the_rate_brings() {
        assert_eq!(example().promise(Duration::ZERO), 10_000);
        assert_eq!(example().promise(Duration::from_secs(2)), 20_000);
        // 100 in 60 s: 1 in 600 ms, and not before.
        let slow = inputs("100/min", 5, 2, 0);
        assert_eq!((slow.promise(ms(599)), slow.promise(ms(600))), (5, 6));
    }

    #[test]
    fn the_envelope_is_what_all_may_hold_and_what_a_second_owner_hands_out() {
        assert_eq!(example().overlap(), ms(2_100));
        // 20 x 200 + 5,000/s x 2.1 s
        assert_eq!(example().envelope(200, ms(2_100)), 14_500);
        assert_eq!(example().held(200), 4_000);
        // c above b: a worker is given what its request costs.
        let large = Inputs { largest_cost: 500, ..example() };
        assert_eq!(large.envelope(200, ms(1_000)), 15_000);
        assert_eq!(Inputs { overlap: Some(ms(7)), ..example() }.overlap(), ms(7));
    }

    #[test]
    fn a_lost_owner_is_replaced_after_its_permissions_have_ended() {
        let after = |inputs: Inputs| {
            (inputs.served_again_after_kill(), inputs.served_again_after_silence())
        };
        let micros = Duration::from_micros;
        assert_eq!(after(example()), (Some(micros(600_200)), Some(micros(2_200_200))));
        // One unit of 10/s takes 100 ms.
        assert_eq!(after(inputs("10/s", 10, 2, 0)), (Some(ms(700)), Some(ms(2_300))));
        let zero = Inputs { rate: Rate::ZERO, ..example() };
        assert_eq!(after(zero), (None, None));
    }

    #[test]
    fn the_largest_inputs_have_answers_too() {
        let rate = Rate::new(u64::MAX, 365 * 86_400_000_000_000).expect("the fastest a year");
        let most = Inputs {
            largest_cost: u64::MAX,
            local_cap: Some(u64::MAX),
            keys: u64::MAX,
            hot_keys: u64::MAX,
            sync_interval: Duration::MAX,
            ttl_max: Duration::MAX,
            session_timeout: Duration::MAX,
            overlap: Some(Duration::MAX),
            ..Inputs::new(rate, u64::MAX, u64::MAX, Duration::MAX)
        };
        assert_eq!(most.envelope(most.local_cap(), most.overlap()), u64::MAX);
        assert_eq!(most.promise(Duration::MAX), u64::MAX);
        assert!(most.served_again_after_silence().is_some());
        assert!(most.traffic().entries_per_second >= 0.0);
        let least = Inputs { keys: 0, hot_keys: 0, largest_cost: 0, ..most };
        let none = Duration::ZERO;
        let least = Inputs { burst: 0, workers: 0, sync_interval: none, delay: none, ..least };
        assert_eq!((least.local_cap(), least.held(0)), (0, 0));
        for inputs in [most, least, Inputs { rate: Rate::ZERO, ..least }] {
            assert!((0.0..=1.0).contains(&inputs.hot_worker_share(0)));
            assert!(inputs.traffic().batches_per_second >= 0.0);
            for warning in warnings(&inputs) {
                assert!(!warning.to_string().is_empty());
            }
        }
    }
}
