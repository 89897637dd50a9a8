//! The page of `tollgate plan --html`: what is told on the command line, and how it would be with
//! another local cap.

use std::time::Duration;

use tollgate_sim::number;
use tollgate_sim::plan::{Inputs, warnings};
use tollgate_sim::plot::{Axis, Cell, Chart, Mark, Page, Section, Series, Style, Table};

use super::plan::{Row, rows};

/// A plan as a page.
pub(super) fn page(inputs: &Inputs) -> Page {
    let units = |units: u64| number(units as f64);
    let cap = inputs.local_cap();
    let lead = format!(
        "In any time t this limit admits at most {} + {}/s x t over all {} workers together, \
         crashed owners included. If two owners of a key are ever in charge at once, for {}, it is \
         at most {} more.",
        units(inputs.burst),
        number(inputs.per_second()),
        units(inputs.workers),
        tollgate_sim::duration(inputs.overlap()),
        units(inputs.envelope(cap, inputs.overlap()))
    );
    let mut sections: Vec<Section> = warnings(inputs)
        .iter()
        .map(|warning| Section::Text(format!("Warning: {warning}.")))
        .collect();
    sections.extend([
        Section::Chart(admitted(inputs)),
        Section::Text(
            "A larger local cap lets one busy worker use more of the rate, and lets more through \
             when the promise cannot be kept. Below the least sensible one a worker that has all \
             the traffic is held up though the limit has room."
                .into(),
        ),
        Section::Chart(excess(inputs)),
        Section::Chart(reached(inputs)),
        Section::Table(table(inputs)),
    ]);
    let title = format!(
        "A limit of {}, burst {}, on {} workers",
        inputs.rate,
        units(inputs.burst),
        units(inputs.workers)
    );
    Page { title, lead, sections }
}

/// What is admitted in an interval, at most.
fn admitted(inputs: &Inputs) -> Chart {
    let seconds_max = (2.0 * inputs.burst as f64 / inputs.per_second()).clamp(1e-3, 1e9);
    let worst = inputs.envelope(inputs.local_cap(), inputs.overlap());
    let at = |seconds: f64, excess: u64| {
        let promise = inputs.promise(Duration::from_secs_f64(seconds));
        (seconds, promise.saturating_add(excess) as f64)
    };
    let series = |name: &str, excess, style| Series {
        name: name.into(),
        points: vec![at(0.0, excess), at(seconds_max, excess)],
        style,
    };
    Chart {
        title: "Admitted in any interval, at most".into(),
        x: axis("length of the interval", "s"),
        y: axis("units", ""),
        series: vec![
            series("promise, B + R x t", 0, Style::Area),
            series("with two owners", worst, Style::Dashed),
        ],
        marks: vec![],
        bands: vec![],
    }
}

/// By how much the promise is exceeded at worst, for each local cap.
fn excess(inputs: &Inputs) -> Chart {
    let points = |excess: &dyn Fn(u64) -> u64| {
        let caps = caps(inputs);
        caps.into_iter().map(|cap| (cap as f64, excess(cap) as f64)).collect()
    };
    let overlap = inputs.overlap();
    let series = vec![
        Series {
            name: "two owners".into(),
            points: points(&|cap| inputs.envelope(cap, overlap)),
            style: Style::Line,
        },
        Series {
            name: "all workers paused".into(),
            points: points(&|cap| inputs.held(cap)),
            style: Style::Dashed,
        },
    ];
    Chart {
        title: "Excess over the promise, at worst".into(),
        x: axis("local cap", "units"),
        y: axis("units over B + R x t", ""),
        series,
        marks: marks(inputs),
        bands: vec![],
    }
}

/// What one worker reaches, for each local cap.
fn reached(inputs: &Inputs) -> Chart {
    let percent = |cap: u64| (cap as f64, inputs.hot_worker_share(cap) * 100.0);
    Chart {
        title: "Reached by one worker that has all the traffic, at most".into(),
        x: axis("local cap", "units"),
        y: axis("part of the rate", "%"),
        series: vec![Series {
            name: "reached".into(),
            points: caps(inputs).into_iter().map(percent).collect(),
            style: Style::Line,
        }],
        marks: marks(inputs),
        bands: vec![],
    }
}

/// Local caps to draw: around the chosen one, and where the curves have corners.
fn caps(inputs: &Inputs) -> Vec<u64> {
    let (chosen, least) = (inputs.local_cap(), inputs.least_local_cap());
    let last = chosen.max(least).saturating_mul(2).min(inputs.burst).max(chosen).max(least);
    let mut caps: Vec<u64> = (0..=STEPS).map(|step| (last / STEPS).max(1) * step).collect();
    caps.extend([inputs.largest_cost, least.saturating_sub(1), least, last]);
    caps.retain(|cap| *cap <= last);
    caps.sort_unstable();
    caps.dedup();
    caps
}

fn marks(inputs: &Inputs) -> Vec<Mark> {
    let mark = |cap: u64, text: &str| {
        let (x, text) = (cap as f64, format!("{text}: {}", number(cap as f64)));
        Mark { x, text }
    };
    let chosen = if inputs.local_cap.is_some() { "given" } else { "default" };
    vec![mark(inputs.least_local_cap(), "least sensible"), mark(inputs.local_cap(), chosen)]
}

fn table(inputs: &Inputs) -> Table {
    let text = |text: &str| Cell::Text(text.into());
    let row = |Row { name, value, why }| vec![text(str::trim(name)), text(&value), text(&why)];
    Table {
        title: "The plan".into(),
        head: vec!["what".into(), "how much".into(), "why".into()],
        rows: rows(inputs).into_iter().map(row).collect(),
    }
}

fn axis(label: &str, unit: &str) -> Axis {
    Axis { label: label.into(), unit: unit.into() }
}

const STEPS: u64 = 20;
