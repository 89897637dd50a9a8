//! E24: what the tiers of a limit that is counted in a store save. The document that the guarantee
//! comes from has 100,000 keys, of which 90 % are idle, 8 % low, 1.5 % normal and 0.5 % hot, and
//! reads 296 of them a tick where reading each every 15 s would be 6,667.

use super::{Row, Table};
use crate::scenario::{SECOND, Shape};
use crate::tally::{Demand, Fleet, Scenario};

/// What keys are asked for.
#[derive(Debug, Clone, Copy)]
enum Mix {
    /// As published: parts of the threshold, in each tier's middle.
    Tiers,
    /// All idle, and each asked for more than our floor.
    AboveFloor,
    /// By a power law, so that the most asked for is at five times its limit.
    PowerLaw,
}

pub(super) fn full() -> Table {
    let rows = vec![
        row("the published mix, floor 0", Mix::Tiers, 0, 100_000),
        row("the published mix, our floor of 10", Mix::Tiers, 10, 100_000),
        row("a power law, our floor of 10", Mix::PowerLaw, 10, 100_000),
        row("all idle, and all above our floor", Mix::AboveFloor, 10, 100_000),
    ];
    Table {
        title: "E24: reads a tick with tiers (the document of `tally`)".into(),
        text: "100,000 keys of 1,000 in 60 s on one node, a tick a second, 15 s for a normal key; \
               after 5 min, in a minute. Line: 300 ± 10 % without a floor, and 95 % less than \
               6,667 with ours, unless all keys are above it."
            .into(),
        published: vec!["published", "all each 15 s"],
        ours: vec!["reads a tick", "less by"],
        rows,
    }
}

fn row(what: &str, mix: Mix, floor: u64, keys: u32) -> Row {
    let reads = reads_a_tick(mix, floor, keys);
    let all = f64::from(keys) / 15.0;
    let less = 1.0 - reads / all;
    let published = f64::from(keys) / 100_000.0 * 300.0;
    let pass = match mix {
        Mix::Tiers if floor == 0 => Some((reads / published - 1.0).abs() <= 0.1),
        Mix::Tiers | Mix::PowerLaw => Some(less >= 0.95),
        Mix::AboveFloor => None,
    };
    Row {
        what: what.into(),
        published: vec!["296 (300)".into(), crate::number(all.round())],
        ours: vec![format!("{reads:.0}"), super::measure::percent(less, 1)],
        pass,
    }
}

/// Keys that are read in a tick, once keys are known for long.
fn reads_a_tick(mix: Mix, floor: u64, keys: u32) -> f64 {
    let mut scenario = Scenario::quiet(1, 1_000, 60);
    scenario.options.worker.floor = floor;
    let demand = |key| {
        let part = match mix {
            Mix::Tiers => tier_of(key, keys),
            Mix::AboveFloor => 0.02,
            Mix::PowerLaw => 5.0 / f64::from(key + 1).powf(1.1),
        };
        // Seldom and much: each request costs as much as an idle or low key has in 10 s.
        let seconds = if part > 0.5 { 1.0 } else { 10.0 };
        let units = part * 1_000.0 / 60.0 * seconds;
        let cost = units.round().max(1.0);
        let per_second = units / cost / seconds;
        let cost = (cost as u64, cost as u64);
        Demand { shape: Shape::Even, per_second, cost, ..Demand::even(key, 1.0) }
    };
    scenario.demands = (0..keys).map(demand).collect();
    let mut fleet = Fleet::new(scenario);
    fleet.until(BEGINS);
    let before = fleet.tally(0).counts().read;
    fleet.until(BEGINS + COUNTED);
    (fleet.tally(0).counts().read - before) as f64 / (COUNTED / SECOND) as f64
}

/// The part of its threshold that a key uses.
fn tier_of(key: u32, keys: u32) -> f64 {
    let place = f64::from(key) / f64::from(keys);
    match place {
        place if place < 0.005 => 0.9,
        place if place < 0.02 => 0.65,
        place if place < 0.1 => 0.3,
        _ => 0.001,
    }
}

const BEGINS: u64 = 300 * SECOND;
const COUNTED: u64 = 60 * SECOND;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_as_few_as_published_and_few_with_a_floor() {
        let published = reads_a_tick(Mix::Tiers, 0, 2_000);
        assert!((5.4..=6.6).contains(&published), "{published} of 6");
        let ours = reads_a_tick(Mix::PowerLaw, 10, 6_000);
        assert!(ours <= 0.05 * 6_000.0 / 15.0, "{ours}");
    }
}
