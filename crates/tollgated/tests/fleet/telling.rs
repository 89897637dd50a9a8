//! What members tell of the fleet, beside what their clients saw.

use serde_json::Value;

use crate::harness::Fleet;
use crate::support::Http;

fn get(http: &mut Http, path: &str) -> Value {
    let answer = http.get(path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

/// Asks until it is so.
fn wait_for(http: &mut Http, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    loop {
        let body = get(http, path);
        if is_so(&body) {
            return body;
        }
    }
}

/// The status was made four times a second, and told of a ring that had turned meanwhile: a member
/// that was there was neither shown nor asked, and not missed either.
#[test]
fn a_member_tells_of_others_as_soon_as_the_ring_has_turned() {
    let fleet = Fleet::start(3);
    let mut doors: Vec<Http> = fleet.running().map(|one| one.running().http()).collect();
    for door in &mut doors {
        assert_eq!(get(door, "/v1/fleet")["members"].as_array().map(Vec::len), Some(3));
    }
}

#[test]
fn every_member_tells_the_same_of_a_key_and_of_its_limit() {
    let fleet = Fleet::start(3);
    let mut doors: Vec<Http> = fleet.running().map(|one| one.running().http()).collect();
    let body = r#"{"entries":{"tenant":"acme"}}"#;
    let mut allowed = 0;
    for round in 0..30 {
        let answer = doors[round % 3].post("/v1/check", body);
        allowed += u64::from(answer.status == 200);
    }
    assert!(allowed > 0);
    for door in &mut doors {
        let told = wait_for(door, "/v1/fleet", |told| {
            told["limits"][0]["observed"]["applied_units"] == allowed
        });
        assert_eq!(
            (&told["missing"], &told["limits"][0]["observed"]["breaches"]),
            (&serde_json::json!([]), &0.into())
        );
        assert_eq!(told["members"].as_array().map(Vec::len), Some(3));
    }
    let owner = get(&mut doors[0], "/v1/fleet/owner?limit=api&tenant=acme");
    for door in &mut doors {
        let same = get(door, "/v1/fleet/owner?limit=api&tenant=acme");
        assert_eq!(same, owner);
        // Asked for again while it is not known: whoever is asked keeps its cell.
        let keys = wait_for(door, "/v1/fleet/keys?limit=api&sort=admitted", |keys| {
            keys["keys"][0]["key"] == serde_json::json!({ "tenant": "acme" })
        });
        assert_eq!((&keys["total"], &keys["is_exact"]), (&1.into(), &true.into()));
        assert_eq!(keys["keys"][0]["owner"], owner["owner"]);
        assert_eq!(keys["keys"][0]["source"], "exact");
        let metrics = door.get("/metrics").text();
        assert!(metrics.contains("\ntollgate_fleet_members 3\n"), "{metrics}");
        assert!(!metrics.contains("acme"));
    }
}

#[test]
fn what_an_owner_that_is_gone_cannot_tell_is_told_by_workers() {
    let mut fleet = Fleet::start(3);
    let owner_of = |http: &mut Http, tenant: &str| {
        let path = format!("/v1/fleet/owner?limit=api&tenant={tenant}");
        get(http, &path)["owner"].as_u64().expect("an owner")
    };
    let mut door = fleet.daemon(0).running().http();
    let tenant = (0..).map(|number| format!("tenant-{number}"));
    let mut tenants = tenant.filter(|tenant| owner_of(&mut door, tenant) == 2);
    let tenant = tenants.next().expect("about every third one");
    let body = format!(r#"{{"entries":{{"tenant":"{tenant}"}}}}"#);
    assert_eq!(door.post("/v1/check", &body).status, 200);
    fleet.daemon(1).pause();
    let path = "/v1/fleet/keys?limit=api";
    let keys = wait_for(&mut door, path, |keys| keys["missing"] == serde_json::json!([2]));
    fleet.daemon(1).wake();
    let row = &keys["keys"][0];
    assert_eq!(
        (&keys["is_exact"], &row["source"], &row["owner"]),
        (&false.into(), &"approximate".into(), &2.into())
    );
    assert_eq!((&row["key"]["tenant"], &row["level"]), (&tenant.into(), &Value::Null));
}
