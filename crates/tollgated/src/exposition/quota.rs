//! What `/metrics` says of streams that use their limits by assignment.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use prometheus_client::encoding::DescriptorEncoder;

use super::{Family, counter, gauge};
use crate::metrics::QuotaMetrics;

/// Shows the counters of all streams together.
pub(super) fn encode(metrics: &QuotaMetrics, encoder: &mut DescriptorEncoder) -> fmt::Result {
    for (name, help, value) in [
        ("tollgate_quota_streams", "Streams of quotas that are open", &metrics.streams),
        ("tollgate_quota_buckets", "Buckets of those streams", &metrics.buckets),
        ("tollgate_quota_kept_bytes", "What is kept of those buckets", &metrics.kept_bytes),
    ] {
        gauge(encoder, name, help, Family::one(value.load(Relaxed) as u64))?;
    }
    let reports = Family::one(metrics.reports.load(Relaxed));
    counter(encoder, "tollgate_quota_reports", "Usages of buckets that were reported", reports)?;
    let mut actions = Family(Vec::new());
    for (kind, number) in [
        ("new", &metrics.assigned),
        ("extended", &metrics.extended),
        ("abandoned", &metrics.abandoned),
    ] {
        actions.add(&[("kind", kind)], number.load(Relaxed));
    }
    counter(encoder, "tollgate_quota_actions", "What streams were told of their buckets", actions)?;
    let mut refused = Family(Vec::new());
    for (what, number) in [
        ("stream", &metrics.refused_streams),
        ("bucket", &metrics.refused_buckets),
        ("message", &metrics.refused_messages),
    ] {
        refused.add(&[("what", what)], number.load(Relaxed));
    }
    let help =
        "Streams and usages of buckets for which there was no room; messages that were wrong";
    counter(encoder, "tollgate_quota_refused", help, refused)
}
