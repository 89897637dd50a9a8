//! `tollgate fleet`: who is a member, and what each limit promises beside what was observed.

use std::process::ExitCode;

use clap::Args;
use hyper::Request;
use serde_json::Value;

use super::changes::plain;
use super::client::Door;
use super::limit::{good, table};
use super::paint::Paint;
use super::say;

#[derive(Args)]
pub(crate) struct Fleet {
    /// Print the daemon's answer as it is, in JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    door: Door,
}

impl Fleet {
    pub(crate) fn run(&self) -> Result<ExitCode, String> {
        let answer = self.door.ask(Request::get("/v1/fleet"), String::new())?;
        let body = match good(&answer) {
            Ok(body) => body,
            Err(told) => return Ok(told.print()),
        };
        if self.json {
            say(&format!("{body:#}"));
        } else {
            lines(&body, Paint::of_stdout()).iter().for_each(|line| say(line));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn lines(body: &Value, paint: Paint) -> Vec<String> {
    let (members, limits) = (list(body, "members"), list(body, "limits"));
    let mut lines = vec![format!(
        "fleet {}, ring epoch {}, policy revision {}, seen by node {}",
        text(body, "fleet"),
        text(body, "ring_epoch"),
        text(body, "policy_revision"),
        text(body, "node"),
    )];
    lines.push(String::new());
    lines.extend(table(MEMBERS, members.iter().map(member).collect()));
    let shares = list(body, "shares");
    if limits.is_empty() && shares.is_empty() {
        lines.extend([String::new(), "no limit is shared by the fleet".into()]);
    }
    if !limits.is_empty() {
        lines.push(String::new());
        lines.extend(table(LIMITS, limits.iter().map(limit).collect()));
    }
    if !shares.is_empty() {
        lines.push(String::new());
        lines.extend(table(SHARES, shares.iter().map(share).collect()));
    }
    lines.push(String::new());
    lines.push(mishaps(body, paint));
    if !list(body, "missing").is_empty() {
        let missing: Vec<String> = list(body, "missing").iter().map(Value::to_string).collect();
        let told = format!("not all is here: no answer from node {}", missing.join(", "));
        lines.push(paint.yellow(&told));
    }
    lines
}

fn member(member: &Value) -> [String; 6] {
    let is = |name: &str| member[name].as_bool() == Some(true);
    let mut roles = Vec::new();
    if is("is_leader") {
        roles.push("leads");
    } else if is("is_replica") {
        roles.push("replica");
    }
    if is("is_this") {
        roles.push("asked");
    }
    let share = member["share_of_keys"].as_f64().unwrap_or_default() * 100.0;
    [
        text(member, "node"),
        text(member, "address"),
        if is("in_ring") { "in the ring" } else { "not in the ring" }.into(),
        format!("{share:.1} %"),
        if is("has_answered") { "yes" } else { "no" }.into(),
        roles.join(", "),
    ]
}

fn limit(limit: &Value) -> [String; 7] {
    let (promised, observed) = (&limit["promised"], &limit["observed"]);
    [
        format!("{}/{}", text(limit, "domain"), text(limit, "name")),
        format!("{} + {} * t", text(promised, "burst"), text(promised, "rate")),
        text(promised, "envelope_possible"),
        text(observed, "applied_units"),
        text(observed, "excess_max"),
        text(observed, "breaches"),
        text(observed, "envelope"),
    ]
}

/// A limit that nodes divide, over all nodes that answered.
fn share(limit: &Value) -> [String; 8] {
    let nodes = list(limit, "nodes");
    let members = |phase: &str| -> String {
        let each = nodes.iter().filter_map(|node| node["members"][phase].as_u64());
        each.sum::<u64>().to_string()
    };
    let given: f64 = nodes.iter().filter_map(|node| node["rate"].as_f64()).sum();
    let failing: Vec<String> = list(limit, "failing_nodes").iter().map(Value::to_string).collect();
    [
        format!("{}/{}", text(limit, "domain"), text(limit, "name")),
        text(limit, "mode"),
        text(limit, "rate"),
        format!("{:.1}/s", limit["floor"].as_f64().unwrap_or_default()),
        format!("{given:.1}/s"),
        members("startup"),
        members("normal"),
        if failing.is_empty() {
            members("failing")
        } else {
            format!("{} on node {}", members("failing"), failing.join(", "))
        },
    ]
}

/// What the promise makes an exception for, in words.
fn mishaps(body: &Value, paint: Paint) -> String {
    let of = &body["observed"];
    let seconds = |name: &str| of[name].as_f64().unwrap_or_default();
    let (overlaps, pauses) = (text(of, "overlaps"), text(of, "pauses"));
    if overlaps == "0" && pauses == "0" {
        return "no two owners overlapped, and no process stood still".into();
    }
    let told = format!(
        "two owners overlapped {overlaps} times, for {:.3} s at most; a process stood still \
         {pauses} times, for {:.3} s at most, {} units may have been spent late",
        seconds("longest_overlap_seconds"),
        seconds("longest_pause_seconds"),
        text(of, "late_units"),
    );
    if overlaps == "0" { told } else { paint.yellow(&told) }
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value, name: &str) -> String {
    match &value[name] {
        Value::String(text) => plain(text),
        Value::Null => "-".into(),
        other => plain(&other.to_string()),
    }
}

const MEMBERS: [&str; 6] = ["node", "address", "is", "keys", "answers", "role"];
const LIMITS: [&str; 7] = [
    "limit",
    "promised in t",
    "at worst beyond",
    "applied",
    "excess",
    "breaches",
    "envelope so far",
];
const SHARES: [&str; 8] =
    ["divided", "mode", "rate", "at least", "given", "starting", "sharing", "failing"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_promised_stands_in_one_row_with_what_was_observed() {
        let body = json!({
            "fleet": "00000000000000ab", "node": 2, "ring_epoch": 12, "policy_revision": 3,
            "members": [
                {
                    "node": 1, "address": "10.0.0.1:7800", "in_ring": true, "share_of_keys": 0.75,
                    "is_leader": true, "is_replica": true, "is_this": false, "has_answered": false
                },
                {
                    "node": 2, "address": "10.0.0.2:7800", "in_ring": true, "share_of_keys": 0.25,
                    "is_leader": false, "is_replica": false, "is_this": true, "has_answered": true
                }
            ],
            "limits": [{
                "name": "api", "domain": "default",
                "promised": { "burst": 100, "rate": "1000/s", "envelope_possible": 2180 },
                "observed": {
                    "applied_units": 5000, "excess_max": 0, "breaches": 0, "envelope": 80
                }
            }],
            "observed": {
                "overlaps": 0, "pauses": 3, "longest_overlap_seconds": 0.0,
                "longest_pause_seconds": 0.0125, "late_units": 4
            },
            "missing": [1]
        });
        let expected = "\
fleet 00000000000000ab, ring epoch 12, policy revision 3, seen by node 2

node  address        is           keys    answers  role
   1  10.0.0.1:7800  in the ring  75.0 %  no       leads
   2  10.0.0.2:7800  in the ring  25.0 %  yes      asked

limit        promised in t     at worst beyond  applied  excess  breaches  envelope so far
default/api  100 + 1000/s * t             2180     5000       0         0               80

two owners overlapped 0 times, for 0.000 s at most; a process stood still 3 times, for 0.013 s at \
most, 4 units may have been spent late
not all is here: no answer from node 1";
        assert_eq!(lines(&body, Paint::NONE).join("\n"), expected);
    }

    #[test]
    fn a_divided_limit_has_its_members_on_all_nodes_in_one_row() {
        let node = |starting: u64, failing: u64, rate: f64| {
            json!({
                "members": { "startup": starting, "normal": 2, "failing": failing }, "rate": rate
            })
        };
        let body = json!({
            "shares": [{
                "name": "api", "domain": "default", "mode": "global", "rate": "100/s",
                "floor": 50.0, "failing_nodes": [2], "nodes": [node(1, 0, 60.25), node(0, 3, 20.0)]
            }],
            "observed": { "overlaps": 0, "pauses": 0 }
        });
        let expected = "\
divided      mode    rate   at least  given   starting  sharing  failing
default/api  global  100/s  50.0/s    80.2/s         1        4  3 on node 2";
        let lines = lines(&body, Paint::NONE);
        let told: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
        assert!(told.join("\n").contains(&format!("\n\n{expected}\n\n")), "{told:#?}");
        assert!(!told.contains(&"no limit is shared by the fleet"));
    }
}
