//! One connection of HTTP, whatever is spoken on top of it: its requests in, answers out, and its
//! end when it is old, idle, or the process is.
//!
//! HTTP/1.1 and, with prior knowledge, HTTP/2; hyper speaks both. What is asked is the doors'
//! business.

use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::app::App;
use crate::face::Face;
use crate::guard::{Guard, Phase, ticks};

/// Serves one connection until either side ends it; `answer` answers each request.
pub(crate) async fn serve<S, F, A, B>(
    face: Face,
    stream: S,
    app: &Arc<App>,
    guard: Arc<Guard>,
    answer: F,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<Incoming>, Arc<App>, Arc<Guard>) -> A + Copy,
    A: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let stream = Heard { stream, guard: guard.clone(), preface: Some(0) };
    let service = service_fn(|request: Request<Incoming>| {
        let version = request.version();
        guard.note(Phase::Busy);
        let answer = answer(request, app.clone(), guard.clone());
        let (app, guard) = (app.clone(), guard.clone());
        async move {
            let mut response = answer.await;
            let old = app.bounds.age.is_some_and(|age| guard.age() >= ticks(age));
            if old || app.service.is_draining() {
                if version == Version::HTTP_2 {
                    guard.ask_to_end();
                } else {
                    // Said with an answer, so that no request is on its way into a closed
                    // connection.
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
            }
            guard.note(Phase::Idle);
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    // What takes too long to arrive is the sweep's to end, in HTTP/1.
    builder.http1().header_read_timeout(None).max_buf_size(HEAD_BYTES_MAX).half_close(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(app.bounds.partial)
        .keep_alive_timeout(app.bounds.partial)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut told = false;
    let served = poll_fn(|cx| {
        if guard.is_to_end(cx) && !told {
            told = true;
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(cx)
    });
    served.await.map_err(|error| {
        if error.downcast_ref().is_some_and(hyper::Error::is_parse) {
            app.service.metrics().malformed(face);
        }
        io::Error::other(error)
    })
}

/// A stream that notes when a request begins to arrive.
struct Heard<S> {
    stream: S,
    guard: Arc<Guard>,
    /// Bytes of HTTP/2's preface that have arrived; none when something else has.
    preface: Option<usize>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let heard = &buffer.filled()[before..];
        if !heard.is_empty() && !self.is_http2(heard) {
            self.guard.heard();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note_writing(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.note_writing(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S> Heard<S> {
    /// Whether what is heard belongs to HTTP/2: such a connection hears frames that are no
    /// requests, and keeps itself alive. Until its whole preface is there, it is a request that
    /// takes its time.
    fn is_http2(&mut self, heard: &[u8]) -> bool {
        let Some(seen) = self.preface else { return false };
        let missing = &HTTP2_PREFACE[seen..];
        if missing.is_empty() {
            return true;
        }
        let length = heard.len().min(missing.len());
        self.preface = (heard[..length] == missing[..length]).then_some(seen + length);
        let complete = self.preface == Some(HTTP2_PREFACE.len());
        if complete {
            self.guard.note(Phase::Idle);
        }
        complete
    }

    fn note_writing(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &polled {
            Poll::Pending => self.guard.note(Phase::Writing),
            Poll::Ready(_) if self.guard.doing().0 == Phase::Writing => {
                self.guard.note(Phase::Idle);
            }
            Poll::Ready(_) => {}
        }
        polled
    }
}

/// What an HTTP/2 client says first (RFC 9113, 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of a request's head at most; beyond, hyper answers 431.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Requests at once on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
