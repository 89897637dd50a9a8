//! Stores on real servers, which the tests start on the loopback and kill.

mod proxy;
mod server;
mod node;
mod process;
mod access;
mod cases;
mod cluster;
mod counts;
mod exact;
mod fleet;
mod memory;
mod outages;
mod replicas;
mod several;
mod tasks;
mod tls;
mod troubles;
mod unknown;
