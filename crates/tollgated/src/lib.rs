//! The daemon and command line of tollgate.
//!
//! Faces speak protocols and ask the one `service`; `net` keeps their connections; `policy` puts
//! what `config` reads in force; `cli` is what people type. Each module uses the ones above it.

mod config;
pub mod coordinator;
mod face;
mod metrics;
mod stamp;
mod quota;
mod service;
mod policy;
mod agreement;
mod overview;
mod fleet;
mod tally;
mod division;
mod shares;
mod exposition;
mod app;
mod guard;
mod faces;
mod net;
mod cli;

pub use cli::run;

#[cfg(fuzzing)]
pub mod fuzzing;
