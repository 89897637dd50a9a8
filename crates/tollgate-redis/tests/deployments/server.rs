//! A Redis server of a test's own: its process, its folder, its port. It is killed with the test.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate_redis::{Addition, Address, Outcome, Store, StoreOptions};

pub(crate) struct Server {
    pub(crate) port: u16,
    _folder: TempDir,
    arguments: Vec<String>,
    child: Child,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::at(free_port(), arguments)
    }

    pub(crate) fn at(port: u16, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().to_str().expect("a path of letters");
        let port_text = port.to_string();
        let mut all = vec!["--bind", "127.0.0.1", "--dir", dir, "--save", ""];
        // A replica is sent all of it at once, and not after five seconds.
        all.extend(["--repl-diskless-sync-delay", "0"]);
        if !arguments.contains(&"--port") {
            all.extend(["--port", &port_text]);
        }
        all.extend(arguments);
        let arguments: Vec<String> = all.into_iter().map(str::to_owned).collect();
        Self::run(port, folder, arguments)
    }

    /// A sentinel with this file, which it rewrites.
    pub(crate) fn sentinel(port: u16, file: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let port_text = port.to_string();
        let arguments =
            [file, "--sentinel", "--bind", "127.0.0.1", "--port", &port_text].map(str::to_owned);
        Self::run(port, folder, arguments.to_vec())
    }

    fn run(port: u16, folder: TempDir, arguments: Vec<String>) -> Self {
        let child = spawn(&arguments);
        let mut server = Self { port, _folder: folder, arguments, child };
        server.wait();
        server
    }

    fn wait(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while !answers(self.port) {
            assert!(Instant::now() < deadline, "no server at {}", self.port);
            let ended = self.child.try_wait().expect("a child");
            assert!(ended.is_none(), "the server at {} ended", self.port);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills it like a machine that loses power.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it ran");
        self.child.wait().expect("it ends");
    }

    pub(crate) fn restart(&mut self) {
        self.child = spawn(&self.arguments);
        self.wait();
    }

    /// Stops it without closing anything; `CONT` lets it go on.
    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args([&format!("-{signal}"), &id]).status();
        assert!(status.expect("a shell's kill").success());
    }

    /// What `redis-cli` prints.
    pub(crate) fn cli(&self, words: &[&str]) -> String {
        cli(&[&["-p", &self.port.to_string()], words].concat())
    }

    pub(crate) fn address(&self) -> Address {
        address(self.port)
    }

    pub(crate) fn options(&self) -> StoreOptions {
        options(vec![self.address()])
    }

    pub(crate) fn store(&self) -> Store {
        Store::new(self.options()).expect("a store")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn address(port: u16) -> Address {
    Address::Tcp { host: "127.0.0.1".to_owned(), port }
}

/// Timeouts that no machine that works misses, and a short interval.
pub(crate) fn options(addresses: Vec<Address>) -> StoreOptions {
    StoreOptions {
        connect_timeout: Duration::from_secs(2),
        read_timeout: Duration::from_secs(2),
        write_timeout: Duration::from_secs(2),
        reconnect_interval: INTERVAL,
        ..StoreOptions::new(addresses)
    }
}

/// One unit, in an hour's time gone.
pub(crate) fn addition(name: &str, units: i64) -> Addition {
    Addition { name: name.to_owned(), units, expires_at: in_an_hour() }
}

pub(crate) fn in_an_hour() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("after 1970").as_secs() + 3600
}

pub(crate) async fn write(store: &Store, name: &str) -> Outcome {
    store.write(&[addition(name, 1)]).await[0]
}

pub(crate) async fn read(store: &Store, name: &str) -> Option<u64> {
    let pair = store.read(&[[name.to_owned(), name.to_owned()]]).await[0];
    pair.map(|(one, other)| {
        assert_eq!(one, other);
        one
    })
}

/// Asks again and again until it is so, for ten seconds.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut ask: impl FnMut() -> F,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "not in {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Writes until it is there; returns how many writes may be there besides.
pub(crate) async fn until_done(store: &Store, name: &str) -> u64 {
    let mut unknown = 0;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match write(store, name).await {
            Outcome::Done => return unknown,
            Outcome::Unknown => unknown += 1,
            Outcome::NotSent => {}
            Outcome::Refused => panic!("refused"),
        }
        assert!(Instant::now() < deadline, "not in {PATIENCE:?}: {:?}", store.health());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) fn cli(words: &[&str]) -> String {
    let output = Command::new("redis-cli").args(words).output().expect(NOT_INSTALLED);
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A port that nobody has, and that no client is given as its own.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let base = 20_000 + u16::try_from(std::process::id() % 100).expect("small") * 120;
    loop {
        let port = base + NEXT.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn spawn(arguments: &[String]) -> Child {
    Command::new("redis-server")
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect(NOT_INSTALLED)
}

/// Whether somebody says something there; a server of TLS closes.
fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    stream.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
    let is_silent = |error: std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
    let said = stream.write_all(b"PING\r\n").and_then(|()| stream.read(&mut [0; 64]));
    !said.is_err_and(is_silent)
}

pub(crate) const INTERVAL: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(15);
const NOT_INSTALLED: &str = "these tests need redis-server and redis-cli (Debian: redis-server)";
