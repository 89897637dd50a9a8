//! What a fleet agrees on as bytes, for snapshots on disk and on the wire: one encoding for each
//! state, command, answer, change and document.
//!
//! Limits that documents share are written once, by name and generation, and named by their place.
//! Who checks that bytes arrived as they were sent is not known here; whatever arrives is either
//! what the same bytes encode, or an error.
//!
//! ```text
//! tag "tgstate" version 2 | index u64 | founded u8 [secret 32, fleet u64, voters_max u32]
//! | starts u64 | nodes u32 | members u32 × (node u32 start u64 weight u32 address text
//! candidate u8)
//! | epoch u64 [members before, lost: see `ring`] | documents: see `policy`
//! ```

mod answer;
mod bytes;
mod command;
mod policy;
mod ring;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::bytes::{Reader, Writer};
use super::command::FleetSecret;
use super::policy::LIMITS_MAX;
use super::state::{Founding, Seat, State, VOTERS_MAX, ring_of};
use crate::ring::{NodeId, RingEpoch};

pub use self::bytes::DecodeError;

impl State {
    /// The state's bytes; equal states have equal bytes.
    ///
    /// They hold the fleet's secret. At most some 130 MB, at the bounds of every list; a fleet of
    /// 20 nodes with 100 limits of 200 bytes has some 25 kB, and 0.4 kB for each older document.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.0.extend(TAG);
        out.u8(VERSION);
        out.u64(self.index);
        out.option(self.founding.as_ref(), |out, founding| {
            out.0.extend(founding.secret.bytes());
            out.u64(founding.fleet);
            out.u32(founding.voters_max);
        });
        out.u64(self.starts);
        out.u32(self.nodes);
        out.count(self.members.len());
        for seat in self.members.values() {
            out.u32(seat.node.get());
            out.u64(seat.start.get());
            out.u32(seat.weight);
            out.text(&seat.address);
            out.u8(u8::from(seat.is_candidate));
        }
        out.u64(self.ring.epoch().get());
        if let Some(change) = &self.change {
            out.origin(change);
        }
        out.policies(&self.policies);
        out.0
    }

    /// The state that `bytes` encode.
    ///
    /// # Errors
    /// When they are not what [`Self::encode`] makes of any state: cut, changed or of another
    /// version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Reader::new(bytes);
        if input.take(TAG.len())? != TAG {
            return Err(DecodeError::NotAState);
        }
        input.version("state", VERSION)?;
        let index = input.u64()?;
        let founding = input.option("founded", Reader::founding)?;
        let (starts, nodes) = (input.u64()?, input.u32()?);
        let members = input.seats(starts, nodes)?;
        let epoch = RingEpoch::new(input.u64()?);
        let ring = Arc::new(ring_of(epoch, &members).map_err(DecodeError::Ring)?);
        if epoch == RingEpoch::ZERO && !members.is_empty() {
            return Err(DecodeError::Malformed("members"));
        }
        let change = match epoch {
            RingEpoch::ZERO => None,
            _later => Some(input.origin(ring.clone())?),
        };
        let policies = input.policies()?;
        input.end()?;
        // Each command issues at most one of each number, and a number for each of its limits.
        let revision = policies.revision().get();
        let issued = [starts, u64::from(nodes), epoch.get(), revision];
        let numbers = u64::from(policies.numbers());
        let is_issued = issued.iter().all(|&issued| issued <= index)
            && numbers <= index.saturating_mul(LIMITS_MAX as u64);
        if index > INDEX_MAX || !is_issued {
            return Err(DecodeError::Malformed("index"));
        }
        let state = Self { index, founding, starts, nodes, members, ring, change, policies };
        if state.founding.is_none() && state != Self::default() {
            return Err(DecodeError::Malformed("founded"));
        }
        Ok(state)
    }
}

impl Reader<'_> {
    fn founding(&mut self) -> Result<Founding, DecodeError> {
        let secret = FleetSecret::new(self.array()?);
        let (fleet, voters_max) = (self.u64()?, self.u32()?);
        if !VOTERS_MAX.contains(&voters_max) {
            return Err(DecodeError::Malformed("voters"));
        }
        Ok(Founding { secret, fleet, voters_max })
    }

    fn seats(&mut self, starts: u64, nodes: u32) -> Result<BTreeMap<NodeId, Seat>, DecodeError> {
        let malformed = DecodeError::Malformed("members");
        let mut members: BTreeMap<NodeId, Seat> = BTreeMap::new();
        let mut taken = BTreeSet::new();
        for _ in 0..self.count("members", State::MEMBERS_MAX)? {
            let (node, start, weight) = (self.node()?, self.start()?, self.u32()?);
            let address = self.text("address", Seat::ADDRESS_MAX)?;
            let is_candidate = self.flag("candidacy")?;
            let last = members.last_key_value().map_or(0, |(last, _)| last.get());
            let issued = node.get() <= nodes && (1..=starts).contains(&start.get());
            if node.get() <= last || !issued || !taken.insert(start) {
                return Err(malformed);
            }
            members.insert(node, Seat { node, start, weight, address, is_candidate });
        }
        Ok(members)
    }
}

const TAG: &[u8] = b"tgstate";
const VERSION: u8 = 2;
/// A state that counts further has not counted; below it nothing that counts by ones overflows.
const INDEX_MAX: u64 = 1 << 62;

#[cfg(test)]
mod tests {
    use super::super::{Command, Edit, LimitText, StartNumber};
    use super::*;

    fn state() -> State {
        let mut state = State::default();
        let edit = |author: &str| Edit {
            author: author.into(),
            unix_seconds: 1_700_000_000,
            ..Edit::default()
        };
        let limits = |rate: &str| {
            let limit = |name: &str, text: &str| LimitText { name: name.into(), text: text.into() };
            vec![limit("b", "same"), limit("a", rate)]
        };
        let join = |weight, address: &str| {
            let (address, is_candidate) = (address.into(), true);
            Command::Join { node: None, weight, address, is_candidate }
        };
        for command in [
            Command::Found { secret: FleetSecret::new([0xAB; 32]), fleet: 7, voters_max: 3 },
            join(1, "a:1"),
            join(3, "b:1"),
            Command::Lose { node: NodeId::new(1), start: StartNumber::new(1) },
            Command::PutPolicy { edit: edit("x"), limits: limits("1/s") },
            Command::PutPolicy { edit: edit("y"), limits: limits("2/s") },
        ] {
            state.apply(command).expect("in order");
        }
        state
    }

    #[test]
    fn the_encoding_is_pinned_by_a_golden_vector() {
        let hex: String = state().encode().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN.concat());
    }

    #[test]
    fn every_cut_of_a_state_is_too_short_and_every_addition_too_long() {
        let mut bytes = state().encode();
        for length in 0..bytes.len() {
            assert_eq!(State::decode(&bytes[..length]), Err(DecodeError::TooShort), "{length}");
        }
        assert_eq!(State::decode(&bytes), Ok(state()));
        bytes.push(0);
        assert_eq!(State::decode(&bytes), Err(DecodeError::TooLong { bytes: 1 }));
    }

    #[test]
    fn what_is_no_state_is_told_by_name() {
        let sound = state().encode();
        let with = |place: usize, bytes: &[u8]| {
            let mut changed = sound.clone();
            changed[place..place + bytes.len()].copy_from_slice(bytes);
            State::decode(&changed)
        };
        let (index, founded, voters, starts, members) = (8, 16, 57, 61, 73);
        let (weight, epoch, lost) = (members + 16, members + 28, members + 60);
        let other = DecodeError::OtherVersion { what: "state", version: 1, known: 2 };
        assert_eq!(with(0, b"T"), Err(DecodeError::NotAState));
        assert_eq!(with(7, &[1]), Err(other));
        assert_eq!(with(founded, &[2]), Err(DecodeError::Malformed("founded")));
        assert_eq!(with(voters, &[2]), Err(DecodeError::Malformed("voters")));
        // Less than the starts and epochs that it made; more than is ever counted.
        assert_eq!(with(index, &[2]), Err(DecodeError::Malformed("index")));
        assert_eq!(with(index + 7, &[0xFF]), Err(DecodeError::Malformed("index")));
        // The member's start, 2, was not issued.
        assert_eq!(with(starts, &[1]), Err(DecodeError::Malformed("members")));
        let what = "members";
        let many = DecodeError::TooMany { what, count: 1_001 };
        assert_eq!(with(members, &1_001_u32.to_le_bytes()), Err(many));
        assert!(matches!(with(weight + 2, &[1]), Err(DecodeError::Ring(_))));
        // There are no members before the first change, and none is lost that is still there.
        assert_eq!(with(epoch, &[0]), Err(DecodeError::Malformed("members")));
        assert_eq!(with(lost, &[2]), Err(DecodeError::Malformed("lost members")));
    }

    const GOLDEN: [&str; 15] = [
        // Tag, version; index; the secret, the fleet's id, the most voters.
        "7467737461746502",
        "0600000000000000",
        "01abababababababababababababababababababababababababababababababab",
        "070000000000000003000000",
        // Starts, nodes; one member: node 2, start 2, weight 3, its address, a candidate.
        "020000000000000002000000",
        "010000000200000002000000000000000300000003000000623a3101",
        // Epoch 3; nodes 1 and 2 before, 1 lost.
        "0300000000000000",
        "0200000001000000010000000200000003000000",
        "0100000001000000",
        // Numbers up to 2, revision 2; three limits: a of generation 1, a of 2, b of 1.
        "02000000020000000000000003000000",
        "010000006102000000010000000000000003000000312f73",
        "010000006102000000020000000000000003000000322f73",
        "01000000620100000001000000000000000400000073616d65",
        // Two documents, of limits 2 and 0, then 2 and 1.
        "0200000000f1536500000000010000007800000000020000000200000000000000",
        "00f1536500000000010000007900000000020000000200000001000000",
    ];
}
