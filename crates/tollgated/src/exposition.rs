//! `/metrics`: what was counted, in Prometheus' text or OpenMetrics.
//!
//! Labels are names of limits, doors, answers and reasons, never values of requests, so that their
//! number is known when the limits are.

mod fleet;
mod quota;
mod share;
mod tally;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use tollgate::Counts;

use crate::metrics::{FaceMetrics, OUTCOMES};
use crate::overview::Overview;
use crate::policy::Policy;
use crate::service::{BROUGHT_DOMAIN, BROUGHT_NAME, Service};
use crate::shares::ShareSource;

/// Shows the metrics of a service and its policy.
pub(crate) struct Exposition(Registry);

impl Exposition {
    /// `overview` is there if the daemon is a member of a fleet, `shares` if limits are divided.
    pub(crate) fn new(
        service: Arc<Service>,
        policy: Arc<Policy>,
        overview: Option<Arc<dyn Overview>>,
        shares: Option<ShareSource>,
        held: Arc<AtomicUsize>,
    ) -> Self {
        let mut registry = Registry::default();
        let reader = Reader { service, policy, overview, shares, held };
        registry.register_collector(Box::new(reader));
        Self(registry)
    }

    /// The metrics as a text, and its content type: OpenMetrics if `accept` asks for that.
    pub(crate) fn show(&self, accept: &str) -> (&'static str, String) {
        let mut out = String::new();
        // Writing to a string does not fail.
        if accept.contains("application/openmetrics-text") {
            let _ = text::encode(&mut out, &self.0);
            return ("application/openmetrics-text; version=1.0.0; charset=utf-8", out);
        }
        let _ = prometheus_text::encode(&mut out, &self.0);
        (prometheus_text::CONTENT_TYPE, out)
    }
}

struct Reader {
    service: Arc<Service>,
    policy: Arc<Policy>,
    overview: Option<Arc<dyn Overview>>,
    shares: Option<ShareSource>,
    /// Bytes of half-received messages.
    held: Arc<AtomicUsize>,
}

type Labels<'a> = [(&'a str, &'a str)];

/// One family: its values, each under its labels.
struct Family<'a>(Vec<(Vec<(&'a str, &'a str)>, u64)>);

impl<'a> Family<'a> {
    fn one(value: u64) -> Self {
        Self(vec![(Vec::new(), value)])
    }

    fn add(&mut self, labels: &Labels<'a>, value: u64) {
        self.0.push((labels.to_vec(), value));
    }
}

impl Collector for Reader {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        self.encode_limits(&mut encoder)?;
        self.encode_faces(&mut encoder)?;
        self.encode_state(&mut encoder)?;
        quota::encode(&self.service.metrics().quota, &mut encoder)?;
        if let Some(status) = self.service.tally_status() {
            tally::encode(&status, &self.service.limits(), &mut encoder)?;
        }
        if let Some(shares) = &self.shares {
            share::encode(&shares(), &self.service.limits(), &mut encoder)?;
        }
        match &self.overview {
            Some(overview) => {
                fleet::encode(overview.as_ref(), &self.service.limits(), &mut encoder)
            }
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("service", &self.service).finish_non_exhaustive()
    }
}

impl Reader {
    fn encode_limits(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let limits = self.service.limits();
        let brought = self.service.brought_counts();
        // The end of a path that has no limit decides nothing.
        let limits = limits.iter().filter(|status| !status.limit.is_blank());
        let named = limits.map(|s| (s.limit.domain(), s.limit.name(), s.counts));
        let all: Vec<(&str, &str, Counts)> =
            named.chain([(BROUGHT_DOMAIN, BROUGHT_NAME, brought)]).collect();
        let mut decisions = Family(Vec::new());
        let (mut shadows, mut overflows) = (Family(Vec::new()), Family(Vec::new()));
        let mut evictions = Family(Vec::new());
        for (domain, limit, counts) in all {
            let labels = [("domain", domain), ("limit", limit)];
            let numbers = [
                counts.allowed,
                counts.over_limit,
                counts.cost_exceeds_burst,
                counts.key_table_full,
                counts.stale,
                counts.queue_full,
                counts.deadline,
            ];
            for ((_, decision, reason), number) in OUTCOMES.into_iter().zip(numbers) {
                let [domain, limit] = labels;
                decisions.add(&[domain, limit, ("decision", decision), ("reason", reason)], number);
            }
            shadows.add(&labels, counts.shadow_denied);
            overflows.add(&labels, counts.overflowed);
            evictions.add(&labels, counts.evicted);
        }
        let help = "Decisions by the limit that made them; brought is CL.THROTTLE's";
        counter(encoder, "tollgate_limit_decisions", help, decisions)?;
        let help = "Requests that a shadow limit would have denied";
        counter(encoder, "tollgate_limit_shadow_denials", help, shadows)?;
        let help = "Requests counted on a limit's shared cell, the table of keys being full";
        counter(encoder, "tollgate_limit_overflows", help, overflows)?;
        let help = "Rested keys that left the table to make room for one of this limit";
        counter(encoder, "tollgate_key_evictions", help, evictions)
    }

    fn encode_faces(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let metrics = self.service.metrics();
        let mut decisions = Family(Vec::new());
        let mut errors = Family(Vec::new());
        for (face, of) in metrics.faces() {
            let face = ("face", face.name());
            for ((_, decision, reason), number) in OUTCOMES.into_iter().zip(&of.decisions) {
                let labels = [face, ("decision", decision), ("reason", reason)];
                decisions.add(&labels, number.load(Relaxed));
            }
            for (kind, number) in
                [("invalid", &of.invalid), ("malformed", &of.malformed), ("timeout", &of.timed_out)]
            {
                errors.add(&[face, ("kind", kind)], number.load(Relaxed));
            }
        }
        let help = "Decisions by the door at which they were asked";
        counter(encoder, "tollgate_decisions", help, decisions)?;
        counter(encoder, "tollgate_request_errors", "Requests that were refused or cut", errors)?;
        let by_face = |value: fn(&FaceMetrics) -> u64| {
            let mut family = Family(Vec::new());
            for (face, of) in metrics.faces() {
                family.add(&[("face", face.name())], value(of));
            }
            family
        };
        let unlimited = by_face(|of| of.unlimited.load(Relaxed));
        let help = "Requests to which no limit applied, or only unlimited or shadow ones";
        counter(encoder, "tollgate_unlimited_requests", help, unlimited)?;
        let open = by_face(|of| of.open.load(Relaxed).max(0) as u64);
        gauge(encoder, "tollgate_connections", "Connections that are open", open)?;
        let opened = by_face(|of| of.opened.load(Relaxed));
        counter(encoder, "tollgate_connections_opened", "Connections that were opened", opened)?;
        let refused = by_face(|of| of.refused.load(Relaxed));
        let help = "Connections that were closed at once, as many being open as may be";
        counter(encoder, "tollgate_connections_refused", help, refused)?;
        let name = "tollgate_request_duration_seconds";
        let help = "From a request to its answer; those that arrive together share their time";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (face, of) in metrics.faces() {
            let (sum, count, buckets) = of.took.read();
            let labels = [("face", face.name())];
            let mut metric = family.encode_family(&labels)?;
            metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }

    fn encode_state(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let service = &self.service;
        let (of_limits, brought) = service.keys_used();
        let mut keys = Family(Vec::new());
        keys.add(&[("table", "limits")], of_limits);
        keys.add(&[("table", "brought")], brought);
        gauge(encoder, "tollgate_keys", "Keys that have a cell, by table", keys)?;
        let most = Family::one(service.keys_max());
        gauge(encoder, "tollgate_keys_max", "Keys that may have a cell, in each table", most)?;
        let allowances = Family::one(service.allowances() as u64);
        let help = "Different limits that came with requests and are kept, of 4096";
        gauge(encoder, "tollgate_brought_limits", help, allowances)?;
        let held = Family::one(self.held.load(Relaxed) as u64);
        let help = "Bytes of half-received messages, those of small ones excepted";
        gauge(encoder, "tollgate_held_bytes", help, held)?;
        let revision = Family::one(service.revision());
        gauge(encoder, "tollgate_limits_revision", "Grows with every change of limits", revision)?;
        let valid = Family::one(u64::from(self.policy.is_valid()));
        let help = "1 unless the policy file is invalid and older limits are in force";
        gauge(encoder, "tollgate_config_valid", help, valid)?;
        let mut loads = Family(Vec::new());
        let metrics = service.metrics();
        for (result, number) in [("ok", &metrics.loads_good), ("error", &metrics.loads_bad)] {
            loads.add(&[("result", result)], number.load(Relaxed));
        }
        counter(encoder, "tollgate_config_loads", "Times that the policy file was read", loads)?;
        self.encode_reservations(encoder)?;
        let mut build = Family(Vec::new());
        build.add(&[("version", env!("CARGO_PKG_VERSION"))], 1);
        gauge(encoder, "tollgate_build_info", "The running version", build)
    }

    fn encode_reservations(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let (totals, open) = self.service.reservation_totals();
        let mut family = Family(Vec::new());
        for (outcome, number) in [
            ("made", totals.made),
            ("settled", totals.settled),
            ("cancelled", totals.cancelled),
            ("expired", totals.expired),
            ("refused", totals.refused),
        ] {
            family.add(&[("outcome", outcome)], number);
        }
        counter(encoder, "tollgate_reservations", "What became of reservations", family)?;
        let help = "Reservations that are open or were corrected lately";
        gauge(encoder, "tollgate_reservations_kept", help, Family::one(open as u64))?;
        let mut owed = Family(Vec::new());
        for (outcome, number) in
            [("collected", totals.collected), ("uncollected", totals.uncollected)]
        {
            owed.add(&[("outcome", outcome)], number);
        }
        let help = "Units used beyond estimates of a fleet's limits, when nothing was permitted";
        counter(encoder, "tollgate_reservation_owed_units", help, owed)
    }
}

fn counter(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    family: Family<'_>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in &family.0 {
        metric.encode_family(labels)?.encode_counter::<NoLabelSet, _, f64>(value, None)?;
    }
    Ok(())
}

fn gauge(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    family: Family<'_>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in &family.0 {
        metric.encode_family(labels)?.encode_gauge(value)?;
    }
    Ok(())
}

/// A gauge of one duration.
fn seconds(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    value: Duration,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    metric.encode_gauge(&value.as_secs_f64())
}
