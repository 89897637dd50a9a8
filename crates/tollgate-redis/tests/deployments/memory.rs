//! A server whose memory is full (C17): it refuses, or forgets, and which is told.

use std::io;
use std::sync::{Arc, Mutex};

use tollgate_redis::Outcome;

use crate::server::{Server, read, write};

#[tokio::test]
async fn a_full_server_that_evicts_nothing_takes_no_additions_and_is_read() {
    let server = Server::start(&[]);
    let store = server.store();
    assert_eq!(write(&store, "a").await, Outcome::Done);
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(write(&store, "a").await, Outcome::NotSent);
    assert_eq!(read(&store, "a").await, Some(1));
    let health = store.health();
    assert_eq!(health.counts.refused.oom, 1);
    assert!(health.is_connected() && health.servers[0].may_evict.is_none());
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(write(&store, "a").await, Outcome::Done);
    assert_eq!(server.cli(&["GET", "a"]), "2");
}

#[tokio::test]
async fn a_server_that_may_evict_is_warned_of_once() {
    let log = Log::default();
    let here = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || here.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);

    let server = Server::start(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let store = server.store();
    assert_eq!(write(&store, "a").await, Outcome::Done);
    server.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    assert_eq!(write(&store, "a").await, Outcome::Done);
    let health = store.health();
    assert_eq!(health.servers[0].may_evict.as_deref(), Some("allkeys-lru"));
    assert_eq!(health.servers[0].maxmemory, 100 * 1024 * 1024);
    let text = log.0.lock().expect("no panic").clone();
    let text = String::from_utf8(text).expect("text");
    assert_eq!(text.matches("may evict counters").count(), 1, "{text}");
    assert!(text.contains("policy=\"allkeys-lru\""), "{text}");
}

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
