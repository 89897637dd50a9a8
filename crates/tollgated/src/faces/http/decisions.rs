//! `/v1/check` and its kin: a body in, a decision out.

use std::collections::BTreeSet;

use hyper::StatusCode;
use serde_json::{Value, json};
use tollgate::{
    Applies, Decision, Entry, Explained, How, Outcome, Reason, Request, Walk, WalkEnd, Walked,
};

use super::ask::{Ask, Item};
use super::fields;
use super::problem::{PROBLEM_TYPE, Problem, QUOTA_EXCEEDED, REDUCED_CAPACITY};
use super::render::write_decision;
use super::response::{JSON_TYPE, Response, response};
use crate::app::{App, HeaderStyle};
use crate::face::Face;
use crate::service::Service;

/// Decides one request, or each of a batch.
pub(crate) fn check(body: &[u8], style: HeaderStyle, app: &App) -> Result<Response, Problem> {
    let service = &*app.service;
    match Ask::read(body).map_err(Problem::invalid)? {
        Ask::One(item) => {
            let decide = |request: &Request<'_>| service.check(Face::Http, request);
            let decision = item.with(service, decide).map_err(Problem::invalid)?;
            Ok(decided(&decision, &[], style, service))
        }
        Ask::Batch(items) => Ok(check_all(&items, service)),
    }
}

fn check_all(items: &[Result<Item<'_>, String>], service: &Service) -> Response {
    let mut out = Vec::with_capacity(16 + 96 * items.len());
    out.extend_from_slice(b"{\"results\":[");
    for (index, item) in items.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"{" } else { b",{" });
        let decide =
            |item: &Item<'_>| item.with(service, |request| service.check(Face::Http, request));
        match item.as_ref().map_err(String::clone).and_then(decide) {
            Ok(decision) => write_decision(&mut out, &decision, service),
            Err(error) => {
                service.metrics().invalid(Face::Http);
                out.extend_from_slice(b"\"error\":{");
                Problem::invalid(error).write_members(&mut out);
                out.push(b'}');
            }
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
    response(StatusCode::OK, JSON_TYPE, out)
}

/// What would be decided.
pub(crate) fn peek(body: &[u8], style: HeaderStyle, app: &App) -> Result<Response, Problem> {
    told(body, style, app, Service::peek)
}

/// Gives back what a request cost.
pub(crate) fn refund(body: &[u8], style: HeaderStyle, app: &App) -> Result<Response, Problem> {
    told(body, style, app, Service::refund)
}

/// Makes a request's keys as new.
pub(crate) fn reset(body: &[u8], style: HeaderStyle, app: &App) -> Result<Response, Problem> {
    told(body, style, app, Service::reset)
}

/// An answer to somebody who asked how things are: there is no denial in it.
fn told(
    body: &[u8],
    style: HeaderStyle,
    app: &App,
    ask: fn(&Service, &Request<'_>) -> Decision,
) -> Result<Response, Problem> {
    let service = &*app.service;
    let item = Item::read(body).and_then(Item::without_expiry).map_err(Problem::invalid)?;
    let decision = item.with(service, |request| ask(service, request)).map_err(Problem::invalid)?;
    let mut out = Vec::with_capacity(160);
    out.push(b'{');
    write_decision(&mut out, &decision, service);
    out.push(b'}');
    let mut response = response(StatusCode::OK, JSON_TYPE, out);
    if decision.is_allowed() {
        fields::add(response.headers_mut(), &decision, service, style);
    }
    Ok(response)
}

/// The answer to a request that was decided: 200, or the problem that it was denied, with the same
/// members. `more` goes into the body as it is.
pub(crate) fn decided(
    decision: &Decision,
    more: &[u8],
    style: HeaderStyle,
    service: &Service,
) -> Response {
    let mut out = Vec::with_capacity(200);
    out.push(b'{');
    let (status, kind) = match decision.outcome() {
        Outcome::Allowed => (StatusCode::OK, JSON_TYPE),
        Outcome::Denied(reason) => {
            let (status, kind, title) = denial(reason);
            write_problem(&mut out, decision, (status, kind, title), service);
            (status, PROBLEM_TYPE)
        }
    };
    write_decision(&mut out, decision, service);
    out.extend_from_slice(more);
    out.push(b'}');
    let mut response = response(status, kind, out);
    fields::add(response.headers_mut(), decision, service, style);
    response
}

/// A denial that ends by itself is 429; a cost above the burst never fits.
fn denial(reason: Reason) -> (StatusCode, &'static str, &'static str) {
    match reason {
        Reason::OverLimit => (StatusCode::TOO_MANY_REQUESTS, QUOTA_EXCEEDED, "Over the limit"),
        Reason::CostExceedsBurst => (
            StatusCode::PAYLOAD_TOO_LARGE,
            "urn:tollgate:problem:cost-exceeds-burst",
            "The cost is above the burst",
        ),
        Reason::KeyTableFull => {
            (StatusCode::SERVICE_UNAVAILABLE, REDUCED_CAPACITY, "The table of keys is full")
        }
    }
}

fn write_problem(
    out: &mut Vec<u8>,
    decision: &Decision,
    (status, kind, title): (StatusCode, &str, &str),
    service: &Service,
) {
    for (name, text) in [("\"type\":\"", kind), ("\",\"title\":\"", title)] {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(text.as_bytes());
    }
    out.extend_from_slice(b"\",\"status\":");
    out.extend_from_slice(status.as_str().as_bytes());
    if let Some(limit) = decision.limit() {
        out.extend_from_slice(b",\"violated-policies\":[\"");
        out.extend_from_slice(service.label(limit).name().as_bytes());
        out.extend_from_slice(b"\"]");
    }
    out.push(b',');
}

/// Which limits apply to a request, which don't and why.
pub(crate) fn explain(body: &[u8], _: HeaderStyle, app: &App) -> Result<Response, Problem> {
    let explained = explanation(body, &app.service).map_err(Problem::invalid)?;
    Ok(response(StatusCode::OK, JSON_TYPE, explained.to_string()))
}

/// The same for whoever has a service at hand.
///
/// # Errors
/// What is wrong with the body.
pub(crate) fn explanation(body: &[u8], service: &Service) -> Result<Value, String> {
    let item = Item::read(body)?.without_expiry()?;
    item.with(service, |request| {
        let explanation = service.explain(request);
        let limits = explanation.limits.iter().map(|limit| explained_value(limit, service));
        let limits: Vec<Value> = limits.collect();
        let mut shown = json!({ "decision": decision_value(&explanation.decision, service) });
        if !explanation.walks.is_empty() {
            let walks = explanation.walks.iter().map(|walk| walk_value(walk, request));
            shown["walks"] = walks.collect();
        } else if limits.is_empty() {
            // Most likely the domain is misspelt.
            let all = service.limits();
            let domains: BTreeSet<&str> = all.iter().map(|status| status.limit.domain()).collect();
            shown["domains"] = json!(domains);
        }
        shown["limits"] = limits.into();
        shown
    })
}

fn explained_value(limit: &Explained, service: &Service) -> Value {
    let mut shown = json!({
        "limit": limit.limit,
        "descriptor": limit.descriptor,
        "guarantee": limit.guarantee.name(),
        "shadow": limit.shadow,
        "applies": matches!(limit.applies, Applies::Yes { .. }),
    });
    match &limit.applies {
        Applies::Yes { key, alone } => {
            shown["key"] = key_value(key);
            shown["alone"] = decision_value(alone, service);
        }
        Applies::MissingEntry { entry } => {
            shown["why"] = format!("the request has no entry {entry:?}").into();
        }
        Applies::OtherValue { entry, wanted } => {
            shown["why"] = format!("the request's {entry:?} is not {wanted:?}").into();
        }
        Applies::Replaced { by } => {
            shown["why"] = format!("limit {by:?} applies and replaces it").into();
        }
    }
    shown
}

/// The way of a descriptor along paths: how each entry was taken, and where that ended.
fn walk_value(walk: &Walk, request: &Request<'_>) -> Value {
    let entries = request.descriptors()[walk.descriptor].entries();
    let shown = |(entry, step): (&Entry<'_>, &Walked)| {
        let how = match step.how {
            How::Exact => "as it is",
            How::Pattern => "by a pattern",
            How::Any => "with any value",
        };
        json!({ "entry": entry.name(), "step": step.step, "how": how })
    };
    let steps: Vec<Value> = entries.iter().zip(&walk.steps).map(shown).collect();
    let end = match walk.end {
        WalkEnd::Limit => "at a limit".into(),
        WalkEnd::Blank => "at a path that has no limit".into(),
        WalkEnd::TooShort => "before any limit: the paths go on behind the last entry".into(),
        WalkEnd::NoStep => {
            let missing = entries.get(walk.steps.len()).map_or("", Entry::name);
            format!("without a limit: no path goes on with this value of {missing:?}")
        }
    };
    json!({ "descriptor": walk.descriptor, "steps": steps, "ends": end })
}

/// A key's parts as an object; null where the request has no such entry.
pub(crate) fn key_value(key: &[(String, Option<Vec<u8>>)]) -> Value {
    let text = |value: &Option<Vec<u8>>| match value {
        Some(value) => String::from_utf8_lossy(value).into_owned().into(),
        None => Value::Null,
    };
    Value::Object(key.iter().map(|(name, value)| (name.clone(), text(value))).collect())
}

/// A decision as part of a larger answer.
pub(crate) fn decision_value(decision: &Decision, service: &Service) -> Value {
    let mut out = vec![b'{'];
    write_decision(&mut out, decision, service);
    out.push(b'}');
    // What we wrote is JSON.
    serde_json::from_slice(&out).unwrap_or(Value::Null)
}
