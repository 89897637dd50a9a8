//! Whether every promise was kept, in words.

use std::time::Duration;

use tollgate_sim::number;

use super::super::paint::Paint;
use super::members::NOISY;
use super::table::seconds_exactly;
use super::tally::{Counts, Gap, Tally, Tenant};

/// What came of it.
#[derive(Debug, Clone)]
pub(super) struct Verdict {
    /// What was promised and what was seen, and whether that is what was promised.
    promises: Vec<(String, bool)>,
}

impl Verdict {
    pub(super) fn of(tally: &Tally) -> Self {
        let (counts, now) = tally.read();
        Self::judge(&counts, &tally.roles().quiet, tally.roles().noisy_owner, now)
    }

    /// Judges what was counted until `now`; the noisy tenant's owner was the node at `victim`.
    fn judge(counts: &Counts, quiet: &str, victim: usize, now: Duration) -> Self {
        let Tenant { offered, admitted, .. } = counts.quiet;
        let share = 100.0 * admitted as f64 / offered.max(1) as f64;
        let asked = number(offered as f64);
        let got = format!("{quiet} got {share:.1} % of the {asked} that it asked for");
        let served = match counts.gap(now) {
            Gap::None => (format!("{NOISY} was served without a gap"), true),
            Gap::Lasts(_) => (format!("{NOISY} was not served again"), false),
            Gap::Over(after) => {
                let seconds = seconds_exactly(after);
                (format!("{NOISY} was served again after {seconds} s"), after <= SERVED_WITHIN)
            }
        };
        let served = (format!("node {} was killed, and {}", victim + 1, served.0), served.1);
        let promises = vec![
            bound(NOISY, &counts.noisy, counts, now),
            bound(quiet, &counts.quiet, counts, now),
            (got, share >= QUIET_PERCENT_MIN),
            served,
        ];
        Self { promises }
    }

    /// Whether all of them were.
    pub(super) fn is_kept(&self) -> bool {
        self.promises.iter().all(|(_, is_kept)| *is_kept)
    }

    pub(super) fn lines(&self, paint: Paint) -> Vec<String> {
        let line = |(what, is_kept): &(String, bool)| {
            let verdict = if *is_kept { paint.green("kept:  ") } else { paint.red("BROKEN:") };
            format!("{verdict} {what}")
        };
        let mut lines: Vec<String> = self.promises.iter().map(line).collect();
        lines.push(if self.is_kept() {
            paint.green("Every promise was kept.")
        } else {
            paint.red("A promise was broken.")
        });
        lines
    }
}

/// Whether a tenant got no more than it may, in any window.
fn bound(name: &str, tenant: &Tenant, counts: &Counts, now: Duration) -> (String, bool) {
    let most = number(counts.promise.at_most(now));
    let got = number(tenant.admitted as f64);
    let seconds = format!("{:.1}", now.as_secs_f64());
    if tenant.excess > 0.0 {
        let excess = number(tenant.excess.ceil());
        let what = format!("{name} got {excess} more than burst + rate x t in some time t");
        return (what, false);
    }
    let what =
        format!("{name} may get {most} in {seconds} s and got {got}; in no window was it more");
    (what, true)
}

const QUIET_PERCENT_MIN: f64 = 99.0;
/// 0.6 s by design, and 0.8 s more if the killed node led the coordinator, with room for a machine
/// that is busy with something else.
const SERVED_WITHIN: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::super::tally::Who;
    use super::super::tally::tests::{admit, counts};
    use super::*;

    /// A run of 20 s in which all is well: a tenant takes all it may in each tenth of a second.
    fn good() -> Counts {
        let mut counts = counts();
        for tenth in 0..200 {
            admit(&mut counts, Who::Noisy, 100, tenth * 100 + 1);
            admit(&mut counts, Who::Quiet, 5, tenth * 100 + 1);
        }
        counts
    }

    fn judge(counts: &Counts) -> Verdict {
        Verdict::judge(counts, "quiet", 1, Duration::from_secs(20))
    }

    #[test]
    fn a_run_in_which_all_was_kept_says_so() {
        let verdict = judge(&good());
        let lines = verdict.lines(Paint::NONE);
        assert!(verdict.is_kept(), "{lines:#?}");
        let noisy =
            "kept:   noisy may get 20,200 in 20.0 s and got 20,000; in no window was it more";
        assert_eq!(lines[0], noisy);
        assert_eq!(lines[2], "kept:   quiet got 100.0 % of the 1,000 that it asked for");
        assert_eq!(lines[4], "Every promise was kept.");
    }

    #[test]
    fn one_unit_too_many_in_the_shortest_window_is_a_broken_promise() {
        let mut counts = good();
        admit(&mut counts, Who::Noisy, 201, 60_000);
        let verdict = Verdict::judge(&counts, "quiet", 1, Duration::from_secs(61));
        assert!(!verdict.is_kept());
        let lines = verdict.lines(Paint::NONE);
        assert_eq!(lines[0], "BROKEN: noisy got 1 more than burst + rate x t in some time t");
        assert_eq!(lines[4], "A promise was broken.");
    }

    #[test]
    fn a_quiet_tenant_that_is_denied_is_a_broken_promise() {
        let mut counts = good();
        for _ in 0..11 {
            counts.note(Who::Quiet, 0, false, Duration::ZERO, Duration::from_secs(20));
        }
        assert!(!judge(&counts).is_kept());
    }

    #[test]
    fn a_tenant_that_is_not_served_again_is_a_broken_promise() {
        let mut counts = good();
        counts.killed_at = Some(Duration::from_millis(19_901));
        assert!(judge(&counts).is_kept());
        let late = Verdict::judge(&counts, "quiet", 1, Duration::from_secs(21));
        assert!(!late.is_kept());
        assert!(late.lines(Paint::NONE)[3].ends_with("noisy was not served again"));
    }
}
