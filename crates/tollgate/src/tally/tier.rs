//! How often a key is read from the store: the nearer to its limit, the oftener.

use std::time::Duration;

use super::window::{Estimate, Window};
use crate::mutant::lacks;

/// How near a key is to its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Below a tenth.
    Idle,
    /// Below a half.
    Low,
    /// Below eight tenths.
    Normal,
    /// From there on.
    Hot,
}

impl Tier {
    /// The tier of a key by its level now, or by what it was when it was last read if that was
    /// more: what is spent elsewhere is only seen there.
    ///
    /// At a threshold of 100: 9 is idle, 10 low, 50 normal and 80 hot.
    #[must_use]
    pub fn of(window: &Window, level: Estimate, when_read: Estimate) -> Self {
        let most = level.max(when_read);
        let below = |tenths| window.is_below(most, tenths);
        if below(1) {
            Self::Idle
        } else if below(5) {
            Self::Low
        } else if below(8) {
            Self::Normal
        } else {
            Self::Hot
        }
    }

    /// How long what was read counts, when a key of normal pressure is read each `sync`: half of
    /// that if it is hot, four times if it is low. An idle key is read as seldom, and only if its
    /// [`Floor`] says so.
    #[must_use]
    pub fn interval(self, sync: Duration) -> Duration {
        match self {
            Self::Hot => sync / 2,
            Self::Normal => sync,
            Self::Low | Self::Idle => sync.saturating_mul(4),
        }
    }
}

/// What a node must have counted of a key before it reads it though it is idle here: others may
/// have used the rest.
///
/// Without it a key at 6 % on each of twenty nodes is at 120 % and is never read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Floor(u64);

impl Floor {
    /// So many units, or a hundredth of the threshold if that is less, and at least 1; 0 mean that
    /// idle keys are not read at all.
    ///
    /// With 10 units: 1 at a threshold of 100, 5 at 500, 10 at 15,000.
    #[must_use]
    pub fn new(units: u64, window: &Window) -> Self {
        Self(units.min((window.threshold() / 100).max(1)))
    }

    /// Whether a key of which this node has `counted` so much is read in this tier.
    #[must_use]
    pub fn reads(self, tier: Tier, counted: u64) -> bool {
        let is_enough = self.0 > 0 && counted >= self.0;
        tier > Tier::Idle || (is_enough && !lacks("idle_above_floor_is_read"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::{Meets, WallTime};

    fn window(threshold: u64) -> Window {
        Window::new(threshold, Duration::from_secs(60), Meets::IsLimited).expect("a window")
    }

    fn units(window: &Window, units: u64) -> Estimate {
        window.estimate(0, units, WallTime::from_nanos(0))
    }

    #[test]
    fn tiers_begin_at_a_tenth_a_half_and_eight_tenths() {
        let window = window(1_000);
        let tier = |level| Tier::of(&window, units(&window, level), Estimate::default());
        let cases = [
            (0, Tier::Idle),
            (50, Tier::Idle),
            (99, Tier::Idle),
            (100, Tier::Low),
            (250, Tier::Low),
            (499, Tier::Low),
            (500, Tier::Normal),
            (650, Tier::Normal),
            (799, Tier::Normal),
            (800, Tier::Hot),
            (999, Tier::Hot),
            (1_000, Tier::Hot),
            (5_000, Tier::Hot),
        ];
        for (level, expected) in cases {
            assert_eq!(tier(level), expected, "{level}");
        }
        // The higher of what is and what was read counts.
        let read = Tier::of(&window, units(&window, 10), units(&window, 800));
        assert_eq!(read, Tier::Hot);
    }

    #[test]
    fn a_hot_key_is_read_twice_as_often_and_a_low_one_a_quarter_as_often() {
        let intervals = [Tier::Hot, Tier::Normal, Tier::Low, Tier::Idle]
            .map(|tier| tier.interval(Duration::from_secs(15)).as_millis());
        assert_eq!(intervals, [7_500, 15_000, 60_000, 60_000]);
    }

    #[test]
    fn the_floor_is_a_hundredth_of_the_threshold_at_most() {
        let floor = |threshold| Floor::new(10, &window(threshold)).0;
        assert_eq!([1, 100, 500, 15_000].map(floor), [1, 1, 5, 10]);
        assert_eq!(Floor::new(0, &window(15_000)), Floor(0));
    }

    #[test]
    fn an_idle_key_is_read_once_this_node_has_counted_enough_of_it() {
        let (floor, sync) = (Floor::new(10, &window(15_000)), Duration::from_secs(15));
        let is_old = |tier: Tier, age| Duration::from_secs(age) >= tier.interval(sync);
        let due = |tier: Tier, counted, age: Option<u64>| {
            floor.reads(tier, counted) && age.is_none_or(|age| is_old(tier, age))
        };
        assert!(!due(Tier::Idle, 9, None));
        assert!(due(Tier::Idle, 10, None));
        assert!(!due(Tier::Idle, 10, Some(59)));
        assert!(due(Tier::Idle, 10, Some(60)));
        // Any other tier is read whatever was counted here.
        assert!(
            due(Tier::Hot, 0, None) && !due(Tier::Hot, 0, Some(7)) && due(Tier::Hot, 0, Some(8))
        );
        let never = Floor::new(0, &window(15_000));
        assert!(!never.reads(Tier::Idle, u64::MAX));
        assert!(never.reads(Tier::Low, 0));
    }
}
