//! Commands as bytes: what a log keeps and what replicas forward.
//!
//! The bounds of texts and lists are not known here: whoever applies a command refuses it by name,
//! and a log that holds one must be readable. What is read is no larger than its bytes.
//!
//! ```text
//! version 1 | kind u8 | the kind's fields in the order in which they are declared
//! edit  expected u8 [u64], author text, comment text, unix_seconds u64
//! ```

use super::super::command::{Command, Edit, FleetSecret, LimitText, Revision, StartNumber};
use super::bytes::{DecodeError, Reader, Writer};
use crate::ring::NodeId;

impl Command {
    /// The command's bytes; equal commands have equal bytes.
    ///
    /// A join has 12 bytes and its address, a new policy some 20 and 8 for each limit besides its
    /// texts.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u8(VERSION);
        match self {
            Self::Found { secret, fleet, voters_max } => {
                out.u8(FOUND);
                out.0.extend(secret.bytes());
                out.u64(*fleet);
                out.u32(*voters_max);
            }
            Self::Join { node, weight, address, is_candidate } => {
                out.u8(JOIN);
                out.option(*node, |out, node| out.u32(node.get()));
                out.u32(*weight);
                out.text(address);
                out.u8(u8::from(*is_candidate));
            }
            Self::Leave { node, start } => {
                out.u8(LEAVE);
                out.u32(node.get());
                out.u64(start.get());
            }
            Self::Lose { node, start } => {
                out.u8(LOSE);
                out.u32(node.get());
                out.u64(start.get());
            }
            Self::SetWeight { node, weight } => {
                out.u8(SET_WEIGHT);
                out.u32(node.get());
                out.u32(*weight);
            }
            Self::PutPolicy { edit, limits } => {
                out.u8(PUT_POLICY);
                out.edit_of(edit);
                out.count(limits.len());
                for limit in limits {
                    out.text(&limit.name);
                    out.text(&limit.text);
                }
            }
            Self::Rollback { edit, to } => {
                out.u8(ROLLBACK);
                out.edit_of(edit);
                out.u64(to.get());
            }
        }
        out.0
    }

    /// The command that `bytes` encode.
    ///
    /// # Errors
    /// When they are not what [`Self::encode`] makes of any command: cut, changed or of another
    /// version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Reader::new(bytes);
        input.version("command", VERSION)?;
        let command = match input.u8()? {
            FOUND => Self::Found {
                secret: FleetSecret::new(input.array()?),
                fleet: input.u64()?,
                voters_max: input.u32()?,
            },
            JOIN => Self::Join {
                node: input.option("node", |input| Ok(NodeId::new(input.u32()?)))?,
                weight: input.u32()?,
                address: input.text("address", usize::MAX)?,
                is_candidate: input.flag("candidacy")?,
            },
            LEAVE => Self::Leave { node: input.node()?, start: input.start()? },
            LOSE => Self::Lose { node: input.node()?, start: input.start()? },
            SET_WEIGHT => Self::SetWeight { node: input.node()?, weight: input.u32()? },
            PUT_POLICY => Self::PutPolicy { edit: input.edit_of()?, limits: input.texts()? },
            ROLLBACK => Self::Rollback { edit: input.edit_of()?, to: Revision::new(input.u64()?) },
            _ => return Err(DecodeError::Malformed("kind of command")),
        };
        input.end()?;
        Ok(command)
    }
}

impl Writer {
    fn edit_of(&mut self, edit: &Edit) {
        self.option(edit.expected, |out, expected| out.u64(expected.get()));
        self.text(&edit.author);
        self.text(&edit.comment);
        self.u64(edit.unix_seconds);
    }
}

impl Reader<'_> {
    pub(super) fn node(&mut self) -> Result<NodeId, DecodeError> {
        self.u32().map(NodeId::new)
    }

    pub(super) fn start(&mut self) -> Result<StartNumber, DecodeError> {
        self.u64().map(StartNumber::new)
    }

    fn edit_of(&mut self) -> Result<Edit, DecodeError> {
        Ok(Edit {
            expected: self.option("expected", |input| Ok(Revision::new(input.u64()?)))?,
            author: self.text("author", usize::MAX)?,
            comment: self.text("comment", usize::MAX)?,
            unix_seconds: self.u64()?,
        })
    }

    fn texts(&mut self) -> Result<Vec<LimitText>, DecodeError> {
        let mut limits = Vec::new();
        // Each is read before the next one is kept: a false count ends where the bytes do.
        for _ in 0..self.u32()? {
            let name = self.text("name", usize::MAX)?;
            limits.push(LimitText { name, text: self.text("text", usize::MAX)? });
        }
        Ok(limits)
    }
}

const VERSION: u8 = 1;
const FOUND: u8 = 0;
const JOIN: u8 = 1;
const LEAVE: u8 = 2;
const LOSE: u8 = 3;
const SET_WEIGHT: u8 = 4;
const PUT_POLICY: u8 = 5;
const ROLLBACK: u8 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn commands() -> [(Command, &'static str); 8] {
        let (node, start) = (NodeId::new(2), StartNumber::new(3));
        let edit = Edit {
            expected: Some(Revision::new(4)),
            author: "me".into(),
            comment: "why".into(),
            unix_seconds: 5,
        };
        let limit = |name: &str, text: &str| LimitText { name: name.into(), text: text.into() };
        let address = String::from("a:1");
        let secret = FleetSecret::new([0xAB; 32]);
        [
            (
                Command::Found { secret, fleet: 7, voters_max: 5 },
                "0100abababababababababababababababababababababababababababababababab\
                 070000000000000005000000",
            ),
            (
                Command::Join { node: None, weight: 1, address, is_candidate: true },
                "01010001000000 03000000613a31 01",
            ),
            (
                Command::Join {
                    node: Some(node),
                    weight: 1,
                    address: String::new(),
                    is_candidate: false,
                },
                "01010102000000 01000000 00000000 00",
            ),
            (Command::Leave { node, start }, "0102 02000000 0300000000000000"),
            (Command::Lose { node, start }, "0103 02000000 0300000000000000"),
            (Command::SetWeight { node, weight: 9 }, "0104 02000000 09000000"),
            (
                Command::PutPolicy { edit: edit.clone(), limits: vec![limit("a", "1/s")] },
                "0105 010400000000000000 020000006d65 03000000776879 0500000000000000
                 01000000 0100000061 03000000312f73",
            ),
            (
                Command::Rollback { edit: Edit { expected: None, ..edit }, to: Revision::new(6) },
                "0106 00 020000006d65 03000000776879 0500000000000000 0600000000000000",
            ),
        ]
    }

    #[test]
    fn the_encoding_is_pinned_by_golden_vectors() {
        for (command, golden) in commands() {
            let hex: String = command.encode().iter().map(|byte| format!("{byte:02x}")).collect();
            let golden: String = golden.split_whitespace().collect();
            assert_eq!(hex, golden, "{command:?}");
        }
    }

    #[test]
    fn every_cut_of_a_command_is_too_short_and_every_addition_too_long() {
        for (command, _) in commands() {
            let mut bytes = command.encode();
            for length in 0..bytes.len() {
                assert_eq!(Command::decode(&bytes[..length]), Err(DecodeError::TooShort));
            }
            assert_eq!(Command::decode(&bytes), Ok(command));
            bytes.push(0);
            assert_eq!(Command::decode(&bytes), Err(DecodeError::TooLong { bytes: 1 }));
        }
    }

    #[test]
    fn what_is_no_command_is_told_by_name() {
        let what = "command";
        let other = DecodeError::OtherVersion { what, version: 2, known: 1 };
        assert_eq!(Command::decode(&[2, 0]), Err(other));
        assert_eq!(Command::decode(&[1, 7]), Err(DecodeError::Malformed("kind of command")));
        assert_eq!(Command::decode(&[1, JOIN, 2]), Err(DecodeError::Malformed("node")));
        let text = [1, JOIN, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0xFF];
        assert_eq!(Command::decode(&text), Err(DecodeError::Malformed("address")));
    }

    #[test]
    fn a_command_that_will_be_refused_is_read_as_it_was_written() {
        let address = "a".repeat(70_000);
        let command = Command::Join { node: None, weight: 0, address, is_candidate: false };
        assert_eq!(Command::decode(&command.encode()), Ok(command));
    }
}
