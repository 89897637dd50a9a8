//! What `/metrics` says of limits with the guarantee `share`: what this node has of them, and what
//! it did as an owner of their keys.
//!
//! Labels are names of limits, never of keys or streams.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use tollgate::{LimitStatus, ShareLimitStatus};

use super::{Family, counter, gauge};
use crate::shares::ShareStatus;

/// Shows what is divided; nothing if no limit in force is.
pub(super) fn encode(
    status: &ShareStatus,
    limits: &[LimitStatus],
    encoder: &mut DescriptorEncoder,
) -> fmt::Result {
    let of = |limit: &LimitStatus| status.limits.get(&limit.divided?.0).copied();
    let divided = limits.iter().filter(|limit| limit.divided.is_some());
    let all: Vec<(&LimitStatus, ShareLimitStatus)> =
        divided.map(|limit| (limit, of(limit).unwrap_or_default())).collect();
    if all.is_empty() {
        return Ok(());
    }
    modes(&all, encoder)?;
    members(&all, encoder)?;
    units(&all, encoder)?;
    owner(status, encoder)
}

fn modes(all: &[(&LimitStatus, ShareLimitStatus)], encoder: &mut DescriptorEncoder) -> fmt::Result {
    let mut modes = Family(Vec::new());
    for (LimitStatus { limit, .. }, _) in all {
        let mode = limit.share_mode().unwrap_or_default().name();
        let [domain, limit] = [("domain", limit.domain()), ("limit", limit.name())];
        modes.add(&[domain, limit, ("mode", mode)], 1);
    }
    gauge(encoder, "tollgate_share_mode", "1 for what decides about a limit's keys", modes)
}

fn members(
    all: &[(&LimitStatus, ShareLimitStatus)],
    encoder: &mut DescriptorEncoder,
) -> fmt::Result {
    let mut members = Family(Vec::new());
    for (LimitStatus { limit, .. }, of) in all {
        let [domain, limit] = [("domain", limit.domain()), ("limit", limit.name())];
        for (phase, number) in
            [("startup", of.starting), ("normal", of.sharing), ("failing", of.failing)]
        {
            members.add(&[domain, limit, ("phase", phase)], number);
        }
    }
    let help = "Keys of each limit that have a cell here, and streams of them: given nothing yet, \
                given a rate, and given one that is too old to rely on";
    gauge(encoder, "tollgate_share_members", help, members)?;
    let help = "Units a second that owners gave members here, over all keys; with the modes global \
                and global-shadow-local that is what they enforce";
    let kind = MetricType::Gauge;
    let mut rates = encoder.encode_descriptor("tollgate_share_rate", help, None, kind)?;
    for (LimitStatus { limit, .. }, of) in all {
        let labels = [("domain", limit.domain()), ("limit", limit.name())];
        rates.encode_family(&labels)?.encode_gauge(&of.rate)?;
    }
    Ok(())
}

fn units(all: &[(&LimitStatus, ShareLimitStatus)], encoder: &mut DescriptorEncoder) -> fmt::Result {
    let family = |value: fn(&ShareLimitStatus) -> u64| {
        let mut family = Family(Vec::new());
        for (LimitStatus { limit, .. }, of) in all {
            let labels = [("domain", limit.domain()), ("limit", limit.name())];
            family.add(&labels, value(of));
        }
        family
    };
    let help = "Units that were allowed here, by streams too";
    counter(encoder, "tollgate_share_allowed", help, family(|of| of.allowed))?;
    let help = "Units that were denied here, by streams too";
    counter(encoder, "tollgate_share_denied", help, family(|of| of.denied))?;
    let help = "Units that were allowed and that the other bucket would have denied: an equal part \
                where the owner's rate decides (global, global-shadow-local), else the owner's";
    counter(encoder, "tollgate_share_other_denied", help, family(|of| of.other_denied))?;
    let help = "Units that were denied and that the other bucket would have allowed: an equal part \
                where the owner's rate decides (global, global-shadow-local), else the owner's";
    counter(encoder, "tollgate_share_other_allowed", help, family(|of| of.other_allowed))
}

fn owner(status: &ShareStatus, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let (counts, of) = (&status.counts, &status.counts.division);
    let one = Family::one;
    let help = "Keys that this node divides as their owner";
    gauge(encoder, "tollgate_share_divided_keys", help, one(counts.divided))?;
    let help = "Reports of members that this node took in as an owner";
    counter(encoder, "tollgate_share_reports", help, one(of.reports))?;
    let help =
        "Of those reports the ones with which a member was heard for the first time, or again";
    counter(encoder, "tollgate_share_reports_first", help, one(of.begun))?;
    let two = |label, kinds: [(&'static str, u64); 2]| {
        let mut family = Family(Vec::new());
        kinds.into_iter().for_each(|(kind, number)| family.add(&[(label, kind)], number));
        family
    };
    let answers = two("kind", [("asked", of.answered), ("pushed", of.pushed)]);
    let help = "Rates that were given: in answer to a report, or since much had changed";
    counter(encoder, "tollgate_share_answers", help, answers)?;
    let averages = two("kind", [("updated", of.updated), ("decayed", of.decayed)]);
    let help = "Averages of demand that took a sample in, and those of them that had decayed";
    counter(encoder, "tollgate_share_averages", help, averages)?;
    let forgotten = two("what", [("member", of.members_forgotten), ("key", of.keys_forgotten)]);
    let help = "Members and keys that an owner forgot, nothing having been heard of them";
    counter(encoder, "tollgate_share_forgotten", help, forgotten)?;
    let help = "Answers of owners that could not be true, and were thrown away";
    counter(encoder, "tollgate_share_insane", help, one(counts.insane))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use tollgate::{DivisionCounts, FleetLimitId, NodeCounts};

    use super::*;
    use crate::app::App;

    fn shown(limit: &str) -> String {
        let of = ShareLimitStatus {
            starting: 1,
            sharing: 2,
            failing: 3,
            keys: 4,
            rate: 12.5,
            allowed: 100,
            denied: 10,
            other_denied: 7,
            other_allowed: 5,
        };
        let division = DivisionCounts { reports: 9, begun: 2, pushed: 4, ..Default::default() };
        let counts = NodeCounts { division, divided: 6, insane: 1, ..Default::default() };
        let limits = BTreeMap::from([(FleetLimitId(4), of), (FleetLimitId(5), of)]);
        let status = ShareStatus { counts, limits, nodes: 1, keys: None };
        let shares = Some(Arc::new(move || status.clone()) as crate::shares::ShareSource);
        let app = App { shares, ..App::of_fleet(limit) };
        app.with_overview().exposition.show("").1
    }

    #[test]
    fn a_divided_limit_has_sums_and_no_keys() {
        let text = shown(r#"{"name":"api","key":["tenant"],"rate":"100/s","guarantee":"share"}"#);
        let of = r#"domain="default",limit="api""#;
        for line in [
            &format!("tollgate_share_members{{{of},phase=\"startup\"}} 1"),
            &format!("tollgate_share_members{{{of},phase=\"normal\"}} 2"),
            &format!("tollgate_share_members{{{of},phase=\"failing\"}} 3"),
            &format!("tollgate_share_rate{{{of}}} 12.5"),
            &format!("tollgate_share_allowed_total{{{of}}} 100"),
            &format!("tollgate_share_denied_total{{{of}}} 10"),
            &format!("tollgate_share_other_denied_total{{{of}}} 7"),
            &format!("tollgate_share_other_allowed_total{{{of}}} 5"),
            &format!("tollgate_share_mode{{{of},mode=\"global\"}} 1"),
            "tollgate_share_divided_keys 6",
            "tollgate_share_reports_total 9",
            "tollgate_share_reports_first_total 2",
            "tollgate_share_answers_total{kind=\"pushed\"} 4",
            "tollgate_share_averages_total{kind=\"decayed\"} 0",
            "tollgate_share_forgotten_total{what=\"member\"} 0",
            "tollgate_share_insane_total 1",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
        // What is not in force has no name.
        assert_eq!(text.matches("tollgate_share_rate{").count(), 1);
    }

    #[test]
    fn limits_that_are_not_divided_have_none_of_it() {
        let text = shown(r#"{"name":"api","key":["tenant"],"rate":"100/s"}"#);
        assert!(!text.contains("tollgate_share"), "{text}");
    }
}
