//! How every record is closed before it is stored or sent, and opened again: a version and a
//! checksum before its bytes.
//!
//! The database checks its pages when it is opened, a connection its frames; this is what finds the
//! rest, and tells damage from a version that is not known here.
//!
//! ```text
//! version 1 | xxh3-64 of the payload, u64 little-endian | payload
//! ```

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use xxhash_rust::xxh3::xxh3_64;

/// The record of `payload`.
pub(super) fn seal(payload: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(payload.len() + HEAD_BYTES);
    record.push(VERSION);
    record.extend(xxh3_64(payload).to_le_bytes());
    record.extend(payload);
    record
}

/// The payload of a record.
pub(super) fn open(record: &[u8]) -> Result<&[u8], RecordError> {
    let (&version, rest) = record.split_first().ok_or(RecordError::Damaged)?;
    if version != VERSION {
        return Err(RecordError::OtherVersion { version });
    }
    let (checksum, payload) = rest.split_first_chunk().ok_or(RecordError::Damaged)?;
    if xxh3_64(payload) != u64::from_le_bytes(*checksum) {
        return Err(RecordError::Damaged);
    }
    Ok(payload)
}

/// The record of `value`.
pub(super) fn seal_value<T: Serialize>(value: &T) -> Vec<u8> {
    seal(&postcard::to_allocvec(value).expect("plain data, written to memory"))
}

/// The value of a record; what is left over is damage.
pub(super) fn open_value<T: DeserializeOwned>(record: &[u8]) -> Result<T, RecordError> {
    let (value, rest) =
        postcard::take_from_bytes(open(record)?).map_err(|_| RecordError::Malformed)?;
    if rest.is_empty() { Ok(value) } else { Err(RecordError::Malformed) }
}

/// Why a record can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordError {
    /// It is of a version that is not known here.
    OtherVersion {
        /// Its version; 1 is known.
        version: u8,
    },
    /// It is not what was written.
    Damaged,
    /// It is what was written, and says nothing that is known here.
    Malformed,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherVersion { version } => {
                write!(f, "a record is of version {version}; {VERSION} is known")
            }
            Self::Damaged => f.write_str("a record is not what was written"),
            Self::Malformed => f.write_str("a record says nothing that this version knows"),
        }
    }
}

impl std::error::Error for RecordError {}

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_of_a_record_is_found() {
        let sound = seal(b"some bytes");
        assert_eq!(open(&sound), Ok(&b"some bytes"[..]));
        for place in 1..sound.len() {
            let mut changed = sound.clone();
            changed[place] ^= 1;
            assert_eq!(open(&changed), Err(RecordError::Damaged), "{place}");
        }
        for length in 0..sound.len() {
            assert_eq!(open(&sound[..length]), Err(RecordError::Damaged), "{length}");
        }
    }

    #[test]
    fn another_version_is_no_damage() {
        let mut record = seal(b"");
        record[0] = 2;
        assert_eq!(open(&record), Err(RecordError::OtherVersion { version: 2 }));
    }

    #[test]
    fn a_value_is_the_whole_payload() {
        assert_eq!(open_value(&seal_value(&7_u64)), Ok(7_u64));
        assert_eq!(open_value::<Option<u64>>(&seal_value(&7_u64)), Err(RecordError::Malformed));
        assert_eq!(open_value::<u8>(&seal_value(&(7_u8, 8_u8))), Err(RecordError::Malformed));
    }
}
