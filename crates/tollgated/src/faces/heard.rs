//! A connection's bytes, overheard: when a request begins to arrive, and when a reply is not taken.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::guard::{Guard, Phase};

/// A stream that notes when a request begins to arrive.
pub(crate) struct Heard<S> {
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
    pub(crate) fn new(stream: S, guard: Arc<Guard>) -> Self {
        Self { stream, guard, preface: Some(0) }
    }

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
