//! One call: answered at once if it has arrived whole, else by a task that waits for the rest.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use hyper::Request;
use hyper::body::{Body, Frame};
use tokio::sync::watch;
use tollgate::Instant;

use super::call::{self, Call, Code, Fault, Method, Refusal};
use super::health::{self, Watch};
use super::{quota, reflection, rls};
use crate::app::{App, Member};
use crate::face::Face;
use crate::faces::body::{self, BODY_BYTES_MAX};
use crate::guard::Guard;

/// Answers a call, now or later.
pub(super) fn answer(
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    app: &Arc<App>,
    guard: &Arc<Guard>,
    ending: &watch::Sender<bool>,
    cx: &mut Context<'_>,
) {
    let (head, stream) = request.into_parts();
    let mut body = Received { stream, first: None };
    let call = match Call::new(&head, app) {
        Ok(call) => call,
        Err(refusal) => return refuse(&refusal, respond, app),
    };
    if call.method == Method::Reflection {
        tokio::spawn(reflect(Request::from_parts(head, body), respond));
    } else if call.method == Method::StreamQuotas {
        match quota::Seat::take(app, guard) {
            Ok(seat) => quota::begin(seat, call.deadline, body, respond, ending.subscribe()),
            Err(fault) => refuse(&Refusal::Fault(fault), respond, app),
        }
    } else if let Some(message) = body.whole(cx) {
        conclude(call, &message, respond, app);
    } else {
        let (app, guard) = (app.clone(), guard.clone());
        tokio::spawn(async move {
            match body::read(body, &guard, BODY_BYTES_MAX, call.time, false).await {
                Ok(message) => conclude(call, &message, respond, &app),
                Err(error) => refuse(&Refusal::Fault(error.into()), respond, &app),
            }
        });
    }
}

/// Answers a call whose body has arrived. In a fleet it may have to wait for its limits to be known
/// here; then a task does.
fn conclude(call: Call, body: &Bytes, mut respond: SendResponse<Bytes>, app: &Arc<App>) {
    let started = app.service.now();
    let answered = call::unframe(body).and_then(|message| match call.method {
        Method::ShouldRateLimit => {
            let answer = rls::answer_now(message, app)?;
            if answer.is_some() {
                note_time(started, app);
            }
            Ok(answer.map_or(Answer::Waits, Answer::Message))
        }
        Method::HealthCheck => health::check(message, app).map(Answer::Message),
        Method::HealthWatch => Watch::new(message, app).map(Answer::Watch),
        // They are streams of their own.
        Method::Reflection | Method::StreamQuotas => Ok(Answer::Nothing),
    });
    match answered {
        Ok(Answer::Message(message)) => send_message(message, respond, app),
        Ok(Answer::Waits) => {
            let (body, app) = (body.clone(), app.clone());
            tokio::spawn(async move { meet_and_answer(&body, started, respond, &app).await });
        }
        Ok(Answer::Watch(watch)) => {
            // Whoever is gone by now wants no answer.
            if let Ok(stream) = respond.send_response(call::head(), false) {
                tokio::spawn(pump(watch, stream));
            }
        }
        Ok(Answer::Nothing) => {}
        Err(fault) => refuse(&Refusal::Fault(fault), respond, app),
    }
}

/// What becomes of a call.
enum Answer {
    Message(Bytes),
    /// It has to wait before it can be decided.
    Waits,
    Watch(Watch),
    Nothing,
}

/// Answers a rate-limit request once the owners of its keys have said what has to be known,
/// or 10 ms later.
async fn meet_and_answer(body: &Bytes, started: Instant, respond: SendResponse<Bytes>, app: &App) {
    let answered = match (call::unframe(body), &app.member) {
        (Ok(message), Some(Member { fleet, .. })) => {
            let _contact = fleet.meet(|_| rls::contact(message, app)).await;
            rls::answer(message, app)
        }
        (message, _) => message.and_then(|message| rls::answer(message, app)),
    };
    note_time(started, app);
    match answered {
        Ok(message) => send_message(message, respond, app),
        Err(fault) => refuse(&Refusal::Fault(fault), respond, app),
    }
}

fn note_time(started: Instant, app: &App) {
    let took = app.service.now().saturating_since(started);
    app.service.metrics().took(Face::Grpc, took, 1);
}

/// Sends an answer of one message.
fn send_message(message: Bytes, mut respond: SendResponse<Bytes>, app: &App) {
    // Whoever is gone by now wants no answer.
    let Ok(mut stream) = respond.send_response(call::head(), false) else { return };
    stream.reserve_capacity(message.len());
    if stream.capacity() >= message.len() {
        let _ =
            stream.send_data(message, false).and_then(|()| stream.send_trailers(call::trailers()));
    } else {
        tokio::spawn(deliver(message, stream, app.bounds.partial));
    }
}

/// Answers with nothing but a head.
fn refuse(refusal: &Refusal, mut respond: SendResponse<Bytes>, app: &App) {
    match refusal {
        Refusal::NoCall => app.service.metrics().malformed(Face::Grpc),
        Refusal::Fault(fault) => count(fault, app),
    }
    let _ = respond.send_response(refusal.head(), true);
}

/// Counts a call that failed.
pub(super) fn count(fault: &Fault, app: &App) {
    let metrics = app.service.metrics();
    match fault.code {
        Code::DeadlineExceeded => {
            metrics.face(Face::Grpc).timed_out.fetch_add(1, Relaxed);
        }
        _ => metrics.invalid(Face::Grpc),
    }
}

/// Sends an answer for which the client has no room yet, and takes it back if that lasts.
async fn deliver(message: Bytes, mut stream: SendStream<Bytes>, time: Duration) {
    match tokio::time::timeout(time, send(message, &mut stream)).await {
        Ok(Ok(())) => {
            let _ = stream.send_trailers(call::trailers());
        }
        Ok(Err(_)) => {}
        Err(_) => stream.send_reset(Reason::CANCEL),
    }
}

async fn reflect(request: Request<Received>, mut respond: SendResponse<Bytes>) {
    let (head, body) = reflection::answer(request).await.into_parts();
    if let Ok(stream) = respond.send_response(hyper::Response::from_parts(head, ()), false) {
        pump(body, stream).await;
    }
}

/// Sends a body as fast as the client takes it, until one of them ends.
async fn pump<B: Body<Data = Bytes> + Unpin>(mut body: B, mut stream: SendStream<Bytes>) {
    loop {
        let frame = poll_fn(|cx| match stream.poll_reset(cx) {
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => Pin::new(&mut body).poll_frame(cx),
        });
        let sent = match frame.await {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => send(data, &mut stream).await,
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    let _ = stream.send_trailers(trailers);
                    return;
                }
            },
            Some(Err(_)) | None => return,
        };
        if sent.is_err() {
            return;
        }
    }
}

async fn send(mut data: Bytes, stream: &mut SendStream<Bytes>) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let room = poll_fn(|cx| match stream.poll_reset(cx) {
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => stream.poll_capacity(cx),
        });
        let Some(room) = room.await else { return Ok(()) };
        let part = data.split_to(room?.min(data.len()));
        stream.send_data(part, false)?;
    }
    Ok(())
}

/// The body of a call, as it arrives.
pub(super) struct Received {
    stream: RecvStream,
    /// What has arrived and was not the whole.
    first: Option<Bytes>,
}

impl Received {
    /// All of it, if it has arrived in one piece.
    fn whole(&mut self, cx: &mut Context<'_>) -> Option<Bytes> {
        let Poll::Ready(Some(Ok(data))) = self.poll_data(cx) else { return None };
        if self.stream.is_end_stream() {
            return Some(data);
        }
        self.first = Some(data);
        None
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        let polled = self.stream.poll_data(cx);
        if let Poll::Ready(Some(Ok(data))) = &polled {
            // What is kept of it is bounded by whoever reads.
            let _ = self.stream.flow_control().release_capacity(data.len());
        }
        polled
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        Poll::Ready(ready!(self.poll_data(cx)).map(|data| data.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.stream.is_end_stream()
    }
}
