//! What an owner knows of one member of a key's division: what it asks for, and what it may hold.

use std::collections::VecDeque;
use std::time::Duration;

use crate::division::estimate::Estimate;
use crate::division::owner::DivisionCounts;
use crate::division::{Demand, is_notably_less};
use crate::mutant::lacks;
use crate::share::{Averaging, Collected, ShareOptions};
use crate::time::Instant;
use crate::view::CellEpoch;

/// What is known of a member.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) epoch: CellEpoch,
    pub(super) sequence: u64,
    pub(super) averaging: Averaging,
    pub(super) interval: Duration,
    pub(super) estimate: Estimate,
    pub(super) heard_at: Instant,
    /// What it was told last, and what it said that it has.
    pub(super) told: f64,
    pub(super) confirmed: f64,
    /// What it was told since then, the last included: any of it may be what it enforces.
    pub(super) unconfirmed: VecDeque<f64>,
    pub(super) told_at: Instant,
}

impl Claim {
    pub(super) fn new(demand: &Demand, options: &ShareOptions, now: Instant) -> Self {
        let interval = interval_of(demand, options);
        Self {
            epoch: demand.epoch,
            sequence: 0,
            averaging: averaging(options, interval),
            interval,
            estimate: Estimate::default(),
            heard_at: now,
            told: amount(demand.holds),
            confirmed: amount(demand.holds),
            unconfirmed: VecDeque::new(),
            told_at: now,
        }
    }

    pub(super) fn hear(
        &mut self,
        demand: &Demand,
        options: &ShareOptions,
        counts: &mut DivisionCounts,
        now: Instant,
    ) {
        if demand.sequence <= self.sequence && !lacks("share_reports_in_order") {
            return;
        }
        let interval = interval_of(demand, options);
        if interval != self.interval {
            self.averaging = averaging(options, interval);
            self.interval = interval;
        }
        counts.reports += 1;
        self.sequence = demand.sequence;
        self.confirm(amount(demand.holds));
        let collected = Collected { allowed: demand.allowed, denied: demand.denied };
        counts.updated += 1;
        let left = self.left(now);
        counts.decayed += u64::from(left < 1.0);
        if left <= 0.0 {
            self.estimate = Estimate::default();
        }
        let age = now.saturating_since(self.heard_at);
        self.estimate.take(collected, demand.elapsed, age, options, interval);
        self.heard_at = now;
    }

    pub(super) fn tell(&mut self, given: f64, now: Instant) {
        (self.told, self.told_at) = (given, now);
        if self.unconfirmed.back() == Some(&given) {
            return;
        }
        if self.unconfirmed.len() >= UNCONFIRMED_MAX
            && let Some(oldest) = self.unconfirmed.pop_front()
            && let Some(next) = self.unconfirmed.front_mut()
        {
            *next = next.max(oldest);
        }
        self.unconfirmed.push_back(given);
    }

    /// It enforces so much; what it was told before that is over, what it was told since may come.
    pub(super) fn confirm(&mut self, holds: f64) {
        self.confirmed = holds;
        let place = self.unconfirmed.iter().position(|told| *told == holds);
        if let Some(place) = place.filter(|_| !lacks("share_what_crosses_confirms")) {
            self.unconfirmed.drain(..=place);
        }
    }

    /// What of it is left after its silence.
    pub(super) fn left(&self, now: Instant) -> f64 {
        let age = now.saturating_since(self.heard_at);
        self.estimate.left(&self.averaging, age)
    }

    pub(super) fn demand(&self, now: Instant) -> f64 {
        self.estimate.demand() * self.left(now)
    }

    pub(super) fn allowed(&self, now: Instant) -> f64 {
        self.estimate.allowed * self.left(now)
    }

    /// What it enforces at most by an owner's word: what it was told to give up it may still have.
    pub(super) fn held(&self, trifle: f64, now: Instant) -> f64 {
        let most = if lacks("share_what_is_under_way_is_held") {
            self.confirmed
        } else {
            self.unconfirmed.iter().fold(self.confirmed, |most, told| most.max(*told))
        };
        let is_notably_less = is_notably_less(self.told, most, trifle);
        let held = if is_notably_less && !lacks("share_given_up_when_confirmed") {
            most
        } else {
            self.told
        };
        // Whoever is not heard goes on with it, until it has missed too many answers.
        if lacks("share_the_silent_hold") { held * self.left(now) } else { held }
    }

    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_since(self.heard_at) < self.interval * 2
    }

    pub(super) fn forget_at(&self, options: &ShareOptions) -> Instant {
        self.heard_at.saturating_add(self.interval * options.forget_after)
    }
}

/// How often a member reports, within reason.
fn interval_of(demand: &Demand, options: &ShareOptions) -> Duration {
    demand.interval.clamp(options.elapsed_min, INTERVAL_MAX)
}

/// How a member's average is kept that reports so often.
fn averaging(options: &ShareOptions, interval: Duration) -> Averaging {
    let of_member = ShareOptions { interval, ..*options };
    // The interval is in its range, and the rest was checked.
    Averaging::new(&of_member).unwrap_or_default()
}

/// A rate whose last bits tell it from others that were as large: what a member says that it
/// enforces tells what it was told last.
pub(super) fn numbered(rate: f64, version: u64) -> f64 {
    // Not above what it was: less by more than the bits may add.
    f64::from_bits((rate * (1.0 - 1e-12)).to_bits() & !NUMBERS | version & NUMBERS)
}

/// What a member says that it has, if it can be.
fn amount(said: f64) -> f64 {
    if said.is_finite() { said.max(0.0) } else { 0.0 }
}

/// Bits of a rate, which tell 4,096 of them apart.
const NUMBERS: u64 = 0xFFF;
/// What members were told and did not confirm is remembered so far.
const UNCONFIRMED_MAX: usize = 4;
/// How often a member may say that it reports, at most.
const INTERVAL_MAX: Duration = Duration::from_secs(60);
