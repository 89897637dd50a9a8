//! What a limiter has besides as a member of a fleet: the cells by which limits of the whole fleet
//! are decided, and the names of keys that have just got one.
//!
//! It knows neither which limits these are, nor what is permitted.

use std::sync::{Arc, Mutex, PoisonError};

use crate::cell::Counter;
use crate::credits::Credits;
use crate::key::KeyId;
use crate::policy::FleetLimitId;
use crate::shares::Shares;

/// A member's part of its limiter.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) credits: Arc<Credits>,
    pub(crate) names: NewNames,
}

/// The same for limits that nodes divide.
#[derive(Debug)]
pub(crate) struct Divided {
    pub(crate) shares: Arc<Shares>,
    pub(crate) names: NewNames,
}

/// The names of keys that got a cell and were not taken yet.
#[derive(Debug, Default)]
pub(crate) struct NewNames {
    arrivals: Mutex<Arrivals>,
    dropped: Counter,
}

/// A key that has got a cell on this node in which others have a say, and what it was hashed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// The key.
    pub key: KeyId,
    /// Its limit.
    pub limit: FleetLimitId,
    /// The values of the limit's key, in its order; no value where the request had no such entry.
    /// None at all for a key that stands in for others of its limit.
    pub parts: Parts,
}

/// The values of a key.
pub(crate) type Parts = Box<[Option<Box<[u8]>>]>;

#[derive(Debug, Default)]
struct Arrivals {
    list: Vec<Arrival>,
    bytes: usize,
}

impl Membership {
    pub(crate) fn new(keys_max: u64) -> Self {
        Self { credits: Arc::new(Credits::new(keys_max)), names: NewNames::default() }
    }
}

impl Divided {
    pub(crate) fn new(keys_max: u64) -> Self {
        Self { shares: Arc::new(Shares::new(keys_max)), names: NewNames::default() }
    }
}

impl NewNames {
    /// Notes a key's name, unless too many were not taken yet.
    pub(crate) fn arrived(&self, arrival: Arrival) {
        let bytes: usize = arrival.parts.iter().flatten().map(|part| part.len()).sum();
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = arrivals.list.len() < ARRIVALS_MAX;
        if has_room && arrivals.bytes + bytes <= ARRIVAL_BYTES_MAX {
            arrivals.bytes += bytes;
            arrivals.list.push(arrival);
        } else {
            self.dropped.add(1);
        }
    }

    pub(crate) fn take(&self) -> Vec<Arrival> {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *arrivals).list
    }

    /// Names that were not kept.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.get()
    }
}

/// Names that are kept until they are taken; beyond them names are lost, and nothing else.
const ARRIVALS_MAX: usize = 65_536;
/// Bytes of their values: a value may have a megabyte.
const ARRIVAL_BYTES_MAX: usize = 16 << 20;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn arrival(number: u32, bytes: usize) -> Arrival {
        let parts = Box::new([Some(vec![0; bytes].into()), None]);
        Arrival { key: KeyId::from_bits(9, number), limit: FleetLimitId(1), parts }
    }

    #[test]
    fn names_beyond_the_bounds_are_dropped_and_counted() {
        let member = NewNames::default();
        (0..ARRIVALS_MAX as u32 + 5).for_each(|number| member.arrived(arrival(number, 1)));
        assert_eq!((member.take().len(), member.dropped()), (ARRIVALS_MAX, 5));
        (0..20).for_each(|number| member.arrived(arrival(number, 1 << 20)));
        assert_eq!((member.take().len(), member.dropped()), (16, 5 + 4));
        assert_eq!(member.take(), vec![]);
    }
}
