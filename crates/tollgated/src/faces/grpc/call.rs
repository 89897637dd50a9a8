//! A gRPC call as it is on the wire: a message in, within its deadline; a message or a fault out.
//!
//! Written here instead of taken from a framework so that bodies share the bounds of all doors.
//! What calls there are is not known here.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use prost::Message;

use crate::app::App;
use crate::faces::body::BodyError;
use crate::faces::is_admitted;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) code: Code,
    pub(super) message: String,
}

/// The codes that are given, with their numbers in gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    Cancelled = 1,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl Fault {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }
}

impl From<BodyError> for Fault {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge { most } => {
                let message = format!("a request has at most {most} bytes");
                Self::new(Code::ResourceExhausted, message)
            }
            BodyError::TooSlow => {
                Self::new(Code::DeadlineExceeded, "the request did not arrive in time")
            }
            BodyError::Broken => Self::new(Code::Cancelled, "the request broke off"),
            BodyError::Busy => {
                let message = "too many large requests are arriving at once";
                Self::new(Code::ResourceExhausted, message)
            }
        }
    }
}

/// What is called, and how long its body may take to arrive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) time: Duration,
    /// How long the whole call may take, if its caller says so.
    pub(super) deadline: Option<Duration>,
}

/// What there is to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    ShouldRateLimit,
    StreamQuotas,
    HealthCheck,
    HealthWatch,
    Reflection,
}

/// Why a call was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is none.
    NoCall,
    Fault(Fault),
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Call {
    pub(super) fn new(head: &Parts, app: &App) -> Result<Self, Refusal> {
        let headers = &head.headers;
        let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let rest = kind.and_then(|kind| kind.strip_prefix(b"application/grpc"));
        if !matches!(rest, Some(b"" | b"+proto" | [b';', ..])) {
            return Err(Refusal::NoCall);
        }
        let method = match head.uri.path() {
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" => {
                Method::ShouldRateLimit
            }
            "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas" => {
                Method::StreamQuotas
            }
            "/grpc.health.v1.Health/Check" => Method::HealthCheck,
            "/grpc.health.v1.Health/Watch" => Method::HealthWatch,
            path if path.starts_with("/grpc.reflection.v1") => Method::Reflection,
            _ => {
                let message = "there is no such method; reflection lists what there is";
                return Err(Fault::new(Code::Unimplemented, message).into());
            }
        };
        // Whether it is well is for everybody to know.
        let open = matches!(method, Method::HealthCheck | Method::HealthWatch);
        if !open && !is_admitted(headers, app) {
            let message = "metadata authorization: Bearer with the shared secret is needed";
            return Err(Fault::new(Code::Unauthenticated, message).into());
        }
        let deadline = headers.get(TIMEOUT).map(|text| timeout(text.as_bytes())).transpose()?;
        let time = deadline.unwrap_or(Duration::MAX).min(app.bounds.partial);
        if time.is_zero() {
            return Err(Fault::from(BodyError::TooSlow).into());
        }
        Ok(Self { method, time, deadline })
    }
}

/// The message of a body that holds one.
pub(super) fn unframe(body: &[u8]) -> Result<&[u8], Fault> {
    let Some((prefix, message)) = body.split_first_chunk::<PREFIX>() else {
        return Err(Fault::invalid("the body holds no message"));
    };
    let [compressed, length @ ..] = *prefix;
    is_plain(compressed)?;
    if u32::from_be_bytes(length) as usize != message.len() {
        return Err(Fault::invalid("the body does not hold exactly one message"));
    }
    Ok(message)
}

/// Whether a message is as it was written, by its flag.
pub(super) fn is_plain(compressed: u8) -> Result<(), Fault> {
    match compressed {
        0 => Ok(()),
        _ => Err(Fault::new(Code::Unimplemented, "compressed messages are not read")),
    }
}

/// What a message says.
pub(super) fn read<M: Message + Default>(message: &[u8]) -> Result<M, Fault> {
    M::decode(message).map_err(|error| Fault::invalid(format!("the message: {error}")))
}

/// A message as it is sent.
pub(super) fn frame(message: &impl Message) -> Bytes {
    // There is room for it.
    framed(message.encoded_len(), |out| message.encode_raw(out))
}

/// The same for a message of about so many bytes that `write` writes.
pub(super) fn framed(bytes: usize, write: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::with_capacity(PREFIX + bytes);
    out.put_bytes(0, PREFIX);
    write(&mut out);
    let length = (out.len() - PREFIX) as u32;
    out[1..PREFIX].copy_from_slice(&length.to_be_bytes());
    out.freeze()
}

/// How long a caller waits: digits and a unit.
pub(super) fn timeout(text: &[u8]) -> Result<Duration, Fault> {
    let wrong =
        || Fault::invalid("grpc-timeout: must be 1 to 8 digits and one of H, M, S, m, u, n");
    let (unit, digits) = text.split_last().ok_or_else(wrong)?;
    if !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return Err(wrong());
    }
    let number = digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
    Ok(match unit {
        b'H' => Duration::from_secs(number * 3_600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return Err(wrong()),
    })
}

/// The head of an answer that begins well.
pub(super) fn head() -> Response<()> {
    let mut head = Response::new(());
    head.headers_mut().insert(CONTENT_TYPE, GRPC);
    head
}

/// The end of an answer that ended well.
pub(super) fn trailers() -> HeaderMap {
    HeaderMap::from_iter([(STATUS, OK)])
}

impl Refusal {
    /// The only part of such an answer.
    pub(super) fn head(&self) -> Response<()> {
        let mut head = head();
        match self {
            Self::Fault(fault) => fault.write(head.headers_mut()),
            Self::NoCall => *head.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE,
        }
        head
    }
}

impl Fault {
    pub(super) fn write(&self, headers: &mut HeaderMap) {
        headers.insert(STATUS, HeaderValue::from(self.code as u16));
        let mut text = String::with_capacity(self.message.len());
        for byte in self.message.bytes() {
            match byte {
                b' '..=b'~' if byte != b'%' => text.push(char::from(byte)),
                _ => text.push_str(&format!("%{byte:02X}")),
            }
        }
        headers.extend(HeaderValue::try_from(text).ok().map(|text| (MESSAGE, text)));
    }
}

/// A flag and a length.
pub(super) const PREFIX: usize = 5;
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const OK: HeaderValue = HeaderValue::from_static("0");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_has_digits_and_a_unit() {
        for (text, expected) in [
            ("1H", Duration::from_secs(3_600)),
            ("2M", Duration::from_secs(120)),
            ("3S", Duration::from_secs(3)),
            ("20m", Duration::from_millis(20)),
            ("99999999u", Duration::from_micros(99_999_999)),
            ("0n", Duration::ZERO),
        ] {
            assert_eq!(timeout(text.as_bytes()), Ok(expected), "{text}");
        }
        for wrong in ["", "S", "1", "1s", "123456789S", "-1S", "1.5S", " 1S"] {
            assert_eq!(
                timeout(wrong.as_bytes()).map_err(|fault| fault.code),
                Err(Code::InvalidArgument)
            );
        }
    }

    #[test]
    fn a_body_holds_exactly_one_message_that_is_not_compressed() {
        assert_eq!(unframe(b"\0\0\0\0\x02ab"), Ok(&b"ab"[..]));
        assert_eq!(unframe(b"\0\0\0\0\0"), Ok(&b""[..]));
        let code = |body| unframe(body).map_err(|fault| fault.code);
        assert_eq!(code(b"\x01\0\0\0\x02ab"), Err(Code::Unimplemented));
        for wrong in
            [&b""[..], b"\0\0\0\0", b"\0\0\0\0\x03ab", b"\0\0\0\0\x01ab", b"\0\xff\xff\xff\xffab"]
        {
            assert_eq!(code(wrong), Err(Code::InvalidArgument));
        }
    }

    #[test]
    fn a_message_of_a_fault_is_escaped() {
        let mut headers = HeaderMap::new();
        Fault::invalid("100 % of \u{fc}\n").write(&mut headers);
        assert_eq!(headers[STATUS], "3");
        assert_eq!(headers[MESSAGE], "100 %25 of %C3%BC%0A");
    }
}
