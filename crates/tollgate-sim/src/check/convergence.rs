//! Once nothing is asked and nothing goes wrong, the fleet settles: each key has one owner, and
//! nothing is outstanding.

use super::Violation;
use crate::ledger::Ledger;
use crate::scenario::{SECOND, Scenario};

/// Judges a run that rested long enough.
#[must_use]
pub fn check(scenario: &Scenario, ledger: &Ledger) -> Vec<Violation> {
    if scenario.rests < RESTS_MIN {
        return Vec::new();
    }
    let violation = |what: &String| Violation { checker: "convergence", what: what.clone() };
    ledger.unsettled.iter().map(violation).collect()
}

/// The longest that anything waits for anything: a handover that never comes, then a hold.
pub const RESTS_MIN: u64 = 6 * SECOND;
