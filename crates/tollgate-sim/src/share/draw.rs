//! A scenario of `share` for each seed.

use super::scenario::{Load, Scenario, Units};
use crate::scenario::SECOND;

/// The scenario of a seed.
#[must_use]
pub fn scenario(seed: u64) -> Scenario {
    let mut scenario = Scenario::quiet(4, Units::per_second(100, 100), 30 * SECOND);
    scenario.seed = seed;
    scenario.loads = (0..4).map(|node| Load::even(0, node, 40.0)).collect();
    scenario
}
