//! An answer with its body, and the types of bodies that there are.

use bytes::Bytes;
use http_body_util::Full;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue};

pub(crate) type Response = hyper::Response<Full<Bytes>>;

/// A response with a body of this type.
pub(crate) fn response(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

pub(crate) const BYTES_TYPE: &str = "application/octet-stream";
pub(crate) const JSON_TYPE: &str = "application/json";
pub(crate) const TOML_TYPE: &str = "application/toml";
pub(crate) const TEXT_TYPE: &str = "text/plain; charset=utf-8";
