//! Nodes with the same members agree on every key's owner, shares follow weights, and a change
//! moves no more keys than it must.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tollgate::{KeyId, Member, NodeId, Ring, RingEpoch, RingError};

use crate::support::cases;

fn ring(members: impl IntoIterator<Item = Member>) -> Ring {
    Ring::new(RingEpoch::ZERO, members).expect("sound members")
}

fn member(node: u32, weight: u32) -> Member {
    Member { node: NodeId::new(node), weight }
}

/// Nodes 1 to `count`, all alike.
fn equals(count: u32) -> impl Iterator<Item = Member> {
    (1..=count).map(|node| member(node, 1))
}

/// Keys that differ in their last bits only.
fn keys(count: u64) -> impl Iterator<Item = KeyId> {
    (0..count).map(|key| KeyId::from_bits(key + 2, 0))
}

fn owner(ring: &Ring, key: KeyId) -> u32 {
    ring.owner(key).expect("it has members").get()
}

/// How many of so many keys each node owns.
fn shares(ring: &Ring, count: u64) -> BTreeMap<u32, u64> {
    let mut shares = BTreeMap::new();
    for key in keys(count) {
        *shares.entry(owner(ring, key)).or_default() += 1;
    }
    shares
}

/// How many of so many keys have another owner in `after`, which must be `newcomer`.
fn moved(before: &Ring, after: &Ring, newcomer: u32, count: u64) -> u64 {
    let mut moved = 0;
    for key in keys(count) {
        let (from, to) = (before.owner(key), owner(after, key));
        if from != Some(NodeId::new(to)) {
            assert_eq!(to, newcomer, "{key:?} went from {from:?} to {to}");
            moved += 1;
        }
    }
    moved
}

fn fleets() -> impl Strategy<Value = BTreeMap<u32, u32>> {
    proptest::collection::btree_map(any::<u32>(), 1..=9_u32, 0..12)
}

fn of(fleet: &BTreeMap<u32, u32>) -> Ring {
    ring(fleet.iter().map(|(&node, &weight)| member(node, weight)))
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn the_order_in_which_members_are_given_changes_nothing(
        fleet in fleets(), rotation in 0..12_usize, backwards: bool,
    ) {
        let mut given: Vec<Member> =
            fleet.iter().map(|(&node, &weight)| member(node, weight)).collect();
        let rotation = rotation.min(given.len());
        given.rotate_left(rotation);
        if backwards {
            given.reverse();
        }
        let (here, there) = (of(&fleet), ring(given));
        prop_assert_eq!(here.members(), there.members());
        for key in keys(100) {
            prop_assert_eq!(here.owner(key), there.owner(key));
        }
    }

    #[test]
    fn a_newcomer_takes_keys_and_a_leaver_gives_keys_and_nobody_else(
        fleet in fleets(), newcomer: u32, weight in 1..=9_u32,
    ) {
        let (mut without, mut with) = (fleet.clone(), fleet);
        without.remove(&newcomer);
        with.insert(newcomer, weight);
        // Read backwards, it is the leave.
        moved(&of(&without), &of(&with), newcomer, 500);
    }

    #[test]
    fn a_raised_weight_takes_keys_and_moves_none_between_others(
        fleet in fleets(), node: u32, weight in 1..=9_u32, more in 1..=9_u32,
    ) {
        let (mut before, mut after) = (fleet.clone(), fleet);
        before.insert(node, weight);
        after.insert(node, weight + more);
        moved(&of(&before), &of(&after), node, 500);
    }
}

#[test]
fn a_large_fleet_moves_as_little_as_a_small_one() {
    // From 33 members on, owners are listed: no step is larger than its neighbours.
    for (before, after) in [(31, 32), (32, 33), (100, 101)] {
        let moved = moved(&ring(equals(before)), &ring(equals(after)), after, 50_000);
        let mean = 50_000 / u64::from(after);
        assert!(moved * 10 > mean * 9 && moved * 10 < mean * 11, "{moved} moved to {after}");
    }
}

#[test]
fn a_join_moves_little_more_than_the_share_of_the_newcomer() {
    for before in [1, 2, 4, 9, 29] {
        let moved = moved(&ring(equals(before)), &ring(equals(before + 1)), before + 1, 50_000);
        let most = 50_000 / u64::from(before + 1) + 500;
        assert!(moved <= most, "{moved} moved to {}", before + 1);
    }
}

#[test]
fn what_a_leaver_owned_is_divided_by_weight() {
    let members = || (0..10).map(|node| member(node, 1 + node % 2));
    let (before, after) = (ring(members()), ring(members().skip(1)));
    let mut heirs = BTreeMap::new();
    for key in keys(MILLION / 2).filter(|&key| owner(&before, key) == 0) {
        *heirs.entry(owner(&after, key)).or_insert(0_u64) += 1;
    }
    let left: u64 = heirs.values().sum();
    for (node, heir) in heirs {
        let mean = left * u64::from(1 + node % 2) / 14;
        assert!(heir.abs_diff(mean) * 10 <= mean, "{heir} of {left} went to {node}, not {mean}");
    }
}

#[test]
fn the_busiest_of_equals_has_5_percent_more_than_the_mean_at_most() {
    for (nodes, count) in [(3, 200_000), (5, 200_000), (10, 200_000), (30, 300_000), (100, MILLION)]
    {
        let shares = shares(&ring(equals(nodes)), count);
        let (mean, busiest) = (count / u64::from(nodes), shares.values().max());
        assert!(busiest <= Some(&(mean * 105 / 100)), "{busiest:?} at {nodes} nodes");
        assert_eq!(shares.len(), nodes as usize);
    }
}

#[test]
fn shares_are_as_weights_are() {
    let weights = [1, 2, 5, 12];
    let shares =
        shares(&ring((0..).zip(weights).map(|(node, weight)| member(node, weight))), MILLION / 5);
    for (node, weight) in (0..).zip(weights) {
        let (share, mean) = (shares[&node], u64::from(weight) * MILLION / 5 / 20);
        assert!(share.abs_diff(mean) * 20 <= mean, "{share} of weight {weight}, not {mean}");
    }
}

#[test]
fn only_the_ratio_of_weights_counts() {
    let by = |factor| ring([member(1, factor), member(2, 2 * factor), member(3, 6 * factor)]);
    let (ones, most) = (by(1), by(10_922));
    for key in keys(20_000) {
        assert_eq!(ones.owner(key), most.owner(key));
    }
}

#[test]
fn one_node_owns_all_and_nobody_owns_nothing() {
    assert!(keys(100).all(|key| ring([]).owner(key).is_none()));
    assert!(keys(100).all(|key| owner(&ring([member(7, 65_535)]), key) == 7));
}

#[test]
fn a_ring_tells_its_epoch_and_its_members_by_node() {
    let epoch = RingEpoch::ZERO.next().next();
    let ring = Ring::new(epoch, [member(9, 1), member(3, 2)]).expect("sound members");
    assert_eq!((ring.epoch(), ring.epoch().get()), (RingEpoch::new(2), 2));
    assert_eq!(ring.members(), [member(3, 2), member(9, 1)]);
    let nodes: BTreeSet<u32> = (0..20).filter(|&node| ring.contains(NodeId::new(node))).collect();
    assert_eq!(nodes, BTreeSet::from([3, 9]));
    assert_eq!(NodeId::new(9).to_string(), "9");
}

#[test]
fn members_that_make_no_ring_are_refused_by_name() {
    let refused = |members: &[Member]| Ring::new(RingEpoch::ZERO, members.iter().copied()).err();
    let twice = RingError::Twice { node: NodeId::new(4) };
    assert_eq!(refused(&[member(4, 1), member(2, 1), member(4, 3)]), Some(twice));
    assert_eq!(twice.to_string(), "node 4 is a member twice");
    for weight in [0, 65_536] {
        let of_five = RingError::Weight { node: NodeId::new(5), weight };
        assert_eq!(refused(&[member(1, 1), member(5, weight)]), Some(of_five));
    }
    let endless = Ring::new(RingEpoch::ZERO, (0..).map(|node| member(node, 1)));
    assert_eq!(endless.err(), Some(RingError::TooMany));
    assert_eq!(ring(equals(1_000)).members().len(), Ring::MEMBERS_MAX);
}

/// What a fleet agreed on yesterday it agrees on in any version.
#[test]
fn owners_are_pinned_by_golden_vectors() {
    let weighted = |count: u32| (1..=count).map(|node| member(node, 1 + node * node % 7));
    let rings = [
        ring([member(1, 1), member(2, 1), member(3, 1)]),
        ring([member(1, 20_000), member(2, 65_535), member(0xFFFF_FFFF, 40_000)]),
        ring(weighted(20)),
        ring(equals(150)),
        ring(weighted(150)),
    ];
    for (ring, (owners, digest)) in rings.iter().zip(GOLDEN) {
        let found = GOLDEN_KEYS.map(|(high, low)| owner(ring, KeyId::from_bits(high, low)));
        assert_eq!(found, owners, "{ring:?}");
        // All of ten thousand keys, folded up.
        let fold = |digest: u64, key| {
            digest.wrapping_mul(0x100_0000_01B3).wrapping_add(u64::from(owner(ring, key)))
        };
        assert_eq!(keys(10_000).fold(0, fold), digest, "{ring:?}");
    }
}

const GOLDEN_KEYS: [(u64, u32); 8] = [
    (2, 0),
    (3, 0),
    (2, 1),
    (0x0123_4567_89AB_CDEF, 0x0123_4567),
    (0xFEDC_BA98_7654_3210, 0x89AB_CDEF),
    (10_289_382_077_154_844_462, 86_452_631),
    (990_893_308_134_578_627, 1_046_240_714),
    (u64::MAX, u32::MAX),
];
const GOLDEN: [([u32; 8], u64); 5] = [
    ([1, 2, 3, 2, 3, 2, 2, 2], 3_313_614_229_756_935_279),
    ([1, 2, 4_294_967_295, 2, 4_294_967_295, 2, 2, 2], 11_741_969_723_129_007_633),
    ([19, 19, 5, 5, 9, 18, 12, 4], 5_622_750_258_917_838_197),
    ([144, 122, 5, 149, 31, 42, 130, 100], 16_402_864_694_756_035_885),
    ([61, 122, 5, 149, 31, 42, 130, 100], 18_301_887_258_563_493_326),
];
const MILLION: u64 = 1_000_000;
