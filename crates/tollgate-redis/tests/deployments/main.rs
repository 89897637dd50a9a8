//! Stores on real servers, which the tests start on the loopback and kill.

mod proxy;
mod server;
mod node;
mod process;
mod access;
mod cluster;
mod counts;
mod exact;
mod memory;
mod outages;
mod replicas;
mod tasks;
mod tls;
mod unknown;
