//! The limits of the fleet as they come: read and compiled away from the driver, which must not
//! stand still for them.
//!
//! Admission never asks for any of this.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::sync::mpsc;
use tollgate::FleetRules;
use tollgate::coordinator::{Document, Revision};
use tracing::error;

/// Puts a policy in force where requests are decided, and returns what the node needs of it; or
/// says, for people, why it can't be.
pub type Enforce = dyn Fn(&Document) -> Result<FleetRules, String> + Send + Sync;

/// Policies on their way from a replica to the node.
pub(crate) struct Policies {
    enforce: Arc<Enforce>,
    ready: mpsc::Sender<(Revision, FleetRules)>,
    taken: mpsc::Receiver<(Revision, FleetRules)>,
    /// The last that came.
    revision: Revision,
    /// The same, for those that wait their turn.
    latest: Arc<AtomicU64>,
    /// Documents that are being compiled come one after another.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Policies {
    pub(crate) fn new(enforce: Arc<Enforce>) -> Self {
        let (ready, taken) = mpsc::channel(READY_MAX);
        let (latest, turn) = (Arc::default(), Arc::default());
        Self { enforce, ready, taken, revision: Revision::ZERO, latest, turn }
    }

    /// Puts the first document in force, and returns what the node needs of it.
    ///
    /// # Errors
    /// Why it can't be, for people.
    pub(crate) async fn begin(&mut self, document: Document) -> Result<FleetRules, String> {
        self.revision = document.revision;
        let enforce = self.enforce.clone();
        let compiled = tokio::task::spawn_blocking(move || enforce(&document)).await;
        compiled.map_err(|panicked| panicked.to_string())?
    }

    /// A document came; one that is not newer than the last changes nothing.
    pub(crate) fn put(&mut self, document: Document) {
        if document.revision <= self.revision {
            return;
        }
        self.revision = document.revision;
        self.latest.store(document.revision.get(), Relaxed);
        let (enforce, ready) = (self.enforce.clone(), self.ready.clone());
        let (latest, turn) = (self.latest.clone(), self.turn.clone());
        tokio::spawn(async move {
            let _turn = turn.lock().await;
            let revision = document.revision;
            if latest.load(Relaxed) > revision.get() {
                return; // Where policies come faster than they are read, the last one counts.
            }
            let compiled = tokio::task::spawn_blocking(move || enforce(&document)).await;
            match compiled {
                Ok(Ok(rules)) => {
                    let _ = ready.send((revision, rules)).await;
                }
                Ok(Err(why)) => {
                    error!(target: "fleet", revision = revision.get(),
                           "the limits before stay in force: {why}");
                }
                Err(panicked) => error!(target: "fleet", "a policy could not be read: {panicked}"),
            }
        });
    }

    /// The next that is in force here.
    pub(crate) async fn next(&mut self) -> (Revision, FleetRules) {
        match self.taken.recv().await {
            Some(ready) => ready,
            // The sender is kept beside it.
            None => std::future::pending().await,
        }
    }

    /// The last that came.
    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }
}

/// Policies that are compiled and not taken yet.
const READY_MAX: usize = 4;
