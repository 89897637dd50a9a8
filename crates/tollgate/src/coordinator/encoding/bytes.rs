//! What all encodings are made of: little-endian numbers of fixed width, texts and lists behind
//! their lengths.
//!
//! Reading takes nothing for granted: a length that the bytes don't have is an error before
//! anything is kept for it. What the numbers mean is not known here.

use std::fmt;

use crate::ring::RingError;

/// What has been written.
#[derive(Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn u8(&mut self, number: u8) {
        self.0.push(number);
    }

    pub(super) fn u32(&mut self, number: u32) {
        self.0.extend(number.to_le_bytes());
    }

    pub(super) fn u64(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    pub(super) fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("every bound is far below 2^32"));
    }

    pub(super) fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.extend(text.as_bytes());
    }

    /// Whether there is one, and it.
    pub(super) fn option<T>(&mut self, option: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.u8(u8::from(option.is_some()));
        if let Some(value) = option {
            write(self, value);
        }
    }
}

/// What is left to read.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Reads the version that begins a `what`.
    pub(super) fn version(&mut self, what: &'static str, known: u8) -> Result<(), DecodeError> {
        let version = self.u8()?;
        if version != known {
            return Err(DecodeError::OtherVersion { what, version, known });
        }
        Ok(())
    }

    /// Nothing may be left.
    pub(super) fn end(self) -> Result<(), DecodeError> {
        match self.0.len() {
            0 => Ok(()),
            bytes => Err(DecodeError::TooLong { bytes }),
        }
    }

    pub(super) fn take(&mut self, bytes: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(DecodeError::TooShort)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        Ok(self.take(N)?.try_into().expect("as many as were taken"))
    }

    pub(super) fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn flag(&mut self, what: &'static str) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Malformed(what)),
        }
    }

    pub(super) fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A number that counts or places something in memory.
    pub(super) fn size(&mut self, what: &'static str) -> Result<usize, DecodeError> {
        usize::try_from(self.u64()?).map_err(|_| DecodeError::Malformed(what))
    }

    /// A length that is at most `max`.
    pub(super) fn count(&mut self, what: &'static str, max: usize) -> Result<usize, DecodeError> {
        let count = self.u32()? as usize;
        if count > max {
            return Err(DecodeError::TooMany { what, count });
        }
        Ok(count)
    }

    pub(super) fn text(&mut self, what: &'static str, max: usize) -> Result<String, DecodeError> {
        let bytes = self.count(what, max)?;
        let text = std::str::from_utf8(self.take(bytes)?);
        Ok(text.map_err(|_| DecodeError::Malformed(what))?.to_owned())
    }

    /// What [`Writer::option`] wrote.
    pub(super) fn option<T>(
        &mut self,
        what: &'static str,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        match self.u8()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            _ => Err(DecodeError::Malformed(what)),
        }
    }
}

/// Why bytes are not what they were taken for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecodeError {
    /// They begin as no state does.
    NotAState,
    /// They are in an encoding that is not known here.
    OtherVersion {
        /// What they were taken for.
        what: &'static str,
        /// The encoding's version.
        version: u8,
        /// The version that is known.
        known: u8,
    },
    /// They end early.
    TooShort,
    /// Some are left over.
    TooLong {
        /// How many.
        bytes: usize,
    },
    /// A list or text is longer than it may be.
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How much.
        count: usize,
    },
    /// A part is not as it is ever written.
    Malformed(&'static str),
    /// There is no such ring.
    Ring(RingError),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAState => f.write_str("this is no coordinator's state"),
            Self::OtherVersion { what, version, known } => {
                write!(f, "the encoding of the {what} is version {version}; {known} is known")
            }
            Self::TooShort => f.write_str("the bytes end early"),
            Self::TooLong { bytes } => write!(f, "{bytes} bytes follow the last one"),
            Self::TooMany { what, count } => write!(f, "{count} {what} are more than there may be"),
            Self::Malformed(what) => write!(f, "the {what} are not as they are written"),
            Self::Ring(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DecodeError {}
