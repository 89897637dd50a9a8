//! A server that is gone, stopped or emptied: calls are short, and all is well once it is back.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use tollgate_redis::{FailureKind, Outcome, Store};

use crate::server::{INTERVAL, Server, address, options, read, until, until_done, write};

/// Longer than what is to be at once ever takes.
const AT_ONCE: Duration = Duration::from_millis(150);

#[tokio::test]
async fn a_server_that_is_killed_and_started_is_used_again_within_an_interval() {
    let mut server = Server::start(&[]);
    let store = server.store();
    assert_eq!(write(&store, "a").await, Outcome::Done);
    server.kill();
    assert_ne!(write(&store, "a").await, Outcome::Done);
    until("nobody is there", || async {
        (write(&store, "a").await == Outcome::NotSent).then_some(())
    })
    .await;
    let health = store.health();
    assert!(!health.is_connected(), "{health:?}");
    assert_eq!(health.last_failure.map(|failure| failure.kind), Some(FailureKind::Connect));
    let began = Instant::now();
    assert_eq!(read(&store, "a").await, None);
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    server.restart();
    let back_at = Instant::now();
    assert_eq!(until_done(&store, "a").await, 0);
    let took = back_at.elapsed();
    assert!(took < INTERVAL + AT_ONCE * 3, "{took:?}");
    assert_eq!(read(&store, "a").await, Some(1));
    assert!(store.health().is_connected());
}

#[tokio::test]
async fn a_server_that_is_stopped_costs_one_timeout_and_gathers_no_requests() {
    let server = Server::start(&[]);
    let timeout = Duration::from_millis(100);
    let mut options = server.options();
    (options.read_timeout, options.write_timeout) = (timeout, timeout);
    options.connect_timeout = timeout;
    let store = Store::new(options).expect("a store");
    assert_eq!(write(&store, "a").await, Outcome::Done);
    server.signal("STOP");
    let began = Instant::now();
    assert_eq!(write(&store, "a").await, Outcome::Unknown);
    assert!(began.elapsed() < timeout + AT_ONCE, "{:?}", began.elapsed());
    let commands = store.health().counts.commands;
    let began = Instant::now();
    let mut calls = 0;
    // Several intervals.
    while began.elapsed() < INTERVAL * 3 {
        let call = Instant::now();
        assert_eq!(write(&store, "a").await, Outcome::NotSent);
        assert!(call.elapsed() < timeout + AT_ONCE, "{:?}", call.elapsed());
        calls += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let counts = store.health().counts;
    assert!(calls > 10, "most are answered at once, but only {calls} were");
    assert_eq!(counts.commands, commands, "nothing is sent to who does not answer");
    assert_eq!(counts.writes_timed_out, 1);
    server.signal("CONT");
    assert_eq!(until_done(&store, "a").await, 0);
    // The server had the unknown one after all.
    assert_eq!(server.cli(&["GET", "a"]), "3");
}

#[tokio::test]
async fn a_black_hole_costs_one_timeout() {
    // C16: the system accepts for it, and nobody answers.
    let hole = TcpListener::bind("127.0.0.1:0").expect("a port");
    let timeout = Duration::from_millis(100);
    let mut options = options(vec![address(hole.local_addr().expect("an address").port())]);
    (options.connect_timeout, options.reconnect_interval) = (timeout, Duration::from_secs(60));
    let store = Store::new(options).expect("a store");
    let began = Instant::now();
    assert_eq!(write(&store, "a").await, Outcome::NotSent);
    assert!(began.elapsed() < timeout + AT_ONCE, "{:?}", began.elapsed());
    let began = Instant::now();
    for _ in 0..1000 {
        assert_eq!(write(&store, "a").await, Outcome::NotSent);
        assert_eq!(read(&store, "a").await, None);
    }
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    let health = store.health();
    assert_eq!(health.last_failure.map(|failure| failure.kind), Some(FailureKind::TimedOut));
    assert_eq!((health.counts.connects_failed, health.counts.commands), (1, 0));
}

#[tokio::test]
async fn calls_at_once_wait_together_for_the_first_connection() {
    let hole = TcpListener::bind("127.0.0.1:0").expect("a port");
    let timeout = Duration::from_millis(100);
    let mut options = options(vec![address(hole.local_addr().expect("an address").port())]);
    options.connect_timeout = timeout;
    let store = Store::new(options).expect("a store");
    let began = Instant::now();
    let outcomes = tokio::join!(write(&store, "a"), write(&store, "a"), write(&store, "a"));
    assert_eq!(outcomes, (Outcome::NotSent, Outcome::NotSent, Outcome::NotSent));
    assert!(began.elapsed() < timeout + AT_ONCE, "{:?}", began.elapsed());
    assert_eq!(store.health().counts.connects_failed, 1);
}

#[tokio::test]
async fn a_call_that_waits_for_others_too_long_is_not_sent() {
    let server = Server::start(&[]);
    let mut options = server.options();
    (options.commands_max, options.write_timeout) = (1, Duration::from_millis(200));
    let store = Store::new(options).expect("a store");
    assert_eq!(write(&store, "a").await, Outcome::Done);
    server.signal("STOP");
    let began = Instant::now();
    let waiting = async { (write(&store, "a").await, began.elapsed()) };
    let (first, (second, waited)) = tokio::join!(write(&store, "a"), waiting);
    assert_eq!((first, second), (Outcome::Unknown, Outcome::NotSent));
    assert!(waited < Duration::from_millis(100) + AT_ONCE, "{waited:?}");
    assert_eq!(store.health().counts.commands, 2);
}

#[tokio::test]
async fn a_server_that_is_emptied_counts_from_nothing() {
    let server = Server::start(&[]);
    let store = server.store();
    assert_eq!(write(&store, "a").await, Outcome::Done);
    server.cli(&["FLUSHALL"]);
    assert_eq!(read(&store, "a").await, Some(0));
    server.cli(&["SCRIPT", "FLUSH"]);
    assert_eq!(write(&store, "a").await, Outcome::Done);
    assert_eq!(read(&store, "a").await, Some(1));
    assert_ne!(server.cli(&["TTL", "a"]), "-1");
}

#[tokio::test]
async fn a_connection_that_was_killed_while_idle_is_not_noticed_by_a_call() {
    let server = Server::start(&[]);
    let store = server.store();
    assert_eq!(write(&store, "a").await, Outcome::Done);
    for _ in 0..3 {
        server.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
        assert_eq!(write(&store, "a").await, Outcome::Done);
    }
    assert_eq!(read(&store, "a").await, Some(4));
    assert_eq!(store.health().counts.connects, 4);
}

#[tokio::test]
async fn what_answers_but_is_no_such_server_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        use std::io::Write as _;
        let (mut stream, _) = listener.accept().expect("a client");
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("it listens");
        std::io::copy(&mut stream, &mut std::io::sink())
    });
    let store = Store::new(options(vec![address(port)])).expect("a store");
    assert_eq!(write(&store, "a").await, Outcome::NotSent);
    let kind = store.health().last_failure.map(|failure| failure.kind);
    assert_eq!(kind, Some(FailureKind::Protocol));
}
