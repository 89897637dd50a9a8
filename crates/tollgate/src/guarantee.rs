//! What a limit promises and to whom, and how a fleet shares a key, checked as it was written.
//!
//! It knows what was written. Who is in a fleet, and what is permitted to whom, is decided
//! elsewhere; the numbers are those of `tollgate_sim::plan`, which tells what they lead to.

use std::time::Duration;

use crate::allowance::{Allowance, Fault};
use crate::gcra::Oversize;
use crate::rate::Rate;
use crate::spec::LimitSpec;
use crate::tally::{Meets, OnStale, Window};

/// What a limit promises of each key, with rate R and burst B.
///
/// A limit says what it needs. A process that is no member of a fleet is all of its fleet: it
/// decides limits of both kinds by the same cells, and keeps B + R·t exactly. Two such processes
/// with one `eventual` limit admit twice its rate; members of a fleet (`tollgate-tokio`) share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarantee {
    /// On this node at most B + R·t in any interval t, exactly.
    ///
    /// With 5,000/s and a burst of 10,000 each of 20 nodes admits up to 20,000 in 2 s.
    Local,
    /// In the whole fleet at most B + R·t in any interval t while one node at a time is in charge
    /// of a key; otherwise more by no more than the envelope, which `tollgate plan` tells.
    ///
    /// With 5,000/s and a burst of 10,000 all nodes together admit up to 20,000 in 2 s.
    Eventual,
    /// About R·w in each window of w, in the whole fleet: an estimate from the counts that a store
    /// has of two windows, which each node reads now and then. `docs/bounds.md` has its error.
    ///
    /// With 1,000 in 10 s and a tick of 1 s, 20 nodes that are all asked for as much at once admit
    /// 1,000 and what comes in about two ticks.
    Tally,
    /// On average R in the whole fleet: each node enforces the part of it that its key's owner gave
    /// it, by what was asked for there and elsewhere. No node is refused below R / nodes while the
    /// fleet leaves something; a node that hears nothing enforces R / nodes.
    ///
    /// With 100/s and four nodes, one that is asked for 90/s and one for 10/s admit as much; when
    /// all are asked for 100/s each admits 25/s.
    Share,
}

/// What decides about the keys of a limit with the guarantee `share`: this can be changed while it
/// is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ShareMode {
    /// An equal part on each node, and nothing is reported.
    Disabled,
    /// An equal part on each node; what is asked for is counted.
    Local,
    /// What the key's owner gave each node; an equal part as long as it did not.
    #[default]
    Global,
    /// An equal part on each node, and beside it it is seen what the owner's would have decided.
    LocalShadowGlobal,
    /// What the key's owner gave, and beside it it is seen what an equal part would have decided.
    GlobalShadowLocal,
}

impl ShareMode {
    /// All of them, in the order of their words.
    pub const ALL: [Self; 5] = [
        Self::Disabled,
        Self::Local,
        Self::Global,
        Self::LocalShadowGlobal,
        Self::GlobalShadowLocal,
    ];

    /// Its word, as policy files have it: `local-shadow-global`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Local => "local",
            Self::Global => "global",
            Self::LocalShadowGlobal => "local-shadow-global",
            Self::GlobalShadowLocal => "global-shadow-local",
        }
    }

    /// Whether what the owner gave decides.
    #[must_use]
    pub const fn is_global(self) -> bool {
        matches!(self, Self::Global | Self::GlobalShadowLocal)
    }

    /// Whether nodes report what is asked for, and are given a part.
    #[must_use]
    pub const fn reports(self) -> bool {
        matches!(self, Self::Global | Self::GlobalShadowLocal | Self::LocalShadowGlobal)
    }

    pub(crate) fn parse(guarantee: Guarantee, written: Option<&str>) -> Result<Self, Fault> {
        let Some(word) = written else { return Ok(Self::default()) };
        if guarantee != Guarantee::Share {
            let reason = "has a meaning only with guarantee = \"share\"";
            return Err(Fault::new("mode", word, reason));
        }
        let known = Self::ALL.into_iter().find(|mode| mode.name() == word);
        known.ok_or_else(|| {
            let reason = "must be \"disabled\", \"local\", \"global\", \
                          \"local-shadow-global\" or \"global-shadow-local\"";
            Fault::new("mode", word, reason)
        })
    }
}

impl Guarantee {
    /// Its name, as policy files have it: `eventual`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Eventual => "eventual",
            Self::Tally => "tally",
            Self::Share => "share",
        }
    }

    /// The guarantee of a limit as written, and that no field of it belongs to another.
    pub(crate) fn parse(spec: &LimitSpec<'_>) -> Result<Self, Fault> {
        let guarantee = match spec.guarantee {
            "local" => Self::Local,
            "eventual" => Self::Eventual,
            "tally" => Self::Tally,
            "share" => Self::Share,
            "strict" => {
                let reason = "this version keeps only \"local\", \"eventual\", \"share\" and \
                              \"tally\"";
                return Err(Fault::new("guarantee", spec.guarantee, reason));
            }
            _ => {
                let reason = "must be \"local\", \"eventual\", \"share\" or \"tally\"";
                return Err(Fault::new("guarantee", spec.guarantee, reason));
            }
        };
        match (spec.on_stale, guarantee) {
            (None, _) | (Some("deny"), Self::Eventual) | (Some("share"), Self::Share) => {}
            (Some(word), Self::Share) => {
                let reason = "a node that hears nothing enforces its part: must be \"share\"";
                return Err(Fault::new("on_stale", word, reason));
            }
            (Some("deny" | "share" | "allow"), Self::Tally) => {}
            (Some(word), Self::Tally) => {
                let reason = "must be \"allow\", \"share\" or \"deny\"";
                return Err(Fault::new("on_stale", word, reason));
            }
            (Some(word), Self::Local) => {
                let reason = "has a meaning only with guarantee = \"eventual\" or \"tally\"";
                return Err(Fault::new("on_stale", word, reason));
            }
            (Some(word @ ("share" | "allow")), Self::Eventual) => {
                let reason = "this version keeps only \"deny\"";
                return Err(Fault::new("on_stale", word, reason));
            }
            (Some(word), Self::Eventual) => {
                return Err(Fault::new("on_stale", word, "must be \"deny\""));
            }
        }
        if guarantee == Self::Tally && spec.oversize == Oversize::Pace {
            let reason =
                "a cost above the threshold never passes with \"tally\": must be \"never\"";
            return Err(Fault::new("oversize", "pace", reason));
        }
        if guarantee == Self::Share && spec.oversize == Oversize::Pace {
            let reason = "a cost above the burst never passes with \"share\": must be \"never\"";
            return Err(Fault::new("oversize", "pace", reason));
        }
        if let (Some(word), Self::Local | Self::Eventual | Self::Share) = (spec.count, guarantee) {
            let reason = "has a meaning only with guarantee = \"tally\"";
            return Err(Fault::new("count", word, reason));
        }
        if guarantee == Self::Eventual && spec.oversize == Oversize::Pace {
            let reason = "a fleet permits at most the burst at once, so that with \"eventual\" a \
                          cost above it never passes: must be \"never\"";
            return Err(Fault::new("oversize", "pace", reason));
        }
        Ok(guarantee)
    }
}

/// How the workers of a fleet share one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sharing {
    /// b: the most units that one worker may hold, unless a single cost is above it.
    pub(crate) local_cap: u64,
    /// Units that a worker may spend before it has heard of the key's owner.
    pub(crate) bootstrap: u64,
}

impl Sharing {
    /// How a key with this allowance is shared, if it is shared and metered.
    pub(crate) fn parse(
        guarantee: Guarantee,
        allowance: Allowance,
        local_cap: Option<u64>,
        bootstrap: Option<u64>,
    ) -> Result<Option<Self>, Fault> {
        let written = local_cap.map(|cap| ("local_cap", cap));
        let written = written.or(bootstrap.map(|units| ("bootstrap", units)));
        let without = |reason| match written {
            Some((field, value)) => Err(Fault::new(field, value, reason)),
            None => Ok(None),
        };
        let (rate, burst) = match (guarantee, allowance) {
            (Guarantee::Local | Guarantee::Tally | Guarantee::Share, _) => {
                return without(ONLY_EVENTUAL);
            }
            (Guarantee::Eventual, Allowance::Unlimited) => return without(UNLIMITED),
            (Guarantee::Eventual, Allowance::Metered { rate, burst }) => (rate, burst),
        };
        let local_cap = match local_cap {
            None => default_cap(rate, burst, HOT_TTL),
            Some(cap) if (1..=burst).contains(&cap) => cap,
            Some(cap) => {
                let reason = format!("must be 1 to the burst, which is {burst}");
                return Err(Fault::new("local_cap", cap, reason));
            }
        };
        let bootstrap = bootstrap.unwrap_or(0);
        if bootstrap > local_cap {
            // A worker would begin with more than it may ever hold.
            let reason = format!("must be at most the local cap, which is {local_cap}");
            return Err(Fault::new("bootstrap", bootstrap, reason));
        }
        Ok(Some(Self { local_cap, bootstrap }))
    }
}

/// Refuses an allowance that nodes cannot divide.
pub(crate) fn check_divided(guarantee: Guarantee, allowance: Allowance) -> Result<(), Fault> {
    match allowance {
        Allowance::Metered { burst, .. } if guarantee == Guarantee::Share && burst > BURST_MAX => {
            Err(Fault::new("burst", burst, "must be at most 2^40 with \"share\""))
        }
        Allowance::Metered { .. } | Allowance::Unlimited => Ok(()),
    }
}

/// How a key is counted in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) meets: Meets,
    pub(crate) on_stale: OnStale,
}

impl Counts {
    /// How a limit's keys are counted, if they are.
    pub(crate) fn parse(guarantee: Guarantee, spec: &LimitSpec<'_>) -> Result<Option<Self>, Fault> {
        if guarantee != Guarantee::Tally {
            return Ok(None);
        }
        let meets = match spec.count {
            None | Some("admitted") => Meets::Passes,
            Some("offered") => Meets::IsLimited,
            Some(word) => {
                let reason = "must be \"admitted\" or \"offered\"";
                return Err(Fault::new("count", word, reason));
            }
        };
        let on_stale = match spec.on_stale {
            Some("share") => OnStale::Share,
            Some("deny") => OnStale::Deny,
            _ => OnStale::Allow,
        };
        Ok(Some(Self { meets, on_stale }))
    }

    /// The windows of an allowance: its rate's period; none if it is unlimited, or nothing passes.
    pub(crate) fn window(self, allowance: Allowance) -> Option<Window> {
        let Allowance::Metered { rate, .. } = allowance else { return None };
        let length = Duration::from_nanos(rate.period_ns());
        Window::new(rate.units(), length, self.meets).ok()
    }

    /// Refuses an allowance that has no windows, or other ones than the limit's.
    pub(crate) fn check(self, allowance: Allowance, of_limit: Allowance) -> Result<(), Fault> {
        let Allowance::Metered { rate, burst } = allowance else { return Ok(()) };
        if rate == Rate::ZERO {
            return Ok(());
        }
        let refuse = |reason: String| Err(Fault::new("rate", rate, reason));
        if burst != rate.units() {
            let reason =
                format!("a window has what its rate says at once: must be {}", rate.units());
            return Err(Fault::new("burst", burst, reason));
        }
        if rate.units() > THRESHOLD_MAX {
            return refuse("must be at most 2^50 in a window with \"tally\"".into());
        }
        let length = Duration::from_nanos(rate.period_ns());
        if let Err(error) = Window::new(rate.units(), length, self.meets) {
            return refuse(error.to_string());
        }
        match of_limit {
            Allowance::Metered { rate: other, .. }
                if other != Rate::ZERO && other.period_ns() != rate.period_ns() =>
            {
                let length = Duration::from_nanos(other.period_ns());
                refuse(format!("must be for each {length:?}, as the limit's own: its windows"))
            }
            Allowance::Metered { .. } | Allowance::Unlimited => Ok(()),
        }
    }
}

/// min(B, max(1, ⌈2·R·TTL⌉)): what lasts a worker with all of the traffic until the next permission
/// but one.
pub(crate) fn default_cap(rate: Rate, burst: u64, ttl: Duration) -> u64 {
    let units = 2 * u128::from(rate.units()) * ttl.as_nanos();
    let whole = units.div_ceil(u128::from(rate.period_ns()));
    u64::try_from(whole).unwrap_or(u64::MAX).max(1).min(burst)
}

const ONLY_EVENTUAL: &str = "has a meaning only with guarantee = \"eventual\"";
/// So that the units of a key last for thousands of windows.
const THRESHOLD_MAX: u64 = 1 << 50;
/// So that a burst has small parts.
const BURST_MAX: u64 = 1 << 40;
const UNLIMITED: &str = "has no meaning with rate \"unlimited\"";
/// How long a permission of a busy key lasts: four reports, one each 5 ms.
const HOT_TTL: Duration = Duration::from_millis(20);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::spec::OverrideSpec;

    #[test]
    fn an_override_is_shared_by_its_own_rate_and_nothing_carries_over() {
        let acme = OverrideSpec { key: &[("t", "acme")], rate: "50000/s", ..OverrideSpec::DEFAULT };
        let given = OverrideSpec { local_cap: Some(7), bootstrap: Some(3), ..acme };
        let given = OverrideSpec { key: &[("t", "given")], ..given };
        let free = OverrideSpec { key: &[("t", "free")], rate: "unlimited", ..acme };
        let closed = OverrideSpec { key: &[("t", "closed")], rate: "zero", ..acme };
        let limit = Limit::parse(&LimitSpec {
            name: "api",
            key: &["t"],
            rate: "5000/s",
            guarantee: "eventual",
            local_cap: Some(100),
            bootstrap: Some(10),
            overrides: &[acme, given, free, closed],
            ..LimitSpec::DEFAULT
        })
        .expect("sound");
        let shared: Vec<Option<(u64, u64)>> = limit
            .overrides()
            .iter()
            .map(|one| one.sharing.map(|sharing| (sharing.local_cap, sharing.bootstrap)))
            .collect();
        // 2 x 50,000/s x 20 ms
        assert_eq!(shared, [Some((2_000, 0)), Some((7, 3)), None, Some((0, 0))]);
    }

    #[test]
    fn the_fastest_rate_has_a_default_too() {
        let rate = Rate::parse("1000000000000/s").expect("a rate");
        assert_eq!(default_cap(rate, u64::MAX, HOT_TTL), 40_000_000_000);
        let most = Rate::new(u64::MAX, 365 * 86_400_000_000_000).expect("a rate");
        assert!(default_cap(most, u64::MAX, HOT_TTL) > 1);
    }
}
