//! `policy`: nothing is admitted under a limit that does not exist, once every node may know.

use super::Violation;
use super::bound::change_lag;
use crate::ledger::{Change, Ledger};
use crate::scenario::{Nanos, Scenario};

/// Judges a run.
#[must_use]
pub fn check(scenario: &Scenario, ledger: &Ledger) -> Vec<Violation> {
    let lag = change_lag(scenario);
    let removals = ledger.changes.iter().filter(|change| change.is_removal);
    removals.filter_map(|removal| judge(removal, lag, ledger)).collect()
}

fn judge(removal: &Change, lag: Nanos, ledger: &Ledger) -> Option<Violation> {
    let limit = removal.limit;
    let later = |change: &&Change| change.limit == limit && change.at > removal.at;
    let until = ledger.changes.iter().find(later).map_or(Nanos::MAX, |change| change.at);
    let gone = removal.at + lag..until;
    let admitted = ledger
        .admissions
        .iter()
        .filter(|admission| admission.limit == limit && gone.contains(&admission.at))
        .count();
    (admitted > 0).then(|| Violation {
        checker: "policy",
        what: format!(
            "{admitted} requests were admitted under limit {limit}, which went at {:.3} ms",
            removal.at as f64 / 1e6
        ),
    })
}
