//! What is wrong with a limit in its fleet, and what to change.
//!
//! Nothing here stops a limit from being used: each warning is about what its owner would be
//! surprised by.

use std::fmt;
use std::time::Duration;

use super::Inputs;
use crate::number::{duration, number};

/// One thing to change. Its text says what, why, and to what.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Warning {
    /// A request of the largest cost never passes.
    CostAboveBurst {
        /// c
        largest_cost: u64,
        /// B
        burst: u64,
    },
    /// A request of the largest cost needs a permission of its own.
    LocalCapBelowCost {
        /// b
        local_cap: u64,
        /// c
        largest_cost: u64,
    },
    /// A worker that has all the traffic can't use the whole rate.
    LocalCapSmall {
        /// b
        local_cap: u64,
        /// The least b that would do.
        least: u64,
        /// From a report to its answer.
        round_trip: Duration,
        /// The part of the rate, 0 to 1, that such a worker reaches.
        share: f64,
    },
    /// The rate brings more in a round trip than may be out at once.
    BurstSmall {
        /// B
        burst: u64,
        /// The least B that would do.
        least: u64,
        /// From a report to its answer.
        round_trip: Duration,
    },
    /// There are fewer units than workers to hold them.
    FleetLarge {
        /// N
        workers: u64,
        /// B
        burst: u64,
        /// What the rate brings in `ttl_max`, rounded down.
        brings: u64,
        /// The longest that a permission lasts.
        ttl_max: Duration,
    },
    /// A permission ends before the next one comes.
    PermissionsEnd {
        /// How long one lasts, from when its report was sent.
        ttl: Duration,
        /// When the next one comes, from then.
        next: Duration,
        /// The least sync interval that would do.
        least_interval: Duration,
        /// The longest that a permission lasts.
        ttl_max: Duration,
    },
    /// A permission may outlive its owner's session.
    TtlMaxLong {
        /// The longest that a permission lasts.
        ttl_max: Duration,
        /// How long a node may be silent.
        session_timeout: Duration,
    },
}

/// Everything that should be changed about this limit or its fleet, the gravest first.
///
/// With 5,000/s, a burst of 10,000, 20 workers, 1 ms and b = 10 there is one: a worker that has all
/// the traffic reaches 10 / 22.5 = 44 % of the rate.
#[must_use]
pub fn warnings(inputs: &Inputs) -> Vec<Warning> {
    let &Inputs { burst, workers, largest_cost, ttl_max, session_timeout, .. } = inputs;
    let (ttl, round_trip, local_cap) = (inputs.ttl(), inputs.round_trip(), inputs.local_cap());
    let needed = inputs.brings(round_trip);
    let brings = inputs.brings_whole(ttl_max);
    let next = round_trip.saturating_add(inputs.sync_interval);
    let share = inputs.hot_worker_share(local_cap);
    let all = [
        (ttl_max >= session_timeout).then_some(Warning::TtlMaxLong { ttl_max, session_timeout }),
        (largest_cost > burst).then_some(Warning::CostAboveBurst { largest_cost, burst }),
        (next > ttl).then(|| Warning::PermissionsEnd {
            ttl,
            next,
            least_interval: least_interval(inputs.delay),
            ttl_max,
        }),
        (burst < needed).then_some(Warning::BurstSmall { burst, least: needed, round_trip }),
        // A cap at the burst is as large as it can be.
        (local_cap < needed.min(burst)).then(|| {
            let least = inputs.least_local_cap().min(burst);
            Warning::LocalCapSmall { local_cap, least, round_trip, share }
        }),
        (needed <= local_cap && local_cap < largest_cost && largest_cost <= burst)
            .then_some(Warning::LocalCapBelowCost { local_cap, largest_cost }),
        (brings < workers || burst < workers).then_some(Warning::FleetLarge {
            workers,
            burst,
            brings,
            ttl_max,
        }),
    ];
    all.into_iter().flatten().collect()
}

/// The least interval i with 2d + i/2 + i <= 4i, which is 0.8 d, in whole milliseconds.
fn least_interval(delay: Duration) -> Duration {
    let millis = delay.as_nanos().saturating_mul(8).div_ceil(10_000_000);
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = |units: u64| number(units as f64);
        match *self {
            Self::CostAboveBurst { largest_cost, burst } => write!(
                f,
                "a cost of {} never passes a burst of {}: raise burst, split such requests, or set \
                 oversize = \"pace\"",
                n(largest_cost),
                n(burst)
            ),
            Self::LocalCapBelowCost { local_cap, largest_cost } => write!(
                f,
                "local_cap = {local_cap} is below the largest cost: each such request waits for a \
                 permission of its own; set local_cap to {largest_cost} or more"
            ),
            Self::LocalCapSmall { local_cap, least, round_trip, share } => write!(
                f,
                "local_cap = {local_cap} is less than the rate brings in a round trip of {}: a \
                 worker that has all the traffic reaches {} of the rate; set local_cap to {least} \
                 or more",
                duration(round_trip),
                percent(share)
            ),
            Self::BurstSmall { burst, least, round_trip } => write!(
                f,
                "burst = {burst} is less than the rate brings in a round trip of {}: the rate \
                 cannot be used in full; set burst to {least} or more, or bring workers nearer",
                duration(round_trip)
            ),
            Self::FleetLarge { workers, burst, brings, ttl_max } => {
                let few = if burst < workers {
                    format!("a burst of {}", n(burst))
                } else {
                    format!("a rate that brings {} in ttl_max ({})", n(brings), duration(ttl_max))
                };
                let raise = if burst < workers {
                    format!(", or set burst to {workers} or more")
                } else {
                    String::new()
                };
                write!(
                    f,
                    "{few} is little for {} workers: units wait on workers that do not need them; \
                     let callers wait, or send its requests to fewer workers{raise}",
                    n(workers)
                )
            }
            Self::PermissionsEnd { ttl, next, least_interval, ttl_max } => {
                let (ttl, next) = (duration(ttl), duration(next));
                write!(f, "a permission lasts {ttl} and the next comes after {next}: ")?;
                f.write_str("workers deny in between; ")?;
                if least_interval <= ttl_max / 4 {
                    let least = duration(least_interval);
                    return write!(f, "set the sync interval to {least} or more");
                }
                let nearest = duration(ttl_max / 16 * 5);
                write!(f, "bring workers within {nearest} of each other, one way")
            }
            Self::TtlMaxLong { ttl_max, session_timeout } => write!(
                f,
                "ttl_max of {} is not below the session timeout of {}: a permission could outlive \
                 its owner; lower ttl_max",
                duration(ttl_max),
                duration(session_timeout)
            ),
        }
    }
}

/// A part of the whole, rounded down: what is not reached is not said to be.
fn percent(share: f64) -> String {
    format!("{} %", number((share * 100.0).floor()))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{example, inputs};
    use super::*;

    fn texts(inputs: &Inputs) -> Vec<String> {
        warnings(inputs).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_sound_limit_has_no_warnings() {
        assert_eq!(warnings(&example()), []);
        // At the edges: 20 workers, 20 units, 20 in ttl_max (50/s x 0.4 s).
        assert_eq!(warnings(&inputs("50/s", 20, 20, 1_000)), []);
    }

    #[test]
    fn a_local_cap_below_the_round_trip_names_the_least_that_would_do() {
        let small = Inputs { local_cap: Some(10), ..example() };
        let told = "local_cap = 10 is less than the rate brings in a round trip of 4.5 ms: a \
                    worker that has all the traffic reaches 44 % of the rate; set local_cap to 23 \
                    or more";
        assert_eq!(texts(&small), [told]);
        assert_eq!(warnings(&Inputs { local_cap: Some(22), ..example() }).len(), 1);
        assert_eq!(warnings(&Inputs { local_cap: Some(23), ..example() }), []);
    }

    #[test]
    fn a_local_cap_below_the_cost_makes_requests_wait() {
        let small = Inputs { local_cap: Some(50), largest_cost: 64, ..example() };
        let told = texts(&small);
        assert!(told[0].ends_with("set local_cap to 64 or more") && told.len() == 1, "{told:?}");
        assert_eq!(warnings(&Inputs { local_cap: Some(64), ..small }), []);
    }

    #[test]
    fn a_burst_below_the_round_trip_is_one_warning_and_not_two() {
        let small = inputs("5000/s", 22, 20, 1_000);
        let told = texts(&small);
        assert!(told[0].contains("set burst to 23 or more") && told.len() == 1, "{told:?}");
        assert_eq!(warnings(&Inputs { burst: 23, ..small }), []);
    }

    #[test]
    fn a_limit_with_fewer_units_than_workers_is_too_small_to_share() {
        // 49/s x 0.4 s = 19.6
        let told = texts(&inputs("49/s", 20, 20, 1_000));
        assert!(told[0].starts_with("a rate that brings 19 in ttl_max (400 ms) is little for 20"));
        let told = texts(&inputs("5000/s", 25, 26, 1_000));
        assert!(told[0].starts_with("a burst of 25 is little for 26 workers"), "{told:?}");
        assert!(told[0].ends_with("set burst to 26 or more"), "{told:?}");
    }

    #[test]
    fn a_cost_above_the_burst_never_passes() {
        let told = texts(&Inputs { largest_cost: 10_001, ..example() });
        assert!(told[0].starts_with("a cost of 10,001 never passes a burst of 10,000: "));
        assert_eq!(warnings(&Inputs { largest_cost: 10_000, ..example() }).len(), 1);
    }

    #[test]
    fn permissions_that_end_too_early_name_the_interval_that_would_do() {
        // 2 x 50 ms + 2.5 ms + 5 ms, and a TTL of 20 ms; 0.8 x 50 ms = 40 ms.
        let far = inputs("100/s", 100, 4, 50_000);
        let told = texts(&far);
        let expected = "a permission lasts 20 ms and the next comes after 107.5 ms: workers deny \
                        in between; set the sync interval to 40 ms or more";
        assert_eq!(told[0], expected);
        let better = Inputs { sync_interval: Duration::from_millis(40), ..far };
        assert_eq!(warnings(&better), []);
        // No interval would do: TTL is at most 400 ms, and 400 ms x 5 / 16 = 125 ms.
        let told = texts(&inputs("100/s", 100, 4, 126_000));
        assert!(told[0].ends_with("bring workers within 125 ms of each other, one way"));
    }

    #[test]
    fn a_permission_must_not_outlive_the_session_of_its_owner() {
        let long = Inputs { ttl_max: Duration::from_millis(1_700), ..example() };
        let told = texts(&long);
        assert!(told[0].starts_with("ttl_max of 1.7 s is not below the session timeout of 1.7 s"));
    }
}
