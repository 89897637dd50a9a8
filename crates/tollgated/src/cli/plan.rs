//! `tollgate plan`: what a limit with the guarantee `eventual` promises in a fleet, how far that
//! can be exceeded, and what it costs, before anything runs.
//!
//! The arithmetic is `tollgate_sim::plan`; here are the words around it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tollgate::Rate;
use tollgate_sim::plan::{Inputs, warnings};
use tollgate_sim::{duration, number};

use super::paint::Paint;
use super::plan_page::page;
use super::{say, wrong_arguments};
use crate::config::{positive_time, time};

#[derive(Args)]
pub(crate) struct Plan {
    /// R, such as 5000/s or 60/15min
    #[arg(long, value_parser = rate)]
    rate: Rate,
    /// B, in units [default: those of the rate's period]
    #[arg(long, value_name = "UNITS", value_parser = clap::value_parser!(u64).range(1..=UNITS_MAX))]
    burst: Option<u64>,
    /// N, the processes that decide and share the limit
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    workers: u64,
    /// d, what a message takes from one to another, one way, such as 250us or 1ms
    #[arg(long, value_name = "TIME", value_parser = time)]
    delay: Duration,
    /// How often a worker reports a key that is near its limit
    #[arg(long, default_value = "5ms", value_name = "TIME", value_parser = positive_time)]
    interval: Duration,
    /// b, the most that one worker may hold of one key [default: 2 x R x TTL, at most B]
    #[arg(long, value_name = "UNITS", value_parser = clap::value_parser!(u64).range(1..=UNITS_MAX))]
    local_cap: Option<u64>,
    /// c, the most that one request costs
    #[arg(long, default_value_t = 1, value_name = "UNITS",
          value_parser = clap::value_parser!(u64).range(1..=UNITS_MAX))]
    largest_cost: u64,
    /// Keys in use on each worker
    #[arg(long, default_value_t = 1_000, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=UNITS_MAX))]
    keys: u64,
    /// How many of them are near their limit [default: a tenth]
    #[arg(long, value_name = "N")]
    hot_keys: Option<u64>,
    /// For how long two owners of one key are planned for [default: session timeout + TTL max]
    #[arg(long, value_name = "TIME", value_parser = time)]
    overlap: Option<Duration>,
    /// The longest that a permission lasts
    #[arg(long, default_value = "400ms", value_name = "TIME", value_parser = positive_time)]
    ttl_max: Duration,
    /// How long a node may be silent before it counts as gone
    #[arg(long, default_value = "1700ms", value_name = "TIME", value_parser = positive_time)]
    session_timeout: Duration,
    /// Write a page with charts to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// One thing that is told: what, how much, and why.
pub(super) struct Row {
    /// Empty for more of the same.
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) why: String,
}

impl Plan {
    pub(crate) fn run(&self) -> Result<ExitCode, String> {
        let inputs = self.inputs();
        if let Some(path) = &self.html {
            let written = std::fs::write(path, page(&inputs).html());
            written.map_err(|error| format!("{}: {error}", path.display()))?;
        }
        if self.json {
            say(&format!("{:#}", value(&inputs)));
            return Ok(ExitCode::SUCCESS);
        }
        let (rows, paint) = (rows(&inputs), Paint::of_stdout());
        let wide = |text: fn(&Row) -> &str| rows.iter().map(|row| text(row).len()).max();
        let name_width = wide(|row| row.name).unwrap_or(0);
        let value_width = wide(|row| &row.value).unwrap_or(0);
        for Row { name, value, why } in &rows {
            let why = paint.dim(why);
            say(&format!("{name:name_width$}  {value:value_width$}  {why}"));
        }
        let warnings = warnings(&inputs);
        let warnings =
            warnings.iter().map(|warning| format!("{}: {warning}", paint.yellow("warning")));
        let written = self.html.iter().map(|path| format!("written: {}", path.display()));
        let last: Vec<String> = warnings.chain(written).collect();
        if !last.is_empty() {
            say(&format!("\n{}", last.join("\n")));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn inputs(&self) -> Inputs {
        let hot_keys = self.hot_keys.unwrap_or(self.keys.div_ceil(10));
        if hot_keys > self.keys {
            let keys = self.keys;
            wrong_arguments(&format!("--hot-keys {hot_keys}: there are only {keys} keys"));
        }
        let burst = self.burst.unwrap_or(self.rate.units());
        if burst > UNITS_MAX {
            wrong_arguments(&format!("--burst is needed: {burst} would be more than {UNITS_MAX}"));
        }
        Inputs {
            sync_interval: self.interval,
            largest_cost: self.largest_cost,
            local_cap: self.local_cap,
            keys: self.keys,
            hot_keys,
            ttl_max: self.ttl_max,
            session_timeout: self.session_timeout,
            overlap: self.overlap,
            ..Inputs::new(self.rate, burst, self.workers, self.delay)
        }
    }
}

/// All that is told of a plan but its warnings, in the order in which it is told.
pub(super) fn rows(inputs: &Inputs) -> Vec<Row> {
    let row = |name, value, why: &str| Row { name, value, why: why.into() };
    let mut all = vec![
        row("limit", format!("{}, burst {}", inputs.rate, units(inputs.burst)), "R and B"),
        row(
            "fleet",
            format!("{} workers", units(inputs.workers)),
            &format!(
                "N; {} apart (d), a report every {}",
                duration(inputs.delay),
                duration(inputs.sync_interval)
            ),
        ),
    ];
    all.extend(promises(inputs));
    let kill = inputs.served_again_after_kill().map(duration);
    let silence = inputs.served_again_after_silence().map(duration);
    let or_never = |time: Option<String>| time.unwrap_or_else(|| "never".into());
    all.extend([
        row("served again", or_never(kill), "after kill -9 of a key's owner"),
        row("", or_never(silence), "after its machine fell silent"),
        row("", "at once".into(), "in a planned stop"),
    ]);
    all.extend(traffic(inputs));
    all
}

fn promises(inputs: &Inputs) -> [Row; 6] {
    let row = |name, value, why: &str| Row { name, value, why: why.into() };
    let (cap, overlap) = (inputs.local_cap(), duration(inputs.overlap()));
    let chosen = match inputs.local_cap {
        None => format!("b, by default 2 x R x TTL, at most B; TTL {}", duration(inputs.ttl())),
        Some(given) if given > cap => format!("b; {} were given, B is the most", units(given)),
        Some(_) => "b, as given".into(),
    };
    let trip = duration(inputs.round_trip());
    let least = match inputs.least_local_cap() {
        least if least == inputs.largest_cost => {
            format!("c; R brings no more in a round trip of {trip}")
        }
        _ => format!("what R brings in a round trip of {trip}, rounded up"),
    };
    let promise = format!("{} + {}/s", units(inputs.burst), number(inputs.per_second()));
    [
        row("promise", promise, "B + R x t in any time t; 0 over, also when an owner crashes"),
        row(
            "worst excess",
            units(inputs.envelope(cap, inputs.overlap())),
            &format!("N x max(b, c) + R x {overlap}: two owners of a key for {overlap}"),
        ),
        row(
            "",
            units(inputs.held(cap)),
            &format!(
                "N x max(b, c): all workers paused too long, {} each",
                units(inputs.held_by_one(cap))
            ),
        ),
        row("local cap", units(cap), &chosen),
        row("  at least", units(inputs.least_local_cap()), &least),
        row(
            "  one worker",
            percent(inputs.hot_worker_share(cap)),
            "of R, when it has all the traffic",
        ),
    ]
}

fn traffic(inputs: &Inputs) -> [Row; 4] {
    let row = |name, value, why: &str| Row { name, value, why: why.into() };
    let traffic = inputs.traffic();
    let keys = format!(
        "each way; {} keys, {} of them near their limit",
        units(inputs.keys),
        units(inputs.hot_keys)
    );
    let times = traffic.entries_per_second_if_all_hot / traffic.entries_per_second;
    let all = traffic.report_bytes_per_second + traffic.snapshot_bytes_per_second;
    [
        row("a worker sends", format!("{} entries/s", rounded(traffic.entries_per_second)), &keys),
        row(
            "",
            format!("{} messages/s", rounded(traffic.batches_per_second)),
            "each way; at most one to each owner in each interval",
        ),
        row(
            "",
            bytes(traffic.report_bytes_per_second),
            &format!(
                "and gets {}; {} x the entries with all keys near",
                bytes(traffic.snapshot_bytes_per_second),
                number((times * 10.0).round() / 10.0)
            ),
        ),
        row("the fleet sends", bytes(all * inputs.workers as f64), "reports and snapshots"),
    ]
}

/// The plan for programs.
fn value(inputs: &Inputs) -> Value {
    let (cap, traffic) = (inputs.local_cap(), inputs.traffic());
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let warnings: Vec<String> = warnings(inputs).iter().map(ToString::to_string).collect();
    json!({
        "rate": inputs.rate.to_string(),
        "burst": inputs.burst,
        "workers": inputs.workers,
        "delay_us": micros(inputs.delay),
        "interval_us": micros(inputs.sync_interval),
        "ttl_us": micros(inputs.ttl()),
        "round_trip_us": micros(inputs.round_trip()),
        "overlap_us": micros(inputs.overlap()),
        "worst_excess": inputs.envelope(cap, inputs.overlap()),
        "worst_excess_paused": inputs.held(cap),
        "local_cap": cap,
        "least_local_cap": inputs.least_local_cap(),
        "one_worker_share": inputs.hot_worker_share(cap),
        "served_again_after_kill_us": inputs.served_again_after_kill().map(micros),
        "served_again_after_silence_us": inputs.served_again_after_silence().map(micros),
        "worker": {
            "entries_per_second": traffic.entries_per_second,
            "messages_per_second": traffic.batches_per_second,
            "report_bytes_per_second": traffic.report_bytes_per_second,
            "snapshot_bytes_per_second": traffic.snapshot_bytes_per_second,
        },
        "warnings": warnings,
    })
}

fn units(count: u64) -> String {
    number(count as f64)
}

fn rounded(value: f64) -> String {
    number(value.round())
}

/// A part of the whole, rounded down: what is not reached is not said to be.
fn percent(share: f64) -> String {
    format!("{} %", number((share * 100.0).floor()))
}

fn bytes(per_second: f64) -> String {
    let known = [(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")];
    let (size, name) =
        known.into_iter().find(|(size, _)| per_second >= *size).unwrap_or((1.0, "B/s"));
    format!("{} {name}", number((per_second / size * 10.0).round() / 10.0))
}

fn rate(text: &str) -> Result<Rate, String> {
    match Rate::parse(text) {
        Ok(Rate::ZERO) => Err("nothing ever comes back, so there is nothing to plan".into()),
        Ok(rate) => Ok(rate),
        Err(error) => Err(error.to_string()),
    }
}

/// Every smaller number is shown exactly.
const UNITS_MAX: u64 = 1_000_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_in_the_unit_that_suits_them() {
        let told = [40.0, 27_200.0, 28_000_000.0, 1_120_000_000.0].map(bytes);
        assert_eq!(told, ["40 B/s", "27.2 kB/s", "28 MB/s", "1.1 GB/s"]);
    }
}
