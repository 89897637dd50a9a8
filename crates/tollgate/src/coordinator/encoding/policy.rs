//! Documents as bytes: one by itself, and all that are kept, with what they share written once.
//!
//! ```text
//! document  version 1 | revision u64 | edit | limits u32 × limit
//! kept      numbers u32 | revision u64 | limits u32 × limit | u32 × (edit, limits u32 × u32)
//! edit      unix_seconds u64, author text, comment text
//! limit     name text, number u32, generation u64, text text
//! ```
//!
//! A limit of those kept is named by its place, in the order of names and generations.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::super::command::Revision;
use super::super::policy::{
    AUTHOR_BYTES_MAX, COMMENT_BYTES_MAX, DOCUMENT_BYTES_MAX, Document, HISTORY_BYTES_MAX,
    LIMITS_MAX, NAME_BYTES_MAX, POLICY_HISTORY_MAX, Policies, PolicyLimit, TEXT_BYTES_MAX,
};
use super::bytes::{DecodeError, Reader, Writer};

impl Document {
    /// The document's bytes; equal documents have equal bytes. 100 limits of 200 bytes make some
    /// 22 kB, the largest document 8.5 MB.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u8(VERSION);
        out.u64(self.revision.get());
        out.edit(self);
        out.count(self.limits.len());
        self.limits.iter().for_each(|limit| out.limit(limit));
        out.0
    }

    /// The document that `bytes` encode.
    ///
    /// # Errors
    /// When they are not what [`Self::encode`] makes of any document that was in force: cut,
    /// changed or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Reader::new(bytes);
        input.version("document", VERSION)?;
        let revision = Revision::new(input.u64()?);
        let edit = input.edit()?;
        let mut limits = Vec::new();
        let mut bytes = 0;
        for _ in 0..input.count("limits", LIMITS_MAX)? {
            limits.push(input.limit(&mut bytes, DOCUMENT_BYTES_MAX)?);
        }
        input.end()?;
        edit.document(revision, limits)
    }
}

/// What a document says of its origin.
struct Origin {
    unix_seconds: u64,
    author: String,
    comment: String,
}

impl Origin {
    fn document(
        self,
        revision: Revision,
        limits: Vec<Arc<PolicyLimit>>,
    ) -> Result<Document, DecodeError> {
        let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
        for limit in &limits {
            let is_of_its_time = (Revision::new(1)..=revision).contains(&limit.generation);
            if !is_of_its_time || !names.insert(&*limit.name) || !numbers.insert(limit.number) {
                return Err(DecodeError::Malformed("limits of a document"));
            }
        }
        let Self { unix_seconds, author, comment } = self;
        Ok(Document { revision, author, comment, unix_seconds, limits: limits.into() })
    }
}

impl Writer {
    pub(super) fn policies(&mut self, policies: &Policies) {
        self.u32(policies.numbers());
        self.u64(policies.revision().get());
        let mut places: BTreeMap<(&str, Revision), (&PolicyLimit, usize)> = policies
            .history()
            .iter()
            .flat_map(|document| document.limits.iter())
            .map(|limit| ((&*limit.name, limit.generation), (&**limit, 0)))
            .collect();
        self.count(places.len());
        for (index, (limit, place)) in places.values_mut().enumerate() {
            *place = index;
            self.limit(limit);
        }
        self.count(policies.history().len());
        for document in policies.history() {
            self.edit(document);
            self.count(document.limits.len());
            for limit in &document.limits {
                self.count(places[&(&*limit.name, limit.generation)].1);
            }
        }
    }

    fn edit(&mut self, document: &Document) {
        self.u64(document.unix_seconds);
        self.text(&document.author);
        self.text(&document.comment);
    }

    fn limit(&mut self, limit: &PolicyLimit) {
        self.text(&limit.name);
        self.u32(limit.number);
        self.u64(limit.generation.get());
        self.text(&limit.text);
    }
}

impl Reader<'_> {
    pub(super) fn policies(&mut self) -> Result<Policies, DecodeError> {
        let numbers = self.u32()?;
        let last = self.u64()?;
        let limits = self.kept_limits(numbers)?;
        let count = self.count("documents", POLICY_HISTORY_MAX)?;
        // They follow each other up to the one in force, which is never forgotten.
        let before = last.checked_sub(count as u64).filter(|_| (count == 0) == (last == 0));
        let before = before.ok_or(DecodeError::Malformed("documents"))?;
        let mut used = vec![false; limits.len()];
        let mut history = VecDeque::new();
        for number in 1..=count as u64 {
            let revision = Revision::new(before + number);
            history.push_back(Arc::new(self.kept_document(revision, &limits, &mut used)?));
        }
        if used.contains(&false) {
            return Err(DecodeError::Malformed("limits"));
        }
        Ok(Policies::new(history, numbers))
    }

    /// What documents refer to, by name and generation.
    fn kept_limits(&mut self, numbers: u32) -> Result<Vec<Arc<PolicyLimit>>, DecodeError> {
        let malformed = DecodeError::Malformed("limits");
        let mut limits: Vec<Arc<PolicyLimit>> = Vec::new();
        let mut names: BTreeMap<u32, usize> = BTreeMap::new();
        let mut bytes = 0;
        for place in 0..self.count("limits", POLICY_HISTORY_MAX * LIMITS_MAX)? {
            let limit = self.limit(&mut bytes, HISTORY_BYTES_MAX)?;
            let ascends = limits
                .last()
                .is_none_or(|last| (&last.name, last.generation) < (&limit.name, limit.generation));
            // A number is one name's, and a name's later numbers are larger.
            let first = *names.entry(limit.number).or_insert(place);
            let is_one_name = limits.get(first).is_none_or(|other| other.name == limit.name);
            let grows = limits
                .last()
                .is_none_or(|last| last.name != limit.name || last.number <= limit.number);
            if limit.number > numbers || !ascends || !is_one_name || !grows {
                return Err(malformed);
            }
            limits.push(limit);
        }
        Ok(limits)
    }

    /// A limit; `bytes` counts names and texts, up to `max`.
    fn limit(&mut self, bytes: &mut usize, max: usize) -> Result<Arc<PolicyLimit>, DecodeError> {
        let name = self.text("name", NAME_BYTES_MAX)?;
        let number = self.u32()?;
        let generation = Revision::new(self.u64()?);
        let text = self.text("text", TEXT_BYTES_MAX)?;
        if name.is_empty() || number == 0 {
            return Err(DecodeError::Malformed("limits"));
        }
        *bytes += name.len() + text.len();
        if *bytes > max {
            return Err(DecodeError::TooMany { what: "bytes of limits", count: *bytes });
        }
        Ok(Arc::new(PolicyLimit { name, number, generation, text }))
    }

    fn edit(&mut self) -> Result<Origin, DecodeError> {
        Ok(Origin {
            unix_seconds: self.u64()?,
            author: self.text("author", AUTHOR_BYTES_MAX)?,
            comment: self.text("comment", COMMENT_BYTES_MAX)?,
        })
    }

    fn kept_document(
        &mut self,
        revision: Revision,
        known: &[Arc<PolicyLimit>],
        used: &mut [bool],
    ) -> Result<Document, DecodeError> {
        let origin = self.edit()?;
        let mut limits = Vec::new();
        for _ in 0..self.count("limits of a document", LIMITS_MAX)? {
            let place = self.u32()? as usize;
            let limit = known.get(place).ok_or(DecodeError::Malformed("limits of a document"))?;
            used[place] = true;
            limits.push(limit.clone());
        }
        origin.document(revision, limits)
    }
}

const VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::super::super::command::{Edit, LimitText};
    use super::*;

    fn document() -> Document {
        let mut policies = Policies::default();
        let limit = |name: &str, text: &str| LimitText { name: name.into(), text: text.into() };
        let edit = Edit {
            author: "x".into(),
            comment: "yz".into(),
            unix_seconds: 1_700_000_000,
            ..Edit::default()
        };
        policies.put(edit.clone(), vec![limit("b", "same"), limit("a", "1/s")]).expect("sound");
        policies.put(edit, vec![limit("a", "2/s"), limit("b", "same")]).expect("sound");
        policies.current().map(|document| Document::clone(document)).expect("put")
    }

    #[test]
    fn the_encoding_of_a_document_is_pinned_by_a_golden_vector() {
        let hex: String = document().encode().iter().map(|byte| format!("{byte:02x}")).collect();
        let golden = [
            // Version, revision; when, author, comment.
            "010200000000000000",
            "00f1536500000000010000007802000000797a",
            // Limit a, number 2, generation 2; limit b, number 1, generation 1.
            "02000000",
            "010000006102000000020000000000000003000000322f73",
            "01000000620100000001000000000000000400000073616d65",
        ]
        .concat();
        assert_eq!(hex, golden);
    }

    #[test]
    fn a_document_is_read_as_it_was_written_and_every_cut_is_too_short() {
        let bytes = document().encode();
        assert_eq!(Document::decode(&bytes), Ok(document()));
        for length in 0..bytes.len() {
            assert_eq!(Document::decode(&bytes[..length]), Err(DecodeError::TooShort), "{length}");
        }
        assert_eq!(
            Document::decode(&[&bytes[..], &[0]].concat()),
            Err(DecodeError::TooLong { bytes: 1 })
        );
    }

    #[test]
    fn two_limits_of_a_document_have_two_names_and_two_numbers() {
        let bytes = document().encode();
        let with = |place: usize, byte: u8| {
            let mut changed = bytes.clone();
            changed[place] = byte;
            Document::decode(&changed)
        };
        let (second, malformed) = (60, DecodeError::Malformed("limits of a document"));
        assert_eq!(with(second, b'a'), Err(malformed.clone()));
        assert_eq!(with(second + 1, 2), Err(malformed.clone()));
        // Nor is a limit younger than its document.
        assert_eq!(with(second + 5, 3), Err(malformed));
    }
}
