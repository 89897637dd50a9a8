//! The guarantee `share` in virtual time: nodes as they are, each with a limiter of its own and
//! driven as a member's task drives it, and a checker for each promise.
//!
//! [`run`] plays a [`Scenario`] and [`check`] judges what happened. It has seeds of its own.

mod scenario;
pub mod ledger;
mod fleet;
mod course;
pub mod check;
mod draw;
mod shrink;

pub use course::{Course, Stretch};
pub use draw::scenario;
pub use fleet::{Fleet, run};
pub use scenario::{Fault, Load, Scenario, Units};
pub use shrink::shrink;
