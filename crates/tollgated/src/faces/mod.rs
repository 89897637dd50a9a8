//! The doors: each knows its protocol and nothing else; all decisions are the service's.

mod body;
mod heard;
pub(crate) mod http;
pub(crate) mod grpc;
pub(crate) mod resp;

use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderValue};
use tollgate::mutant::lacks;
pub(crate) use tollgate_tokio::fields::wait;

use crate::app::App;
use crate::face::Face;
use crate::guard::{Guard, ticks};

/// The last word to a client for whom there is no room.
pub(crate) fn says_full(face: Face) -> &'static [u8] {
    match face {
        Face::Http => {
            b"HTTP/1.1 503 Service Unavailable\r\n\
              content-length: 0\r\nconnection: close\r\n\r\n"
        }
        // Whoever speaks HTTP/2 sees a connection that ends, and tries another.
        Face::Grpc => b"",
        Face::Resp => b"-ERR max number of clients reached\r\n",
    }
}

/// Whether a request shows the secret, if there is one to show.
pub(crate) fn is_admitted(headers: &HeaderMap, app: &App) -> bool {
    let Some(secret) = &app.secret else { return true };
    let shown = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let token = shown
        .and_then(|shown| shown.split_at_checked(BEARER.len()))
        .and_then(|(scheme, token)| scheme.eq_ignore_ascii_case(BEARER).then_some(token));
    token.is_some_and(|token| secret.is(token))
}

/// Whether a connection is to end with the answer that it gives now: it is old, or the process
/// ends.
fn is_last(app: &App, guard: &Guard) -> bool {
    let old = app.bounds.age.is_some_and(|age| guard.age() >= ticks(age));
    old || app.service.is_draining()
}

/// A wait in whole seconds, rounded up: whoever comes back earlier is denied.
pub(crate) fn seconds(wait: Duration) -> u64 {
    if lacks("seconds_rounded_down") {
        return wait.as_secs();
    }
    tollgate_tokio::fields::seconds(wait)
}

const BEARER: &[u8] = b"Bearer ";
/// Bytes of a request's head at most; beyond, the answer is 431.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Requests at once on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
