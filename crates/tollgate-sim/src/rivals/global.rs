//! What Gubernator's `GLOBAL` does with one key: every node answers from its own bucket as if it
//! were the owner, and tells the owner later what was asked.
//!
//! Hits are queued whatever the answer was, summed, and sent 100 ms after the first. The owner
//! takes them from its bucket, or empties it when they are more than it holds. 100 ms after its
//! bucket was first asked it tells everybody, who overwrite theirs. What is lost on the way is not
//! said again. A bucket that was never seen starts full.
//!
//! From `global.go` and `algorithms.go` of gubernator-io/gubernator: what is decided, not how.

use super::{Fleet, Rule, per_nano};
use crate::scenario::{MS, Nanos, SimLimit};

/// With the algorithm `TOKEN_BUCKET`: a window from its first hit on, with so many units as the
/// rate gives in its time.
pub type Windows = Global<false>;

/// With the algorithm `LEAKY_BUCKET`: every bucket refills at the rate by itself.
pub type Leaky = Global<true>;

/// One process.
#[derive(Debug)]
pub struct Global<const LEAKY: bool> {
    node: u32,
    limit: SimLimit,
    bucket: Option<Bucket>,
    /// What was asked here and is not sent yet, and when it will be.
    hits: u64,
    sends_at: Option<Nanos>,
    /// When everybody is told, as an owner.
    tells_at: Option<Nanos>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    remaining: f64,
    /// Up to when it was refilled; for a window, when it ends.
    at: Nanos,
}

/// What processes say.
#[derive(Debug, Clone, Copy)]
pub enum Message {
    /// So much was asked.
    Hits(u64),
    /// So much is left; a window ends then.
    State {
        /// Units.
        remaining: f64,
        /// True time.
        ends_at: Nanos,
    },
}

impl<const LEAKY: bool> Rule for Global<LEAKY> {
    type Message = Message;

    fn new(node: u32, _life: u32, limit: &SimLimit) -> Self {
        let limit = *limit;
        Self { node, limit, bucket: None, hits: 0, sends_at: None, tells_at: None }
    }

    fn ask(&mut self, cost: u64, owner: u32, now: Nanos) -> bool {
        if self.node == owner {
            self.tells_at.get_or_insert(now + SYNC_WAIT);
        } else {
            self.hits += cost;
            self.sends_at.get_or_insert(now + SYNC_WAIT);
        }
        self.take(cost, false, now)
    }

    fn tick(&mut self, fleet: &Fleet, now: Nanos, out: &mut Vec<(u32, Message)>) {
        if self.sends_at.is_some_and(|at| at <= now) {
            self.sends_at = None;
            let hits = std::mem::take(&mut self.hits);
            out.push((fleet.owner(), Message::Hits(hits)));
        }
        if self.tells_at.is_some_and(|at| at <= now) {
            self.tells_at = None;
            let bucket = self.refilled(now);
            let (remaining, ends_at) = (bucket.remaining.floor(), bucket.at);
            let others = fleet.members().filter(|node| *node != self.node);
            out.extend(others.map(|node| (node, Message::State { remaining, ends_at })));
        }
    }

    fn hear(
        &mut self,
        _from: u32,
        message: Message,
        _fleet: &Fleet,
        now: Nanos,
        _out: &mut Vec<(u32, Message)>,
    ) {
        match message {
            Message::Hits(hits) => {
                self.tells_at.get_or_insert(now + SYNC_WAIT);
                self.take(hits, true, now);
            }
            // What was admitted here in between is forgotten here.
            Message::State { remaining, ends_at } => {
                let at = if LEAKY { now } else { ends_at };
                self.bucket = Some(Bucket { remaining, at });
            }
        }
    }
}

impl<const LEAKY: bool> Global<LEAKY> {
    fn take(&mut self, cost: u64, drains: bool, now: Nanos) -> bool {
        let mut bucket = self.refilled(now);
        let passes = cost as f64 <= bucket.remaining.floor();
        if passes {
            bucket.remaining -= cost as f64;
        } else if drains {
            bucket.remaining = 0.0;
        }
        self.bucket = Some(bucket);
        passes
    }

    fn refilled(&self, now: Nanos) -> Bucket {
        let window = self.limit.rate.period_ns();
        if LEAKY {
            let full = Bucket { remaining: self.limit.burst as f64, at: now };
            let Some(bucket) = self.bucket else { return full };
            let leaked = per_nano(&self.limit) * now.saturating_sub(bucket.at) as f64;
            let remaining = (bucket.remaining + leaked).min(self.limit.burst as f64);
            return Bucket { remaining, at: now };
        }
        let full = Bucket { remaining: self.limit.rate.units() as f64, at: now + window };
        self.bucket.filter(|bucket| now < bucket.at).unwrap_or(full)
    }
}

const SYNC_WAIT: Nanos = 100 * MS;
