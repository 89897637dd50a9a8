//! Connections that stall hold up nobody: not the others' answers, nor the daemon's memory.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::http::entries;
use crate::resp::command;
use crate::support::{Daemon, Http, Resp, TEN, connect, is_stuck};

/// A deadline that no answer misses unless it waits for somebody.
const DEADLINE: Duration = Duration::from_secs(20);

/// Sends until the other side takes no more.
fn stuff(mut stream: TcpStream, bytes: &[u8]) -> TcpStream {
    stream.set_write_timeout(Some(Duration::from_millis(100))).expect("a socket has a timeout");
    while stream.write(bytes).is_ok() {}
    stream
}

/// Fifty connections: requests whose end does not come, and replies that nobody takes.
fn stalled(daemon: &Daemon) -> Vec<TcpStream> {
    let (http, resp) = (daemon.door("http"), daemon.door("resp"));
    let begun = |door, bytes: &[u8]| {
        let mut stream = connect(door);
        stream.write_all(bytes).expect("sent");
        stream
    };
    let body = b"POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: 50\r\n\r\n{\"ent";
    let mut all = Vec::new();
    for _ in 0..11 {
        all.push(begun(http, b"POST /v1/check HTT"));
        all.push(begun(http, body));
        all.push(begun(resp, b"*6\r\n$11\r\nCL.THROTTLE\r\n$5\r\nto"));
        all.push(begun(resp, b"CL.THROTTLE to"));
    }
    let get = b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n".repeat(1_000);
    let info = b"INFO\r\n".repeat(10_000);
    for _ in 0..3 {
        all.push(stuff(connect(http), &get));
        all.push(stuff(connect(resp), &info));
    }
    assert_eq!(all.len(), 50);
    all
}

#[test]
fn with_fifty_stalled_connections_a_thousand_asks_are_answered_in_time_and_counted_once() {
    let daemon = Daemon::with(TEN, &["--request-seconds", "3600", "--threads", "2"]);
    let stalled = stalled(&daemon);
    let fresh = |door| {
        let stream = connect(daemon.door(door));
        stream.set_read_timeout(Some(DEADLINE)).expect("a socket has a timeout");
        stream
    };
    std::thread::scope(|scope| {
        // Each tenant is asked for 25 times, and 10 may pass.
        for client in 0..4 {
            let (mut http, mut resp) = (Http::new(fresh("http")), Resp::new(fresh("resp")));
            scope.spawn(move || {
                for n in 0..125 {
                    let name = format!("tenant {client} {}", n % 5);
                    let passes = n / 5 < 10;
                    let status = if passes { 200 } else { 429 };
                    assert_eq!(http.check(&name).status, status);
                    assert_eq!(resp.throttle(name.as_bytes()).left().0, passes);
                }
            });
        }
    });
    for face in ["http", "resp"] {
        let of = |decision: &str, reason: &str| {
            let labels = format!("face=\"{face}\",decision=\"{decision}\",reason=\"{reason}\"");
            daemon.metric(&format!("tollgate_decisions_total{{{labels}}}"))
        };
        assert_eq!((of("allowed", ""), of("denied", "over_limit")), (200, 300), "{face}");
    }
    drop(stalled);
    daemon.wait_for_metric("tollgate_connections{face=\"resp\"}", 0);
}

/// Sends on and on without reading, until it is closed.
fn flood(mut stream: TcpStream, bytes: &[u8]) {
    let error = loop {
        if let Err(error) = stream.write_all(bytes) {
            break error;
        }
    };
    assert!(!is_stuck(&error), "nobody ended it: {error}");
}

#[test]
fn replies_that_nobody_takes_are_bounded_and_end_their_connection() {
    let daemon = Daemon::with(TEN, &["--request-seconds", "1"]);
    let before = daemon.resident_bytes();
    let done = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let floods: Vec<_> = (0..8)
            .flat_map(|_| {
                let (http, resp) = (connect(daemon.door("http")), connect(daemon.door("resp")));
                let get = b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n".repeat(1_000);
                let info = b"INFO\r\n".repeat(10_000);
                [scope.spawn(move || flood(http, &get)), scope.spawn(move || flood(resp, &info))]
            })
            .collect();
        let done = &done;
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Relaxed) {
                most = most.max(daemon.resident_bytes());
                std::thread::sleep(Duration::from_millis(5));
            }
            most
        });
        for flood in floods {
            flood.join().expect("it was closed");
        }
        done.store(true, Relaxed);
        watcher.join().expect("a number")
    });
    // Replies to one read, at most 2 MiB and with room to grow twice that, for each of 16.
    let bound = 16 * (4 << 20);
    assert!(most < before + bound, "{} KiB more", most.saturating_sub(before) >> 10);
    for face in ["http", "resp"] {
        let series = format!("tollgate_request_errors_total{{face=\"{face}\",kind=\"timeout\"}}");
        daemon.wait_for_metric(&series, 8);
    }
    assert_eq!(daemon.http().check("acme").status, 200);
}

#[test]
fn ten_thousand_commands_in_one_write_have_ten_thousand_answers_in_order() {
    let daemon = Daemon::new(TEN);
    let stream = connect(daemon.door("resp"));
    let mut writer = stream.try_clone().expect("a second handle");
    let mut all = Vec::new();
    for n in 0..10_000 {
        let key = (n % 100).to_string();
        all.extend(command(&[b"CL.THROTTLE", key.as_bytes(), b"9", b"10", b"86400"]));
    }
    let sent = std::thread::spawn(move || writer.write_all(&all).expect("the connection is open"));
    let mut resp = Resp::new(stream);
    for n in 0..10_000_i64 {
        let round = n / 100;
        let [limited, limit, remaining, ..] = resp.reply().numbers();
        assert_eq!((limited, limit, remaining), (i64::from(round >= 10), 10, (9 - round).max(0)));
    }
    sent.join().expect("all were sent");
    assert_eq!(resp.ask("PING"), "+PONG");
    assert_eq!(
        daemon.metric("tollgate_decisions_total{face=\"resp\",decision=\"allowed\",reason=\"\"}"),
        1_000
    );
}

#[test]
fn a_client_that_reads_slowly_still_gets_every_answer() {
    let daemon = Daemon::new(TEN);
    let mut http = daemon.http();
    let one = crate::http::request("POST", "/v1/check", "", entries("acme", "").as_bytes());
    http.send(&one.repeat(200));
    let passed = (0..200).filter(|_| http.answer().status == 200).count();
    assert_eq!(passed, 10);
}
