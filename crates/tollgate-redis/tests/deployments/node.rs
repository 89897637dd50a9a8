//! A node in made-up time over stores on real servers: its limiter, its side of the stores, and
//! what carries commands there and answers back.
//!
//! Its days are those of 2100, so that no counter's time has come while a test runs.

use std::time::Duration;

use tollgate::tally::{Input, WallTime, WorkerOptions};
use tollgate::{
    Clock, ClockHand, Command, Decision, Descriptor, Entry, Limit, LimitSpec, Limiter, Options,
    Request, TallyNode, TallyOptions,
};
use tollgate_redis::Store;

use crate::server::Server;

pub(crate) struct Node {
    pub(crate) limiter: Limiter,
    pub(crate) tally: TallyNode,
    pub(crate) stores: Vec<Store>,
    /// Counts written and keys read by each command, in their order, and in which store.
    pub(crate) log: Vec<(&'static str, usize, usize)>,
    hand: ClockHand,
    /// Seconds since 1970 when its clock began.
    start: u64,
}

/// 1,000 of each tenant in 10 s.
pub(crate) const TALLY: LimitSpec<'static> = LimitSpec {
    name: "api",
    key: &["tenant"],
    rate: "1000/10s",
    guarantee: "tally",
    ..LimitSpec::DEFAULT
};

/// 2100-01-01, where a window of any length in these tests begins.
pub(crate) const START: u64 = 4_102_444_800;

impl Node {
    /// With one store, at the beginning of a window.
    pub(crate) fn new(server: &Server, specs: &[LimitSpec<'_>]) -> Self {
        Self::over(vec![server.store()], specs, WorkerOptions::default())
    }

    pub(crate) fn over(stores: Vec<Store>, specs: &[LimitSpec<'_>], worker: WorkerOptions) -> Self {
        let (clock, hand) = Clock::manual();
        let options = Options { clock, keys_max: 1_000, tally: true, ..Options::default() };
        let limiter = Limiter::new(limits(specs), options).expect("sound limits");
        let tally = TallyOptions { stores: stores.len(), worker, ..TallyOptions::default() };
        let tally = TallyNode::new(limiter.clone(), tally).expect("it has cells");
        Self { limiter, tally, stores, log: Vec::new(), hand, start: START }
    }

    /// Whose clock began so many seconds after 1970.
    pub(crate) fn from(self, start: u64) -> Self {
        Self { start, ..self }
    }

    /// Lets time pass, a tick at a time, and each time drains cells and does what is wanted.
    pub(crate) async fn pass(&mut self, millis: u64) {
        let mut left = millis;
        while left > 0 {
            let step = left.min(1_000);
            left -= step;
            self.hand.advance(Duration::from_millis(step));
            self.turn().await;
        }
    }

    /// Drains cells and does what is wanted now.
    pub(crate) async fn turn(&mut self) {
        let (now, wall) = (self.limiter.now(), self.wall());
        self.tally.drain(now, wall);
        self.tally.handle_timeout(now, wall);
        loop {
            let (store, answer) = match self.tally.poll() {
                Command::Write { store, command, additions } => {
                    self.log.push(("write", store, additions.len()));
                    let outcomes = self.stores[store].write(&additions).await;
                    (store, Input::Written { command, outcomes })
                }
                Command::Read { store, command, names } => {
                    self.log.push(("read", store, names.len()));
                    let counts = self.stores[store].read(&names).await;
                    (store, Input::Read { command, counts })
                }
                Command::Timeout(_) => return,
            };
            self.tally.handle(store, answer, now, wall);
        }
    }

    pub(crate) fn wall(&self) -> WallTime {
        WallTime::from_nanos(self.start * 1_000_000_000 + self.limiter.now().as_nanos())
    }

    /// How many of so many requests of a tenant pass.
    pub(crate) fn passed(&self, tenant: &str, count: u64) -> u64 {
        passed(&self.limiter, tenant, count)
    }

    /// What a tenant has left; nothing changes by it.
    pub(crate) fn remaining(&self, tenant: &str) -> u64 {
        let of = |request: &Request<'_>| self.limiter.peek(request).remaining();
        with_request(&[("tenant", tenant)], 1, of).expect("it is limited")
    }
}

/// What a tenant's counter is called in the window that begins so many seconds after 2100 did.
pub(crate) fn counter(tenant: &str, length: u64, begins: u64) -> String {
    let number = (START + begins) / length;
    format!("tollgate:default:api:{length}s:{{{tenant}}}:{number}")
}

pub(crate) fn limits(specs: &[LimitSpec<'_>]) -> Vec<Limit> {
    specs.iter().map(|spec| Limit::parse(spec).expect("a sound limit")).collect()
}

pub(crate) fn ask(limiter: &Limiter, tenant: &str, cost: u64) -> Decision {
    ask_of(limiter, &[("tenant", tenant)], cost)
}

pub(crate) fn ask_of(limiter: &Limiter, pairs: &[(&str, &str)], cost: u64) -> Decision {
    with_request(pairs, cost, |request| limiter.check(request))
}

pub(crate) fn passed(limiter: &Limiter, tenant: &str, count: u64) -> u64 {
    (0..count).filter(|_| ask(limiter, tenant, 1).is_allowed()).count() as u64
}

fn with_request<T>(pairs: &[(&str, &str)], cost: u64, ask: impl FnOnce(&Request<'_>) -> T) -> T {
    let entries: Vec<Entry<'_>> =
        pairs.iter().map(|(name, value)| Entry::new(name, *value)).collect();
    let descriptors = [Descriptor::new(&entries).expect("a sound descriptor").with_cost(cost)];
    ask(&Request::new(&descriptors))
}
