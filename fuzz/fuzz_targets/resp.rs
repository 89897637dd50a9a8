//! Any bytes from a Redis client are answered the same however they are cut, and nothing breaks.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| tollgated::fuzzing::resp(input));
