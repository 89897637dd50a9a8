//! A ring and its changes as bytes: the members by node, from which every owner follows.
//!
//! ```text
//! members u32 × (node u32 weight u32)
//! change  version 1 | epoch u64 | members | members before | lost u32 × node u32
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::command::RingChange;
use super::bytes::{DecodeError, Reader, Writer};
use crate::ring::{Member, NodeId, Ring, RingEpoch};

impl RingChange {
    /// The change's bytes; equal changes have equal bytes. 100 members make some 1.6 kB, 1,000 at
    /// most 20 kB.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u8(VERSION);
        out.u64(self.ring.epoch().get());
        out.members(&self.ring);
        out.origin(self);
        out.0
    }

    /// The change that `bytes` encode.
    ///
    /// # Errors
    /// When they are not what [`Self::encode`] makes of any change of a fleet: cut, changed or of
    /// another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Reader::new(bytes);
        input.version("change", VERSION)?;
        let epoch = RingEpoch::new(input.u64()?);
        let ring = Arc::new(input.ring(epoch)?);
        let change = input.origin(ring)?;
        input.end()?;
        Ok(change)
    }
}

impl Writer {
    pub(super) fn members(&mut self, ring: &Ring) {
        self.count(ring.members().len());
        for member in ring.members() {
            self.u32(member.node.get());
            self.u32(member.weight);
        }
    }

    /// What a change says besides the ring that it makes.
    pub(super) fn origin(&mut self, change: &RingChange) {
        self.members(&change.previous);
        self.count(change.lost.len());
        change.lost.iter().for_each(|node| self.u32(node.get()));
    }
}

impl Reader<'_> {
    pub(super) fn ring(&mut self, epoch: RingEpoch) -> Result<Ring, DecodeError> {
        let mut members: Vec<Member> = Vec::new();
        for _ in 0..self.count("members", Ring::MEMBERS_MAX)? {
            let member = Member { node: NodeId::new(self.u32()?), weight: self.u32()? };
            if members.last().is_some_and(|last| last.node >= member.node) {
                return Err(DecodeError::Malformed("members"));
            }
            members.push(member);
        }
        if epoch == RingEpoch::ZERO && !members.is_empty() {
            return Err(DecodeError::Malformed("members"));
        }
        Ring::new(epoch, members).map_err(DecodeError::Ring)
    }

    /// The change that made `ring`.
    pub(super) fn origin(&mut self, ring: Arc<Ring>) -> Result<RingChange, DecodeError> {
        let before = ring.epoch().get().checked_sub(1).ok_or(DecodeError::Malformed("epoch"))?;
        let previous = Arc::new(self.ring(RingEpoch::new(before))?);
        let mut lost = BTreeSet::new();
        for _ in 0..self.count("lost members", Ring::MEMBERS_MAX)? {
            let node = NodeId::new(self.u32()?);
            let is_lost = previous.contains(node) && !ring.contains(node);
            if !is_lost || lost.last().is_some_and(|&last| last >= node) {
                return Err(DecodeError::Malformed("lost members"));
            }
            lost.insert(node);
        }
        let lost = lost.into_iter().collect();
        Ok(RingChange { ring, previous, lost })
    }
}

const VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn change() -> RingChange {
        let ring = |epoch, nodes: &[(u32, u32)]| {
            let member = |&(node, weight): &(u32, u32)| Member { node: NodeId::new(node), weight };
            let ring = Ring::new(RingEpoch::new(epoch), nodes.iter().map(member));
            Arc::new(ring.expect("a ring"))
        };
        let lost = Box::new([NodeId::new(2)]);
        RingChange { ring: ring(5, &[(1, 7)]), previous: ring(4, &[(1, 7), (2, 1)]), lost }
    }

    #[test]
    fn the_encoding_is_pinned_by_a_golden_vector() {
        let hex: String = change().encode().iter().map(|byte| format!("{byte:02x}")).collect();
        let golden = [
            "010500000000000000",
            "010000000100000007000000",
            "0200000001000000070000000200000001000000",
            "0100000002000000",
        ];
        assert_eq!(hex, golden.concat());
        assert_eq!(RingChange::decode(&change().encode()), Ok(change()));
    }

    #[test]
    fn what_is_no_change_is_told_by_name() {
        let sound = change().encode();
        let with = |place: usize, byte: u8| {
            let mut changed = sound.clone();
            changed[place] = byte;
            RingChange::decode(&changed)
        };
        let what = "change";
        let other = DecodeError::OtherVersion { what, version: 2, known: 1 };
        assert_eq!(with(0, 2), Err(other));
        // A member that is still there is not lost, nor is one that never was.
        assert_eq!(with(45, 1), Err(DecodeError::Malformed("lost members")));
        assert_eq!(with(45, 3), Err(DecodeError::Malformed("lost members")));
        // The first ring has no members, and no ring before it.
        assert_eq!(with(1, 1), Err(DecodeError::Malformed("members")));
        assert_eq!(with(1, 0), Err(DecodeError::Malformed("members")));
        for length in 0..sound.len() {
            assert_eq!(RingChange::decode(&sound[..length]), Err(DecodeError::TooShort));
        }
    }
}
