//! Short ways to a limiter on a clock that stands still, and to a question for it.

use std::time::Duration;

use tollgate::{
    Clock, ClockHand, Decision, Descriptor, Entry, Instant, Limit, LimitSpec, Limiter, Options,
    Request, Retry,
};

pub(crate) const SECOND: u64 = 1_000_000_000;

/// A limiter with these limits, and the hand of its clock.
pub(crate) fn limiter(specs: &[LimitSpec<'_>]) -> (Limiter, ClockHand) {
    limiter_with(specs, |options| options)
}

pub(crate) fn limiter_with(
    specs: &[LimitSpec<'_>],
    change: impl FnOnce(Options) -> Options,
) -> (Limiter, ClockHand) {
    let (clock, hand) = Clock::manual();
    let options = change(Options { clock, keys_max: 1_000, ..Options::default() });
    (Limiter::new(limits(specs), options).expect("sound limits"), hand)
}

pub(crate) fn limits(specs: &[LimitSpec<'_>]) -> Vec<Limit> {
    specs.iter().map(|spec| Limit::parse(spec).expect("a sound limit")).collect()
}

/// One limit named `api`, with a key for each tenant.
pub(crate) fn api(rate: &'static str, burst: u64) -> LimitSpec<'static> {
    LimitSpec { name: "api", key: &["tenant"], rate, burst: Some(burst), ..LimitSpec::DEFAULT }
}

pub(crate) fn ask(limiter: &Limiter, tenant: &str, cost: u64) -> Decision {
    ask_of(limiter, &[("tenant", tenant)], cost)
}

pub(crate) fn ask_of(limiter: &Limiter, pairs: &[(&str, &str)], cost: u64) -> Decision {
    with_request(pairs, cost, |request| limiter.check(request))
}

pub(crate) fn peek(limiter: &Limiter, tenant: &str, cost: u64) -> Decision {
    with_request(&[("tenant", tenant)], cost, |request| limiter.peek(request))
}

pub(crate) fn refund(limiter: &Limiter, tenant: &str, cost: u64) {
    with_request(&[("tenant", tenant)], cost, |request| limiter.refund(request));
}

pub(crate) fn with_request<T>(
    pairs: &[(&str, &str)],
    cost: u64,
    ask: impl FnOnce(&Request<'_>) -> T,
) -> T {
    let entries: Vec<Entry<'_>> =
        pairs.iter().map(|(name, value)| Entry::new(name, *value)).collect();
    let descriptors = [Descriptor::new(&entries).expect("a sound descriptor").with_cost(cost)];
    ask(&Request::new(&descriptors))
}

/// How many of `count` requests of cost 1 pass.
pub(crate) fn passed(limiter: &Limiter, tenant: &str, count: u64) -> u64 {
    (0..count).filter(|_| ask(limiter, tenant, 1).is_allowed()).count() as u64
}

/// So many random cases. A failure is told in full and becomes a test with a name; no file keeps
/// it.
pub(crate) fn cases(cases: u32) -> proptest::test_runner::Config {
    let config = proptest::test_runner::Config::with_cases(cases);
    proptest::test_runner::Config { failure_persistence: None, ..config }
}

pub(crate) fn nanos(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The instant `nanos` after the start.
pub(crate) fn at(nanos: u64) -> Option<Retry> {
    Some(Retry::At(Instant::from_nanos(nanos)))
}

pub(crate) const NEVER: Option<Retry> = Some(Retry::Never);
