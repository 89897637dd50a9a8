//! The proposal that `eventual` comes from, by the letter: a worker may spend what the owner's last
//! snapshot said is left of the whole limit, less what it spent itself and was not acknowledged.
//!
//! Deltas with sequences, said again until they are acknowledged; snapshots every 5 ms to whoever
//! reported in the last second, and at once when nothing is left; a snapshot lives for 20 ms; a
//! new owner starts exhausted. Every message says all that is unacknowledged, so that a loss costs
//! one interval.

use std::collections::{BTreeMap, BTreeSet};

use tollgate::ViewLimit;

use super::{Fleet, Rule, per_nano};
use crate::scenario::{MS, Nanos, SECOND, SimLimit};

/// As the text says it.
pub type Literal = Process<false>;

/// As the text says it, and never more unacknowledged than the local burst cap b.
pub type Capped = Process<true>;

/// One process.
#[derive(Debug)]
pub struct Process<const CAPPED: bool> {
    node: u32,
    /// Names the process, for the owner.
    worker_epoch: u64,
    limit: SimLimit,
    cap: u64,
    view: View,
    owned: Option<Owned>,
}

/// The worker's side.
#[derive(Debug, Default)]
struct View {
    /// Of the last snapshot: its owner epoch and version, what was left, and until when it counts.
    version: (u64, u64),
    remaining: i64,
    lives_until: Nanos,
    /// Spent and not reported.
    delta: u64,
    /// Reported and not acknowledged, by sequence.
    reported: BTreeMap<u64, u64>,
    sequence: u64,
    /// Whether anybody asked since the last report.
    is_asked: bool,
    reports_at: Nanos,
}

/// The owner's side.
#[derive(Debug)]
struct Owned {
    epoch: u64,
    version: u64,
    /// Units in the bucket, below zero when more was spent than there was.
    level: f64,
    at: Nanos,
    reporters: BTreeMap<(u32, u64), Reporter>,
    tells_at: Nanos,
}

#[derive(Debug, Default)]
struct Reporter {
    /// All sequences up to it are applied, and these others.
    applied: u64,
    beyond: BTreeSet<u64>,
    reported_at: Nanos,
}

/// What processes say.
#[derive(Debug, Clone)]
pub enum Message {
    /// All deltas that are not acknowledged.
    Report {
        /// Whose.
        worker_epoch: u64,
        /// By sequence.
        deltas: Vec<(u64, u64)>,
    },
    /// What is left.
    Snapshot {
        /// The owner epoch, then the version.
        version: (u64, u64),
        /// Units.
        remaining: i64,
        /// For which process.
        worker_epoch: u64,
        /// What it has reported up to here is applied.
        acknowledged: u64,
    },
}

impl<const CAPPED: bool> Rule for Process<CAPPED> {
    type Message = Message;

    fn new(node: u32, life: u32, limit: &SimLimit) -> Self {
        let view = ViewLimit::new(limit.rate, limit.burst, 0, INTERVAL_TIME);
        let cap = limit.local_cap.unwrap_or(view.local_cap);
        let cap = if CAPPED { cap } else { u64::MAX };
        let worker_epoch = u64::from(life);
        Self { node, worker_epoch, limit: *limit, cap, view: View::default(), owned: None }
    }

    fn ask(&mut self, cost: u64, _owner: u32, now: Nanos) -> bool {
        let view = &mut self.view;
        view.is_asked = true;
        let spent = view.delta + view.reported.values().sum::<u64>();
        let free = view.remaining.min(i64::try_from(self.cap).unwrap_or(i64::MAX));
        let passes = now < view.lives_until && spent as i64 + cost as i64 <= free;
        view.delta += if passes { cost } else { 0 };
        if view.delta >= REPORT_UNITS {
            view.reports_at = 0;
        }
        passes
    }

    fn tick(&mut self, fleet: &Fleet, now: Nanos, out: &mut Vec<(u32, Message)>) {
        let view = &mut self.view;
        let has_news = view.is_asked || view.delta > 0 || !view.reported.is_empty();
        if has_news && now >= view.reports_at {
            view.reports_at = now + INTERVAL;
            view.is_asked = false;
            if view.delta > 0 {
                view.sequence += 1;
                view.reported.insert(view.sequence, std::mem::take(&mut view.delta));
            }
            let deltas = view.reported.iter().map(|(sequence, delta)| (*sequence, *delta));
            let (worker_epoch, deltas) = (self.worker_epoch, deltas.collect());
            out.push((fleet.owner(), Message::Report { worker_epoch, deltas }));
        }
        if fleet.owner() != self.node {
            self.owned = None;
        } else if self.owned.as_ref().is_some_and(|owned| owned.tells_at <= now) {
            self.publish(now, out);
        }
    }

    fn hear(
        &mut self,
        from: u32,
        message: Message,
        fleet: &Fleet,
        now: Nanos,
        out: &mut Vec<(u32, Message)>,
    ) {
        match message {
            // Who does not own the key says so by its silence: the report comes again, elsewhere.
            Message::Report { .. } if fleet.owner() != self.node => {}
            Message::Report { worker_epoch, deltas } => {
                let epoch = fleet.epoch;
                let owned = self.owned.get_or_insert_with(|| Owned::new(epoch, now));
                owned.refill(&self.limit, now);
                let was_left = owned.level >= 1.0;
                owned.apply((from, worker_epoch), &deltas, now);
                if was_left && owned.level < 1.0 {
                    self.publish(now, out);
                }
            }
            Message::Snapshot { version, remaining, worker_epoch, acknowledged } => {
                let view = &mut self.view;
                if worker_epoch == self.worker_epoch && version > view.version {
                    view.version = version;
                    view.remaining = remaining;
                    view.lives_until = now + TTL;
                    view.reported = view.reported.split_off(&(acknowledged + 1));
                }
            }
        }
    }
}

impl<const CAPPED: bool> Process<CAPPED> {
    fn publish(&mut self, now: Nanos, out: &mut Vec<(u32, Message)>) {
        let Some(owned) = &mut self.owned else { return };
        owned.refill(&self.limit, now);
        owned.tells_at = now + INTERVAL;
        owned.reporters.retain(|_, reporter| now < reporter.reported_at + REPORTER_LIVES);
        owned.version += 1;
        let (version, remaining) = ((owned.epoch, owned.version), owned.level.floor() as i64);
        for ((node, worker_epoch), reporter) in &owned.reporters {
            let (worker_epoch, acknowledged) = (*worker_epoch, reporter.applied);
            let snapshot = Message::Snapshot { version, remaining, worker_epoch, acknowledged };
            out.push((*node, snapshot));
        }
    }
}

impl Owned {
    /// Exhausted, then refilling.
    fn new(epoch: u64, now: Nanos) -> Self {
        let reporters = BTreeMap::new();
        Self { epoch, version: 0, level: 0.0, at: now, reporters, tells_at: now }
    }

    fn refill(&mut self, limit: &SimLimit, now: Nanos) {
        let leaked = per_nano(limit) * (now - self.at) as f64;
        self.level = (self.level + leaked).min(limit.burst as f64);
        self.at = now;
    }

    fn apply(&mut self, who: (u32, u64), deltas: &[(u64, u64)], now: Nanos) {
        // What a worker does not say any more, an owner has acknowledged.
        let known = deltas.first().map_or(0, |(first, _)| first - 1);
        let reporter = self.reporters.entry(who).or_default();
        reporter.reported_at = now;
        reporter.applied = reporter.applied.max(known);
        for (sequence, delta) in deltas {
            if *sequence > reporter.applied && reporter.beyond.insert(*sequence) {
                self.level -= *delta as f64;
            }
        }
        while reporter.beyond.remove(&(reporter.applied + 1)) {
            reporter.applied += 1;
        }
        reporter.beyond = reporter.beyond.split_off(&(reporter.applied + 1));
    }
}

const INTERVAL: Nanos = 5 * MS;
const INTERVAL_TIME: std::time::Duration = std::time::Duration::from_millis(5);
const TTL: Nanos = 20 * MS;
const REPORT_UNITS: u64 = 32;
const REPORTER_LIVES: Nanos = SECOND;
