//! A worker against a store that is a map, in made-up time.

use super::*;
use crate::tally::Meets;

const TICK: u64 = 1_000;

/// A worker, the cells of its keys, and what the store answers.
struct Bench {
    worker: Worker,
    store: HashMap<(KeyId, u64), i64>,
    cells: HashMap<KeyId, Cell>,
    millis: u64,
    window: Window,
    on_stale: OnStale,
    outcome: Outcome,
    reads_fail: bool,
    /// A key of which nothing can be read.
    fails: Option<KeyId>,
    /// What it did, in its order: how many counts were written or keys read by each command.
    log: Vec<(&'static str, usize)>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Cell {
    is_known: bool,
    taken: u64,
    base: u64,
    estimate: Estimate,
    leaks_from: Instant,
}

fn key(number: u32) -> KeyId {
    KeyId::from_bits(u64::from(number) << 32, number)
}

fn options() -> WorkerOptions {
    WorkerOptions { floor: 10, ..WorkerOptions::default() }
}

impl Bench {
    /// 1,000 in 60 s, at the beginning of window 100.
    fn new(options: WorkerOptions) -> Self {
        let window = Window::new(1_000, Duration::from_secs(60), Meets::Passes).expect("a window");
        Self {
            worker: Worker::new(options),
            store: HashMap::new(),
            cells: HashMap::new(),
            millis: 0,
            window,
            on_stale: OnStale::Allow,
            outcome: Outcome::Done,
            reads_fail: false,
            fails: None,
            log: Vec::new(),
        }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(1_000_000_000 + self.millis * 1_000_000)
    }

    fn wall(&self) -> WallTime {
        WallTime::from_nanos(6_000_000_000_000 + self.millis * 1_000_000)
    }

    /// Asks for a unit so often; returns how many passed.
    fn ask(&mut self, key: KeyId, times: u64) -> u64 {
        let mut passed = 0;
        for _ in 0..times {
            let now = self.now();
            let cell = self.cells.entry(key).or_default();
            let age = now.saturating_since(cell.leaks_from);
            if self.window.admits(cell.estimate, age, cell.taken - cell.base, 1) {
                cell.taken += 1;
                passed += 1;
            }
        }
        let cell = self.cells.entry(key).or_default();
        let base = (!std::mem::replace(&mut cell.is_known, true)).then_some(0);
        let (window, on_stale, taken) = (self.window, self.on_stale, cell.taken);
        self.tell(Input::Counted(Counted {
            key,
            window,
            on_stale,
            base,
            taken,
            denied: 0,
            refund: None,
        }));
        passed
    }

    fn tell(&mut self, input: Input) {
        let (now, wall) = (self.now(), self.wall());
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.worker.handle(input, now, wall);
            loop {
                match self.worker.poll() {
                    Output::Write { command, counts } => {
                        self.log.push(("write", counts.len()));
                        let outcomes = vec![self.outcome; counts.len()];
                        if self.outcome == Outcome::Done {
                            for count in counts {
                                *self.store.entry((count.key, count.number)).or_default() +=
                                    count.units;
                            }
                        }
                        inputs.push_back(Input::Written { command, outcomes });
                    }
                    Output::Read { command, keys } => {
                        self.log.push(("read", keys.len()));
                        let of = |key, number| {
                            let stored = self.store.get(&(key, number)).copied();
                            stored.unwrap_or(0).max(0).unsigned_abs()
                        };
                        let counts = keys.iter().map(|Wanted { key, number, .. }| {
                            (of(*key, number - 1), of(*key, *number))
                        });
                        let counts = counts.zip(&keys).map(|(count, wanted)| {
                            let fails = self.reads_fail || self.fails == Some(wanted.key);
                            (!fails).then_some(count)
                        });
                        let counts = counts.collect();
                        inputs.push_back(Input::Read { command, counts });
                    }
                    Output::Estimate { key, base, estimate, leaks_from, .. } => {
                        let cell = self.cells.entry(key).or_default();
                        *cell = Cell { base, estimate, leaks_from, ..*cell };
                    }
                    Output::Evict { key, taken } => {
                        let gone = self.cells.get(&key).is_none_or(|cell| cell.taken == taken);
                        if gone {
                            self.cells.remove(&key);
                        }
                        inputs.push_back(Input::Evicted { key, gone });
                    }
                    Output::Timeout(_) => break,
                }
            }
        }
    }

    /// Lets time pass, a tick at a time.
    fn pass(&mut self, millis: u64) {
        let until = self.millis + millis;
        while self.millis < until {
            self.millis = (self.millis + TICK).min(until);
            self.tell(Input::Timeout);
        }
    }

    fn stored(&self, key: KeyId) -> i64 {
        self.store.iter().filter(|((of, _), _)| *of == key).map(|(_, units)| units).sum()
    }
}

#[test]
fn what_is_counted_is_written_once_and_then_read() {
    let mut bench = Bench::new(options());
    assert_eq!(bench.ask(key(1), 50), 50);
    bench.pass(TICK);
    assert_eq!(bench.log, [("write", 1), ("read", 1)]);
    assert_eq!(bench.stored(key(1)), 50);
    let cell = bench.cells[&key(1)];
    assert_eq!((cell.base, bench.window.units(cell.estimate)), (50, 50.0));
    bench.pass(10 * TICK);
    assert_eq!((bench.stored(key(1)), bench.log.len()), (50, 2), "nobody has asked since");
}

#[test]
fn an_idle_key_is_read_from_its_floor_on_and_a_low_one_more_and_more_seldom() {
    let mut bench = Bench::new(options());
    bench.ask(key(1), 9);
    bench.pass(TICK);
    assert_eq!(bench.log, [("write", 1)]);
    bench.ask(key(1), 1);
    bench.pass(TICK);
    assert_eq!(bench.log[1..], [("write", 1), ("read", 1)]);
    // At a fifth of the limit it is read each minute at last.
    let mut reads = Vec::new();
    for second in 0..190 {
        let before = bench.log.len();
        bench.ask(key(1), 3);
        bench.pass(TICK);
        if bench.log[before..].iter().any(|(what, _)| *what == "read") {
            reads.push(second);
        }
    }
    let gaps: Vec<i32> = reads.windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(gaps, [4, 8, 16, 32, 60, 60], "{reads:?}");
}

#[test]
fn writes_and_reads_are_bounded_and_go_on_with_the_next_tick() {
    let bounds =
        WorkerOptions { writes_per_tick: 10, reads_per_tick: 10, keys_per_command: 2, ..options() };
    let mut bench = Bench::new(bounds);
    bench.pass(TICK);
    for number in 0..25 {
        bench.ask(key(number), 20);
    }
    bench.pass(TICK);
    assert_eq!(bench.worker.waiting(), 15);
    assert_eq!(bench.log, [vec![("write", 2); 5], vec![("read", 2); 5]].concat());
    bench.pass(2 * TICK);
    assert_eq!(bench.worker.waiting(), 0);
    assert_eq!((0..25).map(|number| bench.stored(key(number))).sum::<i64>(), 25 * 20);
}

#[test]
fn a_full_list_of_writes_drops_new_keys_counts_it_and_takes_more_of_those_that_wait() {
    let mut bench = Bench::new(WorkerOptions { writes_max: 2, ..options() });
    bench.pass(TICK);
    for number in [1, 2, 3, 1] {
        bench.ask(key(number), 20);
    }
    assert_eq!((bench.worker.waiting(), bench.worker.counts().dropped), (2, 20));
    bench.pass(TICK);
    assert_eq!([1, 2, 3].map(|number| bench.stored(key(number))), [40, 20, 0]);
    // This node knows of what the store does not.
    let cell = bench.cells[&key(3)];
    assert_eq!((cell.base, bench.window.units(cell.estimate)), (20, 20.0));
}

#[test]
fn windows_that_nobody_reads_any_more_are_not_written() {
    let mut bench = Bench::new(options());
    bench.outcome = Outcome::NotSent;
    bench.ask(key(1), 20);
    bench.pass(119_000);
    assert_eq!((bench.worker.waiting(), bench.worker.counts().late), (1, 0));
    bench.pass(2 * TICK);
    assert_eq!((bench.worker.waiting(), bench.worker.counts().late), (0, 20));
}

#[test]
fn what_may_have_been_written_is_never_written_again() {
    let mut bench = Bench::new(options());
    bench.outcome = Outcome::Unknown;
    bench.ask(key(1), 20);
    bench.pass(TICK);
    bench.outcome = Outcome::Done;
    bench.ask(key(1), 5);
    bench.pass(5 * TICK);
    assert_eq!((bench.stored(key(1)), bench.worker.counts().unknown), (5, 20));
    // What surely was not is.
    bench.outcome = Outcome::NotSent;
    bench.ask(key(2), 20);
    bench.pass(TICK);
    bench.outcome = Outcome::Done;
    bench.pass(TICK);
    assert_eq!(bench.stored(key(2)), 20);
}

#[test]
fn what_waits_comes_to_what_others_have_counted() {
    let mut bench = Bench::new(options());
    bench.store.insert((key(1), 100), 600);
    bench.outcome = Outcome::NotSent;
    bench.ask(key(1), 50);
    bench.pass(TICK);
    assert_eq!(bench.window.units(bench.cells[&key(1)].estimate), 650.0);
}

/// A store that evicts counters, or loses all of them, has this node start from nothing as little
/// as its limit does.
#[test]
fn a_store_that_forgets_gives_nothing_back() {
    let mut bench = Bench::new(options());
    assert_eq!(bench.ask(key(1), 1_200), 1_000);
    bench.pass(TICK);
    bench.store.clear();
    for _ in 0..20 {
        assert!(bench.ask(key(1), 100) <= 17, "what leaks in a second");
        bench.pass(TICK);
    }
}

#[test]
fn what_is_counted_while_a_tick_is_under_way_comes_on_top() {
    let mut bench = Bench::new(options());
    let (window, key) = (bench.window, key(1));
    let (now, wall) = (bench.now(), bench.wall());
    let worker = &mut bench.worker;
    let counted = |taken| {
        let (on_stale, base) = (OnStale::Allow, (taken == 30).then_some(0));
        Input::Counted(Counted { key, window, on_stale, base, taken, denied: 0, refund: None })
    };
    worker.handle(counted(30), now, wall);
    worker.handle(Input::Timeout, now, wall);
    let Output::Write { command, .. } = worker.poll() else { panic!("a write") };
    worker.handle(counted(37), now, wall);
    worker.handle(Input::Written { command, outcomes: vec![Outcome::Done] }, now, wall);
    let mut read = None;
    while read.is_none() {
        if let Output::Read { command, .. } = worker.poll() {
            read = Some(command);
        }
    }
    worker.handle(counted(40), now, wall);
    let counts = vec![Some((0, 30))];
    worker.handle(Input::Read { command: read.expect("one"), counts }, now, wall);
    let Output::Estimate { base, estimate, .. } = worker.poll() else { panic!("an estimate") };
    // What waited when the reading began is in it.
    assert_eq!((base, window.units(estimate)), (37, 37.0));
}

/// 20 nodes at 6 % of the limit each, and none of them near it by itself.
#[test]
fn a_key_that_is_hot_over_the_fleet_and_cold_on_each_node_is_limited() {
    let mut benches: Vec<Bench> = (0..20).map(|_| Bench::new(options())).collect();
    let mut store = HashMap::new();
    let mut passed = [0; 4];
    for passed in &mut passed {
        for bench in &mut benches {
            std::mem::swap(&mut bench.store, &mut store);
            *passed += bench.ask(key(7), 60);
            bench.pass(TICK);
            std::mem::swap(&mut bench.store, &mut store);
        }
    }
    // The first nodes read before the last ones wrote; the next tick tells all of them.
    assert_eq!(passed[0], 1_200);
    assert!(passed[2..].iter().all(|passed| *passed <= 20 * 17), "what leaks: {passed:?}");
}

/// Counted here: more than half of the limit each minute, by a node that hears nothing.
#[test]
fn a_long_outage_limits_nobody_by_what_is_counted_here_alone() {
    let outage = Some(Duration::from_secs(10));
    for was_read in [true, false] {
        let mut bench = Bench::new(WorkerOptions { read_outage_max: outage, ..options() });
        if was_read {
            bench.ask(key(1), 20);
            bench.pass(TICK);
        }
        (bench.reads_fail, bench.outcome) = (true, Outcome::NotSent);
        let passed: u64 = (0..100)
            .map(|_| {
                let passed = bench.ask(key(1), 20);
                bench.pass(TICK);
                passed
            })
            .sum();
        assert_eq!(passed, 2_000, "{was_read}");
    }
}

/// One node of a cluster is away: its keys are judged as in an outage, though others are read.
#[test]
fn a_part_of_a_store_that_is_away_is_an_outage_for_its_keys() {
    let mut bench = Bench::new(options());
    bench.fails = Some(key(1));
    let mut passed = 0;
    for _ in 0..300 {
        passed += bench.ask(key(1), 8);
        bench.ask(key(2), 8);
        bench.pass(TICK);
    }
    assert_eq!(passed, 300 * 8);
}

/// What was known of others before an outage still counts, until it has leaked away.
#[test]
fn who_was_over_the_limit_before_an_outage_stays_limited() {
    let mut bench = Bench::new(options());
    bench.store.insert((key(1), 100), 5_000);
    bench.ask(key(1), 20);
    bench.pass(TICK);
    bench.reads_fail = true;
    for _ in 0..150 {
        assert_eq!(bench.ask(key(1), 20), 0);
        bench.pass(TICK);
    }
}

#[test]
fn a_worker_that_has_had_nothing_to_read_is_not_cut_off() {
    let mut bench = Bench::new(options());
    bench.ask(key(1), 20);
    bench.pass(200 * TICK);
    assert_eq!(bench.ask(key(2), 1_200), 1_000);
    assert_eq!(bench.ask(key(2), 1_200), 0);
}

/// A replica that was not promoted answers reads, and refuses what is written. What waits for it
/// goes with its window, as if it were written.
#[test]
fn a_store_that_only_reads_limits_nobody_below_the_limit() {
    let mut bench = Bench::new(options());
    bench.outcome = Outcome::NotSent;
    for second in 0..400 {
        assert_eq!(bench.ask(key(1), 12), 12, "72 % of the limit, after {second} s");
        bench.pass(TICK);
    }
}

#[test]
fn what_has_come_nearer_to_its_limit_is_read_with_the_next_tick() {
    let mut bench = Bench::new(options());
    // Known for long, and read just now.
    for _ in 0..130 {
        bench.ask(key(1), 1);
        bench.pass(TICK);
    }
    while bench.log.last() != Some(&("read", 1)) {
        bench.ask(key(1), 1);
        bench.pass(TICK);
    }
    let before = bench.log.len();
    bench.ask(key(1), 500);
    bench.pass(2 * TICK);
    assert!(bench.log[before..].contains(&("read", 1)), "{:?}", &bench.log[before..]);
}

/// What was used at once stays used until the window ends, and then leaves as it counts less.
#[test]
fn what_was_counted_in_this_window_leaks_only_with_it() {
    let mut bench = Bench::new(options());
    assert_eq!(bench.ask(key(1), 2_000), 1_000);
    for second in 0..59 {
        bench.pass(TICK);
        assert_eq!(bench.ask(key(1), 100), 0, "after {second} s");
    }
    let next: u64 = (0..60)
        .map(|_| {
            bench.pass(TICK);
            bench.ask(key(1), 100)
        })
        .sum();
    assert!((900..=1_000).contains(&next), "{next}");
}

/// Others use a tenth of the limit in a second: it is read before they can have used the rest.
#[test]
fn a_key_that_rises_fast_is_read_before_it_can_be_at_its_limit() {
    let mut bench = Bench::new(options());
    let mut read_at = Vec::new();
    for second in 0..20 {
        let before = bench.log.len();
        bench.ask(key(1), 10);
        *bench.store.entry((key(1), 100)).or_default() += 100;
        bench.pass(TICK);
        if bench.log[before..].contains(&("read", 1)) {
            read_at.push(second);
        }
    }
    // Once it was known for so long, before half of what was left was gone, and at the limit.
    assert_eq!(read_at, [0, 1, 3, 6, 7, 8, 9, 12, 19]);
    assert_eq!(bench.ask(key(1), 10), 0);
}

#[test]
fn other_windows_begin_anew_and_another_threshold_does_not() {
    let mut bench = Bench::new(options());
    bench.ask(key(1), 1_000);
    bench.pass(TICK);
    bench.window = Window::new(2_000, Duration::from_secs(60), Meets::Passes).expect("a window");
    bench.ask(key(1), 0);
    let passed = bench.ask(key(1), 2_000);
    assert!((1_000..1_040).contains(&passed), "{passed}");
    bench.pass(2 * TICK);
    bench.window = Window::new(50, Duration::from_secs(10), Meets::Passes).expect("a window");
    bench.ask(key(1), 0);
    assert_eq!(bench.ask(key(1), 60), 50);
}

#[test]
fn a_cell_that_comes_again_has_what_this_node_has_counted() {
    let mut bench = Bench::new(options());
    bench.ask(key(1), 900);
    bench.pass(TICK);
    bench.cells.remove(&key(1));
    assert!(bench.ask(key(1), 10) <= 10);
    bench.pass(TICK);
    assert!(bench.ask(key(1), 1_000) <= 110);
}

#[test]
fn service_is_normal_with_the_first_answer_after_an_outage() {
    let mut bench = Bench::new(options());
    (bench.reads_fail, bench.outcome) = (true, Outcome::NotSent);
    bench.ask(key(1), 600);
    bench.pass(5 * TICK);
    bench.store.insert((key(1), 100), 500);
    (bench.reads_fail, bench.outcome) = (false, Outcome::Done);
    bench.pass(TICK);
    assert_eq!((bench.stored(key(1)), bench.ask(key(1), 10)), (1_100, 0));
    assert!(bench.worker.counts().read_failed >= 5);
}

#[test]
fn a_key_that_rests_leaves_once_all_of_it_is_written() {
    let mut bench = Bench::new(WorkerOptions { idle: Duration::from_secs(10), ..options() });
    bench.ask(key(1), 20);
    bench.pass(119_000);
    assert!(bench.cells.contains_key(&key(1)), "its windows can be read yet");
    bench.pass(3 * TICK);
    assert!(bench.cells.is_empty() && bench.worker.keys.is_empty() && bench.worker.due.is_empty());
}
