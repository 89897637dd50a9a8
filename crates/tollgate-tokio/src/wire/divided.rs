//! What members tell each other for people of limits that nodes divide, as bytes.

use std::collections::BTreeMap;

use tollgate::{DividedKey, FleetLimitId, ShareLimitStatus};

use super::bytes::{Put, Take, WireError};
use super::inquiry::{check_count, put_parts, take_parts};
use super::message::{KEY_BYTES, put_amount, put_key, take_amount, take_key};
use crate::keys::{DividedLimits, KeyPart, KeyQuery, NAMES_MAX};

pub(super) fn put_divided(out: &mut Vec<u8>, divided: &DividedLimits) {
    out.put(divided.limits.len() as u64);
    for (id, of) in &divided.limits {
        out.put(u64::from(id.0));
        for number in [of.starting, of.sharing, of.failing, of.keys] {
            out.put(number);
        }
        put_amount(out, of.rate);
        for number in [of.allowed, of.denied, of.other_denied, of.other_allowed] {
            out.put(number);
        }
    }
    out.put(divided.keys.len() as u64);
    for key in &divided.keys {
        put_key(out, key.key);
        out.put(u64::from(key.limit.0));
        out.put(key.members);
        for amount in [key.demand, key.used, key.held, key.rate, key.floor] {
            put_amount(out, amount);
        }
    }
}

pub(super) fn take_divided(take: &mut Take<'_>) -> Result<DividedLimits, WireError> {
    let mut limits = BTreeMap::new();
    for _ in 0..take.count(LIMIT_BYTES)? {
        let id = FleetLimitId(take.small("limit")?);
        let status = ShareLimitStatus {
            starting: take.number()?,
            sharing: take.number()?,
            failing: take.number()?,
            keys: take.number()?,
            rate: take_finite(take)?,
            allowed: take.number()?,
            denied: take.number()?,
            other_denied: take.number()?,
            other_allowed: take.number()?,
        };
        limits.insert(id, status);
    }
    let count = take.count(KEY_BYTES + DIVIDED_BYTES)?;
    check_count(count, KeyQuery::KEYS_MAX)?;
    let mut keys = Vec::with_capacity(count);
    for _ in 0..count {
        keys.push(DividedKey {
            key: take_key(take)?,
            limit: FleetLimitId(take.small("limit")?),
            members: take.number()?,
            demand: take_finite(take)?,
            used: take_finite(take)?,
            held: take_finite(take)?,
            rate: take_finite(take)?,
            floor: take_finite(take)?,
        });
    }
    Ok(DividedLimits { limits, keys })
}

pub(super) fn put_parts_of(out: &mut Vec<u8>, parts: &[KeyPart]) {
    out.put(parts.len() as u64);
    for part in parts {
        put_key(out, part.key);
        put_amount(out, part.rate);
        put_amount(out, part.weight);
        for number in [part.starting, part.sharing, part.failing] {
            out.put(number);
        }
        out.put_u8(u8::from(part.parts.is_some()));
        if let Some(parts) = &part.parts {
            put_parts(out, parts);
        }
    }
}

pub(super) fn take_parts_of(take: &mut Take<'_>) -> Result<Vec<KeyPart>, WireError> {
    let count = take.count(KEY_BYTES + PART_BYTES)?;
    check_count(count, NAMES_MAX)?;
    let mut parts = Vec::with_capacity(count);
    for _ in 0..count {
        parts.push(KeyPart {
            key: take_key(take)?,
            rate: take_finite(take)?,
            weight: take_finite(take)?,
            starting: take.number()?,
            sharing: take.number()?,
            failing: take.number()?,
            parts: if take.flag("parts")? { Some(take_parts(take)?) } else { None },
        });
    }
    Ok(parts)
}

/// People are shown numbers.
fn take_finite(take: &mut Take<'_>) -> Result<f64, WireError> {
    let amount = take_amount(take)?;
    if amount.is_finite() { Ok(amount) } else { Err(WireError::Malformed("amount")) }
}

/// At least, of each limit, key and part, beside the key.
const LIMIT_BYTES: usize = 17;
const DIVIDED_BYTES: usize = 42;
const PART_BYTES: usize = 20;

/// What may be told, for tests.
#[cfg(test)]
pub(super) mod made {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use tollgate::KeyId;

    use super::*;

    fn key() -> impl Strategy<Value = KeyId> {
        any::<(u64, u32)>().prop_map(|(high, low)| KeyId::from_bits(high, low))
    }

    fn limit() -> impl Strategy<Value = FleetLimitId> {
        any::<u32>().prop_map(FleetLimitId)
    }

    fn amount() -> impl Strategy<Value = f64> {
        0.0..1e12_f64
    }

    pub(crate) fn divided_limits() -> impl Strategy<Value = DividedLimits> {
        let status = (any::<[u64; 8]>(), amount()).prop_map(|(numbers, rate)| {
            let [starting, sharing, failing, keys, allowed, denied, other_denied, other_allowed] =
                numbers;
            ShareLimitStatus {
                starting,
                sharing,
                failing,
                keys,
                rate,
                allowed,
                denied,
                other_denied,
                other_allowed,
            }
        });
        let amounts = [amount(), amount(), amount(), amount(), amount()];
        let divided =
            (key(), limit(), any::<u64>(), amounts).prop_map(|(key, limit, members, of)| {
                let [demand, used, held, rate, floor] = of;
                DividedKey { key, limit, members, demand, used, held, rate, floor }
            });
        (prop::collection::btree_map(limit(), status, 0..4), vec(divided, 0..4))
            .prop_map(|(limits, keys)| DividedLimits { limits, keys })
    }

    pub(crate) fn key_part() -> impl Strategy<Value = KeyPart> {
        let part = option::of(vec(any::<u8>(), 0..9).prop_map(Vec::into_boxed_slice));
        let parts = option::of(vec(part, 0..4).prop_map(Into::into));
        (key(), [amount(), amount()], any::<[u64; 3]>(), parts).prop_map(
            |(key, [rate, weight], [starting, sharing, failing], parts)| KeyPart {
                key,
                rate,
                weight,
                starting,
                sharing,
                failing,
                parts,
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use tollgate::KeyId;

    use super::*;
    use crate::wire::{Inquiry, PeerFrame, Told};

    /// Numbers that make no sense would make no JSON.
    #[test]
    fn a_part_of_a_key_that_is_no_number_is_refused() {
        let part = |rate| KeyPart {
            key: KeyId::from_bits(1, 2),
            rate,
            weight: 0.5,
            starting: 0,
            sharing: 1,
            failing: 0,
            parts: None,
        };
        for (rate, is_taken) in [(1.5, true), (f64::NAN, false), (f64::INFINITY, false)] {
            let mut body = Vec::new();
            let kind = PeerFrame::Told(7, Told::Parts(vec![part(rate)])).encode(&mut body);
            assert_eq!(PeerFrame::decode(kind, &body).is_ok(), is_taken, "{rate}");
        }
    }

    #[test]
    fn an_inquiry_after_divided_limits_has_the_bytes_that_it_always_had() {
        let inquiry = |inquiry| {
            let mut body = Vec::new();
            let kind = PeerFrame::Inquiry(300, inquiry).encode(&mut body);
            (kind, body)
        };
        let (kind, body) = inquiry(Inquiry::Divided(10));
        assert_eq!(body, [172, 2, 4, 10]);
        let parts = inquiry(Inquiry::Parts(vec![KeyId::from_bits(8, 12)]));
        assert_eq!(parts, (kind, vec![172, 2, 5, 1, 8, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0]));
    }
}
