//! Schedules of one owner and its workers: identity, expiry, returns, refunds, deadlines.
//!
//! Each tells a story that broke an earlier version of the rules (rules 1 to 5 of the promise); the
//! numbers E1 to E15 are those of that review. All is at R = 1,000/s, B = b = 50, TTL 20 ms.

use super::stage::{A, B, C, D, O, Setting, Stage, Way};
use crate::check::Violation;

/// E1. A cell that left and came again is another cell: its reports count from the first one on.
pub(super) fn a_cell_that_comes_again_is_another() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.grab_until(&[A], 500.0);
    stage.until(2_000.0);
    let again = stage.grab_until(&[A], 2_060.0);
    stage.expect("the new cell is served", again >= 50);
    stage.grab_until(&[A, C], 2_200.0);
    stage.judge()
}

/// E2. A snapshot for a cell of the worker's former life permits its successor nothing.
pub(super) fn a_snapshot_for_a_former_life_permits_nothing() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 50);
    stage.until(2.0);
    stage.spend(A, 50);
    // 50 more are permitted when those have leaked, on a slow way.
    stage.until(60.0);
    stage.way(O, A, Way::Takes(30.0));
    stage.want(A, 50);
    stage.until(65.0);
    stage.way(O, A, Way::Lost);
    stage.restart(A);
    // They expire at 80.5. The old snapshot answers a third report, and comes at 90.5; the new life
    // has sent as many by then, and has heard nothing.
    stage.want(A, 1);
    stage.until(91.0);
    stage.grab(A);
    stage.way(O, A, Way::Usual);
    stage.grab_until(&[A, C], 120.0);
    stage.judge()
}

/// E3. What a worker spent and did not tell before it started again is not forgotten with it.
pub(super) fn a_worker_that_starts_again_leaves_its_record() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 50);
    stage.until(2.0);
    stage.way(A, O, Way::Lost);
    stage.spend(A, 50);
    stage.until(5.0);
    stage.restart(A);
    stage.way(A, O, Way::Usual);
    stage.want(A, 1);
    stage.until(6.5);
    stage.want(C, 50);
    stage.until(8.0);
    stage.grab(C);
    stage.grab_until(&[A, C], 60.0);
    stage.judge()
}

/// E4. A refund gives nothing back of what has leaked: C has spent it meanwhile.
pub(super) fn a_refund_of_what_has_leaked_gives_nothing() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    spend_at(&mut stage, A, 50, 0.0);
    spend_at(&mut stage, C, 50, 60.0);
    stage.refund(A, 50);
    stage.until(72.0);
    stage.grab_until(&[D], 95.0);
    stage.judge()
}

/// E4. Two refunds whose charges entered before the same low find it once.
pub(super) fn two_refunds_share_what_has_not_leaked() -> Vec<Violation> {
    let mut stage = Stage::new(Setting { burst: 1_000, ..Setting::default() });
    spend_at(&mut stage, A, 300, 0.0);
    spend_at(&mut stage, B, 100, 100.0);
    spend_at(&mut stage, D, 100, 200.0);
    // The level is lowest, some 50, right before C's 400 enter.
    spend_at(&mut stage, C, 400, 448.0);
    stage.refund(B, 100);
    stage.until(466.0);
    stage.refund(D, 100);
    stage.until(476.0);
    stage.grab_until(&[A, B, C, D], 560.0);
    stage.judge()
}

/// E4. A report of two refunds tells the age of the older charge.
pub(super) fn the_older_of_two_refunds_counts() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    spend_at(&mut stage, A, 50, 0.0);
    spend_at(&mut stage, C, 50, 60.0);
    spend_at(&mut stage, A, 1, 72.0);
    stage.until(80.0);
    stage.way(A, O, Way::Lost);
    stage.refund(A, 50);
    stage.until(81.0);
    stage.way(A, O, Way::Usual);
    stage.refund(A, 1);
    stage.until(90.0);
    stage.grab_until(&[D], 110.0);
    stage.judge()
}

/// E5. Permission that was returned late gives nothing back of what has leaked since it expired.
pub(super) fn a_late_return_of_what_has_leaked_gives_nothing() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 50);
    stage.until(2.0);
    stage.way(A, O, Way::Lost);
    spend_at(&mut stage, C, 50, 72.0);
    stage.way(A, O, Way::Usual);
    stage.until(85.0);
    stage.grab_until(&[D], 110.0);
    stage.judge()
}

/// E5. What a worker returns of an expired permission is matched to it first: what it has spent of
/// a newer one stays spent.
pub(super) fn a_return_is_matched_to_what_expired() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    // The first permission is lost on its way, and leaks away.
    stage.way(O, A, Way::Lost);
    stage.want(A, 50);
    stage.until(1.0);
    stage.way(A, O, Way::Lost);
    stage.until(75.0);
    stage.ways(O, A, Way::Usual);
    // With the second, it takes 50 as returned and spends 50; one report, at 92.5, tells both.
    stage.want(A, 50);
    stage.until(81.5);
    stage.way(A, O, Way::Lost);
    stage.until(83.0);
    let spent = stage.spend(A, 50);
    stage.expect("the second permission came", spent >= 40);
    stage.way(A, O, Way::Usual);
    stage.until(94.0);
    stage.ask(C, 40);
    stage.until(96.0);
    stage.grab(C);
    stage.grab(A);
    stage.judge()
}

/// E5. The older of two expiries that the worker has not told of counts for what it returns.
pub(super) fn the_older_of_two_expiries_counts() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.way(O, A, Way::Lost);
    stage.want(A, 50);
    stage.until(1.0);
    stage.way(A, O, Way::Lost);
    spend_at(&mut stage, C, 50, 72.0);
    stage.crash(C);
    // Of a second permission it spends 20, and that expires too before it tells anything.
    stage.until(139.0);
    stage.ways(O, A, Way::Usual);
    stage.want(A, 20);
    stage.until(141.6);
    stage.way(A, O, Way::Lost);
    stage.until(159.5);
    let spent = stage.spend(A, 20);
    stage.expect("the second permission came", spent == 20);
    stage.until(161.0);
    stage.way(A, O, Way::Usual);
    stage.until(164.0);
    stage.want(D, 25);
    stage.until(166.0);
    stage.grab(D);
    stage.grab(A);
    stage.grab_until(&[A, D], 190.0);
    stage.judge()
}

/// E6. Only a return corrects what was assumed: a report that was written before the spend, and
/// arrives after the expiry, says nothing.
pub(super) fn a_stale_report_corrects_nothing() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 50);
    stage.until(8.0);
    // It asks at 10 that what it keeps may live on.
    stage.way(A, O, Way::Takes(11.0));
    stage.until(12.0);
    stage.way(A, O, Way::Lost);
    stage.until(19.0);
    stage.spend(A, 50);
    stage.until(21.5);
    stage.want(C, 50);
    stage.until(23.0);
    stage.grab(C);
    stage.grab_until(&[C, D], 60.0);
    stage.judge()
}

/// A report just before a spend, just before expiry: the answer is lost, the worker's time ends.
pub(super) fn a_spend_between_a_report_and_the_expiry() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 50);
    stage.until(9.0);
    stage.way(O, A, Way::Lost);
    stage.until(11.0);
    stage.way(A, O, Way::Lost);
    stage.until(19.9);
    let spent = stage.spend(A, 50);
    stage.expect("its time is not over", spent == 50);
    stage.until(29.0);
    stage.want(C, 50);
    stage.grab_until(&[C, D], 100.0);
    stage.judge()
}

/// E7. A worker returns what it has while more is on its way: both count. (A charge that races with
/// the return on its cell is tried by loom.)
pub(super) fn a_return_crosses_a_snapshot() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 20);
    stage.until(14.0);
    stage.way(O, A, Way::Takes(10.0));
    stage.ask(A, 30);
    stage.until(18.0);
    stage.way(O, A, Way::Usual);
    stage.until(26.0);
    stage.grab(A);
    stage.want(C, 50);
    stage.until(28.0);
    stage.grab(C);
    stage.grab_until(&[A, C], 80.0);
    stage.judge()
}

/// E8. A worker that wants less keeps what it has, for the owner too.
pub(super) fn a_smaller_wish_cuts_nothing() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 50);
    stage.until(2.0);
    stage.spend(A, 1);
    stage.until(10.0);
    stage.ask(C, 45);
    stage.until(14.0);
    stage.grab(C);
    stage.spend(A, 49);
    stage.grab_until(&[A, C], 60.0);
    stage.judge()
}

/// E9. A short permission after a long one, lost on its way: the long one lives.
pub(super) fn a_short_permission_after_a_long_one_is_lost() -> Vec<Violation> {
    let mut stage = Stage::new(Setting { ttl_max_ms: 400, ..Setting::default() });
    stage.want(A, 50);
    stage.until(2.0);
    stage.way(O, A, Way::Lost);
    press(&mut stage, A, 30.0);
    stage.way(A, O, Way::Lost);
    stage.until(300.0);
    stage.want(C, 50);
    stage.until(302.0);
    stage.grab(C);
    let spent = stage.spend(A, 50);
    stage.expect("the long permission lives", spent == 50);
    stage.grab_until(&[C, D], 380.0);
    stage.judge()
}

/// E9. The long one is spent, a short one adds to it: the worker may spend that as long.
pub(super) fn a_short_permission_after_a_long_one_that_is_spent() -> Vec<Violation> {
    let mut stage = Stage::new(Setting { ttl_max_ms: 400, ..Setting::default() });
    spend_at(&mut stage, A, 50, 0.0);
    press(&mut stage, A, 60.0);
    stage.until(62.0);
    stage.way(A, O, Way::Lost);
    stage.until(280.0);
    stage.want(C, 50);
    stage.until(282.0);
    stage.grab(C);
    stage.grab(A);
    stage.judge()
}

/// E10. A renewal over a grant that was lost on its way and expired: the first is taken as
/// returned.
pub(super) fn a_renewal_over_a_lost_grant() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.way(O, A, Way::Lost);
    stage.want(A, 50);
    stage.until(1.0);
    stage.way(A, O, Way::Lost);
    stage.until(75.0);
    stage.ways(O, A, Way::Usual);
    stage.want(A, 50);
    stage.until(83.0);
    let spent = stage.grab(A);
    stage.expect("the renewal came", spent >= 40);
    stage.grab_until(&[A, C], 120.0);
    stage.judge()
}

/// What is permitted and unspent takes its room, and is assumed spent when its time is over.
pub(super) fn what_is_outstanding_takes_its_room() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 50);
    stage.until(10.0);
    stage.ask(C, 50);
    stage.until(12.0);
    stage.way(A, O, Way::Lost);
    stage.grab(C);
    stage.until(19.5);
    stage.spend(A, 50);
    stage.until(22.0);
    stage.ask(C, 50);
    stage.until(24.0);
    stage.grab_until(&[C, D], 60.0);
    stage.judge()
}

/// A worker counts its time from when it sent the report, not from when the answer came.
pub(super) fn a_late_snapshot_permits_no_longer() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.way(O, A, Way::Takes(19.0));
    stage.want(A, 50);
    stage.until(1.0);
    stage.way(A, O, Way::Lost);
    stage.until(36.0);
    stage.want(C, 15);
    stage.until(37.5);
    stage.grab(C);
    stage.spend(A, 50);
    stage.judge()
}

/// E11, E14, E17. What was spent on first contact counts once it is told, and may be more than was
/// ever permitted.
pub(super) fn what_was_spent_before_the_first_report_counts() -> Vec<Violation> {
    let mut stage = Stage::new(Setting { bootstrap: 5, per_second: 10, ..Setting::default() });
    stage.way(A, O, Way::Lost);
    stage.want(A, 1);
    let spent = stage.grab(A);
    stage.expect("the allowance is there at once", spent == 5);
    stage.way(A, O, Way::Usual);
    // Judged without the allowance: nobody else was in first contact.
    stage.until(12.0);
    stage.ask(A, 50);
    stage.until(14.0);
    stage.grab_until(&[A], 60.0);
    stage.judge()
}

/// E14. A worker that crashes again and again has its allowance each time, and no more than that.
pub(super) fn each_first_contact_has_its_allowance() -> Vec<Violation> {
    let mut stage = Stage::new(Setting { bootstrap: 5, ..Setting::default() });
    for life in 0..6 {
        stage.restart(A);
        stage.want(A, 1);
        stage.grab(A);
        stage.grab_until(&[A, C], f64::from(life) * 4.0 + 4.0);
    }
    stage.contacts(7);
    stage.judge()
}

/// Requests above one unit, those that wait, and parts given back.
pub(super) fn costs_above_one() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    for turn in 0..60 {
        let start = f64::from(turn) * 3.0;
        for node in [A, B, C] {
            stage.ask(node, 7);
            stage.ask(node, 13);
            stage.wait(node, 11, 10.0);
        }
        stage.until(start + 2.0);
        if turn % 4 == 3 {
            stage.refund(A, 5);
        }
        stage.until(start + 3.0);
    }
    stage.judge()
}

/// A key that its owner has forgotten, and its workers have not, is served like a new one.
pub(super) fn a_key_that_its_owner_forgot_is_served() -> Vec<Violation> {
    let mut stage = Stage::new(Setting { per_second: 100, ..Setting::default() });
    stage.grab_until(&[A], 300.0);
    // The last that the owner hears is that it asks for more than will ever be there.
    for turn in 0..12 {
        stage.until(304.0 + 3.0 * f64::from(turn));
        stage.spend(A, 1);
        stage.ask(A, 60);
    }
    stage.until(1_000.0);
    stage.expect("the owner has forgotten it", !stage.is_known(O));
    stage.grab(A);
    stage.until(1_006.0);
    let again = stage.grab(A);
    stage.expect("it is served at once", again > 0);
    stage.judge()
}

/// Wants, gets and spends so much from then on; it is told a few milliseconds later.
fn spend_at(stage: &mut Stage, node: u32, units: u64, ms: f64) {
    stage.until(ms);
    stage.want(node, units);
    stage.until(ms + 2.0);
    let spent = stage.spend(node, units);
    stage.expect("it was permitted", spent == units);
    stage.until(ms + 8.0);
}

/// Asks for so much within a few milliseconds that permissions become short.
fn press(stage: &mut Stage, node: u32, ms: f64) {
    stage.until(ms);
    for _ in 0..20 {
        stage.ask(node, 51);
    }
    stage.until(ms + 1.2);
}
