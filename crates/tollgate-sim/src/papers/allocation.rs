//! How others divide a capacity: to be compared with, and not used.
//!
//! Doorman's proportional share (2016), max-min fairness with weights by filling up, and dominant
//! resource fairness (Ghodsi and others, NSDI 2011). All of them take what is asked for as given.

/// What Doorman's `PROPORTIONAL_SHARE` comes to when all have asked: everyone has an equal part if
/// it wants it, and what others leave of theirs goes to those who want more, by how much more.
pub(super) fn proportional(capacity: f64, wants: &[f64]) -> Vec<f64> {
    if wants.iter().sum::<f64>() <= capacity {
        return wants.to_vec();
    }
    let equal = capacity / wants.len() as f64;
    let left: f64 = wants.iter().map(|own| (equal - own).max(0.0)).sum();
    let lacking: f64 = wants.iter().map(|own| (own - equal).max(0.0)).sum();
    let share =
        |own: &f64| if *own <= equal { *own } else { equal + (own - equal) * left / lacking };
    wants.iter().map(share).collect()
}

/// Max-min fairness: all are raised together, by their weights, until each has what it wants or
/// nothing is left. Doorman's `FAIR_SHARE` is its first two rounds.
pub(super) fn max_min(capacity: f64, wants: &[f64], weights: &[f64]) -> Vec<f64> {
    let mut shares = vec![0.0; wants.len()];
    // Whoever wants least for its weight is satisfied first.
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_by(|a, b| (wants[*a] / weights[*a]).total_cmp(&(wants[*b] / weights[*b])));
    let mut left = capacity;
    for (place, index) in order.iter().enumerate() {
        let all: f64 = order[place..].iter().map(|other| weights[*other]).sum();
        shares[*index] = wants[*index].min(left * weights[*index] / all);
        left -= shares[*index];
    }
    shares
}

/// Dominant resource fairness: how many whole tasks each user has, of which one needs so much of
/// each resource. Who has the smallest part of what it has the largest part of is next.
pub(super) fn dominant<const N: usize>(capacity: [f64; N], tasks: &[[f64; N]]) -> Vec<u32> {
    let mut used = [0.0; N];
    let mut counts = vec![0; tasks.len()];
    loop {
        let next = (0..tasks.len())
            .filter(|user| (0..N).all(|kind| used[kind] + tasks[*user][kind] <= capacity[kind]))
            .min_by(|a, b| {
                let share = |user: usize| dominant_share(capacity, tasks[user], counts[user]);
                share(*a).total_cmp(&share(*b))
            });
        let Some(user) = next else { return counts };
        counts[user] += 1;
        (0..N).for_each(|kind| used[kind] += tasks[user][kind]);
    }
}

/// The largest part of any resource that so many tasks have.
pub(super) fn dominant_share<const N: usize>(
    capacity: [f64; N],
    task: [f64; N],
    count: u32,
) -> f64 {
    let part = |kind: usize| f64::from(count) * task[kind] / capacity[kind];
    (0..N).map(part).fold(0.0, f64::max)
}
