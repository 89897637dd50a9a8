//! Whatever bytes come first on a connection between members, from the one that dials or from the
//! one that answers: nobody is believed who does not know the secret.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncWriteExt, duplex};
use tokio::runtime::{Builder, Runtime};
use tollgate_tokio::wire::{Hello, Host, PeerSecret, Purpose, answer, introduce};

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_time().build().expect("a runtime"));

fuzz_target!(|bytes: &[u8]| {
    let secret = PeerSecret::new(b"open sesame");
    let hello = Hello { fleet: 1, purpose: Purpose::Peer, to: None, node: None, start: 0 };
    RUNTIME.block_on(async {
        for is_answer in [false, true] {
            let (mut stranger, mut member) = duplex(1 << 16);
            let bytes = &bytes[..bytes.len().min(1 << 15)];
            stranger.write_all(bytes).await.expect("there is room");
            stranger.shutdown().await.expect("it is open");
            let is_believed = if is_answer {
                introduce(&mut member, &secret, &hello).await.is_ok()
            } else {
                answer(&mut member, &secret, Host::default(), |_| true).await.is_ok()
            };
            assert!(!is_believed);
        }
    });
});
