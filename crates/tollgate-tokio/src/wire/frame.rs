//! Where one message ends and the next begins: a length, a kind, a body.
//!
//! ```text
//! length u32, little-endian, of what follows | kind u8 | body
//! ```

use std::{fmt, io};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Why there is no next frame. The connection is of no use any more.
#[derive(Debug)]
pub enum FrameError {
    /// It broke.
    Io(io::Error),
    /// It ended within a frame.
    Cut,
    /// A frame says that it is longer than any may be, or that it is empty.
    Length {
        /// What it says, in bytes.
        bytes: u32,
        /// The most that there may be.
        max: u32,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Cut => f.write_str("the connection ended within a message"),
            Self::Length { bytes, max } => {
                write!(f, "a message of {bytes} bytes, where 1 to {max} may be")
            }
        }
    }
}

impl FrameError {
    /// Whether the other side said what no member says, rather than that it is gone.
    #[must_use]
    pub fn is_malformed(&self) -> bool {
        match self {
            Self::Length { .. } => true,
            Self::Io(_) | Self::Cut => false,
        }
    }
}

impl std::error::Error for FrameError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Cut | Self::Length { .. } => None,
        }
    }
}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads frames.
#[derive(Debug)]
pub struct FrameReader<R> {
    from: R,
    buffer: BytesMut,
    frame_max: u32,
    bytes_read: u64,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads frames of at most `frame_max` bytes, kind included.
    pub fn new(from: R, frame_max: u32) -> Self {
        Self { from, buffer: BytesMut::new(), frame_max, bytes_read: 0 }
    }

    /// The next frame's kind and body; `None` where the connection ended between two.
    ///
    /// Dropped before it is done, it has lost nothing: the next call goes on.
    ///
    /// # Errors
    /// [`FrameError`]; nothing more can be read.
    pub async fn next(&mut self) -> Result<Option<(u8, Bytes)>, FrameError> {
        loop {
            if let Some(frame) = self.split()? {
                return Ok(Some(frame));
            }
            self.buffer.reserve(READ_BYTES);
            let count = self.from.read_buf(&mut self.buffer).await?;
            if count == 0 {
                return if self.buffer.is_empty() { Ok(None) } else { Err(FrameError::Cut) };
            }
            self.bytes_read += count as u64;
        }
    }

    /// Bytes that have arrived so far: a long frame is on its way for a while, and whoever sends it
    /// is not silent.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// The next frame, if it has arrived.
    fn split(&mut self) -> Result<Option<(u8, Bytes)>, FrameError> {
        let Some(length) = self.buffer.first_chunk::<4>() else { return Ok(None) };
        let (bytes, max) = (u32::from_le_bytes(*length), self.frame_max);
        if bytes == 0 || bytes > max {
            return Err(FrameError::Length { bytes, max });
        }
        let whole = HEAD_BYTES + bytes as usize;
        if self.buffer.len() < whole {
            // Only what has arrived is kept, and what is on its way is not reserved: a length alone
            // costs nothing.
            return Ok(None);
        }
        let mut frame = self.buffer.split_to(whole).freeze();
        frame.advance(HEAD_BYTES);
        Ok(Some((frame.get_u8(), frame)))
    }
}

/// Writes a frame behind what is there; `body` writes the body and returns the kind.
pub fn put_frame(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>) -> u8) {
    let begin = out.len();
    out.extend([0; HEAD_BYTES + 1]);
    let kind = body(out);
    let length = u32::try_from(out.len() - begin - HEAD_BYTES).unwrap_or(u32::MAX);
    out[begin..begin + HEAD_BYTES].copy_from_slice(&length.to_le_bytes());
    out[begin + HEAD_BYTES] = kind;
}

const HEAD_BYTES: usize = 4;
const READ_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Vec<Result<Option<(u8, Bytes)>, FrameError>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let mut reader = FrameReader::new(bytes, 8);
        let mut all = Vec::new();
        loop {
            let next = runtime.block_on(reader.next());
            let ends = !matches!(next, Ok(Some(_)));
            all.push(next);
            if ends {
                return all;
            }
        }
    }

    #[test]
    fn frames_come_back_one_by_one_and_end_between_two() {
        let mut out = Vec::new();
        put_frame(&mut out, |out| {
            out.extend(b"abc");
            7
        });
        put_frame(&mut out, |_| 9);
        assert_eq!(out, b"\x04\0\0\0\x07abc\x01\0\0\0\x09");
        let all = read(&out);
        assert!(matches!(&all[0], Ok(Some((7, body))) if &body[..] == b"abc"));
        assert!(matches!(&all[1], Ok(Some((9, body))) if body.is_empty()));
        assert!(matches!(&all[2], Ok(None)));
    }

    #[test]
    fn a_frame_that_is_cut_empty_or_too_long_ends_the_connection() {
        assert!(matches!(read(b"\x04\0\0\0\x07ab")[..], [Err(FrameError::Cut)]));
        assert!(matches!(read(b"\0\0\0\0")[..], [Err(FrameError::Length { bytes: 0, max: 8 })]));
        assert!(matches!(read(b"\x09\0\0\0")[..], [Err(FrameError::Length { bytes: 9, max: 8 })]));
    }
    /// The limits of a fleet can take longer to arrive than anybody may be silent.
    #[test]
    fn what_has_arrived_of_a_frame_counts_before_it_is_whole() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (mut from, to) = tokio::io::duplex(100);
        let mut reader = FrameReader::new(to, 100);
        runtime.block_on(async {
            for (part, arrived) in [(&b"\x04\0\0"[..], 3), (b"\0\x07ab", 7)] {
                tokio::io::AsyncWriteExt::write_all(&mut from, part).await.expect("sent");
                // Dropped before the frame is whole, and gone on with.
                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                assert!(std::pin::pin!(reader.next()).poll(&mut context).is_pending());
                assert_eq!(reader.bytes_read(), arrived);
            }
            tokio::io::AsyncWriteExt::write_all(&mut from, b"c").await.expect("sent");
            let frame = reader.next().await.expect("no error");
            assert!(matches!(frame, Some((7, body)) if &body[..] == b"abc"));
        });
    }
}
