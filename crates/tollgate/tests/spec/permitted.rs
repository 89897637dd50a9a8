//! What passes in a member of a fleet, on every way of asking, is what plain sums say.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tollgate::{Attempt, Charged, Descriptor, Entry, KeyId, LimitSpec, Patience, Reason};

use crate::fleet::{Member, reason, shared};
use crate::support::{api, ask, cases, peek, with_request};

/// One key as plain sums.
#[derive(Debug, Default)]
struct Model {
    is_met: bool,
    left: u64,
    deadline: u64,
    permitted: u64,
    admitted: u64,
}

impl Model {
    fn ask(&mut self, cost: u64, now: u64) -> Option<Reason> {
        if cost > 10 {
            return Some(Reason::CostExceedsBurst);
        }
        if now >= self.deadline {
            return Some(Reason::Stale);
        }
        if cost > self.left {
            return Some(Reason::OverLimit);
        }
        (self.left, self.admitted) = (self.left - cost, self.admitted + cost);
        None
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// Who asks, what for, and in which of the ways.
    Ask(usize, u64, u8),
    /// Whom, how much, for how long.
    Permit(usize, u64, u64),
    Drain,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3_usize, 1..13_u64, 0..6_u8).prop_map(|(w, cost, way)| Step::Ask(w, cost, way)),
        3 => (0..3_usize, 0..20_u64, 1..30_u64).prop_map(|(w, u, ms)| Step::Permit(w, u, ms)),
        1 => Just(Step::Drain),
        2 => (1..15_u64).prop_map(Step::Wait),
    ]
}

fn ask_by(member: &Member, tenant: &str, cost: u64, way: u8) -> Option<Reason> {
    let pairs = [("tenant", tenant)];
    let entries = [Entry::new("tenant", tenant)];
    let descriptor = Descriptor::new(&entries).expect("sound");
    match way {
        0 => reason(&ask(&member.limiter, tenant, cost)),
        1 => {
            let mut keyed = member.limiter.keyed("default", "api").expect("in force");
            reason(&keyed.check(&[tenant.into()], cost).expect("one part"))
        }
        2 => {
            let mut handle = member.limiter.handle("default", &descriptor);
            // The second time it knows the way; it asked nothing the first time.
            let _ = handle.check(0);
            reason(&handle.check(cost))
        }
        3 | 4 => {
            let patience = if way == 3 { Patience::Word } else { Patience::Room };
            match member.attempt(&pairs, cost, patience) {
                Attempt::Decided(decision) => reason(&decision),
                Attempt::Waits(_) => {
                    // It spent nothing, and would be denied.
                    let looked = peek(&member.limiter, tenant, cost);
                    assert!(!looked.is_allowed());
                    reason(&looked)
                }
            }
        }
        _ => reason(&with_request(&pairs, cost, |request| member.limiter.reserve(request).0)),
    }
}

proptest! {
    #![proptest_config(cases(256))]

    /// All ways of asking agree with plain sums, and what passes is never above what was permitted.
    #[test]
    fn no_more_passes_than_was_permitted_on_any_way(
        steps in prop::collection::vec(step(), 0..80),
    ) {
        const NAMES: [&str; 3] = ["a", "b", "c"];
        let mut member = Member::new(&[(7, shared(api("10/s", 10)))]);
        let mut models: [Model; 3] = Default::default();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Ask(who, cost, way) => {
                    let expected = models[who].ask(cost, now);
                    models[who].is_met |= cost <= 10;
                    prop_assert_eq!(ask_by(&member, NAMES[who], cost, way), expected, "{}", way);
                }
                Step::Permit(who, units, millis) => {
                    let model = &mut models[who];
                    if model.is_met {
                        member.permit(NAMES[who], units, millis, 10);
                        model.left += units;
                        model.permitted += units;
                        model.deadline = model.deadline.max(now + millis);
                    }
                }
                Step::Drain => drop(member.drain()),
                Step::Wait(millis) => {
                    now += millis;
                    member.hand.advance(Duration::from_millis(millis));
                }
            }
            for model in &models {
                prop_assert!(model.admitted <= model.permitted);
            }
        }
        let taken: BTreeMap<KeyId, u64> = {
            for name in NAMES {
                let _ = ask(&member.limiter, name, 10);
            }
            member.drain().into_iter().map(|one| (one.key, one.taken)).collect()
        };
        for (name, model) in NAMES.iter().zip(&mut models) {
            let _ = model.ask(10, now);
            prop_assert_eq!(taken[&member.names[*name]], model.admitted);
        }
    }
}

#[test]
fn threads_that_spend_from_both_kinds_of_limits_admit_what_was_permitted() {
    let local = LimitSpec { name: "local", ..api("1/s", 1_000_000) };
    let mut member = Member::new(&[(1, local), (7, shared(api("1000/s", 1_000_000)))]);
    let _ = ask(&member.limiter, "acme", 1);
    member.permit("acme", 1_000, 20, 1_000);
    let passed: u64 = std::thread::scope(|scope| {
        let limiter = &member.limiter;
        let ask = || (0..2_000).filter(|_| ask(limiter, "acme", 1).is_allowed()).count() as u64;
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    let drained = member.drain();
    let refunded = drained[0].refund.map_or(0, |(units, _)| units);
    // What a lost race took and gave back is nobody's; without one it is exact.
    assert_eq!((drained[0].taken, passed + refunded), (1_000, 1_000));
    let charged = member.credits().peek(member.names["acme"], 1, member.now());
    assert!(matches!(charged, Charged::OverLimit { .. }));
    let mut local = member.limiter.keyed("default", "local").expect("in force");
    let left = local.check(&["acme".into()], 0).expect("one part").remaining();
    assert_eq!(left, Some(1_000_000 - passed));
}
