//! Streams that divide keys as members of their own: what they tell the member, and what they are
//! told they have.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use tokio::sync::Notify;
use tollgate::{Input, KeyId, StreamUsage};

/// Between streams and the task that owns the node.
#[derive(Default)]
pub(crate) struct Streams {
    told: Mutex<Told>,
    changed: Notify,
    allotted: OnceLock<Allotted>,
}

/// What a stream has of a key: units a second; none if that cannot be relied on any more.
type Allotted = Box<dyn Fn(KeyId, u64, Option<f64>) + Send + Sync>;

#[derive(Default)]
struct Told {
    /// The last usage of each, since they are totals.
    usages: HashMap<(KeyId, u64), StreamUsage>,
    gone: Vec<(KeyId, u64)>,
}

impl Streams {
    /// Has `allotted` called with what streams have. Only the first is kept; returns whether it is
    /// this.
    pub(crate) fn on_allotted(&self, allotted: Allotted) -> bool {
        self.allotted.set(allotted).is_ok()
    }

    /// Returns false if there is no room for more.
    pub(crate) fn tell(&self, usage: StreamUsage) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let id = (usage.key, usage.stream);
        if told.usages.len() >= TOLD_MAX && !told.usages.contains_key(&id) {
            return false;
        }
        told.usages.insert(id, usage);
        drop(told);
        self.changed.notify_one();
        true
    }

    pub(crate) fn gone(&self, key: KeyId, stream: u64) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.usages.remove(&(key, stream));
        // Of more than that the silence tells.
        if told.gone.len() < TOLD_MAX {
            told.gone.push((key, stream));
        }
        drop(told);
        self.changed.notify_one();
    }

    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(crate) fn allot(&self, key: KeyId, stream: u64, rate: Option<f64>) {
        if let Some(allotted) = self.allotted.get() {
            allotted(key, stream, rate);
        }
    }

    /// What was told since the last time.
    pub(crate) fn take(&self) -> Vec<Input> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let Told { usages, gone } = std::mem::take(&mut *told);
        drop(told);
        let gone = gone.into_iter().map(|(key, stream)| Input::StreamGone { key, stream });
        let mut usages: Vec<StreamUsage> = usages.into_values().collect();
        usages.sort_unstable_by_key(|usage| (usage.key, usage.stream));
        gone.chain(usages.into_iter().map(Input::Stream)).collect()
    }
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").finish_non_exhaustive()
    }
}

/// Keys of streams of which something waits to be told.
const TOLD_MAX: usize = 100_000;
