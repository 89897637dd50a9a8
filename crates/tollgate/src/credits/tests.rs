//! Credit cells against plain sums, and their corners.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::cell::Counter;

fn key(n: u64) -> KeyId {
    KeyId { high: 2 + n, low: n as u32 }
}

const LIMIT: FleetLimitId = FleetLimitId(7);
/// Keys of a random run.
const KEYS: usize = 4;
const MINUTE: u64 = 60_000_000_000;
const NEW: Charged = Charged::Stale { is_new: true };

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn all(credits: &Credits, now: Instant) -> Vec<Drained> {
    let mut drained = Vec::new();
    credits.drain(now, |one| drained.push(one));
    drained
}

/// A key whose cell the writer has met; returns where it began.
fn met(credits: &Credits, n: u64) -> u64 {
    assert_eq!(credits.charge(key(n), LIMIT, 1, at(0)), NEW);
    let drained = all(credits, at(0));
    drained.iter().find(|one| one.key == key(n)).and_then(|one| one.base).expect("a new cell")
}

fn permit(floor: u64, ceiling: u64, deadline: u64) -> Permit {
    let word_until = at(deadline);
    Permit { floor, ceiling, deadline: at(deadline), remaining: 100, free: 90, word_until }
}

#[test]
fn a_cell_begins_above_every_position_of_those_that_left() {
    let credits = Credits::new(4);
    let mut highest = None;
    for (n, used) in [(0, 7), (1, 3), (0, 0), (2, 5), (0, 0)] {
        let base = met(&credits, n);
        assert!(highest.is_none_or(|highest| base > highest), "{base} after {highest:?}");
        credits.permit(key(n), &permit(base, base + used, 10)).expect("met");
        if used > 0 {
            let passed = credits.charge(key(n), LIMIT, used, at(5));
            assert_eq!(passed, Charged::Allowed { remaining: 100 - used });
        }
        assert!(!credits.evict(key(n), base + used + 1));
        assert_eq!(credits.evict(key(n), base + used), used == 0, "not while it is dirty");
        all(&credits, at(5));
        assert_eq!(credits.evict(key(n), base + used), used > 0);
        highest = Some(base + used);
    }
    assert_eq!(credits.used(), 0);
}

#[test]
fn a_permission_never_shrinks() {
    let credits = Credits::new(4);
    let base = met(&credits, 0);
    assert_eq!(credits.permit(key(0), &permit(base, base + 5, 10)), Some(0));
    assert_eq!(credits.permit(key(0), &permit(base, base + 2, 20)), Some(0));
    assert_eq!(credits.charge(key(0), LIMIT, 4, at(15)), Charged::Allowed { remaining: 96 });
    assert_eq!(credits.permit(key(0), &permit(base, base + 9, 3)), Some(0));
    assert_eq!(credits.charge(key(0), LIMIT, 5, at(19)), Charged::Allowed { remaining: 95 });
    assert_eq!(credits.charge(key(0), LIMIT, 1, at(19)), Charged::OverLimit { remaining: 95 });
    assert_eq!(credits.charge(key(0), LIMIT, 1, at(20)), STALE);
}

#[test]
fn a_permission_for_a_cell_that_left_says_nothing_of_its_successor() {
    let credits = Credits::new(4);
    let base = met(&credits, 0);
    assert!(credits.evict(key(0), base));
    assert_eq!(credits.permit(key(0), &permit(base, base + 5, 10)), None);
    assert_eq!(credits.charge(key(0), LIMIT, 1, at(5)), NEW);
    assert_eq!(credits.permit(key(0), &permit(base, base + 5, 10)), None);
    assert_eq!(credits.charge(key(0), LIMIT, 1, at(5)), STALE);
    let drained = all(&credits, at(5));
    assert_eq!((drained.len(), drained[0].denied), (1, 2));
    assert!(credits.permit(key(0), &permit(base, base + 5, 10)).is_some());
}

#[test]
fn a_cost_of_nothing_touches_nothing() {
    let credits = Credits::new(1);
    assert_eq!(credits.charge(key(0), LIMIT, 0, at(0)), STALE);
    assert_eq!((credits.used(), all(&credits, at(0))), (0, vec![]));
    let base = met(&credits, 0);
    credits.permit(key(0), &permit(base, base + 5, 10)).expect("met");
    assert_eq!(credits.charge(key(0), LIMIT, 0, at(5)), Charged::Allowed { remaining: 100 });
    assert_eq!(credits.peek(key(0), 6, at(5)), Charged::OverLimit { remaining: 100 });
    assert_eq!(credits.peek(key(1), 1, at(5)), Charged::Full);
    assert_eq!(credits.peek(key(0), 1, at(10)), STALE);
    assert_eq!(all(&credits, at(10)), vec![]);
}

#[test]
fn a_full_table_takes_no_key_until_one_leaves() {
    let credits = Credits::new(100);
    let bases: Vec<u64> = (0..100).map(|n| met(&credits, n)).collect();
    for n in 100..300 {
        assert_eq!(credits.charge(key(n), LIMIT, 1, at(0)), Charged::Full);
    }
    assert_eq!((credits.used(), all(&credits, at(0))), (100, vec![]));
    assert!(credits.evict(key(17), bases[17]));
    assert_eq!(credits.charge(key(100), LIMIT, 1, at(0)), NEW);
    assert_eq!(credits.charge(key(101), LIMIT, 1, at(0)), Charged::Full);
}

#[test]
fn keys_that_stand_in_for_others_find_room_in_a_full_table() {
    let credits = Credits::new(16);
    (0..16).for_each(|n| assert!(met(&credits, n) == 0));
    let asked = |n| Asked::new(key(n), LIMIT, 1).of_spare(key(n));
    for n in 16..credits.keys_max() {
        assert_eq!(credits.charge_as(&asked(n), at(0)), NEW);
        assert_eq!(credits.charge(key(n + 1), LIMIT, 1, at(0)), Charged::Full);
    }
    assert_eq!((credits.keys_max(), credits.used()), (16 + 16 / 8 + 64, credits.keys_max()));
    assert_eq!(credits.charge_as(&asked(1_000), at(0)), Charged::Full);
}

#[test]
fn who_waits_is_told_of_as_nobody_who_was_denied() {
    let credits = Credits::new(4);
    assert_eq!(credits.charge_or_wait(key(0), LIMIT, 3, at(0)), NEW);
    assert_eq!(credits.charge_or_wait(key(0), LIMIT, 3, at(0)), STALE);
    let drained = all(&credits, at(0));
    let base = drained[0].base.expect("it is new");
    assert_eq!((drained.len(), drained[0].denied, drained[0].refused), (1, 0, 0));
    credits.permit(key(0), &permit(base, base + 5, 10)).expect("met");
    assert_eq!(
        credits.charge_or_wait(key(0), LIMIT, 6, at(5)),
        Charged::OverLimit { remaining: 100 }
    );
    assert_eq!(all(&credits, at(5)), vec![]);
    assert_eq!(credits.charge_or_wait(key(0), LIMIT, 2, at(5)), Charged::Allowed { remaining: 98 });
    assert_eq!(credits.charge_up_to(key(0), LIMIT, 8, at(5)), 3);
    assert_eq!(credits.charge_up_to(key(0), LIMIT, 8, at(5)), 0);
    let drained = all(&credits, at(5));
    assert_eq!((drained[0].taken, drained[0].denied), (base + 5, 0));
}

#[test]
fn a_drain_tells_the_last_cost_that_was_refused_and_by_which_limit() {
    let credits = Credits::new(4);
    for (cost, number) in [(3, 7), (5, 7), (2, 8)] {
        let _ = credits.charge(key(0), FleetLimitId(number), cost, at(0));
    }
    let drained = all(&credits, at(0));
    assert_eq!((drained[0].limit, drained[0].refused), (FleetLimitId(8), 2));
    assert_eq!(drained[0].denied, 3 + 5 + 2);
    let base = drained[0].base.expect("it is new");
    credits.permit(key(0), &permit(base, base + 5, 10)).expect("met");
    assert!(matches!(credits.charge(key(0), LIMIT, 1, at(5)), Charged::Allowed { .. }));
    let drained = all(&credits, at(5));
    assert_eq!((drained[0].limit, drained[0].refused), (FleetLimitId(8), 0));
}

#[test]
fn the_writer_is_woken_once_for_each_drain() {
    let credits = Credits::new(100);
    assert_eq!(credits.charge(key(0), LIMIT, 1, at(0)), NEW);
    let woken = std::sync::Arc::new(Counter::default());
    let counter = woken.clone();
    let count = move || counter.get();
    let wake = move || woken.add(1);
    assert!(credits.on_dirty(Box::new(wake)));
    assert_eq!(count(), 1, "something was dirty already");
    assert!(!credits.on_dirty(Box::new(|| {})), "there is one writer");
    for drains in 1..4 {
        for n in 1..50 {
            let _ = credits.charge(key(n), LIMIT, 1, at(0));
        }
        credits.refund(key(3), 1, at(0), at(0));
        assert_eq!(count(), drains);
        all(&credits, at(0));
    }
}

#[test]
fn lines_and_counts_stop_at_their_ends() {
    let credits = Credits::new(4);
    met(&credits, 0);
    let most = Permit { remaining: u64::MAX, ..permit(u64::MAX, u64::MAX, u64::MAX) };
    assert_eq!(credits.permit(key(0), &most), Some(POSITIONS_MAX));
    let nothing = Charged::OverLimit { remaining: u64::MAX - POSITIONS_MAX };
    assert_eq!(credits.charge(key(0), LIMIT, u64::MAX, at(0)), nothing);
    assert_eq!(credits.charge(key(0), LIMIT, 1, at(0)), nothing);
    let drained = all(&credits, at(0));
    assert_eq!((drained[0].taken, drained[0].denied), (POSITIONS_MAX, 1 + (1 << 40) + 1));
    assert!(credits.evict(key(0), POSITIONS_MAX));
    // Its successor begins beyond the end, where nothing passes any more.
    let base = met(&credits, 0);
    assert_eq!(credits.permit(key(0), &most), Some(0));
    assert!(matches!(credits.charge(key(0), LIMIT, 1, at(0)), Charged::OverLimit { .. }));
    assert!(base > POSITIONS_MAX);
}

#[test]
fn what_is_given_back_is_as_old_as_its_oldest_charge() {
    let credits = Credits::new(4);
    met(&credits, 0);
    // The times of a refund go round in 2^46 ns: on both sides of such an end.
    let (round, step) = (1 << 46, 1 << 22);
    let now = at(3 * round + 50 * step);
    let ages = [60, 49, 70, 10];
    for steps in ages {
        let charged_at = at(now.as_nanos() - steps * step);
        credits.refund(key(0), 1 << 38, charged_at, now);
    }
    let hour = REFUND_AGE_MAX.as_nanos() as u64;
    credits.refund(key(0), 5, at(now.as_nanos() - hour - 1), now);
    let drained = all(&credits, now);
    let oldest = at(now.as_nanos() - 70 * step);
    assert_eq!(drained[0].refund, Some(((1 << 40) - 1, oldest)));
    credits.refund(key(0), 5, at(now.as_nanos() - hour), now);
    let (units, since) = all(&credits, now)[0].refund.expect("not too old");
    assert_eq!(units, 5);
    assert!(now.saturating_since(since) >= REFUND_AGE_MAX);
    credits.refund(key(0), 0, now, now);
    credits.refund(key(1), 5, now, now);
    assert_eq!(all(&credits, now), vec![]);
}

/// A cell as plain sums. Until the writer has met it, nothing but denials can have happened.
#[derive(Debug, Default)]
struct Model {
    is_met: bool,
    is_dirty: bool,
    taken: u64,
    ceiling: u64,
    deadline: u64,
    line: u64,
    denied: u64,
    refused: u64,
    refunds: Vec<(u64, u64)>,
    /// The highest position of a cell that left before it began.
    left: Option<u64>,
}

impl Model {
    fn peek(&self, cost: u64, now: u64) -> Charged {
        let remaining = self.line.saturating_sub(self.taken);
        if now >= self.deadline {
            STALE
        } else if self.taken + cost <= self.ceiling {
            Charged::Allowed { remaining }
        } else {
            Charged::OverLimit { remaining }
        }
    }

    fn charge(&mut self, cost: u64, now: u64) -> Charged {
        let answer = self.peek(cost, now);
        if cost == 0 {
            return answer;
        }
        self.is_dirty = true;
        match answer {
            Charged::Allowed { .. } => {
                self.taken += cost;
                Charged::Allowed { remaining: self.line.saturating_sub(self.taken) }
            }
            denied => {
                (self.denied, self.refused) = (self.denied + cost, cost);
                denied
            }
        }
    }

    /// As much of a cost as is permitted.
    fn part(&mut self, cost: u64, now: u64) -> u64 {
        let free = if now < self.deadline { self.ceiling.saturating_sub(self.taken) } else { 0 };
        let units = cost.min(free);
        self.taken += units;
        self.is_dirty |= units > 0;
        units
    }

    fn permit(&mut self, permit: &Permit) -> Option<u64> {
        if !self.is_met {
            return None;
        }
        let returned = permit.floor.saturating_sub(self.taken);
        self.taken += returned;
        self.is_dirty |= returned > 0;
        self.line = self.taken + permit.remaining;
        self.ceiling = self.ceiling.max(permit.ceiling);
        self.deadline = self.deadline.max(permit.deadline.as_nanos());
        Some(returned)
    }

    /// Holds what was drained against what happened.
    fn drain(&mut self, drained: &Drained) {
        assert!(self.is_dirty);
        assert_eq!(drained.base.is_some(), !self.is_met);
        if let Some(base) = drained.base {
            assert!(self.left.is_none_or(|left| base > left));
            (self.taken, self.ceiling, self.line) = (base, base, base);
        }
        assert_eq!((drained.taken, drained.denied), (self.taken, self.denied));
        assert_eq!((drained.limit, drained.refused), (LIMIT, std::mem::take(&mut self.refused)));
        let units: u64 = self.refunds.iter().map(|(units, _)| units).sum();
        let oldest = self.refunds.iter().map(|(_, charged_at)| *charged_at).min();
        assert_eq!(drained.refund.map(|(units, _)| units), oldest.map(|_| units));
        if let (Some((_, since)), Some(oldest)) = (drained.refund, oldest) {
            assert!(since.as_nanos() <= oldest && oldest - since.as_nanos() < 1 << 22);
        }
        (self.is_met, self.is_dirty) = (true, false);
        self.refunds.clear();
    }
}

#[derive(Debug, Clone)]
enum Step {
    Charge(u64, u64),
    Peek(u64, u64),
    /// As much as is permitted.
    Part(u64, u64),
    Refund(u64, u64, u64),
    Permit(u64, [i64; 3], u64),
    Drain,
    Evict(u64, u64),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let (key, cost) = (0..6_u64, 0..8_u64);
    let moves = [-8_i64..16, -8_i64..32, -50_i64..200];
    prop_oneof![
        6 => (key.clone(), cost.clone()).prop_map(|(key, cost)| Step::Charge(key, cost)),
        1 => (key.clone(), cost.clone()).prop_map(|(key, cost)| Step::Peek(key, cost)),
        1 => (key.clone(), cost.clone()).prop_map(|(key, cost)| Step::Part(key, cost)),
        2 => (key.clone(), cost, 0..2_000_u64).prop_map(|(k, c, age)| Step::Refund(k, c, age)),
        4 => (key.clone(), moves, 0..50_u64).prop_map(|(k, m, r)| Step::Permit(k, m, r)),
        3 => Just(Step::Drain),
        3 => (key, 0..3_u64).prop_map(|(key, off)| Step::Evict(key, off / 2)),
        2 => (0..100_u64).prop_map(Step::Wait),
    ]
}

/// A permission whose floor, ceiling and deadline are so far from where a cell is.
fn permit_near(taken: u64, now: u64, moves: [i64; 3], remaining: u64) -> Permit {
    let [floor, ceiling, _] = moves.map(|by| taken.saturating_add_signed(by));
    let deadline = at(now.saturating_add_signed(moves[2]));
    Permit { floor, ceiling, deadline, remaining, free: remaining / 2, word_until: deadline }
}

/// Runs the steps on both; a minute of waiting is one unit, and the clock starts a little before
/// the times of refunds go round.
fn run(steps: &[Step]) {
    let credits = Credits::new(KEYS as u64);
    let mut cells: BTreeMap<u64, Model> = BTreeMap::new();
    let (mut now, mut evicted) = ((1 << 46) - 30 * MINUTE, None);
    for step in steps {
        match *step {
            Step::Charge(n, cost) if cost > 0 && !cells.contains_key(&n) => {
                let answer = credits.charge(key(n), LIMIT, cost, at(now));
                if cells.len() == KEYS {
                    assert_eq!(answer, Charged::Full);
                } else {
                    let mut cell = Model { left: evicted, ..Model::default() };
                    assert_eq!((answer, STALE), (NEW, cell.charge(cost, now)));
                    cells.insert(n, cell);
                }
            }
            Step::Charge(n, cost) | Step::Peek(n, cost) => {
                let charges = matches!(step, Step::Charge(..));
                let (charge, peek) = (Credits::charge, Credits::peek);
                let answer = match charges {
                    true => charge(&credits, key(n), LIMIT, cost, at(now)),
                    false => peek(&credits, key(n), cost, at(now)),
                };
                let absent = if cells.len() == KEYS { Charged::Full } else { STALE };
                let expected = cells.get_mut(&n).map_or(absent, |cell| {
                    if charges { cell.charge(cost, now) } else { cell.peek(cost, now) }
                });
                assert_eq!(answer, expected);
            }
            Step::Part(n, cost) => {
                let Some(cell) = cells.get_mut(&n) else { continue };
                let units = cell.part(cost, now);
                assert_eq!(credits.charge_up_to(key(n), LIMIT, cost, at(now)), units);
            }
            Step::Refund(n, units, age) => {
                let charged_at = now - age * MINUTE / 20;
                credits.refund(key(n), units, at(charged_at), at(now));
                if let Some(cell) = cells.get_mut(&n).filter(|_| units > 0 && age <= 1_200) {
                    cell.refunds.push((units, charged_at));
                    cell.is_dirty = true;
                }
            }
            Step::Permit(n, moves, remaining) => {
                let cell = cells.get_mut(&n);
                let taken = cell.as_ref().map_or(0, |cell| cell.taken);
                let permit = permit_near(taken, now, moves, remaining);
                let expected = cell.and_then(|cell| cell.permit(&permit));
                assert_eq!(credits.permit(key(n), &permit), expected);
            }
            Step::Drain => {
                let drained = all(&credits, at(now));
                assert_eq!(drained.len(), cells.values().filter(|cell| cell.is_dirty).count());
                for one in drained {
                    cells.get_mut(&(one.key.high - 2)).expect("known").drain(&one);
                }
            }
            Step::Evict(n, off) => {
                let Some(cell) = cells.get(&n).filter(|cell| cell.is_met) else { continue };
                let goes = off == 0 && !cell.is_dirty;
                assert_eq!(credits.evict(key(n), cell.taken + off), goes);
                if goes {
                    evicted = evicted.max(Some(cell.taken));
                    cells.remove(&n);
                }
            }
            Step::Wait(by) => now += by,
        }
        assert_eq!(credits.used(), cells.len() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn any_sequence_of_steps_gives_what_plain_sums_give(
        steps in prop::collection::vec(step(), 0..150),
    ) {
        run(&steps);
    }
}
