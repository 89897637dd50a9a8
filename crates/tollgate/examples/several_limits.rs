//! Requests and bytes of a tenant, limited together: both must have room, and a denial spends
//! neither.

use tollgate::{
    Decision, Descriptor, Entry, Limit, LimitSpec, Limiter, Options, OverrideSpec, Request, Retry,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let vip = [OverrideSpec { key: &[("tenant", "vip")], rate: "1000/s", ..OverrideSpec::DEFAULT }];
    let requests = LimitSpec {
        name: "read_iops",
        matches: &[("metric", "read_iops")],
        key: &["tenant"],
        rate: "100/s",
        burst: Some(5),
        overrides: &vip,
        ..LimitSpec::DEFAULT
    };
    let bytes = LimitSpec {
        name: "read_bytes",
        matches: &[("metric", "read_bytes")],
        key: &["tenant"],
        rate: "1MiB/s",
        ..LimitSpec::DEFAULT
    };
    let limits = [&requests, &bytes].map(Limit::parse);
    let limits = limits.into_iter().collect::<Result<Vec<_>, _>>()?;
    let limiter = Limiter::new(limits, Options::default())?;

    for (tenant, size) in [("acme", 700_000), ("acme", 700_000), ("acme", 10), ("vip", 2_000_000)] {
        let decision = read(&limiter, tenant, size)?;
        println!("{tenant} reads {size:>7} bytes: {}", tell(&limiter, &decision));
    }
    Ok(())
}

/// Asks for one read of `size` bytes.
fn read(limiter: &Limiter, tenant: &str, size: u64) -> Result<Decision, tollgate::RequestError> {
    let one = [Entry::new("tenant", tenant), Entry::new("metric", "read_iops")];
    let all = [Entry::new("tenant", tenant), Entry::new("metric", "read_bytes")];
    let descriptors = [Descriptor::new(&one)?, Descriptor::new(&all)?.with_cost(size)];
    Ok(limiter.check(&Request::new(&descriptors)))
}

fn tell(limiter: &Limiter, decision: &Decision) -> String {
    let limit = decision.limit().and_then(|id| limiter.limit_name(id)).unwrap_or_default();
    match decision.retry_at() {
        None => format!("allowed; {limit} has {:?} left", decision.remaining().unwrap_or(0)),
        Some(Retry::Never) => format!("denied by {limit}, for good"),
        Some(Retry::At(at)) => {
            format!("denied by {limit}, retry in {:.1?}", at.saturating_since(decision.now()))
        }
    }
}
