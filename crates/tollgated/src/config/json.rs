//! The dialect of a fleet's store: `{"limits": [...]}` in JSON, with the fields of the own dialect
//! and those of paths, so that it has the limits of every other dialect.
//!
//! It knows where a limit begins, and where in it the reading stopped. Whether its values are sound
//! is decided by the library.

use serde::Deserialize;
use serde_json::value::RawValue;
use tollgate_tokio::limit_text::{LimitFields, OverrideFields, StepFields};

use super::draft::{AllowanceDraft, Draft, MatchDraft, OverrideDraft, Places, StepDraft};
use super::finding::{Findings, Place};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object such as {\"limits\": []}")]
struct Document<'t> {
    #[serde(borrow)]
    limits: Vec<&'t RawValue>,
}

/// The limits of a file; those that cannot be read are reported and left out.
pub(super) fn drafts(text: &str, file: usize, findings: &mut Findings<'_>) -> Vec<Draft> {
    // Editors put it there, and JSON does not know it.
    let json = text.trim_start_matches('\u{feff}');
    // A list would be read as well, with its items for fields.
    if json.trim_ascii_start().starts_with('[') {
        findings.error(Place { file, offset: 0 }, "is a list; write {\"limits\": [...]}");
        return Vec::new();
    }
    match serde_json::from_str::<Document<'_>>(json) {
        Ok(document) => drafts_of(&document.limits, text, file, findings),
        Err(error) => {
            report(&error, json, Place { file, offset: text.len() - json.len() }, findings);
            Vec::new()
        }
    }
}

/// The same of limits that are part of `text`.
pub(super) fn drafts_of(
    limits: &[&RawValue],
    text: &str,
    file: usize,
    findings: &mut Findings<'_>,
) -> Vec<Draft> {
    let draft = |limit: &&RawValue| {
        let json = limit.get();
        let offset = (json.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
        debug_assert!(text[offset..].starts_with(json), "a limit is part of the text");
        let place = Place { file, offset };
        match LimitFields::read(json) {
            Ok(fields) => Some(one(fields, place)),
            Err(error) => {
                report(&error, json, place, findings);
                None
            }
        }
    };
    limits.iter().filter_map(draft).collect()
}

fn one(fields: LimitFields, place: Place) -> Draft {
    let places = || Places { whole: place, fields: Vec::new() };
    let entry = |(name, value)| MatchDraft { name, value, place };
    let step = |StepFields { name, value, shared }| StepDraft {
        name: name.into(),
        value: value.into(),
        shared,
        place,
    };
    let of_key = |one: OverrideFields| {
        let OverrideFields { key, rate, burst, burst_ratio, local_cap, bootstrap } = one;
        let allowance = AllowanceDraft { rate, burst, burst_ratio, local_cap, bootstrap };
        OverrideDraft { key: key.0, allowance, places: places() }
    };
    Draft {
        name: fields.name,
        domain: fields.domain,
        matches: fields.matches.0.into_iter().map(entry).collect(),
        key: fields.key.into_iter().map(|name| (name, place)).collect(),
        path: fields.path.into_iter().map(step).collect(),
        group: fields.group,
        replaces: fields.replaces,
        quota: fields.quota,
        allowance: AllowanceDraft {
            rate: fields.rate,
            burst: fields.burst,
            burst_ratio: fields.burst_ratio,
            local_cap: fields.local_cap,
            bootstrap: fields.bootstrap,
        },
        guarantee: fields.guarantee,
        on_stale: fields.on_stale,
        count: fields.count,
        mode: fields.mode,
        oversize: fields.oversize.into(),
        shadow: fields.shadow,
        overrides: fields.overrides.into_iter().map(of_key).collect(),
        places: places(),
    }
}

/// Reports what is wrong with `json`, which stands at `at`.
fn report(error: &serde_json::Error, json: &str, at: Place, findings: &mut Findings<'_>) {
    let before = json.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len);
    let inside = before.sum::<usize>() + error.column().saturating_sub(1);
    let place = Place { offset: at.offset + inside.min(json.len()), ..at };
    let message = error.to_string();
    // The place is told by the finding, and the error's own is that in `json`.
    let message = message.rsplit_once(" at line ").map_or(&*message, |(message, _)| message);
    findings.error(place, message);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{READING, assert_sane, names, parsed_files};

    const SOUND: &str = r#"{"limits": [
  {"name": "api", "key": ["tenant"], "rate": "10/s",
   "override": [{"key": {"tenant": "acme"}, "rate": "20/s", "burst_ratio": 2.0}]},
  {"name": "day", "domain": "edge", "path": [{"name": "tenant"}], "rate": "1/d", "group": "Day"}
]}"#;

    fn found(text: &str) -> Vec<String> {
        parsed_files(&[("a.json", text)], READING).expect_err("not sound")
    }

    #[test]
    fn limits_with_and_without_paths_are_read() {
        let loaded = parsed_files(&[("a.json", SOUND)], READING).expect("sound");
        assert_eq!(names(&loaded), ["api", "day"]);
        assert_eq!(loaded.limits[0].overrides().len(), 1);
        let written = &loaded.as_written[&("edge".into(), "day".into())];
        assert_eq!((&*written.name, written.unit.as_secs()), ("Day", 86_400));
        let marked = format!("\u{feff}{SOUND}");
        assert_eq!(names(&parsed_files(&[("a.json", &marked)], READING).expect("sound")).len(), 2);
        let none = parsed_files(&[("a.json", r#"{"limits": []}"#)], READING).expect("none");
        assert!(none.limits.is_empty());
    }

    #[test]
    fn what_is_wrong_is_reported_at_its_place_or_that_of_its_limit() {
        for (text, expected) in [
            ("", "1:1: error: EOF while parsing a value"),
            ("[]", "1:1: error: is a list; write {\"limits\": [...]}"),
            ("{}", "1:2: error: missing field `limits`"),
            (r#"{"limits": [], "comment": ""}"#, "1:24: error: unknown field `comment`"),
            ("{\"limits\": [\n  {\"name\": \"é\", \"weight\": 1}]}", "2:24: error: unknown field"),
            ("{\"limits\": [\n  {\"name\": \"a\",\n\"rate\": 5}]}", "3:9: error: invalid type"),
            ("{\"limits\": [\n  {\"name\": \"A\", \"rate\": \"1/s\"}]}", "2:3: error: limit \"A\""),
        ] {
            let found = found(text);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(&format!("a.json:{expected}")), "{} {expected}", found[0]);
        }
        let twice = SOUND.replace("day", "api").replace("edge", "default");
        assert!(!found(&twice).is_empty());
    }

    #[test]
    fn a_wrong_limit_hides_no_other() {
        let text = "{\"limits\": [{}, {\"name\": \"a\", \"rate\": \"5\"}, 3]}";
        assert_eq!(found(text).len(), 3);
    }

    proptest! {
        // A case that fails becomes a test of its own, not a file.
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_change_of_a_sound_file_is_answered(
            cuts in prop::collection::vec(
                (any::<prop::sample::Index>(), 0_usize..40, "[\"{}:,\\[\\]é\n0-9a-z]{0,3}"),
                1..4,
            ),
        ) {
            let mut text = SOUND.to_string();
            for (start, length, piece) in cuts {
                let start = text.floor_char_boundary(start.index(text.len() + 1));
                let end = text.floor_char_boundary(start + length);
                text.replace_range(start..end, &piece);
            }
            assert_sane("a.json", text);
        }
    }
}
