//! The task that counts for a process: how it starts and ends, and that it tells how it fares.

use std::time::{Duration, Instant};

use tollgate::tally::WorkerOptions;
use tollgate::{LimitSpec, Limiter, Options, TallyOptions};
use tollgate_redis::{StartError, StoreError, StoreOptions, Tally};

use crate::node::{TALLY, ask, limits};
use crate::process::{Process, TICK, sum, worker};
use crate::server::{Server, address, until};

/// Windows whose edge is seldom met; sums are over all of them.
const MINUTE: LimitSpec<'static> = LimitSpec { rate: "1000/60s", ..TALLY };

const HOUR: Duration = Duration::from_secs(3_600);
const PATIENCE: Duration = Duration::from_secs(15);

/// A process that has had its first tick, and is not to have another.
async fn between_ticks(server: &Server) -> Process {
    let worker = WorkerOptions { tick: HOUR, ..worker() };
    let process = Process::start(vec![server.options()], &[MINUTE], worker);
    assert_eq!(process.passed("first", 1), 1);
    process.status(0).await;
    process
}

#[tokio::test]
async fn a_stop_writes_what_waits() {
    let server = Server::start(&[]);
    let process = between_ticks(&server).await;
    assert_eq!(process.passed("acme", 7), 7);
    assert_eq!(sum(&server, "acme"), 0);
    process.tally.stop(PATIENCE).await;
    assert_eq!((sum(&server, "acme"), sum(&server, "first")), (7, 1));
}

#[tokio::test]
async fn whoever_else_stops_it_waits_too_and_cuts_nothing_short() {
    let server = Server::start(&[]);
    let process = between_ticks(&server).await;
    assert_eq!(process.passed("acme", 7), 7);
    tokio::join!(process.tally.stop(PATIENCE), process.tally.stop(PATIENCE));
    assert_eq!(sum(&server, "acme"), 7);
    process.tally.stop(PATIENCE).await;
}

#[tokio::test]
async fn a_stop_ends_when_it_is_to_though_nothing_can_be_written() {
    let mut server = Server::start(&[]);
    let process = between_ticks(&server).await;
    server.kill();
    assert_eq!(process.passed("acme", 7), 7);
    let began = Instant::now();
    process.tally.stop(Duration::from_millis(300)).await;
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(300) && took < PATIENCE, "{took:?}");
    // Requests are decided on.
    assert!(ask(&process.limiter, "acme", 1).is_allowed());
}

#[tokio::test]
async fn a_task_that_is_dropped_ends_and_closes_its_connections() {
    let server = Server::start(&[]);
    let Process { limiter, tally } = Process::start(vec![server.options()], &[MINUTE], worker());
    assert!(ask(&limiter, "acme", 1).is_allowed());
    until("it is counted", || async { (sum(&server, "acme") == 1).then_some(()) }).await;
    let clients = || server.cli(&["CLIENT", "LIST"]).lines().count();
    assert!(clients() > 1, "besides who asks");
    drop(tally);
    until("nobody is connected", || async { (clients() == 1).then_some(()) }).await;
    assert!(ask(&limiter, "acme", 1).is_allowed());
    assert_eq!(sum(&server, "acme"), 1);
}

#[tokio::test]
async fn what_can_not_be_counted_in_does_not_start() {
    let with = |tally| {
        let options = Options { keys_max: 1_000, tally, ..Options::default() };
        Limiter::new(limits(&[MINUTE]), options).expect("sound limits")
    };
    let start = |limiter: &Limiter, stores| {
        Tally::start(limiter, stores, TallyOptions::default()).map(|_| ()).expect_err("no store")
    };
    let store = StoreOptions::new(vec![address(1)]);
    let limiter = with(true);
    assert_eq!(start(&limiter, Vec::new()), StartError::NoStore);
    assert_eq!(start(&with(false), vec![store.clone()]), StartError::NoCells);
    let nowhere = StoreOptions::new(Vec::new());
    let error = start(&limiter, vec![store, nowhere]);
    assert_eq!(error, StartError::Store(1, StoreError::NoAddress));
    assert_eq!(error.to_string(), "store 2: a store needs an address");
}

#[tokio::test]
async fn its_status_is_what_was_asked_of_it() {
    let server = Server::start(&[]);
    let worker = WorkerOptions { floor: 10, ..worker() };
    let process = Process::start(vec![server.options()], &[MINUTE], worker);
    for (tenant, units) in [("idle", 9), ("low", 300), ("normal", 600), ("hot", 900)] {
        assert!(ask(&process.limiter, tenant, units).is_allowed());
    }
    let status = until("all are counted and read", || async {
        let status = process.status(0).await;
        (status.keys == 4 && status.waiting == 0 && status.counts.read == 3).then_some(status)
    })
    .await;
    // What was counted leaks: 17 units in a second.
    assert_eq!((status.keys, status.waiting, status.due), (4, 0, 0));
    assert_eq!(status.tiers[..2], [1, 1], "{status:?}");
    assert_eq!((status.counts.written, status.counts.read), (1_809, 3));
    let counts = status.counts;
    assert_eq!(counts.unknown + counts.dropped + counts.refused + counts.late, 0);
    assert!(status.health.is_connected() && status.silent_for.is_none(), "{status:?}");
    let sizes = status.meters.write_sizes;
    assert_eq!(sizes.sum, 4.0);
    let of = |counts: &[u64], above: u64| counts.iter().sum::<u64>() + above;
    let commands = of(&sizes.counts, sizes.above);
    let writes = status.meters.writes;
    assert!((1..=4).contains(&commands));
    assert_eq!(of(&writes.counts, writes.above), commands);
    assert_eq!(process.tally.status().nameless, 0);
    assert!(format!("{:?}", process.tally).contains("written: 1809"));
}

#[tokio::test]
async fn its_status_says_for_how_long_a_store_was_silent_and_what_waits() {
    let mut server = Server::start(&[]);
    let process = Process::start(vec![server.options()], &[MINUTE], worker());
    assert_eq!(process.passed("acme", 100), 100);
    until("it is counted", || async { (sum(&server, "acme") == 100).then_some(()) }).await;
    server.kill();
    assert_eq!(process.passed("acme", 500), 500);
    assert_eq!(process.passed("other", 500), 500);
    let status = until("it is silent", || async {
        let status = process.status(0).await;
        status.silent_for.filter(|silent| *silent > TICK * 4).map(|_| status)
    })
    .await;
    assert!(!status.health.is_connected() && status.health.last_failure.is_some());
    assert!((1..=4).contains(&status.waiting), "{status:?}");
    assert!(status.counts.read_failed > 1 && status.counts.written == 100, "{status:?}");
    server.restart();
    let status = until("it is not", || async {
        let status = process.status(0).await;
        (status.silent_for.is_none() && status.waiting == 0).then_some(status)
    })
    .await;
    let (counts, stored) = (status.counts, sum(&server, "acme") + sum(&server, "other"));
    // What was sent to a server that was gone by then may be there, and is not sent again.
    assert_eq!(counts.written + counts.unknown, 1_100);
    assert_eq!(stored, counts.written - 100);
}

/// A second one would take half of what cells tell from the first; and of keys that have a cell it
/// would not know the names, so that what they count would be lost.
#[tokio::test]
async fn a_limiter_is_counted_by_one_task_in_its_life() {
    let server = Server::start(&[]);
    let Process { limiter, tally } = Process::start(vec![server.options()], &[MINUTE], worker());
    let again = || {
        let stores = vec![server.options()];
        Tally::start(&limiter, stores, TallyOptions::default()).map(|_| ()).expect_err("a second")
    };
    assert_eq!(again(), StartError::Taken);
    assert!(ask(&limiter, "acme", 7).is_allowed());
    tally.stop(PATIENCE).await;
    assert_eq!(sum(&server, "acme"), 7);
    assert_eq!(again(), StartError::Taken);
}

/// What is nobody's part when there is one node is nothing when there are a thousand.
#[tokio::test]
async fn of_how_many_nodes_each_has_a_part_can_be_told_at_any_time() {
    let mut server = Server::start(&[]);
    let limit = LimitSpec { on_stale: Some("share"), ..MINUTE };
    let process = Process::start(vec![server.options()], &[limit], worker());
    assert_eq!(process.passed("acme", 100), 100);
    until("it is counted", || async { (sum(&server, "acme") == 100).then_some(()) }).await;
    server.kill();
    until("the outage is one", || async {
        assert_eq!(process.passed("acme", 1), 1);
        let silent = process.status(0).await.silent_for;
        silent.filter(|silent| *silent > TICK * 10)
    })
    .await;
    process.tally.set_nodes(1_000);
    until("each has a thousandth", || async { (process.passed("acme", 1) == 0).then_some(()) })
        .await;
}
