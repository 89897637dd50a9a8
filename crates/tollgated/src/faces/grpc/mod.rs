//! The gRPC door: Envoy's rate-limit service, health, and reflection.
//!
//! `connection` keeps a connection, `stream` a call on it, `call` knows how calls look on the wire.
//! `rls` decides: what is asked is read in `request`, and how it stands is written in `status`.
//! `quota` is a stream of reports and assignments.

mod call;
mod connection;
mod health;
mod quota;
mod reflection;
mod request;
mod rls;
mod status;
mod stream;
#[cfg(test)]
mod tests;
mod wire;
#[cfg(test)]
mod wire_tests;

pub(crate) use connection::serve;
#[cfg(fuzzing)]
pub(crate) use quota::report_bytes;
#[cfg(fuzzing)]
pub(crate) use rls::answer_bytes;

/// The messages, made from the files in `proto`: health's, and those that tests hold `request` and
/// `status` to.
#[allow(dead_code, reason = "rate-limit requests are read without them")]
#[expect(unreachable_pub, clippy::all, reason = "it is not written by hand")]
mod proto {
    include!(concat!(env!("OUT_DIR"), "/proto.rs"));
}
