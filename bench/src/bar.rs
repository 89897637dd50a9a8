//! The one place that prints bars and says what is short.
//!
//! The numbers are those of the project's design: what a limiter is held to, not what it reached.

use crate::measure::Quartiles;

/// The limits of all bars, by name.
const BARS: [(&str, f64); 12] = [
    ("handle", 1.0),
    ("handle-2-threads", 0.7),
    ("denied", 1.1),
    ("keyed-1k", 0.5),
    ("keyed-1m", 0.6),
    ("keyed-1m-2-threads", 0.55),
    ("request", 0.05),
    ("disabled-ns", 2.0),
    ("memory-1m-bytes", 53.0),
    ("memory-5m-bytes", 53.0),
    ("instructions-keyed-1k", 120.0),
    ("instructions-handle", 60.0),
];

/// Prints the bar of a value that varies from sample to sample, and returns whether it is short.
///
/// The median is printed, and it is short only if the lower quartile is: the machine's bad moments
/// do not decide.
pub fn judge(name: &str, values: &Quartiles) -> bool {
    let limit = limit(name);
    let short = values.lower > limit;
    print_bar(name, values.median, limit, short);
    short
}

/// The same for a value that does not vary.
pub fn judge_exact(name: &str, value: f64) -> bool {
    judge(name, &Quartiles { lower: value, median: value, upper: value })
}

fn print_bar(name: &str, value: f64, limit: f64, short: bool) {
    let verdict = if short { "short" } else { "ok" };
    let digits = if limit < 0.1 { 4 } else { 2 };
    println!("bar {name} {value:.digits$} {limit} {verdict}");
}

fn limit(name: &str) -> f64 {
    let known = BARS.iter().find(|(known, _)| *known == name);
    known.map(|(_, limit)| *limit).expect("every row that is judged has a bar")
}
