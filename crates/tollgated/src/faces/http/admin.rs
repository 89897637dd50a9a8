//! What people and their tools look at: limits, keys, offenders, metrics, readiness.

use std::time::UNIX_EPOCH;

use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use hyper::{Request, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate::{Allowance, LimitStatus, Oversize};

use super::ask::{Entries, Text, object};
use super::decisions::{decision_value, key_value};
use super::problem::Problem;
use super::response::{JSON_TYPE, Response, TEXT_TYPE, response};
use super::{shares, tally};
use crate::app::{App, HeaderStyle};
use crate::service::offenders::{Offender, SEATS};
use crate::shares::ShareStatus;

/// The description of this door for programs.
pub(crate) const OPENAPI: &str = include_str!("openapi.json");

/// The description of this door for people.
pub(crate) fn index() -> Response {
    response(StatusCode::OK, TEXT_TYPE, INDEX)
}

/// Whether requests are to be sent here.
pub(crate) fn ready(app: &App) -> Response {
    if app.service.has_given_notice() {
        return response(StatusCode::SERVICE_UNAVAILABLE, TEXT_TYPE, "draining\n");
    }
    // Listening begins when the first limits are in force.
    response(StatusCode::OK, TEXT_TYPE, "ready\n")
}

pub(crate) fn metrics(request: &Request<Incoming>, app: &App) -> Response {
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let (kind, text) = app.exposition.show(accept.unwrap_or(""));
    let mut response = response(StatusCode::OK, TEXT_TYPE, text);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// The limits in force, where they came from, and what is wrong with the file since.
pub(crate) fn limits(app: &App) -> Response {
    let status = app.policy.status();
    let seconds = status.loaded_at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let findings = |list: &[crate::config::Finding]| -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    };
    let all = app.service.limits();
    let limits = all.iter().filter(|status| !status.limit.is_blank());
    let divided = app.shares.as_ref().map(|shares| shares());
    let limit = |limit: &LimitStatus| limit_value(limit, divided.as_ref());
    let source = if status.is_fleets { json!("fleet") } else { json!(app.policy.path()) };
    let body = json!({
        "revision": app.service.revision(),
        "config": {
            "source": source,
            "valid": status.errors.is_empty(),
            "files": status.files,
            "loaded_at_unix": seconds.map(|seconds| seconds.as_secs()),
            "errors": findings(&status.errors),
            "warnings": findings(&status.warnings),
        },
        "limits": limits.map(limit).collect::<Vec<_>>(),
        "stores": app.service.tally_status().as_ref().map(tally::value),
    });
    response(StatusCode::OK, JSON_TYPE, body.to_string())
}

fn limit_value(status: &LimitStatus, divided: Option<&ShareStatus>) -> Value {
    let limit = &status.limit;
    let counts = &status.counts;
    let matches: serde_json::Map<String, Value> = limit
        .match_entries()
        .map(|(name, value)| (name.to_owned(), value.unwrap_or("*").into()))
        .collect();
    let (rate, burst) = match limit.allowance() {
        Allowance::Unlimited => ("unlimited".to_owned(), None),
        Allowance::Metered { rate, burst } => (rate.to_string(), Some(burst)),
    };
    json!({
        "name": limit.name(),
        "domain": limit.domain(),
        "match": matches,
        "path": limit.path_steps().collect::<Vec<_>>(),
        "key": limit.key().collect::<Vec<_>>(),
        "rate": rate,
        "burst": burst,
        "guarantee": limit.guarantee().name(),
        "window_seconds": limit.window_of(limit.allowance()).map(|of| of.length().as_secs()),
        "count": limit.counts_offered().map(|all| if all { "offered" } else { "admitted" }),
        "mode": limit.share_mode().map(tollgate::ShareMode::name),
        "share": shares::value(status, divided),
        "on_stale": limit.on_stale().map(tollgate::tally::OnStale::name),
        "local_cap": limit.local_cap(),
        "bootstrap": limit.bootstrap(),
        "oversize": match limit.oversize() { Oversize::Never => "never", Oversize::Pace => "pace" },
        "shadow": limit.is_shadow(),
        "overrides": limit.overrides().len(),
        "generation": status.generation,
        "counts": {
            "allowed": counts.allowed,
            "over_limit": counts.over_limit,
            "cost_exceeds_burst": counts.cost_exceeds_burst,
            "key_table_full": counts.key_table_full,
            "stale": counts.stale,
            "queue_full": counts.queue_full,
            "deadline": counts.deadline,
            "shadow_denied": counts.shadow_denied,
            "overflowed": counts.overflowed,
            "evicted": counts.evicted,
        },
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound = "'de: 'a")]
struct KeyQuestion<'a> {
    limit: Text<'a>,
    domain: Option<Text<'a>>,
    key: Option<Entries<'a>>,
}

/// What one key of one limit has left.
pub(crate) fn key(body: &[u8], _: HeaderStyle, app: &App) -> Result<Response, Problem> {
    let asked: KeyQuestion<'_> = object(body).map_err(Problem::invalid)?;
    let domain = asked.domain.as_ref().map_or(tollgate::DEFAULT_DOMAIN, |domain| &domain.0);
    let value = |name: &str| asked.key.as_ref().and_then(|key| key.value(name));
    let state = app.service.key_state(domain, &asked.limit.0, value).ok_or_else(|| {
        let shown: String = asked.limit.0.chars().take(64).collect();
        Problem::no_such_limit(format!("no limit {shown:?} is in force in that domain"))
    })?;
    let stray = asked.key.iter().flat_map(Entries::names);
    if let Some(stray) = stray.into_iter().find(|name| !state.key_names.iter().any(|k| k == name)) {
        let known = state.key_names.join(", ");
        let detail = format!("key: {stray:?} is no part of the limit's key ({known})");
        return Err(Problem::invalid(detail));
    }
    let parts: Vec<(String, Option<Vec<u8>>)> = state
        .key_names
        .iter()
        .map(|name| (name.clone(), value(name).map(<[u8]>::to_vec)))
        .collect();
    let mut body = decision_value(&state.decision, &app.service);
    if let Value::Object(members) = &mut body {
        members.remove("allowed"); // It was asked at no cost, which always passes.
        members.insert("limit".into(), (*asked.limit.0).into());
        members.insert("key".into(), key_value(&parts));
    }
    Ok(response(StatusCode::OK, JSON_TYPE, body.to_string()))
}

/// The keys that are denied most.
pub(crate) fn offenders(app: &App) -> Response {
    let shown = |offender: &Offender| {
        json!({
            "domain": offender.domain,
            "limit": offender.limit,
            "key": key_value(&offender.parts),
            "denied": offender.count,
            "error": offender.error,
        })
    };
    let worst: Vec<Value> = app.service.worst(SEATS).iter().map(shown).collect();
    response(StatusCode::OK, JSON_TYPE, json!({ "offenders": worst }).to_string())
}

const INDEX: &str = "\
tollgate: rate limits for many tenants

POST /v1/check      may this request pass?      {\"entries\":{\"tenant\":\"acme\"},\"cost\":1}
                    up to 1000 at once          {\"requests\":[{\"entries\":{...}},...]}
POST /v1/peek       the same, spending nothing
POST /v1/refund     give back what it cost
POST /v1/reset      make its keys as new
POST /v1/explain    which limits apply to it, which don't and why
POST /v1/reserve    charge an estimate          + \"expires_ms\"; answers \"reservation\"
POST /v1/settle     correct it to what was used {\"reservation\":\"...\",\"used\":1}
POST /v1/cancel     give it back                {\"reservation\":\"...\"}
POST /v1/key        what one key has left       {\"limit\":\"api\",\"key\":{\"tenant\":\"acme\"}}
GET  /v1/limits     the limits in force, with counts
GET  /v1/offenders  the keys that are denied most
GET  /v1/policy     the fleet's policy in force     also /v1/policy/history, /v1/policy/12
PUT  /v1/policy     put another in force            {\"limits\":[...],\"comment\":\"...\"}
POST /v1/policy/rollback  an older one again        {\"to\":12}
GET  /v1/fleet      members, and what each limit promises beside what was observed
GET  /v1/fleet/keys   the fleet's keys, the fullest first    ?limit=api&sort=denied&page=0
GET  /v1/fleet/owner  who owns a key                         ?limit=api&tenant=acme
GET  /v1/fleet/nodes  the fleet's nodes            also DELETE /v1/fleet/nodes/3
POST /v1/fleet/nodes/3/drain  let it own nothing   PUT /v1/fleet/nodes/3/weight/1
GET  /v1/fleet/backup  what the fleet has agreed on, as a file
GET  /metrics  /healthz  /readyz  /openapi.json
";
