//! How long a check takes: samples of two contenders in turn, and the ratio of each pair.
//!
//! A pair shares the machine's mood (other processes, clock speed), so that its ratio means
//! something where its times do not. One thread is measured in CPU time, which ignores what else
//! runs; several in wall time, since waiting for each other is what they are measured for.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::keys::CHUNK;

/// Makes [`CHUNK`] checks and returns how many were allowed.
pub type Worker = Box<dyn FnMut() -> u64 + Send>;

/// A limiter under load: one worker for each thread.
pub struct Contender {
    name: &'static str,
    workers: Vec<Worker>,
    allows: bool,
}

/// What half of the samples lie between, and what halves them.
#[derive(Debug, Clone, Copy)]
pub struct Quartiles {
    pub lower: f64,
    pub median: f64,
    pub upper: f64,
}

/// Two contenders' times, and how they compare.
pub struct Pairs {
    pub ours: Quartiles,
    pub theirs: Quartiles,
    pub ratio: Quartiles,
}

impl Contender {
    /// A contender whose every check must pass.
    pub fn new(name: &'static str, workers: Vec<Worker>) -> Self {
        Self { name, workers, allows: true }
    }

    /// A contender whose every check must be denied.
    pub fn denied(name: &'static str, worker: Worker) -> Self {
        Self { name, workers: vec![worker], allows: false }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Nanoseconds of a check, in one sample.
    fn sample(&mut self) -> f64 {
        let Self { workers, allows, .. } = self;
        match &mut workers[..] {
            [worker] => {
                let spent = drive(worker, *allows, thread_cpu);
                spent.nanos / spent.checks
            }
            workers => sample_together(workers, *allows),
        }
    }

    /// Times of this contender alone.
    pub fn alone(&mut self, samples: usize) -> Quartiles {
        self.sample(); // Fills caches and lets lazy parts start.
        Quartiles::of((0..samples).map(|_| self.sample()).collect())
    }
}

/// Samples both in turn.
pub fn pairs(ours: &mut Contender, theirs: &mut Contender) -> Pairs {
    for _ in 0..WARMUPS {
        ours.sample();
        theirs.sample();
    }
    let pairs: Vec<(f64, f64)> = (0..PAIRS).map(|_| (ours.sample(), theirs.sample())).collect();
    Pairs {
        ours: Quartiles::of(pairs.iter().map(|pair| pair.0).collect()),
        theirs: Quartiles::of(pairs.iter().map(|pair| pair.1).collect()),
        ratio: Quartiles::of(pairs.iter().map(|pair| pair.0 / pair.1).collect()),
    }
}

impl Quartiles {
    /// Of at least one value.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |part: usize| values[(values.len() - 1) * part / 4];
        Self { lower: at(1), median: at(2), upper: at(3) }
    }
}

/// What one worker did in one sample.
struct Spent {
    nanos: f64,
    checks: f64,
}

/// Lets a worker work for one sample's time, and reads `clock` around it.
fn drive(worker: &mut Worker, allows: bool, clock: impl Fn() -> Duration) -> Spent {
    let end = Instant::now() + SAMPLE;
    let before = clock();
    let (mut chunks, mut allowed) = (0_u64, 0);
    while Instant::now() < end {
        allowed += worker();
        chunks += 1;
    }
    let nanos = (clock() - before).as_nanos() as f64;
    let checks = chunks * CHUNK as u64;
    assert_eq!(allowed, if allows { checks } else { 0 }, "a check was not decided as it should be");
    Spent { nanos, checks: checks as f64 }
}

/// Wall nanoseconds of a check for each of the threads, while all are at it.
fn sample_together(workers: &mut [Worker], allows: bool) -> f64 {
    let barrier = Barrier::new(workers.len());
    let start = Instant::now();
    let all: Vec<Spent> = std::thread::scope(|scope| {
        let spawn = |worker| {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                drive(worker, allows, || start.elapsed())
            })
        };
        let threads: Vec<_> = workers.iter_mut().map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().expect("a worker panicked")).collect()
    });
    let (nanos, checks) =
        all.iter().fold((0.0, 0.0), |sum, spent| (sum.0 + spent.nanos, sum.1 + spent.checks));
    nanos / checks
}

/// CPU time that this thread has used.
pub fn thread_cpu() -> Duration {
    cpu(libc::CLOCK_THREAD_CPUTIME_ID).expect("the system has a CPU clock for each thread")
}

/// CPU time, user's and system's, that all threads of a process have used; `None` without it.
///
/// It is what `/proc/<process>/stat` tells in hundredths of a second, in nanoseconds.
pub fn process_cpu(process: u32) -> Option<Duration> {
    let mut clock = 0;
    // SAFETY: `clock` is a valid place for one `clockid_t`, which is all that the call writes to.
    let failed = unsafe { libc::clock_getcpuclockid(process as libc::pid_t, &raw mut clock) };
    if failed == 0 { cpu(clock) } else { None }
}

fn cpu(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for one `timespec`, which is all that the call writes to.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (failed == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

const SAMPLE: Duration = Duration::from_millis(25);
const PAIRS: usize = 31;
const WARMUPS: usize = 2;
