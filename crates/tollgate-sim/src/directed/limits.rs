//! Schedules of limits that change, clocks that are wrong and processes that stand still (rules 4
//! and 7 of the promise; E13 and E15 of the review).

use tollgate::Event;

use super::stage::{A, B, C, D, O, Setting, Stage, Way};
use crate::check::Violation;

/// E13. A changed limit keeps what was spent.
pub(super) fn a_changed_limit_keeps_what_was_spent() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 50);
    stage.until(2.0);
    stage.spend(A, 50);
    stage.until(8.0);
    change_to(&mut stage, 49);
    stage.want(C, 40);
    stage.until(10.0);
    stage.grab(C);
    stage.grab_until(&[C, D], 60.0);
    stage.judge()
}

/// E13. A changed limit keeps what is outstanding.
pub(super) fn a_changed_limit_keeps_what_is_outstanding() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 50);
    stage.until(2.0);
    change_to(&mut stage, 49);
    stage.want(C, 40);
    stage.until(4.0);
    stage.grab(C);
    let spent = stage.spend(A, 50);
    stage.expect("what was permitted lives on", spent == 50);
    stage.grab_until(&[C, D], 60.0);
    stage.judge()
}

/// All are told another burst.
fn change_to(stage: &mut Stage, burst: u64) {
    stage.change_limit(1_000, burst);
    [O, A, B, C, D].into_iter().for_each(|node| stage.tell_limit(node));
}

/// A lowered limit is in force: after what was permitted by the old one has leaked, no more is
/// admitted than by the new one.
pub(super) fn a_lowered_limit_is_in_force() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.grab_until(&[A, C], 20.0);
    stage.change_limit(100, 10);
    [O, A, B, C, D].into_iter().for_each(|node| stage.tell_limit(node));
    stage.until(3_000.0);
    stage.want(A, 10);
    stage.grab_until(&[A, C], 3_200.0);
    stage.judge()
}

/// A key that gets an allowance of its own keeps what it spent, and what follows is its own.
pub(super) fn an_allowance_of_its_own_changes_a_key_in_place() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 50);
    stage.until(2.0);
    stage.spend(A, 50);
    stage.until(8.0);
    stage.change_override(1_000, 49);
    [O, A, B, C, D].into_iter().for_each(|node| stage.tell_limit(node));
    stage.want(C, 40);
    stage.until(10.0);
    stage.grab(C);
    stage.grab_until(&[C, D], 60.0);
    stage.change_override(100_000, 500);
    [O, A, B, C, D].into_iter().for_each(|node| stage.tell_limit(node));
    let got = stage.grab_until(&[C, D], 100.0);
    stage.expect("it has a rate of its own", got > 2_000);
    stage.judge()
}

/// A node that does not know a limit's revision is granted nothing by it, nor does it adopt what
/// was granted by one that it does not know.
pub(super) fn an_unknown_revision_permits_nothing() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.change_limit(1_000, 40);
    stage.tell_limit(O);
    stage.tell_limit(B);
    let got = stage.grab_until(&[A], 40.0);
    stage.expect("a worker that is behind gets nothing", got == 0);
    let got = stage.grab_until(&[B], 80.0);
    stage.expect("one that is not does", got >= 40);
    stage.change_limit(1_000, 30);
    stage.tell_limit(B);
    stage.until(130.0);
    let got = stage.grab_until(&[B], 170.0);
    stage.expect("a worker that is ahead gets nothing", got == 0);
    stage.judge()
}

/// E15. The owner's clock is as fast as any may be, the worker's as slow: a permission still ends
/// at the worker first.
pub(super) fn a_fast_owner_waits_for_a_slow_worker() -> Vec<Violation> {
    let mut stage = clocks(10_000, -10_000);
    stage.ways(A, O, Way::Takes(0.01));
    stage.ways(C, O, Way::Takes(0.01));
    stage.want(A, 1_000);
    stage.until(1.0);
    stage.way(A, O, Way::Lost);
    stage.until(20.15);
    stage.want(C, 25);
    stage.until(20.19);
    let spent = stage.spend(A, 1_000);
    stage.expect("its time is not over by its own clock", spent == 1_000);
    stage.ask(C, 25);
    stage.judge()
}

/// E15. The other way round: what a slow owner permits ends at a fast worker all the sooner.
pub(super) fn a_slow_owner_and_a_fast_worker() -> Vec<Violation> {
    let mut stage = clocks(-10_000, 10_000);
    stage.grab_until(&[A, C], 40.0);
    stage.until(60.0);
    stage.want(A, 1_000);
    stage.until(79.5);
    stage.spend(A, 1_000);
    stage.grab_until(&[A, C], 110.0);
    stage.judge()
}

/// E15. R is what the owner's clock says it is: a fast one admits as much more, and no more.
pub(super) fn a_fast_owner_admits_as_much_more() -> Vec<Violation> {
    let mut stage = clocks(10_000, -10_000);
    let got = stage.grab_until(&[A, B, C, D], 100.0);
    stage.expect("it is used", got > 9_000);
    stage.judge()
}

/// A process stands still between a request's look at the clock and its charge, past the deadline:
/// more may be admitted, within the envelope, and the process says so when it goes on.
pub(super) fn a_process_that_stands_still_past_its_deadline() -> Vec<Violation> {
    pause_until(60.0)
}

/// The same for a few milliseconds.
pub(super) fn a_process_that_stands_still_for_a_moment() -> Vec<Violation> {
    pause_until(33.0)
}

fn pause_until(ms: f64) -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 50);
    stage.until(2.0);
    stage.way(A, O, Way::Lost);
    stage.until(19.5);
    stage.pause(A);
    stage.until(ms - 2.0);
    stage.want(C, 10);
    stage.until(ms);
    stage.grab(C);
    stage.resume(A, 50);
    stage.expect("more was admitted than may be", stage.excess() > 0.0);
    stage.expect_event("it says so", |event| matches!(event, Event::Paused { .. }));
    stage.expect("it says how much may have been late", stage.seen() == (0, 50));
    stage.grab_until(&[C, D], 100.0);
    stage.judge()
}

fn clocks(owner: i64, worker: i64) -> Stage {
    let setting =
        Setting { per_second: 100_000, burst: 1_000, drift_ppm: 10_000, ..Setting::default() };
    Stage::with_clocks(setting, &[(O, owner), (A, worker), (C, worker)])
}
