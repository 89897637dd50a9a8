//! What the fields of a scenario file mean together, and what is nonsense.
//!
//! What is wrong is reported and read as something harmless, so that the rest is checked too.

use toml::Spanned;

use tollgate::Rate;
use tollgate::coordinator::{OnCoordinatorLoss, SessionOptions};
use tollgate_sim::number;
use tollgate_sim::scenario::{
    Demand, Fault, MS, Nanos, Network, SECOND, Scenario, Shape, SimLimit, Wrong,
};
use tollgate_sim::show::Names;

use super::super::finding::{Findings, Place, short};
use super::super::time;
use super::file::{
    ChangeTable, CostWord, CutTable, DemandTable, FaultTable, LimitTable, NetworkTable, OnLoss,
    ScenarioFile, ShapeWord,
};

/// A check of one file.
pub(super) struct Check<'f, 't> {
    findings: &'f mut Findings<'t>,
    nodes: u32,
    lasts: Nanos,
    names: Names,
    limits: Vec<SimLimit>,
}

/// Which node a fault hits.
enum Hit {
    Node(u32),
    Owner(usize, u32),
}

impl<'f, 't> Check<'f, 't> {
    pub(super) fn new(findings: &'f mut Findings<'t>) -> Self {
        let (names, limits) = (Names::default(), Vec::new());
        Self { findings, nodes: 1, lasts: LASTS_MIN, names, limits }
    }

    /// The scenario of a file; only of use if nothing is found to be an error.
    pub(super) fn fleet(mut self, file: ScenarioFile, title: String) -> (Scenario, Names) {
        self.names.title = title;
        self.nodes = *file.nodes.get_ref();
        if !(1..=NODES_MAX).contains(&self.nodes) {
            self.error(&file.nodes, format!("must be 1 to {}", number(f64::from(NODES_MAX))));
            self.nodes = self.nodes.clamp(1, NODES_MAX);
        }
        self.lasts = self.time_or(&file.lasts, LASTS_MAX);
        if self.lasts < LASTS_MIN {
            self.error(&file.lasts, "must be at least 100ms");
            self.lasts = LASTS_MAX;
        }
        let network = self.network(&file.network);
        let drift_ppm = self.drift(file.drift_ppm.as_ref());
        let session = SessionOptions::default();
        let loss = session.on_coordinator_loss == OnCoordinatorLoss::Serve;
        let serves_alone = file.on_coordinator_loss.map_or(loss, |word| word == OnLoss::Serve);
        let mut times = tollgate::ViewTimes::default();
        if let Some(interval) = &file.sync_interval {
            let nanos = self.time_or(interval, MS);
            if !(MS..=100 * MS).contains(&nanos) {
                self.error(interval, "must be 1ms to 100ms");
            }
            times.sync_interval = std::time::Duration::from_nanos(nanos.max(MS));
        }
        self.all(file.limit.len(), LIMITS_MAX, "limit");
        file.limit.iter().for_each(|limit| self.limit(limit));
        self.all(file.demand.len(), DEMANDS_MAX, "demand");
        let demands: Vec<Demand> =
            file.demand.iter().filter_map(|demand| self.demand(demand)).collect();
        self.work(&demands, times.sync_interval.as_nanos() as Nanos);
        self.all(file.fault.len(), FAULTS_MAX, "fault");
        let mut faults: Vec<_> = file.fault.iter().filter_map(|fault| self.fault(fault)).collect();
        faults.sort_by_key(|(at, _)| *at);
        let scenario = Scenario {
            seed: file.seed.unwrap_or(1),
            nodes: self.nodes,
            lasts: self.lasts,
            rests: 0,
            limits: self.limits,
            demands,
            network,
            times,
            drift_ppm,
            serves_alone,
            reports_per_second_max: REPORTS_PER_SECOND_MAX,
            faults,
        };
        (scenario, self.names)
    }

    fn network(&mut self, table: &NetworkTable) -> Network {
        let mut network = Network::QUIET;
        if let Some(delay) = &table.delay {
            network.delay_min = self.delay(delay);
            network.delay_max = network.delay_min;
            let other = table.delay_min.as_ref().or(table.delay_max.as_ref());
            if let Some(other) = other {
                self.error(other, "stands beside `delay`; write one of them");
            }
        } else {
            match (&table.delay_min, &table.delay_max) {
                (Some(min), Some(max)) => {
                    network.delay_min = self.delay(min);
                    network.delay_max = self.time_or(max, DELAY_MAX);
                    if network.delay_max > DELAY_MAX {
                        self.error(max, "must be at most 10s");
                    } else if network.delay_max < network.delay_min {
                        self.error(max, "must not be less than `delay_min`");
                    }
                }
                (Some(one), None) | (None, Some(one)) => {
                    self.error(one, "`delay_min` and `delay_max` go together; or write `delay`");
                }
                (None, None) => {}
            }
        }
        network.loss = self.part(table.loss.as_ref());
        network.repeats = self.part(table.repeats.as_ref());
        network.slow = self.part(table.slow.as_ref());
        match (&table.slow, &table.slow_delay) {
            (_, Some(delay)) => network.slow_max = self.delay(delay),
            (Some(slow), None) => self.error(slow, "needs a `slow_delay`"),
            (None, None) => {}
        }
        network
    }

    fn drift(&mut self, drift: Option<&Spanned<u32>>) -> u32 {
        let Some(drift) = drift else { return 0 };
        if *drift.get_ref() > DRIFT_PPM_MAX {
            self.error(
                drift,
                format!("must be at most {DRIFT_PPM_MAX}, which the fleet allows for"),
            );
        }
        *drift.get_ref()
    }

    fn limit(&mut self, limit: &Spanned<LimitTable>) {
        let LimitTable { name, rate, burst, local_cap, bootstrap } = limit.get_ref();
        let text = name.get_ref();
        self.name(name);
        if text.contains('/') {
            self.error(name, "must not hold `/`, which parts a limit from its key");
        }
        if self.names.limits.contains(text) {
            self.error(name, format!("there is already a limit {text:?}"));
        }
        let rate = self.rate(rate);
        let burst = match burst {
            Some(burst) => self.units(burst),
            None => rate.units().min(UNITS_MAX),
        };
        let local_cap = local_cap.as_ref().map(|cap| self.units(cap));
        let bootstrap = bootstrap.as_ref().map_or(0, |units| self.units(units));
        self.names.limits.push(text.clone());
        self.names.keys.push(Vec::new());
        self.limits.push(SimLimit { rate, burst, local_cap, bootstrap });
    }

    fn demand(&mut self, demand: &Spanned<DemandTable>) -> Option<Demand> {
        let table = demand.get_ref();
        let limit = self.limit_named(&table.limit)?;
        let key = match &table.key {
            Some(key) => {
                self.name(key);
                self.key(limit, key.get_ref(), key.span().start)?
            }
            None => self.key(limit, "all", demand.span().start)?,
        };
        let mut nodes = Vec::new();
        if let Some(listed) = &table.nodes {
            for node in listed.get_ref() {
                let number = self.node(node);
                if nodes.contains(&number) {
                    self.error(node, "is listed twice");
                }
                nodes.push(number);
            }
            if nodes.is_empty() {
                self.error(listed, "must not be empty; left out it is all nodes");
            }
        }
        let count = if nodes.is_empty() { self.nodes } else { nodes.len() as u32 };
        let rate = self.rate(&table.rate);
        let total = rate.per_second();
        let until = match &table.until {
            Some(until) => self.time_or(until, self.lasts).min(self.lasts),
            None => self.lasts,
        };
        let from = table.from.as_ref().map_or(0, |from| self.time(from));
        if let Some(written) = table.from.as_ref().filter(|_| from >= until) {
            self.error(written, "is not before the end");
        }
        let refunds = self.part(table.refunds.as_ref());
        let refund_after = self.optional_time(table.refund_after.as_ref());
        if let Some(written) = table.refund_after.as_ref().filter(|_| table.refunds.is_none()) {
            self.error(written, "needs `refunds`, the part of requests that give something back");
        }
        Some(Demand {
            limit,
            key,
            nodes,
            per_second: total / f64::from(count.max(1)),
            from,
            until,
            shape: self.shape(table.shape.as_ref()),
            cost: self.cost(table.cost.as_ref(), self.limits[limit].burst),
            waits: self.optional_time(table.waits.as_ref()),
            refunds,
            refund_after,
        })
    }

    fn shape(&mut self, shape: Option<&Spanned<ShapeWord>>) -> Shape {
        let Some(shape) = shape else { return Shape::Random };
        match *shape.get_ref() {
            ShapeWord::Random => Shape::Random,
            ShapeWord::Even => Shape::Even,
            ShapeWord::Bursts(count) => {
                if !(1..=BURSTS_MAX).contains(&count) {
                    self.error(shape, format!("must be bursts of 1 to {BURSTS_MAX}"));
                }
                Shape::Bursts(count.clamp(1, BURSTS_MAX))
            }
        }
    }

    fn cost(&mut self, cost: Option<&Spanned<CostWord>>, burst: u64) -> (u64, u64) {
        let Some(written) = cost else { return (1, 1) };
        let (least, most) = match *written.get_ref() {
            CostWord::One(cost) => (cost, cost),
            CostWord::Between([least, most]) => (least, most),
        };
        if least == 0 || most > UNITS_MAX {
            self.error(written, format!("must be 1 to {UNITS_MAX}"));
        } else if most < least {
            self.error(written, "the lesser cost comes first");
        } else if most > burst {
            let message = format!("a cost of {most} never passes a burst of {burst}");
            self.findings.warning(at(written), message);
        }
        (least.max(1), most.max(least).max(1))
    }

    /// The simulator takes some 1.5 million requests in a second, and keeps 40 bytes of each that
    /// is admitted; messages take ten times as long.
    fn work(&mut self, demands: &[Demand], interval: Nanos) {
        // What is wrong may be far from what was meant.
        if self.findings.errors() > 0 {
            return;
        }
        let seconds = |demand: &Demand| demand.until.saturating_sub(demand.from) as f64 / 1e9;
        let nodes = |demand: &Demand| match demand.nodes.len() {
            0 => f64::from(self.nodes),
            count => count as f64,
        };
        let of = |demand: &Demand| demand.per_second * nodes(demand) * seconds(demand);
        let requests: f64 = demands.iter().map(of).sum();
        // A report in each interval, and its answer.
        let of = |demand: &Demand| 2.0 * nodes(demand) * seconds(demand) * 1e9 / interval as f64;
        let messages: f64 = demands.iter().map(of).sum();
        let bounds = [
            (requests, REQUESTS_MAX, "asks", "requests"),
            (messages, MESSAGES_MAX, "may send", "messages"),
        ];
        for (count, max, does, what) in bounds {
            if count > max {
                let message = format!(
                    "{does} {} {what} in all, at most {} can be simulated; make it \
                     smaller or shorter",
                    number(count.round()),
                    number(max)
                );
                self.findings.error(Place { file: 0, offset: 0 }, message);
            }
        }
        if demands.is_empty() {
            let message = "asks nothing: write [[limit]] and [[demand]]";
            self.findings.error(Place { file: 0, offset: 0 }, message);
        }
    }

    fn fault(&mut self, fault: &Spanned<FaultTable>) -> Option<(Nanos, Fault)> {
        let table = fault.get_ref();
        let when = self.time(&table.at);
        if when >= self.lasts {
            let lasts = tollgate_sim::duration(std::time::Duration::from_nanos(self.lasts));
            self.error(&table.at, format!("is not before the end, which is at {lasts}"));
        }
        let mut all: Vec<Option<Fault>> = Vec::new();
        if let Some(crash) = &table.crash {
            let back_after = self.optional_back(crash.get_ref().back_after.as_ref());
            let hit = self.hit(crash, &crash.get_ref().node, &crash.get_ref().owner_of);
            all.push(hit.map(|hit| hit.by(Wrong::Crash { back_after })));
        }
        if let Some(stop) = &table.stop {
            let back_after = self.optional_back(stop.get_ref().back_after.as_ref());
            let hit = self.hit(stop, &stop.get_ref().node, &stop.get_ref().owner_of);
            all.push(hit.map(|hit| hit.by(Wrong::Stop { back_after })));
        }
        if let Some(reset) = &table.reset {
            let back_after = self.optional_back(reset.get_ref().back_after.as_ref());
            if back_after.is_none() {
                self.error(reset, "needs `back_after`, after which it connects again");
            }
            let hit = self.hit(reset, &reset.get_ref().node, &reset.get_ref().owner_of);
            let back_after = back_after.unwrap_or(0);
            all.push(hit.map(|hit| hit.by(Wrong::Reset { back_after })));
        }
        if let Some(pause) = &table.pause {
            let lasts = self.time(&pause.get_ref().lasts);
            let hit = self.hit(pause, &pause.get_ref().node, &pause.get_ref().owner_of);
            all.push(hit.map(|hit| hit.by(Wrong::Pause { lasts })));
        }
        if let Some(silence) = &table.silence {
            let lasts = self.time(&silence.get_ref().lasts);
            let hit = self.hit(silence, &silence.get_ref().node, &silence.get_ref().owner_of);
            all.push(hit.map(|hit| hit.by(Wrong::Silence { lasts })));
        }
        all.extend(table.cut.as_ref().map(|cut| Some(self.cut(cut.get_ref()))));
        all.extend(table.change.as_ref().map(|change| self.change(change.get_ref())));
        if let Some(failover) = &table.failover {
            if !failover.get_ref() {
                self.error(failover, "must be true, or be left out");
            }
            all.push(Some(Fault::Failover));
        }
        if all.len() != 1 {
            let count = if all.is_empty() { "nothing" } else { "more than one thing" };
            let message = format!("{count} goes wrong here; write one of {KINDS}");
            self.findings.error(at(fault), message);
        }
        Some((when, all.pop()??))
    }

    fn hit<T>(
        &mut self,
        whole: &Spanned<T>,
        node: &Option<Spanned<u32>>,
        owner_of: &Option<Spanned<String>>,
    ) -> Option<Hit> {
        match (node, owner_of) {
            (Some(node), None) => Some(Hit::Node(self.node(node))),
            (None, Some(owner_of)) => {
                let (limit, key) = self.key_named(owner_of)?;
                Some(Hit::Owner(limit, key))
            }
            (Some(_), Some(other)) => {
                self.error(other, "stands beside `node`; write one of them");
                None
            }
            (None, None) => {
                self.error(whole, "needs `node`, or `owner_of`");
                None
            }
        }
    }

    fn cut(&mut self, cut: &CutTable) -> Fault {
        let (from, to) = (self.node(&cut.from), cut.to.as_ref().map(|to| self.node(to)));
        if let Some(written) = cut.to.as_ref().filter(|_| to == Some(from)) {
            self.error(written, "is `from` itself");
        }
        Fault::Cut { from, to, lasts: self.time(&cut.lasts) }
    }

    fn change(&mut self, change: &ChangeTable) -> Option<Fault> {
        let (rate, burst) = (self.rate(&change.rate), self.units(&change.burst));
        let limit = self.limit_named(&change.limit)?;
        Some(Fault::Change { limit, rate, burst })
    }

    // Values by themselves.

    fn error<T>(&mut self, value: &Spanned<T>, message: impl Into<String>) {
        self.findings.error(at(value), message);
    }

    fn all(&mut self, count: usize, max: usize, what: &str) {
        if count > max {
            let message = format!("has {count} times [[{what}]]; at most {max} can be simulated");
            self.findings.error(Place { file: 0, offset: 0 }, message);
        }
    }

    fn time(&mut self, text: &Spanned<String>) -> Nanos {
        self.time_or(text, 0)
    }

    /// The same, and what it is to be if it is none.
    fn time_or(&mut self, text: &Spanned<String>, otherwise: Nanos) -> Nanos {
        match time(text.get_ref()) {
            Ok(time) => time.as_nanos() as Nanos,
            Err(error) => {
                self.error(text, error);
                otherwise
            }
        }
    }

    fn optional_time(&mut self, text: Option<&Spanned<String>>) -> Nanos {
        text.map_or(0, |text| self.time(text))
    }

    fn optional_back(&mut self, text: Option<&Spanned<String>>) -> Option<Nanos> {
        text.map(|text| self.time(text))
    }

    fn delay(&mut self, text: &Spanned<String>) -> Nanos {
        let delay = self.time(text);
        if delay > DELAY_MAX {
            self.error(text, "must be at most 10s");
        }
        delay
    }

    fn rate(&mut self, text: &Spanned<String>) -> Rate {
        let one = || Rate::new(1, SECOND).expect("one a second is a rate");
        match Rate::parse(text.get_ref()) {
            Ok(Rate::ZERO) => self.error(text, "must not be zero"),
            Ok(rate) => return rate,
            Err(_) => self.error(text, "must be units/period such as \"5000/s\" or \"60/15min\""),
        }
        one()
    }

    fn units(&mut self, units: &Spanned<u64>) -> u64 {
        if !(1..=UNITS_MAX).contains(units.get_ref()) {
            self.error(units, format!("must be 1 to {UNITS_MAX}"));
        }
        (*units.get_ref()).clamp(1, UNITS_MAX)
    }

    fn part(&mut self, part: Option<&Spanned<f64>>) -> f64 {
        let Some(written) = part else { return 0.0 };
        if !(0.0..=1.0).contains(written.get_ref()) {
            self.error(written, "must be 0 to 1");
            return 0.0;
        }
        *written.get_ref()
    }

    /// From 1 as written, from 0 as known.
    fn node(&mut self, node: &Spanned<u32>) -> u32 {
        let (number, nodes) = (*node.get_ref(), self.nodes);
        if !(1..=nodes).contains(&number) {
            let message = format!("there is no node {number}: they are numbered from 1 to {nodes}");
            self.error(node, message);
        }
        number.clamp(1, nodes) - 1
    }

    fn name(&mut self, name: &Spanned<String>) {
        let text = name.get_ref();
        if text.is_empty() || text.chars().count() > NAME_CHARS_MAX {
            self.error(name, format!("must be 1 to {NAME_CHARS_MAX} characters"));
        } else if text.chars().any(char::is_control) {
            self.error(name, "must not hold control characters");
        }
    }

    fn limit_named(&mut self, name: &Spanned<String>) -> Option<usize> {
        let place = self.names.limits.iter().position(|known| known == name.get_ref());
        if place.is_none() {
            let known = listed(self.names.limits.iter().cloned());
            let message = format!("there is no limit {:?}; {known}", short(name.get_ref()));
            self.error(name, message);
        }
        place
    }

    /// The number of a key, which it gets when it is first met.
    fn key(&mut self, limit: usize, key: &str, offset: usize) -> Option<u32> {
        let count: usize = self.names.keys.iter().map(Vec::len).sum();
        let keys = &mut self.names.keys[limit];
        if let Some(place) = keys.iter().position(|known| known == key) {
            return Some(place as u32);
        }
        if count == KEYS_MAX {
            let message = format!("is one key more than the {KEYS_MAX} that can be simulated");
            self.findings.error(Place { file: 0, offset }, message);
            return None;
        }
        keys.push(key.into());
        Some(keys.len() as u32 - 1)
    }

    fn key_named(&mut self, name: &Spanned<String>) -> Option<(usize, u32)> {
        let keys = self.names.keys.iter().enumerate();
        let mut all = keys.flat_map(|(limit, keys)| (0..keys.len()).map(move |key| (limit, key)));
        let names = &self.names;
        let found = all.find(|(limit, key)| names.of(*limit, *key as u32) == *name.get_ref());
        if found.is_none() {
            let keys = names.keys.iter().enumerate();
            let all = keys.flat_map(|(limit, keys)| (0..keys.len()).map(move |key| (limit, key)));
            let known = listed(all.map(|(limit, key)| names.of(limit, key as u32)));
            let message = format!("nothing asks a key {:?}; {known}", short(name.get_ref()));
            self.error(name, message);
        }
        found.map(|(limit, key)| (limit, key as u32))
    }
}

impl Hit {
    fn by(self, wrong: Wrong) -> Fault {
        match self {
            Self::Node(node) => wrong.of(node),
            Self::Owner(limit, key) => Fault::Owner { limit, key, wrong },
        }
    }
}

fn at<T>(value: &Spanned<T>) -> Place {
    Place { file: 0, offset: value.span().start }
}

fn listed(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.take(LISTED_MAX).map(|name| format!("{name:?}")).collect();
    if names.is_empty() {
        "there are none".into()
    } else {
        format!("known are {}", names.join(", "))
    }
}

const NODES_MAX: u32 = 1_000;
const LIMITS_MAX: usize = 16;
const KEYS_MAX: usize = 100;
const DEMANDS_MAX: usize = 1_000;
const FAULTS_MAX: usize = 1_000;
const REQUESTS_MAX: f64 = 20e6;
const MESSAGES_MAX: f64 = 20e6;
const LASTS_MIN: Nanos = 100 * MS;
/// The longest time that can be written.
const LASTS_MAX: Nanos = 3_600 * SECOND;
const DELAY_MAX: Nanos = 10 * SECOND;
const BURSTS_MAX: u32 = 100_000;
const DRIFT_PPM_MAX: u32 = 500;
/// The checker counts exactly up to it.
const UNITS_MAX: u64 = 1_000_000_000_000;
const NAME_CHARS_MAX: usize = 64;
/// Names in a message.
const LISTED_MAX: usize = 8;
const REPORTS_PER_SECOND_MAX: u64 = 500_000;
const KINDS: &str = "`crash`, `stop`, `pause`, `cut`, `silence`, `reset`, `change` and `failover`";
