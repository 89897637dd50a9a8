//! What a client of the door sees: a real one of HTTP/2, in this process, and a small divider.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use h2::client::{Builder, SendRequest};
use h2::{RecvStream, SendStream};
use prost::Message;
use tokio::time::timeout;
use tollgate::{ClockHand, Instant};

use super::wire_tests::{reports, usage};
use super::{QUOTA_STREAMS_MAX, USAGES_AT_ONCE};
use crate::app::App;
use crate::faces::grpc::call::frame;
use crate::faces::grpc::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::{
    BucketAction, bucket_action,
};
use crate::faces::grpc::proto::envoy::service::rate_limit_quota::v3::{
    RateLimitQuotaResponse, RateLimitQuotaUsageReports,
};
use crate::faces::grpc::proto::envoy::r#type::v3::rate_limit_strategy::Strategy;
use crate::faces::grpc::proto::grpc::health::v1::HealthCheckRequest;
use crate::faces::grpc::{health, serve};
use crate::guard::Guard;
use crate::metrics::QuotaMetrics;
use crate::quota::{Divider, Mailbox, Part, StreamId, TooMany, Usage};

/// Gives each stream that has a bucket an equal part of 100/s.
#[derive(Default)]
struct Even(Mutex<Table>);

#[derive(Default)]
struct Table {
    mailboxes: BTreeMap<StreamId, Mailbox>,
    /// Whose bucket of which number is called how.
    buckets: BTreeMap<(StreamId, u32), String>,
    told: Vec<String>,
    joined: u64,
    streams_max: usize,
}

impl Divider for Even {
    fn join(&self, mailbox: Mailbox) -> Result<StreamId, TooMany> {
        let mut table = self.0.lock().expect("sound");
        if table.mailboxes.len() >= table.streams_max {
            return Err(TooMany);
        }
        table.joined += 1;
        let id = StreamId(table.joined);
        table.mailboxes.insert(id, mailbox);
        Ok(id)
    }

    fn tell(
        &self,
        stream: StreamId,
        bucket: u32,
        domain: &str,
        entries: &[(&str, &str)],
        usage: Usage,
    ) {
        let mut table = self.0.lock().expect("sound");
        let entries: Vec<String> =
            entries.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let Usage { allowed, denied, elapsed } = usage;
        let (name, number) = (entries.join(","), stream.0);
        let seconds = elapsed.as_secs();
        table.told.push(format!("{number}.{bucket} {domain} {name} {allowed}/{denied}/{seconds}"));
        table.buckets.insert((stream, bucket), name.clone());
        table.divide(&name);
    }

    fn gone(&self, stream: StreamId, bucket: u32) {
        let mut table = self.0.lock().expect("sound");
        table.told.push(format!("{}.{bucket} gone", stream.0));
        let name = table.buckets.remove(&(stream, bucket)).expect("it was told");
        table.divide(&name);
    }

    fn leave(&self, stream: StreamId) {
        let mut table = self.0.lock().expect("sound");
        table.told.push(format!("{} leaves", stream.0));
        table.mailboxes.remove(&stream).expect("it joined");
        table.buckets.retain(|(of, _), _| *of != stream);
        let names: Vec<String> = table.buckets.values().cloned().collect();
        names.iter().for_each(|name| table.divide(name));
    }
}

impl Table {
    fn divide(&self, name: &str) {
        let having = || self.buckets.iter().filter(|(_, known)| *known == name);
        let per_second = 100.0 / having().count() as f64;
        for ((stream, bucket), _) in having() {
            self.put(*stream, *bucket, Part::Rate { per_second, burst_cap: 1_000 });
        }
    }

    fn put(&self, stream: StreamId, bucket: u32, part: Part) {
        self.mailboxes[&stream].put(bucket, part, Instant::MAX);
    }
}

/// A daemon's door.
struct Door {
    app: Arc<App>,
    hand: ClockHand,
    divider: Arc<Even>,
    guard: Arc<Guard>,
    ticks: Arc<AtomicU32>,
}

impl Door {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut App)) -> Self {
        let divider = Arc::new(Even::default());
        divider.0.lock().expect("sound").streams_max = 10;
        let (mut app, hand) = App::for_tests(Vec::new());
        app.divider = Some(divider.clone());
        change(&mut app);
        let ticks = Arc::<AtomicU32>::default();
        let guard = Arc::new(Guard::new(1, ticks.clone(), app.held.clone()));
        Self { app: Arc::new(app), hand, divider, guard, ticks }
    }

    /// A connection whose client has room for so many bytes of each stream.
    async fn connect(&self, window: u32) -> SendRequest<Bytes> {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let (app, guard) = (self.app.clone(), self.guard.clone());
        tokio::spawn(async move { serve(theirs, &app, guard).await });
        let mut builder = Builder::new();
        let handshake = builder.initial_window_size(window).handshake(ours);
        let (client, connection) = handshake.await.expect("HTTP/2");
        tokio::spawn(connection);
        client
    }

    async fn stream(&self) -> Stream {
        open(self.connect(1 << 20).await, &[]).await
    }

    /// What the divider was told since it was asked last.
    fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.divider.0.lock().expect("sound").told)
    }

    /// Waits until the divider has been told so often.
    async fn is_told(&self, times: usize) {
        while self.divider.0.lock().expect("sound").told.len() < times {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn put(&self, stream: u64, bucket: u32, part: Part) {
        self.divider.0.lock().expect("sound").put(StreamId(stream), bucket, part);
    }

    fn metrics(&self) -> &QuotaMetrics {
        &self.app.service.metrics().quota
    }

    /// Lets time pass by both clocks.
    async fn pass(&self, seconds: u64) {
        self.hand.advance(Duration::from_secs(seconds));
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }
}

/// A stream as its client has it.
struct Stream {
    out: SendStream<Bytes>,
    answers: RecvStream,
    bytes: BytesMut,
}

const PATH: &str =
    "http://tollgate/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";

async fn open(client: SendRequest<Bytes>, metadata: &[(&str, &str)]) -> Stream {
    let mut client = client.ready().await.expect("room for a stream");
    let mut head = hyper::Request::post(PATH).header("content-type", "application/grpc");
    for (name, value) in metadata {
        head = head.header(*name, *value);
    }
    let (response, out) =
        client.send_request(head.body(()).expect("a head"), false).expect("a stream");
    let response = response.await.expect("a head");
    assert_eq!(response.status(), 200);
    if let Some(code) = response.headers().get("grpc-status") {
        panic!("refused: {code:?} {:?}", response.headers().get("grpc-message"));
    }
    Stream { out, answers: response.into_body(), bytes: BytesMut::new() }
}

/// The code and the message of a call that is refused at once.
async fn refused(client: SendRequest<Bytes>) -> (String, String) {
    let mut client = client.ready().await.expect("room for a stream");
    let head = hyper::Request::post(PATH).header("content-type", "application/grpc").body(());
    let (response, _) = client.send_request(head.expect("a head"), false).expect("a stream");
    let response = response.await.expect("a head");
    let text = |name| response.headers()[name].to_str().expect("a text").to_owned();
    (text("grpc-status"), text("grpc-message"))
}

impl Stream {
    fn send(&mut self, bytes: Bytes) {
        self.out.send_data(bytes, false).expect("the stream is open");
    }

    fn report(&mut self, tenants: &[&str]) {
        let usages = tenants.iter().map(|tenant| usage(tenant, 1, 0, 0));
        self.send(frame(&reports(usages.collect())));
    }

    /// The next message, if one comes before the stream ends.
    async fn message(&mut self) -> Option<RateLimitQuotaResponse> {
        loop {
            if let Some((prefix, rest)) = self.bytes.split_first_chunk::<5>() {
                let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
                if rest.len() >= length as usize {
                    self.bytes.advance(5);
                    let message = self.bytes.split_to(length as usize);
                    return Some(RateLimitQuotaResponse::decode(message).expect("a response"));
                }
            }
            let data = timeout(Duration::from_secs(600), self.answers.data()).await;
            let data = data.expect("something comes in ten minutes")?.expect("a sound stream");
            let _ = self.answers.flow_control().release_capacity(data.len());
            self.bytes.extend_from_slice(&data);
        }
    }

    /// What the next message says: of whose bucket what.
    async fn said(&mut self) -> Vec<String> {
        let message = self.message().await.expect("a message");
        message.bucket_action.into_iter().map(shown).collect()
    }

    /// How the stream ends.
    async fn end(&mut self) -> (String, String) {
        assert_eq!(self.message().await, None);
        let trailers = self.answers.trailers().await.expect("an end").expect("trailers");
        let text = |name| trailers.get(name).map(|text| text.to_str().expect("a text").to_owned());
        (text("grpc-status").expect("a code"), text("grpc-message").unwrap_or_default())
    }

    /// Nothing comes while everybody has the time to say it.
    async fn is_silent(&mut self) {
        let next = timeout(Duration::from_millis(10), self.message()).await;
        assert!(next.is_err(), "{next:?}");
    }
}

fn shown(action: BucketAction) -> String {
    let tenant = action.bucket_id.expect("an id").bucket["tenant"].clone();
    let assigned = match action.bucket_action.expect("an action") {
        bucket_action::BucketAction::AbandonAction(_) => return format!("{tenant} abandon"),
        bucket_action::BucketAction::QuotaAssignmentAction(assigned) => assigned,
    };
    let ttl = assigned.assignment_time_to_live.expect("a TTL").seconds;
    match assigned.rate_limit_strategy.and_then(|strategy| strategy.strategy) {
        Some(Strategy::BlanketRule(rule)) => format!("{tenant} rule {rule} for {ttl}"),
        Some(Strategy::TokenBucket(bucket)) => {
            let (max, tokens) = (bucket.max_tokens, bucket.tokens_per_fill.unwrap_or_default());
            let fill = bucket.fill_interval.expect("an interval");
            assert_eq!(fill.nanos, 0);
            format!("{tenant} {max} {tokens}/{} for {ttl}", fill.seconds)
        }
        other => panic!("{other:?}"),
    }
}

fn done() -> (String, String) {
    ("0".into(), String::new())
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_is_reported_is_assigned_its_part_and_has_it_renewed() {
    let door = Door::new();
    let mut stream = door.stream().await;
    stream.report(&["a"]);
    assert_eq!(stream.said().await, ["a 10 100/1 for 10"]);
    assert_eq!(door.told(), ["1.0 edge name=api,tenant=a 1/0/0"]);
    door.hand.advance(Duration::from_secs(5));
    assert_eq!(stream.said().await, ["a 10 100/1 for 10"]);
    door.pass(5).await;
    assert_eq!(stream.said().await, ["a 10 100/1 for 10"]);
    // It reports as Envoy does, after 10 s: the TTL follows.
    stream.send(frame(&reports(vec![usage("a", 40, 2, 9)])));
    stream.is_silent().await;
    assert_eq!(door.told(), ["1.0 edge name=api,tenant=a 40/2/10"]);
    door.pass(5).await;
    assert_eq!(stream.said().await, ["a 10 100/1 for 30"]);
    let metrics = door.metrics();
    let counted = [&metrics.assigned, &metrics.extended, &metrics.abandoned, &metrics.reports];
    assert_eq!(counted.map(|counter| counter.load(Relaxed)), [1, 3, 0, 2]);
}

#[tokio::test(start_paused = true)]
async fn streams_share_a_limit_and_what_one_leaves_is_the_others() {
    let door = Door::new();
    let (mut one, mut two) = (door.stream().await, door.stream().await);
    one.report(&["a"]);
    assert_eq!(one.said().await, ["a 10 100/1 for 10"]);
    two.report(&["a", "b"]);
    let mut said = two.said().await;
    while said.len() < 2 {
        said.extend(two.said().await);
    }
    assert_eq!(said, ["a 5 50/1 for 10", "b 10 100/1 for 10"]);
    assert_eq!(one.said().await, ["a 5 50/1 for 10"]);
    assert_eq!(door.metrics().streams.load(Relaxed), 2);
    assert_eq!(door.metrics().buckets.load(Relaxed), 3);
    door.pass(1).await;
    drop(two);
    assert_eq!(one.said().await, ["a 10 100/1 for 10"]);
    assert_eq!(door.told().last().map(String::as_str), Some("2 leaves"));
    assert_eq!(door.metrics().streams.load(Relaxed), 1);
    assert_eq!(door.metrics().buckets.load(Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_bucket_without_a_limit_is_abandoned_and_one_that_is_silent_too() {
    let door = Door::new();
    let mut stream = door.stream().await;
    stream.report(&["a"]);
    stream.said().await;
    door.put(1, 0, Part::Unknown);
    assert_eq!(stream.said().await, ["a abandon"]);
    // As Envoy says that it has no buckets.
    stream.send(frame(&reports(Vec::new())));
    stream.report(&["a"]);
    assert_eq!(stream.said().await, ["a 10 100/1 for 10"]);
    assert_eq!(
        door.told(),
        ["1.0 edge name=api,tenant=a 1/0/0", "1.0 gone", "1.1 edge name=api,tenant=a 1/0/0"]
    );
    door.hand.advance(Duration::from_secs(60));
    assert_eq!(stream.said().await, ["a abandon"]);
    assert_eq!(door.told(), ["1.1 gone"]);
    assert_eq!(door.metrics().abandoned.load(Relaxed), 2);
    assert_eq!(door.metrics().buckets.load(Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn messages_may_be_cut_anywhere_and_come_together() {
    let door = Door::new();
    let mut stream = door.stream().await;
    let message = frame(&reports(vec![usage("a", 1, 0, 0), usage("b", 2, 1, 3)]));
    for index in 0..message.len() {
        stream.send(message.slice(index..=index));
        tokio::task::yield_now().await;
    }
    stream.send([&*message, &message, &message[..7]].concat().into());
    stream.send(message.slice(7..));
    let mut said = stream.said().await;
    while said.len() < 2 {
        said.extend(stream.said().await);
    }
    assert_eq!(said, ["a 10 100/1 for 10", "b 10 100/1 for 10"]);
    stream.is_silent().await;
    let told = door.told();
    assert_eq!(told.len(), 8);
    assert_eq!(told[7], "1.1 edge name=api,tenant=b 2/1/3");
    // More than are taken in at once.
    let tenants: Vec<String> = (0..2 * USAGES_AT_ONCE + 10).map(|n| n.to_string()).collect();
    stream.report(&tenants.iter().map(String::as_str).collect::<Vec<_>>());
    let mut said = 0;
    while said < tenants.len() {
        said += stream.said().await.len();
    }
    assert_eq!(door.told().len(), tenants.len());
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_wrong_ends_its_stream_and_counts_nothing() {
    let door = Door::new();
    let nowhere = RateLimitQuotaUsageReports { domain: String::new(), ..reports(vec![]) };
    let invalid = |message: &str| ("3".to_owned(), message.to_owned());
    let good = || usage("a", 1, 0, 0);
    let empty = reports(vec![good(), usage("", 1, 0, 0)]);
    let elsewhere = RateLimitQuotaUsageReports { domain: "other".into(), ..reports(vec![good()]) };
    let large = [&[0][..], &(2_097_153_u32).to_be_bytes()].concat();
    for (sent, expected) in [
        (frame(&nowhere), invalid("domain: is missing in the first message")),
        (frame(&empty), invalid("bucket_quota_usages[1].bucket_id: entry 1 has no value")),
        (Bytes::from_static(b"\0\0\0\0\x01\x0a"), invalid("no RateLimitQuotaUsageReports")),
        (
            Bytes::from_static(b"\x01\0\0\0\0"),
            ("12".into(), "compressed messages are not read".into()),
        ),
        (large.into(), ("8".into(), "a request has at most 2097152 bytes".into())),
    ] {
        let mut stream = door.stream().await;
        stream.send(sent);
        assert_eq!(stream.end().await, expected);
        assert_eq!(door.told().len(), 1, "it leaves, and that is all");
    }
    let mut stream = door.stream().await;
    stream.report(&["a"]);
    stream.said().await;
    stream.send(frame(&elsewhere));
    let why = "domain: is another than before; it needs a stream of its own";
    assert_eq!(stream.end().await, invalid(why));
    assert_eq!(door.told().len(), 2);
    assert_eq!(door.metrics().refused_messages.load(Relaxed), 6);
    assert_eq!(door.metrics().streams.load(Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn half_a_message_has_its_time_and_an_idle_stream_has_any() {
    let door = Door::new();
    let mut idle = door.stream().await;
    idle.report(&["a"]);
    idle.said().await;
    assert!(door.guard.has_lasting());
    door.pass(36_000).await;
    // Its bucket is silent; the stream is not: it is there.
    while idle.said().await != ["a abandon"] {}
    idle.report(&["a"]);
    assert_eq!(idle.said().await, ["a 10 100/1 for 10"]);
    let mut half = door.stream().await;
    half.send(Bytes::from_static(b"\0\0\0\0\x09\x0a"));
    let slow = ("4".into(), "the request did not arrive in time".into());
    assert_eq!(half.end().await, slow);
    // A client may say how long it wants to talk.
    let mut short = open(door.connect(1 << 20).await, &[("grpc-timeout", "30S")]).await;
    short.report(&["b"]);
    while short.message().await.is_some() {}
    drop((idle, half));
    drop(short);
    while door.metrics().streams.load(Relaxed) > 0 {
        tokio::task::yield_now().await;
    }
    assert!(!door.guard.has_lasting());
}

#[tokio::test(start_paused = true)]
async fn to_a_client_that_does_not_read_only_the_newest_of_each_bucket_is_sent() {
    let door = Door::new();
    let client = door.connect(20).await;
    let mut stream = open(client, &[]).await;
    stream.report(&["a", "b"]);
    door.is_told(2).await;
    for step in 1..500_u32 {
        door.hand.advance(Duration::from_millis(3));
        let part = Part::Rate { per_second: 1e6 / f64::from(step), burst_cap: 1 << 30 };
        door.put(1, 0, part);
        door.put(1, 1, part);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut all = Vec::new();
    while all.len() < 4 {
        all.extend(stream.said().await);
    }
    // What had begun to be sent, and the newest.
    let newest = ["a 200 2004/1 for 10", "b 200 2004/1 for 10"];
    assert_eq!(all, [&["a 10 100/1 for 10", "b 10 100/1 for 10"], &newest[..]].concat());
    stream.is_silent().await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_ends_ends_its_streams_well() {
    let door = Door::new();
    let mut stream = door.stream().await;
    stream.report(&["a"]);
    stream.said().await;
    door.app.service.give_notice();
    stream.is_silent().await;
    door.app.service.drain();
    assert_eq!(stream.end().await, done());
    assert_eq!(door.told().last().map(String::as_str), Some("1 leaves"));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_old_ends_with_its_next_report_and_the_stream_well() {
    let door = Door::with(|app| app.bounds.age = Some(Duration::from_secs(60)));
    let client = door.connect(1 << 20).await;
    let mut stream = open(client.clone(), &[]).await;
    stream.report(&["a"]);
    stream.said().await;
    door.ticks.store(240, Relaxed);
    stream.is_silent().await;
    stream.report(&["b"]);
    while stream.message().await.is_some() {}
    assert_eq!(stream.end().await, done());
    let told = door.told();
    assert_eq!(told[1..], ["1.1 edge name=api,tenant=b 1/0/0", "1 leaves"]);
    assert!(client.ready().await.is_err(), "the connection takes no other");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_said_all_is_answered_well_and_one_that_is_gone_leaves() {
    let door = Door::new();
    let mut stream = door.stream().await;
    stream.report(&["a"]);
    stream.said().await;
    stream.out.send_data(Bytes::new(), true).expect("the stream is open");
    assert_eq!(stream.end().await, done());
    let mut stream = door.stream().await;
    stream.send(Bytes::from_static(b"\0"));
    stream.out.send_data(Bytes::new(), true).expect("the stream is open");
    assert_eq!(stream.end().await, ("1".into(), "the request broke off".into()));
    let mut stream = door.stream().await;
    stream.out.send_reset(h2::Reason::CANCEL);
    drop(stream);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(door.told().last().map(String::as_str), Some("3 leaves"));
}

#[test]
fn health_knows_the_service_where_it_is_served() {
    let name = "envoy.service.rate_limit_quota.v3.RateLimitQuotaService";
    let message = HealthCheckRequest { service: name.into() }.encode_to_vec();
    assert!(health::check(&message, &Door::new().app).is_ok());
    assert!(health::check(&message, &Door::with(|app| app.divider = None).app).is_err());
}

#[tokio::test(start_paused = true)]
async fn streams_are_refused_where_nothing_divides_and_where_there_are_too_many() {
    let alone = Door::with(|app| app.divider = None);
    let (code, why) = refused(alone.connect(1 << 20).await).await;
    assert_eq!((&*code, &*why), ("12", "no limits are assigned here"));
    let door = Door::new();
    door.divider.0.lock().expect("sound").streams_max = 1;
    let mut one = door.stream().await;
    let full = ("8".to_owned(), "too many streams of quotas are open".to_owned());
    assert_eq!(refused(door.connect(1 << 20).await).await, full);
    door.divider.0.lock().expect("sound").streams_max = 10;
    door.metrics().streams.fetch_add(QUOTA_STREAMS_MAX - 1, Relaxed);
    assert_eq!(refused(door.connect(1 << 20).await).await, full);
    door.metrics().streams.fetch_sub(1, Relaxed);
    let _two = door.stream().await;
    assert_eq!(door.metrics().refused_streams.load(Relaxed), 2);
    one.report(&["a"]);
    assert_eq!(one.said().await, ["a 10 100/1 for 10"]);
}
