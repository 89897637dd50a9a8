//! Why a request is decided as it is: every limit of its domain, whether it applies, and how its
//! key stands. Data for people and tools; it spends and counts nothing.

use std::sync::Arc;

use crate::charge::Want;
use crate::decide::unlimited;
use crate::decision::{Decided, Decision, LimitId};
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::request::{Descriptor, Request};
use crate::rules::{Rule, RuleSet};

/// What would be decided, and what each limit has to do with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// The decision as it would be now.
    pub decision: Decision,
    /// Every limit of the domain under every descriptor, in their order.
    pub limits: Vec<Explained>,
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
        let mut limits = Vec::new();
        for (index, descriptor) in request.descriptors().iter().enumerate() {
            let in_domain = |rule: &&Arc<Rule>| rule.limit.domain() == request.domain();
            for rule in rules.rules.iter().filter(in_domain) {
                limits.push(Explained {
                    descriptor: index,
                    id: rule.id,
                    limit: rule.limit.name().into(),
                    shadow: rule.limit.is_shadow(),
                    applies: self.applies(&rules, rule, descriptor),
                });
            }
        }
        Explanation { decision: self.peek(request), limits }
    }

    fn applies(&self, rules: &RuleSet, rule: &Rule, descriptor: &Descriptor<'_>) -> Applies {
        if let Some(applies) = mismatch(&rule.limit, descriptor) {
            return applies;
        }
        let part = |name: &str| (name.into(), descriptor.value(name).map(<[u8]>::to_vec));
        Applies::Yes {
            key: rule.limit.key().map(part).collect(),
            alone: self.alone(rules, rule, descriptor),
        }
    }

    fn alone(&self, rules: &RuleSet, rule: &Rule, descriptor: &Descriptor<'_>) -> Decision {
        let core = &self.core;
        let now = core.clock.now();
        let unlimited = unlimited(now);
        let Some((position, _)) = rules.rule_of(rule.id).filter(|_| !rule.is_open()) else {
            return unlimited;
        };
        let key = rule.key_of(&core.secret, descriptor);
        let want = Want::new(position as u32, key, descriptor.cost());
        // Limits that were replaced in between are explained as if nothing were used.
        let Ok(step) = core.look(rules, &want, now) else { return unlimited };
        let decided: Option<Decided> = step.decided(rule, &want);
        Decision { outcome: step.outcome, decided, shadow: None, now }
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
