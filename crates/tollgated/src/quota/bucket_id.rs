//! What a bucket is called: names and values, the same however they were ordered.

use std::borrow::Borrow;
use std::sync::Arc;

/// A bucket's entries, sorted by their names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct BucketId(Arc<[u8]>);

impl BucketId {
    /// The id that [`write()`] wrote.
    pub(super) fn new(written: &[u8]) -> Self {
        Self(written.into())
    }

    /// How many bytes it has.
    pub(super) fn bytes(&self) -> usize {
        self.0.len()
    }

    /// The entries, sorted by their names.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || Some((text(&mut rest)?, text(&mut rest)?)))
    }
}

/// By what was written.
impl Borrow<[u8]> for BucketId {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

/// Writes an id: each text behind its length, so that no two lists are alike.
pub(super) fn write(entries: &[(&str, &str)], out: &mut Vec<u8>) {
    out.clear();
    for text in entries.iter().flat_map(|(name, value)| [name, value]) {
        out.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
        out.extend_from_slice(text.as_bytes());
    }
}

fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let (length, behind) = rest.split_first_chunk::<4>()?;
    let (text, behind) = behind.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    *rest = behind;
    std::str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(entries: &[(&str, &str)]) -> BucketId {
        let mut written = Vec::new();
        write(entries, &mut written);
        BucketId::new(&written)
    }

    #[test]
    fn an_id_is_its_entries_and_no_other_list() {
        let entries = [("name", "api"), ("tenant", "\u{fc}\0"), ("x", "")];
        let one = id(&entries);
        assert_eq!(one.entries().collect::<Vec<_>>(), entries);
        assert_eq!(one, id(&entries));
        assert_ne!(id(&[("a", "b"), ("c", "d")]), id(&[("a", "bc"), ("", "d")]));
        assert_ne!(id(&[("ab", "c")]), id(&[("a", "bc")]));
    }
}
