//! What a node counted of a key since it last looked, and for how long nobody has called.
//!
//! From totals that only grow, so that looking never races with counting. Whose totals they are is
//! not known here: another cell has another [`Counted`].

use crate::mutant::lacks;

/// Calls since the last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    /// Units that were allowed.
    pub allowed: u64,
    /// Units that were denied.
    pub denied: u64,
}

impl Collected {
    /// Whether there were no calls: 0 and 0.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// What was collected of a key so far.
///
/// ```
/// use tollgate::share::{Collected, Counted};
/// let mut counted = Counted::default();
/// assert_eq!(counted.collect(5, 2), Collected { allowed: 5, denied: 2 });
/// assert_eq!(counted.collect(8, 2), Collected { allowed: 3, denied: 0 });
/// assert_eq!(counted.collect(8, 2), Collected::default());
/// assert_eq!(counted.idle(), 1);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    collected: Collected,
    idle: u32,
}

impl Counted {
    /// What came since the last time, from the totals now: of totals 8 and 2 after 5 and 2 it is 3
    /// and 0.
    ///
    /// A total below one that was seen before was read late and counts nothing.
    pub fn collect(&mut self, allowed: u64, denied: u64) -> Collected {
        let before = self.collected;
        let since = Collected {
            allowed: allowed.saturating_sub(before.allowed),
            denied: denied.saturating_sub(before.denied),
        };
        if !lacks("share_counts_once") {
            self.collected.allowed = before.allowed.max(allowed);
            self.collected.denied = before.denied.max(denied);
        }
        if since.is_empty() {
            self.idle = self.idle.saturating_add(1);
        } else if !lacks("share_a_call_ends_idleness") {
            self.idle = 0;
        }
        since
    }

    /// How many times in a row nothing had come: 0 after a call, 3 after three collects without
    /// one.
    #[must_use]
    pub fn idle(&self) -> u32 {
        self.idle
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn idle_counts_collects_without_a_call_and_any_call_ends_it() {
        let mut counted = Counted::default();
        let mut idle = |allowed, denied| {
            counted.collect(allowed, denied);
            counted.idle()
        };
        assert_eq!([idle(0, 0), idle(0, 0), idle(0, 0)], [1, 2, 3]);
        // A denial is a call too.
        assert_eq!([idle(0, 1), idle(0, 1), idle(7, 1), idle(7, 1)], [0, 1, 0, 1]);
    }

    #[test]
    fn a_total_that_was_read_late_counts_nothing_and_is_not_counted_again() {
        let mut counted = Counted::default();
        counted.collect(10, 4);
        assert_eq!(counted.collect(9, 6), Collected { allowed: 0, denied: 2 });
        assert_eq!(counted.collect(11, 5), Collected { allowed: 1, denied: 0 });
        let all = Collected { allowed: u64::MAX - 11, denied: u64::MAX - 6 };
        assert_eq!(counted.collect(u64::MAX, u64::MAX), all);
    }

    proptest! {
        #[test]
        fn what_is_collected_adds_up_to_the_totals(
            calls in prop::collection::vec((0_u64..1_000, 0_u64..1_000), 1..50),
        ) {
            let (mut counted, mut totals, mut sums) = (Counted::default(), (0, 0), (0, 0));
            for (allowed, denied) in calls {
                totals = (totals.0 + allowed, totals.1 + denied);
                let since = counted.collect(totals.0, totals.1);
                sums = (sums.0 + since.allowed, sums.1 + since.denied);
                prop_assert_eq!(sums, totals);
                prop_assert_eq!(counted.idle() == 0, allowed + denied > 0);
            }
        }
    }
}
