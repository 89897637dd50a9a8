//! What is added to a store, and what became of it. It knows neither server nor connection.

/// Units that are added to a counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addition {
    /// The counter.
    pub name: String,
    /// How many.
    pub units: i64,
    /// When the counter expires, in seconds of Unix time. It is set with each addition, so that a
    /// counter without an expiry gets one, and none lives longer for being written late.
    pub expires_at: u64,
}

/// What became of one addition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The store has it.
    Done,
    /// The store surely does not have it; it may be tried again.
    NotSent,
    /// The store surely does not have it and never will: the counter is no number, or would become
    /// too large.
    Refused,
    /// The store may have it, so it must never be sent again.
    Unknown,
}
