//! A request that is answered descriptor by descriptor, some of which may give back or bring their
//! own limit. Whatever they do, all pass or none spends.

use tollgate::{BroughtError, Decision, Descriptor, LimitId, Part, Rate, Request, Wait};

use super::offenders::OffenderKey;
use super::{BROUGHT_DOMAIN, BROUGHT_NAME, Service, first_denied};
use crate::face::Face;

/// What is unusual about a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unusual {
    /// The descriptor's position in the request.
    pub(crate) index: usize,
    /// Its cost is given back, once all others have passed.
    pub(crate) gives_back: bool,
    /// The rate and burst of its own limit, in place of those in force.
    pub(crate) brings: Option<(Rate, u64)>,
}

/// A descriptor that brings its own limit, and what that said.
struct Taken<'a> {
    index: usize,
    key: Vec<Part<'a>>,
    rate: Rate,
    burst: u64,
    decision: Decision,
    /// What is given back once all have passed.
    back: u64,
}

impl Service {
    /// Decides a request and says how each of its descriptors then stands; see
    /// [`check_each`](tollgate::Limiter::check_each). `unusual` is in the order of the descriptors.
    ///
    /// # Errors
    /// When a limit that came with the request can't be kept; nothing was spent.
    pub(crate) fn check_each(
        &self,
        face: Face,
        request: &Request<'_>,
        unusual: &[Unusual],
        standings: &mut Vec<Option<Decision>>,
    ) -> Result<Decision, BroughtError> {
        let decision = if unusual.is_empty() {
            self.limiter.check_each(request, standings)
        } else if self.limiter.domain_kind(request.domain()).is_none() {
            // In a domain that is not known nothing is limited, whatever the request brings.
            self.limiter.peek_each(request, standings)
        } else {
            self.check_unusual(request, unusual, standings)?
        };
        let gives_back = |index| unusual.iter().any(|one| one.index == index && one.gives_back);
        let mut costs = request.descriptors().iter().map(Descriptor::cost).enumerate();
        if costs.any(|(index, cost)| cost > 0 && !gives_back(index)) {
            self.metrics.decided(face, &decision);
            if !decision.is_allowed()
                && let Some(index) = first_denied(standings, &decision)
            {
                let descriptor = &request.descriptors()[index];
                if decision.limit() == Some(LimitId::BROUGHT) {
                    self.note_brought(request.domain(), descriptor);
                } else {
                    self.note_offence(&decision, descriptor);
                }
            }
        }
        Ok(decision)
    }

    /// What [`check_each`](Self::check_each) would have to wait for, as
    /// [`contact`](Self::contact) has it.
    pub(crate) fn contact_each(&self, request: &Request<'_>, unusual: &[Unusual]) -> Option<Wait> {
        if unusual.is_empty() {
            return self.limiter.contact(request);
        }
        let spending = Others::new(request, unusual).spending;
        self.limiter.contact(&Request::new(&spending).in_domain(request.domain()))
    }

    fn check_unusual(
        &self,
        request: &Request<'_>,
        unusual: &[Unusual],
        standings: &mut Vec<Option<Decision>>,
    ) -> Result<Decision, BroughtError> {
        let taken = self.take_brought(request, unusual)?;
        let denied = taken.iter().any(|one| !one.decision.is_allowed());
        let others = Others::new(request, unusual);
        let mut of_others = Vec::new();
        let spending = Request::new(&others.spending).in_domain(request.domain());
        let decision = if denied {
            self.limiter.peek_each(&spending, &mut of_others)
        } else {
            self.limiter.check_each(&spending, &mut of_others)
        };
        let passes = !denied && decision.is_allowed();
        if passes && others.gives_back() {
            self.give_back(&others, request.domain(), &mut of_others);
        }
        standings.clear();
        standings.resize(request.descriptors().len(), None);
        for (index, standing) in others.positions.iter().zip(of_others) {
            standings[*index] = standing;
        }
        let mut all = decision;
        for one in &taken {
            all = all.and(one.decision);
            standings[one.index] = Some(self.close(one, passes));
        }
        Ok(all)
    }

    /// Charges what brings its own limit, until one is denied.
    fn take_brought<'a>(
        &self,
        request: &Request<'a>,
        unusual: &[Unusual],
    ) -> Result<Vec<Taken<'a>>, BroughtError> {
        let mut taken: Vec<Taken<'_>> = Vec::new();
        for one in unusual {
            let Some((rate, burst)) = one.brings else { continue };
            let descriptor = &request.descriptors()[one.index];
            let (cost, gives_back) = (descriptor.cost(), one.gives_back);
            let key = key_of(request.domain(), descriptor);
            // After a denial only what is left is asked.
            let denied = taken.iter().any(|one| !one.decision.is_allowed());
            let spends = if gives_back || denied { 0 } else { cost };
            match self.brought.take(&key, rate, burst, spends) {
                Ok(decision) => {
                    let back = if gives_back { cost } else { 0 };
                    taken.push(Taken { index: one.index, key, rate, burst, decision, back });
                }
                Err(error) => {
                    taken.iter().for_each(|one| self.undo(one));
                    return Err(error);
                }
            }
        }
        Ok(taken)
    }

    /// Counts or undoes what was taken, and says how it then stands.
    fn close(&self, one: &Taken<'_>, passes: bool) -> Decision {
        let Taken { key, rate, burst, decision, back, .. } = one;
        if passes && *back > 0 {
            return self.brought.refund(key, *rate, *burst, *back).unwrap_or(*decision);
        }
        if passes || !decision.is_allowed() {
            self.brought.count(decision);
            return *decision;
        }
        self.undo(one);
        self.brought.take(key, *rate, *burst, 0).unwrap_or(*decision)
    }

    fn undo(&self, one: &Taken<'_>) {
        // Four thousand other limits were brought in this moment, or it would succeed: then the
        // charge stands, which admits nothing.
        let _ = self.brought.undo(&one.key, one.rate, one.burst, &one.decision);
    }

    /// Gives back what is to be given back, and notes how that then stands.
    fn give_back(&self, others: &Others<'_>, domain: &str, standings: &mut [Option<Decision>]) {
        self.limiter.refund(&Request::new(&others.giving).in_domain(domain));
        let asking: Vec<_> = others.giving.iter().map(|one| one.with_cost(0)).collect();
        let mut after = Vec::new();
        let _ = self.limiter.peek_each(&Request::new(&asking).in_domain(domain), &mut after);
        for ((standing, after), one) in standings.iter_mut().zip(after).zip(&others.giving) {
            if one.cost() > 0 {
                *standing = after;
            }
        }
    }

    fn note_brought(&self, domain: &str, descriptor: &Descriptor<'_>) {
        let entries = descriptor.entries().iter();
        let of_entries = entries.map(|entry| (entry.name(), Some(entry.value())));
        let parts: Vec<_> =
            [("domain", Some(domain.as_bytes()))].into_iter().chain(of_entries).collect();
        let (domain, limit) = (BROUGHT_DOMAIN, BROUGHT_NAME);
        self.count_offence(OffenderKey { domain, limit, parts: &parts });
    }
}

/// The descriptors that bring no limit of their own.
struct Others<'a> {
    /// Their positions in the request.
    positions: Vec<usize>,
    /// They with what they spend, and with what they give back.
    spending: Vec<Descriptor<'a>>,
    giving: Vec<Descriptor<'a>>,
}

impl<'a> Others<'a> {
    fn new(request: &Request<'a>, unusual: &[Unusual]) -> Self {
        let mut others = Self { positions: Vec::new(), spending: Vec::new(), giving: Vec::new() };
        let mut unusual = unusual.iter().peekable();
        for (index, descriptor) in request.descriptors().iter().enumerate() {
            let one = unusual.next_if(|one| one.index == index);
            if one.is_some_and(|one| one.brings.is_some()) {
                continue;
            }
            let nothing = descriptor.with_cost(0);
            let gives_back = one.is_some_and(|one| one.gives_back);
            others.positions.push(index);
            others.spending.push(if gives_back { nothing } else { *descriptor });
            // All of them, since a limit may put another one out of force.
            others.giving.push(if gives_back { *descriptor } else { nothing });
        }
        others
    }

    fn gives_back(&self) -> bool {
        self.giving.iter().any(|descriptor| descriptor.cost() > 0)
    }
}

/// The key of a descriptor that brings its own limit: its domain and all its entries.
fn key_of<'a>(domain: &'a str, descriptor: &Descriptor<'a>) -> Vec<Part<'a>> {
    let entries = descriptor.entries().iter();
    let parts = entries.flat_map(|entry| [Part::from(entry.name()), Part::Text(entry.value())]);
    [Part::from(domain)].into_iter().chain(parts).collect()
}
