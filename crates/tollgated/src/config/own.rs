//! Tollgate's own dialect: `[[limit]]`.
//!
//! It knows the fields and their types. Whether their values are sound is decided by the library.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::de::{Deserialize, Deserializer, Visitor};
use toml::Spanned;
use toml::de::DeValue;

use tollgate::{DEFAULT_DOMAIN, Oversize};

use super::draft::{AllowanceDraft, Draft, MatchDraft, OverrideDraft, Places};
use super::finding::{Findings, Place};
use super::read;

/// One limit. It applies to every request of its domain that has the entries of `match`; all limits
/// that apply must have room.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct LimitTable {
    /// The limit's name, and its only label in metrics: `api`. 1 to 64 of a-z, 0-9, '-', '_' and
    /// '.', and unique in its domain.
    #[schemars(with = "String", extend("pattern" = "^[a-z0-9._-]{1,64}$"))]
    name: Spanned<String>,
    /// The domain whose requests it sees. Typically left out; 1 to 256 bytes.
    #[serde(default)]
    #[schemars(with = "String", extend("default" = "default"))]
    domain: Option<Spanned<String>>,
    /// Entries that a request must have, `{ metric = "read_iops" }`; `"*"` is any value. Left out,
    /// the limit applies to every request of the domain. At most 16 entries.
    #[serde(default, rename = "match")]
    #[schemars(with = "BTreeMap<String, String>")]
    matches: BTreeMap<Spanned<String>, Spanned<String>>,
    /// Entries whose values split the limit into keys that are counted separately, `["tenant"]`.
    /// Left out, all requests share one key. At most 8.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    key: Vec<Spanned<String>>,
    /// Units per period, `"5000/s"`, `"60/15min"` or `"1GiB/s"`; or `"unlimited"`, or `"zero"` to
    /// admit nothing more than the burst. From 1 in 365 days to 10^12 a second.
    #[schemars(with = "String")]
    rate: Spanned<RateText>,
    /// Units that may pass at once after a rest: 10000. Left out, the N of the rate N/period; at
    /// least 1, and not beside `burst_ratio`.
    #[serde(default)]
    #[schemars(with = "u64")]
    burst: Option<Spanned<u64>>,
    /// The burst as seconds of the rate: 2.0. Above 0, and not beside `burst`.
    #[serde(default)]
    #[schemars(with = "f64")]
    burst_ratio: Option<Spanned<f64>>,
    /// The guarantee that the limit needs: `"local"`, on this node never more than burst + rate x t
    /// in any interval t; `"eventual"`, the same in the whole fleet while one node at a time is in
    /// charge of a key; or `"tally"`, about the rate's N in each of its periods in the whole fleet,
    /// as a Redis counts it. A node without others, or without a Redis, is its whole fleet.
    #[serde(default)]
    #[schemars(
        with = "String",
        extend("enum" = ["local", "eventual", "share", "tally"], "default" = "local")
    )]
    guarantee: Option<Spanned<String>>,
    /// With `"eventual"`, the most units that one worker of the fleet may hold of a key: 500. Left
    /// out, twice what the rate brings in 20 ms; 1 to the burst.
    #[serde(default)]
    #[schemars(with = "u64", range(min = 1))]
    local_cap: Option<Spanned<u64>>,
    /// With `"eventual"`, units that a worker may spend on a key before it has heard of the key's
    /// owner; the bound grows by as much with each first contact. At most `local_cap`.
    #[serde(default)]
    #[schemars(with = "u64", extend("default" = 0))]
    bootstrap: Option<Spanned<u64>>,
    /// What a worker does when it can't know. With `"eventual"`, when it has not heard of a key's
    /// owner for too long: this version keeps only `"deny"`, the default. With `"tally"`, when the
    /// Redis has not answered for long: `"allow"`, the default, judges by what was read last,
    /// `"share"` as if all nodes counted as much, and `"deny"` denies.
    #[serde(default)]
    #[schemars(with = "String", extend("enum" = ["allow", "share", "deny"]))]
    on_stale: Option<Spanned<String>>,
    /// What counts with `"tally"`: what is `"admitted"`, or what is `"offered"`, so that what is
    /// refused counts too, who meets the threshold is limited, and a key's first request passes.
    #[serde(default)]
    #[schemars(with = "String", extend("enum" = ["admitted", "offered"], "default" = "admitted"))]
    count: Option<Spanned<String>>,
    /// What decides with `"share"`: `"global"`, what the key's owner gives each node by demand;
    /// `"local"`, an equal part; `"disabled"`, the same without counting; or one of the first two
    /// with the other looked at beside it. It can be changed while the limit is in force.
    #[serde(default)]
    #[schemars(
        with = "String",
        extend(
            "enum" = [
                "disabled", "local", "global", "local-shadow-global", "global-shadow-local"
            ],
            "default" = "global"
        )
    )]
    mode: Option<Spanned<String>>,
    /// Evaluate and count, but never deny: to see what a limit would do.
    #[serde(default)]
    #[schemars(with = "bool", extend("default" = false))]
    shadow: Option<Spanned<bool>>,
    /// What becomes of a cost above the burst: `"never"` denies it for good, `"pace"` admits it
    /// when the key has rested, which then pays it off; not with `"eventual"` or `"share"`.
    #[serde(default)]
    #[schemars(with = "OversizeWord", extend("default" = "never"))]
    oversize: Option<Spanned<OversizeWord>>,
    /// Keys with a rate of their own. They are read one by one, after the limit.
    #[serde(default, rename = "override")]
    #[schemars(description = "Keys with a rate of their own.")]
    #[expect(dead_code, reason = "it is for the schema and to be known as a field")]
    overrides: Vec<OverrideTable>,
}

/// A key with a rate of its own.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
struct OverrideTable {
    /// A value for each part of the limit's key: `{ tenant = "acme" }`.
    #[schemars(with = "BTreeMap<String, String>")]
    key: Spanned<BTreeMap<String, String>>,
    /// As the limit's.
    #[schemars(with = "String")]
    rate: Spanned<RateText>,
    /// As the limit's; the limit's own burst does not carry over.
    #[serde(default)]
    #[schemars(with = "u64")]
    burst: Option<Spanned<u64>>,
    /// As the limit's; the limit's own ratio does not carry over.
    #[serde(default)]
    #[schemars(with = "f64")]
    burst_ratio: Option<Spanned<f64>>,
    /// As the limit's; left out, it is found from this rate and burst.
    #[serde(default)]
    #[schemars(with = "u64", range(min = 1))]
    local_cap: Option<Spanned<u64>>,
    /// As the limit's; the limit's own does not carry over.
    #[serde(default)]
    #[schemars(with = "u64", extend("default" = 0))]
    bootstrap: Option<Spanned<u64>>,
}

/// A rate as it is written: a type of its own, so that a bare number is told what is missing.
#[derive(Debug)]
struct RateText(String);

impl<'de> Deserialize<'de> for RateText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = RateText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a rate such as \"5000/s\"")
            }

            fn visit_str<E>(self, text: &str) -> Result<RateText, E> {
                Ok(RateText(text.into()))
            }
        }
        from.deserialize_str(Text)
    }
}

/// [`Oversize`] as it is written.
#[derive(Debug, Clone, Copy, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum OversizeWord {
    Never,
    Pace,
}

/// The limits of a file's `limit`; those that cannot be read are reported and left out.
pub(super) fn drafts(
    limits: Spanned<DeValue<'_>>,
    file: usize,
    findings: &mut Findings<'_>,
) -> Vec<Draft> {
    let at = |offset| Place { file, offset };
    let place = at(limits.span().start);
    let DeValue::Array(limits) = limits.into_inner() else {
        findings.error(place, "`limit` is a list: write [[limit]]");
        return Vec::new();
    };
    limits.into_iter().filter_map(|limit| one(limit, file, findings)).collect()
}

fn one(mut limit: Spanned<DeValue<'_>>, file: usize, findings: &mut Findings<'_>) -> Option<Draft> {
    let whole = Place { file, offset: limit.span().start };
    let overrides = match limit.get_mut() {
        DeValue::Table(table) => table.remove("override"),
        _ => None,
    };
    let table: Option<LimitTable> = read(limit, file, findings);
    // Each by itself, so that one that is wrong does not hide the others' errors.
    let overrides = match overrides.map(|overrides| (overrides.span(), overrides.into_inner())) {
        None => Vec::new(),
        Some((_, DeValue::Array(overrides))) => {
            overrides.into_iter().filter_map(|one| override_draft(one, file, findings)).collect()
        }
        Some((span, _)) => {
            let place = Place { file, offset: span.start };
            findings.error(place, "`override` is a list: write [[limit.override]]");
            Vec::new()
        }
    };
    Some(Draft { overrides, ..draft(table?, whole) })
}

fn draft(table: LimitTable, whole: Place) -> Draft {
    let at = |offset| Place { offset, ..whole };
    let mut fields =
        vec![("name", at(table.name.span().start)), ("rate", at(table.rate.span().start))];
    let optional = [
        ("domain", table.domain.as_ref().map(Spanned::span)),
        ("burst", table.burst.as_ref().map(Spanned::span)),
        ("burst_ratio", table.burst_ratio.as_ref().map(Spanned::span)),
        ("guarantee", table.guarantee.as_ref().map(Spanned::span)),
        ("local_cap", table.local_cap.as_ref().map(Spanned::span)),
        ("bootstrap", table.bootstrap.as_ref().map(Spanned::span)),
        ("on_stale", table.on_stale.as_ref().map(Spanned::span)),
        ("count", table.count.as_ref().map(Spanned::span)),
        ("mode", table.mode.as_ref().map(Spanned::span)),
        ("shadow", table.shadow.as_ref().map(Spanned::span)),
        ("oversize", table.oversize.as_ref().map(Spanned::span)),
        // An error about all of them stands at the first.
        ("match", table.matches.keys().map(Spanned::span).min_by_key(|span| span.start)),
        ("key", table.key.first().map(Spanned::span)),
    ];
    fields.extend(optional.into_iter().filter_map(|(name, span)| Some((name, at(span?.start)))));
    let or_default = |written: Option<Spanned<String>>, default: &str| {
        written.map_or_else(|| default.into(), Spanned::into_inner)
    };
    let entry = |(name, value): (Spanned<String>, Spanned<String>)| {
        let place = at(name.span().start);
        MatchDraft { name: name.into_inner(), value: value.into_inner(), place }
    };
    let part = |part: Spanned<String>| (part.get_ref().clone(), at(part.span().start));
    Draft {
        name: table.name.into_inner(),
        domain: or_default(table.domain, DEFAULT_DOMAIN),
        matches: table.matches.into_iter().map(entry).collect(),
        key: table.key.into_iter().map(part).collect(),
        allowance: AllowanceDraft {
            rate: table.rate.into_inner().0,
            burst: table.burst.map(Spanned::into_inner),
            burst_ratio: table.burst_ratio.map(Spanned::into_inner),
            local_cap: table.local_cap.map(Spanned::into_inner),
            bootstrap: table.bootstrap.map(Spanned::into_inner),
        },
        guarantee: or_default(table.guarantee, "local"),
        on_stale: table.on_stale.map(Spanned::into_inner),
        count: table.count.map(Spanned::into_inner),
        mode: table.mode.map(Spanned::into_inner),
        oversize: match table.oversize.map(Spanned::into_inner) {
            None | Some(OversizeWord::Never) => Oversize::Never,
            Some(OversizeWord::Pace) => Oversize::Pace,
        },
        shadow: table.shadow.is_some_and(Spanned::into_inner),
        path: Vec::new(),
        group: String::new(),
        replaces: Vec::new(),
        quota: false,
        overrides: Vec::new(),
        places: Places { whole, fields },
    }
}

fn override_draft(
    table: Spanned<DeValue<'_>>,
    file: usize,
    findings: &mut Findings<'_>,
) -> Option<OverrideDraft> {
    let at = |offset| Place { file, offset };
    let whole = at(table.span().start);
    let table: OverrideTable = read(table, file, findings)?;
    let mut fields =
        vec![("key", at(table.key.span().start)), ("rate", at(table.rate.span().start))];
    let optional = [
        ("burst", table.burst.as_ref().map(Spanned::span)),
        ("burst_ratio", table.burst_ratio.as_ref().map(Spanned::span)),
        ("local_cap", table.local_cap.as_ref().map(Spanned::span)),
        ("bootstrap", table.bootstrap.as_ref().map(Spanned::span)),
    ];
    fields.extend(optional.into_iter().filter_map(|(name, span)| Some((name, at(span?.start)))));
    Some(OverrideDraft {
        key: table.key.into_inner().into_iter().collect(),
        allowance: AllowanceDraft {
            rate: table.rate.into_inner().0,
            burst: table.burst.map(Spanned::into_inner),
            burst_ratio: table.burst_ratio.map(Spanned::into_inner),
            local_cap: table.local_cap.map(Spanned::into_inner),
            bootstrap: table.bootstrap.map(Spanned::into_inner),
        },
        places: Places { whole, fields },
    })
}

#[cfg(test)]
mod tests {
    use tollgate::{Limit, LimitSpec, OverrideSpec};

    use super::super::tests::{found, parsed};
    use super::*;

    const EVERY_FIELD: &str = r#"
        [[limit]]
        name = "api"
        domain = "edge"
        match = { metric = "read_iops", route = "*" }
        key = ["tenant", "region"]
        rate = "5000/s"
        burst = 10000
        guarantee = "local"
        shadow = true
        oversize = "pace"
        [[limit.override]]
        key = { region = "eu", tenant = "acme" }
        rate = "60/min"
        burst_ratio = 2
        [[limit.override]]
        key = { region = "eu", tenant = "small" }
        rate = "zero"
        burst = 5
        [[limit]]
        name = "all"
        rate = "unlimited"
        [[limit]]
        name = "shared"
        key = ["tenant"]
        rate = "5000/s"
        guarantee = "eventual"
        local_cap = 500
        bootstrap = 20
        on_stale = "deny"
        [[limit.override]]
        key = { tenant = "acme" }
        rate = "20000/s"
        local_cap = 2000
        bootstrap = 30
    "#;

    #[test]
    fn a_limit_with_every_field_is_the_limit_that_it_says() {
        let acme = OverrideSpec {
            key: &[("tenant", "acme"), ("region", "eu")],
            rate: "60/min",
            burst_ratio: Some(2.0),
            ..OverrideSpec::DEFAULT
        };
        let small = OverrideSpec {
            key: &[("tenant", "small"), ("region", "eu")],
            rate: "zero",
            burst: Some(5),
            ..OverrideSpec::DEFAULT
        };
        let full = LimitSpec {
            name: "api",
            domain: "edge",
            matches: &[("metric", "read_iops"), ("route", "*")],
            key: &["tenant", "region"],
            rate: "5000/s",
            burst: Some(10_000),
            burst_ratio: None,
            guarantee: "local",
            oversize: Oversize::Pace,
            shadow: true,
            overrides: &[acme, small],
            ..LimitSpec::DEFAULT
        };
        let least = LimitSpec { name: "all", rate: "unlimited", ..LimitSpec::DEFAULT };
        let larger = OverrideSpec {
            key: &[("tenant", "acme")],
            rate: "20000/s",
            local_cap: Some(2_000),
            bootstrap: Some(30),
            ..OverrideSpec::DEFAULT
        };
        let shared = LimitSpec {
            name: "shared",
            key: &["tenant"],
            rate: "5000/s",
            guarantee: "eventual",
            local_cap: Some(500),
            bootstrap: Some(20),
            on_stale: Some("deny"),
            overrides: &[larger],
            ..LimitSpec::DEFAULT
        };
        let expected = [full, least, shared].map(|spec| Limit::parse(&spec).expect("sound"));
        assert_eq!(parsed(EVERY_FIELD).expect("sound").limits, expected);
    }

    #[test]
    fn a_value_of_another_type_is_an_error_at_its_place() {
        for (field, expected) in [
            (r#"domain = 5"#, "4:10: error: invalid type: integer `5`, expected a string"),
            (r#"match = "a""#, r#"4:9: error: invalid type: string "a", expected a map"#),
            (r#"match = { a = 1 }"#, "4:15: error: invalid type: integer `1`, expected a string"),
            (r#"key = "a""#, r#"4:7: error: invalid type: string "a", expected a sequence"#),
            (r#"key = ["a", 2]"#, "4:13: error: invalid type: integer `2`, expected a string"),
            (r#"burst = -1"#, "4:9: error: invalid value: integer `-1`, expected u64"),
            (r#"burst = 1.5"#, "4:9: error: invalid type: floating point `1.5`, expected u64"),
            (r#"burst_ratio = true"#, "4:15: error: invalid type: boolean `true`, expected f64"),
            (r#"local_cap = "x""#, "4:13: error: invalid type: string \"x\", expected u64"),
            (r#"bootstrap = -1"#, "4:13: error: invalid value: integer `-1`, expected u64"),
            (r#"on_stale = 1"#, "4:12: error: invalid type: integer `1`, expected a string"),
            (r#"shadow = 1"#, "4:10: error: invalid type: integer `1`, expected a boolean"),
            (
                r#"oversize = "drop""#,
                "4:12: error: unknown variant `drop`, expected `never` or `pace`",
            ),
            (r#"override = 3"#, "4:12: error: `override` is a list: write [[limit.override]]"),
            (r#"override = [3]"#, "4:13: error: invalid type: integer `3`, expected a table"),
        ] {
            let text = format!("[[limit]]\nname = \"api\"\nrate = \"5/s\"\n{field}\n");
            assert_eq!(found(&text), [format!("1.toml:{expected}")], "{field}");
        }
        let bare =
            r#"1.toml:3:8: error: invalid type: integer `5`, expected a rate such as "5000/s""#;
        assert_eq!(found("[[limit]]\nname = \"api\"\nrate = 5\n"), [bare]);
    }

    #[test]
    fn a_field_that_is_missing_is_an_error_at_its_limit_or_override() {
        let text = r#"[[limit]]
name = "a"

  [[limit]]
rate = "5/s"
key = ["t"]
[[limit.override]]
rate = "6/s"
[[limit.override]]
key = {}
"#;
        let expected = [
            "1.toml:1:1: error: missing field `rate`",
            "1.toml:4:3: error: missing field `name`",
            "1.toml:7:1: error: missing field `key`",
            "1.toml:9:1: error: missing field `rate`",
        ];
        assert_eq!(found(text), expected);
    }

    #[test]
    fn what_is_no_list_of_limits_is_told_how_to_be_one() {
        let expected =
            |at: &str| [format!("1.toml:{at}: error: `limit` is a list: write [[limit]]")];
        assert_eq!(found("[limit]\nname = \"a\"\n"), expected("1:1"));
        assert_eq!(found("limit = 3"), expected("1:9"));
        let three = "1.toml:1:10: error: invalid type: integer `3`, expected a table";
        assert_eq!(found("limit = [3]"), [three]);
    }
}
