//! What is read and written here, held to the messages that are made from the protocol's files, and
//! to bytes that are known.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};
use prost::Message;
use tollgate::Instant;

use super::reports::Reports;
use super::response;
use crate::faces::grpc::call::{Code, Fault};
use crate::faces::grpc::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::{
    BucketAction,
    bucket_action::{self, AbandonAction, QuotaAssignmentAction},
};
use crate::faces::grpc::proto::envoy::service::rate_limit_quota::v3::{
    BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports,
    rate_limit_quota_usage_reports::BucketQuotaUsage,
};
use crate::faces::grpc::proto::envoy::r#type::v3 as types;
use crate::faces::grpc::wire_tests::hex;
use crate::quota::{Account, Action, Heard, QuotaStream, Report, Said, Strategy, TokenBucket};

pub(super) fn id(entries: &[(&str, &str)]) -> BucketId {
    let entry = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    BucketId { bucket: entries.iter().map(entry).collect() }
}

/// A usage of a tenant's bucket.
pub(super) fn usage(tenant: &str, allowed: u64, denied: u64, seconds: i64) -> BucketQuotaUsage {
    BucketQuotaUsage {
        bucket_id: Some(id(&[("tenant", tenant), ("name", "api")])),
        time_elapsed: Some(prost_types::Duration { seconds, nanos: 0 }),
        num_requests_allowed: allowed,
        num_requests_denied: denied,
    }
}

pub(super) fn reports(usages: Vec<BucketQuotaUsage>) -> RateLimitQuotaUsageReports {
    RateLimitQuotaUsageReports { domain: "edge".into(), bucket_quota_usages: usages }
}

fn said(entries: &[(&str, &str)], action: Action) -> Said {
    let mut stream = QuotaStream::new(Account::new(Arc::default()));
    let report = Report { entries, allowed: 0, denied: 0, elapsed: Duration::ZERO };
    let now = Instant::ZERO;
    assert!(matches!(stream.handle_report(&report, now), Heard::Tell { bucket: 0, .. }));
    let part = crate::quota::Part::Unknown;
    let told = crate::quota::Told { part, confirmed_until: now };
    stream.handle_part(0, told, now);
    Said { action, ..stream.poll_action(now).expect("it is abandoned") }
}

fn written(said: &Said) -> Vec<u8> {
    let mut out = BytesMut::new();
    response::write(said, &mut out);
    out.to_vec()
}

#[test]
fn a_report_has_the_bytes_that_envoy_sends() {
    let golden = hex("0a0465646765121d0a130a110a046e616d6512096d795f6275636b657412020801180a2002");
    let reports = Reports::read(&golden).expect("sound");
    assert_eq!(reports.domain, "edge");
    let (entries, usage) = reports.usages().next().expect("a usage");
    assert_eq!(entries, [("name", "my_bucket")]);
    assert_eq!((usage.allowed, usage.denied), (10, 2));
    assert_eq!(usage.elapsed, Duration::from_secs(1));
    assert_eq!(reports.usages().count(), 1);
    // As Envoy 1.40 was heard to subscribe: names in any order, a time that is there and is zero.
    let golden =
        hex("0a046564676512210a1b0a0c0a0674656e616e74120261310a0b0a046e616d65120361706912001801");
    let reports = Reports::read(&golden).expect("sound");
    let (entries, usage) = reports.usages().next().expect("a usage");
    assert_eq!(entries, [("name", "api"), ("tenant", "a1")]);
    assert_eq!((usage.allowed, usage.denied, usage.elapsed), (1, 0, Duration::ZERO));
    // As it says that it has no bucket left.
    let golden = hex("0a0465646765");
    let reports = Reports::read(&golden).expect("sound");
    assert_eq!((reports.domain, reports.usages().count()), ("edge", 0));
}

#[test]
fn actions_have_the_bytes_that_envoy_reads() {
    let bucket = TokenBucket { max_tokens: 100, tokens_per_fill: 10, fill_seconds: 1 };
    let strategy = Strategy::TokenBucket(bucket);
    let action = Action::Assign { strategy, ttl_seconds: 10, is_new: true };
    let golden =
        "0a290a130a110a046e616d6512096d795f6275636b657412121202080a1a0c1a0a08641202080a1a020801";
    assert_eq!(written(&said(&[("name", "my_bucket")], action)), hex(golden));
    let golden = "0a170a130a110a046e616d6512096d795f6275636b65741a00";
    assert_eq!(written(&said(&[("name", "my_bucket")], Action::Abandon)), hex(golden));
}

#[test]
fn actions_say_what_the_protocols_messages_say() {
    use types::rate_limit_strategy::{BlanketRule, Strategy as Said};
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    let bucket = |max_tokens, tokens_per_fill, fill| types::TokenBucket {
        max_tokens,
        tokens_per_fill: Some(tokens_per_fill),
        fill_interval: seconds(fill),
    };
    let largest = TokenBucket {
        max_tokens: u32::MAX,
        tokens_per_fill: u32::MAX,
        fill_seconds: 1_000_000_000,
    };
    let long = "v".repeat(70_000);
    let entries = [("a", long.as_str()), ("tenant", "\u{fc}")];
    for (strategy, expected) in [
        (Strategy::AllowAll, Said::BlanketRule(BlanketRule::AllowAll as i32)),
        (Strategy::DenyAll, Said::BlanketRule(BlanketRule::DenyAll as i32)),
        (
            Strategy::TokenBucket(largest),
            Said::TokenBucket(bucket(u32::MAX, u32::MAX, 1_000_000_000)),
        ),
    ] {
        let action = Action::Assign { strategy, ttl_seconds: 60, is_new: false };
        let message = RateLimitQuotaResponse::decode(&*written(&self::said(&entries, action)));
        let expected = QuotaAssignmentAction {
            assignment_time_to_live: seconds(60),
            rate_limit_strategy: Some(types::RateLimitStrategy { strategy: Some(expected) }),
        };
        let action = BucketAction {
            bucket_id: Some(id(&entries)),
            bucket_action: Some(bucket_action::BucketAction::QuotaAssignmentAction(expected)),
        };
        assert_eq!(message, Ok(RateLimitQuotaResponse { bucket_action: vec![action] }));
    }
    let message = RateLimitQuotaResponse::decode(&*written(&said(&entries, Action::Abandon)));
    let action = BucketAction {
        bucket_id: Some(id(&entries)),
        bucket_action: Some(bucket_action::BucketAction::AbandonAction(AbandonAction {})),
    };
    assert_eq!(message, Ok(RateLimitQuotaResponse { bucket_action: vec![action] }));
}

fn refused(usages: Vec<BucketQuotaUsage>) -> String {
    let bytes = reports(usages).encode_to_vec();
    let Fault { code, message } = Reports::read(&bytes).map(|_| ()).expect_err("it is wrong");
    assert_eq!(code, Code::InvalidArgument);
    message
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let good = || usage("a", 1, 0, 0);
    let of = |entries: &[(&str, &str)]| BucketQuotaUsage { bucket_id: Some(id(entries)), ..good() };
    let time = |seconds, nanos| BucketQuotaUsage {
        time_elapsed: Some(prost_types::Duration { seconds, nanos }),
        ..good()
    };
    let names: Vec<String> = (0..17).map(|index| format!("n{index}")).collect();
    let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
    let long = "v".repeat((1 << 20) + 1);
    let times = "time_elapsed: must be from 0 s to 10,000 years";
    for (wrong, expected) in [
        (BucketQuotaUsage { bucket_id: None, ..good() }, "bucket_id: is missing"),
        (of(&[]), "bucket_id: must not be empty"),
        (of(&[("", "x")]), "bucket_id: entry 0 has no name"),
        (of(&[("a", "x"), ("b", "")]), "bucket_id: entry 1 has no value"),
        (of(&many), "bucket_id: a descriptor has at most 16 entries"),
        (of(&[("a", &long)]), "bucket_id: entry 0 has 1048577 bytes"),
        (BucketQuotaUsage { time_elapsed: None, ..good() }, "time_elapsed: is missing"),
        (time(-1, 0), times),
        (time(0, -1), times),
        (time(1, 1_000_000_000), times),
        (time(315_576_000_001, 0), times),
    ] {
        let message = refused(vec![good(), wrong.clone(), of(&[])]);
        let expected = format!("bucket_quota_usages[1].{expected}");
        assert!(message.starts_with(&expected), "{message}");
        assert!(refused(vec![wrong]).starts_with("bucket_quota_usages[0]."));
    }
    let sixteen = reports(vec![of(&many[..16]), time(315_576_000_000, 999_999_999)]);
    assert_eq!(Reports::read(&sixteen.encode_to_vec()).map(|read| read.usages().count()), Ok(2));
    assert_eq!(
        Reports::read(b"\x0a").map(|_| ()).map_err(|fault| fault.code),
        Err(Code::InvalidArgument)
    );
}

/// Protobuf has the last of several values count, and adds messages up.
#[test]
fn a_name_that_comes_twice_has_its_last_value() {
    let entry = |name: &str, value: &str| {
        let field = |number: u8, text: &str| {
            [&[number << 3 | 2, text.len() as u8], text.as_bytes()].concat()
        };
        let entry = [field(1, name), field(2, value)].concat();
        [&[0x0a, entry.len() as u8], &*entry].concat()
    };
    let id = |entries: Vec<u8>| [&[0x0a, entries.len() as u8], &*entries].concat();
    let ids = [id([entry("a", "1"), entry("b", "2")].concat()), id(entry("a", "3"))].concat();
    let body = [ids, vec![0x12, 0]].concat();
    let message = [&[0x12, body.len() as u8], &*body].concat();
    let reports = Reports::read(&message).expect("sound");
    let (entries, _) = reports.usages().next().expect("a usage");
    assert_eq!(entries, [("a", "3"), ("b", "2")]);
    let decoded = RateLimitQuotaUsageReports::decode(&*message).expect("sound");
    let bucket = decoded.bucket_quota_usages[0].bucket_id.clone().expect("an id").bucket;
    assert_eq!(bucket["a"], "3");
}

proptest! {
    /// Against the messages that are made from the protocol's files.
    #[test]
    fn a_report_is_read_as_its_protocol_says(
        domain in "[a-z]{0,3}",
        usages in prop::collection::vec(
            (
                prop::collection::hash_map("\\PC{1,3}", "\\PC{1,200}", 1..4),
                (0..1_000_000_i64, 0..1_000_000_000_i32),
                any::<u64>(),
                any::<u64>(),
            ),
            0..4,
        ),
    ) {
        let made = usages.iter().map(|(entries, (seconds, nanos), allowed, denied)| {
            BucketQuotaUsage {
                bucket_id: Some(BucketId { bucket: entries.clone() }),
                time_elapsed: Some(prost_types::Duration { seconds: *seconds, nanos: *nanos }),
                num_requests_allowed: *allowed,
                num_requests_denied: *denied,
            }
        });
        let made = made.collect();
        let message = RateLimitQuotaUsageReports { domain, bucket_quota_usages: made };
        let bytes = message.encode_to_vec();
        let read = Reports::read(&bytes).expect("sound");
        prop_assert_eq!(read.domain, &message.domain);
        prop_assert_eq!(read.usages().count(), usages.len());
        for ((entries, read), (bucket, (seconds, nanos), allowed, denied)) in
            read.usages().zip(&usages)
        {
            prop_assert!(entries.is_sorted());
            let owned = entries.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            prop_assert_eq!(&owned.collect::<HashMap<_, _>>(), bucket);
            prop_assert_eq!((read.allowed, read.denied), (*allowed, *denied));
            prop_assert_eq!(read.elapsed, Duration::new(*seconds as u64, *nanos as u32));
        }
        // Cut anywhere, it is refused where its protocol refuses it.
        for end in 0..bytes.len() {
            let decoded = RateLimitQuotaUsageReports::decode(&bytes[..end]);
            match Reports::read(&bytes[..end]) {
                Ok(_) => prop_assert!(decoded.is_ok(), "{}", end),
                Err(fault) if fault.message == "no RateLimitQuotaUsageReports" => {
                    prop_assert!(decoded.is_err(), "{}", end);
                }
                Err(_) => {}
            }
        }
    }

    #[test]
    fn bytes_are_refused_where_their_protocol_refuses_them(
        bytes in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        if Reports::read(&bytes).is_ok() {
            prop_assert!(RateLimitQuotaUsageReports::decode(&*bytes).is_ok());
        }
    }
}
