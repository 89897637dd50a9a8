//! A `RateLimitResponse`, written straight into the bytes to send.
//!
//! A status says what Envoy makes `x-ratelimit-*` of: the limit as so many in a unit, what is left,
//! and the time until all is back. Whatever is denied has nothing left, so that Envoy speaks of the
//! limit that denied.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::HeaderMap;
use tollgate::{Decision, LimitId, Retry};

use super::call;
use super::request::{AskedDescriptor, AskedLimit};
use super::wire::{message, number, text};
use crate::app::{App, HeaderStyle};
use crate::faces::http::fields;
use crate::faces::{seconds, wait};
use crate::service::{Label, Service};

/// The answer to a request, as it is sent.
pub(super) fn write(
    decision: &Decision,
    standings: &[Option<Decision>],
    asked: &[AskedDescriptor],
    app: &App,
) -> Bytes {
    call::framed(32 + STATUS_BYTES * standings.len(), |out| {
        number(out, 1, code(decision));
        let mut shown = Shown { service: &app.service, last: None };
        for (standing, asked) in standings.iter().zip(asked) {
            message(out, 2, |out| shown.status(out, standing.as_ref(), asked.limit));
        }
        write_headers(out, decision, app);
    })
}

/// The fields that Envoy is to add to the response.
fn write_headers(out: &mut BytesMut, decision: &Decision, app: &App) {
    if app.grpc_headers == HeaderStyle::None {
        return;
    }
    let mut headers = HeaderMap::new();
    fields::add(&mut headers, decision, &app.service, app.grpc_headers);
    for (name, value) in &headers {
        message(out, 3, |out| {
            text(out, 1, name.as_str());
            // All of them are text.
            text(out, 2, value.to_str().unwrap_or_default());
        });
    }
}

/// Writes statuses; those of one answer are mostly of one limit.
struct Shown<'a> {
    service: &'a Service,
    last: Option<(LimitId, Arc<Label>)>,
}

impl Shown<'_> {
    fn status(
        &mut self,
        out: &mut BytesMut,
        standing: Option<&Decision>,
        brought: Option<AskedLimit>,
    ) {
        let Some(standing) = standing else { return number(out, 1, CODE_OK) };
        number(out, 1, code(standing));
        let Some(limit) = standing.limit() else {
            return number(out, 3, u64::from(u32::MAX)); // Unlimited.
        };
        let (name, units, unit) = match brought {
            Some(AskedLimit { requests_per_unit, unit }) if limit == LimitId::BROUGHT => {
                ("", u64::from(requests_per_unit), unit)
            }
            _ => self.limit(limit, standing),
        };
        message(out, 2, |out| {
            number(out, 1, units.min(NUMBER_MAX));
            number(out, 2, unit as u64);
            text(out, 3, name);
        });
        let over = !standing.is_allowed() || standing.shadow_denied_by().is_some();
        let left = if over { 0 } else { standing.remaining().unwrap_or(0) };
        number(out, 3, left.min(NUMBER_MAX));
        // What never passes or comes back is said to take as long as the unit.
        let never = standing.retry_at() == Some(Retry::Never);
        let reset = wait(standing, standing.reset_at()).filter(|_| !never);
        if let Some(reset) = reset.or_else(|| length_of(unit)) {
            message(out, 4, |out| number(out, 1, seconds(reset).min(SECONDS_MAX)));
        }
    }

    /// A limit's name, and how it is said: so many in a unit.
    fn limit(&mut self, id: LimitId, standing: &Decision) -> (&str, u64, i32) {
        if self.last.as_ref().is_none_or(|(last, _)| *last != id) {
            self.last = Some((id, self.service.label(id)));
        }
        let label = self.last.as_ref().map(|(_, label)| &**label);
        let burst = standing.burst().unwrap_or(0);
        if let Some(written) = label.and_then(Label::as_written) {
            return (&written.name, burst, unit_of(written.unit));
        }
        let (units, unit) = in_a_unit(burst, standing.refill_time());
        (label.map_or("", Label::name), units, unit)
    }
}

fn code(decision: &Decision) -> u64 {
    if decision.is_allowed() { CODE_OK } else { CODE_OVER_LIMIT }
}

/// So many units, and in what: the unit in which the burst comes back, or else the shortest in
/// which anything does.
fn in_a_unit(burst: u64, refill: Option<Duration>) -> (u64, i32) {
    let Some(refill) = refill.filter(|refill| !refill.is_zero()) else {
        return (burst, UNIT_YEAR);
    };
    if let Some((unit, _)) = UNITS.iter().find(|(_, length)| *length == refill) {
        return (burst, *unit);
    }
    let produced = |length: Duration| {
        let units = u128::from(burst) * length.as_nanos() / refill.as_nanos();
        u64::try_from(units).unwrap_or(u64::MAX)
    };
    let mut all = UNITS.iter().map(|(unit, length)| (produced(*length), *unit));
    all.find(|(units, _)| *units > 0).unwrap_or((1, UNIT_YEAR))
}

/// A unit's number by its length.
fn unit_of(length: Duration) -> i32 {
    UNITS.iter().find(|(_, known)| *known == length).map_or(0, |(unit, _)| *unit)
}

/// How long a unit is, by its number; the numbers are those of a limit that is brought too.
pub(super) fn length_of(number: i32) -> Option<Duration> {
    UNITS.iter().find(|(unit, _)| *unit == number).map(|(_, length)| *length)
}

const UNIT_YEAR: i32 = 6;
/// No limit that is brought has it.
pub(super) const UNIT_WEEK: i32 = 7;
/// The units by length, with the protocol's numbers.
const UNITS: [(i32, Duration); 7] = [
    (1, Duration::from_secs(1)),
    (2, Duration::from_secs(60)),
    (3, Duration::from_secs(3_600)),
    (4, Duration::from_secs(86_400)),
    (UNIT_WEEK, Duration::from_secs(7 * 86_400)),
    (5, Duration::from_secs(30 * 86_400)),
    (UNIT_YEAR, Duration::from_secs(365 * 86_400)),
];
const CODE_OK: u64 = 1;
const CODE_OVER_LIMIT: u64 = 2;
/// The largest number of these fields.
const NUMBER_MAX: u64 = u32::MAX as u64;
/// The longest duration of protobuf: ten thousand years.
const SECONDS_MAX: u64 = 315_576_000_000;
/// What a status takes, more or less.
const STATUS_BYTES: usize = 40;
