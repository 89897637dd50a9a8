//! An HTTP server that answers "hello" behind the limits of a fleet:
//! `cargo run --example tower -- --join 127.0.0.1:7800`, then `curl -i -H 'x-tenant: acme' ADDRESS`
//! of the address that it prints.
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, server::conn::http1};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tollgate_tokio::tower::RateLimitLayer;
use tollgate_tokio::{Fleet, FleetOptions};
use tower_layer::Layer;
use tower_service::Service;

/// What a service does: with a router like axum's, `.layer(…)` is all that is added.
#[derive(Clone)]
struct Hello;

impl Service<Request<Incoming>> for Hello {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Incoming>) -> Self::Future {
        ready(Ok(Response::new(Full::from("hello\n"))))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let join = std::env::args().skip_while(|word| word != "--join").nth(1);
    let seeds = vec![join.ok_or("usage: tower --join ADDRESS")?];
    let fleet = Fleet::join(FleetOptions { seeds, ..FleetOptions::default() }).await?;
    let layer = RateLimitLayer::new(fleet, |head, limited| {
        let tenant = head.headers.get("x-tenant");
        limited.descriptor().entry("tenant", tenant).entry("path", head.uri.path());
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        let service = TowerToHyperService::new(layer.layer(Hello));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}
