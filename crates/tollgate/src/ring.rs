//! Which node of a fleet owns a key: weighted rendezvous hashing over the members of one epoch.
//!
//! Keys fall into 2^20 partitions. Every member goes through all partitions in an order of its
//! own, drawn from its node id, as fast as its weight says; a partition belongs to the member that
//! reaches it first. So a newcomer takes partitions and nobody else gets any, and a leaver's go to
//! whoever came second. All of it is integer arithmetic: a fleet must agree on every key, whatever
//! machine and version a node runs on. Who is a member, and since when, is not known here.
//!
//! Weighted rendezvous: Thaler and Ravishankar, 1998; with weights by logarithms: Schindelhauer and
//! Schomaker, 2005. The orders are permutations by a Feistel network of four rounds.

use std::fmt;
use std::hint::select_unpredictable;
use std::sync::{Arc, OnceLock};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::key::KeyId;

/// Who owns which key in one epoch of a fleet.
///
/// A pure function of the members: neither the order in which they are given nor the epoch's number
/// changes an owner. When a node joins, keys move to it and nowhere else; when it leaves, only its
/// own move. Shares are proportional to weights. Of equal members the busiest has 0.3 % more than
/// the mean at 10 members, 2 % at 100 and 7 % at 1,000, besides what chance adds to few keys; a
/// weight below a 2^20th of the sum may get nothing.
///
/// ```
/// use tollgate::{KeyId, Member, NodeId, Ring, RingEpoch};
/// let member = |node, weight| Member { node: NodeId::new(node), weight };
/// let ring = Ring::new(RingEpoch::ZERO, [member(2, 3), member(1, 1)])?;
/// let keys = (0..1_000).map(|key| KeyId::from_bits(key << 32, 0));
/// let owned = keys.filter(|&key| ring.owner(key) == Some(NodeId::new(1))).count();
/// assert_eq!(owned, 247); // A quarter of them, by weight.
/// # Ok::<(), tollgate::RingError>(())
/// ```
#[derive(Clone)]
pub struct Ring {
    epoch: RingEpoch,
    /// By node.
    members: Vec<Member>,
    /// Each member's, at the same index.
    orders: Vec<Order>,
    /// The index of each partition's owner, remembered where looking for it takes too long.
    owners: OnceLock<Arc<[u16]>>,
}

impl Ring {
    /// The most members of a fleet.
    pub const MEMBERS_MAX: usize = 1_000;

    /// The ring of `members`, in any order.
    ///
    /// An owner is searched in some 8 ns for each member. Beyond 32 members all owners are listed
    /// instead when the first is asked for (2 MiB, 0.15 to 0.25 s), and looked
    /// up; they are the same.
    ///
    /// # Errors
    /// When there are more than [`Self::MEMBERS_MAX`], a node is there twice or a weight is not in
    /// 1 to [`Member::WEIGHT_MAX`].
    pub fn new(
        epoch: RingEpoch,
        members: impl IntoIterator<Item = Member>,
    ) -> Result<Self, RingError> {
        let mut members: Vec<Member> = members.into_iter().take(Self::MEMBERS_MAX + 1).collect();
        if members.len() > Self::MEMBERS_MAX {
            return Err(RingError::TooMany);
        }
        if let Some(&Member { node, weight }) =
            members.iter().find(|member| !(1..=Member::WEIGHT_MAX).contains(&member.weight))
        {
            return Err(RingError::Weight { node, weight });
        }
        members.sort_unstable_by_key(|member| member.node);
        if let Some(pair) = members.windows(2).find(|pair| pair[0].node == pair[1].node) {
            return Err(RingError::Twice { node: pair[0].node });
        }
        let order = |(index, member): (usize, &Member)| {
            let by_index = crate::mutant::lacks("ring_by_index");
            Order::new(if by_index { NodeId(index as u32) } else { member.node })
        };
        let orders = members.iter().enumerate().map(order).collect();
        Ok(Self { epoch, members, orders, owners: OnceLock::new() })
    }

    /// Which ring of the fleet this is.
    #[must_use]
    pub fn epoch(&self) -> RingEpoch {
        self.epoch
    }

    /// The members, by node.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Whether `node` is a member.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        self.members.binary_search_by_key(&node, |member| member.node).is_ok()
    }

    /// The node that owns `key`; `None` only if there are no members.
    #[must_use]
    pub fn owner(&self, key: KeyId) -> Option<NodeId> {
        let partition = partition(key);
        let index = if self.members.len() > SEARCHED_MEMBERS_MAX {
            let owners = self.owners.get_or_init(|| self.list_owners());
            usize::from(owners[partition as usize])
        } else {
            self.first_at(partition)?
        };
        Some(self.members[index].node)
    }

    /// The index of the member that reaches `partition` first, of several the one with the smallest
    /// node: what the owner of a partition *is*.
    fn first_at(&self, partition: u32) -> Option<usize> {
        let members = self.members.iter().zip(&self.orders);
        let mut arrivals =
            members.map(|(member, order)| Arrival::new(order.rank(partition), member.weight));
        let (mut first, mut first_arrival) = (0, arrivals.next()?);
        for (index, arrival) in (1..).zip(arrivals) {
            let is_before = arrival.is_before(first_arrival);
            first = select_unpredictable(is_before, index, first);
            first_arrival = select_unpredictable(is_before, arrival, first_arrival);
        }
        Some(first)
    }

    /// What [`Self::first_at`] says of every partition, without asking every member about each.
    ///
    /// All go on until all but a 256th of the partitions are reached, which takes 5.5 steps for
    /// each partition, however many members there are. Who comes later than that is not first where
    /// someone was before. The rest is searched.
    fn list_owners(&self) -> Arc<[u16]> {
        let weights: u64 = self.members.iter().map(|member| u64::from(member.weight)).sum();
        let end = LISTED / weights;
        let mut owners = vec![NOBODY; PARTITIONS as usize];
        let mut ranks = vec![0; PARTITIONS as usize];
        for (index, (member, order)) in (0..).zip(self.members.iter().zip(&self.orders)) {
            for rank in 0..ranks_within(end * u64::from(member.weight)) {
                let partition = order.partition(rank) as usize;
                let incumbent = owners[partition];
                let is_first = incumbent == NOBODY || {
                    let weight = self.members[usize::from(incumbent)].weight;
                    let incumbent = Arrival::new(ranks[partition], weight);
                    let stays = crate::mutant::lacks("ring_incumbents_stay");
                    !stays && Arrival::new(rank, member.weight).is_before(incumbent)
                };
                if is_first {
                    owners[partition] = index;
                    ranks[partition] = rank;
                }
            }
        }
        for (partition, owner) in (0..).zip(&mut owners) {
            if *owner == NOBODY {
                *owner = self.first_at(partition).expect("only members are listed") as u16;
            }
        }
        owners.into()
    }
}

/// When a member reaches a partition.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    way: u64,
    weight: u64,
}

impl Arrival {
    #[inline]
    fn new(rank: u32, weight: u32) -> Self {
        let weight = if crate::mutant::lacks("ring_weights_ignored") { 1 } else { weight };
        Self { way: way(rank), weight: u64::from(weight) }
    }

    /// Whether it is strictly earlier: way / weight, compared exactly.
    #[inline]
    fn is_before(self, other: Self) -> bool {
        self.way * other.weight < other.way * self.weight
    }
}

/// The order in which a member goes through the partitions.
#[derive(Debug, Clone, Copy)]
struct Order([u64; 4]);

impl Order {
    fn new(node: NodeId) -> Self {
        Self([0, 1, 2, 3].map(|round| xxh3_64_with_seed(&node.0.to_le_bytes(), round)))
    }

    /// How many partitions come before this one.
    #[inline]
    fn rank(&self, partition: u32) -> u32 {
        let (mut left, mut right) = (partition >> HALF_BITS, partition & HALF);
        for key in self.0 {
            (left, right) = (right, left ^ scatter(key, right));
        }
        left << HALF_BITS | right
    }

    /// The partition before which so many come.
    #[inline]
    fn partition(&self, rank: u32) -> u32 {
        let (mut left, mut right) = (rank >> HALF_BITS, rank & HALF);
        for key in self.0.into_iter().rev() {
            (left, right) = (right ^ scatter(key, left), left);
        }
        left << HALF_BITS | right
    }
}

/// Half of a partition's bits, from a key and the other half.
#[inline]
fn scatter(key: u64, half: u32) -> u32 {
    let mixed = (key ^ u64::from(half)).wrapping_mul(MIX);
    ((mixed ^ mixed >> 32).wrapping_mul(MIX) >> (64 - HALF_BITS)) as u32
}

/// From all bits of the key: if those that choose its place in a table chose its owner, an owner's
/// keys would crowd in its tables.
#[inline]
fn partition(key: KeyId) -> u32 {
    let (high, low) = key.to_bits();
    let mixed = (high ^ u64::from(low).wrapping_mul(MIX)).wrapping_mul(MIX);
    ((mixed ^ mixed >> 32).wrapping_mul(MIX) >> (64 - 2 * HALF_BITS)) as u32
}

/// How far it is to the partition of this rank: -log2(1 - (rank + 1/2) / partitions).
#[inline]
fn way(rank: u32) -> u64 {
    // Odd and below 2^21; its first ten bits after the leading one choose two knots.
    let rest = 2 * (PARTITIONS - rank) - 1;
    let exponent = rest.ilog2();
    let normal = rest << (2 * HALF_BITS - exponent);
    let (knot, beyond) = ((normal >> HALF_BITS & HALF) as usize, u64::from(normal & HALF));
    let (low, high) = (LOG2[knot], LOG2[knot + 1]);
    let log = (u64::from(exponent) << WAY_BITS) + low + (((high - low) * beyond) >> HALF_BITS);
    (u64::from(2 * HALF_BITS + 1) << WAY_BITS) - log
}

/// How many ranks are nearer than `end`.
fn ranks_within(end: u64) -> u32 {
    let (mut within, mut beyond) = (0, PARTITIONS);
    while within < beyond {
        let middle = within.midpoint(beyond);
        if way(middle) < end {
            within = middle + 1;
        } else {
            beyond = middle;
        }
    }
    within
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("epoch", &self.epoch)
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}

/// A node of a fleet and its share of the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Who it is.
    pub node: NodeId,
    /// Its share, relative to the other members' weights; typically 1 for all, 1 to
    /// [`Self::WEIGHT_MAX`].
    pub weight: u32,
}

impl Member {
    /// The largest weight.
    pub const WEIGHT_MAX: u32 = 65_535;
}

/// A node's number, which no other node of its fleet has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

impl NodeId {
    /// The node with this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a ring: each change of a fleet's members takes the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingEpoch(u64);

impl RingEpoch {
    /// Before any change.
    pub const ZERO: Self = Self(0);

    /// The epoch with this number, as another node sent it.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number to send.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The epoch after this one.
    ///
    /// # Panics
    /// After 2^64 changes.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("members change less than 2^64 times"))
    }
}

impl fmt::Display for RingEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why members make no ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingError {
    /// More than [`Ring::MEMBERS_MAX`].
    TooMany,
    /// A node is given twice.
    Twice {
        /// The one with the smallest number.
        node: NodeId,
    },
    /// A weight of 0 or above [`Member::WEIGHT_MAX`].
    Weight {
        /// The first in the order given.
        node: NodeId,
        /// The weight.
        weight: u32,
    },
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(f, "a fleet has at most {} members", Ring::MEMBERS_MAX),
            Self::Twice { node } => write!(f, "node {node} is a member twice"),
            Self::Weight { node, weight } => {
                write!(f, "the weight of node {node} must be 1 to 65535, not {weight}")
            }
        }
    }
}

impl std::error::Error for RingError {}

/// log2 of 1 to 2 in 2^10 steps, in units of 2^-[`WAY_BITS`]; lines between them are off by less
/// than a 4,000th of any way.
static LOG2: [u64; 1025] = {
    let mut knots = [0; 1025];
    let mut knot = 0;
    while knot < 1025 {
        knots[knot] = log2(1024 + knot as u64);
        knot += 1;
    }
    knots
};

/// log2 of `number` / 1024, for 1024 to 2048, rounded down: each squaring yields a bit.
const fn log2(number: u64) -> u64 {
    if number == 2048 {
        return 1 << WAY_BITS;
    }
    let mut power = number << 52;
    let mut log = 0;
    let mut bit = 0;
    while bit < WAY_BITS {
        let squared = (power as u128 * power as u128) >> 62;
        log <<= 1;
        if squared >> 63 == 0 {
            power = squared as u64;
        } else {
            log |= 1;
            power = (squared >> 1) as u64;
        }
        bit += 1;
    }
    log
}

/// Up to so many members are searched; of more, the owners are listed.
const SEARCHED_MEMBERS_MAX: usize = 32;
const HALF_BITS: u32 = 10;
const HALF: u32 = (1 << HALF_BITS) - 1;
const PARTITIONS: u32 = 1 << (2 * HALF_BITS);
/// The binary digits of a way: the first partition's is 3 million units.
const WAY_BITS: u32 = 42;
/// The way that nobody has gone, by the chance of 2^-8, at a partition.
const LISTED: u64 = 8 << WAY_BITS;
const NOBODY: u16 = u16::MAX;
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
const _: () = assert!(Ring::MEMBERS_MAX < NOBODY as usize);
const _: () = {
    let way_max = (2 * HALF_BITS as u64 + 1) << WAY_BITS;
    assert!(way_max.checked_mul(Member::WEIGHT_MAX as u64).is_some());
};

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(members: impl IntoIterator<Item = (u32, u32)>) -> Ring {
        let member = |(node, weight)| Member { node: NodeId(node), weight };
        Ring::new(RingEpoch::ZERO, members.into_iter().map(member)).expect("sound members")
    }

    #[test]
    fn the_list_says_what_a_search_finds() {
        let fleets = [
            ring((0..40).map(|node| (node, [1, 9, 65_535][node as usize % 3]))),
            ring((0..150).map(|node| (node, 1))),
        ];
        for ring in fleets {
            let owners = ring.list_owners();
            for partition in (0..PARTITIONS).step_by(61) {
                let first = ring.first_at(partition);
                assert_eq!(Some(usize::from(owners[partition as usize])), first, "{partition}");
            }
        }
    }

    #[test]
    fn a_member_comes_to_every_partition_once() {
        let order = Order::new(NodeId(7));
        for partition in 0..PARTITIONS {
            assert!(order.rank(partition) < PARTITIONS);
            assert_eq!(order.partition(order.rank(partition)), partition);
        }
    }

    #[test]
    fn of_members_that_arrive_together_the_smaller_node_is_first() {
        let tie = |one: &Order, other: &Order| {
            (0..PARTITIONS).find(|&partition| one.rank(partition) == other.rank(partition))
        };
        let mut ties = 0;
        for node in 1..5 {
            let ring = ring([(node, 6), (0, 6)]);
            if let Some(partition) = tie(&ring.orders[0], &ring.orders[1]) {
                assert_eq!(ring.first_at(partition), Some(0));
                assert_eq!(ring.list_owners()[partition as usize], 0);
                ties += 1;
            }
        }
        assert!(ties > 0);
    }

    #[test]
    fn ways_grow_and_are_logarithms() {
        let mut last = 0;
        for rank in 0..PARTITIONS {
            let way = way(rank);
            assert!(way > last, "{rank}");
            last = way;
            let exact = -(-(f64::from(rank) + 0.5) / f64::from(PARTITIONS)).ln_1p();
            let exact = exact / std::f64::consts::LN_2 * (1_u64 << WAY_BITS) as f64;
            assert!((way as f64 / exact - 1.0).abs() < 1.0 / 4_000.0, "{rank}: {way}, not {exact}");
        }
        assert_eq!(ranks_within(way(1_000)), 1_000);
        assert_eq!((ranks_within(0), ranks_within(u64::MAX)), (0, PARTITIONS));
    }
}
