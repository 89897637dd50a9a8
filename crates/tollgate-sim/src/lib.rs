//! A fleet in virtual time: the product's own state machines, one seed, all that can go wrong, and
//! a checker for each promise.
//!
//! [`run`] plays a [`scenario`], and [`check`] judges what happened. [`plan`] is arithmetic: from a
//! limit and a fleet to what is promised and what it costs. [`plot`] draws charts and puts them on
//! one page. Nothing here opens a file, a socket or a clock.

mod chance;
pub mod check;
mod cluster;
mod control;
pub mod draw;
pub mod ledger;
mod machine;
mod network;
mod number;
pub mod plan;
pub mod plot;
pub mod scenario;
pub mod rivals;
pub mod papers;

pub use chance::Chance;
pub use cluster::run;
pub use number::{duration, number};
