//! A limit that makes no sense is refused when it is loaded, naming the field, the value and the
//! reason, and what was in force stays in force.

use tollgate::{Limit, LimitError, LimitSpec, OverrideSpec, Oversize};

use crate::support::{api, ask, limiter, limits};

fn refused(spec: &LimitSpec<'_>) -> LimitError {
    Limit::parse(spec).expect_err("refused")
}

const GOOD: LimitSpec<'static> = LimitSpec { name: "api", rate: "5/s", ..LimitSpec::DEFAULT };

#[test]
fn every_wrong_field_is_named_with_its_value() {
    let long = "x".repeat(257);
    let many: Vec<(&str, &str)> = vec![("a", "b"); 17];
    let cases = [
        (LimitSpec { name: "", ..GOOD }, "name", ""),
        (LimitSpec { name: "Api", ..GOOD }, "name", "Api"),
        (LimitSpec { name: &long, ..GOOD }, "name", &*long),
        (LimitSpec { domain: "", ..GOOD }, "domain", ""),
        (LimitSpec { matches: &[("", "x")], ..GOOD }, "match", ""),
        (LimitSpec { matches: &[("a", "")], ..GOOD }, "match", "a = "),
        (LimitSpec { matches: &[("a", "x"), ("a", "y")], ..GOOD }, "match", "a"),
        (LimitSpec { matches: &many, ..GOOD }, "match", "17"),
        (LimitSpec { key: &["a", "a"], ..GOOD }, "key", "a"),
        (LimitSpec { key: &[""], ..GOOD }, "key", ""),
        (LimitSpec { key: &["a", "b", "c", "d", "e", "f", "g", "h", "i"], ..GOOD }, "key", "9"),
        (LimitSpec { rate: "", ..GOOD }, "rate", ""),
        (LimitSpec { rate: "many/s", ..GOOD }, "rate", "many/s"),
        (LimitSpec { rate: "0/s", ..GOOD }, "rate", "0/s"),
        (LimitSpec { rate: "5/0s", ..GOOD }, "rate", "5/0s"),
        (LimitSpec { burst: Some(0), ..GOOD }, "burst", "0"),
        (LimitSpec { burst: Some((1 << 62) + 1), ..GOOD }, "burst", "4611686018427387905"),
        (LimitSpec { burst: Some(1), burst_ratio: Some(1.0), ..GOOD }, "burst", "1"),
        (LimitSpec { burst_ratio: Some(f64::NAN), ..GOOD }, "burst_ratio", "NaN"),
        (LimitSpec { burst_ratio: Some(-1.0), ..GOOD }, "burst_ratio", "-1"),
        (LimitSpec { burst_ratio: Some(0.0), ..GOOD }, "burst_ratio", "0"),
        (LimitSpec { burst_ratio: Some(f64::INFINITY), ..GOOD }, "burst_ratio", "inf"),
        (LimitSpec { burst_ratio: Some(0.1), ..GOOD }, "burst_ratio", "0.1"),
        (LimitSpec { burst_ratio: Some(1e300), ..GOOD }, "burst_ratio", &1e300.to_string()),
        (LimitSpec { rate: "zero", burst_ratio: Some(1.0), ..GOOD }, "burst_ratio", "1"),
        (LimitSpec { rate: "unlimited", burst: Some(5), ..GOOD }, "burst", "5"),
        (LimitSpec { rate: "1000000000000/s", burst: Some(65), ..GOOD }, "burst", "65"),
        (LimitSpec { matches: &[("a", "x*")], ..GOOD }, "match", "a = x*"),
        (LimitSpec { guarantee: "strict", ..GOOD }, "guarantee", "strict"),
        (LimitSpec { guarantee: "strictest", ..GOOD }, "guarantee", "strictest"),
        (LimitSpec { local_cap: Some(1), ..GOOD }, "local_cap", "1"),
        (LimitSpec { bootstrap: Some(0), ..GOOD }, "bootstrap", "0"),
        (LimitSpec { on_stale: Some("deny"), ..GOOD }, "on_stale", "deny"),
    ];
    for (spec, field, value) in cases {
        let error = refused(&spec);
        assert_eq!((error.field(), error.value()), (field, value), "{error}");
        assert_eq!(error.limit(), spec.name);
        assert!(!error.reason().is_empty());
    }
}

const EVENTUAL: LimitSpec<'static> =
    LimitSpec { rate: "5000/s", burst: Some(10_000), guarantee: "eventual", ..GOOD };

#[test]
fn a_limit_of_a_fleet_that_makes_no_sense_is_refused_with_the_reason() {
    let free = LimitSpec { rate: "unlimited", burst: None, ..EVENTUAL };
    let closed = LimitSpec { rate: "zero", burst: None, ..EVENTUAL };
    let guarantee = |guarantee| LimitSpec { guarantee, ..GOOD };
    let cap = |units, spec| LimitSpec { local_cap: Some(units), ..spec };
    let bootstrap = |units, spec| LimitSpec { bootstrap: Some(units), ..spec };
    let stale = |word| LimitSpec { on_stale: Some(word), ..EVENTUAL };
    let later = "this version keeps only \"local\", \"eventual\", \"share\" and \"tally\"";
    let one_of = "must be \"local\", \"eventual\", \"share\" or \"tally\"";
    let of_burst = "must be 1 to the burst, which is 10000";
    let unlimited = "has no meaning with rate \"unlimited\"";
    let only_deny = "this version keeps only \"deny\"";
    let no_pace = "a fleet permits at most the burst at once, so that with \"eventual\" a cost \
                   above it never passes: must be \"never\"";
    let of_200 = "must be at most the local cap, which is 200";
    let of_5 = "must be at most the local cap, which is 5";
    let cases = [
        (guarantee("strict"), "guarantee", later),
        (guarantee(""), "guarantee", one_of),
        (cap(0, EVENTUAL), "local_cap", of_burst),
        (cap(10_001, EVENTUAL), "local_cap", of_burst),
        (bootstrap(201, EVENTUAL), "bootstrap", of_200),
        (bootstrap(6, cap(5, EVENTUAL)), "bootstrap", of_5),
        (stale("share"), "on_stale", only_deny),
        (stale("allow"), "on_stale", only_deny),
        (stale("wait"), "on_stale", "must be \"deny\""),
        (LimitSpec { oversize: Oversize::Pace, ..EVENTUAL }, "oversize", no_pace),
        (cap(1, free), "local_cap", unlimited),
        (bootstrap(0, free), "bootstrap", unlimited),
        (cap(1, closed), "local_cap", "must be 1 to the burst, which is 0"),
        (bootstrap(1, closed), "bootstrap", "must be at most the local cap, which is 0"),
    ];
    for (spec, field, reason) in cases {
        let error = refused(&spec);
        assert_eq!((error.field(), error.reason()), (field, reason), "{error}");
    }
}

const SHARE: LimitSpec<'static> = LimitSpec { guarantee: "share", ..GOOD };

#[test]
fn a_limit_that_nodes_divide_and_that_makes_no_sense_is_refused_with_the_reason() {
    let only = "has a meaning only with guarantee = \"share\"";
    let words = "must be \"disabled\", \"local\", \"global\", \"local-shadow-global\" or \
                 \"global-shadow-local\"";
    let never = "a cost above the burst never passes with \"share\": must be \"never\"";
    let stale = "a node that hears nothing enforces its part: must be \"share\"";
    let large = "must be at most 2^40 with \"share\"";
    let mode = |word, spec| LimitSpec { mode: Some(word), ..spec };
    let cap = "has a meaning only with guarantee = \"eventual\"";
    let cases = [
        (mode("global", EVENTUAL), "mode", only),
        (mode("shadow", SHARE), "mode", words),
        (LimitSpec { oversize: Oversize::Pace, ..SHARE }, "oversize", never),
        (LimitSpec { on_stale: Some("deny"), ..SHARE }, "on_stale", stale),
        (LimitSpec { burst: Some((1 << 40) + 1), ..SHARE }, "burst", large),
        (LimitSpec { local_cap: Some(5), ..SHARE }, "local_cap", cap),
        (
            LimitSpec { count: Some("offered"), ..SHARE },
            "count",
            "has a meaning only with guarantee = \"tally\"",
        ),
    ];
    for (spec, field, reason) in cases {
        let error = refused(&spec);
        assert_eq!((error.field(), error.reason()), (field, reason), "{error}");
    }
    for word in tollgate::ShareMode::ALL {
        let limit = Limit::parse(&mode(word.name(), SHARE)).expect("sound");
        assert_eq!(limit.share_mode(), Some(word));
    }
    assert_eq!(Limit::parse(&GOOD).expect("sound").share_mode(), None);
}

const TALLY: LimitSpec<'static> =
    LimitSpec { rate: "1000/10s", burst: None, guarantee: "tally", ..GOOD };

#[test]
fn a_limit_that_is_counted_in_windows_and_makes_no_sense_is_refused_with_the_reason() {
    let of_window = "a window has what its rate says at once: must be 1000";
    let seconds = "the window must be a whole number of seconds, 1 or more";
    let only = "has a meaning only with guarantee = \"tally\"";
    let never = "a cost above the threshold never passes with \"tally\": must be \"never\"";
    let count = |word, spec| LimitSpec { count: Some(word), ..spec };
    let cases = [
        (LimitSpec { burst: Some(999), ..TALLY }, "burst", of_window),
        (LimitSpec { burst_ratio: Some(20.0), ..TALLY }, "burst", of_window),
        (LimitSpec { rate: "10/1500ms", ..TALLY }, "rate", seconds),
        (
            LimitSpec { rate: "2000000000000000/h", ..TALLY },
            "rate",
            "must be at most 2^50 in a window with \"tally\"",
        ),
        (count("all", TALLY), "count", "must be \"admitted\" or \"offered\""),
        (count("admitted", EVENTUAL), "count", only),
        (count("offered", GOOD), "count", only),
        (
            LimitSpec { on_stale: Some("wait"), ..TALLY },
            "on_stale",
            "must be \"allow\", \"share\" or \"deny\"",
        ),
        (LimitSpec { oversize: Oversize::Pace, ..TALLY }, "oversize", never),
        (
            LimitSpec { local_cap: Some(1), ..TALLY },
            "local_cap",
            "has a meaning only with guarantee = \"eventual\"",
        ),
    ];
    for (spec, field, reason) in cases {
        let error = refused(&spec);
        assert_eq!((error.field(), error.reason()), (field, reason), "{error}");
    }
    let acme = OverrideSpec { key: &[("tenant", "acme")], rate: "5/s", ..OverrideSpec::DEFAULT };
    let error = refused(&LimitSpec { key: &["tenant"], overrides: &[acme], ..TALLY });
    assert_eq!(error.reason(), "must be for each 10s, as the limit's own: its windows");
    for rate in ["unlimited", "zero", "5/10s"] {
        let acme = OverrideSpec { rate, ..acme };
        let spec = LimitSpec { key: &["tenant"], overrides: &[acme], ..TALLY };
        assert!(Limit::parse(&spec).is_ok(), "{rate}");
    }
}

#[test]
fn an_override_of_a_fleets_limit_is_held_to_its_own_burst() {
    let key = &[("tenant", "acme")][..];
    let acme = OverrideSpec { key, rate: "100/min", burst: Some(5), ..OverrideSpec::DEFAULT };
    let cases = [
        (EVENTUAL, OverrideSpec { local_cap: Some(6), ..acme }, "override.local_cap", "6"),
        // 2 x 100/60 s x 20 ms is less than a unit, so that the local cap is 1.
        (EVENTUAL, OverrideSpec { bootstrap: Some(2), ..acme }, "override.bootstrap", "2"),
        (GOOD, OverrideSpec { local_cap: Some(1), ..acme }, "override.local_cap", "1"),
        (GOOD, OverrideSpec { bootstrap: Some(0), ..acme }, "override.bootstrap", "0"),
    ];
    for (spec, one, field, value) in cases {
        let error = refused(&LimitSpec { key: &["tenant"], overrides: &[one], ..spec });
        let value = format!("{value} (key {{ tenant = acme }})");
        assert_eq!((error.field(), error.value()), (field, &*value), "{error}");
    }
}

#[test]
fn a_local_cap_is_what_the_rate_brings_in_40_ms_unless_it_is_given() {
    let shares = |spec: &LimitSpec<'_>| {
        let limit = Limit::parse(spec).expect("sound");
        (limit.guarantee().name(), limit.local_cap(), limit.bootstrap())
    };
    assert_eq!(shares(&GOOD), ("local", None, None));
    // 2 x 5,000/s x 20 ms
    assert_eq!(shares(&EVENTUAL), ("eventual", Some(200), Some(0)));
    let given = LimitSpec { local_cap: Some(10_000), bootstrap: Some(10_000), ..EVENTUAL };
    assert_eq!(shares(&given), ("eventual", Some(10_000), Some(10_000)));
    let cap = |rate, burst| shares(&LimitSpec { rate, burst, ..EVENTUAL }).1;
    // 2 x 5,001/s x 20 ms is 200.04, and a part of a unit is one.
    assert_eq!(cap("5001/s", None), Some(201));
    assert_eq!(cap("5000/s", Some(50)), Some(50));
    assert_eq!(cap("1/h", Some(100)), Some(1));
    assert_eq!(cap("zero", Some(100)), Some(1));
    assert_eq!(cap("zero", None), Some(0));
    assert_eq!(cap("unlimited", None), None);
    assert_eq!(
        shares(&LimitSpec { on_stale: Some("deny"), shadow: true, ..EVENTUAL }).1,
        Some(200)
    );
}

#[test]
fn an_error_reads_as_a_sentence() {
    let error = refused(&LimitSpec { burst: Some(0), ..GOOD });
    let expected = "limit \"api\": burst = \"0\": must be at least 1; \
                    write rate = \"zero\" to admit nothing";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn an_override_names_every_part_of_the_key_once() {
    let wrong: [&[(&str, &str)]; 4] = [
        &[],
        &[("tenant", "a")],
        &[("tenant", "a"), ("user", "b"), ("x", "c")],
        &[("user", "b"), ("x", "c")],
    ];
    for key in wrong {
        let one = [OverrideSpec { key, rate: "1/s", ..tollgate::OverrideSpec::DEFAULT }];
        let spec = LimitSpec { key: &["tenant", "user"], overrides: &one, ..GOOD };
        assert_eq!(refused(&spec).field(), "override.key");
    }
    let one = [OverrideSpec {
        key: &[("user", "b"), ("tenant", "a")],
        rate: "0/s",
        ..tollgate::OverrideSpec::DEFAULT
    }];
    let spec = LimitSpec { key: &["tenant", "user"], overrides: &one, ..GOOD };
    assert_eq!(refused(&spec).field(), "override.rate");
    let good = OverrideSpec { rate: "1/s", ..one[0] };
    let twice = [good, good];
    assert_eq!(refused(&LimitSpec { overrides: &twice, ..spec }).field(), "override.key");
    assert_eq!(refused(&LimitSpec { key: &[], overrides: &twice, ..spec }).field(), "override.key");
    assert!(Limit::parse(&LimitSpec { overrides: &twice[..1], ..spec }).is_ok());
}

#[test]
fn defaults_of_the_burst_are_the_documented_ones() {
    let burst = |spec: &LimitSpec<'_>| match Limit::parse(spec).expect("sound").allowance() {
        tollgate::Allowance::Metered { burst, .. } => burst,
        tollgate::Allowance::Unlimited => u64::MAX,
    };
    assert_eq!(burst(&GOOD), 5);
    assert_eq!(burst(&LimitSpec { burst_ratio: Some(2.5), ..GOOD }), 12);
    assert_eq!(burst(&LimitSpec { rate: "100/s", burst_ratio: Some(0.29), ..GOOD }), 29);
    assert_eq!(burst(&LimitSpec { rate: "120/min", burst_ratio: Some(1.5), ..GOOD }), 3);
    assert_eq!(burst(&LimitSpec { rate: "1073741824/s", burst_ratio: Some(1.0), ..GOOD }), 1 << 30);
    // At this rate a granule is 64 units, and the default is rounded down to whole ones.
    assert_eq!(burst(&LimitSpec { rate: "999999999999/s", ..GOOD }), 999_999_999_999 / 64 * 64);
}

#[test]
fn a_set_that_contradicts_itself_leaves_the_old_one_in_force() {
    let (limiter, _) = limiter(&[api("10/h", 10)]);
    assert!(ask(&limiter, "a", 4).is_allowed());
    let revision = limiter.revision();
    let twice = limiter.replace(limits(&[api("1/h", 1), api("2/h", 2)])).expect_err("one name");
    assert_eq!((twice.field(), twice.value()), ("name", "api"));

    let names: Vec<String> = (0..17).map(|n| format!("n{n}")).collect();
    let entries: Vec<[(&str, &str); 1]> = names.iter().map(|name| [(name.as_str(), "x")]).collect();
    let specs: Vec<LimitSpec<'_>> = names
        .iter()
        .zip(&entries)
        .map(|(name, matches)| LimitSpec { name, matches, rate: "1/s", ..LimitSpec::DEFAULT })
        .collect();
    assert_eq!(limiter.replace(limits(&specs)).expect_err("shapes").field(), "match");
    assert!(limiter.replace(limits(&specs[..16])).is_ok());
    limiter.replace(limits(&[api("10/h", 10)])).expect("sound");

    let values: Vec<String> = (0..300).map(|n| n.to_string()).collect();
    let keys: Vec<[(&str, &str); 1]> =
        values.iter().map(|value| [("tenant", value.as_str())]).collect();
    let overrides: Vec<OverrideSpec<'_>> = keys
        .iter()
        .map(|key| OverrideSpec { key, rate: "1/s", ..tollgate::OverrideSpec::DEFAULT })
        .collect();
    let crowded = LimitSpec { overrides: &overrides, ..api("10/h", 10) };
    assert_eq!(limiter.replace(limits(&[crowded])).expect_err("too many").field(), "override");
    assert_eq!(limiter.revision(), revision + 2);
}

#[test]
fn options_out_of_range_are_refused() {
    for keys_max in [0, 100_000_001, u64::MAX] {
        let options = tollgate::Options { keys_max, ..tollgate::Options::default() };
        let error = tollgate::Limiter::new(Vec::new(), options).expect_err("refused");
        let expected = format!("options: keys_max = {keys_max}: must be 1 to 100,000,000");
        assert_eq!(error.to_string(), expected);
    }
}
