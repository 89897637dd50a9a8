//! What Envoy sees, with time in the test's hand.

use std::time::Duration;

use prost::Message;
use tollgate::{ClockHand, Limit, LimitSpec, StepSpec};

use super::call::Code as FaultCode;
use super::proto::envoy::config::core::v3::HeaderValue;
use super::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use super::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use super::proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use super::proto::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use super::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use super::{call, rls};
use crate::app::{App, HeaderStyle};

/// Paths of domain `edge` as `name=value/name`, each with a rate; then what else it says.
fn paths(written: &[(&str, &str, &str)]) -> (App, ClockHand) {
    let limit = |(index, (path, rate, more)): (usize, &(&str, &str, &str))| {
        let step = |step: &'static str| {
            let (name, value) = step.split_once('=').unwrap_or((step, ""));
            StepSpec { name, value, shared: more.contains("shared") && value.contains('*') }
        };
        let path: &'static str = path.to_string().leak();
        let steps: Vec<StepSpec<'_>> = path.split('/').map(step).collect();
        let name = format!("l{index}");
        let replaces: Vec<&str> = more.split(' ').filter(|word| word.starts_with('l')).collect();
        Limit::parse(&LimitSpec {
            name: &name,
            domain: "edge",
            path: &steps,
            rate,
            group: &name,
            replaces: &replaces,
            shadow: more.contains("shadow"),
            quota: more.contains("quota"),
            ..LimitSpec::DEFAULT
        })
        .expect("sound")
    };
    App::for_tests(written.iter().enumerate().map(limit).collect())
}

/// A descriptor of `name=value` entries.
pub(super) fn descriptor(entries: &str) -> RateLimitDescriptor {
    let entry = |entry: &str| {
        let (key, value) = entry.split_once('=').expect("a value");
        Entry { key: key.into(), value: value.into() }
    };
    let entries = entries.split(',').filter(|entry| !entry.is_empty()).map(entry).collect();
    RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }
}

pub(super) fn with_hits(entries: &str, hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits), ..descriptor(entries) }
}

pub(super) fn giving_back(entries: &str, hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { is_negative_hits: true, ..with_hits(entries, hits) }
}

pub(super) fn bringing(entries: &str, requests_per_unit: u32, unit: i32) -> RateLimitDescriptor {
    let limit = Some(RateLimitOverride { requests_per_unit, unit });
    RateLimitDescriptor { limit, ..descriptor(entries) }
}

pub(super) fn request(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: "edge".into(), descriptors, hits_addend: 0 }
}

/// What a request that is sent is answered with.
fn decide(request: &RateLimitRequest, app: &App) -> Result<RateLimitResponse, call::Fault> {
    let answer = rls::answer(&request.encode_to_vec(), app)?;
    let message = call::unframe(&answer).expect("one message");
    Ok(RateLimitResponse::decode(message).expect("a response"))
}

pub(super) fn ask(app: &App, descriptors: Vec<RateLimitDescriptor>) -> RateLimitResponse {
    decide(&request(descriptors), app).expect("sound")
}

/// The overall answer, and of each descriptor its own and what it has left.
fn short(app: &App, descriptors: Vec<RateLimitDescriptor>) -> (bool, Vec<(bool, Option<u32>)>) {
    let RateLimitResponse { overall_code, statuses, .. } = ask(app, descriptors);
    let is_ok = |code: i32| match Code::try_from(code) {
        Ok(Code::Ok) => true,
        Ok(Code::OverLimit) => false,
        code => panic!("{code:?}"),
    };
    let status = |status: DescriptorStatus| {
        (is_ok(status.code), status.current_limit.map(|_| status.limit_remaining))
    };
    (is_ok(overall_code), statuses.into_iter().map(status).collect())
}

#[test]
fn what_a_fleet_permits_nothing_of_is_over_its_limit() {
    let guarantee = "eventual";
    let spec = LimitSpec {
        name: "api",
        domain: "edge",
        key: &["tenant"],
        rate: "10/s",
        guarantee,
        ..LimitSpec::DEFAULT
    };
    let app = App::cut_off(vec![Limit::parse(&spec).expect("sound")]);
    // No error, which a proxy may take for a pass.
    assert_eq!(short(&app, vec![descriptor("tenant=acme")]), (false, vec![(false, Some(0))]));
}

/// How often a descriptor passes at one instant.
fn passes(app: &App, entries: &str) -> Option<usize> {
    let asked = || short(app, vec![descriptor(entries)]);
    let (_, statuses) = short(app, vec![with_hits(entries, 0)]);
    statuses[0].1?;
    Some((0..1_000).take_while(|_| asked().0).count())
}

fn refused(app: &App, request: &RateLimitRequest) -> (FaultCode, String) {
    let fault = decide(request, app).expect_err("refused");
    (fault.code, fault.message)
}

#[test]
fn a_status_says_what_envoy_makes_header_fields_of() {
    let (app, hand) = paths(&[("tenant=acme", "3/min", "")]);
    let expected = |code: Code, left, seconds| {
        let unit = Unit::Minute as i32;
        let limit = RateLimit { name: "l0".into(), requests_per_unit: 3, unit };
        let reset = prost_types::Duration { seconds, nanos: 0 };
        let status = DescriptorStatus {
            code: code as i32,
            current_limit: Some(limit),
            limit_remaining: left,
            duration_until_reset: Some(reset),
        };
        RateLimitResponse {
            overall_code: code as i32,
            statuses: vec![status],
            response_headers_to_add: Vec::new(),
        }
    };
    let once = || ask(&app, vec![descriptor("tenant=acme")]);
    assert_eq!(once(), expected(Code::Ok, 2, 20));
    assert_eq!(once(), expected(Code::Ok, 1, 40));
    assert_eq!(once(), expected(Code::Ok, 0, 60));
    hand.advance(Duration::from_millis(1));
    assert_eq!(once(), expected(Code::OverLimit, 0, 60));
    hand.advance(Duration::from_secs(20));
    assert_eq!(once(), expected(Code::Ok, 0, 60));
}

#[test]
fn limits_are_said_in_the_unit_in_which_their_burst_comes_back_or_in_another() {
    for (rate, burst, expected) in [
        ("5/s", None, (5, Unit::Second)),
        ("100/60s", None, (100, Unit::Minute)),
        ("7/604800s", None, (7, Unit::Week)),
        ("7/30d", None, (7, Unit::Month)),
        ("7/365d", None, (7, Unit::Year)),
        ("5000/s", Some(10_000), (5_000, Unit::Second)),
        ("3/10s", None, (18, Unit::Minute)),
        ("1/90s", Some(5), (40, Unit::Hour)),
        ("8000000000/s", None, (u32::MAX, Unit::Second)),
        ("zero", Some(0), (0, Unit::Year)),
    ] {
        let spec = LimitSpec { name: "api", domain: "edge", rate, burst, ..LimitSpec::DEFAULT };
        let (app, _) = App::for_tests(vec![Limit::parse(&spec).expect("sound")]);
        let response = ask(&app, vec![with_hits("tenant=acme", 0)]);
        let limit = response.statuses[0].current_limit.clone().expect("a limit");
        let (units, unit) = expected;
        assert_eq!((limit.requests_per_unit, limit.unit), (units, unit as i32), "{rate}");
        assert_eq!(limit.name, "api");
    }
}

/// C28.
#[test]
fn hits_may_be_absent_nothing_or_given_back() {
    let (app, _) = paths(&[("user", "10/60s", "")]);
    let left = |descriptors| short(&app, vec![descriptors]).1[0];
    assert_eq!(left(descriptor("user=a")), (true, Some(9)));
    let zero = RateLimitRequest { hits_addend: 0, ..request(vec![descriptor("user=b")]) };
    assert_eq!(decide(&zero, &app).expect("sound").statuses[0].limit_remaining, 9);
    let keys = app.service.keys_used();
    assert_eq!(left(with_hits("user=c", 0)), (true, Some(10)));
    assert_eq!(app.service.keys_used(), keys);
    assert_eq!(left(with_hits("user=d", 3)), (true, Some(7)));
    assert_eq!(left(giving_back("user=d", 100)), (true, Some(10)));
    assert_eq!(left(giving_back("user=e", 1)), (true, Some(10)));
    assert_eq!(passes(&app, "user=e"), Some(10));
    // The request's own number is each descriptor's, unless that has one.
    let many = RateLimitRequest {
        hits_addend: 4,
        ..request(vec![descriptor("user=f"), with_hits("user=g", 2), with_hits("user=h", 0)])
    };
    let statuses = decide(&many, &app).expect("sound").statuses;
    let left: Vec<u32> = statuses.iter().map(|status| status.limit_remaining).collect();
    assert_eq!(left, [6, 8, 10]);
}

/// C30.
#[test]
fn the_most_specific_branch_is_taken_and_never_left() {
    let (app, _) = paths(&[
        ("k=v", "1/min", ""),
        ("k=v/x", "3/min", ""),
        ("k=v*", "10/min", ""),
        ("k", "100/min", ""),
        ("k/x", "50/min", ""),
    ]);
    for (entries, expected) in [
        ("k=v", Some(1)),
        ("k=vx", Some(10)),
        ("k=vy", Some(10)),
        ("k=z", Some(100)),
        ("k=v,x=1", Some(3)),
        ("k=vx,x=1", None),
        ("k=z,x=1", Some(50)),
        ("k=z,x=1,y=2", None),
        ("x=1", None),
    ] {
        assert_eq!(passes(&app, entries), expected, "{entries}");
    }
    let (code, message) = refused(&app, &request(vec![descriptor("")]));
    assert_eq!(
        (code, &*message),
        (FaultCode::InvalidArgument, "descriptors[0]: entries: must not be empty")
    );
    let elsewhere = RateLimitRequest { domain: "e".into(), ..request(vec![descriptor("k=v")]) };
    let response = decide(&elsewhere, &app).expect("sound");
    let nothing = DescriptorStatus { code: Code::Ok as i32, ..DescriptorStatus::default() };
    assert_eq!((response.overall_code, response.statuses), (Code::Ok as i32, vec![nothing]));
}

#[test]
fn names_may_come_again_where_order_counts() {
    let (app, _) = paths(&[("generic=a/generic=b", "2/min", ""), ("generic/generic", "5/min", "")]);
    assert_eq!(passes(&app, "generic=a,generic=b"), Some(2));
    // The first branch has no other second step, and is not left.
    assert_eq!(passes(&app, "generic=a,generic=c"), None);
    assert_eq!(passes(&app, "generic=b,generic=a"), Some(5));
    assert_eq!(passes(&app, "generic=b,generic=b"), Some(5));
}

#[test]
fn a_pattern_has_a_key_for_each_text_unless_it_is_shared() {
    let (app, _) = paths(&[
        ("path=/api/*", "3/min", ""),
        ("host=*.a.com", "3/min", "shared"),
        ("h*=x", "4/min", ""),
    ]);
    // A slash separates steps here.
    assert_eq!(passes(&app, "host=1.a.com"), Some(3));
    assert_eq!(passes(&app, "host=2.a.com"), Some(0));
    for entries in ["ha=x", "hb=x"] {
        assert_eq!(passes(&app, entries), Some(4));
    }
}

/// C31 (a) to (c).
#[test]
fn shadows_and_unlimited_limits_allow_and_say_so() {
    let (app, _) = paths(&[
        ("shadow", "1/min", "shadow"),
        ("free", "unlimited", ""),
        ("hard", "2/min", ""),
        ("blank=x", "none", ""),
        ("blank", "1/min", ""),
    ]);
    let both = || short(&app, vec![descriptor("shadow=a"), descriptor("hard=a")]);
    assert_eq!(both(), (true, vec![(true, Some(0)), (true, Some(1))]));
    assert_eq!(both(), (true, vec![(true, Some(0)), (true, Some(0))]));
    assert_eq!(both(), (false, vec![(true, Some(0)), (false, Some(0))]));
    let mut response = ask(&app, vec![descriptor("free=a"), descriptor("hard=a")]);
    assert_eq!(response.overall_code, Code::OverLimit as i32);
    response.statuses.truncate(1);
    let unlimited = DescriptorStatus {
        code: Code::Ok as i32,
        limit_remaining: u32::MAX,
        ..DescriptorStatus::default()
    };
    assert_eq!(response.statuses, [unlimited]);
    let status = ask(&app, vec![descriptor("blank=x")]).statuses[0].clone();
    assert_eq!(status, DescriptorStatus { code: Code::Ok as i32, ..DescriptorStatus::default() });
    assert_eq!(passes(&app, "blank=y"), Some(1));
}

/// C31 (d).
#[test]
fn a_limit_that_is_brought_is_enforced_whatever_the_files_say() {
    let (app, _) = paths(&[("user", "100/min", "shadow"), ("other", "unlimited", "")]);
    for entries in ["user=a", "other=a", "unknown=a"] {
        let asked = || short(&app, vec![bringing(entries, 3, 2)]);
        for left in [2, 1, 0] {
            assert_eq!(asked(), (true, vec![(true, Some(left))]), "{entries}");
        }
        assert_eq!(asked(), (false, vec![(false, Some(0))]), "{entries}");
    }
    let status = ask(&app, vec![bringing("user=a", 3, 2)]).statuses[0].clone();
    let limit = RateLimit { name: String::new(), requests_per_unit: 3, unit: Unit::Minute as i32 };
    assert_eq!(status.current_limit, Some(limit));
    let elsewhere =
        RateLimitRequest { domain: "unknown".into(), ..request(vec![bringing("user=a", 0, 1)]) };
    let response = decide(&elsewhere, &app).expect("sound");
    assert_eq!(response.overall_code, Code::Ok as i32);
    assert_eq!(short(&app, vec![bringing("user=z", 0, 1)]), (false, vec![(false, Some(0))]));
}

#[test]
fn what_a_request_brings_and_what_is_in_force_pass_together_or_spend_nothing() {
    let (app, hand) = paths(&[("user", "2/min", "")]);
    let both = |user: &str| short(&app, vec![bringing("x=1", 5, 2), descriptor(user)]);
    assert_eq!(both("user=a"), (true, vec![(true, Some(4)), (true, Some(1))]));
    assert_eq!(both("user=a"), (true, vec![(true, Some(3)), (true, Some(0))]));
    // The limit in force denies: what was brought keeps its three.
    assert_eq!(both("user=a"), (false, vec![(true, Some(3)), (false, Some(0))]));
    hand.advance(Duration::from_millis(1));
    assert_eq!(both("user=a"), (false, vec![(true, Some(3)), (false, Some(0))]));
    // What was brought denies: the limit in force keeps its two.
    let three = short(
        &app,
        vec![
            RateLimitDescriptor { hits_addend: Some(4), ..bringing("x=1", 5, 2) },
            descriptor("user=b"),
        ],
    );
    assert_eq!(three, (false, vec![(false, Some(0)), (true, Some(2))]));
    let counts = app.service.brought_counts();
    assert_eq!((counts.allowed, counts.over_limit), (2, 1));
}

#[test]
fn one_key_that_is_brought_twice_pays_twice() {
    let (app, _) = paths(&[("user", "2/min", "")]);
    let twice = || short(&app, vec![bringing("x=1", 3, 2), bringing("x=1", 3, 2)]);
    assert_eq!(twice(), (true, vec![(true, Some(2)), (true, Some(1))]));
    assert_eq!(twice(), (false, vec![(true, Some(1)), (false, Some(0))]));
    assert_eq!(short(&app, vec![bringing("x=1", 3, 2)]), (true, vec![(true, Some(0))]));
    // One descriptor twice is one key at twice the cost.
    let twice = || short(&app, vec![descriptor("user=a"), descriptor("user=a")]);
    assert_eq!(twice(), (true, vec![(true, Some(0)), (true, Some(0))]));
    assert!(!twice().0);
}

#[test]
fn hits_are_given_back_only_if_all_others_pass() {
    let (app, _) = paths(&[("user", "4/min", ""), ("tenant", "1/min", "")]);
    assert!(short(&app, vec![with_hits("user=a", 4)]).0);
    let both = || short(&app, vec![giving_back("user=a", 1), descriptor("tenant=t")]);
    assert_eq!(both(), (true, vec![(true, Some(1)), (true, Some(0))]));
    assert_eq!(both(), (false, vec![(true, Some(1)), (false, Some(0))]));
    let brought = |back: bool, hits| RateLimitDescriptor {
        is_negative_hits: back,
        hits_addend: Some(hits),
        ..bringing("x=1", 4, 2)
    };
    assert_eq!(short(&app, vec![brought(false, 3)]).1, [(true, Some(1))]);
    assert_eq!(short(&app, vec![brought(true, 2)]).1, [(true, Some(3))]);
    assert_eq!(short(&app, vec![brought(true, 200)]).1, [(true, Some(4))]);
}

#[test]
fn a_limit_that_another_one_replaces_is_not_charged() {
    let (app, _) =
        paths(&[("user", "1/min", ""), ("vip", "5/min", "l0"), ("free", "unlimited", "l0")]);
    for entries in ["vip=a", "free=a"] {
        for _ in 0..3 {
            let (ok, statuses) = short(&app, vec![descriptor("user=a"), descriptor(entries)]);
            assert_eq!((ok, statuses[0]), (true, (true, None)), "{entries}");
        }
    }
    assert_eq!(passes(&app, "user=a"), Some(1));
}

#[test]
fn of_quotas_one_is_enough() {
    let (app, _) =
        paths(&[("small", "1/min", "quota"), ("large", "2/min", "quota"), ("hard", "9/min", "")]);
    let all =
        || short(&app, vec![descriptor("small=a"), descriptor("large=a"), descriptor("hard=a")]);
    assert_eq!(all(), (true, vec![(true, Some(0)), (true, Some(1)), (true, Some(8))]));
    assert_eq!(all(), (true, vec![(false, Some(0)), (true, Some(0)), (true, Some(7))]));
    assert_eq!(all(), (false, vec![(false, Some(0)), (false, Some(0)), (true, Some(7))]));
    // Alone it is a limit like any other.
    assert!(!short(&app, vec![descriptor("small=a")]).0);
}

#[test]
fn what_is_wrong_is_named_and_spends_nothing() {
    let (app, _) = paths(&[("user", "1/min", "")]);
    let good = || descriptor("user=a");
    let nameless = RateLimitDescriptor {
        entries: vec![Entry { key: String::new(), value: "x".into() }],
        ..RateLimitDescriptor::default()
    };
    let long = vec!["x=1"; 17].join(",");
    for (descriptors, expected) in [
        (vec![], "descriptors: must not be empty"),
        (vec![good(); 1_001], "descriptors: more than 1000"),
        (vec![good(), nameless], "descriptors[1]: entry 0 has no name"),
        (vec![good(), descriptor(&long)], "descriptors[1]: a descriptor has at most 16 entries"),
        (vec![good(), bringing("x=1", 5, 0)], "descriptors[1]: limit.unit: 0 is none of SECOND"),
        (vec![good(), bringing("x=1", 5, 7)], "descriptors[1]: limit.unit: 7 is none of SECOND"),
    ] {
        let (code, message) = refused(&app, &request(descriptors));
        assert_eq!(code, FaultCode::InvalidArgument);
        assert!(message.starts_with(expected), "{message}");
    }
    let nowhere = RateLimitRequest { domain: String::new(), ..request(vec![good()]) };
    assert_eq!(refused(&app, &nowhere).1, "domain: must not be empty");
    // An empty value is a value.
    assert!(short(&app, vec![descriptor("user=")]).0);
    assert_eq!(passes(&app, "user=a"), Some(1));
}

#[test]
fn a_denied_descriptor_is_found_among_the_offenders() {
    let (app, _) = paths(&[("user", "1/min", ""), ("tenant/route=r*", "1/min", "")]);
    for _ in 0..3 {
        short(&app, vec![descriptor("user=a"), descriptor("tenant=t,route=r1")]);
        short(&app, vec![descriptor("user=b"), descriptor("tenant=t,route=r1")]);
        short(&app, vec![bringing("x=1", 0, 1)]);
    }
    let shown = |offender: crate::service::offenders::Offender| {
        let part = |(name, value): (String, Option<Vec<u8>>)| {
            format!("{name}={}", String::from_utf8(value.unwrap_or_default()).expect("text"))
        };
        let parts: Vec<String> = offender.parts.into_iter().map(part).collect();
        format!("{} {} {}", offender.limit, parts.join(","), offender.count)
    };
    let worst: Vec<String> = app.service.worst(5).into_iter().map(shown).collect();
    assert!(worst.contains(&"l1 tenant=t,route=r1 3".into()), "{worst:?}");
    assert!(worst.contains(&"brought domain=edge,x=1 3".into()), "{worst:?}");
}

#[test]
fn header_fields_are_added_if_that_is_wanted() {
    let (mut app, _) = paths(&[("user", "2/min", "")]);
    assert!(ask(&app, vec![descriptor("user=a")]).response_headers_to_add.is_empty());
    app.grpc_headers = HeaderStyle::Draft03;
    let mut headers = ask(&app, vec![descriptor("user=a")]).response_headers_to_add;
    headers.sort_by(|a, b| a.key.cmp(&b.key));
    let header = |key: &str, value: &str| HeaderValue { key: key.into(), value: value.into() };
    let expected = [
        header("ratelimit-limit", "2, 2;w=60"),
        header("ratelimit-remaining", "0"),
        header("ratelimit-reset", "60"),
    ];
    assert_eq!(headers, expected);
}

#[test]
fn what_never_passes_is_not_said_to_pass_at_once() {
    let (app, _) = paths(&[("user", "5/min", "")]);
    let status = ask(&app, vec![with_hits("user=a", 6)]).statuses[0].clone();
    let reset = status.duration_until_reset.map(|reset| reset.seconds);
    assert_eq!((status.code, status.limit_remaining, reset), (Code::OverLimit as i32, 0, Some(60)));
}

#[test]
fn giving_back_is_no_decision() {
    let (app, _) = paths(&[("user", "5/min", "")]);
    short(&app, vec![giving_back("user=a", 1)]);
    let decisions = &app.service.metrics().face(crate::face::Face::Grpc).decisions;
    assert_eq!(decisions[0].load(std::sync::atomic::Ordering::Relaxed), 0);
}
