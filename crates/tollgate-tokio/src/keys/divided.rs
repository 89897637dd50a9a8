//! How limits that nodes divide stand: what members tell of them, and how the answers become one.
//!
//! A key's owner knows who asks for how much; what each node enforces is known to that node alone,
//! and so the first keys of each limit are looked up at their owners, and then at all members.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tollgate::share::Phase;
use tollgate::{DividedKey, FleetLimitId, KeyId, NodeId, ShareLimitStatus, SharedKey};

use super::{First, KeyParts, KeyQuery};

/// What one member tells of limits that nodes divide.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DividedLimits {
    /// How what it has of each fares.
    pub limits: BTreeMap<FleetLimitId, ShareLimitStatus>,
    /// Of the keys that it owns those of each limit of which most is asked for.
    pub keys: Vec<DividedKey>,
}

/// What one member has of a key: its cell and its streams together.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyPart {
    /// The key.
    pub key: KeyId,
    /// Units a second that those which can rely on it were given, and their part of all that was
    /// asked for, from 0 to 1.
    pub rate: f64,
    /// As said for `rate`.
    pub weight: f64,
    /// How many of them are at start-up, decide by what they were given, and are failing.
    pub starting: u64,
    /// As said for `starting`.
    pub sharing: u64,
    /// As said for `starting`.
    pub failing: u64,
    /// What the key is made of, if its cell is here and it is known.
    pub parts: Option<KeyParts>,
}

/// One key that nodes divide.
#[derive(Debug, Clone, PartialEq)]
pub struct ShareRow {
    /// What its owner says.
    pub key: DividedKey,
    /// The owner.
    pub owner: NodeId,
    /// What it is made of, if a member has told.
    pub parts: Option<KeyParts>,
    /// What each node has of it, as far as they answered.
    pub nodes: BTreeMap<NodeId, KeyPart>,
}

/// How the limits that nodes divide stand in the whole fleet.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FleetShares {
    /// What each member that answered has of each limit.
    pub members: BTreeMap<NodeId, BTreeMap<FleetLimitId, ShareLimitStatus>>,
    /// The keys of each limit of which most is asked for, [`KEYS_OF_LIMIT`](Self::KEYS_OF_LIMIT) at
    /// most.
    pub keys: Vec<ShareRow>,
    /// Members that did not answer in time.
    pub missing: Vec<NodeId>,
}

impl FleetShares {
    /// Keys of each limit that are shown.
    pub const KEYS_OF_LIMIT: u32 = 10;
}

/// The first keys of each limit, as far as was looked at.
#[derive(Debug)]
pub(crate) struct Firsts {
    count: u32,
    limits: BTreeMap<FleetLimitId, First<(NodeId, DividedKey)>>,
}

impl Firsts {
    pub(crate) fn new(count: u32) -> Self {
        Self { count, limits: BTreeMap::new() }
    }

    /// Adds a key that `owner` owns.
    pub(crate) fn add(&mut self, owner: NodeId, key: DividedKey) {
        let first = self.limits.entry(key.limit).or_insert_with(|| First::new(self.count));
        first.add(key.demand, key.key, (owner, key));
    }

    pub(crate) fn rows(self) -> Vec<(NodeId, DividedKey)> {
        let rows = self.limits.into_values().flat_map(First::rows);
        rows.take(KeyQuery::KEYS_MAX).collect()
    }
}

/// What is here of some keys, as far as was looked at.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    wanted: BTreeMap<KeyId, Option<KeyPart>>,
}

impl Parts {
    pub(crate) fn of(keys: impl IntoIterator<Item = KeyId>) -> Self {
        Self { wanted: keys.into_iter().map(|key| (key, None)).collect() }
    }

    pub(crate) fn add(&mut self, member: &SharedKey) {
        let Some(part) = self.wanted.get_mut(&member.key) else { return };
        let part = part.get_or_insert(KeyPart {
            key: member.key,
            rate: 0.0,
            weight: 0.0,
            starting: 0,
            sharing: 0,
            failing: 0,
            parts: None,
        });
        match member.phase {
            Phase::StartUp => part.starting += 1,
            Phase::Normal => {
                part.sharing += 1;
                part.rate += member.rate;
                part.weight = (part.weight + member.weight).min(1.0);
            }
            Phase::Failing => part.failing += 1,
        }
    }

    /// Those of which there is something, by the names that are known.
    pub(crate) fn rows(self, name: impl Fn(&KeyId) -> Option<KeyParts>) -> Vec<KeyPart> {
        let found = self.wanted.into_values().flatten();
        found.map(|part| KeyPart { parts: name(&part.key), ..part }).collect()
    }
}

/// Rows of keys, with what members have of them.
pub(crate) fn rows(
    keys: Vec<(NodeId, DividedKey)>,
    parts: impl IntoIterator<Item = (NodeId, KeyPart)>,
) -> Vec<ShareRow> {
    let mut places: BTreeMap<KeyId, usize> = BTreeMap::new();
    let mut rows: Vec<ShareRow> = Vec::with_capacity(keys.len());
    for (owner, key) in keys {
        // Two may know it when its owner has just changed: the first asks for more.
        if let Entry::Vacant(place) = places.entry(key.key) {
            place.insert(rows.len());
            rows.push(ShareRow { key, owner, parts: None, nodes: BTreeMap::new() });
        }
    }
    for (node, mut part) in parts {
        let Some(row) = places.get(&part.key).and_then(|place| rows.get_mut(*place)) else {
            continue;
        };
        row.parts = row.parts.take().or(part.parts.take());
        row.nodes.insert(node, part);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u32) -> NodeId {
        NodeId::new(number)
    }

    fn key(number: u32) -> KeyId {
        KeyId::from_bits(9, number)
    }

    fn divided(number: u32, limit: u32, demand: f64) -> DividedKey {
        let (key, limit) = (key(number), FleetLimitId(limit));
        let (members, used, held, rate, floor) = (2, demand, demand, 100.0, 50.0);
        DividedKey { key, limit, members, demand, used, held, rate, floor }
    }

    fn shared(number: u32, stream: u64, phase: Phase, weight: f64) -> SharedKey {
        SharedKey {
            key: key(number),
            limit: FleetLimitId(1),
            stream,
            phase,
            rate: 10.0,
            weight,
            used: 0.0,
            members: 2,
            allowed: 0,
            denied: 0,
        }
    }

    #[test]
    fn each_limit_has_its_first_keys_however_little_is_asked_for_them() {
        let mut firsts = Firsts::new(2);
        for (number, limit, demand) in [(1, 1, 5.0), (2, 1, 9.0), (3, 1, 7.0), (4, 2, 0.1)] {
            firsts.add(node(1), divided(number, limit, demand));
        }
        let found: Vec<u32> = firsts.rows().iter().map(|(_, key)| key.key.to_bits().1).collect();
        assert_eq!(found, [2, 3, 4]);
    }

    #[test]
    fn a_row_has_what_each_node_has_of_its_key_cell_and_streams_together() {
        let mut parts = Parts::of([key(1)]);
        parts.add(&shared(1, 0, Phase::Normal, 0.25));
        parts.add(&shared(1, 7, Phase::Normal, 0.5));
        parts.add(&shared(1, 8, Phase::Failing, 0.5));
        parts.add(&shared(2, 0, Phase::Normal, 0.5));
        let name: KeyParts = Box::new([Some(b"acme".as_slice().into())]);
        let told = parts.rows(|_| Some(name.clone()));
        let other = KeyPart { weight: 0.125, parts: None, ..told[0].clone() };
        let told = told.into_iter().map(|part| (node(1), part)).chain([(node(2), other)]);
        let rows = rows(vec![(node(2), divided(1, 1, 30.0))], told);
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((row.owner, &row.parts), (node(2), &Some(name)));
        let of = |number| {
            let part = &row.nodes[&node(number)];
            (part.rate, part.weight, [part.starting, part.sharing, part.failing])
        };
        assert_eq!(of(1), (20.0, 0.75, [0, 2, 1]));
        assert_eq!(of(2), (20.0, 0.125, [0, 2, 1]));
    }

    #[test]
    fn a_key_that_two_owners_know_has_one_row() {
        let keys = vec![(node(1), divided(1, 1, 9.0)), (node(2), divided(1, 1, 3.0))];
        let rows = rows(keys, []);
        assert_eq!((rows.len(), rows[0].owner), (1, node(1)));
    }
}
