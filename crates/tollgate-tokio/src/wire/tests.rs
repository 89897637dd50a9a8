//! Every message comes back as it was sent, has the bytes that it always had, and no bytes do harm.

use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tollgate::coordinator::Revision;
use tollgate::{
    Allotment, CellEpoch, Demand, FleetLimitId, HandedKey, HandedRecord, Handover, Instant, KeyId,
    LimitUnits, Message, NodeId, OwnedKey, OwnerEpoch, Rate, Refusal, Report, ReportBatch,
    RingEpoch, Snapshot, SnapshotBatch, SpentKey, Stamp,
};

use super::bytes::{Put, Take};
use super::divided::made::{divided_limits, key_part};
use super::message::take_rate;
use super::{Ask, Inquiry, KeyName, PeerFrame, Tell, Told, WireError, put_frame};
use crate::keys::{Counted, KeySort};

fn key() -> impl Strategy<Value = KeyId> {
    (any::<u64>(), any::<u32>()).prop_map(|(high, low)| KeyId::from_bits(high, low))
}

fn limit() -> impl Strategy<Value = FleetLimitId> {
    any::<u32>().prop_map(FleetLimitId)
}

fn cell_epoch() -> impl Strategy<Value = CellEpoch> {
    (any::<u64>(), any::<u64>()).prop_map(|(start, cell)| CellEpoch { start, cell })
}

fn duration() -> impl Strategy<Value = Duration> {
    any::<u64>().prop_map(Duration::from_nanos)
}

fn report() -> impl Strategy<Value = Report> {
    let stamp = (any::<u64>(), any::<u64>())
        .prop_map(|(start, at)| Stamp { start, at: Instant::from_nanos(at) });
    (key(), limit(), cell_epoch(), option::of(stamp), any::<[u64; 9]>()).prop_map(
        |(key, limit, cell_epoch, refund_since, numbers)| {
            let [
                generation,
                sequence,
                taken,
                returned,
                refunded,
                refund_news,
                denied,
                waiting,
                base,
            ] = numbers;
            Report {
                key,
                limit,
                generation,
                cell_epoch,
                sequence,
                taken,
                returned,
                refunded,
                refund_news,
                refund_since,
                denied,
                waiting,
                base,
            }
        },
    )
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    (key(), cell_epoch(), any::<u64>(), any::<[u64; 10]>()).prop_map(
        |(key, cell_epoch, free, numbers)| {
            let [
                version,
                ack_sequence,
                acked,
                floor,
                ceiling,
                ttl,
                cadence,
                remaining,
                generation,
                at,
            ] = numbers;
            Snapshot {
                key,
                cell_epoch,
                version,
                ack_sequence,
                acked,
                floor,
                ceiling,
                ttl: Duration::from_nanos(ttl),
                cadence: Duration::from_nanos(cadence),
                remaining,
                free,
                generation,
                stamp: Instant::from_nanos(at),
            }
        },
    )
}

fn handed() -> impl Strategy<Value = HandedKey> {
    let record =
        (any::<u32>(), cell_epoch(), any::<[u64; 9]>()).prop_map(|(node, cell_epoch, numbers)| {
            let [sequence, acked, returned, refunded, denied, floor, ceiling, ttl, base] = numbers;
            HandedRecord {
                node: NodeId::new(node),
                cell_epoch,
                sequence,
                acked,
                returned,
                refunded,
                denied,
                floor,
                ceiling,
                ttl_left: Duration::from_nanos(ttl),
                base,
            }
        });
    (key(), limit(), 1..1_000_000_u64, duration(), any::<[u64; 3]>(), vec(record, 0..3)).prop_map(
        |(key, limit, units, hold_left, [generation, burst, level], records)| {
            let rate = Rate::new(units, 1_000_000_000).expect("a rate");
            HandedKey { key, limit, generation, rate, burst, level, hold_left, records }
        },
    )
}

fn demand() -> impl Strategy<Value = Demand> {
    let numbers = any::<[u64; 5]>();
    let amount = 0.0..1e12_f64;
    (key(), limit(), cell_epoch(), numbers, duration(), duration(), amount, any::<bool>()).prop_map(
        |(key, limit, epoch, numbers, elapsed, interval, holds, is_last)| {
            let [generation, stream, sequence, allowed, denied] = numbers;
            Demand {
                key,
                limit,
                generation,
                stream,
                epoch,
                sequence,
                allowed,
                denied,
                elapsed,
                interval,
                holds,
                is_last,
            }
        },
    )
}

fn allotment() -> impl Strategy<Value = Allotment> {
    let amounts = (0.0..1e12_f64, 0.0..1.0_f64, 0.0..1e12_f64);
    (key(), cell_epoch(), any::<[u64; 5]>(), amounts).prop_map(
        |(key, epoch, [stream, version, ack_sequence, generation, members], amounts)| {
            let (rate, weight, used) = amounts;
            Allotment {
                key,
                stream,
                epoch,
                version,
                ack_sequence,
                generation,
                rate,
                weight,
                used,
                members,
            }
        },
    )
}

fn message() -> impl Strategy<Value = Message> {
    let epoch = || any::<u64>().prop_map(RingEpoch::new);
    prop_oneof![
        (any::<u64>(), epoch(), duration(), vec(report(), 0..4), vec(demand(), 0..3)).prop_map(
            |(batch, ring_epoch, round_trip, reports, demands)| Message::Reports(ReportBatch {
                batch,
                ring_epoch,
                round_trip,
                reports,
                demands
            })
        ),
        (
            option::of(1..u64::MAX),
            epoch(),
            any::<u64>(),
            vec(snapshot(), 0..4),
            vec(allotment(), 0..3)
        )
            .prop_map(|(answers, ring, start, snapshots, allotments)| {
                let owner_epoch = OwnerEpoch { ring, start };
                Message::Snapshots(SnapshotBatch { answers, owner_epoch, snapshots, allotments })
            }),
        (any::<u64>(), epoch()).prop_map(|(batch, ring_epoch)| Message::Refused {
            batch,
            why: Refusal::NotOwner { ring_epoch }
        }),
        (any::<u64>(), duration()).prop_map(|(batch, retry_after)| Message::Refused {
            batch,
            why: Refusal::Busy { retry_after }
        }),
        (epoch(), any::<u32>(), any::<u32>(), duration(), duration(), vec(handed(), 0..3))
            .prop_map(|(ring_epoch, part, parts, tenure_age, hold_left, keys)| {
                let handover = Handover { ring_epoch, part, parts, tenure_age, hold_left, keys };
                Message::Handover(handover)
            }),
        (epoch(), any::<u32>())
            .prop_map(|(ring_epoch, part)| Message::HandoverArrived { ring_epoch, part }),
    ]
}

fn node() -> impl Strategy<Value = NodeId> {
    any::<u32>().prop_map(NodeId::new)
}

fn inquiry() -> impl Strategy<Value = Inquiry> {
    let sort = || {
        prop_oneof![
            Just(KeySort::Level),
            Just(KeySort::Remaining),
            Just(KeySort::Denied),
            Just(KeySort::Admitted),
            Just(KeySort::Reporters),
        ]
    };
    let which = || (option::of(limit()), sort(), any::<u32>());
    prop_oneof![
        which().prop_map(|(limit, sort, count)| Inquiry::Owned { limit, sort, count }),
        (which(), vec(node(), 0..4)).prop_map(|((limit, sort, count), owners)| Inquiry::Spent {
            limit,
            sort,
            count,
            owners
        }),
        Just(Inquiry::Counted),
        vec(key(), 0..5).prop_map(Inquiry::Names),
        any::<u32>().prop_map(Inquiry::Divided),
        vec(key(), 0..5).prop_map(Inquiry::Parts),
    ]
}

fn owned() -> impl Strategy<Value = OwnedKey> {
    let rate = (0..1_000_000_u64).prop_map(|units| match units {
        0 => Rate::ZERO,
        _ => Rate::new(units, 1_000_000_000).expect("a rate"),
    });
    let who = (key(), limit(), rate, any::<u32>(), option::of(node()), option::of(duration()));
    (who, any::<[u64; 6]>(), any::<[u32; 2]>(), any::<bool>()).prop_map(
        |((key, limit, rate, reporters, reporter, reported_ago), numbers, rates, is_in_charge)| {
            let [generation, burst, level, outstanding, remaining, excess] = numbers;
            let [admitted_per_second, denied_per_second] = rates.map(|rate| f64::from(rate) / 1e3);
            OwnedKey {
                key,
                limit,
                generation,
                rate,
                burst,
                level,
                outstanding,
                remaining,
                excess,
                reporters,
                reporter,
                reported_ago,
                admitted_per_second,
                denied_per_second,
                is_in_charge,
            }
        },
    )
}

fn spent() -> impl Strategy<Value = SpentKey> {
    let who = (key(), limit(), option::of(node()), option::of(duration()));
    (who, any::<[u64; 4]>(), [duration(), duration()]).prop_map(
        |((key, limit, owner, heard_ago), [spent, denied, credit, waiting], [age, credit_for])| {
            SpentKey {
                key,
                limit,
                owner,
                spent,
                denied,
                age,
                credit,
                credit_for,
                waiting,
                heard_ago,
            }
        },
    )
}

fn counted() -> impl Strategy<Value = Counted> {
    let units = any::<[u64; 5]>().prop_map(|[units, breaches, excess_max, excess, cost_max]| {
        LimitUnits { units, breaches, excess_max, excess, cost_max }
    });
    let limits = prop::collection::btree_map(limit(), units, 0..4);
    (limits, any::<[u64; 5]>(), [duration(), duration()]).prop_map(
        |(limits, [overlaps, pauses, late, owned, spent], [overlapped, paused])| Counted {
            limits,
            overlaps,
            overlapped,
            pauses,
            paused,
            late,
            owned,
            spent,
        },
    )
}

fn told() -> impl Strategy<Value = Told> {
    let part = option::of(vec(any::<u8>(), 0..9).prop_map(Vec::into_boxed_slice));
    let name = (key(), limit(), vec(part, 0..4)).prop_map(|(key, limit, parts)| KeyName {
        key,
        limit,
        parts: parts.into(),
    });
    prop_oneof![
        (any::<u64>(), vec(owned(), 0..4)).prop_map(|(total, keys)| Told::Owned(total, keys)),
        (any::<u64>(), vec(spent(), 0..4)).prop_map(|(total, keys)| Told::Spent(total, keys)),
        counted().prop_map(Told::Counted),
        vec(name, 0..4).prop_map(Told::Names),
        divided_limits().prop_map(Told::Divided),
        vec(key_part(), 0..4).prop_map(Told::Parts),
    ]
}

fn frame() -> impl Strategy<Value = PeerFrame> {
    prop_oneof![
        message().prop_map(PeerFrame::Message),
        any::<u64>().prop_map(PeerFrame::Ping),
        any::<u64>().prop_map(PeerFrame::Pong),
        (any::<u64>(), inquiry()).prop_map(|(number, one)| PeerFrame::Inquiry(number, one)),
        (any::<u64>(), told()).prop_map(|(number, told)| PeerFrame::Told(number, told)),
    ]
}

proptest! {
    #[test]
    fn what_nodes_say_comes_back_as_it_was_said(frame in frame()) {
        let mut body = Vec::new();
        let kind = frame.encode(&mut body);
        prop_assert_eq!(PeerFrame::decode(kind, &body), Ok(frame));
        // Nothing of it is optional, and nothing comes behind it.
        for cut in 0..body.len() {
            prop_assert!(PeerFrame::decode(kind, &body[..cut]).is_err());
        }
        body.push(0);
        prop_assert!(PeerFrame::decode(kind, &body).is_err());
    }

    #[test]
    fn no_bytes_do_harm(kind in 0..20_u8, body in vec(any::<u8>(), 0..200)) {
        let _ = PeerFrame::decode(kind, &body);
        let _ = Ask::decode(kind, &body);
        let _ = Tell::decode(kind, &body);
    }
}

/// Found by fuzzing: there were many ways to say that nothing ever comes back.
#[test]
fn each_rate_is_said_in_one_way() {
    let said = |units, period_ns| {
        let mut out = Vec::new();
        out.put(units);
        out.put(period_ns);
        take_rate(&mut Take::new(&out))
    };
    assert_eq!(said(0, Rate::ZERO.period_ns()), Ok(Rate::ZERO));
    assert_eq!(said(0, 1), Err(WireError::Malformed("rate")));
    assert_eq!(said(7, 1_000_000_000), Ok(Rate::parse("7/s").expect("a rate")));
}

/// Members of one fleet are of neighbouring versions: what is spoken never changes, only what is
/// spoken beside it.
#[test]
fn a_report_and_a_snapshot_have_the_bytes_that_they_always_had() {
    let key = KeyId::from_bits(0x0102_0304_0506_0708, 0x090a_0b0c);
    let report = Report {
        key,
        limit: FleetLimitId(3),
        generation: 4,
        cell_epoch: CellEpoch { start: 5, cell: 300 },
        sequence: 6,
        taken: 1_000,
        returned: 7,
        refunded: 8,
        refund_news: 1,
        refund_since: Some(Stamp { start: 2, at: Instant::from_nanos(9) }),
        denied: 10,
        waiting: 11,
        base: 12,
    };
    let batch = ReportBatch {
        batch: 1,
        ring_epoch: RingEpoch::new(2),
        round_trip: Duration::from_nanos(200),
        reports: vec![report],
        demands: Vec::new(),
    };
    let mut body = Vec::new();
    let kind = PeerFrame::Message(Message::Reports(batch)).encode(&mut body);
    let expected = [
        1, 2, 200, 1, 1, // batch, ring, round trip, one report
        8, 7, 6, 5, 4, 3, 2, 1, 12, 11, 10, 9, // key
        3, 4, 5, 172, 2, 6, 232, 7, 7, 8, 1, 1, 2, 9, 10, 11, 12,
    ];
    assert_eq!((kind, &body[..]), (1, &expected[..]));
    let snapshot = Snapshot {
        key,
        cell_epoch: CellEpoch { start: 5, cell: 300 },
        version: 1,
        ack_sequence: 6,
        acked: 1_000,
        floor: 2,
        ceiling: 1_010,
        ttl: Duration::from_nanos(20),
        cadence: Duration::from_nanos(5),
        remaining: 3,
        free: 300,
        generation: 4,
        stamp: Instant::from_nanos(9),
    };
    let owner_epoch = OwnerEpoch { ring: RingEpoch::new(2), start: 7 };
    let batch = SnapshotBatch {
        answers: None,
        owner_epoch,
        snapshots: vec![snapshot],
        allotments: Vec::new(),
    };
    let mut body = Vec::new();
    let kind = PeerFrame::Message(Message::Snapshots(batch)).encode(&mut body);
    let expected = [
        0, 2, 7, 1, // no answer, ring, start, one snapshot
        8, 7, 6, 5, 4, 3, 2, 1, 12, 11, 10, 9, // key
        5, 172, 2, 1, 6, 232, 7, 2, 242, 7, 20, 5, 3, 172, 2, 4, 9,
    ];
    assert_eq!((kind, &body[..]), (2, &expected[..]));
}

#[test]
fn a_demand_and_an_allotment_have_the_bytes_that_they_always_had() {
    let key = KeyId::from_bits(0x0102_0304_0506_0708, 0x090A_0B0C);
    let (limit, epoch) = (FleetLimitId(3), CellEpoch { start: 5, cell: 300 });
    let demand = Demand {
        key,
        limit,
        generation: 4,
        stream: 1,
        epoch,
        sequence: 6,
        allowed: 1_000,
        denied: 2,
        elapsed: Duration::from_nanos(300),
        interval: Duration::from_nanos(7),
        holds: 1.5,
        is_last: true,
    };
    let batch = ReportBatch {
        batch: 1,
        ring_epoch: RingEpoch::new(2),
        round_trip: Duration::from_nanos(200),
        reports: Vec::new(),
        demands: vec![demand],
    };
    let mut body = Vec::new();
    let kind = PeerFrame::Message(Message::Reports(batch)).encode(&mut body);
    let expected = [
        1, 2, 200, 1, 0, 1, // batch, ring, round trip, no report, one demand
        8, 7, 6, 5, 4, 3, 2, 1, 12, 11, 10, 9, // key
        3, 4, 1, 5, 172, 2, 6, 232, 7, 2, 172, 2, 7, // up to the interval
        0, 0, 0, 0, 0, 0, 248, 63, 1, // 1.5, the last
    ];
    assert_eq!((kind, &body[..]), (11, &expected[..]));
    let given = Allotment {
        key,
        stream: 1,
        epoch,
        version: 2,
        ack_sequence: 6,
        generation: 4,
        rate: 1.5,
        weight: 0.5,
        used: 3.0,
        members: 9,
    };
    let owner_epoch = OwnerEpoch { ring: RingEpoch::new(2), start: 7 };
    let (answers, snapshots, allotments) = (Some(1), Vec::new(), vec![given]);
    let batch = SnapshotBatch { answers, owner_epoch, snapshots, allotments };
    let mut body = Vec::new();
    let kind = PeerFrame::Message(Message::Snapshots(batch)).encode(&mut body);
    let expected = [
        1, 2, 7, 0, 1, // answer, ring, start, no snapshot, one allotment
        8, 7, 6, 5, 4, 3, 2, 1, 12, 11, 10, 9, // key
        1, 5, 172, 2, 2, 6, 4, // up to the generation
        0, 0, 0, 0, 0, 0, 248, 63, // 1.5
        0, 0, 0, 0, 0, 0, 224, 63, // 0.5
        0, 0, 0, 0, 0, 0, 8, 64, 9, // 3, members
    ];
    assert_eq!((kind, &body[..]), (12, &expected[..]));
}

#[test]
fn a_heartbeat_and_its_acknowledgement_have_the_bytes_that_they_always_had() {
    let sent_at = Instant::from_nanos(9);
    let ask =
        Ask::Heartbeat { sent_at, ring_epoch: RingEpoch::new(2), revision: Revision::new(300) };
    let mut out = Vec::new();
    put_frame(&mut out, |out| ask.encode(out));
    put_frame(&mut out, |out| Tell::Heard { sent_at }.encode(out));
    assert_eq!(out, [5, 0, 0, 0, 2, 9, 2, 172, 2, 2, 0, 0, 0, 10, 9]);
}

#[test]
fn what_a_later_version_may_say_is_refused_by_its_kind() {
    assert_eq!(PeerFrame::decode(99, &[]), Err(WireError::UnknownKind { kind: 99 }));
    assert_eq!(Ask::decode(99, &[]), Err(WireError::UnknownKind { kind: 99 }));
    assert!(matches!(Tell::decode(99, &[]), Err(WireError::UnknownKind { kind: 99 })));
}
