//! Reservations: an estimate is charged now and corrected once, when what was used is known.
//!
//! A reservation is a value of its owner; ids and expiry are the daemon's. What has leaked since
//! the charge cannot be given back, since it may have been spent again.

use std::fmt;
use std::time::Duration;

use crate::charge::{Want, Wants};
use crate::decision::{Decision, LimitId};
use crate::gcra::Meter;
use crate::key::KeyId;
use crate::limiter::Limiter;
use crate::mutant::lacks;
use crate::policy::FleetLimitId;
use crate::request::Request;
use crate::rules::{Divided, Kind, Rule, RuleSet, Shared, Tallied};
use crate::time::Instant;

/// An estimate that was charged, to be settled or cancelled. Dropped, the estimate stands.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Clock, Descriptor, Limit, LimitSpec, Limiter, Options, Request};
/// let (clock, hand) = Clock::manual();
/// let tokens = LimitSpec { name: "tokens", rate: "100/s", ..LimitSpec::DEFAULT };
/// let options = Options { clock, ..Options::default() };
/// let limiter = Limiter::new(vec![Limit::parse(&tokens)?], options)?;
/// let descriptors = [Descriptor::new(&[])?.with_cost(80)];
/// let (decision, reservation) = limiter.reserve(&Request::new(&descriptors));
/// assert_eq!(decision.remaining(), Some(20));
/// hand.advance(Duration::from_millis(100));
/// // 30 were used. 10 of the other 50 have leaked in 0.1 s, so 40 come back: 20 + 10 + 40.
/// limiter.settle(reservation.ok_or("denied")?, &[30])?;
/// assert_eq!(limiter.peek(&Request::new(&descriptors)).remaining(), Some(70));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reservation {
    charges: Vec<Reserved>,
    /// Descriptors of the request.
    descriptors: usize,
    at: Instant,
}

/// What one descriptor was charged under one limit.
#[derive(Debug, Clone, Copy)]
struct Reserved {
    descriptor: usize,
    limit: LimitId,
    key: KeyId,
    cost: u64,
    /// The tuning by which it was charged, and token time then; no tuning has the number of those
    /// that were charged to credit.
    tuning: u32,
    start: u64,
}

/// What was used beyond an estimate and is not permitted yet, in a fleet: the caller is to collect
/// it, by [`Credits::charge_up_to`](crate::Credits::charge_up_to), as permissions come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owed {
    /// Whose cell it is to be charged to.
    pub key: KeyId,
    /// The key's limit.
    pub limit: FleetLimitId,
    /// How much.
    pub cost: u64,
    /// The key's burst: never is more permitted at once.
    pub burst: u64,
}

impl Reservation {
    /// When the estimate was charged.
    #[must_use]
    pub fn at(&self) -> Instant {
        self.at
    }

    /// How long ago that was.
    #[must_use]
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_since(self.at)
    }

    /// How many charges it stands for: one for each descriptor and each limit that applied.
    #[must_use]
    pub fn charges(&self) -> usize {
        self.charges.len()
    }

    /// How many descriptors the request had; as many costs settle it.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        self.descriptors
    }
}

/// A settlement was refused, and nothing was changed.
#[derive(Debug)]
pub struct SettleError {
    /// The reservation, which still stands.
    pub reservation: Reservation,
    given: usize,
}

impl fmt::Display for SettleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (given, expected) = (self.given, self.reservation.descriptors);
        write!(f, "{given} costs for a reservation of {expected} descriptors; each needs one")
    }
}

impl std::error::Error for SettleError {}

impl Limiter {
    /// Decides a request as [`check`](Self::check) does; if it passes, its cost is an estimate
    /// that can be corrected once.
    #[must_use = "a denied request must not go on"]
    pub fn reserve(&self, request: &Request<'_>) -> (Decision, Option<Reservation>) {
        let core = &*self.core;
        let now = core.clock.now();
        loop {
            let rules = core.rules.load();
            let mut wants = Wants::default();
            let mut charges: Vec<(usize, Reserved)> = Vec::new();
            core.each_match(&rules, request, |index, want| {
                let Some(want) = want else { return };
                let reserved = reserved(&rules, &want, index, now);
                let at = wants.add(want);
                charges.extend(reserved.map(|reserved| (at, reserved)));
            });
            let names = |want: &Want| core.parts_of(&rules, request, want);
            let found = core.find(&rules, wants.as_slice(), now, true, &names);
            let Ok(findings) = found else {
                continue; // The limits were replaced meanwhile.
            };
            let decision = findings.decision(now);
            // A shadow or a quota may deny in a request that passes; it was not charged.
            if !lacks("uncharged_is_given_back") {
                charges.retain(|(want, _)| findings.allowed(*want));
            }
            let charges = charges.into_iter().map(|(_, reserved)| reserved).collect();
            let descriptors = request.descriptors().len();
            let reservation = Reservation { charges, descriptors, at: now };
            return (decision, decision.is_allowed().then_some(reservation));
        }
    }

    /// Corrects an estimate to what was used, one cost for each descriptor.
    ///
    /// Of what was not used, each key gets back what has not leaked since the charge: at most
    /// max(0, x - rate x age). What was used beyond the estimate is charged, be there room or not.
    /// A key whose limit changed its rate manifold since, or that has no cell of its own, gets
    /// nothing back, and in a full table owes nothing beyond what it has room for.
    ///
    /// In a fleet a key's owner counts what comes back, of charges that are at most an hour old.
    /// What was used beyond the estimate takes what is permitted here; what is not permitted is
    /// returned, and charged nowhere yet. Without a fleet nothing is returned.
    ///
    /// # Errors
    /// When there is not one cost for each descriptor. The reservation stands, and is in the error.
    pub fn settle(&self, reservation: Reservation, used: &[u64]) -> Result<Vec<Owed>, SettleError> {
        if used.len() != reservation.descriptors {
            return Err(SettleError { reservation, given: used.len() });
        }
        let correct =
            |reserved: &Reserved| self.correct(reserved, reservation.at, used[reserved.descriptor]);
        Ok(reservation.charges.iter().filter_map(correct).collect())
    }

    /// Gives an estimate back: nothing of it was used.
    pub fn cancel(&self, reservation: Reservation) {
        for reserved in &reservation.charges {
            self.correct(reserved, reservation.at, 0);
        }
    }

    fn correct(&self, reserved: &Reserved, at: Instant, used: u64) -> Option<Owed> {
        let core = &*self.core;
        let mut owed = used.saturating_sub(reserved.cost);
        // Once more when the limits were replaced meanwhile; a replacement waits for no request.
        loop {
            let rules = core.rules.load();
            let (position, rule) = rules.rule_of(reserved.limit)?;
            let want = Want::new(position as u32, reserved.key, 0);
            let now = core.clock.now();
            match &rule.kind {
                Kind::Credit(shared) => {
                    return self.correct_shared(rule, shared, reserved, at, used);
                }
                Kind::Count(tallied) => {
                    return self.correct_tallied(rule, tallied, reserved, at, used);
                }
                Kind::Share(divided) => {
                    self.correct_divided(divided, reserved, at, used);
                    return None;
                }
                Kind::Open | Kind::Rate => {}
            }
            let done = if used <= reserved.cost {
                let back = reserved.cost - used;
                core.adjust(&rules, &want, |tuning, state| {
                    let meter = tuning.meter.filter(|_| tuning.number == reserved.tuning)?;
                    Some(meter.correct(state, back, reserved.start, now))
                })
            } else {
                owed = self.owe(&rules, &want, owed, now);
                owed == 0
            };
            if done || core.is_current(&rules) {
                return None;
            }
        }
    }

    fn correct_shared(
        &self,
        rule: &Rule,
        shared: &Shared,
        reserved: &Reserved,
        at: Instant,
        used: u64,
    ) -> Option<Owed> {
        let now = self.core.clock.now();
        if used <= reserved.cost {
            // What was charged to this node alone before the limit was the fleet's, is not.
            if reserved.tuning == rule.tuning.number {
                shared.credits.refund(reserved.key, reserved.cost - used, at, now);
            }
            return None;
        }
        let want = Want { rule: 0, key: reserved.key, cost: used - reserved.cost };
        let (cost, key) = self.core.take_shared(rule, shared, &want, now);
        let burst = rule.shared_meter(shared, reserved.key).map_or(0, Meter::burst);
        (cost > 0).then_some(Owed { key, limit: shared.number, cost, burst })
    }

    fn correct_tallied(
        &self,
        rule: &Rule,
        tallied: &Tallied,
        reserved: &Reserved,
        at: Instant,
        used: u64,
    ) -> Option<Owed> {
        // What was charged to this node alone before a store counted it, is not there.
        if used <= reserved.cost && reserved.tuning == rule.tuning.number {
            let now = self.core.clock.now();
            tallied.credits.refund(reserved.key, reserved.cost - used, at, now);
        }
        let over = used.saturating_sub(reserved.cost);
        if over > 0 {
            tallied.credits.owe(reserved.key, over);
        }
        None
    }

    fn correct_divided(&self, divided: &Divided, reserved: &Reserved, at: Instant, used: u64) {
        let now = self.core.clock.now();
        if used <= reserved.cost {
            divided.shares.give_back(reserved.key, reserved.cost - used, at, now);
            return;
        }
        let want = Want { rule: 0, key: reserved.key, cost: used - reserved.cost };
        if let Some(part) = divided.part(reserved.key) {
            divided.shares.owe(&divided.asks(&want, &part.dividing), now);
        }
    }

    /// Charges a key whether it has room or not, and returns what could not be charged.
    ///
    /// A key that has left the table comes back with what it has room for, and owes the rest. In a
    /// full table it has no cell that could owe.
    fn owe(&self, rules: &RuleSet, want: &Want, cost: u64, now: Instant) -> u64 {
        let owe = |cost| {
            self.core.adjust(rules, want, |tuning, state| {
                tuning.meter.map(|meter| meter.owe(state, cost, now))
            })
        };
        if owe(cost) {
            return 0;
        }
        let (_, tuning) = rules.tuning_for(&rules.rules[want.rule as usize], want.key);
        let Some(meter) = tuning.meter else { return 0 };
        let first = cost.min(meter.burst());
        let made = self.core.charge(rules, &Want { cost: first, ..*want }, now);
        let charged = made.is_ok_and(|step| step.trace.passed().is_some());
        let rest = if charged { cost - first } else { cost };
        if rest == 0 || owe(rest) { 0 } else { rest }
    }
}

/// What a want will have charged; nothing when its key is unlimited.
fn reserved(rules: &RuleSet, want: &Want, descriptor: usize, now: Instant) -> Option<Reserved> {
    let rule = &*rules.rules[want.rule as usize];
    let (tuning, start) = match &rule.kind {
        Kind::Credit(shared) => {
            rule.shared_meter(shared, want.key).map(|_| (rule.tuning.number, 0))?
        }
        Kind::Count(tallied) => tallied.counting(want.key).map(|_| (rule.tuning.number, 0))?,
        Kind::Share(divided) => divided.part(want.key).map(|_| (rule.tuning.number, 0))?,
        Kind::Open | Kind::Rate => {
            let (_, tuning) = rules.tuning_for(rule, want.key);
            (tuning.number, tuning.meter?.fresh(now))
        }
    };
    let (limit, key, cost) = (rule.id, want.key, want.cost);
    Some(Reserved { descriptor, limit, key, cost, tuning, start })
}
