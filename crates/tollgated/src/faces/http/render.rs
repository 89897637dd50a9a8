//! Answers as JSON, written straight into the bytes to send.
//!
//! Times are whole microseconds, rounded up: whoever sleeps that long is never early.

use tollgate::{Decision, Outcome, Retry};

use crate::faces::wait;
use crate::service::Service;

/// Writes a decision's members, without the braces around them.
pub(crate) fn write_decision(out: &mut Vec<u8>, decision: &Decision, service: &Service) {
    let allowed = decision.is_allowed();
    out.extend_from_slice(if allowed { b"\"allowed\":true" } else { b"\"allowed\":false" });
    if let Outcome::Denied(reason) = decision.outcome() {
        write_text(out, "reason", reason.as_str());
    }
    if let Some(limit) = decision.limit() {
        write_text(out, "limit", service.label(limit).name());
    }
    write_number(out, "burst", decision.burst());
    write_number(out, "remaining", decision.remaining());
    let micros = |until: Option<Retry>| {
        let micros = wait(decision, until)?.as_nanos().div_ceil(1_000);
        Some(u64::try_from(micros).unwrap_or(u64::MAX))
    };
    match decision.retry_at() {
        Some(Retry::Never) => out.extend_from_slice(b",\"never\":true"),
        retry => write_number(out, "retry_us", micros(retry)),
    }
    write_number(out, "reset_us", micros(decision.reset_at()));
    if let Some(shadow) = decision.shadow_denied_by() {
        write_text(out, "shadow_denied_by", service.label(shadow).name());
    }
}

/// `,"name":"text"`; a text of letters that need no escapes.
fn write_text(out: &mut Vec<u8>, name: &str, text: &str) {
    write_name(out, name);
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

fn write_number(out: &mut Vec<u8>, name: &str, number: Option<u64>) {
    if let Some(number) = number {
        write_name(out, name);
        out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }
}

fn write_name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}
