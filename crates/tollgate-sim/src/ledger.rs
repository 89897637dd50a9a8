//! What really happened: every admission in true time, and what was offered.

use std::collections::BTreeMap;

use tollgate::{Event, KeyId, NodeCounts};

use crate::scenario::{Fault, Nanos};

/// One admitted request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admission {
    /// When.
    pub at: Nanos,
    /// Under which limit, by its place in the scenario.
    pub limit: usize,
    /// Which key of it.
    pub key: u32,
    /// On which node.
    pub node: u32,
    /// What it cost.
    pub cost: u64,
    /// What of that was given back later.
    pub refunded: u64,
}

impl Admission {
    /// What it spent in the end.
    #[must_use]
    pub fn net(&self) -> u64 {
        self.cost - self.refunded
    }
}

/// What was asked of one key on one node, in units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offered {
    /// All of it.
    pub units: u64,
    /// What was refused, or gave up waiting.
    pub refused: u64,
    /// What was refused because nothing was permitted at that instant.
    pub stale: u64,
}

/// A change of a limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// When it was decided.
    pub at: Nanos,
    /// Which limit.
    pub limit: usize,
    /// R from then on; as before, if it was taken away.
    pub rate: tollgate::Rate,
    /// B from then on; as before, if it was taken away.
    pub burst: u64,
    /// Whether it was taken away.
    pub is_removal: bool,
}

/// Who was in charge of a key, and from when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InCharge {
    /// When it was seen.
    pub at: Nanos,
    /// The node.
    pub node: u32,
    /// By which ring.
    pub ring_epoch: u64,
}

/// All that happened in a run.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// In the order of time.
    pub admissions: Vec<Admission>,
    /// By limit, key and node.
    pub offered: BTreeMap<(usize, u32, u32), Offered>,
    /// First contacts, by limit.
    pub contacts: Vec<u64>,
    /// Changes of limits, the first of each at 0.
    pub changes: Vec<Change>,
    /// What nodes told.
    pub events: Vec<(Nanos, u32, Event)>,
    /// Two nodes that answered reports of a key under the same ring epoch.
    pub double_owners: Vec<(Nanos, KeyId, u32, u32)>,
    /// Messages between nodes, and entries in them.
    pub messages: u64,
    /// As said for `messages`.
    pub entries: u64,
    /// What each process did until its end.
    pub counts: Vec<(u32, NodeCounts)>,
    /// What differs after the fleet has rested, in words.
    pub unsettled: Vec<String>,
    /// Events of the run.
    pub steps: u64,
    /// What went wrong, with the nodes that were hit.
    pub faults: Vec<(Nanos, Fault)>,
    /// What was asked and sent over time, if it was watched.
    pub samples: Samples,
}

/// What was asked and sent, in equal parts of the time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Samples {
    /// How long a part is; 0 if nothing is sampled.
    pub every: Nanos,
    /// Units that were asked in each part, by limit and key; none after the last.
    pub offered: BTreeMap<(usize, u32), Vec<u64>>,
    /// Messages between nodes that were sent in each part; none after the last.
    pub messages: Vec<u64>,
}

impl Samples {
    /// So many units are asked of a key.
    pub(crate) fn ask(&mut self, limit: usize, key: u32, units: u64, at: Nanos) {
        if let Some(part) = at.checked_div(self.every) {
            add(self.offered.entry((limit, key)).or_default(), part, units);
        }
    }

    /// A message is sent.
    pub(crate) fn send(&mut self, at: Nanos) {
        if let Some(part) = at.checked_div(self.every) {
            add(&mut self.messages, part, 1);
        }
    }
}

/// Adds to a part's count; parts begin at 0.
pub(crate) fn add(parts: &mut Vec<u64>, part: u64, count: u64) {
    let part = part as usize;
    if parts.len() <= part {
        parts.resize(part + 1, 0);
    }
    parts[part] += count;
}
