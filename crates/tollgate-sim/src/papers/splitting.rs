//! E20: what it costs to split a token bucket. Guérin, "When Two is Worse Than One" (2019): for
//! jobs that wait for their tokens, k buckets of (r/k, b/k) never have a lower sum of waits than
//! one of (r, b).
//!
//! Each job costs one token and goes to a bucket by chance.

use super::{Row, Table};
use crate::chance::Chance;
use crate::scenario::SECOND;

/// A token bucket, in the form in which we have it: the arrival time from which on it is full.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// Seconds a token takes.
    emission: f64,
    burst: f64,
    full_at: f64,
}

impl Bucket {
    fn new(rate: f64, burst: f64) -> Self {
        Self { emission: 1.0 / rate, burst, full_at: 0.0 }
    }

    /// How long a job waits for its token that comes now, in seconds.
    fn wait(&mut self, now: f64) -> f64 {
        self.full_at = self.full_at.max(now) + self.emission;
        (self.full_at - self.burst * self.emission - now).max(0.0)
    }
}

pub(super) fn full() -> Table {
    let rows = [(1, "0.0003 s"), (2, "0.012 s"), (4, "0.077 s"), (8, "0.219 s")];
    let waits = means(1, 20_000_000);
    let rows = rows.iter().zip(waits).map(|((buckets, published), mean)| {
        let exact = exact_wait(*buckets);
        Row {
            what: format!("{buckets} of (r/{buckets}, b/{buckets})"),
            published: vec![(*published).into(), format!("{exact:.5} s")],
            ours: vec![format!("{mean:.5} s")],
            pass: Some((mean / exact - 1.0).abs() <= 0.1),
        }
    });
    Table {
        title: "E20: a bucket that is split (Guérin 2019)".into(),
        text: "r = 100/s, b = 20, independent jobs of one token at 90/s that wait in their order, \
               each at a bucket by chance; the mean wait of 20 million. The exact wait is that of \
               a queue with one server and a constant time of service. Line: within a tenth of it."
            .into(),
        published: vec!["noted, of a short run", "exact"],
        ours: vec!["mean wait"],
        rows: rows.collect(),
    }
}

/// The mean waits with 1, 2, 4 and 8 buckets, of the same jobs.
fn means(seed: u64, jobs: u32) -> [f64; 4] {
    let mut chance = Chance::new(seed);
    let mut fleets = SPLITS.map(|buckets| {
        let part = f64::from(buckets);
        vec![Bucket::new(RATE / part, BURST / part); buckets as usize]
    });
    let (mut now, mut sums) = (0, [0.0; 4]);
    for _ in 0..jobs {
        now += chance.gap(LOAD);
        let place = chance.bits();
        for (fleet, sum) in fleets.iter_mut().zip(&mut sums) {
            let bucket = place as usize % fleet.len();
            *sum += fleet[bucket].wait(now as f64 / SECOND as f64);
        }
    }
    sums.map(|sum| sum / f64::from(jobs))
}

/// The mean wait with so many buckets: of the work W that a job finds in an M/D/1 queue, what is
/// above b/k - 1 tokens.
///
/// E\[(W - x)+\] is E\[W\] less the integral of P(W > u) up to x, and Erlang's P(W ≤ u) is a sum.
fn exact_wait(buckets: u32) -> f64 {
    let part = f64::from(buckets);
    let (load, beyond) = (LOAD / RATE, BURST / part - 1.0);
    let mean = load / (2.0 * (1.0 - load));
    let steps = 2_000;
    let step = beyond / f64::from(steps);
    // By Simpson's rule.
    let integral: f64 = (0..=steps)
        .map(|place| {
            let weight = match place {
                0 => 1.0,
                place if place == steps => 1.0,
                place if place % 2 == 1 => 4.0,
                _ => 2.0,
            };
            weight * (1.0 - at_most(load, f64::from(place) * step))
        })
        .sum();
    (mean - integral * step / 3.0) / (RATE / part)
}

/// The probability that a job finds no more than so many tokens of work (Erlang 1909).
fn at_most(load: f64, work: f64) -> f64 {
    let term = |served: u32| {
        // (-λ(w - n))^n / n! · e^(λ(w - n)), factor by factor.
        let open = load * (work - f64::from(served));
        (1..=served).fold(open.exp(), |term, factor| term * -open / f64::from(factor))
    };
    (1.0 - load) * (0..=work as u32).map(term).sum::<f64>()
}

const RATE: f64 = 100.0;
const BURST: f64 = 20.0;
const LOAD: f64 = 90.0;
const SPLITS: [u32; 4] = [1, 2, 4, 8];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_split_costs_what_queueing_theory_says() {
        // Jobs seldom wait at a bucket that is whole, so that it takes many to know for how long.
        let near = [0.3, 0.15, 0.05, 0.05];
        let means = means(1, 4_000_000);
        for ((buckets, mean), near) in SPLITS.into_iter().zip(means).zip(near) {
            let off = mean / exact_wait(buckets) - 1.0;
            assert!(off.abs() <= near, "{buckets} buckets, {mean} s: {off}");
        }
        assert!(means.is_sorted(), "{means:?}");
    }

    #[test]
    fn a_queue_of_one_server_has_the_waits_that_are_known() {
        // Without a burst beyond one job's token: λ / (2 μ² (1 - ρ)) on each of 20.
        assert!((exact_wait(20) - 0.9 / (2.0 * 5.0 * 0.1)).abs() < 1e-9);
        // P(W = 0), and up to one time of service (1 - ρ) e^(ρ w).
        assert!((at_most(0.9, 0.0) - 0.1).abs() < 1e-12);
        assert!((at_most(0.9, 0.5) - 0.1 * 0.45_f64.exp()).abs() < 1e-12);
    }

    /// Whatever comes when, in whatever bucket: gaps of every size, jobs at one instant, buckets
    /// that are not used at all.
    #[test]
    fn splitting_never_lowers_the_sum_of_waits() {
        let chance = &mut Chance::new(9);
        for _ in 0..20_000 {
            let buckets = chance.between(2, 8) as usize;
            let part = buckets as f64;
            let burst = [0.5, 1.0, 3.0, 20.0][chance.between(0, 3) as usize];
            let mut one = Bucket::new(100.0, burst);
            let mut many = vec![Bucket::new(100.0 / part, burst / part); buckets];
            let used = chance.between(1, part as u64);
            let load = [30.0, 90.0, 150.0, 1_000.0][chance.between(0, 3) as usize];
            let (mut now, mut alone, mut split) = (0.0, 0.0, 0.0);
            for _ in 0..chance.between(1, 60) {
                if chance.happens(0.8) {
                    now += chance.gap(load) as f64 / 1e9;
                }
                alone += one.wait(now);
                split += many[chance.between(0, used - 1) as usize].wait(now);
                assert!(split >= alone - 1e-9, "{split} of {buckets}, {alone} of one");
            }
        }
    }
}
