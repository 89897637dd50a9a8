//! Runs seeds: `tollgate-sim --seeds 10000`, or one of them again: `tollgate-sim --seed 17`.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tollgate_sim::{check, draw, run};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str| {
        let place = arguments.iter().position(|argument| argument == name)?;
        arguments.get(place + 1)?.parse::<u64>().ok()
    };
    if let Some(seed) = number("--seed") {
        let scenario = draw::scenario(seed);
        println!("{scenario:#?}");
        let ledger = run(&scenario);
        println!("{} steps, {} admissions", ledger.steps, ledger.admissions.len());
        println!("{:?}", ledger.events);
        let violations = check::all(&scenario, &ledger);
        violations.iter().for_each(|violation| println!("{violation}"));
        return ExitCode::from(u8::from(!violations.is_empty()));
    }
    if arguments.iter().any(|argument| argument == "utilisation") {
        for case in check::utilisation::cases() {
            let began = Instant::now();
            let ledger = run(&case.scenario);
            let used = check::utilisation::of(&case.scenario, &ledger);
            let seconds = (case.scenario.lasts + case.scenario.rests) as f64 / 1e9;
            let worst = check::bound::worst_windows(&case.scenario, &ledger);
            let over = worst.iter().map(|worst| worst.excess).fold(f64::MIN, f64::max);
            println!(
                "{:<52} {:>6.2} % of {:>6.2} % (least {:.0} %), {:>6.0} messages/s, {:>6.0} entries/s, over {over:.1}, {:.1} s",
                case.name,
                used * 100.0,
                check::utilisation::of_one_bucket(&case.scenario) * 100.0,
                case.least * 100.0,
                ledger.messages as f64 / seconds,
                ledger.entries as f64 / seconds,
                began.elapsed().as_secs_f64(),
            );
        }
        return ExitCode::SUCCESS;
    }
    if arguments.iter().any(|argument| argument == "papers") {
        tollgate_sim::papers::all().for_each(|table| println!("{table}"));
        return ExitCode::SUCCESS;
    }
    let seeds = number("--seeds").unwrap_or(1_000);
    let first = number("--from").unwrap_or(0);
    let (next, steps, simulated) = (AtomicU64::new(first), AtomicU64::new(0), AtomicU64::new(0));
    let failed = Mutex::new(Vec::new());
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds {
                        return;
                    }
                    let scenario = draw::scenario(seed);
                    let ledger = run(&scenario);
                    steps.fetch_add(ledger.steps, Ordering::Relaxed);
                    simulated.fetch_add(scenario.lasts + scenario.rests, Ordering::Relaxed);
                    for violation in check::all(&scenario, &ledger) {
                        println!("seed {seed}: {violation}");
                        failed.lock().expect("no panic").push(seed);
                    }
                }
            });
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    let simulated = simulated.into_inner() as f64 / 1e9;
    let failed = failed.into_inner().expect("no panic");
    println!(
        "{seeds} seeds, {} violations, {} steps, {simulated:.0} s simulated in {seconds:.1} s: {:.0} x",
        failed.len(),
        steps.into_inner(),
        simulated / seconds
    );
    ExitCode::from(u8::from(!failed.is_empty()))
}
