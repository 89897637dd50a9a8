//! Any limit is refused or kept: whatever is asked, in any order and at any time, a key never gets more
//! than its burst at one instant, a denial names a later instant, and nothing panics.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use tollgate::{
    Clock, Descriptor, Entry, Instant, Limit, LimitSpec, Limiter, Options, Oversize, Request, Retry, Secret,
};

fuzz_target!(|input: (&str, &str, Option<u64>, Option<f64>, bool, Vec<(u8, u64)>)| {
    let (name, rate, burst, burst_ratio, pace, steps) = input;
    let oversize = if pace { Oversize::Pace } else { Oversize::Never };
    let key: &[&str] = &["tenant"];
    let spec =
        LimitSpec { name, rate, burst, burst_ratio, oversize, key, ..LimitSpec::DEFAULT };
    let Ok(limit) = Limit::parse(&spec) else { return };
    let (clock, hand) = Clock::manual();
    let options = Options { clock, keys_max: 4, secret: Secret::from_seed([7; 32]), ..Options::default() };
    let limiter = Limiter::new(vec![limit], options).expect("one limit contradicts nothing");
    for (what, number) in steps {
        let tenant = [what & 7];
        let entries = [Entry::new("tenant", &tenant)];
        let descriptors = [Descriptor::new(&entries).expect("one entry").with_cost(number)];
        let request = Request::new(&descriptors);
        match what >> 5 {
            0..=3 => {
                let decision = limiter.check(&request);
                if let Some(Retry::At(at)) = decision.retry_at() {
                    assert!(at > decision.now() || at == Instant::MAX);
                }
                if let (Some(left), Some(burst)) = (decision.remaining(), decision.burst()) {
                    assert!(left <= burst);
                }
            }
            4 => limiter.refund(&request),
            5 => hand.turn_back(Duration::from_nanos(number)),
            6 => hand.advance(Duration::from_nanos(number >> (number & 63))),
            _ => {
                let rate = ["1/s", "1/365d", "1000000000000/s", "zero", "unlimited"];
                let rate = rate[number as usize % rate.len()];
                let changed = Limit::parse(&LimitSpec { name, rate, key, ..LimitSpec::DEFAULT });
                limiter.replace(changed.into_iter().collect()).expect("one limit");
            }
        }
    }
});
