//! A limit as a dialect wrote it, with the place of each field, and how it becomes a limit.
//!
//! All dialects end here. What is sound is decided by the library; this file only finds the
//! place of what it refuses.

use std::collections::HashMap;
use std::rc::Rc;

use tollgate::{Limit, LimitError, LimitSpec, OverrideSpec, Oversize, StepSpec};

use super::finding::{Findings, Place};

/// A limit as written.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) name: String,
    pub(super) domain: String,
    pub(super) matches: Vec<MatchDraft>,
    pub(super) key: Vec<(String, Place)>,
    pub(super) path: Vec<StepDraft>,
    /// Names of limits, as they are called here.
    pub(super) group: String,
    pub(super) replaces: Vec<String>,
    pub(super) quota: bool,
    pub(super) allowance: AllowanceDraft,
    pub(super) guarantee: String,
    pub(super) on_stale: Option<String>,
    pub(super) count: Option<String>,
    pub(super) mode: Option<String>,
    pub(super) oversize: Oversize,
    pub(super) shadow: bool,
    pub(super) overrides: Vec<OverrideDraft>,
    pub(super) places: Places,
}

/// An entry of a limit's `match` as written.
#[derive(Debug)]
pub(super) struct MatchDraft {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) place: Place,
}

/// A step of a limit's path as written; its texts are those of the tree that they were read from,
/// since a step leads to many limits.
#[derive(Debug, Clone)]
pub(super) struct StepDraft {
    pub(super) name: Rc<str>,
    pub(super) value: Rc<str>,
    pub(super) shared: bool,
    pub(super) place: Place,
}

/// How much a key may use, and how a fleet shares it, as written.
#[derive(Debug, Default)]
pub(super) struct AllowanceDraft {
    pub(super) rate: String,
    pub(super) burst: Option<u64>,
    pub(super) burst_ratio: Option<f64>,
    pub(super) local_cap: Option<u64>,
    pub(super) bootstrap: Option<u64>,
}

/// A key with an allowance of its own, as written.
#[derive(Debug)]
pub(super) struct OverrideDraft {
    pub(super) key: Vec<(String, String)>,
    pub(super) allowance: AllowanceDraft,
    pub(super) places: Places,
}

/// Where the parts of a limit or an override stand.
#[derive(Debug)]
pub(super) struct Places {
    /// Where it begins: for fields that are not written.
    pub(super) whole: Place,
    /// Fields that are written, as errors name them.
    pub(super) fields: Vec<(&'static str, Place)>,
}

impl Places {
    /// Where a field stands; where it would, if it is not written.
    pub(super) fn of(&self, field: &str) -> Place {
        let field = field.strip_prefix("override.").unwrap_or(field);
        let written = self.fields.iter().find(|(name, _)| *name == field);
        written.map_or(self.whole, |(_, place)| *place)
    }
}

impl Draft {
    /// The limit that this is, or `None` after all that is wrong with it was reported.
    pub(super) fn check(&self, findings: &mut Findings<'_>) -> Option<Limit> {
        let error = match self.parse(&self.overrides) {
            Ok(limit) => return Some(limit),
            Err(error) => error,
        };
        // The library stops at the first error: overrides are tried one by one to find the others.
        if let Err(error) = self.parse(&[]) {
            findings.error(self.place(&error), error.to_string());
            return None;
        }
        let before = findings.errors();
        for one in &self.overrides {
            if let Err(error) = self.parse(std::slice::from_ref(one)) {
                findings.error(one.places.of(error.field()), error.to_string());
            }
        }
        self.report_twins(findings);
        if findings.errors() == before {
            findings.error(self.places.whole, error.to_string());
        }
        None
    }

    /// Where an error of the limit itself stands.
    pub(super) fn place(&self, error: &LimitError) -> Place {
        let refused = error.value();
        // Of two entries with one name the later one is refused.
        let entry = match error.field() {
            "match" => self.matches.iter().rev().find_map(|entry| {
                let MatchDraft { name, value, place } = entry;
                (refused == name || refused == format!("{name} = {value}")).then_some(*place)
            }),
            "key" => {
                let part = self.key.iter().rev().find(|(name, _)| name == refused);
                part.map(|(_, place)| *place)
            }
            "path" => {
                let step = self.path.iter().find(|step| step.joined() == refused);
                step.map(|step| step.place)
            }
            _ => None,
        };
        entry.unwrap_or_else(|| self.places.of(error.field()))
    }

    fn parse(&self, overrides: &[OverrideDraft]) -> Result<Limit, LimitError> {
        let matches: Vec<(&str, &str)> =
            self.matches.iter().map(|entry| (&*entry.name, &*entry.value)).collect();
        let key: Vec<&str> = self.key.iter().map(|(name, _)| &**name).collect();
        let keys: Vec<Vec<(&str, &str)>> = overrides.iter().map(OverrideDraft::key_parts).collect();
        let overrides: Vec<OverrideSpec<'_>> =
            overrides.iter().zip(&keys).map(|(one, key)| one.allowance.of_override(key)).collect();
        let path: Vec<StepSpec<'_>> = self.path.iter().map(StepDraft::spec).collect();
        let replaces: Vec<&str> = self.replaces.iter().map(String::as_str).collect();
        let AllowanceDraft { rate, burst, burst_ratio, local_cap, bootstrap } = &self.allowance;
        Limit::parse(&LimitSpec {
            name: &self.name,
            domain: &self.domain,
            matches: &matches,
            key: &key,
            path: &path,
            group: &self.group,
            replaces: &replaces,
            quota: self.quota,
            rate,
            burst: *burst,
            burst_ratio: *burst_ratio,
            guarantee: &self.guarantee,
            local_cap: *local_cap,
            bootstrap: *bootstrap,
            on_stale: self.on_stale.as_deref(),
            count: self.count.as_deref(),
            mode: self.mode.as_deref(),
            oversize: self.oversize,
            shadow: self.shadow,
            overrides: &overrides,
        })
    }

    fn report_twins(&self, findings: &mut Findings<'_>) {
        let mut known = HashMap::new();
        for one in &self.overrides {
            let mut key = one.key_parts();
            key.sort_unstable();
            let place = one.places.of("key");
            if let Some(first) = known.insert(key, place) {
                let first = findings.show(first);
                let message = format!(
                    "limit {:?}: this override's key is that of the one at {first}",
                    self.name
                );
                findings.error(place, message);
            }
        }
    }
}

impl StepDraft {
    /// Name and value in one, as they are matched.
    pub(super) fn joined(&self) -> String {
        if self.value.is_empty() {
            self.name.to_string()
        } else {
            format!("{}_{}", self.name, self.value)
        }
    }

    fn spec(&self) -> StepSpec<'_> {
        StepSpec { name: &self.name, value: &self.value, shared: self.shared }
    }
}

impl OverrideDraft {
    fn key_parts(&self) -> Vec<(&str, &str)> {
        self.key.iter().map(|(name, value)| (&**name, &**value)).collect()
    }
}

impl AllowanceDraft {
    /// An allowance under which everything passes.
    pub(super) fn unlimited() -> Self {
        Self { rate: "unlimited".into(), ..Self::default() }
    }

    /// The limit that an override would be by itself, if it is sound.
    pub(super) fn alone(&self, guarantee: &str) -> Option<Limit> {
        let spec = LimitSpec {
            name: "any",
            rate: &self.rate,
            burst: self.burst,
            burst_ratio: self.burst_ratio,
            guarantee,
            local_cap: self.local_cap,
            bootstrap: self.bootstrap,
            ..LimitSpec::DEFAULT
        };
        Limit::parse(&spec).ok()
    }

    fn of_override<'a>(&'a self, key: &'a [(&'a str, &'a str)]) -> OverrideSpec<'a> {
        let &Self { ref rate, burst, burst_ratio, local_cap, bootstrap } = self;
        OverrideSpec { key, rate, burst, burst_ratio, local_cap, bootstrap }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;

    /// Each is the fourth line of a limit, and where the error then stands.
    const WRONG: [(&str, &str); 17] = [
        (r#"domain = """#, r#"4:10: error: limit "api": domain = "": must be 1 to 256 bytes"#),
        (
            r#"match = { a = "1", b = "*x" }"#,
            r#"4:20: error: limit "api": match = "b = *x": stands for"#,
        ),
        (r#"match = { a = "1", "" = "x" }"#, r#"4:20: error: limit "api": match = "": must be"#),
        (r#"key = ["a", "b", "a"]"#, r#"4:18: error: limit "api": key = "a": is given twice"#),
        (r#"key = ["a", ""]"#, r#"4:13: error: limit "api": key = "": must be 1 to 256 bytes"#),
        (
            r#"guarantee = "strict""#,
            r#"4:13: error: limit "api": guarantee = "strict": this version keeps only "local""#,
        ),
        (
            r#"guarantee = "lax""#,
            r#"4:13: error: limit "api": guarantee = "lax": must be "local", "eventual","#,
        ),
        (
            r#"local_cap = 2"#,
            r#"4:13: error: limit "api": local_cap = "2": has a meaning only with guarantee"#,
        ),
        (
            r#"on_stale = "deny""#,
            r#"4:12: error: limit "api": on_stale = "deny": has a meaning only with guarantee"#,
        ),
        (
            "guarantee = \"eventual\"\non_stale = \"share\"",
            r#"5:12: error: limit "api": on_stale = "share": this version keeps only "deny""#,
        ),
        (
            "guarantee = \"eventual\"\nlocal_cap = 6",
            r#"5:13: error: limit "api": local_cap = "6": must be 1 to the burst, which is 5"#,
        ),
        (
            "guarantee = \"eventual\"\nbootstrap = 2",
            r#"5:13: error: limit "api": bootstrap = "2": must be at most the local cap, which"#,
        ),
        (
            "guarantee = \"eventual\"\noversize = \"pace\"",
            r#"5:12: error: limit "api": oversize = "pace": a fleet permits at most the burst"#,
        ),
        (r#"burst = 0"#, r#"4:9: error: limit "api": burst = "0": must be at least 1"#),
        (
            "burst = 5\nburst_ratio = 1.0",
            r#"4:9: error: limit "api": burst = "5": excludes burst_ratio"#,
        ),
        (
            r#"burst_ratio = nan"#,
            r#"4:15: error: limit "api": burst_ratio = "NaN": must be finite and above 0"#,
        ),
        (
            r#"burst_ratio = 0.01"#,
            r#"4:15: error: limit "api": burst_ratio = "0.01": gives a burst below 1"#,
        ),
    ];

    fn assert_one(text: &str, expected: &str) {
        let found = found(text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&format!("1.toml:{expected}")), "{} {expected}", found[0]);
    }

    #[test]
    fn what_the_library_refuses_is_an_error_at_the_place_of_its_field() {
        for (field, expected) in WRONG {
            assert_one(&format!("[[limit]]\nname = \"api\"\nrate = \"5/s\"\n{field}\n"), expected);
        }
        let name = r#"2:8: error: limit "A": name = "A": must be 1 to 64 of"#;
        assert_one("[[limit]]\nname = \"A\"\nrate = \"5/s\"\n", name);
        let rate = r#"3:8: error: limit "api": rate = "5": must be units/period"#;
        assert_one("[[limit]]\nname = \"api\"\nrate = \"5\"\n", rate);
    }

    #[test]
    fn too_many_entries_or_parts_are_an_error_at_the_first() {
        let list = |count: usize, form: fn(usize) -> String| {
            (0..count).map(form).collect::<Vec<_>>().join(", ")
        };
        let entries = list(17, |index| format!("e{index} = \"x\""));
        let parts = list(9, |index| format!("\"k{index}\""));
        for (field, expected) in [
            (
                format!("match = {{ {entries} }}"),
                r#"4:11: error: limit "api": match = "17": must be at most 16"#,
            ),
            (
                format!("key = [ {parts} ]"),
                r#"4:9: error: limit "api": key = "9": must be at most 8"#,
            ),
        ] {
            assert_one(&format!("[[limit]]\nname = \"api\"\nrate = \"5/s\"\n{field}\n"), expected);
        }
    }

    #[test]
    fn all_overrides_that_are_wrong_are_reported_each_at_its_place() {
        let text = r#"
[[limit]]
name = "api"
rate = "5/s"
key = ["tenant"]
[[limit.override]]
key = { tenant = "a" }
rate = "6"
[[limit.override]]
key = { tenant = "b" }
rate = "6/s"
[[limit.override]]
key = { user = "c" }
rate = "7/s"
[[limit.override]]
key = { tenant = "d" }
rate = "7/s"
burst = 0
[[limit.override]]
key = { tenant = "e" }
rate = "7/s"
burst_ratio = -1.0
[[limit.override]]
key = { tenant = "b" }
rate = "8/s"
[[limit.override]]
key = { tenant = "f" }
rate = "8/s"
bootstrap = 1
"#;
        let expected = [
            r#"8:8: error: limit "api": override.rate = "6 (key { tenant = a })": must be units/"#,
            r#"13:7: error: limit "api": override.key = "{ user = c }": must give each"#,
            r#"18:9: error: limit "api": override.burst = "0 (key { tenant = d })": must be at"#,
            r#"22:15: error: limit "api": override.burst_ratio = "-1 (key { tenant = e })": must"#,
            r#"24:7: error: limit "api": this override's key is that of the one at 1.toml:10:7"#,
            r#"29:13: error: limit "api": override.bootstrap = "1 (key { tenant = f })": has a"#,
        ];
        let found = found(text);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(&format!("1.toml:{expected}")), "{found}");
        }
    }
}
