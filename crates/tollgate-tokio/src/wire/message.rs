//! What nodes say to each other, as bytes. `docs/protocol.md` has the fields in their order.

use tollgate::{
    Allotment, CellEpoch, Demand, FleetLimitId, HandedKey, HandedRecord, Handover, Instant, KeyId,
    Message, NodeId, OwnerEpoch, Rate, Refusal, Report, ReportBatch, RingEpoch, Snapshot,
    SnapshotBatch, Stamp,
};

use super::bytes::{Put, Take, WireError};
use super::inquiry::{put_inquiry, put_told, take_inquiry, take_told};
use crate::keys::{Inquiry, Told};

/// What one node sends another.
#[derive(Debug, Clone, PartialEq)]
pub enum PeerFrame {
    /// A message of the node's.
    Message(Message),
    /// Is anybody there? Answered with the same number.
    Ping(u64),
    /// Yes.
    Pong(u64),
    /// Something that is asked for people, with a number for its answer.
    Inquiry(u64, Inquiry),
    /// The answer to the inquiry of that number.
    Told(u64, Told),
}

impl PeerFrame {
    /// Writes it behind what is there, and returns its kind.
    pub fn encode(&self, out: &mut Vec<u8>) -> u8 {
        match self {
            Self::Message(Message::Reports(batch)) => {
                put_reports(out, batch);
                if batch.demands.is_empty() {
                    return REPORTS;
                }
                put_demands(out, &batch.demands);
                DEMANDS
            }
            Self::Message(Message::Snapshots(batch)) => {
                put_snapshots(out, batch);
                if batch.allotments.is_empty() {
                    return SNAPSHOTS;
                }
                put_allotments(out, &batch.allotments);
                ALLOTMENTS
            }
            Self::Message(Message::Refused { batch, why }) => {
                out.put(*batch);
                match why {
                    Refusal::NotOwner { ring_epoch } => {
                        out.put(ring_epoch.get());
                        NOT_OWNER
                    }
                    Refusal::Busy { retry_after } => {
                        out.put_duration(*retry_after);
                        BUSY
                    }
                }
            }
            Self::Message(Message::Handover(handover)) => {
                put_handover(out, handover);
                HANDOVER
            }
            Self::Message(Message::HandoverArrived { ring_epoch, part }) => {
                out.put(ring_epoch.get());
                out.put(u64::from(*part));
                ARRIVED
            }
            Self::Ping(number) => {
                out.put(*number);
                PING
            }
            Self::Pong(number) => {
                out.put(*number);
                PONG
            }
            Self::Inquiry(number, inquiry) => {
                out.put(*number);
                put_inquiry(out, inquiry);
                INQUIRY
            }
            Self::Told(number, told) => {
                out.put(*number);
                put_told(out, told);
                TOLD
            }
        }
    }

    /// The frame of this kind that has this body.
    ///
    /// # Errors
    /// [`WireError`] if there is none.
    pub fn decode(kind: u8, body: &[u8]) -> Result<Self, WireError> {
        let mut take = Take::new(body);
        let frame = match kind {
            REPORTS => Self::Message(Message::Reports(take_reports(&mut take)?)),
            SNAPSHOTS => Self::Message(Message::Snapshots(take_snapshots(&mut take)?)),
            DEMANDS => {
                let reports = take_reports(&mut take)?;
                let demands = take_demands(&mut take)?;
                Self::Message(Message::Reports(ReportBatch { demands, ..reports }))
            }
            ALLOTMENTS => {
                let snapshots = take_snapshots(&mut take)?;
                let allotments = take_allotments(&mut take)?;
                Self::Message(Message::Snapshots(SnapshotBatch { allotments, ..snapshots }))
            }
            NOT_OWNER => {
                let batch = take.number()?;
                let why = Refusal::NotOwner { ring_epoch: RingEpoch::new(take.number()?) };
                Self::Message(Message::Refused { batch, why })
            }
            BUSY => {
                let batch = take.number()?;
                let why = Refusal::Busy { retry_after: take.duration()? };
                Self::Message(Message::Refused { batch, why })
            }
            HANDOVER => Self::Message(Message::Handover(take_handover(&mut take)?)),
            ARRIVED => {
                let ring_epoch = RingEpoch::new(take.number()?);
                let part = take.small("part")?;
                Self::Message(Message::HandoverArrived { ring_epoch, part })
            }
            PING => Self::Ping(take.number()?),
            PONG => Self::Pong(take.number()?),
            INQUIRY => Self::Inquiry(take.number()?, take_inquiry(&mut take)?),
            TOLD => Self::Told(take.number()?, take_told(&mut take)?),
            _ => return Err(WireError::UnknownKind { kind }),
        };
        take.end()?;
        Ok(frame)
    }
}

pub(super) fn put_key(out: &mut Vec<u8>, key: KeyId) {
    let (high, low) = key.to_bits();
    out.put_raw(&high.to_le_bytes());
    out.put_raw(&low.to_le_bytes());
}

pub(super) fn take_key(take: &mut Take<'_>) -> Result<KeyId, WireError> {
    let high = u64::from_le_bytes(take.array()?);
    Ok(KeyId::from_bits(high, u32::from_le_bytes(take.array()?)))
}

pub(super) fn put_rate(out: &mut Vec<u8>, rate: Rate) {
    out.put(rate.units());
    out.put(rate.period_ns());
}

pub(super) fn take_rate(take: &mut Take<'_>) -> Result<Rate, WireError> {
    let (units, period_ns) = (take.number()?, take.number()?);
    // Each rate is said in one way.
    if (units, period_ns) == (Rate::ZERO.units(), Rate::ZERO.period_ns()) {
        return Ok(Rate::ZERO);
    }
    Rate::new(units, period_ns).map_err(|_| WireError::Malformed("rate"))
}

fn put_epoch(out: &mut Vec<u8>, epoch: CellEpoch) {
    out.put(epoch.start);
    out.put(epoch.cell);
}

fn take_epoch(take: &mut Take<'_>) -> Result<CellEpoch, WireError> {
    Ok(CellEpoch { start: take.number()?, cell: take.number()? })
}

fn put_reports(out: &mut Vec<u8>, batch: &ReportBatch) {
    out.put(batch.batch);
    out.put(batch.ring_epoch.get());
    out.put_duration(batch.round_trip);
    out.put(batch.reports.len() as u64);
    for report in &batch.reports {
        put_key(out, report.key);
        out.put(u64::from(report.limit.0));
        out.put(report.generation);
        put_epoch(out, report.cell_epoch);
        out.put(report.sequence);
        out.put(report.taken);
        out.put(report.returned);
        out.put(report.refunded);
        out.put(report.refund_news);
        out.put_u8(u8::from(report.refund_since.is_some()));
        if let Some(Stamp { start, at }) = report.refund_since {
            out.put(start);
            out.put(at.as_nanos());
        }
        out.put(report.denied);
        out.put(report.waiting);
        out.put(report.base);
    }
}

fn take_reports(take: &mut Take<'_>) -> Result<ReportBatch, WireError> {
    let batch = take.number()?;
    let ring_epoch = RingEpoch::new(take.number()?);
    let round_trip = take.duration()?;
    let count = take.count(KEY_BYTES + REPORT_FIELDS)?;
    let mut reports = Vec::with_capacity(count);
    for _ in 0..count {
        reports.push(Report {
            key: take_key(take)?,
            limit: FleetLimitId(take.small("limit")?),
            generation: take.number()?,
            cell_epoch: take_epoch(take)?,
            sequence: take.number()?,
            taken: take.number()?,
            returned: take.number()?,
            refunded: take.number()?,
            refund_news: take.number()?,
            refund_since: match take.flag("refund")? {
                false => None,
                true => {
                    Some(Stamp { start: take.number()?, at: Instant::from_nanos(take.number()?) })
                }
            },
            denied: take.number()?,
            waiting: take.number()?,
            base: take.number()?,
        });
    }
    Ok(ReportBatch { batch, ring_epoch, round_trip, reports, demands: Vec::new() })
}

fn put_demands(out: &mut Vec<u8>, demands: &[Demand]) {
    out.put(demands.len() as u64);
    for demand in demands {
        put_key(out, demand.key);
        out.put(u64::from(demand.limit.0));
        out.put(demand.generation);
        out.put(demand.stream);
        put_epoch(out, demand.epoch);
        out.put(demand.sequence);
        out.put(demand.allowed);
        out.put(demand.denied);
        out.put_duration(demand.elapsed);
        out.put_duration(demand.interval);
        put_amount(out, demand.holds);
        out.put_u8(u8::from(demand.is_last));
    }
}

fn take_demands(take: &mut Take<'_>) -> Result<Vec<Demand>, WireError> {
    let count = take.count(KEY_BYTES + DEMAND_FIELDS)?;
    if count == 0 {
        return Err(WireError::Malformed("number of demands"));
    }
    let mut demands = Vec::with_capacity(count);
    for _ in 0..count {
        demands.push(Demand {
            key: take_key(take)?,
            limit: FleetLimitId(take.small("limit")?),
            generation: take.number()?,
            stream: take.number()?,
            epoch: take_epoch(take)?,
            sequence: take.number()?,
            allowed: take.number()?,
            denied: take.number()?,
            elapsed: take.duration()?,
            interval: take.duration()?,
            holds: take_amount(take)?,
            is_last: take.flag("last report")?,
        });
    }
    Ok(demands)
}

/// Units a second, as a number of 64 bits behind the point of IEEE 754.
pub(super) fn put_amount(out: &mut Vec<u8>, amount: f64) {
    out.put_raw(&amount.to_bits().to_le_bytes());
}

/// Whether it makes sense is for whoever it is told.
pub(super) fn take_amount(take: &mut Take<'_>) -> Result<f64, WireError> {
    Ok(f64::from_bits(u64::from_le_bytes(take.array()?)))
}

fn put_snapshots(out: &mut Vec<u8>, batch: &SnapshotBatch) {
    // Batches are numbered from 1.
    out.put(batch.answers.unwrap_or(0));
    out.put(batch.owner_epoch.ring.get());
    out.put(batch.owner_epoch.start);
    out.put(batch.snapshots.len() as u64);
    for snapshot in &batch.snapshots {
        put_key(out, snapshot.key);
        put_epoch(out, snapshot.cell_epoch);
        out.put(snapshot.version);
        out.put(snapshot.ack_sequence);
        out.put(snapshot.acked);
        out.put(snapshot.floor);
        out.put(snapshot.ceiling);
        out.put_duration(snapshot.ttl);
        out.put_duration(snapshot.cadence);
        out.put(snapshot.remaining);
        out.put(snapshot.free);
        out.put(snapshot.generation);
        out.put(snapshot.stamp.as_nanos());
    }
}

fn take_snapshots(take: &mut Take<'_>) -> Result<SnapshotBatch, WireError> {
    let answers = Some(take.number()?).filter(|&batch| batch != 0);
    let owner_epoch = OwnerEpoch { ring: RingEpoch::new(take.number()?), start: take.number()? };
    let count = take.count(KEY_BYTES + SNAPSHOT_FIELDS)?;
    let mut snapshots = Vec::with_capacity(count);
    for _ in 0..count {
        snapshots.push(Snapshot {
            key: take_key(take)?,
            cell_epoch: take_epoch(take)?,
            version: take.number()?,
            ack_sequence: take.number()?,
            acked: take.number()?,
            floor: take.number()?,
            ceiling: take.number()?,
            ttl: take.duration()?,
            cadence: take.duration()?,
            remaining: take.number()?,
            free: take.number()?,
            generation: take.number()?,
            stamp: Instant::from_nanos(take.number()?),
        });
    }
    Ok(SnapshotBatch { answers, owner_epoch, snapshots, allotments: Vec::new() })
}

fn put_allotments(out: &mut Vec<u8>, allotments: &[Allotment]) {
    out.put(allotments.len() as u64);
    for given in allotments {
        put_key(out, given.key);
        out.put(given.stream);
        put_epoch(out, given.epoch);
        out.put(given.version);
        out.put(given.ack_sequence);
        out.put(given.generation);
        put_amount(out, given.rate);
        put_amount(out, given.weight);
        put_amount(out, given.used);
        out.put(given.members);
    }
}

fn take_allotments(take: &mut Take<'_>) -> Result<Vec<Allotment>, WireError> {
    let count = take.count(KEY_BYTES + ALLOTMENT_FIELDS)?;
    if count == 0 {
        return Err(WireError::Malformed("number of allotments"));
    }
    let mut allotments = Vec::with_capacity(count);
    for _ in 0..count {
        allotments.push(Allotment {
            key: take_key(take)?,
            stream: take.number()?,
            epoch: take_epoch(take)?,
            version: take.number()?,
            ack_sequence: take.number()?,
            generation: take.number()?,
            rate: take_amount(take)?,
            weight: take_amount(take)?,
            used: take_amount(take)?,
            members: take.number()?,
        });
    }
    Ok(allotments)
}

fn put_handover(out: &mut Vec<u8>, handover: &Handover) {
    out.put(handover.ring_epoch.get());
    out.put(u64::from(handover.part));
    out.put(u64::from(handover.parts));
    out.put_duration(handover.tenure_age);
    out.put_duration(handover.hold_left);
    out.put(handover.keys.len() as u64);
    for key in &handover.keys {
        put_key(out, key.key);
        out.put(u64::from(key.limit.0));
        out.put(key.generation);
        put_rate(out, key.rate);
        out.put(key.burst);
        out.put(key.level);
        out.put_duration(key.hold_left);
        out.put(key.records.len() as u64);
        key.records.iter().for_each(|record| put_record(out, record));
    }
}

fn put_record(out: &mut Vec<u8>, record: &HandedRecord) {
    out.put(u64::from(record.node.get()));
    put_epoch(out, record.cell_epoch);
    out.put(record.sequence);
    out.put(record.acked);
    out.put(record.returned);
    out.put(record.refunded);
    out.put(record.denied);
    out.put(record.floor);
    out.put(record.ceiling);
    out.put_duration(record.ttl_left);
    out.put(record.base);
}

fn take_handover(take: &mut Take<'_>) -> Result<Handover, WireError> {
    let ring_epoch = RingEpoch::new(take.number()?);
    let (part, parts) = (take.small("part")?, take.small("number of parts")?);
    let (tenure_age, hold_left) = (take.duration()?, take.duration()?);
    let count = take.count(KEY_BYTES + HANDED_FIELDS)?;
    let mut keys = Vec::with_capacity(count);
    for _ in 0..count {
        let key = take_key(take)?;
        let limit = FleetLimitId(take.small("limit")?);
        let generation = take.number()?;
        let rate = take_rate(take)?;
        let (burst, level) = (take.number()?, take.number()?);
        let hold_left = take.duration()?;
        let count = take.count(RECORD_FIELDS)?;
        let records = (0..count).map(|_| take_record(take)).collect::<Result<_, _>>()?;
        keys.push(HandedKey { key, limit, generation, rate, burst, level, hold_left, records });
    }
    Ok(Handover { ring_epoch, part, parts, tenure_age, hold_left, keys })
}

fn take_record(take: &mut Take<'_>) -> Result<HandedRecord, WireError> {
    Ok(HandedRecord {
        node: NodeId::new(take.small("node")?),
        cell_epoch: take_epoch(take)?,
        sequence: take.number()?,
        acked: take.number()?,
        returned: take.number()?,
        refunded: take.number()?,
        denied: take.number()?,
        floor: take.number()?,
        ceiling: take.number()?,
        ttl_left: take.duration()?,
        base: take.number()?,
    })
}

pub(super) const KEY_BYTES: usize = 12;
/// Fields take a byte or more each.
const REPORT_FIELDS: usize = 13;
const SNAPSHOT_FIELDS: usize = 13;
/// An amount takes eight of them.
const DEMAND_FIELDS: usize = 11 + 8;
const ALLOTMENT_FIELDS: usize = 7 + 3 * 8;
const HANDED_FIELDS: usize = 8;
const RECORD_FIELDS: usize = 12;

const REPORTS: u8 = 1;
const SNAPSHOTS: u8 = 2;
const NOT_OWNER: u8 = 3;
const BUSY: u8 = 4;
const HANDOVER: u8 = 5;
const ARRIVED: u8 = 6;
const PING: u8 = 7;
const PONG: u8 = 8;
const INQUIRY: u8 = 9;
const TOLD: u8 = 10;
/// Reports with demands, and snapshots with allotments: a batch without has the kind before.
const DEMANDS: u8 = 11;
const ALLOTMENTS: u8 = 12;
