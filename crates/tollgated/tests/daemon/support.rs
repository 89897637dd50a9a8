//! A daemon in a process of its own, and the few things that tests do to processes and sockets.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

#[allow(unused_imports, reason = "tests of fleets use less of it")]
pub(crate) use crate::http::{Answer, Http};
#[allow(unused_imports, reason = "as above")]
pub(crate) use crate::resp::{Reply, Resp};

/// Nothing takes so long unless it is stuck.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// One limit of 10 for each tenant, of which nothing comes back while a test runs.
pub(crate) const TEN: &str = "[[limit]]\nname = \"api\"\nkey = [\"tenant\"]\nrate = \"10/d\"\n";

/// A daemon that is killed when this is dropped.
pub(crate) struct Daemon {
    child: Child,
    log: Arc<Log>,
    reader: Option<JoinHandle<()>>,
    folder: TempDir,
}

/// What a daemon has said so far, and whether it may say more.
#[derive(Default)]
struct Log {
    lines: Mutex<(Vec<Value>, bool)>,
    grown: Condvar,
}

impl Daemon {
    /// A daemon with this policy in a file, all doors on free ports.
    pub(crate) fn new(policy: &str) -> Self {
        Self::with(policy, &[])
    }

    /// The same with more options.
    pub(crate) fn with(policy: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let file = folder.path().join("limits.toml");
        std::fs::write(&file, policy).expect("a file can be written");
        Self::at(folder, &file, options)
    }

    /// A daemon with the policy at `config`, which is in `folder`.
    pub(crate) fn at(folder: TempDir, config: &Path, options: &[&str]) -> Self {
        let any = "127.0.0.1:0";
        let ports = ["--http", any, "--resp", any, "--grpc", any];
        Self::start(folder, config, &[&ports, options].concat())
    }

    /// A daemon that listens where `options` say.
    pub(crate) fn start(folder: TempDir, config: &Path, options: &[&str]) -> Self {
        let config = config.to_str().expect("a plain path");
        Self::run(folder, &[&["--config", config], options].concat())
    }

    /// The same with its policy among the options, if it has one.
    pub(crate) fn run(folder: TempDir, options: &[&str]) -> Self {
        Self::run_by(tollgate(), folder, options)
    }

    /// The same by a command that has an environment.
    pub(crate) fn run_by(mut command: Command, folder: TempDir, options: &[&str]) -> Self {
        let mut child = command
            .args(["serve", "--log-format", "json"])
            .args(options)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary was built for this test");
        let log = Arc::new(Log::default());
        let stderr = child.stderr.take().expect("it is piped");
        let written = log.clone();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                let line = line.expect("a log is text");
                let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
                written.add(Some(value));
            }
            written.add(None);
        });
        let doors =
            options.chunks(2).filter(|option| ["--http", "--resp", "--grpc"].contains(&option[0]));
        let doors = doors.filter(|option| option[1] != "off").count();
        let daemon = Self { child, log, reader: Some(reader), folder };
        daemon
            .wait_for(|lines| lines.iter().filter(|line| says(line, "listening")).count() >= doors);
        daemon
    }

    /// The daemon's own folder, in which its policy is `limits.toml`.
    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// Where one of its doors is.
    pub(crate) fn door(&self, face: &str) -> SocketAddr {
        let lines = self.log();
        let door = lines.iter().find(|line| line["fields"]["face"] == face);
        let address = door.and_then(|line| line["fields"]["address"].as_str());
        address.expect("it listens there").parse().expect("an address")
    }

    /// A connection to its HTTP door.
    pub(crate) fn http(&self) -> Http {
        Http::new(connect(self.door("http")))
    }

    /// A connection to its Redis door.
    pub(crate) fn resp(&self) -> Resp {
        Resp::new(connect(self.door("resp")))
    }

    /// All that it has logged.
    pub(crate) fn log(&self) -> Vec<Value> {
        self.log.lock().0.clone()
    }

    /// Waits until the log is as told, or has ended.
    pub(crate) fn wait_for(&self, found: impl Fn(&[Value]) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut log = self.log.lock();
        while !found(&log.0) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!log.1 && !left.is_zero(), "not in the log: {:#?}", log.0);
            log = self.log.grown.wait_timeout(log, left).expect("no thread panicked in it").0;
        }
    }

    /// Waits until it has said so.
    pub(crate) fn wait_to_say(&self, message: &str) {
        self.wait_for(|lines| lines.iter().any(|line| says(line, message)));
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &id]).status();
        assert!(sent.expect("kill can be run").success(), "no such process");
    }

    /// Waits until it has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                if let Some(reader) = self.reader.take() {
                    reader.join().expect("the log was read to its end");
                }
                return status;
            }
            assert!(Instant::now() < deadline, "it has not ended: {:#?}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The number of its process.
    #[allow(dead_code, reason = "tests of fleets use it")]
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Memory that it has in use, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("a process has a status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next());
        kilobytes.and_then(|number| number.parse::<u64>().ok()).expect("a number") << 10
    }

    /// Keys that have a cell, in both tables.
    pub(crate) fn keys(&self) -> u64 {
        let of = |table| self.metric(&format!("tollgate_keys{{table=\"{table}\"}}"));
        of("limits") + of("brought")
    }

    /// The value of one metric's series, such as `tollgate_keys_max`.
    pub(crate) fn metric(&self, series: &str) -> u64 {
        let text = self.http().get("/metrics").text();
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        let value: f64 =
            line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{series}: {text}"));
        value as u64
    }

    /// Waits until a metric has this value.
    pub(crate) fn wait_for_metric(&self, series: &str, wanted: u64) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let value = self.metric(series);
            if value == wanted {
                return;
            }
            assert!(Instant::now() < deadline, "{series} is {value} and not {wanted}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill(); // It may have ended.
        let _ = self.child.wait();
    }
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, (Vec<Value>, bool)> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, line: Option<Value>) {
        let mut log = self.lock();
        match line {
            Some(line) => log.0.push(line),
            None => log.1 = true,
        }
        self.grown.notify_all();
    }
}

/// Whether a line of a log begins so.
pub(crate) fn says(line: &Value, message: &str) -> bool {
    line["fields"]["message"].as_str().is_some_and(|said| said.starts_with(message))
}

/// The binary, with no settings from the environment.
pub(crate) fn tollgate() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let settings = std::env::vars_os().map(|(name, _)| name);
    let is_ours =
        |name: &str| ["TOLLGATE_", "GLOBAL_RATE_"].iter().any(|ours| name.starts_with(ours));
    for name in settings.filter(|name| is_ours(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    // Tests run side by side, and its usual port is one.
    command.env("TOLLGATE_GRPC", "off").stdin(Stdio::null());
    command
}

/// Runs the binary to its end: its exit code, and what it wrote to stdout and stderr.
pub(crate) fn run(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        tollgate().args(arguments).output().expect("the binary was built for this test");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code().expect("it ended by itself"), text(stdout), text(stderr))
}

/// Waits until something is so.
pub(crate) fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A connection whose reads and writes do not wait for ever.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens there");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket has a timeout");
    stream.set_write_timeout(Some(PATIENCE)).expect("a socket has a timeout");
    stream.set_nodelay(true).expect("a socket can be told so");
    stream
}

/// The same to a Unix socket.
pub(crate) fn connect_unix(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).expect("it listens there");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket has a timeout");
    stream
}

/// All that comes until the other side closes; a reset is an end too.
pub(crate) fn read_to_end(stream: &mut impl Read) -> Vec<u8> {
    let (mut all, mut part) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut part) {
            Ok(0) => return all,
            Ok(got) => all.extend_from_slice(&part[..got]),
            Err(error) if is_stuck(&error) => panic!("it was not closed after {all:?}"),
            // A process that was stopped for a moment is no end.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return all,
        }
    }
}

/// Whether a read gave up waiting.
pub(crate) fn is_stuck(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// A stream to talk over.
pub(crate) trait Stream: Read + Write + Send {}
impl<S: Read + Write + Send> Stream for S {}
