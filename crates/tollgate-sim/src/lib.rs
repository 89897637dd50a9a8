//! What a fleet under a limit will do, told before it runs.
//!
//! [`plan`] is arithmetic: from a limit and a fleet to what is promised and what it costs. [`plot`]
//! draws charts and puts them on one page. Nothing here opens a file, a socket or a clock.

mod number;
pub mod plan;
pub mod plot;

pub use number::{duration, number};
