//! What happens to daemons on one machine while clients ask for more than they may have.

use super::course::{ALLOWED, BUSY, Course, Form, NOISY, Outcomes, envelope, ms};
use super::judge::{self, MILLISECOND, SECOND};
use super::load::now_ns;

/// Nothing goes wrong.
fn steady(form: Form) {
    let mut course = Course::start("steady", form, &[]);
    course.go_on(1_000);
    let from = now_ns();
    course.go_on(form.choose(4_000, 30_000));
    let to = now_ns();
    let mut outcomes = course.finish();
    outcomes.judge(0);
    outcomes.judge_quiet();
    agrees(&course, &mut outcomes);
    let used = outcomes.tell_used(from, to);
    outcomes.print();
    // A machine that is too busy for the clients asks for less.
    assert!(used >= form.choose(80.0, 95.0), "{}", outcomes.lines());
}

/// What daemons count, and owners heard of, is what clients were allowed.
fn agrees(course: &Course, outcomes: &mut Outcomes) {
    let clients = judge::allowed(&outcomes.answers).len() as u64;
    let decided = course.count(ALLOWED) - course.before;
    outcomes.line(&format!("clients were allowed {clients}, daemons say {decided}"));
    assert_eq!(clients, decided, "{}", outcomes.lines());
}

#[test]
fn clients_that_want_more_than_they_may_have_get_what_the_fleet_permits() {
    steady(Form::Short);
}

#[test]
#[ignore = "long: e2e/fleet"]
fn long_steady() {
    steady(Form::Long);
}

/// The owner of the noisy tenant's key is killed, and comes back with its data.
fn kills(form: Form) {
    let mut course = Course::start("the owner is killed by -9 again and again", form, &[]);
    let victim = course.victim;
    let mut killed = Vec::new();
    // An owner that dies within 2.5 s after members have come or gone may have waited for another's
    // keys: its own wait as long. The short form has no time for that to be over.
    course.go_on(form.choose(1_500, 3_500));
    for _ in 0..form.choose(2, 5) {
        let at = now_ns();
        course.fleet.daemon(victim).kill9();
        killed.push(at);
        course.go_on(form.choose(1_500, 3_000));
        course.fleet.daemon(victim).restart();
        course.fleet.wait_until_whole();
        course.go_on(form.choose(700, 3_000));
    }
    let mut outcomes = course.finish();
    outcomes.judge(0);
    outcomes.judge_quiet();
    tell_gaps(&mut outcomes, &killed);
    tell_latency_until_stale(&mut outcomes, &killed, victim);
    outcomes.print();
}

/// The owner is killed once, and does not lead the coordinator's replicas or does.
fn killed_once(form: Form, leads: bool) {
    let title = if leads { "an owner that leads is killed" } else { "an owner is killed" };
    let mut course = Course::start_at(title, form, leads);
    course.go_on(3_500);
    let at = now_ns();
    let victim = course.victim;
    course.fleet.daemon(victim).kill9();
    course.go_on(3_300);
    let mut outcomes = course.finish();
    outcomes.judge(0);
    outcomes.judge_quiet();
    tell_gaps(&mut outcomes, &[at]);
    outcomes.print();
}

#[test]
#[ignore = "long: e2e/fleet"]
fn long_killed_once() {
    for leads in [false, true].repeat(5) {
        killed_once(Form::Long, leads);
    }
}

/// How long after each kill the noisy tenant was served again.
fn tell_gaps(outcomes: &mut Outcomes, killed: &[u64]) {
    let noisy = outcomes.of(NOISY);
    let served = killed.iter().map(|&at| judge::longest_gap(&noisy, at, at + 3 * SECOND).1 - at);
    let served: Vec<u64> = served.collect();
    let told: Vec<String> = served.iter().map(|&after| format!("{:.0}", ms(after))).collect();
    let told = format!(
        "keys of the killed owner served again after {} ms (bar: 600 ms, plus an election if it \
         led)",
        told.join(", ")
    );
    outcomes.line(&told);
    for after in served {
        // The election, and whatever else the machine does.
        assert!(after < 3 * SECOND, "{}", outcomes.lines());
    }
}

/// How long decisions on survivors took before each kill, then until what the owner had permitted
/// ended, and then while nothing was permitted.
fn tell_latency_until_stale(outcomes: &mut Outcomes, killed: &[u64], victim: usize) {
    let survivors: Vec<_> =
        outcomes.of(NOISY).into_iter().filter(|one| one.daemon != victim).collect();
    for (from_ms, to_ms, when) in [
        (-1_000, 0, "before the kill"),
        (0, HOT_TTL_MS, "until the owner's last permissions end"),
        (HOT_TTL_MS, 400, "until others are in charge"),
    ] {
        let at = |kill: u64, ms: i64| kill.saturating_add_signed(ms * MILLISECOND as i64);
        let took = killed
            .iter()
            .flat_map(|&kill| judge::latencies(&survivors, at(kill, from_ms), at(kill, to_ms)));
        let mut took: Vec<u64> = took.collect();
        took.sort_unstable();
        outcomes.line(&format!(
            "decisions about its keys {when}: p50 {:.2} ms, p99 {:.2} ms of {}",
            ms(judge::quantile(&took, 0.5)),
            ms(judge::quantile(&took, 0.99)),
            took.len()
        ));
    }
}

/// How long a permission of a key near its limit lives at least, in milliseconds: four sync
/// intervals from a report that was sent up to one of them before.
const HOT_TTL_MS: i64 = 15;

#[test]
fn an_owner_that_is_killed_again_and_again_lets_nothing_over_pass() {
    kills(Form::Short);
}

#[test]
#[ignore = "long: e2e/fleet"]
fn long_kills() {
    kills(Form::Long);
}

/// The owner's process stands still, past the deadlines of what it was permitted.
fn pause(form: Form) {
    let mut course = Course::start("the owner's process stands still", form, &[]);
    let mut still = 0;
    course.go_on(1_500);
    for span in form.choose(&[1_000][..], &[1_000, 1_000, 3_000][..]) {
        let began = now_ns();
        course.fleet.member(course.victim).pause();
        course.go_on(*span);
        course.fleet.member(course.victim).wake();
        still = still.max(now_ns() - began);
        course.fleet.wait_until_whole();
        course.go_on(1_500);
    }
    let mut outcomes = course.finish();
    let beyond = envelope(&course.limit, 3, still);
    outcomes.judge(beyond);
    outcomes.judge_quiet();
    outcomes.line(&format!(
        "it stood still for {:.0} ms at most: the envelope is {beyond} units beyond the bound",
        ms(still)
    ));
    outcomes.tell_mishaps(&course);
    outcomes.print();
}

#[test]
fn an_owner_that_stands_still_past_its_deadlines_stays_within_the_envelope() {
    pause(Form::Short);
}

#[test]
#[ignore = "long: e2e/fleet"]
fn long_pause() {
    pause(Form::Long);
}

/// Each daemon in turn is stopped as planned and comes back.
fn rolling(form: Form) {
    let mut course = Course::start("a rolling restart by planned stops", form, &[]);
    course.go_on(1_500);
    let mut stops = Vec::new();
    for _ in 0..form.choose(1, 3) {
        for daemon in 0..3 {
            let at = now_ns();
            let status = course.fleet.daemon(daemon).stop_term();
            assert!(status.success(), "{status}");
            let stopped = now_ns();
            course.fleet.daemon(daemon).restart();
            course.fleet.wait_until_whole();
            stops.push((daemon, at, stopped, now_ns()));
            course.go_on(form.choose(300, 1_000));
        }
    }
    let mut outcomes = course.finish();
    outcomes.judge(0);
    let (mut stale, mut gap) = (0, 0);
    for &(stopping, from, _, to) in &stops {
        for tenant in [NOISY, BUSY] {
            let of = outcomes.of(tenant);
            let (began, ended) = judge::longest_gap(&of, from, to);
            gap = gap.max(ended - began);
            for daemon in (0..3).filter(|daemon| *daemon != stopping) {
                stale = stale.max(judge::longest_stale(&of, daemon, from, to));
            }
        }
    }
    let took: Vec<String> =
        stops.iter().map(|(_, at, stopped, _)| format!("{:.0}", ms(stopped - at))).collect();
    outcomes.line(&format!("each stop took {} ms", took.join(", ")));
    outcomes.line(&format!(
        "the longest time in which another daemon answered stale: {:.1} ms; in which nothing of a \
         key was allowed: {:.1} ms",
        ms(stale),
        ms(gap)
    ));
    outcomes.judge_quiet();
    outcomes.print();
    assert!(stale < 400 * MILLISECOND, "{}", outcomes.lines());
}

#[test]
fn a_rolling_restart_by_planned_stops_has_no_gap() {
    rolling(Form::Short);
}

#[test]
#[ignore = "long: e2e/fleet"]
fn long_rolling() {
    rolling(Form::Long);
}
