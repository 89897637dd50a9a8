//! E8, E21, E22: capacity that is divided among those who want more than there is. Doorman's two
//! algorithms, dominant resource fairness (NSDI 2011) and max-min fairness with weights, by their
//! published examples; and what the guarantee `share` makes of the same demands.

use tollgate::share::divide;

use super::allocation::{dominant, dominant_share, max_min, proportional};
use super::{Row, Table};

pub(super) fn full() -> Table {
    let doorman = [1_000.0, 50.0, 10.0];
    let (four, weighted) = ([2.0, 2.6, 4.0, 5.0], [4.0, 2.0, 10.0, 4.0]);
    let equal = [1.0; 4];
    let rows = vec![
        row(
            "E8 `PROPORTIONAL_SHARE`: 1,000, 50, 10 of 120",
            &[69.690_721_65, 40.309_278_351, 10.0],
            &proportional(120.0, &doorman),
            &ours(120.0, &doorman),
        ),
        row(
            "E8 `FAIR_SHARE`: the same",
            &[60.0, 50.0, 10.0],
            &max_min(120.0, &doorman, &equal[..3]),
            &ours(120.0, &doorman),
        ),
        row(
            "E22 max-min: 2, 2.6, 4, 5 of 10",
            &[2.0, 2.6, 2.7, 2.7],
            &max_min(10.0, &four, &equal),
            &ours(10.0, &four),
        ),
        row(
            "E22 weights 2.5, 4, 0.5, 1: 4, 2, 10, 4 of 16",
            &[4.0, 2.0, 6.0, 4.0],
            &max_min(16.0, &weighted, &[2.5, 4.0, 0.5, 1.0]),
            &ours(16.0, &weighted),
        ),
        drf(),
    ];
    Table {
        title: "E8, E21, E22: capacity that is divided (Doorman, DRF, max-min)".into(),
        text: "The published results, those of the same algorithms here, and the parts by which \
               `share` divides the same demands: by demand alone, as its seed does. Line: the \
               algorithms give what is published, to 1e-6."
            .into(),
        published: vec!["published"],
        ours: vec!["here", "`share`"],
        rows,
    }
}

fn row(what: &str, published: &[f64], here: &[f64], ours: &[f64]) -> Row {
    Row {
        what: what.into(),
        published: vec![list(published)],
        ours: vec![list(here), list(ours)],
        pass: Some(are_near(here, published)),
    }
}

fn drf() -> Row {
    let counts = dominant(CAPACITY, &TASKS);
    let share = |user: usize| dominant_share(CAPACITY, TASKS[user], counts[user]);
    Row {
        what: "E21 DRF: tasks of (1, 4) and (3, 1) of 9 processors and 18 GB".into(),
        published: vec!["3, 2".into()],
        ours: vec![format!("{}, {}", counts[0], counts[1]), "—".into()],
        pass: Some(counts == [3, 2] && share(0) == share(1)),
    }
}

fn ours(rate: f64, demands: &[f64]) -> Vec<f64> {
    let mut into = Vec::new();
    divide(rate, rate / demands.len() as f64, demands, &mut into);
    into
}

fn are_near(found: &[f64], expected: &[f64]) -> bool {
    found.iter().zip(expected).all(|(one, other)| (one - other).abs() <= 1e-6)
}

fn list(numbers: &[f64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(|number| crate::number(*number)).collect();
    numbers.join(" · ")
}

const CAPACITY: [f64; 2] = [9.0, 18.0];
const TASKS: [[f64; 2]; 2] = [[1.0, 4.0], [3.0, 1.0]];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Chance;

    #[track_caller]
    fn assert_near(found: &[f64], expected: &[f64]) {
        assert!(are_near(found, expected), "{found:?}, not {expected:?}");
    }

    #[test]
    fn published_allocations_come_out() {
        for row in full().rows {
            assert_eq!(row.pass, Some(true), "{row:?}");
        }
    }

    /// The vectors of Doorman's own tests that do not hang on who asks first.
    #[test]
    fn doormans_tests_come_out() {
        assert_near(&proportional(120.0, &[60.0, 60.0, 10.0]), &[55.0, 55.0, 10.0]);
        assert_near(&proportional(120.0, &[60.0, 50.0, 10.0]), &[60.0, 50.0, 10.0]);
        assert_near(&max_min(120.0, &[1_000.0, 60.0, 10.0], &[1.0; 3]), &[55.0, 55.0, 10.0]);
        // Clients that ask for several.
        let (wants, clients) = ([1_000.0, 500.0, 200.0], [6.0, 4.0, 2.0]);
        assert_near(&max_min(120.0, &wants, &clients), &[60.0, 40.0, 20.0]);
        let (wants, clients) = ([2_000.0, 500.0, 700.0], [10.0, 10.0, 30.0]);
        assert_near(&max_min(1_000.0, &wants, &clients), &[200.0, 200.0, 600.0]);
    }

    /// Who wants little is served by both of Doorman's; by demand alone it has a hundredth of what
    /// the greedy one has, whatever its part would be. That is the seed's, and ours.
    #[test]
    fn by_demand_alone_whoever_asks_for_most_has_most() {
        let shares = ours(120.0, &[1_000.0, 50.0, 10.0]);
        assert_near(&shares, &[113.207_547_17, 5.660_377_36, 1.132_075_47]);
    }

    #[test]
    fn max_min_satisfies_or_levels_and_hangs_on_no_order() {
        let chance = &mut Chance::new(3);
        for _ in 0..500 {
            let members = chance.between(1, 8) as usize;
            let mut draw = |from: f64| -> Vec<f64> {
                (0..members).map(|_| from + 10.0 * chance.fraction()).collect()
            };
            let (mut wants, mut weights) = (draw(0.0), draw(0.1));
            let capacity = 5.0 * members as f64;
            let mut shares = max_min(capacity, &wants, &weights);
            let (sum, wanted): (f64, f64) = (shares.iter().sum(), wants.iter().sum());
            assert!((sum - wanted.min(capacity)).abs() < 1e-9, "{sum} of {wanted}");
            let level = |index: usize| shares[index] / weights[index];
            for one in 0..members {
                assert!(shares[one] <= wants[one]);
                // Who lacks something has, for its weight, no less than anybody.
                let lacks = shares[one] < wants[one] - 1e-9;
                for other in 0..members {
                    assert!(!lacks || level(other) <= level(one) + 1e-9);
                }
            }
            for reversed in [&mut wants, &mut weights, &mut shares] {
                reversed.reverse();
            }
            assert_near(&max_min(capacity, &wants, &weights), &shares);
        }
    }

    /// Nobody has less than with an n-th of everything, and no resource is used up beyond its end.
    #[test]
    fn dominant_shares_are_worth_sharing() {
        let chance = &mut Chance::new(5);
        for _ in 0..200 {
            let users = chance.between(1, 5) as usize;
            let tasks: Vec<[f64; 2]> =
                (0..users).map(|_| [1, 1].map(|least| chance.between(least, 5) as f64)).collect();
            let capacity = [1_000.0, 1_500.0];
            let counts = dominant(capacity, &tasks);
            for kind in 0..2 {
                let used = counts.iter().zip(&tasks).map(|(n, task)| f64::from(*n) * task[kind]);
                assert!(used.sum::<f64>() <= capacity[kind]);
            }
            for (count, task) in counts.iter().zip(&tasks) {
                let alone = (0..2).map(|kind| capacity[kind] / users as f64 / task[kind]);
                let alone = alone.fold(f64::MAX, f64::min).floor();
                // Whole tasks: the last one may go to somebody else.
                assert!(f64::from(*count) >= alone - 1.0, "{counts:?} of {tasks:?}");
            }
        }
    }
}
