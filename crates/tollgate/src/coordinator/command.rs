//! What may be asked of the fleet's state, what comes of it, and why it may be refused.
//!
//! Commands are values that a log carries: they name times and secrets, because no replica may ask
//! its own clock or entropy while it applies them.

use std::fmt;
use std::sync::Arc;

use super::policy::PolicyError;
use crate::key::Secret;
use crate::ring::{NodeId, Ring, RingError};

/// One entry of the fleet's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Makes the fleet: the first command, given once.
    Found {
        /// What every node hashes keys with.
        secret: FleetSecret,
        /// What tells this fleet from all others: a random number.
        fleet: u64,
        /// How many replicas of the coordinator vote at most: 1, 3 or 5.
        voters_max: u32,
    },
    /// A process starts, or starts again.
    ///
    /// It gets the next start number. A node that is no member becomes one, which is a planned
    /// change of the ring. A member that starts again before its loss was committed leaves the ring
    /// as it is, its weight too: it takes up the keys that it had, and a change of the ring would
    /// hand over what it no longer knows. Its address may be another one, which is no change of the
    /// ring.
    Join {
        /// The number that it got when it first joined; `None` gets the next one.
        node: Option<NodeId>,
        /// Its share of the keys in proportion to others'; of no effect for a member.
        weight: u32,
        /// Where other nodes reach it, in a notation that is not known here; at most 256 bytes.
        address: String,
        /// Whether it can keep a replica of this log.
        is_candidate: bool,
    },
    /// A process stops as planned: it goes on to hand over its keys.
    Leave {
        /// The node.
        node: NodeId,
        /// The start that stops.
        start: StartNumber,
    },
    /// A process is dead, or so long unheard that none of its permissions lives.
    ///
    /// Refused when the node has started again since.
    Lose {
        /// The node.
        node: NodeId,
        /// The start that is lost.
        start: StartNumber,
    },
    /// A member gets another share of the keys: a planned change, unless it has that share already.
    ///
    /// With none it is drained: it hands over all that it owns and stays a member. Refused for the
    /// last one that owns any.
    SetWeight {
        /// The node.
        node: NodeId,
        /// Its share of the keys in proportion to others', 0 to 65,535.
        weight: u32,
    },
    /// Other limits take force, all of them or none.
    PutPolicy {
        /// Who changes them, on what grounds.
        edit: Edit,
        /// Every limit from now on, in the order in which paths are matched.
        limits: Vec<LimitText>,
    },
    /// An older document takes force again, as a new revision.
    Rollback {
        /// Who changes them, on what grounds.
        edit: Edit,
        /// The revision of the older document.
        to: Revision,
    },
}

/// Who changes a policy, when, and what they believe to be in force.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Edit {
    /// The revision that the change was made from; another one in force refuses it. `None` does not
    /// ask. A file is imported with [`Revision::ZERO`], so that it only fills an empty store.
    pub expected: Option<Revision>,
    /// At most 256 bytes.
    pub author: String,
    /// At most 4 KiB.
    pub comment: String,
    /// The proposer's wall time, in seconds since 1970. For people; nothing is decided by it.
    pub unix_seconds: u64,
}

/// A limit as it was written, in a dialect that is not known here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitText {
    /// What tells it from the others, domain included; 1 to 512 bytes.
    pub name: String,
    /// At most 1 MiB.
    pub text: String,
}

/// What a command has changed, and what to tell whom.
#[derive(Debug, Clone)]
pub struct Effects {
    /// The ring that all nodes are to learn of.
    pub ring: Option<RingChange>,
    /// Whether all nodes are to learn of a new policy.
    pub policy: bool,
    /// What the proposer learns.
    pub answer: Answer,
}

/// The answer to a command that was not refused.
#[derive(Debug, Clone)]
pub enum Answer {
    /// There is nothing to add.
    Done,
    /// A process has joined.
    Joined {
        /// Its node.
        node: NodeId,
        /// Its start; no other process has or will ever have it.
        start: StartNumber,
        /// The ring of which it is a member.
        ring: Arc<Ring>,
        /// Whether the process before it was a member under the same ring, so that this one has
        /// keys of which it has forgotten what it permitted.
        is_restart: bool,
    },
    /// The policy has another revision.
    Revised {
        /// Its number.
        revision: Revision,
    },
}

/// One step of the ring, and what it means for keys that move.
#[derive(Debug, Clone)]
pub struct RingChange {
    /// The ring from now on.
    pub ring: Arc<Ring>,
    /// The ring before, one epoch earlier.
    pub previous: Arc<Ring>,
    /// The members of `previous` that are dead; all others hand over the keys that they lose.
    pub lost: Box<[NodeId]>,
}

impl PartialEq for RingChange {
    /// Owners follow from members.
    fn eq(&self, other: &Self) -> bool {
        let same = |one: &Ring, other: &Ring| {
            one.epoch() == other.epoch() && one.members() == other.members()
        };
        same(&self.ring, &other.ring)
            && same(&self.previous, &other.previous)
            && self.lost == other.lost
    }
}

impl Eq for RingChange {}

/// Why a command was refused. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The fleet has not been founded.
    NotFounded,
    /// The fleet has been founded before, and keeps its secret.
    AlreadyFounded,
    /// So many replicas can't vote: an even number survives no more losses than one less.
    VotersMax {
        /// How many were asked for.
        voters_max: u32,
    },
    /// No node of this fleet ever got this number.
    UnknownNode {
        /// The number.
        node: NodeId,
    },
    /// All 2^32 - 1 node numbers have been given out.
    NoNodesLeft,
    /// The fleet has as many members as it may have.
    TooManyMembers,
    /// An address of more than 256 bytes.
    AddressTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The node is not a member now.
    NotAMember {
        /// The node.
        node: NodeId,
    },
    /// Another start of the node is its current one.
    OtherStart {
        /// The node.
        node: NodeId,
        /// The start that was named.
        start: StartNumber,
        /// The start that is current.
        current: StartNumber,
    },
    /// There is no such ring.
    Ring(RingError),
    /// The policy is not what its author saw.
    OtherRevision {
        /// What the author saw.
        expected: Revision,
        /// What is in force.
        current: Revision,
    },
    /// The document was never written, or is no longer kept.
    NoSuchRevision {
        /// The revision that was asked for.
        revision: Revision,
    },
    /// The document can't be kept.
    Policy(PolicyError),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFounded => f.write_str("the fleet has not been founded"),
            Self::AlreadyFounded => f.write_str("the fleet has been founded already"),
            Self::VotersMax { voters_max } => {
                write!(f, "1, 3 or 5 replicas of the coordinator vote, not {voters_max}")
            }
            Self::UnknownNode { node } => {
                write!(f, "no node of this fleet has ever been number {node}")
            }
            Self::NoNodesLeft => f.write_str("all node numbers have been given out"),
            Self::TooManyMembers => {
                write!(f, "a fleet has at most {} members", super::State::MEMBERS_MAX)
            }
            Self::AddressTooLong { bytes } => {
                write!(f, "an address has at most {} bytes, not {bytes}", super::Seat::ADDRESS_MAX)
            }
            Self::NotAMember { node } => write!(f, "node {node} is not a member"),
            Self::OtherStart { node, start, current } => {
                write!(f, "node {node} has started again: {current} is current, not {start}")
            }
            Self::Ring(error) => error.fmt(f),
            Self::OtherRevision { expected, current } => {
                write!(f, "revision {current} is in force, not {expected}")
            }
            Self::NoSuchRevision { revision } => write!(f, "revision {revision} is not kept"),
            Self::Policy(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Refused {}

/// The number of a process start: with its node it makes an identity that never comes back.
///
/// Counted over the whole fleet, from 1: of two starts the later one has the larger number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StartNumber(u64);

impl StartNumber {
    /// The start with this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for StartNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a policy document, counted from 1; a limit's generation is the revision that last
/// changed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(u64);

impl Revision {
    /// The revision of a store in which no document was ever put.
    pub const ZERO: Self = Self(0);

    /// The revision with this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The 32 bytes from which every node of a fleet makes the [`Secret`] of its keys' identities.
///
/// Given once, by whoever founds the fleet, from entropy. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct FleetSecret([u8; 32]);

impl FleetSecret {
    /// The secret of these bytes, which must be as unpredictable as a key.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, to be sent to members and stored, and shown to nobody.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// What keys are hashed with.
    #[must_use]
    pub fn secret(&self) -> Secret {
        Secret::from_seed(self.0)
    }
}

impl fmt::Debug for FleetSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FleetSecret(..)")
    }
}
