//! E5: counts that clients keep and report. Databricks, "High performance rate limiting at
//! Databricks" (2025): clients admit first and report about every 100 ms, a token bucket may go
//! negative, and about 5 % over is the target.

use std::time::Duration;

use super::measure::{admitted, excess, fleet, load, most, per_second, percent, units};
use super::{Row, Table};
use crate::scenario::{MS, Nanos, SECOND, Scenario};

/// One run.
#[derive(Debug, Clone, Copy)]
struct Case {
    limit: u64,
    /// Times the limit that is offered.
    offered: f64,
    sync_ms: u64,
    burst: u64,
    /// How long callers wait for credit.
    waits: Nanos,
    seconds: u64,
}

#[derive(Debug, Clone, Copy)]
struct Outcome {
    /// Above the limit in the worst second, and in all of the time, as a share of it.
    over_second: f64,
    over_all: f64,
    used: f64,
    excess: f64,
}

pub(super) fn full() -> Table {
    let mut rows = Vec::new();
    for sync_ms in [5, 100] {
        // As much as comes in 50 ms or 300 ms.
        let millis = if sync_ms == 5 { 50 } else { 300 };
        for waits in [0, 100 * MS] {
            for limit in [10, 100, 1_000, 10_000] {
                let least = if waits > 0 { 1 } else { u64::from(CLIENTS) };
                let burst = (limit * millis / 1_000).max(least);
                let case = Case { limit, offered: 0.0, sync_ms, burst, waits, seconds: 60 };
                rows.push(row(case, &[1.5, 2.0, 5.0, 10.0]));
            }
        }
    }
    Table {
        title: "E5: clients that count (Databricks 2025)".into(),
        text: format!(
            "10 clients, half a millisecond one way, offered 1.5, 2, 5 and 10 × the limit, 60 s \
             after a warm-up of {} s. B is what comes in 50 ms (sync interval 5 ms) or 300 ms (100 \
             ms), and one unit for each client where callers do not wait. Line: nothing over \
             B + R·t, at most 5 % (or one unit) over in any second, 0.5 % over the 60 s, 95 % \
             used.",
            WARM_UP / SECOND
        ),
        published: vec!["published"],
        ours: vec![
            "B",
            "over, worst 1 s",
            "over, 60 s",
            "used at 1.5 ×",
            "used at 10 ×",
            "worst over B + R·t",
        ],
        rows,
    }
}

fn row(case: Case, loads: &[f64]) -> Row {
    let run = |offered: &f64| measure(Case { offered: *offered, ..case });
    let outcomes: Vec<Outcome> = loads.iter().map(run).collect();
    let worst = |of: fn(&Outcome) -> f64| outcomes.iter().map(of).fold(f64::MIN, f64::max);
    let waits = if case.waits > 0 { ", callers wait 100 ms" } else { "" };
    let limit = crate::number(case.limit as f64);
    Row {
        what: format!("{limit}/s, sync {} ms{waits}", case.sync_ms),
        published: vec!["≈ 5 % over".into()],
        ours: vec![
            crate::number(case.burst as f64),
            percent(worst(|outcome| outcome.over_second), 1),
            percent(worst(|outcome| outcome.over_all), 2),
            percent(outcomes[0].used, 1),
            percent(outcomes[outcomes.len() - 1].used, 1),
            units(worst(|outcome| outcome.excess)),
        ],
        pass: Some(outcomes.iter().all(|outcome| passes(case, outcome))),
    }
}

fn passes(case: Case, outcome: &Outcome) -> bool {
    let limit = case.limit as f64;
    let is_near = outcome.over_second * limit <= (0.05 * limit).max(1.0) + 1e-6;
    outcome.excess <= 0.0 && is_near && outcome.over_all <= 0.005 && outcome.used >= 0.95
}

fn measure(case: Case) -> Outcome {
    let scenario = scenario(case);
    let ledger = crate::run(&scenario);
    let limit = case.limit as f64;
    let all = limit * case.seconds as f64;
    let used = admitted(&ledger, WARM_UP, scenario.lasts) as f64;
    Outcome {
        over_second: most(&ledger, SECOND, WARM_UP) as f64 / limit - 1.0,
        over_all: (used / all - 1.0).max(0.0),
        used: used / all,
        excess: excess(&scenario, &ledger),
    }
}

fn scenario(case: Case) -> Scenario {
    let Case { limit, offered, sync_ms, burst, waits, seconds } = case;
    let mut scenario = fleet(CLIENTS, per_second(limit), burst, WARM_UP + seconds * SECOND);
    scenario.times.sync_interval = Duration::from_millis(sync_ms);
    let mut demand = load(0..CLIENTS, 0, limit as f64 * offered / f64::from(CLIENTS));
    demand.waits = waits;
    scenario.demands = vec![demand];
    scenario
}

const CLIENTS: u32 = 10;
const WARM_UP: Nanos = 2 * SECOND;

#[cfg(test)]
mod tests {
    use super::*;

    fn case(limit: u64, offered: f64, burst: u64) -> Case {
        Case { limit, offered, sync_ms: 5, burst, waits: 0, seconds: 5 }
    }

    #[test]
    fn a_busy_limit_is_used_and_no_second_is_five_percent_over() {
        for offered in [1.5, 10.0] {
            let case = case(1_000, offered, 50);
            let outcome = measure(case);
            assert!(passes(case, &outcome), "{offered} x: {outcome:?}");
        }
    }

    #[test]
    fn a_low_limit_is_used_when_callers_wait() {
        let case = Case { waits: 100 * MS, ..case(100, 2.0, 5) };
        let outcome = measure(case);
        assert!(passes(case, &outcome), "{outcome:?}");
    }

    #[test]
    fn a_hundred_milliseconds_between_reports_exceed_nothing_either() {
        let outcome = measure(Case { sync_ms: 100, ..case(1_000, 5.0, 300) });
        assert!(outcome.excess <= 0.0 && outcome.used >= 0.95, "{outcome:?}");
        assert!(outcome.over_second <= 0.1, "{outcome:?}");
    }
}
