//! How a process becomes a member: it asks one after another of those it was told of, until a
//! replica of the coordinator takes it in.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::{Instant as Tick, timeout, timeout_at};
use tollgate::NodeId;
use tollgate::coordinator::{Document, FleetSecret, RingChange, StartNumber};
use tracing::{info, warn};

use crate::dial::{Backoff, Dialled, dial};
use crate::sessions::framed;
use crate::wire::{
    Ask, FrameError, Hello, HelloError, PeerSecret, Purpose, SESSION_FRAME_MAX, Tell,
};

/// What a process says of itself when it joins.
#[derive(Debug, Clone)]
pub(crate) struct Joining {
    /// Any members' addresses.
    pub(crate) seeds: Vec<String>,
    pub(crate) secret: PeerSecret,
    /// The fleet, if the process was a member of one.
    pub(crate) fleet: u64,
    /// Which member it was.
    pub(crate) node: Option<NodeId>,
    pub(crate) weight: u32,
    /// Where others reach it.
    pub(crate) address: String,
    pub(crate) is_candidate: bool,
}

/// What a new member begins with.
#[derive(Debug, Clone)]
pub(crate) struct Joined {
    pub(crate) node: NodeId,
    pub(crate) start: StartNumber,
    pub(crate) fleet: u64,
    pub(crate) secret: FleetSecret,
    pub(crate) is_restart: bool,
    pub(crate) change: RingChange,
    pub(crate) age: Duration,
    pub(crate) members: Vec<(NodeId, String)>,
    pub(crate) policy: Option<Document>,
    /// With the entry of the log by which they are.
    pub(crate) replicas: (u64, Vec<(NodeId, String)>),
}

/// Why a process did not become a member.
#[derive(Debug)]
pub enum JoinError {
    /// Its address can't be used.
    Address {
        /// As it was given.
        address: String,
        /// Why not.
        error: std::io::Error,
    },
    /// The fleet does not want it, and will not.
    Refused {
        /// Why, for people.
        why: String,
    },
    /// The limits of the fleet can't be put in force here.
    Policy {
        /// Why, for people.
        why: String,
    },
    /// Something about how the member is set up is not sound.
    Options {
        /// What, for people.
        why: String,
    },
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { address, error } => write!(f, "can't listen at {address}: {error}"),
            Self::Refused { why } => write!(f, "the fleet refuses this member: {why}"),
            Self::Policy { why } => write!(f, "the fleet's limits can't be put in force: {why}"),
            Self::Options { why } => f.write_str(why),
        }
    }
}

impl std::error::Error for JoinError {}

impl Joining {
    /// Joins, and tries until it has: a fleet that is not there yet may come.
    ///
    /// # Errors
    /// When the fleet refuses it for good, or nobody is there to be asked.
    pub(crate) async fn run(&self) -> Result<Joined, JoinError> {
        if self.seeds.is_empty() {
            return Err(JoinError::Options { why: "no member of the fleet is named".into() });
        }
        let (mut backoff, mut addresses) = (Backoff::default(), self.seeds.clone());
        let (mut told, mut told_at) = (BTreeSet::new(), Tick::now());
        loop {
            // Whoever looks at the log later is to see what it waits for.
            if told_at.elapsed() >= TOLD_INTERVAL {
                (told, told_at) = (BTreeSet::new(), Tick::now());
            }
            let mut learnt = Vec::new();
            for address in &addresses {
                match self.ask(address).await {
                    Ok(Answered::Joined(joined)) => {
                        let (node, start) = (joined.node.get(), joined.start.get());
                        let epoch = joined.change.ring.epoch().get();
                        info!(target: "fleet", node, start, epoch, "joined the fleet");
                        return Ok(*joined);
                    }
                    Ok(Answered::Elsewhere(replicas)) => learnt.extend(replicas),
                    Ok(Answered::Refused(why)) => return Err(JoinError::Refused { why }),
                    Err(error) if error.is_lasting() && self.seeds.contains(address) => {
                        return Err(JoinError::Refused { why: format!("{address}: {error}") });
                    }
                    Err(error) => {
                        let why = format!("can't join at {address} yet: {error}");
                        if told.len() < TOLD_MAX && told.insert(why.clone()) {
                            warn!(target: "fleet", "{why}");
                        }
                    }
                }
            }
            addresses = self.next_addresses(learnt);
            tokio::time::sleep(backoff.next()).await;
        }
    }

    /// What it asks a replica.
    pub(crate) fn to_ask(&self) -> Ask {
        Ask::Join {
            node: self.node,
            weight: self.weight,
            address: self.address.clone(),
            is_candidate: self.is_candidate,
        }
    }

    /// Replicas that somebody named are asked first, and whom it was told of ever again.
    fn next_addresses(&self, learnt: Vec<String>) -> Vec<String> {
        let mut addresses: Vec<String> = Vec::new();
        for address in learnt.into_iter().take(LEARNT_MAX).chain(self.seeds.iter().cloned()) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        addresses
    }

    async fn ask(&self, address: &str) -> Result<Answered, HelloError> {
        let hello =
            Hello { fleet: self.fleet, purpose: Purpose::Session, to: None, node: None, start: 0 };
        let dialled = dial(address, &self.secret, &hello, SESSION_FRAME_MAX).await?;
        timeout(WHOLE_PATIENCE, self.converse(dialled)).await.unwrap_or(Err(HelloError::TimedOut))
    }

    async fn converse(&self, dialled: Dialled) -> Result<Answered, HelloError> {
        let Dialled { mut reader, mut writer } = dialled;
        let frame = framed(&self.to_ask()).ok_or(HelloError::Malformed)?;
        writer.write_all(&frame).await?;
        let (mut joined, mut ring, mut policy) = (None, None, None);
        let answers_by = Tick::now() + PATIENCE;
        loop {
            let next = reader.next();
            let frame = match joined {
                // It has to ask the others.
                None => timeout_at(answers_by, next).await.map_err(|_| HelloError::TimedOut)?,
                // The limits may take long to arrive.
                Some(_) => next.await,
            };
            let frame = frame.map_err(|error| match error {
                FrameError::Io(error) => HelloError::Io(error),
                FrameError::Cut | FrameError::Length { .. } => HelloError::Malformed,
            })?;
            let (kind, body) = frame.ok_or(HelloError::NotServed)?;
            match Tell::decode(kind, &body).map_err(|_| HelloError::Malformed)? {
                Tell::Joined { node, start, fleet, secret, is_restart } => {
                    joined = Some((node, start, fleet, secret, is_restart));
                }
                Tell::Ring { change, age, members } => ring = Some((change, age, members)),
                Tell::Policy(document) => policy = Some(document),
                Tell::Refused { why } => return Ok(Answered::Refused(why)),
                // The last that is told.
                Tell::Replicas { as_of, replicas } => {
                    if let Some(bye) = framed(&Ask::Bye) {
                        let _ = writer.write_all(&bye).await;
                    }
                    let (Some(joined), Some(ring)) = (joined, ring) else {
                        let addresses = replicas.into_iter().map(|(_, address)| address);
                        return Ok(Answered::Elsewhere(addresses.collect()));
                    };
                    let (node, start, fleet, secret, is_restart) = joined;
                    let (change, age, members) = ring;
                    return Ok(Answered::Joined(Box::new(Joined {
                        node,
                        start,
                        fleet,
                        secret,
                        is_restart,
                        change,
                        age,
                        members,
                        policy,
                        replicas: (as_of, replicas),
                    })));
                }
                Tell::Alive | Tell::Heard { .. } | Tell::Other { .. } => {}
            }
        }
    }
}

/// What came of asking one of them.
enum Answered {
    Joined(Box<Joined>),
    /// The replicas are there.
    Elsewhere(Vec<String>),
    Refused(String),
}

/// How long a replica may take until it says what becomes of a join.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long all may take that it says: the limits have 8 MiB at most.
const WHOLE_PATIENCE: Duration = Duration::from_secs(30);
/// Addresses that are learnt in one round.
const LEARNT_MAX: usize = 32;
/// Reasons that are told while a fleet is looked for, each once.
const TOLD_MAX: usize = 64;
/// After so long it is told again why it can't join yet.
const TOLD_INTERVAL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn joining(seeds: &[&str]) -> Joining {
        Joining {
            seeds: seeds.iter().map(|&seed| seed.into()).collect(),
            secret: PeerSecret::default(),
            fleet: 0,
            node: None,
            weight: 1,
            address: "127.0.0.1:1".into(),
            is_candidate: false,
        }
    }

    #[tokio::test]
    async fn nobody_to_ask_is_refused_by_name() {
        let error = joining(&[]).run().await.expect_err("refused");
        assert_eq!(error.to_string(), "no member of the fleet is named");
    }

    #[test]
    fn whoever_was_named_is_asked_once_and_seeds_ever_again() {
        let learnt = ["c", "b", "c", "a"].map(String::from).into();
        assert_eq!(joining(&["a", "d"]).next_addresses(learnt), ["c", "b", "a", "d"]);
        let learnt = (0..100).map(|number| number.to_string()).collect();
        let addresses = joining(&["a"]).next_addresses(learnt);
        assert_eq!((addresses.len(), &*addresses[LEARNT_MAX]), (LEARNT_MAX + 1, "a"));
    }

    /// A seed has another secret: that is said at once. An address that a member named has: whoever
    /// was there may be gone, and another process be there.
    #[tokio::test(start_paused = true)]
    async fn another_secret_ends_a_join_only_at_an_address_that_was_given() {
        use crate::door::Door;
        use crate::wire::put_frame;

        let here = "127.0.0.1:0".parse().expect("an address");
        let stranger = Door::bind(here, PeerSecret::new(b"another")).await.expect("a port");
        let member = Door::bind(here, PeerSecret::default()).await.expect("a port");
        let (strange, seed) = (stranger.address().to_string(), member.address().to_string());
        let mut sessions = member.routes().take(Purpose::Session);
        tokio::spawn(stranger.run());
        tokio::spawn(member.run());
        let error = joining(&[&strange]).run().await.expect_err("refused");
        assert!(error.to_string().contains("its secret is another one"), "{error}");
        let join = joining(&[&seed]);
        let asking = tokio::spawn(async move { join.run().await });
        for times in 0..3 {
            let arrival = sessions.recv().await.expect("it asks again");
            let stream = tokio::net::TcpStream::from_std(arrival.stream).expect("a socket");
            let mut stream = stream;
            let mut bytes = Vec::new();
            let tell = match times {
                0 | 1 => {
                    Tell::Replicas { as_of: 1, replicas: vec![(NodeId::new(1), strange.clone())] }
                }
                _ => Tell::Refused { why: "too many".into() },
            };
            put_frame(&mut bytes, |out| tell.encode(out));
            stream.write_all(&bytes).await.expect("sent");
        }
        let error = asking.await.expect("no panic").expect_err("refused");
        assert_eq!(error.to_string(), "the fleet refuses this member: too many");
    }
}
