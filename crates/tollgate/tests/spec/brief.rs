//! A key whose callers wait for a moment only: what they leave is there for those who come next.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tollgate::coordinator::RingChange;
use tollgate::{
    Drained, FleetLimitId, FleetRules, Input, Instant, KeyId, Member, Node, NodeId, NodeOptions,
    Output, Permit, Rate, Ring, RingEpoch, Usage, ViewLimit,
};

/// The first request of a key passed and the second was denied, with the whole burst left: what
/// else its owner had permitted went back at once, as if the first one's caller had stood in a
/// queue.
#[test]
fn what_is_permitted_beside_a_brief_wait_is_kept() {
    let mut fleet = OfOne::new();
    fleet.use_first(true);
    let kept = fleet.run(60);
    assert!(kept.ceiling > 1 && kept.floor <= 1, "{kept:?}");
    assert!(kept.deadline > at(60), "{kept:?}");
}

#[test]
fn what_is_left_of_a_long_wait_goes_back_and_may_come_again() {
    let mut fleet = OfOne::new();
    fleet.use_first(false);
    let returned = fleet.run(60);
    assert_eq!(returned.floor, returned.ceiling);
    // Whoever comes next is not denied for that.
    assert_eq!((returned.remaining, returned.free), (50, 50));
}

/// A fleet of one node, and the cell of one key.
struct OfOne {
    node: Node,
    millis: u64,
    permit: Permit,
    returned: u64,
}

impl OfOne {
    fn new() -> Self {
        let node = Node::new(ME, NodeOptions::default());
        let deadline = Instant::ZERO;
        let word_until = deadline;
        let permit = Permit { floor: 0, ceiling: 0, deadline, remaining: 0, free: 0, word_until };
        let mut fleet = Self { node, millis: 1, permit, returned: 0 };
        let member = Member { node: ME, weight: 1 };
        let ring = Arc::new(Ring::new(RingEpoch::new(1), [member]).expect("one member"));
        let previous = Arc::new(Ring::new(RingEpoch::ZERO, []).expect("no member"));
        let change = RingChange { ring, previous, lost: [].into() };
        fleet.tell(Input::Lease(Instant::MAX));
        fleet.tell(Input::Ring { change, age: Duration::ZERO, start: 1, is_restart: false });
        let rate = Rate::parse("1000/s").expect("a rate");
        let limits =
            BTreeMap::from([(LIMIT, ViewLimit::new(rate, 50, 1, Duration::from_millis(5)))]);
        fleet.tell(Input::Rules(FleetRules { revision: 1, limits, ..FleetRules::default() }));
        fleet
    }

    /// Somebody waits for a unit, and takes it when it is permitted.
    fn use_first(&mut self, is_brief: bool) {
        self.tell_usage(0, 1, is_brief);
        while self.permit.ceiling == 0 {
            self.pass();
        }
        self.tell_usage(1, 0, is_brief);
    }

    /// Goes on until then, and returns what is permitted at last.
    fn run(&mut self, until: u64) -> Permit {
        while self.millis < until {
            self.pass();
        }
        self.permit
    }

    fn pass(&mut self) {
        self.millis += 1;
        self.tell(Input::Timeout);
        if self.returned > 0 {
            self.tell_usage(self.permit.floor, 0, false);
        }
    }

    fn tell_usage(&mut self, taken: u64, waiting: u64, is_brief: bool) {
        let key = KeyId::from_bits(7, 7);
        let base = (taken == 0).then_some(0);
        let drained =
            Drained { key, limit: LIMIT, base, taken, denied: 0, refused: 0, refund: None };
        let returned = std::mem::take(&mut self.returned);
        let usage = Usage { limit: LIMIT, drained, returned, waiting, is_brief, refused: 0 };
        self.tell(Input::Usage(usage));
    }

    fn tell(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.node.handle(input, at(self.millis));
            loop {
                match self.node.poll() {
                    Output::Send { message, .. } => {
                        inputs.push_back(Input::Message { from: ME, message });
                    }
                    Output::Permit { permit, .. } => {
                        self.returned += permit.floor.saturating_sub(self.permit.floor.max(1));
                        self.permit = permit;
                    }
                    Output::Timeout(_) => break,
                    _ => {}
                }
            }
        }
    }
}

fn at(millis: u64) -> Instant {
    Instant::from_nanos(1_000_000_000 + millis * 1_000_000)
}

const ME: NodeId = NodeId::new(1);
const LIMIT: FleetLimitId = FleetLimitId(0);
