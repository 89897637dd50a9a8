//! Tollgate as a contender: each way to ask it, set up as its guide says, with every decision
//! counted.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate::{
    Charged, Clock, Credits, Descriptor, Entry, FleetLimitId, Given, Handle, Instant, KeyId, Keyed,
    Limit, LimitSpec, Limiter, Numbered, Options, Part, Permit, Request,
};
use xxhash_rust::xxh3::xxh3_128_with_secret;

use crate::keys::{CHUNK, Cursor, Key, key};
use crate::measure::Worker;

/// One key by handle; every worker has its own clone.
pub fn handle(workers: usize) -> Vec<Worker> {
    let handle = one_key("1/10s", BURST);
    (0..workers).map(|_| handle_worker(handle.clone())).collect()
}

/// One key by handle that has nothing left.
pub fn denied() -> Worker {
    let mut handle = one_key("1/365d", 1);
    assert!(handle.check(1).is_allowed());
    handle_worker(handle)
}

fn handle_worker(mut handle: Handle) -> Worker {
    Box::new(move || {
        let mut allowed = 0;
        for _ in 0..CHUNK {
            allowed += u64::from(handle.check(1).is_allowed());
        }
        allowed
    })
}

fn one_key(rate: &str, burst: u64) -> Handle {
    let limiter = limiter(&[api(rate, burst)], 1_000_000);
    let entries = [Entry::new("user", "user:00000000000")];
    limiter.handle("default", &Descriptor::new(&entries).expect("one entry"))
}

/// Keys out of a stream; all of them are in the table before it is returned.
pub fn keyed(keys: u64, stream: &Arc<[Key]>, workers: usize) -> Vec<Worker> {
    let limiter = limiter(&[api("1/10s", BURST)], keys + SPARE);
    let api = fill(&limiter, keys);
    let worker = |index| -> Worker {
        let (mut api, mut cursor) = (api.clone(), Cursor::new(stream, index, workers));
        Box::new(move || {
            let mut allowed = 0;
            for key in cursor.chunk() {
                let decision = api.check(&[Part::Text(key)], 1);
                allowed += u64::from(decision.is_ok_and(|decision| decision.is_allowed()));
            }
            allowed
        })
    };
    (0..workers).map(worker).collect()
}

/// Credit cells for keys out of a stream, hashed as the limiter hashes them, with all that is asked
/// for permitted. The cells are drained once in 65,536 charges: every few milliseconds.
pub fn credit(keys: u64, stream: &Arc<[Key]>) -> Worker {
    let (clock, credits) = (Clock::system(), Credits::new(keys));
    let secret: [u8; 192] = std::array::from_fn(|at| at as u8 ^ 0x5A);
    let id = move |key: &Key| {
        let digest = xxh3_128_with_secret(key, &secret);
        KeyId::from_bits((digest >> 64) as u64, (digest >> 32) as u32)
    };
    let permit = all_for_ever(0);
    for number in 0..keys {
        let charged = credits.charge(id(&key(number)), FleetLimitId(1), 1, clock.now());
        assert_eq!(charged, Charged::Stale { is_new: true });
    }
    credits.drain(clock.now(), |_| {});
    for number in 0..keys {
        assert_eq!(credits.permit(id(&key(number)), &permit), Some(0));
    }
    let (mut cursor, mut chunks) = (Cursor::new(stream, 0, 1), 0);
    Box::new(move || {
        let mut allowed = 0;
        for key in cursor.chunk() {
            let charged = credits.charge(id(key), FleetLimitId(1), 1, clock.now());
            allowed += u64::from(matches!(charged, Charged::Allowed { .. }));
        }
        chunks += 1;
        if chunks % 64 == 0 {
            credits.drain(clock.now(), |drained| {
                black_box(drained);
            });
        }
        allowed
    })
}

/// A limit of a fleet, whose keys are all permitted what they ask for, by its limiter.
pub fn fleet_keyed(keys: u64, stream: &Arc<[Key]>) -> Worker {
    let limiter = fleet(keys);
    let mut api = limiter.keyed("default", "api").expect("the limit is in force");
    for number in 0..keys {
        let decision = api.check(&[Part::Text(&key(number))], 1);
        assert!(decision.is_ok_and(|decision| !decision.is_allowed()), "nothing is permitted yet");
    }
    permit_all(&limiter);
    let credits = limiter.credits().expect("a member of a fleet").clone();
    drained_worker(api, stream, move || drain_credits(&credits))
}

/// Keys out of a stream by name, whose cells are drained now and then.
fn drained_worker(
    mut api: Keyed,
    stream: &Arc<[Key]>,
    drain: impl Fn() + Send + 'static,
) -> Worker {
    let (mut cursor, mut chunks) = (Cursor::new(stream, 0, 1), 0);
    Box::new(move || {
        let mut allowed = 0;
        for key in cursor.chunk() {
            let decision = api.check(&[Part::Text(key)], 1);
            allowed += u64::from(decision.is_ok_and(|decision| decision.is_allowed()));
        }
        chunks += 1;
        if chunks % 64 == 0 {
            drain();
        }
        allowed
    })
}

fn drain_credits(credits: &Credits) {
    credits.drain(Clock::system().now(), |drained| {
        black_box(drained);
    });
}

/// One key of such a limit by handle.
pub fn fleet_handle() -> Worker {
    let limiter = fleet(1);
    let entries = [Entry::new("user", "user:00000000000")];
    let mut handle = limiter.handle("default", &Descriptor::new(&entries).expect("one entry"));
    assert!(!handle.check(1).is_allowed());
    permit_all(&limiter);
    handle_worker(handle)
}

fn fleet(keys_max: u64) -> Limiter {
    let options = Options { keys_max, fleet: true, ..Options::default() };
    let limiter = Limiter::new(vec![], options).expect("sound options");
    let spec = LimitSpec { guarantee: "eventual", ..api("1/10s", BURST) };
    let limit = Limit::parse(&spec).expect("a sound limit");
    let limits = vec![Numbered { limit, number: FleetLimitId(1), generation: 1 }];
    limiter.replace_numbered(limits, 1).expect("one limit");
    limiter
}

/// Keys out of a stream, of a limit that is counted in a store, by name. The cells are drained as
/// those of credit are. Of each key something was read that `leaks` for months, or has leaked.
pub fn tally_keyed(keys: u64, stream: &Arc<[Key]>, leaks: bool) -> Worker {
    let limiter = tally(keys);
    let mut api = limiter.keyed("default", "api").expect("the limit is in force");
    for number in 0..keys {
        let decision = api.check(&[Part::Text(&key(number))], 1);
        assert!(decision.is_ok_and(|decision| decision.is_allowed()));
    }
    let credits = limiter.tally().expect("it counts for a store").clone();
    estimate_all(&limiter, &credits, leaks);
    drained_worker(api, stream, move || drain_credits(&credits))
}

/// One key of such a limit by handle, of which something was read that leaks.
pub fn tally_handle() -> Worker {
    let limiter = tally(1);
    let entries = [Entry::new("user", "user:00000000000")];
    let mut handle = limiter.handle("default", &Descriptor::new(&entries).expect("one entry"));
    assert!(handle.check(1).is_allowed());
    estimate_all(&limiter, limiter.tally().expect("it counts for a store"), true);
    handle_worker(handle)
}

fn tally(keys_max: u64) -> Limiter {
    let options = Options { keys_max, tally: true, ..Options::default() };
    let spec = LimitSpec { guarantee: "tally", burst: None, ..api("1000000000000/365d", 1) };
    Limiter::new(vec![Limit::parse(&spec).expect("a sound limit")], options).expect("one limit")
}

fn estimate_all(limiter: &Limiter, credits: &Credits, leaks: bool) {
    let until = if leaks {
        limiter.now().saturating_add(Duration::from_secs(10_000_000))
    } else {
        Instant::ZERO
    };
    let mut keys = Vec::new();
    credits.drain(limiter.now(), |drained| keys.push((drained.key, drained.taken)));
    keys.iter().for_each(|(key, taken)| credits.estimate(*key, until.as_nanos(), u64::MAX, *taken));
}

/// Keys out of a stream, of a limit that nodes divide, by name: each was given a part, and both of
/// its buckets are spent from. The cells are drained now and then.
pub fn share_keyed(keys: u64, stream: &Arc<[Key]>) -> Worker {
    let options = Options { keys_max: keys, share: true, ..Options::default() };
    let spec = LimitSpec { guarantee: "share", ..api("1000000000000/s", 1 << 40) };
    let limits = vec![Limit::parse(&spec).expect("a sound limit")];
    let limiter = Limiter::new(limits, options).expect("one limit");
    let shares = limiter.shares().expect("it divides").clone();
    let mut api = limiter.keyed("default", "api").expect("the limit is in force");
    for number in 0..keys {
        let decision = api.check(&[Part::Text(&key(number))], 1);
        assert!(decision.is_ok_and(|decision| decision.is_allowed()));
    }
    let mut drained = Vec::new();
    shares.drain(|one| drained.push(one.key));
    let given = Given {
        local: 1e12,
        local_burst: 1 << 40,
        global: Some((5e11, 1 << 39)),
        is_global_sound: true,
    };
    drained.iter().for_each(|key| shares.give(*key, &given, limiter.now()));
    drained_worker(api, stream, move || {
        shares.drain(|drained| {
            black_box(drained);
        })
    })
}

/// All positions, of which the fleet says that so many remain.
fn all_for_ever(remaining: u64) -> Permit {
    let deadline = Instant::MAX;
    Permit { floor: 0, ceiling: u64::MAX, deadline, remaining, free: 0, word_until: deadline }
}

fn permit_all(limiter: &Limiter) {
    let credits = limiter.credits().expect("a member of a fleet");
    let permit = all_for_ever(BURST);
    let mut keys = Vec::new();
    credits.drain(limiter.now(), |drained| keys.push(drained.key));
    keys.iter().for_each(|key| assert_eq!(credits.permit(*key, &permit), Some(0)));
}

/// A limiter whose `keys` keys have all been charged, and owe for months.
pub fn filled(keys: u64) -> Limiter {
    let limiter = limiter(&[api("1/30d", 1000)], keys + SPARE);
    fill(&limiter, keys);
    limiter
}

fn fill(limiter: &Limiter, keys: u64) -> Keyed {
    let mut api = limiter.keyed("default", "api").expect("the limit is in force");
    for number in 0..keys {
        let decision = api.check(&[Part::Text(&key(number))], 1);
        assert!(decision.is_ok_and(|decision| decision.is_allowed()));
    }
    assert_eq!(limiter.keys_used(), keys + 1, "every key has a cell, and the limit its own");
    api
}

/// A request of two entries given as text, one of whose three limits applies.
pub fn request(tenants: Arc<[String]>) -> Worker {
    let metrics = ["read_iops", "write_iops", "throughput"];
    let matches = metrics.map(|metric| [("metric", metric)]);
    let limits: Vec<LimitSpec<'_>> = metrics
        .iter()
        .zip(&matches)
        .map(|(name, matches)| LimitSpec { name, matches, key: &["tenant"], ..api("1/10s", BURST) })
        .collect();
    let limiter = limiter(&limits, 1_000_000);
    let mut at = 0;
    Box::new(move || {
        let start = at;
        at = (at + CHUNK) % tenants.len();
        let mut allowed = 0;
        for tenant in &tenants[start..start + CHUNK] {
            let entries = [
                Entry::new(black_box("metric"), black_box("read_iops")),
                Entry::new(black_box("tenant"), tenant.as_str()),
            ];
            let descriptors = [Descriptor::new(&entries).expect("two entries")];
            allowed += u64::from(limiter.check(&Request::new(&descriptors)).is_allowed());
        }
        allowed
    })
}

/// A limiter without limits.
pub fn disabled() -> Worker {
    let limiter = limiter(&[], 1_000_000);
    Box::new(move || {
        let entries = [Entry::new("metric", "read_iops"), Entry::new("tenant", "acme")];
        let descriptors = [Descriptor::new(&entries).expect("two entries")];
        let request = Request::new(&descriptors);
        let mut allowed = 0;
        for _ in 0..CHUNK {
            allowed += u64::from(limiter.check(black_box(&request)).is_allowed());
        }
        allowed
    })
}

/// The time, and nothing else.
pub fn clock() -> Worker {
    let clock = Clock::system();
    Box::new(move || {
        for _ in 0..CHUNK {
            black_box(clock.now());
        }
        CHUNK as u64
    })
}

/// The time and one exchange of a word that all workers share: about what any exact limiter takes.
pub fn floor(workers: usize) -> Vec<Worker> {
    let word = Arc::new(Aligned(AtomicU64::new(0)));
    let worker = |_| -> Worker {
        let (clock, word) = (Clock::system(), word.clone());
        Box::new(move || {
            for _ in 0..CHUNK {
                let now = clock.now().as_nanos();
                let later = |seen: u64| Some(seen.max(now) + 1);
                let _ = word.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
            }
            CHUNK as u64
        })
    };
    (0..workers).map(worker).collect()
}

/// Two cache lines, since they are fetched in pairs.
#[repr(align(128))]
struct Aligned(AtomicU64);

fn limiter(limits: &[LimitSpec<'_>], keys_max: u64) -> Limiter {
    let parse = |spec| Limit::parse(spec).expect("a sound limit");
    let options = Options { keys_max, ..Options::default() };
    Limiter::new(limits.iter().map(parse).collect(), options).expect("limits that agree")
}

fn api(rate: &str, burst: u64) -> LimitSpec<'_> {
    LimitSpec { name: "api", key: &["user"], rate, burst: Some(burst), ..LimitSpec::DEFAULT }
}

/// More than any run checks one key, so that every check is allowed and no key ever rests.
const BURST: u64 = 1_000_000_000;
/// Room for the limit's own cell.
const SPARE: u64 = 64;
