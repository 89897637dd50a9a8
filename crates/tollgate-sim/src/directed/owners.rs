//! Schedules of owners that change: crashes, restarts, handovers, rings that somebody missed (rule
//! 6 of the promise; E11, E12 and E16 of the review).

use tollgate::Event;

use super::stage::{A, B, C, D, O, Setting, Stage, Way, X, stranger};
use crate::check::Violation;

/// A new owner, after a crash, starts with the burst spent: somebody may have spent it a moment
/// ago.
pub(super) fn a_new_owner_starts_with_the_burst_spent() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 50);
    stage.until(2.0);
    stage.crash(O);
    stage.until(19.9);
    let spent = stage.spend(A, 50);
    stage.expect("what a dead owner permitted lives on", spent == 50);
    // So long after the crash nothing that it permitted lives.
    stage.until(22.1);
    move_to_x(&mut stage, &[O]);
    stage.want(C, 50);
    stage.until(24.0);
    stage.grab(C);
    stage.grab_until(&[A, C], 100.0);
    stage.judge()
}

/// A key that nobody has asked for since its owner began is as full as it would be by then.
pub(super) fn a_rested_key_is_full_at_its_new_owner() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.crash(O);
    stage.until(22.0);
    move_to_x(&mut stage, &[O]);
    stage.until(80.0);
    stage.want(A, 50);
    stage.until(82.0);
    let spent = stage.spend(A, 50);
    stage.expect("a rested key is full", spent == 50);
    stage.grab_until(&[A, C], 120.0);
    stage.judge()
}

/// An owner that starts again under the same ring has forgotten what it permitted: it holds the
/// level until all of that is over.
pub(super) fn an_owner_that_starts_again_holds() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 50);
    stage.until(2.0);
    stage.restart(O);
    stage.way(A, O, Way::Lost);
    stage.until(17.0);
    stage.want(C, 10);
    stage.until(18.5);
    stage.grab(C);
    let spent = stage.spend(A, 50);
    stage.expect("what it permitted before lives on", spent == 50);
    stage.grab_until(&[C], 60.0);
    stage.judge()
}

/// A snapshot of an owner's former life comes when the next one's is in force: it is of no use.
pub(super) fn a_snapshot_of_an_owners_former_life_comes_late() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.way(O, A, Way::Takes(100.5));
    stage.want(A, 50);
    stage.until(1.0);
    // It expires at the owner, and leaks away; C has the burst when the owner starts again.
    stage.ways(O, A, Way::Lost);
    stage.until(72.0);
    stage.want(C, 50);
    stage.until(74.0);
    stage.restart(O);
    stage.way(C, O, Way::Lost);
    stage.ways(O, A, Way::Usual);
    stage.ask(A, 1);
    stage.until(90.0);
    stage.spend(C, 50);
    stage.until(91.0);
    // A has a unit of the new life from 98.5 on, and the old 50 come at 101.
    stage.ask(A, 1);
    stage.until(101.5);
    stage.grab(A);
    stage.grab_until(&[A, C], 140.0);
    stage.judge()
}

/// What an old owner permitted is returned before a new one's permission is adopted: the new one
/// does not know of it.
pub(super) fn what_a_dead_owner_permitted_is_returned() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 50);
    stage.until(2.0);
    stage.crash(O);
    stage.until(22.1);
    move_to_x(&mut stage, &[O]);
    stage.until(72.5);
    stage.want(A, 1);
    stage.until(73.6);
    stage.want(C, 48);
    stage.until(75.0);
    stage.grab(A);
    stage.grab(C);
    stage.judge()
}

/// A ceiling is never lowered, at the worker neither: a new owner that does not know what is
/// permitted yet says less, and the cell has it all the same.
pub(super) fn a_new_owner_that_permits_less_cuts_nothing() -> Vec<Violation> {
    let mut stage = Stage::new(Setting { ttl_max_ms: 100, ..Setting::default() });
    stage.want(A, 50);
    stage.until(2.0);
    stage.restart(O);
    // It answers, permitting nothing yet, and what was permitted ends at 100.
    stage.ask(A, 51);
    stage.until(103.0);
    stage.want(A, 1);
    stage.until(105.0);
    stage.want(C, 40);
    stage.until(145.0);
    stage.want(C, 40);
    stage.want(A, 1);
    stage.until(148.0);
    stage.grab(C);
    stage.grab(A);
    stage.judge()
}

/// A planned change: what is outstanding is handed over, and expires at the new owner.
pub(super) fn a_handover_has_what_is_outstanding() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 50);
    stage.until(5.0);
    move_to_x(&mut stage, &[]);
    stage.until(7.0);
    stage.ask(C, 50);
    stage.way(A, X, Way::Lost);
    stage.until(9.0);
    stage.grab(C);
    stage.until(19.0);
    let spent = stage.spend(A, 50);
    stage.expect("what the old owner permitted lives on", spent == 50);
    stage.grab_until(&[C], 80.0);
    stage.judge()
}

/// E12. A planned change while a hold is in force does not shorten it.
pub(super) fn a_handover_does_not_shorten_a_hold() -> Vec<Violation> {
    hold_and_hand_over(true)
}

/// E12. The same for a key that the old owner has not heard of since it started again.
pub(super) fn a_handover_does_not_shorten_a_hold_of_unknown_keys() -> Vec<Violation> {
    hold_and_hand_over(false)
}

fn hold_and_hand_over(is_known: bool) -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 50);
    stage.until(2.0);
    stage.way(A, X, Way::Lost);
    stage.way(A, O, Way::Lost);
    stage.restart(O);
    if is_known {
        stage.want(C, 1);
    }
    stage.until(4.0);
    move_to_x(&mut stage, &[]);
    stage.until(17.5);
    stage.ask(C, 10);
    stage.until(19.0);
    stage.grab(C);
    let spent = stage.spend(A, 50);
    stage.expect("what it permitted before lives on", spent == 50);
    // What leaked too early is in hand at the end of the hold.
    stage.until(20.0);
    stage.ask(C, 10);
    stage.until(24.0);
    stage.grab(C);
    stage.grab_until(&[C], 60.0);
    stage.judge()
}

/// A new owner answers nobody before it has what the old one hands over.
pub(super) fn a_report_that_comes_before_the_handover_gets_nothing() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.grab_until(&[A], 8.0);
    stage.way(O, X, Way::Takes(15.0));
    move_to_x(&mut stage, &[]);
    stage.want(C, 40);
    stage.until(12.0);
    stage.grab(C);
    stage.grab_until(&[A, C], 80.0);
    stage.judge()
}

/// A new owner grants nothing before the count of what is handed over fits: what has not come may
/// be any key.
pub(super) fn a_part_of_a_handover_is_not_all() -> Vec<Violation> {
    let mut stage = Stage::new(Setting { per_second: 10, burst: 5, ..Setting::default() });
    let all =
        |stage: &mut Stage, node| (0..KEYS).filter(|key| stage.ask_key(node, *key, 5)).count();
    all(&mut stage, A);
    stage.until(8.0);
    let spent = all(&mut stage, A);
    stage.expect("every key's burst is spent", spent == KEYS as usize);
    stage.until(25.0);
    stage.way(O, X, Way::Only(1));
    move_to_x(&mut stage, &[]);
    stage.until(27.0);
    all(&mut stage, C);
    stage.until(35.0);
    all(&mut stage, C);
    // Now the others come.
    stage.way(O, X, Way::Usual);
    stage.until(70.0);
    all(&mut stage, C);
    stage.until(80.0);
    all(&mut stage, C);
    stage.judge()
}

/// A handover that comes twice does not undo what was granted in between.
pub(super) fn a_handover_that_comes_twice_counts_once() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 1);
    stage.until(2.0);
    stage.way(O, X, Way::Twice(12.0));
    move_to_x(&mut stage, &[]);
    stage.until(3.0);
    stage.want(C, 20);
    stage.until(4.5);
    let spent = stage.spend(C, 20) + stage.spend(A, 23);
    stage.expect("what the old owner permitted is in force", spent > 40);
    stage.until(14.6);
    stage.want(D, 25);
    stage.until(16.0);
    stage.grab(D);
    stage.grab_until(&[C, D], 60.0);
    stage.judge()
}

/// A handover that does not come counts as a crash: old permissions may live, and are waited for.
pub(super) fn a_handover_that_never_comes_counts_as_a_crash() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 50);
    stage.until(2.0);
    stage.ways(A, X, Way::Lost);
    stage.crash(O);
    move_to_x(&mut stage, &[]);
    stage.until(2_700.0);
    stage.want(C, 50);
    stage.until(2_702.0);
    stage.grab(C);
    stage.expect_event("the handover is late", |event| matches!(event, Event::HandoverLate { .. }));
    stage.grab_until(&[C], 3_200.0);
    stage.judge()
}

/// The ring changes again while a handover is awaited: what did not come is never asked for again,
/// and counts as a crash.
pub(super) fn a_ring_that_changes_while_a_handover_is_awaited() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 50);
    stage.until(2.0);
    stage.ways(A, X, Way::Lost);
    stage.way(O, X, Way::Lost);
    move_to_x(&mut stage, &[]);
    stage.until(4.0);
    stage.change_ring(&[X, stranger()], &[]);
    stage.tell_ring_all();
    stage.expect("the key stays", stage.is_in_charge(X));
    stage.until(17.0);
    stage.ask(C, 10);
    stage.until(19.0);
    stage.grab(C);
    let spent = stage.spend(A, 50);
    stage.expect("what the old owner permitted lives on", spent == 50);
    stage.grab_until(&[C], 80.0);
    stage.judge()
}

/// An old owner that has not heard of the change grants until its lease ends; the new one waits for
/// longer than that, though the ring changes again meanwhile.
pub(super) fn an_old_owner_that_is_deaf_is_waited_for_over_another_change() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.lease(O, 2_100.0);
    stage.change_ring(&[X], &[]);
    [X, C, D].into_iter().for_each(|node| stage.tell_ring(node));
    stage.until(10.0);
    stage.change_ring(&[X, stranger()], &[]);
    [X, C, D].into_iter().for_each(|node| stage.tell_ring(node));
    stage.grab_until(&[A, B, C, D], 300.0);
    stage.judge()
}

/// The same, when the other change gives the key to a third node: the second cannot vouch for it.
pub(super) fn an_old_owner_that_is_deaf_is_waited_for_by_a_third() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.lease(O, 2_100.0);
    stage.change_ring(&[X], &[]);
    [X, C, D].into_iter().for_each(|node| stage.tell_ring(node));
    stage.until(10.0);
    stage.change_ring(&[B], &[]);
    [X, B, C, D].into_iter().for_each(|node| stage.tell_ring(node));
    stage.grab_until(&[A, C, D], 300.0);
    stage.judge()
}

/// The same: what the old owner permitted until then is waited for by the third.
pub(super) fn a_handover_that_is_overtaken_by_a_change_is_held() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.change_ring(&[X], &[]);
    [X, C, D].into_iter().for_each(|node| stage.tell_ring(node));
    stage.change_ring(&[B], &[]);
    [X, B, C, D].into_iter().for_each(|node| stage.tell_ring(node));
    stage.until(18.0);
    stage.want(A, 50);
    stage.until(20.0);
    stage.tell_ring(O);
    stage.until(35.5);
    stage.ask(C, 10);
    stage.until(37.5);
    stage.grab(C);
    let spent = stage.spend(A, 50);
    stage.expect("what the old owner permitted lives on", spent == 50);
    stage.grab_until(&[C], 90.0);
    stage.judge()
}

/// The same, when the new owner starts again instead.
pub(super) fn an_old_owner_that_is_deaf_is_waited_for_over_a_restart() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.lease(O, 2_100.0);
    stage.change_ring(&[X], &[]);
    [X, C, D].into_iter().for_each(|node| stage.tell_ring(node));
    stage.until(10.0);
    stage.restart(X);
    stage.grab_until(&[A, B, C, D], 1_000.0);
    stage.judge()
}

/// A node that missed a ring may have missed an owner before it.
pub(super) fn a_missed_ring_counts_as_a_crash() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 50);
    stage.until(2.0);
    stage.ways(A, X, Way::Lost);
    stage.change_ring(&[X], &[]);
    stage.tell_ring(O);
    stage.change_ring(&[X, stranger()], &[]);
    stage.tell_last_ring(X);
    stage.expect("the key stays", stage.is_in_charge(X));
    [O, C, D].into_iter().for_each(|node| stage.tell_ring(node));
    stage.until(17.0);
    stage.ask(C, 10);
    stage.until(19.0);
    stage.grab(C);
    let spent = stage.spend(A, 50);
    stage.expect("what the old owner permitted lives on", spent == 50);
    stage.grab_until(&[C], 80.0);
    stage.judge()
}

/// What a node knows of a key from before a ring that it missed is forgotten: others have granted.
pub(super) fn what_is_known_from_before_a_missed_ring_is_forgotten() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 1);
    stage.until(2.0);
    stage.spend(A, 1);
    stage.until(30.0);
    // O dies as far as the fleet knows; X is in charge, then O again.
    stage.change_ring(&[X], &[O]);
    [X, C, D].into_iter().for_each(|node| stage.tell_ring(node));
    stage.until(90.0);
    stage.want(C, 50);
    stage.until(92.0);
    stage.spend(C, 50);
    stage.until(94.0);
    stage.change_ring(&[O], &[X]);
    stage.tell_last_ring(O);
    [X, A, B, C, D].into_iter().for_each(|node| stage.tell_ring(node));
    stage.want(D, 20);
    stage.until(97.0);
    stage.grab(D);
    stage.judge()
}

/// A worker and an owner that know different rings have nothing to say to each other: here the
/// owner's is two changes old, and another was in charge meanwhile.
pub(super) fn an_owner_of_an_old_ring_is_not_listened_to() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.change_ring(&[X], &[O]);
    [X, A, B, C, D].into_iter().for_each(|node| stage.tell_ring(node));
    stage.until(60.0);
    stage.want(C, 50);
    stage.until(62.0);
    stage.spend(C, 50);
    stage.change_ring(&[O], &[X]);
    [X, A, B, C, D].into_iter().for_each(|node| stage.tell_ring(node));
    stage.ask(A, 50);
    stage.until(64.0);
    stage.grab(A);
    stage.judge()
}

/// Two owners at once, for a while: more is admitted than by one, within the envelope, and the one
/// that was replaced says so when it hears of it.
pub(super) fn two_owners_at_once_are_measured() -> Vec<Violation> {
    let mut stage = Stage::new(Setting { serves_alone: true, ..Setting::default() });
    stage.change_ring(&[X], &[O]);
    [X, C, D].into_iter().for_each(|node| stage.tell_ring(node));
    stage.grab_until(&[A, B, C, D], 200.0);
    [O, A, B].into_iter().for_each(|node| stage.tell_ring(node));
    stage.expect("two owners admitted more than one may", stage.excess() > 50.0);
    stage.expect_event("they overlapped", |event| matches!(event, Event::Overlap { .. }));
    stage.grab_until(&[A, B, C, D], 300.0);
    stage.judge()
}

/// An owner that starts again hears of what its former life permitted: there is no room for it, and
/// it is no excess all the same.
pub(super) fn what_an_owners_former_life_permitted_is_no_excess() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 50);
    stage.until(2.0);
    stage.restart(O);
    stage.until(3.0);
    let spent = stage.spend(A, 50);
    stage.expect("what it permitted before lives on", spent == 50);
    stage.until(8.0);
    stage.expect("it has heard of that", stage.is_known(O));
    stage.grab_until(&[A, C], 120.0);
    stage.judge()
}

/// What an owner that was replaced had permitted is spent under the next one, which has permitted
/// the whole burst to others: it sees by how much that is too much, and for how long.
pub(super) fn an_owner_sees_what_another_permitted() -> Vec<Violation> {
    let mut stage = Stage::new(Setting { serves_alone: true, ..Setting::default() });
    stage.change_ring(&[X], &[O]);
    [X, C, D].into_iter().for_each(|node| stage.tell_ring(node));
    stage.until(60.0);
    stage.want(A, 50);
    stage.want(C, 50);
    stage.until(62.0);
    stage.spend(C, 50);
    [O, A, B].into_iter().for_each(|node| stage.tell_ring(node));
    stage.expect("nothing is seen before it is told", stage.seen() == (0, 0));
    let spent = stage.spend(A, 50);
    stage.expect("what the old owner permitted lives on", spent == 50);
    stage.until(66.0);
    let (excess, _) = stage.seen();
    stage.expect("all but what has leaked is too much", (45..=50).contains(&excess));
    stage.expect("it is one breach", stage.breaches(X) == 1);
    stage.until(90.0);
    stage.expect("it leaks", stage.excess_now(X).is_some_and(|now| now < 30 && now > 0));
    stage.until(120.0);
    stage.expect("and is over", stage.excess_now(X) == Some(0));
    stage.judge()
}

/// The same, when the change was planned, and the old owner hears of it when the new one waits no
/// longer.
pub(super) fn an_owner_that_hears_of_a_planned_change_too_late_is_measured() -> Vec<Violation> {
    let mut stage = Stage::new(Setting { serves_alone: true, ..Setting::default() });
    stage.change_ring(&[X], &[]);
    [X, C, D].into_iter().for_each(|node| stage.tell_ring(node));
    stage.until(2_550.0);
    stage.grab_until(&[A, B, C, D], 2_800.0);
    [O, A, B].into_iter().for_each(|node| stage.tell_ring(node));
    stage.expect("two owners admitted more than one may", stage.excess() > 50.0);
    stage.expect_event("they overlapped", |event| matches!(event, Event::Overlap { .. }));
    stage.judge()
}

/// E16. An owner that denies when it has lost the coordinator has stopped, and all that it
/// permitted is over, when its lease ends.
pub(super) fn an_owner_whose_lease_ends_stops_in_time() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.lease(O, 30.0);
    stage.until(25.0);
    stage.want(A, 50);
    stage.until(30.1);
    stage.change_ring(&[X], &[O]);
    [X, C, D].into_iter().for_each(|node| stage.tell_ring(node));
    stage.until(42.0);
    stage.ask(C, 10);
    stage.until(43.5);
    stage.grab(C);
    stage.grab(A);
    stage.grab_until(&[A, B, C, D], 120.0);
    stage.judge()
}

/// What expired under an old owner gives nothing back under the next one, who does not know what
/// has leaked since.
pub(super) fn a_return_of_an_old_owners_time_gives_nothing() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 50);
    stage.until(2.0);
    stage.way(A, O, Way::Lost);
    stage.way(A, X, Way::Lost);
    stage.until(72.0);
    stage.want(C, 50);
    stage.until(74.0);
    stage.spend(C, 50);
    stage.until(78.0);
    move_to_x(&mut stage, &[]);
    stage.until(80.0);
    stage.way(A, X, Way::Usual);
    stage.until(95.0);
    stage.want(D, 25);
    stage.grab_until(&[D], 110.0);
    stage.judge()
}

/// A refund that is told to a new owner gives nothing back of a charge under the old one, whose
/// clock is another.
pub(super) fn a_refund_of_an_old_owners_time_gives_nothing() -> Vec<Violation> {
    let mut stage = Stage::new(Setting::default());
    stage.want(A, 50);
    stage.until(2.0);
    stage.spend(A, 50);
    stage.until(60.0);
    stage.want(C, 50);
    stage.until(62.0);
    stage.spend(C, 50);
    stage.until(68.0);
    stage.way(A, O, Way::Lost);
    stage.refund(A, 50);
    move_to_x(&mut stage, &[]);
    stage.until(75.0);
    stage.want(D, 20);
    stage.grab_until(&[D], 90.0);
    stage.judge()
}

/// The ring is X's from now on, and all hear of it.
fn move_to_x(stage: &mut Stage, lost: &[u32]) {
    stage.change_ring(&[X], lost);
    stage.tell_ring_all();
}

/// More than go into one part of a handover.
const KEYS: u32 = 600;
