//! Who a cell belongs to: 96 bits hashed from a limit and the typed parts of a key.
//!
//! XXH3-128 under a secret of the process (in a fleet, of the rule set), so that no one outside can
//! choose names that collide: flood-resistant, not cryptographic. Each part is hashed by itself,
//! length included, and folded in by position, so ("a:b", "c") and ("a", "b:c") never meet.
//! The bytes of a key are not kept. Two of ten million keys share a cell with a chance of 1e-15.

use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

use xxhash_rust::xxh3::xxh3_128_with_secret;

use crate::mutant::lacks;

/// The secret behind every key's identity.
///
/// Equal secrets give equal identities, on any machine and in any version.
#[derive(Clone)]
pub struct Secret([u8; SECRET_BYTES]);

impl Secret {
    /// A secret that nobody knows, from the operating system's entropy.
    #[must_use]
    pub fn random() -> Self {
        let mut seed = [0; 32];
        for chunk in seed.chunks_exact_mut(8) {
            // SipHash of nothing, under keys that the standard library drew from the system for
            // this thread and counts up: 128 bits of entropy.
            chunk.copy_from_slice(&RandomState::new().build_hasher().finish().to_le_bytes());
        }
        Self::from_seed(seed)
    }

    /// The secret that belongs to `seed`, which must be as unpredictable as a key.
    #[must_use]
    pub fn from_seed(seed: [u8; 32]) -> Self {
        let mut bytes = [0; SECRET_BYTES];
        let mut input = [0; 33];
        input[..32].copy_from_slice(&seed);
        for (index, chunk) in bytes.chunks_exact_mut(16).enumerate() {
            input[32] = index as u8;
            chunk.copy_from_slice(&xxhash_rust::xxh3::xxh3_128(&input).to_le_bytes());
        }
        Self(bytes)
    }

    /// 128 bits that stand for `bytes`, length included.
    ///
    /// Not inlined: in a loop over parts the compiler would prepare every length's secrets up
    /// front.
    #[inline(never)]
    pub(crate) fn digest(&self, bytes: &[u8]) -> u128 {
        xxh3_128_with_secret(bytes, &self.0)
    }

    /// Where the keys of a limit start: its domain, name and the names of its key parts.
    pub(crate) fn salt(&self, domain: &str, name: &str, parts: &[Box<str>]) -> Salt {
        let empty = self.digest(b"");
        let mut start = fold(fold(0, self.digest(domain.as_bytes())), self.digest(name.as_bytes()));
        for part in parts {
            start = fold(start, self.digest(part.as_bytes()));
        }
        // Neither value is the digest of a text, short of a 128-bit coincidence.
        let undeclared = if lacks("undeclared_is_text") { empty } else { !empty };
        Salt {
            start,
            first: start.wrapping_mul(FOLD),
            undeclared,
            overflow: empty.rotate_left(64) ^ 1,
        }
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// One part of a key: the value of a descriptor entry, or the absence of that entry.
///
/// An undeclared part is a value of its own, shared by all requests that lack the entry; no text is
/// equal to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'a> {
    /// The entry's value, any bytes.
    Text(&'a [u8]),
    /// The request has no such entry.
    Undeclared,
}

impl<'a> From<&'a str> for Part<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text.as_bytes())
    }
}

/// The part of every identity that a limit contributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Salt {
    start: u128,
    /// The start with room made for the first part.
    first: u128,
    undeclared: u128,
    overflow: u128,
}

impl Salt {
    /// The identity of the key with these parts.
    #[inline]
    pub(crate) fn key<'a>(
        &self,
        secret: &Secret,
        parts: impl IntoIterator<Item = Part<'a>>,
    ) -> KeyId {
        let (mut state, mut first) = (self.start, Some(self.first));
        if lacks("parts_joined") {
            let text = |part| if let Part::Text(bytes) = part { bytes } else { b"" };
            let joined: Vec<u8> = parts.into_iter().flat_map(text).copied().collect();
            return KeyId::from_digest(fold(state, secret.digest(&joined)));
        }
        for part in parts {
            let digest = match part {
                Part::Text(bytes) => secret.digest(bytes),
                Part::Undeclared => self.undeclared,
            };
            state = first.take().unwrap_or_else(|| state.wrapping_mul(FOLD)).wrapping_add(digest);
        }
        KeyId::from_digest(state)
    }

    /// The identity of the key without parts.
    pub(crate) fn only_key(&self) -> KeyId {
        KeyId::from_digest(self.start)
    }

    /// A number that stands for the limit.
    pub(crate) fn number(&self) -> u32 {
        (self.start >> 64) as u32
    }

    /// The identity of the cell that keys share when the table is full.
    pub(crate) fn overflow_key(&self) -> KeyId {
        KeyId::from_digest(fold(self.start, self.overflow))
    }
}

/// A key's identity: 96 bits hashed from a limit and the parts of a key.
///
/// All nodes of a fleet have one secret, and so one identity for each key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct KeyId {
    /// They also choose the key's place in a table.
    pub(crate) high: u64,
    pub(crate) low: u32,
}

impl KeyId {
    /// The identity with these bits, as another node sent them.
    #[must_use]
    pub fn from_bits(high: u64, low: u32) -> Self {
        if high < 2 { Self::reserved(high, low) } else { Self { high, low } }
    }

    /// The bits to send: 64 and 32.
    #[must_use]
    pub fn to_bits(self) -> (u64, u32) {
        (self.high, self.low)
    }

    #[inline]
    fn from_digest(digest: u128) -> Self {
        let high = (digest >> 64) as u64;
        let low = (digest >> 32) as u32;
        if high < 2 {
            return Self::reserved(high, low);
        }
        Self { high, low }
    }

    /// The table keeps the two smallest numbers for its own marks.
    #[cold]
    fn reserved(high: u64, low: u32) -> Self {
        Self { high: high + 2, low }
    }
}

/// How maps of keys find their places: a key is a hash already, so that little is left to do. It is
/// the same in each run, so that a map is walked in the same order.
pub(crate) type KeyHashing = BuildHasherDefault<KeyHasher>;

/// Folds what it is given into one number by multiplication.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(FOLD as u64).rotate_left(29);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

/// Appends one digest to a running one: a polynomial in an odd number, so that order matters.
#[inline]
pub(crate) fn fold(state: u128, digest: u128) -> u128 {
    state.wrapping_mul(FOLD).wrapping_add(digest)
}

const SECRET_BYTES: usize = 192;
/// 3 modulo 4, so that swapping two parts changes 127 of the 128 bits' worth of result.
const FOLD: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C837;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn names(names: &[&str]) -> Vec<Box<str>> {
        names.iter().map(|&name| name.into()).collect()
    }

    #[test]
    fn identities_are_pinned_by_golden_vectors() {
        let secret = Secret::from_seed(*b"0123456789abcdef0123456789abcdef");
        let salt = secret.salt("default", "api", &names(&["tenant"]));
        let id = salt.key(&secret, ["acme".into()]);
        assert_eq!((id.high, id.low), GOLDEN_ACME);
        let id = salt.key(&secret, [Part::Undeclared]);
        assert_eq!((id.high, id.low), GOLDEN_UNDECLARED);
    }

    #[test]
    fn parts_order_limits_and_absence_all_tell_keys_apart() {
        let secret = Secret::random();
        let two = names(&["tenant", "user"]);
        let salts = [
            secret.salt("default", "api", &two),
            secret.salt("default", "apj", &two),
            secret.salt("other", "api", &two),
            secret.salt("default", "api", &names(&["user", "tenant"])),
        ];
        let keys: [&[Part<'_>]; 9] = [
            &["a:b".into(), "c".into()],
            &["a".into(), "b:c".into()],
            &["".into(), "ab".into()],
            &["ab".into(), "".into()],
            &["a".into(), "b".into()],
            &["b".into(), "a".into()],
            &[Part::Undeclared, "a".into()],
            &["a".into(), Part::Undeclared],
            &["undeclared".into(), "a".into()],
        ];
        let mut seen = HashSet::new();
        for salt in &salts {
            assert!(seen.insert(salt.overflow_key()));
            for parts in keys {
                assert!(seen.insert(salt.key(&secret, parts.iter().copied())), "{parts:?}");
            }
        }
    }

    #[test]
    fn another_secret_gives_other_identities() {
        let (one, two) = (Secret::random(), Secret::random());
        let (a, b) = (one.salt("d", "n", &[]), two.salt("d", "n", &[]));
        assert_ne!(a.key(&one, []), b.key(&two, []));
    }

    #[test]
    fn a_million_sequential_names_have_a_million_identities() {
        let secret = Secret::random();
        let salt = secret.salt("default", "api", &names(&["tenant"]));
        let ids: HashSet<_> = (0..1_000_000_u32)
            .map(|n| salt.key(&secret, [format!("user:{n:011}").as_str().into()]))
            .collect();
        assert_eq!(ids.len(), 1_000_000);
    }

    const GOLDEN_ACME: (u64, u32) = (10_289_382_077_154_844_462, 86_452_631);
    const GOLDEN_UNDECLARED: (u64, u32) = (990_893_308_134_578_627, 1_046_240_714);
}
