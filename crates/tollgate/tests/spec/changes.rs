//! A change of the limits keeps what every key used: no second burst, no forgotten debt.

use proptest::prelude::*;
use tollgate::{LimitSpec, OverrideSpec, Oversize, Rate};

use crate::support::{SECOND, api, ask, limiter, limits, nanos, passed, peek, seconds};

#[test]
fn any_rate_follows_any_other_with_the_same_tokens_owed() {
    let rates = ["1/365d", "1/s", "10/s", "5000/s", "1GiB/s", "999999937/s", "1000000000000/s"];
    for from in rates {
        for to in rates {
            let (limiter, hand) = limiter(&[api(from, 1 << 20)]);
            hand.advance(seconds(100_000_000));
            assert!(ask(&limiter, "a", 1 << 19).is_allowed());
            limiter.replace(limits(&[api(to, 1 << 20)])).expect("sound");
            let left = peek(&limiter, "a", 1).remaining().expect("limited");
            // A conversion rounds what is owed up, by less than a granule (64 units at 10^12/s).
            let fast = from.starts_with("1000000000000") || to.starts_with("1000000000000");
            let slack = if fast { 64 } else { 1 };
            assert!(left <= 1 << 19, "{from} to {to}: {left}");
            assert!(left + slack >= 1 << 19, "{from} to {to}: {left}");
            assert_eq!(peek(&limiter, "b", 1).remaining(), Some(1 << 20));
        }
    }
}

#[test]
fn a_key_recovers_at_the_new_rate_from_the_moment_of_the_change() {
    let (limiter, hand) = limiter(&[api("1/s", 100)]);
    assert!(ask(&limiter, "a", 100).is_allowed());
    hand.advance(seconds(10));
    limiter.replace(limits(&[api("1000/s", 100)])).expect("sound");
    assert_eq!(peek(&limiter, "a", 1).remaining(), Some(10));
    hand.advance(nanos(50_000_001));
    assert_eq!(peek(&limiter, "a", 1).remaining(), Some(60));
    limiter.replace(limits(&[api("1/h", 100)])).expect("sound");
    hand.advance(seconds(3_601));
    assert_eq!(peek(&limiter, "a", 1).remaining(), Some(61));
}

#[test]
fn a_halved_rate_keeps_what_is_owed_to_the_granule() {
    let (limiter, hand) = limiter(&[api("100/s", 100)]);
    hand.advance(seconds(10));
    assert!(ask(&limiter, "a", 60).is_allowed());
    limiter.replace(limits(&[api("50/s", 100)])).expect("sound");
    assert_eq!(peek(&limiter, "a", 1).remaining(), Some(40));
    hand.advance(nanos(SECOND + 1));
    assert_eq!(peek(&limiter, "a", 1).remaining(), Some(90));
}

#[test]
fn a_fleet_of_one_keeps_the_bound_exactly_and_usage_when_the_guarantee_changes() {
    let alone = |local_cap| LimitSpec {
        guarantee: "eventual",
        local_cap: Some(local_cap),
        ..api("10/s", 10)
    };
    let (limiter, hand) = limiter(&[alone(1)]);
    assert_eq!(passed(&limiter, "a", 50), 10, "all of the burst, whatever the local cap");
    hand.advance(nanos(SECOND / 10 - 1));
    assert_eq!(passed(&limiter, "a", 1), 0);
    hand.advance(nanos(1));
    assert_eq!(passed(&limiter, "a", 2), 1);
    let mut generations = vec![limiter.limits()[0].generation];
    for next in [api("10/s", 10), alone(1), alone(2)] {
        limiter.replace(limits(&[next])).expect("sound");
        assert_eq!(passed(&limiter, "a", 50), 0, "{next:?}");
        generations.push(limiter.limits()[0].generation);
    }
    assert!(generations.is_sorted_by(|before, after| before < after), "{generations:?}");
}

#[test]
fn a_flapping_limit_hands_out_no_burst() {
    let (limiter, hand) = limiter(&[api("10/s", 10)]);
    let mut sum = 0;
    for flap in 0..200_u64 {
        let rate = if flap % 2 == 0 { "10/s" } else { "9000/min" };
        limiter.replace(limits(&[api(rate, 10)])).expect("sound");
        sum += passed(&limiter, "a", 50);
        hand.advance(nanos(SECOND / 100));
    }
    // Two seconds, half of them at 10/s and half at 150/s, and the burst.
    assert!((168..=170).contains(&sum), "{sum}");
}

#[test]
fn an_override_that_comes_and_goes_keeps_the_keys_usage() {
    let key = [("tenant", "acme")];
    let with = |rate| [OverrideSpec { key: &key, rate, burst: Some(100), ..OverrideSpec::DEFAULT }];
    let base = api("10/h", 10);
    let (limiter, _) = limiter(&[base]);
    assert_eq!(passed(&limiter, "acme", 7), 7);
    let left = || peek(&limiter, "acme", 1).remaining();
    let replace = |rate: Option<&'static str>| {
        let overrides = rate.map(with);
        let overrides = overrides.as_ref().map_or(&[][..], |one| &one[..]);
        limiter.replace(limits(&[LimitSpec { overrides, ..base }])).expect("sound");
    };
    replace(Some("100/h"));
    assert_eq!(left(), Some(93));
    assert_eq!(passed(&limiter, "acme", 10), 10);
    replace(Some("100000000/s"));
    assert_eq!(left(), Some(83));
    replace(None);
    // 17 used of 10: clamped in the answer, not in what is kept.
    assert_eq!(left(), Some(0));
    replace(Some("100/h"));
    assert_eq!(left(), Some(83));
    assert_eq!(peek(&limiter, "other", 1).remaining(), Some(10));
}

#[test]
fn a_limit_that_is_gone_frees_its_keys() {
    let other = LimitSpec { name: "other", ..api("1/h", 1) };
    let (limiter, _) = limiter(&[api("1/h", 1), other]);
    for tenant in 0..100 {
        ask(&limiter, &tenant.to_string(), 1);
    }
    assert_eq!(limiter.keys_used(), 202);
    limiter.replace(limits(&[other])).expect("sound");
    assert_eq!(limiter.keys_used(), 101);
    limiter.replace(limits(&[api("1/h", 1), other])).expect("sound");
    assert_eq!(passed(&limiter, "5", 2), 0, "the other limit kept its keys");
}

#[test]
fn another_key_is_another_set_of_cells() {
    let (limiter, _) = limiter(&[api("1/h", 1)]);
    assert_eq!(passed(&limiter, "a", 2), 1);
    let by_user = LimitSpec { key: &["user"], ..api("1/h", 1) };
    limiter.replace(limits(&[by_user])).expect("sound");
    assert_eq!(crate::support::passed(&limiter, "a", 2), 1);
    assert!(crate::support::ask_of(&limiter, &[("user", "a")], 1).is_allowed());
}

/// 10^12/s counts in granules of 64; a burst of 648 is no whole number of them.
#[test]
fn a_burst_is_not_rounded_up_to_the_granules_of_the_rate_before() {
    let (limiter, hand) = limiter(&[api("1000000000000/s", 6400)]);
    hand.advance(seconds(1));
    limiter.replace(limits(&[api("125000000000/s", 648)])).expect("sound");
    hand.advance(nanos(44));
    let mut units = 0;
    for tick in 0..22_u64 {
        while ask(&limiter, "a", 64).is_allowed() {
            units += 64;
        }
        assert!(units <= 648 + tick * 125, "{units} units in {tick} ns");
        hand.advance(nanos(1));
    }
}

/// A debt at the end of the range met finer granules, kept its number, and was moved on by one to
/// tell the two apart: onto the mark of a cell in other hands, so that the key got a second cell.
#[test]
fn a_debt_beyond_all_reason_outlives_a_change() {
    let paced = |rate| LimitSpec { oversize: Oversize::Pace, ..api(rate, 1) };
    let (limiter, hand) = limiter(&[paced("100/365d")]);
    hand.advance(seconds(1));
    assert!(ask(&limiter, "a", 1 << 40).is_allowed());
    let used = limiter.keys_used();
    limiter.replace(limits(&[paced("1/365d")])).expect("sound");
    assert!(!ask(&limiter, "a", 1).is_allowed());
    assert_eq!(limiter.keys_used(), used);
}

#[test]
fn a_keyed_limit_that_comes_back_is_kept_again() {
    let (limiter, _) = limiter(&[api("10/h", 10)]);
    let mut keyed = limiter.keyed("default", "api").expect("in force");
    limiter.replace(Vec::new()).expect("sound");
    assert!(keyed.check(&["a".into()], 1_000).expect("one part").is_allowed());
    limiter.replace(limits(&[api("10/h", 10)])).expect("sound");
    let mut passes = || keyed.check(&["a".into()], 1).expect("one part").is_allowed();
    assert_eq!((0..100).filter(|_| passes()).count(), 10);
    assert_eq!(limiter.limits()[0].counts.allowed, 10);
}

proptest! {
    #![proptest_config(crate::support::cases(1_000))]

    /// Over any changes, what passes is at most the largest burst and the integral of the rate.
    #[test]
    fn no_sequence_of_changes_admits_more_than_its_rates_produced(
        first in 0_usize..6,
        steps in prop::collection::vec((0_usize..6, 1_u64..2_000_000_000, 1_u64..60), 1..30),
    ) {
        let rates = ["1/s", "3/s", "50/s", "700/s", "1000003/s", "1/min"];
        let (limiter, hand) = limiter(&[api(rates[first], 50)]);
        let mut rate = Rate::parse(rates[first]).expect("sound");
        // In units of 1/period of the longest period, so that nothing is rounded.
        let mut produced = 0_u128;
        let mut sum = 0_u128;
        for (next, wait, cost) in steps {
            sum += u128::from(passed(&limiter, "a", cost));
            prop_assert!(sum * MINUTE <= 50 * MINUTE + produced, "{sum} after {produced}");
            hand.advance(nanos(wait));
            let periods = MINUTE / u128::from(rate.period_ns());
            produced += u128::from(wait) * u128::from(rate.units()) * periods;
            rate = Rate::parse(rates[next]).expect("sound");
            limiter.replace(limits(&[api(rates[next], 50)])).expect("sound");
        }
    }
}

const MINUTE: u128 = 60 * SECOND as u128;
