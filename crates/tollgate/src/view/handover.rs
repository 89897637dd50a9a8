//! A planned change of owner: what the old one sends, and how it goes on until it has arrived.
//!
//! The old owner freezes its keys for good, and sends them in parts, each of which says how many
//! there are. Each part is repeated until it is acknowledged. Rule 6.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::key::KeyId;
use crate::policy::FleetLimitId;
use crate::rate::Rate;
use crate::ring::{NodeId, RingEpoch};
use crate::time::Instant;
use crate::view::excess::Excess;
use crate::view::meter::Meter;
use crate::view::owned::Owned;
use crate::view::record::{POSITIONS_MAX, Record};
use crate::view::tenure::Began;
use crate::view::{CellEpoch, ViewTimes};

/// One part of what an old owner hands to a new one.
#[derive(Debug, Clone, PartialEq)]
pub struct Handover {
    /// The ring by which the receiver owns the keys.
    pub ring_epoch: RingEpoch,
    /// Which part it is, from 0.
    pub part: u32,
    /// How many there are.
    pub parts: u32,
    /// How long ago the sender's tenure began, for keys that it has forgotten.
    pub tenure_age: Duration,
    /// What is left of the time in which the sender itself grants nothing.
    pub hold_left: Duration,
    /// The keys.
    pub keys: Vec<HandedKey>,
}

/// A key as it is handed over.
#[derive(Debug, Clone, PartialEq)]
pub struct HandedKey {
    /// The key.
    pub key: KeyId,
    /// Its limit.
    pub limit: FleetLimitId,
    /// The limit's generation at the sender.
    pub generation: u64,
    /// Its rate there.
    pub rate: Rate,
    /// Its burst there.
    pub burst: u64,
    /// The level in whole units, rounded up.
    pub level: u64,
    /// What is left of the time in which nothing is granted.
    pub hold_left: Duration,
    /// What is known of each worker's cell.
    pub records: Vec<HandedRecord>,
}

/// A worker's cell as it is handed over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HandedRecord {
    /// The worker.
    pub node: NodeId,
    /// The life of its cell.
    pub cell_epoch: CellEpoch,
    /// The last report, and what it told.
    pub sequence: u64,
    /// Positions known to be taken.
    pub acked: u64,
    /// Positions known to be returned.
    pub returned: u64,
    /// Units known to be refunded.
    pub refunded: u64,
    /// Units known to be refused.
    pub denied: u64,
    /// Positions below it are in the level.
    pub floor: u64,
    /// Positions below it are permitted.
    pub ceiling: u64,
    /// What is left of the permission's time.
    pub ttl_left: Duration,
    /// The highest acknowledged total that the worker has shown to know.
    pub base: u64,
}

/// What is on its way to new owners.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    parts: BTreeMap<(NodeId, RingEpoch, u32), Handover>,
    /// When what is not acknowledged is sent again.
    next_at: Option<Instant>,
    /// Until when it is tried.
    until: Option<Instant>,
}

impl Sending {
    /// Starts to send: `keys` by new owner; owners who get none are told so too.
    pub(crate) fn start(
        &mut self,
        ring_epoch: RingEpoch,
        began: Began,
        keys: BTreeMap<NodeId, Vec<(KeyId, Owned)>>,
        until: Instant,
        now: Instant,
    ) {
        let tenure_age = began.age(now);
        let hold_left = began.at.saturating_since(now);
        for (to, keys) in keys {
            let mut handed: Vec<HandedKey> =
                keys.iter().map(|(key, owned)| owned.handed(*key, now)).collect();
            let mut parts = Vec::new();
            while !handed.is_empty() || parts.is_empty() {
                parts.push(split_part(&mut handed));
            }
            let count = parts.len() as u32;
            for (part, keys) in (0..).zip(parts) {
                let handover =
                    Handover { ring_epoch, part, parts: count, tenure_age, hold_left, keys };
                self.parts.insert((to, ring_epoch, part), handover);
            }
        }
        self.next_at = (!self.parts.is_empty()).then_some(now);
        self.until = Some(until);
    }

    /// A part has arrived.
    pub(crate) fn acknowledged(&mut self, by: NodeId, ring_epoch: RingEpoch, part: u32) {
        self.parts.remove(&(by, ring_epoch, part));
        if self.parts.is_empty() {
            self.next_at = None;
        }
    }

    /// What is to be sent at `now`.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<(NodeId, Handover)> {
        if self.next_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        if self.until.is_some_and(|until| now >= until) {
            // By now they count this node as crashed.
            self.parts.clear();
            self.next_at = None;
            return Vec::new();
        }
        self.next_at = Some(now.saturating_add(RESEND_AFTER));
        self.parts.iter().map(|((to, ..), part)| (*to, part.clone())).collect()
    }

    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.next_at
    }

    /// Whether everything has arrived.
    pub(crate) fn is_done(&self) -> bool {
        self.parts.is_empty()
    }
}

fn split_part(keys: &mut Vec<HandedKey>) -> Vec<HandedKey> {
    let mut records = 0;
    let fits = |key: &HandedKey| {
        records += 1 + key.records.len();
        records <= PART_RECORDS_MAX
    };
    let count = keys.iter().map(fits).take_while(|fits| *fits).count().max(1);
    keys.drain(..count.min(keys.len())).collect()
}

impl Owned {
    fn handed(&self, key: KeyId, now: Instant) -> HandedKey {
        let mut records: Vec<HandedRecord> = self
            .records
            .iter()
            .map(|((node, cell_epoch), record)| record.handed(*node, *cell_epoch, now))
            .collect();
        records.sort_unstable_by_key(|record| (record.node, record.cell_epoch));
        HandedKey {
            key,
            limit: self.limit,
            generation: self.generation,
            rate: self.meter.rate(),
            burst: self.meter.burst(),
            level: self.meter.level(),
            hold_left: self.held_until.saturating_since(now),
            records,
        }
    }

    /// A key as its new owner has it: nothing leaks for the time on the way, and permissions live
    /// as long as they may on any clock. Its limit is the old owner's until it is next met here.
    /// Each worker may yet tell of its first contact, if its limit has a `bootstrap` allowance.
    pub(crate) fn received(
        handed: &HandedKey,
        bootstrap: u64,
        times: &ViewTimes,
        now: Instant,
    ) -> Self {
        let held_until = now.saturating_add(times.widened(handed.hold_left));
        let mut meter = Meter::with_level(handed.rate, handed.burst, handed.level, now);
        if !crate::mutant::lacks("handed_key_hold") {
            meter.hold(held_until);
        }
        let mut owned = Self::with_meter(handed.limit, handed.generation, meter, held_until);
        if !handed.hold_left.is_zero() {
            owned.excess = Excess::after(held_until);
        }
        owned.excess.cover(bootstrap.saturating_mul(handed.records.len() as u64));
        for record in &handed.records {
            let mut received = Record::handed_over(record, times, now);
            if crate::mutant::lacks("handed_outstanding") {
                received.ceiling = received.acked.max(received.floor);
            }
            owned.add_record((record.node, record.cell_epoch), received);
        }
        owned
    }
}

impl Record {
    /// A record that another owner handed over. What it has in the level gives nothing back here.
    pub(super) fn handed_over(handed: &HandedRecord, times: &ViewTimes, now: Instant) -> Self {
        Self {
            sequence: handed.sequence,
            acked: handed.acked.min(POSITIONS_MAX),
            returned: handed.returned,
            refunded: handed.refunded,
            denied: handed.denied,
            floor: handed.floor.min(POSITIONS_MAX),
            ceiling: handed
                .ceiling
                .min(handed.acked.max(handed.floor).min(POSITIONS_MAX) + OUTSTANDING_MAX),
            expiry: now.saturating_add(times.widened(handed.ttl_left)),
            floor_since: Instant::ZERO,
            base: handed.base,
            reported_at: now,
            demand: 0.0,
            admitted: 0.0,
            refused: 0.0,
            asked: 0,
            waiting: 0,
            is_current: false,
            round_trip: Duration::ZERO,
            cadence: Duration::ZERO,
            is_doubtful: false,
            queued: false,
            listed: None,
        }
    }

    fn handed(&self, node: NodeId, cell_epoch: CellEpoch, now: Instant) -> HandedRecord {
        HandedRecord {
            node,
            cell_epoch,
            sequence: self.sequence,
            acked: self.acked,
            returned: self.returned,
            refunded: self.refunded,
            denied: self.denied,
            floor: self.floor,
            ceiling: self.ceiling,
            ttl_left: self.expiry.saturating_since(now),
            base: self.base,
        }
    }
}

/// Units that another owner may have permitted one worker.
const OUTSTANDING_MAX: u64 = 1 << 50;
/// When a part that is not acknowledged is sent again.
const RESEND_AFTER: Duration = Duration::from_millis(20);
/// Keys and records in one part.
const PART_RECORDS_MAX: usize = 512;
