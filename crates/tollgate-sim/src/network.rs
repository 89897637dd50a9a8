//! Which ways are cut, and until when.

use std::collections::BTreeMap;

use crate::scenario::Nanos;

/// The cuts in force.
#[derive(Debug, Default)]
pub(crate) struct Cuts {
    /// From one node to another, or to all others.
    ways: BTreeMap<(u32, Option<u32>), Nanos>,
    /// Between a node and the coordinator.
    silent: BTreeMap<u32, Nanos>,
}

impl Cuts {
    pub(crate) fn cut(&mut self, from: u32, to: Option<u32>, until: Nanos) {
        let known = self.ways.entry((from, to)).or_default();
        *known = (*known).max(until);
    }

    pub(crate) fn silence(&mut self, node: u32, until: Nanos) {
        let known = self.silent.entry(node).or_default();
        *known = (*known).max(until);
    }

    pub(crate) fn is_cut(&self, from: u32, to: u32, now: Nanos) -> bool {
        let cut = |to| self.ways.get(&(from, to)).is_some_and(|until| now < *until);
        from != to && (cut(Some(to)) || cut(None))
    }

    pub(crate) fn is_silent(&self, node: u32, now: Nanos) -> bool {
        self.silent.get(&node).is_some_and(|until| now < *until)
    }
}
