//! A path: the entries that a descriptor must have, in this order and no others, the way Envoy's
//! rate-limit service matches them. How one path is found among many is in `walk`.

use std::fmt;

/// One step of a limit's path, as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepSpec<'a> {
    /// The entry's name. Typically `tenant`; 1 to 256 bytes.
    pub name: &'a str,
    /// The entry's value, of at most 4,096 bytes. Empty stands for any value; a `*`, here or in
    /// the name, for any number of characters.
    pub value: &'a str,
    /// Whether all entries that a step with `*` matches share one key. Typically false: each has
    /// its own.
    pub shared: bool,
}

/// A step that was found sound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) name: Box<str>,
    pub(crate) value: Box<str>,
    pub(crate) kind: StepKind,
}

/// What a step stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepKind {
    /// One entry; it adds nothing to the key.
    Exact,
    /// Any value; each is a key of its own.
    Any,
    /// There are stars in the value: each is a key of its own.
    Pattern,
    /// There are stars in the name: name and value are two parts of the key.
    NamePattern,
    /// All that matches is one key.
    Shared,
}

impl Step {
    /// Checks a path as written.
    ///
    /// # Errors
    /// The step that is wrong, and why.
    pub(crate) fn parse_all(written: &[StepSpec<'_>]) -> Result<Vec<Self>, (String, &'static str)> {
        if written.len() > STEPS_MAX {
            return Err((written.len().to_string(), "must be at most 16 steps"));
        }
        written.iter().map(Self::parse).collect()
    }

    fn parse(written: &StepSpec<'_>) -> Result<Self, (String, &'static str)> {
        let StepSpec { name, value, shared } = *written;
        let refuse = |reason| Err((joined(name, value), reason));
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return refuse("the name of an entry must be 1 to 256 bytes");
        }
        if value.len() > VALUE_BYTES_MAX {
            return refuse("the value of an entry must be at most 4,096 bytes");
        }
        let kind = match (name.contains('*'), value.contains('*')) {
            (false, false) if shared => return refuse("only what has a `*` can be shared"),
            (false, false) if value.is_empty() => StepKind::Any,
            (false, false) => StepKind::Exact,
            _ if shared => StepKind::Shared,
            (true, _) => StepKind::NamePattern,
            (false, true) => StepKind::Pattern,
        };
        Ok(Self { name: name.into(), value: value.into(), kind })
    }

    /// The step as it was written.
    pub(crate) fn spec(&self) -> StepSpec<'_> {
        let shared = self.kind == StepKind::Shared;
        StepSpec { name: &self.name, value: &self.value, shared }
    }

    /// Name and value in one, as they are matched.
    pub(crate) fn joined(&self) -> String {
        joined(&self.name, &self.value)
    }

    /// How many parts of the key it is.
    pub(crate) fn key_parts(&self) -> usize {
        match self.kind {
            StepKind::Exact | StepKind::Shared => 0,
            StepKind::Any | StepKind::Pattern => 1,
            StepKind::NamePattern => 2,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.value {
            "" => f.write_str(&self.name),
            value => write!(f, "{}={value}", self.name),
        }
    }
}

/// An entry as the original joins it; a step without a value is its name alone.
fn joined(name: &str, value: &str) -> String {
    if value.is_empty() { name.into() } else { format!("{name}_{value}") }
}

/// A text with stars, each of which stands for any number of characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    first: Box<str>,
    middle: Vec<Box<str>>,
    last: Box<str>,
}

impl Pattern {
    /// What `text` says; a text without stars matches itself alone.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let (first, rest) = text.split_once('*')?;
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        let middle = middle.split('*').filter(|part| !part.is_empty()).map(Into::into).collect();
        Some(Self { first: first.into(), middle, last: last.into() })
    }

    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        let inner = text
            .strip_prefix(self.first.as_bytes())
            .and_then(|rest| rest.strip_suffix(self.last.as_bytes()));
        let Some(mut rest) = inner else { return false };
        // The leftmost place of each leaves the most for those behind it.
        self.middle.iter().all(|part| {
            let part = part.as_bytes();
            let at = rest.windows(part.len()).position(|window| window == part);
            let Some(at) = at else { return false };
            rest = &rest[at + part.len()..];
            true
        })
    }
}

/// As many as a descriptor has entries.
pub(crate) const STEPS_MAX: usize = 16;
const NAME_BYTES_MAX: usize = 256;
const VALUE_BYTES_MAX: usize = 4096;

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The obvious way: a star takes as much as is tried.
    fn matches(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'*', rest @ ..] => (0..=text.len()).any(|taken| matches(rest, &text[taken..])),
            [byte, rest @ ..] => text.first() == Some(byte) && matches(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn a_pattern_matches_what_the_obvious_way_does(
            pattern in "[ab*]{0,6}", text in "[ab]{0,8}"
        ) {
            let Some(compiled) = Pattern::new(&pattern) else { return Ok(()) };
            prop_assert_eq!(
                compiled.matches(text.as_bytes()),
                matches(pattern.as_bytes(), text.as_bytes())
            );
        }
    }

    #[test]
    fn a_text_without_stars_is_no_pattern() {
        assert_eq!(Pattern::new("tenant_acme"), None);
    }
}
