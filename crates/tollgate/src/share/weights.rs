//! All members of one key: what each asks for, of all that is asked for.
//!
//! The seed's rules: weights are of what was allowed and denied, so that a member that is starved
//! is seen; what is used is of what was allowed, so that denials shrink no spare.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::average::{Average, Averaging};
use super::counted::Collected;
use crate::mutant::lacks;
use crate::time::Instant;

/// The averages of all members of a key, by member.
///
/// ```
/// use std::time::Duration;
/// use tollgate::Instant;
/// use tollgate::share::{Averaging, Collected, ShareOptions, Weights};
/// let averaging = Averaging::new(&ShareOptions::default())?;
/// let (second, now) = (Duration::from_secs(1), Instant::ZERO);
/// let mut weights = Weights::new(100);
/// weights.update("a", Collected { allowed: 6, denied: 2 }, second, &averaging, now)?;
/// weights.update("b", Collected { allowed: 2, denied: 0 }, second, &averaging, now)?;
/// assert_eq!(weights.weight("a", &averaging, now), 0.8);
/// assert_eq!(weights.used(&averaging, now), 8.0);
/// assert_eq!(weights.demand(&averaging, now), 10.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Weights<M> {
    members: BTreeMap<M, Average>,
    members_max: usize,
}

impl<M: Ord + Copy> Weights<M> {
    /// Of at most so many members; typically 1,000.
    #[must_use]
    pub fn new(members_max: usize) -> Self {
        Self { members: BTreeMap::new(), members_max }
    }

    /// Takes in what a member counted in `elapsed`. Nothing counted changes nothing.
    ///
    /// A newcomer with 5 allowed and 5 denied in 1 s asks for 10 a second from then on.
    ///
    /// # Errors
    /// When there is no room for a newcomer, even without those who are forgotten; its counts are
    /// lost, and its weight stays 0.
    pub fn update(
        &mut self,
        member: M,
        collected: Collected,
        elapsed: Duration,
        averaging: &Averaging,
        now: Instant,
    ) -> Result<(), MembersFull> {
        let Some(sample) = averaging.sample(collected, elapsed) else { return Ok(()) };
        if let Some(average) = self.members.get_mut(&member) {
            average.update(sample, averaging, now);
            return Ok(());
        }
        if self.is_full() {
            self.gc(averaging, now);
            if self.is_full() && !lacks("share_members_are_bounded") {
                return Err(MembersFull { members_max: self.members_max });
            }
        }
        self.members.insert(member, Average::new(sample, now));
        Ok(())
    }

    /// Removes members of whom nothing is left, and says how many: after 10 s of silence by
    /// default.
    pub fn gc(&mut self, averaging: &Averaging, now: Instant) -> usize {
        let before = self.members.len();
        self.members.retain(|_, average| !average.is_forgotten(averaging, now));
        before - self.members.len()
    }

    /// A member's part of all that is asked for, in 0 to 1; 0 if it is unknown or forgotten.
    ///
    /// Who asks for 8 of 10 a second has 0.8.
    #[must_use]
    pub fn weight(&self, member: M, averaging: &Averaging, now: Instant) -> f64 {
        let Some(average) = self.members.get(&member) else { return 0.0 };
        let all = self.demand(averaging, now);
        // A sum is no less than any part of it, but nothing is no part of nothing.
        if all > 0.0 { average.demand(averaging, now) / all } else { 0.0 }
    }

    /// What all members together were allowed, in units a second: 8 of 6 and 2.
    #[must_use]
    pub fn used(&self, averaging: &Averaging, now: Instant) -> f64 {
        if lacks("share_the_denied_use_nothing") {
            return self.demand(averaging, now);
        }
        self.members.values().map(|average| average.allowed(averaging, now)).sum()
    }

    /// What all members together ask for, in units a second: 10 of 8 allowed and 2 denied.
    #[must_use]
    pub fn demand(&self, averaging: &Averaging, now: Instant) -> f64 {
        self.members.values().map(|average| average.demand(averaging, now)).sum()
    }

    /// What each member asks for, in units a second, in the order of the members: 8 and 2.
    pub fn demands(&self, averaging: &Averaging, now: Instant) -> impl Iterator<Item = (M, f64)> {
        self.members.iter().map(move |(member, average)| (*member, average.demand(averaging, now)))
    }

    /// How many members are kept, with those of whom nothing is left and who were not removed: 2.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether no member is kept, so that the key itself may go.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    fn is_full(&self) -> bool {
        self.members.len() >= self.members_max
    }
}

/// A key has as many members as it may have; the newcomer was not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MembersFull {
    /// How many it may have.
    pub members_max: usize,
}

impl fmt::Display for MembersFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a key has at most {} members; this one is not counted", self.members_max)
    }
}

impl std::error::Error for MembersFull {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::share::ShareOptions;

    const SECOND: Duration = Duration::from_secs(1);

    fn averaging(options: ShareOptions) -> Averaging {
        Averaging::new(&options).expect("sound options")
    }

    fn at(seconds: f64) -> Instant {
        Instant::from_nanos((seconds * 1e9) as u64)
    }

    /// One key under options, with members that are numbers.
    struct Key {
        weights: Weights<u32>,
        averaging: Averaging,
    }

    impl Key {
        fn new(options: ShareOptions) -> Self {
            Self { weights: Weights::new(4), averaging: averaging(options) }
        }

        /// At this second, counts of one second.
        fn update(&mut self, second: f64, member: u32, (allowed, denied): (u64, u64)) {
            let collected = Collected { allowed, denied };
            let updated =
                self.weights.update(member, collected, SECOND, &self.averaging, at(second));
            updated.expect("room");
        }

        fn used(&self, second: f64) -> f64 {
            self.weights.used(&self.averaging, at(second))
        }

        fn weights(&self, second: f64) -> [f64; 3] {
            [1, 2, 3].map(|member| self.weights.weight(member, &self.averaging, at(second)))
        }

        #[track_caller]
        fn is(&self, second: f64, weights: [f64; 3], used: f64) {
            let (found, found_used) = (self.weights(second), self.used(second));
            for (found, expected) in found.iter().zip(weights) {
                assert!((found - expected).abs() < 0.000_51, "{found} not {expected} at {second}");
            }
            assert!((found_used - used).abs() < 0.000_51, "{found_used} not {used} at {second}");
        }
    }

    /// The upstream test's six steps, of a key in which a member is quiet at first and one in which
    /// all are there. It never compared what is used; these numbers are of its rules, by hand.
    #[test]
    fn the_seeds_vectors_come_out_with_what_is_used() {
        let options = ShareOptions { new_weight: 0.75, ..ShareOptions::SEED };
        let (mut quiet, mut steady) = (Key::new(options), Key::new(options));
        let mut both = |second, member, one, other, expected: Option<[([f64; 3], f64); 2]>| {
            quiet.update(second, member, one);
            steady.update(second, member, other);
            if let Some([(one, used), (other, other_used)]) = expected {
                quiet.is(second, one, used);
                steady.is(second, other, other_used);
            }
        };
        both(0.0, 1, (5, 5), (5, 5), None);
        both(1.0, 2, (1, 1), (1, 1), None);
        let (one, other) = ([0.833, 0.167, 0.0], [0.714, 0.143, 0.143]);
        both(2.0, 3, (0, 0), (1, 1), Some([(one, 6.0), (other, 7.0)]));
        let (one, other) = ([0.784, 0.216, 0.0], [0.588, 0.294, 0.118]);
        both(5.0, 2, (1, 2), (3, 3), Some([(one, 6.0), (other, 8.5)]));
        both(10.0, 2, (5, 5), (5, 5), None);
        let (one, other) = ([0.009, 0.446, 0.545], [0.010, 0.532, 0.458]);
        both(10.0, 3, (5, 5), (5, 5), Some([(one, 9.078), (other, 8.219)]));
        let mut all = |second: f64, expected| {
            both(second, 1, (5, 5), (5, 5), None);
            both(second, 2, (5, 5), (5, 5), None);
            both(second, 3, (5, 5), (5, 5), Some(expected));
        };
        let (one, other) = ([0.278, 0.352, 0.369], [0.283, 0.364, 0.353]);
        all(11.0, [(one, 13.520), (other, 13.305)]);
        let (one, other) = ([0.321, 0.338, 0.342], [0.322, 0.340, 0.338]);
        all(12.0, [(one, 14.630), (other, 14.576)]);
        let third = ([1.0 / 3.0; 3], 15.0);
        all(3_612.0, [third, third]);
        assert_eq!((quiet.used(3_612.0), steady.used(3_612.0)), (15.0, 15.0));
    }

    #[test]
    fn missed_updates_decay_what_is_read() {
        let mut key = Key::new(ShareOptions {
            interval: SECOND,
            new_weight: 0.1,
            decay_after: 2,
            forget_after: 10,
            ..ShareOptions::SEED
        });
        key.update(0.0, 1, (1, 1));
        key.update(0.0, 2, (1, 1));
        let cases = [
            (0.0, 2.0),
            (1.0, 2.0),
            (1.5, 2.0),
            (2.5, 1.62),
            (3.5, 1.458),
            (9.1, 2.0 * 0.387_420_489),
            (10.1, 0.0),
        ];
        for (second, used) in cases {
            assert!((key.used(second) - used).abs() < 1e-12, "{} at {second}", key.used(second));
            let weight = if second < 10.0 { 0.5 } else { 0.0 };
            assert_eq!(key.weights(second), [weight, weight, 0.0], "{second}");
        }
    }

    #[test]
    fn a_member_that_is_unknown_has_no_weight_and_all_the_same_is_told_what_is_used() {
        let mut key = Key::new(ShareOptions::SEED);
        assert_eq!((key.weights(0.0), key.used(0.0)), ([0.0; 3], 0.0));
        key.update(0.0, 2, (6, 2));
        assert_eq!((key.weights(0.0), key.used(0.0)), ([0.0, 1.0, 0.0], 6.0));
        let (averaging, now) = (key.averaging, at(0.0));
        assert_eq!(key.weights.demand(&averaging, now), 8.0);
        key.update(0.0, 1, (0, 8));
        assert_eq!((key.weights(0.0), key.used(0.0)), ([0.5, 0.5, 0.0], 6.0));
        let demands: Vec<(u32, f64)> = key.weights.demands(&averaging, now).collect();
        assert_eq!(demands, [(1, 8.0), (2, 8.0)]);
    }

    #[test]
    fn members_that_are_forgotten_are_removed_when_asked_for_and_not_before() {
        let mut key = Key::new(ShareOptions::SEED);
        key.update(0.0, 1, (1, 0));
        key.update(10.0, 2, (1, 0));
        let averaging = key.averaging;
        assert_eq!(key.weights.gc(&averaging, at(29.999)), 0);
        assert_eq!((key.weights(30.0), key.weights.len()), ([0.0, 1.0, 0.0], 2));
        assert_eq!((key.weights.gc(&averaging, at(30.0)), key.weights.len()), (1, 1));
        assert_eq!(key.weights.gc(&averaging, at(100.0)), 1);
        assert!(key.weights.is_empty());
    }

    #[test]
    fn a_newcomer_beyond_the_bound_is_not_counted_until_someone_is_forgotten() {
        let mut key = Key::new(ShareOptions::SEED);
        for member in 0..4 {
            key.update(0.0, member, (1, 0));
        }
        let collected = Collected { allowed: 1, denied: 0 };
        let mut newcomer = |collected, second| {
            key.weights.update(9, collected, SECOND, &key.averaging, at(second))
        };
        assert_eq!(newcomer(collected, 1.0), Err(MembersFull { members_max: 4 }));
        // It has nothing to be counted, so it needs no room.
        assert_eq!(newcomer(Collected::default(), 1.0), Ok(()));
        assert_eq!(newcomer(collected, 30.0), Ok(()));
        assert_eq!((key.weights.len(), key.weights(30.0)), (1, [0.0; 3]));
        // Who is known needs none either.
        let (averaging, full) = (key.averaging, &mut Weights::new(1));
        for _ in 0..2 {
            assert_eq!(full.update(1, collected, SECOND, &averaging, at(0.0)), Ok(()));
        }
    }

    fn counts() -> impl Strategy<Value = [(u64, u64); 3]> {
        prop::array::uniform3((0_u64..1_000, 0_u64..1_000))
    }

    proptest! {
        /// The upstream test of convergence, from any start.
        #[test]
        fn four_rounds_bring_any_start_within_a_tenth(start in counts()) {
            let options = ShareOptions { interval: SECOND, ..ShareOptions::SEED };
            let mut key = Key::new(options);
            let load = [(10, 10), (200, 200), (999, 999)];
            for (second, round) in [start, load, load, load, load].into_iter().enumerate() {
                for (member, counts) in (1..).zip(round) {
                    key.update(second as f64, member, counts);
                }
            }
            let off = (key.used(4.0) - 1_209.0).abs();
            prop_assert!(off <= 120.9, "{off}");
            for (weight, expected) in key.weights(4.0).into_iter().zip([0.0083, 0.165, 0.826]) {
                prop_assert!((weight - expected).abs() <= 0.1, "{weight} for {expected}");
            }
        }

        #[test]
        fn weights_are_parts_of_one_whatever_comes(
            updates in prop::collection::vec(
                (0_u32..5, any::<u64>(), any::<u64>(), 0_u64..20_000, 0_u64..10_000),
                1..60,
            ),
            is_seed: bool,
        ) {
            let ours = ShareOptions::default();
            let averaging = averaging(if is_seed { ShareOptions::SEED } else { ours });
            let mut weights = Weights::new(3);
            let mut now = Instant::ZERO;
            for (member, allowed, denied, gap, elapsed) in updates {
                now = now.saturating_add(Duration::from_millis(gap));
                let (collected, elapsed) =
                    (Collected { allowed, denied }, Duration::from_millis(elapsed));
                // Beyond the bound nothing changes.
                let _ = weights.update(member, collected, elapsed, &averaging, now);
                prop_assert!(weights.len() <= 3);
                let of = |member| weights.weight(member, &averaging, now);
                let each: Vec<f64> = (0..5).map(of).collect();
                prop_assert!(each.iter().all(|weight| (0.0..=1.0).contains(weight)), "{each:?}");
                let (sum, used) = (each.iter().sum::<f64>(), weights.used(&averaging, now));
                let demand = weights.demand(&averaging, now);
                prop_assert!(sum < 1.0 + 1e-12 && (sum == 0.0 || sum > 1.0 - 1e-12), "{sum}");
                prop_assert!((0.0..=demand * (1.0 + 1e-12)).contains(&used), "{used} {demand}");
                prop_assert!(demand.is_finite());
            }
        }
    }
}
