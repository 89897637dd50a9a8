//! Cases C10 to C17 of what went wrong elsewhere, on real servers: of one node in made-up time, and
//! of a process. C15 is among `troubles`.

use std::time::Duration;

use tollgate::tally::WorkerOptions;
use tollgate::{LimitSpec, Outcome, Reason};
use tollgate_redis::{Store, StoreOptions};

use crate::cluster::{cluster, store_of};
use crate::node::{Node, START, TALLY, ask, counter};
use crate::process::{MODES, Process, sum, worker};
use crate::proxy::Proxy;
use crate::server::{Server, read, until};

fn get(server: &Server, name: &str) -> String {
    server.cli(&["GET", name])
}

/// When a counter expires, in seconds after 2100 began.
fn expires_at(server: &Server, name: &str) -> u64 {
    server.cli(&["EXPIRETIME", name]).parse::<u64>().expect("a time") - START
}

#[tokio::test]
async fn c10_the_previous_window_outlives_two() {
    let server = Server::start(&[]);
    let mut node = Node::new(&server, &[LimitSpec { rate: "100/180s", ..TALLY }]);
    node.pass(10_000).await;
    assert_eq!(node.passed("acme", 90), 90);
    node.pass(179_000).await;
    // This one has it read again.
    assert_eq!(node.passed("acme", 1), 1);
    node.pass(1_000).await;
    // 85 of 90 still count, 10 s into the next window.
    assert_eq!(node.passed("acme", 99), 14);
    node.pass(1_000).await;
    let counters = [0, 180].map(|begins| counter("acme", 180, begins));
    assert_eq!(counters.each_ref().map(|name| get(&server, name)), ["90", "15"]);
    assert!(expires_at(&server, &counters[0]) >= 2 * 180);
    assert!(expires_at(&server, &counters[1]) >= 3 * 180);
}

#[tokio::test]
async fn c11_a_counter_without_an_expiry_blocks_nobody_for_ever() {
    let server = Server::start(&[]);
    let name = counter("acme", 60, 0);
    server.cli(&["SET", &name, "10"]);
    let mut node = Node::new(&server, &[LimitSpec { rate: "10/60s", ..TALLY }]);
    assert_eq!(node.passed("acme", 1), 1);
    node.turn().await;
    assert_eq!((node.passed("acme", 1), get(&server, &name).as_str()), (0, "11"));
    assert!((120..=180).contains(&expires_at(&server, &name)));
    node.pass(120_000).await;
    assert_eq!(node.passed("acme", 1), 1);
}

#[tokio::test]
async fn c12_a_counter_lives_for_two_windows_and_three_at_most() {
    let server = Server::start(&[]);
    let mut node = Node::new(&server, &[LimitSpec { rate: "10/60s", ..TALLY }]);
    for key in 0..50 {
        assert_eq!(node.passed(&key.to_string(), 1), 1);
    }
    node.turn().await;
    let expiry = |key: u64| expires_at(&server, &counter(&key.to_string(), 60, 0));
    let mut expiries: Vec<u64> = (0..50).map(expiry).collect();
    assert!(expiries.iter().all(|at| (120..=180).contains(at)), "{expiries:?}");
    // And they do not all expire at once.
    expiries.sort_unstable();
    expiries.dedup();
    assert!(expiries.len() > 20, "{expiries:?}");
}

#[tokio::test]
async fn c13_a_server_without_its_scripts_counts_each_unit_once() {
    let server = Server::start(&[]);
    let mut node = Node::new(&server, &[TALLY]);
    for second in 1..=5_u64 {
        assert_eq!(server.cli(&["SCRIPT", "FLUSH"]), "OK");
        assert_eq!(node.passed("acme", 1), 1);
        node.pass(1_000).await;
        assert_eq!(get(&server, &counter("acme", 10, 0)), second.to_string());
    }
}

#[tokio::test]
async fn c13_a_unit_whose_reply_is_cut_is_counted_once_and_judged_as_its_limit_says() {
    let server = Server::start(&[]);
    let proxy = Proxy::before(server.port).await;
    let store = Store::new(proxy.options()).expect("a store");
    assert_eq!(read(&store, "probe").await, Some(0));
    let limit = LimitSpec { rate: "1000/60s", on_stale: Some("deny"), ..TALLY };
    let outage = Some(Duration::from_secs(4));
    let options = WorkerOptions { read_outage_max: outage, floor: 1, ..WorkerOptions::default() };
    let mut node = Node::over(vec![store], &[limit], options);
    let name = counter("acme", 60, 0);
    proxy.cut_replies(0);
    assert_eq!(node.passed("acme", 1), 1);
    node.turn().await;
    assert_eq!((get(&server, &name).as_str(), node.tally.counts().unknown), ("1", 1));
    assert!(node.stores[0].health().last_failure.is_some());
    // By what is known here, and after so long as the limit says.
    node.pass(4_000).await;
    let decision = ask(&node.limiter, "acme", 1);
    assert!(decision.is_allowed() && decision.is_estimated());
    node.pass(2_000).await;
    assert_eq!(ask(&node.limiter, "acme", 1).outcome(), Outcome::Denied(Reason::Stale));
    proxy.pass();
    until("it is read again", || async { read(&node.stores[0], "probe").await }).await;
    node.pass(3_000).await;
    // The one that was allowed since, and the first one no second time.
    assert_eq!((get(&server, &name).as_str(), node.tally.counts().written), ("2", 1));
    assert_eq!(node.passed("acme", 1), 1);
}

#[tokio::test]
async fn c14_both_counters_of_a_key_are_in_one_slot_and_a_slot_error_admits_by_the_policy() {
    let servers = cluster().await;
    let tenants = ["plain", "a}b", "{x}", "{}"];
    let floor = WorkerOptions { floor: 1, ..WorkerOptions::default() };
    let mut node = Node::over(vec![store_of(&servers[0])], &[TALLY], floor);
    for window in 1..=2 {
        for tenant in tenants {
            assert_eq!(node.passed(tenant, 100), 100, "{tenant} in window {window}");
        }
        node.turn().await;
        node.pass(9_000).await;
        node.pass(1_000).await;
    }
    let counts = node.tally.counts();
    assert_eq!((counts.written, counts.read_failed), (800, 0));
    assert!(counts.read >= 8, "{counts:?}");
    let health = node.stores[0].health();
    assert_eq!((health.counts.refused.cluster, health.last_failure), (0, None));

    // A node of the cluster taken for a server that has all: what it answers is CROSSSLOT.
    let deny = LimitSpec { on_stale: Some("deny"), ..TALLY };
    for (limit, passes) in [(TALLY, true), (deny, false)] {
        let mut node = Node::over(vec![servers[0].store()], &[limit], floor);
        for _ in 0..15 {
            tenants.iter().for_each(|tenant| _ = node.passed(tenant, 1));
            node.pass(1_000).await;
        }
        assert_eq!(tenants.map(|tenant| node.passed(tenant, 1) == 1), [passes; 4]);
        assert_eq!(node.tally.counts().read, 0);
        let health = node.stores[0].health();
        assert!(health.counts.refused.cluster > 10, "{health:?}");
        assert!(health.last_failure.is_some_and(|failure| failure.text.contains("slot")));
    }
}

/// The system accepts for a server that is stopped, and nobody answers.
#[tokio::test]
async fn c16_a_black_hole_delays_no_answer_and_each_unit_is_counted_once_when_it_answers() {
    let server = Server::start(&[]);
    server.signal("STOP");
    let connect_timeout = Duration::from_millis(100);
    let options = StoreOptions { connect_timeout, ..server.options() };
    let hours = MODES.map(|mode| LimitSpec { rate: "5000/1h", ..mode });
    let process = Process::start(vec![options], &hours, worker());
    process.is_cut_off().await;
    let mut longest = Duration::ZERO;
    for _ in 0..1_000 {
        let began = std::time::Instant::now();
        assert_eq!(process.outcome("allow", "acme"), Outcome::Allowed);
        assert_eq!(process.outcome("deny", "innocent"), Outcome::Denied(Reason::Stale));
        longest = longest.max(began.elapsed());
    }
    println!("the longest two answers of 2 000 took {longest:?}");
    assert!(longest < Duration::from_millis(500), "{longest:?}");
    let health = process.status(0).await.health;
    assert_eq!((health.counts.connects, health.counts.commands), (0, 0), "nothing is queued there");
    server.signal("CONT");
    until("all are counted", || async { (sum(&server, "acme") == 1_000).then_some(()) }).await;
    until("nobody is denied for it", || async {
        (process.outcome("deny", "innocent") == Outcome::Allowed).then_some(())
    })
    .await;
    process.tally.stop(Duration::from_secs(15)).await;
    assert_eq!(sum(&server, "acme"), 1_000);
}

#[tokio::test]
async fn c17_what_a_server_evicts_this_node_still_counts() {
    let server = Server::start(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let mut node = Node::new(&server, &[LimitSpec { rate: "10/60s", ..TALLY }]);
    assert_eq!(node.passed("acme", 20), 10);
    node.turn().await;
    let may_evict = node.stores[0].health().servers[0].may_evict.clone();
    assert_eq!(may_evict.as_deref(), Some("allkeys-lru"));
    assert_eq!(server.cli(&["DEL", &counter("acme", 60, 0)]), "1");
    for second in 1..=5 {
        node.pass(1_000).await;
        assert_eq!(node.passed("acme", 20), 0, "after {second} s");
    }
}
