//! How each descriptor of a request stands, besides the one decision for all of them: what
//! protocols tell that list a status for each.

use crate::charge::{Charges, Core, NONE_IN_FORCE, Want, Wants};
use crate::decide::{Seen, unlimited};
use crate::decision::Decision;
use crate::limiter::Limiter;
use crate::request::Request;
use crate::time::Instant;

impl Limiter {
    /// Decides a request as [`check`](Self::check) does, and says how each of its descriptors then
    /// stands: one entry for each in their order, in place of what `standings` held.
    ///
    /// A standing is what would have been decided for the descriptor alone, as of the same moment:
    /// `None` if no limit applies to it; without a limit in it if it is unlimited; of several
    /// limits the one that denies the longest, or else has the least remaining. A shadow allows
    /// and shows what its key has left. A denied request spent nothing, so that descriptors which
    /// are allowed show what they have left without it.
    #[must_use = "a denied request must not go on"]
    pub fn check_each(
        &self,
        request: &Request<'_>,
        standings: &mut Vec<Option<Decision>>,
    ) -> Decision {
        self.core.decide_each(request, true, standings)
    }

    /// What [`check_each`](Self::check_each) would decide now. Spends nothing, counts nothing,
    /// creates no key.
    #[must_use]
    pub fn peek_each(
        &self,
        request: &Request<'_>,
        standings: &mut Vec<Option<Decision>>,
    ) -> Decision {
        self.core.decide_each(request, false, standings)
    }
}

impl Core {
    fn decide_each(
        &self,
        request: &Request<'_>,
        spend: bool,
        standings: &mut Vec<Option<Decision>>,
    ) -> Decision {
        standings.clear();
        standings.resize(request.descriptors().len(), None);
        if self.revision.get() == NONE_IN_FORCE {
            return unlimited(Instant::ZERO);
        }
        let now = self.clock.now();
        loop {
            let rules = self.rules.load();
            let mut wants = Wants::default();
            // Descriptors with the positions of what they want.
            let mut links: Charges<(usize, usize)> = Charges::default();
            standings.fill(None);
            wants.reserve(standings.len());
            links.reserve(standings.len());
            self.each_match(&rules, request, |index, want| match want {
                Some(want) => links.push((index, wants.add(want))),
                None => standings[index] = Some(unlimited(now)),
            });
            let names = |want: &Want| self.parts_of(&rules, request, want);
            let found = self.find(&rules, wants.as_slice(), now, spend, &names);
            let Ok(findings) = found else {
                continue; // The limits were replaced meanwhile.
            };
            for &(index, want) in links.as_slice() {
                let seen = findings.seen(want).or_else(|| {
                    // A denial may have ended the charging before it came to this one.
                    let want = &wants.as_slice()[want];
                    let rule = &*rules.rules[want.rule as usize];
                    let step = self.look(&rules, want, now).ok()?;
                    Some(Seen::of(rule, want, &step))
                });
                if let Some(seen) = seen {
                    let other = seen.standing(now);
                    let standing = &mut standings[index];
                    *standing = Some(standing.map_or(other, |known| known.and(other)));
                }
            }
            return findings.decision(now);
        }
    }
}
