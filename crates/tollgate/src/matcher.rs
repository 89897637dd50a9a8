//! Which limits apply to a descriptor: every limit of the domain whose `match` holds.
//!
//! Compiled when limits load. Limits whose matches name the same entries share a **shape**, and a
//! shape costs one look-up, however many limits it has. Keys and usage are not known here.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::key::{Secret, fold};
use crate::limit::{Limit, MatchEntry};
use crate::request::Descriptor;

/// The limits of one domain, by what they match.
#[derive(Debug, Default)]
pub(crate) struct Matcher {
    shapes: Vec<Shape>,
}

/// Limits whose matches name the same entries, with or without a value.
#[derive(Debug)]
struct Shape {
    /// Entries that must have a certain value.
    exact: Box<[Box<str>]>,
    /// Entries that must be there.
    any: Box<[Box<str>]>,
    /// Positions of limits by the digest of the exact entries' values.
    limits: HashMap<u128, Vec<u32>, BuildHasherDefault<DigestHasher>>,
}

impl Matcher {
    /// Adds the limit at `position` in the rule set.
    ///
    /// # Errors
    /// [`TooManyShapes`], and nothing was added.
    pub(crate) fn add(
        &mut self,
        secret: &Secret,
        limit: &Limit,
        position: u32,
    ) -> Result<(), TooManyShapes> {
        let names = |exact: bool| -> Box<[Box<str>]> {
            let of_kind = |entry: &&MatchEntry| entry.value.is_some() == exact;
            limit.matches().iter().filter(of_kind).map(|entry| entry.name.clone()).collect()
        };
        let (exact, any) = (names(true), names(false));
        let values = limit.matches().iter().filter_map(|entry| entry.value.as_deref());
        let digest = values.fold(0, |state, value| fold(state, secret.digest(value.as_bytes())));
        let known = self.shapes.iter().position(|shape| shape.exact == exact && shape.any == any);
        let known = match known {
            Some(known) => known,
            None if self.shapes.len() == SHAPES_MAX => return Err(TooManyShapes),
            None => {
                self.shapes.push(Shape { exact, any, limits: HashMap::default() });
                self.shapes.len() - 1
            }
        };
        self.shapes[known].limits.entry(digest).or_default().push(position);
        Ok(())
    }

    /// Calls `apply` with the position of each limit that applies to the descriptor.
    #[inline]
    pub(crate) fn each(
        &self,
        secret: &Secret,
        descriptor: &Descriptor<'_>,
        mut apply: impl FnMut(u32),
    ) {
        for shape in &self.shapes {
            for &position in shape.find(secret, descriptor) {
                apply(position);
            }
        }
    }
}

impl Shape {
    #[inline]
    fn find(&self, secret: &Secret, descriptor: &Descriptor<'_>) -> &[u32] {
        if !self.any.iter().all(|name| descriptor.value(name).is_some()) {
            return &[];
        }
        let mut state = 0;
        for name in &self.exact {
            let Some(value) = descriptor.value(name) else { return &[] };
            state = fold(state, secret.digest(value));
        }
        self.limits.get(&state).map_or(&[], Vec::as_slice)
    }
}

/// A domain whose limits match in more than 16 ways; each costs a look-up on every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyShapes;

/// For keys that are hashes already, or numbers that we gave ourselves.
#[derive(Debug, Default)]
pub(crate) struct DigestHasher(u64);

impl Hasher for DigestHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = self.0.rotate_left(23) ^ u64::from_le_bytes(word);
        }
    }

    fn write_u32(&mut self, number: u32) {
        // Spread over the high bits, which choose among the entries of a group.
        self.0 = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_u128(&mut self, digest: u128) {
        self.0 = (digest >> 64) as u64;
    }
}

const SHAPES_MAX: usize = 16;
