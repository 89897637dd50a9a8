//! gRPC as far as a load needs it: the requests as bytes, and one call whose answer is looked at.
//!
//! h2load counts heads, but gRPC says in trailers how a call ended. So one answer is looked at
//! here, and its length lets the client see that the others are like it. Messages are few and
//! small, and written by hand; `protoc --decode_raw` reads them.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::scratch::Scratch;
use super::server::installed;

/// A call that can be repeated.
pub struct Call {
    pub path: &'static str,
    /// What is posted.
    pub body: PathBuf,
    /// Bytes in every answer that say the limit of a check, once for each check.
    limit: Vec<u8>,
    checks: u32,
}

impl Call {
    /// `ShouldRateLimit` of Envoy, with a descriptor for each of the keys `k0`, `k1` and so on.
    pub fn should_rate_limit(scratch: &Scratch, checks: u32) -> Self {
        let mut request = text(1, "default");
        for key in 0..checks {
            let entry = [text(1, "tenant"), text(2, &format!("k{key}"))].concat();
            request.extend(bytes(2, &bytes(1, &entry)));
        }
        // The current limit of a status: so many in a unit, the second, and the limit's name, as in
        // the daemon's configuration.
        let limit = [number(1, 100_000_000), number(2, 1), text(3, "api")].concat();
        Self {
            path: "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            body: scratch.write(&format!("rls-{checks}"), frame(&request)),
            limit: bytes(2, &limit),
            checks,
        }
    }

    /// Throttlecrab's own, of the key `k0`.
    pub fn throttle(scratch: &Scratch) -> Self {
        let [burst, count, period, quantity] = [1_000_000, 100_000_000, 1, 1];
        let rule = [number(2, burst), number(3, count), number(4, period), number(5, quantity)];
        let request = [text(1, "k0"), rule.concat()].concat();
        Self {
            path: "/throttlecrab.RateLimiter/Throttle",
            body: scratch.write("throttle", frame(&request)),
            limit: number(2, burst),
            checks: 1,
        }
    }

    /// Calls a port of this machine once, and returns how many bytes the answer has. Others that
    /// are allowed have as many: of a burst that is never nearly spent, what is left has as many
    /// digits.
    ///
    /// # Errors
    ///
    /// What came instead.
    pub fn answer_bytes(&self, port: u16, scratch: &Scratch) -> Result<u64, String> {
        installed("curl", "curl")?;
        let answer = scratch.path("answer");
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--http2-prior-knowledge", "--max-time", "2"]);
        // The servers' other ports were ready, and this one is soon.
        curl.args(["--retry", "3", "--retry-connrefused"]);
        for header in HEADERS {
            curl.args(["--header", header]);
        }
        curl.arg("--data-binary").arg(format!("@{}", self.body.display()));
        // Head and trailers are printed; what is between them is no text.
        curl.args(["--dump-header", "-", "--output"]).arg(&answer);
        let run = curl.arg(self.url(port)).output().map_err(|error| error.to_string())?;
        if !run.status.success() {
            return Err(String::from_utf8_lossy(&run.stderr).trim().to_owned());
        }
        let fields = String::from_utf8_lossy(&run.stdout);
        let length = self.length_if_allowed(&fields, &answer);
        length.ok_or_else(|| format!("it did not allow what was asked, but answered {fields:?}"))
    }

    pub fn url(&self, port: u16) -> String {
        format!("http://127.0.0.1:{port}{}", self.path)
    }

    fn length_if_allowed(&self, fields: &str, answer: &Path) -> Option<u64> {
        let answer = std::fs::read(answer).ok()?;
        let message = answer.get(PREFIX_BYTES..)?;
        let limits = message.windows(self.limit.len()).filter(|part| **part == self.limit);
        let ended_well = fields.lines().any(|field| field.trim() == "grpc-status: 0");
        // Both say with field 1 whether all is allowed.
        let allowed = ended_well && message.starts_with(&number(1, 1));
        (allowed && limits.count() == self.checks as usize).then_some(answer.len() as u64)
    }
}

/// A message as it is sent: not compressed, and its length.
fn frame(message: &[u8]) -> Vec<u8> {
    let length = (message.len() as u32).to_be_bytes();
    [&[0], &length[..], message].concat()
}

fn text(field: u64, text: &str) -> Vec<u8> {
    bytes(field, text.as_bytes())
}

fn bytes(field: u64, bytes: &[u8]) -> Vec<u8> {
    [&varint(field << 3 | 2)[..], &varint(bytes.len() as u64), bytes].concat()
}

fn number(field: u64, number: u64) -> Vec<u8> {
    [varint(field << 3), varint(number)].concat()
}

/// Seven bits a byte, the lowest first; all but the last have the highest bit.
fn varint(mut number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
    out
}

pub const HEADERS: [&str; 2] = ["content-type: application/grpc", "te: trailers"];
const PREFIX_BYTES: usize = 5;
