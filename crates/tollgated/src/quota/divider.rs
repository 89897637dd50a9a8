//! What divides limits among streams, as the gRPC door sees it. How it does so is not known here.
//!
//! A divider knows streams and buckets by numbers. A stream joins with a mailbox, tells what its
//! buckets used, and leaves; parts of limits come back by the mailbox, at any time, from any
//! thread. Nothing here waits for anything.

use tollgate::Instant;

use super::mailbox::Mailbox;

/// Divides the limits of a daemon, or of a fleet, among streams.
///
/// All methods are called on threads that serve connections: they return at once, without I/O and
/// without a lock that is held for long, and may [`put`](Mailbox::put) into any mailbox while they
/// are called, that of the caller too.
///
/// Of one stream calls come one after another, in this order: `join`; then `tell` and `gone`; then
/// `leave`, exactly once for each `join` that succeeded, however the stream ended. A bucket is told
/// of one time or more, then gone at most once, and its number never comes again in its stream.
/// Several streams call at the same time.
pub(crate) trait Divider: Send + Sync {
    /// A stream has begun; what its buckets may use is to be put into `mailbox`.
    ///
    /// # Errors
    /// [`TooMany`]: the client is refused (`RESOURCE_EXHAUSTED`), and there is no `leave`.
    fn join(&self, mailbox: Mailbox) -> Result<StreamId, TooMany>;

    /// A bucket was used; the first time, also: it is there.
    ///
    /// `entries` are sorted by their names, each name once: 1 to 16, none empty. `domain` is the
    /// same for the whole stream. A bucket to which no limit applies is to have
    /// [`Part::AllowAll`].
    fn tell(
        &self,
        stream: StreamId,
        bucket: u32,
        domain: &str,
        entries: &[(&str, &str)],
        usage: Usage,
    );

    /// A bucket is no longer used, or its client forgets it since its limit is
    /// [unknown](Part::Unknown). What is put for it from now on is passed over.
    fn gone(&self, stream: StreamId, bucket: u32);

    /// The stream has ended, and all its buckets with it. Its client goes on by the parts that it
    /// has, for as long as they stand (at most `TTL_MAX`), and comes again on another stream.
    fn leave(&self, stream: StreamId);
}

/// A stream's number in its divider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct StreamId(pub(crate) u64);

/// The divider has as many streams as it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany;

/// What one bucket of one stream may use.
///
/// It comes with an instant until which it is confirmed. Up to then the client is told it, and told
/// it again before it ends; what was told last ends at the client by itself, at most one TTL (10 s
/// to 60 s, three of the bucket's intervals) after that instant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Part {
    /// So many requests a second, evenly: a token bucket that holds what comes in 100 ms, 2 tokens
    /// at least, and never more than `burst_cap`, which counts as 1 at least. It never produces
    /// more than `per_second`, and in the long run 0.1 % less at most. What is no positive number,
    /// or below 10^-9, is [`DenyAll`](Self::DenyAll).
    ///
    /// The client is told of less at once if it is 10 % less or more, and else when the assignment
    /// is renewed; of more if it is 10 % more or more, a second after the last change at the
    /// earliest. Until then it has what it was told last.
    Rate {
        /// Requests a second.
        per_second: f64,
        /// Requests at once, at most.
        burst_cap: u64,
    },
    /// Everything.
    AllowAll,
    /// Nothing.
    DenyAll,
    /// The limit is gone: the client forgets the bucket, and comes again with its next request. For
    /// a bucket that never had a limit [`AllowAll`](Self::AllowAll) costs less: it is told once.
    Unknown,
}

/// What was used of a bucket since it was last told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Requests that were let pass.
    pub(crate) allowed: u64,
    /// Requests that were not.
    pub(crate) denied: u64,
    /// Since the last report of this bucket by this daemon's clock, or as the client says if that
    /// is longer: reports that were held up come at once. Of the first report what the client says,
    /// which may be nothing. Not to be divided by without a look.
    pub(crate) elapsed: std::time::Duration,
}

/// A part, and until when it is confirmed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Told {
    pub(crate) part: Part,
    pub(crate) confirmed_until: Instant,
}
