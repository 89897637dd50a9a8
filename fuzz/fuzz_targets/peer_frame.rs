//! Whatever bytes another node sends: they are an error, or what they say can be said again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_tokio::wire::PeerFrame;

fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, body)) = bytes.split_first() else { return };
    let Ok(frame) = PeerFrame::decode(kind, body) else { return };
    let mut again = Vec::new();
    let kind = frame.encode(&mut again);
    assert!(again.len() <= body.len(), "numbers are written as short as they can be");
    assert_eq!(PeerFrame::decode(kind, &again), Ok(frame));
});
