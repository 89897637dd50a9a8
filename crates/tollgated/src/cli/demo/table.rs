//! What the demo shows while it runs: a table for terminals, a line a second for all else.

use std::time::Duration;

use tollgate_sim::{duration, number};

use super::super::paint::Paint;
use super::members::{Members, NODES, NOISY};
use super::tally::{Counts, Gap, Tally, Tenant};

/// What is to be seen at one moment.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) counts: Counts,
    pub(super) now: Duration,
    pub(super) lasts: Duration,
    /// The name of the quiet tenant.
    pub(super) quiet: String,
    /// Whose owners are where now, by their places, the noisy tenant's first.
    pub(super) owners: [Option<usize>; 2],
    /// The place of the node that is killed.
    pub(super) victim: usize,
}

impl View {
    pub(super) fn of(tally: &Tally, members: &Members, lasts: Duration) -> Self {
        let (counts, now) = tally.read();
        let roles = tally.roles();
        let owners = [members.noisy_owner(), Some(roles.quiet_owner)];
        let quiet = roles.quiet.clone();
        Self { counts, now, lasts, quiet, owners, victim: roles.noisy_owner }
    }

    /// A table of always as many lines.
    pub(super) fn table(&self, paint: Paint) -> Vec<String> {
        let head = |line: String| paint.dim(&line);
        let mut lines = vec![head(format!(
            " {:<10}{:>11}{:>11}{:>11}{:>9}   {}",
            "tenant", "asked for", "got", "at most", "excess", "its level is kept by"
        ))];
        let [noisy, quiet] = self.owners;
        lines.push(self.tenant(NOISY, &self.counts.noisy, noisy, paint));
        lines.push(self.tenant(&self.quiet, &self.counts.quiet, quiet, paint));
        lines.push(String::new());
        lines.push(head(format!(" {:<10}{:>11}{:>11}{:>11}", "", "decisions/s", "p50", "p99")));
        lines.extend((0..NODES).map(|place| self.node(place, paint)));
        lines.push(String::new());
        let [killed, gap, over] = self.happened();
        let clock = format!(" {} of {} s.", seconds(self.now), self.lasts.as_secs());
        lines.push(match killed {
            None => format!("{clock} Half-way, the node that keeps noisy's level is killed."),
            Some(killed) => paint.yellow(&format!(" {killed}")),
        });
        lines.push(match (gap, over) {
            (Some(gap), _) => paint.red(&format!(" {gap}")),
            (None, Some(over)) => paint.green(&format!(" {over}")),
            (None, None) => String::new(),
        });
        lines
    }

    /// The same in a line.
    pub(super) fn line(&self) -> String {
        let Counts { promise, noisy, quiet, .. } = &self.counts;
        let whole = |count: u64| number(count as f64);
        let owner = self.owners[0].map_or_else(|| "none".into(), |place| (place + 1).to_string());
        format!(
            "{:>4} s  {NOISY} {} of {} (at most {}); {} {} of {}; owner {owner}",
            self.now.as_secs(),
            whole(noisy.admitted),
            whole(noisy.offered),
            number(promise.at_most(self.now)),
            self.quiet,
            whole(quiet.admitted),
            whole(quiet.offered),
        )
    }

    /// What has happened besides: the kill, the gap, and the end of the gap.
    pub(super) fn happened(&self) -> [Option<String>; 3] {
        let node = self.victim + 1;
        let killed = self.counts.killed_at.map(|at| {
            format!("At {} s node {node}, which kept noisy's level, was killed.", seconds(at))
        });
        let gap = self.counts.gap(self.now);
        let lasts = match gap {
            Gap::Lasts(lasts) => Some(seconds_exactly(lasts)),
            Gap::None | Gap::Over(_) => None,
        };
        let over = match gap {
            Gap::Over(after) => Some(seconds_exactly(after)),
            Gap::None | Gap::Lasts(_) => None,
        };
        // Members tell four times a second which ring they know.
        let owner = self.owners[0].filter(|place| *place != self.victim).map(|place| place + 1);
        let over = over.zip(owner);
        [
            killed,
            lasts.map(|lasts| {
                format!("{NOISY} gets nothing, for {lasts} s: what it got last must leak first.")
            }),
            over.map(|(after, owner)| {
                format!("{NOISY} was served again {after} s later, by node {owner}.")
            }),
        ]
    }

    fn tenant(&self, name: &str, tenant: &Tenant, owner: Option<usize>, paint: Paint) -> String {
        let whole = |count: u64| number(count as f64);
        let excess = format!("{:>9}", number(tenant.excess.ceil()));
        let excess = if tenant.excess > 0.0 { paint.red(&excess) } else { paint.green(&excess) };
        let owner = owner.map_or_else(|| "nobody".into(), |place| format!("node {}", place + 1));
        format!(
            " {name:<10}{:>11}{:>11}{:>11}{excess}   {owner}",
            whole(tenant.offered),
            whole(tenant.admitted),
            number(self.counts.promise.at_most(self.now)),
        )
    }

    fn node(&self, place: usize, paint: Paint) -> String {
        let name = format!("node {}", place + 1);
        if place == self.victim && self.counts.killed_at.is_some() {
            return paint.yellow(&format!(" {name:<10}{:>11}{:>11}{:>11}   killed", "-", "-", "-"));
        }
        let second = self.counts.nodes[place];
        let (p50, p99) = (took(second.p50), took(second.p99));
        format!(" {name:<10}{:>11}{p50:>11}{p99:>11}", number(second.decisions as f64))
    }
}

/// How long a decision took, to three digits.
fn took(time: Duration) -> String {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    if nanos == 0 {
        return "-".into();
    }
    let digits = nanos.ilog10().saturating_sub(2);
    let unit = 10_u64.pow(digits);
    duration(Duration::from_nanos(nanos / unit * unit))
}

/// 12.34 s is `12.3`.
fn seconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64())
}

/// 0.4219 s is `0.42`.
pub(super) fn seconds_exactly(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64())
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tally::Who;
    use super::super::tally::tests::{admit, counts};
    use super::*;

    pub(in super::super) fn view(counts: Counts, now_ms: u64) -> View {
        let (now, lasts) = (Duration::from_millis(now_ms), Duration::from_secs(20));
        View { counts, now, lasts, quiet: "quiet".into(), owners: [Some(1), Some(0)], victim: 1 }
    }

    #[test]
    fn the_table_is_always_as_high_and_at_most_80_wide() {
        let mut counts = counts();
        admit(&mut counts, Who::Noisy, 200, 0);
        counts.turn_second();
        let calm = view(counts.clone(), 1_000).table(Paint::NONE);
        assert_eq!(calm[1], " noisy             200        200      1,200        0   node 2");
        assert_eq!(calm[5], " node 1            200     400 ns     400 ns");
        counts.killed_at = Some(Duration::from_secs(10));
        let gap = view(counts.clone(), 10_500).table(Paint::NONE);
        assert!(gap[6].ends_with("killed"), "{gap:#?}");
        assert!(gap[10].starts_with(" noisy gets nothing, for 10.50 s"), "{gap:#?}");
        counts.noisy.offered = 99_999_999;
        admit(&mut counts, Who::Noisy, 1, 10_560);
        let mut over = view(counts, 10_600);
        over.owners[0] = Some(2);
        let over = over.table(Paint::NONE);
        assert_eq!(over[10], " noisy was served again 0.56 s later, by node 3.");
        for table in [&calm, &gap, &over] {
            assert_eq!(table.len(), calm.len());
            assert!(table.iter().all(|line| line.chars().count() <= 80), "{table:#?}");
        }
    }

    #[test]
    fn a_line_says_what_the_table_does() {
        let mut counts = counts();
        admit(&mut counts, Who::Noisy, 150, 0);
        admit(&mut counts, Who::Quiet, 2, 10);
        let line = view(counts, 1_000).line();
        let all = "   1 s  noisy 150 of 150 (at most 1,200); quiet 2 of 2; owner 2";
        assert_eq!(line, all);
    }

    #[test]
    fn times_have_three_digits() {
        let nanos = Duration::from_nanos;
        assert_eq!([381, 12_345, 0].map(|time| took(nanos(time))), ["381 ns", "12.3 us", "-"]);
    }
}
