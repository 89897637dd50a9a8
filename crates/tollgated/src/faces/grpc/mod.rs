//! The gRPC door: Envoy's rate-limit service, health, and reflection.
//!
//! `connection` keeps a connection, `stream` a call on it, `call` knows how calls look on the wire;
//! the others answer.

mod call;
mod connection;
mod health;
mod reflection;
mod rls;
mod stream;
#[cfg(test)]
mod tests;

pub(crate) use connection::serve;
#[cfg(fuzzing)]
pub(crate) use rls::answer_bytes;

/// The messages, made from the files in `proto`.
#[expect(unreachable_pub, clippy::all, reason = "it is not written by hand")]
mod proto {
    include!(concat!(env!("OUT_DIR"), "/proto.rs"));
}
