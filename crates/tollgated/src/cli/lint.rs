//! `tollgate lint`: every mistake in a policy, with its place.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::differences::Differences;
use super::paint::Paint;
use super::{Merging, NO, say};
use crate::config::{self, Finding, Reading, Severity};

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
}

impl Lint {
    pub(crate) fn run(&self) -> Result<ExitCode, String> {
        // What is not there has no mistakes either.
        let unreadable = |error| format!("{}: {error}", self.path.display());
        std::fs::metadata(&self.path).map_err(unreadable)?;
        let merge_domains = self.merging.merge_domains;
        let reading = Reading { keys_max: self.keys_max, merge_domains };
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
        for finding in findings {
            let severity = match finding.severity {
                Severity::Error => paint.red("error"),
                Severity::Warning => paint.yellow("warning"),
            };
            let Finding { file, line, column, message, .. } = finding;
            say(&format!("{}:{line}:{column}: {severity}: {message}", file.display()));
        }
        if let Some(limits) = limits {
            say(&format!("{}: {} {limits} limits", self.path.display(), paint.green("ok,")));
        }
    }
}
