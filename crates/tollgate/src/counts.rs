//! How often each limit decided what: counted without locked instructions, read without holding up
//! a decision.
//!
//! Every thread has a stripe of its own while it lives, so that it is the only writer there and an
//! addition is a load and a store. There are no tenants here, only limits.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::cell::Counter;
use crate::decision::{Outcome, Reason};

/// What a limit did so far; each number grows for as long as the limit is in force.
///
/// A denial counts for the limit that decided it alone; limits that would have let it pass, or
/// would have denied it for less long, count nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Requests that it let pass; a request under several limits counts for each.
    pub allowed: u64,
    /// Requests that it denied because it had no room.
    pub over_limit: u64,
    /// Requests that it denied because they cost more than its burst.
    pub cost_exceeds_burst: u64,
    /// Requests that it denied because the table of keys was full.
    pub key_table_full: u64,
    /// Requests that it denied because nothing of it was permitted here: in a fleet.
    pub stale: u64,
    /// Requests that were not let wait for it, since as many waited as may.
    pub queue_full: u64,
    /// Requests that waited for it in vain.
    pub deadline: u64,
    /// Requests that it would have denied, were it no shadow.
    pub shadow_denied: u64,
    /// Requests that were counted on the limit's shared cell because the table of keys was full.
    pub overflowed: u64,
    /// Keys, of any limit, that left the table to make room for one of this limit.
    pub evicted: u64,
}

/// One thing that a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Allowed,
    Denied(Reason),
    ShadowDenied,
    Overflowed,
    Evicted,
}

/// The counters of one limit.
#[derive(Debug)]
pub(crate) struct LimitCounts {
    /// One for each thread that has a stripe of its own, made when it first counts here.
    stripes: [OnceLock<Box<Stripe>>; STRIPES_MAX],
    /// For threads beyond those, for what is counted in bulk, and for handles that are gone.
    shared: Stripe,
    /// Those of handles. Locked when a handle comes, goes, or the sums are read; never by a
    /// decision.
    own: Mutex<BTreeMap<u64, Arc<Stripe>>>,
}

/// A stripe of one handle, which is its only writer: counting is one instruction.
#[derive(Debug)]
pub(crate) struct OwnCounts {
    stripe: Arc<Stripe>,
    number: u64,
    /// Whose sums it is part of, if anybody's.
    of: Option<Arc<LimitCounts>>,
}

impl OwnCounts {
    pub(crate) fn new(of: Arc<LimitCounts>) -> Self {
        let stripe = Arc::<Stripe>::default();
        let mut own = of.own.lock().unwrap_or_else(PoisonError::into_inner);
        let number = own.last_key_value().map_or(0, |(last, _)| last + 1);
        own.insert(number, stripe.clone());
        drop(own);
        Self { stripe, number, of: Some(of) }
    }

    /// Counts that are part of no sums.
    pub(crate) fn of_nobody() -> Self {
        Self { stripe: Arc::default(), number: 0, of: None }
    }

    /// Counts one event.
    #[inline(always)]
    pub(crate) fn count(&mut self, event: Event) {
        self.stripe.0[event.kind()].add_alone();
    }
}

impl Clone for OwnCounts {
    fn clone(&self) -> Self {
        self.of.clone().map_or_else(Self::of_nobody, Self::new)
    }
}

impl Drop for OwnCounts {
    fn drop(&mut self) {
        let Some(of) = &self.of else { return };
        // Under the lock, so that no reader sees the counts twice or not at all.
        let mut own = of.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.remove(&self.number);
        for (sum, counter) in of.shared.0.iter().zip(&self.stripe.0) {
            sum.add(counter.get());
        }
    }
}

#[derive(Debug, Default)]
#[repr(align(128))] // Two lines: the processor fetches them in pairs.
struct Stripe([Counter; KINDS]);

impl LimitCounts {
    pub(crate) fn new() -> Self {
        Self {
            stripes: [const { OnceLock::new() }; STRIPES_MAX],
            shared: Stripe::default(),
            own: Mutex::default(),
        }
    }

    /// Counts one event.
    #[inline]
    pub(crate) fn count(&self, event: Event) {
        let kind = event.kind();
        match self.stripes.get(STRIPE.get()).and_then(OnceLock::get) {
            Some(stripe) => stripe.0[kind].add_alone(),
            None => self.count_first(kind),
        }
    }

    /// Counts `n` events.
    pub(crate) fn count_many(&self, event: Event, n: u64) {
        if n > 0 {
            self.shared.0[event.kind()].add(n);
        }
    }

    /// The sums over all threads. A decision that is being counted may be in them or not.
    pub(crate) fn read(&self) -> Counts {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let threads = self.stripes.iter().filter_map(OnceLock::get).map(|stripe| &**stripe);
        let handles = own.values().map(|stripe| &**stripe);
        let mut sums = [0_u64; KINDS];
        for stripe in threads.chain(handles).chain([&self.shared]) {
            for (sum, counter) in sums.iter_mut().zip(&stripe.0) {
                *sum += counter.get();
            }
        }
        let of = |event: Event| sums[event.kind()];
        Counts {
            allowed: of(Event::Allowed),
            over_limit: of(Event::Denied(Reason::OverLimit)),
            cost_exceeds_burst: of(Event::Denied(Reason::CostExceedsBurst)),
            key_table_full: of(Event::Denied(Reason::KeyTableFull)),
            stale: of(Event::Denied(Reason::Stale)),
            queue_full: of(Event::Denied(Reason::QueueFull)),
            deadline: of(Event::Denied(Reason::Deadline)),
            shadow_denied: of(Event::ShadowDenied),
            overflowed: of(Event::Overflowed),
            evicted: of(Event::Evicted),
        }
    }

    #[cold]
    fn count_first(&self, kind: usize) {
        match self.stripes.get(claim_stripe()) {
            Some(stripe) => stripe.get_or_init(Box::default).0[kind].add_alone(),
            None => self.shared.0[kind].add(1),
        }
    }
}

impl Event {
    /// What an answer counts as.
    #[inline(always)]
    pub(crate) fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Allowed => Self::Allowed,
            Outcome::Denied(reason) => Self::Denied(reason),
        }
    }

    #[inline]
    fn kind(self) -> usize {
        match self {
            Self::Allowed => 0,
            Self::Denied(Reason::OverLimit) => 1,
            Self::Denied(Reason::CostExceedsBurst) => 2,
            Self::Denied(Reason::KeyTableFull) => 3,
            Self::Denied(Reason::Stale) => 4,
            Self::Denied(Reason::QueueFull) => 5,
            Self::Denied(Reason::Deadline) => 6,
            Self::ShadowDenied => 7,
            Self::Overflowed => 8,
            Self::Evicted => 9,
        }
    }
}

/// Gives this thread a stripe until it ends, or the shared one when all are taken.
fn claim_stripe() -> usize {
    // A thread that is ending has lost its claim; what it still counts goes to the shared stripe.
    CLAIM.try_with(|claim| STRIPE.set(claim.0)).unwrap_or_else(|_| STRIPE.set(STRIPES_MAX));
    STRIPE.get()
}

/// A stripe that is this thread's; given back when the thread ends.
struct Claim(usize);

impl Claim {
    fn new() -> Self {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let free = taken.trailing_ones() as usize;
        if free < STRIPES_MAX {
            *taken |= 1 << free;
        }
        Self(free)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        STRIPE.set(UNCLAIMED);
        if self.0 < STRIPES_MAX {
            // The lock orders this thread's last additions before the next owner's first.
            *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) &= !(1 << self.0);
        }
    }
}

thread_local! {
    static STRIPE: Cell<usize> = const { Cell::new(UNCLAIMED) };
    static CLAIM: Claim = Claim::new();
}

/// The stripes that running threads own, a bit each.
static TAKEN: Mutex<u64> = Mutex::new(0);

/// Threads that count alone; more share a stripe and pay for a locked addition.
const STRIPES_MAX: usize = 64;
const UNCLAIMED: usize = usize::MAX;
const KINDS: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_survive_the_threads_that_made_them_whatever_their_number() {
        let counts = LimitCounts::new();
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for _ in 0..STRIPES_MAX + 8 {
                    scope.spawn(|| {
                        for _ in 0..100 {
                            counts.count(Event::Allowed);
                        }
                    });
                }
            });
        }
        assert_eq!(counts.read().allowed, 3 * (STRIPES_MAX as u64 + 8) * 100);
    }

    #[test]
    fn each_event_has_a_number_of_its_own() {
        let counts = LimitCounts::new();
        counts.count(Event::Denied(Reason::CostExceedsBurst));
        counts.count(Event::ShadowDenied);
        counts.count_many(Event::Evicted, 3);
        let expected =
            Counts { cost_exceeds_burst: 1, shadow_denied: 1, evicted: 3, ..Counts::default() };
        assert_eq!(counts.read(), expected);
    }
}
