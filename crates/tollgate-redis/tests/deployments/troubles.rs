//! A process under load while its store is in trouble: no request waits for it, each limit's
//! `on_stale` holds, and all is normal an interval after the trouble is over.

use std::time::{Duration, Instant};

use tollgate::Outcome;

use crate::process::{MODES, Process, Seen, TICK, impatient, worker};
use crate::replicas::follow;
use crate::server::{INTERVAL, Server, options, until};

/// Longer than any request is held up by the machine, and shorter than the troubles.
const LONG: Duration = Duration::from_secs(1);
const TROUBLE: Duration = Duration::from_millis(1_500);
/// So long that a key at half of its limit, of which nothing is heard, comes to all of it here.
const LONG_TROUBLE: Duration = Duration::from_secs(5);

/// What a machine that is busy may take besides.
const MARGIN: Duration = Duration::from_secs(2);

/// A process over servers, which has been normal.
async fn over(servers: &[&Server], counted_in: &Server) -> Process {
    let addresses = servers.iter().map(|server| server.address()).collect();
    let process = Process::start(vec![impatient(options(addresses))], &MODES, worker());
    process.is_normal(counted_in, "before").await;
    process
}

/// Waits until the trouble has lasted.
async fn lasts(began: Instant, trouble: Duration) {
    until("it has lasted", || async { (began.elapsed() > trouble).then_some(()) }).await;
}

fn check(what: &str, seen: &Seen, back_in: Duration) {
    println!("{what}: {seen:?}, normal after {back_in:?}");
    assert!(seen.longest < LONG, "{seen:?}");
    assert_eq!(seen.innocents_denied, 0, "{seen:?}");
    assert!(back_in < INTERVAL + TICK * 2 + MARGIN, "{back_in:?}");
}

/// As long as the store answers nothing: who is to pass passes, and who is not does not; of how
/// many nodes each has a part counts.
async fn each_limit_does_as_it_says(process: &Process) {
    process.is_cut_off().await;
    assert_eq!(process.outcome("allow", "innocent"), Outcome::Allowed);
    assert_eq!(process.outcome("share", "alone"), Outcome::Allowed);
    process.tally.set_nodes(1_000);
    until("each has a thousandth", || async {
        (process.outcome("share", "alone") != Outcome::Allowed).then_some(())
    })
    .await;
    process.tally.set_nodes(1);
}

#[tokio::test]
async fn a_store_that_is_killed_holds_up_and_limits_nobody() {
    let mut server = Server::start(&[]);
    let process = over(&[&server], &server).await;
    let load = process.load();
    let began = Instant::now();
    server.kill();
    each_limit_does_as_it_says(&process).await;
    lasts(began, LONG_TROUBLE).await;
    server.restart();
    let back_in = process.is_normal(&server, "after").await;
    let seen = load.end();
    check("killed", &seen, back_in);
    assert!(seen.stale > 0);
}

#[tokio::test]
async fn a_store_that_is_stopped_holds_up_and_limits_nobody() {
    let server = Server::start(&[]);
    let process = over(&[&server], &server).await;
    let load = process.load();
    let began = Instant::now();
    server.signal("STOP");
    each_limit_does_as_it_says(&process).await;
    lasts(began, TROUBLE).await;
    server.signal("CONT");
    let back_in = process.is_normal(&server, "after").await;
    let seen = load.end();
    check("stopped", &seen, back_in);
    assert!(seen.stale > 0);
}

/// C15: every write is answered `READONLY` for a while, then another server is the primary. What
/// is read is still there, so that it is no outage.
#[tokio::test]
async fn c15_a_store_that_fails_over_holds_up_and_limits_nobody() {
    let (first, second) = (Server::start(&[]), Server::start(&[]));
    follow(&second, &first).await;
    let process = over(&[&first, &second], &first).await;
    let load = process.load();
    let began = Instant::now();
    first.cli(&["REPLICAOF", "127.0.0.1", &second.port.to_string()]);
    until("writes are refused", || async {
        let refused = process.status(0).await.health.counts.refused;
        (refused.readonly > 0).then_some(())
    })
    .await;
    lasts(began, TROUBLE).await;
    second.cli(&["REPLICAOF", "NO", "ONE"]);
    let back_in = process.is_normal(&second, "after").await;
    check("failed over", &load.end(), back_in);
}

#[tokio::test]
async fn a_replica_that_takes_over_from_the_dead_holds_up_and_limits_nobody() {
    let (mut first, second) = (Server::start(&[]), Server::start(&[]));
    follow(&second, &first).await;
    let process = over(&[&first, &second], &first).await;
    let load = process.load();
    let began = Instant::now();
    first.kill();
    lasts(began, TROUBLE).await;
    second.cli(&["REPLICAOF", "NO", "ONE"]);
    let back_in = process.is_normal(&second, "after").await;
    check("taken over", &load.end(), back_in);
}

/// The store is read, so that it is no outage; what could not be written is, once it can.
#[tokio::test]
async fn a_store_whose_memory_is_full_holds_up_and_limits_nobody() {
    let server = Server::start(&[]);
    let process = over(&[&server], &server).await;
    let load = process.load();
    let began = Instant::now();
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    until("writes are refused", || async {
        let refused = process.status(0).await.health.counts.refused;
        (refused.oom > 0).then_some(())
    })
    .await;
    lasts(began, TROUBLE).await;
    assert_eq!(process.status(0).await.silent_for, None);
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    let back_in = process.is_normal(&server, "after").await;
    let seen = load.end();
    check("full", &seen, back_in);
    assert_eq!(seen.stale, 0);
}

#[tokio::test]
async fn a_store_whose_scripts_and_connections_are_gone_counts_on() {
    let server = Server::start(&[]);
    let process = over(&[&server], &server).await;
    let load = process.load();
    for round in 0..10 {
        assert_eq!(server.cli(&["SCRIPT", "FLUSH"]), "OK");
        server.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
        let key = round.to_string();
        assert_eq!(process.outcome("deny", &key), Outcome::Allowed);
        until("it is counted", || async {
            let counters = server.cli(&["KEYS", &format!("*:deny:*{{{key}}}*")]);
            (!counters.is_empty()).then_some(())
        })
        .await;
    }
    let back_in = process.is_normal(&server, "after").await;
    check("flushed", &load.end(), back_in);
}
