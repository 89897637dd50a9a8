//! A cluster: both counters of a key are in one slot (C14), each node fails alone, and what a node
//! does not have is written once where it is.

use std::time::{Duration, Instant};

use tollgate::tally::{KeyName, Meets, Window};
use tollgate_redis::{Outcome, Store, StoreOptions, Topology};

use crate::server::{Server, addition, cli, free_port, options, read, until, until_done, write};

fn node() -> Server {
    let bus = free_port().to_string();
    Server::start(&[
        "--cluster-enabled",
        "yes",
        "--cluster-port",
        &bus,
        "--cluster-node-timeout",
        "1000",
        "--cluster-require-full-coverage",
        "no",
    ])
}

/// Three nodes that share the slots.
pub(crate) async fn cluster() -> [Server; 3] {
    let servers = [0; 3].map(|_| node());
    let addresses: Vec<String> = servers.iter().map(|one| one.address().to_string()).collect();
    let mut words = vec!["--cluster", "create"];
    words.extend(addresses.iter().map(String::as_str));
    words.push("--cluster-yes");
    let said = cli(&words);
    assert!(said.contains("All 16384 slots covered"), "{said}");
    until("all nodes serve", || async {
        let ok = |one: &Server| one.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok");
        servers.iter().all(ok).then_some(())
    })
    .await;
    servers
}

pub(crate) fn store_of(server: &Server) -> Store {
    let options = options(vec![server.address()]);
    Store::new(StoreOptions { topology: Topology::Cluster, ..options }).expect("a store")
}

/// The counter of a key in the window of this number.
fn counter(value: &[u8], number: u64) -> String {
    let minute = Duration::from_secs(60);
    let window = Window::new(1, minute, Meets::Passes).expect("a window");
    KeyName::new(&[Some(value)]).counter("t", &window, number)
}

/// Names, of which each node has some.
fn names() -> Vec<String> {
    (0..30).map(|number| counter(number.to_string().as_bytes(), 7)).collect()
}

#[tokio::test]
async fn both_counters_of_a_key_are_written_and_read_whatever_the_key_is_made_of() {
    let servers = cluster().await;
    let store = store_of(&servers[0]);
    let mut names: Vec<[String; 2]> = Vec::new();
    for value in ["plain", "a}b", "{x}", "{}", ""] {
        names.push([6, 7].map(|window| counter(value.as_bytes(), window)));
    }
    names
        .extend((0..100).map(|number: u32| {
            [6, 7].map(|window| counter(number.to_string().as_bytes(), window))
        }));
    let additions: Vec<_> = names
        .iter()
        .enumerate()
        .flat_map(|(place, [previous, current])| {
            let units = i64::try_from(place).expect("few") + 1;
            [addition(previous, units), addition(current, units * 10)]
        })
        .collect();
    assert_eq!(store.write(&additions).await, vec![Outcome::Done; names.len() * 2]);
    let wanted: Vec<_> = (1..=names.len() as u64).map(|units| Some((units, units * 10))).collect();
    assert_eq!(store.read(&names).await, wanted);
    let health = store.health();
    assert_eq!((health.servers.len(), health.counts.refused.cluster), (3, 0));
    assert!(health.is_connected() && health.last_failure.is_none(), "{health:?}");
}

#[tokio::test]
async fn a_node_that_is_killed_takes_only_its_own_counters_along() {
    let mut servers = cluster().await;
    let store = store_of(&servers[0]);
    let names = names();
    let additions: Vec<_> = names.iter().map(|name| addition(name, 1)).collect();
    assert_eq!(store.write(&additions).await, vec![Outcome::Done; 30]);
    // The one that was asked where counters are.
    servers[0].kill();
    let began = Instant::now();
    let first = store.write(&additions).await;
    let lost = first.iter().filter(|outcome| **outcome != Outcome::Done).count();
    assert!((1..30).contains(&lost), "{first:?}");
    until("it is known to be gone", || async {
        let outcomes = store.write(&additions).await;
        let is_known = |outcome: &Outcome| matches!(outcome, Outcome::Done | Outcome::NotSent);
        let kept = outcomes.iter().filter(|outcome| **outcome == Outcome::Done).count();
        assert_eq!(kept, 30 - lost, "those of the other nodes are there each time");
        outcomes.iter().all(is_known).then_some(())
    })
    .await;
    let pairs: Vec<_> = names.iter().map(|name| [name.clone(), name.clone()]).collect();
    let counts = store.read(&pairs).await;
    assert_eq!(counts.iter().filter(|pair| pair.is_none()).count(), lost);
    assert!(began.elapsed().as_secs() < 5);
    // It comes back empty, but for where it stands in the cluster.
    servers[0].restart();
    until("all are written", || async {
        let outcomes = store.write(&additions).await;
        (outcomes == vec![Outcome::Done; 30]).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_replica_that_takes_over_is_found() {
    let mut servers = cluster().await;
    let replica = node();
    let [primary_at, replica_at] = [&servers[0], &replica].map(|one| one.address().to_string());
    let id = servers[0].cli(&["CLUSTER", "MYID"]);
    let add = ["--cluster", "add-node", &replica_at, &primary_at, "--cluster-slave"];
    let said = cli(&[&add[..], &["--cluster-master-id", &id]].concat());
    assert!(said.contains("New node added correctly"), "{said}");
    until("the replica follows", || async {
        replica.cli(&["INFO", "replication"]).contains("master_link_status:up").then_some(())
    })
    .await;
    let store = store_of(&servers[0]);
    let additions: Vec<_> = names().iter().map(|name| addition(name, 1)).collect();
    assert_eq!(store.write(&additions).await, vec![Outcome::Done; 30]);
    servers[0].kill();
    until("all are written", || async {
        let outcomes = store.write(&additions).await;
        (outcomes == vec![Outcome::Done; 30]).then_some(())
    })
    .await;
    let in_use: Vec<String> =
        store.health().servers.into_iter().map(|server| server.address).collect();
    assert!(in_use.contains(&replica_at) && !in_use.contains(&primary_at), "{in_use:?}");
    assert!(store.health().is_connected());
}

#[tokio::test]
async fn a_server_that_is_in_no_cluster_is_told() {
    let server = Server::start(&[]);
    let store = store_of(&server);
    assert_eq!(write(&store, "a").await, Outcome::NotSent);
    assert_eq!(read(&store, "a").await, None);
    let text = store.health().last_failure.expect("a failure").text;
    assert!(text.contains("cluster support disabled"), "{text}");
}

#[tokio::test]
async fn a_counter_whose_slot_moved_is_written_once() {
    let servers = cluster().await;
    let name = counter(b"moving", 7);
    let slot = servers[0].cli(&["CLUSTER", "KEYSLOT", &name]);
    let store = store_of(&servers[0]);
    assert_eq!(write(&store, &name).await, Outcome::Done);
    let has = |one: &&Server| one.cli(&["GET", &name]) == "1";
    let from = servers.iter().find(has).expect("an owner");
    let to = servers.iter().find(|one| one.port != from.port).expect("another");
    let [from_id, to_id] = [from, to].map(|one| one.cli(&["CLUSTER", "MYID"]));
    let set_slot = |one: &Server, how: &str, id: &str| {
        assert_eq!(one.cli(&["CLUSTER", "SETSLOT", &slot, how, id]), "OK");
    };
    set_slot(to, "IMPORTING", &from_id);
    set_slot(from, "MIGRATING", &to_id);
    let port = to.port.to_string();
    assert_eq!(from.cli(&["MIGRATE", "127.0.0.1", &port, &name, "0", "5000"]), "OK");
    // It has left, and its slot has not: whom it went to is not asked out of turn.
    assert_eq!(write(&store, &name).await, Outcome::NotSent);
    assert_eq!(store.health().counts.refused.cluster, 1);
    for one in &servers {
        set_slot(one, "NODE", &to_id);
    }
    assert_eq!(until_done(&store, &name).await, 0);
    assert_eq!(read(&store, &name).await, Some(2));
    assert_eq!(to.cli(&["GET", &name]), "2");
    assert_ne!(to.cli(&["TTL", &name]), "-1");
}
