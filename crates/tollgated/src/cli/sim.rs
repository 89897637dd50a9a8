//! `tollgate sim`: plays a scenario in virtual time, and tells what each limit promised and what
//! was seen.
//!
//! What a scenario is, is decided by `config`; what is right and wrong by `tollgate_sim`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tollgate_sim::ledger::Ledger;
use tollgate_sim::scenario::{Fault, Scenario};
use tollgate_sim::show::{self, KeyReport, Names, Report, Verdict};
use tollgate_sim::{duration, number, watch};

use super::paint::Paint;
use super::{NO, WRONG, say};
use crate::config::{Staged, load_scenario};

#[derive(Args)]
pub(crate) struct Sim {
    /// A scenario: which fleet, which limits, what is asked and what goes wrong (docs/sim.md)
    scenario: PathBuf,
    /// What chance comes from, instead of the scenario's own
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write a page with charts to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Sim {
    pub(crate) fn run(&self) -> Result<ExitCode, String> {
        std::fs::metadata(&self.scenario)
            .map_err(|error| format!("{}: {error}", self.scenario.display()))?;
        let Staged { mut scenario, names, warnings } = match load_scenario(&self.scenario) {
            Ok(fleet) => fleet,
            Err(findings) => {
                findings.iter().for_each(|finding| eprintln!("{finding}"));
                return Ok(ExitCode::from(WRONG));
            }
        };
        warnings.iter().for_each(|warning| eprintln!("{warning}"));
        scenario.seed = self.seed.unwrap_or(scenario.seed);
        let ledger = watch(&scenario, show::every(&scenario));
        let report = Report::new(&scenario, &names, &ledger);
        if let Some(path) = &self.html {
            let page = show::page(&scenario, &names, &ledger, &report).html();
            let written = std::fs::write(path, page);
            written.map_err(|error| format!("{}: {error}", path.display()))?;
        }
        if self.json {
            say(&format!("{:#}", value(&scenario, &names, &ledger, &report)));
        } else {
            print(&scenario, &names, &ledger, &report);
            if let Some(path) = &self.html {
                say(&format!("\nwritten: {}", path.display()));
            }
        }
        Ok(ExitCode::from(if report.is_good() { 0 } else { NO }))
    }
}

fn print(scenario: &Scenario, names: &Names, ledger: &Ledger, report: &Report) {
    let paint = Paint::of_stdout();
    let row = |name: &str, value: &str, why: &str| {
        say(format!("{name:14}  {value:28}  {}", paint.dim(why)).trim_end());
    };
    let nanos = |nanos| duration(Duration::from_nanos(nanos));
    let nodes = format!("{} node{}", units(scenario.nodes.into()), plural(scenario.nodes.into()));
    let network = scenario.network;
    let delay = match (network.delay_min, network.delay_max) {
        (least, most) if least == most => nanos(least),
        (least, most) => format!("{} to {}", nanos(least), nanos(most)),
    };
    let lost = number(network.loss * 100.0);
    let apart = format!("{delay} apart, {lost} % lost; seed {}", scenario.seed);
    row(&names.title, &format!("{nodes}, {}", nanos(scenario.lasts)), &apart);
    for (at, fault) in &ledger.faults {
        let (what, lasts) = show::words(fault, names);
        let lasts = lasts.map_or_else(String::new, |lasts| format!(", for {}", nanos(lasts)));
        row(&format!("  at {}", nanos(*at)), &format!("{what}{lasts}"), "");
    }
    let messages = format!("{} messages/s", number(report.messages_per_second.round()));
    row("traffic", &messages, "between nodes, all keys together");
    for key in &report.keys {
        say("");
        print_key(key, report, paint, row);
    }
    for mistake in &report.mistakes {
        say(&format!("\n{}: {mistake}", paint.red("a mistake of the product")));
    }
}

fn print_key(key: &KeyReport, report: &Report, paint: Paint, row: impl Fn(&str, &str, &str)) {
    let verdict = match key.verdict {
        Verdict::Held => paint.green(key.verdict.words()),
        Verdict::WithinEnvelope => paint.yellow(key.verdict.words()),
        Verdict::Broken => paint.red(key.verdict.words()),
    };
    say(&format!("{}: {verdict}", key.name));
    row("  promise", &key.promise(), "B + R x t, in any time t, on all nodes together");
    let at = duration(Duration::from_millis(key.worst_at / 1_000_000));
    row("  worst window", &key.distance(), &format!("the window ends at {at}"));
    if key.envelope > 0.0 {
        let more = match report.excuses.len() {
            0 | 1 => String::new(),
            count => format!(", and {} more", count - 1),
        };
        let why = format!("{}{more}", report.excuses.first().map_or("", |why| why));
        let needed = if key.excess > 0.0 { "" } else { ", not needed" };
        let envelope = format!("{} units more{needed}", number(key.envelope.floor()));
        row("  envelope", &envelope, &why);
    }
    row("  used", &key.used_words(), "of what one perfect limiter would have admitted");
    let (offered, admitted) = (key.offered.units, key.admitted);
    row(
        "  admitted",
        &format!("{} of {} offered", units(admitted), units(offered)),
        &format!(
            "{} denied, {} of them stale",
            units(key.offered.refused),
            units(key.offered.stale)
        ),
    );
}

/// The run for programs.
fn value(scenario: &Scenario, names: &Names, ledger: &Ledger, report: &Report) -> Value {
    let key = |key: &KeyReport| {
        json!({
            "limit": names.limits[key.limit],
            "key": names.keys[key.limit][key.key as usize],
            "rate": key.rate.to_string(),
            "burst": key.burst,
            "held": key.verdict != Verdict::Broken,
            "within_envelope": key.verdict == Verdict::WithinEnvelope,
            "worst_excess": key.excess,
            "worst_at_us": key.worst_at / 1_000,
            "envelope": key.envelope,
            "used": key.used,
            "offered": key.offered.units,
            "admitted": key.admitted,
            "denied": key.offered.refused,
            "stale": key.offered.stale,
        })
    };
    let node = |node: &show::NodeReport| {
        json!({
            "node": node.node + 1,
            "offered": node.offered.units,
            "admitted": node.admitted,
            "denied": node.offered.refused,
            "stale": node.offered.stale,
        })
    };
    let fault = |(at, fault): &(u64, Fault)| {
        let what = show::words(fault, names).0;
        json!({ "at_us": at / 1_000, "what": what })
    };
    let mistakes: Vec<String> = report.mistakes.iter().map(ToString::to_string).collect();
    json!({
        "scenario": names.title,
        "seed": scenario.seed,
        "held": report.is_good(),
        "keys": report.keys.iter().map(key).collect::<Vec<_>>(),
        "nodes": report.nodes.iter().map(node).collect::<Vec<_>>(),
        "faults": ledger.faults.iter().map(fault).collect::<Vec<_>>(),
        "envelope_because": report.excuses,
        "mistakes": mistakes,
        "messages_per_second": report.messages_per_second,
    })
}

fn units(count: u64) -> String {
    number(count as f64)
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}
