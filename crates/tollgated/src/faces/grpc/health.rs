//! `grpc.health.v1`: whether this process is to be asked at all.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use hyper::header::HeaderMap;
use tokio::sync::watch;

use super::call::{Code, Fault, frame, read};
use super::proto::grpc::health::v1::health_check_response::ServingStatus;
use super::proto::grpc::health::v1::{HealthCheckRequest, HealthCheckResponse};
use crate::app::App;
use crate::service::Service;

/// How a service stands.
///
/// # Errors
/// When there is none of that name.
pub(super) fn check(message: &[u8], app: &App) -> Result<Bytes, Fault> {
    let HealthCheckRequest { service: name } = read(message)?;
    if !is_known(&name, app) {
        return Err(Fault::new(Code::NotFound, "there is no such service"));
    }
    Ok(frame(&standing(&app.service)))
}

fn is_known(name: &str, app: &App) -> bool {
    KNOWN.contains(&name) || name == QUOTA && app.divider.is_some()
}

fn standing(service: &Service) -> HealthCheckResponse {
    let notice = service.has_given_notice() || service.is_draining();
    let status = if notice { ServingStatus::NotServing } else { ServingStatus::Serving };
    HealthCheckResponse { status: status as i32 }
}

/// Says how a service stands, says it again when that changes, and ends when the process drains.
pub(crate) struct Watch {
    service: Arc<Service>,
    known: bool,
    said: Option<HealthCheckResponse>,
    changes: Pin<Box<dyn Future<Output = watch::Receiver<()>> + Send>>,
    ended: bool,
}

impl Watch {
    /// # Errors
    /// When the message is none.
    pub(super) fn new(message: &[u8], app: &App) -> Result<Self, Fault> {
        let HealthCheckRequest { service: name } = read(message)?;
        let service = app.service.clone();
        let changes = Box::pin(changed(service.ending()));
        Ok(Self { service, known: is_known(&name, app), said: None, changes, ended: false })
    }
}

async fn changed(mut changes: watch::Receiver<()>) -> watch::Receiver<()> {
    // The sender lives as long as the service.
    let _ = changes.changed().await;
    changes
}

impl Body for Watch {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            if self.ended {
                return Poll::Ready(None);
            }
            let standing = if self.known {
                standing(&self.service)
            } else {
                HealthCheckResponse { status: ServingStatus::ServiceUnknown as i32 }
            };
            if self.said != Some(standing) {
                self.said = Some(standing);
                return Poll::Ready(Some(Ok(Frame::data(frame(&standing)))));
            }
            if self.service.is_draining() {
                self.ended = true;
                let mut trailers = HeaderMap::new();
                Fault::new(Code::Unavailable, "the process is ending").write(&mut trailers);
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
            let changes = ready!(self.changes.as_mut().poll(cx));
            self.changes = Box::pin(changed(changes));
        }
    }
}

/// The whole process, and what it serves, under its own name and the original's.
const KNOWN: [&str; 3] = ["", "envoy.service.ratelimit.v3.RateLimitService", "ratelimit"];
/// There where limits are divided among streams.
const QUOTA: &str = "envoy.service.rate_limit_quota.v3.RateLimitQuotaService";
