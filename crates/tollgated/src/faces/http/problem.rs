//! What is wrong with a request, as RFC 9457 has it: `application/problem+json`.

use hyper::StatusCode;
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};

use super::response::{Response, response};
use crate::faces::body::{BODY_BYTES_MAX, BodyError};
use crate::service::reservations::{Correction, ReservationError};

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    /// The part of its type's URI that is ours; none for what the status says already.
    pub(crate) kind: Option<&'static str>,
    pub(crate) title: &'static str,
    pub(crate) detail: String,
    allow: Option<&'static str>,
    closes: bool,
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        let problem = match error {
            BodyError::TooLarge => {
                let detail = format!("at most {BODY_BYTES_MAX} bytes are read");
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

impl Problem {
    fn new(status: StatusCode, kind: &'static str, title: &'static str, detail: String) -> Self {
        Self { status, kind: Some(kind), title, detail, allow: None, closes: false }
    }

    fn plain(status: StatusCode, title: &'static str, detail: String) -> Self {
        Self { status, kind: None, title, detail, allow: None, closes: false }
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
        // A string always has a JSON form.
        let _ = serde_json::to_writer(out, &self.detail);
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
const SHOWN_CHARS_MAX: usize = 100;
