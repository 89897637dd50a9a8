//! `policy`: nothing is admitted under a limit that a node does not know, and what a node knows
//! never gets older.

use super::Violation;
use crate::ledger::Ledger;
use crate::scenario::Scenario;

/// Judges a run.
#[must_use]
pub fn check(_scenario: &Scenario, ledger: &Ledger) -> Vec<Violation> {
    if ledger.unknown_admitted == 0 {
        return Vec::new();
    }
    let what = format!("{} units were admitted under unknown limits", ledger.unknown_admitted);
    vec![Violation { checker: "policy", what }]
}
