//! What limits that are sound by themselves may not be together: two of one name, too many ways to
//! match, more overrides than there is room for.
//!
//! The library decides it: a limiter is built of them and thrown away. This file only finds out
//! which limit it refused.

use tollgate::{Clock, Limit, LimitError, Limiter, Options, Secret, TableFull};

use super::draft::Draft;
use super::finding::{Findings, Place};

/// A limit that is sound by itself, and how it was written.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) draft: Draft,
    pub(super) limit: Limit,
}

/// Reports what is wrong with the limits together; `source` is where errors stand that are no
/// limit's.
pub(super) fn check(
    checked: &[Checked],
    keys_max: u64,
    source: Place,
    findings: &mut Findings<'_>,
) {
    let mut kept: Vec<&Checked> = checked.iter().collect();
    // A limit that is refused is left out, and the others are tried again.
    for _ in 0..REFUSALS_MAX {
        let Err(error) = attempt_checked(&kept, keys_max) else { return };
        // The library takes limits one by one: the first to be refused is the last of the shortest
        // list that is.
        let lengths: Vec<usize> = (0..=kept.len()).collect();
        let sound =
            lengths.partition_point(|length| attempt_checked(&kept[..*length], keys_max).is_ok());
        // With no limit at all it is the limiter itself that is refused.
        let Some(position) = sound.checked_sub(1) else {
            findings.error(source, error.to_string());
            return;
        };
        let refused = kept.remove(position);
        findings.error(refused.draft.place(&error), explain(&error, refused, &kept, findings));
        if error.field() == "override" {
            return; // Every limit after it would be one too many as well.
        }
    }
}

fn attempt_checked(checked: &[&Checked], keys_max: u64) -> Result<(), LimitError> {
    attempt(checked.iter().map(|checked| checked.limit.clone()).collect(), keys_max)
}

/// Whether limits can be in force together, where `keys_max` keys may have a cell.
///
/// # Errors
/// What the library refuses.
pub(crate) fn attempt(limits: Vec<Limit>, keys_max: u64) -> Result<(), LimitError> {
    let (clock, _) = Clock::manual();
    let secret = Secret::from_seed([0; 32]); // It sees no request, so that nobody can attack it.
    let table_full = TableFull::default();
    let options =
        Options { keys_max, table_full, clock, secret, fleet: false, tally: false, share: false };
    Limiter::new(limits, options).map(|_| ())
}

fn explain(
    error: &LimitError,
    refused: &Checked,
    kept: &[&Checked],
    findings: &Findings<'_>,
) -> String {
    let Draft { name, domain, .. } = &refused.draft;
    let twin = kept.iter().find(|one| one.draft.name == *name && one.draft.domain == *domain);
    match twin {
        Some(twin) if error.field() == "name" => {
            let first = findings.show(twin.draft.places.of("name"));
            format!("limit {name:?} of domain {domain:?} is already defined at {first}")
        }
        _ => error.to_string(),
    }
}

/// Errors of this kind that are reported in one run.
const REFUSALS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::super::tests::{READING, found, parsed};
    use super::super::{Reading, parse};

    fn limit(name: &str, fields: &str) -> String {
        format!("[[limit]]\nname = \"{name}\"\nrate = \"5/s\"\n{fields}\n")
    }

    #[test]
    fn a_name_that_is_taken_is_an_error_that_names_both_places() {
        let text = [limit("a", "key = [\"x\"]"), limit("b", ""), limit("a", ""), limit("a", "")];
        let taken = r#"limit "a" of domain "default" is already defined at 1.toml:2:8"#;
        let expected =
            [format!("1.toml:10:8: error: {taken}"), format!("1.toml:14:8: error: {taken}")];
        let mut errors = found(&text.concat());
        errors.retain(|found| found.contains(" error: "));
        assert_eq!(errors, expected);
        let apart = limit("a", "") + &limit("a", "domain = \"edge\"");
        assert_eq!(parsed(&apart).expect("two domains").limits.len(), 2);
    }

    #[test]
    fn each_combination_of_entries_after_the_16th_is_an_error_at_its_match() {
        let mut text = limit("first", "");
        for index in 1..18 {
            text += &limit(&format!("l{index}"), &format!("match = {{ e{index} = \"x\" }}"));
        }
        let mut errors = found(&text);
        errors.retain(|found| found.contains(" error: "));
        let message = "is the 17th combination of entries in its domain; at most 16 are matched";
        let expected = [
            format!(r#"1.toml:68:11: error: limit "l16": match = "e16": {message}"#),
            format!(r#"1.toml:72:11: error: limit "l17": match = "e17": {message}"#),
        ];
        assert_eq!(errors, expected);
    }

    #[test]
    fn more_overrides_than_there_is_room_for_are_an_error_at_their_limit() {
        let overrides = |count: usize| -> String {
            let one = |index| {
                format!("[[limit.override]]\nkey = {{ t = \"{index}\" }}\nrate = \"6/s\"\n")
            };
            (0..count).map(one).collect()
        };
        let text = limit("a", "key = [\"t\"]")
            + &overrides(8)
            + &limit("b", "key = [\"t\"]")
            + &overrides(60)
            + &limit("c", "key = [\"u\"]");
        let of = |keys_max| {
            let reading = Reading { keys_max, ..READING };
            parse(vec![("a.toml".into(), text.clone())], reading)
        };
        let found = of(1).expect_err("70 where 64 are free");
        let errors: Vec<String> = found
            .iter()
            .map(ToString::to_string)
            .filter(|finding| finding.contains(" error: "))
            .collect();
        assert_eq!(errors.len(), 1, "{errors:?}");
        let expected =
            r#"a.toml:29:1: error: limit "b": override = "70": more limits and overrides"#;
        assert!(errors[0].starts_with(expected), "{errors:?}");
        assert!(of(64).is_ok());
    }

    #[test]
    fn a_limiter_that_cannot_be_is_an_error_of_the_source() {
        let none = Reading { keys_max: 0, ..READING };
        let found = parse(vec![("a.toml".into(), limit("a", ""))], none).expect_err("no keys");
        let expected = "a.toml:1:1: error: options: keys_max = 0: must be 1 to 100,000,000";
        assert_eq!(found[0].to_string(), expected);
    }
}
