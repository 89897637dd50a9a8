//! The decoders, for fuzzers alone.

use std::path::PathBuf;

use crate::app::App;
use crate::config::{self, Reading, no_env};
use crate::faces::{grpc, http, resp};

/// Commands of a Redis client: however they are cut into reads, the replies are the same.
pub fn resp(input: &[u8]) {
    let answers = |split| resp::replies_to(input, split, &App::for_tests(Vec::new()).0);
    assert_eq!(answers(0), answers(input.len() / 2));
}

/// Bodies of every path that is posted to.
pub fn http(body: &[u8]) {
    let limits = config::parse(vec![("a.toml".into(), LIMITS.into())], READING);
    let (app, _) = App::for_tests(limits.expect("sound limits").limits);
    http::post_all(body, &app);
}

/// Bodies of rate-limit calls.
pub fn grpc(body: &[u8]) {
    let reading = config::parse(vec![("a.yaml".into(), DESCRIPTORS.into())], READING);
    let (app, _) = App::for_tests(reading.expect("sound limits").limits);
    grpc::answer_bytes(body, &app);
}

/// Messages of a stream of quotas.
pub fn quota_reports(message: &[u8]) {
    grpc::report_bytes(message);
}

/// Policy files, in each language.
pub fn config(text: &str) {
    for name in ["a.toml", "a.yaml", "a.json"] {
        let _ = config::parse(vec![(PathBuf::from(name), text.into())], READING);
    }
}

const READING: Reading<'_> = Reading { env: no_env, ..Reading::of(1_000, true) };
const DESCRIPTORS: &str = include_str!("../../../examples/envoy/ratelimit.yaml");
const LIMITS: &str = include_str!("../../../examples/limits.toml");
