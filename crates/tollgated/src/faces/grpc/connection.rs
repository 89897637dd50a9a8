//! One connection of gRPC: HTTP/2 and nothing else, spoken by `h2` without a framework on top.
//!
//! Nearly every call arrives whole, in one segment with others. Such calls are answered where they
//! are accepted, all that have arrived before anything is sent; only what has to wait gets a task.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Ping, PingPong, RecvStream};
use hyper::Request;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

use super::stream;
use crate::app::App;
use crate::face::Face;
use crate::faces::heard::Heard;
use crate::faces::{HEAD_BYTES_MAX, STREAMS_MAX, is_last};
use crate::guard::{Guard, Phase};

/// Serves one connection until either side ends it.
pub(crate) async fn serve<S>(stream: S, app: &Arc<App>, guard: Arc<Guard>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let served = speak(Heard::new(stream, guard.clone()), app, &guard).await;
    served.map_err(|error| {
        if !error.is_io() {
            app.service.metrics().malformed(Face::Grpc);
        }
        error.into_io().unwrap_or_else(|| io::Error::other("no HTTP/2"))
    })
}

async fn speak<S>(stream: S, app: &Arc<App>, guard: &Arc<Guard>) -> Result<(), h2::Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        // What arrives before it is read, over all streams.
        .initial_connection_window_size(CONNECTION_WINDOW);
    let mut handshake = pin!(builder.handshake(stream));
    let begun = poll_fn(|cx| match guard.is_to_end(cx) {
        true => Poll::Ready(None),
        false => handshake.as_mut().poll(cx).map(Some),
    });
    let Some(begun) = begun.await else { return Ok(()) }; // It never said a word.
    let mut connection = begun?;
    let mut keepalive = connection.ping_pong().map(|pings| Keepalive::new(pings, app));
    let mut accepted: Vec<Accepted> = Vec::new();
    // What calls that last are told then.
    let ending = watch::Sender::new(false);
    // Once it is told to end: when it is cut.
    let mut cut = None;
    poll_fn(|cx| {
        if keepalive.as_mut().is_some_and(|keepalive| keepalive.is_lost(cx)) {
            app.service.metrics().face(Face::Grpc).timed_out.fetch_add(1, Relaxed);
            return Poll::Ready(Ok(()));
        }
        loop {
            if guard.is_to_end(cx) && cut.is_none() {
                connection.graceful_shutdown();
                ending.send_replace(true);
                // A call that has begun has its time to arrive and to be answered; streams that
                // would go on for ever end here.
                cut = Some(Box::pin(sleep(2 * app.bounds.partial)));
            }
            if cut.as_mut().is_some_and(|cut| cut.as_mut().poll(cx).is_ready()) {
                return Poll::Ready(Ok(()));
            }
            let more = accept_all(&mut connection, &mut accepted, cx);
            let answered = !accepted.is_empty();
            answer_all(&mut accepted, app, guard, &ending, cx);
            // What was answered is sent with the next look for more.
            if more.is_ready() || !answered {
                return more;
            }
        }
    })
    .await
}

type Accepted = (Request<RecvStream>, SendResponse<Bytes>);

/// Takes all streams that have begun; ready when no more will come.
fn accept_all<S>(
    connection: &mut Connection<S, Bytes>,
    accepted: &mut Vec<Accepted>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), h2::Error>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        match connection.poll_accept(cx) {
            Poll::Ready(Some(Ok(stream))) => accepted.push(stream),
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
            Poll::Ready(None) => return Poll::Ready(Ok(())),
            Poll::Pending => return Poll::Pending,
        }
    }
}

fn answer_all(
    accepted: &mut Vec<Accepted>,
    app: &Arc<App>,
    guard: &Arc<Guard>,
    ending: &watch::Sender<bool>,
    cx: &mut Context<'_>,
) {
    if accepted.is_empty() {
        return;
    }
    guard.note(Phase::Busy);
    for (request, respond) in accepted.drain(..) {
        stream::answer(request, respond, app, guard, ending, cx);
    }
    if is_last(app, guard) {
        guard.ask_to_end();
    }
    guard.note(Phase::Idle);
}

/// Asks now and then whether the peer is still there.
struct Keepalive {
    pings: PingPong,
    look: Interval,
    unanswered: bool,
}

impl Keepalive {
    fn new(pings: PingPong, app: &App) -> Self {
        let mut look = interval(app.bounds.partial.max(Duration::from_millis(1)));
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        look.reset();
        Self { pings, look, unanswered: false }
    }

    /// Whether it has not answered for as long as it may take.
    fn is_lost(&mut self, cx: &mut Context<'_>) -> bool {
        if self.unanswered && self.pings.poll_pong(cx).is_ready() {
            self.unanswered = false;
        }
        while self.look.poll_tick(cx).is_ready() {
            if self.unanswered {
                return true;
            }
            self.unanswered = self.pings.send_ping(Ping::opaque()).is_ok()
                && self.pings.poll_pong(cx).is_pending();
        }
        false
    }
}

const CONNECTION_WINDOW: u32 = 1 << 20;
