//! The fields of a mapping: which are known at its level, and what type each has.
//!
//! A field that is known elsewhere is refused with the place where it belongs: a limit whose
//! `unlimited` stands one level too high would otherwise be another limit than was meant.

use std::rc::Rc;

use super::super::fields::{near, unknown};
use super::super::finding::{Findings, Place, short};
use super::super::yaml::{Key, Node, Value};

/// The mappings that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Top,
    Descriptor,
    RateLimit,
    Replaced,
}

impl Level {
    fn known(self) -> &'static [&'static str] {
        match self {
            Self::Top => &["domain", "descriptors"],
            Self::Descriptor => &[
                "key",
                "value",
                "rate_limit",
                "descriptors",
                "shadow_mode",
                "quota_mode",
                "share_threshold",
                "detailed_metric",
                "value_to_metric",
                "metadata",
            ],
            Self::RateLimit => &["unit", "requests_per_unit", "unlimited", "name", "replaces"],
            Self::Replaced => &["name"],
        }
    }

    fn shown(self) -> &'static str {
        match self {
            Self::Top => "at the top of the file",
            Self::Descriptor => "in a descriptor, beside its `rate_limit`",
            Self::RateLimit => "inside `rate_limit`",
            Self::Replaced => "in an entry of `replaces`",
        }
    }

    /// The level at which a field is known, other than this one.
    fn elsewhere(self, field: &str) -> Option<Self> {
        let levels = [Self::Descriptor, Self::RateLimit, Self::Top];
        levels.into_iter().find(|level| *level != self && level.known().contains(&field))
    }
}

/// The known fields of a mapping; a value of nothing (`null`) is as if it were not written.
pub(super) struct Fields<'n> {
    pub(super) place: Place,
    fields: Vec<(&'n Key, &'n Node)>,
}

/// It was reported what is wrong.
pub(super) struct Reported;

impl<'n> Fields<'n> {
    /// What is written in `node`, after every unknown field was reported. `place` is where errors
    /// stand that are no field's.
    ///
    /// # Errors
    /// When it is no mapping.
    pub(super) fn of(
        node: &'n Node,
        place: Place,
        level: Level,
        findings: &mut Findings<'_>,
    ) -> Result<Self, Reported> {
        let mut fields = Vec::new();
        let Value::Map(map) = &node.value else {
            if node.is_empty() {
                return Ok(Self { place, fields });
            }
            findings.error(place, format!("must be a mapping, not {}", node.kind()));
            return Err(Reported);
        };
        for (key, value) in map {
            if !level.known().contains(&&*key.text) {
                findings.error(key.place, refusal(&key.text, level));
            } else if !value.is_empty() {
                fields.push((key, &**value));
            }
        }
        Ok(Self { place, fields })
    }

    pub(super) fn get(&self, name: &str) -> Option<(Place, &'n Node)> {
        let found = self.fields.iter().find(|(key, _)| &*key.text == name);
        found.map(|(key, node)| (key.place, *node))
    }

    /// A text, and where it stands; `None` if it is empty.
    pub(super) fn text(
        &self,
        name: &str,
        findings: &mut Findings<'_>,
    ) -> Result<Option<(Rc<str>, Place)>, Reported> {
        let Some((_, node)) = self.get(name) else { return Ok(None) };
        let Value::Scalar { text, .. } = &node.value else {
            findings.error(node.place, format!("`{name}` must be a text, not {}", node.kind()));
            return Err(Reported);
        };
        Ok((!text.is_empty()).then(|| (text.clone(), node.place)))
    }

    /// Where it is said to be so; `None` if it is not, or what is said was reported.
    pub(super) fn flag(&self, name: &str, findings: &mut Findings<'_>) -> Option<Place> {
        let (place, node) = self.get(name)?;
        let said = match &node.value {
            Value::Scalar { text, plain: true } => boolean(text),
            _ => None,
        };
        if said.is_none() {
            findings.error(node.place, format!("`{name}` must be true or false"));
        }
        said?.then_some(place)
    }

    /// A number, and where it stands.
    pub(super) fn number(
        &self,
        name: &str,
        findings: &mut Findings<'_>,
    ) -> Result<Option<(u32, Place)>, Reported> {
        let Some((_, node)) = self.get(name) else { return Ok(None) };
        let number = match &node.value {
            Value::Scalar { text, plain: true } => number(text),
            _ => None,
        };
        let Some(number) = number else {
            let message =
                format!("`{name}` must be a whole number from 0 to {}, in plain digits", u32::MAX);
            findings.error(node.place, message);
            return Err(Reported);
        };
        Ok(Some((number, node.place)))
    }
}

fn boolean(text: &str) -> Option<bool> {
    let is_one = |words: [&str; 3]| {
        words.iter().any(|word| {
            let first = word.chars().next().unwrap_or_default();
            let title = format!("{}{}", first.to_ascii_uppercase(), &word[first.len_utf8()..]);
            text == *word || text == title || text == word.to_ascii_uppercase()
        })
    };
    match () {
        () if is_one(["true", "yes", "on"]) => Some(true),
        () if is_one(["false", "no", "off"]) => Some(false),
        () => None,
    }
}

/// No sign, and no zero in front: readers of YAML differ about which number that would be.
fn number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let padded = text.len() > 1 && text.starts_with('0');
    if digits && !padded { text.parse().ok() } else { None }
}

fn refusal(field: &str, level: Level) -> String {
    if let Some(other) = level.elsewhere(field) {
        return format!("`{field}` belongs {}", other.shown());
    }
    let known = level.known().iter().copied();
    let all = [Level::Descriptor, Level::RateLimit, Level::Top];
    let all = all.iter().flat_map(|level| level.known()).copied();
    if near(field, known.clone()).is_none()
        && let Some(meant) = near(field, all)
        && let Some(other) = level.elsewhere(meant)
    {
        let field = short(field);
        return format!(
            "unknown field `{field}`; did you mean `{meant}`, which belongs {}?",
            other.shown()
        );
    }
    unknown(field, known)
}
