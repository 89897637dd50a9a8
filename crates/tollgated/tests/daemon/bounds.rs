//! A flood of names costs the memory that was set aside, whatever door it comes by.

use crate::http::entries;
use crate::resp::command;
use crate::support::{Daemon, TEN};

/// What 150,000 fresh keys by each door may add to a daemon that keeps 100,000: two tables of 32
/// bytes a key with room to spare, and buffers.
const GROWTH_BYTES_MAX: u64 = 48 << 20;

#[test]
fn three_hundred_thousand_fresh_keys_by_either_door_are_kept_in_bounded_memory() {
    let daemon = Daemon::with(TEN, &["--keys-max", "100000"]);
    let before = daemon.resident_bytes();
    let (mut http, mut resp) = (daemon.http(), daemon.resp());
    for batch in 0..150 {
        let items: Vec<String> =
            (0..1_000).map(|n| entries(&format!("tenant {batch} {n}"), "")).collect();
        let body = format!("{{\"requests\":[{}]}}", items.join(","));
        assert_eq!(http.post("/v1/check", body).status, 200);
        let mut all = Vec::new();
        for n in 0..1_000 {
            let key = format!("key {batch} {n}");
            all.extend(command(&[b"CL.THROTTLE", key.as_bytes(), b"9", b"10", b"86400"]));
        }
        resp.send(&all);
        for _ in 0..1_000 {
            resp.reply().numbers();
        }
    }
    let grown = daemon.resident_bytes().saturating_sub(before);
    assert!(grown < GROWTH_BYTES_MAX, "{} KiB more", grown >> 10);
    let keys = daemon.keys();
    // And the cell that those share which found no place.
    assert_eq!(keys, 200_001);
    let api = "tollgate_limit_overflows_total{domain=\"default\",limit=\"api\"}";
    assert_eq!(daemon.metric(api), 50_000, "what found no place shares a cell");
    // A limit that is brought has no such cell.
    let brought = "domain=\"\",limit=\"brought\",decision=\"denied\",reason=\"key_table_full\"";
    assert_eq!(daemon.metric(&format!("tollgate_limit_decisions_total{{{brought}}}")), 50_000);
}

#[test]
fn a_flood_frees_no_key_that_is_denied() {
    let daemon = Daemon::with(TEN, &["--keys-max", "1024"]);
    let mut http = daemon.http();
    let all = http.post("/v1/check", entries("acme", ",\"cost\":10"));
    assert_eq!(all.left(), (200, Some(0)));
    let items: Vec<String> = (0..1_000).map(|n| entries(&format!("tenant {n}"), "")).collect();
    for _ in 0..5 {
        let body = format!("{{\"requests\":[{}]}}", items.join(","));
        assert_eq!(http.post("/v1/check", body.replace("tenant ", "other ")).status, 200);
        assert_eq!(http.post("/v1/check", body).status, 200);
        assert_eq!(http.check("acme").left(), (429, Some(0)));
    }
}

#[test]
fn a_full_table_that_is_to_deny_says_so_and_spends_nothing() {
    let daemon = Daemon::with(TEN, &["--keys-max", "1024", "--table-full", "deny"]);
    let mut http = daemon.http();
    let mut full = None;
    for n in 0..3_000 {
        let answer = http.check(&format!("tenant {n}"));
        match answer.status {
            200 => {}
            503 => full = Some(answer),
            other => panic!("{other}"),
        }
    }
    let full = full.expect("3000 keys do not fit");
    let body = full.json();
    assert_eq!(body["reason"], "key_table_full");
    let kind = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
    assert_eq!(body["type"], kind);
    let (allowed, denied) = (
        "{face=\"http\",decision=\"allowed\",reason=\"\"}",
        "{face=\"http\",decision=\"denied\",reason=\"key_table_full\"}",
    );
    let of = |labels| daemon.metric(&format!("tollgate_decisions_total{labels}"));
    assert_eq!(of(allowed) + of(denied), 3_000);
    assert!(of(allowed) <= 1_024, "{}", of(allowed));
}

#[test]
fn reservations_that_are_never_settled_expire_and_are_counted() {
    let daemon = Daemon::new(TEN);
    let mut http = daemon.http();
    for n in 0..500 {
        let body = entries(&format!("tenant {n}"), ",\"expires_ms\":1");
        assert_eq!(http.post("/v1/reserve", body).status, 200);
    }
    crate::support::wait_until("all to expire", || {
        daemon.http().post("/v1/reserve", entries("last", ",\"cost\":0,\"expires_ms\":60000"));
        daemon.metric("tollgate_reservations_total{outcome=\"expired\"}") == 500
    });
}
