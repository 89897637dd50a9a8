//! The fleet's state: a deterministic function of the log, the same on every replica.
//!
//! Members and the ring, start numbers, the policy. Each change of the members is one step of the
//! ring, with the next epoch. When a member counts as lost is decided in `sessions`, and how long
//! its keys pause by their next owner; here a loss is a fact once it is committed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::command::{
    Answer, Command, Effects, FleetSecret, Refused, Revision, RingChange, StartNumber,
};
use super::policy::{Document, Policies};
use crate::ring::{Member, NodeId, Ring, RingEpoch, RingError};

/// What a fleet agrees on.
///
/// Two replicas that have applied the same commands have equal states and equal
/// [encodings](Self::encode).
///
/// ```
/// use tollgate::coordinator::{Answer, Command, FleetSecret, State};
/// let mut state = State::default();
/// state.apply(Command::Found { secret: FleetSecret::new([7; 32]), fleet: 9, voters_max: 3 })?;
/// let (address, is_candidate) = (String::from("10.0.0.1:7800"), true);
/// let join = |node| Command::Join { node, weight: 1, address: address.clone(), is_candidate };
/// let joined = state.apply(join(None))?;
/// let Answer::Joined { node, start, ring, .. } = joined.answer else { panic!() };
/// assert_eq!((node.get(), start.get(), ring.epoch().get()), (1, 1, 1));
/// // It starts again before anyone has missed it: another start, the same ring.
/// let joined = state.apply(join(Some(node)))?;
/// assert!(joined.ring.is_none());
/// // So the first start can no longer be lost.
/// assert!(state.apply(Command::Lose { node, start }).is_err());
/// # Ok::<(), tollgate::coordinator::Refused>(())
/// ```
#[derive(Clone)]
pub struct State {
    pub(super) index: u64,
    /// `None` before the fleet is founded.
    pub(super) founding: Option<Founding>,
    /// The last start number that was issued.
    pub(super) starts: u64,
    /// The last node number that was issued.
    pub(super) nodes: u32,
    pub(super) members: BTreeMap<NodeId, Seat>,
    /// The ring of `members`.
    pub(super) ring: Arc<Ring>,
    /// How `ring` came about; `None` only for the ring without a member that every fleet begins
    /// with.
    pub(super) change: Option<RingChange>,
    pub(super) policies: Policies,
}

/// What the founder of a fleet settled for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Founding {
    pub(super) secret: FleetSecret,
    pub(super) fleet: u64,
    pub(super) voters_max: u32,
}

/// What is known of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// Who it is.
    pub node: NodeId,
    /// Its current start.
    pub start: StartNumber,
    /// Its share of the keys in proportion to others'; 0 if it owns none and is not in the ring.
    pub weight: u32,
    /// Where other nodes reach it, as its last start said; at most [`Self::ADDRESS_MAX`] bytes.
    pub address: String,
    /// Whether it can keep a replica of the log.
    pub is_candidate: bool,
}

impl Seat {
    /// The most bytes of an address.
    pub const ADDRESS_MAX: usize = 256;
}

impl State {
    /// The most members of a fleet.
    pub const MEMBERS_MAX: usize = Ring::MEMBERS_MAX;

    /// Applies the next command of the log.
    ///
    /// Between founding and the first change of the policy, 3 joins and a loss make ring epoch 4.
    ///
    /// # Errors
    /// When the command has no meaning in this state or is out of bounds. Nothing has changed then,
    /// [`Self::index`] included, on no replica.
    pub fn apply(&mut self, command: Command) -> Result<Effects, Refused> {
        if self.founding.is_none() && !matches!(command, Command::Found { .. }) {
            return Err(Refused::NotFounded);
        }
        let effects = match command {
            Command::Found { secret, fleet, voters_max } => {
                self.found(Founding { secret, fleet, voters_max })?
            }
            Command::Join { node, weight, address, is_candidate } => {
                self.join(node, weight, address, is_candidate)?
            }
            Command::Leave { node, start } => self.remove(node, start, &[])?,
            Command::Lose { node, start } => self.remove(node, start, &[node])?,
            Command::SetWeight { node, weight } => self.set_weight(node, weight)?,
            Command::PutPolicy { edit, limits } => revised(self.policies.put(edit, limits)?),
            Command::Rollback { edit, to } => revised(self.policies.roll_back(edit, to)?),
        };
        self.index += 1;
        let owners = self.members.values().filter(|seat| seat.weight > 0).count();
        assert_eq!(self.ring.members().len(), owners, "the ring is the members'");
        Ok(effects)
    }

    /// How many commands have been applied, refused ones not counted.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The fleet's secret; `None` before it is founded.
    #[must_use]
    pub fn secret(&self) -> Option<&FleetSecret> {
        self.founding.as_ref().map(|founding| &founding.secret)
    }

    /// What tells the fleet from all others; `None` before it is founded.
    #[must_use]
    pub fn fleet(&self) -> Option<u64> {
        self.founding.as_ref().map(|founding| founding.fleet)
    }

    /// How many replicas of the coordinator vote at most: 1, 3 or 5; 1 before the fleet is founded,
    /// by one alone.
    #[must_use]
    pub fn voters_max(&self) -> u32 {
        self.founding.as_ref().map_or(1, |founding| founding.voters_max)
    }

    /// Whether no node has ever joined.
    #[must_use]
    pub fn is_unjoined(&self) -> bool {
        self.nodes == 0
    }

    /// The ring in force.
    #[must_use]
    pub fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// The change that made the ring in force, for those who have missed it; `None` before the
    /// first.
    #[must_use]
    pub fn change(&self) -> Option<&RingChange> {
        self.change.as_ref()
    }

    /// The members, by node.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &Seat> {
        self.members.values()
    }

    /// The policy in force; `None` before the first.
    #[must_use]
    pub fn policy(&self) -> Option<&Arc<Document>> {
        self.policies.current()
    }

    /// The policies that are kept, oldest first, the one in force last.
    ///
    /// At most 100 with at most 64 MiB of names and texts, what they share counted once; older ones
    /// are forgotten.
    pub fn history(&self) -> impl ExactSizeIterator<Item = &Arc<Document>> {
        self.policies.history().iter()
    }

    fn found(&mut self, founding: Founding) -> Result<Effects, Refused> {
        if self.founding.is_some() {
            return Err(Refused::AlreadyFounded);
        }
        let voters_max = founding.voters_max;
        if !VOTERS_MAX.contains(&voters_max) {
            return Err(Refused::VotersMax { voters_max });
        }
        self.founding = Some(founding);
        Ok(changed(None))
    }

    fn join(
        &mut self,
        node: Option<NodeId>,
        weight: u32,
        address: String,
        is_candidate: bool,
    ) -> Result<Effects, Refused> {
        if address.len() > Seat::ADDRESS_MAX {
            return Err(Refused::AddressTooLong { bytes: address.len() });
        }
        let issued = match node {
            Some(node) if (1..=self.nodes).contains(&node.get()) => None,
            Some(node) => return Err(Refused::UnknownNode { node }),
            None => Some(self.nodes.checked_add(1).ok_or(Refused::NoNodesLeft)?),
        };
        let node = node.or(issued.map(NodeId::new)).expect("given or issued");
        if weight == 0 {
            return Err(Refused::Ring(RingError::Weight { node, weight }));
        }
        let reused = crate::mutant::lacks("start_number_reused");
        let before = if reused { self.members.len() as u64 } else { self.starts };
        let start = StartNumber::new(before + 1);
        let mut change = None;
        if let Some(seat) = self.members.get_mut(&node) {
            seat.start = start;
            (seat.address, seat.is_candidate) = (address, is_candidate);
        } else if self.members.len() == Self::MEMBERS_MAX {
            return Err(Refused::TooManyMembers);
        } else {
            let mut members = self.members.clone();
            members.insert(node, Seat { node, start, weight, address, is_candidate });
            change = Some(self.turn(members, &[])?);
        }
        self.starts = start.get();
        self.nodes = issued.unwrap_or(self.nodes);
        let is_restart = change.is_none();
        let answer = Answer::Joined { node, start, ring: self.ring.clone(), is_restart };
        Ok(Effects { ring: change, policy: false, answer })
    }

    fn remove(
        &mut self,
        node: NodeId,
        start: StartNumber,
        lost: &[NodeId],
    ) -> Result<Effects, Refused> {
        let current = self.members.get(&node).ok_or(Refused::NotAMember { node })?.start;
        if current != start {
            return Err(Refused::OtherStart { node, start, current });
        }
        let mut members = self.members.clone();
        let seat = members.remove(&node);
        // Who owned nothing has lost nothing.
        let lost = if seat.is_some_and(|seat| seat.weight > 0) { lost } else { &[] };
        Ok(changed(Some(self.turn(members, lost)?)))
    }

    fn set_weight(&mut self, node: NodeId, weight: u32) -> Result<Effects, Refused> {
        let mut members = self.members.clone();
        let seat = members.get_mut(&node).ok_or(Refused::NotAMember { node })?;
        if seat.weight == weight {
            return Ok(changed(None));
        }
        seat.weight = weight;
        if members.values().all(|seat| seat.weight == 0) {
            return Err(Refused::Ring(RingError::Weight { node, weight }));
        }
        Ok(changed(Some(self.turn(members, &[])?)))
    }

    /// Other members: the ring's next epoch.
    fn turn(
        &mut self,
        members: BTreeMap<NodeId, Seat>,
        lost: &[NodeId],
    ) -> Result<RingChange, Refused> {
        let ring = Arc::new(ring_of(self.ring.epoch().next(), &members).map_err(Refused::Ring)?);
        let previous = std::mem::replace(&mut self.ring, ring.clone());
        let change = RingChange { ring, previous, lost: lost.into() };
        self.members = members;
        self.change = Some(change.clone());
        Ok(change)
    }
}

impl Default for State {
    /// The state before the first command.
    fn default() -> Self {
        let members = BTreeMap::new();
        let ring = ring_of(RingEpoch::ZERO, &members).expect("a ring may be empty");
        Self {
            index: 0,
            founding: None,
            starts: 0,
            nodes: 0,
            members,
            ring: Arc::new(ring),
            change: None,
            policies: Policies::default(),
        }
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
            && self.founding == other.founding
            && self.starts == other.starts
            && self.nodes == other.nodes
            && self.members == other.members
            && self.ring.epoch() == other.ring.epoch()
            && self.change == other.change
            && self.policies == other.policies
    }
}

impl Eq for State {}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("index", &self.index)
            .field("members", &self.members)
            .field("epoch", &self.ring.epoch())
            .field("revision", &self.policies.revision())
            .finish_non_exhaustive()
    }
}

pub(super) fn ring_of(
    epoch: RingEpoch,
    members: &BTreeMap<NodeId, Seat>,
) -> Result<Ring, RingError> {
    let member = |seat: &Seat| Member { node: seat.node, weight: seat.weight };
    Ring::new(epoch, members.values().filter(|seat| seat.weight > 0).map(member))
}

/// How many replicas may vote at most: odd numbers, since an even one survives no more losses.
pub(super) const VOTERS_MAX: [u32; 3] = [1, 3, 5];

fn changed(ring: Option<RingChange>) -> Effects {
    Effects { ring, policy: false, answer: Answer::Done }
}

fn revised(revision: Revision) -> Effects {
    Effects { ring: None, policy: true, answer: Answer::Revised { revision } }
}
