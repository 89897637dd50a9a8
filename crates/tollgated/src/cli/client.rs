//! Asks a running daemon over its HTTP door.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::net::Address;

/// Posts `body` to `path`, and returns the status and the JSON of the answer.
///
/// # Errors
/// What stood in the way, for people.
pub(crate) fn post(
    server: &Address,
    path: &str,
    body: String,
    secret: Option<&[u8]>,
) -> Result<(StatusCode, Value), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let mut request = Request::post(path).header(HOST, "tollgate");
    if let Some(secret) = secret {
        request = request.header(AUTHORIZATION, [b"Bearer ", secret.trim_ascii_end()].concat());
    }
    let request = request
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| format!("the request can't be made: {error}"))?;
    runtime.block_on(async {
        let answered = tokio::time::timeout(TIME_MAX, ask(server, request)).await;
        answered.map_err(|_| format!("{server} did not answer within {TIME_MAX:?}"))?
    })
}

async fn ask(
    server: &Address,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Value), String> {
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

async fn speak<S>(stream: S, request: Request<Full<Bytes>>) -> Result<(StatusCode, Value), String>
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
    let answer = serde_json::from_slice(&body)
        .map_err(|_| format!("the answer ({status}) is no JSON: is this tollgate's HTTP door?"))?;
    Ok((status, answer))
}

const TIME_MAX: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: usize = 64 << 20;
