//! Nodes in made-up time count in real servers, and each count is exact.
//!
//! These are the tests with a real Redis that the limiter has from which this guarantee comes, in
//! their order; two more come after them. There times were real, and counts had tolerances.
//!
//! | there | here |
//! |---|---|
//! | `write_then_read_epoch_keys` | `what_is_written_is_read_from_the_counters_of_two_windows` |
//! | `epoch_key_ttl_expiry` | `a_counter_expires_after_it_was_read_the_last_time` |
//! | `background_task_flushes_writes` | `a_tick_writes_all_that_was_counted` |
//! | `background_task_processes_pending_sync` | `a_new_key_is_read_with_the_next_tick` |
//! | `concurrent_access_same_entity` | `threads_that_ask_for_one_key_are_counted_one_and_all` |
//! | `pipeline_100_entities` | `a_hundred_keys_go_in_one_command_each_way` |
//! | `sliding_window_accuracy_uniform` | `the_previous_window_fades_as_this_one_goes_by` |
//! | `decay_drift_over_sync_interval` | `who_stays_at_half_of_the_limit_passes_for_ever` |
//! | `limiter_correctly_limits_at_threshold` | `who_is_over_the_limit_is_limited_once_read` |
//! | `custom_key_high_threshold_sync_and_limit` | `a_key_with_a_high_limit_has_all_of_it` |

use tollgate::tally::WorkerOptions;
use tollgate::{Instant, LimitSpec, OverrideSpec, Retry};

use crate::node::{Node, START, TALLY, ask, counter};
use crate::server::Server;

fn get(server: &Server, tenant: &str, begins: u64) -> String {
    server.cli(&["GET", &counter(tenant, 10, begins)])
}

#[tokio::test]
async fn what_is_written_is_read_from_the_counters_of_two_windows() {
    let server = Server::start(&[]);
    let [mut one, mut other] = [0; 2].map(|_| Node::new(&server, &[TALLY]));
    assert_eq!(one.passed("acme", 50), 50);
    one.turn().await;
    assert_eq!((get(&server, "acme", 0), one.remaining("acme")), ("50".into(), 950));
    // The other has not heard of it, and does with its own first tick.
    assert_eq!(other.passed("acme", 10), 10);
    other.turn().await;
    assert_eq!((get(&server, "acme", 0), other.remaining("acme")), ("60".into(), 940));
    // 3 s into the next window, seven tenths of them count.
    one.pass(12_000).await;
    assert_eq!(one.passed("acme", 9), 9);
    one.pass(1_000).await;
    assert_eq!((get(&server, "acme", 0), get(&server, "acme", 10)), ("60".into(), "9".into()));
    assert_eq!(one.remaining("acme"), 1_000 - (42 + 9));
}

#[tokio::test]
async fn a_counter_expires_after_it_was_read_the_last_time() {
    let server = Server::start(&[]);
    let mut node = Node::new(&server, &[LimitSpec { rate: "100/2s", ..TALLY }]);
    let name = counter("acme", 2, 0);
    let mut expiries = Vec::new();
    for _ in 0..2 {
        assert_eq!(node.passed("acme", 1), 1);
        node.turn().await;
        expiries.push(server.cli(&["EXPIRETIME", &name]).parse::<u64>().expect("a time"));
        node.pass(1_000).await;
    }
    // It is read until its window and the next one are over, and is gone a window later at most.
    assert!((START + 4..=START + 6).contains(&expiries[0]), "{expiries:?}");
    assert_eq!(expiries[0], expiries[1], "no later for being written again");
    // A counter whose time has come is gone: here that is a window of 1970.
    let mut old = Node::new(&server, &[TALLY]).from(10);
    assert_eq!(old.passed("acme", 70), 70);
    old.turn().await;
    assert_eq!(server.cli(&["KEYS", "*:{acme}:1"]), "");
    assert_eq!(old.tally.counts().written, 70);
}

#[tokio::test]
async fn a_tick_writes_all_that_was_counted() {
    let server = Server::start(&[]);
    let mut node = Node::new(&server, &[TALLY]);
    for (tenant, count) in [("a", 10), ("b", 20), ("c", 30)] {
        assert_eq!(node.passed(tenant, count), count);
    }
    node.turn().await;
    assert_eq!(["a", "b", "c"].map(|tenant| get(&server, tenant, 0)), ["10", "20", "30"]);
    // And no unit twice.
    node.pass(3_000).await;
    assert_eq!(["a", "b", "c"].map(|tenant| get(&server, tenant, 0)), ["10", "20", "30"]);
    assert_eq!((node.tally.counts().written, node.tally.is_flushed()), (60, true));
}

#[tokio::test]
async fn a_new_key_is_read_with_the_next_tick() {
    let server = Server::start(&[]);
    server.cli(&["SET", &counter("acme", 10, 0), "500"]);
    let mut node = Node::new(&server, &[TALLY]);
    // A hundredth of its limit is enough to have it read.
    assert_eq!((node.passed("acme", 10), node.remaining("acme")), (10, 990));
    node.turn().await;
    assert_eq!((get(&server, "acme", 0), node.remaining("acme")), ("510".into(), 490));
    assert_eq!(node.passed("acme", 500), 490);
}

#[tokio::test]
async fn threads_that_ask_for_one_key_are_counted_one_and_all() {
    let server = Server::start(&[]);
    let mut node = Node::new(&server, &[LimitSpec { rate: "450/10s", ..TALLY }]);
    let node_here = &node;
    let passed: u64 = std::thread::scope(|scope| {
        let thread = |_| scope.spawn(|| node_here.passed("acme", 50));
        let threads: Vec<_> = (0..10).map(thread).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert_eq!(passed, 450, "of 500");
    node.turn().await;
    assert_eq!((get(&server, "acme", 0), node.remaining("acme")), ("450".into(), 0));
}

#[tokio::test]
async fn a_hundred_keys_go_in_one_command_each_way() {
    let server = Server::start(&[]);
    let mut node = Node::new(&server, &[TALLY]);
    for number in 1..=100 {
        assert!(ask(&node.limiter, &number.to_string(), number * 10).is_allowed());
    }
    node.turn().await;
    assert_eq!(node.log, [("write", 0, 100), ("read", 0, 100)]);
    for number in 1..=100 {
        let tenant = number.to_string();
        assert_eq!(get(&server, &tenant, 0), (number * 10).to_string());
        assert_eq!(node.remaining(&tenant), 1_000 - number * 10);
    }
}

#[tokio::test]
async fn the_previous_window_fades_as_this_one_goes_by() {
    let server = Server::start(&[]);
    server.cli(&["SET", &counter("acme", 60, 0), "300"]);
    server.cli(&["SET", &counter("acme", 60, 60), "490"]);
    for (seconds, used) in [(0, 800), (15, 725), (30, 650), (45, 575), (59, 505)] {
        let minute = LimitSpec { rate: "1000/60s", ..TALLY };
        let mut node = Node::new(&server, &[minute]).from(START + 60 + seconds);
        assert_eq!(node.passed("acme", 10), 10);
        node.turn().await;
        assert_eq!(node.remaining("acme"), 1_000 - used, "{seconds} s");
        server.cli(&["DECRBY", &counter("acme", 60, 60), "10"]);
    }
}

#[tokio::test]
async fn who_stays_at_half_of_the_limit_passes_for_ever() {
    let server = Server::start(&[]);
    let mut nodes = [0; 2].map(|_| Node::new(&server, &[TALLY]));
    // 50 a second over both, where 100 are allowed, for six windows.
    for second in 0..60_u64 {
        for node in &mut nodes {
            assert_eq!(node.passed("acme", 25), 25, "at {second} s");
            node.pass(1_000).await;
        }
    }
    for window in 1..6 {
        assert_eq!(get(&server, "acme", window * 10), "500", "window {window}");
    }
    let drift = nodes.map(|node| node.tally.counts().drift);
    // What each believed was never half of the limit beside what it read then.
    assert!(drift.iter().all(|drift| drift.counts[7] + drift.above == 0), "{drift:?}");
}

#[tokio::test]
async fn who_is_over_the_limit_is_limited_once_read() {
    let server = Server::start(&[]);
    server.cli(&["SET", &counter("acme", 10, 0), "150"]);
    let mut node = Node::new(&server, &[LimitSpec { rate: "100/10s", ..TALLY }]);
    assert_eq!(node.passed("acme", 1), 1, "nobody knows of it yet");
    node.turn().await;
    let over = ask(&node.limiter, "acme", 1);
    assert_eq!((over.is_allowed(), over.remaining()), (false, Some(0)));
    // 52 of 151 and this one must leak, at 10 a second.
    assert_eq!(over.retry_at(), Some(Retry::At(Instant::from_nanos(5_200_000_000))));
    node.pass(1_000).await;
    assert_eq!((node.passed("acme", 10), get(&server, "acme", 0)), (0, "151".into()));
}

#[tokio::test]
async fn a_key_with_a_high_limit_has_all_of_it() {
    let server = Server::start(&[]);
    for tenant in ["big", "acme"] {
        server.cli(&["SET", &counter(tenant, 10, 0), "4900"]);
    }
    let big = OverrideSpec { key: &[("tenant", "big")], rate: "5000/10s", ..OverrideSpec::DEFAULT };
    let limit = LimitSpec { rate: "100/10s", overrides: &[big], ..TALLY };
    let mut node = Node::new(&server, &[limit]);
    assert_eq!(["big", "acme"].map(|tenant| node.passed(tenant, 10)), [10, 10]);
    node.turn().await;
    assert_eq!(["big", "acme"].map(|tenant| node.remaining(tenant)), [90, 0]);
    assert_eq!(["big", "acme"].map(|tenant| node.passed(tenant, 200)), [90, 0]);
    node.pass(1_000).await;
    assert_eq!(["big", "acme"].map(|tenant| get(&server, tenant, 0)), ["5000", "4910"]);
    // Halfway through the next window half of it counts, of each by its own limit.
    node.pass(13_000).await;
    let more = ["big", "acme"].map(|tenant| node.passed(tenant, 10));
    node.pass(1_000).await;
    assert_eq!(["big", "acme"].map(|tenant| node.remaining(tenant)), [2_500 - more[0], 0]);
}

/// Deployments that share a prefix, and not the length of their windows.
#[tokio::test]
async fn windows_of_other_lengths_are_counted_apart() {
    let server = Server::start(&[]);
    let rates = ["1000/10s", "6000/60s"];
    let mut nodes = rates.map(|rate| Node::new(&server, &[LimitSpec { rate, ..TALLY }]));
    for (node, units) in nodes.iter_mut().zip([100, 600]) {
        assert_eq!(node.passed("acme", units), units);
        node.turn().await;
    }
    for (length, units) in [(10, "100"), (60, "600")] {
        assert_eq!(server.cli(&["GET", &counter("acme", length, 0)]), units);
    }
    assert_eq!(nodes.map(|node| node.remaining("acme")), [900, 5_400]);
}

/// A flood of keys costs each tick as much as is said, and what is left over goes with the next
/// ones.
#[tokio::test]
async fn no_tick_and_no_command_is_larger_than_said_and_all_is_written_at_last() {
    let server = Server::start(&[]);
    let bounds = WorkerOptions {
        writes_per_tick: 400,
        reads_per_tick: 300,
        keys_per_command: 100,
        floor: 1,
        ..WorkerOptions::default()
    };
    let mut node = Node::over(vec![server.store()], &[TALLY], bounds);
    for key in 0..1_000 {
        assert!(ask(&node.limiter, &key.to_string(), 2).is_allowed());
    }
    for (writes, reads) in [(4, 3), (4, 3), (2, 3), (0, 1)] {
        node.log.clear();
        node.pass(1_000).await;
        let wanted = [vec![("write", 0, 100); writes], vec![("read", 0, 100); reads]].concat();
        assert_eq!(node.log, wanted);
    }
    assert_eq!((node.tally.counts().written, node.tally.is_flushed()), (2_000, true));
    assert_eq!(server.cli(&["DBSIZE"]), "1000");
    assert_eq!((get(&server, "0", 0), get(&server, "999", 0)), ("2".into(), "2".into()));
}
