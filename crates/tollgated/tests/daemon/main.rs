//! The promises of the daemon, one file each: every test starts the real binary and speaks to it
//! over sockets, as its clients do.
//!
//! No test knows how fast the machine is: rates are so slow that what is used stays used while a
//! test runs, and what is to happen is waited for.

mod bounds;
mod cases;
mod cli;
mod connections;
mod demo;
mod drain;
mod hostile_http;
mod hostile_resp;
mod http;
mod metrics;
mod places;
mod plan;
mod reload;
mod reservations;
mod resp;
mod sim;
mod stalled;
mod support;
mod tally;
