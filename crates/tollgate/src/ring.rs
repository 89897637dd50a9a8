//! Stub, replaced on merge.
use crate::key::KeyId;
use std::fmt;

/// A node of the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);
impl NodeId {
    /// The node with this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }
    /// Its number.
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
/// A version of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RingEpoch(u64);
impl RingEpoch {
    /// Before the first ring.
    pub const ZERO: Self = Self(0);
    /// The next one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
    /// Its number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}
/// A member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Who.
    pub node: NodeId,
    /// Share.
    pub weight: u32,
}
/// The ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring {
    epoch: RingEpoch,
    members: Vec<Member>,
}
impl Ring {
    /// New.
    ///
    /// # Errors
    /// None.
    pub fn new(
        epoch: RingEpoch,
        members: impl IntoIterator<Item = Member>,
    ) -> Result<Self, String> {
        let mut members: Vec<_> = members.into_iter().collect();
        members.sort_by_key(|m| m.node);
        Ok(Self { epoch, members })
    }
    /// Epoch.
    #[must_use]
    pub fn epoch(&self) -> RingEpoch {
        self.epoch
    }
    /// Members.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }
    /// Contains.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        self.members.iter().any(|m| m.node == node)
    }
    /// Owner.
    #[must_use]
    pub fn owner(&self, key: KeyId) -> Option<NodeId> {
        self.members
            .iter()
            .max_by_key(|m| {
                let mut x =
                    key.to_bits().0 ^ u64::from(m.node.0).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                x ^ (x >> 31)
            })
            .map(|m| m.node)
    }
}
