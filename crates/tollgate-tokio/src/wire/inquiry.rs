//! What members ask each other for people, as bytes.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate::{FleetLimitId, KeyId, LimitUnits, NodeId, OwnedKey, SpentKey};

use super::bytes::{Put, Take, WireError};
use super::divided::{put_divided, put_parts_of, take_divided, take_parts_of};
use super::message::{KEY_BYTES, put_key, put_rate, take_key, take_rate};
use crate::keys::{Counted, Inquiry, KeyName, KeyParts, KeyQuery, KeySort, NAMES_MAX, Told};

pub(super) fn put_inquiry(out: &mut Vec<u8>, inquiry: &Inquiry) {
    match inquiry {
        Inquiry::Owned { limit, sort, count } => {
            out.put_u8(OWNED);
            put_which(out, *limit, *sort, *count);
        }
        Inquiry::Spent { limit, sort, count, owners } => {
            out.put_u8(SPENT);
            put_which(out, *limit, *sort, *count);
            out.put(owners.len() as u64);
            owners.iter().for_each(|owner| out.put(u64::from(owner.get())));
        }
        Inquiry::Counted => out.put_u8(COUNTED),
        Inquiry::Names(keys) => {
            out.put_u8(NAMES);
            out.put(keys.len() as u64);
            keys.iter().for_each(|key| put_key(out, *key));
        }
        Inquiry::Divided(count) => {
            out.put_u8(DIVIDED);
            out.put(u64::from(*count));
        }
        Inquiry::Parts(keys) => {
            out.put_u8(PARTS);
            out.put(keys.len() as u64);
            keys.iter().for_each(|key| put_key(out, *key));
        }
    }
}

pub(super) fn take_inquiry(take: &mut Take<'_>) -> Result<Inquiry, WireError> {
    match take.byte()? {
        OWNED => {
            let (limit, sort, count) = take_which(take)?;
            Ok(Inquiry::Owned { limit, sort, count })
        }
        SPENT => {
            let (limit, sort, count) = take_which(take)?;
            let nodes = take.count(1)?;
            let owners = (0..nodes).map(|_| take.small("owner").map(NodeId::new));
            Ok(Inquiry::Spent { limit, sort, count, owners: owners.collect::<Result<_, _>>()? })
        }
        COUNTED => Ok(Inquiry::Counted),
        NAMES => Ok(Inquiry::Names(take_keys(take)?)),
        DIVIDED => Ok(Inquiry::Divided(take.small("number of keys")?)),
        PARTS => Ok(Inquiry::Parts(take_keys(take)?)),
        _ => Err(WireError::Malformed("inquiry")),
    }
}

fn take_keys(take: &mut Take<'_>) -> Result<Vec<KeyId>, WireError> {
    let count = take.count(KEY_BYTES)?;
    check_count(count, NAMES_MAX)?;
    (0..count).map(|_| take_key(take)).collect()
}

fn put_which(out: &mut Vec<u8>, limit: Option<FleetLimitId>, sort: KeySort, count: u32) {
    put_optional(out, limit.map(|limit| u64::from(limit.0)));
    out.put_u8(match sort {
        KeySort::Level => 0,
        KeySort::Remaining => 1,
        KeySort::Denied => 2,
        KeySort::Admitted => 3,
        KeySort::Reporters => 4,
    });
    out.put(u64::from(count));
}

fn take_which(take: &mut Take<'_>) -> Result<(Option<FleetLimitId>, KeySort, u32), WireError> {
    let limit = match take.flag("limit")? {
        true => Some(FleetLimitId(take.small("limit")?)),
        false => None,
    };
    let sort = match take.byte()? {
        0 => KeySort::Level,
        1 => KeySort::Remaining,
        2 => KeySort::Denied,
        3 => KeySort::Admitted,
        4 => KeySort::Reporters,
        _ => return Err(WireError::Malformed("order")),
    };
    Ok((limit, sort, take.small("number of keys")?))
}

pub(super) fn put_told(out: &mut Vec<u8>, told: &Told) {
    match told {
        Told::Owned(total, keys) => {
            out.put_u8(OWNED);
            out.put(*total);
            out.put(keys.len() as u64);
            keys.iter().for_each(|key| put_owned(out, key));
        }
        Told::Spent(total, keys) => {
            out.put_u8(SPENT);
            out.put(*total);
            out.put(keys.len() as u64);
            keys.iter().for_each(|key| put_spent(out, key));
        }
        Told::Counted(counted) => {
            out.put_u8(COUNTED);
            put_counted(out, counted);
        }
        Told::Names(names) => {
            out.put_u8(NAMES);
            put_names(out, names);
        }
        Told::Divided(divided) => {
            out.put_u8(DIVIDED);
            put_divided(out, divided);
        }
        Told::Parts(parts) => {
            out.put_u8(PARTS);
            put_parts_of(out, parts);
        }
    }
}

pub(super) fn take_told(take: &mut Take<'_>) -> Result<Told, WireError> {
    match take.byte()? {
        OWNED => {
            let (total, count) = (take.number()?, take.count(KEY_BYTES + OWNED_FIELDS)?);
            check_count(count, KeyQuery::KEYS_MAX)?;
            let keys = (0..count).map(|_| take_owned(take)).collect::<Result<_, _>>()?;
            Ok(Told::Owned(total, keys))
        }
        SPENT => {
            let (total, count) = (take.number()?, take.count(KEY_BYTES + SPENT_FIELDS)?);
            check_count(count, KeyQuery::KEYS_MAX)?;
            let keys = (0..count).map(|_| take_spent(take)).collect::<Result<_, _>>()?;
            Ok(Told::Spent(total, keys))
        }
        COUNTED => Ok(Told::Counted(take_counted(take)?)),
        NAMES => Ok(Told::Names(take_names(take)?)),
        DIVIDED => Ok(Told::Divided(take_divided(take)?)),
        PARTS => Ok(Told::Parts(take_parts_of(take)?)),
        _ => Err(WireError::Malformed("answer")),
    }
}

pub(super) fn check_count(count: usize, most: usize) -> Result<(), WireError> {
    if count > most { Err(WireError::Malformed("number of keys")) } else { Ok(()) }
}

fn put_owned(out: &mut Vec<u8>, key: &OwnedKey) {
    put_key(out, key.key);
    out.put(u64::from(key.limit.0));
    out.put(key.generation);
    put_rate(out, key.rate);
    for number in [key.burst, key.level, key.outstanding, key.remaining, key.excess] {
        out.put(number);
    }
    out.put(u64::from(key.reporters));
    put_optional(out, key.reporter.map(|node| u64::from(node.get())));
    put_optional(out, key.reported_ago.map(nanos));
    out.put(thousandths(key.admitted_per_second));
    out.put(thousandths(key.denied_per_second));
    out.put_u8(u8::from(key.is_in_charge));
}

fn take_owned(take: &mut Take<'_>) -> Result<OwnedKey, WireError> {
    Ok(OwnedKey {
        key: take_key(take)?,
        limit: FleetLimitId(take.small("limit")?),
        generation: take.number()?,
        rate: take_rate(take)?,
        burst: take.number()?,
        level: take.number()?,
        outstanding: take.number()?,
        remaining: take.number()?,
        excess: take.number()?,
        reporters: take.small("number of reporters")?,
        reporter: match take.flag("reporter")? {
            true => Some(NodeId::new(take.small("reporter")?)),
            false => None,
        },
        reported_ago: take_ago(take)?,
        admitted_per_second: take.number()? as f64 / 1e3,
        denied_per_second: take.number()? as f64 / 1e3,
        is_in_charge: take.flag("charge")?,
    })
}

fn put_spent(out: &mut Vec<u8>, key: &SpentKey) {
    put_key(out, key.key);
    out.put(u64::from(key.limit.0));
    put_optional(out, key.owner.map(|node| u64::from(node.get())));
    out.put(key.spent);
    out.put(key.denied);
    out.put_duration(key.age);
    out.put(key.credit);
    out.put_duration(key.credit_for);
    out.put(key.waiting);
    put_optional(out, key.heard_ago.map(nanos));
}

fn take_spent(take: &mut Take<'_>) -> Result<SpentKey, WireError> {
    Ok(SpentKey {
        key: take_key(take)?,
        limit: FleetLimitId(take.small("limit")?),
        owner: match take.flag("owner")? {
            true => Some(NodeId::new(take.small("owner")?)),
            false => None,
        },
        spent: take.number()?,
        denied: take.number()?,
        age: take.duration()?,
        credit: take.number()?,
        credit_for: take.duration()?,
        waiting: take.number()?,
        heard_ago: take_ago(take)?,
    })
}

fn put_counted(out: &mut Vec<u8>, counted: &Counted) {
    out.put(counted.limits.len() as u64);
    for (id, of) in &counted.limits {
        out.put(u64::from(id.0));
        for number in [of.units, of.breaches, of.excess_max, of.excess, of.cost_max] {
            out.put(number);
        }
    }
    out.put(counted.overlaps);
    out.put_duration(counted.overlapped);
    out.put(counted.pauses);
    out.put_duration(counted.paused);
    out.put(counted.late);
    out.put(counted.owned);
    out.put(counted.spent);
}

fn take_counted(take: &mut Take<'_>) -> Result<Counted, WireError> {
    let mut limits = BTreeMap::new();
    for _ in 0..take.count(LIMIT_FIELDS)? {
        let id = FleetLimitId(take.small("limit")?);
        let units = LimitUnits {
            units: take.number()?,
            breaches: take.number()?,
            excess_max: take.number()?,
            excess: take.number()?,
            cost_max: take.number()?,
        };
        limits.insert(id, units);
    }
    Ok(Counted {
        limits,
        overlaps: take.number()?,
        overlapped: take.duration()?,
        pauses: take.number()?,
        paused: take.duration()?,
        late: take.number()?,
        owned: take.number()?,
        spent: take.number()?,
    })
}

fn put_names(out: &mut Vec<u8>, names: &[KeyName]) {
    out.put(names.len() as u64);
    for name in names {
        put_key(out, name.key);
        out.put(u64::from(name.limit.0));
        put_parts(out, &name.parts);
    }
}

pub(super) fn put_parts(out: &mut Vec<u8>, parts: &[Option<Box<[u8]>>]) {
    out.put(parts.len() as u64);
    for part in parts {
        out.put_u8(u8::from(part.is_some()));
        if let Some(value) = part {
            out.put_bytes(value);
        }
    }
}

fn take_names(take: &mut Take<'_>) -> Result<Vec<KeyName>, WireError> {
    let count = take.count(KEY_BYTES + 2)?;
    check_count(count, NAMES_MAX)?;
    let mut names = Vec::with_capacity(count);
    for _ in 0..count {
        let key = take_key(take)?;
        let limit = FleetLimitId(take.small("limit")?);
        names.push(KeyName { key, limit, parts: take_parts(take)? });
    }
    Ok(names)
}

pub(super) fn take_parts(take: &mut Take<'_>) -> Result<KeyParts, WireError> {
    let parts = take.count(1)?;
    if parts > KEY_PARTS_MAX {
        return Err(WireError::Malformed("number of parts"));
    }
    let mut part = || match take.flag("part")? {
        false => Ok(None),
        true => take.bytes().map(|value| Some(value.into())),
    };
    (0..parts).map(|_| part()).collect()
}

fn put_optional(out: &mut Vec<u8>, number: Option<u64>) {
    out.put_u8(u8::from(number.is_some()));
    if let Some(number) = number {
        out.put(number);
    }
}

fn take_ago(take: &mut Take<'_>) -> Result<Option<Duration>, WireError> {
    if take.flag("age")? { take.duration().map(Some) } else { Ok(None) }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// A rate is told to a thousandth, which is more than anybody reads.
fn thousandths(per_second: f64) -> u64 {
    (per_second * 1e3).round() as u64
}

const OWNED: u8 = 0;
const SPENT: u8 = 1;
const COUNTED: u8 = 2;
const NAMES: u8 = 3;
const DIVIDED: u8 = 4;
const PARTS: u8 = 5;
/// Parts of a key: a path of 16 steps has two for each.
const KEY_PARTS_MAX: usize = 32;
/// Fields take a byte or more each.
const OWNED_FIELDS: usize = 15;
const SPENT_FIELDS: usize = 9;
const LIMIT_FIELDS: usize = 6;
