//! A process of a fleet in real time: a limiter, the task that has it counted, and a thread that
//! asks it without end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tollgate::tally::WorkerOptions;
use tollgate::{LimitSpec, Limiter, Options, Outcome, Reason, TallyOptions};
use tollgate_redis::{StoreOptions, StoreStatus, Tally};

use crate::node::{ask, ask_of, limits};
use crate::server::{Server, until};

pub(crate) struct Process {
    pub(crate) limiter: Limiter,
    pub(crate) tally: Tally,
}

/// A thread that asks for keys of the limits [`MODES`]: some at half of their limits at most, and
/// many others.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

/// What a load has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) asked: u64,
    /// How long the longest request took.
    pub(crate) longest: Duration,
    /// Requests that were denied of the key at half of its limit, where an outage denies nobody.
    pub(crate) innocents_denied: u64,
    /// Requests that were denied since the store was silent.
    pub(crate) stale: u64,
}

/// 100 a second of each key, in windows of two seconds, for what each says of outages.
pub(crate) const MODES: [LimitSpec<'static>; 3] =
    [mode("allow", &[("kind", "allow")]), mode("share", &SHARE), mode("deny", &[("kind", "deny")])];
const SHARE: [(&str, &str); 1] = [("kind", "share")];

const fn mode(
    name: &'static str,
    matches: &'static [(&'static str, &'static str)],
) -> LimitSpec<'static> {
    LimitSpec {
        name,
        matches,
        key: &["tenant"],
        rate: "200/2s",
        guarantee: "tally",
        on_stale: Some(name),
        ..LimitSpec::DEFAULT
    }
}

/// Short ticks, and an outage that is soon one.
pub(crate) fn worker() -> WorkerOptions {
    WorkerOptions {
        tick: TICK,
        sync: Duration::from_millis(250),
        floor: 1,
        read_outage_max: Some(Duration::from_millis(300)),
        ..WorkerOptions::default()
    }
}

/// Timeouts as in earnest.
pub(crate) fn impatient(options: StoreOptions) -> StoreOptions {
    let short = Duration::from_millis(250);
    StoreOptions { connect_timeout: short, read_timeout: short, write_timeout: short, ..options }
}

impl Process {
    pub(crate) fn start(
        stores: Vec<StoreOptions>,
        specs: &[LimitSpec<'_>],
        worker: WorkerOptions,
    ) -> Self {
        let options = Options { keys_max: 1_000, tally: true, ..Options::default() };
        let limiter = Limiter::new(limits(specs), options).expect("sound limits");
        let options = TallyOptions { worker, ..TallyOptions::default() };
        let tally = Tally::start(&limiter, stores, options).expect("stores");
        Self { limiter, tally }
    }

    pub(crate) fn passed(&self, tenant: &str, count: u64) -> u64 {
        (0..count).filter(|_| ask(&self.limiter, tenant, 1).is_allowed()).count() as u64
    }

    /// What becomes of a request of a tenant, by what its limit says of outages.
    pub(crate) fn outcome(&self, kind: &str, tenant: &str) -> Outcome {
        ask_of(&self.limiter, &[("kind", kind), ("tenant", tenant)], 1).outcome()
    }

    /// How a store fared at its last tick, once there was one.
    pub(crate) async fn status(&self, store: usize) -> StoreStatus {
        until("a tick", || async { self.tally.status().stores.get(store).cloned() }).await
    }

    /// Waits until the store's silence is an outage; those whose limit says so are denied then.
    pub(crate) async fn is_cut_off(&self) {
        until("the outage is noticed", || async {
            let outcome = self.outcome("deny", "innocent");
            (outcome == Outcome::Denied(Reason::Stale)).then_some(())
        })
        .await;
    }

    /// Waits until a key that is new is counted in a server and nobody is denied for an outage.
    pub(crate) async fn is_normal(&self, server: &Server, key: &str) -> Duration {
        let began = Instant::now();
        assert_eq!(self.outcome("allow", key), Outcome::Allowed);
        until("the store counts", || async { (sum(server, key) > 0).then_some(()) }).await;
        until("nobody is denied for it", || async {
            (self.outcome("deny", "innocent") == Outcome::Allowed).then_some(())
        })
        .await;
        began.elapsed()
    }

    pub(crate) fn load(&self) -> Load {
        let (is_over, limiter) = (Arc::new(AtomicBool::new(false)), self.limiter.clone());
        let ends = Arc::clone(&is_over);
        Load { is_over, thread: std::thread::spawn(move || load(&limiter, &ends)) }
    }
}

impl Load {
    pub(crate) fn end(self) -> Seen {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic")
    }
}

fn load(limiter: &Limiter, is_over: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let mut timed = |kind: &str, tenant: &str| {
        let began = Instant::now();
        let outcome = ask_of(limiter, &[("kind", kind), ("tenant", tenant)], 1).outcome();
        seen.asked += 1;
        seen.longest = seen.longest.max(began.elapsed());
        let is_innocent = (kind, tenant) == ("allow", "innocent");
        seen.innocents_denied += u64::from(is_innocent && outcome != Outcome::Allowed);
        seen.stale += u64::from(outcome == Outcome::Denied(Reason::Stale));
    };
    for step in 0_u64.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        // 50 a second at most.
        if step.is_multiple_of(4) {
            MODES.iter().for_each(|mode| timed(mode.name, "innocent"));
        }
        (0..40).for_each(|key| timed("allow", &(step % 5 * 40 + key).to_string()));
        std::thread::sleep(Duration::from_millis(5));
    }
    seen
}

/// What a server has of a tenant, in all windows.
pub(crate) fn sum(server: &Server, tenant: &str) -> u64 {
    let all = server.cli(&["KEYS", &format!("*:{{{tenant}}}:*")]);
    let count = |name: &str| server.cli(&["GET", name]).parse::<u64>().unwrap_or(0);
    all.lines().filter(|name| !name.is_empty()).map(count).sum()
}

pub(crate) const TICK: Duration = Duration::from_millis(50);
