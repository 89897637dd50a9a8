//! Every limit of the domain whose match holds applies, and a missing key part is a key of its own.

use tollgate::{Applies, Descriptor, Entry, LimitSpec, Request, Tenant};

use crate::support::{api, ask_of, limiter, with_request};

const BASE: LimitSpec<'static> = LimitSpec { rate: "1/h", ..LimitSpec::DEFAULT };

#[test]
fn a_limit_applies_when_all_its_entries_are_there_with_their_values() {
    let exact = LimitSpec { name: "exact", matches: &[("metric", "read"), ("zone", "*")], ..BASE };
    let (limiter, _) = limiter(&[exact]);
    for apart in
        [&[("metric", "read")][..], &[("metric", "write"), ("zone", "eu")], &[("zone", "eu")], &[]]
    {
        assert_eq!(ask_of(&limiter, apart, 1).limit(), None, "{apart:?}");
    }
    assert!(ask_of(&limiter, &[("zone", "eu"), ("metric", "read")], 1).limit().is_some());
    // No key: the other zone shares the cell.
    assert!(!ask_of(&limiter, &[("metric", "read"), ("zone", "us")], 1).is_allowed());
}

#[test]
fn limits_of_one_shape_are_told_apart_by_value_and_may_share_one() {
    let a = LimitSpec { name: "a", matches: &[("metric", "read")], key: &["tenant"], ..BASE };
    let b = LimitSpec { name: "b", matches: &[("metric", "write")], key: &["tenant"], ..BASE };
    let c = LimitSpec { name: "c", matches: &[("metric", "write")], rate: "2/h", ..BASE };
    let (limiter, _) = limiter(&[a, b, c]);
    let write = [("metric", "write"), ("tenant", "t")];
    assert!(ask_of(&limiter, &write, 1).is_allowed());
    assert!(!ask_of(&limiter, &write, 1).is_allowed());
    assert!(ask_of(&limiter, &[("metric", "write"), ("tenant", "u")], 1).is_allowed());
    let third = ask_of(&limiter, &[("metric", "write"), ("tenant", "v")], 1);
    assert_eq!(third.limit(), Some(limiter.limits()[2].id));
}

#[test]
fn a_missing_key_part_is_limited_as_a_key_of_its_own() {
    let (limiter, _) = limiter(&[api("1/h", 1)]);
    let nobody = Tenant::Undeclared.entry();
    assert_eq!(nobody, None);
    assert!(ask_of(&limiter, &[], 1).is_allowed());
    assert!(!ask_of(&limiter, &[], 1).is_allowed());
    for name in ["", "undeclared", "Undeclared", "*"] {
        assert!(ask_of(&limiter, &[("tenant", name)], 1).is_allowed(), "{name:?}");
    }
}

#[test]
fn an_override_is_for_its_key_alone() {
    let overrides = [
        tollgate::OverrideSpec {
            key: &[("tenant", "acme")],
            rate: "5/h",
            ..tollgate::OverrideSpec::DEFAULT
        },
        tollgate::OverrideSpec {
            key: &[("tenant", "free")],
            rate: "unlimited",
            ..tollgate::OverrideSpec::DEFAULT
        },
        tollgate::OverrideSpec {
            key: &[("tenant", "banned")],
            rate: "zero",
            ..tollgate::OverrideSpec::DEFAULT
        },
    ];
    let (limiter, _) = limiter(&[LimitSpec { overrides: &overrides, ..api("1/h", 1) }]);
    let passed = |tenant| crate::support::passed(&limiter, tenant, 20);
    assert_eq!([passed("acme"), passed("free"), passed("banned"), passed("else")], [5, 20, 0, 1]);
}

#[test]
fn an_unlimited_limit_still_keeps_its_overrides() {
    let overrides = [tollgate::OverrideSpec {
        key: &[("tenant", "noisy")],
        rate: "3/h",
        ..tollgate::OverrideSpec::DEFAULT
    }];
    let spec = LimitSpec { burst: None, overrides: &overrides, ..api("unlimited", 0) };
    let (limiter, _) = limiter(&[spec]);
    assert_eq!(crate::support::passed(&limiter, "noisy", 20), 3);
    assert_eq!(crate::support::passed(&limiter, "quiet", 20), 20);
}

#[test]
fn domains_do_not_see_each_other() {
    let there = LimitSpec { name: "api", domain: "there", ..BASE };
    let (limiter, _) = limiter(&[there]);
    let entries = [Entry::new("a", "b")];
    let descriptors = [Descriptor::new(&entries).expect("sound")];
    let request = Request::new(&descriptors);
    assert_eq!(limiter.check(&request).limit(), None);
    assert!(limiter.check(&request.in_domain("there")).limit().is_some());
    assert_eq!(limiter.check(&request.in_domain("nowhere")).limit(), None);
}

#[test]
fn explain_says_of_every_limit_whether_it_applies_and_why_not() {
    let read = LimitSpec { name: "read", matches: &[("metric", "read")], ..api("5/s", 5) };
    let zone = LimitSpec { name: "zone", matches: &[("zone", "*")], ..BASE };
    let write = LimitSpec { name: "write", matches: &[("metric", "write")], ..BASE };
    let (limiter, _) = limiter(&[read, zone, write]);
    let ask = [("metric", "read"), ("tenant", "acme")];
    let explanation = with_request(&ask, 2, |request| limiter.explain(request));
    assert!(explanation.decision.is_allowed());
    let names: Vec<_> = explanation.limits.iter().map(|one| one.limit.as_str()).collect();
    assert_eq!(names, ["read", "zone", "write"]);
    let Applies::Yes { key, alone } = &explanation.limits[0].applies else { panic!("applies") };
    assert_eq!(key, &[("tenant".to_owned(), Some(b"acme".to_vec()))]);
    assert_eq!(alone.remaining(), Some(5));
    let missing = Applies::MissingEntry { entry: "zone".into() };
    assert_eq!(explanation.limits[1].applies, missing);
    let other = Applies::OtherValue { entry: "metric".into(), wanted: "write".into() };
    assert_eq!(explanation.limits[2].applies, other);
    assert_eq!(limiter.limits()[0].counts, tollgate::Counts::default());
}

#[test]
fn a_handle_and_a_keyed_limit_decide_as_the_request_does() {
    let (limiter, _) = limiter(&[api("9/h", 9)]);
    let entries = [Entry::new("tenant", "acme")];
    let mut handle = limiter.handle("default", &Descriptor::new(&entries).expect("sound"));
    let mut keyed = limiter.keyed("default", "api").expect("in force");
    for _ in 0..3 {
        assert!(handle.check(1).is_allowed());
        assert!(keyed.check(&["acme".into()], 1).expect("one part").is_allowed());
        assert!(ask_of(&limiter, &[("tenant", "acme")], 1).is_allowed());
    }
    assert!(!handle.check(1).is_allowed());
    assert!(!keyed.check(&["acme".into()], 1).expect("one part").is_allowed());
    handle.refund(2);
    assert_eq!(ask_of(&limiter, &[("tenant", "acme")], 1).remaining(), Some(1));
    let error = tollgate::RequestError::KeyParts { given: 0, expected: 1 };
    assert_eq!(keyed.check(&[], 1), Err(error));
    assert!(limiter.keyed("default", "nothing").is_none());
}
