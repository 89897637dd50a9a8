//! One process: its limiter, its side of the stores, its clocks, and what it has not looked at yet.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate::tally::WallTime;
use tollgate::{
    Clock, ClockHand, Descriptor, Entry, Instant, Limit, LimitSpec, Limiter, Options, OverrideSpec,
    Request, Secret, TallyNode,
};

use crate::scenario::Nanos;
use crate::tally::ledger::Drain;
use crate::tally::scenario::Scenario;

pub(super) struct Node {
    pub(super) limiter: Limiter,
    pub(super) tally: TallyNode,
    hand: ClockHand,
    /// Up to where its clock was moved.
    at: Nanos,
    /// Its wall clock at the start of the run.
    begins: u64,
    length: Nanos,
    counts_offered: bool,
    /// By key: units that count, units that passed, and when the last of those did.
    undrained: BTreeMap<u32, (u64, u64, Nanos)>,
    pub(super) wakes_at: Nanos,
}

impl Node {
    pub(super) fn new(scenario: &Scenario, number: u32) -> Self {
        let (clock, hand) = Clock::manual();
        let options = Options {
            clock,
            keys_max: scenario.options.worker.keys_max.max(64) as u64,
            tally: true,
            secret: Secret::from_seed([7; 32]),
            ..Options::default()
        };
        let limiter = Limiter::new(vec![limit(scenario)], options).expect("a sound limit");
        let tally = TallyNode::new(limiter.clone(), scenario.options.clone());
        let tally = tally.expect("it has cells");
        let skew = scenario.skews.get(number as usize).copied().unwrap_or(0);
        Self {
            limiter,
            tally,
            hand,
            at: 0,
            begins: scenario.begins.saturating_add_signed(skew),
            length: scenario.length(),
            counts_offered: scenario.counts_offered,
            undrained: BTreeMap::new(),
            wakes_at: Nanos::MAX,
        }
    }

    /// What its clocks say.
    pub(super) fn times(&mut self, now: Nanos) -> (Instant, WallTime) {
        self.hand.advance(Duration::from_nanos(now - self.at));
        self.at = now;
        (Instant::from_nanos(now), WallTime::from_nanos(self.begins + now))
    }

    /// Its wall clock steps.
    pub(super) fn step(&mut self, by: i64) {
        self.begins = self.begins.saturating_add_signed(by);
    }

    pub(super) fn ask(&mut self, key: u32, name: &str, cost: u64, now: Nanos) -> bool {
        self.times(now);
        let entries = [Entry::new("k", name)];
        let descriptors = [Descriptor::new(&entries).expect("one entry").with_cost(cost)];
        let passed = self.limiter.check(&Request::new(&descriptors)).is_allowed();
        if passed || self.counts_offered {
            let waits = self.undrained.entry(key).or_default();
            waits.0 += cost;
            if passed {
                (waits.1, waits.2) = (waits.1 + cost, now);
            }
        }
        passed
    }

    /// Whether a store has not answered for longer than that.
    pub(super) fn is_cut_off(&self, outage_max: Nanos, now: Nanos) -> bool {
        let is_long = |since: Instant| now.saturating_sub(since.as_nanos()) > outage_max;
        self.tally.workers().iter().filter_map(|one| one.silent_since()).any(is_long)
    }

    pub(super) fn drain(&mut self, node: u32, now: Nanos, drains: &mut Vec<Drain>) {
        let (instant, wall) = self.times(now);
        self.tally.drain(instant, wall);
        let number = wall.as_nanos() / self.length;
        for (key, (counted, admitted, last_at)) in std::mem::take(&mut self.undrained) {
            drains.push(Drain { at: now, key, node, number, counted, admitted, last_at });
        }
    }
}

fn limit(scenario: &Scenario) -> Limit {
    let rate = |threshold: u64| format!("{threshold}/{}s", scenario.window);
    let own: Vec<(String, String)> =
        scenario.own.iter().map(|(key, of)| (key.to_string(), rate(*of))).collect();
    let keys: Vec<[(&str, &str); 1]> = own.iter().map(|(key, _)| [("k", &**key)]).collect();
    let overrides: Vec<OverrideSpec<'_>> = keys
        .iter()
        .zip(&own)
        .map(|(key, (_, rate))| OverrideSpec { key, rate, ..OverrideSpec::DEFAULT })
        .collect();
    let spec = LimitSpec {
        name: "api",
        key: &["k"],
        rate: &rate(scenario.threshold),
        guarantee: "tally",
        on_stale: Some(scenario.on_stale),
        count: Some(if scenario.counts_offered { "offered" } else { "admitted" }),
        overrides: &overrides,
        ..LimitSpec::DEFAULT
    };
    Limit::parse(&spec).expect("a sound limit")
}
