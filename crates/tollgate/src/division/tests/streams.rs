//! Members that report when they tell: streams, which an owner hears of seldom.

use super::*;

/// Of two Envoys one had 35 of 100 a second, was told of 19 and then of 18, which crossed its
/// report that it had 19: that was taken for no word of having given up 35. The other one, which
/// was to have 82, had 65 until the first reported again, 5 s later.
#[test]
fn a_report_that_crosses_another_rate_confirms_what_was_told_before() {
    let mut fleet = Fleet::new(2);
    let mut had = [0.0, 0.0];
    for now in [0, 100, 200, 300] {
        had[0] = fleet.say(0, 70, had[0], now);
        had[1] = fleet.say(1, 130, had[1], now);
    }
    assert_eq!(had.map(f64::round), [35.0, 65.0]);
    had[0] = fleet.say(0, 30, had[0], 1_300);
    assert_eq!(had[0].round(), 19.0);
    assert_eq!(fleet.say(1, 150, had[1], 1_300).round(), 65.0);
    let _ = fleet.pushed(1_300);
    assert_eq!(fleet.pushed(1_400).map(f64::round), Some(18.0));
    let _ = fleet.say(0, 30, had[0], 1_401);
    assert_eq!(fleet.pushed(1_401).map(f64::round), Some(82.0));
}

/// An Envoy that came second to a daemon that had just begun was denied all for 5 s, until it
/// reported again: what the first one had too much was not looked at when others had been heard.
#[test]
fn a_new_owner_divides_when_it_has_heard_of_all_whether_they_report_again_or_not() {
    let mut fleet = Fleet::new(2);
    // They are streams of one node.
    fleet.nodes = 1;
    fleet.owner.begin(at(100));
    assert_eq!(fleet.say(0, 200, 0.0, 200).round(), 100.0);
    assert!(fleet.say(1, 200, 0.0, 210) < 1.0);
    assert_eq!(fleet.owner.timeout(), Some(at(1_200)));
    assert_eq!(fleet.pushed(1_199), None);
    let less = fleet.pushed(1_200).expect("told");
    assert_eq!(less.round(), 50.0);
    fleet.say(0, 200, less, 1_210);
    assert_eq!(fleet.pushed(1_210).map(f64::round), Some(50.0));
}

/// The first one was told of 100 by the answer to its report that it had nothing, and then of 50:
/// it compared that with nothing, and did not say that it had given anything up.
#[test]
fn a_stream_confirms_less_than_it_was_given_since_it_reported() {
    let epoch = CellEpoch { start: 1, cell: 9 };
    let mut stream = Sharer::new(KEY, LIMIT, (7, epoch), RING, &options(), at(0));
    let totals = Collected { allowed: 1, denied: 0 };
    stream.handle_usage(LIMIT, totals, Some(5 * options().interval), at(0));
    let first = stream.report(1, &options(), at(0), at(0));
    assert_eq!(first.holds, 0.0);
    let mut adopt = |rate, version| {
        let given = Allotment {
            key: KEY,
            stream: 7,
            epoch,
            version,
            ack_sequence: 1,
            generation: 1,
            rate,
            weight: 1.0,
            used: 1.0,
            members: 2,
        };
        stream.handle_allotment(&given, OWNER, &limit("100/s")).expect("sane");
        stream.due(&options(), true, at(1_000))
    };
    assert!(adopt(100.0, 1) > at(1_000));
    assert!(adopt(95.0, 2) > at(1_000));
    assert!(adopt(50.0, 3) <= at(1_000));
    assert_eq!(stream.report(1, &options(), at(1_000), at(1_000)).holds, 50.0);
}

/// An Envoy that came back to a daemon that was started again said what it had counted in 5 s, and
/// said it again when it was told of less: in no time, which was taken for a tenth of a second. It
/// had 98 of 100 a second until it reported again, and the other Envoy 2.
#[test]
fn a_first_report_that_is_told_again_is_of_no_shorter_time() {
    let mut fleet = Fleet::new(2);
    fleet.nodes = 1;
    let first = fleet.members[0].sharer.report(1, &options(), at(1), at(1));
    let interval = 5 * options().interval;
    let first = Demand { allowed: 250, elapsed: std::time::Duration::ZERO, interval, ..first };
    assert_eq!(fleet.tell(0, &first, 1).expect("room").expect("an answer").rate.round(), 100.0);
    let second = Demand { allowed: 750, ..first };
    assert!(fleet.tell(1, &second, 2).expect("room").expect("an answer").rate < 1.0);
    let less = fleet.pushed(102).expect("told");
    assert_eq!(less.round(), 25.0);
    let again = Demand { sequence: first.sequence + 1, holds: less, ..first };
    let given = fleet.tell(0, &again, 202).expect("room").expect("an answer").rate;
    assert_eq!(given.round(), 25.0);
    assert_eq!(fleet.pushed(202).map(f64::round), Some(75.0));
}

/// Envoy reports each 5 s, with what it counted in that time.
#[test]
fn a_stream_is_reported_when_it_tells_and_what_it_told_is_told_again_to_a_new_owner() {
    let epoch = CellEpoch { start: 1, cell: 9 };
    let mut stream = Sharer::new(KEY, LIMIT, (7, epoch), RING, &options(), at(0));
    let interval = std::time::Duration::from_secs(5);
    let mut totals = Collected { allowed: 1, denied: 0 };
    let report = |stream: &mut Sharer, now| {
        assert!(stream.due(&options(), true, at(now)) <= at(now));
        assert_eq!(stream.act(&options(), true, at(now)), Act::Report);
        stream.report(1, &options(), at(now), at(now))
    };
    stream.handle_usage(LIMIT, totals, Some(interval), at(0));
    let first = report(&mut stream, 0);
    assert_eq!((first.allowed, first.elapsed, first.stream), (1, std::time::Duration::ZERO, 7));
    // Nothing is due before it tells, or an answer is missed.
    assert!(stream.due(&options(), true, at(200)) >= at(7_500));
    totals = Collected { allowed: 251, denied: 500 };
    stream.handle_usage(LIMIT, totals, Some(interval), at(5_000));
    let second = report(&mut stream, 5_000);
    assert_eq!((second.allowed, second.denied), (250, 500));
    assert_eq!((second.elapsed, second.interval), (interval, interval));
    stream.handle_ring(RingEpoch::new(2), 1);
    let again = report(&mut stream, 6_000);
    assert_eq!((again.allowed, again.denied, again.elapsed), (250, 500, interval));
}
