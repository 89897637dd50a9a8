//! Making a connection to another member, again and again: how long to wait in between, what is
//! on its way to the other, and how to find out that nobody is there any more.

use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use crate::wire::{self, FrameReader, Hello, HelloError, PeerSecret};

/// A connection that was made and introduced.
pub(crate) struct Dialled {
    pub(crate) reader: FrameReader<OwnedReadHalf>,
    pub(crate) writer: OwnedWriteHalf,
}

/// Connects to `address` (`host:port`), within `patience`, and introduces this side.
///
/// # Errors
/// [`HelloError`]: nobody is there, or not who was meant.
pub async fn connect(
    address: &str,
    patience: Duration,
    secret: &PeerSecret,
    hello: &Hello,
) -> Result<TcpStream, HelloError> {
    let connecting = timeout(patience, TcpStream::connect(address));
    let mut stream = connecting.await.map_err(|_| HelloError::TimedOut)??;
    stream.set_nodelay(true)?;
    wire::introduce(&mut stream, secret, hello).await?;
    Ok(stream)
}

/// Connects, for frames of a member.
pub(crate) async fn dial(
    address: &str,
    secret: &PeerSecret,
    hello: &Hello,
    frame_max: u32,
) -> Result<Dialled, HelloError> {
    let stream = connect(address, CONNECT_PATIENCE, secret, hello).await?;
    let (reader, writer) = stream.into_split();
    Ok(Dialled { reader: FrameReader::new(reader, frame_max), writer })
}

/// What is on its way to the other side and was not taken yet.
///
/// Written beside reading, never instead of it: two that both write and don't read would wait for
/// each other.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) bytes: BytesMut,
    taken: u64,
}

impl Outgoing {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// A frame more; `body` writes its body and returns its kind.
    pub(crate) fn put(&mut self, body: impl FnOnce(&mut Vec<u8>) -> u8) {
        let mut frame = Vec::new();
        wire::put_frame(&mut frame, body);
        self.bytes.extend_from_slice(&frame);
    }

    /// Hands over what the other side takes now, waiting until it takes something.
    ///
    /// Dropped before it is done, it has lost nothing.
    pub(crate) async fn write(&mut self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let count = to.write_buf(&mut self.bytes).await?;
        if count == 0 && self.bytes.has_remaining() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.taken += count as u64;
        Ok(())
    }
}

/// Whether the other side is there: it says something and takes what it is sent.
///
/// What it does is looked at with each beat and no clock is read, so that a process that stood
/// still for a while gives the other side time to be heard again.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// What had been read and taken at the last beat.
    read: u64,
    taken: u64,
    /// Beats since something was.
    silent: u32,
    stuck: u32,
}

impl Pulse {
    /// The beat comes at once, and then each [`KEEPALIVE`].
    pub(crate) fn beats() -> Interval {
        let mut beats = interval(KEEPALIVE);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        beats
    }

    /// What `read` bytes have come of by now, and what waits to be taken.
    ///
    /// # Errors
    /// What is wrong with the other side, for people.
    pub(crate) fn beat(&mut self, read: u64, out: &Outgoing) -> Result<(), &'static str> {
        self.silent = if read == self.read { self.silent + 1 } else { 0 };
        let is_stuck = !out.is_empty() && out.taken == self.taken;
        self.stuck = if is_stuck { self.stuck + 1 } else { 0 };
        (self.read, self.taken) = (read, out.taken);
        if self.silent > BEATS_MAX {
            Err("it is silent")
        } else if self.stuck > BEATS_MAX {
            Err("it takes nothing")
        } else {
            Ok(())
        }
    }
}

/// How long to wait before the next try: longer and longer, and never two members at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: REST_MIN }
    }
}

impl Backoff {
    /// The next wait: between half and all of a time that doubles from 20 ms to 1 s.
    pub(crate) fn next(&mut self) -> Duration {
        let most = self.next;
        self.next = (most * 2).min(REST_MAX);
        most / 2 + most.mul_f64(fraction() / 2.0)
    }

    /// The connection lasted.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}

/// A number from 0 to 1 that differs from member to member and from time to time.
fn fraction() -> f64 {
    let mut bytes = [0; 4];
    // Without entropy all wait equally long.
    let _ = getrandom::fill(&mut bytes);
    f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
}

/// How long a connection may take to be made.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);
const REST_MIN: Duration = Duration::from_millis(20);
const REST_MAX: Duration = Duration::from_secs(1);
/// How often either side says something, at least.
pub(crate) const KEEPALIVE: Duration = Duration::from_millis(500);
/// After so long without a word the other side is taken for gone.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(2);
const BEATS_MAX: u32 = (SILENCE_MAX.as_millis() / KEEPALIVE.as_millis()) as u32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_second_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::default();
        let waits: Vec<Duration> = (0..8).map(|_| backoff.next()).collect();
        for (wait, most) in waits.iter().zip([20, 40, 80, 160, 320, 640, 1_000, 1_000]) {
            let most = Duration::from_millis(most);
            assert!((most / 2..=most).contains(wait), "{wait:?} of {most:?}");
        }
        backoff.reset();
        assert!(backoff.next() <= REST_MIN);
    }

    #[test]
    fn whoever_says_or_takes_nothing_for_four_beats_is_gone() {
        let (mut pulse, mut out) = (Pulse::default(), Outgoing::default());
        assert_eq!(pulse.beat(10, &out), Ok(()));
        // Nothing is on its way, so nothing can be taken.
        (0..4).for_each(|_| assert_eq!(pulse.beat(10, &out), Ok(())));
        assert_eq!(pulse.beat(10, &out), Err("it is silent"));
        assert_eq!(pulse.beat(11, &out), Ok(()));
        out.bytes.extend_from_slice(b"abc");
        (12..16).for_each(|read| assert_eq!(pulse.beat(read, &out), Ok(())));
        assert_eq!(pulse.beat(16, &out), Err("it takes nothing"));
        out.taken += 1;
        assert_eq!(pulse.beat(17, &out), Ok(()));
    }
}
