//! Any body is answered by every path of the HTTP door, and none is the server's fault.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| tollgated::fuzzing::http(body));
