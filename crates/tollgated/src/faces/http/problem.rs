//! What is wrong with a request, as RFC 9457 has it: `application/problem+json`.

use std::path::Path;

use hyper::StatusCode;
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use serde_json::{Value, json};
use tollgate::RingError;
use tollgate::coordinator::{Refused, Revision};

use super::response::{Response, response};
use crate::agreement::{ProposeError, StoreError};
use crate::config::{Finding, Severity};
use crate::faces::body::BodyError;
use crate::service::reservations::{Correction, ReservationError};

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    /// The part of its type's URI that is ours; none for what the status says already.
    pub(crate) kind: Option<&'static str>,
    pub(crate) title: &'static str,
    pub(crate) detail: String,
    /// What programs are told beside that.
    more: Vec<(&'static str, Value)>,
    allow: Option<&'static str>,
    closes: bool,
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        let problem = match error {
            BodyError::TooLarge { most } => {
                let detail = format!("at most {most} bytes are read");
                let (status, title) = (StatusCode::PAYLOAD_TOO_LARGE, "The body is too large");
                Self::new(status, "body-too-large", title, detail)
            }
            BodyError::TooSlow => {
                let detail = "the body did not arrive in time".into();
                Self::plain(StatusCode::REQUEST_TIMEOUT, "Request timeout", detail)
            }
            BodyError::Broken => Self::invalid("the body broke off".into()),
            BodyError::Busy => {
                let detail = "too many large requests are arriving at once".into();
                let title = "There is no room for this now";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, REDUCED_CAPACITY, title, detail)
            }
        };
        Self { closes: true, ..problem }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let (status, title) = (StatusCode::INTERNAL_SERVER_ERROR, "The fleet's store has failed");
        Self::new(status, "store", title, error.to_string())
    }
}

impl Problem {
    fn new(status: StatusCode, kind: &'static str, title: &'static str, detail: String) -> Self {
        let (kind, more) = (Some(kind), Vec::new());
        Self { status, kind, title, detail, more, allow: None, closes: false }
    }

    fn plain(status: StatusCode, title: &'static str, detail: String) -> Self {
        Self { status, kind: None, title, detail, more: Vec::new(), allow: None, closes: false }
    }

    /// The body or one of its parts is not what it should be.
    pub(crate) fn invalid(detail: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid-request", "The request is invalid", detail)
    }

    pub(crate) fn no_such_path(path: &str) -> Self {
        let shown: String = path.chars().take(SHOWN_CHARS_MAX).collect();
        let detail = format!("there is nothing at {shown}; GET / lists what there is");
        Self::plain(StatusCode::NOT_FOUND, "Not found", detail)
    }

    pub(crate) fn no_such_limit(detail: String) -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown-limit", "There is no such limit", detail)
    }

    pub(crate) fn method(allow: &'static str) -> Self {
        let status = StatusCode::METHOD_NOT_ALLOWED;
        let problem = Self::plain(status, "Method not allowed", format!("allowed: {allow}"));
        Self { allow: Some(allow), ..problem }
    }

    pub(crate) fn unauthorized() -> Self {
        let detail = "an Authorization: Bearer field with the shared secret is needed".into();
        Self::plain(StatusCode::UNAUTHORIZED, "Unauthorized", detail)
    }

    pub(crate) fn other_origin() -> Self {
        let detail = "a page of another site may not ask here".into();
        Self::plain(StatusCode::FORBIDDEN, "Forbidden", detail)
    }

    /// Why a reservation was not made or corrected.
    pub(crate) fn reservation(error: &ReservationError) -> Self {
        let of = |status, kind, title, detail: &str| Self::new(status, kind, title, detail.into());
        match error {
            ReservationError::Full => of(
                StatusCode::SERVICE_UNAVAILABLE,
                REDUCED_CAPACITY,
                "There is no room for another reservation",
                "as many are open or were corrected lately as may be; nothing was spent",
            ),
            ReservationError::Unknown => of(
                StatusCode::GONE,
                "unknown-reservation",
                "There is no such reservation",
                "it never was, or it has expired and its estimate stands",
            ),
            ReservationError::OtherNode => of(
                StatusCode::MISDIRECTED_REQUEST,
                "other-node",
                "The reservation was made elsewhere",
                "it is settled where it was made; after a restart of that process it is gone, \
                 together with what it had charged",
            ),
            ReservationError::Corrected(known) => of(
                StatusCode::CONFLICT,
                "already-corrected",
                "The reservation was corrected before",
                &match known {
                    Correction::Cancelled => "it was cancelled; nothing was changed now".into(),
                    Correction::Settled(used) => {
                        format!("it was settled at {used:?}; nothing was changed now")
                    }
                },
            ),
            ReservationError::Costs { given, expected } => Self::invalid(format!(
                "used: {given} costs for a reservation of {expected} descriptors; each needs one"
            )),
        }
    }

    /// A limit of the whole fleet applies where only those of this daemon can be changed.
    pub(crate) fn shared_limit(limit: String) -> Self {
        let detail = format!(
            "limit {limit:?} is the whole fleet's, which knows what its keys used; nothing was \
             changed. A refund gives back what did not happen"
        );
        Self::new(StatusCode::CONFLICT, "shared-limit", "The limit is the whole fleet's", detail)
    }

    /// There is no fleet whose policy could be read or changed.
    pub(crate) fn alone(source: &Path) -> Self {
        let detail = format!(
            "it is no member of a fleet: its policy is what {} says, which is loaded whenever it \
             changes",
            source.display()
        );
        Self::new(StatusCode::CONFLICT, "alone", "This daemon is alone", detail)
    }

    /// A policy with mistakes; `findings` has them all, with warnings.
    pub(crate) fn unsound(findings: &[Finding]) -> Self {
        let first = findings.iter().find(|finding| finding.severity == Severity::Error);
        let detail = first.map_or_else(|| NO_DETAIL.into(), ToString::to_string);
        let mut problem =
            Self::new(StatusCode::BAD_REQUEST, "unsound-policy", "The policy is not sound", detail);
        problem.more.push(("findings", json!(findings)));
        problem
    }

    /// A policy of the fleet that may not take force again, or that this version can't read.
    pub(crate) fn unreadable(revision: Revision, why: &dyn std::fmt::Display) -> Self {
        let title = "The policy can't be used here";
        let detail = format!("revision {revision}: {why}");
        Self::new(StatusCode::CONFLICT, "unreadable-policy", title, detail)
    }

    pub(crate) fn no_such_revision(revision: Revision) -> Self {
        let detail = format!(
            "revision {revision} was never put or is no longer kept; GET /v1/policy/history lists \
             those that are"
        );
        Self::new(StatusCode::NOT_FOUND, "unknown-revision", "There is no such policy", detail)
    }

    /// A policy that the format which was asked for has no words for.
    pub(crate) fn not_in_toml() -> Self {
        let detail = "a limit has a path, which TOML has no words for; ask for JSON".into();
        Self::plain(StatusCode::NOT_ACCEPTABLE, "Not acceptable", detail)
    }

    /// Why a proposal came to nothing.
    pub(crate) fn proposal(error: ProposeError) -> Self {
        let detail = error.to_string();
        match error {
            ProposeError::Refused(refused) => Self::refused(&refused),
            ProposeError::Declined(_) => {
                Self::new(StatusCode::CONFLICT, "refused", "The fleet refused it", detail)
            }
            ProposeError::NoLeader { .. } => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Self::new(status, "no-leader", "The fleet can't decide now", detail)
            }
            ProposeError::TimedOut { .. } => {
                let status = StatusCode::GATEWAY_TIMEOUT;
                Self::new(status, "outcome-unknown", "The outcome is not known", detail)
            }
            ProposeError::Store(error) => error.into(),
        }
    }

    fn refused(refused: &Refused) -> Self {
        let detail = refused.to_string();
        match *refused {
            Refused::OtherRevision { expected, current } => {
                let (status, title) =
                    (StatusCode::PRECONDITION_FAILED, "The policy is not what you saw");
                let mut problem = Self::new(status, "other-revision", title, detail);
                problem.more.push(("expected", expected.get().into()));
                problem.more.push(("current", current.get().into()));
                problem
            }
            Refused::NoSuchRevision { revision } => Self::no_such_revision(revision),
            Refused::Policy(_) => {
                let title = "The policy is not sound";
                Self::new(StatusCode::BAD_REQUEST, "unsound-policy", title, detail)
            }
            Refused::NotFounded => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Self::new(status, "not-founded", "The fleet can't decide now", detail)
            }
            // A drain: of joins no weight is 0.
            Refused::Ring(RingError::Weight { node, weight: 0 }) => {
                let detail = format!("node {} is the only one that owns keys", node.get());
                Self::new(StatusCode::CONFLICT, "refused", "The fleet refused it", detail)
            }
            // Of members, which no policy names.
            Refused::AlreadyFounded
            | Refused::VotersMax { .. }
            | Refused::AddressTooLong { .. }
            | Refused::UnknownNode { .. }
            | Refused::NoNodesLeft
            | Refused::TooManyMembers
            | Refused::NotAMember { .. }
            | Refused::OtherStart { .. }
            | Refused::Ring(_) => {
                Self::new(StatusCode::CONFLICT, "refused", "The fleet refused it", detail)
            }
        }
    }

    /// Something that does not happen has happened; nothing was changed.
    pub(crate) fn broken(detail: String) -> Self {
        Self::plain(StatusCode::INTERNAL_SERVER_ERROR, "Internal error", detail)
    }

    /// The members of its JSON, without the braces around them.
    pub(crate) fn write_members(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\"type\":\"");
        match self.kind {
            None => out.extend_from_slice(b"about:blank"),
            Some(kind) if kind.starts_with("http") => out.extend_from_slice(kind.as_bytes()),
            Some(kind) => {
                out.extend_from_slice(b"urn:tollgate:problem:");
                out.extend_from_slice(kind.as_bytes());
            }
        }
        out.extend_from_slice(b"\",\"title\":\"");
        out.extend_from_slice(self.title.as_bytes());
        out.extend_from_slice(b"\",\"status\":");
        out.extend_from_slice(self.status.as_str().as_bytes());
        out.extend_from_slice(b",\"detail\":");
        // Strings and values always have a JSON form.
        let _ = serde_json::to_writer(&mut *out, &self.detail);
        for (name, value) in &self.more {
            out.extend_from_slice(format!(",\"{name}\":").as_bytes());
            let _ = serde_json::to_writer(&mut *out, value);
        }
    }

    pub(crate) fn into_response(self) -> Response {
        let mut out = Vec::with_capacity(256);
        out.push(b'{');
        self.write_members(&mut out);
        out.push(b'}');
        let mut response = response(self.status, PROBLEM_TYPE, out);
        let headers = response.headers_mut();
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        if self.closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        debug_assert!(headers.contains_key(CONTENT_TYPE));
        response
    }
}

pub(crate) const PROBLEM_TYPE: &str = "application/problem+json";
/// Registered by the IETF's draft on header fields for rate limits.
pub(crate) const QUOTA_EXCEEDED: &str =
    "https://iana.org/assignments/http-problem-types#quota-exceeded";
pub(crate) const REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
const NO_DETAIL: &str = "no mistake was told";
const SHOWN_CHARS_MAX: usize = 100;
