//! Asks a running daemon over its HTTP door.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::http::request::Builder;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::net::Address;

/// Where a daemon is, and what it is to be shown.
#[derive(Args)]
pub(crate) struct Door {
    /// The daemon's HTTP door
    #[arg(long, env = "TOLLGATE_SERVER", default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    server: Address,
    /// A file with the secret that the daemon wants to be shown
    #[arg(long, env = "TOLLGATE_SECRET_FILE", value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

/// What a daemon has answered.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    body: Bytes,
}

impl Answer {
    /// The body as JSON.
    ///
    /// # Errors
    /// When it is none, for people.
    pub(crate) fn json(&self) -> Result<Value, String> {
        let status = self.status;
        serde_json::from_slice(&self.body)
            .map_err(|_| format!("the answer ({status}) is no JSON: is this tollgate's HTTP door?"))
    }

    /// The body as it is.
    pub(crate) fn into_bytes(self) -> Bytes {
        self.body
    }

    /// The body as a text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Door {
    /// Posts `body` to `path`, and returns the status and the JSON of the answer.
    ///
    /// # Errors
    /// What stood in the way, for people.
    pub(crate) fn post(&self, path: &str, body: String) -> Result<(StatusCode, Value), String> {
        let answer = self.ask(Request::post(path), body)?;
        Ok((answer.status, answer.json()?))
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// What stood in the way, for people.
    pub(crate) fn ask(&self, request: Builder, body: String) -> Result<Answer, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        let mut request = request.header(HOST, "tollgate");
        if let Some(path) = &self.secret_file {
            let secret =
                std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
            request = request.header(AUTHORIZATION, [b"Bearer ", secret.trim_ascii_end()].concat());
        }
        let request = request
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| format!("the request can't be made: {error}"))?;
        runtime.block_on(async {
            let answered = tokio::time::timeout(TIME_MAX, ask(&self.server, request)).await;
            answered.map_err(|_| format!("{} did not answer within {TIME_MAX:?}", self.server))?
        })
    }
}

async fn ask(server: &Address, request: Request<Full<Bytes>>) -> Result<Answer, String> {
    let unreachable =
        |error| format!("nothing answers at {server}: {error}; is `tollgate serve` running there?");
    match server {
        Address::Tcp(address) => {
            speak(TcpStream::connect(address).await.map_err(unreachable)?, request).await
        }
        Address::Unix(path) => {
            speak(UnixStream::connect(path).await.map_err(unreachable)?, request).await
        }
    }
}

async fn speak<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Answer, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let broken = |error: hyper::Error| format!("the connection broke off: {error}");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(broken)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| format!("the answer broke off: {error}"))?.to_bytes();
    Ok(Answer { status, body })
}

const TIME_MAX: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: usize = 64 << 20;
