//! Envoy's rate-limit service, `ShouldRateLimit`: a domain and descriptors in, a status for each
//! out.

use std::fmt::Display;

use bytes::Bytes;
use tollgate::mutant::lacks;
use tollgate::{Descriptor, DomainKind, Rate, Request, Wait};

use super::call::{Code, Fault};
use super::request::{Asked, AskedDescriptor, AskedLimit, DESCRIPTORS_MAX};
use super::status::{self, UNIT_WEEK, length_of};
use crate::app::App;
use crate::face::Face;
use crate::service::each::Unusual;

/// Answers the request in a message.
///
/// # Errors
/// When it is not what it should be; nothing was spent.
pub(super) fn answer(message: &[u8], app: &App) -> Result<Bytes, Fault> {
    read(message, app, |request, unusual, wanted| decide(request, unusual, wanted, app))?
}

/// The same, unless the request has to wait before it can be decided; `None` then, and nothing was
/// spent.
///
/// # Errors
/// As [`answer`].
pub(super) fn answer_now(message: &[u8], app: &App) -> Result<Option<Bytes>, Fault> {
    if app.member.is_none() {
        return answer(message, app).map(Some);
    }
    read(message, app, |request, unusual, wanted| {
        match app.service.contact_each(request, unusual) {
            Some(_) => Ok(None),
            None => decide(request, unusual, wanted, app).map(Some),
        }
    })?
}

/// What the request in a message has to wait for.
pub(super) fn contact(message: &[u8], app: &App) -> Option<Wait> {
    let look = |request: &Request<'_>, unusual: &[Unusual], _: &[AskedDescriptor]| {
        app.service.contact_each(request, unusual)
    };
    read(message, app, look).ok().flatten()
}

fn decide(
    request: &Request<'_>,
    unusual: &[Unusual],
    wanted: &[AskedDescriptor],
    app: &App,
) -> Result<Bytes, Fault> {
    let mut standings = Vec::with_capacity(wanted.len());
    let decided = app.service.check_each(Face::Grpc, request, unusual, &mut standings);
    let decision =
        decided.map_err(|error| Fault::new(Code::ResourceExhausted, error.to_string()))?;
    Ok(status::write(&decision, &standings, wanted, app))
}

/// Hands on what a message asks.
fn read<T>(
    message: &[u8],
    app: &App,
    ask: impl FnOnce(&Request<'_>, &[Unusual], &[AskedDescriptor]) -> T,
) -> Result<T, Fault> {
    let asked = Asked::read(message).map_err(|_| Fault::invalid("no RateLimitRequest"))?;
    let Asked { domain, descriptors: wanted, entries, hits_addend } = &asked;
    if domain.is_empty() {
        return Err(Fault::invalid("domain: must not be empty"));
    }
    match wanted.len() {
        0 => return Err(Fault::invalid("descriptors: must not be empty")),
        1..=DESCRIPTORS_MAX => {}
        _ => {
            let message = format!("descriptors: more than {DESCRIPTORS_MAX}");
            return Err(Fault::invalid(message));
        }
    }
    let in_order = app.service.domain_kind(domain) == Some(DomainKind::Path);
    let mut rest = &entries[..];
    let mut descriptors = Vec::with_capacity(wanted.len());
    let mut unusual = Vec::new();
    for (index, one) in wanted.iter().enumerate() {
        let invalid =
            |error: &dyn Display| Fault::invalid(format!("descriptors[{index}]: {error}"));
        let entries;
        (entries, rest) = rest.split_at(one.entries);
        if entries.is_empty() {
            return Err(invalid(&"entries: must not be empty"));
        }
        let made = if in_order { Descriptor::ordered(entries) } else { Descriptor::new(entries) };
        let cost = one.hits_addend.unwrap_or_else(|| u64::from(*hits_addend).max(1));
        descriptors.push(made.map_err(|error| invalid(&error))?.with_cost(cost));
        let brings = one.limit.as_ref().map(brought).transpose();
        let brings = brings.map_err(|error| invalid(&error))?;
        let gives_back = one.is_negative_hits && !lacks("no_hits_back");
        if brings.is_some() || gives_back {
            unusual.push(Unusual { index, gives_back, brings });
        }
    }
    Ok(ask(&Request::new(&descriptors).in_domain(domain), &unusual, wanted))
}

/// What a descriptor brings, as a rate and a burst.
fn brought(limit: &AskedLimit) -> Result<(Rate, u64), String> {
    let unit = length_of(limit.unit).filter(|_| limit.unit != UNIT_WEEK);
    let Some(unit) = unit else {
        return Err(format!("limit.unit: {} is none of SECOND (1) to YEAR (6)", limit.unit));
    };
    let units = u64::from(limit.requests_per_unit);
    if units == 0 {
        return Ok((Rate::ZERO, 0));
    }
    let period = u64::try_from(unit.as_nanos()).unwrap_or(u64::MAX);
    Rate::new(units, period).map(|rate| (rate, units)).map_err(|error| error.to_string())
}

/// Answers bytes that a client sent; what is read of them is what the messages say that are made
/// from the protocol's file.
#[cfg(fuzzing)]
pub(crate) fn answer_bytes(body: &[u8], app: &App) {
    use prost::Message;

    use super::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

    let Ok(message) = super::call::unframe(body) else { return };
    if let Ok(answer) = answer(message, app) {
        let request = RateLimitRequest::decode(message).expect("we read it");
        let message = super::call::unframe(&answer).expect("one message");
        let response = RateLimitResponse::decode(message).expect("we wrote it");
        assert_eq!(response.statuses.len(), request.descriptors.len());
    }
}
