//! The state as bytes: for snapshots on disk and on the wire, one encoding for each state.
//!
//! Little-endian numbers of fixed width, texts and lists behind their lengths. Limits that
//! documents share are written once, by name and generation, and named by their place. Who checks
//! that bytes arrived as they were sent is not known here; whatever arrives is either a state that
//! the same bytes encode, or an error.
//!
//! ```text
//! tag "tgstate" version 1 | index u64 | founded u8 [secret 32]
//! | starts u64 | nodes u32 | epoch u64 | members u32 × (node u32 weight u32 start u64)
//! | revision u64 | limits u32 × (name text, generation u64, text text)
//! | documents u32 × (unix_seconds u64, author text, comment text, limits u32 × u32)
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use super::command::{FleetSecret, Revision, StartNumber};
use super::policy::{
    AUTHOR_BYTES_MAX, COMMENT_BYTES_MAX, Document, HISTORY_BYTES_MAX, LIMITS_MAX, NAME_BYTES_MAX,
    POLICY_HISTORY_MAX, Policies, PolicyLimit, TEXT_BYTES_MAX,
};
use super::state::{Seat, State, ring_of};
use crate::ring::{NodeId, RingEpoch, RingError};

impl State {
    /// The state's bytes; equal states have equal bytes.
    ///
    /// They hold the fleet's secret. At most some 130 MB, at the bounds of every list; a fleet of
    /// 20 nodes with 100 limits of 200 bytes has some 25 kB, and 0.4 kB for each older document.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer(Vec::new());
        out.0.extend(TAG);
        out.0.push(VERSION);
        out.u64(self.index);
        out.0.push(u8::from(self.secret.is_some()));
        out.0.extend(self.secret.iter().flat_map(FleetSecret::bytes));
        out.u64(self.starts);
        out.u32(self.nodes);
        out.u64(self.ring.epoch().get());
        out.count(self.members.len());
        for (node, seat) in &self.members {
            out.u32(node.get());
            out.u32(seat.weight);
            out.u64(seat.start.get());
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
        let mut input = Reader(bytes);
        if input.take(TAG.len())? != TAG {
            return Err(DecodeError::NotAState);
        }
        let version = input.u8()?;
        if version != VERSION {
            return Err(DecodeError::OtherVersion { version });
        }
        let index = input.u64()?;
        let secret = match input.u8()? {
            0 => None,
            1 => Some(FleetSecret::new(input.array()?)),
            _ => return Err(DecodeError::Malformed("founded")),
        };
        let (starts, nodes) = (input.u64()?, input.u32()?);
        let epoch = RingEpoch::new(input.u64()?);
        let members = input.members(starts, nodes)?;
        let policies = input.policies()?;
        if !input.0.is_empty() {
            return Err(DecodeError::TooLong { bytes: input.0.len() });
        }
        // Each command issues at most one of each number.
        let revision = policies.revision().get();
        let issued = [starts, u64::from(nodes), epoch.get(), revision];
        if index > INDEX_MAX || issued.iter().any(|&issued| issued > index) {
            return Err(DecodeError::Malformed("index"));
        }
        let ring = Arc::new(ring_of(epoch, &members).map_err(DecodeError::Ring)?);
        let state = Self { index, secret, starts, nodes, members, ring, policies };
        if state.secret.is_none() && state != Self::default() {
            return Err(DecodeError::Malformed("founded"));
        }
        Ok(state)
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn u32(&mut self, number: u32) {
        self.0.extend(number.to_le_bytes());
    }

    fn u64(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("every list's bound is far below 2^32"));
    }

    fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.extend(text.as_bytes());
    }

    fn policies(&mut self, policies: &Policies) {
        self.u64(policies.revision().get());
        let mut places: BTreeMap<(&str, Revision), (&str, usize)> = policies
            .history()
            .iter()
            .flat_map(|document| document.limits.iter())
            .map(|limit| ((&*limit.name, limit.generation), (&*limit.text, 0)))
            .collect();
        self.count(places.len());
        for (index, (&(name, generation), (text, place))) in places.iter_mut().enumerate() {
            *place = index;
            self.text(name);
            self.u64(generation.get());
            self.text(text);
        }
        self.count(policies.history().len());
        for document in policies.history() {
            self.u64(document.unix_seconds);
            self.text(&document.author);
            self.text(&document.comment);
            self.count(document.limits.len());
            for limit in &document.limits {
                self.count(places[&(&*limit.name, limit.generation)].1);
            }
        }
    }
}

/// What is left to read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(DecodeError::TooShort)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        Ok(self.take(N)?.try_into().expect("as many as were taken"))
    }

    fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A length that is at most `max`.
    fn count(&mut self, what: &'static str, max: usize) -> Result<usize, DecodeError> {
        let count = self.u32()? as usize;
        if count > max {
            return Err(DecodeError::TooMany { what, count });
        }
        Ok(count)
    }

    fn text(&mut self, what: &'static str, max: usize) -> Result<String, DecodeError> {
        let bytes = self.count(what, max)?;
        let text = std::str::from_utf8(self.take(bytes)?);
        Ok(text.map_err(|_| DecodeError::Malformed(what))?.to_owned())
    }

    fn members(&mut self, starts: u64, nodes: u32) -> Result<BTreeMap<NodeId, Seat>, DecodeError> {
        let malformed = DecodeError::Malformed("members");
        let mut members: BTreeMap<NodeId, Seat> = BTreeMap::new();
        let mut taken = BTreeSet::new();
        for _ in 0..self.count("members", Self::MEMBERS_MAX)? {
            let (node, weight, start) = (self.u32()?, self.u32()?, self.u64()?);
            let last = members.last_key_value().map_or(0, |(last, _)| last.get());
            let issued = node <= nodes && (1..=starts).contains(&start);
            if node <= last || !issued || !taken.insert(start) {
                return Err(malformed);
            }
            members.insert(NodeId::new(node), Seat { weight, start: StartNumber::new(start) });
        }
        Ok(members)
    }

    fn policies(&mut self) -> Result<Policies, DecodeError> {
        let last = self.u64()?;
        let limits = self.limits()?;
        let count = self.count("documents", POLICY_HISTORY_MAX)?;
        // They follow each other up to the one in force, which is never forgotten.
        let before = last.checked_sub(count as u64).filter(|_| (count == 0) == (last == 0));
        let before = before.ok_or(DecodeError::Malformed("documents"))?;
        let mut used = vec![false; limits.len()];
        let mut history = VecDeque::new();
        for number in 1..=count as u64 {
            let revision = Revision::new(before + number);
            history.push_back(Arc::new(self.document(revision, &limits, &mut used)?));
        }
        if used.contains(&false) {
            return Err(DecodeError::Malformed("limits"));
        }
        Ok(Policies::from_history(history))
    }

    /// What documents refer to, by name and generation.
    fn limits(&mut self) -> Result<Vec<Arc<PolicyLimit>>, DecodeError> {
        let mut limits: Vec<Arc<PolicyLimit>> = Vec::new();
        let mut bytes = 0;
        for _ in 0..self.count("limits", POLICY_HISTORY_MAX * LIMITS_MAX)? {
            let name = self.text("name", NAME_BYTES_MAX)?;
            let generation = Revision::new(self.u64()?);
            let text = self.text("text", TEXT_BYTES_MAX)?;
            let ascends = limits
                .last()
                .is_none_or(|last| (&last.name, last.generation) < (&name, generation));
            if name.is_empty() || !ascends {
                return Err(DecodeError::Malformed("limits"));
            }
            bytes += name.len() + text.len();
            if bytes > HISTORY_BYTES_MAX {
                return Err(DecodeError::TooMany { what: "bytes of limits", count: bytes });
            }
            limits.push(Arc::new(PolicyLimit { name, generation, text }));
        }
        Ok(limits)
    }

    fn document(
        &mut self,
        revision: Revision,
        known: &[Arc<PolicyLimit>],
        used: &mut [bool],
    ) -> Result<Document, DecodeError> {
        let unix_seconds = self.u64()?;
        let author = self.text("author", AUTHOR_BYTES_MAX)?;
        let comment = self.text("comment", COMMENT_BYTES_MAX)?;
        let mut names = BTreeSet::new();
        let mut limits = Vec::new();
        for _ in 0..self.count("limits of a document", LIMITS_MAX)? {
            let place = self.u32()? as usize;
            let limit = known.get(place).ok_or(DecodeError::Malformed("limits of a document"))?;
            let is_of_its_time = (Revision::new(1)..=revision).contains(&limit.generation);
            if !is_of_its_time || !names.insert(&*limit.name) {
                return Err(DecodeError::Malformed("limits of a document"));
            }
            used[place] = true;
            limits.push(limit.clone());
        }
        let limits = limits.into();
        Ok(Document { revision, author, comment, unix_seconds, limits })
    }

    const MEMBERS_MAX: usize = State::MEMBERS_MAX;
}

/// Why bytes are not a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecodeError {
    /// They begin as no state does.
    NotAState,
    /// They are a state in an encoding that is not known here.
    OtherVersion {
        /// The encoding's version.
        version: u8,
    },
    /// They end early.
    TooShort,
    /// Some are left over.
    TooLong {
        /// How many.
        bytes: usize,
    },
    /// A list or text is longer than any state's.
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How much.
        count: usize,
    },
    /// A part says what no state says.
    Malformed(&'static str),
    /// There is no such ring.
    Ring(RingError),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAState => f.write_str("this is no coordinator's state"),
            Self::OtherVersion { version } => {
                write!(f, "the state's encoding is version {version}; {VERSION} is known")
            }
            Self::TooShort => f.write_str("the state is cut short"),
            Self::TooLong { bytes } => write!(f, "{bytes} bytes follow the state"),
            Self::TooMany { what, count } => write!(f, "{count} {what} are more than a state has"),
            Self::Malformed(what) => write!(f, "the state's {what} are not as they are written"),
            Self::Ring(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DecodeError {}

const TAG: &[u8] = b"tgstate";
const VERSION: u8 = 1;
/// A state that counts further has not counted; below it nothing that counts by ones overflows.
const INDEX_MAX: u64 = 1 << 62;

#[cfg(test)]
mod tests {
    use super::super::{Command, Edit, LimitText};
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
        for command in [
            Command::Found { secret: FleetSecret::new([0xAB; 32]) },
            Command::Join { node: None, weight: 1 },
            Command::Join { node: None, weight: 3 },
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
        let (index, founded, starts, members) = (8, 16, 49, 69);
        assert_eq!(with(0, b"T"), Err(DecodeError::NotAState));
        assert_eq!(with(7, &[2]), Err(DecodeError::OtherVersion { version: 2 }));
        assert_eq!(with(founded, &[2]), Err(DecodeError::Malformed("founded")));
        // Less than the starts and epochs that it made; more than is ever counted.
        assert_eq!(with(index, &[2]), Err(DecodeError::Malformed("index")));
        assert_eq!(with(index + 7, &[0xFF]), Err(DecodeError::Malformed("index")));
        // The member's start, 2, was not issued.
        assert_eq!(with(starts, &[1]), Err(DecodeError::Malformed("members")));
        let what = "members";
        let many = DecodeError::TooMany { what, count: 1_001 };
        assert_eq!(with(members, &1_001_u32.to_le_bytes()), Err(many));
        assert!(matches!(with(members + 8, &[0]), Err(DecodeError::Ring(_))));
    }

    const GOLDEN: [&str; 12] = [
        // Tag, version; index; the secret.
        "7467737461746501",
        "0600000000000000",
        "01abababababababababababababababababababababababababababababababab",
        // Starts, nodes, epoch; one member: node 2, weight 3, start 2.
        "0200000000000000020000000300000000000000",
        "0100000002000000030000000200000000000000",
        // Revision 2; three limits: a of generation 1, a of 2, b of 1.
        "020000000000000003000000",
        "0100000061010000000000000003000000312f73",
        "0100000061020000000000000003000000322f73",
        "010000006201000000000000000400000073616d65",
        // Two documents, of limits 2 and 0, then 2 and 1.
        "02000000",
        "00f1536500000000010000007800000000020000000200000000000000",
        "00f1536500000000010000007900000000020000000200000001000000",
    ];
}
