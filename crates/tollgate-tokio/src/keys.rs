//! Which keys of a fleet are how near to their limits: what members ask each other for people, and
//! how the answers become one list.
//!
//! An owner that is in charge knows a key exactly. Where it does not answer, what workers spent of
//! the key is added up, which is only nearly so. It knows no connection.

mod divided;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use tollgate::{FleetLimitId, KeyId, LimitUnits, NodeId, OwnedKey, SpentKey};

pub use divided::{DividedLimits, FleetShares, KeyPart, ShareRow};
pub(crate) use divided::{Firsts, Parts, rows};

/// By what keys are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeySort {
    /// The fullest first: by the part of the burst that is spent.
    #[default]
    Level,
    /// The fewest units left first.
    Remaining,
    /// The most units refused a second first.
    Denied,
    /// The most units admitted a second first.
    Admitted,
    /// The most workers first.
    Reporters,
}

/// Which keys are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyQuery {
    /// Of one limit; `None` for all of them.
    pub limit: Option<FleetLimitId>,
    /// In which order.
    pub sort: KeySort,
    /// Which page, from 0.
    pub page: usize,
    /// Keys on each page, 1 to [`PAGE_SIZE_MAX`](Self::PAGE_SIZE_MAX).
    pub page_size: usize,
}

impl KeyQuery {
    /// Keys on a page at most.
    pub const PAGE_SIZE_MAX: usize = 1_000;
    /// Keys down to which pages go: whoever looks for more looks for one limit, or one key.
    pub const KEYS_MAX: usize = 4_000;

    /// The hundred fullest keys of all limits.
    #[must_use]
    pub fn first() -> Self {
        Self { limit: None, sort: KeySort::Level, page: 0, page_size: 100 }
    }

    /// The keys that the page ends with, counted from the first.
    pub(crate) fn end(&self) -> usize {
        let size = self.page_size.clamp(1, Self::PAGE_SIZE_MAX);
        size.saturating_mul(self.page.saturating_add(1)).min(Self::KEYS_MAX)
    }

    fn begin(&self) -> usize {
        self.page_size.clamp(1, Self::PAGE_SIZE_MAX).saturating_mul(self.page).min(self.end())
    }
}

/// The values that a key was hashed from, in the order of its limit's key; `None` was not
/// declared.
pub type KeyParts = Box<[Option<Box<[u8]>>]>;

/// One key.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyRow {
    /// The key.
    pub key: KeyId,
    /// Its limit.
    pub limit: FleetLimitId,
    /// What it is made of, if a worker that has a cell of it has told; none at all for a key that
    /// stands in for others.
    pub parts: Option<KeyParts>,
    /// Its owner.
    pub owner: Option<NodeId>,
    /// What the owner says of it, if it answered.
    pub owned: Option<OwnedKey>,
    /// Units a second that were admitted: lately, or else since the key's cells began.
    pub admitted_per_second: f64,
    /// The same of those that were refused.
    pub denied_per_second: f64,
    /// Workers that reported it lately, or else that spend from it.
    pub reporters: u32,
    /// How old the newest of this is.
    pub age: Option<Duration>,
    /// A worker that can tell what the key is made of.
    pub worker: Option<NodeId>,
}

impl KeyRow {
    /// A key of which nothing else is known yet.
    #[must_use]
    pub fn of(
        key: KeyId,
        limit: FleetLimitId,
        owner: Option<NodeId>,
        owned: Option<OwnedKey>,
    ) -> Self {
        Self {
            key,
            limit,
            parts: None,
            owner,
            owned,
            admitted_per_second: owned.map_or(0.0, |owned| owned.admitted_per_second),
            denied_per_second: owned.map_or(0.0, |owned| owned.denied_per_second),
            reporters: owned.map_or(0, |owned| owned.reporters),
            age: owned.and_then(|owned| owned.reported_ago),
            worker: owned.and_then(|owned| owned.reporter),
        }
    }

    /// Whether its owner is in charge of it and answered; what others spent is added up otherwise.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.owned.is_some_and(|owned| owned.is_in_charge)
    }

    fn rank(&self, sort: KeySort) -> f64 {
        match (sort, &self.owned) {
            (KeySort::Denied, _) => self.denied_per_second,
            (KeySort::Admitted, _) => self.admitted_per_second,
            (KeySort::Reporters, _) => f64::from(self.reporters),
            (KeySort::Level | KeySort::Remaining, Some(owned)) => rank_owned(owned, sort),
            // Behind all of which it is known.
            (KeySort::Level | KeySort::Remaining, None) => f64::NEG_INFINITY,
        }
    }
}

/// A page of keys.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KeyPage {
    /// The keys, in the order that was asked for.
    pub rows: Vec<KeyRow>,
    /// Keys that there are, on all pages.
    pub total: u64,
    /// Those of them behind this page.
    pub omitted: u64,
    /// Members that did not answer in time: keys that they own are there as far as others spend
    /// from them.
    pub missing: Vec<NodeId>,
    /// How old the oldest of the rows is.
    pub oldest: Option<Duration>,
}

impl KeyPage {
    /// Whether all members answered, and all rows are exact.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.missing.is_empty() && self.rows.iter().all(KeyRow::is_exact)
    }
}

/// What one member asks another for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inquiry {
    /// The first keys that it owns.
    Owned {
        /// Of one limit, or of all.
        limit: Option<FleetLimitId>,
        /// In which order.
        sort: KeySort,
        /// How many, at most [`KeyQuery::KEYS_MAX`].
        count: u32,
    },
    /// The first keys that it spends from and these nodes own.
    Spent {
        /// Of one limit, or of all.
        limit: Option<FleetLimitId>,
        /// In which order: by what was refused, or else by what was admitted.
        sort: KeySort,
        /// How many, at most [`KeyQuery::KEYS_MAX`].
        count: u32,
        /// The owners.
        owners: Vec<NodeId>,
    },
    /// What it counted.
    Counted,
    /// What these keys are made of, at most [`NAMES_MAX`]: their hashes do not tell.
    Names(Vec<KeyId>),
    /// How limits that nodes divide stand there, with so many keys of each that it owns.
    Divided(u32),
    /// What it has of these keys that nodes divide, at most [`NAMES_MAX`].
    Parts(Vec<KeyId>),
}

/// What it is answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    /// Keys that it owns, and how many there are.
    Owned(u64, Vec<OwnedKey>),
    /// Keys that it spends from, and how many there are.
    Spent(u64, Vec<SpentKey>),
    /// What it counted.
    Counted(Counted),
    /// What keys are made of. Those that it does not know are left out.
    Names(Vec<KeyName>),
    /// How limits that nodes divide stand there.
    Divided(DividedLimits),
    /// What it has of keys that nodes divide. Those of which it has nothing are left out.
    Parts(Vec<KeyPart>),
}

/// What a key is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyName {
    /// The key.
    pub key: KeyId,
    /// Its limit.
    pub limit: FleetLimitId,
    /// Its values.
    pub parts: KeyParts,
}

/// What one member counted since its process began, or all members together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counted {
    /// By limit, of the keys that it owns or owned.
    pub limits: BTreeMap<FleetLimitId, LimitUnits>,
    /// Times at which an owner went on after the fleet had given its keys to others, and the
    /// longest of them.
    pub overlaps: u64,
    /// As said for `overlaps`.
    pub overlapped: Duration,
    /// Times at which the process stood still, and the longest of them.
    pub pauses: u64,
    /// As said for `pauses`.
    pub paused: Duration,
    /// Units that may have been spent when their permission was over.
    pub late: u64,
    /// Keys that it owns, and those that it spends from.
    pub owned: u64,
    /// As said for `owned`.
    pub spent: u64,
}

impl Counted {
    /// Adds what another member counted.
    pub(crate) fn add(&mut self, other: &Self) {
        for (id, units) in &other.limits {
            let all = self.limits.entry(*id).or_default();
            *all = LimitUnits {
                units: all.units.saturating_add(units.units),
                breaches: all.breaches.saturating_add(units.breaches),
                excess_max: all.excess_max.max(units.excess_max),
                excess: all.excess.max(units.excess),
                cost_max: all.cost_max.max(units.cost_max),
            };
        }
        self.overlaps = self.overlaps.saturating_add(other.overlaps);
        self.overlapped = self.overlapped.max(other.overlapped);
        self.pauses = self.pauses.saturating_add(other.pauses);
        self.paused = self.paused.max(other.paused);
        self.late = self.late.saturating_add(other.late);
        self.owned = self.owned.saturating_add(other.owned);
        self.spent = self.spent.saturating_add(other.spent);
    }
}

/// What the members counted, as far as they answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetCounted {
    /// All that answered, together.
    pub all: Counted,
    /// Those that did not in time.
    pub missing: Vec<NodeId>,
}

/// The first of many, as far as was looked at.
#[derive(Debug)]
pub(crate) struct First<T> {
    count: usize,
    rows: Vec<(f64, KeyId, T)>,
    pub(crate) total: u64,
}

impl<T> First<T> {
    pub(crate) fn new(count: u32) -> Self {
        let count = (count as usize).clamp(1, KeyQuery::KEYS_MAX);
        Self { count, rows: Vec::new(), total: 0 }
    }

    pub(crate) fn add(&mut self, rank: f64, key: KeyId, row: T) {
        self.total += 1;
        self.rows.push((rank, key, row));
        if self.rows.len() >= 2 * self.count {
            self.rows.select_nth_unstable_by(self.count, in_order);
            self.rows.truncate(self.count);
        }
    }

    pub(crate) fn rows(mut self) -> Vec<T> {
        self.rows.sort_unstable_by(in_order);
        self.rows.truncate(self.count);
        self.rows.into_iter().map(|(_, _, row)| row).collect()
    }
}

/// The greatest rank first; of equal ranks in the order of keys, so that pages do not overlap.
fn in_order<T>(one: &(f64, KeyId, T), other: &(f64, KeyId, T)) -> Ordering {
    other.0.total_cmp(&one.0).then(one.1.cmp(&other.1))
}

pub(crate) fn rank_owned(owned: &OwnedKey, sort: KeySort) -> f64 {
    match sort {
        KeySort::Level => owned.level as f64 / owned.burst.max(1) as f64,
        KeySort::Remaining => -(owned.remaining as f64),
        KeySort::Denied => owned.denied_per_second,
        KeySort::Admitted => owned.admitted_per_second,
        KeySort::Reporters => f64::from(owned.reporters),
    }
}

pub(crate) fn rank_spent(spent: &SpentKey, sort: KeySort) -> f64 {
    match sort {
        KeySort::Denied => per_second(spent.denied, spent.age),
        KeySort::Level | KeySort::Remaining | KeySort::Admitted | KeySort::Reporters => {
            per_second(spent.spent, spent.age)
        }
    }
}

/// Of a cell that has just begun no rate is known yet: it counts as a second old.
fn per_second(units: u64, age: Duration) -> f64 {
    units as f64 / age.as_secs_f64().max(1.0)
}

/// Keys whose names are asked for at once: more than a page has.
pub const NAMES_MAX: usize = 1_024;

/// One page of what members told.
pub(crate) fn page(query: &KeyQuery, told: Vec<(NodeId, Told)>, missing: Vec<NodeId>) -> KeyPage {
    let mut rows: BTreeMap<KeyId, KeyRow> = BTreeMap::new();
    let (mut total, mut spread) = (0_u64, 0);
    for (from, told) in told {
        match told {
            Told::Owned(count, owned) => {
                total = total.saturating_add(count);
                for one in owned {
                    add_owned(&mut rows, from, one);
                }
            }
            Told::Spent(count, spent) => {
                // Workers share keys: there are as many as the one has that has most, or more.
                spread = spread.max(count);
                for one in spent {
                    add_spent(&mut rows, from, &one);
                }
            }
            Told::Counted(_) | Told::Names(_) | Told::Divided(_) | Told::Parts(_) => {}
        }
    }
    let known = rows.values().filter(|row| row.owned.is_none()).count() as u64;
    total = total.saturating_add(spread.max(known));
    let mut first = First::new(u32::try_from(query.end()).unwrap_or(u32::MAX));
    for (key, row) in rows {
        first.add(row.rank(query.sort), key, row);
    }
    let rows = first.rows();
    let end = rows.len() as u64;
    let rows: Vec<KeyRow> = rows.into_iter().skip(query.begin()).collect();
    let oldest = rows.iter().filter_map(|row| row.age).max();
    KeyPage { rows, total, omitted: total.saturating_sub(end), missing, oldest }
}

fn add_owned(rows: &mut BTreeMap<KeyId, KeyRow>, from: NodeId, owned: OwnedKey) {
    let is_better = rows.get(&owned.key).is_none_or(|known| !known.is_exact());
    if !is_better {
        return;
    }
    rows.insert(owned.key, KeyRow::of(owned.key, owned.limit, Some(from), Some(owned)));
}

fn add_spent(rows: &mut BTreeMap<KeyId, KeyRow>, from: NodeId, spent: &SpentKey) {
    let row = rows.entry(spent.key).or_insert_with(|| KeyRow {
        worker: Some(from),
        ..KeyRow::of(spent.key, spent.limit, spent.owner, None)
    });
    if row.owned.is_none() {
        row.admitted_per_second += per_second(spent.spent, spent.age);
        row.denied_per_second += per_second(spent.denied, spent.age);
        row.reporters += 1;
        row.age = [row.age, spent.heard_ago].into_iter().flatten().min();
    }
}

#[cfg(test)]
mod tests {
    use tollgate::Rate;

    use super::*;

    fn node(number: u32) -> NodeId {
        NodeId::new(number)
    }

    fn key(number: u32) -> KeyId {
        KeyId::from_bits(9, number)
    }

    fn owned(number: u32, level: u64) -> OwnedKey {
        OwnedKey {
            key: key(number),
            limit: FleetLimitId(1),
            generation: 1,
            rate: Rate::parse("10/s").expect("a rate"),
            burst: 100,
            level,
            outstanding: 0,
            remaining: 100 - level,
            excess: 0,
            reporters: 2,
            reporter: Some(node(3)),
            reported_ago: Some(Duration::from_millis(u64::from(number))),
            admitted_per_second: f64::from(number),
            denied_per_second: 0.0,
            is_in_charge: true,
        }
    }

    fn spent(number: u32, owner: u32, units: u64) -> SpentKey {
        SpentKey {
            key: key(number),
            limit: FleetLimitId(1),
            owner: Some(node(owner)),
            spent: units,
            denied: 0,
            age: Duration::from_secs(2),
            credit: 0,
            credit_for: Duration::ZERO,
            waiting: 0,
            heard_ago: Some(Duration::from_millis(7)),
        }
    }

    fn query(sort: KeySort, page: usize, page_size: usize) -> KeyQuery {
        KeyQuery { limit: None, sort, page, page_size }
    }

    fn numbers(page: &KeyPage) -> Vec<u32> {
        page.rows.iter().map(|row| row.key.to_bits().1).collect()
    }

    #[test]
    fn pages_follow_each_other_and_say_what_is_behind_them() {
        let told = || {
            let of = |keys: [u32; 3]| keys.map(|n| owned(n, u64::from(n % 7) * 10)).to_vec();
            vec![
                (node(1), Told::Owned(3, of([1, 6, 13]))),
                (node(2), Told::Owned(40, of([2, 20, 5]))),
            ]
        };
        let first = page(&query(KeySort::Level, 0, 2), told(), Vec::new());
        // 6, 13 and 20 are equally full.
        assert_eq!((numbers(&first), first.total, first.omitted), (vec![6, 13], 43, 41));
        let second = page(&query(KeySort::Level, 1, 2), told(), Vec::new());
        assert_eq!((numbers(&second), second.omitted), (vec![20, 5], 39));
        assert_eq!(second.oldest, Some(Duration::from_millis(20)));
        assert!(second.is_exact());
        let reversed = page(&query(KeySort::Remaining, 0, 9), told(), Vec::new());
        assert_eq!(numbers(&reversed), [6, 13, 20, 5, 2, 1]);
        let busiest = page(&query(KeySort::Admitted, 0, 2), told(), Vec::new());
        assert_eq!(numbers(&busiest), [20, 13]);
    }

    #[test]
    fn what_workers_spent_stands_in_for_an_owner_that_does_not_answer() {
        let told = vec![
            (node(1), Told::Owned(1, vec![owned(1, 50)])),
            (node(1), Told::Spent(1, vec![spent(4, 2, 10)])),
            (node(3), Told::Spent(2, vec![spent(4, 2, 30), spent(5, 2, 2)])),
        ];
        let page = page(&query(KeySort::Admitted, 0, 10), told, vec![node(2)]);
        assert_eq!((numbers(&page), page.total, page.is_exact()), (vec![4, 1, 5], 3, false));
        let row = &page.rows[0];
        assert_eq!((row.is_exact(), row.owner, row.reporters), (false, Some(node(2)), 2));
        assert!((row.admitted_per_second - 20.0).abs() < 1e-9);
        assert!(page.rows[1].is_exact());
    }

    #[test]
    fn an_owner_that_is_not_in_charge_yet_is_no_exact_source() {
        let held = OwnedKey { is_in_charge: false, ..owned(1, 100) };
        let both = |told: [OwnedKey; 2]| {
            let [one, other] = told.map(|one| Told::Owned(1, vec![one]));
            page(&KeyQuery::first(), vec![(node(1), one), (node(2), other)], Vec::new())
        };
        let page = both([held, owned(1, 30)]);
        assert_eq!(
            (page.rows.len(), page.rows[0].owner, page.is_exact()),
            (1, Some(node(2)), true)
        );
        let page = both([owned(1, 30), held]);
        assert_eq!(
            (page.rows.len(), page.rows[0].owner, page.is_exact()),
            (1, Some(node(1)), true)
        );
    }

    #[test]
    fn only_so_many_keys_are_kept_of_however_many_there_are() {
        let mut first = First::new(10);
        for number in 0..100_000_u32 {
            first.add(f64::from(number.wrapping_mul(2_654_435_761) >> 8), key(number), number);
            assert!(first.rows.len() <= 20);
        }
        assert_eq!((first.total, first.rows().len()), (100_000, 10));
        let deep = KeyQuery { page: usize::MAX, ..KeyQuery::first() };
        assert_eq!((deep.end(), deep.begin()), (KeyQuery::KEYS_MAX, KeyQuery::KEYS_MAX));
    }

    #[test]
    fn what_members_counted_is_added_and_of_extremes_the_largest_is_kept() {
        let units = |units, excess_max| LimitUnits { units, excess_max, ..LimitUnits::default() };
        let one = |of, overlapped| Counted {
            limits: BTreeMap::from([(FleetLimitId(1), of)]),
            overlaps: 1,
            overlapped: Duration::from_millis(overlapped),
            ..Counted::default()
        };
        let mut all = one(units(5, 3), 40);
        all.add(&one(units(7, 2), 90));
        assert_eq!(all, Counted { overlaps: 2, ..one(units(12, 3), 90) });
    }
}
