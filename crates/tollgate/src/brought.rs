//! Limits that come with each request instead of from a file: redis-cell's `CL.THROTTLE` and its
//! like. The caller names a key and says what it may use.
//!
//! A key is charged by the allowance that came last; what it owes stays owed when that changes. An
//! allowance is a tuning here, as a limit is in `rules`: a number beside the state says how it is
//! read, and a key that is met under another one is converted.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::cell::{Meta, Mutex, TUNINGS_MAX};
use crate::counts::{Counts, Event, LimitCounts};
use crate::decision::{Decided, Decision, LimitId, Outcome, Reason};
use crate::gcra::{BURST_MAX, Charge, Meter, Oversize, Verdict, gcd};
use crate::key::{KeyId, Part, Salt, Secret};
use crate::limit::LimitError;
use crate::limiter::Options;
use crate::mutant::lacks;
use crate::rate::Rate;
use crate::table::{Found, Full, Locked, Table, Visit};
use crate::time::{Clock, Instant};

/// Decides requests that bring their own limit; shared by all threads, cheap to clone.
///
/// ```
/// use tollgate::{Brought, Options, Rate};
/// let throttle = Brought::new(Options::default())?;
/// let rate = Rate::parse("30/min")?;
/// let decision = throttle.check(&["user123".into()], rate, 16, 1)?;
/// assert_eq!(decision.remaining(), Some(15));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Brought {
    core: Arc<Core>,
}

struct Core {
    table: Table,
    clock: Clock,
    secret: Secret,
    salt: Salt,
    counts: LimitCounts,
    kept: ArcSwap<Kept>,
    keeping: Mutex<Keeping>,
}

/// The allowances that some key may be charged by.
#[derive(Default, Clone)]
struct Kept {
    numbers: HashMap<Allowed, u32>,
    meters: BTreeMap<u32, Meter>,
}

/// A rate and a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Allowed {
    units: u64,
    period_ns: u64,
    burst: u64,
}

/// What is guarded while allowances come and go.
#[derive(Default)]
struct Keeping {
    next: u32,
    /// Until when looking for allowances without keys is not worth trying again.
    in_vain_until: Instant,
}

/// Why a request was refused before it was decided. Nothing was spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BroughtError {
    /// A burst of zero at a rate that is not [`Rate::ZERO`], or above 2^62.
    Burst {
        /// The burst.
        burst: u64,
    },
    /// A burst that is no multiple of this many units, at a rate above 2.9e10 a second.
    Granule {
        /// Units that the burst must be a multiple of.
        granule: u64,
    },
    /// Keys that have not rested are charged by [`Brought::ALLOWANCES_MAX`] different allowances
    /// already (or two billion were brought in this process).
    TooManyAllowances,
}

impl fmt::Display for BroughtError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Burst { burst } => write!(f, "a burst is 1 to 2^62 units, not {burst}"),
            Self::Granule { granule } => {
                write!(f, "the burst must be a multiple of {granule} at this rate")
            }
            Self::TooManyAllowances => {
                write!(f, "keys in use have {ALLOWANCES_MAX} different limits already")
            }
        }
    }
}

impl std::error::Error for BroughtError {}

impl Brought {
    /// Nothing is known and nothing was used. A key that finds no place in a full table is denied
    /// with [`Reason::KeyTableFull`], whatever `table_full` says: there is no limit whose cell it
    /// could share.
    ///
    /// # Errors
    /// When `keys_max` is not 1 to 100,000,000.
    pub fn new(options: Options) -> Result<Self, LimitError> {
        options.check()?;
        let Options { keys_max, clock, secret, .. } = options;
        let salt = secret.salt("", "", &[]);
        let core = Core {
            table: Table::new(keys_max),
            clock,
            secret,
            salt,
            counts: LimitCounts::new(),
            kept: ArcSwap::default(),
            keeping: Mutex::new(Keeping::default()),
        };
        Ok(Self { core: Arc::new(core) })
    }

    /// Charges `cost` to the key with these parts, if `rate` and `burst` have room for it.
    ///
    /// # Errors
    /// As [`BroughtError`] says.
    pub fn check(
        &self,
        key: &[Part<'_>],
        rate: Rate,
        burst: u64,
        cost: u64,
    ) -> Result<Decision, BroughtError> {
        let decision = self.take(key, rate, burst, cost)?;
        self.count(&decision);
        Ok(decision)
    }

    /// The same as one part of a larger decision: it is not counted. What was allowed is then to be
    /// [counted](Self::count), or [undone](Self::undo) if another part was denied.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub fn take(
        &self,
        key: &[Part<'_>],
        rate: Rate,
        burst: u64,
        cost: u64,
    ) -> Result<Decision, BroughtError> {
        let core = &*self.core;
        let key = core.salt.key(&core.secret, key.iter().copied());
        core.with_meter(Allowed::new(rate, burst)?, |number, meter| {
            core.charge(key, number, meter, cost)
        })
    }

    /// Counts a part that was [taken](Self::take), unless it cost nothing.
    pub fn count(&self, decision: &Decision) {
        if decision.decided.is_some_and(|decided| decided.cost > 0) {
            self.core.counts.count(Event::of(decision.outcome()));
        }
    }

    /// Takes back a part that was [taken](Self::take) and allowed, as if it had not been: less what
    /// has leaked since, which may have been spent again.
    ///
    /// # Errors
    /// As for [`check`](Self::check); nothing was taken back.
    pub fn undo(
        &self,
        key: &[Part<'_>],
        rate: Rate,
        burst: u64,
        taken: &Decision,
    ) -> Result<(), BroughtError> {
        let Some(decided) = taken.decided.filter(|_| taken.is_allowed()) else { return Ok(()) };
        let core = &*self.core;
        let key = core.salt.key(&core.secret, key.iter().copied());
        let charge = Charge { cost: decided.cost, tat: decided.tat, at: taken.now };
        core.with_meter(Allowed::new(rate, burst)?, |number, meter| {
            core.adjust(key, number, meter, |state, now| meter.undo(state, &charge, now))
        })
    }

    /// Gives `cost` back to the key, which has then at most the whole burst.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub fn refund(
        &self,
        key: &[Part<'_>],
        rate: Rate,
        burst: u64,
        cost: u64,
    ) -> Result<Decision, BroughtError> {
        let core = &*self.core;
        let id = core.salt.key(&core.secret, key.iter().copied());
        core.with_meter(Allowed::new(rate, burst)?, |number, meter| {
            core.adjust(id, number, meter, |state, now| meter.give_back(state, cost, now))
        })?;
        self.check(key, rate, burst, 0)
    }

    /// Different allowances that are kept, of [`ALLOWANCES_MAX`](Self::ALLOWANCES_MAX).
    #[must_use]
    pub fn allowances(&self) -> usize {
        self.core.kept.load().numbers.len()
    }

    /// Different allowances at most; about a megabyte of them.
    pub const ALLOWANCES_MAX: usize = ALLOWANCES_MAX;

    /// What was decided so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.core.counts.read()
    }

    /// Keys that have a cell.
    #[must_use]
    pub fn keys_used(&self) -> u64 {
        self.core.table.used()
    }
}

impl fmt::Debug for Brought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Brought").field("keys_used", &self.keys_used()).finish_non_exhaustive()
    }
}

/// The allowance is no longer kept; the step had no effect.
struct Dropped;

impl Core {
    /// Charges a key, or sees why not.
    fn charge(
        &self,
        key: KeyId,
        number: u32,
        meter: &Meter,
        cost: u64,
    ) -> Result<Decision, Dropped> {
        let now = self.clock.now();
        let decide = |outcome, tat| {
            let decided = Some(Decided { limit: LimitId::BROUGHT, cost, tat, meter: *meter });
            Decision { outcome, decided, shadow: None, now }
        };
        // Each further turn means that another charge of this key went through meanwhile.
        while let Some(found) = self.find(key, number, meter)? {
            match meter.judge(found.state, cost, now) {
                Verdict::Conforms { next } => {
                    if cost == 0 || self.table.exchange(&found, next) {
                        return Ok(decide(Outcome::Allowed, next));
                    }
                }
                verdict => return Ok(decide(denied(meter, verdict, cost), found.state)),
            }
        }
        let mut locked = self.table.lock(key);
        if !self.kept.load().meters.contains_key(&number) {
            return Err(Dropped);
        }
        if locked.find(key).is_some() {
            drop(locked);
            return self.charge(key, number, meter, cost);
        }
        let now = locked.starts_at(now);
        let before = meter.fresh(now);
        match meter.judge(before, cost, now) {
            Verdict::Conforms { .. } if cost == 0 => Ok(decide(Outcome::Allowed, before)),
            Verdict::Conforms { next } => {
                let added = self.add(&mut locked, key, number, next, now);
                Ok(match added {
                    Ok(()) => decide(Outcome::Allowed, next),
                    Err(Full) => decide(Outcome::Denied(Reason::KeyTableFull), before),
                })
            }
            verdict => Ok(decide(denied(meter, verdict, cost), before)),
        }
    }

    /// Moves the state of a key that has a cell to what `next` makes of it.
    fn adjust(
        &self,
        key: KeyId,
        number: u32,
        meter: &Meter,
        next: impl Fn(u64, Instant) -> u64,
    ) -> Result<(), Dropped> {
        let now = self.clock.now();
        while let Some(found) = self.find(key, number, meter)? {
            let state = next(found.state, now);
            if state == found.state || self.table.exchange(&found, state) {
                break;
            }
        }
        Ok(())
    }

    fn add(
        &self,
        locked: &mut Locked<'_>,
        key: KeyId,
        number: u32,
        state: u64,
        now: Instant,
    ) -> Result<(), Full> {
        let kept = self.kept.load();
        let is_as_new = |meta: Meta, state| {
            kept.meters.get(&meta.tuning()).is_some_and(|meter| meter.is_as_new(state, now))
        };
        let evicted = locked.add(key, Meta::new(number, false), state, now, is_as_new)?;
        self.counts.count_many(Event::Evicted, evicted);
        Ok(())
    }

    /// Finds a key, and has it read by this allowance from now on.
    fn find(&self, key: KeyId, number: u32, meter: &Meter) -> Result<Option<Found>, Dropped> {
        loop {
            if let Some(found) = self.table.find(key)
                && found.meta.tuning() == number
            {
                return Ok(Some(found));
            }
            let mut locked = self.table.lock(key);
            let Some(found) = locked.find(key) else { return Ok(None) };
            if found.meta.tuning() == number {
                return Ok(Some(found));
            }
            let kept = self.kept.load();
            if let Some(old) = kept.meters.get(&found.meta.tuning())
                && kept.meters.contains_key(&number)
            {
                let mut convert = |_, meta: Meta, state| {
                    if meta.tuning() == number {
                        return Visit::Keep;
                    }
                    let now = self.clock.now();
                    let anew = lacks("brought_starts_anew");
                    let state =
                        if anew { meter.fresh(now) } else { old.convert(state, meter, now) };
                    Visit::Move(Meta::new(number, false), state)
                };
                locked.visit(found.place, &mut convert);
                return Ok(locked.find(key));
            }
            // One of the two is being dropped or restored just now: wait for the end of that.
            drop(locked);
            drop(self.keeping.lock().unwrap_or_else(PoisonError::into_inner));
            if !self.kept.load().meters.contains_key(&number) {
                return Err(Dropped);
            }
        }
    }

    /// Takes a step by an allowance's number and meter; once more when the allowance was dropped in
    /// between, for want of a key: bounded by what other callers bring.
    fn with_meter<T>(
        &self,
        allowed: Allowed,
        step: impl Fn(u32, &Meter) -> Result<T, Dropped>,
    ) -> Result<T, BroughtError> {
        loop {
            let (number, meter) = self.meter_for(allowed)?;
            if let Ok(done) = step(number, &meter) {
                return Ok(done);
            }
        }
    }

    /// The number and meter of an allowance, which is kept from now on if it was not.
    fn meter_for(&self, allowed: Allowed) -> Result<(u32, Meter), BroughtError> {
        let kept = self.kept.load();
        match kept.numbers.get(&allowed) {
            Some(number) => Ok((*number, kept.meters[number])),
            None => self.keep(allowed),
        }
    }

    #[cold]
    fn keep(&self, allowed: Allowed) -> Result<(u32, Meter), BroughtError> {
        let rate = allowed.check()?;
        let mut keeping = self.keeping.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kept = Kept::clone(&self.kept.load());
        if let Some(number) = kept.numbers.get(&allowed) {
            return Ok((*number, kept.meters[number]));
        }
        let now = self.clock.now();
        // No number is given twice: a thread may still hold what it once meant.
        if keeping.next == TUNINGS_MAX {
            return Err(BroughtError::TooManyAllowances);
        }
        if kept.numbers.len() >= ALLOWANCES_MAX {
            if now < keeping.in_vain_until {
                return Err(BroughtError::TooManyAllowances);
            }
            kept = self.drop_unused(kept, now);
            if kept.numbers.len() > ALLOWANCES_MAX / 8 * 7 {
                keeping.in_vain_until = now.saturating_add(IN_VAIN);
            }
            if kept.numbers.len() >= ALLOWANCES_MAX {
                return Err(BroughtError::TooManyAllowances);
            }
        }
        let meter = Meter::new(rate, allowed.burst, Oversize::Never, now);
        let number = keeping.next;
        keeping.next += 1;
        kept.numbers.insert(allowed, number);
        kept.meters.insert(number, meter);
        self.kept.store(Arc::new(kept));
        Ok((number, meter))
    }

    /// Drops the allowances by which no key is charged any more.
    ///
    /// They are dropped first and looked for again: once a number is not kept, no key is added
    /// under it, since that is looked up under the lock of the key's segment.
    fn drop_unused(&self, before: Kept, now: Instant) -> Kept {
        let mut used = HashSet::new();
        let mut note = |_, meta: Meta, state| match before.meters.get(&meta.tuning()) {
            Some(meter) if meter.is_as_new(state, now) => Visit::Evict(now),
            _ => {
                used.insert(meta.tuning());
                Visit::Keep
            }
        };
        self.table.sweep(&mut note);
        self.kept.store(Arc::new(before.only(&used)));
        self.table.sweep(|_, meta, _| {
            used.insert(meta.tuning());
            Visit::Keep
        });
        let after = before.only(&used);
        self.kept.store(Arc::new(after.clone()));
        after
    }
}

impl Kept {
    fn only(&self, used: &HashSet<u32>) -> Self {
        let mut kept = self.clone();
        kept.numbers.retain(|_, number| used.contains(number));
        kept.meters.retain(|number, _| used.contains(number));
        kept
    }
}

impl Allowed {
    fn new(rate: Rate, burst: u64) -> Result<Self, BroughtError> {
        // Nothing at all is a limit too.
        let closed = burst == 0 && rate == Rate::ZERO;
        if (burst == 0 && !closed) || burst > BURST_MAX {
            return Err(BroughtError::Burst { burst });
        }
        // 30 in 60 s and 15 in 30 s are one rate.
        let common = gcd(rate.units(), rate.period_ns()).max(1);
        let (units, period_ns) = (rate.units() / common, rate.period_ns() / common);
        Ok(Self { units, period_ns, burst })
    }

    fn check(&self) -> Result<Rate, BroughtError> {
        // A rate was sound once and its parts are unchanged.
        let rate = Rate::new(self.units, self.period_ns).unwrap_or(Rate::ZERO);
        let granule = Meter::granule(rate);
        if !self.burst.is_multiple_of(granule) {
            return Err(BroughtError::Granule { granule });
        }
        Ok(rate)
    }
}

fn denied(meter: &Meter, verdict: Verdict, cost: u64) -> Outcome {
    debug_assert!(!matches!(verdict, Verdict::Conforms { .. }));
    let above = cost > meter.burst() && meter.burst() > 0;
    Outcome::Denied(if above { Reason::CostExceedsBurst } else { Reason::OverLimit })
}

const ALLOWANCES_MAX: usize = 4096;
/// How long a search for unused allowances that found few is not repeated.
const IN_VAIN: Duration = Duration::from_secs(1);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn brought() -> Brought {
        Brought::new(Options { keys_max: 100, ..Options::default() }).expect("sound options")
    }

    fn rate(units: u64, seconds: u64) -> Rate {
        Rate::new(units, seconds * 1_000_000_000).expect("a sound rate")
    }

    /// The number behind the last would have marked its keys as pinned.
    #[test]
    fn numbers_are_not_given_twice_and_end_with_an_error() {
        let brought = brought();
        let check = |rate| brought.check(&["a".into()], rate, 10, 1).map(|_| ());
        brought.core.keeping.lock().expect("sound").next = TUNINGS_MAX - 1;
        assert_eq!(check(rate(1, 1)), Ok(()));
        assert_eq!(check(rate(2, 1)), Err(BroughtError::TooManyAllowances));
        assert_eq!(check(rate(1, 1)), Ok(()));
    }

    #[test]
    fn two_ways_to_write_a_rate_are_one_allowance() {
        let brought = brought();
        for rate in [rate(30, 60), rate(15, 30), rate(1, 2)] {
            assert!(brought.check(&["a".into()], rate, 10, 1).is_ok());
        }
        assert_eq!(brought.allowances(), 1);
    }

    /// A thread that read the clock before a search for unused allowances, and came back to a key
    /// that had rested and was dropped by it, once started that key in the past.
    #[test]
    fn a_key_that_was_dropped_starts_no_earlier_than_that() {
        let (clock, hand) = Clock::manual();
        let options = Options { clock, keys_max: 100, ..Options::default() };
        let brought = Brought::new(options).expect("sound options");
        assert!(brought.check(&["a".into()], rate(1, 1), 1, 1).is_ok());
        hand.advance(Duration::from_secs(10));
        let core = &*brought.core;
        core.drop_unused(Kept::clone(&core.kept.load()), core.clock.now());
        let key = core.salt.key(&core.secret, ["a".into()]);
        let starts = core.table.lock(key).starts_at(Instant::ZERO);
        assert_eq!(starts, Instant::from_nanos(10_000_000_000));
        assert_eq!((brought.allowances(), brought.keys_used()), (0, 0));
    }
}
