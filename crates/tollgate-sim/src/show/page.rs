//! A run as a page: the verdict in words, then each key's charts, then tables.

use super::fault::{after, time, words};
use super::over_time::{Points, by_node, level, rates, steps, sum};
use super::report::{KeyReport, Report, Verdict};
use super::{Names, PARTS};
use crate::ledger::Ledger;
use crate::number::number;
use crate::plot::{Axis, Band, Cell, Chart, Mark, Page, Section, Series, Style, Table};
use crate::scenario::{Fault, Scenario};

/// The page of a run that was sampled.
#[must_use]
pub fn page(scenario: &Scenario, names: &Names, ledger: &Ledger, report: &Report) -> Page {
    let view = View { scenario, names, ledger };
    let mut sections = vec![Section::Table(promises(report))];
    sections.extend(excuses(report).map(Section::Text));
    let faults = view.faults();
    if !faults.rows.is_empty() {
        sections.push(Section::Table(faults));
    }
    for key in report.keys.iter().take(KEYS_MAX) {
        sections.extend(view.key(key).map(Section::Chart));
    }
    if let Some(beyond @ 1..) = report.keys.len().checked_sub(KEYS_MAX) {
        let text = format!("{beyond} more keys have no charts; the first table has all.");
        sections.push(Section::Text(text));
    }
    sections.push(Section::Chart(view.messages()));
    sections.push(Section::Table(nodes(report)));
    sections.push(Section::Text(NOTES.into()));
    let title = format!("Simulation: {}", names.title);
    Page { title, lead: lead(scenario, report), sections }
}

fn lead(scenario: &Scenario, report: &Report) -> String {
    let keys = match &report.keys[..] {
        [one] => format!("the limit of {}", one.name),
        keys => format!("the limits of {} keys", number(keys.len() as f64)),
    };
    let nodes = match scenario.nodes {
        1 => "One node kept".into(),
        nodes => format!("{} nodes together kept", number(f64::from(nodes))),
    };
    let begin = format!(
        "{nodes} {keys} for {}, simulated with seed {}. A limit of rate R and burst B promises \
         that in any time t, short or long, no more than B + R x t units are admitted on all nodes \
         together.",
        time(scenario.lasts),
        scenario.seed
    );
    let broken: Vec<&KeyReport> =
        report.keys.iter().filter(|key| key.verdict == Verdict::Broken).collect();
    let beyond = report.keys.iter().any(|key| key.verdict == Verdict::WithinEnvelope);
    let nearest = report.keys.iter().max_by(|a, b| a.excess.total_cmp(&b.excess));
    let verdict = match (nearest, &broken[..]) {
        (None, _) => String::new(),
        (_, [first, ..]) => {
            format!("The promise was BROKEN: {} came {}.", first.name, first.distance())
        }
        (Some(nearest), []) if beyond => format!(
            "The promise held, but not by that alone: {} came {}, within the envelope of {} units \
             that is allowed for what happened.",
            nearest.name,
            nearest.distance(),
            number(nearest.envelope.floor())
        ),
        (Some(nearest), []) => format!(
            "The promise held{}: the worst window of all, of {}, came {}.",
            if report.keys.len() > 1 { " for every key" } else { "" },
            nearest.name,
            nearest.distance()
        ),
    };
    let mistakes = match report.mistakes.len() {
        0 => "",
        _ => " The simulator found a mistake of the product, which is told below.",
    };
    format!("{begin} {verdict}{mistakes}")
}

fn promises(report: &Report) -> Table {
    let row = |key: &KeyReport| {
        vec![
            Cell::Text(key.name.clone()),
            Cell::Text(unbroken(&key.promise()).replace(",\u{a0}", ", ")),
            Cell::Text(unbroken(&key.distance())),
            Cell::Text(key.verdict.words().into()),
            Cell::Text(unbroken(&key.used_words())),
            Cell::Number(key.offered.units as f64),
            Cell::Number(key.admitted as f64),
            Cell::Number(key.offered.refused as f64),
        ]
    };
    let head =
        ["key", "promise", "worst window", "verdict", "used", "offered", "admitted", "denied"];
    Table {
        title: "What was promised, and what was seen (in units)".into(),
        head: head.map(Into::into).into(),
        rows: report.keys.iter().map(row).collect(),
    }
}

fn excuses(report: &Report) -> impl Iterator<Item = String> {
    let mistakes = report.mistakes.iter().map(|mistake| format!("Mistake: {mistake}."));
    let shown = &report.excuses[..report.excuses.len().min(EXCUSES_MAX)];
    let more = match report.excuses.len() - shown.len() {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let envelope = report.keys.iter().map(|key| key.envelope).fold(0.0, f64::max);
    let why = format!(
        "An envelope of up to {} units above the promise was allowed for: {}{more}.",
        number(envelope.floor()),
        shown.join("; ")
    );
    mistakes.chain((!shown.is_empty()).then_some(why))
}

fn nodes(report: &Report) -> Table {
    let row = |node: &super::NodeReport| {
        let counts = [node.offered.units, node.admitted, node.offered.refused, node.offered.stale];
        let counts = counts.map(|count| Cell::Number(count as f64));
        [vec![Cell::Text(format!("node {}", node.node + 1))], counts.into()].concat()
    };
    Table {
        title: "Node by node, all keys together (in units)".into(),
        head: ["node", "offered", "admitted", "denied", "of that stale"].map(Into::into).into(),
        rows: report.nodes.iter().map(row).collect(),
    }
}

/// What charts are drawn of.
struct View<'a> {
    scenario: &'a Scenario,
    names: &'a Names,
    ledger: &'a Ledger,
}

impl View<'_> {
    fn faults(&self) -> Table {
        let row = |(at, fault): &(u64, Fault)| {
            let (what, lasts) = words(fault, self.names);
            let lasts =
                lasts.map_or_else(|| "for good".into(), |lasts| format!("for {}", time(lasts)));
            let lasts = if matches!(fault, Fault::Failover) { "at once".into() } else { lasts };
            vec![Cell::Text(time(*at)), Cell::Text(what), Cell::Text(lasts)]
        };
        Table {
            title: "What happened".into(),
            head: ["at", "what", "how long"].map(Into::into).into(),
            rows: self.ledger.faults.iter().map(row).collect(),
        }
    }

    fn key(&self, key: &KeyReport) -> [Chart; 3] {
        [self.offered(key), self.level(key), self.by_node(key)]
    }

    fn offered(&self, key: &KeyReport) -> Chart {
        let none = Vec::new();
        let offered = self.ledger.samples.offered.get(&(key.limit, key.key)).unwrap_or(&none);
        let admitted = sum(by_node(self.ledger, (key.limit, key.key)).values());
        let lasts = self.scenario.lasts;
        let rate = steps(self.ledger, key.limit, lasts, |change| change.rate.per_second());
        let series = vec![
            series("admitted, all nodes", self.rates(&admitted), Style::Area),
            series("offered", self.rates(offered), Style::Line),
            series("R, the rate", rate, Style::Dashed),
        ];
        let title = format!("{}: offered and admitted", key.name);
        self.chart(title, axis("units per second", ""), series)
    }

    fn level(&self, key: &KeyReport) -> Chart {
        let every = self.ledger.samples.every.max(1);
        let (level, bound) = level(self.scenario, self.ledger, (key.limit, key.key), every);
        let series = vec![
            series("admitted beyond R x t, worst window", level, Style::Area),
            series("B", bound, Style::Dashed),
        ];
        let title = format!("{}: how near to the promise (above B it is broken)", key.name);
        self.chart(title, axis("units", ""), series)
    }

    fn by_node(&self, key: &KeyReport) -> Chart {
        let nodes = by_node(self.ledger, (key.limit, key.key));
        let mut largest: Vec<(u64, u32)> =
            nodes.iter().map(|(node, parts)| (parts.iter().sum(), *node)).collect();
        largest.sort_by(|a, b| b.cmp(a));
        let shown = if largest.len() <= SERIES_MAX { SERIES_MAX } else { SERIES_MAX - 1 };
        let rest: Vec<u32> = largest.iter().skip(shown).map(|(_, node)| *node).collect();
        largest.truncate(shown);
        largest.sort_by_key(|(_, node)| *node);
        let line = |(_, node): &(u64, u32)| {
            series(
                &format!("node {}", node + 1),
                self.joined(&nodes[node], 2 * JOINED),
                Style::Line,
            )
        };
        let mut all: Vec<Series> = largest.iter().map(line).collect();
        if !rest.is_empty() {
            let name = format!("the other {}, together", rest.len());
            let parts = sum(rest.iter().map(|node| &nodes[node]));
            all.push(series(&name, self.joined(&parts, 2 * JOINED), Style::Dashed));
        }
        let title = format!("{}: admitted by each node", key.name);
        self.chart(title, axis("units per second", ""), all)
    }

    fn messages(&self) -> Chart {
        let points = self.rates(&self.ledger.samples.messages);
        let series = vec![series("messages", points, Style::Line)];
        self.chart("Messages between nodes".into(), axis("messages per second", ""), series)
    }

    fn rates(&self, counts: &[u64]) -> Points {
        self.joined(counts, JOINED)
    }

    fn joined(&self, counts: &[u64], joined: usize) -> Points {
        rates(counts, self.ledger.samples.every.max(1), (PARTS as usize, joined))
    }

    fn chart(&self, title: String, y: Axis, series: Vec<Series>) -> Chart {
        let (mut marks, mut bands) = (Vec::new(), Vec::new());
        let seconds = |nanos: u64| nanos.min(self.scenario.lasts) as f64 / 1e9;
        for (at, fault) in &self.ledger.faults {
            let (text, lasts) = words(fault, self.names);
            let end = lasts.map(|lasts| at + lasts).filter(|end| *end < self.scenario.lasts);
            match (after(fault), lasts) {
                (None, Some(lasts)) => {
                    bands.push(Band { from: seconds(*at), to: seconds(at + lasts), text });
                }
                (over, _) => {
                    marks.push(Mark { x: seconds(*at), text });
                    let over = over.zip(end);
                    marks.extend(over.map(|(text, end)| Mark { x: seconds(end), text }));
                }
            }
        }
        Chart { title, x: axis("time", "s"), y, series, marks, bands }
    }
}

/// A few words that stay on one line.
fn unbroken(words: &str) -> String {
    words.replace(' ', "\u{a0}")
}

fn series(name: &str, points: Points, style: Style) -> Series {
    Series { name: name.into(), points, style }
}

fn axis(label: &str, unit: &str) -> Axis {
    Axis { label: label.into(), unit: unit.into() }
}

/// What the words in the tables mean.
const NOTES: &str = "\
Used is what was admitted of what one perfect limiter, which sees every request at once, would \
have admitted, after the first second. Stale is what was denied because a node did not know, at \
that instant, what it may admit. Requests to a process that does not run are not offered. \
Refunds are subtracted from what was admitted.";
/// So many of a run's parts are one point of a chart of rates.
const JOINED: usize = 5;
/// Keys with charts.
const KEYS_MAX: usize = 8;
/// As many series as a chart draws.
const SERIES_MAX: usize = 7;
const EXCUSES_MAX: usize = 5;
