//! What is read and written here, held to the messages that are made from the protocol's files, and
//! to bytes that are known.

use bytes::BytesMut;
use proptest::prelude::*;
use prost::Message;
use tollgate::{Limit, LimitSpec};

use super::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use super::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use super::proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use super::proto::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use super::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use super::request::Asked;
use super::tests::{ask, bringing, descriptor, giving_back, request};
use super::wire;
use crate::app::App;

pub(super) fn hex(text: &str) -> Vec<u8> {
    let digit = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("digits");
    (0..text.len()).step_by(2).map(digit).collect()
}

#[test]
fn messages_have_the_bytes_that_envoy_sends_and_reads() {
    let cost = RateLimitRequest {
        hits_addend: 3,
        ..request(vec![descriptor("tenant=acme,metric=read_iops")])
    };
    let peek = request(vec![RateLimitDescriptor {
        hits_addend: Some(0),
        ..bringing("tenant=acme", 42, 3)
    }]);
    let back = request(vec![giving_back("tenant=acme", 2)]);
    for (message, golden) in [
        (
            cost,
            "0a046564676512250a0e0a0674656e616e74120461636d650a130a066d6574726963\
             1209726561645f696f70731803",
        ),
        (peek, "0a046564676512180a0e0a0674656e616e74120461636d651204082a10031a00"),
        (back, "0a046564676512160a0e0a0674656e616e74120461636d651a0208022001"),
    ] {
        assert_eq!(RateLimitRequest::decode(&*hex(golden)).expect("sound"), message);
        assert_eq!(message.encode_to_vec(), hex(golden));
    }
    let limit =
        RateLimit { name: String::new(), requests_per_unit: 100, unit: Unit::Minute as i32 };
    let response = RateLimitResponse {
        overall_code: Code::OverLimit as i32,
        statuses: vec![DescriptorStatus {
            code: Code::OverLimit as i32,
            current_limit: Some(limit),
            limit_remaining: 0,
            duration_until_reset: Some(prost_types::Duration { seconds: 17, nanos: 0 }),
        }],
        response_headers_to_add: Vec::new(),
    };
    let golden = hex("0802120c080212040864100222020811");
    assert_eq!(response.encode_to_vec(), golden);
    assert_eq!(RateLimitResponse::decode(&*golden).expect("sound"), response);
}

proptest! {
    /// Against the messages that are made from the protocol's files.
    #[test]
    fn a_request_is_read_as_its_protocol_says(
        domain in "[a-z]{0,3}",
        hits in any::<u32>(),
        descriptors in prop::collection::vec(
            (
                prop::collection::vec(("\\PC{0,3}", "\\PC{0,200}"), 0..4),
                any::<Option<(u32, i32)>>(),
                any::<Option<u64>>(),
                any::<bool>(),
            ),
            0..4,
        ),
    ) {
        let made = descriptors.iter().map(|(entries, limit, hits_addend, is_negative_hits)| {
            let entry = |(key, value): &(String, String)| {
                Entry { key: key.clone(), value: value.clone() }
            };
            let brings = |(requests_per_unit, unit)| RateLimitOverride { requests_per_unit, unit };
            let limit = limit.map(brings);
            RateLimitDescriptor {
                entries: entries.iter().map(entry).collect(),
                limit,
                hits_addend: *hits_addend,
                is_negative_hits: *is_negative_hits,
            }
        });
        let message = RateLimitRequest { domain, descriptors: made.collect(), hits_addend: hits };
        let bytes = message.encode_to_vec();
        let asked = Asked::read(&bytes).expect("sound");
        prop_assert_eq!(asked.domain, &message.domain);
        prop_assert_eq!(asked.hits_addend, hits);
        let entries = message.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
        let entries: Vec<_> = entries.map(|one| (&*one.key, one.value.as_bytes())).collect();
        let read: Vec<_> = asked.entries.iter().map(|one| (one.name(), one.value())).collect();
        prop_assert_eq!(read, entries);
        for (read, written) in asked.descriptors.iter().zip(&message.descriptors) {
            prop_assert_eq!(read.entries, written.entries.len());
            prop_assert_eq!(read.hits_addend, written.hits_addend);
            prop_assert_eq!(read.is_negative_hits, written.is_negative_hits);
            let limit = read.limit.map(|limit| (limit.requests_per_unit, limit.unit));
            let expected = written.limit.map(|limit| (limit.requests_per_unit, limit.unit));
            prop_assert_eq!(limit, expected);
        }
        prop_assert_eq!(asked.descriptors.len(), message.descriptors.len());
        // Cut anywhere, it is read as its protocol says too, or refused as there.
        for end in 0..bytes.len() {
            let ours = Asked::read(&bytes[..end]).is_ok();
            prop_assert_eq!(ours, RateLimitRequest::decode(&bytes[..end]).is_ok(), "{}", end);
        }
    }

    #[test]
    fn bytes_are_refused_where_their_protocol_refuses_them(
        bytes in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        if Asked::read(&bytes).is_ok() {
            prop_assert!(RateLimitRequest::decode(&*bytes).is_ok());
        }
    }
}

#[test]
fn a_long_name_of_a_limit_is_written_whole() {
    let name = "n".repeat(64);
    let spec = LimitSpec { name: &name, domain: "edge", rate: "100/s", ..LimitSpec::DEFAULT };
    let (app, _) = App::for_tests(vec![Limit::parse(&spec).expect("sound")]);
    // The longest status: more than 127 bytes need two for their number.
    let mut out = BytesMut::new();
    wire::message(&mut out, 2, |out| wire::text(out, 3, &"x".repeat(300)));
    assert_eq!(out[..6], [0x12, 0xaf, 0x02, 0x1a, 0xac, 0x02]);
    assert_eq!(out.len(), 306);
    let response = ask(&app, vec![descriptor("tenant=acme"); 3]);
    let names = response.statuses.iter().map(|status| status.current_limit.clone());
    assert!(names.flatten().all(|limit| limit.name == name));
}
