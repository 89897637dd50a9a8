//! The promises of a fleet of daemons: every test starts real ones on this machine and speaks to
//! them over sockets, as their clients do.
//!
//! No test knows how fast the machine is: what is to happen is waited for, and what the fleet let
//! pass is held against the stamps of its decisions.

mod grpc;
mod harness;
mod limits;
mod members;
mod nodes;
mod processes;
mod telling;

#[path = "../daemon/http.rs"]
#[allow(dead_code, reason = "the daemon's own tests use the rest")]
mod http;
#[path = "../daemon/limit_story.rs"]
mod limit_story;
#[path = "../daemon/resp.rs"]
#[allow(dead_code, reason = "the daemon's own tests use the rest")]
mod resp;
#[path = "../daemon/support.rs"]
#[allow(dead_code, reason = "the daemon's own tests use the rest")]
mod support;
