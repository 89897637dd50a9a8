//! A flood of keys that are asked for once each, over a node whose stores go away in the middle:
//! memory stays bounded, what is dropped is counted exactly, and hot keys stay limited.

use std::collections::HashMap;
use std::time::{Duration, Instant as Started};

use tollgate::tally::{Input, Outcome, WallTime, WorkerOptions};
use tollgate::{
    Clock, Command, Descriptor, Entry, Instant, Limit, LimitSpec, Limiter, Options, Request,
    TallyNode, TallyOptions,
};

/// How large the flood is.
#[derive(Debug, Clone, Copy)]
struct Size {
    keys_a_second: u64,
    keys_max: usize,
    writes_max: usize,
}

/// What came of it.
#[derive(Debug, Default)]
struct Came {
    /// Units that passed, of them those of cells, and of the hot key in a window before the store
    /// goes away.
    passed: u64,
    counted: u64,
    hot: u64,
    /// The most that there was at once.
    keys: u64,
    cells: u64,
    waiting: usize,
    dropped: u64,
    late: u64,
    stored: u64,
    /// Of one second's looks and ticks.
    longest: Duration,
    all: Duration,
}

/// One node, and a store that is a map.
struct Bench {
    limiter: Limiter,
    tally: TallyNode,
    hand: tollgate::ClockHand,
    store: HashMap<String, u64>,
    is_away: bool,
    millis: u64,
    took: Duration,
}

impl Bench {
    fn new(size: Size) -> Self {
        let (clock, hand) = Clock::manual();
        let keys_max = size.keys_max as u64;
        let options = Options { clock, keys_max, tally: true, ..Options::default() };
        let spec = LimitSpec {
            name: "api",
            key: &["k"],
            rate: "1000/10s",
            guarantee: "tally",
            ..LimitSpec::DEFAULT
        };
        let limits = vec![Limit::parse(&spec).expect("a limit")];
        let limiter = Limiter::new(limits, options).expect("sound limits");
        let Size { keys_max, writes_max, .. } = size;
        let worker = WorkerOptions { keys_max, writes_max, ..WorkerOptions::default() };
        let options = TallyOptions { worker, ..TallyOptions::default() };
        let tally = TallyNode::new(limiter.clone(), options).expect("it has cells");
        let (store, took) = (HashMap::new(), Duration::ZERO);
        Self { limiter, tally, hand, store, is_away: false, millis: 0, took }
    }

    /// Whether it passes, and in a cell of its own.
    fn ask(&self, key: &str) -> (bool, bool) {
        let entries = [Entry::new("k", key)];
        let descriptors = [Descriptor::new(&entries).expect("one entry")];
        let decision = self.limiter.check(&Request::new(&descriptors));
        (decision.is_allowed(), decision.remaining().is_some())
    }

    /// Lets time pass, and times what the node does with its cells and its store.
    fn pass(&mut self, millis: u64) {
        self.hand.advance(Duration::from_millis(millis));
        self.millis += millis;
        let now = Instant::from_nanos(self.millis * 1_000_000);
        let wall = WallTime::from_nanos(1_700_000_000_000_000_000 + self.millis * 1_000_000);
        let began = Started::now();
        self.tally.drain(now, wall);
        self.tally.handle_timeout(now, wall);
        self.took += began.elapsed();
        let mut answers = Vec::new();
        loop {
            let began = Started::now();
            let command = self.tally.poll();
            self.took += began.elapsed();
            answers.push(match command {
                Command::Write { store, command, additions } => {
                    let count = additions.len();
                    let outcome = if self.is_away { Outcome::NotSent } else { Outcome::Done };
                    if !self.is_away {
                        for one in additions {
                            *self.store.entry(one.name).or_default() += one.units.unsigned_abs();
                        }
                    }
                    (store, Input::Written { command, outcomes: vec![outcome; count] })
                }
                Command::Read { store, command, names } => {
                    let of = |name: &String| self.store.get(name).copied().unwrap_or(0);
                    let counts = names
                        .iter()
                        .map(|[before, now]| (!self.is_away).then(|| (of(before), of(now))));
                    (store, Input::Read { command, counts: counts.collect() })
                }
                Command::Timeout(_) => match answers.pop() {
                    Some((store, input)) => {
                        let began = Started::now();
                        self.tally.handle(store, input, now, wall);
                        self.took += began.elapsed();
                        continue;
                    }
                    None => return,
                },
            });
        }
    }
}

/// A minute of keys that nobody asked for before, half of it while the store takes nothing.
fn flood(size: Size) -> Came {
    let mut bench = Bench::new(size);
    let mut result = Came::default();
    for second in 0..60_u64 {
        bench.is_away = (20..50).contains(&second);
        let before = bench.took;
        for part in 0..10 {
            for number in 0..size.keys_a_second / 10 {
                let (passed, has_cell) = bench.ask(&format!("{second}-{part}-{number}"));
                result.passed += u64::from(passed);
                result.counted += u64::from(passed && has_cell);
            }
            let hot = (0..50).filter(|_| bench.ask("hot").0).count() as u64;
            (result.passed, result.counted) = (result.passed + hot, result.counted + hot);
            result.hot += if (10..20).contains(&second) { hot } else { 0 };
            bench.pass(100);
            let workers = bench.tally.workers();
            result.waiting = result.waiting.max(workers[0].waiting());
            result.keys = result.keys.max(workers[0].keys() as u64);
            result.cells = result.cells.max(bench.limiter.keys_used());
        }
        result.longest = result.longest.max(bench.took - before);
    }
    result.all = bench.took;
    bench.pass(1_000);
    bench.pass(1_000);
    let counts = bench.tally.counts();
    (result.dropped, result.late) = (counts.dropped, counts.late);
    result.stored = bench.store.values().sum();
    assert_eq!(bench.tally.workers()[0].waiting(), 0);
    assert_eq!(counts.written, result.stored);
    let told = counts.written + counts.dropped + counts.late + counts.unknown + counts.refused;
    println!("{size:?}\n{result:#?}\ndisplaced {}", counts.displaced);
    assert_eq!(told, result.counted);
    result
}

fn is_bounded(size: Size) {
    let result = flood(size);
    assert!(result.waiting <= size.writes_max, "{result:?}");
    assert!(result.cells <= (size.keys_max + size.keys_max / 8 + 64 + 1) as u64, "{result:?}");
    assert!(result.keys <= result.cells, "{result:?}");
    assert!(result.dropped > 0, "{result:?}");
    // Of 5,000 that were offered.
    assert!((900..=1_100).contains(&result.hot), "{result:?}");
}

#[test]
fn a_flood_takes_no_more_room_than_there_is_and_what_is_dropped_is_counted() {
    is_bounded(Size { keys_a_second: 400, keys_max: 7_200, writes_max: 4_800 });
}

/// 1 million keys in a minute: run it with `--release -- --ignored --nocapture`.
#[test]
#[ignore = "takes a minute"]
fn a_flood_of_a_million_keys_a_minute() {
    is_bounded(Size { keys_a_second: 16_667, keys_max: 300_000, writes_max: 200_000 });
}
