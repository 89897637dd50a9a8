//! Cases that other limiters got wrong, end to end: what a client sees of zeros, hostile names,
//! waits, header fields, costs, and shadows.

use std::time::Duration;

use serde_json::{Value, json};

use crate::http::entries;
use crate::support::{Daemon, Http, TEN, read_to_end, run};

fn check(http: &mut Http, entries: Value, cost: u64) -> (u16, Value) {
    let answer = http.post("/v1/check", json!({"entries": entries, "cost": cost}).to_string());
    (answer.status, answer.json())
}

#[test]
fn what_may_never_pass_is_denied_for_good_and_no_header_says_when_to_come_back() {
    let daemon = Daemon::new(
        "[[limit]]\nname = \"none\"\nmatch = { route = \"none\" }\nrate = \"zero\"\nburst = 0\n\
         [[limit]]\nname = \"five\"\nmatch = { route = \"five\" }\nrate = \"zero\"\nburst = 5\n",
    );
    let mut http = daemon.http();
    for _ in 0..3 {
        let answer = http.post("/v1/check", r#"{"entries":{"route":"none"}}"#);
        assert_eq!(answer.header("retry-after"), None);
        let body = answer.json();
        assert_eq!((&body["never"], &body["remaining"]), (&json!(true), &json!(0)), "{body}");
        assert!([413, 429].contains(&answer.status), "{}", answer.status);
    }
    for left in (0..5).rev() {
        let (status, body) = check(&mut http, json!({"route": "five"}), 1);
        assert_eq!((status, &body["remaining"]), (200, &json!(left)));
    }
    let answer = http.post("/v1/check", r#"{"entries":{"route":"five"}}"#);
    assert_eq!((answer.left(), answer.header("retry-after")), ((429, Some(0)), None));
    assert_eq!((&answer.json()["never"], answer.number("retry_us")), (&json!(true), None));
}

#[test]
fn a_window_of_zero_a_rate_of_zero_and_a_burst_of_zero_are_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("limits.toml");
    for (fields, message) in [
        ("rate = \"5/0s\"", "period must not be zero"),
        ("rate = \"0/s\"", "must not be 0; write \"zero\""),
        ("rate = \"5/s\"\nburst = 0", "burst = \"0\": must be at least 1"),
    ] {
        std::fs::write(&file, format!("[[limit]]\nname = \"a\"\n{fields}\n")).expect("written");
        let config = file.to_str().expect("a plain path");
        let (code, _, log) = run(&["serve", "--config", config]);
        assert_eq!(code, 3);
        assert!(log.contains(message), "{log}");
    }
}

#[test]
fn every_distinct_text_is_a_key_of_its_own_and_none_gets_into_the_log_or_the_metrics() {
    let daemon = Daemon::with(TEN, &["--log", "trace"]);
    let before = daemon.keys();
    let mut http = daemon.http();
    let hostile = [
        "nul\0",
        "nul",
        "line\n",
        "line\r\ntollgate_keys 7\n# HELP x",
        "\u{e9}",
        "e\u{301}",
        "",
        " ",
        "\u{1b}[31mred",
        "\"} 9\n",
        "\\",
        "\u{202e}drow",
        "{\"level\":\"ERROR\"}",
    ];
    for name in hostile {
        assert_eq!(http.check(name).left(), (200, Some(9)), "{name:?}");
    }
    for name in hostile {
        let all = http.post("/v1/check", entries(name, ",\"cost\":9"));
        assert_eq!(all.left(), (200, Some(0)), "{name:?}");
        assert_eq!(http.check(name).left(), (429, Some(0)), "{name:?}");
    }
    assert_eq!(daemon.keys() - before, hostile.len() as u64);
    let shown = http.get("/v1/offenders").json();
    let names = shown["offenders"].as_array().expect("a list").iter();
    let mut names: Vec<&str> = names.filter_map(|one| one["key"]["tenant"].as_str()).collect();
    let mut expected = hostile.to_vec();
    names.sort_unstable();
    expected.sort_unstable();
    assert_eq!(names, expected);
    let metrics = http.get("/metrics").text();
    assert!(metrics.lines().all(|line| line.starts_with("tollgate_") || line.starts_with("# ")));
    assert!(
        !metrics.contains("keys 7") && !metrics.contains("drow") && !metrics.contains('\u{1b}')
    );
    let log = daemon.log();
    assert!(log.iter().all(|line| line.is_object() && line["level"] != "ERROR"), "{log:?}");
    assert!(!log.iter().any(|line| line.to_string().contains("drow")), "{log:?}");
}

#[test]
fn values_of_1_mib_that_differ_in_their_last_byte_are_two_keys_and_longer_ones_are_refused() {
    let daemon = Daemon::new(TEN);
    let before = daemon.keys();
    let mut http = daemon.http();
    let value = "v".repeat((1 << 20) - 1);
    for (last, left) in [("a", 9), ("b", 9), ("a", 8), ("b", 8)] {
        let answer = http.check(&format!("{value}{last}"));
        assert_eq!(answer.left(), (200, Some(left)));
    }
    let answer = http.check(&format!("{value}ab"));
    assert_eq!(answer.status, 400);
    let detail = answer.problem();
    assert!(detail.contains("1048576") || detail.contains("1 MiB"), "{detail}");
    assert_eq!(daemon.keys() - before, 2);
}

#[test]
fn bytes_that_are_no_text_are_refused_in_http_and_exact_keys_in_resp() {
    let daemon = Daemon::new(TEN);
    let before = daemon.keys();
    let mut http = daemon.http();
    for bytes in [&b"\xff"[..], b"\xc3", b"\xed\xa0\x80", b"\xc0\x80"] {
        let body = [b"{\"entries\":{\"tenant\":\"", bytes, b"\"}}"].concat();
        let answer = http.post("/v1/check", body);
        assert_eq!(answer.status, 400, "{bytes:?}");
        answer.problem();
    }
    assert_eq!(http.post("/v1/check", r#"{"entries":{"tenant":"\ud800"}}"#).status, 400);
    assert_eq!(daemon.keys(), before);
    let mut resp = daemon.resp();
    let long = |last: u8| [vec![b'v'; (64 << 10) - 1], vec![last]].concat();
    let keys: [&[u8]; 11] = [
        b"\xff",
        b"\xfe",
        b"\xc3",
        b"\xc3\xa9",
        b"e\xcc\x81",
        b"nul\0",
        b"nul",
        b"line\r\n",
        b"",
        &long(b'a'),
        &long(b'b'),
    ];
    for left in [9, 8] {
        for key in keys {
            assert_eq!(resp.throttle(key).left(), (true, left), "{:?}", &key[..key.len().min(9)]);
        }
    }
    assert_eq!(daemon.keys() - before, keys.len() as u64);
    let mut resp = daemon.resp();
    resp.send_some(&crate::resp::command(&[b"PING", &[b'v'; (64 << 10) + 1]]));
    let rest = String::from_utf8(resp.rest()).expect("text");
    assert_eq!(rest, "-ERR Protocol error: invalid bulk length\r\n");
}

#[test]
fn a_wait_is_told_to_the_microsecond_and_as_whole_seconds_of_at_least_1() {
    let daemon = Daemon::new("[[limit]]\nname = \"api\"\nkey = [\"tenant\"]\nrate = \"1/s\"\n");
    let mut http = daemon.http();
    let denied = loop {
        let answer = http.check("slow");
        if answer.status == 429 {
            break answer;
        }
    };
    assert_eq!(denied.header("retry-after"), Some("1"));
    let wait = denied.number("retry_us").expect("it ends by itself");
    assert!((1..=1_000_000).contains(&wait), "{wait}");
    std::thread::sleep(Duration::from_micros(wait));
    let answer = http.check("slow");
    assert_eq!(answer.status, 200, "{:?} after {wait}", answer.number("retry_us"));
}

/// A header of 0 has clients come back at once, thousands of times a second.
#[test]
fn a_wait_of_less_than_a_millisecond_is_a_second_in_the_header_and_exact_in_the_body() {
    let daemon = Daemon::new(
        "[[limit]]\nname = \"api\"\nkey = [\"tenant\"]\nrate = \"1000/s\"\nburst = 1\n",
    );
    let mut http = daemon.http();
    let one = crate::http::request("POST", "/v1/check", "", entries("fast", "").as_bytes());
    let denied = loop {
        http.send(&one.repeat(50));
        let answers: Vec<_> = (0..50).map(|_| http.answer()).collect();
        if let Some(denied) = answers.into_iter().find(|answer| answer.status == 429) {
            break denied;
        }
    };
    assert_eq!(denied.header("retry-after"), Some("1"));
    let wait = denied.number("retry_us").expect("it ends by itself");
    assert!((1..=1_000).contains(&wait), "{wait}");
}

#[test]
fn header_fields_are_those_of_the_limit_that_denied_or_is_closest() {
    let daemon = Daemon::new(
        "[[limit]]\nname = \"wide\"\nkey = [\"tenant\"]\nrate = \"100/d\"\n\
         [[limit]]\nname = \"narrow\"\nmatch = { route = \"r\" }\nkey = [\"tenant\"]\n\
         rate = \"5/h\"\n",
    );
    let mut http = daemon.http();
    let both = r#"{"entries":{"tenant":"acme","route":"r"}}"#;
    let fields = |answer: &crate::support::Answer| {
        let field = |name| answer.header(name).expect("a field").to_owned();
        (answer.status, field("ratelimit-policy"), field("ratelimit"))
    };
    let first = fields(&http.post("/v1/check", both));
    assert_eq!(first.1, "\"narrow\";q=5;w=3600");
    assert_eq!(first.2, "\"narrow\";r=4;t=720");
    assert_eq!(http.post("/v1/check", entries("acme", ",\"cost\":45")).left(), (200, Some(54)));
    for left in (0..4).rev() {
        assert_eq!(http.post("/v1/check", both).left(), (200, Some(left)));
    }
    let narrow = http.post("/v1/check", both);
    let (status, policy, _) = fields(&narrow);
    assert_eq!((status, policy.as_str()), (429, "\"narrow\";q=5;w=3600"));
    assert_eq!(narrow.json()["violated-policies"], json!(["narrow"]));
    let wait: u64 = narrow.header("retry-after").and_then(|s| s.parse().ok()).expect("a number");
    assert!((1..=720).contains(&wait), "{wait}");
    // With both exhausted it is the one that takes longer: 864 s for a token, not 720 s.
    assert_eq!(http.post("/v1/check", entries("acme", ",\"cost\":50")).left(), (200, Some(0)));
    let wide = http.post("/v1/check", both);
    let (status, policy, limit) = fields(&wide);
    assert_eq!((status, policy.as_str()), (429, "\"wide\";q=100;w=86400"));
    assert!(limit.starts_with("\"wide\";r=0;t="), "{limit}");
    let wait: u64 = wide.header("retry-after").and_then(|s| s.parse().ok()).expect("a number");
    assert!((721..=864).contains(&wait), "{wait}");
}

#[test]
fn each_style_of_header_fields_has_its_names_and_bare_numbers() {
    let daemon = Daemon::with(TEN, &["--headers", "draft03"]);
    let mut http = daemon.http();
    let answer = http.check("acme");
    let numbers = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"];
    let fields = |answer: &crate::support::Answer, prefix: &str| {
        numbers.map(|name| answer.header(&format!("{prefix}{name}")).map(str::to_owned))
    };
    let expected = ["10, 10;w=86400", "9", "8640"].map(|text| Some(text.to_owned()));
    assert_eq!(fields(&answer, ""), expected);
    let peek = |http: &mut Http, style: &str| {
        http.post(&format!("/v1/peek?headers={style}"), entries("other", ""))
    };
    let expected = ["10, 10;w=86400", "10", "0"].map(|text| Some(text.to_owned()));
    assert_eq!(fields(&peek(&mut http, "x-draft03"), "x-"), expected);
    let github = peek(&mut http, "github");
    assert_eq!(github.header("x-ratelimit-limit"), Some("10"));
    assert_eq!(github.header("x-ratelimit-used"), Some("0"));
    assert_eq!(github.header("x-ratelimit-resource"), Some("api"));
    let none = peek(&mut http, "none");
    assert!(none.header("ratelimit").is_none() && none.header("ratelimit-limit").is_none());
    assert_eq!(peek(&mut http, "ietf").header("ratelimit"), Some("\"api\";r=10;t=0"));
    assert_eq!(peek(&mut http, "other").status, 400);
}

#[test]
fn what_remains_counts_down_to_nothing_and_stays_there() {
    let daemon = Daemon::new("[[limit]]\nname = \"api\"\nrate = \"5/h\"\n");
    let mut http = daemon.http();
    for (left, reset) in [(4, 720), (3, 1_440), (2, 2_160), (1, 2_880), (0, 3_600)] {
        let answer = http.check("acme");
        assert_eq!((answer.left(), answer.number("burst")), ((200, Some(left)), Some(5)));
        let micros = answer.number("reset_us").expect("it ends by itself");
        assert!(micros <= reset * 1_000_000 && micros > (reset - 60) * 1_000_000, "{micros}");
    }
    for _ in 0..2 {
        let answer = http.check("acme");
        assert_eq!((answer.left(), answer.number("burst")), ((429, Some(0)), Some(5)));
        let wait = answer.number("retry_us").expect("it ends by itself");
        assert!((660_000_000..=720_000_000).contains(&wait), "{wait}");
    }
}

#[test]
fn no_cost_is_one_a_cost_of_zero_is_none_and_a_refund_fills_up_to_the_burst() {
    let daemon = Daemon::new(TEN);
    let before = daemon.keys();
    let mut http = daemon.http();
    let zero = http.post("/v1/check", entries("acme", ",\"cost\":0"));
    assert_eq!((zero.left(), daemon.keys()), ((200, Some(10)), before));
    assert_eq!(http.check("acme").left(), (200, Some(9)));
    assert_eq!(daemon.keys(), before + 1);
    let zero = http.post("/v1/check", entries("acme", ",\"cost\":0"));
    assert_eq!(zero.left(), (200, Some(9)));
    assert_eq!(http.post("/v1/peek", entries("acme", "")).left(), (200, Some(9)));
    assert_eq!(http.post("/v1/check", entries("acme", ",\"cost\":2")).left(), (200, Some(7)));
    let refund = http.post("/v1/refund", entries("acme", ",\"cost\":100"));
    assert_eq!(refund.left(), (200, Some(10)));
    assert_eq!(http.post("/v1/refund", entries("fresh", ",\"cost\":5")).left(), (200, Some(10)));
    assert_eq!(daemon.keys(), before + 1);
    assert_eq!(http.post("/v1/check", entries("acme", ",\"cost\":10")).left(), (200, Some(0)));
    assert_eq!(http.post("/v1/reset", entries("acme", "")).left(), (200, Some(10)));
    for cost in ["-1", "1.5", "18446744073709551616", "\"1\"", "null", "1e3"] {
        let answer = http.post("/v1/check", entries("acme", &format!(",\"cost\":{cost}")));
        // JSON's null is a field left out.
        assert_eq!(answer.status, if cost == "null" { 200 } else { 400 }, "{cost}");
    }
    let most = http.post("/v1/check", entries("acme", ",\"cost\":18446744073709551615"));
    assert_eq!((most.left(), &most.json()["never"]), ((413, Some(9)), &json!(true)));
}

#[test]
fn a_negative_quantity_gives_back_and_never_more_than_the_burst() {
    let daemon = Daemon::new("limit = []\n");
    let mut resp = daemon.resp();
    assert_eq!(resp.ask("CL.THROTTLE k 9 10 86400 0"), "[0 10 10 -1 0]");
    assert_eq!(daemon.keys(), 0);
    assert_eq!(resp.ask("CL.THROTTLE k 9 10 86400"), "[0 10 9 -1 8640]");
    assert_eq!(resp.ask("CL.THROTTLE k 9 10 86400 3"), "[0 10 6 -1 34560]");
    assert_eq!(resp.ask_reply("CL.THROTTLE k 9 10 86400 -2").left(), (true, 8));
    assert_eq!(resp.ask("CL.THROTTLE k 9 10 86400 -100"), "[0 10 10 -1 0]");
    assert_eq!(resp.ask("CL.THROTTLE fresh 9 10 86400 -5"), "[0 10 10 -1 0]");
    assert_eq!(resp.ask("CL.THROTTLE k 9 10 86400 11"), "[1 10 10 -1 0]");
}

#[test]
fn a_shadow_never_denies_and_an_unlimited_limit_never_hides_one_that_does() {
    let daemon = Daemon::new(
        "[[limit]]\nname = \"shadow\"\nkey = [\"tenant\"]\nrate = \"1/d\"\nshadow = true\n\
         [[limit]]\nname = \"real\"\nkey = [\"tenant\"]\nrate = \"3/d\"\n\
         match = { route = \"r\" }\n\
         [[limit]]\nname = \"open\"\nrate = \"unlimited\"\nmatch = { route = \"r\" }\n",
    );
    let mut http = daemon.http();
    let mut ask = |route: &str| check(&mut http, json!({"tenant": "acme", "route": route}), 1);
    let (status, body) = ask("r");
    assert_eq!((status, &body["limit"], &body["remaining"]), (200, &json!("real"), &json!(2)));
    let (status, body) = ask("other");
    assert_eq!((status, &body["shadow_denied_by"]), (200, &json!("shadow")), "{body}");
    for left in [1, 0] {
        let (status, body) = ask("r");
        assert_eq!((status, &body["remaining"]), (200, &json!(left)));
        assert_eq!(body["shadow_denied_by"], "shadow", "{body}");
    }
    let (status, body) = ask("r");
    assert_eq!(
        (status, &body["limit"], &body["violated-policies"]),
        (429, &json!("real"), &json!(["real"]))
    );
    let series = "tollgate_limit_shadow_denials_total{domain=\"default\",limit=\"shadow\"}";
    assert!(daemon.metric(series) >= 3);
    let denied = "{domain=\"default\",limit=\"shadow\",decision=\"denied\",reason=\"over_limit\"}";
    assert_eq!(daemon.metric(&format!("tollgate_limit_decisions_total{denied}")), 0);
}

#[test]
fn the_example_of_the_tenant_dialect_limits_what_it_says() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/tenants.toml");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let daemon = Daemon::at(folder, example.as_ref(), &[]);
    let mut http = daemon.http();
    let mut ask = |tenant: &str, metric: &str, cost: u64| {
        check(&mut http, json!({"tenant": tenant, "metric": metric}), cost)
    };
    for (tenant, metric, burst) in [
        ("small", "read_iops", 10_000),
        ("acme", "read_iops", 40_000),
        ("small", "read_throughput", 1_u64 << 30),
    ] {
        let (status, body) = ask(tenant, metric, burst);
        assert_eq!((status, &body["limit"]), (200, &json!(metric)));
        assert_eq!((&body["burst"], &body["remaining"]), (&json!(burst), &json!(0)), "{tenant}");
        // More than comes back in a minute.
        let (status, body) = ask(tenant, metric, burst.min(5_000 * 60) + burst);
        assert_eq!((status, &body["reason"]), (429, &json!("over_limit")), "paced, {body}");
    }
    let (status, body) = ask("acme", "read_throughput", 1 << 50);
    assert_eq!((status, &body["burst"]), (200, &Value::Null), "wholesale: unlimited");
    let (status, body) = ask("acme", "origin_read_bytes", 1 << 50);
    assert_eq!((status, &body["limit"]), (200, &Value::Null));
    let answer = http.post("/v1/check", r#"{"entries":{"tenant":"","metric":"read_iops"}}"#);
    assert!([200, 400].contains(&answer.status));
}

#[test]
fn two_requests_in_one_segment_have_two_answers_in_order() {
    let daemon = Daemon::new(TEN);
    let mut stream = crate::support::connect(daemon.door("http"));
    let one = crate::http::request("POST", "/v1/check", "", entries("a", "").as_bytes());
    let last = crate::http::request(
        "POST",
        "/v1/check",
        "connection: close\r\n",
        entries("b", "").as_bytes(),
    );
    std::io::Write::write_all(&mut stream, &[one.clone(), one, last].concat()).expect("sent");
    let text = String::from_utf8(read_to_end(&mut stream)).expect("text");
    let left: Vec<&str> = text.split("\"remaining\":").skip(1).map(|rest| &rest[..1]).collect();
    assert_eq!(left, ["9", "8", "9"]);
    assert!(text.contains("\r\nconnection: close\r\n"), "{text}");
}
