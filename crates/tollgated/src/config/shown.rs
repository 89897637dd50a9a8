//! Limits as a file that loads into the same limits: for people, who read, keep and change it.
//!
//! TOML in the own dialect where that has words for them, JSON for all. What follows from a limit's
//! rate is left out.

use serde_json::Value;
use tollgate::Limit;
use tollgate_tokio::limit_text::LimitFields;

/// Limits as TOML; none if one has a path, which TOML has no words for.
pub(crate) fn toml_of(limits: &[Limit]) -> Option<String> {
    if limits.is_empty() {
        return Some("limit = []\n".into());
    }
    let tables: Option<Vec<String>> = limits.iter().map(table).collect();
    Some(tables?.join("\n"))
}

/// Limits as JSON: what is the `limits` of a file.
pub(crate) fn list_of(limits: &[Limit]) -> Value {
    let shown = |limit| serde_json::to_value(LimitFields::of(limit).concise());
    let list: Result<Value, _> = limits.iter().map(shown).collect();
    list.expect("texts, numbers and maps by text have a JSON form")
}

fn table(limit: &Limit) -> Option<String> {
    if limit.path().len() > 0 {
        return None;
    }
    let fields = LimitFields::of(limit).concise();
    // Numbers are within 2^62.
    let mut table = toml::Table::try_from(&fields).ok()?;
    let overrides = table.remove("override");
    let mut text = lines("[[limit]]", &table);
    for one in overrides.iter().filter_map(toml::Value::as_array).flatten() {
        text += &lines("[[limit.override]]", one.as_table()?);
    }
    Some(text)
}

/// A table with a line for each field.
fn lines(head: &str, table: &toml::Table) -> String {
    let known = FIELDS.iter().filter_map(|name| Some((name, table.get(*name)?)));
    let lines: String = known.map(|(name, value)| format!("{name} = {value}\n")).collect();
    debug_assert_eq!(lines.matches('\n').count().min(1), 1, "every table has a rate");
    format!("{head}\n{lines}")
}

/// The fields in the order in which people read them.
const FIELDS: [&str; 14] = [
    "name",
    "domain",
    "match",
    "key",
    "rate",
    "burst",
    "guarantee",
    "local_cap",
    "bootstrap",
    "count",
    "mode",
    "on_stale",
    "oversize",
    "shadow",
];

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use serde_json::json;

    use super::super::tests::{READING, parsed, parsed_files};
    use super::super::{Loaded, Reading, load};
    use super::*;

    #[test]
    fn limits_are_shown_as_people_write_them() {
        let text = r#"[[limit]]
name = "api"
domain = "edge"
match = { "a b" = 'x"y', route = "*" }
key = ["tenant"]
rate = "5000/s"
guarantee = "eventual"
bootstrap = 5
shadow = true
[[limit.override]]
key = { tenant = "ac\tme" }
rate = "60/15min"
burst = 100

[[limit]]
name = "bytes"
rate = "1073741824/s"
oversize = "pace"

[[limit]]
name = "calls"
key = ["tenant"]
rate = "1000/min"
guarantee = "tally"
count = "offered"
on_stale = "share"
[[limit.override]]
key = { tenant = "acme" }
rate = "5000/min"
"#;
        let limits = parsed(text).expect("sound").limits;
        assert_eq!(toml_of(&limits).as_deref(), Some(text));
        assert_eq!(toml_of(&[]).as_deref(), Some("limit = []\n"));
    }

    /// The same limits again from what is shown of them.
    fn assert_shown(path: &Path, loaded: &Loaded) {
        let shown = path.display();
        let document = json!({ "limits": list_of(&loaded.limits) }).to_string();
        let again = parsed_files(&[("a.json", &document)], READING).expect("sound");
        assert_eq!(again.limits, loaded.limits, "{shown}");
        for (limit, written) in &loaded.as_written {
            let of = &again.as_written[limit];
            let zero = document.contains("\"zero\"");
            assert!(of == written || (zero && of.name == written.name), "{shown} {limit:?}");
        }
        let has_path = loaded.limits.iter().any(|limit| limit.path().len() > 0);
        let toml = toml_of(&loaded.limits);
        assert_eq!(toml.is_none(), has_path, "{shown}");
        if let Some(toml) = toml {
            assert_eq!(parsed(&toml).expect("sound").limits, loaded.limits, "{shown}");
        }
    }

    fn files(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                files(&path, found);
            } else {
                found.push(path);
            }
        }
    }

    #[test]
    fn every_policy_of_this_repository_is_shown_as_it_is() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut found = Vec::new();
        for folder in ["examples", "bench", "e2e", "crates/tollgated/tests"] {
            files(&root.join(folder), &mut found);
        }
        found.retain(|path| {
            let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
            ["toml", "yaml", "yml"].contains(&end) && !path.to_string_lossy().contains("/target/")
        });
        let reading = Reading { merge_domains: true, ..READING };
        let mut sound = 0;
        for path in found {
            // Some are no policies: manifests, scenarios, configurations of proxies.
            let Ok(loaded) = load(&path, reading) else { continue };
            assert_shown(&path, &loaded);
            sound += 1;
        }
        assert!(sound >= 4, "{sound} policies");
    }
}
