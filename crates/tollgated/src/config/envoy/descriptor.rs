//! Descriptors: each is a step, may carry a limit, and may have others below it.
//!
//! What stands in one is read here, and what the limits are called is not known yet.

use std::collections::HashMap;
use std::collections::hash_map;
use std::rc::Rc;
use std::time::Duration;

use super::super::draft::StepDraft;
use super::super::finding::{Findings, Place, short};
use super::super::yaml::{Node, Value};
use super::fields::{Fields, Level, Reported};

/// What stands at the end of one path.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) domain: Rc<str>,
    pub(super) domain_place: Place,
    pub(super) whole: Place,
    pub(super) path: Vec<StepDraft>,
    /// `None` if the path ends without a limit.
    pub(super) rate_limit: Option<RateLimit>,
    pub(super) shadow: Option<Place>,
    pub(super) quota: Option<Place>,
}

impl Written {
    /// The limit's name, if it has one.
    pub(super) fn name(&self) -> Option<&Rc<str>> {
        self.rate_limit.as_ref()?.name.as_ref().map(|(name, _)| name)
    }
}

/// A `rate_limit` as written.
#[derive(Debug)]
pub(super) struct RateLimit {
    pub(super) amount: Amount,
    pub(super) amount_place: Place,
    pub(super) name: Option<(Rc<str>, Place)>,
    pub(super) replaces: Vec<(Rc<str>, Place)>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Amount {
    Unlimited,
    Per { requests: u32, unit: Unit },
}

/// A unit by its name, and the seconds that it has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unit {
    name: &'static str,
    seconds: u64,
}

impl Unit {
    pub(super) fn duration(self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    /// The name of the unit of this length.
    pub(super) fn name_of(length: Duration) -> Option<&'static str> {
        UNITS.into_iter().find(|unit| unit.duration() == length).map(|unit| unit.name)
    }

    fn named(name: &str) -> Option<Self> {
        UNITS.into_iter().find(|unit| unit.name.eq_ignore_ascii_case(name))
    }
}

/// Composite keys (`key` or `key_value`) of descriptors that stand in one list, with their places.
pub(super) type Siblings = HashMap<String, Place>;

/// Reads the descriptors of one domain.
pub(super) struct Reader<'a, 'g> {
    pub(super) domain: Rc<str>,
    pub(super) domain_place: Place,
    pub(super) findings: &'a mut Findings<'g>,
    /// In the order of the file, and a descriptor before those below it: texts with stars are
    /// tried in the order of the limits.
    pub(super) limits: &'a mut Vec<Written>,
}

impl Reader<'_, '_> {
    pub(super) fn list(&mut self, list: &Node, path: &mut Vec<StepDraft>, siblings: &mut Siblings) {
        let Value::List(list) = &list.value else {
            let message = format!("`descriptors` must be a list, not {}", list.kind());
            return self.findings.error(list.place, message);
        };
        for one in list {
            if self.findings.errors() >= ERRORS_MAX {
                return;
            }
            let _ = self.descriptor(one, path, siblings);
        }
    }

    fn descriptor(
        &mut self,
        node: &Node,
        path: &mut Vec<StepDraft>,
        siblings: &mut Siblings,
    ) -> Result<(), Reported> {
        let fields = Fields::of(node, node.place, Level::Descriptor, self.findings)?;
        self.warn_of_no_effect(&fields);
        let step = self.step(&fields, path, siblings)?;
        let below = fields.get("descriptors").filter(|(_, below)| !is_empty_list(below));
        let rate_limit = fields.get("rate_limit");
        if step.shared && below.is_none() && rate_limit.is_none() {
            self.no_effect(&fields, "share_threshold", "there is no limit here or below");
        }
        path.push(step);
        if rate_limit.is_some() || below.is_none() {
            let _ = self.limit(&fields, rate_limit, path);
        }
        for mode in ["shadow_mode", "quota_mode"] {
            if rate_limit.is_none() && fields.flag(mode, self.findings).is_some() {
                self.no_effect(&fields, mode, "there is no `rate_limit` beside it");
            }
        }
        if let Some((_, below)) = below {
            self.list(below, path, &mut Siblings::new());
        }
        path.pop();
        Ok(())
    }

    /// The step that a descriptor is, if no other one in its list is the same.
    fn step(
        &mut self,
        fields: &Fields<'_>,
        path: &[StepDraft],
        siblings: &mut Siblings,
    ) -> Result<StepDraft, Reported> {
        let key = fields.text("key", self.findings)?;
        let value = fields.text("value", self.findings)?;
        let Some((name, place)) = key else {
            let place = fields.get("key").map_or(fields.place, |(_, node)| node.place);
            self.findings.error(place, "descriptor has empty key");
            return Err(Reported);
        };
        let value = value.map_or_else(|| "".into(), |(text, _)| text);
        let sharing = fields.flag("share_threshold", self.findings);
        let mut step = StepDraft { name, value, shared: sharing.is_some(), place };
        let composite = step.joined();
        if let Some(sharing) = sharing.filter(|_| !composite.contains('*')) {
            let message = "`share_threshold` is for a descriptor with a `*` in its key or value";
            self.findings.error(sharing, message);
            step.shared = false;
        }
        if path.len() == LEVELS_MAX {
            let message = format!(
                "is the {}th level of descriptors; a request's descriptor has at most \
                 {LEVELS_MAX} entries",
                LEVELS_MAX + 1
            );
            self.findings.error(fields.place, message);
            return Err(Reported);
        }
        match siblings.entry(composite) {
            hash_map::Entry::Vacant(free) => {
                free.insert(place);
                Ok(step)
            }
            hash_map::Entry::Occupied(first) => {
                let steps = path.iter().map(StepDraft::joined);
                let steps: Vec<String> = steps.chain([step.joined()]).collect();
                let shown = short(&format!("{}.{}", self.domain, steps.join(".")));
                let first = self.findings.show(*first.get());
                let message = format!(
                    "duplicate descriptor composite key '{shown}', which is already at {first}"
                );
                self.findings.error(place, message);
                Err(Reported)
            }
        }
    }

    /// Keeps what stands at the end of `path`.
    fn limit(
        &mut self,
        fields: &Fields<'_>,
        rate_limit: Option<(Place, &Node)>,
        path: &[StepDraft],
    ) -> Result<(), Reported> {
        let mut written = Written {
            domain: self.domain.clone(),
            domain_place: self.domain_place,
            whole: fields.place,
            path: path.to_vec(),
            rate_limit: None,
            shadow: None,
            quota: None,
        };
        if let Some((place, node)) = rate_limit {
            written.shadow = fields.flag("shadow_mode", self.findings);
            written.quota = fields.flag("quota_mode", self.findings);
            written.rate_limit = Some(self.rate_limit(place, node)?);
        }
        if let (Some(quota), Some(_)) = (written.quota, written.shadow) {
            let message = "`quota_mode` excludes `shadow_mode`: of the limits in quota mode a \
                           request needs room in one, and a shadow, which never denies, would \
                           always be that one";
            self.findings.error(quota, message);
            return Err(Reported);
        }
        self.limits.push(written);
        Ok(())
    }

    fn rate_limit(&mut self, place: Place, node: &Node) -> Result<RateLimit, Reported> {
        let fields = Fields::of(node, place, Level::RateLimit, self.findings)?;
        let name = fields.text("name", self.findings);
        let replaces = self.replaces(&fields, name.as_ref().ok().and_then(Option::as_ref));
        let unit = fields.text("unit", self.findings);
        let requests = fields.number("requests_per_unit", self.findings);
        let unlimited = fields.flag("unlimited", self.findings);
        let (name, unit, requests) = (name?, unit?, requests?);
        let (amount, amount_place) = match (unlimited, unit) {
            (Some(_), Some((_, place))) => {
                self.findings.error(place, "`unit` excludes `unlimited`");
                return Err(Reported);
            }
            (Some(place), None) => {
                if requests.is_some() {
                    self.no_effect(&fields, "requests_per_unit", "the limit is `unlimited`");
                }
                (Amount::Unlimited, place)
            }
            (None, None) => {
                let message = "invalid rate limit unit '': give `unit`, or `unlimited: true`";
                self.findings.error(place, message);
                return Err(Reported);
            }
            (None, Some((unit, place))) => {
                let Some(unit) = Unit::named(&unit) else {
                    let known = UNITS.map(|unit| unit.name).join(", ");
                    let unit = short(&unit);
                    let message = format!("invalid rate limit unit '{unit}'; known are {known}");
                    self.findings.error(place, message);
                    return Err(Reported);
                };
                if requests.is_none() {
                    let message = "a `rate_limit` without `requests_per_unit` denies every request";
                    self.findings.warning(fields.place, message);
                }
                let (requests, place) = requests.unwrap_or((0, fields.place));
                (Amount::Per { requests, unit }, place)
            }
        };
        Ok(RateLimit { amount, amount_place, name, replaces })
    }

    /// The names that a limit replaces, without those that make no sense.
    fn replaces(
        &mut self,
        fields: &Fields<'_>,
        own: Option<&(Rc<str>, Place)>,
    ) -> Vec<(Rc<str>, Place)> {
        let mut names = Vec::new();
        let Some((_, node)) = fields.get("replaces") else { return names };
        let Value::List(list) = &node.value else {
            let message = format!("`replaces` must be a list, not {}", node.kind());
            self.findings.error(node.place, message);
            return names;
        };
        for one in list {
            let fields = Fields::of(one, one.place, Level::Replaced, self.findings);
            let Ok(name) = fields.and_then(|fields| fields.text("name", self.findings)) else {
                continue;
            };
            match name {
                None => self.findings.error(one.place, "an entry of `replaces` has no `name`"),
                Some((name, place)) if own.is_some_and(|(own, _)| *own == name) => {
                    let name = short(&name);
                    self.findings.error(place, format!("limit {name:?} replaces itself"));
                }
                Some(name) => names.push(name),
            }
        }
        names
    }

    fn warn_of_no_effect(&mut self, fields: &Fields<'_>) {
        for field in ["detailed_metric", "value_to_metric"] {
            if fields.flag(field, self.findings).is_some() {
                let why = "metrics are labelled by the names of limits, never by values";
                self.no_effect(fields, field, why);
            }
        }
        if fields.get("metadata").is_some() {
            self.no_effect(fields, "metadata", "answers carry none");
        }
    }

    fn no_effect(&mut self, fields: &Fields<'_>, field: &str, why: &str) {
        let place = fields.get(field).map_or(fields.place, |(place, _)| place);
        self.findings.no_effect(place, format!("`{field}` has no effect: {why}"));
    }
}

/// A descriptor whose list is empty is the end of its path.
fn is_empty_list(node: &Node) -> bool {
    matches!(&node.value, Value::List(list) if list.is_empty())
}

/// As many as a request's descriptor has entries.
const LEVELS_MAX: usize = 16;
/// Errors after which descriptors are not read any further.
const ERRORS_MAX: usize = 1_000;
/// Months and years are lengths, as they are in the original.
const UNITS: [Unit; 7] = [
    Unit { name: "second", seconds: 1 },
    Unit { name: "minute", seconds: 60 },
    Unit { name: "hour", seconds: 3_600 },
    Unit { name: "day", seconds: 86_400 },
    Unit { name: "week", seconds: 7 * 86_400 },
    Unit { name: "month", seconds: 30 * 86_400 },
    Unit { name: "year", seconds: 365 * 86_400 },
];
