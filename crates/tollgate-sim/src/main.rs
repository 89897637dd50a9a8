//! Plays seeds and judges them; `--help` says how.

use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate_sim::check::{self, Violation};
use tollgate_sim::{draw, run, share, shrink, tally};

const HELP: &str = "\
tollgate-sim [--seeds N] [--from N] [--seconds N]
    plays the seeds that are kept, then N more (1000), for so long at most, and judges each; a
    seed has a fleet that permits (`eventual`), one that counts in stores (`tally`) and one that
    divides (`share`)
tollgate-sim --seed N
    plays one seed's fleet that permits, and tells all about it
tollgate-sim --tally-seed N
    plays one seed's fleet that counts in stores, and tells all about it
tollgate-sim --share-seed N
    plays one seed's fleet that divides a limit, and tells all about it
tollgate-sim utilisation
    how much of a limit each kind of load can use
tollgate-sim papers
    experiments of publications, and other rules than ours
tollgate-sim mutants
    takes rules away to see them missed

Exit codes: 0 every promise held, 1 one was broken, 2 wrong arguments.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["mutants"] => mutants(),
        ["utilisation"] => utilisation(),
        ["papers"] => papers(),
        ["--seed", seed] => seed.parse().map_or_else(|_| wrong("--seed", seed), tell),
        ["--tally-seed", seed] => {
            seed.parse().map_or_else(|_| wrong("--tally-seed", seed), tell_tally)
        }
        ["--share-seed", seed] => {
            seed.parse().map_or_else(|_| wrong("--share-seed", seed), tell_share)
        }
        ["--help" | "-h"] => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        _ => search(&arguments),
    }
}

fn wrong(name: &str, value: &str) -> ExitCode {
    eprintln!("{name} {value}: not understood\n\n{HELP}");
    ExitCode::from(2)
}

/// Plays one seed.
fn tell(seed: u64) -> ExitCode {
    let scenario = draw::scenario(seed);
    let ledger = run(&scenario);
    println!("{scenario:#?}");
    for (at, node, event) in &ledger.events {
        println!("{:>10.3} ms  node {node}: {event:?}", *at as f64 / 1e6);
    }
    println!("{} steps, {} admissions", ledger.steps, ledger.admissions.len());
    let violations = check::all(&scenario, &ledger);
    violations.iter().for_each(|violation| println!("{violation}"));
    ExitCode::from(u8::from(!violations.is_empty()))
}

/// Plays one seed of `tally`.
fn tell_tally(seed: u64) -> ExitCode {
    let scenario = tally::scenario(seed);
    let ledger = tally::run(&scenario);
    println!("{scenario:#?}");
    let passed = ledger.asks.iter().filter(|ask| ask.passed).count();
    println!("{} steps, {passed} of {} requests passed", ledger.steps, ledger.asks.len());
    let (ceiling, informed) = tally::check::used(&scenario, &ledger);
    println!("at most {ceiling:.3} of the ceiling, {informed:.3} of what nodes knew");
    let violations = tally::check::all(&scenario, &ledger);
    violations.iter().for_each(|violation| println!("{violation}"));
    ExitCode::from(u8::from(!violations.is_empty()))
}

/// Plays one seed of `share`.
fn tell_share(seed: u64) -> ExitCode {
    let scenario = share::scenario(seed);
    let ledger = share::run(&scenario);
    println!("{scenario:#?}");
    let passed = ledger.asks.iter().filter(|ask| ask.passed).count();
    println!("{} steps, {passed} of {} requests passed", ledger.steps, ledger.asks.len());
    for key in 0..scenario.keys() {
        let (most, at) = share::check::most_enforced(&scenario, &ledger, key);
        println!("key {key}: at most {most:.3} of the rate, at {:.3} s", at as f64 / 1e9);
    }
    println!("{:?}", ledger.traffic);
    let violations = share::check::all(&scenario, &ledger);
    violations.iter().for_each(|violation| println!("{violation}"));
    ExitCode::from(u8::from(!violations.is_empty()))
}

/// Plays many seeds on all cores.
fn search(arguments: &[&str]) -> ExitCode {
    let (mut seeds, mut from, mut seconds) = (1_000, 0, u64::MAX);
    for pair in arguments.chunks(2) {
        let (name, value) = (pair[0], pair.get(1).copied().unwrap_or_default());
        let Ok(number) = value.parse() else { return wrong(name, value) };
        match name {
            "--seeds" => seeds = number,
            "--from" => from = number,
            "--seconds" => (seeds, seconds) = (u64::MAX - from, number),
            _ => return wrong(name, value),
        }
    }
    let began = Instant::now();
    let all = draw::kept().chain(from..from.saturating_add(seeds));
    let search = Search {
        seeds: Mutex::new(Box::new(all)),
        ends: began.checked_add(Duration::from_secs(seconds)),
        ..Search::default()
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| while search.play_next() {});
        }
    });
    search.report(began.elapsed())
}

/// Seeds that are played, and what came of them.
struct Search {
    seeds: Mutex<Box<dyn Iterator<Item = u64> + Send>>,
    ends: Option<Instant>,
    played: AtomicU64,
    steps: AtomicU64,
    /// Virtual time, in nanoseconds.
    simulated: AtomicU64,
    failed: Mutex<Vec<(u64, Violation)>>,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            seeds: Mutex::new(Box::new(std::iter::empty())),
            ends: None,
            played: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            simulated: AtomicU64::new(0),
            failed: Mutex::default(),
        }
    }
}

impl Search {
    /// Plays the next seed. Returns whether there was one.
    fn play_next(&self) -> bool {
        if self.ends.is_some_and(|ends| Instant::now() >= ends) {
            return false;
        }
        let next = self.seeds.lock().expect("nothing panics under it").next();
        let Some(seed) = next else { return false };
        let scenario = draw::scenario(seed);
        let ledger = run(&scenario);
        self.played.fetch_add(1, Ordering::Relaxed);
        self.steps.fetch_add(ledger.steps, Ordering::Relaxed);
        self.simulated.fetch_add(scenario.lasts + scenario.rests, Ordering::Relaxed);
        let mut violations = check::all(&scenario, &ledger);
        let scenario = tally::scenario(seed);
        let ledger = tally::run(&scenario);
        self.steps.fetch_add(ledger.steps, Ordering::Relaxed);
        self.simulated.fetch_add(scenario.lasts + scenario.rests, Ordering::Relaxed);
        violations.extend(tally::check::all(&scenario, &ledger));
        let scenario = share::scenario(seed);
        let ledger = share::run(&scenario);
        self.steps.fetch_add(ledger.steps, Ordering::Relaxed);
        self.simulated.fetch_add(scenario.lasts, Ordering::Relaxed);
        violations.extend(share::check::all(&scenario, &ledger));
        for violation in violations {
            println!("seed {seed}: {violation}");
            self.failed.lock().expect("nothing panics under it").push((seed, violation));
        }
        true
    }

    fn report(self, took: Duration) -> ExitCode {
        let seconds = took.as_secs_f64();
        let simulated = self.simulated.into_inner() as f64 / 1e9;
        let failed = self.failed.into_inner().expect("nothing panicked");
        println!(
            "{} seeds, {} violations; {simulated:.0} s simulated in {seconds:.1} s: \
             {:.0} s a second, {:.1} M steps",
            self.played.into_inner(),
            failed.len(),
            simulated / seconds,
            self.steps.into_inner() as f64 / 1e6,
        );
        let Some((seed, violation)) = failed.first() else { return ExitCode::SUCCESS };
        let is_tally = violation.checker.starts_with("tally_");
        let is_share = violation.checker.starts_with("share_");
        let option = match (is_tally, is_share) {
            (true, _) => "--tally-seed",
            (_, true) => "--share-seed",
            _ => "--seed",
        };
        println!(
            "\nseed {seed} at commit {}; play it again: tollgate-sim {option} {seed}",
            commit()
        );
        println!("The smallest scenario like it:");
        if is_tally {
            println!("{:#?}", tally::shrink(&tally::scenario(*seed), violation.checker));
        } else if is_share {
            println!("{:#?}", share::shrink(&share::scenario(*seed), violation.checker));
        } else {
            println!("{:#?}", shrink(&draw::scenario(*seed), violation.checker));
        }
        println!("Once it is fixed, keep the seed in crates/tollgate-sim/seeds.txt.");
        ExitCode::FAILURE
    }
}

/// What was built, as far as can be told.
fn commit() -> String {
    let git = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let told = git.ok().filter(|output| output.status.success());
    told.map_or_else(
        || "unknown".into(),
        |output| String::from_utf8_lossy(&output.stdout).trim().into(),
    )
}

fn utilisation() -> ExitCode {
    let mut failed = false;
    for case in check::utilisation::cases() {
        let ledger = run(&case.scenario);
        let used = check::utilisation::of(&case.scenario, &ledger);
        let ideal = check::utilisation::of_one_bucket(&case.scenario).min(1.0);
        let seconds = (case.scenario.lasts + case.scenario.rests) as f64 / 1e9;
        let is_short = used < case.least * ideal;
        failed |= is_short;
        println!(
            "{:<52} {:>6.2} %, one bucket {:>6.2} %, least {:>2.0} %{} {:>6.0} messages a second",
            case.name,
            used * 100.0,
            ideal * 100.0,
            case.least * 100.0,
            if is_short { " SHORT" } else { "      " },
            ledger.messages as f64 / seconds,
        );
    }
    ExitCode::from(u8::from(failed))
}

fn papers() -> ExitCode {
    tollgate_sim::papers::all().for_each(|table| println!("{table}"));
    ExitCode::SUCCESS
}

/// Plays each mutant's schedule without its rule, and all schedules with all rules.
#[cfg(tollgate_mutants)]
fn mutants() -> ExitCode {
    use tollgate_sim::directed::{SCHEDULES, mutants, play_without};
    let mut failed = 0;
    for schedule in SCHEDULES {
        for violation in (schedule.play)() {
            println!("with every rule, {} fails: {violation}", schedule.name);
            failed += 1;
        }
    }
    for mutant in mutants() {
        println!("{} (rule {})", mutant.name, mutant.rule);
        match play_without(&mutant).first() {
            Some(violation) => println!("    {}: {violation}", mutant.schedule),
            None => {
                println!("    SURVIVES {}", mutant.schedule);
                failed += 1;
            }
        }
    }
    ExitCode::from(u8::from(failed > 0))
}

/// In this build no rule can be taken away.
#[cfg(not(tollgate_mutants))]
fn mutants() -> ExitCode {
    eprintln!(
        "no rule can be taken away in this build: RUSTFLAGS='--cfg tollgate_mutants' cargo run \
         --release -p tollgate-sim mutants"
    );
    ExitCode::from(2)
}
