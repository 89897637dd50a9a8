//! Requests of callers who can wait: decided now, or told what to wait for.
//!
//! Who waits spends nothing meanwhile, is counted nowhere, and decides the whole request again when
//! what it waited for has come. Queues and wake-ups are the driver's.

use crate::charge::{Core, NONE_IN_FORCE, Names, Stale, Want};
use crate::decide::{Findings, unlimited};
use crate::decision::{Decision, Outcome, Reason};
use crate::gcra::Retry;
use crate::key::KeyId;
use crate::limiter::Limiter;
use crate::policy::FleetLimitId;
use crate::request::Request;
use crate::rules::RuleSet;
use crate::time::Instant;

/// For what a caller would wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Until the owners of the request's keys have said whether there is room: for keys that are
    /// new here, which others are told by [`Reason::Stale`], and for what had room when its owner
    /// was last heard, and is not permitted here.
    Word,
    /// Until there is room, in every limit.
    Room,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a request that waits, or is denied, must not go on"]
pub enum Attempt {
    /// It was decided, and counted as [`Limiter::check`] does.
    Decided(Decision),
    /// It is to be tried again. Nothing was spent or counted.
    Waits(Wait),
}

/// What a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// For so much credit of this key, which has a cell.
    Credit {
        /// The key.
        key: KeyId,
        /// Its limit.
        limit: FleetLimitId,
        /// What is to be permitted; at most the burst.
        cost: u64,
    },
    /// Until this instant: a limit of this node denies before it.
    Until(Instant),
}

/// What a request lacks.
enum Lack {
    /// Credit for what is wanted at this place.
    Credit(usize),
    Time(Instant),
}

impl Limiter {
    /// Decides a request as [`check`](Self::check) does, unless it should wait: then it says for
    /// what. A denial that waiting cannot help is decided at once.
    ///
    /// Of several limits that lack credit the first is named, and of those of this node the one
    /// that denies the longest, when no credit is lacking.
    pub fn attempt(&self, request: &Request<'_>, patience: Patience) -> Attempt {
        let core = &*self.core;
        if core.revision.get() == NONE_IN_FORCE {
            return Attempt::Decided(unlimited(Instant::ZERO));
        }
        let now = core.clock.now();
        core.with_wants(request, |rules, wants, names| {
            core.attempt(rules, wants, patience, now, names)
        })
    }

    /// What a request has to wait for before its limits can say anything, as
    /// [`Patience::Word`] has it: a key of the fleet of which nothing is permitted here, as on
    /// first contact with it, or less than there is room for. Nothing is spent or counted; the key
    /// has a cell afterwards, so that its owner hears of it.
    ///
    /// For callers that decide in several ways; [`attempt`](Self::attempt) decides at once.
    #[must_use]
    pub fn contact(&self, request: &Request<'_>) -> Option<Wait> {
        let core = &*self.core;
        core.member.as_ref()?;
        let now = core.clock.now();
        core.with_wants(request, |rules, wants, names| {
            if !wants.iter().any(|want| is_shared(rules, want)) {
                return Ok(None);
            }
            let findings = core.seek(rules, wants, now, false, names)?;
            Ok(core.wait_for(&findings, wants, Patience::Word, now, names))
        })
    }

    /// Denies a request that was to wait and does not any more, for this reason; nothing is spent.
    /// It counts for the limit that denies it at this moment, or else for the one with the least
    /// remaining.
    #[must_use = "a denied request must not go on"]
    pub fn refuse(&self, request: &Request<'_>, reason: Reason) -> Decision {
        let core = &*self.core;
        let now = core.clock.now();
        core.with_wants(request, |rules, wants, names| {
            let findings = core.seek(rules, wants, now, false, names)?;
            Ok(findings.refused(rules, reason, now))
        })
    }
}

impl Core {
    fn attempt(
        &self,
        rules: &RuleSet,
        wants: &[Want],
        patience: Patience,
        now: Instant,
        names: Names<'_>,
    ) -> Result<Attempt, Stale> {
        let decided = match wants {
            [] => unlimited(now),
            // The way of nearly every request; a limit of this node has no owner to hear.
            [want] if patience == Patience::Word && !is_shared(rules, want) => {
                self.decide_one(rules, want, now, names)?
            }
            wants => {
                let findings = self.seek(rules, wants, now, true, names)?;
                if let Some(wait) = self.wait_for(&findings, wants, patience, now, names) {
                    return Ok(Attempt::Waits(wait));
                }
                self.finish(rules, wants, &findings, names);
                findings.decision(now)
            }
        };
        Ok(Attempt::Decided(decided))
    }

    /// What a request waits for that was found not to pass, if waiting helps.
    fn wait_for(
        &self,
        findings: &Findings<'_>,
        wants: &[Want],
        patience: Patience,
        now: Instant,
        names: Names<'_>,
    ) -> Option<Wait> {
        let place = match self.lack(findings, wants, patience, now)? {
            Lack::Time(until) => return Some(Wait::Until(until)),
            Lack::Credit(place) => place,
        };
        let want = &wants[place];
        let rule = findings.seen(place)?.rule;
        let shared = rule.shared()?;
        let (key, is_new) = self.note_shared(rule, shared, want, true)?;
        if is_new {
            self.arrived(rule, key, want, names);
        }
        Some(Wait::Credit { key, limit: shared.number, cost: want.cost })
    }

    /// What a request lacks, if all of it may come; of quotas one is enough.
    fn lack(
        &self,
        findings: &Findings<'_>,
        wants: &[Want],
        patience: Patience,
        now: Instant,
    ) -> Option<Lack> {
        if findings.passes() {
            return None;
        }
        let mut credit = None;
        let mut until = None;
        for (place, want) in wants.iter().enumerate() {
            let Some(seen) = findings.seen(place).filter(|seen| findings.is_blamed(seen)) else {
                continue;
            };
            let Outcome::Denied(reason) = seen.outcome else { continue };
            let retry = seen.standing(now).retry_at().unwrap_or(Retry::Never);
            let shared = seen.rule.shared();
            let may_come = |shared| self.may_come(seen.rule, shared, want, now);
            match (reason, retry, patience) {
                (Reason::Stale, _, _) | (Reason::OverLimit, Retry::At(_), Patience::Room)
                    if shared.is_some() =>
                {
                    credit = credit.or(Some(Lack::Credit(place)));
                }
                (Reason::OverLimit, Retry::At(_), Patience::Word)
                    if shared.is_some_and(may_come) =>
                {
                    credit = credit.or(Some(Lack::Credit(place)));
                }
                (Reason::OverLimit, Retry::At(at), Patience::Room) => until = until.max(Some(at)),
                _ if seen.rule.limit.is_quota() => {}
                (
                    Reason::OverLimit
                    | Reason::CostExceedsBurst
                    | Reason::KeyTableFull
                    | Reason::Stale
                    | Reason::QueueFull
                    | Reason::Deadline,
                    _,
                    _,
                ) => return None,
            }
        }
        credit.or_else(|| until.map(Lack::Time))
    }
}

fn is_shared(rules: &RuleSet, want: &Want) -> bool {
    rules.rules[want.rule as usize].shared().is_some()
}
