//! A fleet in virtual time: the product's own state machines, one seed, all that can go wrong, and
//! a checker for each promise.

mod chance;
pub mod check;
mod cluster;
mod control;
pub mod draw;
pub mod ledger;
mod machine;
mod network;
pub mod scenario;

pub use chance::Chance;
pub use cluster::run;
