//! What the limiter from which guarantee `tally` comes has as unit tests, in their order: which
//! test of this project has each of them, and here those that no other file has.
//!
//! - `epoch_from_timestamp`: `windows_are_numbered_from_1970_on`, of `tally::window`
//! - `epoch_key_format`: the example at `KeyName::counter`
//! - `epoch_keys`: `a_key_is_read_in_its_window_and_in_the_one_before`
//! - `weighted_count`: `the_previous_window_counts_by_what_is_left_of_it`, of `tally::window`
//! - `effective_level_decay` and `leak_rate`:
//!   `an_estimate_leaks_and_what_is_counted_here_does_not`, of `tally::window`
//! - `pressure_tier`: `tiers_begin_at_a_tenth_a_half_and_eight_tenths`, of `tally::tier`
//! - `tier_sync_interval`:
//!   `a_hot_key_is_read_twice_as_often_and_a_low_one_a_quarter_as_often`, of `tally::tier`
//! - `config_defaults`: `what_is_not_said_is_as_it_is_there`
//! - `not_limited_when_under` and `limited_when_at_threshold`:
//!   `who_meets_the_threshold_passes_or_is_limited_as_said`, of `tally::window`
//! - `response_fields`: `a_decision_says_what_is_left_and_when_to_come_again`, of `crate::tally`
//! - `cache_miss_returns_allowed` and `sync_dedup`: `a_new_key_passes_and_is_asked_for_once`
//! - `cache_hit_no_redis_calls` and `local_pending_incremented`: `a_request_asks_no_store`
//! - `update_queued_even_when_limited`:
//!   `what_is_offered_counts_if_a_limit_says_so`, of `crate::tally`
//! - custom keys, one and unknown:
//!   `a_key_with_an_allowance_of_its_own_has_windows_of_its_own`, of `crate::tally`
//! - custom keys, none, mixed and empty:
//!   `keys_with_and_without_limits_of_their_own_are_counted_apart`
//! - `sync_queued_when_interval_exceeded` and `sync_not_queued_when_fresh`:
//!   `what_was_read_counts_until_its_interval_is_over`
//! - no instances: `what_can_not_be_counted_in_does_not_start`, of `tollgate-redis`
//! - instances: one, consistent, golden: `stores_and_spreads_are_pinned`, of `tally::name`
//! - instances: distributes:
//!   `one_more_store_takes_its_part_and_no_other_key_moves`, of `tally::name`
//! - results: cache, custom pressure:
//!   `what_is_read_is_weighted_and_is_the_pressure_of_its_own_limit`
//! - results: pending zeroed: `what_was_counted_before_a_read_is_in_it`
//! - tier scan: `the_tiers_of_all_keys_are_told_and_none_of_those_that_left`
//! - `parse_redis_count`: `what_is_no_count_is_read_as_none`, of `tollgate-redis`
//! - floor, never synced, idle above it:
//!   `an_idle_key_is_read_from_its_floor_on_and_a_low_one_more_and_more_seldom`, of `tally::worker`
//! - floor's cap: `the_floor_is_a_hundredth_of_the_threshold_at_most`, of `tally::tier`
//! - idle clamp: `a_key_that_rests_leaves_once_all_of_it_is_written`, of `tally::worker`
//! - expiry: clamp, window, spread, grace:
//!   `a_count_leaves_the_store_after_it_can_be_read_and_not_with_all_others`, of `tally::window`
//! - expiry: spread of a shard's:
//!   `the_keys_of_one_store_are_spread_over_all_of_a_window`, of `tally::name`
//! - writes before reads: `what_is_counted_is_written_once_and_then_read`, of `tally::worker`
//! - cap of pending syncs: `no_more_keys_wait_to_be_read_than_have_cells`
//! - cap of a write batch:
//!   `a_full_list_of_writes_drops_new_keys_counts_it_and_takes_more_of_those_that_wait`,
//!   of `tally::worker`
//! - stale epochs: `windows_that_nobody_reads_any_more_are_not_written`, of `tally::worker`
//! - bounded drains, 25 at 10:
//!   `writes_and_reads_are_bounded_and_go_on_with_the_next_tick`, of `tally::worker`
//! - 10 keys at 2 in a command: `reads_go_in_as_many_commands_as_it_takes`
//! - read outage: matrix, time: `an_outage_is_one_after_the_time_that_was_said`
//! - read outage: each run, partial success: `an_outage_begins_anew_with_each_answer`
//! - read outage: each instance: `an_outage_of_one_store_is_none_of_another`
//! - heal: the files `outages` and `troubles` of `tollgate-redis`
//! - custom map: swap, clones:
//!   `a_key_with_an_allowance_of_its_own_has_windows_of_its_own`, of `crate::tally`
//! - custom map: refresh: nothing; overrides are a part of the policy, which is replaced as a whole

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate::tally::{
    Counted, Input, Meets, OnStale, Outcome as Became, Output, Tier, WallTime, Window, Worker,
    WorkerOptions,
};
use tollgate::{
    Clock, ClockHand, Command, Instant, KeyId, LimitSpec, Limiter, Options, OverrideSpec, Reason,
    TallyNode, TallyOptions,
};

use crate::support::{ask, limits, passed, peek, seconds};
use crate::tally::TALLY;

/// A node and its stores, in made-up time, with ticks of a second.
struct One {
    limiter: Limiter,
    tally: TallyNode,
    hand: ClockHand,
    /// Milliseconds since 1970.
    wall: u64,
    /// All counters of all stores.
    counts: BTreeMap<String, u64>,
    /// What was asked of stores, in its order.
    log: Vec<Command>,
    /// Whether a store answers a read; how many were before it in its turn is told too.
    answers: fn(usize, usize) -> bool,
}

impl One {
    /// 1,000 s after 1970.
    fn new(specs: &[LimitSpec<'_>], worker: WorkerOptions) -> Self {
        Self::with(specs, TallyOptions { worker, ..TallyOptions::default() }, 1_000)
    }

    fn with(specs: &[LimitSpec<'_>], tally: TallyOptions, keys_max: u64) -> Self {
        let (clock, hand) = Clock::manual();
        let options = Options { clock, keys_max, tally: true, ..Options::default() };
        let limiter = Limiter::new(limits(specs), options).expect("sound limits");
        let tally = TallyNode::new(limiter.clone(), tally).expect("it has cells");
        let (counts, log) = (BTreeMap::new(), Vec::new());
        Self { limiter, tally, hand, wall: 1_000_000, counts, log, answers: |_, _| true }
    }

    /// Lets so many seconds pass, each with a tick at its end.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.hand.advance(Duration::from_secs(1));
            self.wall += 1_000;
            self.turn();
        }
    }

    fn turn(&mut self) {
        let (now, wall) = (self.limiter.now(), WallTime::from_nanos(self.wall * 1_000_000));
        self.tally.drain(now, wall);
        self.tally.handle_timeout(now, wall);
        let mut reads = 0;
        loop {
            let command = self.tally.poll();
            self.log.push(command.clone());
            let (store, answer) = match command {
                Command::Write { store, command, additions } => {
                    let is_there = (self.answers)(store, 0);
                    for one in additions.iter().filter(|_| is_there) {
                        let units = u64::try_from(one.units).expect("nothing is given back");
                        *self.counts.entry(one.name.clone()).or_default() += units;
                    }
                    let became = if is_there { Became::Done } else { Became::NotSent };
                    (store, Input::Written { command, outcomes: vec![became; additions.len()] })
                }
                Command::Read { store, command, names } => {
                    let is_there = (self.answers)(store, reads);
                    reads += 1;
                    let count = |name: &String| self.counts.get(name).copied().unwrap_or(0);
                    let pair = |[before, now]: &[String; 2]| (count(before), count(now));
                    let pairs = names.iter().map(|names| is_there.then(|| pair(names)));
                    (store, Input::Read { command, counts: pairs.collect() })
                }
                Command::Timeout(_) => {
                    self.log.pop();
                    return;
                }
            };
            self.tally.handle(store, answer, now, wall);
        }
    }

    /// How many keys each read had since this was asked last.
    fn reads(&mut self) -> Vec<usize> {
        let log = std::mem::take(&mut self.log);
        let keys = |command| match command {
            Command::Read { names, .. } => Some(names.len()),
            Command::Write { .. } | Command::Timeout(_) => None,
        };
        log.into_iter().filter_map(keys).collect()
    }

    fn remaining(&self, tenant: &str) -> u64 {
        peek(&self.limiter, tenant, 1).remaining().expect("it is limited")
    }
}

fn floor(floor: u64) -> WorkerOptions {
    WorkerOptions { floor, ..WorkerOptions::default() }
}

#[test]
fn a_key_is_read_in_its_window_and_in_the_one_before() {
    let mut one = One::new(&[TALLY], floor(1));
    assert_eq!(passed(&one.limiter, "acme", 1), 1);
    one.turn();
    let Some(Command::Read { names, .. }) = one.log.pop() else { panic!("{:?}", one.log) };
    let name = |number| format!("tollgate:default:api:10s:{{acme}}:{number}");
    assert_eq!(names, [[99, 100].map(name)]);
}

#[test]
fn what_is_not_said_is_as_it_is_there() {
    let options = TallyOptions::default();
    assert_eq!((options.prefix.as_str(), options.stores), ("tollgate", 1));
    let worker = options.worker;
    let times = [worker.tick, worker.sync, worker.idle].map(|time| time.as_secs());
    assert_eq!(times, [1, 15, 300]);
    assert_eq!((worker.floor, worker.read_outage_max, worker.nodes), (10, None, 1));
    assert_eq!((worker.keys_max, worker.writes_max), (300_000, 200_000));
    let ticks = [worker.writes_per_tick, worker.reads_per_tick, worker.keys_per_command];
    assert_eq!(ticks, [200_000, 20_000, 2_000]);
}

#[test]
fn a_new_key_passes_and_is_asked_for_once() {
    let mut one = One::new(&[LimitSpec { rate: "2000/10s", ..TALLY }], floor(1));
    one.counts.insert("tollgate:default:api:10s:{acme}:100".into(), 700);
    assert_eq!(passed(&one.limiter, "acme", 1_000), 1_000);
    one.turn();
    let [Command::Write { additions, .. }, Command::Read { names, .. }] = &one.log[..] else {
        panic!("{:?}", one.log)
    };
    assert_eq!((additions.len(), additions[0].units, names.len()), (1, 1_000, 1));
    assert_eq!(one.remaining("acme"), 300);
}

#[test]
fn a_request_asks_no_store() {
    let mut one = One::new(&[TALLY], floor(1));
    assert_eq!(passed(&one.limiter, "acme", 100), 100);
    one.turn();
    for counted in 1..=500 {
        assert!(ask(&one.limiter, "acme", 1).is_allowed());
        assert_eq!(one.remaining("acme"), 900 - counted);
        assert!(matches!(one.tally.poll(), Command::Timeout(_)));
    }
}

#[test]
fn keys_with_and_without_limits_of_their_own_are_counted_apart() {
    let own = |tenant, rate| OverrideSpec { key: tenant, rate, ..OverrideSpec::DEFAULT };
    let none = TALLY;
    let overrides = [own(&[("tenant", "")], "3000/10s"), own(&[("tenant", "small")], "10/10s")];
    let some = LimitSpec { overrides: &overrides, ..TALLY };
    for (limit, limits) in [(none, [1_000; 3]), (some, [3_000, 10, 1_000])] {
        let mut one = One::new(&[limit], floor(1));
        for _ in 0..2 {
            let all = ["", "small", "other"];
            let sums = all.map(|tenant| passed(&one.limiter, tenant, 5_000));
            assert!(sums == limits || sums == [0; 3], "{sums:?}");
            one.turn();
        }
        let counts: Vec<u64> = one.counts.values().copied().collect();
        // In the order of their names: `%%` is the empty one's.
        assert_eq!(counts, [limits[0], limits[2], limits[1]]);
    }
}

/// At three fifths of its limit a key is read each 15 s, once it is known for so long; nobody reads
/// what nobody has asked for.
#[test]
fn what_was_read_counts_until_its_interval_is_over() {
    let mut one = One::new(&[LimitSpec { rate: "1000/60s", ..TALLY }], floor(1));
    let mut read_at = Vec::new();
    for second in 0..180 {
        assert_eq!(passed(&one.limiter, "acme", 10), 10, "at {second} s");
        one.pass(1);
        if !one.reads().is_empty() {
            read_at.push(second);
        }
    }
    let gaps: Vec<i32> = read_at.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(gaps.len() > 6 && gaps[gaps.len() - 4..] == [15; 4], "{gaps:?}");
    one.pass(60);
    assert!(one.reads().len() <= 1);
}

/// 7 in this window and 3 in the one before, halfway: 8.5 used. Of a limit of 10 that is 85 in 100,
/// of one of 100 it is little.
#[test]
fn what_is_read_is_weighted_and_is_the_pressure_of_its_own_limit() {
    let key = KeyId::from_bits(1, 1);
    let (now, wall) = (Instant::from_nanos(1), WallTime::from_secs(1_005));
    for (threshold, tier) in [(10, Tier::Hot), (100, Tier::Idle)] {
        let window = Window::new(threshold, seconds(10), Meets::IsLimited).expect("a window");
        let mut worker = Worker::new(floor(1));
        let (on_stale, base, taken) = (OnStale::Allow, Some(0), 7);
        let counted = Counted { key, window, on_stale, base, taken, denied: 0, refund: None };
        worker.handle(Input::Counted(counted), now, wall);
        worker.handle(Input::Timeout, now, wall);
        let Output::Write { command, .. } = worker.poll() else { panic!("a write") };
        worker.handle(Input::Written { command, outcomes: vec![Became::Done] }, now, wall);
        let Output::Read { command, .. } = worker.poll() else { panic!("a read") };
        worker.handle(Input::Read { command, counts: vec![Some((3, 7))] }, now, wall);
        let Output::Estimate { estimate, base, .. } = worker.poll() else { panic!("an estimate") };
        assert_eq!((window.units(estimate), base), (8.5, 7));
        let mut tiers = [0; 4];
        tiers[tier as usize] = 1;
        assert_eq!(worker.tiers(now), tiers);
    }
}

#[test]
fn what_was_counted_before_a_read_is_in_it() {
    let limit = LimitSpec { rate: "20000/10s", ..TALLY };
    let tally = TallyOptions { worker: floor(1), ..TallyOptions::default() };
    let mut one = One::with(&[limit], tally, 20_000);
    for units in 1..10_000_u64 {
        assert!(ask(&one.limiter, &units.to_string(), units).is_allowed());
    }
    one.turn();
    for units in 1..10_000_u64 {
        assert_eq!(one.remaining(&units.to_string()), 20_000 - units);
    }
    assert_eq!(one.tally.counts().read, 9_999);
}

#[test]
fn the_tiers_of_all_keys_are_told_and_none_of_those_that_left() {
    let limit = LimitSpec { rate: "100/1s", ..TALLY };
    let mut one = One::new(&[limit], WorkerOptions { idle: seconds(5), ..floor(1) });
    let tiers = |one: &One| one.tally.workers()[0].tiers(one.limiter.now());
    assert_eq!(tiers(&one), [0; 4]);
    for (tenant, units) in [("a", 5), ("b", 9), ("c", 30), ("d", 79), ("e", 80), ("f", 100)] {
        assert!(ask(&one.limiter, tenant, units).is_allowed());
    }
    one.turn();
    assert_eq!(tiers(&one), [2, 1, 1, 2]);
    one.pass(2);
    assert!(ask(&one.limiter, "a", 1).is_allowed());
    one.pass(4);
    assert_eq!(tiers(&one), [1, 0, 0, 0], "only what was asked for lately");
    one.pass(5);
    assert_eq!((tiers(&one), one.tally.counts().rested), ([0; 4], 6));
}

#[test]
fn no_more_keys_wait_to_be_read_than_have_cells() {
    let tally = TallyOptions { worker: floor(1), ..TallyOptions::default() };
    let mut one = One::with(&[TALLY], tally, 64);
    one.answers = |_, _| false;
    for second in 0..20 {
        for key in 0..1_000 {
            ask(&one.limiter, &format!("{second}-{key}"), 1);
        }
        one.pass(1);
        let worker = &one.tally.workers()[0];
        let due = worker.pending_reads(one.limiter.now());
        assert!(due <= worker.keys() && worker.keys() as u64 <= 64 + 64 / 8 + 64, "{worker:?}");
    }
}

#[test]
fn reads_go_in_as_many_commands_as_it_takes() {
    let mut one = One::new(&[TALLY], WorkerOptions { keys_per_command: 2, ..floor(1) });
    for key in 0..10 {
        assert!(ask(&one.limiter, &key.to_string(), 1).is_allowed());
    }
    one.turn();
    assert_eq!(one.reads(), [2; 5]);
}

/// 95 of 100 counted here by a key that others ask for too, or nobody knows: until the outage is
/// one, that is what it is judged by.
#[test]
fn an_outage_is_one_after_the_time_that_was_said() {
    for (said, outage) in [(None, 10), (Some(seconds(3)), 3), (Some(seconds(15)), 15)] {
        for (on_stale, remaining) in [("allow", Some(100)), ("share", Some(0)), ("deny", None)] {
            for was_read in [true, false] {
                let options = WorkerOptions { read_outage_max: said, nodes: 9, ..floor(1) };
                let limit = LimitSpec { rate: "100/10s", on_stale: Some(on_stale), ..TALLY };
                let mut one = One::new(&[limit], options);
                if was_read {
                    assert_eq!(passed(&one.limiter, "acme", 1), 1);
                    one.turn();
                    one.pass(10);
                }
                one.answers = |_, _| false;
                assert_eq!(passed(&one.limiter, "acme", 95), 95);
                one.pass(1);
                for second in 0..=outage {
                    let here = format!("{on_stale} {outage} {was_read}: {second}");
                    assert_eq!(one.remaining("acme"), 5, "{here}");
                    one.pass(1);
                }
                let decision = peek(&one.limiter, "acme", 1);
                let is_stale = decision.outcome() == tollgate::Outcome::Denied(Reason::Stale);
                assert_eq!(is_stale, remaining.is_none(), "{on_stale} {outage} {was_read}");
                let left = decision.remaining().filter(|_| !is_stale);
                assert_eq!(left, remaining, "{on_stale} {outage} {was_read}");
            }
        }
    }
}

#[test]
fn an_outage_begins_anew_with_each_answer() {
    let outage = Some(seconds(3));
    let limit = LimitSpec { rate: "100/60s", on_stale: Some("deny"), ..TALLY };
    let options = WorkerOptions { read_outage_max: outage, keys_per_command: 1, ..floor(1) };
    let mut one = One::new(&[limit], options);
    let mut go = |answers: fn(usize, usize) -> bool, seconds| {
        one.answers = answers;
        for _ in 0..seconds {
            for tenant in ["acme", "other"] {
                assert!(ask(&one.limiter, tenant, 1).is_allowed());
            }
            one.pass(1);
        }
    };
    for _ in 0..5 {
        go(|_, _| false, 3);
        go(|_, _| true, 1);
    }
    // One of two commands is answered: it is none.
    go(|_, place| place == 0, 10);
    assert_eq!(one.tally.workers()[0].silent_since(), None);
}

#[test]
fn an_outage_of_one_store_is_none_of_another() {
    let outage = Some(seconds(3));
    let limit = LimitSpec { rate: "100/60s", on_stale: Some("deny"), ..TALLY };
    let worker = WorkerOptions { read_outage_max: outage, ..floor(1) };
    let tally = TallyOptions { worker, stores: 2, ..TallyOptions::default() };
    let mut one = One::with(&[limit], tally, 1_000);
    one.answers = |store, _| store == 1;
    // Of both stores: these are pinned.
    let tenants = ["acme", "a}b"];
    for _ in 0..10 {
        tenants.iter().for_each(|tenant| _ = ask(&one.limiter, tenant, 1));
        one.pass(1);
    }
    assert_eq!(tenants.map(|tenant| ask(&one.limiter, tenant, 1).is_allowed()), [false, true]);
    let silent = |store: usize| one.tally.workers()[store].silent_since().is_some();
    assert_eq!([0, 1].map(silent), [true, false]);
}

/// The windows that it had counted in are over for it: as much as before passes once more.
#[test]
fn a_wall_clock_that_steps_forward_by_two_windows_begins_anew() {
    let mut one = One::new(&[TALLY], floor(1));
    assert_eq!(passed(&one.limiter, "acme", 1_500), 1_000);
    one.pass(1);
    one.wall += 20_000;
    assert!(passed(&one.limiter, "acme", 1_500) <= 100, "what leaks");
    one.pass(1);
    let again = passed(&one.limiter, "acme", 1_500);
    assert!((900..=1_000).contains(&again), "{again}");
    one.pass(1);
    assert_eq!(passed(&one.limiter, "acme", 1_500), 0);
}

/// An hour back, as when a clock is set right: what was counted is of windows to come. As much as
/// before passes once more, and nobody is locked out for the hour.
#[test]
fn a_wall_clock_that_steps_back_by_an_hour_locks_nobody_out() {
    let mut one = One::new(&[TALLY], floor(1));
    one.wall += 7_200_000;
    assert_eq!(passed(&one.limiter, "acme", 1_500), 1_000);
    one.pass(1);
    one.wall -= 3_600_000;
    let mut sum = 0;
    for _ in 0..10 {
        sum += passed(&one.limiter, "acme", 1_500);
        one.pass(1);
    }
    assert!((900..=1_200).contains(&sum), "{sum}");
    for window in 0..5 {
        let sum: u64 = (0..10)
            .map(|_| {
                let passed = passed(&one.limiter, "acme", 1_500);
                one.pass(1);
                passed
            })
            .sum();
        assert!((500..=1_200).contains(&sum), "{sum} in window {window}");
    }
}
