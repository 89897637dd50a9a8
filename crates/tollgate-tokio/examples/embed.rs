//! A service that joins a fleet and decides its own requests by the fleet's limits, without asking
//! anybody: `cargo run --example embed -- --join 127.0.0.1:7800`.
use std::time::Duration;

use tollgate::{Descriptor, Entry, Request};
use tollgate_tokio::{Fleet, FleetOptions};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let join = std::env::args().skip_while(|word| word != "--join").nth(1);
    let seeds = vec![join.ok_or("usage: embed --join ADDRESS")?];
    let fleet = Fleet::join(FleetOptions { seeds, ..FleetOptions::default() }).await?;
    println!("node {} of fleet {:016x}", fleet.node().get(), fleet.fleet());
    let entries = [Entry::new("tenant", "acme")];
    let descriptors = [Descriptor::new(&entries)?];
    let request = Request::new(&descriptors);
    for _ in 0..5 {
        let decision = fleet.check(&request).await;
        println!("check: {:?}, {:?} remaining", decision.outcome(), decision.remaining());
    }
    for _ in 0..5 {
        let decision = fleet.acquire(&request, Duration::from_millis(500)).await;
        println!("acquire: {:?}, {:?} remaining", decision.outcome(), decision.remaining());
    }
    fleet.leave().await;
    Ok(())
}
