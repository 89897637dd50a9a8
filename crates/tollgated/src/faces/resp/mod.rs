//! The Redis door: `CL.THROTTLE` over RESP2 and RESP3.
//!
//! All that one read brings is answered with one write. An idle connection holds no buffers: bytes
//! are read into the worker's own, and only the beginning of a command is kept.

mod command;
mod parse;
mod reply;
#[cfg(test)]
mod tests;
mod throttle;

use std::borrow::Cow;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::app::App;
use crate::face::Face;
use crate::guard::{Guard, HELD_FREE_BYTES, Held, Phase};
use command::Session;
use parse::{COMMAND_BYTES_MAX, Parsed, parse};
use reply::Replies;

/// Serves one connection until either side ends it.
pub(crate) async fn serve<S>(stream: S, app: &App, guard: &Guard) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut connection = Connection {
        stream,
        session: Session::new(guard.id(), app.secret.is_none()),
        rest: Vec::new(),
        held: guard.hold_nothing(),
        unsent: Vec::new(),
        may_part: false,
    };
    let mut ends = false;
    while !ends {
        ends = poll_fn(|cx| connection.poll_turn(cx, app, guard)).await?;
        // A client that does not take its replies is not read from.
        if !connection.unsent.is_empty() {
            guard.note(Phase::Writing);
            connection.stream.write_all(&connection.unsent).await?;
            connection.unsent = Vec::new();
            guard.note(connection.phase());
        }
    }
    connection.stream.shutdown().await?;
    // Who was cut short may still be sending.
    if connection.session.ends {
        guard.note(Phase::Reading);
        let _ = tokio::time::timeout(LINGER, connection.pass_over()).await;
    }
    Ok(())
}

struct Connection<S> {
    stream: S,
    session: Session,
    /// The beginning of a command whose end has not come.
    rest: Vec<u8>,
    held: Held,
    /// Replies that the system did not take at once.
    unsent: Vec<u8>,
    /// Whether something was answered since the process began to end.
    may_part: bool,
}

/// The buffers of one worker, used while a connection is polled and never across that.
struct Buffers {
    input: Vec<u8>,
    output: Vec<u8>,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> =
        RefCell::new(Buffers { input: vec![0; READ_BYTES_MAX], output: Vec::new() });
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Reads once, answers what came, and sends that. Returns whether the connection ends.
    fn poll_turn(
        &mut self,
        cx: &mut Context<'_>,
        app: &App,
        guard: &Guard,
    ) -> Poll<io::Result<bool>> {
        BUFFERS.with_borrow_mut(|buffers| {
            let Buffers { input, output } = buffers;
            let mut read = ReadBuf::new(input);
            match Pin::new(&mut self.stream).poll_read(cx, &mut read) {
                Poll::Ready(result) => result?,
                Poll::Pending => {
                    // Nothing has arrived that would be cut.
                    let parts = self.may_part && self.rest.is_empty();
                    let ends = guard.is_to_end(cx) || parts;
                    return if ends { Poll::Ready(Ok(true)) } else { Poll::Pending };
                }
            }
            let got = read.filled();
            if got.is_empty() {
                return Poll::Ready(Ok(true));
            }
            output.clear();
            let begun = !self.rest.is_empty();
            let used = if begun {
                self.rest.extend_from_slice(got);
                let used = self.session.answer_all(&self.rest, app, output);
                self.rest.drain(..used);
                used
            } else {
                let used = self.session.answer_all(got, app, output);
                self.rest.extend_from_slice(&got[used..]);
                used
            };
            // A command that goes on arriving has begun when it began.
            if used > 0 || !begun {
                guard.note(self.phase());
            }
            self.may_part = app.service.is_draining();
            self.settle_rest(app, output);
            let sent = self.try_send(cx, output)?;
            self.unsent.extend_from_slice(&output[sent..]);
            output.shrink_to(OUTPUT_KEPT_BYTES);
            let kept = self.rest.capacity() + self.unsent.len() + self.session.queued_bytes();
            if !self.held.hold(kept) {
                // It and others take no replies, and there is no room for more of them.
                self.unsent = Vec::new();
                self.session.ends = true;
            }
            Poll::Ready(Ok(self.session.ends))
        })
    }

    /// Gives an idle connection's memory back, and ends one whose command needs too much.
    fn settle_rest(&mut self, app: &App, output: &mut Vec<u8>) {
        if self.rest.is_empty() || self.rest.capacity() > HELD_FREE_BYTES {
            self.rest.shrink_to_fit();
        }
        if !self.held.hold(self.rest.capacity()) {
            app.service.metrics().malformed(Face::Resp);
            let mut replies = Replies { out: output, protocol: self.session.protocol };
            replies.error("ERR too many large commands are arriving at once");
            self.session.ends = true;
        }
    }

    /// Reads on until the client has heard that this is the end, and keeps nothing: a connection
    /// that is closed with bytes unread takes the last reply with it.
    async fn pass_over(&mut self) {
        let mut buffer = [0; 4096];
        let mut passed = 0;
        while passed < PASSED_OVER_BYTES_MAX
            && let Ok(got @ 1..) = self.stream.read(&mut buffer).await
        {
            passed += got;
        }
    }

    fn phase(&self) -> Phase {
        if self.rest.is_empty() { Phase::Idle } else { Phase::Reading }
    }

    fn try_send(&mut self, cx: &mut Context<'_>, output: &[u8]) -> io::Result<usize> {
        if output.is_empty() {
            return Ok(0);
        }
        match Pin::new(&mut self.stream).poll_write(cx, output) {
            Poll::Ready(sent) => sent,
            Poll::Pending => Ok(0),
        }
    }
}

impl Session {
    /// Answers all commands that are complete, and returns how many bytes they were.
    fn answer_all(&mut self, input: &[u8], app: &App, output: &mut Vec<u8>) -> usize {
        let service = &app.service;
        let started = service.now();
        let (mut used, mut answered) = (0, 0);
        let mut words: Vec<Cow<'_, [u8]>> = Vec::with_capacity(8);
        while !self.ends {
            match parse(&input[used..], &mut words) {
                Ok(Parsed::Command { bytes }) => {
                    let start = output.len();
                    self.answer(&words, app, output);
                    if output.get(start) == Some(&b'-') {
                        service.metrics().invalid(Face::Resp);
                    }
                    used += bytes;
                    answered += 1;
                }
                Ok(Parsed::Partial) => break,
                Err(error) => {
                    service.metrics().malformed(Face::Resp);
                    let mut replies = Replies { out: output, protocol: self.protocol };
                    replies.error(&format!("ERR Protocol error: {error}"));
                    self.ends = true;
                }
            }
        }
        service.metrics().took(Face::Resp, service.now().saturating_since(started), answered);
        used
    }
}

/// All replies to these bytes, arriving in two reads.
#[cfg(any(test, fuzzing))]
pub(crate) fn replies_to(input: &[u8], split: usize, app: &App) -> Vec<u8> {
    let mut session = Session::new(1, app.secret.is_none());
    let mut output = Vec::new();
    let used = session.answer_all(&input[..split], app, &mut output);
    if !session.ends {
        session.answer_all(&input[used..], app, &mut output);
    }
    output
}

/// What one read brings at most. It bounds the replies to it too: the longest, to a few letters, is
/// some 200 bytes, which makes two megabytes, and what was kept for `EXEC` makes six.
const READ_BYTES_MAX: usize = 64 << 10;
const OUTPUT_KEPT_BYTES: usize = 256 << 10;
/// How long, and for how many bytes, a client is listened to after the last word.
const LINGER: Duration = Duration::from_secs(2);
const PASSED_OVER_BYTES_MAX: usize = 4 << 20;

const _: () = assert!(COMMAND_BYTES_MAX >= READ_BYTES_MAX, "a rest and a read are bounded");
