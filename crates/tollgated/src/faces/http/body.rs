//! A request's body: read whole, within a size and a time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use super::problem::Problem;
use crate::net::Guard;

/// Reads a body that is to arrive within `time`.
pub(crate) async fn read(body: Incoming, guard: &Guard, time: Duration) -> Result<Bytes, Problem> {
    // What is announced too large is not waited for.
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(Problem::body_too_large());
    }
    let read = tokio::time::timeout(time, collect(body, guard)).await;
    guard.hold(0);
    read.unwrap_or_else(|_| Err(Problem::body_too_slow()))
}

async fn collect(mut body: Incoming, guard: &Guard) -> Result<Bytes, Problem> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        // A body that broke off has no one left to read the answer.
        let Ok(frame) = frame else { return Err(Problem::body_broken()) };
        let Ok(data) = frame.into_data() else { continue };
        if first.is_empty() && all.is_empty() {
            first = data; // Nearly always all of it.
        } else {
            if all.is_empty() {
                all.extend_from_slice(&first);
            }
            all.extend_from_slice(&data);
        }
        let length = first.len().max(all.len());
        if length > BODY_BYTES_MAX {
            return Err(Problem::body_too_large());
        }
        if !guard.hold(length) {
            return Err(Problem::busy("too many large requests are arriving at once"));
        }
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

/// Two of the longest values that a request may have.
pub(crate) const BODY_BYTES_MAX: usize = 2 << 20;
