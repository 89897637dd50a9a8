//! Who owns a key, in the smallest form that compiles: a stand-in for the module of this name.

use std::fmt;

use crate::key::KeyId;

/// A node's number in its fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

impl NodeId {
    /// The node with this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which ring of a fleet: later ones have larger numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RingEpoch(u64);

impl RingEpoch {
    /// The ring before anyone joined.
    pub const ZERO: Self = Self(0);

    /// The epoch with this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The epoch after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A node that owns keys, and how many in proportion to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// Its share in proportion to others'; at least 1.
    pub weight: u32,
}

/// Who owns which key in one epoch of a fleet.
#[derive(Debug, Clone)]
pub struct Ring {
    epoch: RingEpoch,
    members: Vec<Member>,
}

impl Ring {
    /// The ring of `members`, in any order.
    ///
    /// # Errors
    /// When a node is there twice or has no weight.
    pub fn new(
        epoch: RingEpoch,
        members: impl IntoIterator<Item = Member>,
    ) -> Result<Self, RingError> {
        let mut members: Vec<Member> = members.into_iter().collect();
        members.sort_unstable_by_key(|member| member.node);
        if let Some(&Member { node, weight }) = members.iter().find(|member| member.weight == 0) {
            return Err(RingError::Weight { node, weight });
        }
        if let Some(pair) = members.windows(2).find(|pair| pair[0].node == pair[1].node) {
            return Err(RingError::Twice { node: pair[0].node });
        }
        Ok(Self { epoch, members })
    }

    /// Which ring of the fleet this is.
    #[must_use]
    pub fn epoch(&self) -> RingEpoch {
        self.epoch
    }

    /// The members, by node.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Whether `node` is a member.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        self.members.iter().any(|member| member.node == node)
    }

    /// The node that owns `key`; `None` only if there are no members.
    #[must_use]
    pub fn owner(&self, key: KeyId) -> Option<NodeId> {
        let (high, _) = key.to_bits();
        let index = (high % self.members.len().max(1) as u64) as usize;
        Some(self.members.get(index)?.node)
    }
}

/// Why there is no such ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingError {
    /// A weight out of range.
    Weight {
        /// The node that has it.
        node: NodeId,
        /// The weight.
        weight: u32,
    },
    /// A node that is there twice.
    Twice {
        /// The node.
        node: NodeId,
    },
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Weight { node, weight } => write!(f, "node {node} has weight {weight}"),
            Self::Twice { node } => write!(f, "node {node} is there twice"),
        }
    }
}

impl std::error::Error for RingError {}
