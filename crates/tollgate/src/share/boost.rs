//! The seed's way from a weight to a rate, by which each node raises itself.
//!
//! It is here to be compared with ([`divide`](super::divide()) is what we do): each node may take
//! all that the fleet leaves unused, so that n of them sum to up to (2 - 1/n) of the target.

use crate::mutant::lacks;

/// The rate of a member by the seed's rule, in units a second, at most `target`: its part of the
/// target; below `fallback`, as much more as is unused, up to `fallback`.
///
/// Of a target of 10 with a fallback of 3, a weight of 0.11 gives 1.1 when 10 are used, and 3 when
/// 2 are.
#[must_use]
pub fn boosted(target: f64, weight: f64, used: f64, fallback: f64) -> f64 {
    let own = target * weight;
    if own >= fallback {
        return own.min(target);
    }
    // More may be used than the target while shares move.
    let spare = target - used;
    let spare = if lacks("share_spare_is_not_negative") { spare } else { spare.max(0.0) };
    (own + spare).min(fallback).min(target)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_seeds_table_comes_out() {
        let cases = [
            (0.11, 10.0, 1.1),
            (0.11, 2.0, 3.0),
            (0.89, 10.0, 8.9),
            (0.89, 2.0, 8.9),
            (0.089, 100.0, 0.89),
        ];
        for (weight, used, expected) in cases {
            let found = boosted(10.0, weight, used, 3.0);
            assert!((found - expected).abs() < 1e-12, "{found} at {weight}, {used}");
        }
    }

    proptest! {
        #[test]
        fn a_boost_is_between_zero_and_the_target(
            target in 0.0_f64..1e12,
            weight in 0.0_f64..=1.0,
            used in 0.0_f64..1e13,
            fallback in 0.0_f64..1e13,
        ) {
            let boosted = boosted(target, weight, used, fallback);
            prop_assert!((0.0..=target).contains(&boosted), "{boosted}");
        }
    }
}
