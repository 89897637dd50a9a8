//! Servers as processes: on loopback with quiet logs, pinned to a core, killed when dropped.
//!
//! They run in the scratch folder, on ports that the system says are free. A server also dies with
//! this program, however that ends.

use std::ffi::OsString;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::MIB;
use super::ask::{ask, get, resp};
use super::scratch::Scratch;
use crate::measure::process_cpu;
use crate::memory::resident_bytes;

/// A server that was ready.
pub struct Server {
    process: Child,
    pub ports: Ports,
}

/// Where a server is asked; Redis speaks one protocol, and leaves the others' ports unused.
#[derive(Clone, Copy)]
pub struct Ports {
    pub http: u16,
    pub grpc: u16,
    pub resp: u16,
}

/// The daemon, by the configuration of a reader's first try: one limit, never reached.
pub fn tollgate(scratch: &Scratch) -> Result<Server, String> {
    scratch.write(CONFIG, TOLLGATE_CONFIG);
    let ports = Ports::free();
    let Ports { http, grpc, resp } = ports;
    let arguments = words(&format!(
        "serve --config {CONFIG} --http 127.0.0.1:{http} --grpc 127.0.0.1:{grpc} \
         --resp 127.0.0.1:{resp} --threads 1 --log error"
    ));
    let server = Server::spawn(scratch, &tollgate_program()?, arguments, ports)?;
    server.when_ready(scratch, http, &get("/readyz"), "HTTP/1.1 200")
}

/// Redis that keeps nothing on disk.
pub fn redis(scratch: &Scratch) -> Result<Server, String> {
    installed("redis-server", "redis-server")?;
    let ports = Ports::free();
    let port = ports.resp;
    let arguments =
        words(&format!("--bind 127.0.0.1 --port {port} --appendonly no --loglevel warning --save"));
    let never = [OsString::new()]; // `--save ''`
    let arguments = arguments.into_iter().chain(never).collect();
    let server = Server::spawn(scratch, Path::new("redis-server"), arguments, ports)?;
    server.when_ready(scratch, port, &resp_ping(), "+PONG")
}

/// Throttlecrab with the store that does not clean up while it answers.
pub fn throttlecrab(scratch: &Scratch) -> Result<Server, String> {
    let ports = Ports::free();
    let Ports { http, grpc, resp } = ports;
    let arguments = words(&format!(
        "--http --http-host 127.0.0.1 --http-port {http} \
         --grpc --grpc-host 127.0.0.1 --grpc-port {grpc} \
         --redis --redis-host 127.0.0.1 --redis-port {resp} \
         --store periodic --store-capacity 1000000 --log-level error"
    ));
    let program = program("THROTTLECRAB_BIN")?;
    let server = Server::spawn(scratch, &program, arguments, ports)?;
    let server = server.when_ready(scratch, http, &get("/health"), "HTTP/1.1 200")?;
    server.when_ready(scratch, resp, &resp_ping(), "PONG")
}

/// Where the daemon is.
pub fn tollgate_program() -> Result<PathBuf, String> {
    program("TOLLGATE_BIN")
}

impl Server {
    fn spawn(
        scratch: &Scratch,
        program: &Path,
        arguments: Vec<OsString>,
        ports: Ports,
    ) -> Result<Self, String> {
        let log = File::create(log_path(scratch, ports)).map_err(|error| error.to_string())?;
        let errors = log.try_clone().map_err(|error| error.to_string())?;
        // Both replace themselves by what they start, so that the process is the server's.
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "taskset", "-c", CORE])
            .arg(program)
            .args(arguments)
            .current_dir(scratch.folder())
            .env("RUST_LOG", "error")
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(|error| format!("setpriv (util-linux): {error}"))?;
        Ok(Self { process, ports })
    }

    /// The server, once it answers.
    fn when_ready(
        mut self,
        scratch: &Scratch,
        port: u16,
        request: &str,
        expected: &str,
    ) -> Result<Self, String> {
        let deadline = Instant::now() + START_MAX;
        loop {
            let answer = ask(port, request, expected);
            let ended = self.process.try_wait().map_err(|error| error.to_string())?;
            match (answer, ended) {
                (Ok(_), None) => return Ok(self),
                (_, Some(status)) => {
                    let log = std::fs::read_to_string(log_path(scratch, self.ports));
                    let log = log.unwrap_or_default();
                    let last = log.trim().lines().last().unwrap_or("it said nothing").to_owned();
                    return Err(format!("it ended at once ({status}): {last}"));
                }
                (Err(why), None) if Instant::now() > deadline => {
                    return Err(format!("it was not ready in time: {why}"));
                }
                (Err(_), None) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// CPU time that it has used, all threads together.
    pub fn cpu(&self) -> Result<Duration, String> {
        process_cpu(self.process.id()).ok_or_else(|| "the server is gone".to_owned())
    }

    pub fn resident_mib(&self) -> f64 {
        resident_bytes(&self.process.id().to_string()) as f64 / MIB
    }
}

impl Ports {
    fn free() -> Self {
        Self { http: free_port(), grpc: free_port(), resp: free_port() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn log_path(scratch: &Scratch, ports: Ports) -> PathBuf {
    scratch.path(&format!("{}.log", ports.resp))
}

/// The program that a variable names; `bench/bars` sets it.
fn program(variable: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os(variable).ok_or_else(|| format!("{variable} is not set"))?;
    // Absolute, since servers run in a folder of their own.
    std::fs::canonicalize(&path).map_err(|error| format!("{}: {error}", path.display()))
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.expect("loopback has a free port").port()
}

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

fn resp_ping() -> String {
    resp("PING")
}

const TOLLGATE_CONFIG: &str = r#"[[limit]]
name = "api"
key = ["tenant"]
rate = "100000000/s"
burst = 1000000
"#;
const CORE: &str = "0";
const CONFIG: &str = "tollgate.toml";
const START_MAX: Duration = Duration::from_secs(10);

/// Says how to get a program that is not there.
pub fn installed(program: &str, package: &str) -> Result<(), String> {
    match Command::new(program).arg("--version").output() {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("{program} is not installed (apt-get install {package})")),
    }
}
