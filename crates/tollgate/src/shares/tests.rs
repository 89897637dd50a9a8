//! Cells that share a limit: what decides, what is counted, what a change of either leaves.

use std::thread;

use super::*;
use crate::cell::Counter;

const KEY: KeyId = KeyId { high: 9, low: 9 };
const OF: Dividing = Dividing { limit: FleetLimitId(3), per_second: 100.0, burst: 100, shift: 24 };

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn asks(key: KeyId, cost: u64) -> Asks<'static> {
    Asks { key, cost, of: &OF, is_global: true, is_spare: false }
}

fn charge(shares: &Shares, cost: u64, now: Instant) -> bool {
    let asks = asks(KEY, cost);
    let is_allowed = shares.charge(&asks, now).expect("room").is_allowed;
    if !is_allowed {
        shares.refuse(&asks, now).expect("room");
    }
    is_allowed
}

fn spend_all(shares: &Shares, now: Instant) -> u64 {
    (0..).take_while(|_| charge(shares, 1, now)).count() as u64
}

fn drain(shares: &Shares) -> Vec<DrainedShare> {
    let mut drained = Vec::new();
    shares.drain(|one| drained.push(one));
    drained
}

fn given(global: Option<(f64, u64)>, is_global_sound: bool) -> Given {
    Given { local: 25.0, local_burst: 25, global, is_global_sound }
}

/// Of four nodes, one whose cell the writer has met.
fn met() -> Shares {
    let shares = Shares::new(10);
    shares.set_members(4);
    assert!(charge(&shares, 1, at(0)));
    assert!(drain(&shares)[0].is_new);
    shares
}

#[test]
fn before_it_is_given_a_part_a_node_has_an_equal_one() {
    let shares = Shares::new(10);
    shares.set_members(4);
    assert_eq!(spend_all(&shares, at(0)), 25);
    assert_eq!(spend_all(&shares, at(1_001)), 25);
    assert_eq!(equal_part(5.0, 5, 8), (0.625, 1));
}

/// The bucket of a limiter that had never been told a rate had begun to fill when it was first
/// asked, and was empty when it was told one (cadence#6280).
#[test]
fn the_first_part_comes_with_a_full_bucket() {
    let shares = met();
    assert_eq!(spend_all(&shares, at(0)), 24);
    shares.give(KEY, &given(Some((60.0, 60)), true), at(1));
    assert_eq!(spend_all(&shares, at(2)), 60);
    assert_eq!(spend_all(&shares, at(503)), 30);
}

#[test]
fn what_decides_may_change_without_a_second_burst() {
    let shares = met();
    shares.give(KEY, &given(Some((60.0, 60)), true), at(1));
    assert_eq!(spend_all(&shares, at(1_000)), 60);
    // The local bucket was spent as well: of its 25 nothing is left.
    shares.give(KEY, &given(Some((60.0, 60)), false), at(1_000));
    assert_eq!(spend_all(&shares, at(1_000)), 0);
    assert_eq!(spend_all(&shares, at(2_003)), 25);
    // And what it passed, and denied, was taken from the global one, which had refilled.
    shares.give(KEY, &given(Some((60.0, 60)), true), at(2_003));
    assert_eq!(spend_all(&shares, at(2_003)), 34);
    shares.give(KEY, &given(Some((60.0, 60)), false), at(3_100));
    assert_eq!(spend_all(&shares, at(3_100)), 25);
}

#[test]
fn a_mode_that_goes_by_equal_parts_looks_at_the_other_bucket_beside_it() {
    let shares = met();
    shares.give(KEY, &given(Some((10.0, 10)), true), at(1));
    drain(&shares);
    let local = Asks { is_global: false, ..asks(KEY, 1) };
    let passed = (0..100).filter(|_| {
        let passes = shares.charge(&local, at(2_000)).expect("room").is_allowed;
        if !passes {
            shares.refuse(&local, at(2_000)).expect("room");
        }
        passes
    });
    assert_eq!(passed.count(), 25);
    let [drained] = drain(&shares)[..] else { panic!("one cell") };
    // Of the 25 that passed the global bucket would have had 10.
    assert_eq!((drained.allowed, drained.denied), (26, 75));
    assert_eq!((drained.other_denied, drained.other_allowed), (15, 0));
}

#[test]
fn what_is_given_back_was_not_asked_for() {
    let shares = met();
    shares.give(KEY, &given(Some((60.0, 60)), true), at(1));
    assert_eq!(spend_all(&shares, at(1_000)), 60);
    shares.give_back(KEY, 20, at(1_000), at(1_000));
    assert_eq!(spend_all(&shares, at(1_000)), 20);
    let [drained] = drain(&shares)[..] else { panic!("one cell") };
    // 1 before it was given anything, and 60 of which 20 were spent twice.
    assert_eq!((drained.allowed, drained.denied), (61, 2));
}

#[test]
fn a_cell_is_shown_once_and_leaves_only_as_it_was_shown() {
    let shares = met();
    assert_eq!(drain(&shares), []);
    assert!(charge(&shares, 2, at(5)));
    assert!(!shares.evict(KEY, u64::MAX) && !shares.evict(KEY, 0), "it is dirty");
    let [drained] = drain(&shares)[..] else { panic!("one cell") };
    assert_eq!((drained.key, drained.limit, drained.is_new), (KEY, OF.limit, false));
    assert_eq!((drained.allowed, drained.denied), (3, 0));
    assert!(!shares.evict(KEY, drained.position + 1));
    assert!(shares.evict(KEY, drained.position) && !shares.has_cell(KEY));
    assert_eq!(shares.used(), 0);
}

#[test]
fn a_full_table_has_room_for_the_key_that_stands_in() {
    let shares = Shares::new(1);
    let key = |n: u64| KeyId { high: 2 + n, low: 1 };
    assert!(shares.charge(&asks(key(0), 1), at(0)).is_ok());
    assert!(shares.charge(&asks(key(1), 1), at(0)).is_err());
    let spare = Asks { is_spare: true, ..asks(key(1), 1) };
    assert!(shares.charge(&spare, at(0)).is_ok());
}

/// Sixteen threads and one that collects: what was collected is what was called.
#[test]
fn every_call_is_counted_once() {
    let shares = Shares::new(4);
    let (allowed, denied, done) = (Counter::default(), Counter::default(), Counter::default());
    let mut last = None;
    thread::scope(|scope| {
        for thread in 0..16_u64 {
            let (shares, allowed, denied, done) = (&shares, &allowed, &denied, &done);
            scope.spawn(move || {
                for call in 0..5_000 {
                    let passed = charge(shares, 1, at(call + thread));
                    let count = if passed { allowed } else { denied };
                    count.add(1);
                }
                done.add(1);
            });
        }
        let mut rate = 1.0;
        loop {
            let ends = done.get() == 16;
            shares.drain(|one| {
                let before: Option<DrainedShare> = last.replace(one);
                assert!(before.is_none_or(|b| b.allowed <= one.allowed && b.denied <= one.denied));
            });
            rate = if rate > 900.0 { 1.0 } else { rate * 1.1 };
            shares.give(KEY, &given(Some((rate, 7)), true), at(1));
            if ends {
                break;
            }
        }
    });
    shares.drain(|one| last = Some(one));
    let last = last.expect("a cell");
    let counted = (last.allowed, last.denied);
    assert_eq!(counted, (allowed.get(), denied.get()));
    assert_eq!(counted.0 + counted.1, 16 * 5_000);
}
