//! The numbers of a run, key by key and node by node.

use std::collections::BTreeMap;

use tollgate::{Event, Rate};

use super::Names;
use super::fault::time;
use super::over_time::{by_key, perfect};
use crate::check::{Violation, bound, ownership, policy};
use crate::ledger::{Ledger, Offered};
use crate::number::number;
use crate::scenario::{Nanos, SECOND, Scenario};

/// All numbers of a run that was sampled.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Each key of each limit.
    pub keys: Vec<KeyReport>,
    /// Each node, over all keys.
    pub nodes: Vec<NodeReport>,
    /// What is wrong apart from the bound: mistakes of the product.
    pub mistakes: Vec<Violation>,
    /// Why more than B + R·t may have been admitted, in words; empty if nothing says so.
    pub excuses: Vec<String>,
    /// Messages between nodes in a second.
    pub messages_per_second: f64,
}

/// What became of one key.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyReport {
    /// Limit and key.
    pub name: String,
    /// The limit, by its place in the scenario.
    pub limit: usize,
    /// The key.
    pub key: u32,
    /// R as the run began.
    pub rate: Rate,
    /// B as the run began.
    pub burst: u64,
    /// Units that nodes were allowed on their first contact with the limit's keys, in all.
    pub bootstrap: u64,
    /// How often the limit was changed.
    pub changes: usize,
    /// Units above B + R·t of the worst window; below 0 for those under it.
    pub excess: f64,
    /// When that window ended.
    pub worst_at: Nanos,
    /// Units above B + R·t that are allowed for.
    pub envelope: f64,
    /// Whether the promise was kept.
    pub verdict: Verdict,
    /// What was offered.
    pub offered: Offered,
    /// Net units that were admitted.
    pub admitted: u64,
    /// Admitted by what one perfect limiter would have, after the first second: 0 to 1.
    pub used: Option<f64>,
}

/// Whether a promise was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No window held more than B + R·t.
    Held,
    /// One did, by no more than the envelope, which applied.
    WithinEnvelope,
    /// One did, and nothing allows for it.
    Broken,
}

/// What one node did, over all keys, in units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeReport {
    /// Its number, from 0.
    pub node: u32,
    /// What was offered.
    pub offered: Offered,
    /// What it admitted, net.
    pub admitted: u64,
}

impl Verdict {
    /// In a few words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::WithinEnvelope => "held, within the envelope",
            Self::Broken => "broken",
        }
    }
}

impl Report {
    /// The numbers of a run.
    #[must_use]
    pub fn new(scenario: &Scenario, names: &Names, ledger: &Ledger) -> Self {
        let worst: BTreeMap<(usize, u32), (f64, Nanos)> = bound::worst_windows(scenario, ledger)
            .into_iter()
            .map(|worst| ((worst.limit, worst.key), (worst.excess, worst.at)))
            .collect();
        let keys = names
            .keys
            .iter()
            .enumerate()
            .flat_map(|(limit, keys)| (0..keys.len()).map(move |key| (limit, key as u32)));
        let by_key = by_key(ledger);
        let none = Vec::new();
        let key = |of| {
            let worst = worst.get(&of).copied().unwrap_or((f64::MIN, 0));
            let admitted = by_key.get(&of).unwrap_or(&none);
            KeyReport::new(scenario, names, ledger, of, worst, admitted)
        };
        let mut mistakes = ownership::check(ledger);
        mistakes.extend(policy::check(scenario, ledger));
        Self {
            keys: keys.map(key).collect(),
            nodes: nodes(scenario, ledger),
            mistakes,
            excuses: excuses(scenario, ledger),
            messages_per_second: ledger.messages as f64 / (scenario.lasts as f64 / 1e9),
        }
    }

    /// Whether all was as promised.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.mistakes.is_empty() && self.keys.iter().all(|key| key.verdict != Verdict::Broken)
    }
}

impl KeyReport {
    fn new(
        scenario: &Scenario,
        names: &Names,
        ledger: &Ledger,
        (limit, key): (usize, u32),
        (excess, worst_at): (f64, Nanos),
        admitted: &[u64],
    ) -> Self {
        let of = &scenario.limits[limit];
        // A key of which nothing was admitted has all its room.
        let excess = excess.max(-(of.burst as f64));
        let envelope = bound::envelope(scenario, ledger, limit);
        let verdict = match excess {
            ..=0.0 => Verdict::Held,
            excess if excess <= envelope => Verdict::WithinEnvelope,
            _ => Verdict::Broken,
        };
        let of_key = ledger.offered.iter().filter(|((l, k, _), _)| (*l, *k) == (limit, key));
        let every = ledger.samples.every.max(1);
        let none = Vec::new();
        let asked = ledger.samples.offered.get(&(limit, key)).unwrap_or(&none);
        let perfect = perfect(asked, ledger, limit, every);
        let from = (WARM_UP.min(scenario.lasts / 5) / every) as usize;
        let could: f64 = perfect.iter().skip(from).sum();
        let did: u64 = admitted.iter().skip(from).sum();
        let used = (could > 0.0).then(|| f64::min(did as f64 / could, 1.0));
        Self {
            name: names.of(limit, key),
            limit,
            key,
            rate: of.rate,
            burst: of.burst,
            bootstrap: of.bootstrap * ledger.contacts.get(limit).copied().unwrap_or(0),
            changes: ledger.changes.iter().filter(|change| change.limit == limit).count() - 1,
            excess,
            worst_at,
            envelope,
            verdict,
            offered: all(of_key.map(|(_, offered)| offered)),
            admitted: admitted.iter().sum(),
            used,
        }
    }

    /// `200 + 1,000/s x t`, as the run began.
    #[must_use]
    pub fn promise(&self) -> String {
        let changed = if self.changes > 0 { ", at first" } else { "" };
        let contacts = match self.bootstrap {
            0 => String::new(),
            units => format!(" + {} at first contacts", number(units as f64)),
        };
        let rate = number(self.rate.per_second());
        format!("{} + {rate}/s x t{contacts}{changed}", number(self.burst as f64))
    }

    /// `35 units under it`, of the worst window; rounded so that nothing looks better than it is.
    #[must_use]
    pub fn distance(&self) -> String {
        let (size, words) = match self.excess {
            0.0 => return "just at it".into(),
            over if over > 0.0 => ((over * 10.0).ceil() / 10.0, "over it"),
            under => ((-under * 10.0).floor() / 10.0, "under it"),
        };
        let size = if size < 100.0 { size } else { size.trunc() };
        format!("{} unit{} {words}", number(size), if size == 1.0 { "" } else { "s" })
    }

    /// `98.7 %`, rounded down.
    #[must_use]
    pub fn used_words(&self) -> String {
        let percent = |used: f64| format!("{} %", number((used * 1000.0).floor() / 10.0));
        self.used.map_or_else(|| "nothing asked".into(), percent)
    }
}

fn nodes(scenario: &Scenario, ledger: &Ledger) -> Vec<NodeReport> {
    let mut admitted = vec![0; scenario.nodes as usize];
    for admission in &ledger.admissions {
        admitted[admission.node as usize] += admission.net();
    }
    let mut offered = vec![Offered::default(); scenario.nodes as usize];
    for ((_, _, node), of_key) in &ledger.offered {
        let of_node = &mut offered[*node as usize];
        *of_node = all([&*of_node, of_key]);
    }
    let report = |(node, (offered, admitted))| NodeReport { node, offered, admitted };
    (0..scenario.nodes).zip(offered.into_iter().zip(admitted)).map(report).collect()
}

fn all<'a>(parts: impl IntoIterator<Item = &'a Offered>) -> Offered {
    parts.into_iter().fold(Offered::default(), |sum, part| Offered {
        units: sum.units + part.units,
        refused: sum.refused + part.refused,
        stale: sum.stale + part.stale,
    })
}

/// What nodes counted that lets the envelope apply.
fn excuses(scenario: &Scenario, ledger: &Ledger) -> Vec<String> {
    let told = |(at, node, event): &(Nanos, u32, Event)| {
        let (node, at) = (node + 1, time(*at / 1_000_000 * 1_000_000));
        let lasted =
            |time: std::time::Duration| super::fault::time(time.as_micros() as u64 * 1_000);
        match event {
            Event::Paused { lasted: still } => {
                Some(format!("node {node} had stood still for {} at {at}", lasted(*still)))
            }
            Event::Overlap { lasted: went_on, .. } if scenario.serves_alone => Some(format!(
                "node {node} had gone on for {} beside its successor, noticed at {at}",
                lasted(*went_on)
            )),
            Event::Overlap { .. } | Event::HandoverLate { .. } | Event::Full => None,
        }
    };
    ledger.events.iter().filter_map(told).collect()
}

/// The first second is not counted: an owner begins with the burst spent.
const WARM_UP: Nanos = SECOND;
