//! Any text is a policy or a list of findings.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| tollgated::fuzzing::config(text));
