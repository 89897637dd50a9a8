//! A fleet of daemons on this machine, and what tests do to its members.
//!
//! A member keeps its peer address and its folder over all its starts; its doors are elsewhere
//! after each.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Daemon, Http, says};

/// A limit of the whole fleet: 50 at once and 100 a second for each tenant.
pub(crate) const HUNDRED: &str = "[[limit]]\nname = \"api\"\nkey = [\"tenant\"]\nrate = \
                                  \"100/s\"\nburst = 50\nguarantee = \"eventual\"\n";

/// Daemons of one fleet; all are killed when this is dropped.
pub(crate) struct Fleet {
    members: Vec<Member>,
    folder: TempDir,
}

/// One of its daemons, which may be down.
pub(crate) struct Member {
    peer: SocketAddr,
    /// The command line of each start.
    options: Vec<String>,
    daemon: Option<Daemon>,
}

impl Fleet {
    /// So many daemons with [`HUNDRED`] in force, all of them members in session with each voter.
    pub(crate) fn start(count: usize) -> Self {
        Self::with(count, Some(HUNDRED), &[])
    }

    /// The same with this policy, or none, and more options for all.
    pub(crate) fn with(count: usize, policy: Option<&str>, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let mut fleet = Self { members: Vec::new(), folder };
        let mut all: Vec<String> = options.iter().map(|option| String::from(*option)).collect();
        if let Some(policy) = policy {
            let file = fleet.config();
            std::fs::write(&file, policy).expect("a file can be written");
            all.extend(["--config".into(), plain(&file)]);
        }
        for _ in 0..count {
            fleet.add(&all);
        }
        fleet.wait_until_whole();
        fleet
    }

    /// So many daemons with this policy, whose HTTP doors are where they were after each start.
    pub(crate) fn with_doors(
        count: usize,
        policy: &str,
        options: &[&str],
    ) -> (Self, Vec<SocketAddr>) {
        let mut fleet = Self::with(0, Some(policy), &[]);
        let doors = fleet.add_with_doors(count, |_| options.iter().copied().map(String::from));
        fleet.wait_until_whole();
        (fleet, doors)
    }

    /// Starts so many more, each with options of its own, and returns where their HTTP doors stay.
    pub(crate) fn add_with_doors<O: IntoIterator<Item = String>>(
        &mut self,
        count: usize,
        options: impl Fn(usize) -> O,
    ) -> Vec<SocketAddr> {
        let doors: Vec<SocketAddr> = (0..count).map(|_| free_address()).collect();
        let config = plain(&self.config());
        for (index, door) in doors.iter().enumerate() {
            let own = ["--config".into(), config.clone(), "--http".into(), door.to_string()];
            self.add(&own.into_iter().chain(options(index)).collect::<Vec<_>>());
        }
        doors
    }

    /// Starts one more daemon, which joins by any of those that are there.
    pub(crate) fn add(&mut self, options: &[String]) {
        self.add_at(free_address(), options);
    }

    /// The same with this peer address.
    pub(crate) fn add_at(&mut self, peer: SocketAddr, options: &[String]) {
        let data = self.folder.path().join(format!("member-{}", self.members.len()));
        let mut all = vec!["--peer".into(), peer.to_string(), "--data".into(), plain(&data)];
        if !self.members.is_empty() {
            let known: Vec<String> = self.members.iter().map(|one| one.peer.to_string()).collect();
            all.extend(["--join".into(), known.join(",")]);
        }
        all.extend_from_slice(options);
        let mut member = Member { peer, options: all, daemon: None };
        member.restart();
        self.members.push(member);
    }

    /// One of its daemons; the first, 0, has founded it.
    pub(crate) fn daemon(&mut self, index: usize) -> &mut Member {
        &mut self.members[index]
    }

    /// The same, to be looked at.
    pub(crate) fn member(&self, index: usize) -> &Member {
        &self.members[index]
    }

    /// Where the policy is that it was started with.
    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("limits.toml")
    }

    /// Those that run.
    pub(crate) fn running(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.daemon.is_some())
    }

    /// The folder of all that its members keep.
    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// Waits until those that run, and no others, are in the ring that each of them knows, and each
    /// is in session with every voter: one of up to two members, three of more.
    pub(crate) fn wait_until_whole(&self) {
        let members = self.running().count();
        let voters = if members < 3 { 1 } else { 3 };
        for member in self.running() {
            member.wait_for(|lines| {
                ring_members(lines) == Some(members as u64) && sessions(lines).len() >= voters
            });
        }
    }
}

impl Member {
    /// Kills it: it can do nothing any more, and nothing is said to anybody.
    pub(crate) fn kill9(&mut self) {
        let mut daemon = self.daemon.take().expect("it runs");
        daemon.signal("KILL");
        daemon.wait();
    }

    /// Has it leave the fleet, and waits until it has ended.
    pub(crate) fn stop_term(&mut self) -> ExitStatus {
        let mut daemon = self.daemon.take().expect("it runs");
        daemon.signal("TERM");
        daemon.wait()
    }

    /// Starts it again with what it has kept; returns when it is a member and serves.
    pub(crate) fn restart(&mut self) {
        assert!(self.daemon.is_none(), "it runs");
        let any = "127.0.0.1:0";
        let mut options = vec!["--http", any, "--grpc", any, "--resp", "off"];
        options.extend(self.options.iter().map(String::as_str));
        let scratch = tempfile::tempdir().expect("a folder can be made");
        self.daemon = Some(Daemon::run(scratch, &options));
    }

    /// Stops its process, which does nothing until it is woken.
    pub(crate) fn pause(&self) {
        self.running().signal("STOP");
    }

    /// Wakes its process.
    pub(crate) fn wake(&self) {
        self.running().signal("CONT");
    }

    /// The daemon itself.
    pub(crate) fn running(&self) -> &Daemon {
        self.daemon.as_ref().expect("it runs")
    }

    /// Where other members reach it.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(crate) fn http_address(&self) -> SocketAddr {
        self.running().door("http")
    }

    pub(crate) fn grpc_address(&self) -> SocketAddr {
        self.running().door("grpc")
    }

    /// A connection to its HTTP door.
    pub(crate) fn http(&self) -> Http {
        self.running().http()
    }

    /// Waits until what it has logged since its start is as told.
    pub(crate) fn wait_for(&self, found: impl Fn(&[Value]) -> bool) {
        self.running().wait_for(found);
    }
}

/// How many members the ring has that a member has told of last.
pub(crate) fn ring_members(log: &[Value]) -> Option<u64> {
    let turned = log.iter().rev().find(|line| says(line, "the ring has turned"));
    turned.and_then(|line| line["fields"]["members"].as_u64())
}

/// The replicas with which a member has a session.
pub(crate) fn sessions(log: &[Value]) -> BTreeSet<u64> {
    let mut open = BTreeSet::new();
    for line in log {
        let Some(replica) = line["fields"]["replica"].as_u64() else { continue };
        if says(line, "in session") {
            open.insert(replica);
        } else if says(line, "session's connection lost") {
            open.remove(&replica);
        }
    }
    open
}

/// An address that nobody has, and that the system gives nobody who asks for any: a member keeps
/// its own while it is down.
fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Several runs of these tests at once begin in different places.
    let first = (std::process::id() % 97) as u16 * 100;
    let ports = std::iter::repeat_with(|| 20_000 + (first + NEXT.fetch_add(1, Relaxed)) % 10_000);
    let addresses = ports.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let mut free = addresses.take(1_000).filter(|address| TcpListener::bind(address).is_ok());
    free.next().expect("one of a thousand is free")
}

fn plain(path: &std::path::Path) -> String {
    path.to_str().expect("a plain path").to_owned()
}
