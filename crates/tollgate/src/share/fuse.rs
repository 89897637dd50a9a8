//! When a node stops trusting the share that it last heard of, and decides by its own limit.
//!
//! The seed's fallback limiter, without its two buckets: which of them decides is said here, what
//! they hold is not known.

use crate::mutant::lacks;

/// By what a node decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It has never heard of a share, and decides by its fallback.
    StartUp,
    /// It decides by the share that it last heard of.
    Normal,
    /// It has not heard of one for too long, and decides by its fallback.
    Failing,
}

/// How many updates of one key have failed since one succeeded.
///
/// With at most 9 failures the tenth in a row makes it fail, at an interval of 1 s after 10 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fuse {
    /// Since the last success; `None` before the first.
    failures: Option<u32>,
    failures_max: u32,
}

impl Fuse {
    /// At start-up, and one that bears so many failures; typically 9.
    #[must_use]
    pub fn new(failures_max: u32) -> Self {
        Self { failures: None, failures_max }
    }

    /// An update came: the phase is [`Phase::Normal`], whatever it was.
    pub fn succeeded(&mut self) {
        self.failures = match self.failures {
            Some(failures) if lacks("share_a_success_mends") => Some(failures),
            Some(_) | None => Some(0),
        };
    }

    /// An update did not come: the tenth in a row by default makes it fail. Before the first update
    /// nothing changes.
    pub fn failed(&mut self) {
        self.failures = match self.failures {
            None if lacks("share_start_up_does_not_fail") => Some(1),
            failures => failures.map(|failures| failures.saturating_add(1)),
        };
    }

    /// Goes back to start-up, as when a limit is no longer shared: what was heard is void.
    pub fn reset(&mut self) {
        self.failures = None;
    }

    /// By what the node decides: after 9 failures in a row by its share, after 10 by its fallback.
    #[must_use]
    pub fn phase(&self) -> Phase {
        let failures_max = if lacks("share_failures_are_borne") { 0 } else { self.failures_max };
        match self.failures {
            None => Phase::StartUp,
            Some(failures) if failures > failures_max => Phase::Failing,
            Some(_) => Phase::Normal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(fuse: &mut Fuse, times: u32) -> Phase {
        (0..times).for_each(|_| fuse.failed());
        fuse.phase()
    }

    #[test]
    fn a_thousand_failures_at_start_up_change_nothing() {
        let mut fuse = Fuse::new(9);
        assert_eq!(fail(&mut fuse, 1_000), Phase::StartUp);
        fuse.succeeded();
        assert_eq!(fuse.phase(), Phase::Normal);
        // They don't count later either.
        assert_eq!(fail(&mut fuse, 9), Phase::Normal);
    }

    #[test]
    fn nine_failures_are_borne_and_the_tenth_is_not() {
        let mut fuse = Fuse::new(9);
        fuse.succeeded();
        assert_eq!(fail(&mut fuse, 9), Phase::Normal);
        assert_eq!(fail(&mut fuse, 1), Phase::Failing);
        assert_eq!(fail(&mut fuse, 1_000), Phase::Failing);
        let mut fuse = Fuse::new(0);
        fuse.succeeded();
        assert_eq!((fuse.phase(), fail(&mut fuse, 1)), (Phase::Normal, Phase::Failing));
    }

    #[test]
    fn a_success_switches_back_and_counting_begins_anew() {
        let mut fuse = Fuse::new(9);
        fuse.succeeded();
        assert_eq!(fail(&mut fuse, 10), Phase::Failing);
        fuse.succeeded();
        assert_eq!(fuse.phase(), Phase::Normal);
        assert_eq!(fail(&mut fuse, 9), Phase::Normal);
        fuse.succeeded();
        assert_eq!(fail(&mut fuse, 9), Phase::Normal);
    }

    #[test]
    fn a_reset_goes_back_to_start_up_from_anywhere() {
        for (successes, failures) in [(0, 3), (1, 3), (1, 10)] {
            let mut fuse = Fuse::new(9);
            (0..successes).for_each(|_| fuse.succeeded());
            fail(&mut fuse, failures);
            fuse.reset();
            assert_eq!(fuse, Fuse::new(9));
            assert_eq!(fail(&mut fuse, 100), Phase::StartUp);
        }
    }
}
