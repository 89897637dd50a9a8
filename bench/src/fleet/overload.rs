//! One owner and many more reports than it applies: it asks for fewer, refuses what is still too
//! much, and admits no unit too many.

use std::time::{Duration, Instant};

use tollgate::NodeOptions;

use super::drive::{Fleet, Plan};
use crate::bar::judge_exact;
use crate::measure::Quartiles;
use crate::memory::resident_bytes;

/// A thousand workers of a thousand keys each.
pub fn overload(name: &str) -> bool {
    let began = Instant::now();
    let options = NodeOptions::default();
    let mut fleet = Fleet::new(Plan {
        owners: 1,
        workers: WORKERS,
        keys: KEYS,
        rate: RATE,
        burst: RATE / 5,
        per_second: f64::from(KEYS) * RATE as f64 * LOAD / f64::from(WORKERS),
        is_zipf: false,
        options,
        tick: Duration::from_millis(2),
    });
    println!(
        "# {name}: {WORKERS} workers, {KEYS} keys of {RATE}/s, {LOAD} times as much is asked for; \
         the owner applies {} reports a second",
        options.reports_per_second_max
    );
    let mut short = false;
    for second in 1..=SECONDS {
        let seen = fleet.run(Duration::from_secs(1));
        let resident = resident_bytes("self") as f64;
        let units = fleet.take_admitted();
        let used = |units: u64, keys: u32| 100.0 * units as f64 / (u64::from(keys) * RATE) as f64;
        println!(
            "# {name}: second {second}: {:.2} M reports offered, {:.2} M applied; {} batches sent, \
             {} refused; cadence {:?}; {:.1} % of the limits used, of one {:.1} % at least; \
             {:.0} ns of the owner a report; {:.2} GiB; after {:.0} s",
            seen.offered as f64 / 1e6,
            seen.applied as f64 / 1e6,
            seen.batches,
            seen.refusals,
            seen.cadence_max,
            used(units.iter().sum(), KEYS),
            used(units.iter().min().copied().unwrap_or(0), 1),
            seen.owners_cpu.as_nanos() as f64 / seen.applied.max(1) as f64,
            resident / f64::from(1 << 30),
            began.elapsed().as_secs_f64(),
        );
        if second == SECONDS {
            let most = options.reports_per_second_max as f64;
            short |= judge_exact("overload-applied", seen.applied as f64 / most);
            short |= judge_exact("overload-cadence-ms", seen.cadence_max.as_secs_f64() * 1e3);
        }
    }
    let admitted = fleet.take_admitted_of_workers().into_iter().map(|units| units as f64);
    let none = admitted.clone().filter(|units| *units == 0.0).count();
    let Quartiles { lower, median, upper } = Quartiles::of(admitted.collect());
    println!(
        "# {name}: a worker was admitted {median:.0} units (quartiles {lower:.0} and {upper:.0}), \
         {none} of them none"
    );
    let counts = fleet.owner(0);
    println!(
        "# {name}: the owner has {} keys; of {} units that it permitted, {} expired before it heard \
         of them",
        counts.owned, counts.owner.granted, counts.owner.expired
    );
    short |= judge_exact("overload-excess", fleet.worst_excess().max(0.0));
    short
}

const WORKERS: u32 = 1_000;
const KEYS: u32 = 1_000;
const RATE: u64 = 1_000;
const LOAD: f64 = 2.5;
/// After ten of them a silent record is forgotten: what is held, and what a report takes, levels off.
const SECONDS: u32 = 12;
