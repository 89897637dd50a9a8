//! What a policy in the dialect of Envoy's rate-limit service does here that it does not do there.
//!
//! It tells what is known of each limit and decides nothing. That decisions are as told is the
//! business of the tests in `config`.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate::{Allowance, Limit};

use super::say;
use crate::config::{AsWritten, Finding, Loaded, WrittenLimits, unit_name};

/// The differences of one policy.
pub(crate) struct Differences {
    rows: Vec<Row>,
    /// What was accepted and has no effect.
    no_effect: Vec<Finding>,
}

/// One limit, as it was written and as it is here.
struct Row {
    domain: String,
    label: String,
    path: String,
    written: String,
    here: String,
    flags: Vec<String>,
}

impl Differences {
    pub(crate) fn of(loaded: &Loaded) -> Self {
        let limits = loaded.limits.iter().filter(|limit| limit.path().len() > 0);
        let no_effect = loaded.warnings.iter().filter(|finding| finding.no_effect);
        Self {
            rows: limits.map(|limit| Row::of(limit, &loaded.as_written)).collect(),
            no_effect: no_effect.cloned().collect(),
        }
    }

    pub(crate) fn print(&self) {
        if self.rows.is_empty() {
            return say("No limit is written in the dialect of Envoy's rate-limit service.");
        }
        say("\nOf all limits, compared with Envoy's rate-limit service:");
        for line in ALWAYS {
            say(&format!("- {line}"));
        }
        say("");
        let head = ["domain", "path", "limit", "written", "here", "flags"].map(str::to_owned);
        let rows = self.rows.iter().map(Row::cells);
        for line in table([head].into_iter().chain(rows).collect()) {
            say(&line);
        }
        if !self.no_effect.is_empty() {
            say("\nAccepted, and without effect:");
        }
        for Finding { file, line, column, message, .. } in &self.no_effect {
            say(&format!("- {}:{line}:{column}: {message}", file.display()));
        }
    }

    pub(crate) fn value(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            json!({
                "domain": row.domain, "limit": row.label, "path": row.path,
                "written": row.written, "here": row.here, "flags": row.flags,
            })
        });
        let rows: Vec<Value> = rows.collect();
        json!({ "always": ALWAYS, "limits": rows, "no_effect": self.no_effect })
    }
}

impl Row {
    fn of(limit: &Limit, as_written: &WrittenLimits) -> Self {
        let (domain, label) = (limit.domain().to_owned(), limit.name().to_owned());
        let path = limit.path_text();
        let of = as_written.get(&(domain.clone(), label.clone()));
        let (written, here) = match (limit.allowance(), of) {
            (Allowance::Unlimited, _) if limit.is_blank() => {
                ("no limit".into(), "ends the walk".into())
            }
            (Allowance::Metered { rate, burst }, Some(AsWritten { unit, .. })) => {
                let requests = if burst == 0 { 0 } else { rate.units() };
                (format!("{requests}/{}", unit_name(*unit)), here(burst, *unit))
            }
            _ => ("unlimited".into(), "unlimited".into()),
        };
        let replaced: Vec<&str> = limit.replaces().collect();
        let flags = [
            limit.is_shadow().then(|| "shadow".to_owned()),
            limit.is_quota().then(|| "quota".to_owned()),
            limit.is_shared().then(|| "shared".to_owned()),
            (!replaced.is_empty()).then(|| format!("replaces {}", replaced.join(", "))),
        ];
        let flags = flags.into_iter().flatten().collect();
        Self { domain, label, path, written, here, flags }
    }

    fn cells(&self) -> [String; COLUMNS] {
        let Self { domain, label, path, written, here, flags } = self;
        let flags = flags.join(", ");
        [domain.clone(), path.clone(), label.clone(), written.clone(), here.clone(), flags]
    }
}

fn here(burst: u64, unit: Duration) -> String {
    match burst {
        0 => "denies".into(),
        _ => format!("{burst} at once, one each {}", interval(unit.as_nanos(), u128::from(burst))),
    }
}

/// A `count`th of some nanoseconds, as people read it: rounded to a thousandth of its unit.
fn interval(nanos: u128, count: u128) -> String {
    let units = [
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "min"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
        (1, "ns"),
    ];
    let mut fit = units.iter().filter(|(size, _)| nanos >= size * count);
    // The largest unit in which it need not be rounded, or else the largest that fits into it.
    let exact = fit.clone().find(|(size, _)| (nanos * 1_000).is_multiple_of(size * count));
    let (size, name) = exact.or_else(|| fit.next()).unwrap_or(&units[units.len() - 1]);
    let thousandths = (nanos * 1_000 + size * count / 2) / (size * count);
    let (whole, part) = (thousandths / 1_000, thousandths % 1_000);
    let part = format!(".{part:03}");
    let part = part.trim_end_matches('0').trim_end_matches('.');
    format!("{whole}{part} {name}")
}

/// Cells in columns, as wide as they need.
fn table(rows: Vec<[String; COLUMNS]>) -> Vec<String> {
    let mut widths = [0; COLUMNS];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

const COLUMNS: usize = 6;
/// What holds whatever the limits are.
const ALWAYS: [&str; 7] = [
    "There, a unit is a window that begins at a multiple of the unit since 1970, so that 2N can \
     pass around its edge. Here there is no edge: N at once after a rest, then one each unit/N; \
     at most 2N in any time of a unit's length, as there.",
    "A denied request spends nothing. There, every descriptor of it is counted, also the one that \
     denies.",
    "limit_remaining and duration_until_reset tell of the key itself: reset is when all N are \
     there again, not when a window ends.",
    "A limit that comes with a request has cells of its own, apart from those of the limit in the \
     policy.",
    "A week is 7 days, a month 30, a year 365, from whenever a key is first used.",
    "A request without a domain or descriptors, or that can't be understood, is answered \
     INVALID_ARGUMENT, not UNKNOWN.",
    "Limits without a name are labelled by the names of their keys, and labels are in lower case.",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_whole_if_it_can_be_and_rounded_if_not() {
        for (seconds, count, expected) in [
            (60, 10, "6 s"),
            (1, 5_000, "200 us"),
            (3_600, 60, "1 min"),
            (60, 100, "600 ms"),
            (86_400, 7, "3.429 h"),
            (1, 3, "333.333 ms"),
            (1, 4_294_967_295, "0.233 ns"),
            (31_536_000, 1, "365 d"),
            (86_400, 10_000, "8.64 s"),
            (3_661, 1, "3661 s"),
        ] {
            assert_eq!(interval(seconds * 1_000_000_000, count), expected);
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; COLUMNS]| cells.map(str::to_owned);
        let lines =
            table(vec![row(["a", "é", "c", "", "", ""]), row(["aa", "bb", "", "", "", ""])]);
        assert_eq!(lines, ["a   é   c", "aa  bb"]);
    }
}
