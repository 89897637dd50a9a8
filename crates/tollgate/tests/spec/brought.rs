//! Limits that come with the request: redis-cell's answers, and what no limiter of its kind keeps.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{
    Brought, BroughtError, Clock, ClockHand, Decision, Options, Outcome, Part, Rate, Reason, Retry,
};

use crate::support::{SECOND, api, ask, limiter};

fn brought(keys_max: u64) -> (Brought, ClockHand) {
    let (clock, hand) = Clock::manual();
    let options = Options { clock, keys_max, ..Options::default() };
    (Brought::new(options).expect("sound options"), hand)
}

fn rate(units: u64, seconds: u64) -> Rate {
    Rate::new(units, seconds * SECOND).expect("a sound rate")
}

fn take(brought: &Brought, key: &str, rate: Rate, burst: u64, cost: u64) -> Decision {
    brought.check(&[key.into()], rate, burst, cost).expect("a sound allowance")
}

/// Wait and reset in ms, rounded up; the wait is 0 for what passes and -1 for never.
fn shown(decision: &Decision) -> (bool, u64, i64, u64) {
    let ms =
        |at: tollgate::Instant| at.saturating_since(decision.now()).as_nanos().div_ceil(1_000_000);
    let retry = match decision.retry_at() {
        None => 0,
        Some(Retry::At(at)) => ms(at) as i64,
        Some(Retry::Never) => -1,
    };
    let Some(Retry::At(reset)) = decision.reset_at() else { panic!("it resets") };
    (decision.is_allowed(), decision.remaining().expect("metered"), retry, ms(reset) as u64)
}

#[test]
fn the_answers_are_redis_cells() {
    let (brought, hand) = brought(100);
    // (time in ms, quantity, allowed, remaining, retry in ms, reset in ms) of `4 1 1 q`.
    let table = [
        (0, 6, false, 5, -1, 0),
        (0, 1, true, 4, 0, 1_000),
        (0, 1, true, 3, 0, 2_000),
        (0, 1, true, 2, 0, 3_000),
        (0, 1, true, 1, 0, 4_000),
        (0, 1, true, 0, 0, 5_000),
        (0, 1, false, 0, 1_000, 5_000),
        (3_000, 1, true, 2, 0, 3_000),
        (3_100, 1, true, 1, 0, 3_900),
        (4_000, 1, true, 1, 0, 4_000),
        (8_000, 1, true, 4, 0, 1_000),
        (9_500, 1, true, 4, 0, 1_000),
        (9_500, 0, true, 4, 0, 1_000),
        (9_500, 2, true, 2, 0, 3_000),
        (9_500, 5, false, 2, 3_000, 3_000),
    ];
    let mut now = 0;
    for (at, cost, allowed, remaining, retry, reset) in table {
        hand.advance(Duration::from_millis(at - now));
        now = at;
        let decision = take(&brought, "v", rate(1, 1), 5, cost);
        assert_eq!(shown(&decision), (allowed, remaining, retry, reset), "{cost} at {at} ms");
    }
    let counts = brought.counts();
    assert_eq!((counts.allowed, counts.over_limit, counts.cost_exceeds_burst), (11, 2, 1));
}

#[test]
fn what_is_given_back_is_clamped_to_the_burst() {
    let (brought, _) = brought(100);
    take(&brought, "n", rate(1, 1), 5, 1);
    let decision = brought.refund(&["n".into()], rate(1, 1), 5, 100).expect("sound");
    assert_eq!(shown(&decision), (true, 5, 0, 0));
    let fresh = brought.refund(&["m".into()], rate(1, 1), 5, 100).expect("sound");
    assert_eq!((fresh.remaining(), brought.keys_used()), (Some(5), 1));
}

#[test]
fn a_key_that_is_asked_under_another_allowance_owes_what_it_owed() {
    let (brought, hand) = brought(100);
    assert_eq!(take(&brought, "a", rate(1, 1), 10, 8).remaining(), Some(2));
    assert_eq!(take(&brought, "a", rate(100, 1), 20, 1).remaining(), Some(11));
    assert_eq!(take(&brought, "a", rate(1, 1), 10, 0).remaining(), Some(1));
    assert!(!take(&brought, "a", rate(1, 3_600), 5, 1).is_allowed());
    hand.advance(Duration::from_secs(3_600 * 5));
    assert_eq!(take(&brought, "a", rate(1, 3_600), 5, 1).remaining(), Some(0));
}

#[test]
fn keys_of_a_limiter_and_those_that_bring_their_limit_are_apart() {
    let (limiter, _) = limiter(&[api("1/h", 1)]);
    let (brought, _) = brought(100);
    assert!(ask(&limiter, "a", 1).is_allowed());
    assert!(take(&brought, "a", rate(1, 3_600), 1, 1).is_allowed());
}

#[test]
fn an_unsound_allowance_is_refused_and_names_its_fault() {
    let (brought, _) = brought(100);
    let check = |rate, burst| brought.check(&["a".into()], rate, burst, 1).map(|_| ());
    assert_eq!(check(rate(1, 1), 0), Err(BroughtError::Burst { burst: 0 }));
    let burst = (1 << 62) + 1;
    assert_eq!(check(rate(1, 1), burst), Err(BroughtError::Burst { burst }));
    let fast = rate(1_000_000_000_000, 1);
    assert_eq!(check(fast, 65), Err(BroughtError::Granule { granule: 64 }));
    assert_eq!(check(fast, 64), Ok(()));
    assert!(Brought::new(Options { keys_max: 0, ..Options::default() }).is_err());
}

#[test]
fn a_full_table_denies_new_keys_and_forgets_none_that_owes() {
    let (brought, hand) = brought(10);
    for key in 0..30 {
        take(&brought, &key.to_string(), rate(1, 1), 1, 1);
    }
    let again: Vec<_> =
        (0..30).map(|key| take(&brought, &key.to_string(), rate(1, 1), 1, 1).outcome()).collect();
    let denied =
        |reason| again.iter().filter(|&&outcome| outcome == Outcome::Denied(reason)).count();
    assert_eq!((denied(Reason::OverLimit), denied(Reason::KeyTableFull)), (10, 20));
    hand.advance(Duration::from_secs(1));
    assert!(take(&brought, "new", rate(1, 1), 1, 1).is_allowed());
}

#[test]
fn allowances_are_bounded_and_those_without_keys_make_room() {
    let (brought, hand) = brought(10_000);
    let check =
        |key: &str, period: u64| brought.check(&[key.into()], rate(1, period), 1, 1).map(|_| ());
    for period in 1..=4_096 {
        check(&period.to_string(), 10_000 + period).expect("there is room");
    }
    assert_eq!(check("one more", 5), Err(BroughtError::TooManyAllowances));
    // Those that are known still work, by whichever key.
    check("4097", 10_001).expect("it is known");
    // Each key rests after its period; half a minute later their allowances are free.
    hand.advance(Duration::from_secs(10_000 + 2_048));
    for period in 1..=1_000 {
        check(&format!("new {period}"), 50_000 + period).expect("there is room again");
    }
    // What is owed stays owed, also under an allowance that is met again.
    assert!(!take(&brought, "3000", rate(1, 13_000), 1, 1).is_allowed());
}

#[test]
fn threads_that_bring_ever_new_allowances_spend_no_more_than_the_burst() {
    let (brought, _) = brought(10_000);
    let passed = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (brought, passed) = (&brought, &passed);
            scope.spawn(move || {
                for turn in 0..3_000 {
                    // All owe what they spent for days; the allowances differ in the period alone.
                    let rate = rate(1, 1_000_000 + (turn * 4 + thread) % 6_000);
                    match brought.check(&["shared".into()], rate, 100, 1) {
                        Ok(decision) if decision.is_allowed() => {
                            passed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        }
                        Ok(_) | Err(BroughtError::TooManyAllowances) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    // Every conversion rounds what is owed up, so that it may be less.
    let passed = passed.into_inner();
    assert!((50..=100).contains(&passed), "{passed}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// One allowance, any costs and times: GCRA in whole numbers of milliseconds.
    #[test]
    fn a_key_is_metered_as_gcra_says(
        (units, burst) in (1..50_u64, 1..20_u64),
        asks in prop::collection::vec((0..2_000_u64, 0..25_u64), 1..50),
    ) {
        let (brought, hand) = brought(100);
        // In units of 1/units ms, so that a token takes exactly 1,000 of them.
        let (mut now, mut tat) = (0_u64, 0_u64);
        for (wait, cost) in asks {
            now += wait * units;
            hand.advance(Duration::from_millis(wait));
            let next = tat.max(now) + cost * 1_000;
            let decision = take(&brought, "a", rate(units, 1), burst, cost);
            // The last unit may have to wait for the next nanosecond, if the others were charged
            // between two.
            let is_last = next - now == burst * 1_000 && tat > now;
            let waits = is_last && !decision.is_allowed();
            let conforms = cost == 0 || (next - now <= burst * 1_000 && !waits);
            prop_assert_eq!(decision.is_allowed(), conforms);
            if conforms && cost > 0 {
                tat = next;
            }
            let left = (burst * 1_000 - (tat.max(now) - now)) / 1_000;
            // Between whole nanoseconds the last unit may have to wait for the next.
            let remaining = decision.remaining().expect("metered");
            prop_assert!(remaining == left || remaining + 1 == left);
        }
    }
}

proptest! {
    #[test]
    fn a_part_that_is_undone_at_once_might_not_have_been_taken(
        steps in prop::collection::vec((0..4_u64, 0..3_000_u64, any::<bool>()), 1..40),
    ) {
        let ((one, hand), (other, other_hand)) = (brought(100), brought(100));
        for (cost, wait, undone) in steps {
            for hand in [&hand, &other_hand] {
                hand.advance(Duration::from_millis(wait));
            }
            let (key, rate) = ([Part::from("a")], rate(1, 1));
            if undone {
                let taken = one.take(&key, rate, 5, cost).expect("sound");
                one.undo(&key, rate, 5, &taken).expect("sound");
            } else {
                let decision = take(&one, "a", rate, 5, cost);
                prop_assert_eq!(shown(&decision), shown(&take(&other, "a", rate, 5, cost)));
            }
        }
        prop_assert_eq!(one.counts(), other.counts());
    }
}

/// What has leaked since may have been spent by another, and is not given out again.
#[test]
fn a_part_that_is_undone_late_gives_back_what_has_not_leaked() {
    let (brought, hand) = brought(100);
    let (key, rate) = ([Part::from("a")], rate(1, 1));
    let taken = brought.take(&key, rate, 10, 10).expect("sound");
    hand.advance(Duration::from_secs(4));
    assert!(take(&brought, "a", rate, 10, 4).is_allowed());
    brought.undo(&key, rate, 10, &taken).expect("sound");
    assert_eq!(take(&brought, "a", rate, 10, 0).remaining(), Some(6));
    // What was denied has nothing to take back.
    let denied = brought.take(&key, rate, 10, 7).expect("sound");
    brought.undo(&key, rate, 10, &denied).expect("sound");
    assert_eq!(take(&brought, "a", rate, 10, 0).remaining(), Some(6));
}

#[test]
fn a_limit_of_nothing_denies_for_ever() {
    let (brought, _) = brought(100);
    let decision = take(&brought, "a", Rate::ZERO, 0, 1);
    assert_eq!(decision.outcome(), Outcome::Denied(Reason::OverLimit));
    assert_eq!((decision.retry_at(), decision.remaining()), (Some(Retry::Never), Some(0)));
    assert!(take(&brought, "a", Rate::ZERO, 0, 0).is_allowed());
    assert_eq!(brought.keys_used(), 0);
}
