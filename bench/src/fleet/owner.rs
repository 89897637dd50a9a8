//! What a report costs its owner: applied to the key's meter, and answered with what the worker may
//! spend.

use std::time::Duration;

use tollgate::{NodeOptions, ViewTimes};

use super::drive::{Fleet, Plan};
use crate::bar::judge;
use crate::measure::Quartiles;

/// Nanoseconds of the owner's CPU for each report. 100 workers ask for 1,000 keys, two and a half
/// times as much as there is, so that each of them reports what it was refused and waits for more.
pub fn report(name: &str) -> bool {
    let (hot, batch) = time(name, "at 2.5 times the limit", 2.5);
    println!("# {name}: {batch:.0} reports a batch");
    time(name, "at 0.9 times the limit", 0.9);
    time(name, "at 0.05 times the limit", 0.05);
    judge(name, &hot)
}

fn time(name: &str, what: &str, load: f64) -> (Quartiles, f64) {
    let mut fleet = Fleet::new(Plan {
        owners: 1,
        workers: WORKERS,
        keys: KEYS,
        rate: RATE,
        burst: RATE / 5,
        per_second: f64::from(KEYS) * RATE as f64 * load / f64::from(WORKERS),
        is_zipf: false,
        // So many that it never asks for fewer.
        options: NodeOptions {
            times: ViewTimes::default(),
            reports_per_second_max: 1 << 40,
            ..NodeOptions::default()
        },
        tick: Duration::from_millis(1),
    });
    fleet.run(WARM_UP);
    let (mut applied, mut batches) = (0, 0);
    let sample = |_| {
        let seen = fleet.run(SAMPLE);
        applied += seen.applied;
        batches += seen.batches;
        seen.owners_cpu.as_nanos() as f64 / seen.applied as f64
    };
    let times = Quartiles::of((0..SAMPLES).map(sample).collect());
    let Quartiles { lower, median, upper } = times;
    let per_second = applied as f64 / (SAMPLE * SAMPLES).as_secs_f64();
    println!(
        "# {name}: {what} {median:.0} ns (quartiles {lower:.0} and {upper:.0}), {:.1} M reports a \
         second",
        per_second / 1e6,
    );
    (times, applied as f64 / batches as f64)
}

const WORKERS: u32 = 100;
const KEYS: u32 = 1_000;
/// Units a second of each key.
const RATE: u64 = 2_000;
/// The owner begins with the burst spent, and workers with nothing.
const WARM_UP: Duration = Duration::from_millis(500);
const SAMPLE: Duration = Duration::from_millis(20);
const SAMPLES: u32 = 21;
