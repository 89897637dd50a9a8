//! The fields of a limit in JSON: those of the own dialect of policy files, and what only limits
//! with paths have.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tollgate::tally::OnStale;
use tollgate::{
    Allowance, DEFAULT_DOMAIN, Guarantee, Limit, LimitError, LimitSpec, OverrideSpec, Oversize,
    ShareMode, StepSpec,
};

/// A limit as it is written. What is left out of its JSON has its default; a field that is not
/// known is refused, because a limit without it might admit what it must not.
///
/// The fields are those of [`LimitSpec`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "they are LimitSpec's")]
pub struct LimitFields {
    pub name: String,
    #[serde(default = "default_domain", skip_serializing_if = "is_default_domain")]
    pub domain: String,
    #[serde(rename = "match", default, skip_serializing_if = "Pairs::is_empty")]
    pub matches: Pairs,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "objects")]
    pub path: Vec<StepFields>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<String>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub quota: bool,
    pub rate: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_ratio: Option<f64>,
    #[serde(default = "local", skip_serializing_if = "is_local")]
    pub guarantee: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_cap: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_stale: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(default, skip_serializing_if = "OversizeWord::is_never")]
    pub oversize: OversizeWord,
    #[serde(default, skip_serializing_if = "is_false")]
    pub shadow: bool,
    #[serde(rename = "override", default, skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "objects")]
    pub overrides: Vec<OverrideFields>,
}

/// A step of a path. The fields are those of [`StepSpec`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "they are StepSpec's")]
pub struct StepFields {
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    #[serde(default, skip_serializing_if = "is_false")]
    pub shared: bool,
}

/// A key with an allowance of its own. The fields are those of [`OverrideSpec`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "they are OverrideSpec's")]
pub struct OverrideFields {
    pub key: Pairs,
    pub rate: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_ratio: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_cap: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<u64>,
}

/// [`Oversize`] as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "they are Oversize's")]
pub enum OversizeWord {
    #[default]
    Never,
    Pace,
}

impl OversizeWord {
    fn is_never(&self) -> bool {
        *self == Self::Never
    }
}

impl From<Oversize> for OversizeWord {
    fn from(oversize: Oversize) -> Self {
        match oversize {
            Oversize::Never => Self::Never,
            Oversize::Pace => Self::Pace,
        }
    }
}

impl From<OversizeWord> for Oversize {
    fn from(word: OversizeWord) -> Self {
        match word {
            OversizeWord::Never => Self::Never,
            OversizeWord::Pace => Self::Pace,
        }
    }
}

/// Names and values in their order, an object in JSON. A name that is given twice is kept twice, so
/// that whoever checks them sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pairs(pub Vec<(String, String)>);

impl Pairs {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn borrowed(&self) -> Vec<(&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value)).collect()
    }
}

impl Serialize for Pairs {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts such as {\"tenant\":\"acme\"}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        from.deserialize_map(Object)
    }
}

impl LimitFields {
    /// Reads an object.
    ///
    /// # Errors
    /// When it is no JSON, or has other fields, other types, or one field twice.
    pub fn read(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json).map(|Object(fields)| fields)
    }

    /// All that a limit is; burst and local cap are given even where they are the default's.
    #[must_use]
    pub fn of(limit: &Limit) -> Self {
        let has_path = limit.path().len() > 0;
        let text = |text: &str| text.to_owned();
        let entry = |(name, value): (&str, Option<&str>)| (text(name), text(value.unwrap_or("*")));
        let step = |step: StepSpec<'_>| {
            let StepSpec { name, value, shared } = step;
            StepFields { name: text(name), value: text(value), shared }
        };
        let (rate, burst) = amounts(limit.allowance());
        let of_override = |one: &tollgate::Override| {
            let parts = limit.key().zip(one.parts());
            let (rate, burst) = amounts(one.allowance());
            OverrideFields {
                key: Pairs(parts.map(|(name, value)| (text(name), text(value))).collect()),
                rate,
                burst,
                burst_ratio: None,
                local_cap: one.local_cap().filter(|cap| *cap > 0),
                bootstrap: one.bootstrap().filter(|units| *units > 0),
            }
        };
        Self {
            name: text(limit.name()),
            domain: text(limit.domain()),
            matches: Pairs(limit.match_entries().map(entry).collect()),
            // A path's key is its steps'.
            key: limit.key().filter(|_| !has_path).map(text).collect(),
            path: limit.path().map(step).collect(),
            group: text(limit.group()),
            replaces: limit.replaces().map(text).collect(),
            quota: limit.is_quota(),
            rate: if limit.is_blank() { text("none") } else { rate },
            burst,
            burst_ratio: None,
            guarantee: text(limit.guarantee().name()),
            // None can be given where the burst is 0, which it then is too.
            local_cap: limit.local_cap().filter(|cap| *cap > 0),
            bootstrap: limit.bootstrap().filter(|units| *units > 0),
            on_stale: limit
                .on_stale()
                .filter(|on_stale| *on_stale != OnStale::default())
                .map(|on_stale| text(on_stale.name())),
            count: limit.counts_offered().filter(|offered| *offered).map(|_| text("offered")),
            mode: limit
                .share_mode()
                .filter(|mode| *mode != ShareMode::default())
                .map(|mode| text(mode.name())),
            oversize: limit.oversize().into(),
            shadow: limit.is_shadow(),
            overrides: limit.overrides().iter().map(of_override).collect(),
        }
    }

    /// The limit that they say.
    ///
    /// # Errors
    /// As [`Limit::parse`].
    pub fn limit(&self) -> Result<Limit, LimitError> {
        let key: Vec<&str> = self.key.iter().map(String::as_str).collect();
        let replaces: Vec<&str> = self.replaces.iter().map(String::as_str).collect();
        let path: Vec<StepSpec<'_>> = self.path.iter().map(StepFields::spec).collect();
        let keys: Vec<Vec<(&str, &str)>> =
            self.overrides.iter().map(|one| one.key.borrowed()).collect();
        let overrides: Vec<OverrideSpec<'_>> =
            self.overrides.iter().zip(&keys).map(|(one, key)| one.spec(key)).collect();
        Limit::parse(&LimitSpec {
            name: &self.name,
            domain: &self.domain,
            matches: &self.matches.borrowed(),
            key: &key,
            path: &path,
            group: &self.group,
            replaces: &replaces,
            quota: self.quota,
            rate: &self.rate,
            burst: self.burst,
            burst_ratio: self.burst_ratio,
            guarantee: &self.guarantee,
            local_cap: self.local_cap,
            bootstrap: self.bootstrap,
            on_stale: self.on_stale.as_deref(),
            count: self.count.as_deref(),
            mode: self.mode.as_deref(),
            oversize: self.oversize.into(),
            shadow: self.shadow,
            overrides: &overrides,
        })
    }

    /// The same limit without what its defaults say: for people, who change a rate and mean the
    /// burst to follow.
    ///
    /// `10/s` with a burst of 10 is `10/s`.
    #[must_use]
    pub fn concise(mut self) -> Self {
        let guarantee = &*self.guarantee;
        leave_out(&self.rate, guarantee, &mut self.burst, &mut self.local_cap);
        for one in &mut self.overrides {
            leave_out(&one.rate, guarantee, &mut one.burst, &mut one.local_cap);
        }
        self
    }
}

/// What is read from an object alone: a list would do otherwise, with its items for fields.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Only<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Only<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }
        from.deserialize_map(Only(PhantomData)).map(Self)
    }
}

fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    let objects = Vec::<Object<T>>::deserialize(from)?;
    Ok(objects.into_iter().map(|Object(object)| object).collect())
}

impl StepFields {
    fn spec(&self) -> StepSpec<'_> {
        StepSpec { name: &self.name, value: &self.value, shared: self.shared }
    }
}

impl OverrideFields {
    fn spec<'a>(&'a self, key: &'a [(&'a str, &'a str)]) -> OverrideSpec<'a> {
        let &Self { key: _, ref rate, burst, burst_ratio, local_cap, bootstrap } = self;
        OverrideSpec { key, rate, burst, burst_ratio, local_cap, bootstrap }
    }
}

/// An allowance as it is written.
fn amounts(allowance: Allowance) -> (String, Option<u64>) {
    match allowance {
        Allowance::Unlimited => ("unlimited".into(), None),
        Allowance::Metered { rate, burst } => (rate.to_string(), Some(burst)),
    }
}

/// Leaves out the numbers that come out as they are without being written.
fn leave_out(rate: &str, guarantee: &str, burst: &mut Option<u64>, local_cap: &mut Option<u64>) {
    let alone = |burst, local_cap| {
        let spec =
            LimitSpec { name: "any", rate, guarantee, burst, local_cap, ..LimitSpec::DEFAULT };
        Limit::parse(&spec).ok()
    };
    let full = alone(*burst, *local_cap);
    if alone(*burst, None) == full {
        *local_cap = None;
    }
    if alone(None, *local_cap) == full {
        *burst = None;
    }
}

fn default_domain() -> String {
    DEFAULT_DOMAIN.into()
}

fn is_default_domain(domain: &str) -> bool {
    domain == DEFAULT_DOMAIN
}

fn local() -> String {
    Guarantee::Local.name().into()
}

fn is_local(guarantee: &str) -> bool {
    guarantee == Guarantee::Local.name()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}
