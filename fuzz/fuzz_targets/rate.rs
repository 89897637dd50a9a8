//! Any text is a rate or a typed error, and a rate is shown as text that reads back as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::Rate;

fuzz_target!(|text: &str| {
    if let Ok(rate) = Rate::parse(text) {
        assert_eq!(Rate::parse(&rate.to_string()), Ok(rate), "{text:?}");
    }
});
