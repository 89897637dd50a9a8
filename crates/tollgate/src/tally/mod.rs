//! The arithmetic of the guarantee `tally`: windows of wall time, counted in a store that a fleet
//! shares, of which each node reads two now and then.
//!
//! What a key used lately is estimated from the counts of this window and of the one before it
//! ([`Window::estimate`]). Between two reads the estimate leaks as the limit does, and what a node
//! counts by itself comes on top ([`Window::admits`]). How often a key is read depends on how near
//! it is to its limit ([`Tier`]); where its counts lie in the store, and for how long, is pinned
//! ([`KeyName::counter`], [`Window::expires_at`]).
//!
//! What is written and read when is decided by a [`Worker`], a state machine. Nothing here knows a
//! clock or a store.

mod leak;
mod name;
mod tier;
mod window;
mod worker;

pub use leak::Leak;
pub use name::{KeyName, limit_prefix};
pub use tier::{Floor, Tier};
pub use window::{Estimate, Meets, WallTime, Window, WindowError};
pub use worker::{
    Count, Counted, DRIFT_BOUNDS, Histogram, Input, OnStale, Outcome, Output, STALENESS_BOUNDS,
    Wanted, Worker, WorkerCounts, WorkerOptions,
};
