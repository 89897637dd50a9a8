//! How a daemon ends: no request that was sent is cut, and a successor can take its place.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::Scope;
use std::time::Instant;

use serde_json::Value;

use crate::http::{entries, request};
use crate::resp::command;
use crate::support::{Daemon, Http, PATIENCE, Resp, TEN, connect, read_to_end, says, wait_until};

/// Clients that ask until they are told to stop, or their connection ends.
#[derive(Default)]
struct Load {
    answered: AtomicU64,
    stop: AtomicBool,
}

impl Load {
    /// An HTTP client on one connection. Returns whether the last answer said that it is the last.
    fn http(&self, mut http: Http) -> bool {
        let one = request("POST", "/v1/check", "", entries("acme", "").as_bytes());
        while !self.stop.load(Relaxed) {
            http.send_some(&one);
            // An answer that is cut short is an error here.
            let Some(answer) = http.try_answer().expect("a whole answer or none") else {
                return false;
            };
            assert!([200, 429].contains(&answer.status));
            self.answered.fetch_add(1, Relaxed);
            if answer.header("connection") == Some("close") {
                assert_eq!(http.rest(), b"", "closed behind it");
                return true;
            }
        }
        false
    }

    fn resp(&self, mut resp: Resp) {
        let one = command(&[b"CL.THROTTLE", b"k", b"9", b"10", b"86400"]);
        while !self.stop.load(Relaxed) {
            resp.send_some(&one);
            let Some(reply) = resp.try_reply().expect("a whole reply or none") else { return };
            assert_eq!(reply.numbers()[1], 10);
            self.answered.fetch_add(1, Relaxed);
        }
    }

    /// Waits until so many more are answered.
    fn wait_for(&self, more: u64) {
        let before = self.answered.load(Relaxed);
        wait_until("answers", || self.answered.load(Relaxed) >= before + more);
    }
}

#[test]
fn under_load_every_request_is_answered_whole_or_not_at_all_and_the_end_is_in_time() {
    let mut daemon = Daemon::with(TEN, &["--drain-seconds", "2"]);
    let load = Load::default();
    let told = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (http, resp) = (daemon.http(), daemon.resp());
            let (load, told) = (&load, &told);
            scope.spawn(move || told.fetch_add(u64::from(load.http(http)), Relaxed));
            scope.spawn(move || load.resp(resp));
        }
        load.wait_for(200);
        let started = Instant::now();
        daemon.signal("TERM");
        assert_eq!(daemon.wait().code(), Some(0));
        // It was told 2 seconds; the rest is for a machine that is busy with other things.
        assert!(started.elapsed() < PATIENCE / 2, "{:?}", started.elapsed());
    });
    assert_eq!(told.into_inner(), 4, "each HTTP client was told with an answer");
    daemon.wait_to_say("draining");
    daemon.wait_to_say("ended");
}

#[test]
fn connections_that_ask_nothing_are_closed_long_before_the_drain_must_end() {
    let mut daemon = Daemon::with(TEN, &["--drain-seconds", "3600"]);
    let (mut http, mut resp) = (daemon.http(), daemon.resp());
    assert_eq!(http.check("acme").status, 200);
    assert_eq!(resp.ask("PING"), "+PONG");
    let (silent, fresh) = (daemon.http(), daemon.resp());
    let mut grpc = TcpStream::connect(daemon.door("grpc")).expect("it listens");
    daemon.wait_for_metric("tollgate_connections{face=\"resp\"}", 2);
    daemon.wait_for_metric("tollgate_connections{face=\"grpc\"}", 1);
    daemon.signal("INT");
    assert_eq!(daemon.wait().code(), Some(0));
    for rest in [http.rest(), resp.rest(), silent.rest(), fresh.rest()] {
        assert_eq!(rest, b"");
    }
    // What the daemon says of itself comes first in HTTP/2, and nothing behind it.
    let rest = read_to_end(&mut grpc);
    assert!(rest.len() < 100, "{rest:?}");
}

#[test]
fn a_request_that_is_still_arriving_is_answered_and_told_that_it_was_the_last() {
    let mut daemon = Daemon::with(TEN, &["--drain-seconds", "3600"]);
    let body = entries("acme", "");
    let whole = request("POST", "/v1/check", "", body.as_bytes());
    let (begun, rest) = whole.split_at(whole.len() - 5);
    let (head, tail) = whole.split_at(20);
    let (mut in_body, mut in_head) = (daemon.http(), daemon.http());
    in_body.send(begun);
    in_head.send(head);
    let mut resp = daemon.resp();
    resp.send(b"*2\r\n$4\r\nECHO\r\n$2\r\nh");
    assert_eq!(daemon.http().get("/readyz").text(), "ready\n");
    daemon.signal("TERM");
    let stopped = |lines: &[Value]| lines.iter().filter(|l| says(l, "stopped listening")).count();
    daemon.wait_for(|lines| stopped(lines) == 3);
    let refused = TcpStream::connect(daemon.door("http"));
    assert_eq!(refused.expect_err("nobody listens").kind(), ErrorKind::ConnectionRefused);
    in_body.send(rest);
    in_head.send(tail);
    resp.send(b"i\r\n");
    for mut http in [in_body, in_head] {
        let answer = http.answer();
        assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
        assert_eq!(http.rest(), b"");
    }
    assert_eq!(resp.reply().to_string(), "\"hi\"");
    assert_eq!(resp.rest(), b"");
    assert_eq!(daemon.wait().code(), Some(0));
}

#[test]
fn what_does_not_end_by_itself_is_ended_when_the_drain_is_over() {
    let options = ["--drain-seconds", "1", "--request-seconds", "3600"];
    let mut daemon = Daemon::with(TEN, &options);
    let mut http = daemon.http();
    http.send(b"POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: 50\r\n\r\n{");
    let mut resp = daemon.resp();
    resp.send(b"*2\r\n$4\r\nECHO\r\n$2\r\nh");
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(0));
    assert_eq!((http.rest(), resp.rest()), (Vec::new(), Vec::new()));
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let options = ["--drain-seconds", "3600", "--request-seconds", "3600"];
    let mut daemon = Daemon::with(TEN, &options);
    let mut stream = connect(daemon.door("http"));
    let begun = b"POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: 50\r\n\r\n{";
    std::io::Write::write_all(&mut stream, begun).expect("sent");
    daemon.wait_for_metric("tollgate_connections_opened_total{face=\"http\"}", 2);
    daemon.signal("TERM");
    daemon.wait_to_say("draining");
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(3));
    daemon.wait_to_say("ended at once");
    assert_eq!(read_to_end(&mut stream), b"");
}

/// A client that connects anew for each request. Counts what was answered; being closed before an
/// answer is what may become of a connection that nobody had accepted.
fn reconnecting<'scope>(scope: &'scope Scope<'scope, '_>, address: SocketAddr, load: &'scope Load) {
    scope.spawn(move || {
        let one = request("GET", "/healthz", "connection: close\r\n", b"");
        while !load.stop.load(Relaxed) {
            let stream = TcpStream::connect(address).expect("never refused");
            stream.set_read_timeout(Some(PATIENCE)).expect("a socket has a timeout");
            let mut http = Http::new(stream);
            http.send_some(&one);
            if let Some(answer) = http.try_answer().expect("a whole answer or none") {
                assert_eq!(answer.text(), "ok\n");
                load.answered.fetch_add(1, Relaxed);
            }
        }
    });
}

#[test]
fn a_successor_at_the_same_port_takes_over_and_no_client_is_refused() {
    let mut first = Daemon::with(TEN, &["--reuse-port"]);
    let (http, resp) = (first.door("http"), first.door("resp"));
    let load = Load::default();
    // It outlives the clients, one of whom may still be connecting at the end.
    let mut successor = None;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            reconnecting(scope, http, &load);
        }
        load.wait_for(50);
        let folder = tempfile::tempdir().expect("a folder can be made");
        let config = folder.path().join("limits.toml");
        std::fs::write(&config, TEN).expect("written");
        let (at, and) = (http.to_string(), resp.to_string());
        let options = ["--http", &at, "--resp", &and, "--reuse-port"];
        let second = successor.insert(Daemon::start(folder, &config, &options));
        load.wait_for(50);
        first.signal("TERM");
        assert_eq!(first.wait().code(), Some(0));
        load.wait_for(50);
        load.stop.store(true, Relaxed);
        assert_eq!(second.resp().ask("PING"), "+PONG");
    });
}

#[test]
fn a_signal_that_comes_as_soon_as_it_listens_drains_too() {
    for _ in 0..20 {
        let mut daemon = Daemon::new(TEN);
        daemon.signal("TERM");
        assert_eq!(daemon.wait().code(), Some(0));
    }
}
