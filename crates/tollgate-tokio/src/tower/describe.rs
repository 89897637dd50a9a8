//! What an HTTP request is limited by, as a closure writes it down: never more than the limiter
//! takes, however much of it is the client's.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use http::header::HeaderValue;
use tollgate::{Descriptor, Entry, RequestError};

/// What one HTTP request is limited by: a domain, and descriptors of entries with a cost.
#[derive(Debug)]
pub struct Limited<'a> {
    pub(super) domain: &'a str,
    entries: Vec<(&'a str, Cow<'a, [u8]>)>,
    descriptors: Vec<(Range<usize>, u64)>,
    unsound: Option<Unsound>,
}

/// A descriptor that is being written.
#[derive(Debug)]
pub struct Describe<'d, 'a> {
    limited: &'d mut Limited<'a>,
    /// What is beyond the maximum goes nowhere.
    is_kept: bool,
}

/// A value of an entry, if the request has one.
#[derive(Debug)]
pub struct Value<'a>(Option<Cow<'a, [u8]>>);

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self(Some(text.as_bytes().into()))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self(Some(text.into_bytes().into()))
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self(Some(bytes.into()))
    }
}

impl<'a> From<&'a HeaderValue> for Value<'a> {
    fn from(field: &'a HeaderValue) -> Self {
        field.as_bytes().into()
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self(None), Into::into)
    }
}

impl<'a> Limited<'a> {
    pub(super) fn new() -> Self {
        Self {
            domain: "default",
            entries: Vec::with_capacity(4),
            descriptors: Vec::with_capacity(1),
            unsound: None,
        }
    }

    /// The domain whose limits apply; without this it is `default`.
    pub fn domain(&mut self, domain: &'a str) {
        self.domain = domain;
    }

    /// One descriptor more, of cost 1. All limits that apply to any of them must have room; without
    /// a descriptor the request passes. At most 16.
    pub fn descriptor(&mut self) -> Describe<'_, 'a> {
        let is_kept = self.descriptors.len() < DESCRIPTORS_MAX;
        if is_kept {
            let end = self.entries.len();
            self.descriptors.push((end..end, 1));
        } else {
            self.unsound = Some(Unsound::TooManyDescriptors);
        }
        Describe { limited: self, is_kept }
    }

    /// The entries as the limiter takes them, those of all descriptors in one list.
    pub(super) fn entries(&self) -> Vec<Entry<'_>> {
        self.entries.iter().map(|(name, value)| Entry::new(name, &**value)).collect()
    }

    /// The descriptors of [`Self::entries`].
    pub(super) fn descriptors<'e>(
        &self,
        entries: &'e [Entry<'e>],
    ) -> Result<Vec<Descriptor<'e>>, Unsound> {
        if let Some(unsound) = self.unsound {
            return Err(unsound);
        }
        let descriptor = |(range, cost): &(Range<usize>, u64)| {
            Descriptor::new(&entries[range.clone()]).map(|descriptor| descriptor.with_cost(*cost))
        };
        let descriptors = self.descriptors.iter().map(descriptor).collect::<Result<_, _>>();
        descriptors.map_err(Unsound::Descriptor)
    }
}

impl<'a> Describe<'_, 'a> {
    /// An entry; one whose value the request does not have is left out. At most 16 in a descriptor,
    /// each once.
    pub fn entry(self, name: &'a str, value: impl Into<Value<'a>>) -> Self {
        let Value(Some(value)) = value.into() else { return self };
        if self.is_kept
            && let Some((range, _)) = self.limited.descriptors.last_mut()
            // One too many is kept, so that the descriptor is refused by name.
            && range.len() <= ENTRIES_MAX
        {
            range.end += 1;
            self.limited.entries.push((name, value));
        }
        self
    }

    /// What the request costs here, in the units of the limits; 0 asks and spends nothing.
    pub fn cost(self, cost: u64) {
        if self.is_kept
            && let Some((_, of)) = self.limited.descriptors.last_mut()
        {
            *of = cost;
        }
    }
}

/// What the closure said makes no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsound {
    /// More than 16 descriptors.
    TooManyDescriptors,
    /// A descriptor is not sound.
    Descriptor(RequestError),
}

impl fmt::Display for Unsound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyDescriptors => {
                write!(f, "a request has at most {DESCRIPTORS_MAX} descriptors")
            }
            Self::Descriptor(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Unsound {}

/// Descriptors of one request.
const DESCRIPTORS_MAX: usize = 16;
/// Entries of one descriptor, as the limiter has it.
const ENTRIES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_kept_than_a_request_may_have() {
        let mut limited = Limited::new();
        (0..1_000).for_each(|_| {
            limited.descriptor().entry("a", "b").cost(1);
        });
        assert_eq!((limited.descriptors.len(), limited.entries.len()), (16, 16));
        assert_eq!(limited.unsound, Some(Unsound::TooManyDescriptors));
        let mut limited = Limited::new();
        let mut entries = limited.descriptor();
        for _ in 0..1_000 {
            entries = entries.entry("a", None::<&str>).entry("b", "c");
        }
        assert_eq!(limited.entries.len(), 17);
    }
}
