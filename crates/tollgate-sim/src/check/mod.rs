//! One checker for each promise; each is a function from what was asked and what happened to what
//! is wrong. `mutants` shows that each fails when its rule is taken away.

pub mod excess;
pub mod bound;
pub mod convergence;
pub mod observed;
pub mod ownership;
pub mod policy;
pub mod utilisation;

use std::fmt;

use crate::ledger::Ledger;
use crate::scenario::Scenario;

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which checker says so.
    pub checker: &'static str,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.checker, self.what)
    }
}

/// Everything that is wrong with a run.
#[must_use]
pub fn all(scenario: &Scenario, ledger: &Ledger) -> Vec<Violation> {
    let mut violations = bound::check(scenario, ledger);
    violations.extend(ownership::check(ledger));
    violations.extend(policy::check(scenario, ledger));
    violations.extend(convergence::check(scenario, ledger));
    violations.extend(observed::check(scenario, ledger));
    violations
}
