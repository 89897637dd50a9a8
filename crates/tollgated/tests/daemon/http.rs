//! HTTP/1.1 as a client speaks it, byte by byte.

use std::io::{self, BufRead, BufReader, Read, Write};

use serde_json::Value;

use crate::support::Stream;

/// One connection.
pub(crate) struct Http(BufReader<Box<dyn Stream>>);

/// One answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Http {
    pub(crate) fn new(stream: impl Stream + 'static) -> Self {
        Self(BufReader::new(Box::new(stream)))
    }

    /// Gets a path.
    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.ask("GET", path, "", b"")
    }

    /// Posts a body to a path.
    pub(crate) fn post(&mut self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.ask("POST", path, "", body.as_ref())
    }

    /// Checks one request of tenant `tenant` at cost 1.
    pub(crate) fn check(&mut self, tenant: &str) -> Answer {
        self.post("/v1/check", entries(tenant, ""))
    }

    /// Sends a request with more header lines, each with its end, and reads the answer.
    pub(crate) fn ask(&mut self, method: &str, path: &str, lines: &str, body: &[u8]) -> Answer {
        self.send(&request(method, path, lines, body));
        if method == "HEAD" { self.answer_without_body() } else { self.answer() }
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).expect("the connection is open");
    }

    /// Sends as many bytes as are taken: the other side may close first.
    pub(crate) fn send_some(&mut self, bytes: &[u8]) {
        let _ = self.0.get_mut().write_all(bytes);
    }

    /// Reads the next answer.
    pub(crate) fn answer(&mut self) -> Answer {
        self.try_answer().expect("an answer in time").expect("an answer before the end")
    }

    /// Reads the next answer; nothing when the connection was closed before its first byte.
    pub(crate) fn try_answer(&mut self) -> io::Result<Option<Answer>> {
        let Some(mut answer) = self.head()? else { return Ok(None) };
        let length = answer.header("content-length").and_then(|text| text.parse().ok());
        answer.body = vec![0; length.ok_or_else(|| cut("no length"))?];
        self.0.read_exact(&mut answer.body).map_err(|_| cut("half a body"))?;
        Ok(Some(answer))
    }

    fn answer_without_body(&mut self) -> Answer {
        self.head().expect("an answer in time").expect("an answer before the end")
    }

    /// Reads to the end, which may be a reset.
    pub(crate) fn rest(mut self) -> Vec<u8> {
        crate::support::read_to_end(&mut self.0)
    }

    fn head(&mut self) -> io::Result<Option<Answer>> {
        let mut line = String::new();
        // A reset before the first byte is as good as a close.
        match self.0.read_line(&mut line) {
            Ok(0) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            read => read?,
        };
        let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status = status.ok_or_else(|| cut(&line))?;
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line)?;
            match line.trim_end().split_once(": ") {
                Some((name, value)) => headers.push((name.to_lowercase(), value.to_owned())),
                None if line == "\r\n" => break,
                None => return Err(cut(&line)),
            }
        }
        Ok(Some(Answer { status, headers, body: Vec::new() }))
    }
}

impl Answer {
    /// The value of a header field by its name in small letters.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as a text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("text")
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    /// A number in the body.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.json()[name].as_u64()
    }

    /// The status, and what is left.
    pub(crate) fn left(&self) -> (u16, Option<u64>) {
        (self.status, self.number("remaining"))
    }

    /// What a problem says about itself.
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let body = self.json();
        assert_eq!(body["status"], self.status);
        body["detail"].as_str().expect("a problem has a detail").to_owned()
    }
}

/// A request as bytes.
pub(crate) fn request(method: &str, path: &str, lines: &str, body: &[u8]) -> Vec<u8> {
    let length = match method {
        "POST" => format!("content-length: {}\r\n", body.len()),
        _ => String::new(),
    };
    let head = format!("{method} {path} HTTP/1.1\r\nhost: tollgate\r\n{lines}{length}\r\n");
    [head.as_bytes(), body].concat()
}

/// A request of one tenant, with more members, each with a comma before it.
pub(crate) fn entries(tenant: &str, more: &str) -> String {
    format!("{{\"entries\":{{\"tenant\":{}}}{more}}}", Value::from(tenant))
}

fn cut(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("cut short: {what:?}"))
}
