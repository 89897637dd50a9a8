//! The way from a divider to a stream: of each bucket the newest part, and no more.
//!
//! As many letters wait as the stream has buckets, so that it is bounded without losing anything
//! that still counts.

use std::collections::{BTreeSet, HashMap};
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tollgate::Instant;

use super::divider::{Part, Told};

/// The divider's end: what is put here reaches the stream.
#[derive(Debug, Clone)]
pub(crate) struct Mailbox(Arc<Mutex<Shared>>);

/// The stream's end.
#[derive(Debug)]
pub(crate) struct Letters(Arc<Mutex<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    /// The buckets that the stream has, each with what waits for it.
    buckets: HashMap<u32, Option<Told>>,
    /// Those for which something waits.
    waiting: BTreeSet<u32>,
    /// Who is to be woken when something comes.
    waker: Option<Waker>,
}

/// A mailbox and its letters.
pub(crate) fn mailbox() -> (Mailbox, Letters) {
    let shared = Arc::<Mutex<Shared>>::default();
    (Mailbox(shared.clone()), Letters(shared))
}

impl Mailbox {
    /// Says what a bucket may use, up to when that is confirmed; what waited for it is replaced.
    /// Of a bucket that is gone nothing is kept.
    pub(crate) fn put(&self, bucket: u32, part: Part, confirmed_until: Instant) {
        let mut shared = lock(&self.0);
        let Some(slot) = shared.buckets.get_mut(&bucket) else { return };
        *slot = Some(Told { part, confirmed_until });
        shared.waiting.insert(bucket);
        let waker = shared.waker.take();
        drop(shared);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Letters {
    /// From now on the stream has this bucket.
    pub(crate) fn open(&self, bucket: u32) {
        lock(&self.0).buckets.insert(bucket, None);
    }

    /// From now on it has not, and what waits for it is gone.
    pub(crate) fn close(&self, bucket: u32) {
        let mut shared = lock(&self.0);
        shared.buckets.remove(&bucket);
        shared.waiting.remove(&bucket);
    }

    /// Ready when there is something to take; if not, the task is woken when there is.
    pub(crate) fn poll_waiting(&self, cx: &Context<'_>) -> Poll<()> {
        let mut shared = lock(&self.0);
        if !shared.waiting.is_empty() {
            return Poll::Ready(());
        }
        if !shared.waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            shared.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// All that waits, by the buckets' numbers.
    pub(crate) fn take(&self) -> Vec<(u32, Told)> {
        let mut shared = lock(&self.0);
        let waiting = take(&mut shared.waiting).into_iter();
        let told = |bucket| Some((bucket, shared.buckets.get_mut(&bucket)?.take()?));
        waiting.filter_map(told).collect()
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_bucket_the_newest_part_waits_and_nothing_of_those_that_are_gone() {
        let (mailbox, letters) = mailbox();
        for bucket in 1..=3 {
            letters.open(bucket);
        }
        let until = Instant::from_nanos(7);
        for _ in 0..1_000 {
            mailbox.put(2, Part::AllowAll, Instant::ZERO);
            mailbox.put(2, Part::DenyAll, until);
            mailbox.put(1, Part::AllowAll, until);
            mailbox.put(3, Part::AllowAll, until);
            mailbox.put(4, Part::AllowAll, until);
        }
        letters.close(3);
        let told = |part| Told { part, confirmed_until: until };
        assert_eq!(letters.take(), [(1, told(Part::AllowAll)), (2, told(Part::DenyAll))]);
        assert_eq!(letters.take(), []);
        mailbox.put(3, Part::DenyAll, until);
        let cx = Context::from_waker(Waker::noop());
        assert!(letters.poll_waiting(&cx).is_pending());
        mailbox.put(1, Part::DenyAll, until);
        assert!(letters.poll_waiting(&cx).is_ready());
    }
}
