//! Requests as JSON says them: read strictly, borrowed from the body, every list bounded while it
//! is read.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tollgate::mutant::lacks;
use tollgate::{DEFAULT_DOMAIN, Descriptor, DomainKind, Entry, Request};

use crate::service::Service;

/// A body of `/v1/check`.
pub(crate) enum Ask<'a> {
    One(Item<'a>),
    /// Each item, or what is wrong with it.
    Batch(Vec<Result<Item<'a>, String>>),
}

/// One request: entries at a cost, or several descriptors that pass or are denied as one.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, bound = "'de: 'a")]
pub(crate) struct Item<'a> {
    domain: Option<Text<'a>>,
    entries: Option<Entries<'a>>,
    cost: Option<u64>,
    descriptors: Option<AtMost<Object<Part<'a>>, DESCRIPTORS_MAX>>,
    /// Only for reservations: when the estimate is to stand, in milliseconds from now.
    pub(crate) expires_ms: Option<u64>,
}

/// A body with either one request or several.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound = "'de: 'a")]
struct Body<'a> {
    domain: Option<Text<'a>>,
    entries: Option<Entries<'a>>,
    cost: Option<u64>,
    descriptors: Option<AtMost<Object<Part<'a>>, DESCRIPTORS_MAX>>,
    requests: Option<AtMost<Object<Item<'a>>, BATCH_MAX>>,
}

/// A batch whose items are looked at one by one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound = "'de: 'a")]
struct Loose<'a> {
    requests: AtMost<&'a RawValue, BATCH_MAX>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, bound = "'de: 'a")]
struct Part<'a> {
    entries: Entries<'a>,
    cost: Option<u64>,
}

impl<'a> Ask<'a> {
    /// Reads a body.
    ///
    /// # Errors
    /// What is wrong with it as a whole. What is wrong with one item of a batch is that item's.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, String> {
        match object::<Body<'a>>(body) {
            Ok(Body { requests: Some(requests), domain, entries, cost, descriptors }) => {
                let alone = domain.is_none() && entries.is_none() && cost.is_none();
                if !alone || descriptors.is_some() {
                    return Err("requests stands alone; each request has its own fields".into());
                }
                let items = requests.0.into_iter().map(|Object(item)| item.checked());
                Ok(Self::Batch(items.collect()))
            }
            Ok(Body { requests: None, domain, entries, cost, descriptors }) => {
                let item = Item { domain, entries, cost, descriptors, expires_ms: None };
                item.sound().map(Self::One)
            }
            Err(error) => match object::<Loose<'a>>(body) {
                Ok(loose) => Ok(Self::Batch(loose.requests.0.into_iter().map(read_item).collect())),
                Err(_) => Err(error),
            },
        }
    }
}

fn read_item(raw: &RawValue) -> Result<Item<'_>, String> {
    object::<Item<'_>>(raw.get().as_bytes())?.checked()
}

/// Reads a body that is one object.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn object<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    let read = serde_json::from_slice(body).map(|Object(object)| object);
    read.map_err(|error| error.to_string())
}

impl<'a> Item<'a> {
    /// Reads a body that is one request.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, String> {
        object::<Self>(body)?.sound()
    }

    /// The same, where there is no estimate that could expire.
    ///
    /// # Errors
    /// When an expiry is given all the same.
    pub(crate) fn without_expiry(self) -> Result<Self, String> {
        match self.expires_ms {
            None => Ok(self),
            Some(_) => Err("expires_ms belongs to /v1/reserve alone".into()),
        }
    }

    /// An item that is decided and not reserved.
    fn checked(self) -> Result<Self, String> {
        self.without_expiry()?.sound()
    }

    fn sound(self) -> Result<Self, String> {
        match (&self.entries, &self.descriptors, self.cost) {
            (None, Some(AtMost(none)), _) if none.is_empty() => {
                Err("descriptors: at least one is needed".into())
            }
            (Some(_), None, _) | (None, Some(_), None) => Ok(self),
            (Some(_), Some(_), _) => Err("give entries or descriptors, not both".into()),
            (None, Some(_), Some(_)) => Err("cost belongs into each descriptor".into()),
            (None, None, _) => Err("entries (or descriptors) are needed".into()),
        }
    }

    /// The domain that it names, or the default.
    pub(crate) fn domain(&self) -> &str {
        self.domain.as_ref().map_or(DEFAULT_DOMAIN, |domain| &domain.0)
    }

    /// Hands on the request, as the library has it.
    ///
    /// # Errors
    /// What is wrong with a descriptor; `ask` was not called.
    pub(crate) fn with<T>(
        &self,
        service: &Service,
        ask: impl FnOnce(&Request<'_>) -> T,
    ) -> Result<T, String> {
        let in_order = service.domain_kind(self.domain()) == Some(DomainKind::Path);
        let descriptor = if in_order { Descriptor::ordered } else { Descriptor::new };
        if let Some(entries) = &self.entries {
            let entries = entries.entries();
            let descriptor = descriptor(&entries).map_err(|error| error.to_string())?;
            let descriptors = [descriptor.with_cost(self.cost.unwrap_or(1))];
            return Ok(ask(&Request::new(&descriptors).in_domain(self.domain())));
        }
        let parts = self.descriptors.as_ref().map_or(&[][..], |parts| &parts.0);
        let entries: Vec<Vec<Entry<'_>>> =
            parts.iter().map(|Object(part)| part.entries.entries()).collect();
        let mut descriptors = Vec::with_capacity(parts.len());
        for (index, (Object(part), entries)) in parts.iter().zip(&entries).enumerate() {
            let made =
                descriptor(entries).map_err(|error| format!("descriptors[{index}]: {error}"))?;
            descriptors.push(made.with_cost(part.cost.unwrap_or(1)));
        }
        Ok(ask(&Request::new(&descriptors).in_domain(self.domain())))
    }
}

/// What is written as an object; serde alone would take a list of the fields' values too.
#[derive(Debug)]
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Reader(PhantomData))
    }
}

/// A text, borrowed if it has no escapes.
#[derive(Debug)]
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.into())))
            }
        }
        deserializer.deserialize_str(Reader)
    }
}

/// Names and values, in the order given; a name that is given twice is the library's to refuse.
#[derive(Debug)]
pub(crate) struct Entries<'a>(Vec<(Text<'a>, Text<'a>)>);

impl Entries<'_> {
    fn entries(&self) -> Vec<Entry<'_>> {
        self.0.iter().map(|(name, value)| Entry::new(&name.0, value.0.as_bytes())).collect()
    }

    /// The value of the entry with this name.
    pub(crate) fn value(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(known, _)| known.0 == name).map(|(_, value)| value.0.as_bytes())
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| &*name.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings such as {\"tenant\":\"acme\"}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<'de>, A::Error> {
                let mut entries = Vec::with_capacity(4);
                while let Some(entry) = map.next_entry()? {
                    if entries.len() == ENTRIES_MAX {
                        return Err(A::Error::custom("at most 16 entries are read"));
                    }
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// A list of at most `N` items; the rest of a longer one is not read.
#[derive(Debug)]
struct AtMost<T, const N: usize>(Vec<T>);

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for AtMost<T, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T, const N: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for Reader<T, N> {
            type Value = AtMost<T, N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    if items.len() == N && !lacks("lists_unbounded") {
                        return Err(A::Error::custom(format_args!("at most {N} items are read")));
                    }
                    items.push(item);
                }
                Ok(AtMost(items))
            }
        }
        deserializer.deserialize_seq(Reader(PhantomData))
    }
}

/// Requests in one batch.
pub(crate) const BATCH_MAX: usize = 1_000;
/// Descriptors in one request.
const DESCRIPTORS_MAX: usize = 1_000;
/// As the library has it; what is longer need not be kept to be refused.
const ENTRIES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::App;

    fn service() -> std::sync::Arc<Service> {
        App::for_tests(Vec::new()).0.service
    }

    fn error(body: &str) -> String {
        match Ask::read(body.as_bytes()) {
            Err(error) => error,
            Ok(Ask::One(item)) => item.with(&service(), |_| ()).expect_err("something is wrong"),
            Ok(Ask::Batch(_)) => panic!("no batch"),
        }
    }

    #[test]
    fn a_request_is_read_with_its_defaults() {
        let Ok(Ask::One(item)) = Ask::read(br#"{"entries":{"tenant":"a\"b"}}"#) else {
            panic!("one request")
        };
        item.with(&service(), |request| {
            assert_eq!((request.domain(), request.descriptors().len()), ("default", 1));
            let descriptor = request.descriptors()[0];
            assert_eq!(descriptor.entries(), [Entry::new("tenant", "a\"b")]);
            assert_eq!(descriptor.cost(), 1);
        })
        .expect("sound");
    }

    #[test]
    fn several_descriptors_have_a_cost_each() {
        let body =
            r#"{"domain":"d","descriptors":[{"entries":{}},{"entries":{"a":"b"},"cost":7}]}"#;
        let Ok(Ask::One(item)) = Ask::read(body.as_bytes()) else { panic!("one request") };
        item.with(&service(), |request| {
            let costs: Vec<u64> = request.descriptors().iter().map(Descriptor::cost).collect();
            assert_eq!((request.domain(), costs), ("d", vec![1, 7]));
        })
        .expect("sound");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        assert_eq!(error("{}"), "entries (or descriptors) are needed");
        assert_eq!(error("[]"), "invalid type: sequence, expected an object at line 1 column 0");
        assert_eq!(error(r#"{"descriptors":[]}"#), "descriptors: at least one is needed");
        let unknown = error(r#"{"entries":{},"costs":1}"#);
        assert!(unknown.starts_with("unknown field `costs`, expected one of"), "{unknown}");
        assert!(unknown.ends_with("at line 1 column 21"), "{unknown}");
        let number = error(r#"{"entries":{"a":1}}"#);
        assert!(number.contains("integer `1`, expected a string"), "{number}");
        let negative = error(r#"{"entries":{},"cost":-1}"#);
        assert!(negative.contains("integer `-1`, expected u64"), "{negative}");
        let twice = error(r#"{"entries":{"a":"1","a":"2"}}"#);
        assert_eq!(twice, "entry 1 repeats an earlier name");
        let both = error(r#"{"entries":{},"descriptors":[]}"#);
        assert_eq!(both, "give entries or descriptors, not both");
        let nameless = error(r#"{"descriptors":[{"entries":{}},{"entries":{"":"x"}}]}"#);
        assert_eq!(nameless, "descriptors[1]: entry 0 has no name");
        let mixed = error(r#"{"requests":[],"cost":1}"#);
        assert_eq!(mixed, "requests stands alone; each request has its own fields");
    }

    #[test]
    fn one_wrong_item_leaves_the_others() {
        let sound = |body: &str| -> Vec<bool> {
            let Ok(Ask::Batch(items)) = Ask::read(body.as_bytes()) else { panic!("a batch") };
            items.iter().map(Result::is_ok).collect()
        };
        let good = r#"{"entries":{"a":"b"}}"#;
        let bad = r#"7,[],{"entries":{},"x":1},{},{"entries":{},"expires_ms":1}"#;
        let body = format!(r#"{{"requests":[{good},{bad},{good}]}}"#);
        assert_eq!(sound(&body), [true, false, false, false, false, false, true]);
        let expires = r#"{"requests":[{"entries":{},"expires_ms":1}]}"#;
        assert_eq!(sound(expires), [false]);
    }

    #[test]
    fn a_batch_of_more_than_its_maximum_is_refused_as_a_whole() {
        let batch = |count| {
            let items = vec![r#"{"entries":{}}"#; count].join(",");
            format!(r#"{{"requests":[{items}]}}"#)
        };
        assert!(matches!(Ask::read(batch(1_000).as_bytes()), Ok(Ask::Batch(_))));
        let refused = error(&batch(1_001));
        assert!(refused.starts_with("at most 1000 items are read"), "{refused}");
        assert!(
            matches!(Ask::read(batch(0).as_bytes()), Ok(Ask::Batch(items)) if items.is_empty())
        );
    }
}
