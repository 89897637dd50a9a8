//! Warnings about limits that a fleet shares: what such a limit cannot do in its fleet, and what to
//! change to which number.
//!
//! The arithmetic is `tollgate_sim::plan`; this file finds the places. How large the fleet is, and
//! how far apart its nodes are, is not in the policy: whoever knows says so.

use std::time::Duration;

use tollgate::{Allowance, Guarantee, Limit, Rate};
use tollgate_sim::plan::{Inputs, SESSION_TIMEOUT, SYNC_INTERVAL, TTL_MAX, Warning, warnings};

use super::draft::Places;
use super::finding::{Findings, Place};
use super::set::Checked;

/// The fleet that is to share the limits, as far as it is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fleet {
    /// The processes that decide; none if nobody said how many, or that there are others.
    pub workers: Option<u64>,
    /// What a message takes from one to another, one way.
    pub delay: Duration,
    /// How often a worker reports a key that is near its limit.
    pub interval: Duration,
    /// The longest that a permission lasts.
    pub ttl_max: Duration,
    /// How long a node may be silent before it counts as gone.
    pub session_timeout: Duration,
}

impl Fleet {
    /// A fleet of unknown size within a site, all else as the product has it.
    pub(crate) const USUAL: Self = Self {
        workers: None,
        delay: Duration::from_millis(1),
        interval: SYNC_INTERVAL,
        ttl_max: TTL_MAX,
        session_timeout: SESSION_TIMEOUT,
    };

    /// The number of workers, if there is anything to share.
    fn sharers(&self) -> Option<u64> {
        self.workers.filter(|workers| *workers > 1)
    }

    fn inputs(&self, rate: Rate, burst: u64, local_cap: u64) -> Inputs {
        Inputs {
            local_cap: Some(local_cap),
            sync_interval: self.interval,
            ttl_max: self.ttl_max,
            session_timeout: self.session_timeout,
            ..Inputs::new(rate, burst, self.workers.unwrap_or(1), self.delay)
        }
    }
}

/// Reports what limits with the guarantee `eventual` cannot do in their fleet.
pub(super) fn lint(checked: &[Checked], fleet: &Fleet, findings: &mut Findings<'_>) {
    let shared = checked.iter().filter(|one| one.limit.guarantee() == Guarantee::Eventual);
    let mut of_fleet: Vec<Warning> = Vec::new();
    for Checked { draft, limit } in shared {
        let subject = format!("limit {:?}: ", draft.name);
        for warning in of_limit(limit, fleet) {
            let Some(place) = place_of(&warning, &draft.places) else {
                // The same for all limits: told once, where the first of them asks for a fleet.
                if !of_fleet.contains(&warning) {
                    findings.warning(draft.places.of("guarantee"), warning.to_string());
                    of_fleet.push(warning);
                }
                continue;
            };
            findings.warning(place, format!("{subject}{warning}"));
        }
        for written in &draft.overrides {
            let Some(alone) = written.allowance.alone(&draft.guarantee) else { continue };
            for warning in of_limit(&alone, fleet) {
                let Some(place) = place_of(&warning, &written.places) else { continue };
                findings.warning(place, format!("{subject}in this override, {warning}"));
            }
        }
    }
}

/// What is wrong with one limit in this fleet; with one that is not metered nothing can be.
fn of_limit(limit: &Limit, fleet: &Fleet) -> Vec<Warning> {
    let (Allowance::Metered { rate, burst }, Some(local_cap)) =
        (limit.allowance(), limit.local_cap())
    else {
        return Vec::new();
    };
    let mut all = warnings(&fleet.inputs(rate, burst, local_cap));
    all.retain(|warning| match warning {
        Warning::FleetLarge { .. } => burst > 0 && fleet.sharers().is_some(),
        // What requests cost is not known here.
        Warning::CostAboveBurst { .. } | Warning::LocalCapBelowCost { .. } => false,
        Warning::LocalCapSmall { .. }
        | Warning::BurstSmall { .. }
        | Warning::PermissionsEnd { .. }
        | Warning::TtlMaxLong { .. } => true,
    });
    all
}

/// Where the field stands that a warning is about; none if it is about the fleet.
fn place_of(warning: &Warning, places: &Places) -> Option<Place> {
    let written = |field: &str| places.fields.iter().any(|(name, _)| *name == field);
    // A burst that is not written is that of the rate.
    let burst = ["burst", "burst_ratio"].into_iter().find(|field| written(field));
    let burst = burst.unwrap_or("rate");
    match *warning {
        Warning::TtlMaxLong { .. } | Warning::PermissionsEnd { .. } => None,
        Warning::LocalCapSmall { .. } | Warning::LocalCapBelowCost { .. } => {
            Some(places.of("local_cap"))
        }
        Warning::FleetLarge { burst: units, workers, .. } if units >= workers => {
            Some(places.of("rate"))
        }
        Warning::BurstSmall { .. }
        | Warning::CostAboveBurst { .. }
        | Warning::FleetLarge { .. } => Some(places.of(burst)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{READING, found, parsed_files, shown};
    use super::super::{Loaded, Reading};
    use super::*;

    const TWENTY: Fleet = Fleet { workers: Some(20), ..Fleet::USUAL };

    fn limit(name: &str, rate: &str, fields: &str) -> String {
        format!(
            "[[limit]]\nname = \"{name}\"\nrate = \"{rate}\"\nkey = [\"t\"]\n\
             guarantee = \"eventual\"\n{fields}\n"
        )
    }

    fn loaded(text: &str, fleet: Fleet) -> Loaded {
        let reading = Reading { fleet, ..READING };
        parsed_files(&[("1.toml", text)], reading).expect("a sound file")
    }

    /// What a fleet is warned of.
    fn warned(text: &str, fleet: Fleet) -> Vec<String> {
        shown(&loaded(text, fleet).warnings)
    }

    #[test]
    fn a_sound_limit_has_no_warnings_in_its_fleet() {
        assert!(warned(&limit("a", "5000/s", "burst = 10000"), TWENTY).is_empty());
        // At the edges: 23 of 22.5 in a round trip, 20 units, 20 in ttl_max (50/s x 0.4 s).
        assert!(warned(&limit("a", "5000/s", "burst = 23\nlocal_cap = 23"), TWENTY).is_empty());
        assert!(warned(&limit("a", "50/s", "burst = 20"), TWENTY).is_empty());
        for rate in ["unlimited", "zero"] {
            let text = limit("a", rate, "[[limit.override]]\nkey = { t = \"x\" }\nrate = \"50/s\"");
            assert!(warned(&text, TWENTY).is_empty(), "{rate}");
        }
    }

    #[test]
    fn a_local_cap_below_a_round_trip_is_told_without_a_fleet_at_its_place() {
        let text = limit("a", "5000/s", "burst = 10000\nlocal_cap = 10");
        let expected = "1.toml:7:13: warning: limit \"a\": local_cap = 10 is less than the rate \
                        brings in a round trip of 4.5 ms: a worker that has all the traffic \
                        reaches 44 % of the rate; set local_cap to 23 or more";
        assert_eq!(found(&text), [expected]);
        assert_eq!(warned(&text, TWENTY), [expected]);
        // Half of 1 ms is 500 us: 2 x 0.5 ms + 2.5 ms = 3.5 ms, in which 17.5 come.
        let near = Fleet { delay: Duration::from_micros(500), ..TWENTY };
        assert!(warned(&text, near)[0].ends_with("set local_cap to 18 or more"));
        let given = |units: u64| text.replace("= 10\n", &format!("= {units}\n"));
        assert!(warned(&given(18), near).is_empty());
        assert_eq!(warned(&given(17), near).len(), 1);
        // One that is not written stands where its limit does.
        let far = Fleet { delay: Duration::from_millis(50), ..Fleet::USUAL };
        let far = Fleet { interval: Duration::from_millis(40), ..far };
        let told = warned(&limit("a", "5000/s", "burst = 10000"), far);
        assert!(told[0].starts_with("1.toml:1:1: warning: limit \"a\": local_cap = 200 is less"));
        assert!(told[0].ends_with("set local_cap to 600 or more") && told.len() == 1, "{told:?}");
    }

    #[test]
    fn a_burst_below_a_round_trip_is_told_where_it_comes_from() {
        let told = |fields: &str| found(&limit("a", "5000/s", fields));
        let expected = "1.toml:6:9: warning: limit \"a\": burst = 22 is less than the rate brings \
                        in a round trip of 4.5 ms: the rate cannot be used in full; set burst to \
                        23 or more, or bring workers nearer";
        assert_eq!(told("burst = 22"), [expected]);
        assert!(told("burst = 23").is_empty());
        assert!(
            told("burst_ratio = 0.004")[0].starts_with("1.toml:6:15: warning: limit \"a\": burst")
        );
        let of_rate = found(&limit("a", "3/ms", ""));
        assert!(of_rate[0].starts_with("1.toml:3:8: warning: limit \"a\": burst = 3 is less"));
        // A limit of a node has nothing to wait for.
        assert!(found(&limit("a", "3/ms", "").replace("eventual", "local")).is_empty());
    }

    #[test]
    fn a_limit_too_small_for_its_fleet_is_told_only_of_a_fleet_that_is_known() {
        let slow = limit("a", "49/s", "burst = 20");
        let expected = "1.toml:3:8: warning: limit \"a\": a rate that brings 19 in ttl_max (400 \
                        ms) is little for 20 workers: units wait on workers that do not need them; \
                        let callers wait, or send its requests to at most 19 workers";
        assert_eq!(warned(&slow, TWENTY), [expected]);
        assert!(found(&slow).is_empty());
        assert!(warned(&slow, Fleet { workers: Some(1), ..TWENTY }).is_empty());
        let small =
            warned(&limit("a", "5000/s", "burst = 25"), Fleet { workers: Some(26), ..TWENTY });
        assert!(small[0].starts_with("1.toml:6:9: warning: limit \"a\": a burst of 25 is little"));
        assert!(small[0].ends_with("or set burst to 26 or more"), "{small:?}");
    }

    #[test]
    fn an_override_is_warned_of_by_its_own_rate_at_its_own_place() {
        let text = "burst = 10000\n[[limit.override]]\nkey = { t = \"x\" }\nrate = \"50000/s\"\n\
                    burst = 20000\nlocal_cap = 224\n\
                    [[limit.override]]\nkey = { t = \"y\" }\nrate = \"10/min\"\n";
        let told = warned(&limit("a", "5000/s", text), TWENTY);
        let cap =
            "1.toml:11:13: warning: limit \"a\": in this override, local_cap = 224 is less than";
        let fleet =
            "1.toml:14:8: warning: limit \"a\": in this override, a burst of 10 is little for";
        assert!(told[0].starts_with(cap), "{told:?}");
        assert!(told[0].ends_with("set local_cap to 225 or more"), "{told:?}");
        assert!(told[1].starts_with(fleet) && told.len() == 2, "{told:?}");
    }

    #[test]
    fn what_is_wrong_with_the_fleet_is_told_once() {
        let text = limit("a", "100/s", "") + &limit("b", "200/s", "domain = \"d\"");
        let long = Fleet { ttl_max: Duration::from_millis(1_700), ..Fleet::USUAL };
        let expected = "1.toml:5:13: warning: ttl_max of 1.7 s is not below the session timeout of \
                        1.7 s: a permission could outlive its owner; set ttl_max to less than \
                        1.7 s";
        assert_eq!(warned(&text, long), [expected]);
        let far = Fleet { delay: Duration::from_millis(10), ..Fleet::USUAL };
        let told = warned(&text, far);
        assert!(told[0].starts_with("1.toml:5:13: warning: a permission lasts 20 ms and the next"));
        assert!(told[0].ends_with("set the sync interval to 8 ms or more") && told.len() == 1);
        let better = Fleet { interval: Duration::from_millis(8), ..far };
        assert!(warned(&text, better).is_empty());
        // No limit asks for a fleet.
        let local = text.replace("eventual", "local");
        assert!(warned(&local, long).is_empty());
    }

    #[test]
    fn limits_and_plans_agree_on_the_local_cap() {
        for (rate, burst) in [("5000/s", 10_000), ("5001/s", 10_000), ("1/h", 100), ("9/ms", 50)] {
            let limits = loaded(&limit("a", rate, &format!("burst = {burst}")), TWENTY).limits;
            let rate = Rate::parse(rate).expect("a rate");
            let plan = Inputs::new(rate, burst, 20, Duration::from_millis(1));
            assert_eq!(limits[0].local_cap(), Some(plan.local_cap()), "{rate}");
        }
    }
}
