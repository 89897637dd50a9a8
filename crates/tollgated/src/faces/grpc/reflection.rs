//! Server reflection, so that `grpcurl` and its like need no files of the protocols: as tonic has
//! it.

use std::pin::Pin;
use std::sync::LazyLock;

use hyper::{Request, Response};
use tonic::Status;
use tonic::body::Body;
use tonic_reflection::server::Builder;
use tower_service::Service;

use super::stream::Received;

type Serve = Box<dyn Fn(Request<Received>) -> Answering + Send + Sync>;
type Answering = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// Answers a call of either version in use.
pub(super) async fn answer(request: Request<Received>) -> Response<Body> {
    let is_v1 = request.uri().path().starts_with("/grpc.reflection.v1.");
    match if is_v1 { &*V1 } else { &*V1ALPHA } {
        Some(serve) => serve(request).await,
        None => Status::unimplemented("there is no reflection").into_http(),
    }
}

// What we described ourselves can be shown, so that there always is one.
static V1: LazyLock<Option<Serve>> = LazyLock::new(|| {
    let server = described().build_v1().ok()?;
    Some(serve(server.max_decoding_message_size(ASKED_BYTES_MAX)))
});
static V1ALPHA: LazyLock<Option<Serve>> = LazyLock::new(|| {
    let server = described().build_v1alpha().ok()?;
    Some(serve(server.max_decoding_message_size(ASKED_BYTES_MAX)))
});

fn described() -> Builder<'static> {
    Builder::configure().register_encoded_file_descriptor_set(DESCRIBED)
}

fn serve<S>(server: S) -> Serve
where
    S: Service<Request<Received>, Response = Response<Body>> + Clone + Send + Sync + 'static,
    S::Error: Send,
    S::Future: Send,
{
    Box::new(move |request| {
        let mut server = server.clone();
        Box::pin(async move {
            let unavailable = |_| Status::internal("no answer").into_http();
            server.call(request).await.unwrap_or_else(unavailable)
        })
    })
}

const DESCRIBED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/proto.bin"));
/// A question is a name; larger ones are not kept.
const ASKED_BYTES_MAX: usize = 4 << 10;
