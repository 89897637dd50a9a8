//! What was decided, and by which limit. What headers and logs want is worked out when asked.

use std::fmt;
use std::time::Duration;

use crate::gcra::{Basis, Meter, Retry};
use crate::time::Instant;

/// Allowed or denied, and why.
///
/// It is a value without ties: it stays true of the moment at which it was made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    pub(crate) outcome: Outcome,
    pub(crate) decided: Option<Decided>,
    pub(crate) shadow: Option<LimitId>,
    pub(crate) now: Instant,
}

/// The limit that decided, and its key's state after the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) limit: LimitId,
    pub(crate) cost: u64,
    /// The key's state, as its meter's [`Basis`] says.
    pub(crate) tat: u64,
    pub(crate) meter: Meter,
}

impl Decided {
    fn tat(&self, now: Instant) -> u64 {
        match self.meter.basis() {
            Basis::Tat | Basis::Part => self.tat,
            Basis::Left => self.meter.tat_with(self.tat, now),
            Basis::Level => self.meter.tat_owing(self.tat, now),
        }
    }

    /// Units left at `now`, when it was decided.
    pub(crate) fn remaining(&self, now: Instant) -> u64 {
        match self.meter.basis() {
            Basis::Tat | Basis::Part => self.meter.remaining(self.tat, now),
            Basis::Left => self.tat.min(self.meter.burst()),
            Basis::Level => self.meter.burst().saturating_sub(self.tat),
        }
    }

    /// When a denied cost may pass, though not before the next snapshot of its owner can have come.
    fn retry_with_news(&self, now: Instant) -> Retry {
        let soon = Retry::At(now.saturating_add(SNAPSHOT_GAP));
        if self.remaining(now) >= self.cost {
            return soon;
        }
        self.meter.retry(self.tat(now), self.cost, now).max(soon)
    }
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It passes, and its cost is spent.
    Allowed,
    /// It does not pass, and nothing is spent.
    Denied(Reason),
}

/// Why a request was denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A limit has no room yet, or (`zero` rates) no room any more.
    OverLimit,
    /// The cost is above the burst: waiting does not help.
    CostExceedsBurst,
    /// The table is full of live keys, and its policy is to deny new ones.
    KeyTableFull,
    /// In a fleet: nothing of the limit is permitted here, not yet or not any more.
    Stale,
    /// As many requests wait for the key, or for all keys, as may.
    QueueFull,
    /// The time in which the request was willing to wait is over.
    Deadline,
}

impl Reason {
    /// The reason's word, as metrics and answers spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OverLimit => "over_limit",
            Self::CostExceedsBurst => "cost_exceeds_burst",
            Self::KeyTableFull => "key_table_full",
            Self::Stale => "stale",
            Self::QueueFull => "queue_full",
            Self::Deadline => "deadline",
        }
    }
}

/// A limit of one limiter; it outlives changes of the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LimitId(pub(crate) u32);

impl LimitId {
    /// Stands for a limit that came with the request ([`Brought`](crate::Brought)).
    pub const BROUGHT: Self = Self(u32::MAX);
}

impl Decision {
    /// Whether the request passes.
    #[inline]
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.outcome == Outcome::Allowed
    }

    /// The answer, with the reason of a denial.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// What two decisions come to together: a denial stands; of two denials the one that lasts
    /// longer, of two that allow the one with less remaining.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let first = match (self.outcome, other.outcome) {
            (Outcome::Denied(_), Outcome::Allowed) => true,
            (Outcome::Allowed, Outcome::Denied(_)) => false,
            (Outcome::Denied(_), Outcome::Denied(_)) => self.retry_at() >= other.retry_at(),
            (Outcome::Allowed, Outcome::Allowed) => {
                let left = |one: &Self| one.remaining().unwrap_or(u64::MAX);
                left(&self) <= left(&other)
            }
        };
        let stands = if first { self } else { other };
        Self { shadow: self.shadow.or(other.shadow), ..stands }
    }

    /// The limit that decided: the one that denies the longest, or of those that allow the one with
    /// the least remaining. `None` when no limit applies, or only unlimited ones.
    /// [`Limiter::limit_name`](crate::Limiter::limit_name) names it.
    #[must_use]
    pub fn limit(&self) -> Option<LimitId> {
        self.decided.map(|decided| decided.limit)
    }

    /// The instant at which it was decided.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The deciding limit's burst for this key, in units.
    #[must_use]
    pub fn burst(&self) -> Option<u64> {
        self.decided.map(|decided| decided.meter.burst())
    }

    /// Whether what it says besides the answer is estimated: the limit is one of a fleet, and what
    /// the fleet has left is what the key's owner, or the store in which it is counted, said last,
    /// less what was spent here since.
    #[must_use]
    pub fn is_estimated(&self) -> bool {
        self.decided.is_some_and(|decided| decided.meter.estimates())
    }

    /// Whole units that the deciding limit has left for this key, from 0 to its burst; in a fleet
    /// [about](Self::is_estimated) those of the whole fleet.
    ///
    /// At rates whose units fall beside whole nanoseconds (7,001/s, 1 GiB/s) the last of them may
    /// have to wait for the next nanosecond.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        // A key that found no place, or was told of nothing yet, has nothing to spend from.
        if self.has_nothing() {
            return self.decided.map(|_| 0);
        }
        self.decided.map(|decided| decided.remaining(self.now))
    }

    /// The time in which the deciding limit's rate produces the whole burst of this key, rounded
    /// up; `None` when it produces nothing. Any such time admits at most twice the burst.
    #[must_use]
    pub fn refill_time(&self) -> Option<Duration> {
        let meter = self.decided?.meter;
        meter.time_for(meter.burst()).map(Duration::from_nanos)
    }

    /// When the deciding limit's key is as new, if nothing more is spent; in a fleet not before.
    #[must_use]
    pub fn reset_at(&self) -> Option<Retry> {
        if self.has_nothing() {
            return self.retry_at();
        }
        self.decided.map(|decided| decided.meter.reset(decided.tat(self.now), self.now))
    }

    /// For a denial, the first instant at which the same request could pass: never early, never
    /// now.
    ///
    /// It is exact, rounded up to the nanosecond, if nothing else is spent until then. For
    /// [`Reason::KeyTableFull`] it is an estimate: the time in which the rate produces the cost. In
    /// a fleet it is a lower bound: 2.5 ms, in which news may come, or the time in which the rate
    /// produces what the fleet lacks.
    ///
    /// `at.saturating_since(decision.now())` is the time to wait. Whoever shows it in milliseconds
    /// or seconds must round up, `div_ceil(1_000_000)`: a retry that comes early is denied. Waiters
    /// do not queue: whoever asks first after the instant gets it.
    #[must_use]
    pub fn retry_at(&self) -> Option<Retry> {
        let (Outcome::Denied(reason), Some(decided)) = (self.outcome, self.decided) else {
            return None;
        };
        Some(match reason {
            Reason::OverLimit if decided.meter.basis() == Basis::Left => {
                decided.retry_with_news(self.now)
            }
            Reason::OverLimit => decided.meter.retry(decided.tat(self.now), decided.cost, self.now),
            Reason::CostExceedsBurst => Retry::Never,
            Reason::KeyTableFull => {
                decided.meter.time_for(decided.cost).map_or(Retry::Never, |nanos| {
                    Retry::At(Instant::from_nanos(self.now.as_nanos().saturating_add(nanos)))
                })
            }
            Reason::Stale => Retry::At(self.now.saturating_add(SNAPSHOT_GAP)),
            Reason::QueueFull | Reason::Deadline => decided.retry_with_news(self.now),
        })
    }

    /// Whether the deciding key has no cell, or one that nothing is known of.
    fn has_nothing(&self) -> bool {
        match self.outcome {
            Outcome::Denied(Reason::KeyTableFull | Reason::Stale) => true,
            Outcome::Denied(
                Reason::OverLimit | Reason::CostExceedsBurst | Reason::QueueFull | Reason::Deadline,
            )
            | Outcome::Allowed => false,
        }
    }

    /// A shadow limit that would have denied the request; the first one, when there are several.
    #[must_use]
    pub fn shadow_denied_by(&self) -> Option<LimitId> {
        self.shadow
    }
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("outcome", &self.outcome)
            .field("limit", &self.limit())
            .field("remaining", &self.remaining())
            .field("retry_at", &self.retry_at())
            .field("shadow_denied_by", &self.shadow)
            .finish_non_exhaustive()
    }
}

/// Half a sync interval, as it is by default: a snapshot comes no sooner after the last.
const SNAPSHOT_GAP: Duration = Duration::from_micros(2_500);
