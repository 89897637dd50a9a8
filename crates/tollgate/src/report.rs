//! When which keys are reported to whom: one batch under way per owner, keys in the order in which
//! they are due. It does not know what a report says, so that every mode can use it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::key::KeyId;
use crate::ring::NodeId;
use crate::time::Instant;

/// What is reported: a key's view, or a member of a key's division by its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lot {
    View(KeyId),
    Share(KeyId, u64),
}

/// The ways to all owners.
#[derive(Debug)]
pub(crate) struct Pipeline {
    sync_interval: Duration,
    lanes: BTreeMap<NodeId, Lane>,
    batches: u64,
}

/// The way to one owner.
#[derive(Debug)]
struct Lane {
    due: BTreeSet<(Instant, Lot)>,
    /// The last batches that were not answered yet, those that were given up among them: an answer
    /// that comes late tells how far away the owner is.
    unanswered: VecDeque<(u64, Instant)>,
    /// The last of them, unless it was answered.
    under_way: Option<UnderWay>,
    /// Batches since the last answer.
    in_vain: u32,
    /// No batch before this.
    rests_until: Instant,
    /// The time there and back: an average, and at first nothing.
    round_trip: Duration,
}

#[derive(Debug)]
struct UnderWay {
    batch: u64,
    sent_at: Instant,
    /// What is in it, and when that was due.
    keys: Vec<(Instant, Lot)>,
}

impl Pipeline {
    pub(crate) fn new(sync_interval: Duration) -> Self {
        Self { sync_interval, lanes: BTreeMap::new(), batches: 0 }
    }

    /// A key is to be looked at, at `at`, on its way to `owner`.
    pub(crate) fn schedule(&mut self, owner: NodeId, key: Lot, at: Instant) {
        self.lane(owner).due.insert((at, key));
    }

    /// A key is not to be looked at then, after all.
    pub(crate) fn cancel(&mut self, owner: NodeId, key: Lot, at: Instant) {
        if let Some(lane) = self.lanes.get_mut(&owner) {
            lane.due.remove(&(at, key));
        }
    }

    /// An owner to whom a batch may go now, and what is due there: keys that are due within half a
    /// sync interval go along.
    pub(crate) fn next_due(&mut self, now: Instant) -> Option<(NodeId, Vec<(Instant, Lot)>)> {
        let soon = now.saturating_add(self.sync_interval / 2);
        let sync_interval = self.sync_interval;
        let ready = |lane: &Lane| lane.ready_at(sync_interval).is_some_and(|at| at <= now);
        let (owner, lane) = self.lanes.iter_mut().find(|(_, lane)| ready(lane))?;
        let mut keys = Vec::new();
        while let Some((at, key)) = lane.due.first().copied()
            && at <= soon
            && keys.len() < BATCH_MAX
        {
            lane.due.pop_first();
            keys.push((at, key));
        }
        Some((*owner, keys))
    }

    /// A batch goes to an owner. Returns its number and the time there and back so far.
    pub(crate) fn sent(
        &mut self,
        owner: NodeId,
        keys: Vec<(Instant, Lot)>,
        now: Instant,
    ) -> (u64, Duration) {
        self.batches += 1;
        let (batch, gap) = (self.batches, self.sync_interval / 2);
        let lane = self.lane(owner);
        lane.under_way = Some(UnderWay { batch, sent_at: now, keys });
        lane.in_vain = lane.in_vain.saturating_add(1);
        lane.unanswered.push_back((batch, now));
        if lane.unanswered.len() > UNANSWERED_MAX {
            lane.unanswered.pop_front();
        }
        lane.rests_until = lane.rests_until.max(now.saturating_add(gap));
        (batch, lane.round_trip)
    }

    /// A batch was answered. Returns what was in it, and when that was due, unless it was given up.
    pub(crate) fn answered(
        &mut self,
        owner: NodeId,
        batch: u64,
        now: Instant,
    ) -> Vec<(Instant, Lot)> {
        let Some(lane) = self.lanes.get_mut(&owner) else { return Vec::new() };
        let under_way = lane.under_way.take_if(|under_way| under_way.batch == batch);
        let keys = under_way.map(|under_way| under_way.keys).unwrap_or_default();
        let place = lane.unanswered.iter().position(|(unanswered, _)| *unanswered == batch);
        let Some(place) = place else { return keys };
        lane.in_vain = 0;
        let Some((_, sent_at)) = lane.unanswered.drain(..=place).next_back() else { return keys };
        let took = now.saturating_since(sent_at);
        lane.round_trip =
            if lane.round_trip.is_zero() { took } else { (lane.round_trip * 7 + took) / 8 };
        keys
    }

    /// An owner asks for a rest.
    pub(crate) fn rest(&mut self, owner: NodeId, until: Instant) {
        let lane = self.lane(owner);
        lane.rests_until = lane.rests_until.max(until);
    }

    /// All that was on its way belongs to another ring.
    pub(crate) fn clear(&mut self) {
        for lane in self.lanes.values_mut() {
            lane.due.clear();
            lane.under_way = None;
            lane.unanswered.clear();
            lane.rests_until = Instant::ZERO;
        }
        // Owners that are gone are forgotten with their round trips when nothing leads to them.
        if self.lanes.len() > LANES_MAX {
            self.lanes.clear();
        }
    }

    /// When something is due next.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.lanes.values().filter_map(|lane| lane.ready_at(self.sync_interval)).min()
    }

    fn lane(&mut self, owner: NodeId) -> &mut Lane {
        self.lanes.entry(owner).or_insert_with(|| Lane {
            due: BTreeSet::new(),
            unanswered: VecDeque::new(),
            under_way: None,
            in_vain: 0,
            rests_until: Instant::ZERO,
            round_trip: Duration::ZERO,
        })
    }
}

impl Lane {
    /// When the next batch may go, if there is anything for it.
    fn ready_at(&self, sync_interval: Duration) -> Option<Instant> {
        let (first, _) = self.due.first()?;
        let given_up = |under_way: &UnderWay| {
            // Longer and longer, as long as it is not known how far away the owner is: its answers
            // may come later than so many batches are remembered.
            let tries = if self.round_trip.is_zero() { self.in_vain as usize } else { 0 };
            let least = sync_interval.saturating_mul(2 << (tries / UNANSWERED_MAX).min(8));
            let patience = (self.round_trip * 3).max(least).min(PATIENCE_MAX);
            under_way.sent_at.saturating_add(patience)
        };
        let free = self.under_way.as_ref().map_or(Instant::ZERO, given_up);
        Some((*first).max(self.rests_until).max(free))
    }
}

/// Reports in one batch: 64 KiB of them.
const BATCH_MAX: usize = 512;
/// How long an answer is waited for at most.
const PATIENCE_MAX: Duration = Duration::from_millis(200);
/// Batches without an answer whose time of sending is remembered.
const UNANSWERED_MAX: usize = 16;
/// Owners that are remembered beyond a change of the ring.
const LANES_MAX: usize = 1_000;
