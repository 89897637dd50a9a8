//! Threads together get what one would: exactly the bound, whatever the interleaving.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tollgate::{LimitSpec, Limiter, Options};

use crate::support::{
    SECOND, api, ask, ask_of, limiter, limiter_with, limits, nanos, passed, peek,
};

const THREADS: usize = 16;

/// How many requests pass when `THREADS` threads each ask as `ask` does.
fn together(ask: impl Fn(usize) -> u64 + Sync) -> u64 {
    let barrier = Barrier::new(THREADS);
    let run = |thread| {
        barrier.wait();
        ask(thread)
    };
    let run = &run;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    })
}

#[test]
fn sixteen_threads_on_one_key_admit_exactly_the_burst_and_the_rate() {
    let (limiter, hand) = limiter(&[api("1000/s", 100)]);
    assert_eq!(together(|_| passed(&limiter, "a", 500)), 100);
    for step in 1..=20 {
        hand.advance(nanos(SECOND / 100));
        assert_eq!(together(|_| passed(&limiter, "a", 100)), 10, "step {step}");
    }
    let counts = limiter.limits()[0].counts;
    assert_eq!((counts.allowed, counts.over_limit), (300, 16 * 500 + 20 * 16 * 100 - 300));
}

#[test]
fn a_clock_that_runs_while_threads_ask_admits_no_unit_more() {
    let (limiter, hand) = limiter(&[api("1000003/s", 100)]);
    let admitted = together(|thread| {
        let mut admitted = 0;
        for _ in 0..5_000 {
            if thread == 0 {
                hand.advance(nanos(997));
            }
            admitted += u64::from(ask(&limiter, "a", 1).is_allowed());
        }
        admitted
    });
    let elapsed = u128::from(limiter.now().as_nanos());
    let bound = 100 + elapsed * 1_000_003 / u128::from(SECOND);
    assert!(u128::from(admitted) <= bound, "{admitted} of {bound}");
    let left = peek(&limiter, "a", 1).remaining().expect("limited");
    assert!(
        u128::from(admitted + left) + 1 >= bound.min(16 * 5_000),
        "{admitted} and {left} of {bound}"
    );
}

#[test]
fn c22_threads_that_come_first_together_make_one_cell() {
    let change = |options| Options { keys_max: 10_000, ..options };
    let (limiter, _) = limiter_with(&[api("10/60s", 10)], change);
    for key in 0..1_000 {
        let name = key.to_string();
        let admitted = AtomicU64::new(0);
        together(|_| {
            let passed = (0..4).filter(|_| ask(&limiter, &name, 1).is_allowed()).count() as u64;
            admitted.fetch_add(passed, Ordering::Relaxed)
        });
        assert_eq!(admitted.into_inner(), 10, "key {key}");
    }
}

#[test]
fn a_race_for_the_last_units_of_one_limit_leaves_the_other_exact() {
    let wide = LimitSpec { name: "wide", rate: "1000000/h", ..LimitSpec::DEFAULT };
    for _ in 0..20 {
        let (limiter, _) = limiter(&[wide, api("500/h", 500)]);
        let admitted = together(|_| passed(&limiter, "a", 100));
        assert_eq!(admitted, 500);
        let left = crate::support::with_request(&[], 1, |request| limiter.peek(request));
        let spent = limiter_spent(&limiter);
        assert_eq!(spent, 500, "denials spent from the wide limit: {left:?}");
    }
}

/// What was spent of the limit `wide`.
fn limiter_spent(limiter: &Limiter) -> u64 {
    let explanation = crate::support::with_request(&[], 1, |request| limiter.explain(request));
    let wide = &explanation.limits[0];
    let tollgate::Applies::Yes { alone, .. } = &wide.applies else { panic!("applies") };
    1_000_000 - alone.remaining().expect("limited")
}

#[test]
fn a_flood_that_evicts_and_a_clock_that_runs_lose_no_charge() {
    // Twelve keys for eight places: cells leave and come back all the time.
    let change = |options| Options { keys_max: 8, ..options };
    let (limiter, hand) = limiter_with(&[api("1000/s", 1)], change);
    let admitted: Vec<AtomicU64> = (0..12).map(|_| AtomicU64::new(0)).collect();
    together(|thread| {
        for turn in 0..4_000 {
            if thread == 0 {
                hand.advance(nanos(10_000));
            }
            let key = (turn * 7 + thread) % 12;
            if ask(&limiter, &key.to_string(), 1).is_allowed() {
                admitted[key].fetch_add(1, Ordering::Relaxed);
            }
        }
        0
    });
    let elapsed = limiter.now().as_nanos();
    for (key, admitted) in admitted.into_iter().enumerate() {
        // A key may pass on the shared cell as well, which has the same bound.
        let bound = 2 * (1 + elapsed / 1_000_000);
        assert!(admitted.into_inner() <= bound, "key {key}");
    }
    let counts = limiter.limits()[0].counts;
    assert!(counts.evicted > 0, "{counts:?}");
}

#[test]
fn limits_replaced_under_load_keep_every_charge() {
    let rates = ["10/h", "10000000000/s", "7/h", "1000/s"];
    let (limiter, _) = limiter(&[api(rates[0], 100_000)]);
    let done = AtomicBool::new(false);
    let admitted = std::thread::scope(|scope| {
        let replacer = scope.spawn(|| {
            let mut turn = 0;
            while !done.load(Ordering::Relaxed) {
                turn += 1;
                let rate = rates[turn % rates.len()];
                limiter.replace(limits(&[api(rate, 100_000)])).expect("sound");
            }
            turn
        });
        let admitted = together(|thread| passed(&limiter, &(thread % 3).to_string(), 3_000));
        done.store(true, Ordering::Relaxed);
        assert!(replacer.join().expect("no panic") > 0);
        admitted
    });
    // The clock stands still, so nothing came back: what passed is what is owed.
    limiter.replace(limits(&[api("10/h", 100_000)])).expect("sound");
    let left: u64 =
        (0..3).map(|key| peek(&limiter, &key.to_string(), 1).remaining().unwrap_or(0)).sum();
    assert_eq!(admitted, 16 * 3_000);
    let (spent, rounded) = (300_000 - left, 3 * 1_000);
    assert!(spent >= admitted, "{spent} spent of {admitted}");
    assert!(spent <= admitted + rounded, "{spent} spent of {admitted}");
}

#[test]
fn handles_of_many_threads_count_every_decision() {
    let (limiter, _) = limiter(&[api("1000/h", 1_000)]);
    let entries = [tollgate::Entry::new("tenant", "a")];
    let descriptor = tollgate::Descriptor::new(&entries).expect("sound");
    let handle = limiter.handle("default", &descriptor);
    let admitted = together(|_| {
        let mut own = handle.clone();
        (0..1_000).filter(|_| own.check(1).is_allowed()).count() as u64
    });
    let counts = limiter.limits()[0].counts;
    assert_eq!((admitted, counts.allowed, counts.over_limit), (1_000, 1_000, 15_000));
    assert!(!ask_of(&limiter, &[("tenant", "a")], 1).is_allowed());
}
