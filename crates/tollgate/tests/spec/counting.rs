//! Each limit counts what it decided, under the reason it gave, and no tenant is in the counts.

use tollgate::{Counts, LimitSpec, Options, TableFull};

use crate::support::{api, ask, ask_of, limiter, limiter_with, peek};

#[test]
fn decisions_are_counted_by_what_they_were() {
    let (limiter, _) = limiter(&[api("2/h", 2)]);
    for cost in [1, 1, 1, 1, 3, 0] {
        ask(&limiter, "a", cost);
    }
    peek(&limiter, "a", 1);
    let expected = Counts { allowed: 2, over_limit: 2, cost_exceeds_burst: 1, ..Counts::default() };
    assert_eq!(limiter.limits()[0].counts, expected);
}

#[test]
fn a_denial_under_several_limits_counts_for_the_one_that_decided() {
    let wide = LimitSpec { name: "wide", rate: "100/h", ..LimitSpec::DEFAULT };
    let (limiter, _) = limiter(&[wide, api("1/h", 1)]);
    for _ in 0..3 {
        ask_of(&limiter, &[("tenant", "a")], 1);
    }
    ask_of(&limiter, &[("tenant", "b")], 0);
    let [wide, tight] = &limiter.limits()[..] else { panic!("two limits") };
    assert_eq!(wide.counts, Counts { allowed: 1, ..Counts::default() });
    assert_eq!(tight.counts, Counts { allowed: 1, over_limit: 2, ..Counts::default() });
}

#[test]
fn counts_and_ids_outlive_a_change_of_the_limit() {
    let (limiter, _) = limiter(&[api("2/h", 2)]);
    ask(&limiter, "a", 1);
    let before = limiter.limits()[0].clone();
    limiter.replace(crate::support::limits(&[api("4/h", 4)])).expect("sound");
    ask(&limiter, "a", 1);
    let after = limiter.limits()[0].clone();
    assert_eq!((before.id, after.counts.allowed), (after.id, 2));
    assert!(after.generation > before.generation);
    assert_eq!(limiter.limit_name(after.id).as_deref(), Some("api"));
    limiter.replace(Vec::new()).expect("sound");
    assert_eq!(limiter.limit_name(after.id), None);
    assert!(ask(&limiter, "a", 100).is_allowed());
}

#[test]
fn a_full_table_is_counted_where_it_was_felt() {
    let fill = |table_full| {
        let change = |options| Options { keys_max: 8, table_full, ..options };
        let (limiter, _) = limiter_with(&[api("1/h", 1)], change);
        for tenant in 0..100 {
            ask(&limiter, &tenant.to_string(), 1);
        }
        limiter.limits()[0].counts
    };
    let shared = fill(TableFull::Share);
    // Eight have cells of their own, and the others share the limit's.
    assert_eq!((shared.allowed, shared.over_limit, shared.overflowed), (9, 91, 92));
    let denied = fill(TableFull::Deny);
    assert_eq!((denied.allowed, denied.key_table_full, denied.overflowed), (8, 92, 0));
}
