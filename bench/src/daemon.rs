//! The rows of the daemon on loopback: tollgate and its peers, each a process on one core, with the
//! client on another.
//!
//! Which requests each of them gets is written here; how a server is started, in `server`; what
//! loads it, in `client`; how it is sampled, in `row`. Whoever cannot be started is named, and the
//! bars that need it are not judged.

mod ask;
mod scratch;
mod grpc;
mod server;
mod client;
mod row;

use std::process::{Command, ExitCode};
use std::time::Duration;

use crate::bar::{judge, judge_exact};
use crate::measure::Quartiles;
use ask::{ask, resp};
use client::Client;
use grpc::Call;
use row::Row;
use scratch::Scratch;
use server::Server;

/// How a row ended; a run ends as its worst row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Kept,
    /// Not judged, since something is missing.
    Unknown,
    Short,
}

/// Measures the rows with `filter` in their names. Ends with 1 when a bar is short, with 2 when one
/// could not be measured.
pub fn run(filter: &str) -> ExitCode {
    let scratch = Scratch::new();
    let wanted = ROWS.iter().filter(|(name, _)| name.contains(filter));
    let worst = wanted.map(|(name, row)| row(name, &scratch)).max();
    match worst.unwrap_or(Verdict::Unknown) {
        Verdict::Kept => ExitCode::SUCCESS,
        Verdict::Short => ExitCode::from(1),
        Verdict::Unknown => ExitCode::from(2),
    }
}

/// No pipelining: all that a request costs but the kernel's part is small, so the floor is a server
/// that does nothing.
fn resp_p1(name: &'static str, scratch: &Scratch) -> Verdict {
    let client = |words: &str| Client::resp(1, REQUESTS_P1, words);
    let mut row = Row::new(name, 1);
    row.add("tollgate", tollgate_resp(scratch).map(|server| (server, client(CL_THROTTLE))));
    row.add("redis PING", server::redis(scratch).map(|server| (server, client("PING"))));
    row.add("throttlecrab", crab_resp(scratch).map(|server| (server, client(THROTTLE))));
    let measured = row.measure();
    verdict(name, measured.ratio("tollgate", "redis PING", |sample| sample.cpu_micros))
}

/// 16 commands at once: the kernel's part is shared, and the server's own work shows.
fn resp_p16(name: &'static str, scratch: &Scratch) -> Verdict {
    let client = |requests, words: &str| Client::resp(16, requests, words);
    let mut row = Row::new(name, 1);
    let tollgate = tollgate_resp(scratch);
    row.add("tollgate", tollgate.map(|server| (server, client(REQUESTS_P16, CL_THROTTLE))));
    row.add("redis GCRA in Lua", gcra(scratch));
    // Few, for it is slow: it writes each reply alone and waits for the client's delayed ACK.
    let crab = crab_resp(scratch);
    row.add("throttlecrab", crab.map(|server| (server, client(REQUESTS_P16_CRAB, THROTTLE))));
    let measured = row.measure();
    verdict(name, measured.ratio("tollgate", "redis GCRA in Lua", |sample| sample.cpu_micros))
}

fn http_check(name: &'static str, scratch: &Scratch) -> Verdict {
    let wrk = |path, body| Client::http(scratch, 50, path, KEYS, body);
    let mut row = Row::new(name, 1);
    let tollgate = tollgate_http(scratch, TOLLGATE_PROBE, "\r\n\r\n{\"allowed\":true");
    row.add("tollgate", tollgate.map(|server| (server, wrk("/v1/check", TOLLGATE_BODY))));
    let crab = server::throttlecrab(scratch).and_then(|server| {
        let request = ask::post("/throttle", CRAB_PROBE);
        ask(server.ports.http, &request, "\"allowed\":true").map(|_| server)
    });
    row.add("throttlecrab", crab.map(|server| (server, wrk("/throttle", CRAB_BODY))));
    let measured = row.measure();
    verdict(name, measured.ratio("tollgate", "throttlecrab", |sample| sample.checks_per_second))
}

/// 100 checks a request, by as few connections as keep the server's core busy.
fn http_batch(name: &'static str, scratch: &Scratch) -> Verdict {
    let client = Client::http(scratch, 8, "/v1/check", KEYS / BATCH, TOLLGATE_BATCH_BODY);
    let tollgate = tollgate_http(scratch, TOLLGATE_BATCH_PROBE, "\"results\":[{\"allowed\":true");
    batch(name, tollgate.map(|server| (server, client)))
}

fn batch(name: &'static str, tollgate: Result<(Server, Client), String>) -> Verdict {
    let mut row = Row::new(name, BATCH);
    row.add("tollgate", tollgate);
    let measured = row.measure();
    if let Some(values) = measured.values("tollgate", |sample| 1e6 / sample.cpu_micros) {
        println!("# {name}: tollgate {:.0} checks a second of its CPU", values.median);
    }
    verdict(name, measured.values("tollgate", |sample| sample.checks_per_second))
}

/// One call at a time on each connection.
fn grpc_c50(name: &'static str, scratch: &Scratch) -> Verdict {
    grpc_beside_throttlecrab(name, 1, REQUESTS_GRPC, scratch)
}

/// 16 calls at once on each connection: what it reads and writes, it shares.
fn grpc_m16(name: &'static str, scratch: &Scratch) -> Verdict {
    grpc_beside_throttlecrab(name, 16, REQUESTS_GRPC_M16, scratch)
}

fn grpc_beside_throttlecrab(
    name: &'static str,
    streams: u32,
    requests: u32,
    scratch: &Scratch,
) -> Verdict {
    let load = |server, call| grpc_load(server, call, 50, streams, requests, scratch);
    let mut row = Row::new(name, 1);
    row.add("tollgate", load(server::tollgate(scratch), Call::should_rate_limit(scratch, 1)));
    row.add("throttlecrab", load(server::throttlecrab(scratch), Call::throttle(scratch)));
    let measured = row.measure();
    // Where h2load is the limit of both, only their CPU time tells them apart.
    if let Some(values) = measured.ratio("throttlecrab", "tollgate", |sample| sample.cpu_micros) {
        println!("# {name}: throttlecrab takes {:.2} times tollgate's CPU", values.median);
    }
    verdict(name, measured.ratio("tollgate", "throttlecrab", |sample| sample.checks_per_second))
}

fn grpc_batch(name: &'static str, scratch: &Scratch) -> Verdict {
    let call = Call::should_rate_limit(scratch, BATCH);
    let tollgate = server::tollgate(scratch);
    batch(name, grpc_load(tollgate, call, 8, 1, REQUESTS_GRPC_BATCH, scratch))
}

/// What a daemon holds before anyone has asked it anything.
fn idle_rss(name: &'static str, scratch: &Scratch) -> Verdict {
    let resident = |who: &str, server: Result<Server, String>| {
        let measured = server.map(|server| {
            std::thread::sleep(IDLE); // What starts late is then there.
            server.resident_mib()
        });
        match &measured {
            Ok(mib) => println!("# {name}: {who} {mib:.1}"),
            Err(why) => println!("# {name}: {who} is not measured: {why}"),
        }
        measured.ok()
    };
    resident("redis", server::redis(scratch));
    resident("throttlecrab", server::throttlecrab(scratch));
    let ours = resident("tollgate", server::tollgate(scratch));
    ours.map_or_else(|| unknown(name), |mib| exact(name, mib))
}

/// The release binary without its symbols.
fn binary(name: &'static str, scratch: &Scratch) -> Verdict {
    let stripped = scratch.path("tollgate-stripped");
    let size = server::tollgate_program().and_then(|program| {
        let run = Command::new("strip").arg("-o").arg(&stripped).arg(program).output();
        let run = run.map_err(|_| "strip is not installed (binutils)".to_owned())?;
        let metadata = std::fs::metadata(&stripped);
        metadata.map_err(|_| String::from_utf8_lossy(&run.stderr).trim().to_owned())
    });
    match size {
        Ok(metadata) => exact(name, metadata.len() as f64 / MIB),
        Err(why) => {
            println!("# {name}: {why}");
            unknown(name)
        }
    }
}

fn tollgate_resp(scratch: &Scratch) -> Result<Server, String> {
    let server = server::tollgate(scratch)?;
    // Allowed, and the limit is the burst and one more, as redis-cell has it.
    ask(server.ports.resp, &resp(CL_THROTTLE), "*5\r\n:0\r\n:1000001\r\n").map(|_| server)
}

fn tollgate_http(scratch: &Scratch, body: &str, expected: &str) -> Result<Server, String> {
    let server = server::tollgate(scratch)?;
    ask(server.ports.http, &ask::post("/v1/check", body), expected).map(|_| server)
}

fn crab_resp(scratch: &Scratch) -> Result<Server, String> {
    let server = server::throttlecrab(scratch)?;
    ask(server.ports.resp, &resp(THROTTLE), "*5\r\n:1\r\n:1000000\r\n").map(|_| server)
}

/// A server that allows `call`, and the client that repeats it.
fn grpc_load(
    server: Result<Server, String>,
    call: Call,
    connections: u32,
    streams: u32,
    requests: u32,
    scratch: &Scratch,
) -> Result<(Server, Client), String> {
    let server = server?;
    let answer_bytes = call.answer_bytes(server.ports.grpc, scratch)?;
    Ok((server, Client::Grpc { connections, streams, requests, call, answer_bytes }))
}

/// Redis with the script loaded, and the client that calls it.
fn gcra(scratch: &Scratch) -> Result<(Server, Client), String> {
    let server = server::redis(scratch)?;
    let load = ask::resp_words(&["SCRIPT", "LOAD", include_str!("daemon/gcra.lua")]);
    let answer = ask(server.ports.resp, &load, "$40\r\n")?;
    let digest = answer.lines().nth(1).unwrap_or_default();
    let words = format!("EVALSHA {digest} 1 {GCRA_ARGUMENTS}");
    ask(server.ports.resp, &resp(&words), "*4\r\n:0\r\n")?;
    let client = Client::resp(16, REQUESTS_P16_LUA, &words);
    Ok((server, client))
}

fn verdict(name: &str, values: Option<Quartiles>) -> Verdict {
    let Some(values) = values else { return unknown(name) };
    if judge(name, &values) { Verdict::Short } else { Verdict::Kept }
}

fn exact(name: &str, value: f64) -> Verdict {
    if judge_exact(name, value) { Verdict::Short } else { Verdict::Kept }
}

fn unknown(name: &str) -> Verdict {
    println!("# {name}: not measured, so not judged");
    Verdict::Unknown
}

type RowOf = fn(&'static str, &Scratch) -> Verdict;
const ROWS: [(&str, RowOf); 9] = [
    ("resp-p1", resp_p1),
    ("resp-p16", resp_p16),
    ("http-check", http_check),
    ("http-batch", http_batch),
    ("grpc-c50", grpc_c50),
    ("grpc-m16", grpc_m16),
    ("grpc-batch", grpc_batch),
    ("idle-rss-mib", idle_rss),
    ("binary-mib", binary),
];

// The same limit for everyone: 10^8 a second and a burst of 10^6, so that nothing is denied.
const CL_THROTTLE: &str = "CL.THROTTLE key:__rand_int__ 1000000 100000000 1";
const THROTTLE: &str = "THROTTLE key:__rand_int__ 1000000 100000000 1";
/// The script counts in whole microseconds, so its limit is 10^6 a second; of the limits that never
/// deny it is the cheapest for Redis, since keys are soon gone.
const GCRA_ARGUMENTS: &str = "key:__rand_int__ 1 1000000 1";

const TOLLGATE_PROBE: &str = r#"{"entries":{"tenant":"k0"},"cost":1}"#;
const TOLLGATE_BATCH_PROBE: &str = r#"{"requests":[{"entries":{"tenant":"k0"}}]}"#;
const CRAB_PROBE: &str =
    r#"{"key":"k0","max_burst":1000000,"count_per_period":100000000,"period":1}"#;

// Lua: the body of request `i`.
const TOLLGATE_BODY: &str = r#"return '{"entries":{"tenant":"k' .. i .. '"},"cost":1}'"#;
const CRAB_BODY: &str = r#"return '{"key":"k' .. i .. '","max_burst":1000000,'
  .. '"count_per_period":100000000,"period":1}'"#;
/// The keys of a request lie far apart.
const TOLLGATE_BATCH_BODY: &str = r#"local items = {}
  for item = 1, 100 do
    items[item] = '{"entries":{"tenant":"k' .. (i + count * item) .. '"}}'
  end
  return '{"requests":[' .. table.concat(items, ',') .. ']}'"#;

const KEYS: u32 = 100_000;
const BATCH: u32 = 100;
// Each takes about a second.
const REQUESTS_P1: u32 = 100_000;
const REQUESTS_P16: u32 = 500_000;
const REQUESTS_P16_LUA: u32 = 80_000;
const REQUESTS_P16_CRAB: u32 = 20_000;
const REQUESTS_GRPC: u32 = 30_000;
const REQUESTS_GRPC_M16: u32 = 50_000;
const REQUESTS_GRPC_BATCH: u32 = 15_000;
const IDLE: Duration = Duration::from_secs(1);
pub const MIB: f64 = 1024.0 * 1024.0;
