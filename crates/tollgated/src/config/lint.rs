//! Warnings: limits that are sound and in force, and yet may not be what was meant.
//!
//! Only what is almost surely a mistake, or is meant for a while (a shadow), is worth a warning:
//! whoever learns to pass over them misses the one that counts.

use std::collections::{HashMap, HashSet};

use tollgate::{Allowance, Limit, Oversize, Rate};

use super::draft::Draft;
use super::finding::Findings;
use super::set::Checked;

/// Reports what is doubtful about the limits.
pub(super) fn lint(checked: &[Checked], findings: &mut Findings<'_>) {
    for one in checked {
        lint_alone(one, findings);
        lint_overrides(one, findings);
    }
    // The end of a path is one limit's, so that neither can be said of limits with paths.
    let sets: Vec<&Checked> = checked.iter().filter(|one| one.draft.path.is_empty()).collect();
    lint_shapes(&sets, findings);
    lint_implied(&sets, findings);
}

fn lint_alone(one: &Checked, findings: &mut Findings<'_>) {
    let Draft { name, matches, key, places, overrides, shadow, .. } = &one.draft;
    if *shadow {
        let message = format!("limit {name:?} is a shadow: it counts and never denies");
        findings.warning(places.of("shadow"), message);
    }
    // At the end of a path, it is what keeps other limits away.
    let has_path = !one.draft.path.is_empty();
    if one.limit.allowance() == Allowance::Unlimited && overrides.is_empty() && !has_path {
        let message = format!("limit {name:?} is unlimited and has no overrides: it does nothing");
        findings.warning(places.of("rate"), message);
    }
    for (part, place) in key {
        let exact = matches.iter().find(|entry| entry.name == *part && entry.value != "*");
        if let Some(entry) = exact {
            let message = format!(
                "limit {name:?}: key part {part:?} splits nothing, since `match` admits only {:?}",
                entry.value,
            );
            findings.warning(*place, message);
        }
    }
}

fn lint_overrides(one: &Checked, findings: &mut Findings<'_>) {
    for written in &one.draft.overrides {
        let name = &one.draft.name;
        if let Some((part, _)) = written.key.iter().find(|(_, value)| value == "*") {
            let message = format!(
                "limit {name:?}: in an override's key \"*\" is no pattern: it overrides the one \
                 key whose {part:?} is \"*\""
            );
            findings.warning(written.places.of("key"), message);
        }
        let Some(alone) = written.allowance.alone(&one.draft.guarantee) else { continue };
        if let (Allowance::Metered { rate, burst }, Allowance::Metered { .. }) =
            (alone.allowance(), one.limit.allowance())
            && is_faster_with_less(rate, burst, one.limit.allowance())
        {
            let message = format!(
                "limit {name:?}: this override is faster than the limit, and its burst of {burst} \
                 is below the limit's own; give it a burst"
            );
            findings.warning(written.places.of("rate"), message);
        }
        let shares = |limit: &Limit| (limit.allowance(), limit.local_cap(), limit.bootstrap());
        if shares(&alone) == shares(&one.limit) {
            let message = format!("limit {name:?}: this override is the same as the limit's own");
            findings.warning(written.places.of("rate"), message);
        }
    }
}

/// Whether an override admits more in the long run, and less at once.
fn is_faster_with_less(rate: Rate, burst: u64, own: Allowance) -> bool {
    let Allowance::Metered { rate: own_rate, burst: own_burst } = own else { return false };
    let scaled = |one: Rate, other: Rate| u128::from(one.units()) * u128::from(other.period_ns());
    burst < own_burst && scaled(rate, own_rate) > scaled(own_rate, rate)
}

/// Every request of a domain pays for each combination of entries that its limits match by.
fn lint_shapes(checked: &[&Checked], findings: &mut Findings<'_>) {
    let mut shapes: HashMap<&str, HashSet<Vec<(&str, bool)>>> = HashMap::new();
    for one in checked {
        let entries = one.draft.matches.iter();
        let mut shape: Vec<(&str, bool)> =
            entries.map(|entry| (&*entry.name, entry.value == "*")).collect();
        shape.sort_unstable();
        let domain = &*one.draft.domain;
        let known = shapes.entry(domain).or_default();
        if known.insert(shape) && known.len() == SHAPES_MANY + 1 {
            let message = format!(
                "domain {domain:?} matches by more than {SHAPES_MANY} combinations of entries; 16 \
                 are the most it can have"
            );
            findings.warning(one.draft.places.of("match"), message);
        }
    }
}

/// A limit that denies nothing which another does not deny as well.
fn lint_implied(checked: &[&Checked], findings: &mut Findings<'_>) {
    let mut alike: HashMap<_, Vec<&Checked>> = HashMap::new();
    for &one in checked {
        let Draft { domain, matches, key, .. } = &one.draft;
        let mut entries: Vec<_> = matches.iter().map(|entry| (&entry.name, &entry.value)).collect();
        entries.sort_unstable();
        let mut parts: Vec<_> = key.iter().map(|(part, _)| part).collect();
        parts.sort_unstable();
        let group = alike.entry((domain, entries, parts)).or_default();
        if group.len() < ALIKE_MAX {
            group.push(one);
        }
    }
    for group in alike.values() {
        for (position, one) in group.iter().enumerate() {
            let implied_by = group.iter().enumerate().find(|(other, stricter)| {
                // Of two that are equal, the later one is too many.
                let equal = one.limit.allowance() == stricter.limit.allowance()
                    && one.draft.oversize == stricter.draft.oversize;
                *other != position && implies(stricter, one) && (!equal || *other < position)
            });
            if let Some((_, stricter)) = implied_by {
                let Draft { name, places, .. } = &one.draft;
                let at = findings.show(stricter.draft.places.of("name"));
                let stricter = &stricter.draft.name;
                let message = format!(
                    "limit {name:?} never decides: {stricter:?} at {at} has the same match and \
                     key, and is as strict or stricter"
                );
                findings.warning(places.of("name"), message);
            }
        }
    }
}

/// Whether what `stricter` admits, `other` admits too.
fn implies(stricter: &Checked, other: &Checked) -> bool {
    let plain = |one: &Checked| !one.draft.shadow && one.draft.overrides.is_empty();
    let (
        Allowance::Metered { rate, burst },
        Allowance::Metered { rate: other_rate, burst: other_burst },
    ) = (stricter.limit.allowance(), other.limit.allowance())
    else {
        return false;
    };
    let scaled =
        |rate: tollgate::Rate, period_ns: u64| u128::from(rate.units()) * u128::from(period_ns);
    // One that paces admits costs that the other denies for good.
    let both_deny_oversize =
        other.draft.oversize == Oversize::Pace || stricter.draft.oversize == Oversize::Never;
    // One of a node holds the node to what a fleet cannot promise, and one of a fleet holds all.
    let same_guarantee = stricter.limit.guarantee() == other.limit.guarantee();
    plain(stricter)
        && plain(other)
        && same_guarantee
        && both_deny_oversize
        && burst <= other_burst
        && scaled(rate, other_rate.period_ns()) <= scaled(other_rate, rate.period_ns())
}

/// Half of what a domain can have.
const SHAPES_MANY: usize = 8;
/// Limits of one match and key that are compared with each other; more than a few are generated.
const ALIKE_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::super::tests::found;

    fn limit(name: &str, rate: &str, fields: &str) -> String {
        format!("[[limit]]\nname = \"{name}\"\nrate = \"{rate}\"\n{fields}\n")
    }

    const OVERRIDE: &str = r#"key = ["t"]
[[limit.override]]
key = { t = "x" }
rate = "5/s"
burst = 5"#;

    #[test]
    fn a_shadow_is_pointed_out() {
        let expected = r#"1.toml:4:10: warning: limit "a" is a shadow: it counts and never denies"#;
        assert_eq!(found(&limit("a", "5/s", "shadow = true")), [expected]);
        assert!(found(&limit("a", "5/s", "shadow = false")).is_empty());
    }

    #[test]
    fn an_unlimited_limit_does_nothing_unless_it_has_overrides() {
        let expected =
            r#"1.toml:3:8: warning: limit "a" is unlimited and has no overrides: it does nothing"#;
        assert_eq!(found(&limit("a", "unlimited", "")), [expected]);
        assert!(found(&limit("a", "unlimited", OVERRIDE)).is_empty());
    }

    #[test]
    fn an_override_that_changes_nothing_is_pointed_out() {
        let expected =
            r#"1.toml:7:8: warning: limit "a": this override is the same as the limit's own"#;
        assert_eq!(found(&limit("a", "5/s", OVERRIDE)), [expected]);
        assert!(found(&limit("a", "6/s", OVERRIDE)).is_empty());
        assert!(found(&limit("a", "5/s", &OVERRIDE.replace("burst = 5", "burst = 6"))).is_empty());
        let shared = format!("guarantee = \"eventual\"\nlocal_cap = 2\n{OVERRIDE}");
        assert!(found(&limit("a", "5/s", &shared)).is_empty());
        let message = r#"limit "a": this override is the same as the limit's own"#;
        let expected = format!("1.toml:9:8: warning: {message}");
        assert_eq!(found(&limit("a", "5/s", &format!("{shared}\nlocal_cap = 2"))), [expected]);
    }

    #[test]
    fn an_override_for_more_that_gives_less_at_once_is_pointed_out() {
        let with = |fields: &str| {
            let key = "key = [\"tenant\"]\nburst = 1000\n";
            let written = "[[limit.override]]\nkey = { tenant = \"pro\" }\n";
            found(&limit("api", "10/s", &format!("{key}{written}{fields}")))
        };
        let found = with("rate = \"50/s\"\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("its burst of 50 is below the limit's own"), "{found:?}");
        assert!(with("rate = \"50/s\"\nburst = 1000\n").is_empty());
        assert!(with("rate = \"5/s\"\n").is_empty());
    }

    #[test]
    fn a_star_in_an_override_is_pointed_out() {
        let key = "key = [\"tenant\"]\n[[limit.override]]\nkey = { tenant = \"*\" }\n";
        let shown = found(&limit("api", "10/s", &format!("{key}rate = \"50/s\"\n")));
        assert!(shown[0].contains("\"*\" is no pattern"), "{shown:?}");
    }

    #[test]
    fn a_key_part_that_has_one_value_splits_nothing() {
        let exact = "match = { m = \"x\", t = \"*\" }\nkey = [\"t\", \"m\"]";
        let message = r#"limit "a": key part "m" splits nothing, since `match` admits only "x""#;
        assert_eq!(found(&limit("a", "5/s", exact)), [format!("1.toml:5:13: warning: {message}")]);
    }

    #[test]
    fn the_ninth_combination_of_entries_in_a_domain_is_pointed_out_once() {
        let shapes = |count: usize, domain: &str| -> String {
            let fields = |index| format!("match = {{ e{index} = \"x\" }}\ndomain = \"{domain}\"");
            (0..count).map(|index| limit(&format!("l{index}"), "5/s", &fields(index))).collect()
        };
        assert!(found(&(shapes(8, "one") + &shapes(8, "two"))).is_empty());
        let message = "matches by more than 8 combinations of entries; 16 are the most it can have";
        let expected = format!("1.toml:44:11: warning: domain \"one\" {message}");
        assert_eq!(found(&shapes(10, "one")), [expected]);
        // Another value is no other combination; any value is one.
        let values: String = (0..20)
            .map(|index| limit(&format!("l{index}"), "5/s", &format!("match.m = \"{index}\"")))
            .collect();
        assert!(found(&values).is_empty());
    }

    #[test]
    fn a_limit_that_another_makes_needless_is_pointed_out() {
        let of = |name: &str, rate: &str, fields: &str| {
            limit(name, rate, &format!("match = {{ m = \"x\" }}\n{fields}"))
        };
        let needless = |line: usize, name: &str, other: &str, at: &str| {
            format!(
                "1.toml:{line}:8: warning: limit \"{name}\" never decides: \"{other}\" at \
                 1.toml:{at} has the same match and key, and is as strict or stricter"
            )
        };
        let loose = of("loose", "60/min", "");
        let strict = of("strict", "1/s", "");
        let pair = loose.clone() + &strict;
        assert_eq!(found(&pair), [needless(2, "loose", "strict", "7:8")]);
        let twins = loose.clone() + &of("twin", "60/min", "");
        assert_eq!(found(&twins), [needless(7, "twin", "loose", "2:8")]);
        // Each of these decides something that the other does not.
        for other in [
            of("bursty", "30/min", "burst = 100"),
            of("paces", "1/s", "oversize = \"pace\""),
            of("keyed", "1/s", "key = [\"t\"]"),
            of("apart", "1/s", "domain = \"edge\""),
            of("fleet", "1/s", "guarantee = \"eventual\""),
            limit("other", "1/s", "match = { m = \"y\" }"),
        ] {
            assert!(found(&(loose.clone() + &other)).is_empty(), "{other}");
        }
        let tried = found(&(loose + &of("tried", "1/s", "shadow = true")));
        assert_eq!(tried.len(), 1, "only that it is a shadow: {tried:?}");
    }
}
