//! A run over time: what was offered and admitted in each part of it, how near each key came to its
//! bound, and what a perfect limiter would have done.

use std::collections::BTreeMap;

use crate::check::bound::levels;
use crate::ledger::{Admission, Change, Ledger, add};
use crate::scenario::{Nanos, Scenario};

/// Points of a chart: seconds, and a value.
pub(super) type Points = Vec<(f64, f64)>;

/// Counts by part as rates in the middle of so many parts that are joined, since few units fall in
/// one, and at both ends.
pub(super) fn rates(counts: &[u64], every: Nanos, (parts, joined): (usize, usize)) -> Points {
    let mut counts = counts.to_vec();
    counts.resize(parts, 0);
    let seconds = |parts: f64| parts * every as f64 / 1e9;
    let point = |(index, counts): (usize, &[u64])| {
        let middle = (index * joined) as f64 + joined as f64 / 2.0;
        (seconds(middle), counts.iter().sum::<u64>() as f64 / seconds(joined as f64))
    };
    let mut points: Points = counts.chunks_exact(joined).enumerate().map(point).collect();
    let ends = points.first().zip(points.last()).map(|(first, last)| (first.1, last.1));
    if let Some((first, last)) = ends {
        points.insert(0, (0.0, first));
        points.push((seconds((parts / joined * joined) as f64), last));
    }
    points
}

/// Net units that each key was admitted, by part.
pub(super) fn by_key(ledger: &Ledger) -> BTreeMap<(usize, u32), Vec<u64>> {
    by(ledger, |admission| Some((admission.limit, admission.key)))
}

/// Net units that a key was admitted on each node, by part.
pub(super) fn by_node(ledger: &Ledger, of: (usize, u32)) -> BTreeMap<u32, Vec<u64>> {
    by(ledger, |admission| ((admission.limit, admission.key) == of).then_some(admission.node))
}

fn by<K: Ord>(ledger: &Ledger, which: impl Fn(&Admission) -> Option<K>) -> BTreeMap<K, Vec<u64>> {
    let mut all: BTreeMap<K, Vec<u64>> = BTreeMap::new();
    for admission in &ledger.admissions {
        if let Some(which) = which(admission) {
            let part = admission.at / ledger.samples.every.max(1);
            add(all.entry(which).or_default(), part, admission.net());
        }
    }
    all
}

/// The sum of several, part by part.
pub(super) fn sum<'a>(all: impl IntoIterator<Item = &'a Vec<u64>>) -> Vec<u64> {
    let mut sum = Vec::new();
    for parts in all {
        sum.resize(sum.len().max(parts.len()), 0);
        parts.iter().zip(&mut sum).for_each(|(count, sum)| *sum += count);
    }
    sum
}

/// R or B of a limit over time, with a corner where it changes.
pub(super) fn steps(
    ledger: &Ledger,
    limit: usize,
    lasts: Nanos,
    value: impl Fn(&Change) -> f64,
) -> Points {
    let mut points = Points::new();
    for change in ledger.changes.iter().filter(|change| change.limit == limit) {
        let at = change.at as f64 / 1e9;
        points.extend(points.last().map(|(_, before)| (at, *before)));
        points.push((at, value(change)));
    }
    points.extend(points.last().map(|(_, last)| (lasts as f64 / 1e9, *last)));
    points
}

/// Units above R·t, of the worst window that ends in each part, and B.
pub(super) fn level(
    scenario: &Scenario,
    ledger: &Ledger,
    of: (usize, u32),
    every: Nanos,
) -> (Points, Points) {
    let (mut level, mut bound) = (vec![(0.0, 0.0)], Points::new());
    let (mut part, mut highest) = (0, 0.0_f64);
    let (mut last_at, mut last, mut leaks) = (0, 0.0, 0.0);
    levels(scenario, ledger, of, |now| {
        let seconds = |nanos: Nanos| nanos as f64 / 1e9;
        while now.at / every > part {
            let end = (part + 1) * every;
            let left = f64::max(last - leaks * seconds(end - last_at), 0.0);
            level.push((seconds(part * every) + seconds(every) / 2.0, highest.max(left)));
            part += 1;
            highest = left;
        }
        highest = highest.max(now.units);
        (last_at, last, leaks) = (now.at, now.units, now.rate.per_second());
        let burst = now.burst as f64;
        if bound.last().is_none_or(|(_, before)| *before != burst) {
            bound.extend(bound.last().map(|(_, before)| (seconds(now.at), *before)));
            bound.push((if bound.is_empty() { 0.0 } else { seconds(now.at) }, burst));
        }
    });
    let end = scenario.lasts as f64 / 1e9;
    level.push(((part * every + every / 2).min(scenario.lasts) as f64 / 1e9, highest));
    while (part + 1) * every < scenario.lasts {
        part += 1;
        last = f64::max(last - leaks * ((part * every).saturating_sub(last_at)) as f64 / 1e9, 0.0);
        last_at = part * every;
        level.push((last_at as f64 / 1e9, last));
    }
    bound.extend(bound.last().map(|(_, last)| (end, *last)));
    (level, bound)
}

/// Units that one limiter which knew everything would have admitted in each part: its bucket holds
/// B and begins empty, as an owner's does.
pub(super) fn perfect(offered: &[u64], ledger: &Ledger, limit: usize, every: Nanos) -> Vec<f64> {
    let changes: Vec<&Change> =
        ledger.changes.iter().filter(|change| change.limit == limit).collect();
    let mut left = 0.0;
    let part = |(part, offered): (usize, &u64)| {
        let at = (part as u64 + 1) * every;
        let Some(now) = changes.iter().rev().find(|change| change.at < at) else { return 0.0 };
        left += now.rate.per_second() * every as f64 / 1e9;
        let admitted = f64::min(left, *offered as f64);
        left = f64::min(left - admitted, now.burst as f64);
        admitted
    };
    offered.iter().enumerate().map(part).collect()
}

#[cfg(test)]
mod tests {
    use tollgate::Rate;

    use super::*;
    use crate::check::utilisation::fleet;
    use crate::scenario::{MS, SECOND};

    fn admission(at: Nanos, cost: u64) -> Admission {
        Admission { at, limit: 0, key: 0, node: 1, cost, refunded: 0 }
    }

    fn ledger(admissions: Vec<Admission>) -> Ledger {
        let rate = Rate::new(10, SECOND).expect("a rate");
        let changes = vec![Change { at: 0, limit: 0, rate, burst: 10, is_removal: false }];
        Ledger { admissions, changes, contacts: vec![0], ..Ledger::default() }
    }

    #[test]
    fn a_rate_is_told_for_five_parts_at_a_time() {
        let points = rates(&[1, 2, 3, 4, 0, 5], 100 * MS, (11, 5));
        assert_eq!(points, [(0.0, 20.0), (0.25, 20.0), (0.75, 10.0), (1.0, 10.0)]);
    }

    #[test]
    fn the_level_leaks_at_the_rate_and_each_part_shows_its_highest() {
        let mut scenario = fleet(1, 10, 10, 1.0);
        scenario.lasts = SECOND;
        let ledger = ledger(vec![admission(0, 4), admission(250 * MS, 6)]);
        let (level, bound) = super::level(&scenario, &ledger, (0, 0), 100 * MS);
        let near = |x: f64, y: f64| level.iter().any(|p| (p.0 - x).abs() + (p.1 - y).abs() < 1e-9);
        // 4 at once; 1.5 are left when 6 more come.
        assert!(near(0.05, 4.0) && near(0.15, 3.0) && near(0.25, 7.5), "{level:?}");
        assert!(near(0.9, 1.0), "{level:?}");
        assert_eq!(bound, [(0.0, 10.0), (1.0, 10.0)]);
    }

    #[test]
    fn a_perfect_limiter_admits_what_is_offered_up_to_rate_and_burst() {
        let ledger = ledger(Vec::new());
        // 1 comes back in each part; after 20 parts of rest no more than the burst is there.
        let mut offered = vec![5, 0, 0];
        assert_eq!(perfect(&offered, &ledger, 0, 100 * MS), [1.0, 0.0, 0.0]);
        offered.extend([0; 17]);
        offered.push(50);
        assert_eq!(perfect(&offered, &ledger, 0, 100 * MS)[20], 11.0);
    }
}
