//! `/v1/check` and its kin: a body in, a decision out.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use hyper::StatusCode;
use hyper::header::HeaderName;
use serde_json::{Value, json};
use tollgate::{
    Applies, Decision, Entry, Explained, How, Outcome, Reason, Request, Walk, WalkEnd, Walked,
};

use tollgate_tokio::Contact;

use super::ask::{Ask, Item};
use super::fields;
use super::problem::{PROBLEM_TYPE, Problem, QUOTA_EXCEEDED, REDUCED_CAPACITY};
use super::render::write_decision;
use super::response::{JSON_TYPE, Response, response};
use crate::app::{App, HeaderStyle, Member};
use crate::face::Face;
use crate::service::Service;

/// Decides one request, or each of a batch. With `stamp` the answer to one says when it was
/// decided.
pub(crate) async fn check(
    body: &[u8],
    style: HeaderStyle,
    stamp: bool,
    app: &App,
) -> Result<Response, Problem> {
    let service = &*app.service;
    match Ask::read(body).map_err(Problem::invalid)? {
        Ask::One(item) => {
            let _contacts = meet([&item], app).await;
            let decide = |request: &Request<'_>| service.check(Face::Http, request);
            let decision = item.with(service, decide).map_err(Problem::invalid)?;
            let mut response = decided(&decision, &[], style, service);
            if stamp {
                response.headers_mut().insert(DECIDED_AT, service.stamp(&decision).into());
            }
            Ok(response)
        }
        Ask::Batch(items) => {
            let _contacts = meet(items.iter().flatten(), app).await;
            Ok(check_all(&items, service))
        }
    }
}

/// In a fleet, waits until the owners of these requests' keys have said what has to be known,
/// for 10 ms at most. What comes of it is to be held until they are decided.
pub(crate) async fn meet<'i>(
    items: impl IntoIterator<Item = &'i Item<'i>>,
    app: &App,
) -> Vec<Contact> {
    let Some(Member { fleet, .. }) = &app.member else { return Vec::new() };
    let look = |item: &Item<'_>| {
        let wait = item.with(&app.service, |request| app.service.contact(request));
        wait.ok().flatten() // What is wrong with it is told when it is decided.
    };
    let new = items.into_iter().filter(|item| look(item).is_some());
    let contacts: Vec<_> = new.map(|item| fleet.meet(move |_| look(item))).collect();
    if contacts.is_empty() { Vec::new() } else { join_all(contacts).await }
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
pub(crate) async fn peek(body: &[u8], style: HeaderStyle, app: &App) -> Result<Response, Problem> {
    let item = one(body)?;
    // What a key has left that nobody here has asked for lately its owner knows.
    let _contacts = meet([&item], app).await;
    let service = &*app.service;
    let decision = item.with(service, |request| service.peek(request));
    Ok(shown(&decision.map_err(Problem::invalid)?, style, service))
}

/// Gives back what a request cost.
pub(crate) fn refund(body: &[u8], style: HeaderStyle, app: &App) -> Result<Response, Problem> {
    Ok(shown(&asked(body, app, Service::refund)?, style, &app.service))
}

/// Makes a request's keys as new.
pub(crate) fn reset(body: &[u8], style: HeaderStyle, app: &App) -> Result<Response, Problem> {
    let reset = |service: &Service, request: &Request<'_>| service.reset(request);
    let decision = asked(body, app, reset)?.map_err(Problem::shared_limit)?;
    Ok(shown(&decision, style, &app.service))
}

fn asked<T>(
    body: &[u8],
    app: &App,
    ask: impl FnOnce(&Service, &Request<'_>) -> T,
) -> Result<T, Problem> {
    let service = &*app.service;
    one(body)?.with(service, |request| ask(service, request)).map_err(Problem::invalid)
}

/// The one request in a body.
fn one(body: &[u8]) -> Result<Item<'_>, Problem> {
    Item::read(body).and_then(Item::without_expiry).map_err(Problem::invalid)
}

/// An answer to somebody who asked how things are: there is no denial in it.
fn shown(decision: &Decision, style: HeaderStyle, service: &Service) -> Response {
    let mut out = Vec::with_capacity(160);
    out.push(b'{');
    write_decision(&mut out, decision, service);
    out.push(b'}');
    let mut response = response(StatusCode::OK, JSON_TYPE, out);
    if decision.is_allowed() {
        fields::add(response.headers_mut(), decision, service, style);
    }
    response
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
        Reason::Stale => {
            let title = "Nothing of the limit is permitted here";
            (StatusCode::SERVICE_UNAVAILABLE, REDUCED_CAPACITY, title)
        }
        Reason::QueueFull => {
            (StatusCode::TOO_MANY_REQUESTS, QUOTA_EXCEEDED, "Too many requests wait for the limit")
        }
        Reason::Deadline => (
            StatusCode::TOO_MANY_REQUESTS,
            QUOTA_EXCEEDED,
            "Over the limit for as long as it waited",
        ),
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

/// Asks for [`DECIDED_AT`], by its only value, `monotonic`.
pub(crate) const STAMP: HeaderName = HeaderName::from_static("tollgate-stamp");
/// When a request was decided, in nanoseconds of the system's monotonic clock.
const DECIDED_AT: HeaderName = HeaderName::from_static("tollgate-decided-at");

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tollgate::{Limit, LimitSpec};

    use super::*;

    fn cut_off() -> App {
        let guarantee = "eventual";
        let spec = LimitSpec { name: "api", rate: "10/s", guarantee, ..LimitSpec::DEFAULT };
        App::cut_off(vec![Limit::parse(&spec).expect("sound")])
    }

    fn answer(body: &str, stamp: bool, app: &App) -> Response {
        let answer = check(body.as_bytes(), HeaderStyle::None, stamp, app).now_or_never();
        answer.expect("nothing waits without a fleet").unwrap_or_else(Problem::into_response)
    }

    #[test]
    fn what_a_fleet_permits_nothing_of_is_unavailable_and_can_be_asked_again() {
        let response = answer(r#"{"entries":{}}"#, false, &cut_off());
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()["content-type"], PROBLEM_TYPE);
        assert_eq!(response.headers()["retry-after"], "1");
    }

    #[test]
    fn an_answer_is_stamped_if_that_is_asked_for() {
        // Where no limit is in force, no clock is read.
        let spec = LimitSpec { name: "api", rate: "10/s", ..LimitSpec::DEFAULT };
        let (app, hand) = App::for_tests(vec![Limit::parse(&spec).expect("sound")]);
        let stamp = || {
            let response = answer(r#"{"entries":{}}"#, true, &app);
            let stamp = response.headers()[DECIDED_AT].to_str().expect("text").to_owned();
            stamp.parse::<u64>().expect("a number")
        };
        let first = stamp();
        hand.advance(std::time::Duration::from_micros(7));
        assert_eq!(stamp() - first, 7_000);
        let without = answer(r#"{"entries":{}}"#, false, &app);
        assert!(!without.headers().contains_key(DECIDED_AT));
    }
}
