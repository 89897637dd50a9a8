//! A course: three daemons with clients of their own in front of each, a schedule of what goes
//! wrong meanwhile, and what came of it.
//!
//! Each schedule has a short form, which is a test, and a long one, whose figures are read by
//! people (`e2e/fleet`). What is promised is asserted in both. How long something took is told, and
//! asserted only so far as any machine keeps to it, however busy.

use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use super::judge::{self, Limit, MILLISECOND, SECOND};
use super::load::{Answer, Demand, Door, Load, Outcome, now_ns};
use crate::harness::Fleet;

/// How long a schedule is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Short,
    Long,
}

impl Form {
    /// One or the other.
    pub(crate) fn choose<T>(self, short: T, long: T) -> T {
        match self {
            Self::Short => short,
            Self::Long => long,
        }
    }

    /// The limit of each tenant.
    pub(crate) fn limit(self) -> Limit {
        self.choose(Limit::per_second(200, 40), Limit::per_second(400, 100))
    }
}

/// Wants more than it may have, over all daemons; its owner is [`Course::victim`].
pub(crate) const NOISY: usize = 0;
/// Wants more than it may have, nearly all of it at one daemon.
pub(crate) const BUSY: usize = 1;
/// Wants half of what it may have; neither its owner nor its clients are at the victim.
pub(crate) const QUIET: usize = 2;

/// What a daemon has allowed by the limit of the whole fleet.
pub(crate) const ALLOWED: &str =
    "tollgate_limit_decisions_total{domain=\"default\",limit=\"api\",decision=\"allowed\"";

/// Three daemons under load.
pub(crate) struct Course {
    pub(crate) fleet: Fleet,
    pub(crate) limit: Limit,
    pub(crate) doors: Vec<Door>,
    /// The daemon to which something happens.
    pub(crate) victim: usize,
    /// The one that owns the quiet tenant's key.
    pub(crate) survivor: usize,
    /// What had been allowed before clients began, by what daemons count.
    pub(crate) before: u64,
    tenants: Vec<String>,
    title: String,
    load: Option<Load>,
    began_ns: u64,
    /// Courses run one at a time: each loads the machine.
    _alone: MutexGuard<'static, ()>,
}

/// What came of a course.
pub(crate) struct Outcomes {
    pub(crate) answers: Vec<Answer>,
    limit: Limit,
    tenants: Vec<String>,
    began_ns: u64,
    lines: String,
}

impl Course {
    /// Three daemons on loopback, one tenant's owner chosen as the victim, clients at work.
    pub(crate) fn start(title: &str, form: Form, options: &[&str]) -> Self {
        let alone = alone();
        let (fleet, doors) = three(form, options);
        Self::with(title, form, fleet, doors, alone)
    }

    /// The same, and the victim leads the coordinator's replicas or does not, as wanted.
    pub(crate) fn start_at(title: &str, form: Form, leads: bool) -> Self {
        let alone = alone();
        let (fleet, doors) = three(form, &[]);
        let led = doors[0].get("/v1/fleet");
        let members = led["members"].as_array().expect("members");
        let leader = members.iter().find(|member| member["is_leader"] == true);
        let leader = leader.map(|member| daemon_at(&fleet, member)).expect("one of them leads");
        Self::of(title, form, fleet, doors, alone, |owner| (owner == leader) == leads)
    }

    /// The same with daemons that run already.
    pub(crate) fn with(
        title: &str,
        form: Form,
        fleet: Fleet,
        doors: Vec<Door>,
        alone: MutexGuard<'static, ()>,
    ) -> Self {
        Self::of(title, form, fleet, doors, alone, |_| true)
    }

    fn of(
        title: &str,
        form: Form,
        fleet: Fleet,
        doors: Vec<Door>,
        alone: MutexGuard<'static, ()>,
        is_victim: impl Fn(usize) -> bool,
    ) -> Self {
        let limit = form.limit();
        let noisy = owned(&fleet, &doors, "noisy", is_victim);
        let victim = noisy.1;
        let busy = owned(&fleet, &doors, "busy", |_| true);
        let quiet = owned(&fleet, &doors, "quiet", |owner| owner != victim);
        let tenants = vec![noisy.0, busy.0, quiet.0];
        let mut course = Self {
            fleet,
            limit,
            doors,
            victim,
            survivor: quiet.1,
            before: 0,
            tenants,
            title: title.into(),
            load: None,
            began_ns: 0,
            _alone: alone,
        };
        course.begin();
        course
    }

    /// Two and a half times what is permitted; the quiet tenant half of it.
    fn begin(&mut self) {
        let units = self.limit.units;
        let mut demands = Vec::new();
        for daemon in 0..self.doors.len() {
            let mut wants = |tenant, per_second| {
                demands.push(Demand { daemon, tenant, per_second });
            };
            wants(NOISY, units * 5 / 6);
            wants(BUSY, if daemon == self.survivor { units * 2 } else { units / 4 });
            if daemon != self.victim {
                wants(QUIET, units / 4);
            }
        }
        self.before = self.count(ALLOWED);
        self.began_ns = now_ns();
        self.load = Some(Load::start(&self.doors, &self.tenants, &demands));
    }

    /// The third daemon.
    pub(crate) fn other(&self) -> usize {
        3 - self.victim - self.survivor
    }

    /// Where a daemon speaks HTTP, as the command line has it.
    pub(crate) fn door(&self, daemon: usize) -> String {
        match &self.doors[daemon] {
            Door::Tcp(address) => address.to_string(),
            Door::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    /// The sum of a counter over all daemons that run, for all limits and reasons that its labels
    /// have.
    pub(crate) fn count(&self, series: &str) -> u64 {
        self.doors.iter().map(|door| door.count(series)).sum()
    }

    /// The highest value that a daemon has for a gauge.
    pub(crate) fn most(&self, series: &str) -> u64 {
        self.doors.iter().map(|door| door.count(series)).max().unwrap_or(0)
    }

    /// Lets clients go on for a while.
    pub(crate) fn go_on(&self, ms: u64) {
        sleep(Duration::from_millis(ms));
    }

    /// Ends the clients. The fleet goes on.
    pub(crate) fn finish(&mut self) -> Outcomes {
        let ended_ns = now_ns();
        let answers = self.load.take().expect("clients are at work").finish();
        let seconds = (ended_ns - self.began_ns) as f64 / SECOND as f64;
        Outcomes {
            answers,
            limit: self.limit,
            tenants: self.tenants.clone(),
            began_ns: self.began_ns,
            lines: format!("\n## {}, {seconds:.1} s\n", self.title),
        }
    }
}

impl Outcomes {
    /// What was asked and allowed, for each tenant, as a table. Asserts that no tenant had more
    /// than `beyond` units over its bound, in the whole run and in every window.
    pub(crate) fn judge(&mut self, beyond: u64) {
        self.line(
            "tenant     asked  allowed  stale   lost  over in run  in worst window   p50 ms   p99 \
             ms",
        );
        let mut worst = 0;
        for tenant in 0..self.tenants.len() {
            let of = judge::of(&self.answers, tenant);
            let count = |outcome| of.iter().filter(|one| one.outcome == outcome).count();
            let stamps = judge::allowed(&of);
            let (run, window) = (self.limit.excess_of_run(&of), self.limit.excess(&stamps));
            let took = judge::latencies(&of, 0, u64::MAX);
            let row = format!(
                "{:<9} {:>6} {:>8} {:>6} {:>6} {run:>12} {window:>16} {:>8.2} {:>8.2}",
                self.tenants[tenant],
                of.len(),
                stamps.len(),
                count(Outcome::Stale),
                count(Outcome::Lost),
                ms(judge::quantile(&took, 0.5)),
                ms(judge::quantile(&took, 0.99)),
            );
            self.line(&row);
            worst = worst.max(run).max(window);
        }
        assert!(worst <= beyond, "{worst} over, and {beyond} is the most\n{}", self.lines);
    }

    /// Asserts that the quiet tenant had what it asked for.
    pub(crate) fn judge_quiet(&mut self) {
        let percent = judge::served_percent(&self.of(QUIET));
        self.line(&format!("the quiet tenant had {percent:.2} % of its demand (bar: 99 %)"));
        if percent < 100.0 {
            self.tell_refused(QUIET);
        }
        assert!(percent >= 99.0, "{}", self.lines);
    }

    /// What a tenant did not get: when, by the time since clients began, from which daemon.
    fn tell_refused(&mut self, tenant: usize) {
        let mut refused = self.of(tenant);
        refused.retain(|one| !matches!(one.outcome, Outcome::Allowed | Outcome::Lost));
        refused.sort_unstable_by_key(|one| one.asked_ns);
        for one in refused {
            let Answer { daemon, asked_ns, answered_ns, outcome, .. } = one;
            let (at, took) = (ms(asked_ns - self.began_ns), ms(answered_ns - asked_ns));
            self.line(&format!("  {at:.1} ms: {outcome:?} by {daemon} after {took:.2} ms"));
        }
    }

    /// What two tenants that want more than they may have used of their rates once all had begun.
    pub(crate) fn tell_used(&mut self, from: u64, to: u64) -> f64 {
        let of = |tenant| judge::used_percent(&self.of(tenant), &self.limit, from, to);
        let (noisy, busy) = (of(NOISY), of(BUSY));
        self.line(&format!("used of the rate: noisy {noisy:.2} %, busy {busy:.2} % (bar: 99 %)"));
        noisy.min(busy)
    }

    /// What the daemons that run say that went wrong.
    pub(crate) fn tell_mishaps(&mut self, course: &Course) {
        let count = |name: &str| course.count(&format!("tollgate_fleet_{name}"));
        self.line(&format!(
            "daemons say: {} pauses, {} units late at most; {} overlaps; {} units of excess at \
             most",
            count("pauses_total"),
            count("late_units_total"),
            count("overlaps_total"),
            count("excess_max_units"),
        ));
    }

    /// The answers about one tenant.
    pub(crate) fn of(&self, tenant: usize) -> Vec<Answer> {
        judge::of(&self.answers, tenant)
    }

    /// One more line of what is told.
    pub(crate) fn line(&mut self, line: &str) {
        let _ = writeln!(self.lines, "{line}");
    }

    /// All that is told.
    pub(crate) fn print(&self) {
        println!("{}", self.lines);
    }

    /// What was told so far, for a failure.
    pub(crate) fn lines(&self) -> &str {
        &self.lines
    }
}

/// Three daemons on loopback, and their doors.
fn three(form: Form, options: &[&str]) -> (Fleet, Vec<Door>) {
    let (fleet, doors) = Fleet::with_doors(3, &policy(&form.limit()), options);
    (fleet, doors.into_iter().map(Door::Tcp).collect())
}

/// The policy with one limit of the whole fleet.
pub(crate) fn policy(limit: &Limit) -> String {
    let Limit { units, burst, .. } = limit;
    format!(
        "[[limit]]\nname = \"api\"\nkey = [\"tenant\"]\nrate = \"{units}/s\"\nburst = {burst}\n\
         guarantee = \"eventual\"\n"
    )
}

/// What a promise adds while there may be two owners for so long, or a process stood still past its
/// deadlines: N · max(b, c) + R · d.
pub(crate) fn envelope(limit: &Limit, nodes: u64, span_ns: u64) -> u64 {
    // What a hot key may hold on a node: twice what it may use in four sync intervals of 5 ms.
    let hot = (2 * limit.units * 20).div_ceil(1_000);
    nodes * hot.clamp(1, limit.burst) + limit.units_in(span_ns) + 1
}

/// A tenant whose owner is as wanted, and that owner.
fn owned(
    fleet: &Fleet,
    doors: &[Door],
    name: &str,
    is_wanted: impl Fn(usize) -> bool,
) -> (String, usize) {
    let tenants = (0..100).map(|number| format!("{name}-{number}"));
    let mut owners = tenants.map(|tenant| (owner(fleet, doors, &tenant), tenant));
    let found = owners.find(|(owner, _)| is_wanted(*owner));
    found.map(|(owner, tenant)| (tenant, owner)).expect("one of a hundred has such an owner")
}

/// Who owns a key, as any member tells: nothing is spent by asking.
fn owner(fleet: &Fleet, doors: &[Door], tenant: &str) -> usize {
    daemon_at(fleet, &doors[0].get(&format!("/v1/fleet/owner?limit=api&tenant={tenant}")))
}

/// Which daemon has the `address` that is told.
fn daemon_at(fleet: &Fleet, told: &Value) -> usize {
    let address = told["address"].as_str().expect("a fleet that is whole has addresses");
    let mut daemons = fleet.running().map(|member| member.peer().to_string());
    daemons.position(|peer| peer == address).expect("one of the daemons, all of which run")
}

/// Waits until no other course runs.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As people read it.
pub(crate) fn ms(ns: u64) -> f64 {
    ns as f64 / MILLISECOND as f64
}
