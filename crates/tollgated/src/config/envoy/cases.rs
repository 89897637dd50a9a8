//! Decisions by policies in YAML: what the documentation of Envoy's rate-limit service says of
//! matching, and what others found surprising about it.

use proptest::prelude::*;
use tollgate::{Clock, Decision, Descriptor, Entry, Limiter, Options, Request, WalkEnd};

use super::super::Reading;
use super::super::tests::{READING, assert_sane, limiter_of, parsed_files};

const EXAMPLE: &str = include_str!("../../../../../examples/envoy/ratelimit.yaml");

fn limits(text: &str) -> Vec<tollgate::Limit> {
    parsed_files(&[("a.yaml", text)], READING).expect("a sound file").limits
}

/// A limiter whose clock stands still.
fn limiter(text: &str) -> Limiter {
    limiter_of(parsed_files(&[("a.yaml", text)], READING).expect("a sound file"))
}

type Words<'a> = &'a [(&'a str, &'a str)];

/// Asks for several descriptors of (name, value) at a cost.
fn ask(limiter: &Limiter, domain: &str, descriptors: &[(Words<'_>, u64)]) -> Decision {
    with_request(domain, descriptors, |request| limiter.check(request))
}

fn with_request<T>(
    domain: &str,
    descriptors: &[(Words<'_>, u64)],
    ask: impl FnOnce(&Request<'_>) -> T,
) -> T {
    let entries: Vec<Vec<Entry<'_>>> = descriptors
        .iter()
        .map(|(words, _)| words.iter().map(|(name, value)| Entry::new(name, *value)).collect())
        .collect();
    let descriptors: Vec<Descriptor<'_>> = entries
        .iter()
        .zip(descriptors)
        .map(|(entries, (_, cost))| {
            Descriptor::ordered(entries).expect("a sound descriptor").with_cost(*cost)
        })
        .collect();
    ask(&Request::new(&descriptors).in_domain(domain))
}

/// How many of 500 requests with one descriptor pass at one instant; `None` if no limit applies.
fn admitted(limiter: &Limiter, words: Words<'_>) -> Option<usize> {
    let first = ask(limiter, "d", &[(words, 1)]);
    if first.is_allowed() && first.limit().is_none() {
        return None;
    }
    let rest = (1..500).take_while(|_| ask(limiter, "d", &[(words, 1)]).is_allowed()).count();
    Some(usize::from(first.is_allowed()) + rest)
}

fn end(limiter: &Limiter, words: Words<'_>) -> WalkEnd {
    with_request("d", &[(words, 1)], |request| limiter.explain(request).walks[0].end)
}

const C30: &str = "
domain: d
descriptors:
- key: k
  value: v
  rate_limit: { unit: minute, requests_per_unit: 1 }
  descriptors:
  - { key: x, rate_limit: { unit: minute, requests_per_unit: 3 } }
- key: k
  value: v*
  rate_limit: { unit: minute, requests_per_unit: 10 }
- key: k
  rate_limit: { unit: minute, requests_per_unit: 100 }
  descriptors:
  - { key: x, rate_limit: { unit: minute, requests_per_unit: 50 } }
";

#[test]
fn c30_the_value_comes_before_the_pattern_and_the_pattern_before_the_key() {
    let limiter = limiter(C30);
    for (words, expected) in [
        (&[("k", "v")][..], Some(1)),
        (&[("k", "vx")], Some(10)),
        (&[("k", "vy")], Some(10)),
        (&[("k", "z")], Some(100)),
        (&[("k", "v"), ("x", "1")], Some(3)),
        (&[("k", "vx"), ("x", "1")], None),
        (&[("k", "z"), ("x", "1")], Some(50)),
        (&[("x", "1")], None),
        (&[], None),
    ] {
        assert_eq!(admitted(&limiter, words), expected, "{words:?}");
    }
    assert_eq!(end(&limiter, &[("k", "vx"), ("x", "1")]), WalkEnd::NoStep, "no turning back");
    let elsewhere = ask(&limiter, "e", &[(&[("k", "v")], 1_000)]);
    assert!(elsewhere.is_allowed() && elsewhere.limit().is_none());
}

#[test]
fn c29_a_reload_keeps_what_was_used_whatever_is_written_around_the_limit() {
    let text = |count: u32, around: &str| {
        format!(
            "# {around}\ndomain: d\ndescriptors:\n- key: other\n  rate_limit: {{ unit: day, \
             requests_per_unit: 1 }}\n- key: k\n  value: v\n  rate_limit: {{ unit: minute, \
             requests_per_unit: {count} }}\n"
        )
    };
    let limiter = limiter(&text(10, "first"));
    let words: Words<'_> = &[("k", "v")];
    assert_eq!(admitted(&limiter, words), Some(10));
    let remaining = |text: &str| {
        limiter.replace(limits(text)).expect("sound together");
        let asked = [(words, 0)];
        let decision = with_request("d", &asked, |request| limiter.peek(request));
        decision.remaining()
    };
    assert_eq!(remaining(&text(10, "another comment")), Some(0));
    assert_eq!(remaining(&text(20, "")), Some(10));
    assert_eq!(remaining(&text(5, "")), Some(0));
    assert_eq!(remaining(&text(10, "")), Some(0));
    // Another order, another name, and a neighbour of the same label before it.
    let moved = "
domain: d
descriptors:
- { key: k, value: w, rate_limit: { unit: day, requests_per_unit: 7 } }
- { key: k, value: v, rate_limit: { unit: minute, requests_per_unit: 12, name: renamed } }
- { key: other, rate_limit: { unit: day, requests_per_unit: 1 } }
";
    assert_eq!(remaining(moved), Some(2));
}

const C31: &str = "
domain: d
descriptors:
- { key: s, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
- { key: e, rate_limit: { unit: minute, requests_per_unit: 2 } }
- { key: u, rate_limit: { unlimited: true } }
";

#[test]
fn c31_a_shadow_is_counted_and_the_enforced_limit_decides() {
    let limiter = limiter(C31);
    let (shadow, enforced, open): (Words<'_>, Words<'_>, Words<'_>) =
        (&[("s", "1")], &[("e", "1")], &[("u", "1")]);
    let named = |decision: &Decision| decision.limit().and_then(|id| limiter.limit_name(id));
    let both = [(shadow, 1), (enforced, 1)];
    assert_eq!(ask(&limiter, "d", &both).shadow_denied_by(), None);
    let exhausted = ask(&limiter, "d", &both);
    assert!(exhausted.is_allowed());
    let shadow_name = exhausted.shadow_denied_by().and_then(|id| limiter.limit_name(id));
    assert_eq!(shadow_name.as_deref(), Some("s"));
    let denied = ask(&limiter, "d", &both);
    assert!(!denied.is_allowed());
    assert_eq!(named(&denied).as_deref(), Some("e"));
    let counts = limiter.limits().iter().map(|status| status.counts.shadow_denied).sum::<u64>();
    assert!(counts >= 1);
    let mut standings = Vec::new();
    let with_open = [(open, 1), (enforced, 1)];
    let decision =
        with_request("d", &with_open, |request| limiter.check_each(request, &mut standings));
    assert!(!decision.is_allowed());
    let of_open = standings[0].as_ref().expect("a limit applies");
    assert!(of_open.is_allowed() && of_open.limit().is_none(), "as unlimited");
    assert!(!standings[1].as_ref().expect("a limit applies").is_allowed());
}

#[test]
fn of_two_patterns_the_first_in_the_file_is_taken_also_across_files() {
    let one = "domain: d\ndescriptors:\n- key: k\n  value: '*b'\n  rate_limit: { unit: day, \
               requests_per_unit: 1 }\n";
    let two = "domain: d\ndescriptors:\n- key: k\n  value: 'a*'\n  rate_limit: { unit: day, \
               requests_per_unit: 2 }\n";
    let merging = Reading { merge_domains: true, ..READING };
    for (files, expected) in
        [([("1.yaml", one), ("2.yaml", two)], 1), ([("1.yaml", two), ("2.yaml", one)], 2)]
    {
        let limiter = limiter_of(parsed_files(&files, merging).expect("one domain"));
        assert_eq!(admitted(&limiter, &[("k", "ab")]), Some(expected));
    }
}

#[test]
fn a_pattern_whose_descriptor_only_has_others_below_it_is_tried_in_its_place_too() {
    let limiter = limiter(
        "
domain: d
descriptors:
- key: k
  value: a*
  descriptors:
  - { key: x, rate_limit: { unit: day, requests_per_unit: 3 } }
- key: k
  value: '*'
  rate_limit: { unit: day, requests_per_unit: 5 }
  descriptors:
  - { key: x, rate_limit: { unit: day, requests_per_unit: 7 } }
",
    );
    assert_eq!(admitted(&limiter, &[("k", "a1"), ("x", "1")]), Some(3));
    assert_eq!(admitted(&limiter, &[("k", "b1"), ("x", "1")]), Some(7));
    assert_eq!(admitted(&limiter, &[("k", "a1")]), None, "shorter than the path");
    assert_eq!(admitted(&limiter, &[("k", "b1")]), Some(5));
    assert_eq!(admitted(&limiter, &[("k", "b1"), ("x", "1"), ("y", "1")]), None, "longer");
}

#[test]
fn an_exact_parent_without_the_child_keeps_its_sibling_from_applying() {
    let limiter = limiter(
        "
domain: d
descriptors:
- key: k
  value: v
  descriptors:
  - { key: other, rate_limit: { unit: day, requests_per_unit: 1 } }
- key: k
  descriptors:
  - { key: x, rate_limit: { unit: day, requests_per_unit: 2 } }
",
    );
    assert_eq!(admitted(&limiter, &[("k", "v"), ("x", "1")]), None);
    assert_eq!(admitted(&limiter, &[("k", "w"), ("x", "1")]), Some(2));
}

#[test]
fn a_descriptor_without_a_limit_keeps_others_from_applying() {
    let limiter = limiter(
        "
domain: d
descriptors:
- { key: ip, value: 10.0.0.1 }
- { key: ip, rate_limit: { unit: day, requests_per_unit: 2 } }
",
    );
    assert_eq!(admitted(&limiter, &[("ip", "10.0.0.1")]), None);
    assert_eq!(end(&limiter, &[("ip", "10.0.0.1")]), WalkEnd::Blank);
    assert_eq!(admitted(&limiter, &[("ip", "10.0.0.2")]), Some(2));
}

#[test]
fn an_empty_value_is_matched_by_a_bare_key_and_zero_requests_deny() {
    let limiter = limiter(
        "
domain: d
descriptors:
- { key: k, rate_limit: { unit: day, requests_per_unit: 2 } }
- { key: 'k_', rate_limit: { unit: day, requests_per_unit: 4 } }
- { key: none, rate_limit: { unit: day, requests_per_unit: 0 } }
- { key: open, rate_limit: { unlimited: true } }
- { key: bare, rate_limit: { unit: day, requests_per_unit: 6 } }
",
    );
    assert_eq!(admitted(&limiter, &[("k", "")]), Some(4), "by its own text, `k_`, first");
    assert_eq!(admitted(&limiter, &[("bare", "")]), Some(6));
    assert_eq!(admitted(&limiter, &[("none", "x")]), Some(0));
    assert!(!ask(&limiter, "d", &[(&[("none", "x")], 1)]).is_allowed());
    assert_eq!(admitted(&limiter, &[("open", "x")]), None);
}

#[test]
fn what_a_shared_pattern_matches_is_counted_as_one_and_else_each_value_by_itself() {
    let text = |share: bool| {
        format!(
            "
domain: d
descriptors:
- key: path
  value: /files/*
  share_threshold: {share}
  rate_limit: {{ unit: day, requests_per_unit: 3 }}
  descriptors:
  - {{ key: user, rate_limit: {{ unit: day, requests_per_unit: 2 }} }}
"
        )
    };
    let apart = limiter(&text(false));
    assert_eq!(admitted(&apart, &[("path", "/files/a")]), Some(3));
    assert_eq!(admitted(&apart, &[("path", "/files/b")]), Some(3));
    let shared = limiter(&text(true));
    assert_eq!(admitted(&shared, &[("path", "/files/a")]), Some(3));
    assert_eq!(admitted(&shared, &[("path", "/files/b")]), Some(0));
    // Below it as well, where the user still counts.
    assert_eq!(admitted(&shared, &[("path", "/files/a"), ("user", "u")]), Some(2));
    assert_eq!(admitted(&shared, &[("path", "/files/b"), ("user", "u")]), Some(0));
    assert_eq!(admitted(&shared, &[("path", "/files/b"), ("user", "v")]), Some(2));
}

#[test]
fn a_limit_that_is_replaced_by_another_of_the_request_is_not_spent() {
    let limiter = limiter(
        "
domain: d
descriptors:
- { key: a, rate_limit: { unit: day, requests_per_unit: 1, name: Small } }
- { key: b, rate_limit: { unit: day, requests_per_unit: 5, replaces: [{ name: Small }] } }
",
    );
    let (small, large): (Words<'_>, Words<'_>) = (&[("a", "1")], &[("b", "1")]);
    for _ in 0..5 {
        assert!(ask(&limiter, "d", &[(small, 1), (large, 1)]).is_allowed());
    }
    assert!(!ask(&limiter, "d", &[(small, 1), (large, 1)]).is_allowed());
    assert!(ask(&limiter, "d", &[(small, 1)]).is_allowed(), "it was not touched");
    assert!(!ask(&limiter, "d", &[(small, 1)]).is_allowed());
}

#[test]
fn of_limits_in_quota_mode_one_with_room_is_enough() {
    let limiter = limiter(
        "
domain: d
descriptors:
- { key: p, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
- { key: q, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 2 } }
- { key: e, rate_limit: { unit: day, requests_per_unit: 9 } }
",
    );
    let (p, q, e): (Words<'_>, Words<'_>, Words<'_>) =
        (&[("p", "1")], &[("q", "1")], &[("e", "1")]);
    assert!(ask(&limiter, "d", &[(p, 1), (q, 1), (e, 1)]).is_allowed());
    assert!(!ask(&limiter, "d", &[(p, 1)]).is_allowed(), "alone, all of its kind deny");
    assert!(ask(&limiter, "d", &[(p, 1), (q, 1), (e, 1)]).is_allowed(), "there is room in q");
    assert!(!ask(&limiter, "d", &[(p, 1), (q, 1), (e, 1)]).is_allowed(), "nor in q");
    assert!(ask(&limiter, "d", &[(e, 7)]).is_allowed(), "a denial spent nothing");
}

#[test]
fn a_cost_that_crosses_the_limit_is_denied_and_a_cost_of_nothing_spends_nothing() {
    let limiter = limiter(
        "domain: d\ndescriptors:\n- key: k\n  rate_limit: { unit: day, requests_per_unit: 100 }\n",
    );
    let words: Words<'_> = &[("k", "1")];
    assert!(ask(&limiter, "d", &[(words, 95)]).is_allowed());
    assert!(!ask(&limiter, "d", &[(words, 10)]).is_allowed());
    assert!(ask(&limiter, "d", &[(words, 0)]).is_allowed());
    assert_eq!(ask(&limiter, "d", &[(words, 5)]).remaining(), Some(0), "denied, not counted");
}

#[test]
fn a_descriptor_that_is_given_twice_counts_twice() {
    let limiter = limiter(
        "domain: d\ndescriptors:\n- { key: k, rate_limit: { unit: day, requests_per_unit: 3 } }\n",
    );
    let words: Words<'_> = &[("k", "1")];
    assert!(ask(&limiter, "d", &[(words, 1), (words, 1)]).is_allowed());
    assert!(!ask(&limiter, "d", &[(words, 1), (words, 1)]).is_allowed());
    assert!(ask(&limiter, "d", &[(words, 1)]).is_allowed());
}

#[test]
fn a_week_is_seven_days_from_the_first_request_and_not_until_a_thursday() {
    let loaded = limits(
        "domain: d\ndescriptors:\n- { key: k, rate_limit: { unit: week, requests_per_unit: 1 } }\n",
    );
    let (clock, hand) = Clock::manual();
    let options = Options { keys_max: 1_000, clock, ..Options::default() };
    let limiter = Limiter::new(loaded, options).expect("sound together");
    let words: Words<'_> = &[("k", "1")];
    let day = std::time::Duration::from_secs(86_400);
    assert!(ask(&limiter, "d", &[(words, 1)]).is_allowed());
    hand.advance(day * 7 - std::time::Duration::from_nanos(1));
    assert!(!ask(&limiter, "d", &[(words, 1)]).is_allowed());
    hand.advance(std::time::Duration::from_nanos(1));
    assert!(ask(&limiter, "d", &[(words, 1)]).is_allowed());
}

#[test]
fn the_example_limits_what_its_comments_say() {
    let loaded = parsed_files(&[("a.yaml", EXAMPLE)], READING).expect("a sound file");
    assert_eq!(loaded.warnings.len(), 1, "the shadow alone: {:?}", loaded.warnings);
    let limiter = limiter_of(loaded);
    let passes = |descriptors: &[Words<'_>]| {
        let asked: Vec<(Words<'_>, u64)> = descriptors.iter().map(|words| (*words, 1)).collect();
        (0..200).take_while(|_| ask(&limiter, "edge", &asked).is_allowed()).count()
    };
    assert_eq!(passes(&[&[("remote_address", "192.0.2.7")]]), 100);
    assert_eq!(passes(&[&[("remote_address", "192.0.2.1")]]), 200);
    assert_eq!(passes(&[&[("tenant", "a"), ("path", "/login")]]), 5);
    assert_eq!(passes(&[&[("tenant", "a"), ("path", "/reports/1")]]), 60);
    assert_eq!(passes(&[&[("tenant", "a"), ("path", "/reports/2")]]), 0);
    assert_eq!(passes(&[&[("tenant", "b"), ("path", "/reports/2")]]), 60);
    assert_eq!(passes(&[&[("tenant", "a"), ("path", "/healthz")]]), 200);
    assert_eq!(passes(&[&[("tenant", "a"), ("path", "/x")]]), 50);
    let acme: Words<'_> = &[("tenant", "acme"), ("path", "/login")];
    assert_eq!(passes(&[acme, &[("remote_address", "192.0.2.8")]]), 200);
    assert_eq!(passes(&[&[("remote_address", "192.0.2.8")]]), 100, "it was replaced");
    assert_eq!(passes(&[&[("country", "nowhere")]]), 0);
    let user: Words<'_> = &[("user", "u")];
    assert!(ask(&limiter, "edge", &[(user, 10_001)]).is_allowed(), "a shadow");
    let (plan, prepaid): (Words<'_>, Words<'_>) = (&[("plan", "p")], &[("prepaid", "p")]);
    assert!(ask(&limiter, "edge", &[(plan, 1_000_000)]).is_allowed());
    assert!(!ask(&limiter, "edge", &[(plan, 1)]).is_allowed());
    assert!(ask(&limiter, "edge", &[(plan, 1), (prepaid, 1)]).is_allowed());
}

/// Pieces of which nearly-right files are made.
const PIECES: [&str; 30] = [
    "domain: d\n",
    "descriptors:\n",
    "- key: k\n",
    "  - key: k\n",
    "  value: v*\n",
    "  rate_limit:\n",
    "    unit: minute\n",
    "    requests_per_unit: 5\n",
    "    unlimited: true\n",
    "    name: n\n",
    "    replaces: [{ name: n }]\n",
    "  descriptors:\n",
    "  shadow_mode: true\n",
    "  share_threshold: yes\n",
    "&a ",
    "*a\n",
    "<<: *a\n",
    "- ",
    ": ",
    "? ",
    "---\n",
    "{",
    "}",
    "[",
    "]",
    "'",
    "\"",
    "|\n",
    "\u{feff}",
    "é\r\n",
];

proptest! {
    // A case that fails becomes a test of its own, not a file.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_text_is_answered(text in "\\PC*") {
        assert_sane("a.yaml", text);
    }

    #[test]
    fn any_heap_of_signs_is_answered(text in "[a&*!|>'\"%#{}\\[\\],?:\\- \t\r\n]{0,80}") {
        assert_sane("a.yaml", text);
    }

    #[test]
    fn any_heap_of_pieces_is_answered(
        pieces in prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..40),
    ) {
        assert_sane("a.yaml", pieces.concat());
    }

    #[test]
    fn any_change_of_a_sound_file_is_answered(
        cuts in prop::collection::vec(
            (any::<prop::sample::Index>(), 0_usize..40, prop::sample::select(PIECES.to_vec())),
            1..4,
        ),
    ) {
        let mut text = EXAMPLE.to_string();
        for (start, length, piece) in cuts {
            let start = text.floor_char_boundary(start.index(text.len() + 1));
            let end = text.floor_char_boundary(start + length);
            text.replace_range(start..end, piece);
        }
        assert_sane("a.yaml", text);
    }
}
