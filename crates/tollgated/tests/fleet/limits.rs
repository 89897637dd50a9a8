//! A limit of the fleet is one limit, whichever daemon is asked, from the first request on.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use serde_json::Value;

use crate::grpc::overall_code;
use crate::harness::{Fleet, Member};
use crate::http::entries;
use crate::support::{run, wait_until};

/// Asks for a new tenant each time until one is let pass; only a machine that is busy with other
/// things keeps an answer away for longer than a door waits for it.
fn passes_at_once(who: &str, ask: impl Fn(&str) -> Value) {
    let mut number = 0;
    wait_until("the first request of a tenant passes", || {
        number += 1;
        let answer = ask(&format!("{who}-{number}"));
        let has_room = answer["remaining"].as_u64() > Some(0);
        // Nothing is known in time, or what is there is not here in time.
        let is_late = answer["reason"] == "stale" || answer["reason"] == "over_limit" && has_room;
        assert!(is_late || answer["allowed"] == true, "{answer}");
        !is_late
    });
}

#[test]
fn the_first_request_for_a_key_passes_on_every_daemon() {
    let mut fleet = Fleet::start(3);
    for index in 0..3 {
        let daemon = fleet.daemon(index);
        passes_at_once(&format!("check-{index}"), |tenant| daemon.http().check(tenant).json());
        passes_at_once(&format!("batch-{index}"), |tenant| {
            let requests = [1, 2, 3].map(|part| entries(&format!("{tenant}-{part}"), ""));
            let body = format!("{{\"requests\":[{}]}}", requests.join(","));
            let results = daemon.http().post("/v1/check", body).json();
            let results = results["results"].as_array().expect("a list").clone();
            let denied = results.iter().find(|result| result["allowed"] != true);
            denied.unwrap_or(&results[0]).clone()
        });
        passes_at_once(&format!("reserve-{index}"), |tenant| {
            daemon.http().post("/v1/reserve", entries(tenant, ",\"cost\":7")).json()
        });
        // A denial says no reason there.
        wait_until("the first call of a tenant passes", || {
            let tenant = format!("call-{index}-{}", next());
            overall_code(daemon.grpc_address(), "default", &[("tenant", &tenant)]) == 1
        });
    }
}

/// A number that no other caller has.
fn next() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Relaxed)
}

/// 50 at once and 1,000 a second.
const THOUSAND: &str = "[[limit]]\nname = \"api\"\nkey = [\"tenant\"]\nrate = \"1000/s\"\n\
                        burst = 50\nguarantee = \"eventual\"\n";

/// When each request of a tenant passed, until the daemons have let 500 pass together.
fn passed(daemon: &Member, all: &AtomicUsize) -> Vec<u64> {
    let (mut http, mut stamps) = (daemon.http(), Vec::new());
    while all.load(Relaxed) < 500 {
        let lines = "tollgate-stamp: monotonic\r\n";
        let answer = http.ask("POST", "/v1/check", lines, entries("acme", "").as_bytes());
        let stamp = answer.header("tollgate-decided-at").expect("a stamp");
        if answer.status == 200 {
            stamps.push(stamp.parse().expect("a number"));
            all.fetch_add(1, Relaxed);
        }
    }
    stamps
}

#[test]
fn three_daemons_together_let_no_more_pass_than_the_limit_says() {
    let fleet = Fleet::with(3, Some(THOUSAND), &[]);
    let all = AtomicUsize::new(0);
    let of_each: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let asking: Vec<_> =
            fleet.running().map(|daemon| scope.spawn(|| passed(daemon, &all))).collect();
        asking.into_iter().map(|thread| thread.join().expect("answers")).collect()
    });
    assert!(of_each.iter().all(|stamps| !stamps.is_empty()), "each of them lets some pass");
    let mut stamps = of_each.concat();
    stamps.sort_unstable();
    for (first, start) in stamps.iter().enumerate() {
        for (last, end) in stamps.iter().enumerate().skip(first) {
            // Two daemons' stamps may be a microsecond apart.
            let nanos = end - start + 1_000;
            let (spent, room) = ((last - first + 1) as u64, 50 + nanos / 1_000_000);
            assert!(spent <= room, "{spent} in {nanos} ns, where {room} may pass");
        }
    }
}

#[test]
fn a_policy_that_one_member_was_given_is_in_force_on_all() {
    let mut fleet = Fleet::with(3, None, &[]);
    let folder = fleet.folder();
    let server = fleet.daemon(1).http_address().to_string();
    crate::limit_story::limits_of_a_fleet(&server, &folder, &run);
    let file = folder.join("two.toml");
    std::fs::write(&file, crate::harness::HUNDRED).expect("a file can be written");
    let file = file.to_str().expect("a plain path");
    let (code, out, err) = run(&["limit", "apply", file, "--server", &server]);
    assert_eq!(code, 0, "{out}{err}");
    for member in fleet.running() {
        wait_until("the policy is in force", || {
            let limits = member.http().get("/v1/limits").json();
            limits["limits"][0]["rate"] == "100/s"
        });
        passes_at_once("new", |tenant| {
            member.http().check(&format!("{tenant}-{}", member.peer())).json()
        });
    }
}

#[test]
fn a_key_of_the_fleet_is_not_reset_and_a_debt_is_collected() {
    let mut fleet = Fleet::start(2);
    let mut http = fleet.daemon(1).http();
    let reset = http.post("/v1/reset", entries("acme", ""));
    assert_eq!(reset.status, 409);
    assert!(reset.problem().starts_with("limit \"api\" is the whole fleet's"), "{reset:?}");
    let mut reservation = Value::Null;
    wait_until("a reservation is made", || {
        let tenant = format!("model-{}", next());
        let reserved = http.post("/v1/reserve", entries(&tenant, ",\"cost\":10"));
        reservation = reserved.json()["reservation"].clone();
        reservation.is_string()
    });
    // Above the burst: as it comes.
    let settled =
        http.post("/v1/settle", format!("{{\"reservation\":{reservation},\"used\":100}}"));
    assert_eq!(settled.status, 200, "{settled:?}");
    let daemon = fleet.daemon(1).running();
    let owed = |outcome| {
        daemon.metric(&format!("tollgate_reservation_owed_units_total{{outcome=\"{outcome}\"}}"))
    };
    // What was permitted at once, at most the burst less the estimate, was never owed.
    wait_until("the debt is collected", || owed("collected") > 0);
    assert!((50..=90).contains(&owed("collected")) && owed("uncollected") == 0);
}

const DIVIDED: &str = "[[limit]]\nname = \"api\"\nkey = [\"tenant\"]\nrate = \"100/s\"\n\
                       guarantee = \"share\"\n";

#[test]
fn how_a_limit_that_nodes_divide_stands_is_told_by_any_of_them() {
    let mut fleet = Fleet::with(2, Some(DIVIDED), &[]);
    let (mut first, mut second) = (fleet.daemon(0).http(), fleet.daemon(1).http());
    let mut shown = Value::Null;
    // Its owner and those that have parts of it are not asked at one instant.
    wait_until("both nodes have a part of the key, and the owner knows", || {
        first.check("acme");
        second.check("acme");
        shown = second.get("/v1/fleet").json();
        let row = &shown["shares"][0]["top_keys"][0];
        let nodes = row["nodes"].as_array().map_or(&[][..], Vec::as_slice);
        let is_sound = nodes.iter().all(|node| node["members"]["normal"] == 1);
        let given: f64 = nodes.iter().filter_map(|node| node["rate"].as_f64()).sum();
        row["members"] == 2 && nodes.len() == 2 && is_sound && (99.0..=101.0).contains(&given)
    });
    let limit = &shown["shares"][0];
    let row = &limit["top_keys"][0];
    assert_eq!((&limit["mode"], &limit["floor"]), (&"global".into(), &50.0.into()));
    assert_eq!(row["key"]["tenant"], "acme");
    assert_eq!(limit["failing_nodes"], serde_json::json!([]));
    let server = fleet.daemon(0).http_address().to_string();
    let (code, out, _) = run(&["fleet", "--server", &server]);
    assert!(code == 0 && out.contains("\ndefault/api  global  100/s"), "{out}");
}
