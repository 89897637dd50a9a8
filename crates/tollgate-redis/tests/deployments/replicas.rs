//! A primary and its replicas (C15): whoever says it is the primary is written to, also when that
//! is another; while there is none, a replica is read.

use std::time::Instant;

use tollgate_redis::{Address, Outcome, Role, Store, StoreOptions, Topology};

use crate::server::{INTERVAL, Server, cli, free_port, options, read, until, until_done, write};

/// Makes a server follow another, and waits until it has all of it.
pub(crate) async fn follow(replica: &Server, primary: &Server) {
    replica.cli(&["REPLICAOF", "127.0.0.1", &primary.port.to_string()]);
    until("the replica follows", || async {
        replica.cli(&["INFO", "replication"]).contains("master_link_status:up").then_some(())
    })
    .await;
}

fn store_of(servers: &[&Server]) -> Store {
    let addresses: Vec<Address> = servers.iter().map(|server| server.address()).collect();
    Store::new(options(addresses)).expect("a store")
}

fn server_in_use(store: &Store) -> (String, Role) {
    let server = store.health().servers[0].clone();
    (server.address, server.role)
}

#[tokio::test]
async fn a_primary_that_becomes_a_replica_is_read_and_written_again_when_it_is_primary() {
    let (server, other) = (Server::start(&[]), Server::start(&[]));
    let store = store_of(&[&server]);
    assert_eq!(write(&store, "a").await, Outcome::Done);
    other.cli(&["SET", "a", "7"]);
    follow(&server, &other).await;
    assert_eq!(write(&store, "a").await, Outcome::NotSent);
    assert_eq!(store.health().counts.refused.readonly, 1);
    assert_eq!(read(&store, "a").await, Some(7));
    let began = Instant::now();
    while began.elapsed() < INTERVAL * 2 {
        assert_eq!(write(&store, "a").await, Outcome::NotSent);
        assert_eq!(read(&store, "a").await, Some(7));
    }
    assert_eq!(store.health().counts.refused.readonly, 1, "it is not tried again for nothing");
    assert_eq!(server_in_use(&store).1, Role::Replica);
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(until_done(&store, "a").await, 0);
    assert_eq!(server_in_use(&store).1, Role::Primary);
    assert_eq!(server.cli(&["GET", "a"]), "8");
}

#[tokio::test]
async fn the_primary_is_found_among_the_addresses_when_it_is_another() {
    let (first, second) = (Server::start(&[]), Server::start(&[]));
    follow(&second, &first).await;
    let store = store_of(&[&second, &first]);
    assert_eq!(write(&store, "a").await, Outcome::Done);
    assert_eq!(server_in_use(&store), (first.address().to_string(), Role::Primary));
    until("the replica has it", || async { (second.cli(&["GET", "a"]) == "1").then_some(()) })
        .await;
    // The two change places, and no connection is closed by it.
    second.cli(&["REPLICAOF", "NO", "ONE"]);
    follow(&first, &second).await;
    assert_eq!(until_done(&store, "a").await, 0);
    assert_eq!(server_in_use(&store), (second.address().to_string(), Role::Primary));
    assert_eq!(second.cli(&["GET", "a"]), "2");
}

#[tokio::test]
async fn of_two_that_say_they_are_primary_the_first_is_used() {
    let (first, second) = (Server::start(&[]), Server::start(&[]));
    for _ in 0..5 {
        let store = store_of(&[&first, &second]);
        assert_eq!(write(&store, "a").await, Outcome::Done);
    }
    assert_eq!(first.cli(&["GET", "a"]), "5");
}

#[tokio::test]
async fn a_replica_is_read_after_its_primary_was_killed_and_written_when_it_is_promoted() {
    let (mut primary, replica) = (Server::start(&[]), Server::start(&[]));
    follow(&replica, &primary).await;
    let store = store_of(&[&primary, &replica]);
    assert_eq!(write(&store, "a").await, Outcome::Done);
    until("the replica has it", || async { (replica.cli(&["GET", "a"]) == "1").then_some(()) })
        .await;
    primary.kill();
    until("the replica is read", || async { read(&store, "a").await }).await;
    assert_eq!(read(&store, "a").await, Some(1));
    assert_eq!(write(&store, "a").await, Outcome::NotSent);
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(until_done(&store, "a").await, 0);
    assert_eq!(read(&store, "a").await, Some(2));
}

#[tokio::test]
async fn sentinels_are_asked_for_the_primary_again_when_it_was_killed() {
    let (mut primary, replica) = (Server::start(&[]), Server::start(&[]));
    follow(&replica, &primary).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("sentinel.conf");
    let text = format!(
        "sentinel monitor main 127.0.0.1 {} 1\nsentinel down-after-milliseconds main 500\n\
         sentinel failover-timeout main 2000\n",
        primary.port
    );
    std::fs::write(&file, text).expect("a file");
    let port = free_port();
    let port_text = port.to_string();
    let path = file.to_str().expect("a path of letters");
    let sentinel = Server::sentinel(port, path);
    until("the sentinel knows the replica", || async {
        cli(&["-p", &port_text, "SENTINEL", "REPLICAS", "main"])
            .contains(&replica.port.to_string())
            .then_some(())
    })
    .await;
    let topology = |service: &str| {
        let service = service.to_owned();
        Topology::Sentinel { service, username: None, password: None }
    };
    let options = |service| {
        let topology = topology(service);
        StoreOptions { topology, ..options(vec![sentinel.address()]) }
    };
    let store = Store::new(options("main")).expect("a store");
    assert_eq!(write(&store, "a").await, Outcome::Done);
    assert_eq!(server_in_use(&store), (primary.address().to_string(), Role::Primary));
    until("the replica has it", || async { (replica.cli(&["GET", "a"]) == "1").then_some(()) })
        .await;
    primary.kill();
    let unknown = until_done(&store, "a").await;
    assert_eq!(server_in_use(&store), (replica.address().to_string(), Role::Primary));
    let counted = read(&store, "a").await.expect("a count");
    assert!((2..=2 + unknown).contains(&counted), "{counted}");

    let other = Store::new(options("other")).expect("a store");
    assert_eq!(write(&other, "a").await, Outcome::NotSent);
    let text = other.health().last_failure.expect("a failure").text;
    assert!(text.ends_with("knows no other"), "{text}");
}
