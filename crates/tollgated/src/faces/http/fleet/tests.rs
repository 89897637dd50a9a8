//! What a fleet answers about itself over HTTP, asked without a socket.

use std::sync::Arc;

use http_body_util::BodyExt;
use tollgate::coordinator::Revision;
use tollgate::{KeyId, LimitUnits, Member, OwnedKey, Rate, RingEpoch};
use tollgate_tokio::{Counted, KeyPage};

use super::*;
use crate::overview::Told;

/// A member of a fleet of two with one limit, and what the fleet tells.
fn member(told: &Told) -> App {
    let app = App::of_fleet(
        r#"{"name":"api","key":["tenant"],"rate":"1000/s","burst":100,"guarantee":"eventual"}"#,
    );
    App { overview: Some(Arc::new(told.clone())), ..app }
}

fn told() -> Told {
    let node = |number| NodeId::new(number);
    let address = |number: u32| (node(number), format!("10.0.0.{number}:7800"));
    let status = MemberStatus {
        node: node(2),
        start: 7,
        is_member: true,
        ring_epoch: RingEpoch::new(12),
        revision: Revision::new(3),
        members: vec![address(1), address(2)],
        ring: vec![Member { node: node(1), weight: 3 }, Member { node: node(2), weight: 1 }],
        replicas: vec![address(1)],
        ..MemberStatus::default()
    };
    Told { status, ..Told::default() }
}

fn ask(app: &App, method: &str, path: &str) -> (u16, Value) {
    let request = Request::builder().method(method).uri(path).body(()).expect("a request");
    let asked = Asked::of(request.uri().path()).expect("a path of a fleet");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let answered = answer(asked, &request, app).await;
        let response = answered.unwrap_or_else(Problem::into_response);
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, serde_json::from_slice(&body).expect("JSON"))
    })
}

fn get(app: &App, path: &str) -> Value {
    let (status, body) = ask(app, "GET", path);
    assert_eq!(status, 200, "{path}: {body}");
    body
}

fn refused(app: &App, path: &str) -> (u16, String) {
    let (status, body) = ask(app, "GET", path);
    assert_eq!(body["status"], status);
    (status, body["detail"].as_str().expect("a detail").to_owned())
}

#[test]
fn a_daemon_that_is_alone_has_no_fleet() {
    let (app, _) = App::for_tests(Vec::new());
    for (path, _) in PATHS {
        let (status, detail) = refused(&app, path);
        assert!(status == 409 && detail.starts_with("it is no member of a fleet"), "{detail}");
    }
}

#[test]
fn a_fleet_is_read_and_nothing_else() {
    let app = member(&told());
    for (path, _) in PATHS {
        assert_eq!(ask(&app, "POST", path).0, 405);
    }
    assert_eq!(refused(&app, "/v1/fleet?x=1").0, 400);
}

#[test]
fn the_members_are_listed_with_their_shares_and_who_leads() {
    let mut told = told();
    told.counted.missing = vec![NodeId::new(1)];
    let body = get(&member(&told), "/v1/fleet");
    assert_eq!((&body["node"], &body["ring_epoch"]), (&json!(2), &json!(12)));
    let expected = json!([
        {
            "node": 1, "address": "10.0.0.1:7800", "is_this": false, "in_ring": true, "weight": 3,
            "share_of_keys": 0.75, "is_replica": true, "is_leader": true, "has_answered": false
        },
        {
            "node": 2, "address": "10.0.0.2:7800", "is_this": true, "in_ring": true, "weight": 1,
            "share_of_keys": 0.25, "is_replica": false, "is_leader": false, "has_answered": true
        }
    ]);
    assert_eq!(body["members"], expected);
    assert_eq!((&body["is_complete"], &body["missing"]), (&json!(false), &json!([1])));
}

#[test]
fn what_is_promised_stands_beside_what_was_observed() {
    let mut told = told();
    let quiet = get(&member(&told), "/v1/fleet");
    let limit = &quiet["limits"][0];
    assert_eq!(
        limit["promised"]["formula"],
        "admitted(s, t] <= 100 + 1000/s * (t - s), fleet-wide"
    );
    // b = 2 · 1,000/s · 20 ms
    assert_eq!(limit["promised"]["beyond_when_owners_overlap"], "2 * max(40, 1) + 1000/s * 2.1 s");
    assert_eq!(
        (&limit["promised"]["envelope_possible"], &limit["observed"]["envelope"]),
        (&json!(2_180), &json!(0))
    );
    let units = LimitUnits { units: 5_000, breaches: 2, excess_max: 17, excess: 3, cost_max: 60 };
    told.counted.all = Counted {
        limits: BTreeMap::from([(FleetLimitId(4), units)]),
        overlaps: 1,
        overlapped: Duration::from_millis(100),
        ..Counted::default()
    };
    let busy = get(&member(&told), "/v1/fleet");
    let expected = json!({
        // 2 · 60 + 1,000/s · (100 ms + 400 ms)
        "applied_units": 5_000, "excess": 3, "excess_max": 17, "breaches": 2, "envelope": 620
    });
    assert_eq!(busy["limits"][0]["observed"], expected);
    assert_eq!(busy["observed"]["longest_overlap_seconds"], 0.1);
}

fn row(owned: Option<OwnedKey>) -> KeyRow {
    KeyRow {
        parts: Some(Box::new([Some(b"acme".as_slice().into())])),
        admitted_per_second: 12.5,
        denied_per_second: 0.25,
        reporters: 2,
        age: Some(Duration::from_millis(8)),
        ..KeyRow::of(KeyId::from_bits(0xab, 0xcd), FleetLimitId(4), Some(NodeId::new(1)), owned)
    }
}

#[test]
fn keys_say_whether_they_are_exact_and_how_old_they_are() {
    let owned = OwnedKey {
        key: KeyId::from_bits(0xab, 0xcd),
        limit: FleetLimitId(4),
        generation: 1,
        rate: Rate::parse("1000/s").expect("a rate"),
        burst: 100,
        level: 60,
        outstanding: 10,
        remaining: 40,
        excess: 0,
        reporters: 2,
        reporter: None,
        reported_ago: None,
        admitted_per_second: 12.5,
        denied_per_second: 0.25,
        is_in_charge: true,
    };
    let mut told = told();
    told.page = KeyPage {
        rows: vec![row(Some(owned)), row(None)],
        total: 12,
        omitted: 10,
        missing: vec![NodeId::new(1)],
        oldest: Some(Duration::from_millis(8)),
    };
    let app = member(&told);
    let body = get(&app, "/v1/fleet/keys?limit=api&sort=denied&page=3&page_size=2");
    let asked = told.asked.lock().expect("no test panicked in it").expect("it was asked");
    let (limit, sort) = (Some(FleetLimitId(4)), KeySort::Denied);
    assert_eq!(asked, KeyQuery { limit, sort, page: 3, page_size: 2 });
    let expected = json!({
        "id": "00000000000000ab000000cd", "limit": "api", "domain": "default",
        "key": { "tenant": "acme" }, "owner": 1, "source": "exact", "rate": "1000/s", "burst": 100,
        "level": 60, "remaining": 40, "outstanding": 10, "excess": 0, "reporters": 2,
        "admitted_per_second": 12.5, "denied_per_second": 0.25, "age_seconds": 0.008
    });
    assert_eq!(body["keys"][0], expected);
    assert_eq!(
        (&body["keys"][1]["source"], &body["keys"][1]["level"]),
        (&json!("approximate"), &Value::Null)
    );
    assert_eq!(
        (&body["total"], &body["omitted"], &body["missing"], &body["is_exact"]),
        (&json!(12), &json!(10), &json!([1]), &json!(false))
    );
}

#[test]
fn what_no_page_of_keys_can_be_is_refused() {
    let app = member(&told());
    for (query, status, why) in [
        ("limit=other", 404, "no limit \"other\""),
        ("limit=api&domain=other", 404, "no limit \"api\""),
        ("domain=default", 400, "domain: of which limit?"),
        ("sort=name", 400, "sort: must be one of level"),
        ("page_size=0", 400, "page_size: must be a whole number from 1 to 1000"),
        ("page_size=1001", 400, "page_size"),
        ("page=40", 400, "page: must be a whole number from 0 to 39"),
        ("tenant=acme", 400, "tenant: is no part of the query"),
    ] {
        let (found, detail) = refused(&app, &format!("/v1/fleet/keys?{query}"));
        assert!(found == status && detail.starts_with(why), "{query}: {found} {detail}");
    }
    assert_eq!(get(&app, "/v1/fleet/keys")["keys"], json!([]));
}

#[test]
fn who_owns_a_key_is_told_with_its_address() {
    let app = member(&told());
    // The owner that this fleet names has as many letters as the tenant.
    let body = get(&app, "/v1/fleet/owner?limit=api&tenant=%C3%A9");
    let expected = json!({
        "limit": "api", "domain": "default", "key": { "tenant": "é" }, "owner": 2,
        "address": "10.0.0.2:7800", "ring_epoch": 12
    });
    assert_eq!(body, expected);
    assert_eq!(get(&app, "/v1/fleet/owner?limit=api")["key"], json!({ "tenant": null }));
    for (query, status) in [("tenant=a", 400), ("limit=x&tenant=a", 404), ("limit=api&user=a", 400)]
    {
        assert_eq!(refused(&app, &format!("/v1/fleet/owner?{query}")).0, status, "{query}");
    }
    let divided = r#"{"name":"api","key":["tenant"],"rate":"1000/s","guarantee":"share"}"#;
    let app = App { overview: app.overview, ..App::of_fleet(divided) };
    assert_eq!(get(&app, "/v1/fleet/owner?limit=api&tenant=%C3%A9"), expected);
}

#[test]
fn the_metrics_of_a_member_have_no_keys_in_them() {
    let mut told = told();
    let units = LimitUnits { units: 5_000, breaches: 2, ..LimitUnits::default() };
    told.status.limits = BTreeMap::from([(FleetLimitId(4), units)]);
    told.status.counts.late = 3;
    let app = member(&told);
    let (_, shown) = app.with_overview().exposition.show("");
    for line in [
        "tollgate_fleet_member 1",
        "tollgate_fleet_ring_epoch 12",
        "tollgate_fleet_applied_units_total{domain=\"default\",limit=\"api\"} 5000",
        "tollgate_fleet_breaches_total{domain=\"default\",limit=\"api\"} 2",
        "tollgate_fleet_envelope_units{domain=\"default\",limit=\"api\",kind=\"possible\"} 2180",
        "tollgate_fleet_envelope_units{domain=\"default\",limit=\"api\",kind=\"observed\"} 80",
        "tollgate_fleet_report_round_trip_seconds_bucket{le=\"0.001\"} 3",
        "tollgate_fleet_report_round_trip_seconds_bucket{le=\"+Inf\"} 4",
        "tollgate_fleet_report_round_trip_seconds_sum 2.0",
    ] {
        assert!(shown.lines().any(|known| known == line), "{line}\n{shown}");
    }
    let (alone, _) = App::for_tests(Vec::new());
    assert!(!alone.exposition.show("").1.contains("tollgate_fleet"));
}
