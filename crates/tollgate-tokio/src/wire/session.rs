//! What a node and a replica of the coordinator say to each other, as bytes.
//!
//! Who the node is was said by its [`Hello`](super::Hello): a process without a start number asks
//! to join, one with a number keeps its session.

use std::time::Duration;

use tollgate::coordinator::{Document, FleetSecret, Revision, RingChange, StartNumber};
use tollgate::{Instant, NodeId, RingEpoch};

use super::bytes::{Put, Take, WireError};

/// A node to a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// A process has started, or was told that it is lost.
    Join {
        /// The number that it had before, if its store has one.
        node: Option<NodeId>,
        /// Its share of the keys in proportion to others'.
        weight: u32,
        /// Where others reach it.
        address: String,
        /// Whether it can be a replica of the coordinator.
        is_candidate: bool,
    },
    /// It lives, and knows this ring and this policy.
    Heartbeat {
        /// Its own clock when it said so, for the answer.
        sent_at: Instant,
        /// The last ring that it knows.
        ring_epoch: RingEpoch,
        /// The last policy that it knows.
        revision: Revision,
    },
    /// It stops as planned.
    Leave,
    /// It ends the connection on purpose.
    Bye,
    /// Something that only daemons ask, in their own encoding.
    Other {
        /// The number of the question, for its answer.
        number: u64,
        /// The question.
        body: Vec<u8>,
    },
}

/// A replica to a node.
#[derive(Debug, Clone)]
pub enum Tell {
    /// You are that start of that node.
    Joined {
        /// The node.
        node: NodeId,
        /// Its start.
        start: StartNumber,
        /// The fleet, by its number.
        fleet: u64,
        /// What keys are hashed with.
        secret: FleetSecret,
        /// Whether the process before it was a member under the same ring.
        is_restart: bool,
    },
    /// What was asked can't be.
    Refused {
        /// Why, for people.
        why: String,
    },
    /// Who the replicas are.
    Replicas {
        /// The entry of the log that made them the replicas. A replica that is behind, as one that
        /// has just become one is, tells of those before.
        as_of: u64,
        /// They and where they are, the leader first if it is known.
        replicas: Vec<(NodeId, String)>,
    },
    /// Something is heard on this connection.
    Alive,
    /// The leader has heard the heartbeat that was sent then, and has since confirmed that it
    /// leads.
    Heard {
        /// When, by the node's clock.
        sent_at: Instant,
    },
    /// The ring has changed.
    Ring {
        /// How.
        change: RingChange,
        /// How long ago.
        age: Duration,
        /// Where each member is reached.
        members: Vec<(NodeId, String)>,
    },
    /// These limits are in force.
    Policy(Document),
    /// The answer to [`Ask::Other`].
    Other {
        /// The number of the question.
        number: u64,
        /// The answer.
        body: Vec<u8>,
    },
}

impl Ask {
    /// Writes it behind what is there, and returns its kind.
    pub fn encode(&self, out: &mut Vec<u8>) -> u8 {
        match self {
            Self::Join { node, weight, address, is_candidate } => {
                out.put(node.map_or(0, |node| u64::from(node.get())));
                out.put(u64::from(*weight));
                out.put_bytes(address.as_bytes());
                out.put_u8(u8::from(*is_candidate));
                JOIN
            }
            Self::Heartbeat { sent_at, ring_epoch, revision } => {
                out.put(sent_at.as_nanos());
                out.put(ring_epoch.get());
                out.put(revision.get());
                HEARTBEAT
            }
            Self::Leave => LEAVE,
            Self::Bye => BYE,
            Self::Other { number, body } => {
                out.put(*number);
                out.put_bytes(body);
                OTHER
            }
        }
    }

    /// What a frame of this kind with this body asks.
    ///
    /// # Errors
    /// [`WireError`] if it asks nothing.
    pub fn decode(kind: u8, body: &[u8]) -> Result<Self, WireError> {
        let mut take = Take::new(body);
        let ask = match kind {
            JOIN => Self::Join {
                node: Some(take.small("node")?).filter(|&node| node != 0).map(NodeId::new),
                weight: take.small("weight")?,
                address: take.text("address")?.to_owned(),
                is_candidate: take.flag("candidacy")?,
            },
            HEARTBEAT => Self::Heartbeat {
                sent_at: Instant::from_nanos(take.number()?),
                ring_epoch: RingEpoch::new(take.number()?),
                revision: Revision::new(take.number()?),
            },
            LEAVE => Self::Leave,
            BYE => Self::Bye,
            OTHER => Self::Other { number: take.number()?, body: take.bytes()?.to_vec() },
            _ => return Err(WireError::UnknownKind { kind }),
        };
        take.end()?;
        Ok(ask)
    }
}

impl Tell {
    /// Writes it behind what is there, and returns its kind.
    pub fn encode(&self, out: &mut Vec<u8>) -> u8 {
        match self {
            Self::Joined { node, start, fleet, secret, is_restart } => {
                out.put(u64::from(node.get()));
                out.put(start.get());
                out.put_raw(&fleet.to_le_bytes());
                out.put_raw(secret.bytes());
                out.put_u8(u8::from(*is_restart));
                JOINED
            }
            Self::Refused { why } => {
                out.put_bytes(why.as_bytes());
                REFUSED
            }
            Self::Replicas { as_of, replicas } => {
                out.put(*as_of);
                put_addresses(out, replicas);
                REPLICAS
            }
            Self::Alive => ALIVE,
            Self::Heard { sent_at } => {
                out.put(sent_at.as_nanos());
                HEARD
            }
            Self::Ring { change, age, members } => {
                out.put_bytes(&change.encode());
                out.put_duration(*age);
                put_addresses(out, members);
                RING
            }
            Self::Policy(document) => {
                out.put_bytes(&document.encode());
                POLICY
            }
            Self::Other { number, body } => {
                out.put(*number);
                out.put_bytes(body);
                OTHER
            }
        }
    }

    /// What a frame of this kind with this body tells.
    ///
    /// # Errors
    /// [`WireError`] if it tells nothing.
    pub fn decode(kind: u8, body: &[u8]) -> Result<Self, WireError> {
        let mut take = Take::new(body);
        let tell = match kind {
            JOINED => Self::Joined {
                node: NodeId::new(take.small("node")?),
                start: StartNumber::new(take.number()?),
                fleet: u64::from_le_bytes(take.array()?),
                secret: FleetSecret::new(take.array()?),
                is_restart: take.flag("restart")?,
            },
            REFUSED => Self::Refused { why: take.text("reason")?.to_owned() },
            REPLICAS => {
                let as_of = take.number()?;
                Self::Replicas { as_of, replicas: take_addresses(&mut take)? }
            }
            ALIVE => Self::Alive,
            HEARD => Self::Heard { sent_at: Instant::from_nanos(take.number()?) },
            RING => Self::Ring {
                change: RingChange::decode(take.bytes()?)
                    .map_err(|_| WireError::Malformed("ring"))?,
                age: take.duration()?,
                members: take_addresses(&mut take)?,
            },
            POLICY => Self::Policy(
                Document::decode(take.bytes()?).map_err(|_| WireError::Malformed("policy"))?,
            ),
            OTHER => Self::Other { number: take.number()?, body: take.bytes()?.to_vec() },
            _ => return Err(WireError::UnknownKind { kind }),
        };
        take.end()?;
        Ok(tell)
    }
}

fn put_addresses(out: &mut Vec<u8>, addresses: &[(NodeId, String)]) {
    out.put(addresses.len() as u64);
    for (node, address) in addresses {
        out.put(u64::from(node.get()));
        out.put_bytes(address.as_bytes());
    }
}

fn take_addresses(take: &mut Take<'_>) -> Result<Vec<(NodeId, String)>, WireError> {
    let count = take.count(2)?;
    let mut addresses = Vec::with_capacity(count);
    for _ in 0..count {
        let node = NodeId::new(take.small("node")?);
        addresses.push((node, take.text("address")?.to_owned()));
    }
    Ok(addresses)
}

/// Bytes of one frame of a session at most: a policy has 8 MiB of texts.
pub const SESSION_FRAME_MAX: u32 = 16 << 20;

const JOIN: u8 = 1;
const HEARTBEAT: u8 = 2;
const LEAVE: u8 = 3;
const BYE: u8 = 4;
const OTHER: u8 = 5;
const JOINED: u8 = 6;
const REFUSED: u8 = 7;
const REPLICAS: u8 = 8;
const ALIVE: u8 = 9;
const HEARD: u8 = 10;
const RING: u8 = 11;
const POLICY: u8 = 12;
