//! Envoy's rate-limit quota service, `StreamRateLimitQuotas`: reports of what was used come in,
//! assignments of what may be used go out, for as long as both sides like.
//!
//! One task for each stream, on its connection's thread. What is decided is `crate::quota`'s; here
//! are the messages, their bounds, and the client's room for them. A stream ends with `OK` when its
//! connection or the process does: Envoy goes on by what it was assigned, and comes again within
//! 5 s.

mod incoming;
mod reports;
mod response;
#[cfg(test)]
mod stream_tests;
#[cfg(test)]
mod wire_tests;

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http_body_util::BodyExt;
use hyper::HeaderMap;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::call::{self, Code, Fault};
use super::stream::{Received, count};
use crate::app::App;
use crate::faces::body::BodyError;
use crate::faces::is_last;
use crate::guard::{Guard, Lasting};
use crate::metrics::QuotaMetrics;
use crate::quota::{
    Account, Action, Divider, DomainError, Heard, Letters, QuotaStream, Report, StreamId, mailbox,
};
use crate::service::Service;
use incoming::Incoming;
use reports::Reports;

/// A stream's place among those that there may be, until it is dropped.
pub(super) struct Seat {
    app: Arc<App>,
    guard: Arc<Guard>,
    divider: Arc<dyn Divider>,
    id: StreamId,
    letters: Letters,
    _lasting: Lasting,
    _counted: Counted,
}

/// A stream that is counted as open.
struct Counted(Arc<QuotaMetrics>);

impl Seat {
    /// # Errors
    /// When nothing divides limits here, or there are as many streams as there may be.
    pub(super) fn take(app: &Arc<App>, guard: &Arc<Guard>) -> Result<Self, Fault> {
        let Some(divider) = &app.divider else {
            return Err(Fault::new(Code::Unimplemented, "no limits are assigned here"));
        };
        let metrics = app.service.metrics().quota.clone();
        let before = metrics.streams.fetch_add(1, Relaxed);
        let counted = Counted(metrics);
        let (mailbox, letters) = mailbox();
        let joined = if before < QUOTA_STREAMS_MAX { divider.join(mailbox).ok() } else { None };
        let Some(id) = joined else {
            counted.0.refused_streams.fetch_add(1, Relaxed);
            return Err(Fault::new(Code::ResourceExhausted, "too many streams of quotas are open"));
        };
        Ok(Self {
            app: app.clone(),
            guard: guard.clone(),
            divider: divider.clone(),
            id,
            letters,
            _lasting: guard.note_lasting(),
            _counted: counted,
        })
    }

    fn metrics(&self) -> &Arc<QuotaMetrics> {
        &self.app.service.metrics().quota
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.divider.leave(self.id);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Relaxed);
    }
}

/// Begins a stream, which goes on in a task of its own.
pub(super) fn begin(
    seat: Seat,
    deadline: Option<Duration>,
    body: Received,
    mut respond: SendResponse<Bytes>,
    ending: watch::Receiver<bool>,
) {
    // Whoever is gone by now wants no answer.
    let Ok(out) = respond.send_response(call::head(), false) else { return };
    let exchange = Exchange {
        quota: QuotaStream::new(Account::new(seat.metrics().clone())),
        incoming: Incoming::new(seat.guard.hold_nothing()),
        out: Outgoing { stream: out, unsent: Bytes::new() },
        body,
        seat,
    };
    tokio::spawn(exchange.run(deadline, ending));
}

/// A stream that is open.
struct Exchange {
    seat: Seat,
    quota: QuotaStream,
    body: Received,
    incoming: Incoming,
    out: Outgoing,
}

/// How a stream ends.
enum End {
    /// Well.
    Done,
    Fault(Fault),
    /// Nobody is there any more.
    Gone,
}

/// What a stream goes on with.
enum Event {
    Data(Bytes),
    /// The client has room for so many bytes.
    Room(usize),
    /// Time has passed, or letters have come.
    Look,
    End(End),
}

impl Exchange {
    async fn run(mut self, deadline: Option<Duration>, ending: watch::Receiver<bool>) {
        let service = self.seat.app.service.clone();
        let end = tokio::select! {
            biased;
            end = ended(&service, ending) => end,
            () = passed(deadline) => End::Fault(BodyError::TooSlow.into()),
            end = self.talk() => end,
        };
        if let End::Fault(fault) = &end {
            count(fault, &self.seat.app);
            self.seat.metrics().refused_messages.fetch_add(1, Relaxed);
        }
        self.out.end(&end);
    }

    async fn talk(&mut self) -> End {
        loop {
            self.settle();
            match self.next().await {
                Event::Data(data) => {
                    self.incoming.push(&data);
                    if let Err(fault) = self.hear().await {
                        return End::Fault(fault);
                    }
                }
                Event::Room(bytes) => {
                    if self.send(bytes).is_err() {
                        return End::Gone;
                    }
                }
                Event::Look => {}
                Event::End(end) => return end,
            }
        }
    }

    /// Waits for whatever comes first.
    async fn next(&mut self) -> Event {
        let Self { seat, quota, body, incoming, out } = self;
        let now = seat.app.service.now();
        let look = quota.poll_timeout().map(|at| at.saturating_since(now));
        let late = incoming.began().map(|began| began + seat.app.bounds.partial);
        let speaks = quota.has_action();
        tokio::select! {
            biased;
            room = poll_fn(|cx| out.poll_room(speaks, cx)) => match room {
                Some(bytes) => Event::Room(bytes),
                None => Event::End(End::Gone),
            },
            frame = body.frame() => match frame {
                Some(Ok(frame)) => frame.into_data().map_or(Event::Look, Event::Data),
                Some(Err(_)) => Event::End(End::Gone),
                None if incoming.began().is_none() => Event::End(End::Done),
                None => Event::End(End::Fault(BodyError::Broken.into())),
            },
            () = poll_fn(|cx| seat.letters.poll_waiting(cx)) => Event::Look,
            () = passed(look) => Event::Look,
            () = passed_at(late) => Event::End(End::Fault(BodyError::TooSlow.into())),
        }
    }

    /// Takes in all messages that have arrived.
    async fn hear(&mut self) -> Result<(), Fault> {
        while let Some(message) = self.incoming.next()? {
            let reports = Reports::read(&message)?;
            self.quota.handle_domain(reports.domain).map_err(why)?;
            for (index, (entries, usage)) in reports.usages().enumerate() {
                if index % USAGES_AT_ONCE == USAGES_AT_ONCE - 1 {
                    tokio::task::yield_now().await; // Others are on this thread too.
                }
                let (allowed, denied) = (usage.allowed, usage.denied);
                self.report(&Report { entries, allowed, denied, elapsed: usage.elapsed });
            }
            if is_last(&self.seat.app, &self.seat.guard) {
                self.seat.guard.ask_to_end(); // Not before all of it is counted.
            }
        }
        Ok(())
    }

    fn report(&mut self, report: &Report<'_>) {
        let Self { seat, quota, .. } = self;
        seat.metrics().reports.fetch_add(1, Relaxed);
        match quota.handle_report(report, seat.app.service.now()) {
            Heard::Tell { bucket, is_new, usage } => {
                if is_new {
                    seat.letters.open(bucket);
                }
                let domain = quota.domain().unwrap_or_default();
                seat.divider.tell(seat.id, bucket, domain, report.entries, usage);
            }
            Heard::Full => {
                seat.metrics().refused_buckets.fetch_add(1, Relaxed);
            }
        }
    }

    /// Takes in letters and the time, and tells the divider of buckets that are gone.
    fn settle(&mut self) {
        let Self { seat, quota, .. } = self;
        let now = seat.app.service.now();
        for (bucket, told) in seat.letters.take() {
            quota.handle_part(bucket, told, now);
        }
        quota.handle_timeout(now);
        while let Some(bucket) = quota.poll_gone() {
            seat.letters.close(bucket);
            seat.divider.gone(seat.id, bucket);
        }
    }

    /// Sends what there is to say, or a part of it that has so many bytes.
    fn send(&mut self, bytes: usize) -> Result<(), h2::Error> {
        if self.out.unsent.is_empty() {
            self.out.unsent = self.compose();
        }
        self.out.send(bytes)
    }

    /// A message of what there is to say, empty if that is nothing.
    fn compose(&mut self) -> Bytes {
        let Self { seat, quota, .. } = self;
        let (metrics, now) = (seat.metrics(), seat.app.service.now());
        let mut any = false;
        let message = call::framed(ACTION_BYTES, |out| {
            while out.len() < MESSAGE_BYTES
                && let Some(said) = quota.poll_action(now)
            {
                any = true;
                response::write(&said, out);
                let counter = match said.action {
                    Action::Assign { is_new: true, .. } => &metrics.assigned,
                    Action::Assign { is_new: false, .. } => &metrics.extended,
                    Action::Abandon => &metrics.abandoned,
                };
                counter.fetch_add(1, Relaxed);
            }
        });
        if any { message } else { Bytes::new() }
    }
}

/// What is sent: at most one message waits, and what is to be said after it is not written yet.
struct Outgoing {
    stream: SendStream<Bytes>,
    unsent: Bytes,
}

impl Outgoing {
    /// Ready with how many bytes the client has room for, if there are any to send or `speaks`;
    /// with none when nobody is there any more.
    fn poll_room(&mut self, speaks: bool, cx: &mut Context<'_>) -> Poll<Option<usize>> {
        if self.stream.poll_reset(cx).is_ready() {
            return Poll::Ready(None);
        }
        if self.unsent.is_empty() && !speaks {
            return Poll::Pending;
        }
        // How long a message will be is known only when there is room to begin it.
        self.stream.reserve_capacity(self.unsent.len().max(1));
        loop {
            let room = self.stream.capacity();
            if room > 0 {
                return Poll::Ready(Some(room));
            }
            match ready!(self.stream.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Poll::Ready(None),
            }
        }
    }

    fn send(&mut self, bytes: usize) -> Result<(), h2::Error> {
        let part = self.unsent.split_to(bytes.min(self.unsent.len()));
        if part.is_empty() {
            return Ok(());
        }
        self.stream.send_data(part, false)
    }

    fn end(&mut self, end: &End) {
        let mut trailers = HeaderMap::new();
        match end {
            // Half a message is no end that anybody could read.
            End::Done if !self.unsent.is_empty() => {
                return self.stream.send_reset(Reason::CANCEL);
            }
            End::Done => trailers = call::trailers(),
            End::Fault(fault) => fault.write(&mut trailers),
            End::Gone => return,
        }
        let _ = self.stream.send_trailers(trailers);
    }
}

/// Waits until the stream's connection or the process is to end.
async fn ended(service: &Service, mut ending: watch::Receiver<bool>) -> End {
    let mut changes = service.ending();
    let drained = async {
        while !service.is_draining() {
            if changes.changed().await.is_err() {
                return pending().await;
            }
        }
    };
    let closing = async {
        match ending.wait_for(|ending| *ending).await {
            Ok(_) => End::Done,
            Err(_) => End::Gone,
        }
    };
    tokio::select! {
        () = drained => End::Done,
        end = closing => end,
    }
}

/// Waits for so long, or for ever.
async fn passed(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => pending().await,
    }
}

/// Waits until then, or for ever.
async fn passed_at(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

fn why(error: DomainError) -> Fault {
    Fault::invalid(match error {
        DomainError::Missing => "domain: is missing in the first message",
        DomainError::TooLong => "domain: is longer than 256 bytes",
        DomainError::Changed => "domain: is another than before; it needs a stream of its own",
    })
}

/// Streams of all connections.
const QUOTA_STREAMS_MAX: usize = 10_000;
/// Usages that are taken in before others on the thread have their turn.
const USAGES_AT_ONCE: usize = 1_000;
/// What an action takes, more or less.
const ACTION_BYTES: usize = 64;
/// A message is not begun anew before it has so many bytes.
const MESSAGE_BYTES: usize = 16 << 10;

/// Takes in a message that a client sent; what is read of it is what the messages say that are made
/// from the protocol's file, and so is what it is told.
#[cfg(fuzzing)]
pub(crate) fn report_bytes(message: &[u8]) {
    use super::proto::envoy::service::rate_limit_quota::v3::{
        RateLimitQuotaResponse, RateLimitQuotaUsageReports,
    };
    use crate::quota::{Part, Told};
    use prost::Message;

    let Ok(reports) = Reports::read(message) else { return };
    let decoded = RateLimitQuotaUsageReports::decode(message).expect("we read it");
    assert_eq!(reports.domain, decoded.domain);
    assert_eq!(reports.usages().count(), decoded.bucket_quota_usages.len());
    let mut quota = QuotaStream::new(Account::new(Arc::default()));
    let now = tollgate::Instant::ZERO;
    for ((entries, usage), decoded) in reports.usages().zip(&decoded.bucket_quota_usages) {
        let bucket = &decoded.bucket_id.as_ref().expect("we saw it").bucket;
        assert_eq!(entries.len(), bucket.len());
        assert!(entries.iter().all(|(name, value)| bucket[*name] == *value));
        let (allowed, denied) = (usage.allowed, usage.denied);
        assert_eq!(allowed, decoded.num_requests_allowed);
        assert_eq!(denied, decoded.num_requests_denied);
        let report = Report { entries, allowed, denied, elapsed: usage.elapsed };
        let Heard::Tell { bucket, .. } = quota.handle_report(&report, now) else { continue };
        let parts = [
            Part::Rate { per_second: allowed as f64, burst_cap: denied },
            Part::AllowAll,
            Part::DenyAll,
            Part::Unknown,
        ];
        let part = parts[(allowed % 4) as usize];
        quota.handle_part(bucket, Told { part, confirmed_until: tollgate::Instant::MAX }, now);
    }
    let mut out = bytes::BytesMut::new();
    let mut said = 0;
    while let Some(action) = quota.poll_action(now) {
        response::write(&action, &mut out);
        said += 1;
    }
    let response = RateLimitQuotaResponse::decode(&*out).expect("we wrote it");
    assert_eq!(response.bucket_action.len(), said);
    assert!(response.bucket_action.iter().all(|action| action.bucket_action.is_some()));
}
