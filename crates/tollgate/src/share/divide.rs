//! How an owner divides a rate among the members of a key, and how much of that it may hand out.
//!
//! Not the seed's: there each node raises itself by all that is unused (`boost`), and the sum is
//! above the rate. Here the unused is divided too, so that it never is.

use crate::mutant::lacks;

/// Divides `rate` by what each member asks for, all in units a second; `into` becomes one rate for
/// each, in the same order, that sum to `rate` or less.
///
/// If more is asked for than there is, each has its part by demand. Else each has what it asks for;
/// then of the rest a quarter of it, to grow; then those below `floor` are raised towards it; and
/// what remains goes to all by demand, or equally if nobody asks. Nobody who asks for more has
/// less.
///
/// ```
/// let mut into = Vec::new();
/// let mut divide = |rate, floor, demands: &[f64]| {
///     tollgate::share::divide(rate, floor, demands, &mut into);
///     into.clone()
/// };
/// assert_eq!(divide(100.0, 25.0, &[150.0, 50.0, 0.0, 0.0]), [75.0, 25.0, 0.0, 0.0]);
/// // 40 and 10 to grow; 50 are left, and the others lack 80 of their floor.
/// assert_eq!(divide(100.0, 40.0, &[40.0, 0.0, 0.0]), [50.0, 25.0, 25.0]);
/// // Here they lack 20, and the rest goes to whoever asks.
/// assert_eq!(divide(100.0, 10.0, &[40.0, 0.0, 0.0]), [80.0, 10.0, 10.0]);
/// assert_eq!(divide(100.0, 25.0, &[0.0, 0.0]), [50.0, 50.0]);
/// ```
pub fn divide(rate: f64, floor: f64, demands: &[f64], into: &mut Vec<f64>) {
    debug_assert!(demands.iter().chain([&rate, &floor]).all(|x| *x >= 0.0 && x.is_finite()));
    into.clear();
    into.extend_from_slice(demands);
    let demand: f64 = demands.iter().sum();
    if demand > rate && !lacks("share_overload_is_divided") {
        // `demand` is above 0 here, and a part of it at most 1.
        into.iter_mut().for_each(|share| *share = (rate * (*share / demand)).min(rate));
        return;
    }
    let room = rate - demand;
    let room = room - grow(demand, room, into);
    let room = room - raise(floor, room, into);
    rest(demand, demands, room, into);
    // Roundings of one share could sum to a bit more than all there is.
    into.iter_mut().for_each(|share| *share = share.min(rate));
}

/// How much of a rate may be handed to a member: its fair part, but no more than others leave.
///
/// Of 100 with a fair part of 30: 30 while others hold 60, 10 while they hold 90, 0 while they hold
/// 110.
#[must_use]
pub fn grantable(rate: f64, fair: f64, held_by_others: f64) -> f64 {
    if lacks("share_grants_within_room") {
        return fair;
    }
    fair.min(rate - held_by_others).max(0.0)
}

/// Gives each the same part of its demand more, a quarter or what there is room for. Returns what
/// it gave.
fn grow(demand: f64, room: f64, shares: &mut [f64]) -> f64 {
    let given = (demand * GROWTH).min(room).max(0.0);
    if given <= 0.0 || lacks("share_demand_has_room_to_grow") {
        return 0.0;
    }
    // Above 0, as `demand` is.
    let part = given / demand;
    shares.iter_mut().for_each(|share| *share += *share * part);
    given
}

/// Raises those below the floor towards it, all by the same part of what they lack. Returns what it
/// gave.
fn raise(floor: f64, room: f64, shares: &mut [f64]) -> f64 {
    let lacking: f64 = shares.iter().map(|share| (floor - share).max(0.0)).sum();
    let given = lacking.min(room).max(0.0);
    if given <= 0.0 || lacks("share_the_small_are_raised") {
        return 0.0;
    }
    let part = given / lacking;
    for share in shares.iter_mut().filter(|share| **share < floor) {
        // Whoever had more still has, whatever is rounded: a sum of products that only grow.
        *share = (*share * (1.0 - part) + floor * part).clamp(*share, floor);
    }
    given
}

/// Gives all of the room away, by demand.
fn rest(demand: f64, demands: &[f64], room: f64, shares: &mut [f64]) {
    if room <= 0.0 || lacks("share_the_rest_is_given") {
        return;
    }
    let equally = 1.0 / shares.len().max(1) as f64;
    for (share, own) in shares.iter_mut().zip(demands) {
        // Divided first, so that no demand is too small to divide by.
        *share += room * if demand > 0.0 { own / demand } else { equally };
    }
}

/// The part of its demand that each may use beyond it, so that a load that grows is seen before it
/// is denied.
const GROWTH: f64 = 0.25;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::share::boosted;

    fn divided(rate: f64, floor: f64, demands: &[f64]) -> Vec<f64> {
        let mut into = vec![7.0];
        divide(rate, floor, demands, &mut into);
        into
    }

    #[track_caller]
    fn assert_near(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        let are_near = found.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-9);
        assert!(are_near, "{found:?}, not {expected:?}");
    }

    /// Of ten nodes one asks for a fifth of the limit and nine for nothing. By the seed's rule the
    /// busy one has all of it, and each of the nine raises itself to a tenth.
    #[test]
    fn ten_nodes_sum_to_the_rate_where_the_seeds_sum_to_nearly_twice_that() {
        let mut demands = [0.0; 10];
        demands[0] = 20.0;
        let seeds = demands.map(|demand| boosted(100.0, demand / 20.0, 20.0, 10.0));
        assert_near(&seeds, &[100.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0]);
        assert_eq!(seeds.iter().sum::<f64>(), 190.0);
        let ours = divided(100.0, 10.0, &demands);
        // 20 and a quarter of it; 75 are left, of 90 that nine lack.
        let mut expected = [75.0 / 9.0; 10];
        expected[0] = 25.0;
        assert_near(&ours, &expected);
        assert!((ours.iter().sum::<f64>() - 100.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_too_much_is_divided_by_demand() {
        assert_near(&divided(120.0, 40.0, &[1_000.0, 150.0, 50.0]), &[100.0, 15.0, 5.0]);
        assert_near(&divided(0.0, 0.0, &[5.0, 0.0]), &[0.0, 0.0]);
        assert_eq!(divided(100.0, 30.0, &[60.0, 40.0]), [60.0, 40.0]);
        assert_eq!(divided(100.0, 30.0, &[]), []);
    }

    #[test]
    fn who_asks_has_a_quarter_more_if_there_is_room() {
        assert_near(&divided(100.0, 0.0, &[72.0, 18.0]), &[80.0, 20.0]);
        // It grows first; the rest raises the other.
        assert_near(&divided(100.0, 50.0, &[72.0, 0.0]), &[90.0, 10.0]);
    }

    #[test]
    fn the_small_are_raised_towards_the_floor_by_what_they_lack() {
        // 50 are left: 15 and 25 are lacking.
        assert_near(&divided(100.0, 25.0, &[32.0, 8.0, 0.0]), &[48.0, 27.0, 25.0]);
        // 15 are left: 20 and 40 are lacking.
        assert_near(&divided(100.0, 40.0, &[52.0, 16.0, 0.0]), &[65.0, 25.0, 10.0]);
    }

    #[test]
    fn the_rest_goes_to_all_by_demand_or_equally_if_nobody_asks() {
        assert_near(&divided(100.0, 10.0, &[30.0, 10.0, 0.0]), &[67.5, 22.5, 10.0]);
        assert_near(&divided(100.0, 10.0, &[0.0; 4]), &[25.0; 4]);
        assert_near(&divided(100.0, 50.0, &[0.0; 4]), &[25.0; 4]);
        let tiny = f64::MIN_POSITIVE / 1e3;
        assert_near(&divided(100.0, 10.0, &[tiny, 0.0]), &[90.0, 10.0]);
    }

    #[test]
    fn no_more_is_handed_out_than_others_leave() {
        let cases = [(60.0, 30.0), (90.0, 10.0), (100.0, 0.0), (110.0, 0.0)];
        for (held, expected) in cases {
            assert_eq!(grantable(100.0, 30.0, held), expected, "{held}");
        }
    }

    /// Demands of every size, of which some ask for nothing and some for the same.
    fn demands() -> impl Strategy<Value = Vec<f64>> {
        let one =
            prop_oneof![Just(0.0), Just(10.0), 0.0_f64..200.0, 1e-300_f64..1e-3, 0.0_f64..1e12,];
        prop::collection::vec(one, 0..40)
    }

    /// A rate that is above the demands about as often as below.
    fn rate(demands: &[f64], times: f64, other: f64) -> f64 {
        let demand: f64 = demands.iter().sum();
        if demand > 0.0 && times > 0.0 { demand * times } else { other }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_024))]

        #[test]
        fn shares_are_within_the_rate_and_no_less_than_asked_for(
            demands in demands(),
            times in prop_oneof![Just(0.0), Just(1.0), 0.5_f64..2.0, 0.0_f64..100.0],
            other in 0.0_f64..1e9,
            floor in prop_oneof![Just(-1.0), Just(0.0), 0.0_f64..2.0],
        ) {
            let rate = rate(&demands, times, other);
            let members = demands.len().max(1) as f64;
            // That of a fleet, none, or any.
            let floor = if floor < 0.0 { rate / members } else { floor * rate };
            let shares = divided(rate, floor, &demands);
            let (sum, demand): (f64, f64) = (shares.iter().sum(), demands.iter().sum());
            prop_assert!(sum <= rate * (1.0 + 1e-12), "{sum} of {rate}");
            prop_assert!(demands.is_empty() || sum >= rate * (1.0 - 1e-12), "{sum} of {rate}");
            prop_assert!(shares.iter().all(|share| (0.0..=rate).contains(share)), "{shares:?}");
            let has_room = demand * 1.25 + floor * members <= rate;
            for (share, own) in shares.iter().zip(&demands) {
                prop_assert!(demand > rate || share >= own, "{share} of {own}");
                let floor = if has_room { floor * (1.0 - 1e-12) } else { 0.0 };
                prop_assert!(*share >= floor, "{share} below {floor}");
            }
            // Nobody who asks for more has less, and the order of members changes nothing.
            let mut order: Vec<usize> = (0..demands.len()).collect();
            order.sort_by(|a, b| demands[*a].total_cmp(&demands[*b]));
            for pair in order.windows(2) {
                prop_assert!(shares[pair[0]] <= shares[pair[1]], "{shares:?}");
            }
            let ordered: Vec<f64> = order.iter().map(|index| demands[*index]).collect();
            for (share, index) in divided(rate, floor, &ordered).iter().zip(order) {
                let off = (share - shares[index]).abs();
                prop_assert!(off <= 1e-9 * rate, "{off} of {rate}");
            }
        }

        /// Whoever asks for more than it did, while others ask for the same, has no less.
        #[test]
        fn asking_for_more_never_gives_less(
            demands in prop::collection::vec(prop_oneof![Just(0.0), 0.0_f64..60.0], 1..8),
            more in 0.0_f64..60.0,
            floor in 0.0_f64..50.0,
        ) {
            let before = divided(100.0, floor, &demands)[0];
            let asked: f64 = demands.iter().sum();
            let mut demands = demands;
            demands[0] += more;
            let after = divided(100.0, floor, &demands)[0];
            // If nobody asks, all have the same, and the first who asks has the rest.
            prop_assert!(after >= before - 1e-9 || asked == 0.0, "{before} {after}");
        }

        #[test]
        fn a_little_more_demand_changes_little_where_it_passes_the_rate(
            demands in prop::collection::vec(0.1_f64..100.0, 1..20),
            floor in 0.0_f64..100.0,
        ) {
            let demand: f64 = demands.iter().sum();
            for times in [1.0, 1.25] {
                let [below, above] = [1.0 - 1e-9, 1.0 + 1e-9]
                    .map(|by| divided(demand * times * by, floor, &demands));
                for (one, other) in below.iter().zip(&above) {
                    prop_assert!((one - other).abs() <= 1e-6 * demand, "{one} {other}");
                }
            }
        }

        /// Members come in any order, and each gives back what it held for what it is handed.
        #[test]
        fn what_is_held_never_sums_to_more_than_the_rate(
            steps in prop::collection::vec((0_usize..6, 0.0_f64..200.0), 1..80),
        ) {
            let mut held = [0.0; 6];
            for (member, fair) in steps {
                let all: f64 = held.iter().sum();
                held[member] = grantable(100.0, fair, all - held[member]);
                prop_assert!(held[member] >= 0.0 && held[member] <= fair);
                prop_assert!(held.iter().sum::<f64>() <= 100.0 * (1.0 + 1e-12), "{held:?}");
            }
        }
    }
}
