//! Between a member's node and its cells: what they hold is told, what the node permits is written,
//! and those who wait for it are called.

use tollgate::{Charged, Drained, FleetLimitId, Input, KeyId, Patience, Permit, Usage};

use super::{DRAIN_GAP, Driver};
use crate::keys::KeyParts;
use crate::waiting::Prospect;

/// What is kept of a key besides its cell.
#[derive(Debug, Default)]
pub(super) struct Kept {
    drained: Option<Drained>,
    /// Where its cell began, until the node is told.
    base: Option<u64>,
    /// What the key is made of, once it is known.
    pub(super) parts: Option<KeyParts>,
    returned: u64,
    /// The first that waits, as the node was told.
    told_first: Option<(u64, Patience)>,
    /// The last turn of drains in which the node was told of it.
    told_in: u64,
}

impl Kept {
    /// The key's limit, once its cell was drained.
    pub(super) fn limit(&self) -> Option<FleetLimitId> {
        self.drained.map(|drained| drained.limit)
    }

    /// What the node is told of a key, and of the first that waits for it.
    fn usage(&mut self, drained: Drained, first: Option<(u64, Patience)>, turn: u64) -> Usage {
        (self.drained, self.told_first, self.told_in) = (Some(drained), first, turn);
        let returned = std::mem::take(&mut self.returned);
        let drained = Drained { base: self.base.take().or(drained.base), ..drained };
        Usage {
            limit: drained.limit,
            drained,
            returned,
            waiting: first.map_or(0, |(cost, _)| cost),
            is_brief: matches!(first, Some((_, Patience::Word))),
            refused: drained.refused,
        }
    }

    /// Whether nobody is known yet for whom a new cell was made: whoever waits takes a place in its
    /// queue right after that.
    fn is_unasked(&self, drained: &Drained, first: Option<(u64, Patience)>) -> bool {
        drained.base == Some(drained.taken) && drained.denied == 0 && first.is_none()
    }
}

impl Driver {
    /// Tells the node what its cells hold, until there is nothing new.
    pub(super) fn drain(&mut self) {
        self.state.drains_at = None;
        let now = self.clock.now();
        self.state.drained_at = now;
        let mut unasked = std::mem::take(&mut self.state.unasked);
        while let Some((_, key)) =
            unasked.pop_front_if(|(since, _)| now.saturating_since(*since) >= DRAIN_GAP)
        {
            self.state.to_tell.push(key);
        }
        // Ends: what a node writes into a cell in answer to what the cell holds, it writes once.
        loop {
            let mut usages: Vec<Usage> = Vec::new();
            self.state.turn += 1;
            let turn = self.state.turn;
            let (keys, waiting) = (&mut self.state.keys, &self.waiting);
            // What is returned while these are told is told with the next drain.
            self.credits.drain(now, |drained| {
                let kept = keys.entry(drained.key).or_default();
                let first = waiting.first(drained.key);
                if kept.is_unasked(&drained, first) {
                    // What its owner hears first is to have in it what is asked.
                    (kept.drained, kept.base) = (Some(drained), drained.base);
                    unasked.push_back((now, drained.key));
                } else {
                    usages.push(kept.usage(drained, first, turn));
                }
            });
            for key in std::mem::take(&mut self.state.to_tell) {
                let Some(kept) = keys.get_mut(&key).filter(|kept| kept.told_in < turn) else {
                    continue;
                };
                let Some(last) = kept.drained else { continue };
                let drained = Drained { base: None, refund: None, refused: 0, ..last };
                // What was returned since is not among what was taken then.
                let returned = std::mem::take(&mut kept.returned);
                usages.push(kept.usage(drained, waiting.first(key), turn));
                kept.returned = returned;
            }
            if usages.is_empty() {
                break;
            }
            for usage in usages {
                self.handle(Input::Usage(usage));
            }
        }
        if let Some((since, _)) = unasked.front() {
            self.state.drains_at = Some(since.saturating_add(DRAIN_GAP));
        }
        self.state.unasked = unasked;
    }

    /// Others are first in some queues than the node knows.
    pub(super) fn handle_waiting(&mut self) {
        for key in self.waiting.take_changed() {
            self.call(key);
            self.tell_if_changed(key);
        }
        self.settle();
    }

    /// Writes a permission into a key's cell, and calls those who may go on now.
    pub(super) fn permit(&mut self, key: KeyId, permit: &Permit) {
        if let Some((sampled, ttl)) = self.state.sample
            && sampled == key
        {
            let left = permit.deadline.saturating_since(self.clock.now());
            self.shared.snapshot_delays.count(ttl.saturating_sub(left));
            self.state.sample = None;
        }
        let Some(kept) = self.state.keys.get_mut(&key) else { return };
        kept.returned += self.credits.permit(key, permit).unwrap_or(0);
        self.call(key);
        self.tell_if_changed(key);
    }

    /// Lets a key's cell go, unless somebody waits for it or it was used. Returns whether it went.
    pub(super) fn evict(&mut self, key: KeyId, taken: u64) -> bool {
        let gone = self.waiting.first(key).is_none() && self.credits.evict(key, taken);
        if gone {
            self.state.keys.remove(&key);
        }
        gone
    }

    fn call(&self, key: KeyId) {
        let now = self.clock.now();
        self.waiting.call(key, |cost| match self.credits.peek(key, cost, now) {
            Charged::Allowed { .. } => Prospect::Permitted,
            Charged::OverLimit { .. } if !self.credits.may_come(key, cost, now) => Prospect::NoRoom,
            Charged::OverLimit { .. } | Charged::Stale { .. } | Charged::Full => Prospect::MayCome,
        });
    }

    fn tell_if_changed(&mut self, key: KeyId) {
        let told = self.state.keys.get(&key).map(|kept| kept.told_first);
        if told.is_some_and(|told| told != self.waiting.first(key)) {
            self.state.to_tell.push(key);
        }
    }
}
