//! Several stores: a key is counted in one of them, and what is wrong with one of them is no
//! matter to the keys of others.

use std::time::Duration;

use tollgate::LimitSpec;
use tollgate::tally::{KeyName, WorkerOptions};
use tollgate_redis::StoreOptions;

use crate::node::{Node, TALLY, counter};
use crate::process::{Process, sum, worker};
use crate::server::{Server, until, until_done};

/// A tenant of each of so many stores.
fn tenants(stores: usize) -> Vec<String> {
    let is_of =
        |tenant: &String, store| KeyName::new(&[Some(tenant.as_bytes())]).store_of(stores) == store;
    let tenant = |store| (0..).map(|number| number.to_string()).find(|one| is_of(one, store));
    (0..stores).map(|store| tenant(store).expect("one of many")).collect()
}

fn servers() -> [Server; 3] {
    [0; 3].map(|_| Server::start(&[]))
}

#[tokio::test]
async fn while_one_store_is_dead_others_are_written_and_read_with_each_tick() {
    let mut servers = servers();
    let stores = servers.iter().map(Server::store).collect();
    let floor = WorkerOptions { floor: 1, ..WorkerOptions::default() };
    let mut node = Node::over(stores, &[TALLY], floor);
    let tenants = tenants(3);
    for tenant in &tenants {
        assert_eq!(node.passed(tenant, 100), 100);
    }
    node.turn().await;
    servers[1].kill();
    for second in 1..=8_u64 {
        node.log.clear();
        for tenant in &tenants {
            // Each second a tenth of the limit: about what leaks.
            assert_eq!(node.passed(tenant, 100), 100, "at {second} s");
        }
        node.pass(1_000).await;
        let written: Vec<usize> =
            node.log.iter().filter(|one| one.0 == "write").map(|one| one.1).collect();
        assert_eq!(written, [0, 1, 2], "at {second} s");
        for store in [0, 2] {
            let name = counter(&tenants[store], 10, 0);
            assert_eq!(servers[store].cli(&["GET", &name]), ((second + 1) * 100).to_string());
        }
    }
    let counts: Vec<_> = node.tally.workers().iter().map(|worker| worker.counts()).collect();
    assert_eq!(counts[0].read, counts[2].read);
    assert!(counts[0].read >= 4 && counts[1].read_failed >= 4, "{counts:?}");
    assert_eq!((counts[0].read_failed, counts[2].read_failed), (0, 0));
    // What waited is written when it is back, each unit once.
    servers[1].restart();
    until_done(&node.stores[1], "probe").await;
    node.pass(1_000).await;
    let stored = servers[1].cli(&["GET", &counter(&tenants[1], 10, 0)]);
    let unknown = node.tally.workers()[1].counts().unknown;
    assert_eq!(stored, (800 - unknown).to_string());
}

/// One command of the store that is stopped is waited for all the time.
#[tokio::test]
async fn a_store_that_is_stopped_slows_no_other_down() {
    let servers = servers();
    let minute = Duration::from_secs(60);
    let patient = |server: &Server| StoreOptions {
        read_timeout: minute,
        write_timeout: minute,
        ..server.options()
    };
    let hour = LimitSpec { rate: "1000000/1h", ..TALLY };
    let process = Process::start(servers.iter().map(patient).collect(), &[hour], worker());
    let tenants = tenants(3);
    let ask_all = || tenants.iter().for_each(|tenant| assert_eq!(process.passed(tenant, 1), 1));
    ask_all();
    until("all count", || async {
        servers.iter().zip(&tenants).all(|(server, tenant)| sum(server, tenant) == 1).then_some(())
    })
    .await;
    servers[1].signal("STOP");
    ask_all();
    until("a command waits", || async { (process.status(1).await.waiting == 1).then_some(()) })
        .await;
    let ticks = |status: &tollgate_redis::StoreStatus| {
        status.meters.ticks.counts.iter().sum::<u64>() + status.meters.ticks.above
    };
    let before = ticks(&process.status(1).await);
    for round in 0..10 {
        ask_all();
        until("the others count", || async {
            let counts = [0, 2].map(|store| sum(&servers[store], &tenants[store]));
            (counts == [round + 3; 2]).then_some(())
        })
        .await;
    }
    // Of the one that is stopped not one tick came to its end meanwhile.
    assert_eq!(ticks(&process.status(1).await), before);
    servers[1].signal("CONT");
    until("all are counted", || async { (sum(&servers[1], &tenants[1]) == 12).then_some(()) })
        .await;
}
