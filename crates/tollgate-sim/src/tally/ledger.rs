//! What really happened in a run: each request in true time, what nodes counted, what they read.

use tollgate::tally::WorkerCounts;

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
}

/// What a node found in one of its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drain {
    /// When.
    pub at: Nanos,
    /// Of which key.
    pub key: u32,
    /// On which node.
    pub node: u32,
    /// In which window it is counted.
    pub number: u64,
    /// Units that count.
    pub counted: u64,
    /// Units that passed.
    pub admitted: u64,
    /// When the last of those did.
    pub last_at: Nanos,
}

/// What a node read of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// When it asked.
    pub sent_at: Nanos,
    /// When it had the answer.
    pub at: Nanos,
    /// Of which key.
    pub key: u32,
    /// Which node.
    pub node: u32,
    /// The number of the window by its clock; the previous one's is one less.
    pub number: u64,
    /// How far into the window it was by its clock.
    pub elapsed: Nanos,
    /// What the store had in the previous window, and in this one.
    pub stored: (u64, u64),
}

/// All that happened.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// In the order of time.
    pub asks: Vec<Ask>,
    /// In the order of time.
    pub drains: Vec<Drain>,
    /// In the order of time.
    pub reads: Vec<Read>,
    /// When each node had been without an answer of a store for so long that it judges as limits
    /// say of outages: as often as it did anything then.
    pub cut_off: Vec<Vec<Nanos>>,
    /// What stores were ever made to add: key, window's number, units.
    pub added: Vec<(u32, u64, u64)>,
    /// What each node did.
    pub counts: Vec<WorkerCounts>,
    /// Counts that each node had waiting in the end.
    pub waiting: Vec<usize>,
    /// Commands that nodes sent, and keys in them: writes, then reads.
    pub commands: [(u64, u64); 2],
    /// Events of the run.
    pub steps: u64,
}

impl Ledger {
    /// The units of a key that passed from an instant on, before another.
    #[must_use]
    pub fn admitted(&self, key: u32, from: Nanos, until: Nanos) -> u64 {
        let is_in = |ask: &&Ask| ask.key == key && from <= ask.at && ask.at < until;
        self.asks.iter().filter(is_in).filter(|ask| ask.passed).map(|ask| ask.cost).sum()
    }
}

/// The most units in any time of this length, of those that an ask's `units` are counted in, and
/// where that time ends.
pub(super) fn most_in<'a>(
    asks: impl Iterator<Item = &'a Ask> + Clone,
    length: Nanos,
    units: impl Fn(&Ask) -> u64,
) -> (u64, Nanos) {
    let (mut sum, mut most) = (0, (0, 0));
    let mut oldest = asks.clone();
    let mut first = oldest.next();
    for ask in asks {
        sum += units(ask);
        while let Some(old) = first
            && old.at + length <= ask.at
        {
            sum -= units(old);
            first = oldest.next();
        }
        most = most.max((sum, ask.at));
    }
    most
}
