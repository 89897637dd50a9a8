//! That a text says all that a limit is, and what is refused.

use proptest::prelude::*;
use tollgate::coordinator::{Command, Edit, FleetSecret, State};
use tollgate::{LimitSpec, OverrideSpec, Oversize, StepSpec};

use super::*;

const ACME: OverrideSpec<'_> = OverrideSpec {
    key: &[("user", "ada"), ("tenant", "acme \"é\"")],
    rate: "60/15min",
    bootstrap: Some(1),
    ..OverrideSpec::DEFAULT
};

/// Every field at something else than its default.
const FULL: LimitSpec<'_> = LimitSpec {
    name: "api",
    domain: "edge",
    matches: &[("route", "login"), ("method", "*")],
    key: &["tenant", "user"],
    rate: "5000/s",
    burst: Some(10_000),
    guarantee: "eventual",
    local_cap: Some(500),
    bootstrap: Some(5),
    shadow: true,
    overrides: &[ACME],
    ..LimitSpec::DEFAULT
};

const PATH: LimitSpec<'_> = LimitSpec {
    name: "per_day",
    domain: "edge",
    path: &[
        StepSpec { name: "tenant", value: "a*", shared: true },
        StepSpec { name: "route", value: "", shared: false },
    ],
    group: "Per Day",
    replaces: &["other"],
    quota: true,
    rate: "1/d",
    ..LimitSpec::DEFAULT
};

const TALLY: LimitSpec<'_> = LimitSpec {
    name: "calls",
    key: &["tenant"],
    rate: "1000/60s",
    guarantee: "tally",
    count: Some("offered"),
    on_stale: Some("share"),
    overrides: &[OverrideSpec {
        key: &[("tenant", "acme")],
        rate: "5000/60s",
        ..OverrideSpec::DEFAULT
    }],
    ..LimitSpec::DEFAULT
};

fn limit(spec: &LimitSpec<'_>) -> Limit {
    Limit::parse(spec).expect("sound")
}

fn assert_round_trip(limit: &Limit) {
    let LimitText { name, text } = to_text(limit);
    assert_eq!(from_text(&name, &text).as_ref(), Ok(limit), "{text}");
    assert_eq!(LimitFields::of(limit).concise().limit().as_ref(), Ok(limit), "{text}");
}

#[test]
fn texts_are_pinned_by_golden_vectors() {
    let set = to_text(&limit(&FULL));
    assert_eq!(set.name, "edge/api");
    let expected = concat!(
        r#"{"name":"api","domain":"edge","match":{"method":"*","route":"login"},"#,
        r#""key":["tenant","user"],"rate":"5000/s","burst":10000,"guarantee":"eventual","#,
        r#""local_cap":500,"bootstrap":5,"shadow":true,"#,
        r#""override":[{"key":{"tenant":"acme \"é\"","user":"ada"},"rate":"60/15min","#,
        r#""burst":60,"local_cap":1,"bootstrap":1}]}"#,
    );
    assert_eq!(set.text, expected);
    let path = to_text(&limit(&PATH));
    assert_eq!(path.name, "edge/\n\"tenant\"\"a*\"\n\"route\"\"\"");
    let expected = concat!(
        r#"{"name":"per_day","domain":"edge","#,
        r#""path":[{"name":"tenant","value":"a*","shared":true},{"name":"route"}],"#,
        r#""group":"Per Day","replaces":["other"],"quota":true,"rate":"1/d","burst":1}"#,
    );
    assert_eq!(path.text, expected);
    let expected = concat!(
        r#"{"name":"calls","key":["tenant"],"rate":"1000/min","burst":1000,"guarantee":"tally","#,
        r#""on_stale":"share","count":"offered","#,
        r#""override":[{"key":{"tenant":"acme"},"rate":"5000/min","burst":5000}]}"#,
    );
    assert_eq!(to_text(&limit(&TALLY)).text, expected);
}

#[test]
fn every_kind_of_limit_is_read_as_it_was() {
    let closed = LimitSpec { rate: "zero", local_cap: None, bootstrap: None, ..FULL };
    let closed = LimitSpec { burst: None, overrides: &[], ..closed };
    for spec in [
        FULL,
        PATH,
        closed,
        LimitSpec { burst: Some(7), ..closed },
        LimitSpec { rate: "unlimited", ..closed },
        LimitSpec { guarantee: "local", oversize: Oversize::Pace, ..closed },
        LimitSpec { name: "fast", rate: "1000000000000/s", ..LimitSpec::DEFAULT },
        LimitSpec { rate: "none", ..PATH },
        LimitSpec { rate: "unlimited", quota: false, shadow: true, ..PATH },
        LimitSpec { rate: "zero", ..PATH },
        TALLY,
        LimitSpec { on_stale: Some("deny"), ..TALLY },
        LimitSpec { count: None, on_stale: Some("allow"), ..TALLY },
        LimitSpec { guarantee: "tally", count: Some("offered"), ..PATH },
    ] {
        assert_round_trip(&limit(&spec));
    }
}

#[test]
fn for_people_what_follows_from_the_rate_is_left_out() {
    let spec = LimitSpec { burst: None, local_cap: None, ..FULL };
    let concise = LimitFields::of(&limit(&spec)).concise();
    assert_eq!((concise.burst, concise.local_cap, concise.bootstrap), (None, None, Some(5)));
    assert_eq!((concise.overrides[0].burst, concise.overrides[0].local_cap), (None, None));
    let kept = LimitFields::of(&limit(&FULL)).concise();
    assert_eq!((kept.burst, kept.local_cap), (Some(10_000), Some(500)));
}

#[test]
fn a_field_that_a_newer_version_wrote_is_refused_by_its_name() {
    let text = r#"{"name":"api","rate":"10/s","windows":3}"#;
    let error = from_text("default/api", text).expect_err("unknown").to_string();
    assert!(error.starts_with("limit \"default/api\" can't be read: unknown field `windows`"));
    assert!(error.ends_with("this one is to be upgraded"), "{error}");
    let text = r#"{"name":"api","rate":"10/s","override":[{"key":{},"rate":"1/s","weight":3}]}"#;
    let error = from_text("default/api", text).expect_err("unknown").to_string();
    assert!(error.contains("unknown field `weight`"), "{error}");
}

#[test]
fn what_is_not_sound_or_another_limit_is_refused_by_name() {
    for (text, expected) in [
        ("", "limit \"default/api\" can't be read: EOF"),
        (r#"["api"]"#, "limit \"default/api\" can't be read: invalid type: sequence"),
        (
            r#"{"name":"api","rate":"10/s","path":[["a"]]}"#,
            "limit \"default/api\" can't be read: invalid type: sequence, expected an object",
        ),
        (
            r#"{"name":"api","rate":"10"}"#,
            "\"default/api\" is not sound: limit \"api\": rate = \"10\": must be units/period",
        ),
        (
            r#"{"name":"api","rate":"10/s","match":{"a":"1","a":"2"}}"#,
            "\"default/api\" is not sound: limit \"api\": match = \"a\": is given twice",
        ),
        (r#"{"name":"b","rate":"1/s"}"#, "limit \"default/api\" says that it is \"default/b\""),
    ] {
        let error = from_text("default/api", text).expect_err("refused");
        assert_eq!(error.limit(), "default/api");
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

#[test]
fn a_long_path_has_a_name_of_its_own_within_512_bytes() {
    let value = |last: &str| "é".repeat(2_000) + last;
    let named = |value: &str| {
        let path = [StepSpec { name: "tenant", value, shared: false }];
        let limit = limit(&LimitSpec { name: "p", path: &path, rate: "1/s", ..LimitSpec::DEFAULT });
        assert_round_trip(&limit);
        name_of(&limit)
    };
    let (one, other) = (named(&value("a")), named(&value("b")));
    assert!(one.len() <= 512 && one.len() > 500 && one != other, "{one}");
    assert_eq!(one, named(&value("a")));
}

#[test]
fn a_limit_with_5_000_overrides_fits_into_a_mebibyte() {
    let keys: Vec<(String, String)> = (0..5_000)
        .map(|index| (format!("customer-{index:024}"), format!("read-{index:016}")))
        .collect();
    let keys: Vec<[(&str, &str); 2]> =
        keys.iter().map(|(tenant, user)| [("tenant", &**tenant), ("user", &**user)]).collect();
    let rate = "1000000000/365d";
    let one = |key| OverrideSpec { key, rate, local_cap: Some(900), ..OverrideSpec::DEFAULT };
    let overrides: Vec<OverrideSpec<'_>> = keys.iter().map(|key| one(key)).collect();
    let limit = limit(&LimitSpec { overrides: &overrides, ..FULL });
    let text = to_text(&limit);
    assert!(text.text.len() <= 1 << 20, "{}", text.text.len());
    assert_eq!(from_text(&text.name, &text.text), Ok(limit));
}

#[test]
fn a_document_is_read_in_its_order() {
    let limits = [limit(&PATH), limit(&FULL)];
    let mut state = State::default();
    state
        .apply(Command::Found { secret: FleetSecret::new([7; 32]), fleet: 9, voters_max: 3 })
        .expect("founded");
    let put = Command::PutPolicy { edit: Edit::default(), limits: to_texts(&limits) };
    state.apply(put).expect("sound");
    let document = state.policy().expect("put");
    assert_eq!(from_document(document).as_deref(), Ok(&limits[..]));
}

/// A text of few letters, some of them awkward.
fn text() -> impl Strategy<Value = String> {
    "[a-c\"\\\\/é\n*#. ]{1,4}"
}

fn amount() -> impl Strategy<Value = (String, Option<u64>, Option<u64>, Option<u64>)> {
    let rate = prop_oneof![
        (1_u64..1_000_000, 1_u64..100, prop::sample::select(vec!["ns", "us", "s", "min", "d"]))
            .prop_map(|(units, count, unit)| format!("{units}/{count}{unit}")),
        prop::sample::select(vec!["zero", "unlimited", "none", "1TB/s"]).prop_map(str::to_owned),
    ];
    let number = || prop::option::weighted(0.3, 0_u64..2_000_000);
    (rate, number(), number(), number())
}

proptest! {
    // A case that fails becomes a test of its own, not a file.
    #![proptest_config(ProptestConfig {
        failure_persistence: None, cases: 2_000, ..Default::default()
    })]

    #[test]
    fn any_sound_limit_is_read_as_it_was(
        (domain, matches, key) in (
            text(),
            prop::collection::vec((text(), text()), 0..3),
            prop::collection::vec(text(), 0..3),
        ),
        steps in prop::collection::vec((text(), "[ab*é\"\n]{0,3}", any::<bool>()), 0..3),
        (group, replaces) in ("[ab]{0,2}", prop::collection::vec("[ab]{0,2}", 0..2)),
        (rate, burst, local_cap, bootstrap) in amount(),
        guarantee in prop::sample::select(vec!["local", "eventual", "tally"]),
        (pace, shadow, quota, offered) in any::<(bool, bool, bool, bool)>(),
        on_stale in prop::option::of(prop::sample::select(vec!["allow", "share", "deny"])),
        others in prop::collection::vec((prop::collection::vec(text(), 3), amount()), 0..3),
    ) {
        let has_path = !steps.is_empty();
        let (eventual, tally) = (guarantee == "eventual", guarantee == "tally");
        let pairs = |pairs: &'_ [(String, String)]| -> Vec<(String, String)> { pairs.to_vec() };
        let matches = if has_path { Vec::new() } else { pairs(&matches) };
        let matches: Vec<(&str, &str)> = matches.iter().map(|(n, v)| (&**n, &**v)).collect();
        let key: Vec<&str> =
            key.iter().filter(|_| !has_path).map(String::as_str).collect();
        let path: Vec<StepSpec<'_>> = steps
            .iter()
            .map(|(name, value, shared)| StepSpec { name, value, shared: *shared })
            .collect();
        let keys: Vec<Vec<(&str, &str)>> = others
            .iter()
            .map(|(parts, _)| key.iter().copied().zip(parts.iter().map(String::as_str)).collect())
            .collect();
        let overrides: Vec<OverrideSpec<'_>> = keys
            .iter()
            .zip(&others)
            .filter(|(key, _)| !key.is_empty())
            .map(|(key, (_, (rate, burst, local_cap, bootstrap)))| OverrideSpec {
                key, rate, burst: *burst, local_cap: *local_cap, bootstrap: *bootstrap,
                ..OverrideSpec::DEFAULT
            })
            .collect();
        let replaces: Vec<&str> =
            replaces.iter().filter(|_| has_path).map(String::as_str).collect();
        let spec = LimitSpec {
            name: "api",
            domain: &domain,
            matches: &matches,
            key: &key,
            path: &path,
            group: if has_path { &group } else { "" },
            replaces: &replaces,
            quota: quota && has_path,
            rate: &rate,
            burst,
            guarantee,
            local_cap: local_cap.filter(|_| eventual),
            bootstrap: bootstrap.filter(|_| eventual),
            on_stale: on_stale.filter(|_| tally),
            count: (tally && offered).then_some("offered"),
            oversize: if pace { Oversize::Pace } else { Oversize::Never },
            shadow,
            overrides: &overrides,
            ..LimitSpec::DEFAULT
        };
        if let Ok(limit) = Limit::parse(&spec) {
            assert_round_trip(&limit);
        }
    }
}
