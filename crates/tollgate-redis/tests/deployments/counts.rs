//! What is written is read, exactly, and expires when it is to.

use std::time::Instant;

use tollgate_redis::{Addition, Outcome, Store};

use crate::server::{Server, addition, in_an_hour, read, until, write};

#[tokio::test]
async fn what_is_written_is_read() {
    let server = Server::start(&[]);
    let store = server.store();
    let additions = [addition("a", 3), addition("b", 4), addition("a", 5)];
    assert_eq!(store.write(&additions).await, [Outcome::Done; 3]);
    let pair = |one: &str, other: &str| [one.to_owned(), other.to_owned()];
    let names = [pair("a", "b"), pair("missing", "a")];
    assert_eq!(store.read(&names).await, [Some((8, 4)), Some((0, 8))]);
    assert_eq!(store.write(&[]).await, []);
    assert_eq!(store.read(&[]).await, []);
    let health = store.health();
    assert!(health.is_connected() && health.last_failure.is_none(), "{health:?}");
    assert_eq!((health.counts.commands, health.counts.connects), (2, 1));
    assert!(health.latency.is_some() && !health.servers[0].version.is_empty());
}

#[tokio::test]
async fn a_counter_expires_when_it_was_said_and_no_later_for_being_written_again() {
    let server = Server::start(&[]);
    let store = server.store();
    let expires_at = in_an_hour();
    for _ in 0..2 {
        let name = "a".to_owned();
        let addition = Addition { name, units: 1, expires_at };
        assert_eq!(store.write(&[addition]).await, [Outcome::Done]);
        // C12: seconds, neither milliseconds nor a time from now.
        assert_eq!(server.cli(&["EXPIRETIME", "a"]), expires_at.to_string());
    }
}

#[tokio::test]
async fn a_counter_without_an_expiry_gets_one_with_the_first_addition() {
    // C11: as after a crash between the increment and the expiry.
    let server = Server::start(&[]);
    server.cli(&["SET", "a", "10"]);
    assert_eq!(server.cli(&["TTL", "a"]), "-1");
    let addition = addition("a", 1);
    let expires_at = addition.expires_at.to_string();
    assert_eq!(server.store().write(&[addition]).await, [Outcome::Done]);
    assert_eq!(server.cli(&["GET", "a"]), "11");
    assert_eq!(server.cli(&["EXPIRETIME", "a"]), expires_at);
}

#[tokio::test]
async fn a_key_that_is_no_counter_refuses_and_harms_no_other() {
    let server = Server::start(&[]);
    server.cli(&["RPUSH", "list", "1"]);
    server.cli(&["SET", "word", "x"]);
    server.cli(&["SET", "full", &i64::MAX.to_string()]);
    server.cli(&["SET", "negative", "-5"]);
    server.cli(&["SETRANGE", "long", "10000000", "1"]);
    let store = server.store();
    let names = ["list", "word", "full", "a"];
    let additions = names.map(|name| addition(name, 1));
    let refused = Outcome::Refused;
    assert_eq!(store.write(&additions).await, [refused, refused, refused, Outcome::Done]);
    assert_eq!(store.health().counts.refused.value, 3);
    let full = u64::try_from(i64::MAX).expect("positive");
    for (name, count) in [("list", 0), ("word", 0), ("full", full), ("negative", 0), ("long", 0)] {
        assert_eq!(read(&store, name).await, Some(count), "{name}");
    }
    assert_eq!(read(&store, "a").await, Some(1), "the connection is as good as before");
}

#[tokio::test]
async fn calls_at_once_have_connections_of_their_own_and_no_more_than_permitted() {
    let server = Server::start(&[]);
    let store = std::sync::Arc::new(server.store());
    let calls: Vec<_> = (0..40)
        .map(|_| {
            let store = std::sync::Arc::clone(&store);
            tokio::spawn(async move { write(&store, "a").await })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.expect("no panic"), Outcome::Done);
    }
    assert_eq!(read(&store, "a").await, Some(40));
    let connects = store.health().counts.connects;
    assert!((1..=4).contains(&connects), "{connects} connections");
}

#[tokio::test]
async fn a_call_that_is_dropped_leaves_no_reply_to_another() {
    let server = Server::start(&[]);
    let store = server.store();
    assert_eq!(write(&store, "a").await, Outcome::Done);
    for _ in 0..20 {
        let additions = [addition("a", 100)];
        tokio::select! {
            biased;
            _ = store.write(&additions) => {}
            () = tokio::task::yield_now() => {}
        }
        assert_eq!(read(&store, "b").await, Some(0));
    }
}

#[tokio::test]
async fn ten_thousand_counters_are_written_and_read_in_chunks() {
    let server = Server::start(&[]);
    let store = server.store();
    let name = |number: usize, window: u64| format!("tollgate:api:{{tenant-{number}}}:{window}");
    let additions: Vec<_> = (0..10_000).map(|number| addition(&name(number, 7), 2)).collect();
    let began = Instant::now();
    for chunk in additions.chunks(2_000) {
        assert_eq!(store.write(chunk).await, vec![Outcome::Done; 2_000]);
    }
    let written = began.elapsed();
    let names: Vec<_> = (0..10_000).map(|number| [name(number, 6), name(number, 7)]).collect();
    let began = Instant::now();
    for chunk in names.chunks(2_000) {
        assert_eq!(store.read(chunk).await, vec![Some((0, 2)); 2_000]);
    }
    println!("10 000 written in {written:?}, read in {:?}", began.elapsed());
}

#[tokio::test]
async fn a_unix_socket_and_a_database_are_used_as_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("socket");
    let path = socket.to_str().expect("a path of letters");
    let server = Server::start(&["--unixsocket", path]);
    let mut options =
        tollgate_redis::StoreOptions::from_urls(&[format!("unix://{path}")]).expect("options");
    options.database = 3;
    let store = Store::new(options).expect("a store");
    until("the socket", || async { socket.exists().then_some(()) }).await;
    assert_eq!(write(&store, "a").await, Outcome::Done);
    assert_eq!(server.cli(&["-n", "3", "GET", "a"]), "1");
    assert_eq!(store.health().servers[0].address, path);
}
