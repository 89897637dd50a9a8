//! The messages of a stream, however they are cut: each behind a flag and a length.

use bytes::{Buf, Bytes, BytesMut};
use tokio::time::Instant;

use crate::faces::body::{BODY_BYTES_MAX, BodyError};
use crate::faces::grpc::call::{self, Fault, PREFIX};
use crate::guard::Held;

/// What has arrived and was not a whole message.
#[derive(Debug)]
pub(super) struct Incoming {
    bytes: BytesMut,
    held: Held,
    /// When the message began that is arriving; none if none is.
    began: Option<Instant>,
}

impl Incoming {
    pub(super) fn new(held: Held) -> Self {
        Self { bytes: BytesMut::new(), held, began: None }
    }

    /// Adds what has arrived.
    pub(super) fn push(&mut self, data: &[u8]) {
        if data.is_empty() {
            return; // So may a client say that this was all.
        }
        self.bytes.extend_from_slice(data);
        self.began = self.began.or_else(|| Some(Instant::now()));
    }

    /// The next whole message, if it has arrived.
    ///
    /// # Errors
    /// When it is compressed or too large, or too many large ones are arriving at once.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        if let Some((&[compressed, ref length @ ..], rest)) =
            self.bytes.split_first_chunk::<PREFIX>()
        {
            call::is_plain(compressed)?;
            let length = u32::from_be_bytes(*length) as usize;
            if length > BODY_BYTES_MAX {
                return Err(BodyError::TooLarge { most: BODY_BYTES_MAX }.into());
            }
            if rest.len() >= length {
                self.bytes.advance(PREFIX);
                let message = self.bytes.split_to(length).freeze();
                self.began = (!self.bytes.is_empty()).then(Instant::now);
                return Ok(Some(message));
            }
        }
        if self.bytes.is_empty() {
            self.bytes = BytesMut::new(); // A stream that rests holds no buffer.
        }
        match self.held.hold(self.bytes.len()) {
            true => Ok(None),
            false => Err(BodyError::Busy.into()),
        }
    }

    /// When the message began that is arriving; none if none is.
    pub(super) fn began(&self) -> Option<Instant> {
        self.began
    }
}
