//! What a fleet has agreed on, as the rest of the daemon asks for it and proposes changes to it.
//!
//! How replicas agree is not known here; whoever answers is handed in.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate::NodeId;
use tollgate::coordinator::{Answer, Command, Document, Refused, Revision};

use crate::coordinator::{Kept, NodeLine};

/// What is answered later.
pub(crate) type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The fleet's agreement, as one of its members reaches it.
///
/// What is read is what this member knows: it may lag behind a change that another has just made.
/// A change that was read from an old document is refused by [`Edit::expected`], not by luck.
///
/// [`Edit::expected`]: tollgate::coordinator::Edit::expected
pub(crate) trait Agreement: Send + Sync {
    /// Has a command applied by all replicas, or refused by all.
    fn propose(&self, command: Command) -> Later<'_, Result<Answer, ProposeError>>;

    /// The policy in force; none before the first.
    fn policy(&self) -> Later<'_, Result<Option<Arc<Document>>, StoreError>>;

    /// The policies that are kept, oldest first, the one in force last; at most 100.
    fn history(&self) -> Later<'_, Result<Vec<Kept>, StoreError>>;

    /// The nodes of the fleet, by their numbers.
    fn nodes(&self) -> Later<'_, Result<Vec<NodeLine>, StoreError>>;

    /// Has a node that is stopped for good keep no replica any more.
    fn remove(&self, node: NodeId) -> Later<'_, Result<(), ProposeError>>;

    /// The bytes of a backup of all that the fleet has agreed on.
    fn backup(&self) -> Later<'_, Result<Vec<u8>, StoreError>>;

    /// The policy of a revision; none if it is not kept.
    fn document(&self, revision: Revision) -> Later<'_, Result<Option<Arc<Document>>, StoreError>>;
}

/// Why a proposal came to nothing, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProposeError {
    /// It has no meaning in the fleet's state; nothing was changed.
    Refused(Refused),
    /// It can't be done as things are, for people; nothing was changed.
    Declined(String),
    /// No replica leads the others; nothing was changed.
    NoLeader {
        /// How long one was waited for.
        waited: Duration,
    },
    /// It was handed on, and nobody has said what became of it: it may be applied yet.
    TimedOut {
        /// How long that was waited for.
        waited: Duration,
    },
    /// What is kept could not be read or written; nothing was changed.
    Store(StoreError),
}

/// Why what is kept could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoreError(pub(crate) String);

impl fmt::Display for ProposeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => refused.fmt(f),
            Self::Declined(why) => f.write_str(why),
            Self::NoLeader { waited } => write!(
                f,
                "the fleet's replicas have had no leader for {waited:?}: most of them are down or \
                 can't reach each other; nothing was changed"
            ),
            Self::TimedOut { waited } => write!(
                f,
                "what became of it was not known within {waited:?}: it may take force yet; look at \
                 the policy in force before trying again"
            ),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ProposeError {}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the fleet's store can't be read or written: {}", self.0)
    }
}

impl std::error::Error for StoreError {}

/// The wall time of a proposer that is this process.
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A proposer's wall time as people read it: `Mon, 30 Nov 2026 11:28:57 GMT`.
pub(crate) fn when(unix_seconds: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(unix_seconds.min(UNIX_SECONDS_MAX));
    httpdate::fmt_http_date(time)
}

/// The last second of the year 9999, and so of that format.
const UNIX_SECONDS_MAX: u64 = 253_402_300_799;

/// An agreement among none but this process, kept in memory.
#[cfg(test)]
pub(crate) struct Alone {
    state: std::sync::Mutex<tollgate::coordinator::State>,
    /// What every proposal comes to in place of being applied.
    pub(crate) failing: std::sync::Mutex<Option<ProposeError>>,
}

#[cfg(test)]
impl Alone {
    pub(crate) fn new() -> Self {
        let mut state = tollgate::coordinator::State::default();
        let secret = tollgate::coordinator::FleetSecret::new([7; 32]);
        state.apply(Command::Found { secret, fleet: 9, voters_max: 3 }).expect("a new fleet");
        Self { state: state.into(), failing: None.into() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, tollgate::coordinator::State> {
        self.state.lock().expect("no test panicked in it")
    }
}

#[cfg(test)]
impl Agreement for Alone {
    fn propose(&self, command: Command) -> Later<'_, Result<Answer, ProposeError>> {
        let failing = self.failing.lock().expect("no test panicked in it").clone();
        let applied = match failing {
            Some(error) => Err(error),
            None => self.state().apply(command).map_err(ProposeError::Refused),
        };
        Box::pin(std::future::ready(applied.map(|effects| effects.answer)))
    }

    fn policy(&self) -> Later<'_, Result<Option<Arc<Document>>, StoreError>> {
        Box::pin(std::future::ready(Ok(self.state().policy().cloned())))
    }

    fn history(&self) -> Later<'_, Result<Vec<Kept>, StoreError>> {
        let kept = self.state().history().map(Kept::of).collect();
        Box::pin(std::future::ready(Ok(kept)))
    }

    fn nodes(&self) -> Later<'_, Result<Vec<NodeLine>, StoreError>> {
        let line = |seat: &tollgate::coordinator::Seat| NodeLine {
            node: seat.node.get(),
            address: seat.address.clone(),
            start: Some(seat.start.get()),
            weight: seat.weight,
            replica: crate::coordinator::ReplicaKind::None,
        };
        let nodes = self.state().members().map(line).collect();
        Box::pin(std::future::ready(Ok(nodes)))
    }

    fn remove(&self, node: NodeId) -> Later<'_, Result<(), ProposeError>> {
        let why = format!("there is nothing of node {node} to remove");
        Box::pin(std::future::ready(Err(ProposeError::Declined(why))))
    }

    fn backup(&self) -> Later<'_, Result<Vec<u8>, StoreError>> {
        Box::pin(std::future::ready(Ok(self.state().encode())))
    }

    fn document(&self, revision: Revision) -> Later<'_, Result<Option<Arc<Document>>, StoreError>> {
        let found = self.state().history().find(|kept| kept.revision == revision).cloned();
        Box::pin(std::future::ready(Ok(found)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_time_can_be_shown() {
        assert_eq!(when(1_796_038_137), "Mon, 30 Nov 2026 11:28:57 GMT");
        assert_eq!(when(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(when(u64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
    }
}
