//! One checker for each promise of `tally`; each says at its top what may be admitted, and why.

mod ceiling;
mod informed;
mod innocents;
mod known;
mod once;

use std::collections::BTreeMap;

use super::ledger::{Ledger, Read};
use super::scenario::Scenario;
use crate::check::Violation;
use crate::scenario::Nanos;

/// Everything that is wrong with a run.
#[must_use]
pub fn all(scenario: &Scenario, ledger: &Ledger) -> Vec<Violation> {
    let mut violations = ceiling::check(scenario, ledger).0;
    violations.extend(informed::check(scenario, ledger).0);
    violations.extend(known::check(scenario, ledger));
    violations.extend(innocents::check(scenario, ledger));
    violations.extend(once::check(ledger));
    violations
}

/// The largest parts of what each of the bounds allows that were admitted: of the ceiling in any
/// time of a window, and of what is known in one window.
#[must_use]
pub fn used(scenario: &Scenario, ledger: &Ledger) -> (f64, f64) {
    (ceiling::check(scenario, ledger).1, informed::check(scenario, ledger).1)
}

/// Whether a node judged as limits say of outages between two instants.
fn was_cut_off(ledger: &Ledger, node: u32, from: Nanos, until: Nanos) -> bool {
    let times = &ledger.cut_off[node as usize];
    times[times.partition_point(|at| *at < from)..].first().is_some_and(|at| *at <= until)
}

/// What each node had read of each key.
struct Reads<'a>(BTreeMap<(u32, u32), Vec<&'a Read>>);

impl<'a> Reads<'a> {
    fn new(ledger: &'a Ledger) -> Self {
        let mut reads = BTreeMap::<_, Vec<&Read>>::new();
        for read in &ledger.reads {
            reads.entry((read.node, read.key)).or_default().push(read);
        }
        Self(reads)
    }

    /// The last that a node had of a key at an instant.
    fn last(&self, node: u32, key: u32, at: Nanos) -> Option<&'a Read> {
        let reads = self.0.get(&(node, key))?;
        let count = reads.partition_point(|read| read.at < at);
        count.checked_sub(1).map(|last| reads[last])
    }
}
