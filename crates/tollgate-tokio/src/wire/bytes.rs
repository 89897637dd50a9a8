//! Numbers and texts as bytes: what all messages are made of.
//!
//! Numbers are LEB128, seven bits a byte, so that the small ones, which nearly all are, take one
//! or two. Whatever is read is checked against what is left before anything is kept of it.

use std::fmt;
use std::time::Duration;

/// Why bytes are no message. Nothing came of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireError {
    /// They end too early.
    Cut,
    /// There are more of them than the message has.
    TooLong {
        /// How many more.
        bytes: usize,
    },
    /// No message of this version has that kind.
    UnknownKind {
        /// The kind.
        kind: u8,
    },
    /// A field has a value that it can't have.
    Malformed(&'static str),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut => f.write_str("the message ends too early"),
            Self::TooLong { bytes } => write!(f, "{bytes} bytes are left behind the message"),
            Self::UnknownKind { kind } => write!(f, "no message has kind {kind}"),
            Self::Malformed(field) => write!(f, "the message has no sound {field}"),
        }
    }
}

impl std::error::Error for WireError {}

/// Writes behind what is there.
pub(crate) trait Put {
    fn put_u8(&mut self, byte: u8);
    fn put_raw(&mut self, bytes: &[u8]);

    fn put(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.put_u8(number as u8 | 0x80);
            number >>= 7;
        }
        self.put_u8(number as u8);
    }

    fn put_duration(&mut self, duration: Duration) {
        self.put(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put(bytes.len() as u64);
        self.put_raw(bytes);
    }
}

impl Put for Vec<u8> {
    fn put_u8(&mut self, byte: u8) {
        self.push(byte);
    }

    fn put_raw(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// What is left to read.
pub(crate) struct Take<'a>(&'a [u8]);

impl<'a> Take<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, WireError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(WireError::Cut)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn raw(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(WireError::Cut)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn number(&mut self) -> Result<u64, WireError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(WireError::Malformed("number"))
    }

    pub(crate) fn small(&mut self, field: &'static str) -> Result<u32, WireError> {
        u32::try_from(self.number()?).map_err(|_| WireError::Malformed(field))
    }

    pub(crate) fn duration(&mut self) -> Result<Duration, WireError> {
        self.number().map(Duration::from_nanos)
    }

    pub(crate) fn flag(&mut self, field: &'static str) -> Result<bool, WireError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::Malformed(field)),
        }
    }

    /// How many items follow, of which each takes `least` bytes or more: no more is kept for them
    /// than their bytes are worth.
    pub(crate) fn count(&mut self, least: usize) -> Result<usize, WireError> {
        let count = usize::try_from(self.number()?).map_err(|_| WireError::Cut)?;
        if count.saturating_mul(least) > self.0.len() {
            return Err(WireError::Cut);
        }
        Ok(count)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        let count = self.count(1)?;
        self.raw(count)
    }

    pub(crate) fn text(&mut self, field: &'static str) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| WireError::Malformed(field))
    }

    /// That nothing is left.
    pub(crate) fn end(self) -> Result<(), WireError> {
        match self.0.len() {
            0 => Ok(()),
            bytes => Err(WireError::TooLong { bytes }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_take_seven_bits_a_byte() {
        for (number, bytes) in [(0, 1), (127, 1), (128, 2), (1 << 35, 6), (u64::MAX, 10)] {
            let mut out = Vec::new();
            out.put(number);
            assert_eq!(out.len(), bytes);
            let mut take = Take::new(&out);
            assert_eq!(take.number(), Ok(number));
            assert_eq!(take.end(), Ok(()));
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        let too_large = [&[0xff; 9][..], &[2]].concat();
        assert_eq!(Take::new(&too_large).number(), Err(WireError::Malformed("number")));
        assert_eq!(Take::new(&[0x80; 11]).number(), Err(WireError::Malformed("number")));
        assert_eq!(Take::new(&[0x80]).number(), Err(WireError::Cut));
    }

    #[test]
    fn a_count_is_refused_that_its_bytes_are_too_few_for() {
        let mut out = Vec::new();
        out.put(1 << 60);
        out.put_raw(&[0; 100]);
        assert_eq!(Take::new(&out).count(20), Err(WireError::Cut));
        assert_eq!(Take::new(&[5, 0, 0, 0, 0]).count(1), Err(WireError::Cut));
        assert_eq!(Take::new(&[4, 0, 0, 0, 0]).count(1), Ok(4));
    }
}
