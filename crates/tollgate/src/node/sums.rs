//! How a node's members of divisions fare, summed by limit while they change: whoever asks pays
//! nothing for each key.

use std::collections::BTreeMap;

use crate::policy::FleetLimitId;
use crate::share::Phase;

/// How what one node has of one limit that nodes divide fares: its own cells, and its streams.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ShareLimitStatus {
    /// Members that decide by an equal part as they were never given one.
    pub starting: u64,
    /// Members that decide by what they were given.
    pub sharing: u64,
    /// Members that decide by an equal part as what they were given is too old.
    pub failing: u64,
    /// Keys that have a cell here; all other members are streams.
    pub keys: u64,
    /// Units a second that members which can rely on it were given, together.
    pub rate: f64,
    /// Units that were allowed, and denied, since the process began.
    pub allowed: u64,
    /// As said for `allowed`.
    pub denied: u64,
    /// Of those that were allowed the ones that the other bucket would have denied. A stream has no
    /// other.
    pub other_denied: u64,
    /// Of those that were denied the ones that the other bucket would have allowed.
    pub other_allowed: u64,
}

/// What a member counted since it began, in units.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) other_denied: u64,
    pub(super) other_allowed: u64,
}

/// What a member adds to the sums of its limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) limit: FleetLimitId,
    pub(super) phase: Phase,
    /// Whether it is a cell.
    pub(super) is_cell: bool,
    /// Units a second that it was given and can rely on.
    pub(super) rate: f64,
}

/// All limits.
#[derive(Debug, Default)]
pub(super) struct Sums(BTreeMap<FleetLimitId, Sum>);

/// One limit.
#[derive(Debug, Default)]
struct Sum {
    /// Its rate is not kept here.
    status: ShareLimitStatus,
    /// In millionths, since sums of whole numbers forget nothing.
    rate_millionths: u128,
}

impl Sums {
    /// A member has another part than it had, or one for the first or the last time.
    pub(super) fn change(&mut self, before: Option<Part>, after: Option<Part>) {
        if let Some(part) = before {
            let Sum { status, rate_millionths } = self.0.entry(part.limit).or_default();
            let members = status.members(part.phase);
            debug_assert!(*members > 0, "what leaves was added");
            *members -= 1;
            status.keys -= u64::from(part.is_cell);
            *rate_millionths -= millionths(part.rate);
        }
        if let Some(part) = after {
            let Sum { status, rate_millionths } = self.0.entry(part.limit).or_default();
            *status.members(part.phase) += 1;
            status.keys += u64::from(part.is_cell);
            *rate_millionths += millionths(part.rate);
        }
    }

    /// A member counted more; `seen` is the most that it had.
    pub(super) fn count(&mut self, limit: FleetLimitId, seen: &mut Totals, totals: &Totals) {
        let status = &mut self.0.entry(limit).or_default().status;
        // What was given back is not counted again, so that sums never fall.
        for (sum, seen, total) in [
            (&mut status.allowed, &mut seen.allowed, totals.allowed),
            (&mut status.denied, &mut seen.denied, totals.denied),
            (&mut status.other_denied, &mut seen.other_denied, totals.other_denied),
            (&mut status.other_allowed, &mut seen.other_allowed, totals.other_allowed),
        ] {
            *sum = sum.saturating_add(total.saturating_sub(*seen));
            *seen = total.max(*seen);
        }
    }

    /// Forgets limits that are not in force and of which there is no member.
    pub(super) fn forget(&mut self, is_in_force: impl Fn(FleetLimitId) -> bool) {
        self.0.retain(|id, sum| is_in_force(*id) || sum.status.all() > 0);
    }

    pub(super) fn statuses(&self) -> impl Iterator<Item = (FleetLimitId, ShareLimitStatus)> {
        self.0.iter().map(|(id, sum)| {
            let rate = sum.rate_millionths as f64 / MILLION;
            (*id, ShareLimitStatus { rate, ..sum.status })
        })
    }
}

impl ShareLimitStatus {
    /// All members.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.starting + self.sharing + self.failing
    }

    fn members(&mut self, phase: Phase) -> &mut u64 {
        match phase {
            Phase::StartUp => &mut self.starting,
            Phase::Normal => &mut self.sharing,
            Phase::Failing => &mut self.failing,
        }
    }
}

/// A rate is at most 10^12 a second.
fn millionths(per_second: f64) -> u128 {
    (per_second * MILLION).round() as u128
}

const MILLION: f64 = 1e6;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LIMIT: FleetLimitId = FleetLimitId(3);

    fn part(phase: Phase, is_cell: bool, rate: f64) -> Option<Part> {
        Some(Part { limit: LIMIT, phase, is_cell, rate })
    }

    fn shown(sums: &Sums) -> ShareLimitStatus {
        sums.statuses().next().expect("a limit").1
    }

    #[test]
    fn sums_follow_members_that_come_change_and_go() {
        let mut sums = Sums::default();
        let cell = part(Phase::StartUp, true, 0.0);
        let sound = part(Phase::Normal, true, 0.1);
        sums.change(None, cell);
        sums.change(None, part(Phase::Failing, false, 0.0));
        sums.change(cell, sound);
        let status = shown(&sums);
        assert_eq!((status.starting, status.sharing, status.failing), (0, 1, 1));
        assert_eq!((status.keys, status.rate), (1, 0.1));
        // Nothing is left of it, however often it came and went.
        for _ in 0..1_000 {
            sums.change(sound, None);
            sums.change(None, sound);
        }
        sums.change(sound, None);
        sums.change(part(Phase::Failing, false, 0.0), None);
        assert_eq!(shown(&sums), ShareLimitStatus::default());
    }

    #[test]
    fn what_was_given_back_lets_no_sum_fall() {
        let (mut sums, mut seen) = (Sums::default(), Totals::default());
        for (allowed, sum) in [(5, 5), (3, 5), (6, 6)] {
            let totals = Totals { allowed, ..Totals::default() };
            sums.count(LIMIT, &mut seen, &totals);
            assert_eq!(shown(&sums).allowed, sum);
        }
        // A new cell of the key begins at nothing.
        sums.count(LIMIT, &mut Totals::default(), &Totals { allowed: 2, ..seen });
        assert_eq!(shown(&sums).allowed, 8);
    }

    #[test]
    fn a_limit_that_is_gone_is_forgotten_with_its_last_member() {
        let mut sums = Sums::default();
        let cell = part(Phase::Normal, true, 1.0);
        sums.change(None, cell);
        sums.forget(|_| false);
        assert_eq!(shown(&sums).keys, 1);
        sums.change(cell, None);
        sums.forget(|_| false);
        assert_eq!(sums.statuses().count(), 0);
    }
}
