//! Sends 4 MiB at 8 MiB/s in chunks: each chunk is charged before it is sent, the sender waits
//! until the instant that a denial names, and what a short send left over is given back.

use std::time::{Duration, Instant};

use tollgate::{Descriptor, Entry, Handle, Limit, LimitSpec, Limiter, Options, Retry};

const CHUNK_BYTES: u64 = 256 * 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let egress = LimitSpec {
        name: "egress",
        key: &["tenant"],
        rate: "8MiB/s",
        burst: Some(2 * CHUNK_BYTES),
        ..LimitSpec::DEFAULT
    };
    let limiter = Limiter::new(vec![Limit::parse(&egress)?], Options::default())?;
    let entries = [Entry::new("tenant", "acme")];
    let mut acme = limiter.handle("default", &Descriptor::new(&entries)?);

    let (start, mut left, mut chunks) = (Instant::now(), 4 * 1024 * 1024, 0);
    while left > 0 {
        let chunk = CHUNK_BYTES.min(left);
        wait_for(&limiter, &mut acme, chunk)?;
        let sent = send(chunk, chunks);
        acme.refund(chunk - sent);
        left -= sent;
        chunks += 1;
    }
    println!("4 MiB in {chunks} chunks and {:.0?}", start.elapsed());
    Ok(())
}

/// Waits until `bytes` pass; they are spent when it returns.
fn wait_for(limiter: &Limiter, handle: &mut Handle, bytes: u64) -> Result<(), &'static str> {
    loop {
        match handle.check(bytes).retry_at() {
            None => return Ok(()),
            Some(Retry::At(at)) => std::thread::sleep(at.saturating_since(limiter.now())),
            Some(Retry::Never) => return Err("a chunk is larger than the burst"),
        }
    }
}

/// Stands in for a socket that takes half of every fifth chunk.
fn send(bytes: u64, chunk: u32) -> u64 {
    std::thread::sleep(Duration::from_millis(1));
    if chunk % 5 == 4 { bytes / 2 } else { bytes }
}
