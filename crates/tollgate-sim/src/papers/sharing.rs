//! E1, E2, E4, E9 and E10 with nodes that divide a limit: how well, how soon, at what cost. "Cloud
//! Control with Distributed Rate Limiting" (SIGCOMM 2007), DynamoDB (ATC 2022), Cadence (2024).

use tollgate::ShareMode;

use super::measure::percent;
use super::{Row, Table};
use crate::scenario::{MS, Nanos, SECOND, Shape};
use crate::share::ledger::Ledger;
use crate::share::{Fault, Load, Scenario, Units, check, run};

pub(super) fn two() -> Table {
    let rows = [(ShareMode::Global, "ours"), (ShareMode::Local, "R/N on each")];
    let row = |(mode, what): (ShareMode, &str)| {
        let mut scenario = Scenario::quiet(2, Units::per_second(10_000, 1_000), 20 * SECOND);
        (scenario.network.delay_min, scenario.network.delay_max) = (20 * MS, 20 * MS);
        scenario.mode = mode;
        // 7 and 3 flows that each ask for 2,000 a second.
        scenario.loads = vec![Load::even(0, 0, 14_000.0), Load::even(0, 1, 6_000.0)];
        let ledger = run(&scenario);
        let of = |node| ledger.admitted_by(node, 0, 5 * SECOND, 20 * SECOND) as f64 / 15.0;
        let (one, other) = (of(0), of(1));
        let jain = jain(one / 7.0, other / 3.0);
        let over = (one + other) / 10_000.0 - 1.0;
        let peak = (0..40).map(|step| ledger.admitted(0, step * 50 * MS, (step + 20) * 50 * MS));
        let peak = peak.max().unwrap_or(0) as f64 / 10_000.0;
        Row {
            what: what.into(),
            published: vec!["6.2 : 3.6".into()],
            ours: vec![
                format!("{:.2} : {:.2}", one / 1e3, other / 1e3),
                format!("{jain:.3}"),
                percent(over, 2),
                format!("{peak:.2} R"),
            ],
            pass: (mode == ShareMode::Global).then_some(jain >= 0.99 && over <= 0.01),
        }
    };
    Table {
        title: "E1: two limiters (SIGCOMM 2007, FPS)".into(),
        text: "R = 10,000/s, B = 1,000, two nodes with 7 and 3 flows of 2,000/s each, 40 ms there \
               and back, 15 s after 5. Line: at most 1 % over, Jain's index over flows 0.99."
            .into(),
        published: vec!["noted of a replication"],
        ours: vec!["thousands a second", "Jain", "over", "most in a second from the start"],
        rows: rows.into_iter().map(row).collect(),
    }
}

/// Jain's index over 7 flows that have `one` each and 3 that have `other`.
fn jain(one: f64, other: f64) -> f64 {
    let (sum, squares) = (7.0 * one + 3.0 * other, 7.0 * one * one + 3.0 * other * other);
    sum * sum / (10.0 * squares)
}

pub(super) fn many() -> Table {
    let row = |nodes: u32| {
        let lasts = 25 * SECOND;
        let rate = 100 * u64::from(nodes);
        let mut scenario = Scenario::quiet(nodes, Units::per_second(rate, rate), lasts);
        scenario.loads = (0..nodes).map(|node| Load::even(0, node, 120.0)).collect();
        let ledger = run(&scenario);
        let traffic = ledger.traffic;
        let seconds = lasts as f64 / 1e9;
        let others = f64::from(nodes - 1) * seconds;
        let messages = traffic.reports.0 + traffic.answers.0 + traffic.pushes.0;
        let bytes = traffic.reports.1 * REPORT_BYTES
            + (traffic.answers.1 + traffic.pushes.1) * ALLOTMENT_BYTES
            + messages * FRAME_BYTES;
        let over = ledger.admitted(0, 5 * SECOND, lasts) as f64 / (rate as f64 * 20.0) - 1.0;
        Row {
            what: format!("{nodes} nodes"),
            published: vec!["23 Kbps a limiter".into()],
            ours: vec![
                format!("{:.2}", traffic.reports.0 as f64 / others),
                format!("{:.2}", messages as f64 / others),
                format!("{:.0}", bytes as f64 / others),
                percent(over, 2),
            ],
            pass: Some(over <= 0.02),
        }
    };
    Table {
        title: "E2: 490 limiters (SIGCOMM 2007)".into(),
        text:
            "Each node is asked for 1.2 times an equal part of 100/s each; bytes as on the wire, \
               with their frames, of one key by itself. Line: as many a worker whatever N is, at \
               most 2 % over."
                .into(),
        published: vec!["noted"],
        ours: vec!["reports a worker and s", "messages", "bytes", "over"],
        rows: [10, 100, 490].into_iter().map(row).collect(),
    }
}

pub(super) fn skewed() -> Table {
    let rows = [
        ("ours", ShareMode::Global, false),
        ("ours, the owner is killed and comes back", ShareMode::Global, true),
        ("R/10 on each", ShareMode::Local, false),
    ];
    let row = |(what, mode, is_killed): (&str, ShareMode, bool)| {
        let lasts = 60 * SECOND;
        let mut scenario = Scenario::quiet(10, Units::per_second(1_000, 1_000), lasts);
        scenario.mode = mode;
        let all: f64 = (1..=10).map(|rank| f64::from(rank).powf(-1.2)).sum();
        let of = |rank: u32| 800.0 * f64::from(rank).powf(-1.2) / all;
        let load = |node| Load { shape: Shape::Random, ..Load::even(0, node, of(node + 1)) };
        scenario.loads = (0..10).map(load).collect();
        if is_killed {
            let back_after = Some(SECOND);
            scenario.faults = vec![(30 * SECOND, Fault::Owner { key: 0, back_after })];
        }
        let ledger = run(&scenario);
        let from = 5 * SECOND;
        let asked = ledger.units(from, lasts, |_| true);
        let denied = ledger.units(from, lasts, |ask| !ask.passed);
        let part = denied as f64 / asked as f64;
        Row {
            what: what.into(),
            published: vec!["≤ 0.01 %".into()],
            ours: vec![denied.to_string(), percent(part, 3)],
            pass: (mode == ShareMode::Global).then_some(part <= 1e-4),
        }
    };
    Table {
        title: "E4: a table whose traffic is skewed (DynamoDB 2022)".into(),
        text: "R = B = 1,000, 10 nodes by Zipf 1.2, 800/s in all at random times, 55 s after 5. \
               Line: at most 0.01 % denied."
            .into(),
        published: vec!["adaptive capacity"],
        ours: vec!["denied", "of all"],
        rows: rows.into_iter().map(row).collect(),
    }
}

pub(super) fn moving() -> Table {
    let mut times: Vec<Nanos> = Vec::new();
    let mut late = 0;
    for seed in 1..=100 {
        let mut scenario = Scenario::quiet(2, Units::per_second(100, 100), 20 * SECOND);
        scenario.seed = seed;
        let at = 10 * SECOND + seed * 10 * MS;
        scenario.loads = vec![
            Load::even(0, 0, 90.0).during(0, at),
            Load::even(0, 1, 10.0).during(0, at),
            Load::even(0, 0, 10.0).during(at, Nanos::MAX),
            Load::even(0, 1, 90.0).during(at, Nanos::MAX),
        ];
        let ledger = run(&scenario);
        for time in check::convergence_times(&scenario, &ledger, 0) {
            match time {
                Some(time) => times.push(time),
                None => late += 1,
            }
        }
    }
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    let shown = |time: Nanos| format!("{:.2} s", time as f64 / 1e9);
    let row = Row {
        what: "90/10 to 10/90, 100 phases".into(),
        published: vec!["12 s".into()],
        ours: vec![shown(at(0.5)), shown(at(0.9)), shown(at(1.0))],
        pass: Some(at(0.9) <= 2 * SECOND && late == 0),
    };
    Table {
        title: "E9: a load that moves, in a fleet (Cadence 2024)".into(),
        text:
            "R = B = 100, two nodes, 1 s interval; until each node's rate is, and stays, within a \
               twentieth of its part. Line: nine in ten within two intervals."
                .into(),
        published: vec!["published"],
        ours: vec!["median", "nine in ten", "most"],
        rows: vec![row],
    }
}

pub(super) fn switched() -> Table {
    let rows = [
        ("local to global", vec![ShareMode::Local, ShareMode::Global]),
        ("global to local", vec![ShareMode::Global, ShareMode::Local]),
        (
            "to and fro each 2 s",
            vec![ShareMode::Global, ShareMode::Local, ShareMode::Global, ShareMode::Local],
        ),
    ];
    let row = |(what, modes): (&str, Vec<ShareMode>)| {
        let mut scenario = Scenario::quiet(4, Units::per_second(1_000, 200), 20 * SECOND);
        scenario.mode = modes[0];
        scenario.loads = (0..4).map(|node| Load::even(0, node, 400.0)).collect();
        let switches = (10 * SECOND..).step_by(2_000_000_000).zip(&modes[1..]);
        scenario.faults = switches.map(|(at, mode)| (at, Fault::Mode(*mode))).collect();
        let ledger = run(&scenario);
        let (most, all) = (most_in_second(&ledger), ledger.admitted(0, 9 * SECOND, 19 * SECOND));
        Row {
            what: what.into(),
            published: vec!["~2x at worst".into()],
            ours: vec![format!("{most}"), format!("{all}")],
            pass: Some(most <= 1_000 + 200 + 4 && all <= 10_000 + 200 + 4),
        }
    };
    Table {
        title: "E10: all nodes switch at once (Cadence)".into(),
        text: "R = 1,000, B = 200, 4 nodes that are asked for 400/s each; the most in any second \
               from 9 s on, and in the 10 s around the switches. Line: R and one burst at most."
            .into(),
        published: vec!["the author's"],
        ours: vec!["most in a second", "in 10 s (10,000)"],
        rows: rows.into_iter().map(row).collect(),
    }
}

fn most_in_second(ledger: &Ledger) -> u64 {
    let seconds = (9_000..19_000_u64).step_by(20).map(|at| at * MS);
    seconds.map(|at| ledger.admitted(0, at, at + SECOND)).max().unwrap_or(0)
}

pub(super) fn used() -> Table {
    let zipf = [1_u32, 2, 3, 4].map(|rank| f64::from(rank).powf(-1.2) / 1.8918);
    let kinds = [("even", [0.25; 4]), ("Zipf 1.2", zipf), ("one hot", [0.97, 0.01, 0.01, 0.01])];
    let row = |(what, parts): (&str, [f64; 4])| {
        let used = [1.0, 1.1, 1.5, 2.5].map(|times| {
            let mut scenario = Scenario::quiet(4, Units::per_second(400, 400), 65 * SECOND);
            let load = |(node, part): (u32, f64)| {
                let per_second = 400.0 * times * part;
                Load { shape: Shape::Random, ..Load::even(0, node, per_second) }
            };
            scenario.loads = (0..).zip(parts).map(load).collect();
            let ledger = run(&scenario);
            ledger.admitted(0, 5 * SECOND, 65 * SECOND) as f64 / (400.0 * 60.0)
        });
        let ours = used.map(|used| percent(used, 1)).to_vec();
        Row { what: what.into(), published: Vec::new(), ours, pass: None }
    };
    Table {
        title: "How much of a divided limit is used".into(),
        text: "R = B = 400, 4 nodes, random times, 60 s after 5, by demand in times of R.".into(),
        published: Vec::new(),
        ours: vec!["1.0", "1.1", "1.5", "2.5"],
        rows: kinds.into_iter().map(row).collect(),
    }
}

/// One report, one part and the frame of a message on the wire, about: whole numbers take a byte
/// for each seven bits.
const REPORT_BYTES: u64 = 47;
const ALLOTMENT_BYTES: u64 = 49;
const FRAME_BYTES: u64 = 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_limiters_and_a_switch_meet_their_lines() {
        for table in [two(), switched()] {
            assert!(table.rows.iter().all(|row| row.pass != Some(false)), "{table}");
        }
    }
}
