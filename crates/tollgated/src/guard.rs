//! One connection as its worker sees it: what it is doing, since when, and whether it is to end.
//!
//! Time here is the worker's ticks, coarse and free to read. The connection's task notes what it
//! does; the worker's sweep judges.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use tollgate::mutant::lacks;

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It asks nothing.
    Idle,
    /// A request has begun to arrive.
    Reading,
    /// A request is being answered.
    Busy,
    /// A reply waits for the client to take it.
    Writing,
}

/// One connection's notes, shared by its task and the worker's sweep.
#[derive(Debug)]
pub(crate) struct Guard {
    id: u64,
    /// The worker's ticks.
    ticks: Arc<AtomicU32>,
    /// The tick of the last change, then two bits of [`Phase`].
    noted: AtomicU32,
    opened: u32,
    /// Calls that go on for as long as they like.
    lasting: AtomicU32,
    ends: AtomicBool,
    waker: Mutex<Option<Waker>>,
    /// Bytes of half-received messages, over all connections.
    held_by_all: Arc<AtomicUsize>,
}

impl Guard {
    pub(crate) fn new(id: u64, ticks: Arc<AtomicU32>, held_by_all: Arc<AtomicUsize>) -> Self {
        let opened = ticks.load(Relaxed);
        Self {
            id,
            ticks,
            noted: AtomicU32::new(opened << 2),
            opened,
            lasting: AtomicU32::new(0),
            ends: AtomicBool::new(false),
            waker: Mutex::default(),
            held_by_all,
        }
    }

    /// The connection's number in this process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Notes what the connection does from now on.
    pub(crate) fn note(&self, phase: Phase) {
        self.noted.store(self.ticks.load(Relaxed) << 2 | phase as u32, Relaxed);
    }

    /// Notes that something arrived; a request that has begun before is still the same.
    pub(crate) fn heard(&self) {
        let idle = self.noted.load(Relaxed) & 3 == Phase::Idle as u32;
        if idle || lacks("trickling_begins_anew") {
            self.note(Phase::Reading);
        }
    }

    /// What it does, and for how many ticks.
    pub(crate) fn doing(&self) -> (Phase, u32) {
        let noted = self.noted.load(Relaxed);
        let phase = match noted & 3 {
            0 => Phase::Idle,
            1 => Phase::Reading,
            2 => Phase::Busy,
            _ => Phase::Writing,
        };
        let now = self.ticks.load(Relaxed) & (u32::MAX >> 2);
        (phase, now.saturating_sub(noted >> 2))
    }

    /// Notes a call that may ask nothing for long: until it ends, the connection is not idle.
    pub(crate) fn note_lasting(self: &Arc<Self>) -> Lasting {
        self.lasting.fetch_add(1, Relaxed);
        Lasting(self.clone())
    }

    pub(crate) fn has_lasting(&self) -> bool {
        self.lasting.load(Relaxed) > 0
    }

    /// How many ticks the connection has lasted.
    pub(crate) fn age(&self) -> u32 {
        self.ticks.load(Relaxed).saturating_sub(self.opened)
    }

    /// Asks the connection to end as soon as that cuts nothing.
    pub(crate) fn ask_to_end(&self) {
        self.ends.store(true, Relaxed);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether it was asked to end; if not, the task is woken when it is.
    pub(crate) fn is_to_end(&self, cx: &Context<'_>) -> bool {
        let mut waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        if !waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        self.ends.load(Relaxed)
    }

    /// The account of one message that is being received.
    pub(crate) fn hold_nothing(&self) -> Held {
        Held { bytes: 0, by_all: self.held_by_all.clone() }
    }
}

/// A call that lasts, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lasting(Arc<Guard>);

impl Drop for Lasting {
    fn drop(&mut self) {
        self.0.lasting.fetch_sub(1, Relaxed);
        if self.0.doing().0 == Phase::Idle {
            self.0.note(Phase::Idle); // It is idle since now.
        }
    }
}

/// What is kept of a half-received message, as long as it lives.
#[derive(Debug)]
pub(crate) struct Held {
    bytes: usize,
    by_all: Arc<AtomicUsize>,
}

impl Held {
    /// Notes how many bytes are kept. Returns whether they may be: what is small always, what is
    /// large while all large ones are within [`HELD_BYTES_MAX`].
    pub(crate) fn hold(&mut self, bytes: usize) -> bool {
        let free = bytes <= HELD_FREE_BYTES || lacks("large_messages_are_free");
        let bytes = if free { 0 } else { bytes };
        let before = std::mem::replace(&mut self.bytes, bytes);
        if bytes <= before {
            self.by_all.fetch_sub(before - bytes, Relaxed);
            return true;
        }
        let more = bytes - before;
        self.by_all.fetch_add(more, Relaxed) + more <= HELD_BYTES_MAX
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.hold(0);
    }
}

/// A duration in ticks, rounded up, and at least one.
pub(crate) fn ticks(duration: Duration) -> u32 {
    u32::try_from(duration.as_nanos().div_ceil(TICK.as_nanos()).max(1)).unwrap_or(u32::MAX)
}

/// How exactly connections' times are kept.
pub(crate) const TICK: Duration = Duration::from_millis(250);
/// A half-received message of so many bytes is kept without being counted.
pub(crate) const HELD_FREE_BYTES: usize = 16 << 10;
/// Bytes of larger half-received messages, over all connections.
const HELD_BYTES_MAX: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> (Guard, Arc<AtomicU32>, Arc<AtomicUsize>) {
        let (ticks, held) = (Arc::new(AtomicU32::new(7)), Arc::new(AtomicUsize::new(0)));
        (Guard::new(1, ticks.clone(), held.clone()), ticks, held)
    }

    #[test]
    fn a_request_that_trickles_in_has_begun_with_its_first_byte() {
        let (guard, ticks, _) = guard();
        guard.heard();
        ticks.store(10, Relaxed);
        guard.heard();
        assert_eq!(guard.doing(), (Phase::Reading, 3));
        guard.note(Phase::Idle);
        ticks.store(11, Relaxed);
        assert_eq!((guard.doing(), guard.age()), ((Phase::Idle, 1), 4));
    }

    #[test]
    fn a_connection_is_idle_since_its_last_lasting_call_has_ended() {
        let (guard, ticks, _) = guard();
        let guard = Arc::new(guard);
        let (one, two) = (guard.note_lasting(), guard.note_lasting());
        ticks.store(20, Relaxed);
        drop(one);
        assert!(guard.has_lasting());
        ticks.store(30, Relaxed);
        drop(two);
        assert!(!guard.has_lasting());
        assert_eq!(guard.doing(), (Phase::Idle, 0));
    }

    #[test]
    fn large_messages_share_a_maximum_and_small_ones_are_free() {
        let (guard, _, held) = guard();
        // Two messages at once, as on one connection of HTTP/2.
        let (mut first, mut second) = (guard.hold_nothing(), guard.hold_nothing());
        assert!(first.hold(HELD_FREE_BYTES));
        assert_eq!(held.load(Relaxed), 0);
        assert!(first.hold(HELD_BYTES_MAX));
        assert!(second.hold(HELD_FREE_BYTES));
        assert!(!second.hold(HELD_FREE_BYTES + 1));
        drop(first);
        assert!(second.hold(HELD_FREE_BYTES + 2));
        assert_eq!(held.load(Relaxed), HELD_FREE_BYTES + 2);
        drop(second);
        assert_eq!(held.load(Relaxed), 0);
    }
}
