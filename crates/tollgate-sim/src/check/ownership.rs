//! `coordinator`: one owner for each key and ring epoch.

use super::Violation;
use crate::ledger::Ledger;

/// Judges a run.
#[must_use]
pub fn check(ledger: &Ledger) -> Vec<Violation> {
    let violation = |(at, key, one, other): &(u64, tollgate::KeyId, u32, u32)| Violation {
        checker: "ownership",
        what: format!(
            "at {:.3} ms node {other} answered for {key:?} under the ring under which {one} did",
            *at as f64 / 1e6
        ),
    };
    ledger.double_owners.iter().map(violation).collect()
}
