//! The guarantee `tally` in virtual time: nodes as they are, stores that are modelled with all that
//! goes wrong with them, and a checker for each promise.
//!
//! [`run`] plays a [`Scenario`] and [`check`] judges what happened. It has seeds of its own.

pub mod ledger;
mod store;
mod scenario;
mod fleet;
pub mod check;
mod draw;
mod shrink;

pub use draw::scenario;
pub use fleet::{Fleet, run};
pub use scenario::{Demand, Fault, Scenario, Way};
pub use shrink::shrink;
