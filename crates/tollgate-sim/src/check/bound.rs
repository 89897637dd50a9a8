//! `eventual`: admitted(s, t] <= B + R · (t - s) for every window, net of refunds; and beyond it no
//! more than the envelope, which somebody must have counted.
//!
//! A leaky bucket over what was really spent judges every window at once: its level is the largest
//! excess of any window that ends now. [`brute_force`] looks at each window instead, and agrees.

use std::collections::BTreeMap;

use tollgate::{Event, Rate};

use super::Violation;
use super::excess::Bucket;
use crate::ledger::{Admission, Change, Ledger};
use crate::scenario::{Fault, MS, Nanos, SECOND, Scenario};

/// The worst window of one key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Worst {
    /// The limit, by its place in the scenario.
    pub limit: usize,
    /// The key.
    pub key: u32,
    /// Units above B + R·t.
    pub excess: f64,
    /// When the window ended.
    pub at: Nanos,
}

/// A key just after an admission.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// When.
    pub at: Nanos,
    /// Units above R·t of the worst window that ends then.
    pub units: f64,
    /// R that is held against it.
    pub rate: Rate,
    /// B that is held against it.
    pub burst: u64,
    /// Units above B + R·t: exact in whether it is above 0.
    pub excess: f64,
}

/// Judges a run.
#[must_use]
pub fn check(scenario: &Scenario, ledger: &Ledger) -> Vec<Violation> {
    let mut violations = Vec::new();
    for worst in worst_windows(scenario, ledger) {
        if worst.excess <= 0.0 {
            continue;
        }
        let Worst { limit, key, excess, at } = worst;
        let allowed = envelope(scenario, ledger, limit);
        if excess > allowed {
            let at = at as f64 / 1e6;
            violations.push(Violation {
                checker: "bound",
                what: format!(
                    "limit {limit} key {key}: {excess:.3} units over B + R·t in a window that ends \
                     at {at:.3} ms; the envelope allows {allowed:.1}"
                ),
            });
        }
    }
    violations
}

/// The worst window of each key.
#[must_use]
pub fn worst_windows(scenario: &Scenario, ledger: &Ledger) -> Vec<Worst> {
    let mut by_key: BTreeMap<(usize, u32), Vec<&Admission>> = BTreeMap::new();
    for admission in &ledger.admissions {
        by_key.entry((admission.limit, admission.key)).or_default().push(admission);
    }
    let worst = |((limit, key), admissions): (&(usize, u32), &Vec<&Admission>)| {
        let curve = Curve::new(scenario, ledger, *limit);
        let (excess, at) = curve.worst(admissions);
        Worst { limit: *limit, key: *key, excess, at }
    };
    by_key.iter().map(worst).collect()
}

/// How near a key came to its bound, admission by admission.
pub fn levels(
    scenario: &Scenario,
    ledger: &Ledger,
    (limit, key): (usize, u32),
    each: impl FnMut(Level),
) {
    let of_key = |admission: &&Admission| (admission.limit, admission.key) == (limit, key);
    Curve::new(scenario, ledger, limit).levels(ledger.admissions.iter().filter(of_key), each);
}

/// What may be admitted beyond B + R·t: nothing, unless somebody counted that two owners overlapped
/// or that a process stood still.
#[must_use]
pub fn envelope(scenario: &Scenario, ledger: &Ledger, limit: usize) -> f64 {
    let mut overlap = 0.0;
    let mut is_paused = false;
    for (_, _, event) in &ledger.events {
        match event {
            // Owners that stop in time cannot overlap.
            Event::Overlap { lasted, .. } if scenario.serves_alone => {
                overlap += lasted.as_secs_f64() + scenario.times.ttl_max.as_secs_f64();
            }
            Event::Paused { .. } => is_paused = true,
            Event::Overlap { .. } | Event::HandoverLate { .. } | Event::Full => {}
        }
    }
    if overlap == 0.0 && !is_paused {
        return 0.0;
    }
    let of = &scenario.limits[limit];
    let demands = scenario.demands.iter().filter(|demand| demand.limit == limit);
    let cost = demands.map(|demand| demand.cost.1).max().unwrap_or(1);
    let burst = changes_of(ledger, limit).map(|change| change.burst).max().unwrap_or(of.burst);
    let default = |change: &Change| {
        tollgate::ViewLimit::new(change.rate, change.burst, 0, scenario.times.sync_interval)
            .local_cap
    };
    let cap = of.local_cap.or(changes_of(ledger, limit).map(default).max()).unwrap_or(burst);
    let rate = changes_of(ledger, limit).map(|change| change.rate.per_second()).fold(0.0, f64::max);
    f64::from(scenario.nodes) * cap.max(cost) as f64 + rate * overlap
}

fn changes_of(ledger: &Ledger, limit: usize) -> impl Iterator<Item = &Change> {
    ledger.changes.iter().filter(move |change| change.limit == limit)
}

/// What one key may be admitted, over time.
struct Curve {
    /// From when on: the largest R of the time, and the largest B.
    steps: Vec<(Nanos, Rate, u64)>,
    drift_ppm: u32,
    /// Units that first contacts were allowed.
    bootstrap: u64,
}

impl Curve {
    fn new(scenario: &Scenario, ledger: &Ledger, limit: usize) -> Self {
        let changes: Vec<&Change> = changes_of(ledger, limit).collect();
        let lag = change_lag(scenario);
        // R is the owner's, who may learn late; B is the largest that anything still outstanding,
        // or not yet leaked, was permitted by.
        let slowest =
            changes.iter().map(|change| change.rate.per_second()).fold(f64::MAX, f64::min);
        let largest = changes.iter().map(|change| change.burst).max().unwrap_or(0);
        let leaks = (largest as f64 / slowest.max(1e-9) * 1e9) as Nanos;
        let ttl = scenario.times.ttl_max.as_nanos() as Nanos * 11 / 10;
        let changes = &changes;
        let in_force = |from: Nanos, to: Nanos| {
            changes.iter().enumerate().filter(move |(index, change)| {
                let until = changes_until(changes, *index);
                change.at <= to && until > from
            })
        };
        let mut edges: Vec<Nanos> = changes
            .iter()
            .flat_map(|change| [change.at, change.at + lag, change.at + lag + ttl + leaks])
            .collect();
        edges.sort_unstable();
        edges.dedup();
        let step = |at: &Nanos| {
            let fastest = in_force(at.saturating_sub(lag), *at)
                .map(|(_, change)| change.rate)
                .max_by(|a, b| a.per_second().total_cmp(&b.per_second()));
            let burst =
                in_force(at.saturating_sub(lag + ttl + leaks), *at).map(|(_, change)| change.burst);
            (*at, fastest.unwrap_or(Rate::ZERO), burst.max().unwrap_or(0))
        };
        let steps = edges.iter().map(step).collect();
        let contacts = ledger.contacts.get(limit).copied().unwrap_or(0);
        let bootstrap = scenario.limits[limit].bootstrap * contacts;
        Self { steps, drift_ppm: scenario.drift_ppm, bootstrap }
    }

    /// The largest excess, and when.
    fn worst(&self, admissions: &[&Admission]) -> (f64, Nanos) {
        let mut worst = (f64::MIN, 0);
        self.levels(admissions.iter().copied(), |level| {
            if level.excess > worst.0 {
                worst = (level.excess, level.at);
            }
        });
        worst
    }

    fn levels<'a>(
        &self,
        admissions: impl Iterator<Item = &'a Admission>,
        mut each: impl FnMut(Level),
    ) {
        let (mut bucket, mut step) = (Bucket::default(), 0);
        for admission in admissions {
            // Leak up to the admission, by each step's rate.
            while bucket.at() < admission.at {
                let rate = self.steps[step].1;
                let next = self.steps.get(step + 1).map(|(at, rate, _)| (*at, *rate));
                match next.filter(|(next, _)| *next <= admission.at) {
                    Some((next, then)) => {
                        bucket.leak(next, rate, self.drift_ppm);
                        bucket.convert(rate, then);
                        step += 1;
                    }
                    None => bucket.leak(admission.at, rate, self.drift_ppm),
                }
            }
            let (_, rate, burst) = self.steps[step];
            bucket.add(admission.net(), rate);
            let allowed = burst + self.bootstrap;
            let (units, excess) = (bucket.units(rate), bucket.above(allowed, rate));
            each(Level { at: admission.at, units, rate, burst: allowed, excess });
        }
    }
}

fn changes_until(changes: &[&Change], index: usize) -> Nanos {
    changes.get(index + 1).map_or(Nanos::MAX, |change| change.at)
}

/// How long it may take until every owner knows a changed limit.
#[must_use]
pub fn change_lag(scenario: &Scenario) -> Nanos {
    let longest = |(_, fault): &(Nanos, Fault)| match fault.hitting(0) {
        Fault::Silence { lasts, .. } | Fault::Pause { lasts, .. } => lasts,
        Fault::Reset { back_after, .. } => back_after,
        Fault::Crash { .. }
        | Fault::Stop { .. }
        | Fault::Cut { .. }
        | Fault::Change { .. }
        | Fault::Owner { .. }
        | Fault::Remove { .. }
        | Fault::Failover => 0,
    };
    scenario.faults.iter().map(longest).max().unwrap_or(0) + SECOND + 20 * MS
}

/// The largest excess of any window, one by one: for limits that do not change.
#[must_use]
pub fn brute_force(admissions: &[Admission], rate: Rate, burst: u64, drift_ppm: u32) -> f64 {
    let mut worst = f64::MIN;
    for (first, from) in admissions.iter().enumerate() {
        let mut sum = 0;
        for to in &admissions[first..] {
            sum += to.net();
            let leaked = rate.per_second()
                * (1.0 + f64::from(drift_ppm) / 1e6)
                * ((to.at - from.at) as f64 / 1e9);
            worst = worst.max(sum as f64 - burst as f64 - leaked);
        }
    }
    worst
}
