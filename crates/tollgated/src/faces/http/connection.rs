//! One connection of HTTP/1.1 or, with prior knowledge, HTTP/2, as hyper speaks them: its requests
//! in, answers out, and its end when it is old, idle, or the process is.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use hyper::Version;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};

use super::response::Response;
use super::routes;
use crate::app::App;
use crate::face::Face;
use crate::faces::heard::Heard;
use crate::faces::{HEAD_BYTES_MAX, STREAMS_MAX, is_last};
use crate::guard::{Guard, Phase};

/// Serves one connection until either side ends it.
pub(crate) async fn serve<S>(stream: S, app: &Arc<App>, guard: Arc<Guard>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = Heard::new(stream, guard.clone());
    let service = service_fn(|request| answer(request, app.clone(), guard.clone()));
    let mut builder = Builder::new(TokioExecutor::new());
    // What takes too long to arrive is the sweep's to end, in HTTP/1.
    builder.http1().header_read_timeout(None).max_buf_size(HEAD_BYTES_MAX).half_close(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(app.bounds.partial)
        .keep_alive_timeout(app.bounds.partial)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut told = false;
    let served = poll_fn(|cx| {
        if guard.is_to_end(cx) && !told {
            told = true;
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(cx)
    });
    served.await.map_err(|error| {
        if error.downcast_ref().is_some_and(hyper::Error::is_parse) {
            app.service.metrics().malformed(Face::Http);
        }
        io::Error::other(error)
    })
}

async fn answer(
    request: hyper::Request<Incoming>,
    app: Arc<App>,
    guard: Arc<Guard>,
) -> Result<Response, Infallible> {
    guard.note(Phase::Busy);
    let version = request.version();
    let mut response = routes::answer(request, &app, &guard).await;
    if is_last(&app, &guard) {
        if version == Version::HTTP_2 {
            guard.ask_to_end();
        } else {
            // Said with an answer, so that no request is on its way into a closed connection.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
    guard.note(Phase::Idle);
    Ok(response)
}
