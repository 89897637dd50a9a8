//! What a key's counter is called in the store.

use std::fmt::Write as _;

/// The counter of a key in one window: `prefix:{key}:number`. All counters of a key have one hash
/// tag, so that a clustered store keeps them in one slot, whatever the key is made of.
///
/// The values of a key follow each other with `:` between them. A byte other than a letter, a digit
/// or one of `-._~@/+=` is written as `%` and two digits, a value that is missing as `%` and an
/// empty one as `%%`, so that no two keys have one name and none has a brace.
///
/// ```
/// use tollgate::tally::counter_name;
/// let name = |values: &[Option<&[u8]>]| counter_name("tollgate:api", values, 28_333_333);
/// assert_eq!(name(&[Some(b"acme")]), "tollgate:api:{acme}:28333333");
/// assert_eq!(name(&[Some(b"a}b"), None]), "tollgate:api:{a%7Db:%}:28333333");
/// assert_eq!(name(&[Some(b"")]), "tollgate:api:{%%}:28333333");
/// ```
#[must_use]
pub fn counter_name(prefix: &str, values: &[Option<&[u8]>], window: u64) -> String {
    let length: usize = values.iter().flatten().map(|value| value.len() + 1).sum();
    let mut name = String::with_capacity(prefix.len() + length + 24);
    name.push_str(prefix);
    name.push_str(":{");
    for (place, value) in values.iter().enumerate() {
        if place > 0 {
            name.push(':');
        }
        match value {
            Some([]) => name.push_str("%%"),
            Some(value) => value.iter().for_each(|byte| put_byte(&mut name, *byte)),
            None => name.push('%'),
        }
    }
    // A tag of nothing is no tag; no value is written as nothing.
    if values.is_empty() {
        name.push(':');
    }
    let _ = write!(name, "}}:{window}");
    name
}

fn put_byte(name: &mut String, byte: u8) {
    if byte.is_ascii_alphanumeric() || b"-._~@/+=".contains(&byte) {
        name.push(char::from(byte));
    } else {
        let _ = write!(name, "%{byte:02X}");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    type Values = Vec<Option<Vec<u8>>>;

    fn name(values: &Values, window: u64) -> String {
        let values: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
        counter_name("t", &values, window)
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
