//! `tollgate lint`: every mistake in a policy file, with its place.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::paint::Paint;
use super::{NO, say};
use crate::config::{self, Finding, Severity};

#[derive(Args)]
pub(crate) struct Lint {
    /// A policy file, or a folder whose *.toml files are one policy
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
}

impl Lint {
    pub(crate) fn run(&self) -> Result<ExitCode, String> {
        // What is not there has no mistakes either.
        let unreadable = |error| format!("{}: {error}", self.path.display());
        std::fs::metadata(&self.path).map_err(unreadable)?;
        let (limits, findings) = match config::load(&self.path, self.keys_max) {
            Ok(loaded) => (Some(loaded.limits.len()), loaded.warnings),
            Err(findings) => (None, findings),
        };
        if self.json {
            let shown =
                json!({ "valid": limits.is_some(), "limits": limits, "findings": findings });
            say(&format!("{shown:#}"));
        } else {
            self.print(limits, &findings);
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
