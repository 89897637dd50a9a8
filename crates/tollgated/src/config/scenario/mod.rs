//! The scenario file of `tollgate sim`: text to a fleet that can be simulated, and everything that
//! is wrong with it by line and column.
//!
//! `file` has the fields, `check` their meaning. People count nodes from 1, the simulator from 0.

mod check;
mod file;

use std::path::Path;

use toml::Spanned;
use toml::de::DeValue;

use tollgate_sim::scenario::Scenario;
use tollgate_sim::show::Names;

use super::finding::{Finding, Findings, Text};
use super::{document, read, schema_of, source};
use check::Check;
use file::ScenarioFile;

/// A fleet to simulate, and what is doubtful about it.
#[derive(Debug)]
pub(crate) struct Staged {
    /// What happens.
    pub(crate) scenario: Scenario,
    /// What its limits and keys are called.
    pub(crate) names: Names,
    /// What is as it is written, which may not be what was meant.
    pub(crate) warnings: Vec<Finding>,
}

/// Reads a scenario.
///
/// # Errors
/// All that is wrong with it.
pub(crate) fn load(path: &Path) -> Result<Staged, Vec<Finding>> {
    let text = source::read(path).map_err(|finding| vec![finding])?;
    parse(path, text)
}

fn parse(path: &Path, text: String) -> Result<Staged, Vec<Finding>> {
    let texts = [Text { path: path.into(), text }];
    let mut findings = Findings::new(&texts);
    let schema = schema_of::<ScenarioFile>();
    let file: Option<ScenarioFile> =
        document(&texts[0], 0, &schema, &mut findings).and_then(|table| {
            let whole = Spanned::new(0..texts[0].text.len(), DeValue::Table(table));
            read(whole, 0, &mut findings)
        });
    let title = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into());
    let fleet = file.map(|file| Check::new(&mut findings).fleet(file, title));
    let failed = findings.errors() > 0;
    let warnings = findings.into_list();
    match fleet {
        Some((scenario, names)) if !failed => Ok(Staged { scenario, names, warnings }),
        _ => Err(warnings),
    }
}

#[cfg(test)]
mod tests;
