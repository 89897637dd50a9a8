//! `/v1/reserve`, `/v1/settle` and `/v1/cancel`: an estimate now, what was used later.

use std::time::Duration;

use hyper::StatusCode;
use serde::Deserialize;
use tollgate::Request;

use super::ask::{Item, object};
use super::decisions::{decided, meet};
use super::problem::Problem;
use super::response::{JSON_TYPE, Response, response};
use crate::app::{App, HeaderStyle};
use crate::face::Face;
use crate::service::Corrected;
use crate::service::reservations::{Correction, EXPIRY_MAX, ReservationId};

/// Charges an estimate; the answer has the id to correct it by.
pub(crate) async fn reserve(
    body: &[u8],
    style: HeaderStyle,
    app: &App,
) -> Result<Response, Problem> {
    let service = &*app.service;
    let item = Item::read(body).map_err(Problem::invalid)?;
    let expiry = item.expires_ms.map(Duration::from_millis);
    if expiry.is_some_and(|expiry| expiry.is_zero() || expiry > EXPIRY_MAX) {
        let most = EXPIRY_MAX.as_millis();
        return Err(Problem::invalid(format!("expires_ms: must be 1 to {most}")));
    }
    let _contacts = meet([&item], app).await;
    let reserve = |request: &Request<'_>| service.reserve(Face::Http, request, expiry);
    let reserved = item.with(service, reserve).map_err(Problem::invalid)?;
    let reserved = reserved.map_err(|error| Problem::reservation(&error))?;
    let more = reserved.made.map_or_else(String::new, |(id, expires)| {
        let left = expires.saturating_since(service.now()).as_millis();
        format!(",\"reservation\":\"{id}\",\"expires_ms\":{left}")
    });
    Ok(decided(&reserved.decision, more.as_bytes(), style, service))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settle {
    reservation: String,
    used: Used,
}

/// One cost, or one for each descriptor.
#[derive(Deserialize)]
#[serde(untagged, expecting = "used must be a cost, or a list of one for each descriptor")]
enum Used {
    One(u64),
    Each(Vec<u64>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cancel {
    reservation: String,
}

/// Corrects an estimate to what was used.
pub(crate) fn settle(body: &[u8], _: HeaderStyle, app: &App) -> Result<Response, Problem> {
    let settle: Settle = object(body).map_err(Problem::invalid)?;
    let used = match settle.used {
        Used::One(cost) => vec![cost],
        Used::Each(costs) => costs,
    };
    if used.iter().any(|cost| *cost > USED_MAX) {
        return Err(Problem::invalid(format!("used: at most {USED_MAX} can be owed at once")));
    }
    correct(&settle.reservation, Correction::Settled(used), app)
}

/// Gives an estimate back.
pub(crate) fn cancel(body: &[u8], _: HeaderStyle, app: &App) -> Result<Response, Problem> {
    let cancel: Cancel = object(body).map_err(Problem::invalid)?;
    correct(&cancel.reservation, Correction::Cancelled, app)
}

fn correct(id: &str, correction: Correction, app: &App) -> Result<Response, Problem> {
    let id: ReservationId = id
        .parse()
        .map_err(|()| Problem::invalid("reservation: is not the id of a reservation".into()))?;
    let word = if correction == Correction::Cancelled { "cancelled" } else { "settled" };
    let corrected = app.service.correct(id, correction);
    let repeated = match corrected.map_err(|error| Problem::reservation(&error))? {
        Corrected::Before => true,
        Corrected::Now { owed } => {
            for owed in owed {
                match &app.member {
                    Some(member) => member.collect(owed, &app.service),
                    None => app.service.note_owed(0, owed.cost),
                }
            }
            false
        }
    };
    let body = format!("{{\"reservation\":\"{id}\",\"state\":\"{word}\",\"repeated\":{repeated}}}");
    Ok(response(StatusCode::OK, JSON_TYPE, body))
}

/// Costs are exact up to here; a slip of the pen above it would lock a key for ages.
const USED_MAX: u64 = 1 << 40;
