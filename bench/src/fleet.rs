//! The rows of what a fleet is made of: each prints what it found and is held to its bars.

mod ring;
mod drive;
mod promise;
mod owner;
mod many;
mod overload;

/// Measures the rows with `filter` in their names, and returns whether a bar is short.
pub fn run(filter: &str) -> bool {
    let wanted = ROWS.iter().filter(|(name, _)| name.contains(filter));
    wanted.fold(false, |short, (name, row)| short | row(name))
}

/// Measures what the name says, and returns whether a bar is short.
type Row = fn(&str) -> bool;
const ROWS: [(&str, Row); 10] = [
    ("ring-evenness", ring::evenness),
    ("ring-join", ring::join),
    ("ring-lookup", ring::lookup),
    ("ring-build", ring::build),
    ("fleet-excess", promise::excess),
    ("fleet-utilisation", promise::utilisation),
    ("fleet-messages-10x", promise::messages),
    ("owner-report-ns", owner::report),
    ("fleet-100k-keys", many::entries),
    ("overload", overload::overload),
];
