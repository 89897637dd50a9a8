//! Whatever bytes a node and a replica of the coordinator send each other: they are an error, or
//! what they say can be said again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_tokio::wire::{Ask, Tell};

fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, body)) = bytes.split_first() else { return };
    if let Ok(ask) = Ask::decode(kind, body) {
        let mut again = Vec::new();
        let kind = ask.encode(&mut again);
        assert_eq!(Ask::decode(kind, &again), Ok(ask));
    }
    if let Ok(tell) = Tell::decode(kind, body) {
        let mut again = Vec::new();
        let kind = tell.encode(&mut again);
        let told = Tell::decode(kind, &again).expect("what was told can be told");
        let mut third = Vec::new();
        assert_eq!((told.encode(&mut third), third), (kind, again));
    }
});
