//! Ten requests a second for each tenant: `cargo run --example local`.
use tollgate::{Descriptor, Entry, Limit, LimitSpec, Limiter, Options, Request};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let api = LimitSpec { name: "api", key: &["tenant"], rate: "10/s", ..LimitSpec::DEFAULT };
    let limiter = Limiter::new(vec![Limit::parse(&api)?], Options::default())?;
    let entries = [Entry::new("tenant", "acme")];
    let descriptors = [Descriptor::new(&entries)?];
    for _ in 0..12 {
        let decision = limiter.check(&Request::new(&descriptors));
        println!("{:?}, {:?} remaining", decision.outcome(), decision.remaining());
    }
    Ok(())
}
