//! What the simulator says of a fleet: that it keeps its promise, how much of a limit is used, and
//! how many messages that takes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::Event;
use tollgate_sim::check::Violation;
use tollgate_sim::check::utilisation::{self, Case};
use tollgate_sim::ledger::Ledger;
use tollgate_sim::scenario::Scenario;
use tollgate_sim::{check, draw, run};

use crate::bar::judge_exact;

/// The most units above B + R·t in any window of any of a thousand runs with whatever may go wrong,
/// and how often any promise was broken. Runs in which two owners overlapped or a process stood
/// still have a wider promise: they count for the first only when they broke that.
pub fn excess(name: &str) -> bool {
    let next = AtomicU64::new(0);
    let runs = Mutex::new(Runs { worst: f64::MIN, ..Runs::default() });
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= SEEDS {
                return;
            }
            let scenario = draw::scenario(seed);
            let ledger = run(&scenario);
            let mut runs = runs.lock().expect("no run panicked");
            runs.add(seed, &scenario, &ledger);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    let runs = runs.into_inner().expect("no run panicked");
    println!(
        "# {name}: {SEEDS} runs, {:.0} s of virtual time, {} admissions; {} runs with an overlap \
         or a pause, at worst {:.1} units over",
        runs.nanos as f64 / 1e9,
        runs.admissions,
        runs.wider,
        runs.worst_wider,
    );
    for (seed, violation) in &runs.violations {
        println!("# {name}: seed {seed}: {violation}");
    }
    let mut short = judge_exact(name, runs.worst.max(0.0));
    short |= judge_exact("fleet-violations", runs.violations.len() as f64);
    short
}

#[derive(Default)]
struct Runs {
    nanos: u64,
    admissions: usize,
    /// Of runs without an overlap or a pause.
    worst: f64,
    /// Runs with one.
    wider: u64,
    worst_wider: f64,
    violations: Vec<(u64, Violation)>,
}

impl Runs {
    fn add(&mut self, seed: u64, scenario: &Scenario, ledger: &Ledger) {
        self.nanos += scenario.lasts + scenario.rests;
        self.admissions += ledger.admissions.len();
        let worst = check::bound::worst_windows(scenario, ledger);
        let worst = worst.iter().map(|worst| worst.excess).fold(f64::MIN, f64::max);
        let widens = |event: &Event| matches!(event, Event::Overlap { .. } | Event::Paused { .. });
        let violations = check::all(scenario, ledger);
        let is_wider = ledger.events.iter().any(|(_, _, event)| widens(event));
        if is_wider {
            self.wider += 1;
            self.worst_wider = self.worst_wider.max(worst);
        }
        if !is_wider || violations.iter().any(|violation| violation.checker == "bound") {
            self.worst = self.worst.max(worst);
        }
        self.violations.extend(violations.into_iter().map(|violation| (seed, violation)));
    }
}

/// The share of a limit that is used when enough is asked for: the least of all cases that are
/// held to as much.
pub fn utilisation(_: &str) -> bool {
    let mut short = false;
    for (name, at_least) in [("fleet-utilisation", 0.99), ("fleet-utilisation-crashes", 0.95)] {
        let mut least = f64::MAX;
        for case in utilisation::cases().iter().filter(|case| case.least == at_least) {
            let (used, messages) = of(case);
            println!(
                "# {name}: {} {:.2} %, {messages:.0} messages a second",
                case.name,
                used * 100.0
            );
            // A small burst loses some even where nothing has to travel.
            let ideal = utilisation::of_one_bucket(&case.scenario).min(1.0);
            least = least.min(used / ideal);
        }
        short |= judge_exact(name, least);
    }
    short
}

fn of(case: &Case) -> (f64, f64) {
    let ledger = run(&case.scenario);
    (utilisation::of(&case.scenario, &ledger), per_second(&case.scenario, &ledger))
}

/// Messages a second at ten times the load, divided by those at the load. At the load each worker
/// asks more often than it reports; with a tenth of the rate it reports each request at first, so
/// that messages grow with the load until they come as often as they may: that is only shown.
pub fn messages(_: &str) -> bool {
    let mut short = false;
    for (name, load) in [("fleet-messages-10x", 2.5), ("fleet-messages-10x-from-half", 0.5)] {
        let grows = |rate: u64| {
            let at = |load: f64| {
                let scenario = utilisation::fleet(WORKERS, rate, rate / 5, load);
                let ledger = run(&scenario);
                let messages = per_second(&scenario, &ledger);
                println!(
                    "# {name}: {WORKERS} workers ask for {load} times {rate}/s: {messages:.0} \
                     messages a second"
                );
                messages
            };
            let once = at(load);
            at(load * 10.0) / once
        };
        println!("# {name}: {:.2} times as many", grows(1_000));
        short |= judge_exact(name, grows(10_000));
    }
    short
}

fn per_second(scenario: &Scenario, ledger: &Ledger) -> f64 {
    ledger.messages as f64 * 1e9 / (scenario.lasts + scenario.rests) as f64
}

const SEEDS: u64 = 1_000;
const WORKERS: u32 = 20;
