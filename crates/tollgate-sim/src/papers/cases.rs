//! Two open cases on the real thing: reports that come twice or in the wrong order (C23), and an
//! owner that dies in the middle of a window (C24).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tollgate::coordinator::RingChange;
use tollgate::{
    CellEpoch, FleetLimitId, FleetRules, Input, Instant, Member, Message, Node, NodeId,
    NodeOptions, Output, Rate, Report, ReportBatch, Ring, RingEpoch, Snapshot, ViewLimit,
};

use super::measure::{admitted, excess, fleet, load};
use crate::cluster::{key_of, key_owned_in_turn};
use crate::ledger::Ledger;
use crate::scenario::{Fault, MS, Nanos, SECOND, Scenario};

/// The only member of its ring, so the owner of every key, with 100 units at once.
fn owner() -> Node {
    let me = NodeId::new(1);
    let mut node = Node::new(me, NodeOptions::default());
    let limit = ViewLimit::new(
        Rate::new(1, 1_000 * SECOND).expect("a rate"),
        100,
        1,
        Duration::from_millis(5),
    );
    let limits = BTreeMap::from([(FleetLimitId(0), limit)]);
    tell(&mut node, Input::Rules(FleetRules { revision: 1, limits, ..FleetRules::default() }), 1);
    let members = [Member { node: me, weight: 1 }];
    let ring = |epoch, members: &[Member]| {
        let ring = Ring::new(RingEpoch::new(epoch), members.iter().copied());
        Arc::new(ring.expect("a small ring"))
    };
    let change =
        RingChange { ring: ring(1, &members), previous: ring(0, &[]), lost: Box::default() };
    let age = Duration::ZERO;
    tell(&mut node, Input::Ring { change, age, start: 1, is_restart: false }, 1);
    node
}

fn tell(node: &mut Node, input: Input, at: Nanos) -> Vec<Message> {
    node.handle(input, Instant::from_nanos(at));
    let mut messages = Vec::new();
    loop {
        match node.poll() {
            Output::Send { message, .. } => messages.push(message),
            Output::Timeout(_) => return messages,
            Output::Permit { .. }
            | Output::Evict { .. }
            | Output::Give { .. }
            | Output::Allot { .. }
            | Output::EvictShare { .. }
            | Output::Event(_) => {}
        }
    }
}

/// Worker 2 reports: the process of this start number says that it has taken so much in all.
fn report(node: &mut Node, start: u64, sequence: u64, taken: u64, at: Nanos) -> Snapshot {
    let report = Report {
        key: key_of(0, 0),
        limit: FleetLimitId(0),
        generation: 1,
        cell_epoch: CellEpoch { start, cell: 1 },
        sequence,
        taken,
        returned: 0,
        refunded: 0,
        refund_news: 0,
        refund_since: None,
        denied: 0,
        waiting: 0,
        base: 0,
    };
    let ring_epoch = RingEpoch::new(1);
    let (reports, demands) = (vec![report], Vec::new());
    let batch = ReportBatch { batch: at, ring_epoch, round_trip: Duration::ZERO, reports, demands };
    let input = Input::Message { from: NodeId::new(2), message: Message::Reports(batch) };
    let answers = tell(node, input, at);
    let [Message::Snapshots(answer)] = &answers[..] else { panic!("{answers:?}") };
    answer.snapshots[0]
}

#[test]
fn reports_that_come_twice_or_late_count_once() {
    let node = &mut owner();
    let after = |millis: u64| 200_000 * SECOND + millis * MS;
    // Worker epoch 7: 5 units, then 3; both again, the wrong way round.
    assert_eq!(report(node, 7, 1, 5, after(0)).ack_sequence, 1);
    assert_eq!(report(node, 7, 2, 8, after(5)).ack_sequence, 2);
    assert_eq!(report(node, 7, 2, 8, after(10)).acked, 8);
    let repeated = report(node, 7, 1, 5, after(15));
    assert_eq!((repeated.ack_sequence, repeated.acked), (2, 8));
    assert_eq!(node.counts().owner.units, 8);
    // Worker epoch 8: 4 units. Then epoch 7 once more, which had spent 2 before it died: they were
    // spent, so they count, and once.
    report(node, 8, 1, 4, after(20));
    report(node, 7, 3, 10, after(25));
    report(node, 7, 3, 10, after(30));
    assert_eq!(node.counts().owner.units, 14);
    assert_eq!(node.owned(key_of(0, 0)).map(|(left, _)| left), Some(86));
}

#[test]
fn no_version_of_a_key_comes_again_after_it_was_forgotten() {
    let node = &mut owner();
    let after = |seconds: u64| (200_000 + seconds) * SECOND;
    let first = report(node, 7, 1, 1, after(0));
    tell(node, Input::Timeout, after(60));
    tell(node, Input::Timeout, after(5_000));
    assert_eq!(node.counts().owned, 0);
    // The same cell, whose worker takes nothing that is older than what it has.
    let next = report(node, 7, 2, 2, after(5_001));
    assert!(next.version > first.version);
}

/// 100/60 s, burst 100, three workers that may hold 5 each, and an owner that asks for nothing.
/// From `BEGINS` on 8/s are asked for, and after 10 s as much as can be.
fn owner_goes(fault: fn(u32) -> Fault, seed: u64) -> (Scenario, Ledger) {
    let (workers, owner) = (0..3, 3);
    let rate = Rate::new(100, 60 * SECOND).expect("a rate");
    let key = key_owned_in_turn(&[owner], 4);
    let mut scenario = fleet(4, rate, 100, BEGINS + 60 * SECOND);
    scenario.seed = seed;
    scenario.limits[0].local_cap = Some(5);
    let mut before = load(workers.clone(), key, 8.0 / 3.0);
    (before.from, before.until, before.waits) = (BEGINS, GOES, 50 * MS);
    let mut after = load(workers, key, 50.0);
    after.from = GOES;
    scenario.demands = vec![before, after];
    scenario.faults = vec![(GOES, fault(owner))];
    let ledger = crate::run(&scenario);
    (scenario, ledger)
}

/// The longest time from `from` on in which nothing is admitted.
fn longest_gap(ledger: &Ledger, from: Nanos) -> Nanos {
    let times = ledger.admissions.iter().map(|admission| admission.at).filter(|at| *at >= from);
    let times: Vec<Nanos> = std::iter::once(from).chain(times).collect();
    times.windows(2).map(|pair| pair[1] - pair[0]).max().expect("something is admitted")
}

#[test]
fn an_owner_that_dies_in_the_middle_of_a_window_gives_no_second_burst() {
    for seed in 0..8 {
        let kill = |node| Fault::Crash { node, back_after: None };
        let (scenario, ledger) = owner_goes(kill, seed);
        assert!(excess(&scenario, &ledger) <= 0.0, "seed {seed}");
        // About 80 are used; then what three workers held at most, and the rate.
        let used = admitted(&ledger, BEGINS, GOES);
        assert!((50..=110).contains(&used), "seed {seed}: {used}");
        let later = admitted(&ledger, GOES, BEGINS + 60 * SECOND);
        assert!(later <= 3 * 5 + 84, "seed {seed}: {later}");
        assert!(later >= 70, "seed {seed}: {later}");
        // ttl_max, and the new owner's first unit: 0.6 s; give or take.
        let gap = longest_gap(&ledger, GOES);
        assert!(gap <= 2 * SECOND, "seed {seed}: {gap}");
    }
}

#[test]
fn an_owner_that_leaves_in_the_middle_of_a_window_hands_over_what_is_left() {
    for seed in 0..8 {
        let leave = |node| Fault::Stop { node, back_after: None };
        let (scenario, ledger) = owner_goes(leave, seed);
        assert!(excess(&scenario, &ledger) <= 0.0, "seed {seed}");
        let all = admitted(&ledger, BEGINS, BEGINS + 60 * SECOND);
        // 100 at once and 100 in the minute.
        assert!((190..=200).contains(&all), "seed {seed}: {all}");
        // What is left is there at once, and then a unit each 0.6 s.
        let soon = admitted(&ledger, GOES, GOES + 2 * SECOND);
        let left = 100 + 16 - admitted(&ledger, BEGINS, GOES);
        assert!(soon >= left, "seed {seed}: {soon} of {left}");
        let gap = longest_gap(&ledger, GOES);
        assert!(gap <= SECOND, "seed {seed}: {gap}");
    }
}

/// After a rest in which the burst has come back.
const BEGINS: Nanos = 62 * SECOND;
const GOES: Nanos = BEGINS + 10 * SECOND;
