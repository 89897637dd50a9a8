//! `share` through the limiter: one node decides by its part, and several limits by all or none.

use std::time::Duration;

use tollgate::{
    Clock, ClockHand, Descriptor, DrainedShare, Entry, FleetLimitId, Given, Limit, LimitSpec,
    Limiter, Numbered, Options, Outcome, OverrideSpec, Reason, Request, Retry,
};

const SHARE: LimitSpec<'static> = LimitSpec {
    name: "api",
    key: &["tenant"],
    rate: "100/s",
    guarantee: "share",
    ..LimitSpec::DEFAULT
};

struct Node {
    limiter: Limiter,
    hand: ClockHand,
}

impl Node {
    fn new(limits: &[LimitSpec<'_>], nodes: u64) -> Self {
        let (clock, hand) = Clock::manual();
        let options = Options { clock, fleet: true, share: true, ..Options::default() };
        let node = Self { limiter: Limiter::new(Vec::new(), options).expect("sound"), hand };
        node.limiter.shares().expect("it divides").set_members(nodes);
        node.put(limits, 1);
        node
    }

    fn put(&self, limits: &[LimitSpec<'_>], revision: u64) {
        let numbered = |(number, spec)| Numbered {
            limit: Limit::parse(spec).expect("sound"),
            number: FleetLimitId(number),
            generation: revision,
        };
        let limits = (1..).zip(limits).map(numbered).collect();
        self.limiter.replace_numbered(limits, revision).expect("sound");
    }

    fn check(&self, tenant: &str, cost: u64) -> tollgate::Decision {
        let entries = [Entry::new("tenant", tenant)];
        let descriptors = [Descriptor::new(&entries).expect("sound").with_cost(cost)];
        self.limiter.check(&Request::new(&descriptors))
    }

    /// How many of many requests pass.
    fn admits(&self, tenant: &str) -> usize {
        (0..10_000).take_while(|_| self.check(tenant, 1).is_allowed()).count()
    }

    fn drain(&self) -> Vec<DrainedShare> {
        let mut drained = Vec::new();
        self.limiter.shares().expect("it divides").drain(|one| drained.push(one));
        drained
    }

    fn give(&self, key: tollgate::KeyId, global: Option<(f64, u64)>, is_global_sound: bool) {
        let given = Given { local: 25.0, local_burst: 25, global, is_global_sound };
        let shares = self.limiter.shares().expect("it divides");
        shares.give(key, &given, self.limiter.now());
    }
}

#[test]
fn a_node_alone_keeps_the_limit_exactly() {
    let (clock, _hand) = Clock::manual();
    let limits = vec![Limit::parse(&SHARE).expect("sound")];
    let limiter = Limiter::new(limits, Options { clock, ..Options::default() }).expect("sound");
    assert!(limiter.shares().is_none());
    let entries = [Entry::new("tenant", "acme")];
    let descriptors = [Descriptor::new(&entries).expect("sound")];
    let request = Request::new(&descriptors);
    assert_eq!((0..1_000).take_while(|_| limiter.check(&request).is_allowed()).count(), 100);
}

#[test]
fn a_node_that_has_heard_nothing_admits_an_equal_part() {
    let node = Node::new(&[SHARE], 4);
    assert_eq!((node.admits("a"), node.admits("b")), (25, 25));
    node.hand.advance(Duration::from_millis(1_001));
    assert_eq!(node.admits("a"), 25);
    let denied = node.check("a", 1);
    assert_eq!(denied.outcome(), Outcome::Denied(Reason::OverLimit));
    assert!(denied.is_estimated());
    // A quarter of 100/s brings a unit in 40 ms.
    let Some(Retry::At(at)) = denied.retry_at() else { panic!("it will pass") };
    let wait = at.saturating_since(denied.now());
    assert!((Duration::from_millis(38)..=Duration::from_millis(42)).contains(&wait), "{wait:?}");
    assert_eq!((denied.remaining(), denied.burst()), (Some(0), Some(25)));
}

#[test]
fn what_a_node_is_given_is_what_it_admits_and_what_is_left_is_said() {
    let node = Node::new(&[SHARE], 4);
    assert!(node.check("a", 5).is_allowed());
    let [drained] = node.drain()[..] else { panic!("one key") };
    assert_eq!((drained.allowed, drained.limit), (5, FleetLimitId(1)));
    node.give(drained.key, Some((80.0, 80)), true);
    let decision = node.check("a", 20);
    assert_eq!((decision.remaining(), decision.burst()), (Some(60), Some(80)));
    assert_eq!(node.admits("a"), 60);
    node.hand.advance(Duration::from_millis(501));
    assert_eq!(node.admits("a"), 40);
    // A cost above the limit's burst never passes; one above the node's does when it has rested.
    assert_eq!(node.check("a", 101).retry_at(), Some(Retry::Never));
    assert!(!node.check("a", 90).is_allowed());
    node.hand.advance(Duration::from_millis(1_100));
    assert!(node.check("a", 90).is_allowed());
}

#[test]
fn all_or_none_of_several_limits_and_what_is_taken_back_was_not_counted() {
    let all = LimitSpec { name: "all", key: &[], rate: "10/s", guarantee: "local", ..SHARE };
    let node = Node::new(&[SHARE, all], 1);
    assert_eq!(node.admits("a"), 10);
    let [drained] = node.drain()[..] else { panic!("one key") };
    // The last was denied by the other limit, and is none of this one's.
    assert_eq!((drained.allowed, drained.denied), (10, 0));
    node.hand.advance(Duration::from_secs(1));
    let entries = [Entry::new("tenant", "a")];
    let descriptors = [Descriptor::new(&entries).expect("sound").with_cost(4)];
    let (_, held) = node.limiter.reserve(&Request::new(&descriptors));
    node.limiter.cancel(held.expect("allowed"));
    let [drained] = node.drain()[..] else { panic!("one key") };
    assert_eq!((drained.allowed, drained.denied), (10, 0));
}

#[test]
fn a_mode_is_changed_live_and_keeps_what_was_used() {
    let node = Node::new(&[SHARE], 4);
    node.check("a", 1);
    let key = node.drain()[0].key;
    node.give(key, Some((80.0, 80)), true);
    node.hand.advance(Duration::from_secs(2));
    let mode = |mode| LimitSpec { mode: Some(mode), ..SHARE };
    node.put(&[mode("local-shadow-global")], 2);
    assert_eq!(node.admits("a"), 25);
    // What was admitted by the one was spent from the other, and so was what was denied.
    node.put(&[mode("global-shadow-local")], 3);
    assert_eq!(node.admits("a"), 80 - 26);
    node.put(&[mode("disabled")], 4);
    assert_eq!(node.admits("a"), 0);
    let [drained] = node.drain()[..] else { panic!("one key") };
    assert_eq!((drained.other_denied, drained.other_allowed), (80 - 26, 1));
}

#[test]
fn keys_have_allowances_of_their_own_and_unlimited_ones_no_cell() {
    let acme = OverrideSpec { key: &[("tenant", "acme")], rate: "400/s", ..OverrideSpec::DEFAULT };
    let free = OverrideSpec { key: &[("tenant", "free")], rate: "unlimited", ..acme };
    let closed = OverrideSpec { key: &[("tenant", "shut")], rate: "zero", ..acme };
    let node = Node::new(&[LimitSpec { overrides: &[acme, free, closed], ..SHARE }], 4);
    assert_eq!((node.admits("acme"), node.admits("free"), node.admits("shut")), (100, 10_000, 0));
    assert_eq!(node.limiter.shares().expect("it divides").used(), 1);
    let rules = node.limiter.fleet_rules();
    assert_eq!((rules.shares.len(), rules.share_overrides.len()), (1, 2));
}

#[test]
fn a_key_that_finds_no_room_shares_one_cell_with_others() {
    let (clock, _hand) = Clock::manual();
    let options = Options { clock, fleet: true, share: true, keys_max: 1, ..Options::default() };
    let limiter = Limiter::new(Vec::new(), options).expect("sound");
    let node = Node { limiter, hand: _hand };
    node.put(&[SHARE], 1);
    assert_eq!((node.admits("a"), node.admits("b"), node.admits("c")), (100, 100, 0));
}
