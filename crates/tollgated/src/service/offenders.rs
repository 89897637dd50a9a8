//! Who is denied most: a sketch of bounded size (Space-Saving, Metwally et al. 2005).
//!
//! Each of `SEATS` seats has a key and a count. A key without a seat takes over the one with the
//! lowest count, and inherits that count as its error: a true count lies between `count - error`
//! and `count`, and every key denied more than total / `SEATS` times has a seat.

use std::collections::HashMap;

use tollgate::mutant::lacks;

/// Keys that were denied, as far as they are known.
#[derive(Debug, Default)]
pub(crate) struct Offenders {
    seats: Vec<Offender>,
    by_digest: HashMap<u64, usize>,
}

/// Whose key it is; a part has no value where the request had no such entry.
#[derive(Debug, Clone, Copy, Hash)]
pub(crate) struct OffenderKey<'a> {
    pub(crate) domain: &'a str,
    pub(crate) limit: &'a str,
    pub(crate) parts: &'a [(&'a str, Option<&'a [u8]>)],
}

/// A key and how often it was denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offender {
    digest: u64,
    pub(crate) domain: String,
    pub(crate) limit: String,
    /// Values are cut at [`VALUE_BYTES_MAX`].
    pub(crate) parts: Vec<(String, Option<Vec<u8>>)>,
    pub(crate) count: u64,
    /// At most so many of `count` were another key's.
    pub(crate) error: u64,
}

impl Offenders {
    /// Counts a denial of `key`.
    ///
    /// `digest` is the key's: values may be long, and are hashed before anybody waits for this.
    pub(crate) fn count(&mut self, digest: u64, key: OffenderKey<'_>) {
        if let Some(&seat) = self.by_digest.get(&digest) {
            self.seats[seat].count += 1;
            return;
        }
        if self.seats.len() < SEATS {
            self.by_digest.insert(digest, self.seats.len());
            self.seats.push(Offender::new(digest, key, 0));
            return;
        }
        let lowest = self.seats.iter_mut().enumerate().min_by_key(|(_, seat)| seat.count);
        let Some((index, seat)) = lowest else { return };
        self.by_digest.remove(&seat.digest);
        self.by_digest.insert(digest, index);
        let inherited = if lacks("seats_start_anew") { 0 } else { seat.count };
        *seat = Offender::new(digest, key, inherited);
    }

    /// The keys with the highest counts, at most `most` of them.
    pub(crate) fn top(&self, most: usize) -> Vec<Offender> {
        let mut top = self.seats.clone();
        top.sort_by_key(|seat| std::cmp::Reverse(seat.count - seat.error));
        top.truncate(most);
        top
    }
}

impl Offender {
    fn new(digest: u64, key: OffenderKey<'_>, error: u64) -> Self {
        let cut = |value: &[u8]| value[..value.len().min(VALUE_BYTES_MAX)].to_vec();
        let part = |(name, value): &(&str, Option<&[u8]>)| ((*name).into(), value.map(cut));
        let parts = key.parts.iter().map(part).collect();
        let (domain, limit) = (key.domain.into(), key.limit.into());
        Self { digest, domain, limit, parts, count: error + 1, error }
    }
}

/// Keys that are known at most.
pub(crate) const SEATS: usize = 128;
/// A value's beginning is enough to know its owner by.
pub(crate) const VALUE_BYTES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

    use super::*;

    fn count(offenders: &mut Offenders, name: &str) {
        let parts = [("tenant", Some(name.as_bytes()))];
        let key = OffenderKey { domain: "default", limit: "api", parts: &parts };
        offenders.count(BuildHasherDefault::<DefaultHasher>::default().hash_one(key), key);
    }

    fn name(offender: &Offender) -> &[u8] {
        offender.parts[0].1.as_deref().expect("a value")
    }

    #[test]
    fn in_a_flood_of_others_the_worst_are_found_and_the_size_is_bounded() {
        let mut offenders = Offenders::default();
        for n in 0..100_000 {
            count(&mut offenders, &format!("once {n}"));
            if n % 50 == 0 {
                count(&mut offenders, "often");
            }
            if n % 100 == 0 {
                count(&mut offenders, "less often");
            }
        }
        let top = offenders.top(2);
        assert_eq!((name(&top[0]), name(&top[1])), (&b"often"[..], &b"less often"[..]));
        for (seat, real) in top.iter().zip([2_000, 1_000]) {
            assert!((seat.count - seat.error..=seat.count).contains(&real), "{seat:?}");
        }
        assert_eq!((offenders.seats.len(), offenders.by_digest.len()), (SEATS, SEATS));
    }

    #[test]
    fn a_newcomer_inherits_the_lowest_count_as_its_error() {
        let mut offenders = Offenders::default();
        for n in 0..2 * SEATS {
            count(&mut offenders, &(n % SEATS).to_string());
        }
        count(&mut offenders, "new");
        let newcomer = offenders.seats.iter().find(|seat| name(seat) == b"new").expect("seated");
        assert_eq!((newcomer.count, newcomer.error), (3, 2));
    }

    #[test]
    fn while_all_have_a_seat_the_counts_are_exact() {
        let mut offenders = Offenders::default();
        for n in 0..100_u64 {
            for _ in 0..=n {
                count(&mut offenders, &n.to_string());
            }
        }
        let counts: Vec<u64> = offenders.top(3).iter().map(|seat| seat.count).collect();
        assert_eq!(counts, [100, 99, 98]);
        assert!(offenders.top(SEATS).iter().all(|seat| seat.error == 0));
    }
}
