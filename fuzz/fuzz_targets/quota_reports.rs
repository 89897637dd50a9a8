//! Any report of a stream of quotas is taken in or refused; what is read and written is what the
//! protocol's own messages say.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|message: &[u8]| tollgated::fuzzing::quota_reports(message));
