//! Requests that wait for credit: a queue for each key, first come, first served.
//!
//! It knows who waits and in which order. Whether there is enough is decided by the cells, whether
//! a request passes by the limiter: whoever is called asks there again, and keeps its place until
//! it leaves. Each key has its own bound, so that a tenant that waits fills nobody else's queue.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tollgate::{KeyId, Patience};

/// All queues of a member of a fleet.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    queues: Mutex<Queues>,
    /// Whether anybody waits, to be read without the lock.
    is_used: AtomicBool,
    /// Tells the driver that [`Self::take_changed`] has something.
    changes: Notify,
}

#[derive(Debug, Default)]
struct Queues {
    by_key: HashMap<KeyId, VecDeque<Place>>,
    /// Requests in all queues.
    count: usize,
    /// Keys whose queues have changed since the driver looked.
    changed: HashSet<KeyId>,
    next: u64,
    /// Requests that found their queue full, so far.
    refused: u64,
}

#[derive(Debug)]
struct Place {
    id: u64,
    cost: u64,
    /// Whether room is what it waits for, or any word of the key's owner.
    patience: Patience,
    is_called: bool,
    call: Arc<Notify>,
}

/// What would become of a cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prospect {
    /// It would pass.
    Permitted,
    /// The key's owner has not said that there is no room.
    MayCome,
    /// It has, and tells when there is some.
    NoRoom,
}

/// The queue of the key, or all queues together, are full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// A place in a queue; dropped, it is given up.
#[derive(Debug)]
pub(crate) struct Turn {
    waiting: Arc<Waiting>,
    key: KeyId,
    id: u64,
    call: Arc<Notify>,
}

impl Waiting {
    /// Takes the last place in the queue of a key, for a request of `cost`.
    pub(crate) fn join(
        self: &Arc<Self>,
        key: KeyId,
        cost: u64,
        patience: Patience,
    ) -> Result<Turn, QueueFull> {
        let mut queues = self.lock();
        let queue_len = queues.by_key.get(&key).map_or(0, VecDeque::len);
        if queue_len >= QUEUE_MAX || queues.count >= WAITING_MAX {
            queues.refused += 1;
            return Err(QueueFull);
        }
        queues.next += 1;
        queues.count += 1;
        self.is_used.store(true, Relaxed);
        let (id, call) = (queues.next, Arc::new(Notify::new()));
        let place = Place { id, cost, patience, is_called: false, call: call.clone() };
        queues.by_key.entry(key).or_default().push_back(place);
        if queue_len == 0 {
            queues.changed.insert(key);
            self.changes.notify_one();
        }
        drop(queues);
        Ok(Turn { waiting: self.clone(), key, id, call })
    }

    /// Waits until the first of some key's queue has become another.
    pub(crate) async fn changed(&self) {
        self.changes.notified().await;
    }

    /// Keys whose first is another since the last time.
    pub(crate) fn take_changed(&self) -> HashSet<KeyId> {
        std::mem::take(&mut self.lock().changed)
    }

    /// What the first of a key's queue costs, and how long it waits; nothing if nobody waits.
    pub(crate) fn first(&self, key: KeyId) -> Option<(u64, Patience)> {
        // Whoever joins meanwhile has the driver told of it.
        if !self.is_used.load(Relaxed) {
            return None;
        }
        let queues = self.lock();
        queues.by_key.get(&key).and_then(VecDeque::front).map(|place| (place.cost, place.patience))
    }

    /// Calls those in front who can go on, given what would become of a cost: what they cost
    /// together is permitted, or they only wait for a word, and it says that there is no room.
    pub(crate) fn call(&self, key: KeyId, judge: impl Fn(u64) -> Prospect) {
        if !self.is_used.load(Relaxed) {
            return;
        }
        let mut queues = self.lock();
        let Some(queue) = queues.by_key.get_mut(&key) else { return };
        let mut sum = 0_u64;
        for place in queue {
            let with_it = sum.saturating_add(place.cost);
            match (judge(with_it), place.patience) {
                (Prospect::Permitted, _) => sum = with_it,
                // Where others are called first, it is judged again when they have gone.
                (Prospect::NoRoom, Patience::Word) if sum == 0 => {}
                (Prospect::NoRoom | Prospect::MayCome, _) => break,
            }
            if !std::mem::replace(&mut place.is_called, true) {
                place.call.notify_one();
            }
        }
    }

    /// Requests that wait, and requests that could not, so far.
    pub(crate) fn counts(&self) -> (usize, u64) {
        let queues = self.lock();
        (queues.count, queues.refused)
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Waits until there seems to be enough.
    pub(crate) async fn called(&self) {
        self.call.notified().await;
    }

    /// There was not enough after all: the place is kept, and is to be called again.
    pub(crate) fn wait_on(&self) {
        let mut queues = self.waiting.lock();
        let place = queues.by_key.get_mut(&self.key).into_iter().flatten();
        if let Some(place) = place.into_iter().find(|place| place.id == self.id) {
            place.is_called = false;
            queues.changed.insert(self.key);
            self.waiting.changes.notify_one();
        }
    }

    /// The key that it waits for.
    pub(crate) fn key(&self) -> KeyId {
        self.key
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut queues = self.waiting.lock();
        let Some(queue) = queues.by_key.get_mut(&self.key) else { return };
        let Some(at) = queue.iter().position(|place| place.id == self.id) else { return };
        queue.remove(at);
        if queue.is_empty() {
            queues.by_key.remove(&self.key);
        }
        queues.count -= 1;
        self.waiting.is_used.store(queues.count > 0, Relaxed);
        if at == 0 {
            queues.changed.insert(self.key);
            self.waiting.changes.notify_one();
        }
    }
}

/// Requests that may wait for one key.
const QUEUE_MAX: usize = 1_024;
/// Requests that may wait in all.
const WAITING_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn key() -> KeyId {
        KeyId::from_bits(1, 1)
    }

    fn join(waiting: &Arc<Waiting>, key: KeyId, cost: u64) -> Result<Turn, QueueFull> {
        waiting.join(key, cost, Patience::Room)
    }

    /// What becomes of a cost where five are permitted.
    fn five(cost: u64) -> Prospect {
        if cost <= 5 { Prospect::Permitted } else { Prospect::NoRoom }
    }

    fn is_called(turn: &Turn) -> bool {
        let called = std::pin::pin!(turn.called());
        called.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn those_in_front_are_called_as_far_as_it_suffices_and_in_their_order() {
        let waiting = Arc::new(Waiting::default());
        let turns: Vec<Turn> =
            [3, 2, 1].map(|cost| join(&waiting, key(), cost).expect("room")).into();
        waiting.call(key(), five);
        assert_eq!(turns.iter().map(is_called).collect::<Vec<_>>(), [true, true, false]);
        // Whoever is called is not called again, but where it waits on.
        waiting.call(key(), five);
        assert!(!is_called(&turns[0]));
        turns[0].wait_on();
        waiting.call(key(), five);
        assert!(is_called(&turns[0]));
    }

    #[test]
    fn who_waits_for_a_word_goes_on_when_it_says_that_there_is_no_room() {
        let waiting = Arc::new(Waiting::default());
        let brief = |cost| waiting.join(key(), cost, Patience::Word).expect("room");
        // Nothing is permitted yet, and there is so much.
        let room =
            |units| move |cost| if cost <= units { Prospect::MayCome } else { Prospect::NoRoom };
        let turns = [brief(6), brief(5), join(&waiting, key(), 6).expect("room"), brief(6)];
        waiting.call(key(), room(6));
        assert_eq!(turns.each_ref().map(is_called), [false; 4]);
        waiting.call(key(), room(5));
        assert_eq!(turns.each_ref().map(is_called), [true, false, false, false]);
        waiting.call(key(), room(4));
        // Nobody goes before one that waits for room.
        assert_eq!(turns.each_ref().map(is_called), [false, true, false, false]);
    }

    #[test]
    fn the_driver_learns_when_another_is_first() {
        let waiting = Arc::new(Waiting::default());
        let first = join(&waiting, key(), 3).expect("room");
        assert_eq!(
            (waiting.take_changed().len(), waiting.first(key())),
            (1, Some((3, Patience::Room)))
        );
        let second = join(&waiting, key(), 2).expect("room");
        assert_eq!(waiting.take_changed().len(), 0);
        drop(first);
        assert_eq!(
            (waiting.take_changed().len(), waiting.first(key())),
            (1, Some((2, Patience::Room)))
        );
        drop(second);
        assert_eq!((waiting.take_changed().len(), waiting.first(key())), (1, None));
        assert_eq!(waiting.counts(), (0, 0));
    }

    #[test]
    fn a_full_queue_refuses_and_leaves_other_keys_alone() {
        let waiting = Arc::new(Waiting::default());
        let turns: Vec<Turn> =
            (0..QUEUE_MAX).map(|_| join(&waiting, key(), 1).expect("room")).collect();
        assert!(join(&waiting, key(), 1).is_err());
        assert!(join(&waiting, KeyId::from_bits(2, 2), 1).is_ok());
        assert_eq!(waiting.counts(), (QUEUE_MAX, 1));
        drop(turns);
        assert!(join(&waiting, key(), 1).is_ok());
    }

    #[test]
    fn all_queues_together_have_a_bound() {
        let waiting = Arc::new(Waiting::default());
        let nth = |number: usize| KeyId::from_bits(10 + number as u64 / 1_000, 0);
        let turns: Vec<Turn> =
            (0..WAITING_MAX).map(|number| join(&waiting, nth(number), 1).expect("room")).collect();
        assert!(join(&waiting, KeyId::from_bits(u64::MAX, 0), 1).is_err());
        drop(turns);
        assert_eq!(waiting.counts(), (0, 1));
    }
}
