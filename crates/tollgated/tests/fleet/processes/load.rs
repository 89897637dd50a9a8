//! Clients of their own in front of each daemon: a connection and a thread for each daemon and
//! tenant, which asks at its pace whatever becomes of it, and notes each answer.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use super::judge::SECOND;

/// What became of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allowed,
    Denied,
    /// Denied since nothing is permitted on that daemon.
    Stale,
    /// The connection ended before an answer came; it may have been allowed.
    Lost,
}

/// One question and its answer, by one clock for all processes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    /// The place of the daemon's door among those of the load.
    pub(crate) daemon: usize,
    pub(crate) tenant: usize,
    pub(crate) asked_ns: u64,
    /// When the daemon decided, as it says.
    pub(crate) decided_ns: u64,
    pub(crate) answered_ns: u64,
    pub(crate) outcome: Outcome,
}

/// Where a daemon speaks HTTP.
#[derive(Debug, Clone)]
pub(crate) enum Door {
    Tcp(SocketAddr),
    /// Reaches into any network namespace.
    Unix(PathBuf),
}

/// How often a tenant asks one daemon.
#[derive(Debug, Clone)]
pub(crate) struct Demand {
    pub(crate) daemon: usize,
    pub(crate) tenant: usize,
    pub(crate) per_second: u64,
}

/// Clients at work.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<Answer>>>,
}

impl Load {
    /// Starts a client for each demand. `tenants` are their names.
    pub(crate) fn start(doors: &[Door], tenants: &[String], demands: &[Demand]) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let client = |(place, demand): (usize, &Demand)| {
            let (door, is_over) = (doors[demand.daemon].clone(), is_over.clone());
            let question = question(&tenants[demand.tenant]);
            let client = Client { door, question, demand: demand.clone(), connection: None };
            let count = demands.len() as u64;
            // Spread, so that they do not ask all at once.
            let begins = now_ns() + SECOND / demand.per_second * place as u64 / count;
            std::thread::spawn(move || client.run(begins, &is_over))
        };
        let clients = demands.iter().enumerate().map(client).collect();
        Self { is_over, clients }
    }

    /// Ends the clients, and returns all that they noted.
    pub(crate) fn finish(self) -> Vec<Answer> {
        self.is_over.store(true, Ordering::Relaxed);
        let answers = self.clients.into_iter().map(|client| client.join());
        answers.flat_map(|of_one| of_one.expect("a client does not fail")).collect()
    }
}

struct Client {
    door: Door,
    question: Vec<u8>,
    demand: Demand,
    connection: Option<Connection>,
}

impl Client {
    fn run(mut self, begins: u64, is_over: &AtomicBool) -> Vec<Answer> {
        let mut answers = Vec::new();
        let gap = SECOND / self.demand.per_second;
        let mut next = begins;
        while !is_over.load(Ordering::Relaxed) {
            let now = now_ns();
            if now < next {
                std::thread::sleep(Duration::from_nanos(next - now));
                continue;
            }
            // What can't be asked in time is not made up for by a crowd.
            next = (next + gap).max(now.saturating_sub(BEHIND_MAX));
            answers.extend(self.ask());
        }
        answers
    }

    /// Asks once; nothing if nobody is there.
    fn ask(&mut self) -> Option<Answer> {
        if self.connection.is_none() {
            self.connection = self.door.connect().ok();
        }
        let connection = self.connection.as_mut()?;
        let asked_ns = now_ns();
        let told = connection.ask(&self.question);
        let answered_ns = now_ns();
        let told = told.unwrap_or_else(|_| {
            self.connection = None;
            Told { outcome: Outcome::Lost, decided_ns: 0, closes: false }
        });
        if told.closes {
            self.connection = None;
        }
        let Demand { daemon, tenant, .. } = self.demand;
        let Told { outcome, decided_ns, .. } = told;
        Some(Answer { daemon, tenant, asked_ns, decided_ns, answered_ns, outcome })
    }
}

/// What one answer says.
struct Told {
    outcome: Outcome,
    decided_ns: u64,
    closes: bool,
}

/// A connection that is kept, and HTTP on it.
struct Connection {
    stream: BufReader<Box<dyn Stream>>,
    line: String,
    body: Vec<u8>,
}

trait Stream: Read + Write + Send {}
impl<S: Read + Write + Send> Stream for S {}

impl Door {
    fn connect(&self) -> io::Result<Connection> {
        let stream: Box<dyn Stream> = match self {
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(ANSWER_MAX))?;
                Box::new(stream)
            }
            Self::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(ANSWER_MAX))?;
                Box::new(stream)
            }
        };
        let (line, body) = (String::new(), Vec::new());
        Ok(Connection { stream: BufReader::new(stream), line, body })
    }

    /// The sum of a daemon's series that begin so; 0 if nobody is there, or has none.
    pub(crate) fn count(&self, series: &str) -> u64 {
        let text = self.connect().and_then(|mut one| one.get("/metrics")).unwrap_or_default();
        let values = text.lines().filter_map(|line| line.strip_prefix(series)?.rsplit(' ').next());
        values.filter_map(|value| value.parse::<f64>().ok()).sum::<f64>() as u64
    }

    /// What a daemon that runs answers, as JSON.
    pub(crate) fn get(&self, path: &str) -> Value {
        let text = self.connect().and_then(|mut one| one.get(path)).expect("it answers");
        let (_, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        serde_json::from_str(body).expect("JSON")
    }

    /// Asks about a tenant once.
    pub(crate) fn check(&self, tenant: &str) -> Option<Outcome> {
        self.connect().and_then(|mut one| one.ask(&question(tenant))).ok().map(|told| told.outcome)
    }
}

impl Connection {
    fn get(&mut self, path: &str) -> io::Result<String> {
        let question = format!("GET {path} HTTP/1.1\r\nhost: fleet\r\nconnection: close\r\n\r\n");
        self.stream.get_mut().write_all(question.as_bytes())?;
        let mut text = String::new();
        self.stream.read_to_string(&mut text)?;
        Ok(text)
    }

    fn ask(&mut self, question: &[u8]) -> io::Result<Told> {
        self.stream.get_mut().write_all(question)?;
        self.read_line()?;
        let status = self.line.get(9..12).and_then(|status| status.parse::<u16>().ok());
        let (mut length, mut decided_ns, mut closes) = (0, 0, false);
        loop {
            self.read_line()?;
            let Some((name, value)) = self.line.trim_end().split_once(": ") else { break };
            match name {
                "content-length" => length = value.parse().map_err(io::Error::other)?,
                "tollgate-decided-at" => decided_ns = value.parse().map_err(io::Error::other)?,
                "connection" => closes = value == "close",
                _other => {}
            }
        }
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body)?;
        let is_stale = || self.body.windows(STALE.len()).any(|part| part == STALE);
        let outcome = match status {
            Some(200) => Outcome::Allowed,
            Some(503) if is_stale() => Outcome::Stale,
            Some(429) => Outcome::Denied,
            Some(503) => Outcome::Lost,
            status => panic!("{status:?}: {}", String::from_utf8_lossy(&self.body)),
        };
        assert!(decided_ns != 0 || outcome == Outcome::Lost, "the decision has no stamp");
        Ok(Told { outcome, decided_ns, closes })
    }

    fn read_line(&mut self) -> io::Result<()> {
        self.line.clear();
        match self.stream.read_line(&mut self.line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

fn question(tenant: &str) -> Vec<u8> {
    let body = format!("{{\"entries\":{{\"tenant\":\"{tenant}\"}}}}");
    format!(
        "POST /v1/check HTTP/1.1\r\nhost: fleet\r\ntollgate-stamp: monotonic\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The clock that all processes of a machine share.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * SECOND + now.tv_nsec as u64
}

const STALE: &[u8] = b"\"reason\":\"stale\"";
/// A daemon that stands still for some seconds answers afterwards.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// So far behind its pace a client asks at once and again until it has caught up.
const BEHIND_MAX: u64 = SECOND / 20;
