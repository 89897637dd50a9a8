//! One stream: which buckets its client has, and which of them it is to be told of next.
//!
//! No I/O and no clock: reports, parts and `now` in; assignments, and buckets that are gone, out.
//! What one bucket is told is worked out when it can be sent, so that of each bucket only the
//! newest waits, however slowly the client reads.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use tollgate::Instant;
use tollgate::mutant::lacks;

use super::account::Account;
use super::bucket::{Bucket, Plan};
use super::bucket_id::{self, BucketId};
use super::divider::{Part, Told, Usage};
use super::strategy::Strategy;

/// The state of one stream.
#[derive(Debug)]
pub(crate) struct QuotaStream {
    /// None before the first message.
    domain: Option<Box<str>>,
    numbers: HashMap<BucketId, u32>,
    buckets: HashMap<u32, Kept>,
    /// When each bucket is to be looked at; sooner than need be at times, never later.
    looks: BTreeSet<(Instant, u32)>,
    /// Buckets whose client is to be told something, by their turns.
    unsaid: BTreeMap<u64, u32>,
    /// Buckets that the divider has not been told to be gone.
    gone: Vec<u32>,
    number_next: u32,
    turn_next: u64,
    account: Account,
    /// An id as it is written.
    written: Vec<u8>,
}

/// A bucket, and where it is noted.
#[derive(Debug)]
struct Kept {
    bucket: Bucket,
    look: Option<Instant>,
    turn: Option<u64>,
}

/// What a client says of a bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Report<'a> {
    /// Sorted by their names.
    pub(crate) entries: &'a [(&'a str, &'a str)],
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    /// Since the last report, as the client says.
    pub(crate) elapsed: Duration,
}

/// What becomes of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The divider is to be told.
    Tell { bucket: u32, is_new: bool, usage: Usage },
    /// There is no room for another bucket: the report is passed over.
    Full,
}

/// What the client is to be told of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) id: BucketId,
    pub(crate) action: Action,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Use it like this for so long.
    Assign {
        strategy: Strategy,
        ttl_seconds: u32,
        /// Whether the client had another strategy, or none.
        is_new: bool,
    },
    /// Forget it.
    Abandon,
}

/// Why a message is refused. Nothing of it was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DomainError {
    /// The first message says none.
    Missing,
    TooLong,
    /// It is not the one of the messages before.
    Changed,
}

impl QuotaStream {
    /// A stream without buckets.
    pub(crate) fn new(account: Account) -> Self {
        Self {
            domain: None,
            numbers: HashMap::new(),
            buckets: HashMap::new(),
            looks: BTreeSet::new(),
            unsaid: BTreeMap::new(),
            gone: Vec::new(),
            number_next: 0,
            turn_next: 0,
            account,
            written: Vec::new(),
        }
    }

    /// Notes the domain of a message; empty is that of the ones before.
    ///
    /// # Errors
    /// [`DomainError`]; the domain stays as it was.
    pub(crate) fn handle_domain(&mut self, domain: &str) -> Result<(), DomainError> {
        match &self.domain {
            None if domain.is_empty() => Err(DomainError::Missing),
            None if domain.len() > DOMAIN_BYTES_MAX => Err(DomainError::TooLong),
            None => {
                self.domain = Some(domain.into());
                Ok(())
            }
            Some(known) if domain.is_empty() || domain == &**known => Ok(()),
            Some(_) => Err(DomainError::Changed),
        }
    }

    /// Notes what a client says of a bucket. The first time it is new here, whatever the client
    /// thinks: after a stream that broke it goes on with the buckets that it has.
    pub(crate) fn handle_report(&mut self, report: &Report<'_>, now: Instant) -> Heard {
        debug_assert!(report.entries.is_sorted(), "the door put them in order");
        bucket_id::write(report.entries, &mut self.written);
        let known = self.numbers.get(&self.written[..]).copied();
        let mut assigned = None;
        if let Some(bucket) = known
            && let Some(kept) = self.buckets.get_mut(&bucket)
        {
            if !kept.bucket.is_abandoned() {
                let usage = kept.bucket.handle_report(report, now);
                self.schedule(bucket, now);
                return Heard::Tell { bucket, is_new: false, usage };
            }
            // The client does not know yet that it was to forget it, and now it need not.
            assigned = kept.bucket.assigned();
            self.forget(bucket);
        }
        // Numbers do not come again: what is still said of a bucket that is gone finds nothing.
        let number = self.number_next;
        if number == u32::MAX || !self.account.take(self.written.len()) {
            return Heard::Full;
        }
        self.number_next += 1;
        let id = BucketId::new(&self.written);
        let bucket = Bucket::new(id.clone(), assigned, now);
        self.numbers.insert(id, number);
        self.buckets.insert(number, Kept { bucket, look: None, turn: None });
        self.schedule(number, now);
        let &Report { allowed, denied, elapsed, .. } = report;
        Heard::Tell { bucket: number, is_new: true, usage: Usage { allowed, denied, elapsed } }
    }

    /// Notes what part of its limit a bucket may use.
    pub(crate) fn handle_part(&mut self, bucket: u32, told: Told, now: Instant) {
        if told.part == Part::Unknown {
            return self.abandon(bucket, now);
        }
        let Some(kept) = self.buckets.get_mut(&bucket) else { return };
        kept.bucket.handle_part(told);
        self.schedule(bucket, now);
    }

    /// Notes that time has passed.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, bucket)) = self.looks.first()
            && at <= now
        {
            self.looks.pop_first();
            let Some(kept) = self.buckets.get_mut(&bucket) else { continue };
            kept.look = None;
            if kept.bucket.rests() > now {
                self.schedule(bucket, now);
            } else if !lacks("quota_silent_stay") {
                self.abandon(bucket, now);
            }
        }
    }

    /// The next thing to tell the client, which is taken for told from now on.
    pub(crate) fn poll_action(&mut self, now: Instant) -> Option<Said> {
        while let Some((_, bucket)) = self.unsaid.pop_first() {
            let Some(kept) = self.buckets.get_mut(&bucket) else { continue };
            kept.turn = None;
            let id = kept.bucket.id.clone();
            match kept.bucket.plan(now) {
                Plan::Assign { strategy, part } => {
                    let (ttl_seconds, is_new) = kept.bucket.assign(strategy, part, now);
                    self.schedule(bucket, now);
                    let action = Action::Assign { strategy, ttl_seconds, is_new };
                    return Some(Said { id, action });
                }
                Plan::Abandon => {
                    self.forget(bucket);
                    return Some(Said { id, action: Action::Abandon });
                }
                Plan::Nothing | Plan::Wait(_) => self.schedule(bucket, now),
            }
        }
        None
    }

    /// The next bucket that the divider is to be told to be gone.
    pub(crate) fn poll_gone(&mut self) -> Option<u32> {
        self.gone.pop()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called at the latest; sooner than
    /// anything is due, at times.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.looks.first().map(|(at, _)| *at)
    }

    /// Whether there may be something to tell the client.
    pub(crate) fn has_action(&self) -> bool {
        !self.unsaid.is_empty()
    }

    /// The domain, once it is known.
    pub(crate) fn domain(&self) -> Option<&str> {
        self.domain.as_deref()
    }

    /// Has the client forget a bucket, and the divider.
    fn abandon(&mut self, bucket: u32, now: Instant) {
        if let Some(kept) = self.buckets.get_mut(&bucket)
            && !kept.bucket.is_abandoned()
        {
            kept.bucket.abandon();
            self.gone.push(bucket);
            self.schedule(bucket, now);
        }
    }

    /// Notes when a bucket is to be looked at, and whether its client is to be told something.
    fn schedule(&mut self, number: u32, now: Instant) {
        let Some(kept) = self.buckets.get_mut(&number) else { return };
        let rests = kept.bucket.rests();
        let look = match kept.bucket.plan(now) {
            Plan::Wait(at) => at.min(rests),
            Plan::Nothing => rests,
            said @ (Plan::Assign { .. } | Plan::Abandon) => {
                if kept.turn.is_none() {
                    kept.turn = Some(self.turn_next);
                    self.unsaid.insert(self.turn_next, number);
                    self.turn_next += 1;
                }
                if said == Plan::Abandon {
                    return; // Nothing else can become of it by itself.
                }
                rests
            }
        };
        // One that is noted for sooner is looked at then, and noted again.
        if kept.look.is_none_or(|noted| look < noted) {
            if let Some(noted) = kept.look.replace(look) {
                self.looks.remove(&(noted, number));
            }
            self.looks.insert((look, number));
        }
    }

    fn forget(&mut self, number: u32) {
        let Some(Kept { bucket, look, turn }) = self.buckets.remove(&number) else { return };
        self.numbers.remove(&bucket.id);
        if let Some(look) = look {
            self.looks.remove(&(look, number));
        }
        if let Some(turn) = turn {
            self.unsaid.remove(&turn);
        }
        self.account.give(bucket.id.bytes());
        debug_assert_eq!(self.numbers.len(), self.buckets.len());
    }
}

/// No limit has a longer one.
const DOMAIN_BYTES_MAX: usize = 256;
