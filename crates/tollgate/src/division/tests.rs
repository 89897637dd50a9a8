//! Members and an owner that talk without delay: what is reported when, and who is given what.

mod streams;

use proptest::prelude::*;

use super::owner::{DivisionFull, Divisions, Terms};
use super::worker::{Act, Sharer};
use super::{Allotment, Demand};
use crate::guarantee::ShareMode;
use crate::key::KeyId;
use crate::policy::{FleetLimitId, ShareLimit};
use crate::rate::Rate;
use crate::ring::{NodeId, RingEpoch};
use crate::share::{Collected, Phase, ShareOptions};
use crate::time::Instant;
use crate::view::{CellEpoch, OwnerEpoch};

const KEY: KeyId = KeyId { high: 9, low: 9 };
const LIMIT: FleetLimitId = FleetLimitId(3);
const RING: RingEpoch = RingEpoch::new(1);
const OWNER: OwnerEpoch = OwnerEpoch { ring: RING, start: 1 };

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn limit(per_second: &str) -> ShareLimit {
    let rate = Rate::parse(per_second).expect("a rate");
    ShareLimit { rate, burst: rate.units(), mode: ShareMode::Global, generation: 1 }
}

fn options() -> ShareOptions {
    ShareOptions::default()
}

/// A member, and what it has counted.
struct One {
    node: NodeId,
    sharer: Sharer,
    totals: Collected,
}

/// The members of one key, and its owner.
struct Fleet {
    owner: Divisions,
    members: Vec<One>,
    limit: ShareLimit,
    nodes: u64,
    /// Reports that were sent.
    reports: Vec<(u64, usize)>,
    said: u64,
}

impl Fleet {
    fn new(nodes: u64) -> Self {
        let owner = Divisions::new(options(), 10);
        let (members, reports) = (Vec::new(), Vec::new());
        let limit = limit("100/s");
        let mut fleet = Self { owner, members, limit, nodes, reports, said: 0 };
        (0..nodes).for_each(|_| fleet.join(0));
        fleet
    }

    fn join(&mut self, now: u64) {
        let number = self.members.len() as u32 + 1;
        let epoch = CellEpoch { start: 1, cell: u64::from(number) };
        let sharer = Sharer::new(KEY, LIMIT, (0, epoch), RING, &options(), at(now));
        let totals = Collected::default();
        self.members.push(One { node: NodeId::new(number), sharer, totals });
    }

    /// A member counts.
    fn count(&mut self, who: usize, allowed: u64, denied: u64, now: u64) {
        let one = &mut self.members[who];
        one.totals.allowed += allowed;
        one.totals.denied += denied;
        one.sharer.handle_usage(LIMIT, one.totals, None, at(now));
    }

    /// What is due at `now`: of these members reports arrive, and those hear what is said to them.
    fn turn(&mut self, now: u64, reports: impl Fn(usize) -> bool, hears: impl Fn(usize) -> bool) {
        for who in 0..self.members.len() {
            let sharer = &mut self.members[who].sharer;
            if sharer.due(&options(), true, at(now)) > at(now)
                || sharer.act(&options(), true, at(now)) != Act::Report
            {
                continue;
            }
            let demand = sharer.report(1, &options(), at(now), at(now));
            self.reports.push((now, who));
            if reports(who) {
                let answer = self.tell(who, &demand, now).expect("room");
                answer.iter().filter(|_| hears(who)).for_each(|answer| self.adopt(who, answer));
            }
        }
        let limit = self.limit;
        self.owner.handle_timeout(&|_, _| Some(limit), self.nodes, at(now));
        while let Some((node, given)) = self.owner.poll_push() {
            let to = self.members.iter().position(|one| one.node == node).expect("known");
            given.iter().filter(|_| hears(to)).for_each(|given| self.adopt(to, given));
        }
    }

    fn tell(
        &mut self,
        who: usize,
        demand: &Demand,
        now: u64,
    ) -> Result<Option<Allotment>, DivisionFull> {
        let terms = Terms { limit: &self.limit, nodes: self.nodes };
        self.owner.handle_demand(self.members[who].node, demand, &terms, at(now))
    }

    /// A member says that it was asked for so much in an interval, and what it has; returns what it
    /// is given.
    fn say(&mut self, who: usize, asked: u64, holds: f64, now: u64) -> f64 {
        self.said += 1;
        let interval = options().interval;
        let demand = Demand {
            key: KEY,
            limit: LIMIT,
            generation: 1,
            stream: 0,
            epoch: CellEpoch { start: 1, cell: 1 },
            sequence: self.said,
            allowed: asked,
            denied: 0,
            elapsed: interval,
            interval,
            holds,
            is_last: false,
        };
        self.tell(who, &demand, now).expect("room").expect("an answer").rate
    }

    /// What the owner tells one member by itself, if it does.
    fn pushed(&mut self, now: u64) -> Option<f64> {
        let limit = self.limit;
        self.owner.handle_timeout(&|_, _| Some(limit), self.nodes, at(now));
        let pushes = std::iter::from_fn(|| self.owner.poll_push());
        pushes.map(|(_, given)| given[0].rate).last()
    }

    fn adopt(&mut self, who: usize, given: &Allotment) {
        let sharer = &mut self.members[who].sharer;
        sharer.handle_allotment(given, OWNER, &self.limit).expect("sane");
    }

    /// The rate that a member enforces by its owner's word.
    fn rate(&self, who: usize) -> f64 {
        let given = self.members[who].sharer.given(&self.limit, self.nodes);
        given.global.filter(|_| given.is_global_sound).map_or(0.0, |(rate, _)| rate)
    }

    fn sum(&self) -> f64 {
        (0..self.members.len()).map(|who| self.rate(who)).sum()
    }

    /// For so many ms members are asked for so many units a second, which they allow up to their
    /// rates; what of them arrives is said by `talks`.
    fn run(&mut self, from: u64, millis: u64, demands: &[u64], talks: impl Fn(usize) -> bool) {
        self.run_between(from, millis, demands, &talks, &talks);
    }

    fn run_between(
        &mut self,
        from: u64,
        millis: u64,
        demands: &[u64],
        reports: impl Fn(usize) -> bool,
        hears: impl Fn(usize) -> bool,
    ) {
        for now in (from..from + millis).step_by(10) {
            for (who, demand) in demands.iter().enumerate() {
                let (asked, rate) = (demand / 100, self.rate(who));
                let local = self.limit.rate.per_second() / self.nodes as f64;
                let most = if rate > 0.0 { rate } else { local } / 100.0;
                // Fractions by turns.
                let turn = now / 10;
                let may = (most * (turn + 1) as f64) as u64 - (most * turn as f64) as u64;
                let allowed = asked.min(may);
                if asked > 0 {
                    self.count(who, allowed, asked - allowed, now);
                }
            }
            self.turn(now, &reports, &hears);
        }
    }
}

fn all(_: usize) -> bool {
    true
}

fn none(_: usize) -> bool {
    false
}

#[test]
fn parts_follow_demand_and_sum_to_the_rate() {
    let mut fleet = Fleet::new(2);
    fleet.run(0, 3_000, &[900, 100], all);
    assert!((fleet.rate(0) - 90.0).abs() < 1.0, "{}", fleet.rate(0));
    assert!((fleet.rate(1) - 10.0).abs() < 1.0, "{}", fleet.rate(1));
    assert!(fleet.sum() <= 100.1);
    // Within two intervals of a change, even in the middle of one.
    fleet.run(3_000, 500, &[900, 100], all);
    fleet.run(3_500, 2_000, &[100, 900], all);
    assert!(fleet.rate(1) >= 0.95 * 90.0, "{}", fleet.rate(1));
    assert!(fleet.rate(0) >= 0.95 * 10.0 && fleet.sum() <= 100.1, "{}", fleet.rate(0));
}

#[test]
fn in_steady_state_a_member_reports_once_an_interval() {
    let mut fleet = Fleet::new(3);
    fleet.run(0, 3_000, &[200, 500, 300], all);
    fleet.reports.clear();
    fleet.run(3_000, 10_000, &[200, 500, 300], all);
    assert_eq!(fleet.reports.len(), 30);
}

/// Two of three nodes were asked for 30 a second and denied half, and reported twice a second:
/// after each report of a tenth of a second in which nothing was denied the next denial was taken
/// for the first.
#[test]
fn who_denies_now_and_then_reports_once_an_interval() {
    let mut fleet = Fleet::new(2);
    let run = |fleet: &mut Fleet, from, millis| {
        for now in (from..from + millis).step_by(100) {
            // One in five is denied.
            let denied = u64::from(now % 500 == 0);
            fleet.count(1, 1 - denied, denied, now);
            fleet.run(now, 100, &[900, 0], all);
        }
    };
    run(&mut fleet, 0, 3_000);
    fleet.reports.clear();
    run(&mut fleet, 3_000, 10_000);
    assert_eq!(fleet.reports.iter().filter(|(_, who)| *who == 1).count(), 10);
}

#[test]
fn who_begins_to_deny_says_so_at_once_and_is_given_what_is_left() {
    let mut fleet = Fleet::new(4);
    fleet.run(0, 5_000, &[500, 100, 0, 0], all);
    fleet.limit.rate = Rate::parse("1000/s").expect("a rate");
    fleet.run(5_000, 3_000, &[500, 100, 0, 0], all);
    let before = fleet.rate(1);
    fleet.reports.clear();
    // In the middle of an interval.
    fleet.run(8_000, 100, &[500, 100, 0, 0], all);
    fleet.run(8_100, 300, &[500, 400, 0, 0], all);
    let early = fleet.reports.iter().filter(|(now, who)| *who == 1 && *now >= 8_100).count();
    assert!((1..=3).contains(&early), "{:?}", fleet.reports);
    assert!(fleet.rate(1) > before && fleet.rate(1) >= 250.0, "{} {before}", fleet.rate(1));
    assert!(fleet.sum() <= 1_001.0);
}

#[test]
fn room_that_others_give_up_is_told_to_whoever_lacks_it() {
    let mut fleet = Fleet::new(2);
    fleet.run(0, 3_000, &[900, 300], all);
    assert!(fleet.rate(0) > 70.0, "{}", fleet.rate(0));
    // The first stops; the second has all before its own next tick but one.
    fleet.run(3_000, 1_110, &[0, 300], all);
    assert!(fleet.rate(1) > 90.0, "{}", fleet.rate(1));
}

#[test]
fn what_is_given_up_is_given_on_when_it_was_given_up() {
    let mut fleet = Fleet::new(2);
    fleet.run(0, 3_000, &[900, 100], all);
    // The first hears nothing any more, and goes on with what it has.
    let hears = |who: usize| who != 0;
    for now in (3_000..8_000).step_by(10) {
        fleet.run_between(now, 10, &[100, 900], all, hears);
        assert!(fleet.sum() <= 100.0 * 1.11, "{} at {now}", fleet.sum());
    }
}

#[test]
fn who_is_not_heard_goes_on_and_its_part_is_nobody_elses_until_it_is_forgotten() {
    let mut fleet = Fleet::new(2);
    fleet.run(0, 3_000, &[900, 100], all);
    let talks = |who: usize| who != 0;
    for now in (3_000..11_900).step_by(10) {
        fleet.run(now, 10, &[900, 900], talks);
        assert!(fleet.sum() <= 100.0 * 1.11, "{} at {now}", fleet.sum());
    }
}

#[test]
fn a_member_that_is_given_less_confirms_it_at_once() {
    let mut fleet = Fleet::new(2);
    fleet.run(0, 3_000, &[900, 100], all);
    fleet.run(3_000, 200, &[900, 900], all);
    // Both ask for as much: the first was told so, and has said that it heard, within the interval.
    let of_first = |(now, who): &&(u64, usize)| *who == 0 && (3_010..3_300).contains(now);
    fleet.run(3_200, 200, &[900, 900], all);
    assert!(fleet.reports.iter().filter(of_first).count() >= 1, "{:?}", fleet.reports);
    assert!(fleet.rate(1) > 40.0, "{}", fleet.rate(1));
}

#[test]
fn ten_answers_that_do_not_come_make_it_go_by_an_equal_part() {
    let mut fleet = Fleet::new(4);
    fleet.run(0, 3_000, &[900, 100, 0, 0], all);
    let phase = |fleet: &Fleet| fleet.members[0].sharer.phase();
    fleet.run(3_000, 9_900, &[900, 100, 0, 0], none);
    assert_eq!(phase(&fleet), Phase::Normal);
    assert!(fleet.rate(0) > 80.0, "{}", fleet.rate(0));
    fleet.run(12_900, 1_200, &[900, 100, 0, 0], none);
    assert_eq!(phase(&fleet), Phase::Failing);
    let given = fleet.members[0].sharer.given(&fleet.limit, 4);
    assert_eq!((given.local, given.local_burst, given.is_global_sound), (25.0, 25, false));
    assert!(given.global.is_some(), "it is spent from beside");
    fleet.run(14_100, 1_100, &[900, 100, 0, 0], all);
    assert_eq!(phase(&fleet), Phase::Normal);
}

#[test]
fn start_up_does_not_fail_however_long_it_takes() {
    let mut fleet = Fleet::new(4);
    fleet.run(0, 100_000, &[900, 0, 0, 0], none);
    assert_eq!(fleet.members[0].sharer.phase(), Phase::StartUp);
    assert_eq!(fleet.members[0].sharer.given(&fleet.limit, 4).global, None);
}

#[test]
fn an_answer_that_cannot_be_true_is_dropped_whole() {
    let mut fleet = Fleet::new(2);
    fleet.count(0, 5, 0, 10);
    let demand = fleet.members[0].sharer.report(1, &options(), at(10), at(10));
    let sound = fleet.tell(0, &demand, 10).expect("room").expect("answered");
    let wrong = [
        Allotment { rate: f64::NAN, ..sound },
        Allotment { rate: -1.0, ..sound },
        Allotment { rate: 100.1, ..sound },
        Allotment { weight: 1.1, ..sound },
        Allotment { used: f64::INFINITY, ..sound },
    ];
    let sharer = &mut fleet.members[0].sharer;
    for given in wrong {
        assert!(sharer.handle_allotment(&given, OWNER, &fleet.limit).is_err());
        assert_eq!(sharer.phase(), Phase::StartUp);
    }
    // What is another's, or of another limit than is known here, is no error and changes nothing.
    let epoch = CellEpoch { start: 7, cell: 7 };
    let ring = OwnerEpoch { ring: RingEpoch::new(2), start: 1 };
    let unknown = [
        (Allotment { epoch, ..sound }, OWNER),
        (Allotment { generation: 2, ..sound }, OWNER),
        (Allotment { ack_sequence: 9, ..sound }, OWNER),
        (sound, ring),
    ];
    for (given, owner) in unknown {
        assert_eq!(sharer.handle_allotment(&given, owner, &fleet.limit), Ok(false));
        assert_eq!(sharer.phase(), Phase::StartUp);
    }
    assert_eq!(sharer.handle_allotment(&sound, OWNER, &fleet.limit), Ok(true));
    assert_eq!(sharer.handle_allotment(&sound, OWNER, &fleet.limit), Ok(false));
}

#[test]
fn a_report_that_comes_again_or_late_changes_nothing() {
    let mut fleet = Fleet::new(2);
    fleet.run(0, 2_100, &[900, 300], all);
    let held = |fleet: &Fleet| {
        let status = fleet.owner.statuses(0, at(2_200)).next().expect("one");
        (status.members, status.demand)
    };
    fleet.count(0, 1, 0, 2_150);
    let sharer = &mut fleet.members[0].sharer;
    let old = sharer.report(1, &options(), at(2_150), at(2_150));
    let new = sharer.report(1, &options(), at(2_200), at(2_200));
    fleet.tell(0, &new, 2_200).expect("room");
    let before = held(&fleet);
    let again = Demand { allowed: 5_000, ..old };
    fleet.tell(0, &again, 2_200).expect("room");
    fleet.tell(0, &Demand { denied: 5_000, ..new }, 2_200).expect("room");
    let epoch = CellEpoch { start: 0, cell: 9 };
    fleet.tell(0, &Demand { epoch, sequence: 99, denied: 5_000, ..new }, 2_200).expect("room");
    assert_eq!(held(&fleet), before);
}

#[test]
fn a_new_owner_lets_members_keep_what_they_have_until_it_has_heard_all() {
    let mut fleet = Fleet::new(3);
    fleet.run(0, 5_000, &[900, 100, 0], all);
    let before = fleet.rate(1);
    assert!(before > 9.0, "{before}");
    fleet.owner = Divisions::new(options(), 10);
    fleet.owner.begin(at(5_000));
    let epoch = OwnerEpoch { ring: RING, start: 2 };
    // The first is heard, and alone would have all of it.
    fleet.count(0, 1, 9, 5_010);
    let demand = fleet.members[0].sharer.report(1, &options(), at(5_010), at(5_010));
    let given = fleet.tell(0, &demand, 5_010).expect("room").expect("answered");
    assert!((given.rate - fleet.rate(0)).abs() < 1.0, "{}", given.rate);
    let sharer = &mut fleet.members[0].sharer;
    sharer.handle_allotment(&given, epoch, &fleet.limit).expect("sane");
    assert!((fleet.rate(1) - before).abs() < 0.1 && fleet.sum() <= 101.0);
}

#[test]
fn whoever_rests_is_forgotten_and_so_is_a_key_that_nobody_asks_for() {
    let mut fleet = Fleet::new(2);
    fleet.run(0, 3_000, &[900, 100], all);
    assert_eq!(fleet.owner.key_count(), 1);
    fleet.run(3_000, 1_500, &[0, 0], all);
    fleet.reports.clear();
    fleet.run(4_500, 3_000, &[0, 0], all);
    // It was said once that there is nothing more; nothing is said again.
    assert_eq!(fleet.reports, []);
    let act = fleet.members[0].sharer.act(&options(), true, at(8_100));
    assert_eq!(act, Act::Forget);
    let forgets_at = fleet.owner.timeout().expect("an agenda");
    assert!(forgets_at <= at(15_000), "{forgets_at:?}");
    fleet.owner.handle_timeout(&|_, _| Some(limit("100/s")), 2, forgets_at);
    assert_eq!((fleet.owner.key_count(), fleet.owner.counts().keys_forgotten), (0, 1));
}

#[test]
fn a_limit_that_changes_is_in_force_before_anybody_is_told() {
    let mut fleet = Fleet::new(2);
    fleet.run(0, 3_000, &[900, 100], all);
    let before = fleet.rate(0);
    fleet.limit = ShareLimit { generation: 2, ..limit("10/s") };
    assert!((fleet.rate(0) - before / 10.0).abs() < 1e-9);
    // Its owner is to know that it is.
    let sharer = &mut fleet.members[0].sharer;
    assert_eq!(sharer.due(&options(), true, at(2_995)), at(3_000));
    sharer.rescale(10.0);
    assert!(sharer.due(&options(), true, at(2_995)) < at(2_995));
    fleet.members[0].sharer.reset();
    assert_eq!(fleet.members[0].sharer.phase(), Phase::StartUp);
}

#[test]
fn keys_and_members_are_bounded() {
    let mut fleet = Fleet::new(2);
    fleet.owner = Divisions::new(options(), 1);
    let demand = fleet.members[0].sharer.report(1, &options(), at(1), at(1));
    assert!(fleet.tell(0, &demand, 1).expect("room").is_some());
    let other = Demand { key: KeyId { high: 1, low: 1 }, ..demand };
    assert_eq!(fleet.tell(0, &other, 1), Err(DivisionFull));
    let stream = |stream| Demand { stream, ..demand };
    for number in 1..10_000 {
        assert!(fleet.tell(0, &stream(number), 1).is_ok());
    }
    assert_eq!(fleet.tell(0, &stream(10_000), 1), Err(DivisionFull));
    // A member that leaves makes room.
    let last = Demand { is_last: true, ..stream(77) };
    assert_eq!(fleet.tell(0, &last, 1), Ok(None));
    assert!(fleet.tell(0, &stream(10_000), 1).is_ok());
}

/// What four members are asked for, in hundreds a second.
fn phase() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(0_u64..10, 4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Whatever is asked for, and whatever is lost: members that an owner heard within an interval
    /// enforce no more than the rate, but for differences that are not worth waiting for.
    #[test]
    fn what_members_enforce_sums_to_the_rate(
        phases in prop::collection::vec((phase(), 200_u64..3_000), 1..6),
        lost in 0_u64..4,
    ) {
        let mut fleet = Fleet::new(4);
        let mut now = 0;
        for (demands, millis) in phases {
            let demands: Vec<u64> = demands.iter().map(|demand| demand * 100).collect();
            for step in (now..now + millis).step_by(10) {
                let hears = |who| (step / 10 + who as u64) % 7 >= lost;
                fleet.run_between(step, 10, &demands, all, hears);
                prop_assert!(fleet.sum() <= 100.0 * 1.11, "{} at {step}", fleet.sum());
            }
            now += millis / 10 * 10;
        }
    }

    /// A thousand nodes, or rates below one a second: nobody is rounded to nothing.
    #[test]
    fn nobody_is_rounded_to_nothing(nodes in 1_u64..1_000, per_hour in 1_u64..10_000) {
        let mut fleet = Fleet::new(2);
        fleet.nodes = nodes;
        fleet.limit = limit(&format!("{per_hour}/h"));
        fleet.run(0, 1_500, &[900, 900], all);
        let given = fleet.members[0].sharer.given(&fleet.limit, nodes);
        let (rate, burst) = given.global.expect("given");
        prop_assert!(rate > 0.0 && burst >= 1 && given.local > 0.0 && given.local_burst >= 1);
    }
}

#[test]
fn a_tick_is_that_of_all_keys_of_a_node() {
    let mut fleet = Fleet::new(2);
    // Members that begin at different times report at the same ones.
    fleet.run(0, 330, &[900, 0], all);
    fleet.run(330, 2_700, &[900, 100], all);
    let last: Vec<u64> = fleet.reports.iter().rev().take(2).map(|(now, _)| *now).collect();
    assert_eq!(last, [3_000, 3_000]);
    let due = fleet.members[0].sharer.due(&options(), true, at(3_020));
    assert_eq!(due, at(4_000));
}

#[test]
fn a_report_that_no_member_makes_leads_to_no_visits_without_end() {
    let mut fleet = Fleet::new(2);
    let demand = fleet.members[0].sharer.report(1, &options(), at(1), at(1));
    let wrong = Demand { sequence: 0, interval: std::time::Duration::ZERO, ..demand };
    fleet.tell(0, &wrong, 1).expect("room");
    let limits = |_, _| Some(limit("100/s"));
    for now in (1..20_000).step_by(100) {
        fleet.owner.handle_timeout(&limits, 2, at(now));
    }
    assert_eq!(fleet.owner.key_count(), 0);
}
