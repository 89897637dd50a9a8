//! The demo, as a newcomer sees it.

use crate::support::run;

#[test]
fn the_demo_ends_with_the_verdict_that_every_promise_was_kept() {
    let (code, out, err) = run(&["demo", "--seconds", "6"]);
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(out.lines().last(), Some("Every promise was kept."), "{out}");
    assert!(out.contains("was killed, and noisy was served again after"), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
}
