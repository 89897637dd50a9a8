//! The gRPC door: Envoy's rate-limit service, health, and reflection.

mod call;
mod health;
mod reflection;
mod rls;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Response};

use crate::app::App;
use crate::face::Face;
use crate::faces::is_admitted;
use crate::guard::Guard;
use call::{Code, Fault, Reply};
use health::Watch;
#[cfg(fuzzing)]
pub(crate) use rls::answer_bytes;

/// The messages, made from the files in `proto`.
#[expect(unreachable_pub, clippy::all, reason = "it is not written by hand")]
mod proto {
    include!(concat!(env!("OUT_DIR"), "/proto.rs"));
}

/// Answers one call.
pub(crate) async fn answer(
    request: Request<Incoming>,
    app: Arc<App>,
    guard: Arc<Guard>,
) -> Response<Answer> {
    if !is_call(&request) {
        app.service.metrics().malformed(Face::Grpc);
        return call::no_call().map(Answer::Reply);
    }
    call(request, &app, &guard).await.unwrap_or_else(|fault| {
        let metrics = app.service.metrics();
        if fault.code == Code::DeadlineExceeded {
            metrics.face(Face::Grpc).timed_out.fetch_add(1, Relaxed);
        } else {
            metrics.invalid(Face::Grpc);
        }
        call::refuse(&fault).map(Answer::Reply)
    })
}

async fn call(
    request: Request<Incoming>,
    app: &Arc<App>,
    guard: &Guard,
) -> Result<Response<Answer>, Fault> {
    match request.uri().path() {
        "/grpc.health.v1.Health/Check" => {
            let asked = call::read(request, app, guard).await?;
            let standing = health::check(&asked, &app.service)?;
            return Ok(call::reply(&standing).map(Answer::Reply));
        }
        "/grpc.health.v1.Health/Watch" => {
            let asked = call::read(request, app, guard).await?;
            return Ok(call::opened(Answer::Watch(Watch::new(&asked, app.service.clone()))));
        }
        _ => {}
    }
    if !is_admitted(request.headers(), app) {
        let message = "metadata authorization: Bearer with the shared secret is needed";
        return Err(Fault::new(Code::Unauthenticated, message));
    }
    let path = request.uri().path();
    if path == "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" {
        let asked = call::read(request, app, guard).await?;
        let started = app.service.now();
        let answer = rls::answer(&asked, app);
        let took = app.service.now().saturating_since(started);
        app.service.metrics().took(Face::Grpc, took, 1);
        return Ok(call::reply(&answer?).map(Answer::Reply));
    }
    if path.starts_with("/grpc.reflection.") {
        return Ok(reflection::answer(request).await.map(Answer::Reflection));
    }
    let message = "no such method; reflection lists what there is";
    Err(Fault::new(Code::Unimplemented, message))
}

fn is_call(request: &Request<Incoming>) -> bool {
    let kind = request.headers().get(CONTENT_TYPE).map(|kind| kind.as_bytes());
    let rest = kind.and_then(|kind| kind.strip_prefix(b"application/grpc"));
    matches!(rest, Some(b"" | b"+proto" | [b';', ..]))
}

/// What a call is answered with.
pub(crate) enum Answer {
    Reply(Reply),
    Watch(Watch),
    Reflection(tonic::body::Body),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Reply(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Watch(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Reflection(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Reply(body) => body.is_end_stream(),
            Self::Watch(_) => false,
            Self::Reflection(body) => body.is_end_stream(),
        }
    }
}
