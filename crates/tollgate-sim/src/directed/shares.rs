//! Schedules of fleets that divide a limit: a load that moves, an owner that is gone, messages that
//! are lost, late or out of order, few units for many nodes, a limit that is changed.

use crate::check::Violation;
use crate::scenario::{MS, Nanos, Network, SECOND, Shape};
use crate::share::ledger::{By, Ledger};
use crate::share::{Fault, Load, Scenario, Units, check, run};

/// A run, and what was not as it should be.
struct Played {
    ledger: Ledger,
    violations: Vec<Violation>,
}

impl Played {
    fn new(scenario: &Scenario) -> Self {
        let ledger = run(scenario);
        let violations = check::all(scenario, &ledger);
        Self { ledger, violations }
    }

    fn expect(&mut self, what: &str, is_so: bool, found: impl std::fmt::Debug) {
        if !is_so {
            let what = format!("not so: {what}, but {found:?}");
            self.violations.push(Violation { checker: "expected", what });
        }
    }

    fn admitted(&self, from: Nanos, until: Nanos) -> u64 {
        self.ledger.admitted(0, from, until)
    }
}

/// 100/s with a burst of 100 among these nodes.
fn hundred(nodes: u32, lasts: Nanos) -> Scenario {
    Scenario::quiet(nodes, Units::per_second(100, 100), lasts)
}

fn even(nodes: u32, per_second: f64) -> Vec<Load> {
    (0..nodes).map(|node| Load::even(0, node, per_second)).collect()
}

/// The coordinator is gone from an instant on, and with it the owner of the key.
fn no_owner(nodes: u32, at: Nanos, lasts: Nanos) -> Vec<(Nanos, Fault)> {
    let silent = (0..nodes).map(|node| (at, Fault::Silence { node, lasts }));
    silent.chain([(at, Fault::Owner { key: 0, back_after: None })]).collect()
}

/// C32 (a): 100/s over 4 nodes that are each asked for 100/s; the coordinator is lost for 10 s and
/// more, and the owner of the key is.
pub(super) fn nodes_that_are_alone_admit_an_equal_part() -> Vec<Violation> {
    let mut scenario = hundred(4, 40 * SECOND);
    scenario.loads = even(4, 100.0);
    scenario.faults = no_owner(4, 10 * SECOND, 30 * SECOND);
    let mut played = Played::new(&scenario);
    for (from, until) in [(10, 20), (25, 35)] {
        let all = played.admitted(from * SECOND, until * SECOND);
        played.expect("1000 and the bursts at most", all <= 1_000 + 200 + 4, all);
        let gone = played.ledger.ended.first().map(|(_, node)| *node);
        for node in (0..4).filter(|node| Some(*node) != gone) {
            let one = played.ledger.admitted_by(node, 0, from * SECOND, until * SECOND);
            played.expect("25/s at least", one >= 245, (node, one));
        }
    }
    played.violations
}

/// C32 (b): two of four nodes are asked for 90 and 10/s for long, and then the second for 60.
pub(super) fn a_node_that_wants_more_has_an_equal_part_at_once() -> Vec<Violation> {
    let mut scenario = hundred(4, 64 * SECOND);
    let at = 60 * SECOND;
    scenario.loads = vec![
        Load::even(0, 0, 90.0),
        Load::even(0, 1, 10.0).during(0, at),
        Load::even(0, 1, 60.0).during(at, Nanos::MAX),
    ];
    let mut played = Played::new(&scenario);
    let soon = played.ledger.admitted_by(1, 0, at, at + SECOND);
    played.expect("an equal part at once", soon >= 25, soon);
    let rate = |after| played.ledger.state(1, 0, at + after).map_or(0.0, |state| state.rate());
    let (soon, later) = (rate(2 * SECOND), rate(3 * SECOND));
    played.expect("88 % of 40/s after two intervals", soon >= 35.2, soon);
    played.expect("94.5 % after three", later >= 37.8, later);
    let all = played.admitted(at, at + 4 * SECOND);
    played.expect("400 and the burst at most", all <= 500, all);
    played.violations
}

/// C32 (c): 5/s over 8 nodes that are each asked for 5/s; the coordinator and the owner are lost.
pub(super) fn no_node_is_rounded_to_nothing() -> Vec<Violation> {
    let mut scenario = Scenario::quiet(8, Units::per_second(5, 5), 40 * SECOND);
    scenario.loads = even(8, 5.0);
    scenario.faults = no_owner(8, 10 * SECOND, 30 * SECOND);
    let mut played = Played::new(&scenario);
    let all = played.admitted(25 * SECOND, 35 * SECOND);
    played.expect("50 and the bursts at most", all <= 50 + 8, all);
    let gone = played.ledger.ended.first().map(|(_, node)| *node);
    for node in (0..8).filter(|node| Some(*node) != gone) {
        let one = played.ledger.admitted_by(node, 0, 22 * SECOND, 38 * SECOND);
        played.expect("no node has nothing", one >= 8, (node, one));
    }
    played.violations
}

/// 1,000 nodes of which each is asked for a tenth of a unit a second, of 100/s in all.
pub(super) fn a_thousand_nodes_are_not_rounded_to_nothing() -> Vec<Violation> {
    let mut scenario = hundred(1_000, 62 * SECOND);
    scenario.loads = even(1_000, 0.08);
    let mut played = Played::new(&scenario);
    let admitted = |node| played.ledger.admitted_by(node, 0, 0, 62 * SECOND);
    let least = (0..1_000).map(admitted).min();
    played.expect("each has some", least >= Some(2), least);
    played.violations
}

/// 10/s over 20 nodes that are each asked for a unit in 2.5 s: less than an equal part.
pub(super) fn who_asks_seldom_is_not_forgotten_between() -> Vec<Violation> {
    let mut scenario = Scenario::quiet(20, Units::per_second(10, 10), 60 * SECOND);
    scenario.loads = even(20, 0.4);
    let mut played = Played::new(&scenario);
    let all = played.admitted(10 * SECOND, 60 * SECOND);
    played.expect("98 of 100", all >= 392, all);
    played.violations
}

/// The same at 0.55/s each: more than there is.
pub(super) fn a_first_request_is_no_rate() -> Vec<Violation> {
    let mut scenario = Scenario::quiet(20, Units::per_second(100, 400), 20 * SECOND);
    // One that has much, and others that come one after another, once.
    scenario.loads = vec![Load::even(0, 0, 95.0)];
    let once = |node| {
        let at = 5 * SECOND + u64::from(node) * 100 * MS;
        Load::even(0, node, 20.0).during(at, at + 50 * MS)
    };
    scenario.loads.extend((1..20).map(once));
    let mut played = Played::new(&scenario);
    let rates = (60..90).filter_map(|at| played.ledger.state(0, 0, at * 100 * MS));
    let least = rates.map(|state| state.rate()).fold(f64::MAX, f64::min);
    played.expect("the first keeps nearly all", least >= 70.0, least);
    played.violations
}

/// Loads of 90 and 10/s that change places.
fn flipping(shape: Shape) -> Scenario {
    let (mut scenario, at) = (hundred(2, 20 * SECOND), 10 * SECOND + 100 * MS);
    let load = |node, per_second| Load { shape, ..Load::even(0, node, per_second) };
    scenario.loads = vec![
        load(0, 90.0).during(0, at),
        load(1, 10.0).during(0, at),
        load(0, 10.0).during(at, Nanos::MAX),
        load(1, 90.0).during(at, Nanos::MAX),
    ];
    scenario
}

/// Two nodes at 90 and 10/s that change places: what is denied is told at once, and what one has
/// too much is taken from it.
pub(super) fn a_load_that_moves_is_followed() -> Vec<Violation> {
    let mut played = Played::new(&flipping(Shape::Even));
    let rate = |at| played.ledger.state(1, 0, at).map_or(0.0, |state| state.rate());
    let (soon, later) = (rate(11_600 * MS), rate(12_100 * MS));
    played.expect("half of the way in 1.5 s", soon >= 50.0, soon);
    played.expect("all of it in two intervals", later >= 0.95 * 90.0, later);
    let all = played.admitted(10_100 * MS, 13_100 * MS);
    played.expect("most of what there is", all >= 270, all);
    played.violations
}

/// A node that had little, and is asked for all there is: what it denies is told at once.
pub(super) fn what_is_denied_is_told_at_once() -> Vec<Violation> {
    let mut scenario = Scenario::quiet(10, Units::per_second(1_000, 100), 20 * SECOND);
    scenario.loads = vec![
        Load::even(0, 0, 300.0),
        Load::even(0, 1, 20.0).during(0, 10_050 * MS),
        Load::even(0, 1, 600.0).during(10_050 * MS, Nanos::MAX),
    ];
    let mut played = Played::new(&scenario);
    let offsets: Vec<Nanos> = (0..20).map(|step| 10_050 * MS + step * 50 * MS).collect();
    let is_up =
        |at: &Nanos| played.ledger.state(1, 0, *at).is_some_and(|state| state.rate() >= 80.0);
    let first = offsets.iter().position(is_up);
    played.expect(
        "something of it is known in 400 ms",
        first.is_some_and(|first| first <= 8),
        first,
    );
    played.violations
}

/// A key that is asked for all the time is reported each second all the same.
pub(super) fn what_is_busy_is_reported() -> Vec<Violation> {
    let mut scenario = hundred(2, 20 * SECOND);
    scenario.loads = even(2, 45.0);
    let mut played = Played::new(&scenario);
    for node in 0..2 {
        let of = |heard: &&crate::share::ledger::Heard| heard.from == node;
        let heard = played.ledger.heard.iter().filter(of).count();
        played.expect("a report in each second", (19..=30).contains(&heard), (node, heard));
    }
    played.violations
}

/// Loads that change all the time in a network that loses, delays and repeats: sums stay.
pub(super) fn what_is_given_up_is_held_until_it_is_confirmed() -> Vec<Violation> {
    let network = Network {
        delay_min: 20 * MS,
        delay_max: 90 * MS,
        loss: 0.15,
        slow: 0.1,
        slow_max: 400 * MS,
        repeats: 0.1,
    };
    (1..20).flat_map(|seed| rotating(seed, network)).collect()
}

/// The owner of a key is killed, and comes back at once: it gives nobody what others hold.
pub(super) fn a_new_owner_learns_what_members_hold() -> Vec<Violation> {
    let mut violations = Vec::new();
    for seed in 1..6 {
        let mut scenario = hundred(4, 30 * SECOND);
        scenario.seed = seed;
        scenario.loads = even(4, 60.0);
        let back_after = Some(300 * MS);
        scenario.faults = vec![(12_300 * MS, Fault::Owner { key: 0, back_after })];
        let mut played = Played::new(&scenario);
        let most = most_by_owner(&played.ledger, 12_300 * MS, 16 * SECOND);
        played.expect("no more than R and a newcomer's part", most <= 100.0 / 0.9 + 25.0, most);
        let all = played.admitted(13 * SECOND, 16 * SECOND);
        played.expect("300 and the bursts at most", all <= 300 + 50, all);
        violations.extend(played.violations);
    }
    violations
}

/// The most that nodes enforced by an owner's word at once.
fn most_by_owner(ledger: &Ledger, from: Nanos, until: Nanos) -> f64 {
    let moments = ledger.states.iter().map(|state| state.at);
    let moments = moments.filter(|at| (from..until).contains(at));
    let sum = |at: Nanos| -> f64 {
        let states = (0..8).filter_map(|node| ledger.state(node, 0, at));
        states.filter(|state| state.by == By::Owner).map(|state| state.rate()).sum()
    };
    moments.map(sum).fold(0.0, f64::max)
}

/// Reports that overtake each other: what a member held is not taken for what it holds.
pub(super) fn a_report_that_comes_late_is_no_news() -> Vec<Violation> {
    let late = Network {
        delay_min: 5 * MS,
        delay_max: 10 * MS,
        loss: 0.2,
        slow: 0.4,
        slow_max: 1_500 * MS,
        repeats: 0.2,
    };
    (1..60).flat_map(|seed| rotating(seed, late)).collect()
}

/// Loads that change all the time between three nodes.
fn rotating(seed: u64, network: Network) -> Vec<Violation> {
    let mut scenario = Scenario { seed, network, ..hundred(3, 25 * SECOND) };
    for step in 0..12_u64 {
        let (from, node) = (step * 2_050 * MS, (step % 3) as u32);
        let until = from + 2_050 * MS;
        scenario.loads.push(Load::even(0, node, 200.0).during(from, until));
        scenario.loads.push(Load::even(0, (node + 1) % 3, 30.0).during(from, until));
    }
    Played::new(&scenario).violations
}

/// A limit that is doubled while it is in use, and asked for more all the time.
pub(super) fn a_raised_limit_is_in_force_in_cells_that_are_in_use() -> Vec<Violation> {
    let mut violations = Vec::new();
    for seed in 1..=6 {
        let mut scenario = hundred(3, 30 * SECOND);
        scenario.seed = seed;
        scenario.loads = vec![Load::even(0, 0, 250.0), Load::even(0, 1, 20.0)];
        scenario.loads.push(Load::even(0, 2, 300.0).during(10_010 * MS, Nanos::MAX));
        let twice = Units::per_second(200, 200);
        scenario.faults = vec![(10 * SECOND, Fault::Change(twice))];
        let mut played = Played::new(&scenario);
        let most = most_by_owner(&played.ledger, 10_005 * MS, 20 * SECOND);
        played.expect("no more than R", most <= 200.0 / 0.9 + 10.0, most);
        let all = played.admitted(15 * SECOND, 25 * SECOND);
        played.expect("all that there is", (1_980..=2_020).contains(&all), all);
        violations.extend(played.violations);
    }
    violations
}

/// Few units of many at random times, in a fleet with more demand than there is.
pub(super) fn what_chance_makes_of_few_units_is_no_change() -> Vec<Violation> {
    let mut scenario = hundred(8, 60 * SECOND);
    let random = |node| Load { shape: Shape::Random, ..Load::even(0, node, 15.0) };
    scenario.loads = (0..8).map(random).collect();
    let mut played = Played::new(&scenario);
    let all = played.admitted(10 * SECOND, 60 * SECOND);
    played.expect("97 of 100", all >= 4_850, all);
    let pushes = played.ledger.traffic.pushes.1;
    played.expect("few are told what they did not ask", pushes <= 320, pushes);
    played.violations
}

/// Who stops asking is known to within an interval, and what it had is another's.
pub(super) fn who_rests_gives_up_its_part() -> Vec<Violation> {
    let mut scenario = Scenario::quiet(4, Units::per_second(100, 50), 25 * SECOND);
    (scenario.network.delay_min, scenario.network.delay_max) = (40 * MS, 60 * MS);
    let at = 10_690 * MS;
    scenario.loads = (1..4).map(|node| Load::even(0, node, 26.0).during(0, at)).collect();
    scenario.loads.push(Load::even(0, 0, 56.0).during(0, at));
    scenario.loads.push(Load::even(0, 0, 150.0).during(at, Nanos::MAX));
    let mut played = Played::new(&scenario);
    let rate = |after| played.ledger.state(0, 0, at + after).map_or(0.0, |state| state.rate());
    let (soon, later) = (rate(2_000 * MS), rate(4_000 * MS));
    played.expect("93 of 100 after two intervals", soon >= 93.0, soon);
    played.expect("all after four", later >= 98.0, later);
    played.violations
}
