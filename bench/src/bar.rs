//! The one place that prints bars and says what is short.
//!
//! The numbers are those of the project's design: what a limiter is held to, not what it reached.

use crate::measure::Quartiles;
use Limit::{AtLeast, AtMost};

/// What a value is held to.
#[derive(Debug, Clone, Copy)]
enum Limit {
    /// Costs: the value must not be above it.
    AtMost(f64),
    /// Throughput: the value must not be below it.
    AtLeast(f64),
}

/// The limits of all bars, by name.
const BARS: [(&str, Limit); 45] = [
    ("handle", AtMost(1.0)),
    ("handle-2-threads", AtMost(0.7)),
    ("denied", AtMost(1.1)),
    ("keyed-1k", AtMost(0.5)),
    ("keyed-1m", AtMost(0.6)),
    ("keyed-1m-2-threads", AtMost(0.55)),
    ("credit-keyed-1k", AtMost(1.1)),
    ("fleet-keyed-1k", AtMost(1.3)),
    ("fleet-handle", AtMost(1.3)),
    ("tally-keyed-1k", AtMost(1.5)),
    ("tally-keyed-1k-leaking", AtMost(1.5)),
    ("tally-handle", AtMost(1.5)),
    ("share-keyed-1k", AtMost(3.0)),
    ("request", AtMost(0.05)),
    ("disabled-ns", AtMost(2.0)),
    ("memory-1m-bytes", AtMost(53.0)),
    ("memory-5m-bytes", AtMost(53.0)),
    ("instructions-keyed-1k", AtMost(120.0)),
    ("instructions-handle", AtMost(60.0)),
    ("resp-p1", AtMost(1.1)),
    ("resp-p16", AtMost(1.0 / 6.0)),
    ("http-check", AtLeast(1.3)),
    ("http-batch", AtLeast(700_000.0)),
    ("grpc-c50", AtLeast(1.2)),
    ("grpc-m16", AtLeast(1.1)),
    ("grpc-batch", AtLeast(2_000_000.0)),
    ("idle-rss-mib", AtMost(20.0)),
    ("binary-mib", AtMost(30.0)),
    ("ring-evenness", AtMost(1.05)),
    ("ring-join", AtMost(0.01)),
    ("ring-lookup-3-ns", AtMost(50.0)),
    ("ring-lookup-100-ns", AtMost(50.0)),
    ("ring-lookup-1000-ns", AtMost(50.0)),
    ("ring-build-ms", AtMost(300.0)),
    ("fleet-excess", AtMost(0.0)),
    ("fleet-violations", AtMost(0.0)),
    ("fleet-utilisation", AtLeast(0.99)),
    ("fleet-utilisation-crashes", AtLeast(0.95)),
    ("fleet-messages-10x", AtMost(1.2)),
    ("fleet-messages-10x-from-half", AtMost(1.2)),
    ("owner-report-ns", AtMost(1_000.0)),
    ("fleet-100k-keys", AtLeast(20.0)),
    ("overload-excess", AtMost(0.0)),
    ("overload-applied", AtMost(1.0)),
    ("overload-cadence-ms", AtLeast(100.0)),
];

/// Prints the bar of a value that varies from sample to sample, and returns whether it is short.
///
/// The median is printed, and it is short only if the better quartile is (the lower of a cost, the
/// upper of a throughput): the machine's bad moments do not decide.
pub fn judge(name: &str, values: &Quartiles) -> bool {
    let limit = limit(name);
    let (number, short) = match limit {
        AtMost(most) => (most, values.lower > most),
        AtLeast(least) => (least, values.upper < least),
    };
    print_bar(name, values.median, number, short);
    short
}

/// The same for a value that does not vary.
pub fn judge_exact(name: &str, value: f64) -> bool {
    judge(name, &Quartiles { lower: value, median: value, upper: value })
}

fn print_bar(name: &str, value: f64, limit: f64, short: bool) {
    let verdict = if short { "short" } else { "ok" };
    let digits = match limit {
        ..0.2 => 4,
        0.2..1000.0 => 2,
        _ => 0,
    };
    let limit = (limit * 1e4).round() / 1e4; // A sixth has no end.
    println!("bar {name} {value:.digits$} {limit} {verdict}");
}

fn limit(name: &str) -> Limit {
    let known = BARS.iter().find(|(known, _)| *known == name);
    known.map(|(_, limit)| *limit).expect("every row that is judged has a bar")
}
