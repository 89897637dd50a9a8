//! All keys that a node divides: who asks for how much, and who is given how much.
//!
//! What members enforce sums to the limit's rate at most: a member is given only what others do not
//! hold, and what it was told to give up counts as held until it says that it did.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use crate::division::claim::{Claim, numbered};
use crate::division::{Allotment, Demand, DividedKey, GAPS, trifle_of};
use crate::key::{KeyHashing, KeyId};
use crate::mutant::lacks;
use crate::policy::{FleetLimitId, ShareLimit};
use crate::ring::NodeId;
use crate::share::{ShareOptions, divide, grantable};
use crate::time::Instant;

/// All keys that a node divides.
#[derive(Debug)]
pub(crate) struct Divisions {
    options: ShareOptions,
    keys: HashMap<KeyId, Division, KeyHashing>,
    keys_max: usize,
    /// Since when this node is in charge of keys that it has nothing of.
    since: Instant,
    version: u64,
    /// When each key is looked at again: it may be forgotten.
    agenda: BTreeSet<(Instant, KeyId)>,
    pushes: BTreeMap<NodeId, Vec<Allotment>>,
    counts: DivisionCounts,
    scratch: Scratch,
}

/// What was done as an owner of keys that nodes divide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DivisionCounts {
    /// Reports that were taken in.
    pub reports: u64,
    /// Of them those with which a member was heard for the first time, or again.
    pub begun: u64,
    /// Allotments that were answers, and that were not asked for.
    pub answered: u64,
    /// As said for `answered`.
    pub pushed: u64,
    /// Averages that took a sample in, and that had decayed when they did.
    pub updated: u64,
    /// As said for `updated`.
    pub decayed: u64,
    /// Members, and keys, that were forgotten.
    pub members_forgotten: u64,
    /// As said for `members_forgotten`.
    pub keys_forgotten: u64,
}

/// One key.
#[derive(Debug)]
struct Division {
    limit: FleetLimitId,
    /// Units a second by which it was given last.
    rate: f64,
    began_at: Instant,
    claims: BTreeMap<MemberId, Claim>,
    /// When it is looked at again.
    visit_at: Instant,
}

/// One member: a node, and which of it.
type MemberId = (NodeId, u64);

/// Kept, so that nothing is allocated for each report.
#[derive(Debug, Default)]
struct Scratch {
    demands: Vec<f64>,
    rates: Vec<f64>,
}

/// What is known of the fleet and the limit when a report is taken in.
pub(crate) struct Terms<'a> {
    pub(crate) limit: &'a ShareLimit,
    /// How many nodes there are.
    pub(crate) nodes: u64,
}

/// There is no room for a key or a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DivisionFull;

impl Divisions {
    pub(crate) fn new(options: ShareOptions, keys_max: usize) -> Self {
        Self {
            options,
            keys: HashMap::default(),
            keys_max,
            since: Instant::ZERO,
            version: 0,
            agenda: BTreeSet::new(),
            pushes: BTreeMap::new(),
            counts: DivisionCounts::default(),
            scratch: Scratch::default(),
        }
    }

    /// This node is in charge of keys of which it knows nothing since now.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.since = now;
    }

    /// Forgets the keys that `moves` names: they are another's.
    pub(crate) fn drop_keys(&mut self, moves: impl Fn(KeyId) -> bool) {
        self.keys.retain(|key, _| !moves(*key));
        self.agenda.retain(|(_, key)| !moves(*key));
        self.pushes.clear();
    }

    /// A node is gone: nobody enforces its part.
    pub(crate) fn drop_nodes(&mut self, stays: impl Fn(NodeId) -> bool) {
        for division in self.keys.values_mut() {
            division.claims.retain(|(node, _), _| stays(*node));
        }
    }

    /// Takes a report in, and answers it; `None` if its member is one no longer.
    ///
    /// # Errors
    /// [`DivisionFull`]; nothing was taken in.
    pub(crate) fn handle_demand(
        &mut self,
        from: NodeId,
        demand: &Demand,
        terms: &Terms<'_>,
        now: Instant,
    ) -> Result<Option<Allotment>, DivisionFull> {
        let who = (from, demand.stream);
        if !self.keys.contains_key(&demand.key) {
            if demand.is_last {
                return Ok(None);
            }
            if self.keys.len() >= self.keys_max {
                return Err(DivisionFull);
            }
            self.keys.insert(demand.key, Division::new(demand.limit, now));
        }
        let Some(division) = self.keys.get_mut(&demand.key) else { return Ok(None) };
        let forgotten = division.forget_silent(now);
        self.counts.members_forgotten += forgotten;
        division.limit = demand.limit;
        division.rescale(terms.limit.rate.per_second());
        division.take_in(who, demand, &self.options, &mut self.counts, now)?;
        division.share_out(terms, &mut self.scratch, now);
        // Others keep what they say they have, until all had time to say it.
        let is_learning = division.is_learning(self.since, &self.options, now);
        let answer = (!demand.is_last).then(|| {
            self.version += 1;
            self.counts.answered += 1;
            let holds = is_learning.then_some(demand.holds);
            let context = Context { terms, scratch: &self.scratch, version: self.version, now };
            division.give(demand.key, who, holds, &context)
        });
        self.push(demand.key, terms, now);
        Ok(answer.flatten())
    }

    /// Tells members what has notably changed for them, and plans the key's next visit.
    fn push(&mut self, key: KeyId, terms: &Terms<'_>, now: Instant) {
        let Some(division) = self.keys.get_mut(&key) else { return };
        let gap = self.options.interval / GAPS;
        let due = if lacks("share_room_is_pushed") {
            Due::default()
        } else if division.is_learning(self.since, &self.options, now) {
            // Who lacks something then may not report for longer than that.
            let later = division.began_at.saturating_add(self.options.interval);
            Due { now: Vec::new(), later: Some(later) }
        } else {
            division.due_for_push(terms, &self.scratch, gap, now)
        };
        for who in due.now {
            self.version += 1;
            self.counts.pushed += 1;
            let context = Context { terms, scratch: &self.scratch, version: self.version, now };
            if let Some(allotment) = division.give(key, who, None, &context) {
                self.pushes.entry(who.0).or_default().push(allotment);
            }
        }
        let forgets_at = division.claims.values().map(|claim| claim.forget_at(&self.options)).max();
        let visit_at = forgets_at.unwrap_or(now).min(due.later.unwrap_or(Instant::MAX));
        // Whatever it is for, not at this instant again.
        let visit_at = visit_at.max(now.saturating_add(gap));
        self.agenda.remove(&(division.visit_at, key));
        self.agenda.insert((visit_at, key));
        division.visit_at = visit_at;
    }

    /// Does what is due: tells what had to wait, forgets keys of which nobody asks for any more.
    /// `limits` knows what is divided.
    pub(crate) fn handle_timeout(
        &mut self,
        limits: &dyn Fn(KeyId, FleetLimitId) -> Option<ShareLimit>,
        nodes: u64,
        now: Instant,
    ) {
        // Ends: each visit plans the next one for later.
        while let Some((at, key)) = self.agenda.first().copied()
            && at <= now
        {
            self.agenda.pop_first();
            let Some(division) = self.keys.get_mut(&key) else { continue };
            self.counts.members_forgotten += division.forget_silent(now);
            let limit = limits(key, division.limit);
            let Some(limit) = limit.filter(|_| !division.claims.is_empty()) else {
                self.counts.keys_forgotten += 1;
                self.keys.remove(&key);
                continue;
            };
            let terms = Terms { limit: &limit, nodes };
            division.rescale(limit.rate.per_second());
            division.share_out(&terms, &mut self.scratch, now);
            self.push(key, &terms, now);
        }
    }

    /// When something is due next.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.agenda.first().map(|(at, _)| *at)
    }

    /// Allotments to be sent, by node.
    pub(crate) fn poll_push(&mut self) -> Option<(NodeId, Vec<Allotment>)> {
        self.pushes.pop_first()
    }

    pub(crate) fn counts(&self) -> DivisionCounts {
        self.counts
    }

    /// Keys that have state here.
    pub(crate) fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// The keys that have state here but for the first ones, as of `now`.
    pub(crate) fn statuses(&self, skip: usize, now: Instant) -> impl Iterator<Item = DividedKey> {
        self.keys.iter().skip(skip).map(move |(key, division)| division.status(*key, now))
    }
}

/// Who is to be told what has changed for it, and when somebody else may be.
#[derive(Debug, Default)]
struct Due {
    now: Vec<MemberId>,
    later: Option<Instant>,
}

/// By what a member is given its part.
struct Context<'a> {
    terms: &'a Terms<'a>,
    scratch: &'a Scratch,
    version: u64,
    now: Instant,
}

impl Division {
    fn new(limit: FleetLimitId, now: Instant) -> Self {
        Self { limit, rate: 0.0, began_at: now, claims: BTreeMap::new(), visit_at: now }
    }

    /// The limit has so many units a second now: what members have is as much more.
    fn rescale(&mut self, per_second: f64) {
        let before = std::mem::replace(&mut self.rate, per_second);
        if before == per_second || before <= 0.0 || lacks("share_a_changed_rate_is_told") {
            return;
        }
        for claim in self.claims.values_mut() {
            let held = [&mut claim.told, &mut claim.confirmed];
            for rate in held.into_iter().chain(claim.unconfirmed.iter_mut()) {
                // As members do it.
                *rate *= per_second / before;
            }
        }
    }

    /// Forgets members of which nothing is left.
    fn forget_silent(&mut self, now: Instant) -> u64 {
        let before = self.claims.len();
        self.claims.retain(|_, claim| claim.left(now) > 0.0);
        (before - self.claims.len()) as u64
    }

    /// Notes what a member says.
    fn take_in(
        &mut self,
        who: MemberId,
        demand: &Demand,
        options: &ShareOptions,
        counts: &mut DivisionCounts,
        now: Instant,
    ) -> Result<(), DivisionFull> {
        if demand.is_last {
            self.claims.retain(|member, claim| *member != who || claim.epoch > demand.epoch);
            return Ok(());
        }
        let known = self.claims.get(&who);
        if known.is_some_and(|claim| claim.epoch > demand.epoch) {
            return Ok(());
        }
        if known.is_none_or(|claim| claim.epoch < demand.epoch) {
            if known.is_none() && self.claims.len() >= MEMBERS_MAX {
                return Err(DivisionFull);
            }
            counts.begun += 1;
            self.claims.insert(who, Claim::new(demand, options, now));
        }
        let Some(claim) = self.claims.get_mut(&who) else { return Ok(()) };
        claim.hear(demand, options, counts, now);
        Ok(())
    }

    /// Works out what is fair for each.
    fn share_out(&self, terms: &Terms<'_>, scratch: &mut Scratch, now: Instant) {
        let Scratch { demands, rates } = scratch;
        demands.clear();
        demands.extend(self.claims.values().map(|claim| claim.demand(now)));
        let rate = terms.limit.rate.per_second();
        divide(rate, rate / self.members(terms) as f64, demands, rates);
    }

    /// How many divide it.
    fn members(&self, terms: &Terms<'_>) -> u64 {
        terms.nodes.max(self.claims.len() as u64).max(1)
    }

    /// Whether others that have a part of it may not have been heard yet.
    fn is_learning(&self, since: Instant, options: &ShareOptions, now: Instant) -> bool {
        let is_young = now.saturating_since(self.began_at) < options.interval;
        let is_new_owner = self.began_at.saturating_since(since) < options.interval * LEARNS;
        // Before the first ring nobody had a part.
        is_young && is_new_owner && since > Instant::ZERO && !lacks("share_new_owner_learns")
    }

    /// Gives a member its part: what is fair, as far as others leave it; `holds` is what one keeps
    /// that is not to be given anything else yet.
    fn give(
        &mut self,
        key: KeyId,
        who: MemberId,
        holds: Option<f64>,
        context: &Context<'_>,
    ) -> Option<Allotment> {
        let &Context { terms, scratch, version, now } = context;
        let rate = terms.limit.rate.per_second();
        let members = self.members(terms);
        let floor = rate / members as f64;
        let position = self.claims.keys().position(|member| *member == who)?;
        let others = self.held_by_others(who, trifle_of(rate, members), now);
        let demand: f64 = scratch.demands.iter().sum();
        let used = self.claims.values().map(|claim| claim.allowed(now)).sum();
        let fair = match holds {
            Some(holds) if holds > 0.0 => holds,
            Some(_) => floor,
            None => scratch.rates.get(position).copied()?,
        };
        let claim = self.claims.get_mut(&who)?;
        // A little in any case, so that what it says of when to come again is no "never".
        let least = floor / LEAST;
        let given = numbered(grantable(rate, fair, others).max(least).min(rate), version);
        claim.tell(given, now);
        let own = scratch.demands.get(position).copied()?;
        Some(Allotment {
            key,
            stream: who.1,
            epoch: claim.epoch,
            version,
            ack_sequence: claim.sequence,
            generation: terms.limit.generation,
            rate: given,
            weight: if demand > 0.0 { (own / demand).clamp(0.0, 1.0) } else { 0.0 },
            used,
            members,
        })
    }

    fn held_by_others(&self, who: MemberId, trifle: f64, now: Instant) -> f64 {
        let others = self.claims.iter().filter(|(member, _)| **member != who);
        others.map(|(_, claim)| claim.held(trifle, now)).sum()
    }

    /// Whom it would notably help, or who has notably too much while others lack it.
    fn due_for_push(
        &self,
        terms: &Terms<'_>,
        scratch: &Scratch,
        gap: Duration,
        now: Instant,
    ) -> Due {
        let rate = terms.limit.rate.per_second();
        let trifle = trifle_of(rate, self.members(terms));
        let held: f64 = self.claims.values().map(|claim| claim.held(trifle, now)).sum();
        let fair = || self.claims.iter().zip(&scratch.rates);
        let notable = |from: f64, to: f64| to > from * (1.0 + TELLING) && to - from > rate * TRIFLE;
        let lacks_some = fair().any(|((_, claim), fair)| notable(claim.told, *fair));
        let room = (rate - held).max(0.0);
        let mut due = Due::default();
        for ((who, claim), fair) in fair() {
            let less = lacks_some && notable(*fair, claim.told);
            let more = notable(claim.told, fair.min(claim.told + room));
            // Who rests is told of less too, or nobody else could have it.
            if !(less || more && claim.is_fresh(now)) {
                continue;
            }
            let may_be_told_at = claim.told_at.saturating_add(gap);
            if may_be_told_at <= now {
                due.now.push(*who);
            } else {
                due.later = due.later.into_iter().chain([may_be_told_at]).min();
            }
        }
        due
    }

    fn status(&self, key: KeyId, now: Instant) -> DividedKey {
        let sum =
            |of: fn(&Claim, Instant) -> f64| self.claims.values().map(|one| of(one, now)).sum();
        DividedKey {
            key,
            limit: self.limit,
            members: self.claims.len() as u64,
            demand: sum(Claim::demand),
            used: sum(Claim::allowed),
            held: sum(|claim, now| claim.held(0.0, now)),
            rate: 0.0,
            floor: 0.0,
        }
    }
}

/// Members of one key.
const MEMBERS_MAX: usize = 10_000;
/// For so many intervals after it began, an owner has not heard of everybody.
const LEARNS: u32 = 2;
/// Nobody is given less than this part of an equal part.
const LEAST: f64 = 1_000.0;
/// A rate that differs by more than this part of it is told before its member asks.
const TELLING: f64 = 0.05;
/// A difference of less than this part of the limit is not worth a message.
const TRIFLE: f64 = 0.005;
