//! Every interleaving of a thread and the writer, and of two threads, on one sharing cell.

use loom::sync::Arc;
use loom::thread;

use super::*;

const KEY: KeyId = KeyId { high: 2, low: 7 };
const OF: Dividing = Dividing { limit: FleetLimitId(3), per_second: 1.0, burst: 4, shift: 10 };
const NOW: Instant = Instant::from_nanos(1 << 20);

fn asks(cost: u64) -> Asks<'static> {
    Asks { key: KEY, cost, of: &OF, is_global: true, is_spare: false }
}

fn given(global: Option<(f64, u64)>, is_global_sound: bool) -> Given {
    Given { local: 1.0, local_burst: 4, global, is_global_sound }
}

fn charge(shares: &Shares, cost: u64) -> bool {
    let is_allowed = shares.charge(&asks(cost), NOW).is_ok_and(|answer| answer.is_allowed);
    if !is_allowed {
        let _ = shares.refuse(&asks(cost), NOW);
    }
    is_allowed
}

/// A met cell with one unit spent, three left in the local bucket and two in the global one.
fn cell() -> Arc<Shares> {
    let shares = Arc::new(Shares::new(1));
    assert!(charge(&shares, 1));
    shares.drain(|_| {});
    shares.give(KEY, &given(Some((1.0, 2)), true), NOW);
    shares
}

fn counted(shares: &Shares, seen: &mut Option<DrainedShare>) {
    shares.drain(|one| *seen = Some(one));
}

#[test]
fn loom_a_charge_and_a_collect_count_once() {
    loom::model(|| {
        let shares = cell();
        // Dirty already, so that nobody else lists it.
        assert!(charge(&shares, 1));
        let other = Arc::clone(&shares);
        let charging = thread::spawn(move || charge(&other, 1));
        let mut seen = None;
        counted(&shares, &mut seen);
        assert!(charging.join().expect("no panic"));
        counted(&shares, &mut seen);
        let seen = seen.expect("shown");
        assert_eq!((seen.allowed, seen.denied), (3, 0));
    });
}

#[test]
fn loom_a_denial_and_a_collect_count_once() {
    loom::model(|| {
        let shares = cell();
        let other = Arc::clone(&shares);
        // Above what is left, and the bucket is not full.
        assert!(charge(&shares, 2));
        let charging = thread::spawn(move || charge(&other, 2));
        let mut seen = None;
        counted(&shares, &mut seen);
        assert!(!charging.join().expect("no panic"));
        counted(&shares, &mut seen);
        let seen = seen.expect("shown");
        assert_eq!((seen.allowed, seen.denied), (3, 2));
    });
}

#[test]
fn loom_two_charges_do_not_take_one_unit_twice() {
    loom::model(|| {
        let shares = cell();
        assert!(charge(&shares, 1));
        let other = Arc::clone(&shares);
        let charging = thread::spawn(move || charge(&other, 1));
        let mine = charge(&shares, 1);
        let theirs = charging.join().expect("no panic");
        assert_eq!(u64::from(mine) + u64::from(theirs), 1);
        let mut seen = None;
        counted(&shares, &mut seen);
        let seen = seen.expect("shown");
        assert_eq!((seen.allowed, seen.denied), (3, 1));
    });
}

/// Whatever of a new rate a charge sees, it sees no line that is further on than it was or will be.
#[test]
fn loom_a_rate_that_changes_admits_nothing_that_neither_had() {
    loom::model(|| {
        let shares = cell();
        shares.give(KEY, &given(Some((10.0, 2)), true), NOW);
        assert!(charge(&shares, 2));
        let other = Arc::clone(&shares);
        // 65 ms on, at 10/s: less than a unit was brought, but more than half of one.
        let later = Instant::from_nanos((1 << 20) + (1_000 << 16));
        let charging = thread::spawn(move || {
            other.charge(&asks(1), later).is_ok_and(|answer| answer.is_allowed)
        });
        // From here on 1/s, which began now.
        shares.give(KEY, &given(Some((1.0, 2)), true), later);
        assert!(!charging.join().expect("no panic"));
    });
}

#[test]
fn loom_a_cell_that_is_charged_does_not_leave() {
    loom::model(|| {
        let shares = cell();
        let mut seen = None;
        assert!(charge(&shares, 1));
        counted(&shares, &mut seen);
        let position = seen.expect("shown").position;
        let other = Arc::clone(&shares);
        let charging = thread::spawn(move || charge(&other, 1));
        let gone = shares.evict(KEY, position);
        assert!(charging.join().expect("no panic"), "of its cell, or of a new one");
        let mut seen = None;
        counted(&shares, &mut seen);
        let seen = seen.expect("shown");
        assert_eq!(seen.is_new, gone);
        assert_eq!(seen.allowed, if gone { 1 } else { 3 });
    });
}
