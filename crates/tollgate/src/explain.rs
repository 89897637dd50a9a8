//! Why a request is decided as it is: every limit of its domain, whether it applies, and how its
//! key stands. Data for people and tools; it spends and counts nothing.

use std::collections::HashMap;
use std::sync::Arc;

use crate::charge::Want;
use crate::decide::unlimited;
use crate::decision::{Decided, Decision, LimitId};
use crate::guarantee::Guarantee;
use crate::key::KeyId;
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::request::{Descriptor, Request};
use crate::rules::{Domain, Rule, RuleSet};
use crate::walk::{End, Paths, WalkEnd, Walked};

/// What would be decided, and what each limit has to do with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// The decision as it would be now.
    pub decision: Decision,
    /// Every limit of the domain under every descriptor, in their order. Of limits with paths only
    /// those that a descriptor reaches.
    pub limits: Vec<Explained>,
    /// In a domain whose limits have paths, the way of each descriptor.
    pub walks: Vec<Walk>,
}

/// The way of one descriptor along the paths of its domain's limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    /// The descriptor's position in the request.
    pub descriptor: usize,
    /// A step for each entry, as far as it got.
    pub steps: Vec<Walked>,
    /// Where it ended.
    pub end: WalkEnd,
}

/// One limit under one descriptor.
#[derive(Debug, Clone, PartialEq)]
pub struct Explained {
    /// The descriptor's position in the request.
    pub descriptor: usize,
    /// The limit's id.
    pub id: LimitId,
    /// The limit's name.
    pub limit: String,
    /// What it promises.
    pub guarantee: Guarantee,
    /// Whether it never denies.
    pub shadow: bool,
    /// Whether it applies, and why not.
    pub applies: Applies,
}

/// Whether a limit applies to a descriptor.
#[derive(Debug, Clone, PartialEq)]
pub enum Applies {
    /// It does; its key's parts, and the decision if it were alone.
    Yes {
        /// (entry name, value) of each key part; no value where the request has no such entry.
        key: Vec<(String, Option<Vec<u8>>)>,
        /// What it would decide alone.
        alone: Decision,
    },
    /// Another limit that applies to the request replaces it.
    Replaced {
        /// The other limit's name.
        by: String,
    },
    /// The descriptor lacks an entry that the limit matches on.
    MissingEntry {
        /// The entry's name.
        entry: String,
    },
    /// The descriptor has another value than the limit matches on.
    OtherValue {
        /// The entry's name.
        entry: String,
        /// The value that the limit wants.
        wanted: String,
    },
}

impl Limiter {
    /// Which limits apply to a request, which don't and why, and what they would decide.
    #[must_use]
    pub fn explain(&self, request: &Request<'_>) -> Explanation {
        let rules = self.core.rules.load_full();
        let (mut limits, mut walks) = (Vec::new(), Vec::new());
        match rules.domain(request.domain()) {
            None => {}
            Some(Domain::Set(_)) => limits = self.explain_set(&rules, request),
            Some(Domain::Path(paths)) => {
                for (index, descriptor) in request.descriptors().iter().enumerate() {
                    let (steps, end) = paths.explain(&self.core.secret, descriptor);
                    walks.push(Walk { descriptor: index, steps, end });
                }
                limits = self.explain_reached(&rules, paths, request);
            }
        }
        Explanation { decision: self.peek(request), limits, walks }
    }

    fn explain_set(&self, rules: &RuleSet, request: &Request<'_>) -> Vec<Explained> {
        let mut limits = Vec::new();
        for (index, descriptor) in request.descriptors().iter().enumerate() {
            let in_domain = |rule: &&Arc<Rule>| rule.limit.domain() == request.domain();
            for rule in rules.rules.iter().filter(in_domain) {
                let applies = mismatch(&rule.limit, descriptor).unwrap_or_else(|| {
                    let key = rule.key_of(&self.core.secret, descriptor);
                    self.applies(rules, rule, descriptor, key)
                });
                limits.push(explained(index, rule, applies));
            }
        }
        limits
    }

    fn explain_reached(
        &self,
        rules: &RuleSet,
        paths: &Paths,
        request: &Request<'_>,
    ) -> Vec<Explained> {
        let secret = &self.core.secret;
        let mut reached = Vec::new();
        for (index, descriptor) in request.descriptors().iter().enumerate() {
            if let Some((End::Limit(position), hows)) = paths.walk(secret, descriptor) {
                let rule = &*rules.rules[position as usize];
                reached.push((index, descriptor, rule, hows));
            }
        }
        // The first limit that replaces each group.
        let mut replacing: HashMap<u32, &Rule> = HashMap::new();
        for (_, _, rule, _) in &reached {
            for group in &rule.replaces {
                replacing.entry(*group).or_insert(rule);
            }
        }
        let explain = |(index, descriptor, rule, hows): (_, &Descriptor<'_>, &Rule, _)| {
            let by = rule.group.and_then(|group| replacing.get(&group));
            let applies = match by {
                Some(other) => Applies::Replaced { by: other.limit.name().into() },
                None => {
                    let key = rule.key_on_path(secret, descriptor, &hows);
                    self.applies(rules, rule, descriptor, key)
                }
            };
            explained(index, rule, applies)
        };
        reached.into_iter().map(explain).collect()
    }

    /// That a limit applies, to which key, and what it would decide alone.
    fn applies(
        &self,
        rules: &RuleSet,
        rule: &Rule,
        descriptor: &Descriptor<'_>,
        key: KeyId,
    ) -> Applies {
        let parts = rule.limit.key_of(descriptor);
        let part = |(name, value): (&str, Option<&[u8]>)| (name.into(), value.map(<[u8]>::to_vec));
        let alone = self.alone(rules, rule, key, descriptor.cost());
        Applies::Yes { key: parts.map(part).collect(), alone }
    }

    fn alone(&self, rules: &RuleSet, rule: &Rule, key: KeyId, cost: u64) -> Decision {
        let core = &self.core;
        let now = core.clock.now();
        let unlimited = unlimited(now);
        let Some((position, _)) = rules.rule_of(rule.id).filter(|_| !rule.is_open()) else {
            return unlimited;
        };
        let want = Want::new(position as u32, key, cost);
        // Limits that were replaced in between are explained as if nothing were used.
        let Ok(step) = core.look(rules, &want, now) else { return unlimited };
        let decided: Option<Decided> = step.decided(rule, &want);
        Decision { outcome: step.outcome, decided, shadow: None, now }
    }
}

fn explained(descriptor: usize, rule: &Rule, applies: Applies) -> Explained {
    Explained {
        descriptor,
        id: rule.id,
        limit: rule.limit.name().into(),
        guarantee: rule.limit.guarantee(),
        shadow: rule.limit.is_shadow(),
        applies,
    }
}

fn mismatch(limit: &Limit, descriptor: &Descriptor<'_>) -> Option<Applies> {
    limit.matches().iter().find_map(|entry| match (descriptor.value(&entry.name), &entry.value) {
        (None, _) => Some(Applies::MissingEntry { entry: entry.name.to_string() }),
        (Some(value), Some(wanted)) if value != wanted.as_bytes() => {
            Some(Applies::OtherValue { entry: entry.name.to_string(), wanted: wanted.to_string() })
        }
        (Some(_), _) => None,
    })
}
