//! What is shown of a running daemon: as much for twenty thousand tenants as for one.

use std::collections::BTreeSet;

use crate::http::entries;
use crate::support::{Daemon, TEN, wait_until};

/// The series of a text of metrics, without their values.
fn series(text: &str) -> BTreeSet<String> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.map(|line| line.rsplit_once(' ').expect("a value").0.to_owned()).collect()
}

#[test]
fn twenty_thousand_tenants_add_no_series_and_the_offenders_are_a_list_of_bounded_size() {
    let daemon = Daemon::new("[[limit]]\nname = \"api\"\nkey = [\"tenant\"]\nrate = \"1/d\"\n");
    let mut http = daemon.http();
    let mut resp = daemon.resp();
    let before = series(&http.get("/metrics").text());
    let padding = "x".repeat(200);
    for batch in 0..20 {
        let one = |n: u64| entries(&format!("{} {padding}", batch * 500 + n % 500), "");
        let items: Vec<String> = (0..1_000).map(one).collect();
        let body = format!("{{\"requests\":[{}]}}", items.join(","));
        assert_eq!(http.post("/v1/check", body).status, 200);
        for n in 0..500 {
            let key = format!("brought {batch} {n}");
            resp.send(&crate::resp::command(&[
                b"CL.THROTTLE",
                key.as_bytes(),
                b"0",
                b"1",
                b"9999",
            ]));
        }
        for _ in 0..500 {
            assert_eq!(resp.reply().left(), (true, 0));
        }
    }
    assert_eq!(http.check("the worst").status, 200);
    for _ in 0..499 {
        assert_eq!(http.check("the worst").status, 429);
    }
    let after = http.get("/metrics").text();
    assert_eq!(series(&after), before);
    assert!(after.len() < 20_000, "{} bytes", after.len());
    assert_eq!(daemon.keys(), 20_001 + 1);
    let offenders = http.get("/v1/offenders");
    assert!(offenders.text().len() < 64 << 10, "{} bytes", offenders.text().len());
    let body = offenders.json();
    let list = body["offenders"].as_array().expect("a list");
    assert_eq!(list.len(), 128);
    assert_eq!(list[0]["key"]["tenant"], "the worst");
    let (denied, error) = (list[0]["denied"].as_u64(), list[0]["error"].as_u64());
    let (denied, error) = (denied.expect("a number"), error.expect("a number"));
    assert!((denied - error..=denied).contains(&499), "{denied} and {error}");
}

#[test]
fn metrics_are_a_text_that_collectors_read_in_either_format() {
    let daemon = Daemon::new(TEN);
    let mut http = daemon.http();
    http.check("acme");
    let plain = http.get("/metrics");
    let kind = plain.header("content-type").expect("a type");
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    let open = http.ask("GET", "/metrics", "accept: application/openmetrics-text\r\n", b"");
    let kind = open.header("content-type").expect("a type");
    assert!(kind.starts_with("application/openmetrics-text; version=1.0.0"), "{kind}");
    assert!(open.text().ends_with("# EOF\n") && !plain.text().contains("# EOF"));
    for answer in [plain, open] {
        let text = answer.text();
        let typed: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
        assert_eq!(typed.len(), typed.iter().collect::<BTreeSet<_>>().len());
        assert!(typed.len() > 10, "{text}");
        for sample in series(&text) {
            assert!(sample.starts_with("tollgate_"), "{sample}");
        }
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let value = line.rsplit_once(' ').expect("a value").1;
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
        let buckets = text.lines().filter(|line| line.contains("_bucket") && line.contains("http"));
        let counts: Vec<f64> = buckets
            .map(|line| line.rsplit_once(' ').expect("a value").1.parse().expect("a number"))
            .collect();
        assert!(counts.is_sorted() && counts.last() == Some(&1.0), "{counts:?}");
    }
}

#[test]
fn each_limit_counts_what_it_decided_and_each_door_what_was_asked_there() {
    let daemon = Daemon::new(TEN);
    let (mut http, mut resp) = (daemon.http(), daemon.resp());
    for _ in 0..12 {
        http.check("acme");
        resp.throttle(b"k");
    }
    http.post("/v1/check", entries("acme", ",\"cost\":11"));
    http.post("/v1/peek", entries("acme", ""));
    for (of, denied) in [
        ("tollgate_limit_decisions_total{domain=\"default\",limit=\"api\"", 2),
        ("tollgate_limit_decisions_total{domain=\"\",limit=\"brought\"", 2),
        ("tollgate_decisions_total{face=\"http\"", 2),
        ("tollgate_decisions_total{face=\"resp\"", 2),
    ] {
        let allowed = format!("{of},decision=\"allowed\",reason=\"\"}}");
        assert_eq!(daemon.metric(&allowed), 10, "{of}");
        let over = format!("{of},decision=\"denied\",reason=\"over_limit\"}}");
        assert_eq!(daemon.metric(&over), denied, "{of}");
    }
    let never = "{face=\"http\",decision=\"denied\",reason=\"cost_exceeds_burst\"}";
    assert_eq!(daemon.metric(&format!("tollgate_decisions_total{never}")), 1);
    let limits = http.get("/v1/limits").json();
    let counts = &limits["limits"][0]["counts"];
    assert_eq!((&counts["allowed"], &counts["over_limit"]), (&10.into(), &2.into()));
    assert_eq!(limits["limits"][0]["rate"], "10/d");
}

#[test]
fn a_daemon_that_is_alone_divides_its_limits_and_shows_how_they_stand() {
    let example = include_str!("../../../../examples/share.toml");
    let daemon = Daemon::new(example);
    let mut http = daemon.http();
    http.check("shop");
    let mut share = serde_json::Value::Null;
    wait_until("the owner of the key has answered", || {
        share = http.get("/v1/limits").json()["limits"][0]["share"].clone();
        share["members"]["normal"] == 1 && share["top_keys"][0]["nodes"][0]["rate"] == 100.0
    });
    let row = &share["top_keys"][0];
    assert_eq!((&share["mode"], &share["floor"]), (&"global".into(), &100.0.into()));
    assert_eq!((&row["key"]["tenant"], &row["rate"]), (&"shop".into(), &100.0.into()));
    let of = "{domain=\"default\",limit=\"api\"";
    assert_eq!(daemon.metric(&format!("tollgate_share_members{of},phase=\"normal\"}}")), 1);
    assert_eq!(daemon.metric(&format!("tollgate_share_allowed_total{of}}}")), 1);
}
