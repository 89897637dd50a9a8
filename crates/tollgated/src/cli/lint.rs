//! `tollgate lint`: every mistake in a policy, with its place.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::differences::Differences;
use super::paint::Paint;
use super::{Merging, NO, say};
use crate::config::{self, Finding, Fleet, Reading, Severity, positive_time, time};

#[derive(Args)]
pub(crate) struct Lint {
    /// A policy: a .toml or .yaml file, or a folder of them
    path: PathBuf,
    /// End with 1 for warnings too
    #[arg(long)]
    deny_warnings: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Keys that the daemon will have room for
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    keys_max: u64,
    /// Tell what is decided otherwise than by Envoy's rate-limit service
    #[arg(long)]
    differences: bool,
    #[command(flatten)]
    merging: Merging,
    #[command(flatten)]
    fleet: FleetWords,
}

/// The fleet that is to share limits with the guarantee `eventual`.
#[derive(Args)]
#[command(next_help_heading = "The fleet that is to share `eventual` limits")]
struct FleetWords {
    /// The processes that decide; left out, no limit is found too small to share
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    workers: Option<u64>,
    /// What a message and its answer take between two of them, as ping tells, such as 500us; half
    /// an interval, in which reports wait for each other, comes on top
    #[arg(long, default_value = "2ms", value_name = "TIME", value_parser = time)]
    round_trip: Duration,
    /// How often a worker reports a key that is near its limit
    #[arg(long, default_value = "5ms", value_name = "TIME", value_parser = positive_time)]
    interval: Duration,
    /// The longest that a permission lasts
    #[arg(long, default_value = "400ms", value_name = "TIME", value_parser = positive_time)]
    ttl_max: Duration,
    /// How long a node may be silent before it counts as gone
    #[arg(long, default_value = "1700ms", value_name = "TIME", value_parser = positive_time)]
    session_timeout: Duration,
}

impl FleetWords {
    fn fleet(&self) -> Fleet {
        let &Self { workers, round_trip, interval, ttl_max, session_timeout } = self;
        Fleet { workers, delay: round_trip / 2, interval, ttl_max, session_timeout }
    }
}

impl Lint {
    pub(crate) fn run(&self) -> Result<ExitCode, String> {
        // What is not there has no mistakes either.
        let unreadable = |error| format!("{}: {error}", self.path.display());
        std::fs::metadata(&self.path).map_err(unreadable)?;
        let merge_domains = self.merging.merge_domains;
        let usual = Reading::of(self.keys_max, merge_domains);
        let reading = Reading { fleet: self.fleet.fleet(), ..usual };
        let (limits, findings, differences) = match config::load(&self.path, reading) {
            Ok(loaded) => {
                let differences = self.differences.then(|| Differences::of(&loaded));
                // The end of a path without a limit is none.
                let limits = loaded.limits.iter().filter(|limit| !limit.is_blank()).count();
                (Some(limits), loaded.warnings, differences)
            }
            Err(findings) => (None, findings, None),
        };
        if self.json {
            let mut shown =
                json!({ "valid": limits.is_some(), "limits": limits, "findings": findings });
            if let Some(differences) = &differences {
                shown["differences"] = differences.value();
            }
            say(&format!("{shown:#}"));
        } else {
            self.print(limits, &findings);
            differences.iter().for_each(Differences::print);
        }
        let good = limits.is_some() && (findings.is_empty() || !self.deny_warnings);
        Ok(ExitCode::from(if good { 0 } else { NO }))
    }

    fn print(&self, limits: Option<usize>, findings: &[Finding]) {
        let paint = Paint::of_stdout();
        findings.iter().for_each(|finding| say(&shown(finding, paint)));
        if let Some(limits) = limits {
            say(&format!("{}: {} {limits} limits", self.path.display(), paint.green("ok,")));
        }
    }
}

/// A finding as a line.
pub(crate) fn shown(finding: &Finding, paint: Paint) -> String {
    let severity = match finding.severity {
        Severity::Error => paint.red("error"),
        Severity::Warning => paint.yellow("warning"),
    };
    let Finding { file, line, column, message, .. } = finding;
    format!("{}:{line}:{column}: {severity}: {message}", file.display())
}
