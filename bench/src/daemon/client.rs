//! What loads a server: `redis-benchmark`, `wrk` or `h2load`, on a core of its own and for a
//! bounded time.

use std::path::PathBuf;
use std::process::Command;

use super::grpc::{Call, HEADERS};
use super::scratch::Scratch;
use super::server::{Server, installed};

/// A load that can be repeated.
pub enum Client {
    Resp { pipeline: u32, requests: u32, words: Vec<String> },
    Http { connections: u32, path: &'static str, script: PathBuf },
    Grpc { connections: u32, streams: u32, requests: u32, call: Call, answer_bytes: u64 },
}

/// What a client did.
pub struct Done {
    pub requests: f64,
    pub seconds: f64,
}

impl Client {
    /// 50 connections that send a command of words without spaces, `pipeline` at a time.
    pub fn resp(pipeline: u32, requests: u32, words: &str) -> Self {
        Self::Resp { pipeline, requests, words: words.split(' ').map(str::to_owned).collect() }
    }

    /// Connections that stay open and post one of `count` bodies; `body` is Lua for that of `i`.
    pub fn http(
        scratch: &Scratch,
        connections: u32,
        path: &'static str,
        count: u32,
        body: &str,
    ) -> Self {
        let load = include_str!("load.lua");
        let script = format!("count = {count}\nfunction body(i)\n  {body}\nend\n\n{load}");
        let name = format!("{}-{count}.lua", path.replace('/', "-"));
        Self::Http { connections, path, script: scratch.write(&name, &script) }
    }

    /// Sends it all, and waits for the answers.
    pub fn run(&self, server: &Server) -> Result<Done, String> {
        match self {
            Self::Resp { pipeline, requests, words } => {
                installed("redis-benchmark", "redis-tools")?;
                let mut command = pinned("redis-benchmark");
                command.args(["-h", "127.0.0.1", "-c", "50", "--csv", "-r", "1000000"]);
                command.args(["-p", &server.ports.resp.to_string(), "-P", &pipeline.to_string()]);
                command.args(["-n", &requests.to_string()]).args(words);
                redis_benchmark_done(*requests, &output(command)?)
            }
            Self::Http { connections, path, script } => {
                installed("wrk", "wrk")?;
                let mut command = pinned("wrk");
                command.args(["-t", "1", "-d", WRK_SECONDS, "-c", &connections.to_string()]);
                command.arg("-s").arg(script);
                command.arg(format!("http://127.0.0.1:{}{path}", server.ports.http));
                wrk_done(&output(command)?)
            }
            Self::Grpc { connections, streams, requests, call, answer_bytes } => {
                installed("h2load", "nghttp2-client")?;
                let mut command = pinned("h2load");
                command.args(["-c", &connections.to_string(), "-m", &streams.to_string()]);
                command.args(["-n", &requests.to_string(), "-d"]).arg(&call.body);
                command.args(HEADERS.iter().flat_map(|header| ["-H", *header]));
                command.arg(call.url(server.ports.grpc));
                h2load_done(*requests, *answer_bytes, &output(command)?)
            }
        }
    }
}

/// It ends by itself at the first error that a server answers.
fn redis_benchmark_done(requests: u32, printed: &str) -> Result<Done, String> {
    let last = printed.trim().lines().last().unwrap_or_default();
    let rate = last.trim_matches('"').split("\",\"").nth(1).and_then(|rate| rate.parse().ok());
    let rate: f64 = rate.ok_or_else(|| format!("redis-benchmark printed {printed:?}"))?;
    Ok(Done { requests: f64::from(requests), seconds: f64::from(requests) / rate })
}

/// The line that `load.lua` prints; an answer of 400 and above is an error.
fn wrk_done(printed: &str) -> Result<Done, String> {
    let line = printed.lines().find_map(|line| line.strip_prefix("done "));
    let numbers: Vec<f64> =
        line.unwrap_or_default().split(' ').filter_map(|number| number.parse().ok()).collect();
    match numbers[..] {
        [requests, micros, 0.0] if requests > 0.0 => Ok(Done { requests, seconds: micros / 1e6 }),
        [requests, _, errors] => Err(format!("wrk: {errors} errors, {requests} requests")),
        _ => Err(format!("wrk printed {printed:?}")),
    }
}

/// It counts heads. A fault is one without a body, and who denies has less to say: so all answers
/// have to be as long as the one that was looked at.
fn h2load_done(requests: u32, answer_bytes: u64, printed: &str) -> Result<Done, String> {
    // The number before a word.
    let before = |word: &str| -> Option<f64> {
        let number = printed.split(word).next()?.rsplit(' ').next()?;
        number.trim_matches(['(', ')']).parse().ok()
    };
    let figures = (before(" req/s,"), before(" succeeded,"), before(" data\n"));
    let (Some(rate), Some(succeeded), Some(bytes)) = figures else {
        return Err(format!("h2load printed {printed:?}"));
    };
    let (requests, expected) = (f64::from(requests), f64::from(requests) * answer_bytes as f64);
    if succeeded != requests || bytes != expected {
        return Err(format!(
            "h2load: {succeeded} of {requests} answers, with {bytes} bytes instead of {expected}"
        ));
    }
    Ok(Done { requests, seconds: requests / rate })
}

/// A client that is stopped when it hangs.
fn pinned(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal", "KILL", CLIENT_SECONDS_MAX, "taskset", "-c", CORE, program]);
    command
}

fn output(mut command: Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("timeout (coreutils): {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.trim().lines().last().unwrap_or("it said nothing");
    Err(format!("the client ended with {}: {last}", output.status))
}

const CORE: &str = "1";
const WRK_SECONDS: &str = "1";
const CLIENT_SECONDS_MAX: &str = "30";
