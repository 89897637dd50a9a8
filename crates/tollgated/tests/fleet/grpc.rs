//! Envoy's rate-limit service as a client calls it, with messages written by hand.

use std::net::SocketAddr;

use bytes::Bytes;

/// What one call for these entries is answered: 1 passes, 2 is over the limit.
pub(crate) fn overall_code(address: SocketAddr, domain: &str, entries: &[(&str, &str)]) -> u8 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let answer = runtime.expect("a runtime").block_on(call(address, message(domain, entries)));
    // A flag, a length, and the first field: the number 1, and one byte of a small number.
    assert_eq!(answer.get(5), Some(&0x08), "{answer:?}");
    answer[6]
}

fn message(domain: &str, entries: &[(&str, &str)]) -> Bytes {
    let entries = entries.iter().map(|(name, value)| {
        field(1, &[field(1, name.as_bytes()), field(2, value.as_bytes())].concat())
    });
    let descriptor = entries.collect::<Vec<_>>().concat();
    let request = [field(1, domain.as_bytes()), field(2, &descriptor)].concat();
    [&[0, 0, 0, 0, request.len() as u8], &*request].concat().into()
}

/// A field of bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).ok().filter(|length| *length < 128);
    [&[number << 3 | 2, length.expect("a short text")], bytes].concat()
}

async fn call(address: SocketAddr, message: Bytes) -> Vec<u8> {
    let stream = tokio::net::TcpStream::connect(address).await.expect("it listens there");
    let (mut client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    let connection = tokio::spawn(connection);
    let path = "http://tollgate/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let head = hyper::Request::post(path).header("content-type", "application/grpc").body(());
    let (response, mut body) = client.send_request(head.expect("a head"), false).expect("sent");
    body.send_data(message, true).expect("sent");
    let response = response.await.expect("an answer");
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    let mut answer = Vec::new();
    while let Some(data) = body.data().await {
        answer.extend_from_slice(&data.expect("a whole answer"));
    }
    connection.abort();
    answer
}
