//! The limiters that tollgate is compared with, each as its own documentation sets it up.
//!
//! All read their default clock at every check. Limits are as ours: one token in ten seconds after
//! a burst that no run uses up, so that every check is allowed and no key comes to rest.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use governor::clock::DefaultClock;
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use limitador::limit::Context;
use throttlecrab::PeriodicStore;

use crate::keys::{CHUNK, Cursor, Key, key, text};
use crate::measure::Worker;

type GovernorDirect = RateLimiter<NotKeyed, InMemoryState, DefaultClock, NoOpMiddleware>;
/// governor's keyed limiter with the fastest hasher measured; its default one takes longer.
pub type GovernorKeyed<K> = RateLimiter<K, DashMapStateStore<K, ahash::RandomState>, DefaultClock>;

/// governor, one key.
pub fn governor_direct(workers: usize) -> Vec<Worker> {
    let limiter = Arc::new(RateLimiter::direct(quota(EMISSION, BURST)));
    (0..workers).map(|_| direct_worker(limiter.clone())).collect()
}

/// governor, one key that has nothing left.
pub fn governor_denied() -> Worker {
    let limiter = Arc::new(RateLimiter::direct(quota(SLOW, 1)));
    assert!(limiter.check().is_ok());
    direct_worker(limiter)
}

fn direct_worker(limiter: Arc<GovernorDirect>) -> Worker {
    Box::new(move || {
        let mut allowed = 0;
        for _ in 0..CHUNK {
            allowed += u64::from(limiter.check().is_ok());
        }
        allowed
    })
}

/// governor, keys out of a stream.
pub fn governor_keyed(keys: u64, stream: &Arc<[Key]>, workers: usize) -> Vec<Worker> {
    let limiter = governor_with(quota(EMISSION, BURST));
    for number in 0..keys {
        assert!(limiter.check_key(&key(number)).is_ok());
    }
    let limiter = Arc::new(limiter);
    let worker = |index| -> Worker {
        let (limiter, mut cursor) = (limiter.clone(), Cursor::new(stream, index, workers));
        Box::new(move || {
            let mut allowed = 0;
            for key in cursor.chunk() {
                allowed += u64::from(limiter.check_key(key).is_ok());
            }
            allowed
        })
    };
    (0..workers).map(worker).collect()
}

/// governor whose `keys` keys have all been charged, and owe for months.
pub fn governor_filled<K>(keys: u64, name: impl Fn(Key) -> K) -> GovernorKeyed<K>
where
    K: std::hash::Hash + Eq + Clone,
{
    let limiter = governor_with(quota(SLOW, 1000));
    for number in 0..keys {
        assert!(limiter.check_key(&name(key(number))).is_ok());
    }
    limiter
}

fn governor_with<K: std::hash::Hash + Eq + Clone>(quota: Quota) -> GovernorKeyed<K> {
    RateLimiter::dashmap_with_hasher(quota, ahash::RandomState::new())
}

fn quota(emission: Duration, burst: u32) -> Quota {
    let burst = NonZeroU32::new(burst).expect("a burst of at least 1");
    Quota::with_period(emission).expect("a period above 0").allow_burst(burst)
}

/// throttlecrab behind the lock that sharing it takes, with its default store, at the size it will
/// have.
pub fn throttlecrab(keys: u64, stream: &Arc<[Key]>, workers: usize) -> Vec<Worker> {
    let store = PeriodicStore::with_capacity(keys as usize);
    let limiter = Arc::new(Mutex::new(throttlecrab::RateLimiter::new(store)));
    let check = |limiter: &Mutex<throttlecrab::RateLimiter<PeriodicStore>>, key: &Key| {
        let mut limiter = limiter.lock().expect("no worker panicked");
        let result = limiter.rate_limit(text(key), CRAB_BURST, 6, 60, 1, SystemTime::now());
        result.is_ok_and(|(allowed, _)| allowed)
    };
    for number in 0..keys {
        assert!(check(&limiter, &key(number)));
    }
    let worker = |index| -> Worker {
        let (limiter, mut cursor) = (limiter.clone(), Cursor::new(stream, index, workers));
        Box::new(move || {
            let mut allowed = 0;
            for key in cursor.chunk() {
                allowed += u64::from(check(&limiter, key));
            }
            allowed
        })
    };
    (0..workers).map(worker).collect()
}

/// limitador in memory: a context of two values, one of whose three limits applies.
pub fn limitador(tenants: Arc<[String]>) -> Worker {
    let limiter = limitador::RateLimiter::new(1_000_000);
    for metric in ["read_iops", "write_iops", "throughput"] {
        limiter.add_limit(limitador::limit::Limit::new(
            "default",
            u64::from(BURST),
            3600,
            vec![format!("metric == '{metric}'").try_into().expect("a sound condition")],
            vec!["tenant".try_into().expect("a sound variable")],
        ));
    }
    let namespace = "default".into();
    let mut at = 0;
    Box::new(move || {
        let start = at;
        at = (at + CHUNK) % tenants.len();
        let mut allowed = 0;
        for tenant in &tenants[start..start + CHUNK] {
            let mut values: HashMap<String, String> = HashMap::new();
            values.insert("metric".into(), "read_iops".into());
            values.insert("tenant".into(), tenant.clone());
            let context = Context::from(values);
            let result = limiter.check_rate_limited_and_update(&namespace, &context, 1);
            let result = result.expect("the conditions and the variable can be evaluated");
            assert_eq!(result.counters.len(), 1, "one of the limits applies");
            allowed += u64::from(!result.limited);
        }
        allowed
    })
}

/// governor multiplies this by the burst in 64 bits of nanoseconds, so it cannot be much longer.
const EMISSION: Duration = Duration::from_secs(10);
const BURST: u32 = 1_000_000_000;
const SLOW: Duration = Duration::from_secs(30 * 86_400);
/// throttlecrab does the same in 63 bits.
const CRAB_BURST: i64 = 100_000_000;
