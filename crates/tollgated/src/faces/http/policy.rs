//! `/v1/policy`: what a fleet's limits are, were and shall be.
//!
//! A policy is checked here as a file is, before it is proposed, so that none that is not sound
//! gets into the fleet's log. How the fleet agrees is known to whoever implements `agreement`.

use bytes::Bytes;
use hyper::body::Body;
use hyper::header::{ACCEPT, ETAG, EXPECT, HeaderMap, HeaderValue, IF_MATCH};
use hyper::{Method, Request, StatusCode, Uri};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tollgate::coordinator::{Answer, Command, Document, Edit, LimitText, Revision};
use tollgate::mutant::lacks;
use tollgate_tokio::limit_text::{from_document, to_texts};

use super::ask::object;
use super::problem::Problem;
use super::response::{JSON_TYPE, Response, TOML_TYPE, response};
use crate::agreement::{Agreement, unix_now, when};
use crate::app::App;
use crate::config::{self, Finding, Reading, no_env};
use crate::coordinator::Kept;
use crate::faces::body::{self, BODY_BYTES_MAX, POLICY_BYTES_MAX};
use crate::guard::Guard;

/// What is asked for by its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    InForce,
    History,
    Revision(Revision),
    Rollback,
}

/// The paths, and what is done with them.
#[cfg(test)]
pub(crate) const PATHS: [(&str, &str); 5] = [
    ("/v1/policy", "get"),
    ("/v1/policy", "put"),
    ("/v1/policy/history", "get"),
    ("/v1/policy/{revision}", "get"),
    ("/v1/policy/rollback", "post"),
];

impl Asked {
    /// What a path asks for, if it is one of these.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let rest = path.strip_prefix("/v1/policy")?;
        if rest.is_empty() {
            return Some(Self::InForce);
        }
        Some(match rest.strip_prefix('/')? {
            "history" => Self::History,
            "rollback" => Self::Rollback,
            number => Self::Revision(revision(number)?),
        })
    }
}

/// A revision in plain digits, as it is shown.
fn revision(text: &str) -> Option<Revision> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(Revision::new(number))
}

/// Answers one request of somebody who may ask.
pub(crate) async fn answer<B>(
    asked: Asked,
    request: Request<B>,
    app: &App,
    guard: &Guard,
) -> Result<Response, Problem>
where
    B: Body<Data = Bytes> + Unpin,
{
    let method = request.method();
    let reads = method == Method::GET || method == Method::HEAD;
    let (allowed, may) = match asked {
        Asked::InForce => ("GET, HEAD, PUT", reads || method == Method::PUT),
        Asked::History | Asked::Revision(_) => ("GET, HEAD", reads),
        Asked::Rollback => ("POST", method == Method::POST),
    };
    if !may {
        return Err(Problem::method(allowed));
    }
    let Some(agreement) = app.agreement.as_deref() else {
        return Err(Problem::alone(app.policy.path()));
    };
    match asked {
        Asked::InForce if reads => {
            let format = Format::of(&request)?;
            let document = agreement.policy().await?;
            let document = document.map_or_else(nothing_yet, |document| (*document).clone());
            aside(move || show(&document, format)).await?
        }
        Asked::InForce => {
            let (expected, body) = read(request, app, guard, POLICY_BYTES_MAX).await?;
            put(expected, body, app, agreement).await
        }
        Asked::History => {
            no_query(request.uri())?;
            Ok(history(&agreement.history().await?))
        }
        Asked::Revision(revision) => {
            let format = Format::of(&request)?;
            let document = agreement.document(revision).await?;
            let document = document.ok_or_else(|| Problem::no_such_revision(revision))?;
            aside(move || show(&document, format)).await?
        }
        Asked::Rollback => {
            let (expected, body) = read(request, app, guard, BODY_BYTES_MAX).await?;
            roll_back(expected, body, app, agreement).await
        }
    }
}

/// How a policy is to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Toml,
}

impl Format {
    /// `?format=` says it, or else `Accept`.
    fn of<B>(request: &Request<B>) -> Result<Self, Problem> {
        match request.uri().query() {
            Some("format=json") => Ok(Self::Json),
            Some("format=toml") => Ok(Self::Toml),
            Some(_) => Err(Problem::invalid("the only query is format=toml or format=json".into())),
            None => {
                let accept = request.headers().get(ACCEPT).map(HeaderValue::as_bytes);
                let of = |accept: &[u8]| {
                    accept.windows(TOML_TYPE.len()).any(|part| part == TOML_TYPE.as_bytes())
                };
                Ok(if accept.is_some_and(of) { Self::Toml } else { Self::Json })
            }
        }
    }
}

fn no_query(uri: &Uri) -> Result<(), Problem> {
    match uri.query() {
        None => Ok(()),
        Some(_) => Err(Problem::invalid("there is no query here".into())),
    }
}

/// What is in force before any policy was put.
fn nothing_yet() -> Document {
    let (author, comment) = (String::new(), String::new());
    Document { revision: Revision::ZERO, author, comment, unix_seconds: 0, limits: Box::new([]) }
}

fn show(document: &Document, format: Format) -> Result<Response, Problem> {
    let Document { revision, author, comment, unix_seconds, .. } = document;
    let limits = from_document(document).map_err(|error| Problem::unreadable(*revision, &error))?;
    let shown = match format {
        Format::Json => {
            let body = json!({
                "revision": revision.get(),
                "author": author,
                "comment": comment,
                "unix_seconds": unix_seconds,
                "limits": config::list_of(&limits),
            });
            response(StatusCode::OK, JSON_TYPE, body.to_string())
        }
        Format::Toml => {
            let limits = config::toml_of(&limits).ok_or_else(Problem::not_in_toml)?;
            let line = |text: &str| text.replace(char::is_control, " ");
            let (when, author, comment) = (when(*unix_seconds), line(author), line(comment));
            let head = format!("# Revision {revision}, {when}, by {author:?}: {comment}\n\n");
            response(StatusCode::OK, TOML_TYPE, head + &limits)
        }
    };
    Ok(with_etag(shown, *revision))
}

fn history(kept: &[Kept]) -> Response {
    let shown = |kept: &Kept| {
        json!({
            "revision": kept.revision,
            "author": kept.author,
            "comment": kept.comment,
            "unix_seconds": kept.unix_seconds,
            "limits": kept.limits,
            "changed": kept.changed,
        })
    };
    let list: Vec<Value> = kept.iter().rev().map(shown).collect();
    response(StatusCode::OK, JSON_TYPE, json!({ "history": list }).to_string())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PutBody<'a> {
    #[serde(borrow)]
    limits: Vec<&'a RawValue>,
    #[serde(default)]
    author: String,
    #[serde(default)]
    comment: String,
}

/// A policy that was found sound.
struct Sound {
    limits: Vec<LimitText>,
    warnings: Vec<Finding>,
    author: String,
    comment: String,
}

impl Sound {
    fn read(body: &[u8], keys_max: u64) -> Result<Self, Problem> {
        let text =
            std::str::from_utf8(body).map_err(|error| Problem::invalid(error.to_string()))?;
        let PutBody { limits, author, comment } =
            object(text.as_bytes()).map_err(Problem::invalid)?;
        let reading = Reading { env: no_env, ..Reading::of(keys_max, false) };
        let (limits, warnings) = config::parse_limits(&limits, (BODY_NAME, text), reading)
            .map_err(|findings| Problem::unsound(&findings))?;
        Ok(Self { limits: to_texts(&limits), warnings, author, comment })
    }
}

async fn put(
    expected: Option<Revision>,
    body: Bytes,
    app: &App,
    agreement: &dyn Agreement,
) -> Result<Response, Problem> {
    let keys_max = app.service.keys_max();
    let Sound { limits, warnings, author, comment } =
        aside(move || Sound::read(&body, keys_max)).await??;
    let edit = Edit { expected, author, comment, unix_seconds: unix_now() };
    propose(agreement, Command::PutPolicy { edit, limits }, &warnings).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RollbackBody {
    to: u64,
    #[serde(default)]
    author: String,
    #[serde(default)]
    comment: String,
}

async fn roll_back(
    expected: Option<Revision>,
    body: Bytes,
    app: &App,
    agreement: &dyn Agreement,
) -> Result<Response, Problem> {
    let RollbackBody { to, author, comment } = object(&body).map_err(Problem::invalid)?;
    let to = Revision::new(to);
    let document = agreement.document(to).await?.ok_or_else(|| Problem::no_such_revision(to))?;
    let keys_max = app.service.keys_max();
    // It was sound where it was put, which may have been another version with more room.
    let unchecked = lacks("rollback_unchecked");
    aside(move || {
        if unchecked {
            return Ok(());
        }
        let limits = from_document(&document).map_err(|error| Problem::unreadable(to, &error))?;
        config::check_together(limits, keys_max).map_err(|error| Problem::unreadable(to, &error))
    })
    .await??;
    let edit = Edit { expected, author, comment, unix_seconds: unix_now() };
    propose(agreement, Command::Rollback { edit, to }, &[]).await
}

async fn propose(
    agreement: &dyn Agreement,
    command: Command,
    warnings: &[Finding],
) -> Result<Response, Problem> {
    let answer = agreement.propose(command).await.map_err(Problem::proposal)?;
    let Answer::Revised { revision } = answer else {
        return Err(Problem::broken(format!("a policy was answered with {answer:?}")));
    };
    let body = json!({ "revision": revision.get(), "warnings": warnings });
    Ok(with_etag(response(StatusCode::OK, JSON_TYPE, body.to_string()), revision))
}

/// Reads a change: the revision that it was made from, if the client says so, and the body.
async fn read<B>(
    request: Request<B>,
    app: &App,
    guard: &Guard,
    most: usize,
) -> Result<(Option<Revision>, Bytes), Problem>
where
    B: Body<Data = Bytes> + Unpin,
{
    no_query(request.uri())?;
    let expected = expected(request.headers())?;
    let waits = request.headers().contains_key(EXPECT);
    let body = body::read(request.into_body(), guard, most, app.bounds.partial, waits).await?;
    Ok((expected, body))
}

/// The revision that the change was made from, if the client says so: `If-Match: "12"`.
fn expected(headers: &HeaderMap) -> Result<Option<Revision>, Problem> {
    let Some(field) = headers.get(IF_MATCH).filter(|_| !lacks("if_match_ignored")) else {
        return Ok(None);
    };
    let text = field.to_str().ok();
    let number = text.and_then(|text| text.strip_prefix('"')?.strip_suffix('"'));
    number.and_then(revision).map(Some).ok_or_else(|| {
        Problem::invalid("If-Match must be one revision in quotes, such as \"12\"".into())
    })
}

fn with_etag(mut response: Response, revision: Revision) -> Response {
    let tag = HeaderValue::from_str(&format!("\"{revision}\""));
    response.headers_mut().extend(tag.map(|tag| (ETAG, tag)));
    response
}

/// Does what takes long for many limits where it delays nobody's decisions.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Problem::broken(format!("the policy was not read: {error}")))
}

/// What findings call the file that a body is.
const BODY_NAME: &str = "body";

#[cfg(test)]
mod tests;
