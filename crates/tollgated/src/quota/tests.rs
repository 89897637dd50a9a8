//! What one stream's client is told, with time by hand.

use std::sync::Arc;
use std::time::Duration;

use tollgate::Instant;

use super::account::BUCKETS_MAX;
use super::divider::{Part, Told, Usage};
use super::{
    Account, Action, DomainError, Heard, QuotaStream, Report, Said, Strategy, TokenBucket,
};
use crate::metrics::QuotaMetrics;

/// A stream, and what its test's clock says.
struct Case {
    stream: QuotaStream,
    now: Instant,
    metrics: Arc<QuotaMetrics>,
}

impl Case {
    fn new() -> Self {
        let metrics = Arc::<QuotaMetrics>::default();
        let mut stream = QuotaStream::new(Account::new(metrics.clone()));
        stream.handle_domain("edge").expect("a domain");
        Self { stream, now: Instant::from_nanos(1_000_000_000_000), metrics }
    }

    /// A stream with bucket 0, that of tenant `a`.
    fn with_a() -> Self {
        let mut case = Self::new();
        assert_eq!(case.report("a"), 0);
        case
    }

    fn hear(&mut self, tenant: &str, allowed: u64, elapsed: Duration) -> Heard {
        let entries = [("name", "api"), ("tenant", tenant)];
        let report = Report { entries: &entries, allowed, denied: 0, elapsed };
        self.stream.handle_report(&report, self.now)
    }

    /// Reports that a bucket was used; returns its number.
    fn report(&mut self, tenant: &str) -> u32 {
        match self.hear(tenant, 1, Duration::ZERO) {
            Heard::Tell { bucket, .. } => bucket,
            Heard::Full => panic!("there is room"),
        }
    }

    /// The divider says what a bucket may use, confirmed for so long.
    fn told_for(&mut self, bucket: u32, part: Part, time: Duration) {
        let told = Told { part, confirmed_until: self.now.saturating_add(time) };
        self.stream.handle_part(bucket, told, self.now);
    }

    fn told(&mut self, bucket: u32, part: Part) {
        self.told_for(bucket, part, Duration::from_secs(3_600));
    }

    fn rate(&mut self, per_second: f64) {
        self.told(0, rate(per_second));
    }

    /// Lets time pass, looking at the stream whenever it wants that.
    fn pass(&mut self, millis: u64) {
        let end = self.now.saturating_add(Duration::from_millis(millis));
        while let Some(at) = self.stream.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.stream.handle_timeout(self.now);
            if self.stream.has_action() {
                break; // It is to be taken then.
            }
        }
        if !self.stream.has_action() {
            self.now = end;
            self.stream.handle_timeout(end);
        }
    }

    /// All that the client is told now: whose bucket, and what.
    fn said(&mut self) -> Vec<(String, Action)> {
        let tenant = |said: &Said| {
            let entries: Vec<_> = said.id.entries().collect();
            assert_eq!(entries[0], ("name", "api"));
            entries[1].1.to_owned()
        };
        let said = std::iter::from_fn(|| self.stream.poll_action(self.now));
        said.map(|said| (tenant(&said), said.action)).collect()
    }

    fn gone(&mut self) -> Vec<u32> {
        std::iter::from_fn(|| self.stream.poll_gone()).collect()
    }

    /// In how many seconds something is said, if nothing else comes.
    fn quiet_for(&mut self) -> f64 {
        let then = self.now;
        self.pass(3_600_000);
        self.now.saturating_since(then).as_secs_f64()
    }
}

fn rate(per_second: f64) -> Part {
    Part::Rate { per_second, burst_cap: 1_000 }
}

fn assign(strategy: Strategy, ttl_seconds: u32, is_new: bool) -> Vec<(String, Action)> {
    vec![("a".into(), Action::Assign { strategy, ttl_seconds, is_new })]
}

fn tokens(max_tokens: u32, tokens_per_fill: u32, fill_seconds: u32) -> Strategy {
    Strategy::TokenBucket(TokenBucket { max_tokens, tokens_per_fill, fill_seconds })
}

fn abandon() -> Vec<(String, Action)> {
    vec![("a".into(), Action::Abandon)]
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn the_first_report_of_a_bucket_is_a_subscription_and_each_one_is_told() {
    let mut case = Case::new();
    let usage = |allowed, elapsed| Usage { allowed, denied: 0, elapsed };
    let tell = |bucket, is_new, usage| Heard::Tell { bucket, is_new, usage };
    assert_eq!(case.hear("a", 7, 4 * SECOND), tell(0, true, usage(7, 4 * SECOND)));
    assert_eq!(case.hear("b", 0, Duration::ZERO), tell(1, true, usage(0, Duration::ZERO)));
    case.pass(4_999);
    // Envoy cuts what it says to seconds.
    let whole = Duration::from_millis(4_999);
    assert_eq!(case.hear("a", 3, 4 * SECOND), tell(0, false, usage(3, whole)));
    // What was held up comes at once.
    assert_eq!(case.hear("a", 2, 5 * SECOND), tell(0, false, usage(2, 5 * SECOND)));
    // Nobody is told anything before the divider has spoken.
    assert_eq!(case.said(), []);
    assert!(case.gone().is_empty());
}

#[test]
fn a_domain_is_said_first_and_does_not_change() {
    let mut stream = QuotaStream::new(Account::new(Arc::default()));
    assert_eq!(stream.handle_domain(""), Err(DomainError::Missing));
    assert_eq!(stream.handle_domain(&"x".repeat(257)), Err(DomainError::TooLong));
    assert_eq!(stream.handle_domain("edge"), Ok(()));
    assert_eq!(stream.handle_domain(""), Ok(()));
    assert_eq!(stream.handle_domain("edge"), Ok(()));
    assert_eq!(stream.handle_domain("edg"), Err(DomainError::Changed));
    assert_eq!(stream.domain(), Some("edge"));
}

#[test]
fn a_part_is_assigned_at_once_and_renewed_unchanged_at_half_of_its_ttl() {
    let mut case = Case::with_a();
    case.rate(50.0);
    assert_eq!(case.said(), assign(tokens(5, 50, 1), 10, true));
    case.rate(50.0);
    case.pass(4_999);
    assert_eq!(case.said(), []);
    case.pass(1);
    assert_eq!(case.said(), assign(tokens(5, 50, 1), 10, false));
    assert!((case.quiet_for() - 5.0).abs() < 1e-9);
    assert_eq!(case.said(), assign(tokens(5, 50, 1), 10, false));
}

#[test]
fn the_ttl_is_three_of_the_buckets_intervals_in_whole_seconds() {
    let (mut case, mut per_second) = (Case::with_a(), 1e9);
    let mut ttl = |said: Duration, gap: u64| {
        case.pass(gap);
        case.said();
        case.hear("a", 1, said);
        // Less is told at once.
        per_second /= 2.0;
        case.rate(per_second);
        match case.said()[..] {
            [(_, Action::Assign { ttl_seconds, .. })] => ttl_seconds,
            ref other => panic!("{other:?}"),
        }
    };
    // A bucket that began shortly before Envoy's tick: one interval shows nothing yet.
    assert_eq!(ttl(Duration::ZERO, 600), 10);
    assert_eq!(ttl(4 * SECOND, 4_234), 12);
    assert_eq!(ttl(5 * SECOND, 1_234), 15);
    assert_eq!(ttl(Duration::ZERO, 1_234), 15);
    assert_eq!(ttl(Duration::ZERO, 100), 10);
    assert_eq!(ttl(Duration::from_secs(1 << 40), 100), 60);
}

#[test]
fn a_small_change_is_not_told_and_a_large_one_is() {
    let mut case = Case::with_a();
    case.rate(100.0);
    assert_eq!(case.said(), assign(tokens(10, 100, 1), 10, true));
    case.pass(2_000);
    for small in [109.9, 90.1, 100.0] {
        case.rate(small);
        assert_eq!(case.said(), [], "{small}");
    }
    case.rate(110.0);
    assert_eq!(case.said(), assign(tokens(11, 110, 1), 10, true));
    case.rate(99.0);
    assert_eq!(case.said(), assign(tokens(9, 99, 1), 10, true));
}

/// Two Envoys had 65 and 28 of 100 a second, since the first was given up to a tenth more for good
/// and never told: 65 became 71 by its owner's word. And what is slightly less has to be told, or
/// all clients together stay above their limit.
#[test]
fn what_is_slightly_more_or_less_is_told_an_interval_after_the_last_change() {
    let mut case = Case::with_a();
    case.rate(100.0);
    case.said();
    case.rate(95.0);
    assert!((case.quiet_for() - 10.0 / 3.0).abs() < 1e-6);
    assert_eq!(case.said(), assign(tokens(9, 95, 1), 10, true));
    case.rate(100.0);
    assert!((case.quiet_for() - 10.0 / 3.0).abs() < 1e-6);
    assert_eq!(case.said(), assign(tokens(10, 100, 1), 10, true));
    // By a client that has had what it has for longer, at once.
    case.pass(4_000);
    case.rate(102.0);
    assert_eq!(case.said(), assign(tokens(10, 102, 1), 10, true));
}

#[test]
fn what_a_change_would_cost_is_not_worth_it() {
    let mut case = Case::with_a();
    case.rate(100.0);
    case.said();
    // Below a hundredth: with the renewal, if it is less.
    case.pass(4_000);
    case.rate(100.9);
    assert_eq!(case.said(), []);
    case.rate(99.1);
    assert_eq!(case.said(), []);
    case.pass(1_000);
    assert_eq!(case.said(), assign(tokens(9, 991, 10), 10, true));
    // Below four tokens in an interval.
    case.rate(10.0);
    assert_eq!(case.said(), assign(tokens(2, 10, 1), 10, true));
    case.pass(4_000);
    case.rate(10.9);
    assert_eq!(case.said(), []);
    case.pass(1_000);
    assert_eq!(case.said(), assign(tokens(2, 10, 1), 10, false));
}

/// Envoy rounds tokens down with each change: one that alternates every 50 ms let nothing pass.
#[test]
fn more_waits_a_second_after_a_change_and_less_does_not() {
    let mut case = Case::with_a();
    case.rate(10.0);
    assert_eq!(case.said().len(), 1);
    case.pass(400);
    case.rate(20.0);
    assert_eq!(case.said(), []);
    case.rate(5.0);
    assert_eq!(case.said(), assign(tokens(2, 5, 1), 10, true));
    case.told(0, Part::AllowAll);
    case.pass(999);
    assert_eq!(case.said(), []);
    case.pass(1);
    assert_eq!(case.said(), assign(Strategy::AllowAll, 10, true));
    case.told(0, Part::DenyAll);
    assert_eq!(case.said(), assign(Strategy::DenyAll, 10, true));
    // What waits is the newest, and only if it is still more.
    case.rate(20.0);
    case.told(0, Part::DenyAll);
    assert!((case.quiet_for() - 5.0).abs() < 1e-9);
    assert_eq!(case.said(), assign(Strategy::DenyAll, 10, false));
}

#[test]
fn a_rate_of_nothing_denies_all() {
    let mut case = Case::with_a();
    case.rate(0.0);
    assert_eq!(case.said(), assign(Strategy::DenyAll, 10, true));
    case.told(0, Part::DenyAll);
    assert_eq!(case.said(), []);
    case.pass(1_000);
    case.rate(f64::INFINITY);
    assert_eq!(case.said(), assign(tokens(1_000, u32::MAX, 1), 10, true));
    case.rate(f64::INFINITY);
    assert_eq!(case.said(), []);
}

#[test]
fn a_cap_that_falls_is_told_at_once() {
    let mut case = Case::with_a();
    let capped = |burst_cap| Part::Rate { per_second: 100.0, burst_cap };
    case.told(0, capped(20));
    assert_eq!(case.said(), assign(tokens(10, 100, 1), 10, true));
    case.told(0, capped(10));
    assert_eq!(case.said(), []);
    case.told(0, capped(4));
    assert_eq!(case.said(), assign(tokens(4, 100, 1), 10, true));
    case.told(0, capped(6));
    assert_eq!(case.said(), []);
    case.pass(1_000);
    assert_eq!(case.said(), assign(tokens(6, 100, 1), 10, true));
}

#[test]
fn a_change_of_the_seconds_alone_is_told_in_other_numbers() {
    let mut case = Case::with_a();
    case.rate(5.0);
    assert_eq!(case.said(), assign(tokens(2, 5, 1), 10, true));
    case.rate(2.5);
    assert_eq!(case.said(), assign(tokens(2, 10, 4), 10, true));
    case.pass(5_000);
    assert_eq!(case.said(), assign(tokens(2, 10, 4), 10, false));
}

/// Whoever owns the limit may be lost: what it gave ends with its TTL.
#[test]
fn what_the_divider_no_longer_confirms_is_not_renewed_and_ends_at_the_client() {
    let mut case = Case::with_a();
    case.told_for(0, rate(50.0), 6 * SECOND);
    assert_eq!(case.said().len(), 1);
    case.pass(5_000);
    assert_eq!(case.said(), assign(tokens(5, 50, 1), 10, false));
    case.pass(9_000);
    assert_eq!(case.said(), []);
    // It ended at 15 s, 9 s after it was confirmed last. What comes late is renewed at once.
    case.rate(50.0);
    assert_eq!(case.said(), assign(tokens(5, 50, 1), 10, false));
    case.told_for(0, rate(50.0), SECOND);
    case.pass(10_000);
    assert_eq!(case.said(), []);
    // By now the client has nothing.
    case.rate(50.0);
    assert_eq!(case.said(), assign(tokens(5, 50, 1), 10, true));
    // What is no longer confirmed when it comes is not told either.
    case.told_for(0, rate(500.0), Duration::ZERO);
    assert_eq!(case.said(), []);
}

#[test]
fn a_silent_bucket_is_abandoned_after_ten_intervals_and_not_before_a_minute() {
    let mut case = Case::with_a();
    case.pass(59_999);
    assert_eq!(case.said(), []);
    case.pass(1);
    assert_eq!(case.gone(), [0]);
    assert_eq!(case.said(), abandon());
    assert_eq!(case.stream.poll_timeout(), None);
    // It comes again as another.
    assert_eq!(case.report("a"), 1);
    case.pass(8_000);
    assert_eq!(case.report("a"), 1);
    case.pass(79_999);
    assert!(case.gone().is_empty());
    case.pass(1);
    assert_eq!(case.gone(), [1]);
}

/// Envoy reports every bucket for ever.
#[test]
fn a_bucket_that_is_reported_and_not_used_is_abandoned_after_ten_minutes() {
    let mut case = Case::with_a();
    for _ in 0..119 {
        case.pass(5_000);
        case.hear("a", 0, 4 * SECOND);
    }
    assert_eq!(case.said(), []);
    case.pass(5_000);
    assert_eq!((case.gone(), case.said()), (vec![0], abandon()));
}

#[test]
fn a_bucket_whose_limit_is_gone_is_abandoned_and_may_come_again() {
    let mut case = Case::with_a();
    case.rate(50.0);
    case.said();
    case.told(0, Part::Unknown);
    assert_eq!(case.gone(), [0]);
    // What is told of it from now on is passed over.
    case.rate(70.0);
    case.told(0, Part::Unknown);
    assert!(case.gone().is_empty());
    assert_eq!(case.said(), abandon());
    assert_eq!(case.said(), []);
    assert_eq!(case.report("a"), 1);
    case.told(1, rate(50.0));
    assert_eq!(case.said(), assign(tokens(5, 50, 1), 10, true));
}

#[test]
fn a_bucket_that_is_reported_before_its_end_was_told_need_not_end() {
    let mut case = Case::with_a();
    case.rate(50.0);
    case.said();
    case.told(0, Part::Unknown);
    assert_eq!(case.report("a"), 1);
    assert_eq!((case.gone(), case.said()), (vec![0], Vec::new()));
    // The client has what it had.
    case.told(1, rate(50.0));
    assert_eq!(case.said(), []);
    case.pass(5_000);
    assert_eq!(case.said(), assign(tokens(5, 50, 1), 10, false));
}

#[test]
fn to_a_client_that_does_not_read_only_the_newest_is_told() {
    let mut case = Case::with_a();
    case.report("b");
    for step in 1..1_000_u32 {
        case.rate(f64::from(step));
        case.told(1, rate(50.0));
        case.now = case.now.saturating_add(Duration::from_millis(20));
        case.stream.handle_timeout(case.now);
    }
    let said = case.said();
    assert_eq!(said[0], assign(tokens(99, 999, 1), 10, true)[0]);
    assert_eq!((said.len(), said[1].0.as_str()), (2, "b"));
}

#[test]
fn those_who_wait_are_told_in_their_turn() {
    let mut case = Case::new();
    for tenant in ["a", "b", "c"] {
        case.report(tenant);
    }
    for bucket in [2, 0, 1, 2] {
        case.told(bucket, Part::DenyAll);
    }
    let order: Vec<String> = case.said().into_iter().map(|(tenant, _)| tenant).collect();
    assert_eq!(order, ["c", "a", "b"]);
}

#[test]
fn a_stream_keeps_so_many_buckets_and_passes_over_others() {
    let mut case = Case::new();
    for index in 0..BUCKETS_MAX {
        case.report(&index.to_string());
    }
    assert_eq!(case.hear("another", 1, SECOND), Heard::Full);
    assert_eq!(case.report("7"), 7);
    case.told(7, Part::Unknown);
    assert_eq!(case.hear("another", 1, SECOND), Heard::Full);
    assert_eq!(case.said().len(), 1);
    assert_eq!(case.report("another"), 10_000);
    let buckets = || case.metrics.buckets.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(buckets(), BUCKETS_MAX);
    drop(case.stream);
    assert_eq!(case.metrics.kept_bytes.load(std::sync::atomic::Ordering::Relaxed), 0);
}
