//! Reservations: an estimate is corrected once, and what has leaked does not come back.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{Decision, Entry, LimitSpec, Limiter, Reservation};

use crate::support::{api, ask, limiter, limits, peek, with_request};

fn reserve(limiter: &Limiter, tenant: &str, cost: u64) -> (Decision, Option<Reservation>) {
    with_request(&[("tenant", tenant)], cost, |request| limiter.reserve(request))
}

fn reserved(limiter: &Limiter, tenant: &str, cost: u64) -> Reservation {
    reserve(limiter, tenant, cost).1.expect("there is room")
}

fn remaining(limiter: &Limiter, tenant: &str) -> Option<u64> {
    peek(limiter, tenant, 0).remaining()
}

#[test]
fn what_was_not_used_comes_back_less_what_has_leaked() {
    let (limiter, hand) = limiter(&[api("10/s", 100)]);
    let estimate = reserved(&limiter, "a", 60);
    assert_eq!(remaining(&limiter, "a"), Some(40));
    hand.advance(Duration::from_secs(2));
    // 20 have leaked. 50 were not used, and 30 of them are still charged.
    limiter.settle(estimate, &[10]).expect("one cost");
    assert_eq!(remaining(&limiter, "a"), Some(90));
}

/// At ten a day a millisecond leaks a hundred-millionth of what was reserved, and no whole token.
#[test]
fn what_has_leaked_is_not_rounded_up_to_a_token() {
    let (limiter, hand) = limiter(&[api("10/d", 10)]);
    let (first, second) = (reserved(&limiter, "a", 1), reserved(&limiter, "a", 6));
    hand.advance(Duration::from_millis(1));
    limiter.cancel(first);
    assert_eq!(remaining(&limiter, "a"), Some(4));
    hand.advance(Duration::from_millis(1));
    limiter.settle(second, &[2]).expect("one cost");
    // The millisecond that leaked from each stays charged, which the third one more than paid.
    hand.advance(Duration::from_millis(1));
    assert_eq!(remaining(&limiter, "a"), Some(8));
    let third = reserved(&limiter, "b", 10);
    hand.advance(Duration::from_millis(1));
    limiter.cancel(third);
    assert!(ask(&limiter, "b", 10).is_allowed());
}

/// Two tenants' worth: 100 reserved and leaked in ten seconds, 100 more spent, and the first
/// cancelled. Nothing of it is left to give back, or 200 would have passed at one instant.
#[test]
fn a_cancellation_gives_back_nothing_that_was_spent_again() {
    let (limiter, hand) = limiter(&[api("10/s", 100)]);
    let estimate = reserved(&limiter, "a", 100);
    hand.advance(Duration::from_secs(10));
    assert!(ask(&limiter, "a", 100).is_allowed());
    limiter.cancel(estimate);
    assert_eq!(remaining(&limiter, "a"), Some(0));
}

#[test]
fn what_was_used_beyond_the_estimate_is_owed() {
    let (limiter, hand) = limiter(&[api("10/s", 100)]);
    let estimate = reserved(&limiter, "a", 10);
    limiter.settle(estimate, &[150]).expect("one cost");
    assert_eq!(remaining(&limiter, "a"), Some(0));
    hand.advance(Duration::from_millis(5_100));
    assert_eq!(remaining(&limiter, "a"), Some(1));
    // Also by a key that has rested and left the table, and by more than the burst.
    let estimate = reserved(&limiter, "b", 1);
    hand.advance(Duration::from_secs(3_600));
    limiter.settle(estimate, &[201]).expect("one cost");
    assert_eq!(remaining(&limiter, "b"), Some(0));
    hand.advance(Duration::from_millis(10_100));
    assert_eq!(remaining(&limiter, "b"), Some(1));
}

#[test]
fn a_denied_estimate_is_no_reservation() {
    let (limiter, _) = limiter(&[api("10/s", 10)]);
    let (decision, reservation) = reserve(&limiter, "a", 11);
    assert!(!decision.is_allowed());
    assert!(reservation.is_none());
    assert_eq!(remaining(&limiter, "a"), Some(10));
}

#[test]
fn a_settlement_has_a_cost_for_each_descriptor() {
    let (limiter, _) = limiter(&[api("10/s", 10)]);
    let estimate = reserved(&limiter, "a", 5);
    let error = limiter.settle(estimate, &[1, 2]).expect_err("one descriptor");
    assert_eq!(error.to_string(), "2 costs for a reservation of 1 descriptors; each needs one");
    limiter.settle(error.reservation, &[1]).expect("one cost");
    assert_eq!(remaining(&limiter, "a"), Some(9));
}

#[test]
fn each_descriptor_is_settled_by_itself_in_every_limit_that_applies() {
    let requests = LimitSpec { matches: &[("metric", "requests")], ..api("10/h", 10) };
    let tokens =
        LimitSpec { name: "tokens", matches: &[("metric", "tokens")], ..api("1000/h", 1_000) };
    let all = LimitSpec { name: "all", key: &[], ..api("5000/h", 5_000) };
    let (limiter, _) = limiter(&[requests, tokens, all]);
    let of = |metric| [Entry::new("tenant", "a"), Entry::new("metric", metric)];
    let (one, two) = (of("requests"), of("tokens"));
    let one = tollgate::Descriptor::new(&one).expect("sound");
    let two = tollgate::Descriptor::new(&two).expect("sound").with_cost(500);
    let (_, estimate) = limiter.reserve(&tollgate::Request::new(&[one, two]));
    limiter.settle(estimate.expect("there is room"), &[1, 120]).expect("two costs");
    let left = |metric| {
        let pairs = [("tenant", "a"), ("metric", metric)];
        let explained = with_request(&pairs, 0, |request| limiter.explain(request));
        let alone = explained.limits.into_iter().filter_map(|limit| match limit.applies {
            tollgate::Applies::Yes { alone, .. } => alone.remaining(),
            _ => None,
        });
        alone.collect::<Vec<_>>()
    };
    assert_eq!(left("requests"), [9, 4_879]);
    assert_eq!(left("tokens"), [880, 4_879]);
}

#[test]
fn a_reservation_outlives_a_change_of_its_limit_but_not_its_end() {
    let (limiter, _) = limiter(&[api("10/s", 100)]);
    let (first, second) = (reserved(&limiter, "a", 50), reserved(&limiter, "a", 50));
    limiter.replace(limits(&[api("12/s", 200)])).expect("sound");
    limiter.cancel(first);
    assert_eq!(remaining(&limiter, "a"), Some(150));
    limiter
        .replace(limits(&[api("10/s", 100), LimitSpec { name: "b", ..api("1/s", 1) }]))
        .expect("sound");
    limiter.replace(Vec::new()).expect("sound");
    limiter.settle(second, &[70]).expect("one cost");
    assert!(ask(&limiter, "a", 1_000).is_allowed());
}

#[test]
fn a_shadow_that_would_have_denied_gets_nothing_back() {
    let shadow = LimitSpec { name: "shadow", shadow: true, ..api("10/h", 10) };
    let (limiter, _) = limiter(&[shadow]);
    assert!(ask(&limiter, "a", 6).is_allowed());
    let (decision, estimate) = reserve(&limiter, "a", 6);
    assert!(decision.shadow_denied_by().is_some());
    limiter.cancel(estimate.expect("a shadow denies nothing"));
    let decision = ask(&limiter, "a", 5);
    assert!(decision.shadow_denied_by().is_some(), "6 are spent");
}

#[test]
fn a_reset_makes_the_request_s_keys_as_new_and_no_other() {
    let (limiter, _) = limiter(&[api("10/h", 10)]);
    for tenant in ["a", "b"] {
        assert!(ask(&limiter, tenant, 10).is_allowed());
    }
    with_request(&[("tenant", "a")], 1, |request| limiter.reset(request));
    assert_eq!((remaining(&limiter, "a"), remaining(&limiter, "b")), (Some(10), Some(0)));
}

#[derive(Debug, Clone)]
enum Act {
    Wait(u64),
    Spend(u64),
    Reserve(u64),
    /// Settles the reservation with this index, modulo those that are open, at this share of it.
    Settle(usize, u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0..3_000_u64).prop_map(Act::Wait),
        (1..8_u64).prop_map(Act::Spend),
        (1..8_u64).prop_map(Act::Reserve),
        (any::<usize>(), 0..=100_u64).prop_map(|(index, share)| Act::Settle(index, share)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever is reserved, used in part and given back: in every interval what was used is at
    /// most burst + rate x t.
    #[test]
    fn net_of_corrections_no_interval_holds_too_much(
        acts in prop::collection::vec(act(), 1..60),
    ) {
        let (limiter, hand) = limiter(&[api("2/s", 7)]);
        let (mut now_ms, mut used, mut open) = (0_u64, Vec::<(u64, u64)>::new(), Vec::new());
        for act in acts {
            match act {
                Act::Wait(ms) => {
                    now_ms += ms;
                    hand.advance(Duration::from_millis(ms));
                }
                Act::Spend(cost) => {
                    if ask(&limiter, "a", cost).is_allowed() {
                        used.push((now_ms, cost));
                    }
                }
                Act::Reserve(cost) => {
                    if let (_, Some(reservation)) = reserve(&limiter, "a", cost) {
                        open.push((reservation, used.len(), cost));
                        used.push((now_ms, cost));
                    }
                }
                Act::Settle(index, share) if !open.is_empty() => {
                    let (reservation, event, cost) = open.swap_remove(index % open.len());
                    let actual = cost * share / 100;
                    limiter.settle(reservation, &[actual]).expect("one cost");
                    used[event].1 = actual;
                }
                Act::Settle(..) => {}
            }
            for (first, (start, _)) in used.iter().enumerate() {
                let units: u64 = used[first..].iter().map(|(_, units)| units).sum();
                let end = used.last().map_or(*start, |(end, _)| *end);
                prop_assert!(units * 1_000 <= 7_000 + 2 * (end - start), "{used:?}");
            }
        }
    }
}
