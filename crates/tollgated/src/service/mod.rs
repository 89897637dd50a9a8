//! The one door behind all faces: whatever they speak, they ask here.
//!
//! It owns the limiter, the reservations, the offenders and the counters, and knows the limits'
//! names. It knows no protocol; limit arithmetic is the library's.

pub(crate) mod each;
mod labels;
pub(crate) mod offenders;
pub(crate) mod reservations;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tollgate::coordinator::Document;
use tollgate::{
    Applies, Brought, BroughtError, Clock, Counts, Decision, Descriptor, DomainKind, Explanation,
    FleetRules, Guarantee, Instant, Keyed, Limit, LimitError, LimitId, LimitStatus, Limiter,
    Options, Owed, Part, Rate, Request, Wait,
};

use tollgate_redis::{Tally, TallyStatus};
use tollgate_tokio::numbered_of;

use crate::config::{WrittenLimits, as_written_of};
use crate::face::Face;
use crate::metrics::Metrics;
use crate::stamp::Stamps;
pub(crate) use labels::Label;
use labels::Labels;
use offenders::{Offender, OffenderKey, Offenders};
use reservations::{
    Correction, EXPIRY_DEFAULT, EXPIRY_MAX, ReservationError, ReservationId, Reservations, Totals,
};

/// Everything that decides, shared by all connections.
pub(crate) struct Service {
    limiter: Limiter,
    brought: Brought,
    clock: Clock,
    stamps: Stamps,
    labels: Labels,
    reservations: Mutex<Reservations>,
    offenders: Mutex<Offenders>,
    /// Random, so that nobody can choose keys that are taken for others'.
    hasher: RandomState,
    metrics: Metrics,
    noticed: AtomicBool,
    draining: AtomicBool,
    /// Says when one of them changes.
    ending: watch::Sender<()>,
    keys_max: u64,
    /// What counts limits in stores; none if there is no store.
    tally: OnceLock<Arc<Tally>>,
}

/// A limit that a request brings, and the key that it is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Brings<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) rate: Rate,
    pub(crate) burst: u64,
}

/// What a reservation came to.
pub(crate) struct Reserved {
    pub(crate) decision: Decision,
    /// The id, and when it expires; none when the request was denied.
    pub(crate) made: Option<(ReservationId, Instant)>,
}

/// What became of a correction.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Corrected {
    /// The same correction had been made before.
    Before,
    /// It is made now. In a fleet, what was used beyond the estimate may still be owed.
    Now { owed: Vec<Owed> },
}

/// What a key of one limit has left.
pub(crate) struct KeyState {
    pub(crate) key_names: Vec<String>,
    pub(crate) decision: Decision,
}

impl Service {
    /// A service with no limits in force yet.
    ///
    /// # Errors
    /// When `keys_max` is out of range.
    pub(crate) fn new(options: Options) -> Result<Self, LimitError> {
        let clock = options.clock.clone();
        let keys_max = options.keys_max;
        Ok(Self {
            // What comes with a request is this process's own.
            brought: Brought::new(Options { fleet: false, tally: false, ..options.clone() })?,
            limiter: Limiter::new(Vec::new(), options)?,
            stamps: Stamps::new(&clock),
            clock,
            labels: Labels::default(),
            reservations: Mutex::default(),
            offenders: Mutex::default(),
            hasher: RandomState::new(),
            metrics: Metrics::default(),
            noticed: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            ending: watch::Sender::default(),
            keys_max,
            tally: OnceLock::new(),
        })
    }

    /// Says what counts limits in stores; once.
    pub(crate) fn count_in(&self, tally: Arc<Tally>) {
        let _ = self.tally.set(tally);
    }

    /// How the stores fare in which limits are counted, if there are any.
    pub(crate) fn tally_status(&self) -> Option<TallyStatus> {
        self.tally.get().map(|tally| tally.status())
    }

    /// Puts these limits in force, all at once; what was used stays used.
    ///
    /// # Errors
    /// When they contradict each other; those before stay in force.
    pub(crate) fn replace(
        &self,
        limits: Vec<Limit>,
        as_written: &WrittenLimits,
    ) -> Result<u64, LimitError> {
        let revision = self.limiter.replace(limits)?;
        self.labels.replace(self.limiter.limits(), as_written);
        Ok(revision)
    }

    /// Puts a policy of the fleet in force, and returns what the fleet's member is to know of it.
    ///
    /// # Errors
    /// Why it can't be, for people; the limits before stay in force.
    pub(crate) fn enforce(&self, document: &Document) -> Result<FleetRules, String> {
        let numbered = numbered_of(document)?;
        let rules = self.limiter.replace_numbered(numbered, document.revision.get());
        let rules = rules.map_err(|error| error.to_string())?;
        let limits = self.limiter.limits();
        let written: Vec<Limit> = limits.iter().map(|status| status.limit.clone()).collect();
        self.labels.replace(limits, &as_written_of(&written));
        Ok(rules)
    }

    /// The limiter itself, for the fleet's member.
    pub(crate) fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Decides a request.
    pub(crate) fn check(&self, face: Face, request: &Request<'_>) -> Decision {
        let decision = self.limiter.check(request);
        self.note(face, request, &decision);
        decision
    }

    /// What a request has to wait for before it can be decided: only ever something in a fleet,
    /// the word of a key's owner.
    pub(crate) fn contact(&self, request: &Request<'_>) -> Option<Wait> {
        self.limiter.contact(request)
    }

    /// What [`check`](Self::check) would decide; spends and counts nothing.
    pub(crate) fn peek(&self, request: &Request<'_>) -> Decision {
        self.limiter.peek(request)
    }

    /// Gives back what the request cost, and says what is then left.
    pub(crate) fn refund(&self, request: &Request<'_>) -> Decision {
        self.limiter.refund(request);
        self.standing(request)
    }

    /// Makes the request's keys as new.
    ///
    /// # Errors
    /// With the name of a limit that applies and is a whole fleet's: what its keys used is known
    /// elsewhere. Nothing was changed.
    pub(crate) fn reset(&self, request: &Request<'_>) -> Result<Decision, String> {
        if self.limiter.credits().is_some() {
            let limits = self.limiter.explain(request).limits.into_iter();
            let mut applied = limits.filter(|one| matches!(one.applies, Applies::Yes { .. }));
            if let Some(shared) = applied.find(|one| one.guarantee != Guarantee::Local) {
                return Err(shared.limit);
            }
        }
        self.limiter.reset(request);
        Ok(self.standing(request))
    }

    /// Decides a request whose cost is an estimate.
    ///
    /// # Errors
    /// [`ReservationError::Full`]; nothing was spent.
    pub(crate) fn reserve(
        &self,
        face: Face,
        request: &Request<'_>,
        expiry: Option<Duration>,
    ) -> Result<Reserved, ReservationError> {
        self.reservations().has_room(self.now())?;
        let (decision, reservation) = self.limiter.reserve(request);
        self.note(face, request, &decision);
        let expires = self.now().saturating_add(expiry.unwrap_or(EXPIRY_DEFAULT).min(EXPIRY_MAX));
        let made = reservation
            .map(|reservation| (self.reservations().keep(reservation, expires), expires));
        Ok(Reserved { decision, made })
    }

    /// Corrects a reservation.
    ///
    /// # Errors
    /// [`ReservationError`]; nothing was changed.
    pub(crate) fn correct(
        &self,
        id: ReservationId,
        correction: Correction,
    ) -> Result<Corrected, ReservationError> {
        let taken = self.reservations().correct(id, correction.clone(), self.now())?;
        let Some(reservation) = taken else { return Ok(Corrected::Before) };
        let owed = match correction {
            Correction::Cancelled => {
                self.limiter.cancel(reservation);
                Vec::new()
            }
            Correction::Settled(used) => {
                let settled = self.limiter.settle(reservation, &used);
                debug_assert!(settled.is_ok(), "its costs were counted before");
                settled.unwrap_or_default()
            }
        };
        Ok(Corrected::Now { owed })
    }

    /// Counts what became of what settled reservations owed a fleet.
    pub(crate) fn note_owed(&self, collected: u64, uncollected: u64) {
        let totals = &mut self.reservations().totals;
        totals.collected = totals.collected.saturating_add(collected);
        totals.uncollected = totals.uncollected.saturating_add(uncollected);
    }

    /// Decides a request that brings its own limit.
    ///
    /// # Errors
    /// When the limit can't be kept; nothing was spent.
    pub(crate) fn throttle(
        &self,
        face: Face,
        brings: &Brings<'_>,
        cost: u64,
    ) -> Result<Decision, BroughtError> {
        let key = [Part::Text(brings.key)];
        let decision = self.brought.check(&key, brings.rate, brings.burst, cost)?;
        if cost > 0 {
            self.metrics.decided(face, &decision);
            if !decision.is_allowed() {
                let parts = [("key", Some(brings.key))];
                let (domain, limit) = (BROUGHT_DOMAIN, BROUGHT_NAME);
                self.count_offence(OffenderKey { domain, limit, parts: &parts });
            }
        }
        Ok(decision)
    }

    /// Gives back to a key what a request that brought its limit cost.
    ///
    /// # Errors
    /// When the limit can't be kept; nothing was given back.
    pub(crate) fn throttle_back(
        &self,
        brings: &Brings<'_>,
        cost: u64,
    ) -> Result<Decision, BroughtError> {
        self.brought.refund(&[Part::Text(brings.key)], brings.rate, brings.burst, cost)
    }

    /// Which limits apply to a request, which don't and why.
    pub(crate) fn explain(&self, request: &Request<'_>) -> Explanation {
        self.limiter.explain(request)
    }

    /// What a key has left, given the values of its parts by their names; nothing if there is no
    /// such limit.
    pub(crate) fn key_state<'a>(
        &self,
        domain: &str,
        limit: &str,
        value: impl Fn(&str) -> Option<&'a [u8]>,
    ) -> Option<KeyState> {
        let mut keyed: Keyed = self.limiter.keyed(domain, limit)?;
        let key_names: Vec<String> = keyed.key().map(str::to_owned).collect();
        let part = |name: &String| value(name).map_or(Part::Undeclared, Part::Text);
        let parts: Vec<Part<'_>> = key_names.iter().map(part).collect();
        // A cost of 0 spends, counts and creates nothing.
        let decision = keyed.check(&parts, 0).ok()?;
        Some(KeyState { key_names, decision })
    }

    /// The limits in force, with what they decided.
    pub(crate) fn limits(&self) -> Vec<LimitStatus> {
        self.limiter.limits()
    }

    /// What was decided by limits that came with their requests.
    pub(crate) fn brought_counts(&self) -> Counts {
        self.brought.counts()
    }

    /// How the limits of a domain are matched; none if there are no such limits.
    pub(crate) fn domain_kind(&self, domain: &str) -> Option<DomainKind> {
        self.limiter.domain_kind(domain)
    }

    /// The name of the limit that decided.
    pub(crate) fn label(&self, id: LimitId) -> Arc<Label> {
        self.labels.of(id, &self.limiter)
    }

    /// The keys that are denied most.
    pub(crate) fn worst(&self, most: usize) -> Vec<Offender> {
        self.offenders().top(most)
    }

    /// How reservations went, and how many are remembered.
    pub(crate) fn reservation_totals(&self) -> (Totals, usize) {
        let reservations = self.reservations();
        (reservations.totals, reservations.count())
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(crate) fn revision(&self) -> u64 {
        self.limiter.revision()
    }

    /// Keys that have a cell: of limits, and of limits that came with requests.
    pub(crate) fn keys_used(&self) -> (u64, u64) {
        (self.limiter.keys_used(), self.brought.keys_used())
    }

    /// Different limits that came with requests and are kept.
    pub(crate) fn allowances(&self) -> usize {
        self.brought.allowances()
    }

    pub(crate) fn keys_max(&self) -> u64 {
        self.keys_max
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// When something was decided, in nanoseconds of the system's monotonic clock.
    pub(crate) fn stamp(&self, decision: &Decision) -> u64 {
        self.stamps.at(decision.now())
    }

    /// From now on nobody new is to be sent here.
    pub(crate) fn give_notice(&self) {
        self.noticed.store(true, Relaxed);
        self.ending.send_replace(());
    }

    pub(crate) fn has_given_notice(&self) -> bool {
        self.noticed.load(Relaxed)
    }

    /// From now on connections are ended as soon as that cuts nothing.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Relaxed);
        self.ending.send_replace(());
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// Says when notice is given, and when the process drains.
    pub(crate) fn ending(&self) -> watch::Receiver<()> {
        self.ending.subscribe()
    }

    /// What is left, asked at no cost.
    fn standing(&self, request: &Request<'_>) -> Decision {
        let all = request.descriptors().iter();
        let descriptors: Vec<_> = all.map(|descriptor| descriptor.with_cost(0)).collect();
        self.limiter.peek(&Request::new(&descriptors).in_domain(request.domain()))
    }

    /// Counts a decision, unless it was asked at no cost.
    fn note(&self, face: Face, request: &Request<'_>, decision: &Decision) {
        if request.descriptors().iter().all(|descriptor| descriptor.cost() == 0) {
            return;
        }
        self.metrics.decided(face, decision);
        if decision.is_allowed() {
            return;
        }
        // Of several descriptors the first that is denied, or the first.
        let descriptors = request.descriptors();
        let denied = match descriptors {
            [_] => None,
            _ => {
                let mut standings = Vec::new();
                let _ = self.limiter.peek_each(request, &mut standings);
                first_denied(&standings, decision)
            }
        };
        if let Some(descriptor) = descriptors.get(denied.unwrap_or(0)) {
            self.note_offence(decision, descriptor);
        }
    }

    fn note_offence(&self, decision: &Decision, descriptor: &Descriptor<'_>) {
        let Some(limit) = decision.limit() else { return };
        let label = self.label(limit);
        let parts = label.key_of(descriptor);
        self.count_offence(OffenderKey {
            domain: label.domain(),
            limit: label.name(),
            parts: &parts,
        });
    }

    fn count_offence(&self, key: OffenderKey<'_>) {
        let digest = self.hasher.hash_one(key);
        self.offenders().count(digest, key);
    }

    fn reservations(&self) -> MutexGuard<'_, Reservations> {
        self.reservations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offenders(&self) -> MutexGuard<'_, Offenders> {
        self.offenders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}

/// The position of the first descriptor that the limit of this decision denies.
fn first_denied(standings: &[Option<Decision>], decision: &Decision) -> Option<usize> {
    let denies =
        |standing: &Decision| !standing.is_allowed() && standing.limit() == decision.limit();
    standings.iter().position(|standing| standing.as_ref().is_some_and(denies))
}

/// Limits that come with their requests have no domain; no limit of a file has this one.
pub(crate) const BROUGHT_DOMAIN: &str = "";
/// How metrics and answers call them.
pub(crate) const BROUGHT_NAME: &str = "brought";
