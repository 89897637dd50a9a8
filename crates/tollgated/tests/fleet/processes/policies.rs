//! What a fleet's policy survives: its replicas killed while it changes. And how soon a change is
//! in force.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use super::course::{Course, Form, alone, ms, policy};
use super::judge::{self, SECOND};
use super::load::{Door, Outcome, now_ns};
use crate::harness::Fleet;
use crate::support::{Answer, Http, connect, run};

/// What a policy was acknowledged as: its revision, and the rate that says which one it is.
type Acknowledged = BTreeMap<u64, String>;

/// Replicas are killed, one after another, while policies are put.
fn replicas_killed(form: Form) {
    let _alone = alone();
    let (kills, mut chance) = (form.choose(6, 50), Chance(form.choose(1, 7)));
    let first = form.limit();
    let (mut fleet, doors) = Fleet::with_doors(3, &policy(&first), &[]);
    let (mut acknowledged, mut put, mut unknown) = (Acknowledged::new(), 0, 0);
    let mut all = 0;
    for _ in 0..kills {
        let victim = chance.below(3) as usize;
        let others = doors.clone();
        let writes = std::thread::spawn(move || {
            // The first of them meets the kill, the others what comes after it.
            let number = |write| put + write;
            (0..WRITES)
                .map(|write| (number(write), put_policy(&others, victim, number(write))))
                .collect::<Vec<_>>()
        });
        sleep(Duration::from_millis(chance.below(30)));
        fleet.daemon(victim).kill9();
        for (number, revision) in writes.join().expect("a writer does not fail") {
            match revision {
                Some(revision) => {
                    let before = acknowledged.insert(revision, rate(number));
                    assert_eq!(before, None, "revision {revision} was given twice");
                }
                None => unknown += 1,
            }
        }
        put += WRITES;
        fleet.daemon(victim).restart();
        fleet.wait_until_whole();
        // A fleet keeps a hundred policies: what is acknowledged is looked for before it leaves.
        all += acknowledged.len();
        doors.iter().for_each(|door| has_all(*door, &acknowledged));
        acknowledged.clear();
    }
    println!("\n## {kills} kills of replicas while policies are put");
    println!("{put} put, {all} acknowledged and found on all daemons, {unknown} unanswered");
    assert!(all as u64 >= put / 2, "only {all} of {put} were acknowledged");
}

/// Puts policy `number` on one of the daemons that are not the victim, again on another if it is
/// surely not in force. Returns its revision, or nothing if what became of it is not known.
fn put_policy(doors: &[SocketAddr], victim: usize, number: u64) -> Option<u64> {
    let limit = json!({"name": "api", "key": ["tenant"], "rate": rate(number), "burst": 5,
                       "guarantee": "eventual"});
    let body = json!({"limits": [limit], "comment": number.to_string()}).to_string();
    let at = (victim + 1 + number as usize % 2) % doors.len();
    let answer = ask_put(doors[at], &body);
    match answer.status {
        200 => answer.number("revision"),
        // No leader was found, or one that was lost before it said what became of it.
        503 | 504 => None,
        status => panic!("{status}: {}", answer.text()),
    }
}

fn ask_put(door: SocketAddr, body: &str) -> Answer {
    let length = format!("content-length: {}\r\n", body.len());
    Http::new(connect(door)).ask("PUT", "/v1/policy", &length, body.as_bytes())
}

/// Asserts that a daemon knows each of these revisions, with the text that was acknowledged.
fn has_all(door: SocketAddr, acknowledged: &Acknowledged) {
    let mut http = Http::new(connect(door));
    for (revision, rate) in acknowledged {
        let answer = http.get(&format!("/v1/policy/{revision}"));
        assert_eq!(answer.status, 200, "revision {revision} at {door}: {}", answer.text());
        let found = &answer.json()["limits"][0]["rate"];
        assert_eq!(found, &Value::from(rate.as_str()), "revision {revision} at {door}");
    }
}

/// The rate of the policy with this number, which no other has.
fn rate(number: u64) -> String {
    format!("{}/s", 1_000 + number)
}

/// Chance from a seed, so that a run can be told.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % end
    }
}

/// In each round: one that meets the kill, and others that come after it.
const WRITES: u64 = 4;

#[test]
fn no_acknowledged_policy_is_lost_when_replicas_are_killed() {
    replicas_killed(Form::Short);
}

#[test]
#[ignore = "long: e2e/fleet"]
fn long_replicas_killed() {
    replicas_killed(Form::Long);
}

/// A policy that is put on one daemon, by what the others decide.
fn in_force_everywhere(form: Form) {
    let _alone = alone();
    let (_fleet, doors) = Fleet::with_doors(3, &policy(&form.limit()), &[]);
    let places: Vec<Door> = doors.iter().copied().map(Door::Tcp).collect();
    let mut took = Vec::new();
    for round in 0..form.choose(4, 30) {
        let tenant = format!("banned-{round}");
        let limits: Vec<Value> = (0..=round).map(ban).collect();
        let body = json!({"limits": limits}).to_string();
        let began = now_ns();
        let put = ask_put(doors[round % 3], &body);
        assert_eq!(put.status, 200, "{}", put.text());
        let until = began + 20 * SECOND;
        for place in &places {
            while place.check(&tenant) != Some(Outcome::Denied) {
                assert!(now_ns() < until, "{tenant} still passes at {place:?}");
                sleep(Duration::from_millis(1));
            }
        }
        took.push(now_ns() - began);
    }
    took.sort_unstable();
    let (half, most) = (judge::quantile(&took, 0.5), judge::quantile(&took, 1.0));
    println!("\n## a policy that is put on one daemon is in force on all");
    println!("{} times: p50 {:.1} ms, at most {:.1} ms (bar: 1 s)", took.len(), ms(half), ms(most));
    assert!(half < SECOND, "it took {} ms", ms(half));
}

/// A limit that lets nothing of one tenant pass.
fn ban(round: usize) -> Value {
    json!({"name": format!("ban-{round}"), "match": {"tenant": format!("banned-{round}")},
           "rate": "zero"})
}

#[test]
fn a_policy_that_is_put_on_one_daemon_is_in_force_on_all_within_a_second() {
    in_force_everywhere(Form::Short);
}

#[test]
#[ignore = "long: e2e/fleet"]
fn long_in_force() {
    in_force_everywhere(Form::Long);
}

/// One and then two of three replicas are down.
fn majority_lost(form: Form) {
    let mut course = Course::start("one and then two of three coordinators are down", form, &[]);
    let (first, second) = (course.other(), course.victim);
    let file = course.fleet.folder().join("other.toml");
    let apply = |course: &Course, burst: u64| {
        let limit = judge::Limit { burst, ..course.limit };
        std::fs::write(&file, policy(&limit)).expect("written");
        let door = course.door(course.survivor);
        run(&["limit", "apply", file.to_str().expect("a plain path"), "--server", &door])
    };
    let burst = course.limit.burst;
    course.go_on(1_500);
    course.fleet.daemon(first).kill9();
    let (code, out, err) = apply(&course, burst - 1);
    assert_eq!(code, 0, "two of three are a majority: {out}{err}");
    course.go_on(form.choose(500, 5_000));

    course.fleet.daemon(second).kill9();
    let began = now_ns();
    let (code, out, refused) = apply(&course, burst - 2);
    let refused_after = now_ns() - began;
    assert_ne!(code, 0, "one of three decides nothing: {out}");
    // A survivor that led has written it, and can't know whether it will be in force.
    let is_clear = ["have had no leader", "it may take force yet"];
    assert!(is_clear.iter().any(|what| refused.contains(what)), "{refused}");
    course.go_on(form.choose(500, 5_000));

    let began = now_ns();
    course.fleet.daemon(second).restart();
    let until = began + 30 * SECOND;
    while apply(&course, burst - 3).0 != 0 {
        assert!(now_ns() < until, "policies can't be put though two of three are there");
    }
    let again = now_ns() - began;
    course.fleet.daemon(first).restart();
    course.fleet.wait_until_whole();
    course.go_on(1_000);
    let mut outcomes = course.finish();
    outcomes.judge(0);
    outcomes.judge_quiet();
    outcomes.line(&format!(
        "with one of three, `limit apply` says after {:.0} ms: {}",
        ms(refused_after),
        refused.trim_end()
    ));
    outcomes.line(&format!("{:.0} ms after a second one was started it was accepted", ms(again)));
    outcomes.print();
}

#[test]
fn known_limits_go_on_without_a_majority_and_changes_are_refused_until_there_is_one() {
    majority_lost(Form::Short);
}

#[test]
#[ignore = "long: e2e/fleet"]
fn long_majority_lost() {
    majority_lost(Form::Long);
}
