//! Between a member's node and the cells of keys that nodes divide; and between it and streams,
//! which divide such keys as members of their own.

use tollgate::{Input, KeyId, ShareUsage};

use super::Driver;
use super::inquiries::NAME_BYTES_MAX;

impl Driver {
    /// Tells the node what was counted.
    pub(super) fn drain_shares(&mut self) {
        self.state.shares_drain_at = None;
        self.state.shares_drained_at = self.clock.now();
        let mut usages = Vec::new();
        self.shares.drain(|drained| usages.push(ShareUsage { drained }));
        for usage in usages {
            self.handle(Input::Shared(usage));
        }
    }

    /// Tells the node what streams have counted.
    pub(super) fn handle_streams(&mut self) {
        for input in self.shared.streams.take() {
            self.handle(input);
        }
        self.settle();
    }

    /// Lets a key's cell go, unless it was used. Returns whether it went.
    pub(super) fn evict_share(&mut self, key: KeyId, position: u64) -> bool {
        let gone = self.shares.evict(key, position) || !self.shares.has_cell(key);
        if gone {
            self.state.share_names.remove(&key);
        }
        gone
    }

    /// Keeps the names of keys that have a cell here.
    pub(super) fn take_share_names(&mut self) {
        for arrival in self.limiter.take_share_arrivals() {
            let bytes: usize = arrival.parts.iter().flatten().map(|part| part.len()).sum();
            if bytes <= NAME_BYTES_MAX && self.shares.has_cell(arrival.key) {
                self.state.share_names.insert(arrival.key, arrival.parts);
            }
        }
    }
}
