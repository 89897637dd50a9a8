//! A fleet in virtual time: the product's own state machines, one seed, all that can go wrong, and
//! a checker for each promise.
//!
//! [`run`] plays a [`scenario`], and [`check`] judges what happened; [`directed`] has schedules
//! that chance seldom finds, and [`tally`] and [`share`] do all of that for fleets that
//! count in stores, and for those that divide a limit.
//! [`plan`] is arithmetic: from a limit and a fleet to what is promised and what it costs. [`plot`]
//! draws charts and puts them on one page, and [`show`] does so with a run. Nothing here opens a
//! file, a socket or a clock.

mod chance;
mod number;
pub mod plot;
pub mod plan;
pub mod scenario;
mod network;
pub mod ledger;
mod machine;
mod control;
mod cluster;
pub mod check;
mod shrink;
pub mod tally;
pub mod share;
pub mod directed;
pub mod draw;
pub mod show;
pub mod rivals;
pub mod papers;

pub use chance::Chance;
pub use cluster::{key_owned_in_turn, owner_among, owner_of, run, watch};
pub use number::{duration, number};
pub use shrink::shrink;
