//! Reservations: an estimate is charged at once, corrected once, and stands when it is forgotten.

use serde_json::{Value, json};

use crate::http::entries;
use crate::support::{Answer, Daemon, Http, TEN, wait_until};

/// Reserves for a tenant; what is left, and the id.
fn reserve(http: &mut Http, tenant: &str, more: &str) -> (u64, String) {
    let answer = http.post("/v1/reserve", entries(tenant, more));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let id = answer.json()["reservation"].as_str().expect("an id").to_owned();
    (answer.number("remaining").expect("a limit applies"), id)
}

fn settle(http: &mut Http, id: &str, used: impl Into<Value>) -> Answer {
    let body = json!({"reservation": id, "used": used.into()});
    http.post("/v1/settle", body.to_string())
}

fn cancel(http: &mut Http, id: &str) -> Answer {
    http.post("/v1/cancel", json!({"reservation": id}).to_string())
}

/// What a tenant has left.
fn left(http: &mut Http, tenant: &str) -> u64 {
    let body = json!({"limit": "api", "key": {"tenant": tenant}});
    let answer = http.post("/v1/key", body.to_string());
    answer.number("remaining").expect("such a limit")
}

fn state(answer: &Answer) -> (u16, String, bool) {
    let body = answer.json();
    let word = body["state"].as_str().unwrap_or_else(|| panic!("{body}")).to_owned();
    (answer.status, word, body["repeated"] == true)
}

#[test]
fn what_is_settled_replaces_the_estimate_once_however_often_it_is_said() {
    let daemon = Daemon::new(TEN);
    let mut http = daemon.http();
    for (tenant, used, then) in [("less", 2, 8), ("same", 6, 4), ("none", 0, 10), ("more", 9, 1)] {
        let (after, id) = reserve(&mut http, tenant, ",\"cost\":6");
        assert_eq!((after, left(&mut http, tenant)), (4, 4));
        assert_eq!(state(&settle(&mut http, &id, used)), (200, "settled".into(), false));
        assert_eq!(left(&mut http, tenant), then, "{tenant}");
        assert_eq!(state(&settle(&mut http, &id, used)), (200, "settled".into(), true));
        assert_eq!(left(&mut http, tenant), then, "{tenant}, said twice");
        let other = settle(&mut http, &id, used + 1);
        assert_eq!(other.status, 409);
        assert!(other.problem().contains("nothing was changed now"));
        let late = cancel(&mut http, &id);
        assert_eq!(late.status, 409);
        assert!(late.problem().contains("settled at"));
        assert_eq!(left(&mut http, tenant), then, "{tenant}, contradicted");
    }
    let made = "tollgate_reservations_total{outcome=\"made\"}";
    let settled = "tollgate_reservations_total{outcome=\"settled\"}";
    assert_eq!((daemon.metric(made), daemon.metric(settled)), (4, 4));
}

#[test]
fn what_is_cancelled_is_given_back_once_and_cannot_be_settled() {
    let daemon = Daemon::new(TEN);
    let mut http = daemon.http();
    let (after, id) = reserve(&mut http, "acme", ",\"cost\":7");
    assert_eq!(after, 3);
    assert_eq!(state(&cancel(&mut http, &id)), (200, "cancelled".into(), false));
    assert_eq!(left(&mut http, "acme"), 10);
    let (_, other) = reserve(&mut http, "acme", ",\"cost\":5");
    assert_eq!(state(&cancel(&mut http, &id)), (200, "cancelled".into(), true));
    assert_eq!(settle(&mut http, &id, 7).status, 409);
    assert_eq!(left(&mut http, "acme"), 5);
    assert_eq!(state(&settle(&mut http, &other, 5)), (200, "settled".into(), false));
    assert_eq!(left(&mut http, "acme"), 5);
}

#[test]
fn more_than_what_is_left_can_be_used_and_is_paid_off() {
    let daemon = Daemon::new(TEN);
    let mut http = daemon.http();
    let (_, id) = reserve(&mut http, "acme", ",\"cost\":2");
    assert_eq!(settle(&mut http, &id, 25).status, 200);
    let denied = http.check("acme");
    assert_eq!(denied.left(), (429, Some(0)));
    let wait = denied.number("retry_us").expect("it ends by itself");
    assert!(wait > 15 * 8_640 * 1_000_000, "15 above the burst: {wait}");
}

#[test]
fn a_denied_reservation_spends_nothing_and_has_no_id() {
    let daemon = Daemon::new(TEN);
    let mut http = daemon.http();
    let (_, _) = reserve(&mut http, "acme", ",\"cost\":8");
    let denied = http.post("/v1/reserve", entries("acme", ",\"cost\":3"));
    assert_eq!((denied.left(), &denied.json()["reservation"]), ((429, Some(2)), &Value::Null));
    let never = http.post("/v1/reserve", entries("acme", ",\"cost\":11"));
    assert_eq!((never.status, &never.json()["reservation"]), (413, &Value::Null));
    assert_eq!(left(&mut http, "acme"), 2);
    assert_eq!(daemon.metric("tollgate_reservations_kept"), 1);
}

#[test]
fn an_expired_reservation_is_gone_and_its_estimate_stands() {
    let daemon = Daemon::new(TEN);
    let mut http = daemon.http();
    let (_, id) = reserve(&mut http, "acme", ",\"cost\":6,\"expires_ms\":1");
    let expired = "tollgate_reservations_total{outcome=\"expired\"}";
    wait_until("an expiry", || {
        // Records are cleared when reservations are made or corrected.
        reserve(&mut daemon.http(), "other", ",\"cost\":0");
        daemon.metric(expired) == 1
    });
    for answer in [settle(&mut http, &id, 1), cancel(&mut http, &id)] {
        assert_eq!(answer.status, 410);
        assert!(answer.problem().contains("its estimate stands"));
    }
    assert_eq!(left(&mut http, "acme"), 4);
    for wrong in ["0", "-1", "1.5", "99999999999999"] {
        let body = entries("acme", &format!(",\"expires_ms\":{wrong}"));
        assert_eq!(http.post("/v1/reserve", body).status, 400, "{wrong}");
    }
    assert_eq!(left(&mut http, "acme"), 4);
}

#[test]
fn an_id_that_was_never_given_is_told_from_one_of_another_process() {
    let (first, second) = (Daemon::new(TEN), Daemon::new(TEN));
    let (_, id) = reserve(&mut first.http(), "acme", ",\"cost\":6");
    let mut http = second.http();
    for answer in [settle(&mut http, &id, 1), cancel(&mut http, &id)] {
        assert_eq!(answer.status, 421);
        assert!(answer.problem().contains("it is settled where it was made"));
    }
    assert_eq!((left(&mut first.http(), "acme"), left(&mut http, "acme")), (4, 10));
    let mut http = first.http();
    let unknown = format!("{}0000000000000000", &id[..9]);
    assert_eq!(settle(&mut http, &unknown, 1).status, 410);
    for wrong in ["", "-", "x", &id[1..], &format!("{id}0"), &id.replace('-', "+"), "\u{e9}"] {
        assert_eq!(settle(&mut http, wrong, 1).status, 400, "{wrong}");
    }
    assert_eq!(left(&mut http, "acme"), 4);
}

#[test]
fn one_cost_for_each_descriptor_is_needed_and_a_wrong_number_of_them_changes_nothing() {
    let daemon = Daemon::new(TEN);
    let mut http = daemon.http();
    let two = r#"{"descriptors":[{"entries":{"tenant":"a"},"cost":4},
                 {"entries":{"tenant":"b"},"cost":5}]}"#;
    let made = http.post("/v1/reserve", two);
    let id = made.json()["reservation"].as_str().expect("an id").to_owned();
    assert_eq!((left(&mut http, "a"), left(&mut http, "b")), (6, 5));
    for (wrong, given) in [(json!(1), 1), (json!([1]), 1), (json!([1, 2, 3]), 3), (json!([]), 0)] {
        let answer = settle(&mut http, &id, wrong);
        assert_eq!(answer.status, 400);
        let costs = format!("{given} costs for a reservation of 2 descriptors");
        assert!(answer.problem().contains(&costs), "{}", answer.text());
    }
    for wrong in [json!("1"), json!(-1), json!(1.5), json!(null), json!([1, "2"])] {
        let answer = settle(&mut http, &id, wrong);
        assert_eq!(answer.status, 400);
        assert!(answer.problem().contains("used must be a cost, or a list"), "{}", answer.text());
    }
    assert_eq!((left(&mut http, "a"), left(&mut http, "b")), (6, 5));
    assert_eq!(state(&settle(&mut http, &id, json!([1, 2]))), (200, "settled".into(), false));
    assert_eq!((left(&mut http, "a"), left(&mut http, "b")), (9, 8));
    let (_, one) = reserve(&mut http, "c", ",\"cost\":4");
    assert_eq!(state(&settle(&mut http, &one, json!([1]))), (200, "settled".into(), false));
    assert_eq!(state(&settle(&mut http, &one, 1)), (200, "settled".into(), true));
    assert_eq!(left(&mut http, "c"), 9);
}

#[test]
fn an_expiry_belongs_to_a_reservation_alone() {
    let daemon = Daemon::new(TEN);
    let mut http = daemon.http();
    for path in ["/v1/check", "/v1/peek", "/v1/refund", "/v1/reset", "/v1/explain"] {
        let answer = http.post(path, entries("acme", ",\"expires_ms\":5"));
        assert_eq!(answer.status, 400, "{path}");
        assert!(answer.problem().contains("expires_ms"), "{path}: {}", answer.text());
    }
    assert_eq!(left(&mut http, "acme"), 10);
}
