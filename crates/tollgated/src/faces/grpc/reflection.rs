//! Server reflection, so that `grpcurl` and its like need no files of the protocols: as tonic has
//! it.

use std::pin::Pin;

use hyper::body::Incoming;
use hyper::{Request, Response};
use tonic::body::Body;
use tonic_reflection::server::Builder;
use tower_service::Service;

/// Both versions in use.
pub(crate) struct Reflection {
    v1: Option<Serve>,
    v1alpha: Option<Serve>,
}

type Serve = Box<dyn Fn(Request<Incoming>) -> Answering + Send + Sync>;
type Answering = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

impl Reflection {
    pub(crate) fn new() -> Self {
        let builder = || Builder::configure().register_encoded_file_descriptor_set(DESCRIBED);
        // What we described ourselves can be shown.
        let v1 =
            builder().build_v1().map(|server| server.max_decoding_message_size(ASKED_BYTES_MAX));
        let v1alpha = builder()
            .build_v1alpha()
            .map(|server| server.max_decoding_message_size(ASKED_BYTES_MAX));
        Self { v1: v1.ok().map(serve), v1alpha: v1alpha.ok().map(serve) }
    }

    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let is_v1 = request.uri().path().starts_with("/grpc.reflection.v1.");
        match if is_v1 { &self.v1 } else { &self.v1alpha } {
            Some(serve) => serve(request).await,
            None => tonic::Status::unimplemented("there is no reflection").into_http(),
        }
    }
}

fn serve<S>(server: S) -> Serve
where
    S: Service<Request<Incoming>, Response = Response<Body>> + Clone + Send + Sync + 'static,
    S::Error: Send,
    S::Future: Send,
{
    Box::new(move |request| {
        let mut server = server.clone();
        Box::pin(async move {
            let unavailable = |_| tonic::Status::internal("no answer").into_http();
            server.call(request).await.unwrap_or_else(unavailable)
        })
    })
}

const DESCRIBED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/proto.bin"));
/// A question is a name; larger ones are not kept.
const ASKED_BYTES_MAX: usize = 4 << 10;
