//! Limits that are counted in a store: nodes with limiters of their own, and a store that is a map,
//! in made-up time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tollgate::tally::{Input, Outcome as Became, WallTime, WorkerOptions};
use tollgate::{
    Addition, Clock, ClockHand, Command, Instant, LimitSpec, Limiter, Options, Outcome,
    OverrideSpec, Reason, Retry, TableFull, TallyNode, TallyOptions,
};

use crate::support::{ask, limits, passed, peek, refund, with_request};

/// A counter: how much, and until when it is kept.
pub(crate) type Store = BTreeMap<String, (i64, u64)>;

/// A process: its limiter, and its side of the stores.
pub(crate) struct Node {
    pub(crate) limiter: Limiter,
    pub(crate) tally: TallyNode,
    hand: ClockHand,
    /// Nanoseconds since 1970 at the start of the process.
    start: u64,
}

/// Nodes that share stores.
pub(crate) struct Fleet {
    pub(crate) nodes: Vec<Node>,
    pub(crate) stores: Vec<Store>,
    /// What becomes of what is written, and whether reads are answered.
    pub(crate) became: Became,
    pub(crate) reads: bool,
    /// How many commands of each kind there were, and of how much.
    pub(crate) writes: Vec<usize>,
    pub(crate) read: Vec<usize>,
}

pub(crate) const TALLY: LimitSpec<'static> = LimitSpec {
    name: "api",
    key: &["tenant"],
    rate: "1000/10s",
    guarantee: "tally",
    ..LimitSpec::DEFAULT
};

impl Fleet {
    /// So many nodes with one store, 1,000 s after 1970 and 0.1 s after their start.
    pub(crate) fn new(nodes: usize, specs: &[LimitSpec<'_>]) -> Self {
        Self::with(nodes, specs, TallyOptions::default(), |options| options)
    }

    pub(crate) fn with(
        nodes: usize,
        specs: &[LimitSpec<'_>],
        tally: TallyOptions,
        change: impl Fn(Options) -> Options,
    ) -> Self {
        let stores = tally.stores;
        let node = |_| {
            let (clock, hand) = Clock::manual();
            let options = Options { clock, keys_max: 1_000, tally: true, ..Options::default() };
            let limiter = Limiter::new(limits(specs), change(options)).expect("sound limits");
            let tally = TallyNode::new(limiter.clone(), tally.clone()).expect("it has cells");
            Node { limiter, tally, hand, start: 1_000_000_000_000 }
        };
        let mut fleet = Self {
            nodes: (0..nodes).map(node).collect(),
            stores: vec![Store::new(); stores],
            became: Became::Done,
            reads: true,
            writes: Vec::new(),
            read: Vec::new(),
        };
        // The next tick comes a second after this one.
        fleet.pass(100);
        fleet
    }

    /// Lets time pass on all nodes, a tenth of a second at a time, draining and ticking.
    pub(crate) fn pass(&mut self, millis: u64) {
        let mut left = millis;
        while left > 0 {
            let step = left.min(100);
            left -= step;
            self.nodes.iter().for_each(|node| node.hand.advance(Duration::from_millis(step)));
            (0..self.nodes.len()).for_each(|node| self.tick(node));
        }
    }

    /// Until so many milliseconds after the start.
    pub(crate) fn until(&mut self, millis: u64) {
        let now = self.nodes[0].limiter.now().as_nanos() / 1_000_000;
        self.pass(millis.saturating_sub(now));
    }

    pub(crate) fn tick(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        let (now, wall) = (node.limiter.now(), node.wall());
        node.tally.drain(now, wall);
        node.tally.handle_timeout(now, wall);
        let mut answers: VecDeque<(usize, Input)> = VecDeque::new();
        loop {
            match self.nodes[number].tally.poll() {
                Command::Write { store, command, additions } => {
                    self.writes.push(additions.len());
                    let outcomes = vec![self.became; additions.len()];
                    if self.became == Became::Done {
                        additions.into_iter().for_each(|one| add(&mut self.stores[store], one));
                    }
                    answers.push_back((store, Input::Written { command, outcomes }));
                }
                Command::Read { store, command, names } => {
                    self.read.push(names.len());
                    let seconds = wall.as_secs();
                    let of = |name: &String| match self.stores[store].get(name) {
                        Some((units, until)) if *until > seconds => {
                            u64::try_from(*units).unwrap_or(0)
                        }
                        _ => 0,
                    };
                    let both = |[before, now]: &[String; 2]| (of(before), of(now));
                    let counts =
                        names.iter().map(|names| self.reads.then(|| both(names))).collect();
                    answers.push_back((store, Input::Read { command, counts }));
                }
                Command::Timeout(_) => match answers.pop_front() {
                    Some((store, answer)) => {
                        self.nodes[number].tally.handle(store, answer, now, wall);
                    }
                    None => break,
                },
            }
        }
    }

    /// What all counters of a tenant have.
    pub(crate) fn stored(&self, tenant: &str) -> i64 {
        let tag = format!("{{{tenant}}}");
        let all = self.stores.iter().flatten();
        all.filter(|(name, _)| name.contains(&tag)).map(|(_, (units, _))| units).sum()
    }
}

impl Node {
    pub(crate) fn wall(&self) -> WallTime {
        WallTime::from_nanos(self.start + self.limiter.now().as_nanos())
    }
}

fn add(store: &mut Store, addition: Addition) {
    let Addition { name, units, expires_at } = addition;
    let counter = store.entry(name).or_insert((0, 0));
    *counter = (counter.0 + units, expires_at);
}

fn worker(change: impl FnOnce(WorkerOptions) -> WorkerOptions) -> TallyOptions {
    TallyOptions { worker: change(WorkerOptions::default()), ..TallyOptions::default() }
}

#[test]
fn one_node_admits_the_threshold_at_once_and_then_what_leaks() {
    let mut fleet = Fleet::new(1, &[TALLY]);
    let limiter = fleet.nodes[0].limiter.clone();
    assert_eq!(passed(&limiter, "acme", 1_500), 1_000);
    fleet.pass(1_000);
    assert_eq!(fleet.stored("acme"), 1_000);
    assert_eq!(
        fleet.stores[0].keys().next().map(|name| &**name),
        Some("tollgate:default:api:10s:{acme}:100")
    );
    assert_eq!(passed(&limiter, "other", 1_500), 1_000);
    // What was read leaks at 100 a second until it is read again: it is all of this window.
    let until = |fleet: &mut Fleet, millis| {
        let mut sum = 0;
        while limiter.now().as_nanos() / 1_000_000 < millis {
            sum += passed(&limiter, "acme", 1_500);
            fleet.pass(100);
        }
        sum
    };
    assert!(until(&mut fleet, 10_000) <= 220);
    // In each of the next ones about as much as the threshold.
    for window in 2..6 {
        let sum = until(&mut fleet, window * 10_000);
        assert!((850..=1_050).contains(&sum), "{sum} in window {window}");
    }
}

#[test]
fn a_decision_says_what_is_left_and_when_to_come_again() {
    let mut fleet = Fleet::new(1, &[TALLY]);
    let limiter = fleet.nodes[0].limiter.clone();
    let first = ask(&limiter, "acme", 400);
    assert!(first.is_allowed() && first.is_estimated());
    assert_eq!((first.remaining(), first.burst()), (Some(600), Some(1_000)));
    fleet.pass(1_000);
    assert_eq!(peek(&limiter, "acme", 1).remaining(), Some(600));
    let over = ask(&limiter, "acme", 700);
    assert_eq!((over.outcome(), over.remaining()), (Outcome::Denied(Reason::OverLimit), Some(600)));
    // 100 more leak in a second.
    assert_eq!(over.retry_at(), Some(Retry::At(Instant::from_nanos(2_100_000_000))));
    assert_eq!(over.reset_at(), Some(Retry::At(Instant::from_nanos(5_100_000_000))));
    let never = ask(&limiter, "acme", 1_001);
    assert_eq!(never.outcome(), Outcome::Denied(Reason::CostExceedsBurst));
    assert_eq!(never.retry_at(), Some(Retry::Never));
    // Far above the limit over the fleet: the wait is as long as all of that leaks.
    let name = fleet.stores[0].keys().next().cloned().expect("a counter");
    fleet.stores[0].insert(name, (3_000, u64::MAX));
    fleet.pass(9_000);
    ask(&limiter, "acme", 1);
    fleet.pass(1_000);
    let over = ask(&limiter, "acme", 1);
    assert_eq!(over.remaining(), Some(0));
    let Some(Retry::At(at)) = over.retry_at() else { panic!("{over:?}") };
    assert!(at.saturating_since(over.now()) > Duration::from_secs(15), "{over:?}");
}

/// The rule that this guarantee comes from: a key's first request passes whatever it costs, who
/// meets the threshold is limited, and what is refused counts.
#[test]
fn what_is_offered_counts_if_a_limit_says_so() {
    let offered = LimitSpec { count: Some("offered"), rate: "100/10s", ..TALLY };
    let mut fleet = Fleet::new(1, &[offered]);
    let limiter = fleet.nodes[0].limiter.clone();
    assert_eq!(passed(&limiter, "acme", 300), 99);
    assert!(ask(&limiter, "first", 5_000).is_allowed());
    assert!(!ask(&limiter, "first", 1).is_allowed());
    fleet.pass(1_000);
    assert_eq!((fleet.stored("acme"), fleet.stored("first")), (300, 5_001));
    // Limited for as long as it goes on.
    for _ in 0..50 {
        assert_eq!(passed(&limiter, "acme", 15), 0);
        fleet.pass(1_000);
    }
    // And again once it does not.
    fleet.pass(30_000);
    assert!(ask(&limiter, "acme", 1).is_allowed());
}

#[test]
fn a_node_learns_what_others_have_used_with_the_first_read() {
    let mut fleet = Fleet::new(3, &[TALLY]);
    let limiters: Vec<Limiter> = fleet.nodes.iter().map(|node| node.limiter.clone()).collect();
    assert_eq!(passed(&limiters[0], "acme", 800), 800);
    fleet.pass(1_000);
    // The second node has not heard of the key.
    assert_eq!(passed(&limiters[1], "acme", 300), 300);
    fleet.pass(1_000);
    assert_eq!(passed(&limiters[1], "acme", 300), 0);
    assert!(passed(&limiters[2], "acme", 100) == 100);
    fleet.pass(1_000);
    assert_eq!(passed(&limiters[2], "acme", 300), 0);
}

/// 90 at 10 s of windows of 180 s, and 100 more in the next window, at 190 s: what was counted
/// before is still in the store, and 85 of the 90 count.
#[test]
fn c10_the_previous_window_outlives_two() {
    let limit = LimitSpec { rate: "100/180s", ..TALLY };
    let mut fleet = Fleet::new(1, &[limit]);
    fleet.nodes[0].start = 1_800_000_000_000;
    let limiter = fleet.nodes[0].limiter.clone();
    fleet.until(10_000);
    assert_eq!(passed(&limiter, "acme", 90), 90);
    fleet.until(189_100);
    // The first one has the key read again.
    assert_eq!(passed(&limiter, "acme", 1), 1);
    fleet.until(190_100);
    assert_eq!(passed(&limiter, "acme", 99), 14);
    for (until, window) in fleet.stores[0].values().map(|(_, until)| until).zip([10_u64, 11]) {
        let (begins, length) = (window * 180, 180);
        assert!((begins + 2 * length..=begins + 3 * length).contains(until), "{until}");
    }
}

#[test]
fn c17_what_a_store_forgets_this_node_does_not() {
    let limit = LimitSpec { rate: "10/60s", ..TALLY };
    let mut fleet = Fleet::new(1, &[limit]);
    let limiter = fleet.nodes[0].limiter.clone();
    assert_eq!(passed(&limiter, "acme", 20), 10);
    fleet.pass(1_000);
    fleet.stores[0].clear();
    for _ in 0..4 {
        fleet.pass(1_000);
        assert_eq!(passed(&limiter, "acme", 20), 0);
    }
}

#[test]
fn a_key_with_an_allowance_of_its_own_has_windows_of_its_own() {
    let own = |tenant: &'static [(&str, &str)], rate| OverrideSpec {
        key: tenant,
        rate,
        ..OverrideSpec::DEFAULT
    };
    let overrides = [
        own(&[("tenant", "big")], "5000/10s"),
        own(&[("tenant", "free")], "unlimited"),
        own(&[("tenant", "closed")], "zero"),
    ];
    let mut fleet = Fleet::new(1, &[LimitSpec { overrides: &overrides, ..TALLY }]);
    let limiter = fleet.nodes[0].limiter.clone();
    let all = ["big", "free", "closed", "other"];
    assert_eq!(all.map(|tenant| passed(&limiter, tenant, 6_000)), [5_000, 6_000, 0, 1_000]);
    fleet.pass(1_000);
    assert_eq!(all.map(|tenant| fleet.stored(tenant)), [5_000, 0, 0, 1_000]);
    assert_eq!(ask(&limiter, "closed", 1).outcome(), Outcome::Denied(Reason::OverLimit));
    // Another threshold is in force at once, and what was used stays used.
    let overrides = [own(&[("tenant", "big")], "5500/10s")];
    limiter.replace(limits(&[LimitSpec { overrides: &overrides, ..TALLY }])).expect("limits");
    assert_eq!(passed(&limiter, "big", 6_000), 500);
    assert_eq!(passed(&limiter, "closed", 6_000), 1_000);
}

#[test]
fn what_is_given_back_is_taken_off_where_it_was_counted() {
    let mut fleet = Fleet::new(2, &[TALLY]);
    let limiter = fleet.nodes[0].limiter.clone();
    assert_eq!(passed(&limiter, "acme", 900), 900);
    refund(&limiter, "acme", 100);
    fleet.pass(1_000);
    assert_eq!((fleet.stored("acme"), peek(&limiter, "acme", 1).remaining()), (800, Some(200)));
    refund(&limiter, "acme", 300);
    fleet.pass(1_000);
    assert_eq!(fleet.stored("acme"), 500);
    assert!(peek(&limiter, "acme", 1).remaining() >= Some(500));
    // Never more than was counted.
    refund(&limiter, "acme", 5_000);
    fleet.pass(1_000);
    assert_eq!((fleet.stored("acme"), passed(&limiter, "acme", 5_000)), (0, 1_000));
}

#[test]
fn an_estimate_is_corrected_by_what_was_used() {
    let mut fleet = Fleet::new(1, &[TALLY]);
    let limiter = fleet.nodes[0].limiter.clone();
    let reserve = |cost| with_request(&[("tenant", "acme")], cost, |asked| limiter.reserve(asked));
    let (_, less) = reserve(500);
    let (_, more) = reserve(100);
    fleet.pass(1_000);
    limiter.settle(less.expect("it passed"), &[200]).expect("one cost");
    assert_eq!(limiter.settle(more.expect("it passed"), &[900]).expect("one cost"), vec![]);
    fleet.pass(1_000);
    assert_eq!((fleet.stored("acme"), passed(&limiter, "acme", 100)), (1_100, 0));
}

#[test]
fn of_several_limits_all_or_none_is_counted() {
    let local = LimitSpec { name: "local", key: &["tenant"], rate: "15/s", ..LimitSpec::DEFAULT };
    let mut fleet = Fleet::new(1, &[TALLY, local]);
    let limiter = fleet.nodes[0].limiter.clone();
    assert_eq!(passed(&limiter, "acme", 100), 15);
    fleet.pass(1_000);
    assert_eq!(fleet.stored("acme"), 15);
    // And what the store counts denies what this node would let pass.
    let name = fleet.stores[0].keys().next().cloned().expect("a counter");
    fleet.stores[0].insert(name, (2_000, u64::MAX));
    assert!(ask(&limiter, "acme", 1).is_allowed());
    fleet.pass(2_000);
    assert_eq!(passed(&limiter, "acme", 100), 0);
    assert_eq!(limiter.limits()[1].counts.allowed, 16);
}

#[test]
fn a_shadow_counts_and_denies_nothing() {
    let mut fleet = Fleet::new(1, &[LimitSpec { shadow: true, ..TALLY }]);
    let limiter = fleet.nodes[0].limiter.clone();
    assert_eq!(passed(&limiter, "acme", 1_500), 1_500);
    let over = ask(&limiter, "acme", 1);
    assert!(over.is_allowed() && over.shadow_denied_by().is_some());
    fleet.pass(1_000);
    assert_eq!(fleet.stored("acme"), 1_000);
}

#[test]
fn handles_decide_the_same() {
    let fleet = Fleet::new(1, &[TALLY]);
    let limiter = &fleet.nodes[0].limiter;
    let mut keyed = limiter.keyed("default", "api").expect("the limit");
    let checks = |keyed: &mut tollgate::Keyed, cost| keyed.check(&["acme".into()], cost);
    assert!(checks(&mut keyed, 400).expect("one part").is_allowed());
    let again = checks(&mut keyed, 400).expect("one part");
    assert_eq!((again.is_allowed(), again.remaining()), (true, Some(200)));
    assert!(!checks(&mut keyed, 400).expect("one part").is_allowed());
    assert_eq!(passed(limiter, "acme", 500), 200);
    let counts = limiter.limits()[0].counts;
    assert_eq!((counts.allowed, counts.over_limit), (202, 301));
}

#[test]
fn a_limiter_without_a_store_is_all_of_its_fleet() {
    let (limiter, hand) = crate::support::limiter(&[TALLY]);
    assert_eq!(passed(&limiter, "acme", 1_500), 1_000);
    hand.advance(Duration::from_secs(1));
    assert_eq!(passed(&limiter, "acme", 1_500), 100);
    assert!(limiter.tally().is_none() && limiter.tally_rules().limits.is_empty());
}

#[test]
fn what_is_done_in_an_outage_is_what_the_limit_says() {
    let limit = |name, on_stale| LimitSpec {
        name,
        matches: match name {
            "open" => &[("kind", "open")],
            "parts" => &[("kind", "parts")],
            _ => &[("kind", "closed")],
        },
        on_stale: Some(on_stale),
        ..TALLY
    };
    let specs = [limit("open", "allow"), limit("parts", "share"), limit("closed", "deny")];
    let options = worker(|worker| WorkerOptions { nodes: 4, ..worker });
    let mut fleet = Fleet::with(1, &specs, options, |options| options);
    let limiter = fleet.nodes[0].limiter.clone();
    let count = |kind, times| -> usize {
        let ask = || crate::support::ask_of(&limiter, &[("tenant", "acme"), ("kind", kind)], 1);
        (0..times).filter(|_| ask().is_allowed()).count()
    };
    let all = |times| ["open", "parts", "closed"].map(|kind| count(kind, times));
    assert_eq!(all(20), [20; 3]);
    fleet.pass(1_000);
    fleet.reads = false;
    let mut sums = [0; 3];
    for second in 0..200 {
        let passed = all(50);
        if second >= 50 {
            sums.iter_mut().zip(passed).for_each(|(sum, passed)| *sum += passed);
        }
        fleet.pass(1_000);
    }
    // In 150 s: half of the limit is offered; each of four nodes has a quarter of it.
    assert_eq!((sums[0], sums[2]), (7_500, 0));
    assert!((3_300..=3_900).contains(&sums[1]), "{sums:?}");
    let closed = crate::support::ask_of(&limiter, &[("tenant", "acme"), ("kind", "closed")], 1);
    assert_eq!(closed.outcome(), Outcome::Denied(Reason::Stale));
    fleet.reads = true;
    fleet.pass(2_000);
    assert_eq!(all(20), [20; 3]);
}

#[test]
fn keys_without_a_cell_pass_uncounted_or_are_denied_as_said() {
    for (table_full, outcome) in [
        (TableFull::Share, Outcome::Allowed),
        (TableFull::Deny, Outcome::Denied(Reason::KeyTableFull)),
    ] {
        let options = |options| Options { keys_max: 8, table_full, ..options };
        let fleet = Fleet::with(1, &[TALLY], TallyOptions::default(), options);
        let limiter = &fleet.nodes[0].limiter;
        let outcomes: Vec<Outcome> =
            (0..200).map(|key| ask(limiter, &key.to_string(), 1).outcome()).collect();
        assert_eq!(outcomes[..8], [Outcome::Allowed; 8]);
        assert_eq!(outcomes[190..], [outcome; 10]);
        assert_eq!(peek(limiter, "new", 1).outcome(), outcome);
    }
}

/// A flood of keys that are asked for once: those that are asked for again find cells.
#[test]
fn keys_that_nobody_asks_for_make_room() {
    let options = worker(|worker| WorkerOptions { keys_max: 800, ..worker });
    let mut fleet = Fleet::with(1, &[TALLY], options, |options| options);
    let limiter = fleet.nodes[0].limiter.clone();
    let mut hot = 0;
    for second in 0..60 {
        for key in 0..100 {
            assert!(ask(&limiter, &format!("{second}-{key}"), 1).is_allowed());
        }
        hot += passed(&limiter, "hot", 500);
        fleet.pass(1_000);
    }
    assert!(limiter.keys_used() < 1_000 && fleet.nodes[0].tally.counts().displaced > 5_000);
    // 60 s at 100 a second.
    assert!((5_400..6_600).contains(&hot), "{hot}");
    assert_eq!(fleet.stored("hot"), hot as i64);
}

#[test]
fn several_stores_have_their_keys_and_one_that_is_dead_stops_no_other() {
    let options = TallyOptions { stores: 3, ..TallyOptions::default() };
    let mut fleet = Fleet::with(2, &[TALLY], options, |options| options);
    let limiters: Vec<Limiter> = fleet.nodes.iter().map(|node| node.limiter.clone()).collect();
    for key in 0..60 {
        assert_eq!(passed(&limiters[key % 2], &key.to_string(), 10), 10);
    }
    fleet.pass(1_000);
    let counters: Vec<usize> = fleet.stores.iter().map(BTreeMap::len).collect();
    assert!(counters.iter().all(|count| *count > 10), "{counters:?}");
    assert_eq!((0..60).map(|key| fleet.stored(&key.to_string())).sum::<i64>(), 600);
}

/// Ten nodes at five times the limit: what leaves an estimate is room for one of them each, and not
/// for all.
#[test]
fn nodes_share_the_room_that_all_of_them_see() {
    let options = worker(|worker| WorkerOptions { tick: Duration::from_millis(200), ..worker });
    let mut fleet = Fleet::with(10, &[TALLY], options, |options| options);
    let limiters: Vec<Limiter> = fleet.nodes.iter().map(|node| node.limiter.clone()).collect();
    let mut windows = [0; 16];
    for window in &mut windows {
        for _ in 0..100 {
            *window += limiters.iter().map(|limiter| passed(limiter, "acme", 5)).sum::<u64>();
            fleet.pass(100);
        }
    }
    // The first meets nodes that have not heard of each other; then each of them sees the room that
    // there is, and what others take of it until the next read is over the limit.
    assert!((1_000..1_400).contains(&windows[0]), "{windows:?}");
    assert!(windows[1..].iter().all(|all| (900..1_400).contains(all)), "{windows:?}");
    assert!(windows.iter().sum::<u64>() < 16 * 1_200, "{windows:?}");
}
