//! What a run of real processes is judged by: the answers that clients got, and nothing that a
//! daemon says of itself but when it decided.
//!
//! All processes are on one machine, so that one clock (`CLOCK_MONOTONIC`) stamps them all. Sums
//! are exact: whole nanoseconds, and units in parts of a period.

use super::load::{Answer, Outcome};

/// `units` per `period_ns`, and `burst` at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) units: u64,
    pub(crate) period_ns: u64,
    pub(crate) burst: u64,
}

impl Limit {
    pub(crate) const fn per_second(units: u64, burst: u64) -> Self {
        Self { units, period_ns: SECOND, burst }
    }

    /// Whole units that come in so long.
    pub(crate) fn units_in(&self, span_ns: u64) -> u64 {
        (u128::from(self.units) * u128::from(span_ns) / u128::from(self.period_ns)) as u64
    }

    /// By how many units the worst window holds more than burst + rate · its length, rounded up;
    /// zero if none does. `stamps` are those of what was allowed, one unit each, in any order.
    ///
    /// A bucket that leaks and is never clamped is the same sum for all windows at once: its level
    /// is the most that any window that ends here holds above rate · length.
    pub(crate) fn excess(&self, stamps: &[u64]) -> u64 {
        let mut stamps = stamps.to_vec();
        stamps.sort_unstable();
        let unit = u128::from(self.period_ns);
        let (mut level, mut highest, mut last) = (0_u128, 0, 0);
        for stamp in stamps {
            let leaked = u128::from(self.units) * u128::from(stamp - last);
            level = level.saturating_sub(leaked) + unit;
            (highest, last) = (level.max(highest), stamp);
        }
        highest.saturating_sub(u128::from(self.burst) * unit).div_ceil(unit) as u64
    }

    /// The same for the whole run alone, by the clients' clock: from the first question to the last
    /// answer no more than burst + rate · length may have passed.
    pub(crate) fn excess_of_run(&self, answers: &[Answer]) -> u64 {
        let allowed = answers.iter().filter(|one| one.outcome == Outcome::Allowed);
        let (mut count, mut from, mut to) = (0, u64::MAX, 0);
        for answer in allowed {
            count += 1;
            (from, to) = (from.min(answer.asked_ns), to.max(answer.answered_ns));
        }
        let may = self.burst + self.units_in(to.saturating_sub(from)) + 1;
        u64::saturating_sub(count, may)
    }
}

/// The answers about one tenant.
pub(crate) fn of(answers: &[Answer], tenant: usize) -> Vec<Answer> {
    answers.iter().filter(|answer| answer.tenant == tenant).copied().collect()
}

/// When each of what was allowed was decided, sorted.
pub(crate) fn allowed(answers: &[Answer]) -> Vec<u64> {
    let allowed = answers.iter().filter(|answer| answer.outcome == Outcome::Allowed);
    let mut stamps: Vec<u64> = allowed.map(|answer| answer.decided_ns).collect();
    stamps.sort_unstable();
    stamps
}

/// What was allowed of what was asked and answered, in percent.
pub(crate) fn served_percent(answers: &[Answer]) -> f64 {
    let answered = answers.iter().filter(|one| one.outcome != Outcome::Lost).count();
    100.0 * allowed(answers).len() as f64 / answered.max(1) as f64
}

/// What was allowed of what the rate alone permits between two instants, in percent.
pub(crate) fn used_percent(answers: &[Answer], limit: &Limit, from: u64, to: u64) -> f64 {
    let within = allowed(answers).into_iter().filter(|at| (from..to).contains(at)).count();
    let may = limit.units as f64 * (to - from) as f64 / limit.period_ns as f64;
    100.0 * within as f64 / may
}

/// The longest time between two instants in which nothing was allowed: when it began and ended.
pub(crate) fn longest_gap(answers: &[Answer], from: u64, to: u64) -> (u64, u64) {
    let within = allowed(answers).into_iter().filter(|at| (from..to).contains(at));
    let (mut last, mut longest) = (from, (from, from));
    for at in within.chain([to]) {
        if at - last > longest.1 - longest.0 {
            longest = (last, at);
        }
        last = at;
    }
    longest
}

/// The longest time in which one daemon answered a tenant `stale` each time, between two instants.
pub(crate) fn longest_stale(answers: &[Answer], daemon: usize, from: u64, to: u64) -> u64 {
    let mut seen: Vec<&Answer> = answers
        .iter()
        .filter(|one| one.daemon == daemon && (from..to).contains(&one.decided_ns))
        .collect();
    seen.sort_unstable_by_key(|one| one.decided_ns);
    let (mut since, mut longest) = (None, 0);
    for one in seen {
        if one.outcome == Outcome::Stale {
            let since = *since.get_or_insert(one.decided_ns);
            longest = longest.max(one.decided_ns - since);
        } else if let Some(since) = since.take() {
            longest = longest.max(one.decided_ns - since);
        }
    }
    longest
}

/// How long the answers took that were asked for between two instants, sorted.
pub(crate) fn latencies(answers: &[Answer], from: u64, to: u64) -> Vec<u64> {
    let asked = answers.iter().filter(|one| (from..to).contains(&one.asked_ns));
    let answered = asked.filter(|one| one.outcome != Outcome::Lost);
    let mut took: Vec<u64> = answered.map(|one| one.answered_ns - one.asked_ns).collect();
    took.sort_unstable();
    took
}

/// That part of sorted values did not exceed what this returns; 0 if there are none.
pub(crate) fn quantile(sorted: &[u64], part: f64) -> u64 {
    let at = (sorted.len() as f64 * part) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0)
}

pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const MILLISECOND: u64 = 1_000_000;

/// One in 10 ms, 2 at once.
const HUNDRED: Limit = Limit::per_second(100, 2);

#[test]
fn what_is_within_burst_and_rate_has_no_excess() {
    assert_eq!(HUNDRED.excess(&[]), 0);
    let paced = [0, 0, 10, 20, 30].map(|at| at * MILLISECOND);
    assert_eq!(HUNDRED.excess(&paced), 0);
}

#[test]
fn a_nanosecond_too_early_is_a_unit_too_many() {
    assert_eq!(HUNDRED.excess(&[0, 0, 10 * MILLISECOND - 1]), 1);
    assert_eq!(HUNDRED.excess(&[0, 0, 0, 0]), 2);
    // Late in the run, after a rest that saves nothing up.
    assert_eq!(HUNDRED.excess(&[0, SECOND, SECOND, SECOND]), 1);
}

#[test]
fn the_worst_window_is_the_one_that_brute_force_finds() {
    let mut seed = 1_u64;
    for _ in 0..200 {
        let mut at = 0;
        let stamps: Vec<u64> = (0..20)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                at += (seed >> 33) % (25 * MILLISECOND);
                at
            })
            .collect();
        let mut worst = 0_i128;
        for (first, from) in stamps.iter().enumerate() {
            for (count, to) in stamps[first..].iter().enumerate() {
                let counted = (count as i128 + 1) * i128::from(SECOND);
                let may = i128::from(2 * SECOND) + i128::from(100 * (to - from));
                worst = worst.max(counted - may);
            }
        }
        let units = worst / i128::from(SECOND) + i128::from(worst % i128::from(SECOND) != 0);
        assert_eq!(i128::from(HUNDRED.excess(&stamps)), units, "{stamps:?}");
    }
}
