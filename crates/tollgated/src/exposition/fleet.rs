//! What `/metrics` says of the fleet: this member's part in it, as a worker and as an owner.
//!
//! Sums over members are for whoever collects them. Labels are names of limits, never of keys.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use tollgate::LimitStatus;
use tollgate_tokio::{DelayCounts, MemberStatus};

use super::{Family, counter, gauge, seconds};
use crate::overview::{Mishaps, Overview, Promised};

/// Shows a member.
pub(super) fn encode(
    overview: &dyn Overview,
    limits: &[LimitStatus],
    encoder: &mut DescriptorEncoder,
) -> fmt::Result {
    let status = overview.status();
    member(&status, encoder)?;
    reports(&status, encoder)?;
    links(&status, encoder)?;
    mishaps(&status, encoder)?;
    promises(overview, &status, limits, encoder)?;
    let help = "From sending a batch of reports to its answer";
    delays("tollgate_fleet_report_round_trip_seconds", help, &overview.report_delays(), encoder)?;
    let help = "How old the report was on which a permission stands, when the permission came";
    delays("tollgate_fleet_snapshot_delay_seconds", help, &overview.snapshot_delays(), encoder)
}

fn member(status: &MemberStatus, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let one = |value: usize| Family::one(value as u64);
    let help = "1 while this daemon is in the ring, as far as it knows";
    gauge(encoder, "tollgate_fleet_member", help, one(usize::from(status.is_member)))?;
    let help = "The ring that this member knows: higher on all members after each change";
    gauge(encoder, "tollgate_fleet_ring_epoch", help, Family::one(status.ring_epoch.get()))?;
    let help = "Members of the fleet, as this one was last told";
    gauge(encoder, "tollgate_fleet_members", help, one(status.members.len()))?;
    let help = "Replicas of the coordinator with which this member has a connection";
    gauge(encoder, "tollgate_fleet_sessions", help, one(status.sessions.len()))?;
    let help = "The fleet's policy that is in force here";
    gauge(encoder, "tollgate_fleet_policy_revision", help, Family::one(status.revision.get()))?;
    let mut keys = Family(Vec::new());
    keys.add(&[("role", "owner")], status.counts.owned);
    keys.add(&[("role", "worker")], status.counts.views);
    let help = "Keys of the fleet's limits that this member owns, and that it spends from";
    gauge(encoder, "tollgate_fleet_keys", help, keys)?;
    let help = "Members that reported to this one within the longest life of a permission";
    gauge(encoder, "tollgate_fleet_reporters", help, one(status.reporters))?;
    let help = "Requests that wait for credit";
    gauge(encoder, "tollgate_fleet_waiting_requests", help, one(status.waiting))?;
    let refused = Family::one(status.waiting_refused);
    let help = "Requests that found as many waiting as may wait";
    counter(encoder, "tollgate_fleet_waiting_refused", help, refused)?;
    let help = "Keys whose names were lost, too many being new at once; decisions do not need them";
    counter(encoder, "tollgate_fleet_names_lost", help, Family::one(status.names_lost))
}

fn reports(status: &MemberStatus, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let (counts, owner) = (&status.counts, &status.counts.owner);
    let help = "Reports of keys that this member sent to their owners";
    counter(encoder, "tollgate_fleet_reports_sent", help, Family::one(counts.reports))?;
    let help = "Batches that those reports went in";
    counter(encoder, "tollgate_fleet_report_batches_sent", help, Family::one(counts.batches))?;
    let help = "Reports that this member applied as the owner of their keys";
    counter(encoder, "tollgate_fleet_reports_applied", help, Family::one(owner.reports))?;
    let mut refused = Family(Vec::new());
    refused.add(&[("reason", "busy")], counts.shed);
    refused.add(&[("reason", "other_ring")], counts.misdirected);
    let help = "Reports that this member refused: it was busy, or they were of another ring";
    counter(encoder, "tollgate_fleet_reports_refused", help, refused)?;
    let help = "Units that this member permitted workers to spend";
    counter(encoder, "tollgate_fleet_granted_units", help, Family::one(owner.granted))?;
    let help = "Units that it permitted and took for spent, not having heard of them in time";
    counter(encoder, "tollgate_fleet_expired_units", help, Family::one(owner.expired))?;
    let help = "Snapshots that answered no report: there was room for who waited, or none was left";
    counter(encoder, "tollgate_fleet_snapshots_pushed", help, Family::one(owner.pushed))
}

fn links(status: &MemberStatus, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let links = &status.links;
    let help = "Connections to other members that stand";
    gauge(encoder, "tollgate_fleet_links", help, Family::one(links.connected))?;
    let mut frames = Family(Vec::new());
    frames.add(&[("outcome", "sent")], links.frames);
    frames.add(&[("outcome", "dropped")], links.dropped);
    frames.add(&[("outcome", "received")], links.received);
    frames.add(&[("outcome", "malformed")], links.malformed);
    let help = "Messages between members; what can't be sent at once is dropped";
    counter(encoder, "tollgate_fleet_link_messages", help, frames)?;
    let help = "Bytes of messages to other members";
    counter(encoder, "tollgate_fleet_link_sent_bytes", help, Family::one(links.bytes))?;
    let help =
        "Connections that were refused at the peer address: another fleet, secret or version";
    let refused = Family::one(status.handshakes_refused);
    counter(encoder, "tollgate_fleet_handshakes_refused", help, refused)
}

fn mishaps(status: &MemberStatus, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let events = &status.events;
    let help = "Times at which this owner went on after its keys had been given to others";
    counter(encoder, "tollgate_fleet_overlaps", help, Family::one(events.overlaps))?;
    let help = "The longest of those times";
    seconds(encoder, "tollgate_fleet_overlap_max_seconds", help, events.overlapped)?;
    let help =
        "Times at which this process stood still, so that permissions may have been spent late";
    counter(encoder, "tollgate_fleet_pauses", help, Family::one(events.pauses))?;
    let help = "The longest of those times";
    seconds(encoder, "tollgate_fleet_pause_max_seconds", help, events.paused)?;
    let help = "Units that may have been spent late in such a time, at most";
    counter(encoder, "tollgate_fleet_late_units", help, Family::one(status.counts.late))?;
    let help = "Planned changes of owner that brought the old one's keys too late";
    counter(encoder, "tollgate_fleet_late_handovers", help, Family::one(events.late_handovers))?;
    let help = "Keys and workers of keys for which this member had no room";
    counter(encoder, "tollgate_fleet_keys_refused", help, Family::one(events.full))
}

/// What is promised of each limit, and what this member saw of it as an owner.
fn promises(
    overview: &dyn Overview,
    status: &MemberStatus,
    limits: &[LimitStatus],
    encoder: &mut DescriptorEncoder,
) -> fmt::Result {
    let events = &status.events;
    let mishaps = Mishaps { overlapped: events.overlapped, late: status.counts.late };
    let (workers, times) = (status.members.len() as u64, overview.times());
    let units = |number| status.limits.get(&number).copied().unwrap_or_default();
    let promised: Vec<Promised> = limits
        .iter()
        .filter_map(|limit| Promised::of(limit, units, workers, mishaps, &times))
        .collect();
    let (mut applied, mut breaches) = (Family(Vec::new()), Family(Vec::new()));
    let (mut now, mut most) = (Family(Vec::new()), Family(Vec::new()));
    let mut envelopes = Family(Vec::new());
    for one in &promised {
        let of = units(one.number);
        let [domain, limit] =
            [("domain", one.status.limit.domain()), ("limit", one.status.limit.name())];
        applied.add(&[domain, limit], of.units);
        breaches.add(&[domain, limit], of.breaches);
        now.add(&[domain, limit], of.excess);
        most.add(&[domain, limit], of.excess_max);
        envelopes.add(&[domain, limit, ("kind", "possible")], one.possible);
        envelopes.add(&[domain, limit, ("kind", "observed")], one.observed);
    }
    let help = "Units that workers reported as spent to this member as the owner of their keys";
    counter(encoder, "tollgate_fleet_applied_units", help, applied)?;
    let help = "Times at which a key of this owner came to have an excess";
    counter(encoder, "tollgate_fleet_breaches", help, breaches)?;
    let help = "The most units that a key of this owner has beyond its burst and nobody permitted";
    gauge(encoder, "tollgate_fleet_excess_units", help, now)?;
    let help = "The most that it was since the process began";
    gauge(encoder, "tollgate_fleet_excess_max_units", help, most)?;
    let help = "N * max(b, c) + R * d: by how much the promise can be exceeded at worst, and by \
                what has happened to this member";
    gauge(encoder, "tollgate_fleet_envelope_units", help, envelopes)
}

fn delays(
    name: &str,
    help: &str,
    delays: &DelayCounts,
    encoder: &mut DescriptorEncoder,
) -> fmt::Result {
    let bound = |most: Duration| match most {
        Duration::MAX => f64::INFINITY,
        most => most.as_secs_f64(),
    };
    let buckets: Vec<(f64, u64)> =
        delays.buckets.iter().map(|(most, count)| (bound(*most), *count)).collect();
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    let (sum, count) = (delays.sum.as_secs_f64(), delays.count());
    metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
}
