//! A fleet whose members have a network between them, made by the test itself, which cuts one of
//! them off: both ways, and so that it hears and can't be heard.
//!
//! Each member is in a network namespace of its own with one leg in a bridge. Clients come in by
//! Unix sockets, which no network concerns. Only root may do this.

use std::fs::File;
use std::net::SocketAddr;
use std::process::{Command, Output};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::course::{Course, Form, NOISY, alone, envelope, ms, policy};
use super::judge;
use super::load::{Door, now_ns};
use crate::harness::Fleet;

/// Three namespaces and a bridge in a fourth; gone when this is dropped.
struct Network {
    tag: String,
}

/// What is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// It hears nobody and nobody hears it.
    BothWays,
    /// Nobody hears it.
    Outgoing,
}

impl Network {
    /// Nothing if this process may not make one.
    fn new() -> Option<Self> {
        // Tests of one process run at once.
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let network = Self { tag: format!("tg{}x{number}", std::process::id() % 100_000) };
        let (hub, legs) = (network.hub(), 0..MEMBERS);
        let may = ip(&format!("netns add {hub}"));
        if !may.status.success() {
            println!("skipped: {}", String::from_utf8_lossy(&may.stderr).trim_end());
            return None;
        }
        done(&format!("-n {hub} link add hub type bridge"));
        done(&format!("-n {hub} link set hub up"));
        for leg in legs {
            let own = network.space(leg);
            done(&format!("netns add {own}"));
            done(&format!("-n {hub} link add leg{leg} type veth peer name net netns {own}"));
            done(&format!("-n {hub} link set leg{leg} master hub up"));
            done(&format!("-n {own} addr add {}/24 dev net", address(leg).ip()));
            done(&format!("-n {own} link set net up"));
            done(&format!("-n {own} link set lo up"));
        }
        Some(network)
    }

    fn cut(&self, leg: usize, cut: Cut) {
        match cut {
            Cut::BothWays => done(&format!("-n {} link set leg{leg} down", self.hub())),
            // What it sends goes to a station that nobody is.
            Cut::Outgoing => self.others(leg).for_each(|other| {
                let to = address(other).ip();
                let own = self.space(leg);
                done(&format!("-n {own} neigh replace {to} lladdr {NOBODY} dev net nud permanent"));
            }),
        }
    }

    fn heal(&self, leg: usize, cut: Cut) {
        match cut {
            Cut::BothWays => done(&format!("-n {} link set leg{leg} up", self.hub())),
            Cut::Outgoing => self.others(leg).for_each(|other| {
                let to = address(other).ip();
                done(&format!("-n {} neigh del {to} dev net", self.space(leg)));
            }),
        }
    }

    /// Does something in a member's namespace: whatever it starts there stays there.
    fn within(&self, leg: usize, act: impl FnOnce() + Send) {
        let space = File::open(format!("/run/netns/{}", self.space(leg))).expect("it was made");
        std::thread::scope(|scope| {
            let acting = scope.spawn(move || {
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(std::os::fd::AsFd::as_fd(&space), kind)
                    .expect("whoever makes a namespace may enter it");
                act();
            });
            acting.join().expect("it was done");
        });
    }

    fn hub(&self) -> String {
        format!("{}-hub", self.tag)
    }

    fn space(&self, leg: usize) -> String {
        format!("{}-{leg}", self.tag)
    }

    fn others(&self, leg: usize) -> impl Iterator<Item = usize> {
        (0..MEMBERS).filter(move |other| *other != leg)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for space in (0..MEMBERS).map(|leg| self.space(leg)).chain([self.hub()]) {
            let _ = ip(&format!("netns del {space}")); // It may not have been made.
        }
    }
}

/// Three daemons with a network between them, and clients.
fn course(network: &Network, title: &str, form: Form, options: &[&str]) -> Course {
    let alone: MutexGuard<'static, ()> = alone();
    let mut fleet = Fleet::with(0, Some(&policy(&form.limit())), &[]);
    let config = fleet.config();
    let folder = fleet.folder();
    let secret = folder.join("secret");
    std::fs::write(&secret, "of this fleet").expect("written");
    let mut doors = Vec::new();
    for leg in 0..MEMBERS {
        let door = folder.join(format!("door-{leg}"));
        let http = format!("unix:{}", door.display());
        let secret = secret.to_str().expect("a plain path");
        let config = config.to_str().expect("a plain path");
        let own = ["--config", config, "--http", &http, "--peer-secret-file", secret];
        let all: Vec<String> = own.iter().chain(options).map(|one| String::from(*one)).collect();
        network.within(leg, || fleet.add_at(address(leg), &all));
        doors.push(Door::Unix(door));
    }
    fleet.wait_until_whole();
    Course::with(title, form, fleet, doors, alone)
}

/// The owner of the noisy tenant's key is cut off for a while.
fn cut_off(form: Form, cut: Cut, on_coordinator_loss: &str) {
    let Some(network) = Network::new() else { return };
    let title =
        format!("the owner is cut off, {cut:?}, on-coordinator-loss = {on_coordinator_loss}");
    let mut course =
        course(&network, &title, form, &["--on-coordinator-loss", on_coordinator_loss]);
    let victim = course.victim;
    course.go_on(1_500);
    let began = now_ns();
    network.cut(victim, cut);
    course.go_on(5_000);
    network.heal(victim, cut);
    let healed = now_ns();
    course.fleet.wait_until_whole();
    let whole = now_ns();
    course.go_on(form.choose(1_500, 5_000));
    let mut outcomes = course.finish();
    // The others take its keys over once they take it for lost, and give them back when it is heard
    // again.
    let beyond = match on_coordinator_loss {
        "serve" => envelope(&course.limit, 3, whole - began),
        _deny => 0,
    };
    // What daemons say that the overlap explains, by its length as they saw it.
    let observed = course.most(ENVELOPE_OBSERVED);
    outcomes.judge(beyond.min(observed));
    outcomes.judge_quiet();
    let mut of_others = outcomes.of(NOISY);
    of_others.retain(|answer| answer.daemon != victim);
    let (_, served) = judge::longest_gap(&of_others, began, healed);
    outcomes.line(&format!(
        "its keys were served again by others after {:.0} ms (bar: 2,200 ms)",
        ms(served - began)
    ));
    outcomes.line(&format!("daemons say that {observed} units are explained by the overlap"));
    outcomes.line(&format!(
        "cut off for {:.1} s; {beyond} units beyond the bound are the envelope; whole again {:.0} \
         ms after it could be heard",
        ms(healed - began) / 1_000.0,
        ms(whole - healed)
    ));
    outcomes.tell_mishaps(&course);
    outcomes.print();
}

fn address(leg: usize) -> SocketAddr {
    SocketAddr::from(([10, 93, 0, leg as u8 + 1], 7_800))
}

/// Runs `ip` with these words.
fn ip(words: &str) -> Output {
    let run = Command::new("ip").args(words.split(' ')).output();
    run.unwrap_or_else(|error| {
        let status = std::os::unix::process::ExitStatusExt::from_raw(1 << 8);
        Output { status, stdout: Vec::new(), stderr: format!("ip: {error}").into_bytes() }
    })
}

fn done(words: &str) {
    let Output { status, stderr, .. } = ip(words);
    assert!(status.success(), "ip {words}: {}", String::from_utf8_lossy(&stderr));
}

const ENVELOPE_OBSERVED: &str =
    "tollgate_fleet_envelope_units{domain=\"default\",limit=\"api\",kind=\"observed\"";
const MEMBERS: usize = 3;
const NOBODY: &str = "02:00:00:00:00:fe";

#[test]
fn an_owner_that_is_cut_off_and_denies_then_lets_nothing_over_pass() {
    cut_off(Form::Short, Cut::BothWays, "deny");
}

#[test]
fn an_owner_that_is_not_heard_and_serves_on_stays_within_the_envelope() {
    cut_off(Form::Short, Cut::Outgoing, "serve");
}

#[test]
#[ignore = "long: e2e/fleet"]
fn long_cut_off() {
    for cut in [Cut::BothWays, Cut::Outgoing] {
        for on_coordinator_loss in ["deny", "serve"] {
            cut_off(Form::Long, cut, on_coordinator_loss);
        }
    }
}

/// Networks of this process so far.
static NETWORKS: AtomicU32 = AtomicU32::new(0);
