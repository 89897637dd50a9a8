//! Credit cells under many threads: what passed is what was taken, to the unit.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tollgate::{Charged, Credits, Drained, FleetLimitId, Instant, KeyId, Permit};

const THREADS: u64 = 4;
const KEYS: u64 = 24;

fn key(n: u64) -> KeyId {
    KeyId::from_bits(n << 32 | 2, n as u32)
}

/// What the writer knows of a key.
#[derive(Debug, Default, Clone, Copy)]
struct Known {
    taken: u64,
    returned: u64,
    denied: u64,
    ceiling: u64,
}

/// Sums over all cells, those that left included.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    passed: u64,
    denied: u64,
    refunded: u64,
}

/// The driver: drains, and permits a little now and then; returns some; lets cells leave.
#[derive(Default)]
struct Writer {
    known: HashMap<KeyId, Known>,
    sums: Sums,
    turn: u64,
}

impl Writer {
    fn drain(&mut self, credits: &Credits, now: u64) {
        let (known, sums) = (&mut self.known, &mut self.sums);
        credits.drain(Instant::from_nanos(now), |drained: Drained| {
            if let Some(base) = drained.base {
                let began = Known { taken: base, ceiling: base, ..Known::default() };
                assert!(known.insert(drained.key, began).is_none(), "two cells of one key");
            }
            let cell = known.get_mut(&drained.key).expect("it said that it is new");
            assert!(drained.taken <= cell.ceiling, "{drained:?} of {cell:?}");
            sums.passed += drained.taken - cell.taken - cell.returned;
            sums.denied += drained.denied - cell.denied;
            sums.refunded += drained.refund.map_or(0, |(units, _)| units);
            *cell = Known { taken: drained.taken, returned: 0, denied: drained.denied, ..*cell };
        });
    }

    fn turn(&mut self, credits: &Credits, now: u64, evicts: bool) {
        self.drain(credits, now);
        self.turn += 1;
        let key = key(self.turn % KEYS);
        let Some(cell) = self.known.get_mut(&key) else { return };
        if evicts && self.turn.is_multiple_of(5) && credits.evict(key, cell.taken + cell.returned) {
            assert_eq!(cell.returned, 0, "a return makes a cell dirty");
            self.known.remove(&key);
            return;
        }
        // Of what was permitted before, a part is taken back now and then.
        let floor = if self.turn.is_multiple_of(3) { cell.ceiling } else { cell.taken };
        cell.ceiling = cell.ceiling.max(floor) + self.turn % 40;
        let deadline = Instant::from_nanos(now + 500);
        let permit = Permit {
            floor,
            ceiling: cell.ceiling,
            deadline,
            remaining: 0,
            free: 0,
            word_until: deadline,
        };
        cell.returned += credits.permit(key, &permit).expect("it was drained");
    }
}

/// Four threads that charge and give back while a writer works; what they counted, and what it saw.
fn together(evicts: bool) -> (Sums, Sums) {
    let (credits, clock) = (Credits::new(KEYS), AtomicU64::new(0));
    let done = AtomicBool::new(false);
    let ask = |thread: u64| {
        let mut own = Sums::default();
        for turn in 0_u64.. {
            // The writer may come late.
            if turn >= 60_000 && own.passed > 0 {
                break;
            }
            let (key, cost) = (key((turn * 7 + thread * 5 + turn / 64) % KEYS), 1 + turn % 3);
            let now = Instant::from_nanos(clock.load(Ordering::Relaxed));
            if !matches!(credits.charge(key, FleetLimitId(1), cost, now), Charged::Allowed { .. }) {
                own.denied += cost;
                continue;
            }
            own.passed += cost;
            if turn.is_multiple_of(4) {
                credits.refund(key, 1, now, now);
                own.refunded += 1;
            }
        }
        own
    };
    std::thread::scope(|scope| {
        let (credits, clock, done) = (&credits, &clock, &done);
        let writer = scope.spawn(move || {
            let mut writer = Writer::default();
            while !done.load(Ordering::Acquire) {
                writer.turn(credits, clock.fetch_add(7, Ordering::Relaxed), evicts);
            }
            writer.drain(credits, 0);
            writer.sums
        });
        let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || ask(n))).collect();
        let mut sums = Sums::default();
        for thread in threads {
            let own = thread.join().expect("no panic");
            sums.passed += own.passed;
            sums.denied += own.denied;
            sums.refunded += own.refunded;
        }
        done.store(true, Ordering::Release);
        (sums, writer.join().expect("no panic"))
    })
}

#[test]
fn threads_and_a_writer_agree_on_every_unit() {
    let (counted, drained) = together(false);
    assert_eq!(counted, drained);
    assert!(counted.passed > 0);
}

#[test]
fn cells_that_leave_and_come_back_lose_no_unit_that_passed() {
    let (counted, drained) = together(true);
    assert_eq!(counted.passed, drained.passed);
    // A denial or a refund may meet a cell that is just leaving.
    assert!(drained.denied <= counted.denied);
    assert!(drained.refunded <= counted.refunded);
}
