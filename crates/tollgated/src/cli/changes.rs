//! What tells one policy from another, limit by limit and field by field, for people.
//!
//! Bursts and local caps are shown though nobody wrote them: they change with the rate. Limits are
//! the same that a fleet takes for the same: those of one domain and one name, or path.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};
use tollgate::Limit;
use tollgate_tokio::limit_text::{LimitFields, name_of};

use super::paint::Paint;

/// The way from one policy to another.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    added: Vec<String>,
    removed: Vec<String>,
    /// A limit, and what is another about it.
    changed: Vec<(String, Vec<String>)>,
    unchanged: usize,
    /// Whether limits that are in both are in another order.
    reordered: bool,
}

impl Changes {
    pub(crate) fn between(before: &[Limit], after: &[Limit]) -> Self {
        let mut changes = Self::default();
        let mut left: HashMap<String, (usize, &Limit)> = before
            .iter()
            .enumerate()
            .map(|(place, limit)| (name_of(limit), (place, limit)))
            .collect();
        let mut last = None;
        for limit in after {
            let Some((place, old)) = left.remove(&name_of(limit)) else {
                changes.added.push(format!("{}: {}", shown(limit), summary(limit)));
                continue;
            };
            changes.reordered |= last.is_some_and(|last| last > place);
            last = Some(place);
            match differences(old, limit) {
                none if none.is_empty() => changes.unchanged += 1,
                some => changes.changed.push((shown(limit), some)),
            }
        }
        let gone = before.iter().filter(|limit| left.contains_key(&name_of(limit)));
        changes.removed = gone.map(shown).collect();
        changes
    }

    /// Whether the policies are the same.
    pub(crate) fn are_none(&self) -> bool {
        let Self { added, removed, changed, unchanged: _, reordered } = self;
        added.is_empty() && removed.is_empty() && changed.is_empty() && !reordered
    }

    /// A line for each change, and a sum.
    pub(crate) fn lines(&self, paint: Paint) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        lines.extend(self.removed.iter().map(|name| format!("{} {name}", paint.red("-"))));
        lines.extend(self.added.iter().map(|limit| format!("{} {limit}", paint.green("+"))));
        for (name, what) in &self.changed {
            lines.push(format!("{} {name}", paint.yellow("~")));
            lines.extend(what.iter().map(|what| format!("    {what}")));
        }
        if self.reordered {
            lines.push(format!("{} the limits are in another order", paint.yellow("~")));
        }
        let Self { added, removed, changed, unchanged, reordered: _ } = self;
        let (added, removed, changed) = (added.len(), removed.len(), changed.len());
        lines.push(format!(
            "{added} added, {removed} removed, {changed} changed, {unchanged} as they were"
        ));
        lines
    }
}

/// How people name a limit.
fn shown(limit: &Limit) -> String {
    let path = limit.path_text();
    let name = if path.is_empty() { limit.name() } else { &path };
    plain(&format!("{}/{name}", limit.domain()))
}

/// What others have written, on one line and without signs that move a terminal's cursor.
pub(crate) fn plain(text: &str) -> String {
    text.replace(char::is_control, "?")
}

type Fields = Map<String, Value>;

fn fields(limit: &Limit) -> Fields {
    match serde_json::to_value(LimitFields::of(limit)) {
        Ok(Value::Object(fields)) => fields,
        _ => Fields::new(), // It is an object.
    }
}

/// A new limit in a line.
fn summary(limit: &Limit) -> String {
    let mut fields = fields(limit);
    let overrides = fields.remove("override");
    let mut told = told(&fields);
    if let Some(Value::Array(overrides)) = overrides {
        let count = overrides.len();
        told.push(format!("{count} override{}", if count == 1 { "" } else { "s" }));
    }
    told.join(", ")
}

/// What is another about a limit, a line for each field.
fn differences(before: &Limit, after: &Limit) -> Vec<String> {
    if before == after {
        return Vec::new();
    }
    let (mut before, mut after) = (fields(before), fields(after));
    let overrides = [before.remove("override"), after.remove("override")];
    let mut lines = changed_fields(&before, &after);
    let [before, after] = overrides.map(|overrides| by_key(overrides.as_ref()));
    let mut of_keys = Vec::new();
    for (key, fields) in &after {
        match before.get(key) {
            None => of_keys.push(format!("+ override {key}: {}", told(fields).join(", "))),
            Some(known) => {
                let changed = changed_fields(known, fields);
                if !changed.is_empty() {
                    of_keys.push(format!("~ override {key}: {}", changed.join(", ")));
                }
            }
        }
    }
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    of_keys.extend(gone.map(|key| format!("- override {key}")));
    let more = of_keys.len().saturating_sub(OVERRIDES_SHOWN_MAX);
    of_keys.truncate(OVERRIDES_SHOWN_MAX);
    if more > 0 {
        of_keys.push(format!("and {more} overrides more"));
    }
    lines.extend(of_keys);
    lines
}

fn changed_fields(before: &Fields, after: &Fields) -> Vec<String> {
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    // What is told of new limits comes first, in the same order.
    names.sort_by_key(|name| {
        (TOLD.iter().position(|told| told == name).unwrap_or(TOLD.len()), *name)
    });
    names.dedup();
    let changed = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    let word = |fields: &Fields, name: &str| fields.get(name).map_or("left out".into(), value);
    changed.map(|name| format!("{name} {} -> {}", word(before, name), word(after, name))).collect()
}

/// Overrides by what people call their keys.
fn by_key(overrides: Option<&Value>) -> BTreeMap<String, Fields> {
    let overrides = overrides.and_then(Value::as_array).into_iter().flatten();
    let fields = overrides.filter_map(Value::as_object).cloned();
    let keyed = fields.map(|mut fields| {
        let key = fields.remove("key").map_or(String::new(), |key| value(&key));
        (key, fields)
    });
    keyed.collect()
}

/// What a limit or an override is, field by field.
fn told(fields: &Fields) -> Vec<String> {
    let told = TOLD.iter().filter_map(|name| Some((name, fields.get(*name)?)));
    told.map(|(name, told)| format!("{name} {}", value(told))).collect()
}

/// A value without the signs that JSON needs.
fn value(told: &Value) -> String {
    match told {
        Value::String(text) => plain(text),
        Value::Array(items) => items.iter().map(value).collect::<Vec<_>>().join(" "),
        Value::Object(members) => {
            let pair = |(name, told): (&String, &Value)| format!("{}={}", plain(name), value(told));
            members.iter().map(pair).collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

/// What a line tells of a new limit.
const TOLD: [&str; 14] = [
    "rate",
    "burst",
    "match",
    "key",
    "group",
    "replaces",
    "quota",
    "guarantee",
    "local_cap",
    "bootstrap",
    "count",
    "on_stale",
    "oversize",
    "shadow",
];
/// Overrides of one limit that are told apart.
const OVERRIDES_SHOWN_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use tollgate::{LimitSpec, OverrideSpec, StepSpec};

    use super::*;

    fn limit(spec: &LimitSpec<'_>) -> Limit {
        Limit::parse(spec).expect("sound")
    }

    fn lines(before: &[LimitSpec<'_>], after: &[LimitSpec<'_>]) -> Vec<String> {
        let limits = |specs: &[LimitSpec<'_>]| specs.iter().map(limit).collect::<Vec<_>>();
        let changes = Changes::between(&limits(before), &limits(after));
        let lines = changes.lines(Paint::of_stdout());
        assert_eq!(changes.are_none(), lines.len() == 1, "{lines:?}");
        lines
    }

    const API: LimitSpec<'_> =
        LimitSpec { name: "api", key: &["tenant"], rate: "10/s", ..LimitSpec::DEFAULT };
    const ACME: OverrideSpec<'_> =
        OverrideSpec { key: &[("tenant", "acme")], rate: "20/s", ..OverrideSpec::DEFAULT };

    #[test]
    fn limits_come_go_and_change_by_their_fields() {
        let old = LimitSpec { name: "old", ..API };
        let path = [StepSpec { name: "tenant", value: "a\x1b", shared: false }];
        let new = LimitSpec { name: "new", key: &[], path: &path, ..API };
        let faster = LimitSpec { rate: "20/s", shadow: true, ..API };
        let expected = [
            "- default/old",
            "+ default/tenant=a?: rate 10/s, burst 10",
            "~ default/api",
            "    rate 10/s -> 20/s",
            "    burst 10 -> 20",
            "    shadow left out -> true",
            "1 added, 1 removed, 1 changed, 0 as they were",
        ];
        assert_eq!(lines(&[API, old], &[faster, new]), expected);
    }

    #[test]
    fn the_same_limits_are_no_change_and_another_order_is() {
        let other = LimitSpec { name: "other", ..API };
        let none = "0 added, 0 removed, 0 changed, 2 as they were";
        assert_eq!(lines(&[API, other], &[API, other]), [none]);
        assert_eq!(
            lines(&[API, other], &[other, API]),
            ["~ the limits are in another order", none]
        );
    }

    #[test]
    fn overrides_are_told_by_their_keys() {
        let apex = OverrideSpec { key: &[("tenant", "apex")], ..ACME };
        let faster = OverrideSpec { rate: "30/s", burst: Some(20), ..ACME };
        let before = LimitSpec { overrides: &[ACME], ..API };
        let after = LimitSpec { overrides: &[faster, apex], ..API };
        let expected = [
            "~ default/api",
            "    ~ override tenant=acme: rate 20/s -> 30/s",
            "    + override tenant=apex: rate 20/s, burst 20",
            "0 added, 0 removed, 1 changed, 0 as they were",
        ];
        assert_eq!(lines(&[before], &[after]), expected);
        let gone = ["    - override tenant=acme", "    - override tenant=apex"];
        assert_eq!(lines(&[after], &[API])[1..3], gone);
    }

    #[test]
    fn the_21st_override_is_only_counted() {
        let names: Vec<String> = (0..25).map(|index| format!("t{index}")).collect();
        let keys: Vec<[(&str, &str); 1]> = names.iter().map(|name| [("tenant", &**name)]).collect();
        let all: Vec<OverrideSpec<'_>> =
            keys.iter().map(|key| OverrideSpec { key, ..ACME }).collect();
        let told = lines(&[API], &[LimitSpec { overrides: &all, ..API }]);
        assert_eq!(told.len(), 1 + 20 + 1 + 1);
        assert_eq!(told[21], "    and 5 overrides more");
    }
}
