//! The limiter of a member of a fleet: it spends what a writer, here a hand, permits, and no more.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate::{
    Arrival, Attempt, Clock, ClockHand, Counts, Credits, Decision, Descriptor, Drained, Entry,
    FleetLimitId, FleetRules, Instant, KeyId, LimitSpec, Limiter, Numbered, Options, Outcome,
    OverrideSpec, Part, Patience, Permit, Reason, Request, Retry, TableFull, Wait,
};

use crate::support::{api, ask, ask_of, limits, peek, refund, with_request};

const API: FleetLimitId = FleetLimitId(7);
const GAP: u64 = 2_500_000;

/// A limiter, and what a driver knows of its cells.
pub(crate) struct Member {
    pub(crate) limiter: Limiter,
    pub(crate) hand: ClockHand,
    revision: u64,
    pub(crate) names: BTreeMap<String, KeyId>,
    cells: BTreeMap<KeyId, u64>,
}

pub(crate) fn shared(spec: LimitSpec<'static>) -> LimitSpec<'static> {
    LimitSpec { guarantee: "eventual", ..spec }
}

fn numbered(specs: &[(u32, LimitSpec<'_>)], generation: u64) -> Vec<Numbered> {
    let numbered = |(number, spec): &(u32, LimitSpec<'_>)| Numbered {
        limit: limits(&[*spec]).remove(0),
        number: FleetLimitId(*number),
        generation,
    };
    specs.iter().map(numbered).collect()
}

impl Member {
    pub(crate) fn new(specs: &[(u32, LimitSpec<'_>)]) -> Self {
        Self::with(specs, |options| options).0
    }

    fn with(
        specs: &[(u32, LimitSpec<'_>)],
        change: impl FnOnce(Options) -> Options,
    ) -> (Self, FleetRules) {
        let (clock, hand) = Clock::manual();
        let options = Options { clock, keys_max: 1_000, fleet: true, ..Options::default() };
        let limiter = Limiter::new(vec![], change(options)).expect("sound options");
        let (names, cells) = (BTreeMap::new(), BTreeMap::new());
        let mut member = Self { limiter, hand, revision: 0, names, cells };
        let rules = member.put(specs);
        (member, rules)
    }

    fn put(&mut self, specs: &[(u32, LimitSpec<'_>)]) -> FleetRules {
        self.revision += 1;
        let limits = numbered(specs, self.revision);
        self.limiter.replace_numbered(limits, self.revision).expect("limits that agree")
    }

    pub(crate) fn credits(&self) -> &Credits {
        self.limiter.credits().expect("a member of a fleet")
    }

    pub(crate) fn now(&self) -> Instant {
        self.limiter.now()
    }

    pub(crate) fn drain(&mut self) -> Vec<Drained> {
        let mut all = Vec::new();
        self.credits().drain(self.now(), |drained| all.push(drained));
        for drained in &all {
            self.cells.entry(drained.key).or_insert(drained.taken);
        }
        for Arrival { key, parts, .. } in self.limiter.take_arrivals() {
            let text = |part: &Option<Box<[u8]>>| match part {
                Some(value) => String::from_utf8_lossy(value).into_owned(),
                None => "-".into(),
            };
            self.names.insert(parts.iter().map(text).collect::<Vec<_>>().join(","), key);
        }
        all
    }

    /// So many units more for so long, of so many that the fleet has left; others have the rest.
    pub(crate) fn permit(&mut self, name: &str, units: u64, millis: u64, remaining: u64) {
        self.permit_beside(0, name, units, millis, remaining);
    }

    /// The same, with some that nobody has.
    fn permit_beside(&mut self, free: u64, name: &str, units: u64, millis: u64, remaining: u64) {
        self.drain();
        let key = self.names[name];
        let deadline = self.now().saturating_add(Duration::from_millis(millis));
        let word_until = self.now().saturating_add(Duration::from_millis(20));
        let ceiling = self.cells[&key] + units;
        self.cells.insert(key, ceiling);
        let permit = Permit { floor: 0, ceiling, deadline, remaining, free, word_until };
        assert_eq!(self.credits().permit(key, &permit), Some(0));
    }

    pub(crate) fn attempt(&self, pairs: &[(&str, &str)], cost: u64, patience: Patience) -> Attempt {
        with_request(pairs, cost, |request| self.limiter.attempt(request, patience))
    }

    fn counts(&self, limit: usize) -> Counts {
        self.limiter.limits()[limit].counts
    }
}

pub(crate) fn reason(decision: &Decision) -> Option<Reason> {
    match decision.outcome() {
        Outcome::Allowed => None,
        Outcome::Denied(reason) => Some(reason),
    }
}

fn after(decision: &Decision, nanos: u64) -> Option<Retry> {
    Some(Retry::At(Instant::from_nanos(decision.now().as_nanos() + nanos)))
}

#[test]
fn a_key_is_stale_until_it_is_permitted_and_when_that_is_over() {
    let mut member = Member::new(&[(7, shared(api("10/s", 10)))]);
    let first = ask(&member.limiter, "acme", 3);
    assert_eq!((reason(&first), first.remaining()), (Some(Reason::Stale), Some(0)));
    assert_eq!((first.retry_at(), first.reset_at()), (after(&first, GAP), after(&first, GAP)));
    let drained = member.drain();
    assert_eq!((drained.len(), drained[0].limit, drained[0].refused), (1, API, 3));
    assert_eq!(drained[0].denied, 3);
    member.permit("acme", 4, 20, 9);
    let second = ask(&member.limiter, "acme", 3);
    assert_eq!((reason(&second), second.remaining(), second.burst()), (None, Some(6), Some(10)));
    assert!(second.is_estimated());
    assert_eq!(second.reset_at(), after(&second, 400_000_000));
    // The fleet has enough, but not here yet.
    let third = ask(&member.limiter, "acme", 3);
    assert_eq!((reason(&third), third.remaining()), (Some(Reason::OverLimit), Some(6)));
    assert_eq!(third.retry_at(), after(&third, GAP));
    // It has not, and its rate takes 0.1 s for each of the two units that it lacks.
    let fourth = ask(&member.limiter, "acme", 8);
    assert_eq!(fourth.retry_at(), after(&fourth, 200_000_000));
    let never = ask(&member.limiter, "acme", 11);
    assert_eq!(
        (reason(&never), never.retry_at()),
        (Some(Reason::CostExceedsBurst), Some(Retry::Never))
    );
    assert_eq!(member.drain()[0].refused, 8, "a cost above the burst is told to nobody");
    member.hand.advance(Duration::from_millis(20));
    assert_eq!(reason(&ask(&member.limiter, "acme", 1)), Some(Reason::Stale));
    let Counts { allowed, over_limit, stale, cost_exceeds_burst, .. } = member.counts(0);
    assert_eq!((allowed, over_limit, stale, cost_exceeds_burst), (1, 2, 2, 1));
    assert_eq!(member.limiter.keys_used(), 1);
}

#[test]
fn a_cost_of_nothing_and_a_look_pass_create_and_count_nothing() {
    let mut member = Member::new(&[(7, shared(api("10/s", 10)))]);
    assert!(ask(&member.limiter, "acme", 0).is_allowed());
    assert_eq!(reason(&peek(&member.limiter, "acme", 1)), Some(Reason::Stale));
    assert_eq!((member.drain(), member.limiter.keys_used()), (vec![], 0));
    assert_eq!(member.counts(0), Counts::default());
}

#[test]
fn limits_of_this_node_are_decided_as_ever() {
    let mut member = Member::new(&[
        (1, api("10/s", 2)),
        (2, shared(LimitSpec { matches: &[("other", "*")], name: "other", ..api("10/s", 10) })),
    ]);
    let asked: Vec<_> = (0..3).map(|_| ask(&member.limiter, "acme", 1)).collect();
    assert_eq!(asked[1].remaining(), Some(0));
    assert_eq!((reason(&asked[2]), asked[2].is_estimated()), (Some(Reason::OverLimit), false));
    assert_eq!(member.drain(), vec![]);
}

#[test]
fn a_request_spends_from_limits_of_both_kinds_or_from_none() {
    let local = LimitSpec { name: "local", ..api("1/s", 5) };
    let mut member = Member::new(&[(1, local), (7, shared(api("10/s", 10)))]);
    let left = |member: &Member| {
        let mut local = member.limiter.keyed("default", "local").expect("in force");
        local.check(&["acme".into()], 0).expect("one part").remaining()
    };
    // The fleet's limit has a cell, and is told, though nothing was charged.
    assert_eq!(reason(&ask(&member.limiter, "acme", 2)), Some(Reason::Stale));
    assert_eq!((left(&member), member.drain()[0].refused), (Some(5), 2));
    member.permit("acme", 9, 20, 10);
    assert!(ask(&member.limiter, "acme", 2).is_allowed());
    assert_eq!((left(&member), member.drain()[0].taken), (Some(3), 2));
    let denied = ask(&member.limiter, "acme", 4);
    assert_eq!(member.limiter.limit_name(denied.limit().expect("one")), Some("local".into()));
    assert_eq!((left(&member), member.drain()), (Some(3), vec![]), "nobody is to blame there");
    // Where a fleet's limit alone denies, nothing of the node's is spent.
    assert!(ask(&member.limiter, "acme", 3).is_allowed());
    member.hand.advance(Duration::from_secs(5));
    assert_eq!(reason(&ask(&member.limiter, "acme", 5)), Some(Reason::Stale));
    assert_eq!(left(&member), Some(5));
}

#[test]
fn who_can_wait_is_told_for_what_and_nothing_is_counted() {
    let local = LimitSpec { name: "local", ..api("1/s", 5) };
    let mut member = Member::new(&[(1, local), (7, shared(api("10/s", 10)))]);
    let acme = [("tenant", "acme")];
    let waits = member.attempt(&acme, 2, Patience::Word);
    let drained = member.drain();
    let key = member.names["acme"];
    let credit = |cost| Attempt::Waits(Wait::Credit { key, limit: API, cost });
    assert_eq!(waits, credit(2));
    assert_eq!((drained.len(), drained[0].denied, drained[0].refused), (1, 0, 0));
    assert_eq!(member.attempt(&acme, 2, Patience::Room), credit(2));
    assert_eq!((member.counts(0), member.counts(1)), Default::default());
    member.permit("acme", 3, 60_000, 10);
    let Attempt::Decided(passed) = member.attempt(&acme, 2, Patience::Word) else {
        panic!("it is permitted");
    };
    assert!(passed.is_allowed());
    // Known, and not enough: only who waits for room waits.
    assert_eq!(member.attempt(&acme, 3, Patience::Room), credit(3));
    let denied = member.attempt(&acme, 3, Patience::Word);
    assert!(matches!(denied, Attempt::Decided(decision) if !decision.is_allowed()));
    // One of the three is there, and the others may be had in a moment once two are free.
    member.permit_beside(1, "acme", 0, 60_000, 10);
    let denied = member.attempt(&acme, 3, Patience::Word);
    assert!(matches!(denied, Attempt::Decided(decision) if !decision.is_allowed()));
    member.permit_beside(2, "acme", 0, 60_000, 10);
    assert_eq!(member.attempt(&acme, 3, Patience::Word), credit(3));
    // What was said long ago says nothing of now: some may have leaked.
    member.permit("acme", 0, 60_000, 10);
    member.hand.advance(Duration::from_millis(19));
    let denied = member.attempt(&acme, 3, Patience::Word);
    assert!(matches!(denied, Attempt::Decided(decision) if !decision.is_allowed()));
    member.hand.advance(Duration::from_millis(1));
    assert_eq!(member.attempt(&acme, 3, Patience::Word), credit(3));
    // Above the burst nobody waits.
    for patience in [Patience::Word, Patience::Room] {
        let denied = member.attempt(&acme, 11, patience);
        assert!(matches!(denied, Attempt::Decided(decision)
            if reason(&decision) == Some(Reason::CostExceedsBurst)));
    }
    // The node's own limit has 3 of 5 left; in 2 s all.
    member.permit("acme", 20, 60_000, 10);
    let until = Instant::from_nanos(2_000_000_000);
    assert_eq!(member.attempt(&acme, 5, Patience::Room), Attempt::Waits(Wait::Until(until)));
    member.hand.advance(Duration::from_secs(2));
    assert!(matches!(member.attempt(&acme, 5, Patience::Room), Attempt::Decided(decision)
        if decision.is_allowed()));
    let Counts { allowed, over_limit, .. } = member.counts(1);
    assert_eq!((allowed, over_limit), (2, 3));
}

#[test]
fn who_waited_in_vain_is_denied_and_counted_for_that_reason() {
    let mut member = Member::new(&[(7, shared(api("10/s", 10)))]);
    let refuse = |member: &Member, reason| {
        with_request(&[("tenant", "acme")], 2, |request| member.limiter.refuse(request, reason))
    };
    let _ = member.attempt(&[("tenant", "acme")], 2, Patience::Room);
    member.drain();
    let full = refuse(&member, Reason::QueueFull);
    assert_eq!(
        (reason(&full), full.retry_at()),
        (Some(Reason::QueueFull), after(&full, 200_000_000))
    );
    member.permit("acme", 1, 20, 9);
    let late = refuse(&member, Reason::Deadline);
    assert_eq!((reason(&late), late.retry_at()), (Some(Reason::Deadline), after(&late, GAP)));
    let Counts { queue_full, deadline, allowed, .. } = member.counts(0);
    assert_eq!((queue_full, deadline, allowed), (1, 1, 0));
    assert_eq!(member.drain(), vec![]);
}

const OWN: &[OverrideSpec<'_>] = &[
    OverrideSpec { key: &[("tenant", "big")], rate: "100/s", ..OverrideSpec::DEFAULT },
    OverrideSpec { key: &[("tenant", "free")], rate: "unlimited", ..OverrideSpec::DEFAULT },
    OverrideSpec {
        key: &[("tenant", "none")],
        rate: "zero",
        burst: Some(0),
        ..OverrideSpec::DEFAULT
    },
    OverrideSpec {
        key: &[("tenant", "once")],
        rate: "zero",
        burst: Some(3),
        ..OverrideSpec::DEFAULT
    },
];

#[test]
fn a_key_with_an_allowance_of_its_own_is_judged_by_it() {
    let spec = shared(LimitSpec { overrides: OWN, ..api("10/s", 10) });
    let (mut member, rules) = Member::with(&[(7, spec)], |options| options);
    assert_eq!(reason(&ask(&member.limiter, "big", 100)), Some(Reason::Stale));
    assert_eq!(reason(&ask(&member.limiter, "acme", 100)), Some(Reason::CostExceedsBurst));
    assert!(ask(&member.limiter, "free", u64::MAX).is_allowed());
    let none = ask(&member.limiter, "none", 1);
    assert_eq!((reason(&none), none.retry_at()), (Some(Reason::OverLimit), Some(Retry::Never)));
    assert_eq!(reason(&ask(&member.limiter, "once", 2)), Some(Reason::Stale));
    member.permit("once", 3, 20, 3);
    assert!(ask(&member.limiter, "once", 2).is_allowed());
    let spent = ask(&member.limiter, "once", 2);
    assert_eq!((reason(&spent), spent.retry_at()), (Some(Reason::OverLimit), Some(Retry::Never)));
    let waits = member.attempt(&[("tenant", "once")], 2, Patience::Room);
    assert!(matches!(waits, Attempt::Decided(_)), "it would wait for ever");
    // What the node is told of them.
    let view = rules.limits[&API];
    assert_eq!((view.burst, view.local_cap, view.generation), (10, 1, 1));
    assert_eq!((rules.limits.len(), rules.overrides.len()), (1, 3));
    let of = |name: &str| rules.limit(member.names[name], API).map(|view| view.burst);
    assert_eq!((of("big"), of("once")), (Some(100), Some(3)));
    let mut keyed = member.limiter.keyed("default", "api").expect("in force");
    assert!(keyed.check(&["free".into()], 1).is_ok_and(|decision| decision.is_allowed()));
    assert_eq!(keyed.check(&["big".into()], 1).expect("a part").burst(), Some(100));
}

#[test]
fn limits_come_with_numbers_or_not_at_all() {
    let (clock, _) = Clock::manual();
    let options = Options { clock, fleet: true, ..Options::default() };
    let error = Limiter::new(limits(&[api("1/s", 1)]), options.clone()).expect_err("no numbers");
    assert_eq!((error.field(), error.value()), ("fleet", "true"));
    let alone = Limiter::new(vec![], Options { fleet: false, ..options }).expect("sound");
    let error = alone.replace_numbered(vec![], 1).expect_err("no fleet");
    assert_eq!((error.field(), error.value()), ("fleet", "false"));
    assert!(alone.credits().is_none());
    let mut member = Member::new(&[(7, shared(api("10/s", 10)))]);
    let other = shared(LimitSpec { name: "other", ..api("1/s", 1) });
    let twice = numbered(&[(7, shared(api("10/s", 10))), (7, other)], 2);
    let error = member.limiter.replace_numbered(twice, 2).expect_err("one number");
    assert_eq!((error.limit(), error.field(), error.value()), ("other", "number", "7"));
    // A revision that is not newer changes nothing.
    let older = numbered(&[(8, shared(api("1/s", 1)))], 1);
    let rules = member.limiter.replace_numbered(older, 1).expect("no news");
    assert_eq!((rules.revision, rules.limits.keys().next()), (1, Some(&API)));
    let rules = member.put(&[(8, shared(api("1/s", 1)))]);
    assert_eq!((rules.revision, member.limiter.revision()), (2, 2));
    assert_eq!(rules.limits.keys().next(), Some(&FleetLimitId(8)));
}

#[test]
fn a_limit_that_left_and_came_back_is_told_by_its_new_number() {
    let mut member = Member::new(&[(7, shared(api("10/s", 10)))]);
    assert_eq!(reason(&ask(&member.limiter, "acme", 1)), Some(Reason::Stale));
    member.permit("acme", 5, 20, 10);
    member.put(&[]);
    assert!(ask(&member.limiter, "acme", 100).limit().is_none(), "no limit, no cell");
    member.put(&[(9, shared(api("10/s", 10)))]);
    member.hand.advance(Duration::from_millis(20));
    assert_eq!(reason(&ask(&member.limiter, "acme", 1)), Some(Reason::Stale));
    let drained = member.drain();
    assert_eq!((drained.len(), drained[0].limit), (1, FleetLimitId(9)));
}

#[test]
fn a_limit_that_becomes_the_fleets_starts_without_what_it_had_here() {
    let mut member = Member::new(&[(7, api("10/s", 10))]);
    assert!(ask(&member.limiter, "acme", 4).is_allowed());
    assert_eq!(member.limiter.keys_used(), 2);
    member.put(&[(7, shared(LimitSpec { overrides: OWN, ..api("10/s", 10) }))]);
    assert_eq!(member.limiter.keys_used(), 0);
    assert_eq!(reason(&ask(&member.limiter, "acme", 4)), Some(Reason::Stale));
    member.put(&[(7, LimitSpec { overrides: OWN, ..api("10/s", 10) })]);
    assert_eq!(ask(&member.limiter, "acme", 4).remaining(), Some(6));
}

#[test]
fn names_are_told_once_for_each_cell_on_every_way() {
    let by = LimitSpec { key: &["tenant", "user"], ..api("10/s", 10) };
    let mut member = Member::new(&[(7, shared(by))]);
    let _ = ask_of(&member.limiter, &[("tenant", "a"), ("user", "1")], 1);
    let _ = ask_of(&member.limiter, &[("tenant", "a"), ("user", "1")], 1);
    let mut keyed = member.limiter.keyed("default", "api").expect("in force");
    for _ in 0..2 {
        let _ = keyed.check(&["b".into(), Part::Undeclared], 1);
    }
    let entries = [Entry::new("user", "3"), Entry::new("tenant", "c")];
    let descriptor = Descriptor::new(&entries).expect("sound");
    let mut handle = member.limiter.handle("default", &descriptor);
    let _ = (handle.check(1), handle.check(1));
    let _ = member.attempt(&[("tenant", "d")], 1, Patience::Word);
    let descriptors = [descriptor, descriptor];
    let _ = member.limiter.check_each(&Request::new(&descriptors), &mut Vec::new());
    member.drain();
    let names: Vec<&String> = member.names.keys().collect();
    assert_eq!(names, ["a,1", "b,-", "c,3", "d,-"]);
    assert_eq!((member.limiter.take_arrivals(), member.limiter.arrivals_dropped()), (vec![], 0));
}

#[test]
fn what_was_not_used_goes_to_the_owner_and_what_was_used_beyond_is_taken_or_owed() {
    let mut member = Member::new(&[(7, shared(api("10/s", 10)))]);
    let reserve = |member: &Member, cost| {
        with_request(&[("tenant", "acme")], cost, |request| member.limiter.reserve(request))
    };
    assert!(reserve(&member, 5).1.is_none());
    member.permit("acme", 8, 1_000, 10);
    let (decision, reservation) = reserve(&member, 5);
    assert!(decision.is_allowed());
    member.hand.advance(Duration::from_millis(100));
    let owed = member.limiter.settle(reservation.expect("allowed"), &[2]).expect("one cost");
    assert_eq!(owed, vec![]);
    let (units, charged_at) = member.drain()[0].refund.expect("three came back");
    assert_eq!((units, charged_at), (3, Instant::ZERO));
    let (_, reservation) = reserve(&member, 1);
    let owed = member.limiter.settle(reservation.expect("allowed"), &[6]).expect("one cost");
    // Two of the five were permitted.
    let key = member.names["acme"];
    assert_eq!((owed.len(), owed[0].key, owed[0].limit, owed[0].cost), (1, key, API, 3));
    let (_, none) = reserve(&member, 1);
    assert!(none.is_none());
    refund(&member.limiter, "acme", 2);
    let drained = member.drain();
    assert_eq!((drained[0].taken, drained[0].refund.map(|(units, _)| units)), (8, Some(2)));
    with_request(&[("tenant", "acme")], 1, |request| member.limiter.reset(request));
    assert_eq!(member.drain(), vec![]);
}

#[test]
fn keys_that_find_no_room_share_the_limits_cell() {
    let specs = [(7, shared(api("10/s", 10)))];
    let (member, _) = Member::with(&specs, |options| Options { keys_max: 1, ..options });
    for tenant in ["a", "b", "c"] {
        assert_eq!(reason(&ask(&member.limiter, tenant, 1)), Some(Reason::Stale), "{tenant}");
    }
    let mut drained = Vec::new();
    member.credits().drain(member.now(), |one| drained.push(one));
    let mut refused: Vec<u64> = drained.iter().map(|one| one.denied).collect();
    refused.sort_unstable();
    assert_eq!((refused, member.counts(0).overflowed), (vec![1, 2], 2));
    let arrivals = member.limiter.take_arrivals();
    assert_eq!((arrivals.len(), arrivals[1].parts.len()), (2, 0), "it is nobody's alone");
    let wait = member.attempt(&[("tenant", "d")], 1, Patience::Room);
    let key = arrivals[1].key;
    assert_eq!(wait, Attempt::Waits(Wait::Credit { key, limit: API, cost: 1 }));
    let deny = |options| Options { keys_max: 1, table_full: TableFull::Deny, ..options };
    let (member, _) = Member::with(&specs, deny);
    let asked = ["a", "b"].map(|tenant| reason(&ask(&member.limiter, tenant, 1)));
    assert_eq!(asked, [Some(Reason::Stale), Some(Reason::KeyTableFull)]);
}
