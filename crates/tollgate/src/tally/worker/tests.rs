//! A worker against a store that is a map, in made-up time.

use super::*;
use crate::tally::Meets;

const TICK: u64 = 1_000;

/// A worker, the cells of its keys, and what the store answers.
struct Bench {
    worker: Worker,
    store: HashMap<(KeyId, u64), u64>,
    cells: HashMap<KeyId, Cell>,
    millis: u64,
    window: Window,
    outcome: Outcome,
    reads_fail: bool,
    /// What it did, in its order: how many counts were written or keys read by each command.
    log: Vec<(&'static str, usize)>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Cell {
    taken: u64,
    base: u64,
    estimate: Estimate,
    read_at: Instant,
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
            outcome: Outcome::Done,
            reads_fail: false,
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
            let age = now.saturating_since(cell.read_at);
            if self.window.admits(cell.estimate, age, cell.taken - cell.base, 1) {
                cell.taken += 1;
                passed += 1;
            }
        }
        let (window, taken) = (self.window, self.cells[&key].taken);
        self.tell(Input::Counted { key, window, taken });
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
                        if self.outcome == Outcome::Done {
                            for count in counts {
                                *self.store.entry((count.key, count.number)).or_default() +=
                                    count.units;
                            }
                        }
                        inputs.push_back(Input::Written { command, outcome: self.outcome });
                    }
                    Output::Read { command, keys } => {
                        self.log.push(("read", keys.len()));
                        let of = |key, number| self.store.get(&(key, number)).copied().unwrap_or(0);
                        let counts = keys
                            .iter()
                            .map(|(key, number)| (of(*key, number - 1), of(*key, *number)));
                        let counts = (!self.reads_fail).then(|| counts.collect());
                        inputs.push_back(Input::Read { command, counts });
                    }
                    Output::Estimate { key, base, estimate, read_at } => {
                        let cell = self.cells.entry(key).or_default();
                        *cell = Cell { base, estimate, read_at, ..*cell };
                    }
                    Output::Evict { key, taken } => {
                        let gone = self.cells.get(&key).is_some_and(|cell| cell.taken == taken);
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

    fn stored(&self, key: KeyId) -> u64 {
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
    assert_eq!((0..25).map(|number| bench.stored(key(number))).sum::<u64>(), 25 * 20);
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
    let counted = |taken| Input::Counted { key, window, taken };
    // The first tick comes with it.
    worker.handle(counted(30), now, wall);
    let Output::Write { command, .. } = worker.poll() else { panic!("a write") };
    worker.handle(counted(37), now, wall);
    worker.handle(Input::Written { command, outcome: Outcome::Done }, now, wall);
    let mut read = None;
    while read.is_none() {
        if let Output::Read { command, .. } = worker.poll() {
            read = Some(command);
        }
    }
    worker.handle(counted(40), now, wall);
    let counts = Some(vec![(0, 30)]);
    worker.handle(Input::Read { command: read.expect("one"), counts }, now, wall);
    let Output::Estimate { base, estimate, .. } = worker.poll() else { panic!("an estimate") };
    assert_eq!((base, window.units(estimate)), (30, 30.0));
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

#[test]
fn a_long_outage_limits_nobody_by_what_is_counted_here_alone() {
    let mut bench =
        Bench::new(WorkerOptions { read_outage_max: Duration::from_secs(10), ..options() });
    bench.ask(key(1), 20);
    bench.pass(TICK);
    (bench.reads_fail, bench.outcome) = (true, Outcome::NotSent);
    let mut passed = 0;
    for _ in 0..100 {
        passed += bench.ask(key(1), 20);
        bench.pass(TICK);
    }
    assert_eq!(passed, 2_000, "20 a second on one node is allowed by nobody's account");
    // What was known of others before still counts, as long as it does not leak away.
    let mut bench = Bench::new(options());
    bench.store.insert((key(1), 100), 5_000);
    bench.ask(key(1), 20);
    bench.pass(TICK);
    bench.reads_fail = true;
    assert_eq!(bench.ask(key(1), 20), 0);
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
