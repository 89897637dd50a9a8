//! A limit as a text of the fleet's store, and back: one JSON object for each limit of any dialect.
//!
//! The text says everything that a limit is, defaults of burst and local cap included, so that a
//! later version with other defaults reads the limit that was agreed on. What the fields mean is
//! known in crate `tollgate`; how policies are written by people, in the daemon.

mod fields;

use std::fmt;

use tollgate::coordinator::{Document, LimitText};
use tollgate::{Limit, LimitError};
use xxhash_rust::xxh3::xxh3_128;

pub use fields::{LimitFields, OverrideFields, OversizeWord, Pairs, StepFields};

/// The texts of limits, in their order.
///
/// ```
/// use tollgate::{Limit, LimitSpec};
/// use tollgate_tokio::limit_text::to_texts;
/// let spec = LimitSpec { name: "api", key: &["tenant"], rate: "10/s", ..LimitSpec::DEFAULT };
/// let texts = to_texts(&[Limit::parse(&spec)?]);
/// assert_eq!(texts[0].name, "default/api");
/// assert_eq!(texts[0].text, r#"{"name":"api","key":["tenant"],"rate":"10/s","burst":10}"#);
/// # Ok::<(), tollgate::LimitError>(())
/// ```
#[must_use]
pub fn to_texts(limits: &[Limit]) -> Vec<LimitText> {
    limits.iter().map(to_text).collect()
}

fn to_text(limit: &Limit) -> LimitText {
    let text = serde_json::to_string(&LimitFields::of(limit));
    let text = text.expect("texts, numbers and maps by text have a JSON form");
    LimitText { name: name_of(limit), text }
}

/// What tells a limit from all others of its fleet: `domain/identity`, at most 512 bytes.
///
/// A longer one (a path has up to 70 kB) is cut, and ends with `#` and a hash of all of it.
#[must_use]
pub fn name_of(limit: &Limit) -> String {
    let mut name = format!("{}/{}", limit.domain(), limit.identity());
    if name.len() > NAME_BYTES_MAX {
        // No name of a limit has a `#`, and an identity that is a path ends with a quote.
        let hash = format!("#{:032x}", xxh3_128(name.as_bytes()));
        name.truncate(name.floor_char_boundary(NAME_BYTES_MAX - hash.len()));
        name += &hash;
    }
    debug_assert!(name.len() <= NAME_BYTES_MAX);
    name
}

/// The limits of a document, in its order.
///
/// # Errors
/// [`LimitTextError`] names the first limit that can't be read. A document that this version has
/// put is read by it.
pub fn from_document(document: &Document) -> Result<Vec<Limit>, LimitTextError> {
    document.limits.iter().map(|limit| from_text(&limit.name, &limit.text)).collect()
}

/// The limit that a text of this name says.
///
/// # Errors
/// [`LimitTextError`].
pub fn from_text(name: &str, text: &str) -> Result<Limit, LimitTextError> {
    let refuse = |reason| LimitTextError { limit: name.into(), reason };
    let fields =
        LimitFields::read(text).map_err(|error| refuse(Reason::Form(error.to_string())))?;
    let limit = fields.limit().map_err(|error| refuse(Reason::Unsound(error)))?;
    if name_of(&limit) != name {
        return Err(refuse(Reason::OtherLimit { says: name_of(&limit) }));
    }
    Ok(limit)
}

/// Why a limit of the store can't be read. What was in force stays in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitTextError {
    limit: String,
    reason: Reason,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Reason {
    /// No JSON, or not these fields.
    Form(String),
    Unsound(LimitError),
    OtherLimit {
        says: String,
    },
}

impl LimitTextError {
    /// The limit's name in the store, `domain/identity`.
    #[must_use]
    pub fn limit(&self) -> &str {
        &self.limit
    }
}

impl fmt::Display for LimitTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = &self.limit;
        match &self.reason {
            Reason::Form(error) => write!(
                f,
                "limit {limit:?} can't be read: {error}; if a newer version wrote it, this one is \
                 to be upgraded"
            ),
            Reason::Unsound(error) => write!(f, "{limit:?} is not sound: {error}"),
            Reason::OtherLimit { says } => write!(f, "limit {limit:?} says that it is {says:?}"),
        }
    }
}

impl std::error::Error for LimitTextError {}

/// Bytes of a name in the store at most, as the coordinator has it.
const NAME_BYTES_MAX: usize = 512;

#[cfg(test)]
mod tests;
