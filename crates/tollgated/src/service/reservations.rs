//! Reservations by their ids: made once, corrected once, forgotten when they expire.
//!
//! A record stays until its expiry even when it was corrected, so that a repeated correction is
//! known for one. What a correction does to cells is the library's.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;
use std::time::Duration;

use tollgate::mutant::lacks;
use tollgate::{Instant, Reservation};

/// A reservation's name: the process that made it, and 64 bits that nobody can guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ReservationId {
    node: u32,
    number: u64,
}

impl fmt::Display for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{:016x}", self.node, self.number)
    }
}

impl FromStr for ReservationId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (node, number) = text.split_once('-').ok_or(())?;
        let hex = |digits: &str, length| {
            let plain = digits.len() == length && digits.bytes().all(|d| d.is_ascii_hexdigit());
            u64::from_str_radix(digits, 16).ok().filter(|_| plain).ok_or(())
        };
        let node = u32::try_from(hex(node, 8)?).map_err(|_| ())?;
        Ok(Self { node, number: hex(number, 16)? })
    }
}

/// What a reservation is corrected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Correction {
    /// So much was used, by descriptor.
    Settled(Vec<u64>),
    /// Nothing was used.
    Cancelled,
}

/// Why a reservation was not made or corrected. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReservationError {
    /// As many are open as may be.
    Full,
    /// No such id: never made, or expired, so that the estimate stands.
    Unknown,
    /// Another process made it.
    OtherNode,
    /// It was corrected to something else before.
    Corrected(Correction),
    /// Not one cost for each descriptor.
    Costs { given: usize, expected: usize },
}

/// All that are open or were corrected lately.
#[derive(Debug)]
pub(crate) struct Reservations {
    node: u32,
    records: HashMap<ReservationId, Record>,
    by_expiry: BTreeSet<(Instant, ReservationId)>,
    made: u64,
    /// Charges and costs that the records hold.
    weight: usize,
    hasher: RandomState,
    pub(crate) totals: Totals,
}

/// How reservations went.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) made: u64,
    pub(crate) settled: u64,
    pub(crate) cancelled: u64,
    pub(crate) expired: u64,
    pub(crate) refused: u64,
    /// Units used beyond estimates of a fleet's limits that were charged later, and that were not.
    pub(crate) collected: u64,
    pub(crate) uncollected: u64,
}

#[derive(Debug)]
struct Record {
    weight: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    Open(Reservation),
    Corrected(Correction),
}

impl Default for Reservations {
    fn default() -> Self {
        let hasher = RandomState::new();
        Self {
            node: hasher.hash_one("node") as u32,
            records: HashMap::new(),
            by_expiry: BTreeSet::new(),
            made: 0,
            weight: 0,
            hasher,
            totals: Totals::default(),
        }
    }
}

impl Reservations {
    /// Whether another one may be made; to be asked before anything is charged.
    pub(crate) fn has_room(&mut self, now: Instant) -> Result<(), ReservationError> {
        self.forget_expired(now);
        if self.records.len() < RESERVATIONS_MAX && self.weight < WEIGHT_MAX {
            return Ok(());
        }
        self.totals.refused += 1;
        Err(ReservationError::Full)
    }

    /// Keeps a reservation until `expires` and names it.
    pub(crate) fn keep(&mut self, reservation: Reservation, expires: Instant) -> ReservationId {
        self.made += 1;
        // SipHash of a count, under keys that nobody knows.
        let number = self.hasher.hash_one(self.made);
        let id = ReservationId { node: self.node, number };
        let weight = reservation.charges() + reservation.descriptors();
        self.weight += weight;
        self.records.insert(id, Record { weight, state: State::Open(reservation) });
        self.by_expiry.insert((expires, id));
        self.totals.made += 1;
        id
    }

    /// Takes a reservation out to be corrected; `None` when it was corrected so before.
    pub(crate) fn correct(
        &mut self,
        id: ReservationId,
        correction: Correction,
        now: Instant,
    ) -> Result<Option<Reservation>, ReservationError> {
        self.forget_expired(now);
        if id.node != self.node {
            return Err(ReservationError::OtherNode);
        }
        let record = self.records.get_mut(&id).ok_or(ReservationError::Unknown)?;
        match (&record.state, &correction) {
            (State::Corrected(_), _) if lacks("corrections_forgotten") => {
                return Err(ReservationError::Unknown);
            }
            (State::Corrected(known), correction) if known == correction => return Ok(None),
            (State::Corrected(known), _) => {
                return Err(ReservationError::Corrected(known.clone()));
            }
            (State::Open(open), Correction::Settled(used)) => {
                let (given, expected) = (used.len(), open.descriptors());
                if given != expected {
                    return Err(ReservationError::Costs { given, expected });
                }
                self.totals.settled += 1;
            }
            (State::Open(_), Correction::Cancelled) => self.totals.cancelled += 1,
        }
        match std::mem::replace(&mut record.state, State::Corrected(correction)) {
            State::Open(reservation) => Ok(Some(reservation)),
            State::Corrected(_) => Ok(None),
        }
    }

    /// Those that are open or were corrected lately.
    pub(crate) fn count(&self) -> usize {
        self.records.len()
    }

    fn forget_expired(&mut self, now: Instant) {
        while let Some(&(expires, id)) = self.by_expiry.first() {
            if expires > now || lacks("reservations_stay") {
                return;
            }
            self.by_expiry.pop_first();
            let Some(record) = self.records.remove(&id) else { continue };
            self.weight -= record.weight;
            if let State::Open(_) = record.state {
                self.totals.expired += 1; // The estimate stands.
            }
        }
    }
}

/// Reservations at most, those included that were corrected and have not expired.
const RESERVATIONS_MAX: usize = 100_000;
/// Charges and costs at most that they hold together, beyond those of the last one.
const WEIGHT_MAX: usize = 1_000_000;
/// After this an estimate stands, unless the request says otherwise.
pub(crate) const EXPIRY_DEFAULT: Duration = Duration::from_secs(60);
/// The longest that a request may say.
pub(crate) const EXPIRY_MAX: Duration = Duration::from_secs(3_600);

#[cfg(test)]
mod tests {
    use tollgate::{Descriptor, Limit, LimitSpec, Limiter, Options, Request};

    use super::*;

    fn reservation() -> Reservation {
        let spec = LimitSpec { name: "api", rate: "1000000/s", ..LimitSpec::DEFAULT };
        let limit = Limit::parse(&spec).expect("sound");
        let limiter = Limiter::new(vec![limit], Options::default()).expect("sound");
        let descriptors = [Descriptor::new(&[]).expect("sound")];
        limiter.reserve(&Request::new(&descriptors)).1.expect("there is room")
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn an_id_is_read_as_it_is_written_and_nothing_else_is() {
        let mut reservations = Reservations::default();
        let id = reservations.keep(reservation(), at(60));
        assert_eq!(id.to_string().parse(), Ok(id));
        let text = id.to_string();
        for wrong in ["", "x", "-", &text[1..], &format!("+{}", &text[1..]), &text[..24]] {
            assert_eq!(wrong.parse::<ReservationId>(), Err(()), "{wrong}");
        }
    }

    #[test]
    fn a_correction_takes_place_once_and_its_repetition_is_harmless() {
        let mut reservations = Reservations::default();
        let id = reservations.keep(reservation(), at(60));
        let settled = Correction::Settled(vec![3]);
        let wrong = reservations.correct(id, Correction::Settled(vec![]), at(1)).map(|_| ());
        assert_eq!(wrong, Err(ReservationError::Costs { given: 0, expected: 1 }));
        assert!(matches!(reservations.correct(id, settled.clone(), at(1)), Ok(Some(_))));
        assert!(matches!(reservations.correct(id, settled.clone(), at(2)), Ok(None)));
        let other = reservations.correct(id, Correction::Cancelled, at(2)).map(|_| ());
        assert_eq!(other, Err(ReservationError::Corrected(settled)));
        let totals = Totals { made: 1, settled: 1, ..Totals::default() };
        assert_eq!(reservations.totals, totals);
    }

    #[test]
    fn an_expired_reservation_is_unknown_and_its_estimate_stands() {
        let mut reservations = Reservations::default();
        let (first, second) =
            (reservations.keep(reservation(), at(60)), reservations.keep(reservation(), at(10)));
        let expired = reservations.correct(second, Correction::Cancelled, at(10)).map(|_| ());
        assert_eq!(expired, Err(ReservationError::Unknown));
        assert!(matches!(reservations.correct(first, Correction::Cancelled, at(59)), Ok(Some(_))));
        assert_eq!((reservations.totals.expired, reservations.count()), (1, 1));
        assert_eq!(reservations.has_room(at(60)), Ok(()));
        // What was corrected is forgotten too, without counting as expired.
        let empty = (reservations.totals.expired, reservations.count(), reservations.weight);
        assert_eq!(empty, (1, 0, 0));
        let elsewhere = ReservationId { node: first.node ^ 1, number: first.number };
        let other = reservations.correct(elsewhere, Correction::Cancelled, at(0)).map(|_| ());
        assert_eq!(other, Err(ReservationError::OtherNode));
    }
}
