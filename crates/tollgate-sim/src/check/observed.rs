//! What nodes tell of their own excess: none where the promise holds without an envelope, and never
//! more than the envelope.
//!
//! Where a process started again its own successor may take some units that it permitted for
//! nobody's: up to four are let pass then (seed 4559 has one, of 30,000).
//!
//! The other direction is no promise: of two owners at once each knows only its own, so that what
//! was really admitted can be more than any of them saw (`directed` has schedules in which they
//! see it).

use super::{Violation, bound};
use crate::ledger::Ledger;
use crate::scenario::{Fault, Nanos, Scenario};

/// Judges a run.
#[must_use]
pub fn check(scenario: &Scenario, ledger: &Ledger) -> Vec<Violation> {
    let limits = 0..scenario.limits.len();
    let allowed = limits.map(|limit| bound::envelope(scenario, ledger, limit)).fold(0.0, f64::max);
    let starts_again = |(_, fault): &(Nanos, Fault)| {
        matches!(fault, Fault::Crash { back_after: Some(_), .. } | Fault::Reset { .. })
    };
    let has_restart = scenario.faults.iter().any(starts_again);
    let mut violations = Vec::new();
    for (node, counts) in &ledger.counts {
        let (excess, late) = (counts.owner.excess_max, counts.late);
        let forgotten = if has_restart { FORGOTTEN_UNITS } else { 0 };
        if excess.saturating_sub(forgotten) as f64 > allowed || (late > 0 && allowed == 0.0) {
            let what = format!(
                "node {node} saw an excess of {excess} units and {late} that were spent late; the \
                 envelope allows {allowed:.1}"
            );
            violations.push(Violation { checker: "observed", what });
        }
    }
    violations
}

/// Units that an owner which started again may tell as too much though its former life permitted
/// them.
const FORGOTTEN_UNITS: u64 = 4;
