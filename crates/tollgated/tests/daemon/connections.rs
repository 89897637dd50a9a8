//! How long connections last, how many there may be, and what comes in a batch.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde_json::json;

use crate::http::entries;
use crate::support::{Daemon, Http, TEN, connect, read_to_end, wait_until};

const ALLOWED: &str = "tollgate_decisions_total{face=\"http\",decision=\"allowed\",reason=\"\"}";

#[test]
fn connections_that_grow_old_are_closed_by_an_answer_and_no_call_fails() {
    let policy = "[[limit]]\nname = \"api\"\nkey = [\"tenant\"]\nrate = \"1000000000/s\"\n";
    let daemon = Daemon::with(policy, &["--age-seconds", "1"]);
    let ok = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for client in 0..16 {
            let (daemon, ok) = (&daemon, &ok);
            scope.spawn(move || {
                let name = format!("client {client}");
                for _ in 0..3 {
                    let mut http = daemon.http();
                    loop {
                        let answer = http.check(&name);
                        assert_eq!(answer.status, 200);
                        ok.fetch_add(1, Relaxed);
                        if answer.header("connection") == Some("close") {
                            break;
                        }
                    }
                    assert_eq!(http.rest(), b"");
                }
            });
        }
    });
    assert_eq!(daemon.metric(ALLOWED), ok.into_inner());
}

/// One HTTP/2 frame without a stream: its type and flags.
fn read_frame(stream: &mut TcpStream) -> Option<(u8, u8, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body).ok()?;
    Some((head[3], head[4], body))
}

fn frame(kind: u8, flags: u8, body: &[u8]) -> Vec<u8> {
    [&[0, 0, body.len() as u8, kind, flags, 0, 0, 0, 0], body].concat()
}

/// An HTTP/2 connection whose client has said hello.
fn http2(daemon: &Daemon) -> TcpStream {
    let mut stream = connect(daemon.door("http"));
    let hello = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, b"")].concat();
    stream.write_all(&hello).expect("sent");
    stream
}

#[test]
fn an_http_2_peer_that_is_gone_is_noticed_and_one_that_answers_pings_stays() {
    let daemon = Daemon::with(TEN, &["--request-seconds", "1"]);
    let mut silent = http2(&daemon);
    let mut alive = http2(&daemon);
    let mut pings = 0;
    while pings < 4 {
        let (kind, flags, body) = read_frame(&mut alive).expect("it was not thrown out");
        match (kind, flags & ACK) {
            (PING, 0) => {
                pings += 1;
                alive.write_all(&frame(PING, ACK, &body)).expect("sent");
            }
            (SETTINGS, 0) => alive.write_all(&frame(SETTINGS, ACK, b"")).expect("sent"),
            _ => {}
        }
    }
    // By now the other was asked too, and did not answer.
    let heard = read_to_end(&mut silent);
    let asked = frame(PING, 0, &[0; 8]);
    assert!(heard.windows(5).any(|part| part == &asked[..5]), "{heard:?}");
    // A client may ask as well, as often as it likes.
    for n in 0..100_u64 {
        alive.write_all(&frame(PING, 0, &n.to_be_bytes())).expect("sent");
    }
    let mut answered = 0;
    while answered < 100 {
        match read_frame(&mut alive).expect("it was not thrown out") {
            (PING, ACK, _) => answered += 1,
            (PING, _, body) => alive.write_all(&frame(PING, ACK, &body)).expect("sent"),
            _ => {}
        }
    }
    drop(alive);
    wait_until("both to be gone", || {
        daemon.metric("tollgate_connections{face=\"http\"}") == 1 // Ours.
    });
}

#[test]
fn a_connection_that_asks_nothing_is_closed_after_its_time() {
    let daemon = Daemon::with(TEN, &["--idle-seconds", "1"]);
    let mut used = daemon.http();
    assert_eq!(used.check("acme").status, 200);
    let mut resp = daemon.resp();
    assert_eq!(resp.ask("PING"), "+PONG");
    for rest in [used.rest(), resp.rest(), daemon.http().rest(), daemon.resp().rest()] {
        assert_eq!(rest, b"");
    }
    let mut silent = connect(daemon.door("grpc"));
    // HTTP/2's server speaks first: nothing but its settings.
    assert!(read_to_end(&mut silent).len() < 100);
}

/// The client says that it has no room for an answer, and never makes any.
#[test]
fn an_answer_that_a_grpc_client_does_not_take_is_taken_back() {
    let daemon = Daemon::with(TEN, &["--request-seconds", "1"]);
    let mut client = connect(daemon.door("grpc"));
    let of_stream = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
    };
    // A field by its number in HPACK's table, 0 for a new name, and its text.
    let literal = |number: u8, texts: &[&str]| {
        let text = |text: &&str| [&[text.len() as u8], text.as_bytes()].concat();
        let texts: Vec<u8> = texts.iter().flat_map(text).collect();
        [&[number], &texts[..]].concat()
    };
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let head = [
        vec![0x83, 0x86], // POST, http
        literal(4, &[path]),
        literal(1, &["tollgate"]),
        literal(0, &["content-type", "application/grpc"]),
        literal(0, &["te", "trailers"]),
    ];
    let message = b"\x0a\x07default\x12\x10\x0a\x0e\x0a\x06tenant\x12\x04acme";
    let body = [&[0, 0, 0, 0, message.len() as u8], &message[..]].concat();
    let window = [0, 4, 0, 0, 0, 0]; // INITIAL_WINDOW_SIZE 0
    let all = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, &window),
        of_stream(1, 4, 1, &head.concat()),
        of_stream(0, 1, 1, &body),
    ];
    client.write_all(&all.concat()).expect("it listens");
    let mut kinds = Vec::new();
    while !kinds.contains(&3) {
        kinds.push(read_frame(&mut client).expect("the connection lasts").0);
    }
    // The answer's head and its end; never a part of its message.
    assert!(kinds.contains(&1) && !kinds.contains(&0), "{kinds:?}");
    assert_eq!(daemon.metric(&ALLOWED.replace("http", "grpc")), 1);
}

#[test]
fn a_batch_of_too_many_spends_nothing_and_one_of_none_has_no_answers() {
    let daemon = Daemon::new(TEN);
    let mut http = daemon.http();
    let batch = |count| {
        let items = vec![entries("acme", ""); count].join(",");
        format!("{{\"requests\":[{items}]}}")
    };
    let refused = http.post("/v1/check", batch(1_001));
    assert_eq!(refused.status, 400);
    assert!(refused.problem().contains("at most 1000 items are read"), "{}", refused.text());
    assert_eq!(daemon.metric(ALLOWED), 0);
    let none = http.post("/v1/check", batch(0));
    assert_eq!((none.status, none.text()), (200, "{\"results\":[]}".into()));
    let most = http.post("/v1/check", batch(1_000)).json();
    let results = most["results"].as_array().expect("a list");
    let passed = results.iter().filter(|one| one["allowed"] == true).count();
    assert_eq!((results.len(), passed, daemon.metric(ALLOWED)), (1_000, 10, 10));
}

#[test]
fn a_bad_item_of_a_batch_is_an_error_by_itself() {
    let daemon = Daemon::new(TEN);
    let mut http = daemon.http();
    let good = json!({"entries": {"tenant": "acme"}});
    let batch = json!({"requests": [
        good, {"entries": {"": "acme"}}, {"entries": {"tenant": 7}}, good, 7,
        {"entries": {"tenant": "acme"}, "cost": 99}, {}, good,
    ]});
    let answer = http.post("/v1/check", batch.to_string());
    assert_eq!(answer.status, 200);
    let body = answer.json();
    let results = body["results"].as_array().expect("a list");
    let shown: Vec<String> = results
        .iter()
        .map(|one| match (&one["error"]["status"], one["remaining"].as_u64()) {
            (status, None) => format!("error {status}"),
            (_, Some(left)) => format!("{} {left}", one["allowed"]),
        })
        .collect();
    let error = "error 400".to_owned();
    let expected = ["true 9", &error, &error, "true 8", &error, "false 8", &error, "true 7"];
    assert_eq!(shown, expected);
    assert_eq!(results[1]["error"]["detail"], "entry 0 has no name");
}

#[test]
fn beyond_the_maximum_a_connection_gets_a_last_word_and_the_others_go_on() {
    let daemon = Daemon::with(TEN, &["--connections-max", "3"]);
    let mut http: Http = daemon.http();
    let (mut resp, other) = (daemon.resp(), daemon.resp());
    assert_eq!(http.check("acme").left(), (200, Some(9)));
    assert_eq!(resp.ask("PING"), "+PONG");
    let full = "tollgate_connections{face=\"resp\"} 2";
    assert!(http.get("/metrics").text().contains(full));
    for _ in 0..3 {
        let text = String::from_utf8(daemon.http().rest()).expect("text");
        assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
        assert!(text.contains("\r\nconnection: close\r\n"), "{text}");
        let text = String::from_utf8(daemon.resp().rest()).expect("text");
        assert_eq!(text, "-ERR max number of clients reached\r\n");
    }
    let metrics = http.get("/metrics").text();
    for face in ["http", "resp"] {
        let refused = format!("tollgate_connections_refused_total{{face=\"{face}\"}} 3\n");
        assert!(metrics.contains(&refused), "{metrics}");
    }
    drop(other);
    wait_until("a place to be free", || {
        let metrics = http.get("/metrics").text();
        metrics.contains("tollgate_connections{face=\"resp\"} 1")
    });
    assert_eq!(daemon.resp().ask("PING"), "+PONG");
    assert_eq!(http.check("acme").left(), (200, Some(8)));
}

const SETTINGS: u8 = 4;
const PING: u8 = 6;
const ACK: u8 = 1;
