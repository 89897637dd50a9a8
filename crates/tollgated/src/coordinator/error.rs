//! Why a replica does not do what it was asked.

use std::fmt;

use openraft::errors::LinearizableReadError;
use tollgate::coordinator::Refused;

use super::store::StoreError;
use super::types::Types;

/// Why a replica can't be started.
#[derive(Debug)]
pub enum OpenError {
    /// Its store can't be used.
    Store(StoreError),
    /// It has stopped at once.
    Stopped(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Stopped(why) => write!(f, "the replica does not start: {why}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<StoreError> for OpenError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Why a command was not applied, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProposeError {
    /// It has no meaning in the fleet's state. Nothing has changed.
    Refused(Refused),
    /// It is longer than any that is not refused. Nothing has changed.
    TooLarge {
        /// Its length.
        bytes: usize,
    },
    /// Nobody led, for as long as was waited. Nothing has changed.
    NoLeader,
    /// Nothing has changed, for this reason: the replica has stopped, or what was said made no
    /// sense to it.
    Failed(String),
    /// It may have been applied, or may be yet.
    Unknown(String),
}

impl fmt::Display for ProposeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => refused.fmt(f),
            Self::TooLarge { bytes } => write!(f, "a command of {bytes} bytes is too long"),
            Self::NoLeader => f.write_str("the coordinator has no leader; nothing has changed"),
            Self::Failed(why) => write!(f, "{why}; nothing has changed"),
            Self::Unknown(why) => write!(f, "whether it took effect is not known: {why}"),
        }
    }
}

impl std::error::Error for ProposeError {}

/// Why a replica is not sure that it leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfirmError {
    /// It does not.
    NotLeader,
    /// No majority has answered in time.
    NoMajority,
    /// It has stopped.
    Failed(String),
}

impl fmt::Display for ConfirmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeader => f.write_str("this replica does not lead"),
            Self::NoMajority => f.write_str("no majority of the voters has answered"),
            Self::Failed(why) => write!(f, "the replica has stopped: {why}"),
        }
    }
}

impl std::error::Error for ConfirmError {}

impl<C: Types> From<LinearizableReadError<C>> for ConfirmError {
    fn from(error: LinearizableReadError<C>) -> Self {
        match error {
            LinearizableReadError::ForwardToLeader(_) => Self::NotLeader,
            LinearizableReadError::QuorumNotEnough(_) => Self::NoMajority,
        }
    }
}
