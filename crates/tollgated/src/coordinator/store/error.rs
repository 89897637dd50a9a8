//! Why a replica's store can't be used, told so that someone can do something about it.

use std::fmt;
use std::io;

use tollgate::NodeId;
use tollgate::coordinator::DecodeError;

use super::super::record::RecordError;

/// Why a store can't be opened, read or written.
///
/// Nothing was written by an operation that failed. After a failed write the store refuses all
/// others until it is opened again.
#[derive(Debug)]
pub enum StoreError {
    /// There is none.
    Missing,
    /// There is one already.
    Exists,
    /// Another process has it open.
    Locked,
    /// It is not what was written: a record, a page or a length is wrong. What it held must come
    /// from other replicas, or from a backup.
    Damaged(String),
    /// It was written by a version of this program whose stores are not known here.
    OtherVersion {
        /// The store's version.
        version: u8,
    },
    /// It is of another fleet.
    OtherFleet {
        /// The store's.
        found: u64,
        /// The one that was expected.
        expected: u64,
    },
    /// It is another node's.
    OtherNode {
        /// The store's.
        found: NodeId,
        /// The one that was expected.
        expected: NodeId,
    },
    /// There is no room on its disk.
    Full,
    /// Its disk or file system fails, or has failed before.
    Io(io::Error),
}

impl StoreError {
    /// What people can do about it, as the end of a sentence; nothing where the error says it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Missing | Self::Exists => "",
            Self::Locked => "; stop the daemon that uses it first",
            Self::Damaged(_) => {
                "; if other voters live, move the folder away and join again with an empty one \
                 (--join ADDRESS); if none does, see `tollgate node recover` for another voter's \
                 folder and `tollgate store restore` for a backup"
            }
            Self::OtherVersion { .. } => "; use the version of tollgate that wrote it",
            Self::OtherFleet { .. } | Self::OtherNode { .. } => {
                "; give this node its own folder, or an empty one to join as a new node"
            }
            Self::Full => "; nothing was lost: make room and start again",
            Self::Io(_) => "; see to the disk and its permissions, then start again",
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("there is no store"),
            Self::Exists => f.write_str("there is a store already"),
            Self::Locked => f.write_str("the store is open in another process"),
            Self::Damaged(how) => write!(f, "the store is damaged: {how}"),
            Self::OtherVersion { version } => {
                write!(f, "the store is of version {version}; {} is known", super::FORMAT)
            }
            Self::OtherFleet { found, expected } => {
                write!(f, "the store is of fleet {found:016x}, not of {expected:016x}")
            }
            Self::OtherNode { found, expected } => {
                write!(f, "the store is of node {found}, not of {expected}")
            }
            Self::Full => f.write_str("the disk of the store is full"),
            Self::Io(error) => write!(f, "the store can't be read or written: {error}"),
        }
    }
}

impl std::error::Error for StoreError {}

impl From<StoreError> for io::Error {
    fn from(error: StoreError) -> Self {
        let kind = match &error {
            StoreError::Full => io::ErrorKind::StorageFull,
            StoreError::Damaged(_) | StoreError::OtherVersion { .. } => io::ErrorKind::InvalidData,
            StoreError::Io(error) => error.kind(),
            StoreError::Missing
            | StoreError::Exists
            | StoreError::Locked
            | StoreError::OtherFleet { .. }
            | StoreError::OtherNode { .. } => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

impl From<RecordError> for StoreError {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::OtherVersion { version } => Self::OtherVersion { version },
            RecordError::Damaged | RecordError::Malformed => Self::Damaged(error.to_string()),
        }
    }
}

impl From<DecodeError> for StoreError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::OtherVersion { version, .. } => Self::OtherVersion { version },
            DecodeError::NotAState
            | DecodeError::TooShort
            | DecodeError::TooLong { .. }
            | DecodeError::TooMany { .. }
            | DecodeError::Malformed(_)
            | DecodeError::Ring(_) => Self::Damaged(error.to_string()),
        }
    }
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full,
            io::ErrorKind::NotFound => Self::Missing,
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                Self::Damaged(error.to_string())
            }
            _ => Self::Io(error),
        }
    }
}

impl From<redb::Error> for StoreError {
    fn from(error: redb::Error) -> Self {
        match error {
            redb::Error::Io(error) => error.into(),
            redb::Error::DatabaseAlreadyOpen => Self::Locked,
            redb::Error::Corrupted(how) => Self::Damaged(how),
            redb::Error::UpgradeRequired(version) => Self::OtherVersion { version },
            redb::Error::TableDoesNotExist(table) => Self::Damaged(format!("no table {table}")),
            other => Self::Io(io::Error::other(other)),
        }
    }
}
