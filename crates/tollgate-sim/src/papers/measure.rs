//! What experiments measure: admitted units in windows, time to settle, excess over B + R·t.

use tollgate::Rate;

use crate::check::bound;
use crate::ledger::Ledger;
use crate::scenario::{Demand, Nanos, SECOND, Scenario, Shape, SimLimit};

/// Units admitted from `from` on, before `until`.
pub(super) fn admitted(ledger: &Ledger, from: Nanos, until: Nanos) -> u64 {
    let inside = |at: Nanos| from <= at && at < until;
    let admissions = ledger.admissions.iter().filter(|admission| inside(admission.at));
    admissions.map(|admission| admission.net()).sum()
}

/// The most units admitted in any window of this length that begins at `from` or later.
pub(super) fn most(ledger: &Ledger, window: Nanos, from: Nanos) -> u64 {
    let first = ledger.admissions.partition_point(|admission| admission.at < from);
    let admissions = &ledger.admissions[first..];
    let (mut most, mut sum, mut start) = (0, 0, 0);
    for admission in admissions {
        sum += admission.net();
        while admissions[start].at + window <= admission.at {
            sum -= admissions[start].net();
            start += 1;
        }
        most = most.max(sum);
    }
    most
}

/// Units above B + R·t in the worst window; below zero is what was left of the burst.
pub(super) fn excess(scenario: &Scenario, ledger: &Ledger) -> f64 {
    let worst = bound::worst_windows(scenario, ledger);
    worst.iter().map(|worst| worst.excess).fold(f64::MIN, f64::max)
}

/// How long after `from` it takes until every window of this length up to `until` holds at least
/// `least` units a second; `None` if it never does.
pub(super) fn settles(
    ledger: &Ledger,
    least: f64,
    window: Nanos,
    (from, until): (Nanos, Nanos),
) -> Option<Nanos> {
    let steps = (until - from) / window * STEPS;
    let step = window / STEPS;
    let mut parts = vec![0; steps as usize];
    for admission in &ledger.admissions {
        let at = admission.at.checked_sub(from).map(|after| (after / step) as usize);
        if let Some(part) = at.and_then(|at| parts.get_mut(at)) {
            *part += admission.net();
        }
    }
    let wanted = least * window as f64 / 1e9;
    let windows = parts.windows(STEPS as usize);
    let last_low = windows.map(|parts| parts.iter().sum::<u64>()).collect::<Vec<u64>>();
    let settled = last_low.iter().rposition(|sum| (*sum as f64) < wanted).map_or(0, |low| low + 1);
    (settled < last_low.len()).then_some(settled as Nanos * step)
}

/// A fleet under one limit; nobody asks for anything yet.
pub(super) fn fleet(nodes: u32, rate: Rate, burst: u64, lasts: Nanos) -> Scenario {
    let limit = SimLimit { rate, burst, local_cap: None, bootstrap: 0 };
    let mut scenario = crate::check::utilisation::fleet(nodes, 1, 1, 1.0);
    scenario.limits = vec![limit];
    scenario.demands.clear();
    scenario.lasts = lasts;
    scenario
}

/// A load of `per_second` requests of one unit on each of these nodes, at random times.
pub(super) fn load(nodes: impl IntoIterator<Item = u32>, key: u32, per_second: f64) -> Demand {
    Demand {
        limit: 0,
        key,
        nodes: nodes.into_iter().collect(),
        per_second,
        from: 0,
        until: Nanos::MAX,
        shape: Shape::Random,
        cost: (1, 1),
        waits: 0,
        refunds: 0.0,
        refund_after: 0,
    }
}

/// A rate per second.
pub(super) fn per_second(units: u64) -> Rate {
    Rate::new(units, SECOND).expect("a rate")
}

/// A share as a percentage with this many decimals.
pub(super) fn percent(share: f64, decimals: usize) -> String {
    format!("{:.decimals$} %", share * 100.0)
}

/// A time in ms or s.
pub(super) fn time(nanos: Option<Nanos>) -> String {
    nanos.map_or("never".into(), |nanos| {
        crate::duration(std::time::Duration::from_millis((nanos + 500_000) / 1_000_000))
    })
}

/// An excess as a number of units.
pub(super) fn units(excess: f64) -> String {
    format!("{:+.1}", excess)
}

const STEPS: Nanos = 10;
