//! A node that spends from a hundred thousand keys: what it tells their owners, against telling
//! them of each key in each sync interval.

use std::time::Duration;

use tollgate::NodeOptions;

use super::drive::{Fleet, Plan};
use crate::bar::judge_exact;

/// How many times fewer report entries there are than keys times sync intervals. Keys are asked
/// for by Zipf's law, the last of them about once a second; nine in ten ask for less than a tenth
/// of their limit.
pub fn entries(name: &str) -> bool {
    let options = NodeOptions { reports_per_second_max: 1 << 40, ..NodeOptions::default() };
    let harmonic: f64 = (1..=KEYS).map(|n| 1.0 / f64::from(n)).sum();
    let rate = 10.0 * LEAST_PER_SECOND * 10.0;
    let mut fleet = Fleet::new(Plan {
        owners: 3,
        workers: 1,
        keys: KEYS,
        rate: rate as u64,
        burst: rate as u64,
        per_second: LEAST_PER_SECOND * f64::from(KEYS) * harmonic,
        is_zipf: true,
        options,
        tick: Duration::from_millis(1),
    });
    fleet.run(WARM_UP);
    fleet.take_admitted();
    let seen = fleet.run(TIME);
    let seconds = TIME.as_secs_f64();
    let active = fleet.take_admitted().iter().filter(|units| **units > 0).count();
    let intervals = seconds / options.times.sync_interval.as_secs_f64();
    let all = active as f64 * intervals;
    println!(
        "# {name}: {active} keys, {:.0} requests a second, {:.0} admitted; {:.0} entries a second \
         in {:.0} batches, all of them would be {:.0}",
        seen.asked as f64 / seconds,
        seen.admitted as f64 / seconds,
        seen.offered as f64 / seconds,
        seen.batches as f64 / seconds,
        all / seconds,
    );
    judge_exact(name, all / seen.offered as f64)
}

const KEYS: u32 = 100_000;
/// Requests for the least active key.
const LEAST_PER_SECOND: f64 = 1.0;
const WARM_UP: Duration = Duration::from_secs(2);
const TIME: Duration = Duration::from_secs(5);
