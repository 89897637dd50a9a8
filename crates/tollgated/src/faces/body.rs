//! A request's body: read whole, within a size and a time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;

use crate::guard::Guard;

/// Why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// It has more bytes than are read here.
    TooLarge {
        /// How many are.
        most: usize,
    },
    /// It did not arrive in time.
    TooSlow,
    /// It broke off; nobody is left to read the answer.
    Broken,
    /// Too many large ones are arriving at once.
    Busy,
}

/// Reads a body of at most `most` bytes (16 MiB or less) that is to arrive within `time`. `waits`
/// is whether the client sends nothing before it is told to go on.
///
/// # Errors
/// [`BodyError`].
pub(crate) async fn read<B: Body<Data = Bytes> + Unpin>(
    body: B,
    guard: &Guard,
    most: usize,
    time: Duration,
    waits: bool,
) -> Result<Bytes, BodyError> {
    let announced = body.size_hint().lower();
    let read_at_most = if waits { most } else { PASSED_OVER_BYTES_MAX };
    if announced > read_at_most as u64 {
        return Err(BodyError::TooLarge { most });
    }
    let read = tokio::time::timeout(time, collect(body, guard, most)).await;
    read.unwrap_or_else(|_| Err(BodyError::TooSlow))
}

async fn collect<B: Body<Data = Bytes> + Unpin>(
    mut body: B,
    guard: &Guard,
    most: usize,
) -> Result<Bytes, BodyError> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    let mut held = guard.hold_nothing();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Err(BodyError::Broken) };
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
        if length > most {
            drop((first, all));
            pass_over(body).await;
            return Err(BodyError::TooLarge { most });
        }
        if !held.hold(length) {
            return Err(BodyError::Busy);
        }
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

/// Reads on for a while and keeps nothing: many clients read no answer before they have sent all.
async fn pass_over<B: Body<Data = Bytes> + Unpin>(mut body: B) {
    let mut passed = 0;
    while passed < PASSED_OVER_BYTES_MAX
        && let Some(Ok(frame)) = body.frame().await
    {
        passed += frame.data_ref().map_or(0, Bytes::len);
    }
}

/// Two of the longest values that a request may have.
pub(crate) const BODY_BYTES_MAX: usize = 2 << 20;
/// A policy as long as a policy file; the fleet keeps 8 MiB of it, which JSON may say at length.
pub(crate) const POLICY_BYTES_MAX: usize = 16 << 20;
const PASSED_OVER_BYTES_MAX: usize = 16 << 20;

const _: () = assert!(POLICY_BYTES_MAX <= PASSED_OVER_BYTES_MAX, "what is read is not passed over");
