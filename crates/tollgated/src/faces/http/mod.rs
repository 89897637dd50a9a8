//! The HTTP door: JSON for programs, problems for mistakes (RFC 9457), header fields for clients.
//!
//! `connection` keeps a connection; `routes` knows what is asked.

mod admin;
mod ask;
mod connection;
mod decisions;
pub(crate) mod fields;
mod fleet;
mod nodes;
mod policy;
mod problem;
mod render;
mod reservations;
mod response;
mod routes;
mod shares;
mod tally;

pub(crate) use connection::serve;
pub(crate) use decisions::explanation;
#[cfg(fuzzing)]
pub(crate) use routes::post_all;
