//! What comes of a command as bytes: how a replica that does not lead learns of it.
//!
//! ```text
//! answer, refusal  version 1 | kind u8 | the kind's fields in the order in which they are declared
//! ```

use std::sync::Arc;

use super::super::command::{Answer, Refused, Revision};
use super::super::policy::PolicyError;
use super::bytes::{DecodeError, Reader, Writer};
use crate::ring::{RingEpoch, RingError};

impl Answer {
    /// The answer's bytes. The one to a join has 27 and 8 for each member.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u8(VERSION);
        match self {
            Self::Done => out.u8(0),
            Self::Joined { node, start, ring, is_restart } => {
                out.u8(1);
                out.u32(node.get());
                out.u64(start.get());
                out.u64(ring.epoch().get());
                out.members(ring);
                out.u8(u8::from(*is_restart));
            }
            Self::Revised { revision } => {
                out.u8(2);
                out.u64(revision.get());
            }
        }
        out.0
    }

    /// The answer that `bytes` encode.
    ///
    /// # Errors
    /// When they are not what [`Self::encode`] makes of any answer: cut, changed or of another
    /// version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Reader::new(bytes);
        input.version("answer", VERSION)?;
        let answer = match input.u8()? {
            0 => Self::Done,
            1 => {
                let (node, start) = (input.node()?, input.start()?);
                let epoch = RingEpoch::new(input.u64()?);
                let ring = Arc::new(input.ring(epoch)?);
                Self::Joined { node, start, ring, is_restart: input.flag("restart")? }
            }
            2 => Self::Revised { revision: Revision::new(input.u64()?) },
            _ => return Err(DecodeError::Malformed("kind of answer")),
        };
        input.end()?;
        Ok(answer)
    }
}

impl Refused {
    /// The refusal's bytes; equal refusals have equal bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u8(VERSION);
        match self {
            Self::NotFounded => out.u8(0),
            Self::AlreadyFounded => out.u8(1),
            Self::VotersMax { voters_max } => {
                out.u8(2);
                out.u32(*voters_max);
            }
            Self::UnknownNode { node } => {
                out.u8(3);
                out.u32(node.get());
            }
            Self::NoNodesLeft => out.u8(4),
            Self::TooManyMembers => out.u8(5),
            Self::AddressTooLong { bytes } => {
                out.u8(6);
                out.u64(*bytes as u64);
            }
            Self::NotAMember { node } => {
                out.u8(7);
                out.u32(node.get());
            }
            Self::OtherStart { node, start, current } => {
                out.u8(8);
                out.u32(node.get());
                out.u64(start.get());
                out.u64(current.get());
            }
            Self::Ring(error) => {
                out.u8(9);
                out.ring_error(*error);
            }
            Self::OtherRevision { expected, current } => {
                out.u8(10);
                out.u64(expected.get());
                out.u64(current.get());
            }
            Self::NoSuchRevision { revision } => {
                out.u8(11);
                out.u64(revision.get());
            }
            Self::Policy(error) => {
                out.u8(12);
                out.policy_error(*error);
            }
        }
        out.0
    }

    /// The refusal that `bytes` encode.
    ///
    /// # Errors
    /// When they are not what [`Self::encode`] makes of any refusal: cut, changed or of another
    /// version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Reader::new(bytes);
        input.version("refusal", VERSION)?;
        let refused = match input.u8()? {
            0 => Self::NotFounded,
            1 => Self::AlreadyFounded,
            2 => Self::VotersMax { voters_max: input.u32()? },
            3 => Self::UnknownNode { node: input.node()? },
            4 => Self::NoNodesLeft,
            5 => Self::TooManyMembers,
            6 => Self::AddressTooLong { bytes: input.size("address")? },
            7 => Self::NotAMember { node: input.node()? },
            8 => Self::OtherStart {
                node: input.node()?,
                start: input.start()?,
                current: input.start()?,
            },
            9 => Self::Ring(input.ring_error()?),
            10 => Self::OtherRevision {
                expected: Revision::new(input.u64()?),
                current: Revision::new(input.u64()?),
            },
            11 => Self::NoSuchRevision { revision: Revision::new(input.u64()?) },
            12 => Self::Policy(input.policy_error()?),
            _ => return Err(DecodeError::Malformed("kind of refusal")),
        };
        input.end()?;
        Ok(refused)
    }
}

impl Writer {
    fn ring_error(&mut self, error: RingError) {
        match error {
            RingError::TooMany => self.u8(0),
            RingError::Twice { node } => {
                self.u8(1);
                self.u32(node.get());
            }
            RingError::Weight { node, weight } => {
                self.u8(2);
                self.u32(node.get());
                self.u32(weight);
            }
        }
    }

    fn policy_error(&mut self, error: PolicyError) {
        // Which limit, where one is meant, and how much there is of what is too much.
        let (kind, numbers) = match error {
            PolicyError::AuthorTooLong { bytes } => (0, [Some(bytes), None]),
            PolicyError::CommentTooLong { bytes } => (1, [Some(bytes), None]),
            PolicyError::TooManyLimits { limits } => (2, [Some(limits), None]),
            PolicyError::Name { index, bytes } => (3, [Some(index), Some(bytes)]),
            PolicyError::NameTwice { index } => (4, [Some(index), None]),
            PolicyError::TextTooLong { index, bytes } => (5, [Some(index), Some(bytes)]),
            PolicyError::TooLarge { bytes } => (6, [Some(bytes), None]),
            PolicyError::NoNumbersLeft => (7, [None, None]),
        };
        self.u8(kind);
        numbers.into_iter().flatten().for_each(|number| self.u64(number as u64));
    }
}

impl Reader<'_> {
    fn ring_error(&mut self) -> Result<RingError, DecodeError> {
        Ok(match self.u8()? {
            0 => RingError::TooMany,
            1 => RingError::Twice { node: self.node()? },
            2 => RingError::Weight { node: self.node()?, weight: self.u32()? },
            _ => return Err(DecodeError::Malformed("kind of refusal")),
        })
    }

    fn policy_error(&mut self) -> Result<PolicyError, DecodeError> {
        let kind = self.u8()?;
        let mut size = || self.size("refused policy");
        Ok(match kind {
            0 => PolicyError::AuthorTooLong { bytes: size()? },
            1 => PolicyError::CommentTooLong { bytes: size()? },
            2 => PolicyError::TooManyLimits { limits: size()? },
            3 => PolicyError::Name { index: size()?, bytes: size()? },
            4 => PolicyError::NameTwice { index: size()? },
            5 => PolicyError::TextTooLong { index: size()?, bytes: size()? },
            6 => PolicyError::TooLarge { bytes: size()? },
            7 => PolicyError::NoNumbersLeft,
            _ => return Err(DecodeError::Malformed("kind of refusal")),
        })
    }
}

const VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::super::super::command::StartNumber;
    use super::*;
    use crate::ring::{Member, NodeId, Ring};

    fn refusals() -> Vec<Refused> {
        let (node, start, current) = (NodeId::new(2), StartNumber::new(3), StartNumber::new(4));
        let (expected, revision) = (Revision::new(5), Revision::new(6));
        let mut refusals = vec![
            Refused::NotFounded,
            Refused::AlreadyFounded,
            Refused::VotersMax { voters_max: 2 },
            Refused::UnknownNode { node },
            Refused::NoNodesLeft,
            Refused::TooManyMembers,
            Refused::AddressTooLong { bytes: 257 },
            Refused::NotAMember { node },
            Refused::OtherStart { node, start, current },
            Refused::OtherRevision { expected, current: revision },
            Refused::NoSuchRevision { revision },
        ];
        let ring =
            [RingError::TooMany, RingError::Twice { node }, RingError::Weight { node, weight: 0 }];
        refusals.extend(ring.map(Refused::Ring));
        let (index, bytes, limits) = (7, 8, 10_001);
        let policy = [
            PolicyError::AuthorTooLong { bytes },
            PolicyError::CommentTooLong { bytes },
            PolicyError::TooManyLimits { limits },
            PolicyError::Name { index, bytes },
            PolicyError::NameTwice { index },
            PolicyError::TextTooLong { index, bytes },
            PolicyError::TooLarge { bytes },
            PolicyError::NoNumbersLeft,
        ];
        refusals.extend(policy.map(Refused::Policy));
        refusals
    }

    fn answers() -> [Answer; 3] {
        let member = Member { node: NodeId::new(2), weight: 3 };
        let ring = Arc::new(Ring::new(RingEpoch::new(4), [member]).expect("a ring"));
        let (node, start, is_restart) = (member.node, StartNumber::new(5), true);
        let joined = Answer::Joined { node, start, ring, is_restart };
        [Answer::Done, joined, Answer::Revised { revision: Revision::new(6) }]
    }

    #[test]
    fn every_refusal_is_read_as_it_was_written_and_every_cut_is_too_short() {
        for refused in refusals() {
            let bytes = refused.encode();
            assert_eq!(Refused::decode(&bytes), Ok(refused));
            for length in 0..bytes.len() {
                assert_eq!(Refused::decode(&bytes[..length]), Err(DecodeError::TooShort));
            }
        }
    }

    #[test]
    fn every_answer_is_read_as_it_was_written_and_every_cut_is_too_short() {
        for answer in answers() {
            let bytes = answer.encode();
            let read = Answer::decode(&bytes).expect("an answer's bytes");
            assert_eq!(
                (read.encode(), format!("{read:?}")),
                (bytes.clone(), format!("{answer:?}"))
            );
            for length in 0..bytes.len() {
                assert_eq!(Answer::decode(&bytes[..length]).err(), Some(DecodeError::TooShort));
            }
        }
    }

    #[test]
    fn the_encodings_are_pinned_by_golden_vectors() {
        let hex =
            |bytes: Vec<u8>| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
        let [done, joined, revised] = answers().map(|answer| hex(answer.encode()));
        assert_eq!(done, "0100");
        assert_eq!(
            joined,
            "0101020000000500000000000000040000000000000001000000020000000300000001"
        );
        assert_eq!(revised, "01020600000000000000");
        let all: Vec<String> = refusals().iter().map(|refused| hex(refused.encode())).collect();
        assert_eq!(all, REFUSALS);
    }

    const REFUSALS: [&str; 22] = [
        "0100",
        "0101",
        "010202000000",
        "010302000000",
        "0104",
        "0105",
        "01060101000000000000",
        "010702000000",
        "01080200000003000000000000000400000000000000",
        "010a05000000000000000600000000000000",
        "010b0600000000000000",
        "010900",
        "01090102000000",
        "0109020200000000000000",
        "010c000800000000000000",
        "010c010800000000000000",
        "010c021127000000000000",
        "010c0307000000000000000800000000000000",
        "010c040700000000000000",
        "010c0507000000000000000800000000000000",
        "010c060800000000000000",
        "010c07",
    ];
}
