//! What a key's counters are called in a store, and in which of several stores they are.
//!
//! Names, stores and spreads are pinned: all nodes of a fleet must agree on them, in any version.

use std::fmt::Write as _;

use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

use super::window::Window;
use crate::mutant::lacks;

/// The values of a key, as its counters' names have them.
///
/// They follow each other with `:` between them. A byte other than a letter, a digit or one of
/// `-._~@/+=` is written as `%` and two digits, a value that is missing as `%` and an empty one as
/// `%%`, so that no two keys have one name and none has a brace. Of a value of more than 128 bytes
/// the first 64 are written, then `%!` and 32 digits that stand for all of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyName(Box<str>);

impl KeyName {
    /// The name of the key with these values; none where the request had none.
    #[must_use]
    pub fn new(values: &[Option<&[u8]>]) -> Self {
        let mut name = String::new();
        for (place, value) in values.iter().enumerate() {
            if place > 0 {
                name.push(':');
            }
            match value {
                Some([]) => name.push_str("%%"),
                Some(value) => put_value(&mut name, value),
                None => name.push('%'),
            }
        }
        // A tag of nothing is no tag; no value is written as nothing.
        if values.is_empty() {
            name.push(':');
        }
        Self(name.into())
    }

    /// The counter of one window. All counters of a key have one hash tag, so that a clustered
    /// store keeps them in one slot, whatever the key is made of. The length of the windows is
    /// in it, so that counters of windows with other numbers are others.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::tally::{KeyName, Meets, Window, limit_prefix};
    /// let prefix = limit_prefix("tollgate", "default", "api");
    /// let window = Window::new(1_000, Duration::from_secs(60), Meets::Passes)?;
    /// let name = |values: &[Option<&[u8]>]| {
    ///     KeyName::new(values).counter(&prefix, &window, 28_333_333)
    /// };
    /// assert_eq!(name(&[Some(b"acme")]), "tollgate:default:api:60s:{acme}:28333333");
    /// assert_eq!(name(&[Some(b"a}b"), None]), "tollgate:default:api:60s:{a%7Db:%}:28333333");
    /// assert_eq!(name(&[Some(b"")]), "tollgate:default:api:60s:{%%}:28333333");
    /// # Ok::<(), tollgate::tally::WindowError>(())
    /// ```
    #[must_use]
    pub fn counter(&self, prefix: &str, window: &Window, number: u64) -> String {
        let seconds = window.length().as_secs();
        let seconds = if lacks("windows_have_counters_of_their_own") { 0 } else { seconds };
        format!("{prefix}:{seconds}s:{{{}}}:{number}", self.0)
    }

    /// In which of so many stores its counters are: rendezvous hashing, so that one more store
    /// takes its part of all keys, and no other key moves.
    #[must_use]
    pub fn store_of(&self, stores: usize) -> usize {
        if lacks("keys_stay_in_their_store") {
            return (xxh3_64_with_seed(self.0.as_bytes(), 0) % stores.max(1) as u64) as usize;
        }
        let score = |store: &usize| xxh3_64_with_seed(self.0.as_bytes(), *store as u64);
        (0..stores).max_by_key(score).unwrap_or(0)
    }

    /// How much later than others its counters leave, in 2^64ths; see [`Window::expires_at`].
    #[must_use]
    pub fn spread(&self) -> u64 {
        // Another seed than that of any store, so that the keys of one store are spread too.
        xxh3_64_with_seed(self.0.as_bytes(), u64::MAX)
    }
}

/// What the names of a limit's counters begin with: `prefix:domain:limit`.
#[must_use]
pub fn limit_prefix(prefix: &str, domain: &str, limit: &str) -> String {
    let mut name = String::from(prefix);
    for part in [domain, limit] {
        name.push(':');
        part.bytes().for_each(|byte| put_byte(&mut name, byte));
    }
    name
}

fn put_value(name: &mut String, value: &[u8]) {
    if value.len() <= VALUE_BYTES_MAX {
        return value.iter().for_each(|byte| put_byte(name, *byte));
    }
    value[..VALUE_BYTES_MAX / 2].iter().for_each(|byte| put_byte(name, *byte));
    let _ = write!(name, "%!{:032x}", xxh3_128(value));
}

fn put_byte(name: &mut String, byte: u8) {
    if byte.is_ascii_alphanumeric() || b"-._~@/+=".contains(&byte) {
        name.push(char::from(byte));
    } else {
        let _ = write!(name, "%{byte:02X}");
    }
}

const VALUE_BYTES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::tally::Meets;

    const PINNED_TWO: [usize; 6] = [0, 0, 1, 1, 0, 1];
    const PINNED_FIVE: [usize; 6] = [4, 4, 4, 2, 3, 4];
    const PINNED_SPREAD: u64 = 13_534_371_342_976_973_059;

    type Values = Vec<Option<Vec<u8>>>;

    fn key(values: &Values) -> KeyName {
        let values: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
        KeyName::new(&values)
    }

    fn name(values: &Values, number: u64) -> String {
        let window = Window::new(1, Duration::from_secs(60), Meets::Passes).expect("a window");
        key(values).counter("t", &window, number)
    }

    fn text(value: &str) -> Values {
        vec![Some(value.into())]
    }

    #[test]
    fn stores_and_spreads_are_pinned() {
        let names = ["acme", "team_42", "a}b", "{x}", "{}", ""].map(|value| key(&text(value)));
        let of = |stores| names.each_ref().map(|name| name.store_of(stores));
        assert_eq!(of(1), [0; 6]);
        assert_eq!(of(2), PINNED_TWO);
        assert_eq!(of(5), PINNED_FIVE);
        assert_eq!(names[0].spread(), PINNED_SPREAD);
    }

    /// With one more store a key stays, or moves to the new one; each has its part.
    #[test]
    fn one_more_store_takes_its_part_and_no_other_key_moves() {
        let mut taken = 0;
        for number in 0..10_000 {
            let name = key(&text(&number.to_string()));
            let (before, after) = (name.store_of(4), name.store_of(5));
            assert!(after == before || after == 4);
            taken += u32::from(after == 4);
        }
        assert!((1_900..2_100).contains(&taken), "{taken} of 10,000");
    }

    #[test]
    fn the_keys_of_one_store_are_spread_over_all_of_a_window() {
        let mut quarters = [0; 4];
        for number in 0..4_000 {
            let name = key(&text(&number.to_string()));
            if name.store_of(4) == 1 {
                quarters[(name.spread() >> 62) as usize] += 1;
            }
        }
        assert!(quarters.iter().all(|count| (200..300).contains(count)), "{quarters:?}");
    }

    #[test]
    fn a_long_value_has_a_short_name_of_its_own() {
        let (mut one, long) = ("x".repeat(100_000), "x".repeat(100_001));
        let names = [&one, &long].map(|value| name(&text(value), 7));
        assert!(names[0] != names[1] && names[0].len() < 150, "{names:?}");
        one.truncate(128);
        assert_eq!(name(&text(&one), 7), format!("t:60s:{{{one}}}:7"));
    }

    /// What a clustered store hashes of a name.
    fn tag(name: &str) -> &str {
        let (_, rest) = name.split_once('{').expect("a brace");
        let (tag, _) = rest.split_once('}').expect("a second one");
        assert!(!tag.is_empty(), "{name}");
        tag
    }

    fn values() -> impl Strategy<Value = Values> {
        let byte = prop_oneof![Just(b'{'), Just(b'}'), Just(b':'), Just(b'%'), any::<u8>()];
        let value = prop::collection::vec(byte, 0..6);
        prop::collection::vec(prop::option::of(value), 0..4)
    }

    proptest! {
        #[test]
        fn each_key_has_a_tag_of_its_own_and_its_windows_share_it(
            all in prop::collection::vec(values(), 1..20),
        ) {
            let mut seen: HashMap<String, Values> = HashMap::new();
            for values in all {
                let (this, next) = (name(&values, 7), name(&values, 8));
                prop_assert_eq!(tag(&this), tag(&next));
                prop_assert_ne!(&this, &next);
                let other = seen.insert(tag(&this).to_owned(), values.clone());
                prop_assert!(other.is_none_or(|other| other == values), "{}", this);
            }
        }
    }
}
