//! The layer in front of a handler that says what it was asked.

use std::convert::Infallible;
use std::future::{Ready, ready};

use http::StatusCode;
use tollgate::{Clock, ClockHand, Limit, LimitSpec, Options};

use super::*;

/// Answers with the request's body.
#[derive(Clone)]
struct Echo;

impl Service<Request<String>> for Echo {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<String>) -> Self::Future {
        ready(Ok(Response::new(request.into_body())))
    }
}

/// Ten a second with a burst of two for each tenant, and three a minute for each user.
fn limiter() -> (Limiter, ClockHand) {
    let api = LimitSpec {
        name: "api",
        key: &["tenant"],
        rate: "10/s",
        burst: Some(2),
        ..LimitSpec::DEFAULT
    };
    let login = LimitSpec {
        name: "login",
        key: &["user"],
        matches: &[("user", "*")],
        rate: "3/min",
        ..LimitSpec::DEFAULT
    };
    let limits = [api, login].map(|spec| Limit::parse(&spec).expect("sound"));
    let (clock, hand) = Clock::manual();
    let options = Options { clock, ..Options::default() };
    (Limiter::new(limits.into(), options).expect("sound"), hand)
}

fn by_tenant<'a>(head: &'a Parts, limited: &mut Limited<'a>) {
    limited.descriptor().entry("tenant", head.headers.get("x-tenant"));
}

async fn asked<F, D>(layer: &RateLimitLayer<F, D>, tenant: &str) -> Response<String>
where
    F: for<'a> Fn(&'a Parts, &mut Limited<'a>) + Send + Sync + 'static,
    D: DenialBody<String> + Send + Sync + 'static,
{
    let request = Request::builder().uri("/a/b").header("x-tenant", tenant);
    let request = request.body("hello".to_owned()).expect("a request");
    let mut service = layer.layer(Echo);
    match service.call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

fn field<'r>(response: &'r Response<String>, name: &str) -> &'r str {
    let value = response.headers().get(name).expect("the field is there");
    value.to_str().expect("text")
}

#[tokio::test]
async fn what_passes_reaches_the_handler_and_what_does_not_is_told_when_to_come_back() {
    let layer = RateLimitLayer::new(limiter().0, by_tenant);
    for left in [1, 0] {
        let response = asked(&layer, "acme").await;
        assert_eq!((response.status(), &**response.body()), (StatusCode::OK, "hello"));
        assert_eq!(field(&response, "ratelimit-policy"), "\"api\";q=2;w=1");
        assert_eq!(field(&response, "ratelimit"), format!("\"api\";r={left};t=1"));
        assert!(response.headers().get("retry-after").is_none());
    }
    let response = asked(&layer, "acme").await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.body(), "over the limit\n");
    assert_eq!(field(&response, "ratelimit"), "\"api\";r=0;t=1");
    assert_eq!(field(&response, "retry-after"), "1");
    assert_eq!(asked(&layer, "umbrella").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_closure_makes_bodies_of_denials_and_the_fields_have_another_style() {
    let layer = RateLimitLayer::new(limiter().0, |_, limited| limited.descriptor().cost(3))
        .with_fields(FieldStyle::XDraft03)
        .with_denials(|denial: &Denial| format!("<p>{denial}</p>"));
    let response = asked(&layer, "acme").await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(response.body(), "<p>the cost is above the burst</p>");
    assert_eq!(field(&response, "x-ratelimit-limit"), "2, 2;w=1");
    assert!(response.headers().get("retry-after").is_none());
}

#[tokio::test]
async fn several_descriptors_must_all_have_room_and_each_has_its_cost() {
    let layer = RateLimitLayer::new(limiter().0, |head, limited| {
        by_tenant(head, limited);
        let user = format!("user of {}", head.uri.path());
        limited.descriptor().entry("user", user).cost(2);
    });
    // The second has no tenant, and spends of the key that all such share.
    assert_eq!(asked(&layer, "acme").await.status(), StatusCode::OK);
    let response = asked(&layer, "umbrella").await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(field(&response, "ratelimit").starts_with("\"login\""), "{response:?}");
}

#[tokio::test]
async fn a_request_that_is_not_described_passes_without_fields() {
    let layer = RateLimitLayer::new(limiter().0, |_, _| {});
    let response = asked(&layer, "acme").await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(response.headers().is_empty());
}

#[tokio::test]
async fn what_is_not_sound_is_refused_by_name() {
    let layer = RateLimitLayer::new(limiter().0, |head, limited| {
        let mut entries = limited.descriptor();
        for part in head.uri.path().split('/').cycle().take(1_000) {
            entries = entries.entry("part", part);
        }
    });
    let response = asked(&layer, "acme").await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert_eq!(response.body(), "a descriptor has at most 16 entries, not 17\n");
}

#[tokio::test(start_paused = true)]
async fn a_patient_request_waits_for_room_as_long_as_it_may() {
    let (limiter, hand) = limiter();
    let layer = RateLimitLayer::new(limiter, by_tenant).with_patience(Duration::from_secs(1));
    assert_eq!(asked(&layer, "acme").await.status(), StatusCode::OK);
    assert_eq!(asked(&layer, "acme").await.status(), StatusCode::OK);
    let began = Tick::now();
    let passing = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        hand.advance(Duration::from_millis(100));
    };
    let (response, ()) = tokio::join!(asked(&layer, "acme"), passing);
    assert_eq!(response.status(), StatusCode::OK);
    assert!(began.elapsed() >= Duration::from_millis(100));
    // The limiter's clock stands still from now on.
    let response = asked(&layer, "acme").await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.body(), "over the limit for as long as it waited\n");
}
