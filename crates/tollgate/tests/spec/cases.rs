//! Public bug reports on rate limiters, with the right answers. The numbers are those of the case
//! bank.

use tollgate::{
    Descriptor, Entry, Limit, LimitSpec, Options, Outcome, Reason, Request, RequestError, TableFull,
};

use crate::support::{
    NEVER, SECOND, api, ask, ask_of, at, limiter, limiter_with, limits, nanos, passed, peek,
    refund, seconds,
};

#[test]
fn c01_a_very_large_rate_is_not_unlimited() {
    let (limiter, hand) = limiter(&[api("2000000000/s", 10)]);
    let mut seen = vec![passed(&limiter, "a", 1000)];
    for wait in [1, 1, 1, 2, 95] {
        hand.advance(nanos(wait));
        seen.push(passed(&limiter, "a", 1000));
    }
    assert_eq!(seen, [10, 2, 2, 2, 4, 10]);
}

#[test]
fn c02_a_long_period_times_a_large_burst_overflows_nothing() {
    let (limiter, _) = limiter(&[api("1/365d", 1000)]);
    let first = ask(&limiter, "a", 1000);
    assert_eq!((first.is_allowed(), first.remaining()), (true, Some(0)));
    assert_eq!(ask(&limiter, "a", 1).retry_at(), at(31_536_000 * SECOND));
}

#[test]
fn c03_a_cost_of_the_whole_burst_is_payable() {
    let (limiter, hand) = limiter(&[api("5/60s", 5)]);
    assert_eq!(ask(&limiter, "a", 5).remaining(), Some(0));
    assert_eq!(ask(&limiter, "a", 1).retry_at(), at(12 * SECOND));
    hand.advance(seconds(12));
    let third = ask(&limiter, "a", 1);
    assert_eq!((third.is_allowed(), third.remaining()), (true, Some(0)));
}

#[test]
fn c04_a_cost_above_the_burst_is_never_and_touches_nothing() {
    let (limiter, _) = limiter(&[api("1/s", 10)]);
    let over = ask(&limiter, "a", 11);
    assert_eq!(over.outcome(), Outcome::Denied(Reason::CostExceedsBurst));
    assert_eq!((over.remaining(), over.retry_at()), (Some(10), NEVER));
    assert_eq!(ask(&limiter, "a", 10).remaining(), Some(0));
    assert_eq!(ask(&limiter, "a", 1).retry_at(), at(SECOND));
}

#[test]
fn c05_zero_denies_unlimited_allows_and_neither_is_guessed() {
    let (nothing, _) = limiter(&[LimitSpec { burst: None, ..api("zero", 0) }]);
    let denied = ask(&nothing, "a", 1);
    assert_eq!((denied.is_allowed(), denied.retry_at()), (false, NEVER));
    assert_eq!(denied.remaining(), Some(0));

    let (five, hand) = limiter(&[api("zero", 5)]);
    assert_eq!(passed(&five, "a", 6), 5);
    hand.advance(seconds(1_000_000_000));
    let denied = ask(&five, "a", 1);
    assert_eq!(denied.outcome(), Outcome::Denied(Reason::OverLimit));
    assert_eq!((denied.retry_at(), denied.reset_at()), (NEVER, NEVER));

    let refused = |spec: &LimitSpec<'_>| Limit::parse(spec).expect_err("refused").field();
    assert_eq!(refused(&api("0/s", 5)), "rate");
    assert_eq!(refused(&api("5/0s", 5)), "rate");
    assert_eq!(refused(&api("5/s", 0)), "burst");

    let (all, _) = limiter(&[LimitSpec { burst: None, ..api("unlimited", 0) }]);
    let decision = ask(&all, "a", u64::MAX);
    assert_eq!((decision.is_allowed(), decision.remaining()), (true, None));
}

#[test]
fn c06_a_clock_that_goes_back_locks_nobody_out() {
    let (limiter, hand) = limiter(&[api("1/s", 10)]);
    hand.advance(seconds(3600));
    assert_eq!(passed(&limiter, "a", 10), 10);
    // The library reads no wall clock; this is a broken monotonic one.
    hand.turn_back(seconds(3600));
    hand.advance(seconds(3600 + 5));
    assert_eq!(passed(&limiter, "a", 10), 5);
    assert_eq!(ask(&limiter, "a", 1).retry_at(), at((3600 + 6) * SECOND));
}

#[test]
fn c07_a_clock_that_jumps_forward_and_back_mints_nothing() {
    let (limiter, hand) = limiter(&[api("1/s", 10)]);
    assert_eq!(passed(&limiter, "a", 10), 10);
    hand.advance(seconds(2));
    assert_eq!(passed(&limiter, "a", 20), 2);
    hand.turn_back(seconds(2));
    assert_eq!(passed(&limiter, "a", 20), 0);
    hand.advance(seconds(2));
    assert_eq!(passed(&limiter, "a", 20), 0);
}

#[test]
fn c08_a_stale_arrival_time_restarts_from_now() {
    let (limiter, hand) = limiter(&[api("1/s", 1)]);
    assert_eq!(passed(&limiter, "a", 1), 1);
    hand.advance(seconds(3600));
    assert_eq!(passed(&limiter, "a", 100), 1);
}

#[test]
fn c20_key_parts_do_not_meet_in_the_middle() {
    let (limiter, _) = limiter(&[LimitSpec { key: &["x", "y"], ..api("1/h", 1) }]);
    let pairs = [
        ("a:b", "c"),
        ("a", "b:c"),
        ("a_b", "c"),
        ("a", "b_c"),
        ("", "ab"),
        ("ab", ""),
        ("a", "b"),
    ];
    for (x, y) in pairs {
        assert!(ask_of(&limiter, &[("x", x), ("y", y)], 1).is_allowed(), "({x:?}, {y:?})");
    }
    assert!(ask_of(&limiter, &[("x", "a|b")], 1).is_allowed());
    for (x, y) in pairs {
        assert!(!ask_of(&limiter, &[("x", x), ("y", y)], 1).is_allowed(), "({x:?}, {y:?})");
    }
}

#[test]
fn c21_hostile_bytes_make_keys_of_their_own_up_to_the_stated_length() {
    let (limiter, _) = limiter(&[api("1/h", 1)]);
    let mut long = vec![b'x'; 1 << 20];
    let mut values: Vec<Vec<u8>> = vec![
        b"a\0b".to_vec(),
        b"a\nb".to_vec(),
        "é".into(),
        "e\u{301}".into(),
        b"\xff\xfe".to_vec(),
        b"".to_vec(),
        long.clone(),
    ];
    long[(1 << 20) - 1] = b'y';
    values.push(long.clone());
    let ask = |value: &[u8]| {
        let entries = [Entry::new("tenant", value)];
        let descriptors = [Descriptor::new(&entries)?];
        Ok(limiter.check(&Request::new(&descriptors)).is_allowed())
    };
    for value in &values {
        assert_eq!(ask(value), Ok(true));
    }
    for value in &values {
        assert_eq!(ask(value), Ok(false));
    }
    long.push(b'z');
    assert_eq!(ask(&long), Err(RequestError::ValueTooLong { index: 0, bytes: long.len() }));
}

#[test]
fn c25_a_retry_is_rounded_up_and_never_zero() {
    let (slow, hand) = limiter(&[api("1/s", 1)]);
    assert!(ask(&slow, "a", 1).is_allowed());
    hand.advance(nanos(200_000_000));
    assert_eq!(ask(&slow, "a", 1).retry_at(), at(SECOND));
    hand.advance(nanos(800_000_000));
    assert!(ask(&slow, "a", 1).is_allowed());

    let (fast, hand) = limiter(&[api("1000/s", 1)]);
    assert!(ask(&fast, "a", 1).is_allowed());
    hand.advance(nanos(100_000));
    assert_eq!(ask(&fast, "a", 1).retry_at(), at(1_000_000));

    // A third of a second is no whole number of nanoseconds.
    let (third, _) = limiter(&[api("3/s", 1)]);
    assert!(ask(&third, "a", 1).is_allowed());
    assert_eq!(ask(&third, "a", 1).retry_at(), at(333_333_334));
}

#[test]
fn c27_remaining_counts_down_exactly_at_any_instant() {
    for start in [0, 12_400_000_000, 12_400_000_001, 7, SECOND / 3] {
        let (limiter, hand) = limiter(&[api("5/60s", 5)]);
        hand.advance(nanos(start));
        let seen: Vec<_> = (0..7).map(|_| ask(&limiter, "a", 1)).collect();
        let remaining: Vec<_> = seen.iter().map(|decision| decision.remaining()).collect();
        assert_eq!(remaining, [4, 3, 2, 1, 0, 0, 0].map(Some), "from {start}");
        assert_eq!(seen.iter().filter(|decision| decision.is_allowed()).count(), 5);
        assert!(seen.iter().all(|decision| decision.burst() == Some(5)));
        assert_eq!(seen[4].reset_at(), at(start + 60 * SECOND));
    }
}

#[test]
fn c28_a_cost_of_zero_asks_and_a_refund_fills_to_the_brim() {
    let (limiter, _) = limiter(&[api("10/60s", 10)]);
    let before = limiter.keys_used();
    let asked = ask(&limiter, "fresh", 0);
    assert_eq!((asked.is_allowed(), asked.remaining()), (true, Some(10)));
    assert_eq!(limiter.keys_used(), before);
    refund(&limiter, "fresh", 5);
    assert_eq!(limiter.keys_used(), before);
    assert_eq!(peek(&limiter, "fresh", 1).remaining(), Some(10));

    assert_eq!(passed(&limiter, "a", 3), 3);
    refund(&limiter, "a", 100);
    assert_eq!(peek(&limiter, "a", 1).remaining(), Some(10));
    assert_eq!(passed(&limiter, "a", 20), 10);
    assert!(ask(&limiter, "a", 0).is_allowed());
    refund(&limiter, "a", 4);
    assert_eq!(passed(&limiter, "a", 20), 4);
}

#[test]
fn c29_a_reload_keeps_what_was_used() {
    let (limiter, hand) = limiter(&[api("10/60s", 10)]);
    hand.advance(seconds(10));
    assert_eq!(passed(&limiter, "a", 10), 10);
    let mut remaining = Vec::new();
    for (rate, burst) in [("10/60s", 10), ("20/60s", 20), ("5/60s", 5), ("10/60s", 10)] {
        let revision = limiter.replace(limits(&[api(rate, burst)])).expect("sound limits");
        assert_eq!(revision, limiter.revision());
        remaining.push(peek(&limiter, "a", 1).remaining());
    }
    assert_eq!(remaining, [Some(0), Some(10), Some(0), Some(0)]);
}

#[test]
fn c17_a_key_that_used_its_limit_is_not_forgotten_for_newcomers() {
    let (limiter, _) = limiter_with(&[api("10/60s", 10)], |options| Options {
        keys_max: 8,
        table_full: TableFull::Deny,
        ..options
    });
    assert_eq!(passed(&limiter, "a", 11), 10);
    for newcomer in 0..1_000 {
        ask(&limiter, &newcomer.to_string(), 1);
    }
    assert!(!ask(&limiter, "a", 1).is_allowed());
}
