//! The limits of a fleet as documents with revisions: which text is in force, since when, and what
//! was before.
//!
//! A limit whose text is unchanged keeps its generation; a changed, new or returning one gets the
//! document's revision. Its number it keeps as long as it is in each next document, changed or not;
//! a new or returning one gets the next number. What a text means is not known here: it was parsed
//! before it was proposed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use super::command::{Edit, LimitText, Refused, Revision};

/// A policy as it was at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Which document this is.
    pub revision: Revision,
    /// Who put it.
    pub author: String,
    /// On what grounds.
    pub comment: String,
    /// When, by the proposer's wall clock, in seconds since 1970.
    pub unix_seconds: u64,
    /// Every limit, in the order in which they were given.
    pub limits: Box<[Arc<PolicyLimit>]>,
}

/// One limit of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyLimit {
    /// What tells it from the others.
    pub name: String,
    /// The same for nodes, shorter: given when the name appeared, and never to another one. Counted
    /// from 1.
    pub number: u32,
    /// The revision that last changed it. No other text of this name ever has it.
    pub generation: Revision,
    /// The limit as it was written.
    pub text: String,
}

impl PolicyLimit {
    fn bytes(&self) -> usize {
        self.name.len() + self.text.len()
    }
}

/// The document in force and those before it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Policies {
    /// Oldest first, with revisions that follow each other; empty only before the first document.
    history: VecDeque<Arc<Document>>,
    /// The last number that was given to a limit.
    numbers: u32,
}

impl Policies {
    /// The documents that were kept, oldest first, as [`Self::history`] gives them, and the last
    /// number that was given.
    pub(super) fn new(history: VecDeque<Arc<Document>>, numbers: u32) -> Self {
        Self { history, numbers }
    }

    /// Puts a document in force and returns its revision; refused, it changes nothing.
    pub(super) fn put(&mut self, edit: Edit, limits: Vec<LimitText>) -> Result<Revision, Refused> {
        let current = self.revision();
        if let Some(expected) = edit.expected.filter(|&expected| expected != current) {
            return Err(Refused::OtherRevision { expected, current });
        }
        check(&edit, &limits).map_err(Refused::Policy)?;
        let revision = Revision::new(current.get() + 1);
        let mut numbers = self.numbers;
        let limits = self.in_force(limits, revision, &mut numbers)?;
        self.numbers = numbers;
        let Edit { author, comment, unix_seconds, expected: _ } = edit;
        let document = Document { revision, author, comment, unix_seconds, limits };
        self.history.push_back(Arc::new(document));
        self.forget();
        debug_assert_eq!(self.revision(), revision);
        Ok(revision)
    }

    /// Puts the document of an older revision in force again.
    pub(super) fn roll_back(&mut self, edit: Edit, to: Revision) -> Result<Revision, Refused> {
        let older = self.history.iter().find(|document| document.revision == to);
        let older = older.ok_or(Refused::NoSuchRevision { revision: to })?;
        let text = |limit: &Arc<PolicyLimit>| LimitText {
            name: limit.name.clone(),
            text: limit.text.clone(),
        };
        let limits = older.limits.iter().map(text).collect();
        self.put(edit, limits)
    }

    /// The document in force.
    pub(super) fn current(&self) -> Option<&Arc<Document>> {
        self.history.back()
    }

    /// The documents that are kept, oldest first.
    pub(super) fn history(&self) -> &VecDeque<Arc<Document>> {
        &self.history
    }

    /// The number of the document in force.
    pub(super) fn revision(&self) -> Revision {
        self.current().map_or(Revision::ZERO, |document| document.revision)
    }

    /// The last number that was given to a limit.
    pub(super) fn numbers(&self) -> u32 {
        self.numbers
    }

    /// The limits with their generations, and with numbers after the last one given, `numbers`;
    /// unchanged ones are shared with the document before.
    fn in_force(
        &self,
        limits: Vec<LimitText>,
        revision: Revision,
        numbers: &mut u32,
    ) -> Result<Box<[Arc<PolicyLimit>]>, Refused> {
        let before = self.current().map_or(&[][..], |document| &document.limits);
        let before: BTreeMap<&str, &Arc<PolicyLimit>> =
            before.iter().map(|limit| (&*limit.name, limit)).collect();
        if crate::mutant::lacks("limit_number_reused") {
            *numbers = before.len() as u32;
        }
        let mut in_force = Vec::with_capacity(limits.len());
        for LimitText { name, text } in limits {
            let (number, generation) = match before.get(&*name) {
                Some(&limit) if limit.text == text => {
                    in_force.push(limit.clone());
                    continue;
                }
                Some(limit) if crate::mutant::lacks("generation_kept_on_change") => {
                    (limit.number, limit.generation)
                }
                Some(limit) => (limit.number, revision),
                None => {
                    let next = numbers.checked_add(1);
                    *numbers = next.ok_or(Refused::Policy(PolicyError::NoNumbersLeft))?;
                    (*numbers, revision)
                }
            };
            in_force.push(Arc::new(PolicyLimit { name, number, generation, text }));
        }
        Ok(in_force.into())
    }

    /// Forgets the oldest documents that there is no room for; never the one in force.
    fn forget(&mut self) {
        let kept = self.history.make_contiguous();
        // Each text was new in exactly one document, the oldest kept one's aside.
        let mut later: usize = kept.iter().skip(1).map(|document| new_bytes(document)).sum();
        let mut forgotten = kept.len().saturating_sub(POLICY_HISTORY_MAX);
        later -= kept.iter().skip(1).take(forgotten).map(|kept| new_bytes(kept)).sum::<usize>();
        while forgotten + 1 < kept.len() && all_bytes(&kept[forgotten]) + later > HISTORY_BYTES_MAX
        {
            forgotten += 1;
            later -= new_bytes(&kept[forgotten]);
        }
        self.history.drain(..forgotten);
    }
}

/// What a document says in all.
fn all_bytes(document: &Document) -> usize {
    document.limits.iter().map(|limit| limit.bytes()).sum()
}

/// What a document says that none before it said.
fn new_bytes(document: &Document) -> usize {
    let new = document.limits.iter().filter(|limit| limit.generation == document.revision);
    new.map(|limit| limit.bytes()).sum()
}

/// Whether a document has bounds that it may be kept with.
fn check(edit: &Edit, limits: &[LimitText]) -> Result<(), PolicyError> {
    if edit.author.len() > AUTHOR_BYTES_MAX {
        return Err(PolicyError::AuthorTooLong { bytes: edit.author.len() });
    }
    if edit.comment.len() > COMMENT_BYTES_MAX {
        return Err(PolicyError::CommentTooLong { bytes: edit.comment.len() });
    }
    if limits.len() > LIMITS_MAX {
        return Err(PolicyError::TooManyLimits { limits: limits.len() });
    }
    let mut names = BTreeSet::new();
    let mut sum = 0;
    for (index, LimitText { name, text }) in limits.iter().enumerate() {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(PolicyError::Name { index, bytes: name.len() });
        }
        if text.len() > TEXT_BYTES_MAX {
            return Err(PolicyError::TextTooLong { index, bytes: text.len() });
        }
        if !names.insert(name) {
            return Err(PolicyError::NameTwice { index });
        }
        sum += name.len() + text.len();
    }
    if sum > DOCUMENT_BYTES_MAX {
        return Err(PolicyError::TooLarge { bytes: sum });
    }
    Ok(())
}

/// Why a document can't be kept. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyError {
    /// An author of more than 256 bytes.
    AuthorTooLong {
        /// Their length.
        bytes: usize,
    },
    /// A comment of more than 4 KiB.
    CommentTooLong {
        /// Its length.
        bytes: usize,
    },
    /// More than 10,000 limits.
    TooManyLimits {
        /// How many.
        limits: usize,
    },
    /// A name that is empty or longer than 512 bytes.
    Name {
        /// Which limit, from 0.
        index: usize,
        /// The name's length.
        bytes: usize,
    },
    /// A name that an earlier limit has.
    NameTwice {
        /// Which limit, from 0.
        index: usize,
    },
    /// A text of more than 1 MiB.
    TextTooLong {
        /// Which limit, from 0.
        index: usize,
        /// The text's length.
        bytes: usize,
    },
    /// Names and texts of more than 8 MiB together.
    TooLarge {
        /// How long they are.
        bytes: usize,
    },
    /// All 2^32 - 1 numbers of limits have been given out.
    NoNumbersLeft,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::AuthorTooLong { bytes } => {
                write!(f, "an author has at most {AUTHOR_BYTES_MAX} bytes, not {bytes}")
            }
            Self::CommentTooLong { bytes } => {
                write!(f, "a comment has at most {COMMENT_BYTES_MAX} bytes, not {bytes}")
            }
            Self::TooManyLimits { limits } => {
                write!(f, "a policy has at most {LIMITS_MAX} limits, not {limits}")
            }
            Self::Name { index, bytes } => {
                write!(f, "limit {index}: a name has 1 to {NAME_BYTES_MAX} bytes, not {bytes}")
            }
            Self::NameTwice { index } => write!(f, "limit {index} repeats an earlier name"),
            Self::TextTooLong { index, bytes } => {
                write!(f, "limit {index}: a text has at most {TEXT_BYTES_MAX} bytes, not {bytes}")
            }
            Self::TooLarge { bytes } => {
                write!(f, "a policy has at most {DOCUMENT_BYTES_MAX} bytes, not {bytes}")
            }
            Self::NoNumbersLeft => f.write_str("all numbers of limits have been given out"),
        }
    }
}

impl std::error::Error for PolicyError {}

/// Documents that are kept at most, the one in force included.
pub(super) const POLICY_HISTORY_MAX: usize = 100;
/// Limits of a document at most.
pub(super) const LIMITS_MAX: usize = 10_000;
pub(super) const NAME_BYTES_MAX: usize = 512;
pub(super) const TEXT_BYTES_MAX: usize = 1 << 20;
pub(super) const AUTHOR_BYTES_MAX: usize = 256;
pub(super) const COMMENT_BYTES_MAX: usize = 4 << 10;
/// Names and texts of one document at most.
pub(super) const DOCUMENT_BYTES_MAX: usize = 8 << 20;
/// Names and texts of all kept documents at most, what documents share counted once.
pub(super) const HISTORY_BYTES_MAX: usize = 64 << 20;

const _: () = assert!(DOCUMENT_BYTES_MAX <= HISTORY_BYTES_MAX, "the document in force is kept");

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(name: &str, text: impl Into<String>) -> LimitText {
        LimitText { name: name.into(), text: text.into() }
    }

    fn put(policies: &mut Policies, limits: &[(&str, &str)]) -> Vec<u64> {
        let limits = limits.iter().map(|(name, text)| limit(name, *text)).collect();
        policies.put(Edit::default(), limits).expect("sound");
        generations(policies)
    }

    fn generations(policies: &Policies) -> Vec<u64> {
        let document = policies.current().expect("a document");
        document.limits.iter().map(|limit| limit.generation.get()).collect()
    }

    #[test]
    fn an_unchanged_limit_keeps_its_generation_and_a_changed_one_gets_the_revision() {
        let mut policies = Policies::default();
        assert_eq!(put(&mut policies, &[("a", "1/s"), ("b", "2/s")]), [1, 1]);
        assert_eq!(put(&mut policies, &[("a", "1/s"), ("b", "3/s")]), [1, 2]);
        // In another order they are the same limits.
        assert_eq!(put(&mut policies, &[("b", "3/s"), ("a", "1/s")]), [2, 1]);
    }

    #[test]
    fn a_limit_that_was_removed_comes_back_with_a_new_generation() {
        let mut policies = Policies::default();
        put(&mut policies, &[("a", "1/s")]);
        put(&mut policies, &[]);
        assert_eq!(put(&mut policies, &[("a", "1/s")]), [3]);
    }

    #[test]
    fn a_limit_keeps_its_number_while_it_is_there_and_no_other_ever_gets_it() {
        let mut policies = Policies::default();
        let mut numbers = |limits: &[(&str, &str)]| {
            put(&mut policies, limits);
            let document = policies.current().expect("a document");
            document.limits.iter().map(|limit| limit.number).collect::<Vec<_>>()
        };
        assert_eq!(numbers(&[("a", "1/s"), ("b", "2/s")]), [1, 2]);
        // Changed, and in another order, they are the same limits.
        assert_eq!(numbers(&[("b", "3/s"), ("a", "1/s")]), [2, 1]);
        assert_eq!(numbers(&[("c", "1/s"), ("b", "3/s")]), [3, 2]);
        assert_eq!(numbers(&[("a", "1/s"), ("c", "1/s"), ("b", "3/s")]), [4, 3, 2]);
    }

    #[test]
    fn when_all_numbers_are_given_out_no_new_limit_is_taken() {
        let mut policies = Policies::new(VecDeque::new(), u32::MAX - 1);
        put(&mut policies, &[("a", "1/s")]);
        let before = policies.clone();
        let refused = policies.put(Edit::default(), vec![limit("a", "2/s"), limit("b", "1/s")]);
        assert_eq!(refused, Err(Refused::Policy(PolicyError::NoNumbersLeft)));
        assert_eq!(policies, before);
        put(&mut policies, &[("a", "2/s")]);
    }

    #[test]
    fn a_rollback_is_a_new_revision_and_changes_what_differs() {
        let mut policies = Policies::default();
        put(&mut policies, &[("a", "1/s"), ("b", "2/s")]);
        put(&mut policies, &[("a", "1/s"), ("b", "3/s")]);
        let revision = policies.roll_back(Edit::default(), Revision::new(1)).expect("kept");
        assert_eq!((revision.get(), generations(&policies)), (3, vec![1, 3]));
        let gone = policies.roll_back(Edit::default(), Revision::new(9));
        assert_eq!(gone, Err(Refused::NoSuchRevision { revision: Revision::new(9) }));
    }

    #[test]
    fn whoever_saw_another_revision_is_refused() {
        let mut policies = Policies::default();
        let expecting = |number| Edit { expected: Some(Revision::new(number)), ..Edit::default() };
        policies.put(expecting(0), vec![]).expect("empty");
        let late = policies.put(expecting(0), vec![limit("a", "1/s")]);
        let (expected, current) = (Revision::ZERO, Revision::new(1));
        assert_eq!(late, Err(Refused::OtherRevision { expected, current }));
        assert_eq!(policies.current().expect("one").limits.len(), 0);
        policies.put(expecting(1), vec![]).expect("the one in force");
    }

    #[test]
    fn the_101st_document_puts_the_first_out() {
        let mut policies = Policies::default();
        for number in 1..=101_u64 {
            put(&mut policies, &[("a", &number.to_string())]);
        }
        let revisions: Vec<u64> =
            policies.history().iter().map(|document| document.revision.get()).collect();
        assert_eq!(revisions, (2..=101).collect::<Vec<_>>());
    }

    #[test]
    fn large_documents_put_old_ones_out_and_shared_texts_count_once() {
        // 8 MiB in 8 texts and names: eight such documents of different texts are 64 MiB.
        let large = |salt: char| {
            let text = salt.to_string().repeat(TEXT_BYTES_MAX - 3);
            (0..8).map(|index| limit(&format!("{index:03}"), &*text)).collect::<Vec<_>>()
        };
        let mut policies = Policies::default();
        for _ in 0..50 {
            policies.put(Edit::default(), large('a')).expect("8 MiB");
        }
        assert_eq!(policies.history().len(), 50);
        for salt in 'b'..='j' {
            policies.put(Edit::default(), large(salt)).expect("8 MiB");
        }
        let revisions: Vec<u64> =
            policies.history().iter().map(|document| document.revision.get()).collect();
        assert_eq!(revisions, (52..=59).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_too_much_is_refused_by_name_and_changes_nothing() {
        let many = (0..=LIMITS_MAX).map(|index| limit(&index.to_string(), "")).collect();
        let long = "x".repeat(TEXT_BYTES_MAX);
        let large = (0..8).map(|index| limit(&index.to_string(), &*long)).collect();
        let cases = [
            (many, PolicyError::TooManyLimits { limits: 10_001 }),
            (large, PolicyError::TooLarge { bytes: (8 << 20) + 8 }),
            (vec![limit("", "")], PolicyError::Name { index: 0, bytes: 0 }),
            (vec![limit(&"n".repeat(513), "")], PolicyError::Name { index: 0, bytes: 513 }),
            (vec![limit("a", ""), limit("a", "")], PolicyError::NameTwice { index: 1 }),
            (vec![limit("a", long + "x")], PolicyError::TextTooLong { index: 0, bytes: 1_048_577 }),
        ];
        let mut policies = Policies::default();
        for (limits, error) in cases {
            let refused = policies.put(Edit::default(), limits);
            assert_eq!(refused, Err(Refused::Policy(error)));
        }
        let edit = Edit { author: "a".repeat(257), ..Edit::default() };
        let error = PolicyError::AuthorTooLong { bytes: 257 };
        assert_eq!(policies.put(edit, vec![]), Err(Refused::Policy(error)));
        let edit = Edit { comment: "c".repeat(4_097), ..Edit::default() };
        let error = PolicyError::CommentTooLong { bytes: 4_097 };
        assert_eq!(policies.put(edit, vec![]), Err(Refused::Policy(error)));
        assert_eq!(policies, Policies::default());
    }
}
