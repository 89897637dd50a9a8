//! What a request is to be charged: each key once, a few of them without an allocation.

use crate::key::KeyId;
use crate::rules::Rule;

/// A charge to be made: the limit's position in the rule set, the key, and the cost.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Want {
    pub(crate) rule: u32,
    pub(crate) key: KeyId,
    pub(crate) cost: u64,
}

impl Want {
    pub(crate) fn new(rule: u32, key: KeyId, cost: u64) -> Self {
        Self { rule, key, cost }
    }

    /// What a key of a limit that applies is to be charged; nothing if the limit is unlimited.
    #[inline]
    pub(crate) fn of(
        rule: &Rule,
        position: u32,
        key: impl FnOnce() -> KeyId,
        cost: u64,
    ) -> Option<Self> {
        (!rule.is_open()).then(|| Self::new(position, key(), cost))
    }
}

/// A few items on the stack, or more on the heap.
#[derive(Debug, Clone, Default)]
pub(crate) struct Charges<T = Want> {
    few: [T; FEW],
    count: usize,
    many: Vec<T>,
}

impl<T: Copy> Charges<T> {
    #[inline]
    pub(crate) fn push(&mut self, item: T) {
        if self.count < FEW {
            self.few[self.count] = item;
        } else {
            if self.many.is_empty() {
                self.many.extend_from_slice(&self.few);
            }
            self.many.push(item);
        }
        self.count += 1;
    }

    /// Makes room for so many.
    pub(crate) fn reserve(&mut self, count: usize) {
        if count > FEW {
            self.many.reserve(count);
        }
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[T] {
        if self.count <= FEW { &self.few[..self.count] } else { &self.many }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        if self.count <= FEW { &mut self.few[..self.count] } else { &mut self.many }
    }
}

/// What a request is to be charged, each key once.
#[derive(Debug, Default)]
pub(crate) struct Wants {
    all: Charges,
    /// Where keys are, when they are too many to be looked through: a position and one more, or 0.
    places: Vec<u32>,
}

impl Wants {
    /// Adds what one descriptor costs a key; several of a request that cost one key cost it their
    /// sum. Returns where it is.
    #[inline]
    pub(crate) fn add(&mut self, want: Want) -> usize {
        let same = |other: &Want| (other.rule, other.key) == (want.rule, want.key);
        let known = if self.all.count <= LOOKED_THROUGH {
            self.as_slice().iter().position(same)
        } else {
            self.find_place(&want).err()
        };
        let Some(known) = known else {
            self.push(want);
            return self.all.count - 1;
        };
        let other = &mut self.all.as_mut_slice()[known];
        other.cost = other.cost.saturating_add(want.cost);
        known
    }

    /// Makes room for so many.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.all.reserve(count);
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[Want] {
        self.all.as_slice()
    }

    #[inline]
    fn push(&mut self, want: Want) {
        self.all.push(want);
        if self.all.count > LOOKED_THROUGH {
            self.place_last();
        }
    }

    #[cold]
    fn place_last(&mut self) {
        let count = self.all.count;
        let mut from = count - 1;
        if 2 * count > self.places.len() {
            self.places = vec![0; 4 * count.next_power_of_two()];
            from = 0;
        }
        for position in from..count {
            if let Ok(place) = self.find_place(&self.as_slice()[position]) {
                self.places[place] = position as u32 + 1;
            }
        }
    }

    /// A free place for a key, or else the position of what it is charged already.
    fn find_place(&self, want: &Want) -> Result<usize, usize> {
        // A key's identity is a hash, and the limit is part of it.
        let mut place = want.key.low as usize;
        loop {
            place &= self.places.len() - 1;
            let Some(position) = self.places[place].checked_sub(1) else { return Ok(place) };
            let other = &self.as_slice()[position as usize];
            if (other.rule, other.key) == (want.rule, want.key) {
                return Err(position as usize);
            }
            place += 1;
        }
    }
}

/// Limits on one request for which nothing is allocated.
const FEW: usize = 4;
/// Keys that are looked through one by one.
const LOOKED_THROUGH: usize = 16;
