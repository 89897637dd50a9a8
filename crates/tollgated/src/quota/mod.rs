//! Quotas: what becomes of buckets that a client on a stream uses by assignment.
//!
//! Envoy's rate-limit quota service, without its bytes: a stream reports what its buckets used, a
//! [`Divider`] says what part of their limits each has, and [`QuotaStream`] decides what is told
//! the client when. The protocol's messages are the face's; how a limit is divided among streams is
//! the divider's.

mod account;
mod bucket;
mod bucket_id;
mod divider;
mod mailbox;
mod strategy;
mod stream;
#[cfg(test)]
mod tests;

pub(crate) use account::Account;
#[cfg(any(test, fuzzing))]
pub(crate) use divider::Told;
pub(crate) use divider::{Divider, Part, StreamId, TooMany, Usage};
pub(crate) use mailbox::{Letters, Mailbox, mailbox};
pub(crate) use strategy::{Strategy, TokenBucket};
pub(crate) use stream::{Action, DomainError, Heard, QuotaStream, Report, Said};
