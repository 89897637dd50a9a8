//! Every interleaving of two threads on a table with room for one credit cell, or two.

use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;

use std::time::Duration;

use super::*;
use crate::cell::Counter;
use crate::tally::{Leak, Meets, WallTime, Window};

const LIMIT: FleetLimitId = FleetLimitId(7);
const A: KeyId = KeyId { high: 2, low: 7 };
const B: KeyId = KeyId { high: 3, low: 7 };
/// Before the first deadline, at it, and before the second.
const EARLY: Instant = Instant::from_nanos(9);
const EXPIRED: Instant = Instant::from_nanos(10);
const FIRST: Instant = EXPIRED;
const SECOND: Instant = Instant::from_nanos(20);

fn all(credits: &Credits) -> Vec<Drained> {
    let mut drained = Vec::new();
    credits.drain(Instant::ZERO, |one| drained.push(one));
    drained
}

fn permit(floor: u64, ceiling: u64, deadline: Instant) -> Permit {
    Permit { floor, ceiling, deadline, remaining: 0, free: 0, word_until: deadline }
}

fn is_allowed(charged: Charged) -> bool {
    matches!(charged, Charged::Allowed { .. })
}

/// Runs both at once, in every order, on cells for these keys: begun at 0 with one unit denied, met
/// by the writer, and clean, with `ceiling` positions permitted until [`FIRST`].
fn race<T: Send + 'static, U>(
    keys: &'static [KeyId],
    ceiling: u64,
    before: impl Fn(&Credits) + Send + Sync + 'static,
    thread: impl Fn(&Credits) -> T + Copy + Send + Sync + 'static,
    writer: impl Fn(&Credits) -> U + Send + Sync + 'static,
    check: impl Fn(&Credits, T, U) + Send + Sync + 'static,
) {
    race_in(&Builder::new(), keys, ceiling, before, thread, writer, check);
}

/// As [`race`], with at most as many changes of the thread in one run as the builder says.
fn race_in<T: Send + 'static, U>(
    builder: &Builder,
    keys: &'static [KeyId],
    ceiling: u64,
    before: impl Fn(&Credits) + Send + Sync + 'static,
    thread: impl Fn(&Credits) -> T + Copy + Send + Sync + 'static,
    writer: impl Fn(&Credits) -> U + Send + Sync + 'static,
    check: impl Fn(&Credits, T, U) + Send + Sync + 'static,
) {
    builder.check(move || {
        let credits = Arc::new(Credits::new(keys.len().max(1) as u64));
        for key in keys {
            assert_eq!(credits.charge(*key, LIMIT, 1, EARLY), NEW);
        }
        all(&credits);
        for key in keys {
            assert_eq!(credits.permit(*key, &permit(0, ceiling, FIRST)), Some(0));
        }
        before(&credits);
        let other = {
            let credits = Arc::clone(&credits);
            thread::spawn(move || thread(&credits))
        };
        let two = writer(&credits);
        let one = other.join().expect("no panic");
        check(&credits, one, two);
    });
}

fn nothing(_: &Credits) {}

const NEW: Charged = Charged::Stale { is_new: true };

/// How far A was taken, as the writer sees it when all is over.
fn taken(credits: &Credits) -> u64 {
    let place = credits.table.find(A).expect("it stays").place;
    credits.table.slot(place).position().taken
}

#[test]
fn loom_a_charge_and_a_return_never_have_one_position_both() {
    let charge = |credits: &Credits| is_allowed(credits.charge(A, LIMIT, 2, EARLY));
    let writer = |credits: &Credits| credits.permit(A, &permit(3, 3, FIRST)).expect("met");
    race(&[A], 3, nothing, charge, writer, |credits, allowed, returned| {
        assert_eq!(2 * u64::from(allowed) + returned, 3);
        assert_eq!(taken(credits), 3);
    });
}

#[test]
fn loom_two_charges_of_the_last_position_are_one() {
    let charge = |credits: &Credits| is_allowed(credits.charge(A, LIMIT, 2, EARLY));
    race(&[A], 3, nothing, charge, charge, |credits, one, two| {
        assert!(one != two);
        assert_eq!(taken(credits), 2);
        let drained = all(credits);
        assert_eq!((drained.len(), drained[0].taken, drained[0].denied), (1, 2, 1 + 2));
    });
}

#[test]
fn loom_a_new_deadline_comes_with_its_ceiling() {
    let before = |credits: &Credits| assert!(is_allowed(credits.charge(A, LIMIT, 1, EARLY)));
    let charge = |credits: &Credits| credits.charge(A, LIMIT, 1, EXPIRED);
    let writer = |credits: &Credits| credits.permit(A, &permit(0, 2, SECOND));
    race(&[A], 1, before, charge, writer, |credits, charged, returned| {
        assert_eq!(returned, Some(0));
        // Before the permission or after it; never beside the old ceiling.
        assert!(charged == STALE || is_allowed(charged), "{charged:?}");
        assert_eq!(taken(credits), 1 + u64::from(is_allowed(charged)));
    });
}

#[test]
fn loom_no_charge_passes_above_what_is_permitted() {
    let charge = |credits: &Credits| u64::from(is_allowed(credits.charge(A, LIMIT, 2, EARLY)));
    let twice = move |credits: &Credits| charge(credits) + charge(credits);
    let writer = |credits: &Credits| credits.permit(A, &permit(0, 3, FIRST));
    race(&[A], 1, nothing, twice, writer, |credits, passed, _| {
        assert!(passed <= 1);
        assert_eq!(taken(credits), 2 * passed);
    });
}

#[test]
fn loom_positions_of_an_expired_permission_are_returned_and_never_charged() {
    let charge = |credits: &Credits| credits.charge(A, LIMIT, 1, EXPIRED);
    let writer = |credits: &Credits| credits.permit(A, &permit(2, 3, SECOND));
    race(&[A], 2, nothing, charge, writer, |credits, charged, returned| {
        assert_eq!(returned, Some(2));
        assert!(charged == STALE || is_allowed(charged), "{charged:?}");
        assert_eq!(taken(credits), 2 + u64::from(is_allowed(charged)));
    });
}

#[test]
fn loom_a_charge_before_the_deadline_is_below_the_floor_or_above_it() {
    let charge = |credits: &Credits| u64::from(is_allowed(credits.charge(A, LIMIT, 1, EARLY)));
    let writer = |credits: &Credits| credits.permit(A, &permit(2, 3, SECOND)).expect("met");
    race(&[A], 2, nothing, charge, writer, |credits, passed, returned| {
        // Between the return and the new ceiling nothing is left.
        assert_eq!(taken(credits), passed + returned);
        assert!((2..=3).contains(&taken(credits)));
    });
}

#[test]
fn loom_a_charge_of_a_cell_that_left_is_not_made_on_its_successor() {
    let charge = |credits: &Credits| credits.charge(A, LIMIT, 1, EARLY);
    let writer = |credits: &Credits| {
        let left = credits.evict(A, 0);
        if left {
            // In the same place, unless A is faster and comes back.
            let other = credits.charge(B, LIMIT, 1, EARLY);
            assert!(other == NEW || other == Charged::Full);
        }
        (left, all(credits))
    };
    // All orders would take minutes; what there is to see takes two changes.
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    race_in(&builder, &[A], 2, nothing, charge, writer, |credits, charged, (left, drained)| {
        assert_eq!(is_allowed(charged), !left, "{charged:?}");
        let drained = drained.into_iter().chain(all(credits));
        for one in drained.filter(|_| left) {
            assert!(one.taken > 0 && one.base.is_none_or(|base| base == one.taken), "{one:?}");
        }
        assert_eq!(credits.used(), 1);
    });
}

#[test]
fn loom_a_refund_of_a_cell_that_left_is_not_made_on_its_successor() {
    let refund = |credits: &Credits| credits.refund(A, 1, EARLY, EARLY);
    let writer = |credits: &Credits| {
        if credits.evict(A, 0) {
            assert_eq!(credits.charge(B, LIMIT, 1, EARLY), NEW);
        }
    };
    race(&[A], 2, nothing, refund, writer, |credits, (), ()| {
        for one in all(credits) {
            assert_eq!(one.refund.is_some(), one.key == A);
        }
    });
}

#[test]
fn loom_a_drain_that_reports_units_reports_the_oldest_charge_behind_them() {
    // Steps of 2^22 ns: the younger charge is given back first.
    const OLD: Instant = Instant::from_nanos(1 << 22);
    const YOUNG: Instant = Instant::from_nanos(2 << 22);
    const NOW: Instant = Instant::from_nanos(3 << 22);
    let before = |credits: &Credits| credits.refund(A, 1, YOUNG, NOW);
    let refund = |credits: &Credits| credits.refund(A, 2, OLD, NOW);
    race(&[A], 2, before, refund, all, |credits, (), first| {
        let reported: Vec<_> =
            first.into_iter().chain(all(credits)).filter_map(|one| one.refund).collect();
        let apart = reported == [(1, YOUNG), (2, OLD)];
        assert!(apart || reported == [(3, OLD)], "{reported:?}");
    });
}

#[test]
fn loom_units_given_back_are_among_those_taken() {
    // Dirty without a unit taken, so that the drain may come before the charge.
    let before = |credits: &Credits| assert_eq!(credits.charge(A, LIMIT, 1, EXPIRED), STALE);
    let thread = |credits: &Credits| {
        assert!(is_allowed(credits.charge(A, LIMIT, 1, EARLY)));
        credits.refund(A, 1, EARLY, EARLY);
    };
    race(&[A], 2, before, thread, all, |credits, (), first| {
        let mut refunded = 0;
        for one in first.into_iter().chain(all(credits)) {
            refunded += one.refund.map_or(0, |(units, _)| units);
            assert!(refunded <= one.taken, "{one:?}");
        }
        assert_eq!(refunded, 1);
    });
}

/// The last that was said of A.
fn last(first: Vec<Drained>, credits: &Credits) -> Drained {
    first.into_iter().chain(all(credits)).last().expect("it was dirty")
}

#[test]
fn loom_a_charge_during_a_drain_is_drained_then_or_next_time() {
    let before = |credits: &Credits| assert!(is_allowed(credits.charge(A, LIMIT, 1, EARLY)));
    let charge = |credits: &Credits| assert!(is_allowed(credits.charge(A, LIMIT, 1, EARLY)));
    race(&[A], 2, before, charge, all, |credits, (), first| {
        assert_eq!(last(first, credits).taken, 2);
        assert_eq!(all(credits), vec![]);
    });
}

#[test]
fn loom_a_denial_during_a_drain_is_drained_then_or_next_time() {
    let before = |credits: &Credits| assert_eq!(credits.charge(A, LIMIT, 1, EXPIRED), STALE);
    let denied = |credits: &Credits| assert_eq!(credits.charge(A, LIMIT, 3, EXPIRED), STALE);
    race(&[A], 2, before, denied, all, |credits, (), first| {
        assert_eq!(last(first, credits).denied, 1 + 1 + 3);
        assert_eq!(all(credits), vec![]);
    });
}

#[test]
fn loom_two_cells_that_become_dirty_are_both_listed() {
    let charge = |credits: &Credits| assert!(is_allowed(credits.charge(A, LIMIT, 1, EARLY)));
    let writer = |credits: &Credits| {
        assert!(is_allowed(credits.charge(B, LIMIT, 1, EARLY)));
        all(credits)
    };
    race(&[A, B], 2, nothing, charge, writer, |credits, (), first| {
        let mut keys: Vec<_> = first.into_iter().chain(all(credits)).map(|one| one.key).collect();
        keys.sort();
        assert_eq!(keys, [A, B]);
    });
}

#[test]
fn loom_two_first_charges_make_one_cell_that_is_listed_once() {
    let charge = |credits: &Credits| credits.charge(A, LIMIT, 1, EARLY);
    race(&[], 0, nothing, charge, charge, |credits, one, two| {
        // One of them is told that it is new.
        assert!((one, two) == (NEW, STALE) || (one, two) == (STALE, NEW), "{one:?} {two:?}");
        let drained = all(credits);
        assert_eq!((drained.len(), drained[0].base, drained[0].denied), (1, Some(0), 2));
        assert_eq!(credits.used(), 1);
    });
}

/// A writer that drains when it is woken and at no other time is shown everything.
#[test]
fn loom_whatever_becomes_dirty_after_a_drain_wakes() {
    // All orders would take minutes; what there is to see takes two changes.
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let (credits, woken) = (Arc::new(Credits::new(2)), Arc::new(Counter::default()));
        [A, B].into_iter().for_each(|key| assert_eq!(credits.charge(key, LIMIT, 1, EARLY), NEW));
        all(&credits);
        let count = woken.clone();
        assert!(credits.on_dirty(Box::new(move || count.add(1))));
        let other = {
            let credits = Arc::clone(&credits);
            thread::spawn(move || assert_eq!(credits.charge(A, LIMIT, 1, EARLY), STALE))
        };
        assert_eq!(credits.charge(B, LIMIT, 1, EARLY), STALE);
        let seen = woken.get();
        let mut shown = all(&credits).len();
        other.join().expect("no panic");
        if woken.get() > seen {
            shown += all(&credits).len();
        }
        assert_eq!((shown, all(&credits).len()), (2, 0));
    });
}

/// Two units a second, of which one was counted before and read meanwhile: whatever a charge sees
/// of the estimate that brings that, one more passes at most.
#[test]
fn loom_what_was_counted_is_in_the_estimate_or_on_top_of_it() {
    let window = Window::new(2, Duration::from_secs(1), Meets::Passes).expect("a window");
    let charge = move |credits: &Credits| {
        let leak = Leak::new(window);
        let asked = Asked::counted(A, LIMIT, 1, &leak);
        credits.charge_known(&asked, EARLY).is_some_and(is_allowed)
    };
    loom::model(move || {
        let credits = Arc::new(Credits::new(1));
        let leak = Leak::new(window);
        assert_eq!(credits.note(&Asked::counted(A, LIMIT, 1, &leak).waiting()), Ok(true));
        let base = all(&credits)[0].taken;
        assert!(charge(&credits));
        assert_eq!(all(&credits)[0].taken, base + 1);
        let other = {
            let credits = Arc::clone(&credits);
            thread::spawn(move || [charge(&credits), charge(&credits)])
        };
        let read = window.estimate(0, 1, WallTime::from_nanos(0));
        let (until, most) = (leak.leaks_until(read, EARLY), leak.units(read));
        credits.estimate(A, until, most, base + 1);
        let passed = other.join().expect("no panic");
        assert!(!(passed[0] && passed[1]), "three of two");
        let once = passed[0] || passed[1] || charge(&credits);
        assert!(once, "the second is denied for no longer than that");
    });
}
