//! The tenant dialect: `[rate_limits]`, a table of metrics with a default and overrides by tenant.
//!
//! Each metric M becomes one limit named M: `match = { metric = M }`, `key = ["tenant"]`, burst =
//! rate x ratio rounded down, and a cost above the burst is paced. An override replaces the default
//! wholesale: of a metric that it lacks, its tenant has as much as it likes.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;
use toml::de::DeValue;

use tollgate::{DEFAULT_DOMAIN, Oversize, Tenant};

use super::draft::{AllowanceDraft, Draft, MatchDraft, OverrideDraft, Places};
use super::finding::{Findings, Place};
use super::read;

/// Limits on what each tenant reads.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table of limits by tenant")]
pub(super) struct RateLimits {
    /// Whether the limits are in force. They are off unless this says `true`, as where this table
    /// comes from: there, limiting is opted into.
    #[serde(default)]
    #[schemars(with = "bool", extend("default" = false))]
    enabled: Option<Spanned<bool>>,
    /// The limits of every tenant that has no override, and of requests without a tenant.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    default: Metrics,
    /// Limits by tenant, in place of the default: a metric that is left out here is unlimited for
    /// the tenant. A tenant's name has 1 to 256 bytes.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, Metrics>", extend("default" = {}))]
    overrides: BTreeMap<Spanned<String>, Metrics>,
}

/// A limit for each metric; one that is left out is not limited.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table of metrics")]
struct Metrics {
    /// Read requests.
    #[serde(default)]
    #[schemars(with = "RateLimit")]
    read_iops: Option<Spanned<RateLimit>>,
    /// Bytes sent to the tenant.
    #[serde(default)]
    #[schemars(with = "RateLimit")]
    read_throughput: Option<Spanned<RateLimit>>,
    /// Bytes fetched from the origin on the tenant's behalf.
    #[serde(default)]
    #[schemars(with = "RateLimit")]
    origin_read_bytes: Option<Spanned<RateLimit>>,
}

/// A rate and its burst.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table such as { rate = 5000, burst_ratio = 2.0 }")]
struct RateLimit {
    /// Units per second: 5000. From 1 to 10^12.
    #[schemars(with = "u64", extend("minimum" = 1))]
    rate: Spanned<u64>,
    /// The burst as seconds of the rate: 2.0. Above 0.
    #[serde(default)]
    #[schemars(with = "f64", extend("default" = 1.0))]
    burst_ratio: Option<Spanned<f64>>,
}

/// Where the table stands, and its limits, if they are in force.
#[derive(Debug)]
pub(super) struct Tenants {
    pub(super) place: Place,
    pub(super) enabled: bool,
    pub(super) drafts: Vec<Draft>,
}

impl Tenants {
    /// Reads the table; what cannot be read is reported and left out.
    ///
    /// Limits that are not enabled are checked all the same: they had better be sound on the day on
    /// which they are enabled.
    pub(super) fn new(
        table: Spanned<DeValue<'_>>,
        file: usize,
        findings: &mut Findings<'_>,
    ) -> Self {
        let at = |offset| Place { file, offset };
        let place = at(table.span().start);
        let table = RateLimits::read_by_parts(table, file, findings);
        let enabled = table.enabled.as_ref().is_some_and(|enabled| *enabled.get_ref());
        if !enabled {
            let place = table.enabled.as_ref().map_or(place, |enabled| at(enabled.span().start));
            findings.warning(place, "[rate_limits] limits nothing until it has `enabled = true`");
        }
        for tenant in table.overrides.keys() {
            if let Err(error) = Tenant::parse(tenant.get_ref()) {
                findings.error(at(tenant.span().start), error.to_string());
            }
        }
        let overrides = table.overrides.values();
        for limit in overrides.chain([&table.default]).flat_map(Metrics::in_order).flatten() {
            let rate = &limit.get_ref().rate;
            if *rate.get_ref() == 0 {
                let message = "rate must be at least 1; leave the metric out not to limit it";
                findings.error(at(rate.span().start), message);
            }
        }
        let drafts = METRICS
            .iter()
            .enumerate()
            .filter_map(|(index, metric)| table.draft(index, metric, place))
            .collect();
        Self { place, enabled, drafts }
    }
}

impl RateLimits {
    /// Reads each tenant by itself, so that one that is wrong does not hide the others' errors.
    fn read_by_parts(
        mut table: Spanned<DeValue<'_>>,
        file: usize,
        findings: &mut Findings<'_>,
    ) -> Self {
        let (mut default, mut overrides) = (None, None);
        if let DeValue::Table(table) = table.get_mut() {
            default = table.remove("default");
            overrides = table.remove("overrides");
        }
        let mut limits = read(table, file, findings).unwrap_or_else(Self::nothing);
        if let Some(default) = default {
            limits.default = read(default, file, findings).unwrap_or_default();
        }
        match overrides.map(|overrides| (overrides.span(), overrides.into_inner())) {
            None => {}
            Some((_, DeValue::Table(overrides))) => {
                for (tenant, metrics) in overrides {
                    let tenant = Spanned::new(tenant.span(), tenant.into_inner().into_owned());
                    let metrics = read(metrics, file, findings).unwrap_or_default();
                    limits.overrides.insert(tenant, metrics);
                }
            }
            Some((span, other)) => {
                let message = format!("overrides must be a table, not {}", other.type_str());
                findings.error(Place { file, offset: span.start }, message);
            }
        }
        limits
    }

    fn nothing() -> Self {
        Self { enabled: None, default: Metrics::default(), overrides: BTreeMap::new() }
    }

    /// The limit on one metric, if the default or any override has one.
    fn draft(&self, index: usize, metric: &'static str, table: Place) -> Option<Draft> {
        let at = |offset| Place { offset, ..table };
        let default = self.default.in_order()[index];
        let overrides: Vec<OverrideDraft> = self
            .overrides
            .iter()
            .filter_map(|(tenant, metrics)| {
                let own = metrics.in_order()[index];
                own.or(default)?; // Without a default there is nothing to be exempt from.
                let allowance =
                    own.map_or_else(AllowanceDraft::unlimited, |own| own.get_ref().allowance());
                let whole = at(tenant.span().start);
                let fields = own.map_or_else(Vec::new, |own| places(own, table));
                let key = vec![("tenant".into(), tenant.get_ref().clone())];
                Some(OverrideDraft { key, allowance, places: Places { whole, fields } })
            })
            .collect();
        if default.is_none() && overrides.is_empty() {
            return None;
        }
        let first = overrides.first().map_or(table, |first| first.places.of("rate"));
        let whole = default.map_or(first, |default| at(default.span().start));
        Some(Draft {
            name: metric.into(),
            domain: DEFAULT_DOMAIN.into(),
            matches: vec![MatchDraft { name: "metric".into(), value: metric.into(), place: whole }],
            key: vec![("tenant".into(), whole)],
            allowance: default
                .map_or_else(AllowanceDraft::unlimited, |default| default.get_ref().allowance()),
            guarantee: "local".into(),
            on_stale: None,
            count: None,
            mode: None,
            oversize: Oversize::Pace,
            shadow: false,
            path: Vec::new(),
            group: String::new(),
            replaces: Vec::new(),
            quota: false,
            overrides,
            places: Places {
                whole,
                fields: default.map_or_else(Vec::new, |default| places(default, table)),
            },
        })
    }
}

impl Metrics {
    /// The metrics in the order in which they are charged: requests before bytes.
    fn in_order(&self) -> [Option<&Spanned<RateLimit>>; METRICS.len()] {
        let Self { read_iops, read_throughput, origin_read_bytes } = self;
        [read_iops.as_ref(), read_throughput.as_ref(), origin_read_bytes.as_ref()]
    }
}

impl RateLimit {
    fn allowance(&self) -> AllowanceDraft {
        let rate = (*self.rate.get_ref()).max(1); // A zero is reported when the table is read.
        let ratio = self.burst_ratio.as_ref().map(|ratio| *ratio.get_ref());
        let mut allowance = AllowanceDraft {
            rate: format!("{rate}/s"),
            burst_ratio: ratio,
            ..AllowanceDraft::default()
        };
        // Such rates are metered in steps of up to 64 units, and a burst must be whole steps: this
        // dialect promises to round a burst down, which is then below by 4e-9 of it at most.
        if rate > STEPPED_RATE_MIN
            && let Some(ratio) = ratio
            && ratio.is_finite()
            && ratio > 0.0
        {
            let burst = (rate as f64 * ratio) as u64;
            allowance.burst = Some(burst - burst % RATE_STEP_MAX);
            allowance.burst_ratio = None;
        }
        allowance
    }
}

fn places(limit: &Spanned<RateLimit>, table: Place) -> Vec<(&'static str, Place)> {
    let at = |offset| Place { offset, ..table };
    let limit = limit.get_ref();
    let ratio = limit.burst_ratio.as_ref().map(|ratio| at(ratio.span().start));
    let mut places = vec![("rate", at(limit.rate.span().start))];
    // A burst that is refused here is the ratio's.
    places.extend(ratio.into_iter().flat_map(|ratio| [("burst_ratio", ratio), ("burst", ratio)]));
    places
}

/// In the order in which they are charged.
const METRICS: [&str; 3] = ["read_iops", "read_throughput", "origin_read_bytes"];
/// Up to here the library meters in single units (ten years of it are below 2^63).
const STEPPED_RATE_MIN: u64 = 1 << 34;
/// The largest step in which the library meters.
const RATE_STEP_MAX: u64 = 64;

#[cfg(test)]
mod tests {
    use tollgate::{Allowance, Descriptor, Entry, Limiter, Rate, Request, Retry};

    use super::super::tests::{found, limiter, parsed};

    /// The example of the design that this dialect comes from, letter by letter.
    const SEED: &str = "\
[rate_limits]
enabled = true
[rate_limits.default]
read_iops = { rate = 5000, burst_ratio = 2.0 }
read_throughput = { rate = 1073741824 }        # 1 GiB/s; burst_ratio defaults to 1.0
[rate_limits.overrides.acme]
read_iops = { rate = 20000, burst_ratio = 2.0 }
";
    const GIB: u64 = 1 << 30;

    /// Asks for one read of so many bytes; a denial is the milliseconds to wait, rounded up.
    fn read(limiter: &Limiter, tenant: Option<&str>, bytes: u64) -> Result<(), u128> {
        let entries = |metric| {
            let metric = Entry::new("metric", metric);
            tenant.map_or(vec![metric], |tenant| vec![Entry::new("tenant", tenant), metric])
        };
        let (requests, throughput) = (entries("read_iops"), entries("read_throughput"));
        let descriptors = [
            Descriptor::new(&requests).expect("sound"),
            Descriptor::new(&throughput).expect("sound").with_cost(bytes),
        ];
        let decision = limiter.check(&Request::new(&descriptors));
        match decision.retry_at() {
            None => Ok(()),
            Some(Retry::At(at)) => {
                Err(at.saturating_since(decision.now()).as_nanos().div_ceil(1_000_000))
            }
            Some(Retry::Never) => Err(u128::MAX),
        }
    }

    /// Reads of one byte that pass at once.
    fn burst(limiter: &Limiter, tenant: Option<&str>) -> usize {
        (0..50_000).take_while(|_| read(limiter, tenant, 1).is_ok()).count()
    }

    fn names(text: &str) -> Vec<String> {
        parsed(text).expect("sound").limits.iter().map(|limit| limit.name().into()).collect()
    }

    #[test]
    fn the_example_of_the_design_limits_as_it_is_written() {
        assert!(found(SEED).is_empty());
        assert_eq!(names(SEED), ["read_iops", "read_throughput"]);
        let limiter = limiter(SEED);
        assert_eq!(burst(&limiter, Some("small")), 10_000);
        assert_eq!(burst(&limiter, Some("other")), 10_000, "tenants do not share");
        assert_eq!(burst(&limiter, None), 10_000, "who declares no tenant has the default");
        assert_eq!(burst(&limiter, Some("acme")), 40_000);
        assert_eq!(read(&limiter, Some("small"), 1), Err(1), "0.2 ms, rounded up");
        assert_eq!(read(&limiter, Some("bulk"), GIB), Ok(()));
        assert_eq!(read(&limiter, Some("bulk"), GIB), Err(1_000));
        assert_eq!(read(&limiter, Some("bulk"), 1), Err(1));
        assert_eq!(read(&limiter, Some("huge"), 16 * GIB), Ok(()), "paced, not refused for ever");
        assert_eq!(read(&limiter, Some("huge"), 1), Err(15_001));
    }

    #[test]
    fn a_read_that_is_denied_for_its_bytes_spends_no_request() {
        let limiter = limiter(SEED);
        assert_eq!(read(&limiter, Some("bulk"), GIB), Ok(()));
        for _ in 0..20_000 {
            assert_eq!(read(&limiter, Some("bulk"), GIB), Err(1_000));
        }
        assert_eq!(
            (0..50_000).take_while(|_| read(&limiter, Some("bulk"), 0).is_ok()).count(),
            9_999
        );
    }

    #[test]
    fn an_override_that_lacks_a_metric_leaves_it_unlimited_for_its_tenant() {
        let limiter = limiter(SEED);
        for _ in 0..100 {
            assert_eq!(read(&limiter, Some("acme"), GIB), Ok(()));
        }
    }

    #[test]
    fn a_metric_only_in_overrides_applies_to_those_tenants_alone() {
        let text = "[rate_limits]\nenabled = true\n\
                    [rate_limits.overrides.acme]\nread_iops = { rate = 3 }\n";
        let loaded = parsed(text).expect("sound");
        assert!(loaded.warnings.is_empty());
        assert_eq!(loaded.limits.len(), 1);
        assert_eq!(loaded.limits[0].allowance(), Allowance::Unlimited);
        let limiter = limiter(text);
        assert_eq!(burst(&limiter, Some("acme")), 3);
        assert_eq!(burst(&limiter, Some("other")), 50_000);
        assert_eq!(burst(&limiter, None), 50_000);
    }

    #[test]
    fn requests_come_before_bytes_whatever_the_order_in_the_file() {
        let text = "[rate_limits]\nenabled = true\n[rate_limits.default]\n\
                    origin_read_bytes = { rate = 1 }\nread_throughput = { rate = 1 }\n\
                    read_iops = { rate = 1 }\n";
        assert_eq!(names(text), ["read_iops", "read_throughput", "origin_read_bytes"]);
    }

    #[test]
    fn a_burst_is_rounded_down_however_fast_the_rate() {
        for (rate, ratio, burst) in [
            (10, "1.57", 15),
            (100, "0.29", 29),
            (7, "2", 14),
            (17_179_869_183, "1.0", 17_179_869_183),
            // Metered in steps, of which a burst is a multiple.
            (100_000_000_001, "1.0", 100_000_000_000),
            (1_000_000_000_000, "1.5", 1_500_000_000_000),
        ] {
            let text = format!(
                "[rate_limits]\nenabled = true\n\
                 default.read_iops = {{ rate = {rate}, burst_ratio = {ratio} }}\n"
            );
            let rate = Rate::new(rate, 1_000_000_000).expect("sound");
            let limits = parsed(&text).expect("sound").limits;
            assert_eq!(limits[0].allowance(), Allowance::Metered { rate, burst });
        }
        let text = "[rate_limits]\nenabled = true\ndefault.read_iops.rate = 100000000001\n";
        assert_eq!(names(text), ["read_iops"]);
    }

    #[test]
    fn limits_that_are_not_enabled_are_checked_and_left_out() {
        let message = "warning: [rate_limits] limits nothing until it has `enabled = true`";
        for (text, place) in [
            ("[rate_limits]\ndefault.read_iops.rate = 5\n", "1:1"),
            ("[rate_limits]\nenabled = false\ndefault.read_iops.rate = 5\n", "2:11"),
            ("[rate_limits]\n", "1:1"),
        ] {
            assert!(names(text).is_empty());
            assert_eq!(found(text), [format!("1.toml:{place}: {message}")]);
        }
        let wrong = "[rate_limits]\nenabled = false\ndefault.read_iops.rate = 1000000000001\n";
        let expected = "1.toml:3:26: error: limit \"read_iops\": rate = \"1000000000001/s\": must \
                        be at most 10^12 units per second";
        assert_eq!(found(wrong)[1], expected);
    }

    #[test]
    fn every_error_is_reported_at_its_place() {
        let text = r#"[rate_limits]
enabled = true
dry_run = true
[rate_limits.default]
read_iops = { rate = 0 }
read_throughput = { rate = 5, burst_ratio = -1 }
write_iops = { rate = 5 }
[rate_limits.overrides]
"" = {}
a.read_iops = { rate = -5 }
b.read_iops = { rate = 5, burst = 5 }
d = 3
e.read_iops = { burst_ratio = 2.0 }
f.read_iops = 3
g.origin_read_bytes = { rate = 1, burst_ratio = 0.5 }
h.read_iops = { rate = 5, burst_ratio = nan }
"#;
        let expected = [
            "3:1: error: unknown field `dry_run`; known are `default`, `enabled`, `overrides`",
            "5:22: error: rate must be at least 1; leave the metric out not to limit it",
            "6:45: error: limit \"read_throughput\": burst_ratio = \"-1\": must be finite and \
             above 0",
            "7:1: error: unknown field `write_iops`; known are `origin_read_bytes`, `read_iops`, \
             `read_throughput`",
            "9:1: error: a tenant's name has 1 to 256 bytes, not 0",
            "10:24: error: invalid value: integer `-5`, expected u64",
            "11:27: error: unknown field `burst`; known are `burst_ratio`, `rate`",
            "12:5: error: invalid type: integer `3`, expected a table of metrics",
            "13:15: error: missing field `rate`",
            "14:15: error: invalid type: integer `3`, expected a table such as { rate = 5000, \
             burst_ratio = 2.0 }",
            "15:49: error: limit \"origin_read_bytes\": override.burst_ratio = \"0.5 (key { tenant \
             = g })\": gives a burst below 1 at this rate",
            "16:41: error: limit \"read_iops\": override.burst_ratio = \"NaN (key { tenant = h \
             })\": must be finite and above 0",
        ];
        let expected = expected.map(|line| format!("1.toml:{line}"));
        assert_eq!(found(text), expected);
    }

    #[test]
    fn a_table_that_is_none_is_an_error() {
        let enabled = "[rate_limits]\nenabled = \"yes\"\n";
        let message = r#"1.toml:2:11: error: invalid type: string "yes", expected a boolean"#;
        assert!(found(enabled).iter().any(|found| found == message));
        let message =
            "1.toml:1:15: error: invalid type: integer `3`, expected a table of limits by tenant";
        assert_eq!(found("rate_limits = 3")[0], message);
        let overrides = "[rate_limits]\nenabled = true\noverrides = 3\n";
        let message = "1.toml:3:13: error: overrides must be a table, not integer";
        assert_eq!(found(overrides), [message]);
    }

    #[test]
    fn a_tenants_name_has_256_bytes_at_most() {
        let text = |bytes: usize| {
            let name = "a".repeat(bytes);
            format!("[rate_limits]\nenabled = true\noverrides.{name}.read_iops.rate = 5\n")
        };
        assert!(parsed(&text(256)).is_ok());
        let expected = "1.toml:3:11: error: a tenant's name has 1 to 256 bytes, not 257";
        assert_eq!(found(&text(257)), [expected]);
    }
}
