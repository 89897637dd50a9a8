//! Which path is answered by whom.

use hyper::body::Incoming;
use hyper::header::{EXPECT, HOST, HeaderValue, ORIGIN};
use hyper::{Method, Request, StatusCode, Uri};

use super::decisions::STAMP;
use super::problem::Problem;
use super::response::{JSON_TYPE, Response, TEXT_TYPE, response};
use super::{admin, decisions, fleet, nodes, policy, reservations};
use crate::app::{App, HeaderStyle};
use crate::face::Face;
use crate::faces::body::{self, BODY_BYTES_MAX};
use crate::faces::is_admitted;
use crate::guard::Guard;

/// What a request is answered with.
type Answered = Result<Response, Problem>;

/// What a path that is posted to does with the body.
#[derive(Clone, Copy)]
enum Post {
    Check,
    Peek,
    Reserve,
    /// Whatever never waits.
    Other(fn(&[u8], HeaderStyle, &App) -> Answered),
}

const POSTS: [(&str, Post); 9] = [
    ("/v1/check", Post::Check),
    ("/v1/peek", Post::Peek),
    ("/v1/refund", Post::Other(decisions::refund)),
    ("/v1/reset", Post::Other(decisions::reset)),
    ("/v1/explain", Post::Other(decisions::explain)),
    ("/v1/reserve", Post::Reserve),
    ("/v1/settle", Post::Other(reservations::settle)),
    ("/v1/cancel", Post::Other(reservations::cancel)),
    ("/v1/key", Post::Other(admin::key)),
];

impl Post {
    async fn answer(self, body: &[u8], style: HeaderStyle, stamp: bool, app: &App) -> Answered {
        match self {
            Self::Check => decisions::check(body, style, stamp, app).await,
            Self::Peek => decisions::peek(body, style, app).await,
            Self::Reserve => reservations::reserve(body, style, app).await,
            Self::Other(answer) => answer(body, style, app),
        }
    }
}

/// A path that is read, and whether anybody may.
type Get = (&'static str, bool, fn(&Request<Incoming>, &App) -> Response);

const GETS: [Get; 7] = [
    ("/", true, |_, _| admin::index()),
    ("/healthz", true, |_, _| response(StatusCode::OK, TEXT_TYPE, "ok\n")),
    ("/readyz", true, |_, app| admin::ready(app)),
    ("/metrics", false, admin::metrics),
    ("/openapi.json", true, |_, _| response(StatusCode::OK, JSON_TYPE, admin::OPENAPI)),
    ("/v1/limits", false, |_, app| admin::limits(app)),
    ("/v1/offenders", false, |_, app| admin::offenders(app)),
];

/// Answers one request.
pub(crate) async fn answer(request: Request<Incoming>, app: &App, guard: &Guard) -> Response {
    route(request, app, guard).await.unwrap_or_else(|problem| {
        let metrics = app.service.metrics();
        if problem.status == StatusCode::REQUEST_TIMEOUT {
            let of = metrics.face(Face::Http);
            of.timed_out.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        } else {
            metrics.invalid(Face::Http);
        }
        problem.into_response()
    })
}

async fn route(request: Request<Incoming>, app: &App, guard: &Guard) -> Answered {
    if is_from_elsewhere(&request) {
        return Err(Problem::other_origin());
    }
    let path = request.uri().path();
    if let Some((_, post)) = POSTS.iter().find(|(known, _)| *known == path) {
        admit(&request, app)?;
        if request.method() != Method::POST {
            return Err(Problem::method("POST"));
        }
        let style = header_style(request.uri(), app)?;
        let waits = request.headers().contains_key(EXPECT);
        let stamp = request.headers().get(STAMP).is_some_and(|clock| clock == "monotonic");
        let body =
            body::read(request.into_body(), guard, BODY_BYTES_MAX, app.bounds.partial, waits)
                .await?;
        let started = app.service.now();
        let response = post.answer(&body, style, stamp, app).await;
        let took = app.service.now().saturating_since(started);
        app.service.metrics().took(Face::Http, took, 1);
        return response;
    }
    if let Some(asked) = policy::Asked::of(path) {
        admit(&request, app)?;
        return policy::answer(asked, request, app, guard).await;
    }
    if let Some(asked) = fleet::Asked::of(path) {
        admit(&request, app)?;
        return fleet::answer(asked, &request, app).await;
    }
    if let Some(asked) = nodes::Asked::of(path) {
        admit(&request, app)?;
        return nodes::answer(asked, request.method(), app).await;
    }
    let get = GETS.iter().find(|(known, _, _)| *known == path);
    let Some((_, open, get)) = get else { return Err(Problem::no_such_path(path)) };
    if !open {
        admit(&request, app)?;
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return Err(Problem::method("GET, HEAD"));
    }
    Ok(get(&request, app))
}

/// Has every path answer this body.
#[cfg(fuzzing)]
pub(crate) fn post_all(body: &[u8], app: &App) {
    use futures_util::FutureExt;

    for (_, post) in POSTS {
        let answer = post.answer(body, app.headers, false, app).now_or_never();
        // Nothing waits where there is no fleet.
        let answer = answer.expect("an answer").unwrap_or_else(Problem::into_response);
        assert!(!answer.status().is_server_error() || answer.status().as_u16() == 503);
    }
}

/// Whoever is to show a secret has shown it.
fn admit(request: &Request<Incoming>, app: &App) -> Result<(), Problem> {
    if is_admitted(request.headers(), app) { Ok(()) } else { Err(Problem::unauthorized()) }
}

/// Whether a browser asks for a page of another site: it would let any page spend and reset.
fn is_from_elsewhere(request: &Request<Incoming>) -> bool {
    let text = |name| request.headers().get(name).map(HeaderValue::as_bytes);
    let Some(origin) = text(ORIGIN) else { return false };
    let site = origin.split(|byte| *byte == b'/').nth(2);
    let host = text(HOST).or_else(|| request.uri().authority().map(|a| a.as_str().as_bytes()));
    site.is_none() || site != host
}

/// The fields that an answer has: `?headers=` says so, or else the daemon's options.
fn header_style(uri: &Uri, app: &App) -> Result<HeaderStyle, Problem> {
    let Some(query) = uri.query() else { return Ok(app.headers) };
    let Some(style) = query.strip_prefix("headers=") else {
        return Err(Problem::invalid("the only query is headers=STYLE".into()));
    };
    style.parse().map_err(|()| {
        let known = "none, ietf, draft03, x-draft03, github";
        Problem::invalid(format!("headers: must be one of {known}"))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn the_description_has_every_path_and_no_other() {
        let described: Value = serde_json::from_str(admin::OPENAPI).expect("JSON");
        assert_eq!(described["info"]["version"], env!("CARGO_PKG_VERSION"));
        let paths = described["paths"].as_object().expect("paths");
        let mut found = BTreeSet::new();
        for (path, methods) in paths {
            for method in methods.as_object().expect("methods").keys() {
                found.insert((path.as_str(), method.as_str()));
            }
        }
        let posts = POSTS.iter().map(|(path, _)| (*path, "post"));
        // The first is for people.
        let gets = GETS[1..].iter().map(|(path, _, _)| (*path, "get"));
        let of_fleet = policy::PATHS.into_iter().chain(nodes::PATHS).chain(fleet::PATHS);
        assert_eq!(found, posts.chain(gets).chain(of_fleet).collect());
    }

    #[test]
    fn the_description_names_all_that_it_refers_to() {
        fn check(value: &Value, whole: &Value) {
            match value {
                Value::Object(members) => {
                    if let Some(target) = members.get("$ref") {
                        let target = target.as_str().and_then(|target| target.strip_prefix('#'));
                        let target = target.expect("a reference into the document");
                        assert!(whole.pointer(target).is_some(), "{target}");
                    }
                    members.values().for_each(|member| check(member, whole));
                }
                Value::Array(items) => items.iter().for_each(|item| check(item, whole)),
                _ => {}
            }
        }
        let described: Value = serde_json::from_str(admin::OPENAPI).expect("JSON");
        check(&described, &described);
    }
}
