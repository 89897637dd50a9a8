//! The HTTP door: JSON for programs, problems for mistakes (RFC 9457), header fields for clients.
//!
//! `routes` knows what is asked; connections are kept as those of any door that stands on HTTP.

mod admin;
mod ask;
mod decisions;
pub(crate) mod fields;
mod problem;
mod render;
mod reservations;
mod response;
mod routes;

pub(crate) use decisions::explanation;
pub(crate) use routes::answer;
#[cfg(fuzzing)]
pub(crate) use routes::post_all;
