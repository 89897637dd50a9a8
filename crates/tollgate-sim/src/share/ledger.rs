//! What really happened in a run of `share`, in true time: each request, by what each node decided,
//! and who heard whom.

use tollgate::DivisionCounts;

use super::scenario::Units;
use crate::scenario::Nanos;

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// When.
    pub at: Nanos,
    /// Of which key.
    pub key: u32,
    /// On which node.
    pub node: u32,
    /// What it costs.
    pub cost: u64,
    /// Whether it passed.
    pub passed: bool,
    /// Whether it was denied before.
    pub again: bool,
}

/// By what a node decides about a key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum By {
    /// It has no cell, or is no process.
    Nothing,
    /// An equal part.
    Equal,
    /// What the key's owner gave.
    Owner,
}

/// What a node has of a key from now on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct State {
    /// When.
    pub at: Nanos,
    /// Of which key.
    pub key: u32,
    /// Which node.
    pub node: u32,
    /// By what it decides.
    pub by: By,
    /// Units a second and at once, by an equal part.
    pub local: (f64, u64),
    /// The same by what the owner gave, if it ever did.
    pub global: Option<(f64, u64)>,
    /// Full buckets that came into being with it: units at once.
    pub fresh: u64,
}

impl State {
    /// Units a second that it admits.
    #[must_use]
    pub fn rate(&self) -> f64 {
        match (self.by, self.global) {
            (By::Nothing, _) => 0.0,
            (By::Owner, Some((rate, _))) => rate,
            (By::Equal | By::Owner, _) => self.local.0,
        }
    }
}

/// A report that its key's owner took in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// When.
    pub at: Nanos,
    /// Of which key.
    pub key: u32,
    /// From whom.
    pub from: u32,
    /// By whom.
    pub by: u32,
}

/// What passed between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Messages with reports, and reports in them.
    pub reports: (u64, u64),
    /// Messages that answer them, and parts in them.
    pub answers: (u64, u64),
    /// Messages that nobody asked for, and parts in them.
    pub pushes: (u64, u64),
}

/// All that happened.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// In the order of time.
    pub asks: Vec<Ask>,
    /// In the order of time.
    pub states: Vec<State>,
    /// In the order of time.
    pub heard: Vec<Heard>,
    /// Answers and pushes that came to members: `from` an owner, `by` a member.
    pub told: Vec<Heard>,
    /// When each node heard of another ring, and how many members it has.
    pub rings: Vec<(Nanos, u32, u64)>,
    /// When the coordinator had decided each.
    pub decided: Vec<Nanos>,
    /// When each node heard of other limits, and what a key has by them.
    pub rules: Vec<(Nanos, u32, Units)>,
    /// What went wrong, on whom, and when.
    pub faults: Vec<(Nanos, super::scenario::Fault)>,
    /// When processes ended.
    pub ended: Vec<(Nanos, u32)>,
    /// What passed between nodes; what a node tells itself is none of it.
    pub traffic: Traffic,
    /// What each process did as an owner.
    pub counts: Vec<(u32, DivisionCounts)>,
    /// Answers that could not be true.
    pub insane: u64,
    /// Events of the run.
    pub steps: u64,
}

impl Ledger {
    /// Units of a key, of those that `which` names, from an instant on and before another.
    #[must_use]
    pub fn units(&self, from: Nanos, until: Nanos, which: impl Fn(&Ask) -> bool) -> u64 {
        let (first, last) = (self.place(from), self.place(until));
        self.asks[first..last.max(first)].iter().filter(|ask| which(ask)).map(|ask| ask.cost).sum()
    }

    /// Units of a key that passed, from an instant on and before another.
    #[must_use]
    pub fn admitted(&self, key: u32, from: Nanos, until: Nanos) -> u64 {
        self.units(from, until, |ask| ask.key == key && ask.passed)
    }

    /// The same on one node.
    #[must_use]
    pub fn admitted_by(&self, node: u32, key: u32, from: Nanos, until: Nanos) -> u64 {
        self.units(from, until, |ask| ask.key == key && ask.node == node && ask.passed)
    }

    /// Units of a key that were asked for on a node, those that were asked for again once.
    #[must_use]
    pub fn offered_by(&self, node: u32, key: u32, from: Nanos, until: Nanos) -> u64 {
        self.units(from, until, |ask| ask.key == key && ask.node == node && !ask.again)
    }

    /// What a node had of a key at an instant.
    #[must_use]
    pub fn state(&self, node: u32, key: u32, at: Nanos) -> Option<&State> {
        let until = self.states.partition_point(|state| state.at <= at);
        self.states[..until].iter().rev().find(|state| (state.node, state.key) == (node, key))
    }

    fn place(&self, at: Nanos) -> usize {
        self.asks.partition_point(|ask| ask.at < at)
    }
}
