//! Limits with paths: which one a descriptor reaches, by which key, and what of several stands.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use proptest::prelude::*;
use tollgate::{
    Applies, ClockHand, Decision, Descriptor, DomainKind, Entry, How, Limit, LimitSpec, Limiter,
    Options, Outcome, Reason, Request, StepSpec, Walk, WalkEnd, Walked,
};

use crate::support::{limiter, limits};

/// A limit with the path `name=value/name`.
fn path(name: &'static str, path: &str) -> LimitSpec<'static> {
    LimitSpec { name, path: steps(path), rate: "10/365d", ..LimitSpec::DEFAULT }
}

fn steps(path: &str) -> &'static [StepSpec<'static>] {
    let step = |step: &'static str| {
        let (name, value) = step.split_once('=').unwrap_or((step, ""));
        StepSpec { name, value, shared: false }
    };
    path.to_owned().leak().split('/').map(step).collect::<Vec<_>>().leak()
}

/// Asks for one descriptor of these entries, in this order.
fn ask(limiter: &Limiter, entries: &[(&str, &str)]) -> Decision {
    with_all(&[entries], 1, |request| limiter.check(request))
}

/// A request of several descriptors that cost the same.
fn with_all<T>(
    descriptors: &[&[(&str, &str)]],
    cost: u64,
    ask: impl FnOnce(&Request<'_>) -> T,
) -> T {
    let entries: Vec<Vec<Entry<'_>>> = descriptors
        .iter()
        .map(|entries| entries.iter().map(|(name, value)| Entry::new(name, *value)).collect())
        .collect();
    let descriptors: Vec<Descriptor<'_>> = entries
        .iter()
        .map(|entries| Descriptor::ordered(entries).expect("sound").with_cost(cost))
        .collect();
    ask(&Request::new(&descriptors))
}

fn name(limiter: &Limiter, decision: &Decision) -> Option<String> {
    decision.limit().and_then(|id| limiter.limit_name(id))
}

/// A path as the oracle has it: (name, value, shared) of each step, and whether it has a limit.
type Path = (Vec<(String, String, bool)>, bool);

fn joined(name: &str, value: &str) -> String {
    if value.is_empty() { name.into() } else { format!("{name}_{value}") }
}

/// The obvious way: a star takes as much as is tried.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|taken| matches(rest, &text[taken..])),
        [byte, rest @ ..] => text.first() == Some(byte) && matches(rest, &text[1..]),
    }
}

/// The path that the entries reach and its key, as the facts about the original say it: at each
/// step all texts that stand there are looked through.
fn reached(paths: &[Path], entries: &[(String, String)]) -> Option<(usize, Vec<String>)> {
    let texts = |path: &Path| -> Vec<String> {
        path.0.iter().map(|(name, value, _)| joined(name, value)).collect()
    };
    let mut at: Vec<String> = Vec::new();
    let mut hows = Vec::new();
    for (index, (name, value)) in entries.iter().enumerate() {
        let whole = format!("{name}_{value}");
        let here: Vec<String> = paths
            .iter()
            .map(texts)
            .filter(|path| path.len() > index && path[..index] == at[..])
            .map(|path| path[index].clone())
            .collect();
        let star =
            |text: &&String| text.contains('*') && matches(text.as_bytes(), whole.as_bytes());
        let (text, how) = if here.contains(&whole) {
            (whole, 0)
        } else if let Some(text) = here.iter().find(star) {
            (text.clone(), 1)
        } else if here.contains(name) {
            (name.clone(), 2)
        } else {
            return None;
        };
        at.push(text);
        hows.push(how);
    }
    let found = paths.iter().position(|path| texts(path) == at)?;
    let (steps, limited) = &paths[found];
    let mut key = Vec::new();
    for (((name, value, shared), (entry, given)), how) in steps.iter().zip(entries).zip(hows) {
        let stars = name.contains('*') || value.contains('*');
        let own = match (stars, value.is_empty(), how) {
            (true, ..) => !shared,
            (false, true, how) => how == 2,
            (false, false, how) => how == 2,
        };
        key.push(if own { format!("{entry:?} {given:?}") } else { String::new() });
    }
    limited.then_some((found, key))
}

fn a_path() -> impl Strategy<Value = Path> {
    let name = prop::sample::select(vec!["a", "a", "b", "a_a", "a*"]);
    let value = prop::sample::select(vec!["", "", "a", "b", "a*", "*b", "*"]);
    let step = (name, value, any::<bool>()).prop_map(|(name, value, shared)| {
        let shared = shared && (name.contains('*') || value.contains('*'));
        (name.to_owned(), value.to_owned(), shared)
    });
    (prop::collection::vec(step, 1..4), prop::bool::weighted(0.8))
}

fn some_entries() -> impl Strategy<Value = Vec<(String, String)>> {
    let name = prop::sample::select(vec!["a", "a", "b", "a_a", "ab", "a*"]);
    let value = prop::sample::select(vec!["a", "b", "", "ab", "a_b", "a*", "c"]);
    let entry = (name, value).prop_map(|(name, value)| (name.to_owned(), value.to_owned()));
    prop::collection::vec(entry, 1..4)
}

fn limits_of(paths: &[Path]) -> Vec<Limit> {
    let limit = |(index, (steps, limited)): (usize, &Path)| {
        let steps: Vec<StepSpec<'_>> = steps
            .iter()
            .map(|(name, value, shared)| StepSpec { name, value, shared: *shared })
            .collect();
        let rate = if *limited { "10/365d" } else { "none" };
        let name = format!("l{index}");
        Limit::parse(&LimitSpec { name: &name, path: &steps, rate, ..LimitSpec::DEFAULT })
            .expect("sound")
    };
    paths.iter().enumerate().map(limit).collect()
}

proptest! {
    /// Against a walk that looks through all paths at each step.
    #[test]
    fn a_descriptor_reaches_the_limit_and_the_key_that_the_rules_say(
        mut paths in prop::collection::vec(a_path(), 1..10),
        asked in prop::collection::vec(some_entries(), 1..20),
    ) {
        let mut known = std::collections::HashSet::new();
        paths.retain(|(steps, _)| {
            let texts = steps.iter().map(|(name, value, _)| joined(name, value));
            known.insert(texts.collect::<Vec<_>>())
        });
        let clock = tollgate::Clock::manual().0;
        let options = Options { keys_max: 1_000, clock, ..Options::default() };
        let limiter = Limiter::new(limits_of(&paths), options).expect("sound");
        let mut used: HashMap<(usize, Vec<String>), u64> = HashMap::new();
        for entries in asked {
            let pairs: Vec<(&str, &str)> =
                entries.iter().map(|(name, value)| (&**name, &**value)).collect();
            let decision = ask(&limiter, &pairs);
            let expected = reached(&paths, &entries);
            let expected_name = expected.as_ref().map(|(index, _)| format!("l{index}"));
            prop_assert_eq!(name(&limiter, &decision), expected_name, "{:?}", entries);
            if let Some(key) = expected {
                let used = used.entry(key).or_default();
                *used = (*used + 1).min(10);
                prop_assert_eq!(decision.remaining(), Some(10 - *used), "{:?}", entries);
            }
            let explained = with_all(&[&pairs], 1, |request| limiter.explain(request));
            let at_limit = explained.walks[0].end == WalkEnd::Limit;
            prop_assert_eq!(at_limit, decision.limit().is_some());
        }
    }

    /// The decision is that of `check`, and each standing that of its descriptor alone.
    #[test]
    fn a_request_that_is_answered_one_by_one_is_decided_as_any_other(
        asked in prop::collection::vec((0..4_usize, 0..3_u64, 0..4_u64), 1..30),
    ) {
        let specs = [
            LimitSpec { rate: "3/365d", ..path("a", "a") },
            LimitSpec { rate: "5/365d", ..path("b", "b") },
            LimitSpec { rate: "2/365d", shadow: true, ..path("c", "c") },
        ];
        let (one, _) = limiter(&specs);
        let (other, _) = limiter(&specs);
        let mut standings = vec![None];
        for (first, cost, second) in asked {
            let names = ["a", "b", "c", "d"];
            let all: [&[(&str, &str)]; 2] =
                [&[(names[first], "x")], &[(names[second as usize % 4], "y")]];
            let whole = with_all(&all, cost, |request| one.check(request));
            let before: Vec<Decision> = all
                .iter()
                .map(|entries| with_all(&[entries], cost, |request| other.peek(request)))
                .collect();
            let decision =
                with_all(&all, cost, |request| other.check_each(request, &mut standings));
            prop_assert_eq!(decision.outcome(), whole.outcome());
            prop_assert_eq!(decision.remaining(), whole.remaining());
            prop_assert_eq!(standings.len(), 2);
            for (standing, before) in standings.iter().zip(before) {
                if first != second as usize % 4 {
                    let outcome = standing.map_or(Outcome::Allowed, |standing| standing.outcome());
                    prop_assert_eq!(outcome, before.outcome());
                }
            }
        }
    }
}

fn two() -> (Limiter, ClockHand) {
    limiter(&[
        LimitSpec { rate: "5/min", ..path("user", "user") },
        LimitSpec { rate: "2/min", ..path("route", "route") },
    ])
}

#[test]
fn each_descriptor_stands_as_its_own_limit_says() {
    let (limiter, _) = two();
    let mut standings = Vec::new();
    let mut once = |cost| {
        let all: [&[(&str, &str)]; 3] = [&[("user", "a")], &[("route", "r")], &[("else", "x")]];
        let decision = with_all(&all, cost, |request| limiter.check_each(request, &mut standings));
        let left: Vec<Option<u64>> =
            standings.iter().map(|standing| standing.and_then(|one| one.remaining())).collect();
        (decision.is_allowed(), left)
    };
    assert_eq!(once(1), (true, vec![Some(4), Some(1), None]));
    assert_eq!(once(1), (true, vec![Some(3), Some(0), None]));
    // The first would pass and has spent nothing.
    assert_eq!(once(1), (false, vec![Some(3), Some(0), None]));
    assert_eq!(once(0), (true, vec![Some(3), Some(0), None]));
}

/// C29 where limits have paths: what a key used belongs to the path, whatever its name is.
#[test]
fn a_limit_with_a_path_keeps_what_its_keys_used_whatever_it_is_called() {
    let steps = "tenant=acme/user";
    let before = LimitSpec { rate: "10/60s", ..path("a", steps) };
    let (limiter, hand) = limiter(&[before]);
    let once = || ask(&limiter, &[("tenant", "acme"), ("user", "u")]).remaining();
    for left in (0..10).rev() {
        assert_eq!(once(), Some(left));
    }
    let other = LimitSpec { rate: "10/60s", ..path("a", "tenant=else") };
    for (rate, left) in [("10/60s", 0), ("20/60s", 10), ("5/60s", 0), ("10/60s", 0)] {
        let renamed = LimitSpec { rate, ..path("b", steps) };
        limiter.replace(limits(&[other, renamed])).expect("sound");
        let asked =
            with_all(&[&[("tenant", "acme"), ("user", "u")]], 0, |request| limiter.peek(request));
        assert_eq!(asked.remaining(), Some(left), "{rate}");
    }
    hand.advance(Duration::from_secs(6));
    assert_eq!(once(), Some(0));
}

#[test]
fn a_limit_that_is_replaced_is_not_asked_and_an_unlimited_one_replaces_too() {
    let replacing = |name, rate| LimitSpec { replaces: &["users"], rate, ..path(name, name) };
    let (limiter, _) = limiter(&[
        LimitSpec { rate: "1/min", group: "users", ..path("user", "user") },
        replacing("vip", "5/min"),
        replacing("free", "unlimited"),
    ]);
    for other in ["vip", "free"] {
        let all: [&[(&str, &str)]; 2] = [&[("user", "a")], &[(other, "x")]];
        for _ in 0..3 {
            assert!(with_all(&all, 1, |request| limiter.check(request)).is_allowed());
        }
        let explained = with_all(&all, 1, |request| limiter.explain(request));
        let by = other.to_owned();
        assert_eq!(explained.limits[0].applies, Applies::Replaced { by });
    }
    assert!(ask(&limiter, &[("user", "a")]).is_allowed());
    assert!(!ask(&limiter, &[("user", "a")]).is_allowed());
}

#[test]
fn quotas_deny_when_all_of_them_do_and_the_first_to_return_says_when() {
    let quota = |name, rate| LimitSpec { quota: true, rate, ..path(name, name) };
    let (limiter, hand) = limiter(&[
        quota("slow", "1/60s"),
        quota("fast", "2/10s"),
        LimitSpec { rate: "9/min", ..path("hard", "hard") },
    ]);
    let all: [&[(&str, &str)]; 3] = [&[("slow", "a")], &[("fast", "a")], &[("hard", "a")]];
    let once = || with_all(&all, 1, |request| limiter.check(request));
    assert!(once().is_allowed());
    assert!(once().is_allowed());
    let denied = once();
    assert_eq!(denied.outcome(), Outcome::Denied(Reason::OverLimit));
    assert_eq!(name(&limiter, &denied).as_deref(), Some("fast"));
    let left = ask(&limiter, &[("hard", "a")]).remaining();
    assert_eq!(left, Some(6), "a denial spent something");
    hand.advance(Duration::from_secs(5));
    assert!(once().is_allowed());
}

#[test]
fn a_way_is_explained_as_far_as_it_goes() {
    let (limiter, _) = limiter(&[
        path("end", "tenant=acme/route"),
        path("wide", "tenant=a*"),
        LimitSpec { rate: "none", ..path("none", "tenant") },
    ]);
    let walk = |entries: &[(&str, &str)]| {
        let explained = with_all(&[entries], 1, |request| limiter.explain(request));
        let [Walk { descriptor: 0, steps, end }] = &explained.walks[..] else { panic!("one walk") };
        let steps: Vec<(String, How)> =
            steps.iter().map(|Walked { step, how }| (step.clone(), *how)).collect();
        (steps, *end)
    };
    let acme = ("tenant=acme".to_owned(), How::Exact);
    let route = ("route".to_owned(), How::Any);
    assert_eq!(walk(&[("tenant", "acme")]), (vec![acme.clone()], WalkEnd::TooShort));
    let whole = walk(&[("tenant", "acme"), ("route", "r")]);
    assert_eq!(whole, (vec![acme.clone(), route.clone()], WalkEnd::Limit));
    let beyond = walk(&[("tenant", "acme"), ("route", "r"), ("more", "x")]);
    assert_eq!(beyond, (vec![acme, route], WalkEnd::NoStep));
    let wide = ("tenant=a*".to_owned(), How::Pattern);
    assert_eq!(walk(&[("tenant", "abc")]), (vec![wide], WalkEnd::Limit));
    let blank = ("tenant".to_owned(), How::Any);
    assert_eq!(walk(&[("tenant", "x")]), (vec![blank], WalkEnd::Blank));
    assert_eq!(walk(&[("else", "x")]), (vec![], WalkEnd::NoStep));
}

#[test]
fn a_handle_and_a_keyed_limit_are_of_the_limit_that_is_reached() {
    let (limiter, _) = limiter(&[path("tenant", "tenant/tenant=b*")]);
    let entries = [Entry::new("tenant", "a"), Entry::new("tenant", "bx")];
    let descriptor = Descriptor::ordered(&entries).expect("sound");
    let mut handle = limiter.handle("default", &descriptor);
    assert_eq!(handle.check(1).remaining(), Some(9));
    let mut keyed = limiter.keyed("default", "tenant").expect("in force");
    assert_eq!(keyed.key().collect::<Vec<_>>(), ["tenant", "tenant"]);
    let left = keyed.check(&["a".into(), "bx".into()], 1).expect("two parts").remaining();
    assert_eq!(left, Some(8));
    assert_eq!(handle.check(1).remaining(), Some(7));
    assert_eq!(limiter.domain_kind("default"), Some(DomainKind::Path));
    assert_eq!(limiter.domain_kind("else"), None);
}

#[test]
fn what_a_limit_with_a_path_cannot_have_is_refused_by_name() {
    let one = steps("a");
    let many = steps(&["a"; 17].join("/"));
    let long = "x".repeat(4_097);
    let long = [StepSpec { name: "a", value: &long, shared: false }];
    let shared = [StepSpec { name: "a", value: "b", shared: true }];
    let own = LimitSpec { name: "n", path: one, rate: "1/s", ..LimitSpec::DEFAULT };
    let none = &[];
    let wrong = [
        (LimitSpec { matches: &[("b", "c")], ..own }, "match", "excludes a path"),
        (LimitSpec { key: &["b"], ..own }, "key", "excludes a path, whose steps are the key"),
        (LimitSpec { path: many, ..own }, "path", "must be at most 16 steps"),
        (LimitSpec { path: steps(""), ..own }, "path", "the name of an entry must be"),
        (LimitSpec { path: &long, ..own }, "path", "the value of an entry must be at most"),
        (LimitSpec { path: &shared, ..own }, "path", "only what has a `*` can be shared"),
        (LimitSpec { group: "g", replaces: &["g"], ..own }, "replaces", "must be another group"),
        (LimitSpec { path: none, group: "g", ..own }, "group", "has a meaning only with a path"),
        (LimitSpec { quota: true, shadow: true, ..own }, "quota", "excludes shadow"),
        (LimitSpec { path: none, quota: true, ..own }, "quota", "has a meaning only with a path"),
        (LimitSpec { path: none, replaces: &["m"], ..own }, "replaces", "has a meaning only"),
        (LimitSpec { path: none, rate: "none", ..own }, "rate", "must be units/period"),
        (LimitSpec { rate: "none", burst: Some(1), ..own }, "burst", "has no meaning"),
    ];
    for (spec, field, reason) in wrong {
        let error = Limit::parse(&spec).expect_err(field);
        assert_eq!(error.field(), field);
        assert!(error.reason().starts_with(reason), "{error}");
    }
}

#[test]
fn a_path_is_one_limits_and_a_domain_has_paths_all_or_none() {
    let (limiter, _) = two();
    let set = LimitSpec { name: "set", rate: "1/s", ..LimitSpec::DEFAULT };
    let user = || path("user", "user");
    for (specs, reason) in [
        (vec![user(), path("again", "user")], "is that of an earlier limit"),
        (vec![path("a", "a_b"), path("b", "a=b")], "is that of an earlier"),
        (vec![user(), set], "is empty, and the other limits of the domain have paths"),
        (vec![set, user()], "the other limits of the domain have none"),
    ] {
        let error = limiter.replace(limits(&specs)).expect_err(reason);
        assert_eq!(error.field(), "path");
        assert!(error.reason().starts_with(reason), "{error}");
    }
    let elsewhere = LimitSpec { domain: "else", ..set };
    assert!(limiter.replace(limits(&[user(), elsewhere])).is_ok());
    let counts: BTreeMap<String, u64> = limiter
        .limits()
        .into_iter()
        .map(|status| (status.limit.name().into(), status.counts.allowed))
        .collect();
    assert_eq!(counts.len(), 2);
}

/// A quota that has no room is not charged when another one lets the request pass.
#[test]
fn what_was_not_charged_is_not_given_back() {
    let quota = |name, rate| LimitSpec { quota: true, rate, ..path(name, name) };
    let shadow = LimitSpec { shadow: true, rate: "10/d", ..path("c", "c") };
    let (limiter, _) = limiter(&[quota("a", "10/d"), quota("b", "5/d"), shadow]);
    let left = |name| with_all(&[&[(name, "x")]], 0, |request| limiter.peek(request)).remaining();
    assert!(with_all(&[&[("a", "x")]], 10, |request| limiter.check(request)).is_allowed());
    let all: [&[(&str, &str)]; 3] = [&[("a", "x")], &[("b", "x")], &[("c", "x")]];
    let (decision, reservation) = with_all(&all, 5, |request| limiter.reserve(request));
    assert!(decision.is_allowed());
    assert_eq!((left("a"), left("b")), (Some(0), Some(0)));
    limiter.cancel(reservation.expect("it was allowed"));
    assert_eq!((left("a"), left("b")), (Some(0), Some(5)));
    let (_, reservation) = with_all(&all, 5, |request| limiter.reserve(request));
    let reservation = reservation.expect("b has room again");
    limiter.settle(reservation, &[2, 3, 3]).expect("one for each");
    assert_eq!((left("a"), left("b")), (Some(0), Some(2)));
}
