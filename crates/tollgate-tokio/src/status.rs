//! How a member fares, as people and their dashboards see it.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate::coordinator::Revision;
use tollgate::{FleetLimitId, LimitUnits, Member, NodeCounts, NodeId, RingEpoch, ShareLimitStatus};

/// A member's status, told four times a second and when a policy takes force.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberStatus {
    /// Its number.
    pub node: NodeId,
    /// The start number of its process.
    pub start: u64,
    /// Whether it is in the ring, as far as it knows.
    pub is_member: bool,
    /// Whether it has come to be linked to all members, and in charge of all that it owns, since it
    /// joined.
    pub is_ready: bool,
    /// The ring that it knows.
    pub ring_epoch: RingEpoch,
    /// The policy that is in force here.
    pub revision: Revision,
    /// The members and where they are, as this one was last told.
    pub members: Vec<(NodeId, String)>,
    /// The members of the ring with their weights.
    pub ring: Vec<Member>,
    /// The replicas of the coordinator and where they are, the leader first if it is known.
    pub replicas: Vec<(NodeId, String)>,
    /// The replicas with which this member has a connection.
    pub sessions: Vec<NodeId>,
    /// What its node did and holds.
    pub counts: NodeCounts,
    /// What it counted of each limit of which it owns keys.
    pub limits: BTreeMap<FleetLimitId, LimitUnits>,
    /// How what it has of each limit that nodes divide fares.
    pub shares: BTreeMap<FleetLimitId, ShareLimitStatus>,
    /// Nodes that reported to it within the last `ttl_max`.
    pub reporters: usize,
    /// Keys of which it is not known what they are made of: too many came at once.
    pub names_lost: u64,
    /// What went over the links to other nodes.
    pub links: LinkStatus,
    /// What happened that people may want to know of.
    pub events: EventCounts,
    /// Requests that wait for credit.
    pub waiting: usize,
    /// Requests that found their queue full, so far.
    pub waiting_refused: u64,
    /// Connections that were refused at the door: whoever made them is no member of this fleet,
    /// does not know its secret, or speaks another version.
    pub handshakes_refused: u64,
}

impl Default for MemberStatus {
    fn default() -> Self {
        Self {
            node: NodeId::new(0),
            start: 0,
            is_member: false,
            is_ready: false,
            ring_epoch: RingEpoch::ZERO,
            revision: Revision::ZERO,
            members: Vec::new(),
            ring: Vec::new(),
            replicas: Vec::new(),
            sessions: Vec::new(),
            counts: NodeCounts::default(),
            limits: BTreeMap::new(),
            shares: BTreeMap::new(),
            reporters: 0,
            names_lost: 0,
            links: LinkStatus::default(),
            events: EventCounts::default(),
            waiting: 0,
            waiting_refused: 0,
            handshakes_refused: 0,
        }
    }
}

/// What went over all links to other nodes so far, and how many stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkStatus {
    /// Frames that were handed to the system.
    pub frames: u64,
    /// Bytes of frames that were handed to the system.
    pub bytes: u64,
    /// Frames that could not be sent: no connection stood, or it took too little.
    pub dropped: u64,
    /// Frames that came in.
    pub received: u64,
    /// Frames that made no sense, for each of which a connection was closed.
    pub malformed: u64,
    /// Connections to other nodes that stand.
    pub connected: u64,
}

/// What happened so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventCounts {
    /// Times at which this node went on granting after the fleet had given its keys to others.
    pub overlaps: u64,
    /// The longest of them.
    pub overlapped: Duration,
    /// Times at which the process stood still, so that permissions may have been spent late.
    pub pauses: u64,
    /// The longest of them.
    pub paused: Duration,
    /// Planned changes that brought another's keys too late.
    pub late_handovers: u64,
    /// Keys for which there was no room, here as a worker or as their owner.
    pub full: u64,
}
