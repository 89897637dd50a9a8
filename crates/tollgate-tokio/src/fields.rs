//! Header fields that tell a client how it stands: the IETF's draft, and what came before it.
//!
//! Whole seconds, rounded up. `q` is the burst and `w` the time in which it comes back, so that
//! what remains is never above the quota.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use tollgate::{Decision, Retry};

/// How answers tell clients how they stand. `docs/protocol.md` shows each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldStyle {
    /// Not at all, but for `Retry-After`.
    None,
    /// `RateLimit` and `RateLimit-Policy`, as draft-ietf-httpapi-ratelimit-headers-08 and later.
    #[default]
    Ietf,
    /// `RateLimit-Limit`, `-Remaining` and `-Reset`, as its revision 03.
    Draft03,
    /// The same with `X-` before it.
    XDraft03,
    /// `X-RateLimit-*` with the reset as a Unix time, as GitHub has it.
    Github,
}

/// Adds the fields of a decision whose limit has this name.
///
/// A decision that names no limit adds none. `Retry-After` is there where waiting helps, and is at
/// least 1.
pub fn add(headers: &mut HeaderMap, decision: &Decision, name: &str, style: FieldStyle) {
    let retry = decision.retry_at();
    if let Some(retry) = wait(decision, retry) {
        headers.insert(RETRY_AFTER, number(seconds(retry).max(1)));
    }
    let (Some(_), Some(burst)) = (decision.limit(), decision.burst()) else { return };
    let standing = Standing {
        name,
        burst: burst.min(INTEGER_MAX),
        remaining: decision.remaining().unwrap_or(0).min(INTEGER_MAX),
        window: decision.refill_time().map(|time| seconds(time).clamp(1, INTEGER_MAX)),
        // A denied client wants to know when to come back, another when all is back.
        next: wait(decision, retry.or_else(|| decision.reset_at())),
    };
    standing.add(headers, style);
}

/// The time from a decision to what it says is later; none if it never comes.
#[must_use]
pub fn wait(decision: &Decision, until: Option<Retry>) -> Option<Duration> {
    match until? {
        Retry::At(at) => Some(at.saturating_since(decision.now())),
        Retry::Never => None,
    }
}

/// A wait in whole seconds, rounded up: whoever comes back earlier is denied. 1.2 s are 2.
#[must_use]
pub fn seconds(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000_000)).unwrap_or(u64::MAX)
}

/// How a client stands with the limit that decided.
struct Standing<'a> {
    name: &'a str,
    burst: u64,
    remaining: u64,
    /// Seconds in which the burst comes back; none when it does not.
    window: Option<u64>,
    next: Option<Duration>,
}

impl Standing<'_> {
    fn add(&self, headers: &mut HeaderMap, style: FieldStyle) {
        let Self { name, burst, remaining, window, next } = self;
        let next = next.map(|next| seconds(next).min(INTEGER_MAX));
        match style {
            FieldStyle::None => {}
            FieldStyle::Ietf => {
                let mut text = BytesMut::with_capacity(128);
                let policy = item(&mut text, name, ("q", *burst), ("w", *window));
                headers.insert(POLICY, policy);
                let standing = item(&mut text, name, ("r", *remaining), ("t", next));
                headers.insert(RATE_LIMIT, standing);
            }
            FieldStyle::Draft03 | FieldStyle::XDraft03 => {
                let names = if style == FieldStyle::Draft03 { &PLAIN } else { &PREFIXED };
                let window = window.map_or_else(String::new, |window| format!(";w={window}"));
                let limit = format!("{burst}, {burst}{window}");
                headers.insert(names[0].clone(), text_value(limit.into()));
                headers.insert(names[1].clone(), number(*remaining));
                if let Some(next) = next {
                    headers.insert(names[2].clone(), number(next));
                }
            }
            FieldStyle::Github => {
                headers.insert(PREFIXED[0].clone(), number(*burst));
                headers.insert(PREFIXED[1].clone(), number(*remaining));
                headers.insert(USED, number(burst - remaining));
                if let Some(next) = self.next {
                    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                    headers.insert(PREFIXED[2].clone(), number(seconds(now.saturating_add(next))));
                }
                headers.insert(RESOURCE, text_value(Bytes::copy_from_slice(name.as_bytes())));
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
