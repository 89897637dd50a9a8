//! How a store fares, as people and their dashboards see it. Nothing is decided by it, and nothing
//! in it is a password.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::refusal::Refusal;

/// How a store fares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The servers in use: of a cluster its primaries, else one. None before the first is found.
    pub servers: Vec<Server>,
    /// What went wrong last.
    pub last_failure: Option<Failure>,
    /// How long the last command took that was answered in full.
    pub latency: Option<Duration>,
    /// What it did so far.
    pub counts: Counts,
}

impl Health {
    /// Whether all servers are connected, and there is one.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        !self.servers.is_empty() && self.servers.iter().all(|server| server.is_connected)
    }
}

/// A server of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Where it is.
    pub address: String,
    /// Whether it was there when last used.
    pub is_connected: bool,
    /// Since when it is connected, or is not.
    pub since: Instant,
    /// What it is; a replica is only read.
    pub role: Role,
    /// Its version, as it says.
    pub version: String,
    /// Bytes that it may use; 0 is as many as there are.
    pub maxmemory: u64,
    /// Its eviction policy, if by it the server may forget counters when its memory is full.
    pub may_evict: Option<String>,
}

/// What a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It takes writes.
    Primary,
    /// It follows a primary.
    Replica,
}

/// Something that went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What.
    pub kind: FailureKind,
    /// More of it, for people.
    pub text: String,
    /// When.
    pub at: Instant,
}

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// No connection could be made.
    Connect,
    /// A connection was lost.
    Closed,
    /// No answer came in time.
    TimedOut,
    /// The server did not accept the user or the password, or does not permit the command.
    Auth,
    /// The server answered an error.
    Refused,
    /// What answered is no such server.
    Protocol,
}

/// What a store did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Connections made.
    pub connects: u64,
    /// Times that no server could be connected.
    pub connects_failed: u64,
    /// Connections lost.
    pub closed: u64,
    /// Commands sent, one for each call and server.
    pub commands: u64,
    /// Writes that were not answered in time.
    pub writes_timed_out: u64,
    /// Reads that were not answered in time.
    pub reads_timed_out: u64,
    /// Additions that are there while nobody said that the counter's expiry is.
    pub expiries_failed: u64,
    /// Additions and reads that a server refused, by reason.
    pub refused: Refusals,
}

/// Additions and reads that a server refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Refusals {
    /// It was a replica.
    pub readonly: u64,
    /// It was loading, or waited for its primary.
    pub loading: u64,
    /// It had no memory left.
    pub oom: u64,
    /// User or password were wrong, or did not permit it.
    pub auth: u64,
    /// A cluster had the counter elsewhere, or nowhere at that time.
    pub cluster: u64,
    /// It could not save, had too few replicas, or was busy.
    pub busy: u64,
    /// The counter was no number, or would have become too large.
    pub value: u64,
    /// Something else.
    pub other: u64,
}

/// Where it is noted what happens; one for each store.
#[derive(Debug, Default)]
pub(crate) struct Board(Mutex<Notes>);

/// What is noted.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) counts: Counts,
    pub(crate) last_failure: Option<Failure>,
    pub(crate) latency: Option<Duration>,
}

impl Board {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notes {
    pub(crate) fn fail(&mut self, kind: FailureKind, text: impl Into<String>) {
        self.last_failure = Some(Failure { kind, text: text.into(), at: Instant::now() });
    }

    /// Notes what a server refused, with its words, and why expiries were not set.
    pub(crate) fn take_in(&mut self, refusals: &[(Refusal, String)], expiries_failed: &[String]) {
        self.counts.expiries_failed += expiries_failed.len() as u64;
        if let Some(text) = expiries_failed.last() {
            self.fail(FailureKind::Refused, format!("no expiry was set: {}", shown(text)));
        }
        let refused = &mut self.counts.refused;
        for (refusal, _) in refusals {
            let count = match refusal {
                Refusal::ReadOnly => &mut refused.readonly,
                Refusal::Loading => &mut refused.loading,
                Refusal::Memory => &mut refused.oom,
                Refusal::Auth => &mut refused.auth,
                Refusal::Moved { .. } | Refusal::Cluster => &mut refused.cluster,
                Refusal::Busy => &mut refused.busy,
                Refusal::Value => &mut refused.value,
                Refusal::Other => &mut refused.other,
            };
            *count += 1;
        }
        if let Some((refusal, text)) = refusals.last() {
            let is_auth = *refusal == Refusal::Auth;
            let kind = if is_auth { FailureKind::Auth } else { FailureKind::Refused };
            // What follows quotes the command, and so the names of keys.
            self.fail(kind, shown(text.split(", with args").next().unwrap_or(text)));
        }
    }
}

/// As much of a server's text as is shown.
pub(crate) fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(TEXT_CHARS_MAX).collect()
}

const TEXT_CHARS_MAX: usize = 200;
