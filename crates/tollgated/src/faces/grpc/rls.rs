//! Envoy's rate-limit service, `ShouldRateLimit`: a domain and descriptors in, a status for each
//! out.
//!
//! A status says what Envoy makes `x-ratelimit-*` of: the limit as so many in a unit, what is left,
//! and the time until all is back. Whatever is denied has nothing left, so that Envoy speaks of the
//! limit that denied.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::HeaderMap;
use prost_types::Duration as WireDuration;
use tollgate::{Decision, Descriptor, DomainKind, Entry, LimitId, Rate, Request};

use super::call::{Code as FaultCode, Fault, frame, read};
use super::proto::envoy;
use crate::app::{App, HeaderStyle};
use crate::face::Face;
use crate::faces::http::fields;
use crate::faces::{seconds, wait};
use crate::service::each::Unusual;
use crate::service::{Label, Service};
use envoy::config::core::v3::HeaderValue;
use envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy::r#type::v3::RateLimitUnit;

/// Decides the request in a message.
///
/// # Errors
/// As [`decide`].
pub(super) fn answer(message: &[u8], app: &App) -> Result<Bytes, Fault> {
    decide(&read(message)?, app).map(|response| frame(&response))
}

/// Decides one request.
///
/// # Errors
/// When it is not what it should be; nothing was spent.
pub(super) fn decide(request: &RateLimitRequest, app: &App) -> Result<RateLimitResponse, Fault> {
    let RateLimitRequest { domain, descriptors, hits_addend } = request;
    if domain.is_empty() {
        return Err(Fault::invalid("domain: must not be empty"));
    }
    match descriptors.len() {
        0 => return Err(Fault::invalid("descriptors: must not be empty")),
        1..=DESCRIPTORS_MAX => {}
        count => {
            let message = format!("descriptors: {count} of them; {DESCRIPTORS_MAX} at most");
            return Err(Fault::invalid(message));
        }
    }
    let service = &*app.service;
    let entries = descriptors.iter().flat_map(|descriptor| &descriptor.entries);
    let entries: Vec<Entry<'_>> = entries.map(|one| Entry::new(&one.key, &one.value)).collect();
    let mut rest = &entries[..];
    let in_order = service.domain_kind(domain) == Some(DomainKind::Path);
    let mut asked = Vec::with_capacity(descriptors.len());
    let mut unusual = Vec::new();
    for (index, descriptor) in descriptors.iter().enumerate() {
        let invalid = |error: &dyn std::fmt::Display| {
            Fault::invalid(format!("descriptors[{index}]: {error}"))
        };
        let entries;
        (entries, rest) = rest.split_at(descriptor.entries.len());
        if entries.is_empty() {
            return Err(invalid(&"entries: must not be empty"));
        }
        let made = if in_order { Descriptor::ordered(entries) } else { Descriptor::new(entries) };
        let cost = descriptor.hits_addend.unwrap_or_else(|| u64::from(*hits_addend).max(1));
        asked.push(made.map_err(|error| invalid(&error))?.with_cost(cost));
        let brings = descriptor.limit.as_ref().map(brought).transpose();
        let brings = brings.map_err(|error| invalid(&error))?;
        let gives_back = descriptor.is_negative_hits && !cfg!(tollgate_mutant = "no_hits_back");
        if brings.is_some() || gives_back {
            unusual.push(Unusual { index, gives_back, brings });
        }
    }
    let request = Request::new(&asked).in_domain(domain);
    let mut standings = Vec::with_capacity(asked.len());
    let decided = service.check_each(Face::Grpc, &request, &unusual, &mut standings);
    let decision =
        decided.map_err(|error| Fault::new(FaultCode::ResourceExhausted, error.to_string()))?;
    let mut shown = Shown { service, last: None };
    let statuses = standings.iter().zip(descriptors);
    Ok(RateLimitResponse {
        overall_code: code(&decision) as i32,
        statuses: statuses
            .map(|(standing, asked)| shown.status(standing.as_ref(), asked))
            .collect(),
        response_headers_to_add: header_values(&decision, app),
    })
}

/// What a descriptor brings, as a rate and a burst.
fn brought(limit: &RateLimitOverride) -> Result<(Rate, u64), String> {
    let unit = RateLimitUnit::try_from(limit.unit).unwrap_or_default();
    let Some(unit) = length_of(unit as i32) else {
        return Err(format!("limit.unit: {} is none of SECOND (1) to YEAR (6)", limit.unit));
    };
    let units = u64::from(limit.requests_per_unit);
    if units == 0 {
        return Ok((Rate::ZERO, 0));
    }
    let period = u64::try_from(unit.as_nanos()).unwrap_or(u64::MAX);
    Rate::new(units, period).map(|rate| (rate, units)).map_err(|error| error.to_string())
}

fn code(decision: &Decision) -> Code {
    if decision.is_allowed() { Code::Ok } else { Code::OverLimit }
}

/// The fields that Envoy is to add to the response.
fn header_values(decision: &Decision, app: &App) -> Vec<HeaderValue> {
    if app.grpc_headers == HeaderStyle::None {
        return Vec::new();
    }
    let mut headers = HeaderMap::new();
    fields::add(&mut headers, decision, &app.service, app.grpc_headers);
    let text =
        |value: &hyper::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers
        .iter()
        .map(|(name, value)| HeaderValue { key: name.to_string(), value: text(value) })
        .collect()
}

/// Writes statuses; those of one answer are mostly of one limit.
struct Shown<'a> {
    service: &'a Service,
    last: Option<(LimitId, Arc<Label>)>,
}

impl Shown<'_> {
    fn status(
        &mut self,
        standing: Option<&Decision>,
        asked: &RateLimitDescriptor,
    ) -> DescriptorStatus {
        let Some(standing) = standing else {
            return DescriptorStatus { code: Code::Ok as i32, ..DescriptorStatus::default() };
        };
        let code = code(standing) as i32;
        let Some(limit) = standing.limit() else {
            // Unlimited.
            return DescriptorStatus { code, limit_remaining: u32::MAX, ..Default::default() };
        };
        let limit = match asked.limit {
            Some(RateLimitOverride { requests_per_unit, unit }) if limit == LimitId::BROUGHT => {
                RateLimit { name: String::new(), requests_per_unit, unit }
            }
            _ => self.limit(limit, standing),
        };
        let over = !standing.is_allowed() || standing.shadow_denied_by().is_some();
        let left = if over { 0 } else { standing.remaining().unwrap_or(0) };
        // What never comes back is said to take as long as the unit.
        let reset = wait(standing, standing.reset_at()).or_else(|| length_of(limit.unit));
        let reset = reset.map(|reset| WireDuration {
            seconds: i64::try_from(seconds(reset)).unwrap_or(i64::MAX),
            nanos: 0,
        });
        DescriptorStatus {
            code,
            current_limit: Some(limit),
            limit_remaining: u32::try_from(left).unwrap_or(u32::MAX),
            duration_until_reset: reset,
        }
    }

    fn limit(&mut self, id: LimitId, standing: &Decision) -> RateLimit {
        let label = match &self.last {
            Some((last, label)) if *last == id => label,
            _ => &self.last.insert((id, self.service.label(id))).1,
        };
        let burst = standing.burst().unwrap_or(0);
        let (name, (units, unit)) = match label.as_written() {
            Some(written) => (&*written.name, (burst, unit_of(written.unit))),
            None => (label.name(), in_a_unit(burst, standing.refill_time())),
        };
        RateLimit {
            name: name.into(),
            requests_per_unit: u32::try_from(units).unwrap_or(u32::MAX),
            unit: unit as i32,
        }
    }
}

/// So many units, and in what: the unit in which the burst comes back, or else the shortest in
/// which anything does.
fn in_a_unit(burst: u64, refill: Option<Duration>) -> (u64, Unit) {
    let Some(refill) = refill.filter(|refill| !refill.is_zero()) else {
        return (burst, Unit::Year);
    };
    if let Some((unit, _)) = UNITS.iter().find(|(_, length)| *length == refill) {
        return (burst, *unit);
    }
    let produced = |length: Duration| {
        let units = u128::from(burst) * length.as_nanos() / refill.as_nanos();
        u64::try_from(units).unwrap_or(u64::MAX)
    };
    let all = UNITS.iter().map(|(unit, length)| (produced(*length), *unit));
    all.into_iter().find(|(units, _)| *units > 0).unwrap_or((1, Unit::Year))
}

fn unit_of(length: Duration) -> Unit {
    let found = UNITS.iter().find(|(_, known)| *known == length);
    found.map_or(Unit::Unknown, |(unit, _)| *unit)
}

/// How long a unit is, by its number; the numbers are those of a limit that is brought too.
fn length_of(number: i32) -> Option<Duration> {
    UNITS.iter().find(|(unit, _)| *unit as i32 == number).map(|(_, length)| *length)
}

/// The units by length.
const UNITS: [(Unit, Duration); 7] = [
    (Unit::Second, Duration::from_secs(1)),
    (Unit::Minute, Duration::from_secs(60)),
    (Unit::Hour, Duration::from_secs(3_600)),
    (Unit::Day, Duration::from_secs(86_400)),
    (Unit::Week, Duration::from_secs(7 * 86_400)),
    (Unit::Month, Duration::from_secs(30 * 86_400)),
    (Unit::Year, Duration::from_secs(365 * 86_400)),
];
/// Descriptors of one request.
const DESCRIPTORS_MAX: usize = 1_000;

/// Answers bytes that a client sent.
#[cfg(fuzzing)]
pub(crate) fn answer_bytes(body: &[u8], app: &App) {
    if let Ok(request) = super::call::unframe(body).and_then(read::<RateLimitRequest>)
        && let Ok(response) = decide(&request, app)
    {
        assert_eq!(response.statuses.len(), request.descriptors.len());
    }
}
