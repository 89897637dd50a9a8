//! The state that the log makes, and its snapshots: what the consensus library applies entries to.
//!
//! Whoever wants to know the state watches [`Applied`]: it is published before anyone learns that a
//! command was applied. What the commands mean is `tollgate::coordinator`'s to know.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use openraft::EntryPayload;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine, Snapshot};
use tokio::sync::watch;
use tollgate::coordinator::{RingChange, State};
use tollgate::{Clock, Instant};

use super::store::{Store, StoreError};
use super::types::{Entry, LogId, Meta, Reply, Types, Voting};

/// What a replica has applied.
#[derive(Debug, Clone)]
pub struct Applied {
    /// The state.
    pub state: Arc<State>,
    /// The last changes of the ring, oldest first, and when each was applied here; at most
    /// [`CHANGES_MAX`].
    ///
    /// Whoever knows an older ring than the first of them continues needs none but the last. What
    /// came by a snapshot was applied when that was: a change looks younger then than it is, never
    /// older.
    pub changes: Arc<VecDeque<(Instant, RingChange)>>,
}

/// So many changes of the ring are kept for those who know an older one.
pub const CHANGES_MAX: usize = 64;

/// The state machine of a replica.
#[derive(Debug)]
pub(super) struct Machine {
    store: Store,
    clock: Clock,
    state: State,
    changes: VecDeque<(Instant, RingChange)>,
    last_applied: Option<LogId>,
    voting: Voting,
    applied: watch::Sender<Applied>,
}

impl Machine {
    /// The state as of the last snapshot; the log tells the rest.
    ///
    /// # Errors
    /// When the snapshot can't be read.
    pub(super) fn new(
        store: Store,
        clock: Clock,
    ) -> Result<(Self, watch::Receiver<Applied>), StoreError> {
        let (meta, state) = store.snapshot()?.unwrap_or_default();
        let none = Applied { state: Arc::default(), changes: Arc::default() };
        let (applied, watched) = watch::channel(none);
        let mut machine = Self {
            store,
            clock,
            state: State::default(),
            changes: VecDeque::new(),
            last_applied: None,
            voting: Voting::default(),
            applied,
        };
        machine.take(meta, state);
        Ok((machine, watched))
    }

    fn take(&mut self, meta: Meta, state: State) {
        let change = state.change().map(|change| (self.clock.now(), change.clone()));
        self.changes = change.into_iter().collect();
        self.state = state;
        self.last_applied = meta.last_log_id;
        self.voting = meta.last_membership;
        self.publish();
    }

    fn publish(&self) {
        let state = Arc::new(self.state.clone());
        self.applied.send_replace(Applied { state, changes: Arc::new(self.changes.clone()) });
    }

    fn step(&mut self, entry: Entry) -> Reply {
        self.last_applied = Some(entry.log_id);
        match entry.payload {
            EntryPayload::Blank => Reply(None),
            EntryPayload::Membership(voting) => {
                self.voting = Voting::new(Some(entry.log_id), voting);
                Reply(None)
            }
            EntryPayload::Normal(proposal) => {
                let command = Arc::unwrap_or_clone(proposal.0);
                Reply(Some(self.state.apply(command).map(|effects| {
                    if let Some(change) = effects.ring {
                        self.changes.push_back((self.clock.now(), change));
                        let over = self.changes.len().saturating_sub(CHANGES_MAX);
                        self.changes.drain(..over);
                    }
                    effects.answer
                })))
            }
        }
    }
}

impl<C: Types> RaftStateMachine<C> for Machine {
    type SnapshotData = Arc<State>;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, Voting), io::Error> {
        Ok((self.last_applied, self.voting.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<C>, io::Error>> + Unpin + Send,
    {
        let mut replies = Vec::new();
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let reply = self.step(entry);
            replies.extend(responder.map(|responder| (responder, reply)));
        }
        self.publish();
        for (responder, reply) in replies {
            responder.send(reply);
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        let last_membership = self.voting.clone();
        Builder {
            store: self.store.clone(),
            meta: Meta { last_log_id: self.last_applied, last_membership },
            state: self.applied.borrow().state.clone(),
        }
    }

    async fn install_snapshot(&mut self, meta: &Meta, state: Arc<State>) -> Result<(), io::Error> {
        self.store.save_snapshot(meta, &state)?;
        self.take(meta.clone(), Arc::unwrap_or_clone(state));
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<SnapshotOf>, io::Error> {
        let kept = self.store.snapshot()?;
        Ok(kept.map(|(meta, state)| Snapshot { meta, snapshot: Arc::new(state) }))
    }
}

/// A snapshot that is about to be written.
#[derive(Debug)]
pub(super) struct Builder {
    store: Store,
    meta: Meta,
    state: Arc<State>,
}

impl<C: Types> RaftSnapshotBuilder<C> for Builder {
    type SnapshotData = Arc<State>;

    async fn build_snapshot(&mut self) -> Result<SnapshotOf, io::Error> {
        self.store.save_snapshot(&self.meta, &self.state)?;
        Ok(Snapshot { meta: self.meta.clone(), snapshot: self.state.clone() })
    }
}

pub(super) type SnapshotOf = Snapshot<super::types::Leader, u64, openraft::BasicNode, Arc<State>>;
