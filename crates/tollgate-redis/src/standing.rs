//! What is known of one server: whether it is there, and who looks for it when.
//!
//! While it is down nobody waits for it, and one call in an interval looks for it. While only a
//! replica is known, it is read, and one call in an interval looks for a primary. It knows no
//! connection; callers pass `now`.

use std::time::Duration;

use tokio::time::Instant;

use crate::health::Role;
use crate::options::Address;

/// What is known of a server.
#[derive(Debug)]
pub(crate) struct Standing {
    state: State,
    interval: Duration,
    /// When it was last looked for.
    sought_at: Option<Instant>,
    retry_at: Option<Instant>,
    is_sought: bool,
    /// Which find the state is of; connections of earlier ones are given up.
    generation: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Nobody looked yet.
    New,
    Up {
        address: Address,
        role: Role,
    },
    Down,
}

/// What a call does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// It uses this server, with connections of this generation.
    Use { address: Address, generation: u64 },
    /// It looks for the server, and tells [`Standing::found`] or [`Standing::not_found`].
    Seek,
    /// It gives up at once.
    GiveUp,
}

/// How a server failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A connection was lost: it may be back at once.
    Lost,
    /// It did not answer in time: others would wait for it as long.
    Silent,
    /// It is a replica now: it can be read.
    Demoted,
}

impl Standing {
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            state: State::New,
            interval,
            sought_at: None,
            retry_at: None,
            is_sought: false,
            generation: 0,
        }
    }

    /// What a call does that comes now.
    pub(crate) fn step(&mut self, is_write: bool, now: Instant) -> Step {
        let may_seek = !self.is_sought && self.retry_at.is_none_or(|at| now >= at);
        match &self.state {
            State::Up { address, role } => {
                if *role == Role::Primary || !(may_seek || is_write) {
                    let (address, generation) = (address.clone(), self.generation);
                    return Step::Use { address, generation };
                }
            }
            State::New | State::Down => {}
        }
        if !may_seek {
            return Step::GiveUp;
        }
        self.is_sought = true;
        Step::Seek
    }

    /// It was found; returns the generation of its connections.
    pub(crate) fn found(&mut self, address: Address, role: Role, now: Instant) -> u64 {
        let found = State::Up { address, role };
        if self.state != found {
            self.state = found;
            self.generation += 1;
        }
        self.sought(now);
        self.generation
    }

    /// It was not found.
    pub(crate) fn not_found(&mut self, now: Instant) {
        self.state = State::Down;
        self.generation += 1;
        self.sought(now);
    }

    /// It failed for a connection of a generation; what is of an earlier one tells nothing new.
    /// Returns whether it was not known to.
    pub(crate) fn failed(&mut self, generation: u64, fault: Fault, now: Instant) -> bool {
        if generation != self.generation {
            return false;
        }
        let State::Up { address, role } = &self.state else { return false };
        let (address, was) = (address.clone(), *role);
        let retry_at = match fault {
            Fault::Silent => now + self.interval,
            Fault::Lost | Fault::Demoted => self.sought_at.map_or(now, |at| at + self.interval),
        };
        match fault {
            Fault::Demoted if was == Role::Replica => return false,
            Fault::Demoted => self.state = State::Up { address, role: Role::Replica },
            Fault::Lost | Fault::Silent => self.state = State::Down,
        }
        self.generation += 1;
        self.retry_at = Some(retry_at);
        true
    }

    /// Whether nobody knows yet whether it is there.
    pub(crate) fn is_new(&self) -> bool {
        self.state == State::New
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    fn sought(&mut self, now: Instant) {
        self.is_sought = false;
        self.sought_at = Some(now);
        self.retry_at = Some(now + self.interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(1);

    fn address(port: u16) -> Address {
        Address::Tcp { host: "a".to_owned(), port }
    }

    fn used(port: u16, generation: u64) -> Step {
        Step::Use { address: address(port), generation }
    }

    /// A server that was found at a start, and that start.
    fn found(role: Role) -> (Standing, Instant) {
        let mut standing = Standing::new(INTERVAL);
        let start = Instant::now();
        assert_eq!(standing.step(true, start), Step::Seek);
        assert_eq!(standing.found(address(1), role, start), 1);
        (standing, start)
    }

    #[test]
    fn one_call_in_an_interval_looks_for_a_server_that_is_down() {
        let mut standing = Standing::new(INTERVAL);
        let start = Instant::now();
        assert_eq!(standing.step(true, start), Step::Seek);
        assert_eq!(standing.step(true, start), Step::GiveUp, "another looks");
        let failed_at = start + INTERVAL / 2;
        standing.not_found(failed_at);
        let early = failed_at + INTERVAL - Duration::from_millis(1);
        assert_eq!(standing.step(false, early), Step::GiveUp);
        assert_eq!(standing.step(false, failed_at + INTERVAL), Step::Seek);
        assert_eq!(standing.step(false, failed_at + INTERVAL * 9), Step::GiveUp);
        standing.found(address(1), Role::Primary, failed_at + INTERVAL * 9);
        assert_eq!(standing.step(true, failed_at + INTERVAL * 9), used(1, 2));
    }

    #[test]
    fn a_lost_connection_is_made_anew_at_once_but_not_twice_in_an_interval() {
        let (mut standing, start) = found(Role::Primary);
        let lost_at = start + INTERVAL * 5;
        assert!(standing.failed(1, Fault::Lost, lost_at));
        assert!(!standing.failed(1, Fault::Lost, lost_at), "known already");
        assert_eq!(standing.step(true, lost_at), Step::Seek);
        assert_eq!(standing.found(address(1), Role::Primary, lost_at), 3);
        assert!(!standing.failed(1, Fault::Silent, lost_at), "a connection from before");
        assert!(standing.failed(3, Fault::Lost, lost_at));
        assert_eq!(standing.step(true, lost_at), Step::GiveUp);
        assert_eq!(standing.step(true, lost_at + INTERVAL), Step::Seek);
    }

    #[test]
    fn a_silent_server_is_left_alone_for_an_interval() {
        let (mut standing, start) = found(Role::Primary);
        let silent_at = start + INTERVAL * 5;
        assert!(standing.failed(1, Fault::Silent, silent_at));
        assert_eq!(standing.step(true, silent_at), Step::GiveUp);
        assert_eq!(standing.step(true, silent_at + INTERVAL), Step::Seek);
    }

    #[test]
    fn a_replica_is_read_while_one_call_in_an_interval_looks_for_a_primary() {
        let (mut standing, start) = found(Role::Primary);
        let demoted_at = start + INTERVAL / 2;
        assert!(standing.failed(1, Fault::Demoted, demoted_at));
        assert_eq!(standing.step(false, demoted_at), used(1, 2));
        assert_eq!(standing.step(true, demoted_at), Step::GiveUp);
        assert_eq!(standing.step(false, start + INTERVAL), Step::Seek);
        assert_eq!(standing.step(false, start + INTERVAL), used(1, 2), "others go on");
        assert_eq!(standing.found(address(1), Role::Replica, start + INTERVAL), 2, "the same");
        assert_eq!(standing.step(true, start + INTERVAL * 2), Step::Seek);
        assert_eq!(standing.found(address(2), Role::Primary, start + INTERVAL * 2), 3);
        assert_eq!(standing.step(true, start + INTERVAL * 2), used(2, 3));
    }
}
