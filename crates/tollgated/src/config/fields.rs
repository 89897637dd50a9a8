//! Fields that nobody reads: each is an error, with the known field that it was probably meant to
//! be.
//!
//! What is known is read from the JSON Schema, so that the schema that editors use and the check
//! that the daemon makes cannot differ. Whether a field's value makes sense is not known here.

use serde_json::Value;
use toml::Spanned;
use toml::de::DeValue;

use super::finding::{Findings, Place, short};

/// Reports every field that `schema` does not know, and takes it out, so that what is left can be
/// read and checked in the same run.
pub(super) fn refuse_unknown(
    value: &mut Spanned<DeValue<'_>>,
    schema: &Value,
    file: usize,
    findings: &mut Findings<'_>,
) {
    // The depth is that of the schema.
    match value.get_mut() {
        DeValue::Table(table) => {
            let any = schema.get("additionalProperties");
            let known = schema.get("properties").and_then(Value::as_object);
            let is_known = |name: &str| known.is_some_and(|known| known.contains_key(name));
            if any == Some(&Value::Bool(false)) {
                let unknown: Vec<String> = table
                    .keys()
                    .filter(|name| !is_known(name.get_ref()))
                    .map(|name| {
                        let known = known.into_iter().flat_map(serde_json::Map::keys);
                        let message = refusal(name.get_ref(), known.map(String::as_str));
                        findings.error(Place { file, offset: name.span().start }, message);
                        name.get_ref().to_string()
                    })
                    .collect();
                for name in unknown {
                    table.remove(&*name);
                }
            }
            for (name, value) in table.iter_mut() {
                let known = known.and_then(|known| known.get(&**name.get_ref()));
                if let Some(schema) = known.or(any) {
                    refuse_unknown(value, schema, file, findings);
                }
            }
        }
        DeValue::Array(array) => {
            let Some(schema) = schema.get("items") else { return };
            for value in array.iter_mut() {
                refuse_unknown(value, schema, file, findings);
            }
        }
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_) => {}
    }
}

fn refusal<'k>(name: &str, known: impl Iterator<Item = &'k str> + Clone) -> String {
    if NOT_BUILT.contains(&name) {
        return format!(
            "`{name}` belongs to a guarantee that this version does not have; it keeps only \
             \"local\", \"eventual\" and \"tally\""
        );
    }
    unknown(name, known)
}

/// That nobody reads a field of this name.
pub(super) fn unknown<'k>(name: &str, known: impl Iterator<Item = &'k str> + Clone) -> String {
    let shown = short(name);
    if let Some(near) = near(name, known.clone()) {
        return format!("unknown field `{shown}`; did you mean `{near}`?");
    }
    let known: Vec<String> = known.map(|known| format!("`{known}`")).collect();
    format!("unknown field `{shown}`; known are {}", known.join(", "))
}

/// The known field that a name was probably meant to be.
pub(super) fn near<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let (distance, near) = known.map(|known| (distance(name, known), known)).min()?;
    (distance <= 2.min(near.len() / 2)).then_some(near)
}

/// Letters to insert, leave out or exchange (also for their neighbour) to turn one word into
/// another; [`usize::MAX`] for a word that is too long to be a misspelling.
fn distance(a: &str, b: &str) -> usize {
    if a.len() > MISSPELT_BYTES_MAX {
        return usize::MAX;
    }
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // rows[i][j] is the distance of the first i letters of a to the first j of b.
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let exchanged = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = exchanged.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// Fields of the design whose guarantees come later: they are refused by name, because a limit that
/// ignored them would promise what it does not keep.
const NOT_BUILT: [&str; 1] = ["windows"];
/// The longest known field has 17.
const MISSPELT_BYTES_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_miss_is_pointed_out_and_a_far_one_gets_the_list() {
        let known = ["burst", "burst_ratio", "key", "match", "name"];
        let refusal = |name| refusal(name, known.into_iter());
        assert_eq!(refusal("brust"), "unknown field `brust`; did you mean `burst`?");
        assert_eq!(
            refusal("burst_ratios"),
            "unknown field `burst_ratios`; did you mean `burst_ratio`?"
        );
        assert_eq!(refusal("keys"), "unknown field `keys`; did you mean `key`?");
        let far = "unknown field `kex_y`; known are `burst`, `burst_ratio`, `key`, `match`, `name`";
        assert_eq!(refusal("kex_y"), far);
        assert!(refusal("windows").starts_with("`windows` belongs to a guarantee"));
        assert!(refusal(&"n".repeat(100_000)).len() < 200);
    }

    #[test]
    fn a_distance_counts_letters() {
        for (a, b, expected) in [
            ("", "", 0),
            ("", "key", 3),
            ("key", "", 3),
            ("rate", "rate", 0),
            ("rat", "rate", 1),
            ("rtae", "rate", 1),
            ("date", "rate", 1),
            ("limits", "limit", 1),
            ("überride", "override", 2),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }
}
