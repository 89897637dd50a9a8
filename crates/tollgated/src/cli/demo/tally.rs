//! What was asked and decided on all nodes, and how far the worst window was above the bound.
//!
//! Who decides is not known here; each decision comes with the instant at which it was noted, in
//! order.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tollgate::Rate;
use tollgate_sim::check::excess::Bucket;

use super::members::{NODES, Roles};

/// A tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Noisy,
    Quiet,
}

/// What each tenant is promised: in any time t at most burst + rate x t, on all nodes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Promise {
    pub(super) rate: Rate,
    pub(super) burst: u64,
}

impl Promise {
    /// Units at most in `time`.
    pub(super) fn at_most(self, time: Duration) -> f64 {
        (self.burst as f64 + self.rate.per_second() * time.as_secs_f64()).floor()
    }
}

/// What a tenant asked for and got.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tenant {
    pub(super) offered: u64,
    pub(super) admitted: u64,
    /// Units above the bound of the worst window of all; never below 0.
    pub(super) excess: f64,
    bucket: Bucket,
    last_admitted: Duration,
}

/// What a node did in the last full second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Second {
    pub(super) decisions: u64,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
}

/// How the noisy tenant fared once its owner was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gap {
    /// Nobody was missed yet.
    None,
    /// Nothing was admitted since so long.
    Lasts(Duration),
    /// It was served again so long after the kill.
    Over(Duration),
}

/// Everything that was counted.
#[derive(Debug, Clone)]
pub(super) struct Counts {
    pub(super) promise: Promise,
    pub(super) noisy: Tenant,
    pub(super) quiet: Tenant,
    pub(super) nodes: [Second; NODES],
    /// When the noisy tenant's owner was killed.
    pub(super) killed_at: Option<Duration>,
    /// The longest pause of the noisy tenant that began soon after, and when it ended.
    pause: (Duration, Duration),
    decisions: [u64; NODES],
    /// How long decisions took, in ns: the first of this second.
    samples: [Vec<u32>; NODES],
}

impl Counts {
    pub(super) fn new(promise: Promise) -> Self {
        Self {
            promise,
            noisy: Tenant::default(),
            quiet: Tenant::default(),
            nodes: [Second::default(); NODES],
            killed_at: None,
            pause: (Duration::ZERO, Duration::ZERO),
            decisions: [0; NODES],
            samples: Default::default(),
        }
    }

    /// A decision of a node that was noted `at`, no earlier than the one before.
    pub(super) fn note(
        &mut self,
        who: Who,
        place: usize,
        is_allowed: bool,
        took: Duration,
        at: Duration,
    ) {
        self.decisions[place] += 1;
        if self.samples[place].len() < SAMPLES_MAX {
            self.samples[place].push(u32::try_from(took.as_nanos()).unwrap_or(u32::MAX));
        }
        let Promise { rate, burst } = self.promise;
        let tenant = match who {
            Who::Noisy => &mut self.noisy,
            Who::Quiet => &mut self.quiet,
        };
        tenant.offered += 1;
        if !is_allowed {
            return;
        }
        tenant.admitted += 1;
        tenant.bucket.leak(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX), rate, 0);
        tenant.bucket.add(1, rate);
        tenant.excess = tenant.excess.max(tenant.bucket.above(burst, rate));
        let since = std::mem::replace(&mut tenant.last_admitted, at);
        let begins_by = self.killed_at.map(|killed_at| killed_at + PAUSE_BEGINS_WITHIN);
        let lasted = at.saturating_sub(since);
        if who == Who::Noisy && begins_by.is_some_and(|by| since <= by) && lasted > self.pause.0 {
            self.pause = (lasted, at);
        }
    }

    /// A second is over.
    pub(super) fn turn_second(&mut self) {
        for place in 0..NODES {
            let (samples, decisions) = (&mut self.samples[place], &mut self.decisions[place]);
            samples.sort_unstable();
            let quantile = |part: usize| {
                let index = (samples.len() * part / 100).min(samples.len().saturating_sub(1));
                Duration::from_nanos(u64::from(samples.get(index).copied().unwrap_or(0)))
            };
            self.nodes[place] = Second {
                decisions: std::mem::take(decisions),
                p50: quantile(50),
                p99: quantile(99),
            };
            samples.clear();
        }
    }

    /// How the noisy tenant fares `now`.
    pub(super) fn gap(&self, now: Duration) -> Gap {
        let Some(killed_at) = self.killed_at else { return Gap::None };
        let lasts = now.saturating_sub(self.noisy.last_admitted);
        if lasts >= PAUSE_SEEN && lasts > self.pause.0 {
            return Gap::Lasts(lasts);
        }
        match self.pause {
            (lasted, ended) if lasted >= PAUSE_SEEN => Gap::Over(ended.saturating_sub(killed_at)),
            _unnoticed => Gap::None,
        }
    }
}

/// The same, for many.
#[derive(Debug)]
pub(super) struct Tally {
    counts: Mutex<Counts>,
    roles: Roles,
    began: Instant,
}

impl Tally {
    pub(super) fn new(roles: Roles, promise: Promise) -> Self {
        Self { counts: Counts::new(promise).into(), roles, began: Instant::now() }
    }

    pub(super) fn roles(&self) -> &Roles {
        &self.roles
    }

    pub(super) fn note(&self, who: Who, place: usize, is_allowed: bool, took: Duration) {
        let mut counts = self.lock();
        counts.note(who, place, is_allowed, took, self.began.elapsed());
    }

    /// Whether the node at this place has not been killed.
    pub(super) fn lives(&self, place: usize) -> bool {
        place != self.roles.noisy_owner || self.lock().killed_at.is_none()
    }

    /// The noisy tenant's owner is killed now: its clients are with it.
    pub(super) fn kill(&self) {
        self.lock().killed_at = Some(self.began.elapsed());
    }

    pub(super) fn turn_second(&self) {
        self.lock().turn_second();
    }

    /// What is counted so far, and when that is.
    pub(super) fn read(&self) -> (Counts, Duration) {
        let counts = self.lock();
        (counts.clone(), self.began.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decisions of a node whose times are kept in a second.
const SAMPLES_MAX: usize = 8_192;
/// Permissions end 0.4 s after the last word of an owner; a pause that begins later has another
/// reason.
const PAUSE_BEGINS_WITHIN: Duration = Duration::from_secs(1);
/// A shorter one is what a saturated limit looks like.
const PAUSE_SEEN: Duration = Duration::from_millis(100);

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) const PROMISE: (&str, u64) = ("1000/s", 200);

    pub(in super::super) fn counts() -> Counts {
        let (rate, burst) = PROMISE;
        Counts::new(Promise { rate: Rate::parse(rate).expect("a rate"), burst })
    }

    /// Has a tenant admitted `count` at once.
    pub(in super::super) fn admit(counts: &mut Counts, who: Who, count: u64, at_ms: u64) {
        for _ in 0..count {
            let (took, at) = (Duration::from_nanos(400), Duration::from_millis(at_ms));
            counts.note(who, 0, true, took, at);
        }
    }

    #[test]
    fn the_worst_window_may_begin_and_end_anywhere() {
        let mut counts = counts();
        admit(&mut counts, Who::Noisy, 100, 0);
        admit(&mut counts, Who::Noisy, 200, 1_000);
        admit(&mut counts, Who::Noisy, 10, 1_010);
        assert_eq!((counts.noisy.admitted, counts.noisy.excess), (310, 0.0));
        // From 1 s to 1.010 s it is 211 now, of 210.
        admit(&mut counts, Who::Noisy, 1, 1_010);
        assert_eq!(counts.noisy.excess, 1.0);
        // It is remembered, and is nobody else's.
        admit(&mut counts, Who::Quiet, 200, 9_000);
        assert_eq!((counts.noisy.excess, counts.quiet.excess), (1.0, 0.0));
    }

    #[test]
    fn the_pause_that_counts_is_the_one_after_the_kill() {
        let mut counts = counts();
        let at = Duration::from_millis;
        admit(&mut counts, Who::Noisy, 1, 0);
        admit(&mut counts, Who::Noisy, 1, 900);
        admit(&mut counts, Who::Noisy, 1, 990);
        assert_eq!(counts.gap(at(2_000)), Gap::None);
        counts.killed_at = Some(at(1_000));
        admit(&mut counts, Who::Noisy, 1, 1_010);
        assert_eq!(counts.gap(at(1_050)), Gap::None);
        assert_eq!(counts.gap(at(1_310)), Gap::Lasts(at(300)));
        admit(&mut counts, Who::Noisy, 1, 1_510);
        assert_eq!(counts.gap(at(1_600)), Gap::Over(at(510)));
        // Another one much later is not the kill's.
        admit(&mut counts, Who::Noisy, 1, 2_100);
        admit(&mut counts, Who::Noisy, 1, 9_000);
        assert_eq!(counts.gap(at(9_000)), Gap::Over(at(1_100)));
    }

    #[test]
    fn the_times_of_a_second_are_those_of_its_decisions() {
        let mut counts = counts();
        for took in 1..=200 {
            counts.note(Who::Quiet, 1, false, Duration::from_nanos(took), Duration::ZERO);
        }
        counts.turn_second();
        let nanos = Duration::from_nanos;
        assert_eq!(counts.nodes[1], Second { decisions: 200, p50: nanos(101), p99: nanos(199) });
        counts.turn_second();
        assert_eq!(counts.nodes[1], Second::default());
    }
}
