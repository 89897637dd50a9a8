//! Any body of a rate-limit call is answered or refused; what is read and written is what the
//! protocol's own messages say.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| tollgated::fuzzing::grpc(body));
