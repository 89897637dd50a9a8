//! Every interleaving of two threads on a table of two slots.

use loom::sync::Arc;
use loom::thread;

use super::*;

const A: KeyId = KeyId { high: 2, low: 7 };
const B: KeyId = KeyId { high: 3, low: 7 };
const PLAIN: Meta = Meta::FREE;

/// What a limiter does: a state is the units spent, and a key without units is as new.
fn charge(table: &Table, key: KeyId, limit: u64) -> Result<bool, Full> {
    // As `plain` does it.
    if let Some((slot, state)) = table.read_as(table.home(key), &Mark::new(key, PLAIN))
        && state < limit
        && slot.exchange(state, state + 1)
    {
        return Ok(true);
    }
    loop {
        let Some(found) = table.find(key) else {
            let mut locked = table.lock(key);
            if locked.find(key).is_none() {
                let now = Instant::ZERO;
                return locked.add(key, PLAIN, 1, now, |_, state| state == 0).map(|_| true);
            }
            continue;
        };
        // A converted key counts in sixteenths.
        let unit = if found.meta == PLAIN { 1 } else { 16 };
        if found.state + unit > limit * unit {
            return Ok(false);
        }
        if table.exchange(&found, found.state + unit) {
            return Ok(true);
        }
    }
}

fn give_back(table: &Table, key: KeyId) {
    while let Some(found) = table.find(key) {
        if table.exchange(&found, found.state - 1) {
            return;
        }
    }
}

fn state(table: &Table, key: KeyId) -> Option<u64> {
    table.find(key).map(|found| found.state)
}

/// Runs both at once, in every order, on a table in which A has spent `spent`.
fn race(
    spent: u64,
    first: impl Fn(&Table) -> bool + Copy + Send + Sync + 'static,
    second: impl Fn(&Table) -> bool + Copy + Send + Sync + 'static,
    check: impl Fn(&Table, bool, bool) + Sync + Send + 'static,
) {
    loom::model(move || {
        let table = Arc::new(Table::<()>::new(1));
        let added = table.lock(A).add(A, PLAIN, spent, Instant::ZERO, |_, _| false);
        assert_eq!(added, Ok(0));
        let other = {
            let table = Arc::clone(&table);
            thread::spawn(move || second(&table))
        };
        let one = first(&table);
        let two = other.join().expect("no panic");
        check(&table, one, two);
    });
}

#[test]
fn loom_two_charges_of_the_last_unit_are_one() {
    let last = |table: &Table| charge(table, A, 3) == Ok(true);
    race(2, last, last, |table, one, two| {
        assert!(one != two);
        assert_eq!((state(table, A), table.used()), (Some(3), 1));
    });
}

#[test]
fn loom_a_charge_and_an_undo_lose_nothing() {
    let charge = |table: &Table| charge(table, A, 9) == Ok(true);
    let undo = |table: &Table| {
        give_back(table, A);
        true
    };
    race(5, charge, undo, |table, _, _| {
        assert_eq!((state(table, A), table.used()), (Some(5), 1));
    });
}

#[test]
fn loom_two_first_charges_make_one_cell() {
    loom::model(|| {
        let table = Arc::new(Table::<()>::new(1));
        let other = {
            let table = Arc::clone(&table);
            thread::spawn(move || charge(&table, A, 9))
        };
        assert_eq!(charge(&table, A, 9), Ok(true));
        assert_eq!(other.join().expect("no panic"), Ok(true));
        assert_eq!(state(&table, A), Some(2));
        assert_eq!(table.used(), 1);
    });
}

#[test]
fn loom_an_eviction_takes_no_charge_with_it() {
    let first = |table: &Table| charge(table, A, 9) == Ok(true);
    let second = |table: &Table| charge(table, B, 9) == Ok(true);
    race(0, first, second, |table, one, two| {
        // There is room for one: whoever was charged is there with exactly its charge.
        assert!(one || two);
        assert_eq!(one, state(table, A) == Some(1));
        assert_eq!(two, state(table, B).is_some());
        assert!(state(table, B).is_none_or(|spent| spent == 1));
    });
}

#[test]
fn loom_a_conversion_takes_no_charge_with_it() {
    let charge = |table: &Table| charge(table, A, 9) == Ok(true);
    let convert = |table: &Table| {
        table.sweep(|_, _, state| Visit::Move(Meta::new(1, false), state * 16));
        true
    };
    race(5, charge, convert, |table, _, _| {
        let found = table.find(A).expect("kept");
        assert_eq!((found.meta, found.state), (Meta::new(1, false), 6 * 16));
    });
}
