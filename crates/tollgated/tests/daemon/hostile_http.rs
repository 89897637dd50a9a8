//! What is wrong with a request over HTTP is told in one answer, and harms no other connection.

use std::io::Write;

use crate::http::{Http, entries, request};
use crate::support::{Daemon, TEN, connect, read_to_end};

/// Sends bytes on a connection of their own, and reads all that comes back.
fn answered(daemon: &Daemon, bytes: &[u8]) -> String {
    let mut http = daemon.http();
    http.send_some(bytes);
    String::from_utf8(http.rest()).expect("text")
}

fn status(text: &str) -> &str {
    text.split(' ').nth(1).unwrap_or_else(|| panic!("no answer: {text:?}"))
}

#[test]
fn a_body_that_is_wrong_is_told_where() {
    let daemon = Daemon::new(TEN);
    let mut http = daemon.http();
    for (body, place) in [
        ("", "EOF while parsing a value at line 1 column 0"),
        ("{", "line 1 column 1"),
        ("{\n \"entries\": {\"tenant\": 1}}", "line 2 column 24"),
        ("{\"entries\":{}}x", "trailing characters at line 1 column 15"),
        ("{\"entries\":{},\"costs\":1}", "unknown field `costs`"),
        ("{\"entries\":{},\"cost\":1,\"cost\":2}", "duplicate field `cost`"),
        ("{\"entries\":{\"a\":\"1\",\"a\":\"2\"}}", "entry 1 repeats an earlier name"),
        ("[]", "invalid type: sequence, expected an object"),
        ("[null,{},1,null,null]", "invalid type: sequence, expected an object"),
        ("{\"domain\":7,\"entries\":{}}", "expected a string"),
        ("{\"entries\":{\"a\":\"b\"},\"cost\":-1}", "invalid value: integer `-1`"),
    ] {
        let answer = http.post("/v1/check", body);
        assert_eq!(answer.status, 400, "{body}");
        assert!(answer.problem().contains(place), "{body}: {}", answer.text());
        assert_eq!(answer.json()["type"], "urn:tollgate:problem:invalid-request");
    }
    let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    for path in ["/v1/check", "/v1/settle", "/v1/key", "/v1/explain", "/v1/cancel"] {
        assert_eq!(http.post(path, &deep).status, 400, "{path}");
        assert_eq!(http.post(path, b"\xff\xfe").status, 400, "{path}");
    }
    let invalid = "tollgate_request_errors_total{face=\"http\",kind=\"invalid\"}";
    assert_eq!(daemon.metric(invalid), 21);
    assert_eq!(http.check("acme").left(), (200, Some(9)));
}

#[test]
fn entries_beyond_their_number_or_length_are_refused_and_nothing_is_spent() {
    let daemon = Daemon::new(TEN);
    let mut http = daemon.http();
    let many = |count: usize| {
        let more: Vec<_> = (1..count).map(|n| format!(",\"n{n}\":\"x\"")).collect();
        format!("{{\"entries\":{{\"tenant\":\"acme\"{}}}}}", more.concat())
    };
    assert_eq!(http.post("/v1/check", many(16)).left(), (200, Some(9)));
    assert!(http.post("/v1/check", many(17)).problem().contains("at most 16 entries"));
    let nameless = http.post("/v1/check", r#"{"entries":{"tenant":"acme","":"x"}}"#);
    assert_eq!(nameless.problem(), "entry 1 has no name");
    let one = entries("acme", "");
    let descriptors =
        |count| format!("{{\"descriptors\":[{}]}}", vec![one.as_str(); count].join(","));
    assert_eq!(http.post("/v1/check", descriptors(11)).status, 413, "more than the burst at once");
    assert!(http.post("/v1/check", descriptors(1_001)).problem().contains("at most 1000 items"));
    assert_eq!(http.check("acme").left(), (200, Some(8)));
}

#[test]
fn a_path_or_a_method_that_is_not_there_is_told_what_is() {
    let daemon = Daemon::new(TEN);
    let mut http = daemon.http();
    for path in ["/v1", "/v1/checks", "/v1/check/", "/%00", "//", "/v2/check"] {
        let answer = http.get(path);
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.problem().contains("GET / lists what there is"));
    }
    let long = http.get(&format!("/{}", "a".repeat(9_000)));
    assert!(long.status == 404 && long.problem().len() < 200);
    for (method, path, allow) in [
        ("GET", "/v1/check", "POST"),
        ("PUT", "/v1/settle", "POST"),
        ("DELETE", "/v1/limits", "GET, HEAD"),
        ("POST", "/metrics", "GET, HEAD"),
        ("OPTIONS", "/healthz", "GET, HEAD"),
    ] {
        let answer = http.ask(method, path, "", b"");
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allow)), "{method} {path}");
        answer.problem();
    }
    let query = http.post("/v1/check?header=none", entries("acme", ""));
    assert!(query.problem().contains("the only query is headers=STYLE"));
    assert_eq!(http.check("acme").left(), (200, Some(9)));
}

#[test]
fn what_can_be_read_can_be_asked_for_without_its_body() {
    let daemon = Daemon::new(TEN);
    let mut http = daemon.http();
    for path in ["/", "/healthz", "/readyz", "/openapi.json", "/v1/limits", "/v1/offenders"] {
        let (whole, head) = (http.get(path), http.ask("HEAD", path, "", b""));
        assert_eq!((whole.status, head.status), (200, 200), "{path}");
        let length = whole.text().len().to_string();
        assert_eq!(head.header("content-length"), Some(length.as_str()), "{path}");
    }
    assert_eq!(http.ask("HEAD", "/metrics", "", b"").status, 200);
    assert_eq!(http.ask("HEAD", "/nowhere", "", b"").status, 404);
    assert_eq!(http.ask("HEAD", "/v1/check", "", b"").status, 405);
    assert_eq!(http.get("/healthz").text(), "ok\n");
}

#[test]
fn a_head_of_more_than_16_kib_is_431_and_one_that_is_none_is_400() {
    let daemon = Daemon::new(TEN);
    let field = format!("x: {}\r\n", "a".repeat(17 << 10));
    let many = "a: b\r\n".repeat(1_000);
    for lines in [&field, &many] {
        let text = answered(&daemon, &request("GET", "/healthz", lines, b""));
        assert_eq!(status(&text), "431", "{text}");
    }
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: x\r\n\r\n",
        b"POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
    ] {
        let text = answered(&daemon, bytes);
        assert_eq!(status(&text), "400", "{text}");
    }
    let malformed = "tollgate_request_errors_total{face=\"http\",kind=\"malformed\"}";
    daemon.wait_for_metric(malformed, 8);
    assert_eq!(daemon.http().check("acme").left(), (200, Some(9)));
}

#[test]
fn a_body_of_more_than_2_mib_is_413_however_it_is_sent() {
    let daemon = Daemon::new(TEN);
    let too_long = vec![b' '; (2 << 20) + 1];
    let text = answered(&daemon, &request("POST", "/v1/check", "", &too_long));
    assert_eq!(status(&text), "413", "{text}");
    assert!(text.contains("at most 2097152 bytes are read"), "{text}");
    assert!(text.contains("\r\nconnection: close\r\n"), "{text}");
    // What is announced is not waited for.
    let head = "POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999\r\n\r\n";
    assert_eq!(status(&answered(&daemon, head.as_bytes())), "413");
    let head = b"POST /v1/check HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = [b"100000\r\n", &vec![b' '; 1 << 20][..], b"\r\n"].concat();
    let text = answered(&daemon, &[&head[..], &chunk.repeat(3), b"0\r\n\r\n"].concat());
    assert_eq!(status(&text), "413", "{text}");
    // As many as may be are read, in one piece or in chunks.
    let body = entries("acme", "");
    let padded = format!("{}{body}", " ".repeat((2 << 20) - body.len()));
    assert_eq!(daemon.http().post("/v1/check", padded).left(), (200, Some(9)));
    let chunk = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let mut http = daemon.http();
    http.send(&[&head[..], chunk.as_bytes()].concat());
    assert_eq!(http.answer().left(), (200, Some(8)));
}

#[test]
fn a_body_that_does_not_come_is_408_and_a_head_that_does_not_is_closed() {
    let daemon = Daemon::with(TEN, &["--request-seconds", "1"]);
    let head = "POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{";
    let text = answered(&daemon, head.as_bytes());
    assert_eq!(status(&text), "408", "{text}");
    assert!(text.contains("the body did not arrive in time"), "{text}");
    for begun in ["G", "GET / HTTP/1.1\r\nhost", "PRI ", "PRI * HTTP/2.0\r\n\r\nSM"] {
        assert_eq!(answered(&daemon, begun.as_bytes()), "", "{begun}");
    }
    // On a connection that has asked before, too.
    let mut http = daemon.http();
    assert_eq!(http.get("/healthz").text(), "ok\n");
    http.send(b"GET /healthz HTT");
    assert_eq!(http.rest(), b"");
    let timed_out = "tollgate_request_errors_total{face=\"http\",kind=\"timeout\"}";
    daemon.wait_for_metric(timed_out, 6);
}

#[test]
fn a_secret_is_needed_for_all_but_health_and_descriptions() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("secret");
    std::fs::write(&file, "open sesame\n").expect("written");
    let daemon = Daemon::with(TEN, &["--secret-file", file.to_str().expect("a plain path")]);
    let mut http = daemon.http();
    let body = entries("acme", "");
    for field in [
        "",
        "authorization: Bearer\r\n",
        "authorization: Bearer open\r\n",
        "authorization: Bearer open sesamE\r\n",
        "authorization: Bearer open sesame2\r\n",
        "authorization: Basic open sesame\r\n",
        "x-authorization: Bearer open sesame\r\n",
    ] {
        for (method, path) in [("POST", "/v1/check"), ("GET", "/metrics"), ("GET", "/v1/limits")] {
            let answer = http.ask(method, path, field, b"");
            assert_eq!(answer.status, 401, "{field:?} {path}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
            answer.problem();
        }
    }
    for path in ["/", "/healthz", "/readyz", "/openapi.json"] {
        assert_eq!(http.get(path).status, 200, "{path}");
    }
    for field in ["authorization: Bearer open sesame\r\n", "Authorization: bearer open sesame\r\n"]
    {
        assert_eq!(http.ask("GET", "/v1/limits", field, b"").status, 200);
        assert_eq!(http.ask("POST", "/v1/check", field, body.as_bytes()).status, 200);
    }
    assert!(!daemon.log().iter().any(|line| line.to_string().contains("sesame")));
}

#[test]
fn a_client_that_waits_to_be_asked_for_its_body_is_asked() {
    let daemon = Daemon::new(TEN);
    let mut stream = connect(daemon.door("http"));
    let body = entries("acme", "");
    let lines = "expect: 100-continue\r\nconnection: close\r\n";
    let whole = request("POST", "/v1/check", lines, body.as_bytes());
    stream.write_all(&whole[..whole.len() - body.len()]).expect("sent");
    let mut asked = [0; 25];
    std::io::Read::read_exact(&mut stream, &mut asked).expect("it asks");
    assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(body.as_bytes()).expect("sent");
    assert!(String::from_utf8(read_to_end(&mut stream)).expect("text").contains("\"remaining\":9"));
}

#[test]
fn http_1_0_is_answered_and_closed_and_http_2_is_spoken_with_prior_knowledge() {
    let daemon = Daemon::new(TEN);
    let text = answered(&daemon, b"GET /healthz HTTP/1.0\r\n\r\n");
    assert!(text.starts_with("HTTP/1.0 200") && text.ends_with("\r\n\r\nok\n"), "{text}");
    let url = format!("http://{}/v1/check", daemon.door("http"));
    let curl = std::process::Command::new("curl")
        .args(["-s", "--http2-prior-knowledge", "-w", " %{http_version} %{http_code}", "-d"])
        .args([&entries("acme", ""), &url])
        .output();
    // A curl that does not speak HTTP/2 says so with 2 or 4; there may be none at all.
    let Some(output) =
        curl.ok().filter(|output| ![Some(2), Some(4)].contains(&output.status.code()))
    else {
        return;
    };
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("\"remaining\":9") && text.ends_with(" 2 200"), "{text}");
}

#[test]
fn a_connection_that_misbehaved_is_told_and_the_others_go_on() {
    let daemon = Daemon::new(TEN);
    let mut bystander: Http = daemon.http();
    for n in 0..10 {
        daemon
            .http()
            .send(b"POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: 50\r\n\r\n{\"ent");
        answered(&daemon, b"nonsense\r\n\r\n");
        assert_eq!(bystander.check("acme").left(), (200, Some(9 - n)));
    }
    assert_eq!(daemon.metric("tollgate_connections{face=\"resp\"}"), 0);
}
