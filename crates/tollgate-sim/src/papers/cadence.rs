//! E9: how soon an average of reports follows a load that moves. Cadence (`common/quotas/global`,
//! 2024): every 3 s, half of the new and half of the old.
//!
//! Two hosts ask for 90 and 10 a second, and from one instant on for 10 and 90. Both report at the
//! same times; counts are even. Settled: the first host's weight has at most a tenth of the change
//! still to go.

use tollgate::Instant;
use tollgate::share::{Averaging, Collected, ShareOptions, Weights};

use super::{Row, Table};

pub(super) fn full() -> Table {
    let seed = ShareOptions::SEED;
    let rows = vec![
        row("the seed's: 3 s, α 0.5", seed, "4 (12 s)", (4, 5)),
        row(
            "3 s, a sample a quarter off replaces",
            ShareOptions { replace_above: Some(0.25), ..seed },
            "—",
            (1, 2),
        ),
        row("ours: 1 s, a sample a quarter off replaces", ShareOptions::default(), "—", (1, 2)),
    ];
    Table {
        title: "E9: a load that moves (Cadence 2024)".into(),
        text:
            "Two hosts at 90 and 10 a second that change places, at the end of an interval or at \
               any of 99 other places in it; the numbers of updates from then on until the weights \
               have at most a tenth of the way to go. Line: the seed's 4 are reproduced; ours are \
               2 at most, wherever it falls."
                .into(),
        published: vec!["published"],
        ours: vec!["at the end", "anywhere, at most", "after"],
        rows,
    }
}

/// The line is of a load that moves at the end of an interval, exactly, and anywhere, at most.
fn row(what: &str, options: ShareOptions, published: &str, line: (u32, u32)) -> Row {
    let (at_the_end, anywhere) = (settles(options, 1.0), worst(options));
    Row {
        what: what.into(),
        published: vec![published.into()],
        ours: vec![
            at_the_end.to_string(),
            anywhere.to_string(),
            crate::duration(options.interval * anywhere),
        ],
        pass: Some(at_the_end == line.0 && anywhere <= line.1),
    }
}

/// The most updates until weights have settled, wherever in an interval the load moves.
fn worst(options: ShareOptions) -> u32 {
    (1..=100).map(|place| settles(options, f64::from(place) / 100.0)).max().unwrap_or(0)
}

/// The updates until weights have settled, after a load that moves at this part of an interval: at
/// the end (1.0) none of the new load is in that interval's report.
fn settles(options: ShareOptions, part: f64) -> u32 {
    let weights = weights(options, part, 20);
    let last_off = weights.iter().rposition(|weight| (weight - 0.1).abs() > 0.1 * 0.8);
    // The one after it, counted from one on.
    last_off.map_or(1, |index| index as u32 + 2)
}

/// The first host's weights after each update from the one on that is the first to know.
fn weights(options: ShareOptions, part: f64, updates: u32) -> Vec<f64> {
    let averaging = Averaging::new(&options).expect("sound options");
    let mut weights = Weights::new(2);
    let mut now = Instant::ZERO;
    let seconds = options.interval.as_secs_f64();
    let mut update = |now: Instant, per_second: [f64; 2]| {
        for (host, per_second) in (0..).zip(per_second) {
            let allowed = (per_second * seconds).round() as u64;
            let collected = Collected { allowed, denied: 0 };
            let updated = weights.update(host, collected, options.interval, &averaging, now);
            updated.expect("two hosts");
        }
        weights.weight(0, &averaging, now)
    };
    for _ in 0..20 {
        now = now.saturating_add(options.interval);
        update(now, [90.0, 10.0]);
    }
    if part < 1.0 {
        now = now.saturating_add(options.interval);
    }
    let mixed = [90.0, 10.0].map(|before| before * part + (100.0 - before) * (1.0 - part));
    let first = (part < 1.0).then(|| update(now, mixed));
    let rest = (0..updates).map(|_| {
        now = now.saturating_add(options.interval);
        update(now, [10.0, 90.0])
    });
    first.into_iter().chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// What is left of a host that died, as a part of what it asked for.
    fn left_of_the_dead(options: ShareOptions, millis: u64) -> f64 {
        let averaging = Averaging::new(&options).expect("sound options");
        let mut weights = Weights::new(1);
        let collected = Collected { allowed: 300, denied: 0 };
        weights
            .update(0, collected, options.interval, &averaging, Instant::ZERO)
            .expect("one host");
        let now = Instant::ZERO.saturating_add(Duration::from_millis(millis));
        weights.demand(&averaging, now) / weights.demand(&averaging, Instant::ZERO)
    }

    #[test]
    fn the_seeds_averages_need_four_updates_for_a_load_that_moves() {
        let left = weights(ShareOptions::SEED, 1.0, 6);
        for (updates, weight) in (1..).zip(left) {
            assert!((weight - 0.1 - 0.8 * 0.5_f64.powi(updates)).abs() < 1e-12, "{weight}");
        }
        assert_eq!(settles(ShareOptions::SEED, 1.0), 4);
        // In the middle of an interval the mixture's comes on top.
        assert_eq!(worst(ShareOptions::SEED), 5);
    }

    #[test]
    fn the_seeds_dead_hosts_halve_from_six_seconds_on_and_are_gone_at_thirty() {
        let left = |millis| left_of_the_dead(ShareOptions::SEED, millis);
        assert_eq!([0, 3_000, 5_999].map(left), [1.0; 3]);
        for second in 6..30_u64 {
            let expected = 0.5_f64.powi(second as i32 / 3);
            assert_eq!([second * 1_000, second * 1_000 + 999].map(left), [expected; 2]);
        }
        assert_eq!([30_000, 60_000].map(left), [0.0; 2]);
        // Ours by the same rule, three times as soon.
        let ours = |millis| left_of_the_dead(ShareOptions::default(), millis);
        assert_eq!(
            [1_999, 2_000, 3_000, 9_999, 10_000].map(ours),
            [1.0, 0.25, 0.125, 1.0 / 512.0, 0.0]
        );
    }

    #[test]
    fn ours_follows_in_one_update_or_in_two_wherever_the_load_moves() {
        assert_eq!(settles(ShareOptions::default(), 1.0), 1);
        assert_eq!(worst(ShareOptions::default()), 2);
    }
}
