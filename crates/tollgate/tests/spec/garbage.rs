//! A node stays on its feet whatever other nodes, and its own cells, say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tollgate::coordinator::RingChange;
use tollgate::share::Phase;
use tollgate::{
    Allotment, CellEpoch, Demand, Drained, DrainedShare, FleetLimitId, FleetRules, HandedKey,
    HandedRecord, Handover, Input, Instant, KeyId, Member, Message, Node, NodeId, NodeOptions,
    Output, OwnerEpoch, Rate, Refusal, Report, ReportBatch, Ring, RingEpoch, ShareLimit,
    ShareLimitStatus, ShareMode, ShareUsage, Snapshot, SnapshotBatch, Stamp, StreamUsage, Usage,
    ViewLimit,
};

/// Small numbers, huge ones, and those around them.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..40, Just(u64::MAX), Just(u64::MAX - 1), Just(1 << 62), any::<u64>()]
}

fn nanos() -> impl Strategy<Value = Duration> {
    number().prop_map(Duration::from_nanos)
}

fn key() -> impl Strategy<Value = KeyId> {
    (0_u64..4).prop_map(|key| KeyId::from_bits(key << 60, 7))
}

fn limit() -> impl Strategy<Value = FleetLimitId> {
    (0_u32..3).prop_map(FleetLimitId)
}

fn node() -> impl Strategy<Value = NodeId> {
    (1_u32..4).prop_map(NodeId::new)
}

fn cell_epoch() -> impl Strategy<Value = CellEpoch> {
    (0_u64..3, 0_u64..3).prop_map(|(start, cell)| CellEpoch { start, cell })
}

fn ring_epoch() -> impl Strategy<Value = RingEpoch> {
    prop_oneof![Just(1_u64), 0_u64..4, Just(u64::MAX)].prop_map(RingEpoch::new)
}

fn report() -> impl Strategy<Value = Report> {
    let ids = (key(), limit(), 0_u64..3, cell_epoch());
    let totals = (number(), number(), number(), number(), number());
    let rest = (number(), number(), prop::option::of(number()));
    (ids, totals, rest).prop_map(|(ids, totals, rest)| Report {
        key: ids.0,
        limit: ids.1,
        generation: ids.2,
        cell_epoch: ids.3,
        sequence: totals.0,
        taken: totals.1,
        returned: totals.2,
        refunded: totals.3,
        refund_news: totals.4,
        denied: totals.4,
        waiting: rest.0,
        base: rest.1,
        refund_since: rest.2.map(|at| Stamp { start: 1, at: Instant::from_nanos(at) }),
    })
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    let ids = (key(), cell_epoch(), number(), number());
    let line = (number(), number(), number(), number());
    let rest = (nanos(), nanos(), 0_u64..3, number());
    (ids, line, rest).prop_map(|(ids, line, rest)| Snapshot {
        key: ids.0,
        cell_epoch: ids.1,
        version: ids.2,
        ack_sequence: ids.3,
        acked: line.0,
        floor: line.1,
        ceiling: line.2,
        remaining: line.3,
        free: line.3 / 2,
        ttl: rest.0,
        cadence: rest.1,
        generation: rest.2,
        stamp: Instant::from_nanos(rest.3),
    })
}

fn handover() -> impl Strategy<Value = Handover> {
    let record = (node(), cell_epoch(), prop::array::uniform8(number()), nanos());
    let record = record.prop_map(|(node, cell_epoch, of, ttl_left)| HandedRecord {
        node,
        cell_epoch,
        sequence: of[0],
        acked: of[1],
        returned: of[2],
        refunded: of[3],
        denied: of[4],
        floor: of[5],
        ceiling: of[6],
        base: of[7],
        ttl_left,
    });
    let records = prop::collection::vec(record, 0..3);
    let handed = (key(), limit(), 0_u64..3, number(), nanos(), records);
    let handed = handed.prop_map(|(key, limit, generation, level, hold_left, records)| HandedKey {
        key,
        limit,
        generation,
        rate: Rate::ZERO,
        burst: level,
        level,
        hold_left,
        records,
    });
    let parts = (any::<u32>(), any::<u32>(), nanos(), nanos());
    (ring_epoch(), parts, prop::collection::vec(handed, 0..3)).prop_map(
        |(ring_epoch, (part, parts, tenure_age, hold_left), keys)| Handover {
            ring_epoch,
            part,
            parts,
            tenure_age,
            hold_left,
            keys,
        },
    )
}

fn message() -> impl Strategy<Value = Message> {
    let demands = prop::collection::vec(demand(), 0..3);
    let reports = (number(), ring_epoch(), nanos(), prop::collection::vec(report(), 0..4), demands);
    let allotments = prop::collection::vec(allotment(), 0..3);
    let snapshots = prop::collection::vec(snapshot(), 0..4);
    let snapshots = (number(), ring_epoch(), number(), snapshots, allotments);
    prop_oneof![
        4 => reports.prop_map(|(batch, ring_epoch, round_trip, reports, demands)| {
            Message::Reports(ReportBatch { batch, ring_epoch, round_trip, reports, demands })
        }),
        4 => snapshots.prop_map(|(answers, ring, start, snapshots, allotments)| {
            let (answers, owner_epoch) = (Some(answers), OwnerEpoch { ring, start });
            Message::Snapshots(SnapshotBatch { answers, owner_epoch, snapshots, allotments })
        }),
        1 => (number(), nanos()).prop_map(|(batch, retry_after)| {
            Message::Refused { batch, why: Refusal::Busy { retry_after } }
        }),
        1 => (number(), ring_epoch()).prop_map(|(batch, ring_epoch)| {
            Message::Refused { batch, why: Refusal::NotOwner { ring_epoch } }
        }),
        2 => handover().prop_map(Message::Handover),
        1 => (ring_epoch(), any::<u32>())
            .prop_map(|(ring_epoch, part)| Message::HandoverArrived { ring_epoch, part }),
    ]
}

/// Of all floating-point numbers, those that are none among them.
fn amount() -> impl Strategy<Value = f64> {
    prop_oneof![
        0.0..100.0,
        Just(f64::NAN),
        Just(f64::INFINITY),
        any::<u64>().prop_map(f64::from_bits)
    ]
}

fn demand() -> impl Strategy<Value = Demand> {
    let ids = (key(), limit(), 0_u64..3, 0_u64..2, cell_epoch());
    let numbers = (number(), number(), number(), nanos(), nanos());
    (ids, numbers, amount(), any::<bool>()).prop_map(|(ids, numbers, holds, is_last)| Demand {
        key: ids.0,
        limit: ids.1,
        generation: ids.2,
        stream: ids.3,
        epoch: ids.4,
        sequence: numbers.0,
        allowed: numbers.1,
        denied: numbers.2,
        elapsed: numbers.3,
        interval: numbers.4,
        holds,
        is_last,
    })
}

fn allotment() -> impl Strategy<Value = Allotment> {
    let ids = (key(), 0_u64..2, cell_epoch(), number(), 0_u64..9);
    let amounts = (amount(), amount(), amount());
    (ids, amounts, 0_u64..4, number()).prop_map(|(ids, amounts, generation, members)| Allotment {
        key: ids.0,
        stream: ids.1,
        epoch: ids.2,
        version: ids.3,
        ack_sequence: ids.4,
        generation,
        rate: amounts.0,
        weight: amounts.1,
        used: amounts.2,
        members,
    })
}

fn ring(epoch: u64, nodes: &[u32]) -> Arc<Ring> {
    let member = |node: &u32| Member { node: NodeId::new(*node), weight: 1 };
    Arc::new(Ring::new(RingEpoch::new(epoch), nodes.iter().map(member)).expect("a ring"))
}

fn handle(node: &mut Node, input: Input, now: Instant) {
    node.handle(input, now);
    // Bounded: what comes of one input ends with the next time.
    let ended = (0..10_000).any(|_| matches!(node.poll(), Output::Timeout(_)));
    assert!(ended, "outputs without end");
    sums_are_those_of_all_members(node);
}

/// What is summed by limit while members change is what all of them add up to.
fn sums_are_those_of_all_members(node: &Node) {
    let mut expected: BTreeMap<FleetLimitId, ShareLimitStatus> = BTreeMap::new();
    for member in node.shared_keys(0) {
        let of = expected.entry(member.limit).or_default();
        of.keys += u64::from(member.stream == 0);
        match member.phase {
            Phase::StartUp => of.starting += 1,
            Phase::Normal => {
                of.sharing += 1;
                of.rate += member.rate;
            }
            Phase::Failing => of.failing += 1,
        }
    }
    for (limit, of) in node.share_limits() {
        let all = expected.remove(&limit).unwrap_or_default();
        let numbers = |of: ShareLimitStatus| [of.starting, of.sharing, of.failing, of.keys];
        assert_eq!(numbers(of), numbers(all), "{limit:?}");
        assert!((of.rate - all.rate).abs() < 1e-3, "{limit:?}: {} and {}", of.rate, all.rate);
    }
    // Of the limits in force all are there that have members.
    assert!(expected.keys().all(|limit| limit.0 > 1), "{expected:?}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_message_breaks_a_node(
        messages in prop::collection::vec((node(), message(), 0_u64..50_000_000), 1..30),
    ) {
        let mut one = Node::new(NodeId::new(1), NodeOptions::default());
        let mut now = 1_000_000_000;
        let rate = Rate::parse("1000/s").expect("a rate");
        let view = |generation| ViewLimit::new(rate, 50, generation, Duration::from_millis(5));
        let limits = BTreeMap::from([(FleetLimitId(0), view(1)), (FleetLimitId(1), view(2))]);
        let share = |generation| {
            ShareLimit { rate, burst: 50, mode: ShareMode::Global, generation }
        };
        let shares = BTreeMap::from([(FleetLimitId(0), share(1)), (FleetLimitId(1), share(2))]);
        let rules = FleetRules { revision: 2, limits, shares, ..FleetRules::default() };
        let rules = Input::Rules(rules);
        handle(&mut one, rules, Instant::from_nanos(now));
        let change =
            RingChange { ring: ring(1, &[1, 2]), previous: ring(0, &[2]), lost: Box::default() };
        let input = Input::Ring { change, age: Duration::ZERO, start: 1, is_restart: false };
        handle(&mut one, input, Instant::from_nanos(now));
        for (index, (from, message, wait)) in (0_u64..).zip(messages) {
            now += wait;
            let at = Instant::from_nanos(now);
            let limit = FleetLimitId(0);
            let drained = Drained {
                key: KeyId::from_bits((index % 4) << 60, 7),
                limit,
                base: Some(index),
                taken: index,
                denied: 1,
                refused: 1,
                refund: None,
            };
            let usage =
                Usage { limit, drained, returned: 0, waiting: 0, is_brief: false, refused: 1 };
            handle(&mut one, Input::Usage(usage), at);
            let drained = DrainedShare {
                key: drained.key,
                limit,
                is_new: index % 5 == 0,
                position: index,
                allowed: index,
                denied: index / 2,
                other_denied: 0,
                other_allowed: 0,
            };
            handle(&mut one, Input::Shared(ShareUsage { drained }), at);
            let (key, stream, interval) = (drained.key, 1 + index % 3, Duration::from_secs(1));
            let (allowed, denied) = (index, index / 2);
            let stream_usage = StreamUsage { key, limit, stream, allowed, denied, interval };
            handle(&mut one, Input::Stream(stream_usage), at);
            if index % 7 == 0 {
                handle(&mut one, Input::StreamGone { key, stream }, at);
            }
            handle(&mut one, Input::Message { from, message }, at);
            handle(&mut one, Input::Timeout, at);
        }
    }
}
