//! What the way of reports costs between real processes, beside what `tollgate plan` expects.
//!
//! One daemon owns nearly all keys and has no clients: what it does beyond resting is done for
//! others. The other two spend from hot keys, many requests at a time.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use super::course::{Form, alone, policy};
use super::judge::{Limit, MILLISECOND, SECOND};
use super::load::now_ns;
use crate::harness::{Fleet, Member};
use crate::support::{Http, connect, run};

/// What the fleet did in some time.
#[derive(Debug, Clone, Copy, Default)]
struct Reading {
    span_ns: u64,
    /// The owner's processor time.
    cpu_ns: u64,
    /// Reports that the owner applied.
    reports: u64,
    /// Messages and bytes that all members sent to each other.
    messages: u64,
    bytes: u64,
    /// Requests that were decided.
    requests: u64,
}

impl Reading {
    fn now(fleet: &Fleet) -> Self {
        let owner = fleet.member(0).running();
        let all = |series| fleet.running().map(|one| one.running().metric(series)).sum();
        Self {
            span_ns: now_ns(),
            cpu_ns: cpu_ns(fleet.member(0)),
            reports: owner.metric("tollgate_fleet_reports_applied_total"),
            messages: all("tollgate_fleet_link_messages_total{outcome=\"sent\"}"),
            bytes: all("tollgate_fleet_link_sent_bytes_total"),
            requests: 0,
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            span_ns: self.span_ns - before.span_ns,
            cpu_ns: self.cpu_ns - before.cpu_ns,
            reports: self.reports - before.reports,
            messages: self.messages - before.messages,
            bytes: self.bytes - before.bytes,
            requests: self.requests - before.requests,
        }
    }

    fn per_second(&self, count: u64) -> f64 {
        count as f64 * SECOND as f64 / self.span_ns as f64
    }
}

/// What clients ask of each worker, all at once and again every [`ROUND_MS`].
#[derive(Debug, Clone, Copy)]
struct Traffic {
    keys: usize,
    repeats: usize,
}

impl Traffic {
    /// Has both workers asked for a while, and reads what came of it once it has settled.
    fn run(self, fleet: &Fleet, doors: &[SocketAddr], span_ms: u64) -> Reading {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let asking: Vec<_> =
                doors[1..].iter().map(|door| scope.spawn(|| self.ask(*door, &is_over))).collect();
            sleep(Duration::from_millis(500));
            let before = Reading::now(fleet);
            sleep(Duration::from_millis(span_ms));
            let reading = Reading::now(fleet).since(before);
            is_over.store(true, Ordering::Relaxed);
            let requests: u64 = asking.into_iter().map(|one| one.join().expect("it asks")).sum();
            // What was asked before and after is little, and asked as often.
            let asked_ns = (span_ms + 500) * MILLISECOND;
            let requests = requests as f64 * reading.span_ns as f64 / asked_ns as f64;
            Reading { requests: requests as u64, ..reading }
        })
    }

    fn ask(self, door: SocketAddr, is_over: &AtomicBool) -> u64 {
        let one = |key: usize| format!("{{\"entries\":{{\"tenant\":\"hot-{key}\"}}}}");
        let all: Vec<String> =
            (0..self.keys * self.repeats).map(|at| one(at % self.keys)).collect();
        let body = format!("{{\"requests\":[{}]}}", all.join(","));
        let (mut http, mut asked, mut next) = (Http::new(connect(door)), 0, now_ns());
        while !is_over.load(Ordering::Relaxed) {
            let answer = http.post("/v1/check", &body);
            assert_eq!(answer.status, 200, "{}", answer.text());
            asked += all.len() as u64;
            next = (next + ROUND_MS * MILLISECOND).max(now_ns());
            sleep(Duration::from_nanos(next - now_ns().min(next)));
        }
        asked
    }
}

/// The processor time that a daemon has had, all its threads together.
fn cpu_ns(member: &Member) -> u64 {
    let tasks = format!("/proc/{}/task", member.running().id());
    let tasks = std::fs::read_dir(tasks).expect("a process has threads");
    let times = tasks.filter_map(|task| {
        // A thread may end while we look.
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    times.sum()
}

fn report_path(form: Form) {
    let _alone = alone();
    let limit = Limit::per_second(form.choose(200, 400), 100);
    let mut fleet = Fleet::with(0, Some(&policy(&limit)), &[]);
    let doors = fleet.add_with_doors(3, |index| {
        // Nearly all keys are one member's.
        ["--weight".into(), if index == 0 { "65535".into() } else { "1".into() }]
    });
    fleet.wait_until_whole();
    let span_ms = form.choose(2_000, 10_000);
    let rest = Reading::now(&fleet);
    sleep(Duration::from_millis(span_ms));
    let rest = Reading::now(&fleet).since(rest);
    let traffic = Traffic { keys: form.choose(50, 200), repeats: 1 };
    let busy = traffic.run(&fleet, &doors, span_ms);
    println!("\n## the way of reports: two workers, one owner, {} hot keys", traffic.keys);
    let own = busy.cpu_ns.saturating_sub(rest.cpu_ns) as f64 / 1_000.0;
    println!(
        "the owner applied {:.0} reports/s, each in {:.2} us of its processor time (bar: 1 us); at \
         rest it uses {:.2} % of a processor",
        busy.per_second(busy.reports),
        own / busy.reports.max(1) as f64,
        100.0 * rest.cpu_ns as f64 / rest.span_ns as f64
    );
    tell_bytes(&limit, traffic, &busy);

    // The same keys, ten times the requests.
    let few = Traffic { keys: 20, repeats: 1 };
    let many = Traffic { repeats: 10, ..few };
    let (one, ten) = (few.run(&fleet, &doors, span_ms), many.run(&fleet, &doors, span_ms));
    let (one_rate, ten_rate) = (one.per_second(one.messages), ten.per_second(ten.messages));
    println!(
        "{} keys: {one_rate:.0} messages/s at {:.0} requests/s, {ten_rate:.0} at {:.0}: {:.2} \
         times (bar: 1.2)",
        few.keys,
        one.per_second(one.requests),
        ten.per_second(ten.requests),
        ten_rate / one_rate
    );
    assert!(ten_rate < one_rate * 2.0, "messages grow with requests");
}

/// Bytes of a key and second, measured and planned.
fn tell_bytes(limit: &Limit, traffic: Traffic, busy: &Reading) {
    let keys = traffic.keys.to_string();
    let rate = format!("{}/s", limit.units);
    let words = ["plan", "--rate", &rate, "--burst", "100", "--workers", "2", "--delay", "50us"];
    let more = ["--keys", &keys, "--hot-keys", &keys, "--json"];
    let (code, out, err) = run(&[&words[..], &more[..]].concat());
    assert_eq!(code, 0, "{err}");
    let plan: Value = serde_json::from_str(&out).expect("JSON");
    let number = |name: &str| plan["worker"][name].as_f64().expect("a number");
    let planned = 2.0 * (number("report_bytes_per_second") + number("snapshot_bytes_per_second"));
    let entries = 2.0 * number("entries_per_second");
    println!(
        "{:.0} bytes of a key and second on the links, both ways and both workers ({:.0} planned); \
         {:.0} reports of a key and second ({:.0} planned)",
        busy.per_second(busy.bytes) / traffic.keys as f64,
        planned / traffic.keys as f64,
        busy.per_second(busy.reports) / traffic.keys as f64,
        entries / traffic.keys as f64
    );
    assert!(busy.per_second(busy.bytes) < planned * 2.0, "more than was planned for");
}

const ROUND_MS: u64 = 4;

#[test]
fn messages_do_not_grow_with_requests() {
    report_path(Form::Short);
}

#[test]
#[ignore = "long: e2e/fleet"]
fn long_path() {
    report_path(Form::Long);
}
