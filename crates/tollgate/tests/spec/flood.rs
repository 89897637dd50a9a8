//! A flood of fresh keys: memory stays in its bound, denied keys stay denied, and who comes later
//! gets a cell of its own as soon as others have rested.

use std::process::Command;

use tollgate::{LimitSpec, Options, OverrideSpec, TableFull};

use crate::support::{api, ask, limiter_with, passed, seconds};

#[test]
fn two_million_fresh_keys_stay_within_the_stated_memory() {
    // In a process of its own, so that its memory is only its own.
    let test = std::env::current_exe().expect("this test's own path");
    let output = Command::new(test)
        .args(["--exact", "flood::two_million_fresh_keys", "--ignored", "--nocapture"])
        .output()
        .expect("the test runs");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("1 passed"), "{out}");
}

#[test]
#[ignore = "run by two_million_fresh_keys_stay_within_the_stated_memory, alone in a process"]
fn two_million_fresh_keys() {
    let keys_max = 1_000_000;
    let change = |options| Options { keys_max, ..options };
    let (limiter, hand) = limiter_with(&[api("1/h", 1)], change);
    let before = resident_bytes();
    assert_eq!(passed(&limiter, "victim", 2), 1);
    let fresh = (0..2 * keys_max).filter(|n| ask(&limiter, &n.to_string(), 1).is_allowed());
    // Of the keys beyond the table one passed, on the cell that they share.
    assert_eq!(fresh.count() as u64, keys_max - 1 + 1);
    let grown = resident_bytes().saturating_sub(before);
    // 24 bytes a slot, and a third more slots than keys.
    assert!(grown <= 33 * keys_max, "{} bytes a key", grown / keys_max);
    assert_eq!(limiter.keys_used(), keys_max + 1);
    assert!(!ask(&limiter, "victim", 1).is_allowed());
    assert!(!ask(&limiter, "17", 1).is_allowed());

    hand.advance(seconds(3_600));
    for n in 0..1_000 {
        let tenant = format!("later {n}");
        assert_eq!(passed(&limiter, &tenant, 2), 1, "{tenant} has a cell of its own");
    }
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a resident size");
    let kibibytes: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("kB");
    kibibytes * 1024
}

#[test]
fn overrides_always_have_a_cell_of_their_own() {
    let key = [("tenant", "acme")];
    let overrides = [OverrideSpec { key: &key, rate: "5/h", ..tollgate::OverrideSpec::DEFAULT }];
    let change = |options| Options { keys_max: 4, table_full: TableFull::Deny, ..options };
    let spec = LimitSpec { overrides: &overrides, ..api("1/s", 1) };
    let (limiter, hand) = limiter_with(&[spec], change);
    for round in 0..100 {
        for n in 0..20 {
            ask(&limiter, &format!("{round} {n}"), 1);
        }
        hand.advance(seconds(1));
    }
    assert_eq!(passed(&limiter, "acme", 10), 5);
    for n in 0..1_000 {
        ask(&limiter, &n.to_string(), 1);
    }
    assert_eq!(passed(&limiter, "acme", 10), 0);
}

#[test]
fn a_table_of_two_serves_two_and_then_shares() {
    let change = |options| Options { keys_max: 2, ..options };
    let (limiter, hand) = limiter_with(&[api("1/h", 1)], change);
    // The third passes on the cell that all others share.
    let turn = |names: [&str; 4]| names.map(|name| ask(&limiter, name, 1).is_allowed());
    assert_eq!(turn(["a", "b", "c", "d"]), [true, true, true, false]);
    assert_eq!(turn(["a", "b", "c", "d"]), [false; 4]);
    hand.advance(seconds(3_600));
    assert_eq!(turn(["e", "f", "g", "h"]), [true, true, true, false]);
}

#[test]
fn keys_that_rested_make_room_for_as_many_new_ones() {
    let change = |options| Options { keys_max: 10_000, table_full: TableFull::Deny, ..options };
    let (limiter, hand) = limiter_with(&[api("1/s", 1)], change);
    for round in 0..20 {
        let admitted =
            (0..9_000).filter(|n| ask(&limiter, &format!("{round} {n}"), 1).is_allowed()).count();
        assert_eq!(admitted, 9_000, "round {round}");
        hand.advance(seconds(1));
    }
    assert!(limiter.keys_used() <= 10_001);
}

/// Its clock reading is older than an eviction in its segment; the whole burst is there all the
/// same.
#[test]
fn a_newcomer_with_an_older_clock_may_spend_its_whole_burst() {
    let change = |options| Options { keys_max: 2, ..options };
    let by_user = LimitSpec { name: "other", key: &["user"], ..api("10/s", 10) };
    let (limiter, hand) = limiter_with(&[api("10/s", 10), by_user], change);
    for (tenant, user) in [("a", "x"), ("b", "y")] {
        hand.advance(seconds(10));
        let pairs = [("tenant", tenant), ("user", user)];
        assert!(crate::support::ask_of(&limiter, &pairs, 1).is_allowed());
    }
    let evicted: u64 = limiter.limits().iter().map(|limit| limit.counts.evicted).sum();
    assert!(evicted > 0);
    // Without the other limit there is room, and nothing else has changed.
    limiter.replace(crate::support::limits(&[api("10/s", 10)])).expect("sound");
    hand.turn_back(crate::support::nanos(100));
    assert!(ask(&limiter, "c", 10).is_allowed());
}
