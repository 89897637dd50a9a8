//! Any interval t admits at most burst + rate x t, exactly, and a denial names the first nanosecond
//! at which the same request passes.
//!
//! The oracle is GCRA on whole numbers: with every time multiplied by the units of `units/period`,
//! the emission interval is the period itself, and nothing is ever rounded.

use proptest::prelude::*;
use tollgate::{ClockHand, Decision, LimitSpec, Limiter, Outcome, Oversize, Rate, Reason, Retry};

use crate::support::{NEVER, SECOND, api, ask, at, limiter, nanos, peek, refund, seconds};

/// GCRA without rounding. Times and TAT are in 1/units ns.
struct Oracle {
    units: u128,
    period: u128,
    burst: u128,
    pace: bool,
    tat: u128,
}

impl Oracle {
    fn new(rate: Rate, burst: u64, pace: bool) -> Self {
        let (units, period) = (rate.units().into(), rate.period_ns().into());
        Self { units, period, burst: burst.into(), pace, tat: 0 }
    }

    /// What the TAT becomes if `cost` conforms at `now` ns.
    fn judge(&self, cost: u64, now: u64) -> Option<u128> {
        let (cost, now) = (u128::from(cost), u128::from(now) * self.units);
        let next = self.tat.max(now) + cost * self.period;
        let room = if self.pace { self.burst.max(cost) } else { self.burst };
        (cost <= room && next - now <= room * self.period).then_some(next)
    }

    /// The first ns at which `cost` conforms.
    fn retry(&self, cost: u64) -> Option<u64> {
        let cost = u128::from(cost);
        let room = if self.pace { self.burst.max(cost) } else { self.burst };
        let wait = (self.tat + cost * self.period).checked_sub(room * self.period)?;
        (cost <= room).then(|| u64::try_from(wait.div_ceil(self.units)).unwrap_or(u64::MAX))
    }

    fn remaining(&self, now: u64) -> u64 {
        let owed = self.tat.saturating_sub(u128::from(now) * self.units);
        ((self.burst * self.period).saturating_sub(owed) / self.period) as u64
    }

    fn refund(&mut self, cost: u64, now: u64) {
        let now = u128::from(now) * self.units;
        if self.tat > now {
            self.tat = self.tat.saturating_sub(u128::from(cost) * self.period).max(now);
        }
    }
}

/// A limiter under test beside its oracle.
struct Pair {
    limiter: Limiter,
    hand: ClockHand,
    now: u64,
    oracle: Oracle,
    /// (time, units) of everything that passed.
    admitted: Vec<(u64, u64)>,
}

#[derive(Debug, Clone)]
enum Step {
    Check(u64),
    Refund(u64),
    Wait(u64),
    Back(u64),
    /// To the named instant of the last denial, or a tick before it.
    Retry {
        early: bool,
    },
}

impl Pair {
    fn new(rate: &str, burst: u64, pace: bool) -> Self {
        let spec = LimitSpec {
            rate,
            oversize: if pace { Oversize::Pace } else { Oversize::Never },
            ..api("1/s", burst)
        };
        let (limiter, hand) = limiter(&[spec]);
        let rate = Rate::parse(rate).expect("a sound rate");
        let oracle = Oracle::new(rate, burst, pace);
        Self { limiter, hand, now: 0, oracle, admitted: Vec::new() }
    }

    fn wait_until(&mut self, to: u64) {
        if to >= self.now {
            self.hand.advance(nanos(to - self.now));
        } else {
            self.hand.turn_back(nanos(self.now - to));
        }
        self.now = to;
    }

    /// Asks; the answer may be later than the oracle's by a tick, and never earlier.
    fn check(&mut self, cost: u64, exact: bool) -> Result<Decision, TestCaseError> {
        let expected = self.oracle.judge(cost, self.now);
        let seen = peek(&self.limiter, "a", cost);
        let decision = ask(&self.limiter, "a", cost);
        prop_assert_eq!(seen.outcome(), decision.outcome());
        if cost == 0 {
            prop_assert!(decision.is_allowed(), "a cost of 0 only asks");
            return Ok(decision);
        }
        if decision.is_allowed() {
            prop_assert!(expected.is_some(), "{cost} passes too early at {}", self.now);
            self.oracle.tat = expected.unwrap_or_default();
            self.admitted.push((self.now, cost));
        } else if exact {
            prop_assert!(expected.is_none(), "{cost} is denied though it conforms at {}", self.now);
        }
        let (ours, theirs) = (decision.remaining().unwrap_or(0), self.oracle.remaining(self.now));
        if exact {
            prop_assert_eq!(ours, theirs);
        } else {
            prop_assert!(ours <= theirs, "{ours} remaining of {theirs}");
        }
        if let Some(retry) = decision.retry_at() {
            self.check_retry(cost, retry, exact)?;
        }
        Ok(decision)
    }

    fn check_retry(&self, cost: u64, retry: Retry, exact: bool) -> Result<(), TestCaseError> {
        let theirs = self.oracle.retry(cost);
        match (retry, theirs) {
            (Retry::Never, None) => {}
            (Retry::At(ours), Some(theirs)) => {
                let ours = ours.as_nanos();
                prop_assert!(ours > self.now, "retry at {ours} is not after {}", self.now);
                prop_assert!(ours >= theirs, "retry at {ours} is before {theirs}");
                // A debt that token time cannot hold is said to last as long as time can be told.
                if ours < u64::MAX {
                    // A burst of more than 146 years makes granules of more than a nanosecond.
                    let Oracle { units, period, burst, .. } = self.oracle;
                    let granule = (burst * period / units) >> 61;
                    let late = if exact { 0 } else { 1 + granule as u64 };
                    prop_assert!(ours <= theirs.saturating_add(late).max(self.now + 1));
                } else {
                    prop_assert!(theirs > TEN_YEARS);
                }
            }
            (ours, theirs) => prop_assert!(false, "retry {ours:?} against {theirs:?}"),
        }
        Ok(())
    }

    /// Over every interval between two admissions: units <= burst + rate x time, in whole numbers.
    fn check_bound(&self) -> Result<(), TestCaseError> {
        let Oracle { units, period, burst, .. } = self.oracle;
        for (from, &(start, _)) in self.admitted.iter().enumerate() {
            let mut sum = 0_u128;
            for &(end, cost) in &self.admitted[from..] {
                sum += u128::from(cost);
                let bound = burst * period + u128::from(end.saturating_sub(start)) * units;
                prop_assert!(sum * period <= bound, "{sum} units from {start} to {end}");
            }
        }
        Ok(())
    }

    fn run(&mut self, steps: &[Step], exact: bool) -> Result<(), TestCaseError> {
        let mut denied: Option<(u64, u64)> = None;
        for step in steps {
            match *step {
                Step::Check(cost) => {
                    let decision = self.check(cost, exact)?;
                    denied = match decision.retry_at() {
                        Some(Retry::At(at)) => Some((at.as_nanos(), cost)),
                        Some(Retry::Never) => denied,
                        None => None,
                    };
                }
                // A debt beyond the range of token time is kept whole, whatever is given back.
                Step::Refund(_) if self.oracle.tat / self.oracle.units > TEN_YEARS.into() => {}
                Step::Refund(cost) => {
                    refund(&self.limiter, "a", cost);
                    self.oracle.refund(cost, self.now);
                    denied = None;
                }
                Step::Wait(time) => {
                    let now = self.now.saturating_add(time).min(TEN_YEARS);
                    self.wait_until(now);
                }
                Step::Back(time) => self.wait_until(self.now.saturating_sub(time)),
                Step::Retry { early } => {
                    let Some((at, cost)) = denied.take() else { continue };
                    if at > TEN_YEARS || at <= self.now {
                        continue;
                    }
                    self.wait_until(at - u64::from(early));
                    let passes = self.check(cost, exact)?.is_allowed();
                    prop_assert_eq!(passes, !early, "cost {} at its retry {}", cost, at);
                }
            }
        }
        Ok(())
    }
}

fn steps(refunds: bool, backwards: bool) -> impl Strategy<Value = Vec<Step>> {
    let costs = prop_oneof![
        4 => 1_u64..4,
        2 => 0_u64..2_000,
        2 => (0_u32..41).prop_map(|bits| 1_u64 << bits),
        1 => 0_u64..(1 << 40) + 1,
    ];
    let times = prop_oneof![
        2 => 0_u64..50,
        2 => 0_u64..SECOND,
        1 => (0_u32..58).prop_map(|bits| 1_u64 << bits),
    ];
    let step = prop_oneof![
        6 => costs.clone().prop_map(Step::Check),
        3 => times.clone().prop_map(Step::Wait),
        2 => any::<bool>().prop_map(|early| Step::Retry { early }),
        u32::from(refunds) => costs.prop_map(Step::Refund),
        u32::from(backwards) => times.prop_map(Step::Back),
    ];
    prop::collection::vec(step, 1..40)
}

/// Rates whose whole tokens appear on whole nanoseconds, or clearly beside them.
fn grid_rates() -> impl Strategy<Value = String> {
    let rates = [
        "1/s",
        "2/s",
        "3/s",
        "7/s",
        "10/s",
        "1000/s",
        "5000/s",
        "250000/s",
        "1000000/s",
        "5/60s",
        "100/15min",
        "1/365d",
        "3/365d",
        "1000/d",
        "2000000000/s",
        "1/ns",
    ];
    prop::sample::select(rates.to_vec()).prop_map(str::to_owned)
}

/// Any rate from 1 per 365 days to 10^12 per second.
fn any_rates() -> impl Strategy<Value = String> {
    let period = prop_oneof![
        Just(("ns", 1_u64)),
        Just(("us", 1_000)),
        Just(("ms", 1_000_000)),
        Just(("s", SECOND)),
        Just(("min", 60 * SECOND)),
        Just(("h", 3_600 * SECOND)),
        Just(("d", 86_400 * SECOND)),
    ];
    (period, 1_u64..366, 0.0..1.0_f64).prop_map(|((name, size), count, height)| {
        let count = if name == "d" { count.min(365) } else { count };
        let units_max = (size as f64 * count as f64 * 1_000.0).min(1.8e19);
        let units = (units_max.ln() * height).exp().max(1.0) as u64;
        let units =
            units.min((u128::from(size) * u128::from(count) * 1_000).min(u64::MAX.into()) as u64);
        format!("{units}/{count}{name}")
    })
}

/// A burst of any size that the rate allows.
fn any_burst() -> impl Strategy<Value = u64> {
    prop_oneof![1_u64..20, (0_u32..41).prop_map(|bits| 1_u64 << bits), 1_u64..(1 << 40)]
}

/// Rates above 2.9e10 units/s are metered in granules of up to 64 units.
fn granular(burst: u64) -> u64 {
    burst.div_ceil(64) * 64
}

proptest! {
    #![proptest_config(crate::support::cases(2_000))]

    #[test]
    fn rates_on_the_grid_decide_exactly_as_the_oracle(
        rate in grid_rates(), burst in any_burst(), pace in any::<bool>(),
        steps in steps(true, true),
    ) {
        // A burst that takes longer to fill than ten years of uptime gets coarser granules.
        let parsed = Rate::parse(&rate).expect("a sound rate");
        let five_years = u128::from(TEN_YEARS / 2) * u128::from(parsed.units());
        let burst = burst.min((five_years / u128::from(parsed.period_ns())) as u64).max(1);
        Pair::new(&rate, burst, pace).run(&steps, true)?;
    }

    #[test]
    fn no_rate_admits_early_or_later_than_the_next_tick(
        rate in any_rates(), burst in any_burst(), steps in steps(false, true),
    ) {
        let parsed = Rate::parse(&rate).expect("a sound rate");
        let fast = u128::from(parsed.units()) > 29 * u128::from(parsed.period_ns());
        prop_assume!(!fast);
        Pair::new(&rate, burst, false).run(&steps, false)?;
    }

    #[test]
    fn every_interval_keeps_the_bound_at_any_rate(
        rate in any_rates(), burst in any_burst(), steps in steps(false, false),
    ) {
        let mut pair = Pair::new(&rate, granular(burst), false);
        // At the fastest rates retry instants are those of whole granules, so only the bound is
        // asked.
        for step in &steps {
            match *step {
                Step::Check(cost) if cost > 0 && ask(&pair.limiter, "a", cost).is_allowed() => {
                    pair.admitted.push((pair.now, cost));
                }
                Step::Wait(time) => {
                    let to = pair.now.saturating_add(time).min(TEN_YEARS);
                    pair.wait_until(to);
                }
                _ => {}
            }
        }
        pair.check_bound()?;
    }
}

#[test]
fn a_greedy_client_gets_the_whole_rate_and_no_unit_more() {
    for (rate, burst) in [("3/s", 2), ("1GiB/s", 1 << 30), ("7/11s", 1), ("999999937/s", 64)] {
        let mut pair = Pair::new(rate, burst, false);
        let cost = (burst / 2).max(1);
        let mut rounds = 0;
        while rounds < 20_000 {
            match ask(&pair.limiter, "a", cost).retry_at() {
                None => pair.admitted.push((pair.now, cost)),
                Some(Retry::At(at)) => pair.wait_until(at.as_nanos()),
                Some(Retry::Never) => panic!("{rate} never passes {cost}"),
            }
            rounds += 1;
        }
        let sum: u128 = pair.admitted.iter().map(|&(_, cost)| u128::from(cost)).sum();
        let gained = u128::from(pair.now) * pair.oracle.units / pair.oracle.period;
        assert!(sum <= u128::from(burst) + gained, "{rate}: {sum} of {burst} + {gained}");
        let missing = u128::from(burst) + gained - sum;
        assert!(missing <= u128::from(cost) + gained / 1_000_000, "{rate}: {missing} missing");
    }
}

#[test]
fn the_seeds_golden_vectors_hold() {
    let (ten, hand) = limiter(&[api("10/s", 10)]);
    assert!((0..10).all(|_| ask(&ten, "a", 1).is_allowed()));
    assert_eq!(ask(&ten, "a", 1).retry_at(), at(100_000_000));
    hand.advance(nanos(99_999_999));
    assert!(!ask(&ten, "a", 1).is_allowed());
    hand.advance(nanos(1));
    assert!(ask(&ten, "a", 1).is_allowed());

    let ratio = LimitSpec { burst: None, burst_ratio: Some(2.0), ..api("10/s", 0) };
    let (twenty, _) = limiter(&[ratio]);
    assert_eq!((0..30).filter(|_| ask(&twenty, "a", 1).is_allowed()).count(), 20);

    let (thousand, hand) = limiter(&[api("1000/s", 1000)]);
    assert!(ask(&thousand, "a", 1000).is_allowed());
    assert!(!ask(&thousand, "a", 1).is_allowed());
    hand.advance(seconds(1));
    assert!(ask(&thousand, "a", 1000).is_allowed());

    let (paced, hand) = limiter(&[LimitSpec { oversize: Oversize::Pace, ..api("10/s", 10) }]);
    assert!(ask(&paced, "a", 25).is_allowed());
    assert_eq!(ask(&paced, "a", 25).retry_at(), at(2_500_000_000));
    hand.advance(nanos(2_500_000_000));
    assert!(ask(&paced, "a", 25).is_allowed());

    let (fast, hand) = limiter(&[api("2000000000/s", 2_000_000_000)]);
    assert!(ask(&fast, "a", 2_000_000_000).is_allowed());
    assert_eq!(ask(&fast, "a", 2_000_000_000).retry_at(), at(SECOND));
    hand.advance(seconds(1));
    assert!(ask(&fast, "a", 2_000_000_000).is_allowed());
}

#[test]
fn a_gibibyte_a_second_for_ten_hours_is_a_gibibyte_a_second() {
    let (limiter, hand) = limiter(&[api("1GiB/s", 1 << 30)]);
    assert!(ask(&limiter, "a", 1 << 30).is_allowed());
    for hour in 0..10 {
        for _ in 0..3600 {
            hand.advance(seconds(1));
            assert!(ask(&limiter, "a", 1 << 30).is_allowed(), "in hour {hour}");
        }
    }
    assert!(!ask(&limiter, "a", 1).is_allowed());
}

#[test]
fn a_cost_beyond_all_reason_is_answered_and_wraps_nothing() {
    for oversize in [Oversize::Never, Oversize::Pace] {
        let (limiter, hand) = limiter(&[LimitSpec { oversize, ..api("1/365d", 1) }]);
        hand.advance(nanos(TEN_YEARS - 1));
        let first = ask(&limiter, "a", u64::MAX);
        assert_eq!(first.is_allowed(), oversize == Oversize::Pace);
        if oversize == Oversize::Never {
            assert_eq!(first.outcome(), Outcome::Denied(Reason::CostExceedsBurst));
            assert_eq!(first.retry_at(), NEVER);
        } else {
            assert!(!ask(&limiter, "a", 1).is_allowed());
        }
        hand.advance(seconds(u64::MAX / SECOND / 2));
        let _ = ask(&limiter, "b", u64::MAX);
        assert!(ask(&limiter, "c", 1).is_allowed());
    }
}

/// The sum of this debt and the next cost was past the end of the range, and the retry a token
/// early.
#[test]
fn a_debt_near_the_end_of_token_time_is_told_exactly() {
    let mut pair = Pair::new("1000/s", 143_022_720_811, true);
    let steps = [
        Step::Check(114_850_578_581),
        Step::Check(915_941_572_460),
        Step::Retry { early: false },
        Step::Check(68_719_476_736),
    ];
    pair.run(&steps, true).expect("as the oracle");
}

#[test]
fn costs_are_rounded_up_to_granules_and_never_down() {
    // At 10^12/s a granule is 64 units.
    let (limiter, _) = limiter(&[api("1000000000000/s", 6400)]);
    let passed = (0..200).filter(|_| ask(&limiter, "a", 65).is_allowed()).count();
    assert_eq!(passed, 50);
}

#[test]
fn a_refund_gives_nothing_to_a_clock_that_goes_back() {
    let (limiter, hand) = limiter(&[api("1/s", 5)]);
    assert!(ask(&limiter, "a", 5).is_allowed());
    hand.advance(seconds(3));
    refund(&limiter, "a", 5);
    assert_eq!(peek(&limiter, "a", 1).remaining(), Some(5));
    hand.turn_back(seconds(3));
    assert!(ask(&limiter, "a", 2).is_allowed());
    assert!(!ask(&limiter, "a", 1).is_allowed());
}

#[test]
fn centuries_of_uptime_end_in_denials_and_not_in_retries_that_have_passed() {
    for rate in ["9/d", "1GiB/s", "1000000000000/s"] {
        let (limiter, hand) = limiter(&[api(rate, 64 << 30)]);
        hand.advance(seconds(300 * 31_557_600));
        let decisions: Vec<_> = (0..4).map(|_| ask(&limiter, "a", 32 << 30)).collect();
        assert!(decisions[0].is_allowed());
        for denied in decisions.iter().filter(|decision| !decision.is_allowed()) {
            let Some(Retry::At(at)) = denied.retry_at() else { panic!("{denied:?}") };
            assert!(at > denied.now(), "{rate}: {denied:?}");
        }
    }
}

const TEN_YEARS: u64 = 315_576_000 * SECOND;
