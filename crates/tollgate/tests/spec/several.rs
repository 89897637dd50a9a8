//! All limits that apply must allow; a denial spends nothing from any of them.

use proptest::prelude::*;
use tollgate::{Descriptor, Entry, LimitSpec, Outcome, Reason, Request, Retry};

use crate::support::{NEVER, SECOND, ask_of, at, limiter, seconds};

fn per(
    name: &'static str,
    entry: &'static str,
    rate: &'static str,
    burst: u64,
) -> LimitSpec<'static> {
    let key: &'static [&'static str] = match entry {
        "tenant" => &["tenant"],
        _ => &["user"],
    };
    LimitSpec { name, key, rate, burst: Some(burst), ..LimitSpec::DEFAULT }
}

const WHO: &[(&str, &str)] = &[("tenant", "a"), ("user", "u")];

#[test]
fn a_request_that_one_limit_denies_spends_nothing_from_the_other() {
    let (limiter, _) =
        limiter(&[per("wide", "tenant", "100/60s", 100), per("tight", "user", "5/s", 5)]);
    assert_eq!((0..50).filter(|_| ask_of(&limiter, WHO, 1).is_allowed()).count(), 5);
    let other = [("tenant", "a"), ("user", "v")];
    let decision = ask_of(&limiter, &other, 5);
    assert!(decision.is_allowed());
    // 100 less the 5 and the 5 that passed; the 45 denials left no trace.
    let third = ask_of(&limiter, &[("tenant", "a"), ("user", "w")], 1);
    assert_eq!(limiter.limits()[0].counts.allowed, 7);
    assert_eq!(third.limit(), Some(limiter.limits()[1].id));
    let wide = ask_of(&limiter, &[("tenant", "a"), ("user", "x")], 0);
    assert!(wide.is_allowed());
    let left = limiter.explain_remaining("wide");
    assert_eq!(left, Some(89));
}

trait ExplainRemaining {
    fn explain_remaining(&self, limit: &str) -> Option<u64>;
}

impl ExplainRemaining for tollgate::Limiter {
    /// What a limit would have left for tenant a and user u, alone.
    fn explain_remaining(&self, limit: &str) -> Option<u64> {
        let explanation = crate::support::with_request(WHO, 1, |request| self.explain(request));
        let explained = explanation.limits.into_iter().find(|one| one.limit == limit)?;
        match explained.applies {
            tollgate::Applies::Yes { alone, .. } => alone.remaining(),
            _ => None,
        }
    }
}

/// The look finds nothing against it; only the charge of the second limit finds the table full.
#[test]
fn a_request_that_finds_no_place_in_the_table_gives_back_what_it_was_charged() {
    let wide = LimitSpec { name: "wide", rate: "100/60s", ..LimitSpec::DEFAULT };
    let change = |options| tollgate::Options {
        keys_max: 1,
        table_full: tollgate::TableFull::Deny,
        ..options
    };
    let specs = [wide, per("tight", "user", "5/s", 5)];
    let (limiter, _) = crate::support::limiter_with(&specs, change);
    assert!(ask_of(&limiter, WHO, 1).is_allowed());
    for _ in 0..5 {
        let denied = ask_of(&limiter, &[("user", "v")], 1);
        assert_eq!(denied.outcome(), Outcome::Denied(Reason::KeyTableFull));
    }
    assert_eq!(limiter.explain_remaining("wide"), Some(99));
}

#[test]
fn a_denial_belongs_to_the_limit_that_lasts_longest() {
    let (limiter, hand) =
        limiter(&[per("slow", "tenant", "1/60s", 2), per("fast", "user", "1/s", 1)]);
    assert!(ask_of(&limiter, WHO, 1).is_allowed());
    // Only the fast one denies.
    let first = ask_of(&limiter, WHO, 1);
    assert_eq!((first.limit(), first.retry_at()), (Some(limiter.limits()[1].id), at(SECOND)));
    assert_eq!((first.burst(), first.remaining()), (Some(1), Some(0)));
    hand.advance(seconds(1));
    assert!(ask_of(&limiter, WHO, 1).is_allowed());
    // Both deny: the later of the two.
    let both = ask_of(&limiter, WHO, 1);
    assert_eq!((both.limit(), both.retry_at()), (Some(limiter.limits()[0].id), at(60 * SECOND)));
    // One of them never: never.
    let never = ask_of(&limiter, WHO, 2);
    assert_eq!(never.retry_at(), NEVER);
    assert_eq!(never.outcome(), Outcome::Denied(Reason::CostExceedsBurst));
}

#[test]
fn a_success_speaks_of_the_limit_with_the_least_remaining() {
    let (limiter, _) =
        limiter(&[per("wide", "tenant", "100/s", 100), per("tight", "user", "5/s", 5)]);
    let decision = ask_of(&limiter, WHO, 2);
    assert_eq!((decision.limit(), decision.remaining()), (Some(limiter.limits()[1].id), Some(3)));
}

#[test]
fn a_shadow_limit_reports_and_never_denies() {
    let shadow = LimitSpec { shadow: true, ..per("new", "tenant", "1/60s", 1) };
    let (one, _) = limiter(&[shadow]);
    assert_eq!(ask_of(&one, WHO, 1).shadow_denied_by(), None);
    let second = ask_of(&one, WHO, 1);
    assert_eq!((second.is_allowed(), second.shadow_denied_by()), (true, Some(one.limits()[0].id)));
    assert_eq!(one.limits()[0].counts.shadow_denied, 1);

    let (both, _) = limiter(&[shadow, per("old", "user", "3/s", 3)]);
    let seen: Vec<_> = (0..4).map(|_| ask_of(&both, WHO, 1)).collect();
    assert_eq!(seen.iter().filter(|decision| decision.is_allowed()).count(), 3);
    let shadows: Vec<_> =
        seen.iter().map(|decision| decision.shadow_denied_by().is_some()).collect();
    assert_eq!(shadows, [false, true, true, true]);
    assert_eq!(seen[3].limit(), Some(both.limits()[1].id));
}

#[test]
fn an_unlimited_limit_beside_an_exhausted_one_changes_nothing() {
    let all = LimitSpec { name: "all", rate: "unlimited", ..LimitSpec::DEFAULT };
    let (limiter, _) = limiter(&[all, per("old", "user", "1/s", 1)]);
    assert!(ask_of(&limiter, WHO, 1).is_allowed());
    assert!(!ask_of(&limiter, WHO, 1).is_allowed());
}

#[test]
fn several_descriptors_pass_or_are_denied_as_one_each_at_its_own_cost() {
    let requests =
        LimitSpec { matches: &[("metric", "requests")], ..per("requests", "tenant", "10/s", 10) };
    let bytes =
        LimitSpec { matches: &[("metric", "bytes")], ..per("bytes", "tenant", "1000/s", 1000) };
    let (limiter, _) = limiter(&[requests, bytes]);
    let of = |metric, cost| {
        let entries = [Entry::new("tenant", "a"), Entry::new("metric", metric)];
        (entries, cost)
    };
    let ask = |size: u64| {
        let (first, second) = (of("requests", 1), of("bytes", size));
        let descriptors = [
            Descriptor::new(&first.0).expect("sound").with_cost(first.1),
            Descriptor::new(&second.0).expect("sound").with_cost(second.1),
        ];
        limiter.check(&Request::new(&descriptors))
    };
    assert!(ask(900).is_allowed());
    assert_eq!((0..20).filter(|_| ask(200).is_allowed()).count(), 0);
    // The requests limit kept its 9.
    assert_eq!((0..20).filter(|_| ask(10).is_allowed()).count(), 9);
    assert!(matches!(ask(10).retry_at(), Some(Retry::At(_))));
}

#[test]
fn one_key_under_two_descriptors_is_charged_for_both_or_for_none() {
    let (limiter, _) = limiter(&[per("api", "tenant", "10/s", 10)]);
    let entries = [Entry::new("tenant", "a")];
    let six = Descriptor::new(&entries).expect("sound").with_cost(6);
    // Together they cost 12 of 10, which never passes.
    let denied = limiter.check(&Request::new(&[six, six]));
    assert_eq!(denied.outcome(), Outcome::Denied(Reason::CostExceedsBurst));
    assert_eq!(limiter.peek(&Request::new(&[six, six])), denied);
    let all = limiter.check(&Request::new(&[six.with_cost(10)]));
    assert_eq!((all.is_allowed(), all.remaining()), (true, Some(0)));
}

#[test]
fn more_limits_than_a_request_usually_meets_are_all_charged() {
    let names: Vec<String> = (0..20).map(|n| format!("limit-{n}")).collect();
    let specs: Vec<LimitSpec<'_>> = names
        .iter()
        .map(|name| LimitSpec { name, rate: "10/s", key: &["tenant"], ..LimitSpec::DEFAULT })
        .collect();
    let (limiter, _) = limiter(&specs);
    assert_eq!((0..30).filter(|_| ask_of(&limiter, WHO, 1).is_allowed()).count(), 10);
    assert!(limiter.limits().iter().all(|status| status.counts.allowed == 10));
}

proptest! {
    /// However many descriptors there are, a key pays the sum of what they cost it, once.
    #[test]
    fn a_key_pays_the_sum_of_what_a_request_costs_it(
        costs in prop::collection::vec((0..60_usize, 1..4_u64), 1..200),
    ) {
        let (limiter, _) = limiter(&[per("api", "tenant", "1000/365d", 1_000)]);
        let names: Vec<String> = (0..60).map(|index| format!("t{index}")).collect();
        let entries: Vec<[Entry<'_>; 1]> =
            costs.iter().map(|(who, _)| [Entry::new("tenant", &names[*who])]).collect();
        let descriptors: Vec<Descriptor<'_>> = entries
            .iter()
            .zip(&costs)
            .map(|(entries, (_, cost))| Descriptor::new(entries).expect("sound").with_cost(*cost))
            .collect();
        let mut standings = Vec::new();
        let decision = limiter.check_each(&Request::new(&descriptors), &mut standings);
        prop_assert!(decision.is_allowed());
        let mut sums = [0; 60];
        costs.iter().for_each(|(who, cost)| sums[*who] += cost);
        for ((who, _), standing) in costs.iter().zip(standings) {
            let left = standing.and_then(|standing| standing.remaining());
            prop_assert_eq!(left, Some(1_000 - sums[*who]));
        }
    }
}
