//! Schedules of fleets that count in stores: what a store forgets, what a node has not heard yet,
//! and what is under way when something is read.

use std::time::Duration;

use crate::check::Violation;
use crate::scenario::{MS, Nanos, SECOND};
use crate::tally::{Demand, Fault, Fleet, Scenario, Way, check, run};

/// A fleet, and what was not as it should be.
struct Course {
    scenario: Scenario,
    fleet: Fleet,
    violations: Vec<Violation>,
}

impl Course {
    fn new(scenario: Scenario) -> Self {
        Self { fleet: Fleet::new(scenario.clone()), scenario, violations: Vec::new() }
    }

    fn expect(&mut self, what: &str, is_so: bool) {
        if !is_so {
            let what = format!("not so: {what}, at {:.3} s", self.fleet.now() as f64 / 1e9);
            self.violations.push(Violation { checker: "expected", what });
        }
    }

    /// Has a node ask for as much as it gets, each 100 ms until then; returns what it got.
    fn grab(&mut self, node: u32, key: u32, until: Nanos) -> u64 {
        let mut got = 0;
        while self.fleet.now() < until {
            while self.fleet.ask(node, key, 1) {
                got += 1;
            }
            self.fleet.until((self.fleet.now() + 100 * MS).min(until));
        }
        got
    }

    /// Has all nodes ask for three units each second; returns what they got.
    fn trickle(&mut self, from: Nanos, until: Nanos) -> u64 {
        let mut got = 0;
        for second in 1..=(until - from) / SECOND {
            self.fleet.until(from + second * SECOND);
            got += (0..20).map(|node| self.fleet.passed(node, 0, 3)).sum::<u64>();
        }
        got
    }

    fn judge(mut self) -> Vec<Violation> {
        let ledger = self.fleet.rest();
        self.violations.extend(check::all(&self.scenario, &ledger));
        self.violations
    }
}

/// 20 nodes with 6 % of the limit each at once, and a little each second: the first of them read
/// before the last have written, and two ticks later all are limited.
pub(super) fn what_is_hot_over_the_fleet_and_cold_on_each_node() -> Vec<Violation> {
    let mut course = Course::new(Scenario::quiet(20, 1_000, 60));
    course.fleet.until(500 * MS);
    let first: u64 = (0..20).map(|node| course.fleet.passed(node, 0, 60)).sum();
    course.expect("nobody is near the limit by itself", first == 1_200);
    let later = course.trickle(500 * MS, 10_500 * MS);
    course.expect("all are limited from the second tick on", later <= 2 * 20 * 3);
    course.judge()
}

/// A burst in which nobody is near the limit by itself, of a key that has been used a little: the
/// first to read have not heard of those who write last.
pub(super) fn a_new_key_is_read_again_soon() -> Vec<Violation> {
    let mut course = Course::new(Scenario::quiet(20, 1_000, 60));
    course.fleet.until(500 * MS);
    let first: u64 = (0..20).map(|node| course.fleet.passed(node, 0, 20)).sum();
    course.fleet.until(4_000 * MS);
    let second: u64 = (0..20).map(|node| course.fleet.passed(node, 0, 40)).sum();
    course.expect("nobody is near the limit by itself", first + second == 1_200);
    let later = course.trickle(4_000 * MS, 20_000 * MS);
    course.expect("all are limited after as long as it was known", later <= 5 * 20 * 3);
    course.judge()
}

/// A key that is known for long and seldom used, and then is used everywhere, a little on each
/// node: it is read again as seldom as its tier is, once in a window at the latest, and limited.
pub(super) fn what_was_low_for_long_is_limited_after_a_window() -> Vec<Violation> {
    let mut course = Course::new(Scenario::quiet(20, 1_000, 60));
    while course.fleet.now() < 300 * SECOND {
        (0..20).for_each(|node| _ = course.fleet.ask(node, 0, 1));
        course.fleet.until(course.fleet.now() + 10 * SECOND);
    }
    let soon = course.trickle(300 * SECOND, 363 * SECOND);
    let later = course.trickle(363 * SECOND, 423 * SECOND);
    course.expect("it is not known at once", soon > 1_000);
    course.expect("it is known after a window", later <= 1_300);
    course.judge()
}

/// A burst on a node that never had the key, of which the fleet has used all: it is known within a
/// tick and a way to the store and back.
pub(super) fn a_new_key_is_read_with_the_next_tick() -> Vec<Violation> {
    let mut course = Course::new(Scenario::quiet(2, 1_000, 60));
    course.fleet.until(500 * MS);
    course.grab(0, 0, 2_500 * MS);
    let first = course.fleet.passed(1, 0, 200);
    course.fleet.until(3_700 * MS);
    let second = course.fleet.passed(1, 0, 200);
    course.expect("nothing is known at first", first == 200);
    course.expect("and then all is", second <= 20);
    course.judge()
}

/// Reads each tick, and counts each tick: what is counted goes out first, so that others hear it.
pub(super) fn what_is_counted_goes_out_before_anything_is_read() -> Vec<Violation> {
    let mut scenario = Scenario::quiet(3, 100, 10);
    scenario.options.worker.sync = Duration::from_secs(1);
    scenario.demands = vec![Demand::even(0, 50.0 / 3.0)];
    scenario.lasts = 30 * SECOND;
    check::all(&scenario, &run(&scenario))
}

/// Slow ways, so that much is counted while a node waits for what it reads.
pub(super) fn what_is_counted_while_a_read_is_under_way_stays() -> Vec<Violation> {
    let mut scenario = Scenario::quiet(1, 1_000, 10);
    (scenario.way.delay_min, scenario.way.delay_max) = (120 * MS, 120 * MS);
    scenario.drains = 50 * MS;
    scenario.demands = vec![Demand::even(0, 500.0)];
    scenario.lasts = 40 * SECOND;
    check::all(&scenario, &run(&scenario))
}

/// A store that loses all of its counters each second gives no more than the ceiling.
pub(super) fn what_a_store_forgets_its_nodes_know() -> Vec<Violation> {
    let mut scenario = Scenario::quiet(2, 100, 10);
    scenario.options.worker.sync = Duration::from_secs(1);
    scenario.demands = vec![Demand::even(0, 25.0)];
    scenario.lasts = 30 * SECOND;
    let all = |second| (second * SECOND, Fault::Evicts { store: 0, share: 1.0 });
    scenario.faults = (1..30).map(all).collect();
    check::all(&scenario, &run(&scenario))
}

/// A store that only reads: what waits for it counts beside what others wrote before.
pub(super) fn what_waits_counts_beside_what_was_read() -> Vec<Violation> {
    let mut course = Course::new(Scenario::quiet(2, 1_000, 60));
    course.fleet.until(500 * MS);
    let used = course.fleet.passed(0, 0, 500);
    course.fleet.until(2_000 * MS);
    course.fleet.fault(Fault::ReadsOnly { store: 0, lasts: 50 * SECOND });
    let more = course.grab(1, 0, 20 * SECOND);
    course.expect("half was used", used == 500);
    // What leaks in 18 s, of which each read takes back what is known of it: of an interval.
    course.expect("the rest is all that passes", more <= 1_000 + 130);
    let later = course.grab(1, 0, 40 * SECOND);
    course.expect("and then only what leaks", later <= 130);
    course.judge()
}

/// A key that was over its limit when its store went away stays limited until that has leaked, and
/// one that was not is never denied.
pub(super) fn what_is_hot_stays_limited_in_an_outage() -> Vec<Violation> {
    let mut course = Course::new(Scenario::quiet(20, 100, 10));
    course.fleet.until(500 * MS);
    let mut together = 0;
    while course.fleet.now() < 6 * SECOND {
        together += (0..20).map(|node| course.fleet.passed(node, 0, 100)).sum::<u64>();
        course.fleet.until(course.fleet.now() + 500 * MS);
    }
    course.fleet.fault(Fault::Swallows { store: 0, lasts: 600 * SECOND });
    let known = course.grab(0, 0, 100 * SECOND);
    course.expect("each took all that there is", (2_000..3_000).contains(&together));
    course.expect("20 windows' units leak for as long", known == 0);
    let mut innocent = true;
    while course.fleet.now() < 300 * SECOND {
        innocent &= course.fleet.passed(1, 1, 3) == 3;
        course.fleet.until(course.fleet.now() + SECOND);
    }
    course.expect("nobody else is denied", innocent);
    course.judge()
}

/// Commands whose answers are lost, late or cut off: each was carried out once, or not at all.
pub(super) fn what_may_have_been_written_is_not_written_again() -> Vec<Violation> {
    let mut scenario = Scenario::quiet(3, 100, 10);
    scenario.way = Way { unanswered: 0.3, slow: 0.2, slow_max: 800 * MS, cut: 0.2, ..Way::QUIET };
    scenario.demands = vec![Demand::even(0, 10.0), Demand::even(1, 1.0)];
    scenario.lasts = 40 * SECOND;
    check::all(&scenario, &run(&scenario))
}
