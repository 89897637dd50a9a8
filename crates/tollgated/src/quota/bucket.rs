//! One bucket of one stream: what its client has, and what it is to be told next.
//!
//! An assignment stands for a TTL. It is renewed at half of that, unchanged unless less is due:
//! what is told unchanged costs the client nothing, while a change rounds its tokens down. Notably
//! less is told at once, since others have the difference by now; notably more may wait a second,
//! and what is slight an interval, if it is worth more than the rounding costs.

use std::cmp::Ordering;
use std::time::Duration;

use tollgate::Instant;
use tollgate::mutant::lacks;

use super::bucket_id::BucketId;
use super::divider::{Part, Told, Usage};
use super::strategy::{Strategy, bucket_of};
use super::stream::Report;

/// A bucket that its client has reported.
#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) id: BucketId,
    /// When it was reported last, and when it was reported to be used.
    heard: Instant,
    used: Instant,
    /// How far the last reports were apart.
    intervals: [Duration; 2],
    told: Option<Told>,
    assigned: Option<Assigned>,
    /// Whether the client is to forget it; the divider has by now.
    abandoned: bool,
}

/// What the client was told last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Assigned {
    strategy: Strategy,
    part: Part,
    sent: Instant,
    /// When the client was told another strategy than before.
    changed: Instant,
    ttl: Duration,
}

/// What a bucket's client is to be told.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Plan {
    /// Nothing, until something comes in.
    Nothing,
    /// Nothing before then.
    Wait(Instant),
    Assign {
        strategy: Strategy,
        part: Part,
    },
    Abandon,
}

impl Bucket {
    /// A bucket that is reported for the first time; `assigned` is what its client still has.
    pub(super) fn new(id: BucketId, assigned: Option<Assigned>, now: Instant) -> Self {
        Self {
            id,
            heard: now,
            used: now,
            intervals: [INTERVAL_DEFAULT; 2],
            told: None,
            assigned,
            abandoned: false,
        }
    }

    /// Notes another report.
    pub(super) fn handle_report(&mut self, report: &Report<'_>, now: Instant) -> Usage {
        // What a client says is cut to seconds, and reports that were held up come at once.
        let elapsed = now.saturating_since(self.heard).max(report.elapsed);
        self.intervals = [self.intervals[1], elapsed.min(INTERVAL_MAX)];
        self.heard = now;
        if report.allowed > 0 || report.denied > 0 {
            self.used = now;
        }
        Usage { allowed: report.allowed, denied: report.denied, elapsed }
    }

    pub(super) fn handle_part(&mut self, told: Told) {
        self.told = Some(told);
    }

    /// The client is to forget it.
    pub(super) fn abandon(&mut self) {
        self.abandoned = true;
    }

    /// Notes that the client was told what was [planned](Self::plan). Returns how long that stands
    /// in seconds, and whether it is another strategy than the client had.
    pub(super) fn assign(&mut self, strategy: Strategy, part: Part, now: Instant) -> (u32, bool) {
        let kept = self.assigned.filter(|last| last.strategy == strategy && now < last.ends());
        let ttl = self.ttl();
        self.assigned = Some(match kept {
            // What it is compared with is what was promised when it was new.
            Some(last) => Assigned { sent: now, ttl, ..last },
            None => Assigned { strategy, part, sent: now, changed: now, ttl },
        });
        (ttl.as_secs() as u32, kept.is_none())
    }

    /// What the client is to be told now.
    pub(super) fn plan(&self, now: Instant) -> Plan {
        if self.abandoned {
            return Plan::Abandon;
        }
        let unconfirmed = |told: &Told| now >= told.confirmed_until;
        let Some(Told { part, .. }) = self.told else { return Plan::Nothing };
        if self.told.is_some_and(|told| unconfirmed(&told)) && !lacks("quota_unconfirmed_renewed") {
            return Plan::Nothing;
        }
        let Some(strategy) = Strategy::of(part) else { return Plan::Nothing };
        let Some(last) = &self.assigned else { return Plan::Assign { strategy, part } };
        let another = Plan::Assign { strategy: strategy.after(last.strategy), part };
        if now >= last.ends() {
            return another;
        }
        let renewal = last.sent.saturating_add(last.ttl / 2);
        let held = last.changed.saturating_add(CHANGE_INTERVAL_MIN);
        let settled = last.changed.saturating_add(last.ttl / TTL_INTERVALS);
        match last.change_to(strategy, part) {
            Change::Less => another,
            Change::More if now >= held || lacks("quota_more_at_once") => another,
            Change::More => Plan::Wait(held),
            Change::Slight if now >= settled.min(renewal) => another,
            Change::Slight => Plan::Wait(settled.min(renewal)),
            _ if now < renewal => Plan::Wait(renewal),
            Change::TrifleLess => another,
            Change::None => Plan::Assign { strategy: last.strategy, part },
        }
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned
    }

    /// What the client was told last.
    pub(super) fn assigned(&self) -> Option<Assigned> {
        self.assigned
    }

    /// When it is to be abandoned unless its client reports it, and that it is used.
    pub(super) fn rests(&self) -> Instant {
        let silent = (SILENT_INTERVALS * self.interval()).max(SILENCE_MIN);
        self.heard.saturating_add(silent).min(self.used.saturating_add(IDLE_MAX))
    }

    fn interval(&self) -> Duration {
        self.intervals[0].max(self.intervals[1])
    }

    /// How long an assignment stands: whole seconds, to which Envoy cuts it.
    fn ttl(&self) -> Duration {
        let ttl = (TTL_INTERVALS * self.interval()).clamp(TTL_MIN, TTL_MAX);
        Duration::from_secs(ttl.as_secs())
    }
}

/// How a part differs from the one that was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// By so little that it is not worth telling.
    None,
    /// Less by so little that it can wait for the next renewal.
    TrifleLess,
    /// By so little that it can wait until an interval has passed since the last change.
    Slight,
    Less,
    More,
}

impl Assigned {
    /// When it ends at the client.
    fn ends(&self) -> Instant {
        self.sent.saturating_add(self.ttl)
    }

    fn change_to(&self, strategy: Strategy, part: Part) -> Change {
        let (Strategy::TokenBucket(_), Strategy::TokenBucket(bucket)) = (strategy, self.strategy)
        else {
            return match strategy.rank().cmp(&self.strategy.rank()) {
                Ordering::Less => Change::Less,
                Ordering::Equal => Change::None,
                Ordering::Greater => Change::More,
            };
        };
        let ((before, _), (rate, cap)) = (numbers(self.part), numbers(part));
        // What it would hold if its cap alone were another.
        let holds = bucket_of(before, cap).map_or(0, |bucket| bucket.max_tokens);
        let worth = before * if lacks("quota_small_changes_told") { 1e-6 } else { CHANGE_MIN };
        if before - rate >= worth || holds < bucket.max_tokens {
            Change::Less
        } else if rate - before >= worth || holds > bucket.max_tokens {
            Change::More
        } else if self.is_worth_telling(rate - bucket.per_second(), before) {
            Change::Slight
        } else if rate < bucket.per_second() {
            Change::TrifleLess
        } else {
            Change::None
        }
    }

    /// Whether a difference is notable in an interval, and more than a change may cost.
    fn is_worth_telling(&self, difference: f64, before: f64) -> bool {
        let interval = (self.ttl / TTL_INTERVALS).as_secs_f64();
        let is_worth = difference.abs() * interval >= SLIGHT_TOKENS_MIN;
        is_worth && difference.abs() >= before * SLIGHT_MIN && !lacks("quota_slight_changes_settle")
    }
}

/// A part's rate and cap; none of what has none.
fn numbers(part: Part) -> (f64, u64) {
    match part {
        Part::Rate { per_second, burst_cap } => (per_second.min(f64::from(u32::MAX)), burst_cap),
        Part::AllowAll | Part::DenyAll | Part::Unknown => (0.0, 0),
    }
}

/// A rate that differs by so much is told without waiting for the interval's end.
const CHANGE_MIN: f64 = 0.1;
/// One that differs by less than this is not worth a new strategy, nor is one that comes to less
/// than so many tokens in an interval: a change costs the client up to one.
const SLIGHT_MIN: f64 = 0.01;
const SLIGHT_TOKENS_MIN: f64 = 4.0;
/// A client that is told more and less in turns loses a token each time.
const CHANGE_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// An assignment stands for so many intervals of its bucket: a lost report, or a stream that
/// is made again at the next one, takes nothing away.
const TTL_INTERVALS: u32 = 3;
/// A bucket is silent after so many.
const SILENT_INTERVALS: u32 = 10;
pub(super) const TTL_MIN: Duration = Duration::from_secs(10);
pub(super) const TTL_MAX: Duration = Duration::from_secs(60);
/// Before two reports have shown it.
const INTERVAL_DEFAULT: Duration = Duration::from_secs(1);
/// Longer ones are taken for this.
const INTERVAL_MAX: Duration = Duration::from_secs(60);
const SILENCE_MIN: Duration = Duration::from_secs(60);
/// Envoy never forgets a bucket by itself: one that is not used for so long makes room.
const IDLE_MAX: Duration = Duration::from_secs(600);

const _: () = assert!(
    2 * CHANGE_INTERVAL_MIN.as_millis() <= TTL_MIN.as_millis(),
    "whatever waits for its time is told before the assignment is to be renewed"
);
