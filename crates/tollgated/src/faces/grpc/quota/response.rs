//! A `RateLimitQuotaResponse`, written straight into the bytes to send: what is said of each bucket
//! is one action of it.
//!
//! An assignment always has a TTL and a strategy, since Envoy (1.40) takes one without a TTL for
//! one that has ended, and passes over one without a strategy.

use bytes::{BufMut, BytesMut};

use crate::faces::grpc::wire::{message, number, text};
use crate::quota::{Action, Said, Strategy, TokenBucket};

/// Writes an action.
pub(super) fn write(said: &Said, out: &mut BytesMut) {
    message(out, 1, |out| {
        message(out, 1, |out| {
            for (name, value) in said.id.entries() {
                message(out, 1, |out| {
                    text(out, 1, name);
                    text(out, 2, value);
                });
            }
        });
        match said.action {
            Action::Assign { strategy, ttl_seconds, is_new: _ } => message(out, 2, |out| {
                write_seconds(out, 2, ttl_seconds);
                message(out, 3, |out| write_strategy(strategy, out));
            }),
            Action::Abandon => message(out, 3, |_| {}),
        }
    });
}

fn write_strategy(strategy: Strategy, out: &mut BytesMut) {
    match strategy {
        // Of several that may be there a number says which it is, 0 too.
        Strategy::AllowAll => out.put_slice(&[BLANKET_RULE, 0]),
        Strategy::DenyAll => out.put_slice(&[BLANKET_RULE, 1]),
        Strategy::TokenBucket(TokenBucket { max_tokens, tokens_per_fill, fill_seconds }) => {
            message(out, 3, |out| {
                number(out, 1, u64::from(max_tokens));
                message(out, 2, |out| number(out, 1, u64::from(tokens_per_fill)));
                write_seconds(out, 3, fill_seconds);
            });
        }
    }
}

/// Writes a duration of whole seconds.
fn write_seconds(out: &mut BytesMut, field: u8, seconds: u32) {
    message(out, field, |out| number(out, 1, u64::from(seconds)));
}

/// Field 1, a number.
const BLANKET_RULE: u8 = 1 << 3;
