//! Experiments of publications, run again: what they had, what we have, and whether our line is
//! met.
//!
//! Each module builds scenarios, runs them, and returns a [`Table`]; `all` runs the full forms, and
//! the tests short ones. `measure` is what they measure with.

mod allocation;
mod cadence;
mod cold;
mod databricks;
mod delay;
mod doorman;
mod edges;
mod fairness;
mod measure;
mod sharing;
mod splitting;
mod tiers;
mod why;
mod windows;

#[cfg(test)]
mod cases;

use std::fmt;

/// One measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Under which circumstances.
    pub what: String,
    /// What the publication says of it, or what the others' rules come to.
    pub published: Vec<String>,
    /// What ours comes to.
    pub ours: Vec<String>,
    /// Whether our line is met; `None` where there is none.
    pub pass: Option<bool>,
}

/// An experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Its name and where it comes from.
    pub title: String,
    /// The set-up, and when a row passes.
    pub text: String,
    /// The names of `Row::published`.
    pub published: Vec<&'static str>,
    /// The names of `Row::ours`.
    pub ours: Vec<&'static str>,
    /// The measurements.
    pub rows: Vec<Row>,
}

impl fmt::Display for Table {
    /// As Markdown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "### {}\n\n{}\n", self.title, self.text)?;
        let names = self.published.iter().chain(&self.ours);
        let names: Vec<&str> = ["case"].iter().chain(names).copied().collect();
        writeln!(f, "| {} | |", names.join(" | "))?;
        writeln!(f, "|---|{}---|", "--:|".repeat(names.len() - 1))?;
        for row in &self.rows {
            let cells: Vec<&str> =
                row.published.iter().chain(&row.ours).map(String::as_str).collect();
            let pass = row.pass.map_or("", |pass| if pass { "met" } else { "**missed**" });
            writeln!(f, "| {} | {} | {pass} |", row.what, cells.join(" | "))?;
        }
        Ok(())
    }
}

/// All experiments in full: a few minutes.
pub fn all() -> impl Iterator<Item = Table> {
    let tables: [fn() -> Table; 11] = [
        delay::full,
        databricks::full,
        doorman::full,
        cold::full,
        why::full,
        fairness::full,
        cadence::full,
        splitting::full,
        edges::full,
        tiers::full,
        windows::full,
    ];
    tables.into_iter().map(|table| table()).chain(of_share())
}

/// Those of nodes that divide a limit.
pub fn of_share() -> impl Iterator<Item = Table> {
    let tables: [fn() -> Table; 6] = [
        sharing::two,
        sharing::many,
        sharing::skewed,
        sharing::moving,
        sharing::switched,
        sharing::used,
    ];
    tables.into_iter().map(|table| table())
}
