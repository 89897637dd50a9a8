//! Header fields that tell a client how it stands: the IETF's draft, and what came before it.
//!
//! Whole seconds, rounded up. `q` is the burst and `w` the time in which it comes back, so that
//! what remains is never above the quota.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue, RETRY_AFTER};
use tollgate::Decision;

use crate::app::HeaderStyle;
use crate::faces::{seconds, wait};
use crate::service::{Label, Service};

/// Adds the fields of a decision.
pub(crate) fn add(
    headers: &mut HeaderMap,
    decision: &Decision,
    service: &Service,
    style: HeaderStyle,
) {
    let retry = decision.retry_at();
    if let Some(retry) = wait(decision, retry) {
        headers.insert(RETRY_AFTER, number(seconds(retry).max(1)));
    }
    let (Some(limit), Some(burst)) = (decision.limit(), decision.burst()) else { return };
    let standing = Standing {
        label: service.label(limit),
        burst: burst.min(INTEGER_MAX),
        remaining: decision.remaining().unwrap_or(0).min(INTEGER_MAX),
        window: decision.refill_time().map(|time| seconds(time).clamp(1, INTEGER_MAX)),
        // A denied client wants to know when to come back, another when all is back.
        next: wait(decision, retry.or_else(|| decision.reset_at())),
    };
    standing.add(headers, style);
}

/// How a client stands with the limit that decided.
struct Standing {
    label: Arc<Label>,
    burst: u64,
    remaining: u64,
    /// Seconds in which the burst comes back; none when it does not.
    window: Option<u64>,
    next: Option<Duration>,
}

impl Standing {
    fn add(&self, headers: &mut HeaderMap, style: HeaderStyle) {
        let Self { label, burst, remaining, window, next } = self;
        let next = next.map(|next| seconds(next).min(INTEGER_MAX));
        match style {
            HeaderStyle::None => {}
            HeaderStyle::Ietf => {
                let mut text = BytesMut::with_capacity(128);
                let policy = item(&mut text, label.name(), ("q", *burst), ("w", *window));
                headers.insert(POLICY, policy);
                let standing = item(&mut text, label.name(), ("r", *remaining), ("t", next));
                headers.insert(RATE_LIMIT, standing);
            }
            HeaderStyle::Draft03 | HeaderStyle::XDraft03 => {
                let names = if style == HeaderStyle::Draft03 { &PLAIN } else { &PREFIXED };
                let window = window.map_or_else(String::new, |window| format!(";w={window}"));
                let limit = format!("{burst}, {burst}{window}");
                headers.insert(names[0].clone(), text_value(limit.into()));
                headers.insert(names[1].clone(), number(*remaining));
                if let Some(next) = next {
                    headers.insert(names[2].clone(), number(next));
                }
            }
            HeaderStyle::Github => {
                headers.insert(PREFIXED[0].clone(), number(*burst));
                headers.insert(PREFIXED[1].clone(), number(*remaining));
                headers.insert(USED, number(burst - remaining));
                if let Some(next) = self.next {
                    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                    headers.insert(PREFIXED[2].clone(), number(seconds(now.saturating_add(next))));
                }
                let name = Bytes::copy_from_slice(label.name().as_bytes());
                headers.insert(RESOURCE, text_value(name));
            }
        }
    }
}

fn number(value: u64) -> HeaderValue {
    HeaderValue::from(value)
}

/// `"name";letter=value`, with another parameter if it has a value. Written by hand: it is on the
/// way of every answer.
fn item(
    text: &mut BytesMut,
    name: &str,
    (letter, value): (&str, u64),
    (other, second): (&str, Option<u64>),
) -> HeaderValue {
    text.extend_from_slice(b"\"");
    text.extend_from_slice(name.as_bytes());
    text.extend_from_slice(b"\"");
    for (letter, value) in [(letter, Some(value)), (other, second)] {
        let Some(value) = value else { continue };
        text.extend_from_slice(b";");
        text.extend_from_slice(letter.as_bytes());
        text.extend_from_slice(b"=");
        text.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }
    text_value(text.split().freeze())
}

fn text_value(text: Bytes) -> HeaderValue {
    // Limits' names are letters, digits and a few signs; anything else would be dropped.
    HeaderValue::from_maybe_shared(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const PLAIN: [HeaderName; 3] = [
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-reset"),
];
const PREFIXED: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];
const USED: HeaderName = HeaderName::from_static("x-ratelimit-used");
const RESOURCE: HeaderName = HeaderName::from_static("x-ratelimit-resource");
/// The largest integer of a structured field (RFC 9651).
const INTEGER_MAX: u64 = 999_999_999_999_999;
