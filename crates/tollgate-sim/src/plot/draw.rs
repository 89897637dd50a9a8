//! Puts a chart on a surface: from the top the name of y, the legend, the names of marks, the plot,
//! the ticks and the name of x.
//!
//! Colours are classes: which they are is the style sheet's business.

use std::fmt::Write;

use super::axis::{Scale, is_drawn};
use super::chart::{Band, Chart, Mark, Series, Style};
use super::lanes::{GAP, Placed, lanes, rows};
use super::text::{escaped, fitted, width};
use super::thin::thinned;
use crate::number::number;

/// A surface.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    class: &'static str,
    width: f64,
    plot_height: f64,
    /// The least room left of the plot, so that charts below each other have the same x.
    left: f64,
    x_ticks: usize,
    /// Parts of the plot that tell the values under the pointer.
    hits: usize,
}

/// For a screen, and for paper.
pub(super) const WIDE: Shape =
    Shape { class: "wide", width: 760.0, plot_height: 280.0, left: 70.0, x_ticks: 10, hits: 80 };
/// For a phone.
pub(super) const NARROW: Shape =
    Shape { class: "narrow", width: 360.0, plot_height: 220.0, left: 50.0, x_ticks: 5, hits: 30 };

/// A chart whose every part has a place. The points of its series are in the order of x.
pub(super) struct Drawing<'a> {
    chart: &'a Chart,
    shape: Shape,
    x: Scale,
    y: Scale,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    legend: Vec<Placed>,
    legend_top: f64,
    lanes: Vec<Option<Placed>>,
    lanes_top: f64,
}

impl<'a> Drawing<'a> {
    pub(super) fn new(chart: &'a Chart, shape: Shape) -> Self {
        let shown = || chart.series.iter().take(SERIES_MAX);
        let ys = || shown().flat_map(|series| series.points.iter().map(|(_, y)| *y));
        let rough = Scale::from_zero(ys(), Y_TICKS, 0.0, 1.0);
        let ticks = rough.ticks(Y_TICKS);
        let labels = ticks.values.iter().map(|value| width(&rough.label(*value, ticks.step)));
        let left = labels.fold(shape.left, |left, wide| left.max(wide + 2.0 * GAP));
        let right = shape.width - MARGIN;
        let xs = shown().flat_map(|series| series.points.iter().map(|(x, _)| *x));
        let xs = xs.chain(marks(chart).map(|mark| mark.x));
        let xs = xs.chain(bands(chart).flat_map(|band| [band.from, band.to]));
        let x = Scale::over(xs, left, right - left);

        let beyond = beyond(chart);
        let mut names: Vec<&str> = shown().map(|series| &*series.name).collect();
        names.extend(beyond.as_deref());
        let legend = if names.len() < 2 { vec![] } else { rows(&names, SAMPLE, 0.0, right) };
        let words = marks(chart).map(|mark| (x.place(mark.x), &*mark.text));
        let words = words.chain(bands(chart).map(|band| (x.place(band.from), &*band.text)));
        let lanes = lanes(&words.collect::<Vec<_>>(), left, right);
        let legend_top = ROW;
        let legend_rows = legend.last().map_or(0, |placed| placed.lane + 1);
        let lanes_top = legend_top + ROW * legend_rows as f64 + GAP;
        let lane_rows = lanes.iter().flatten().map(|placed| placed.lane + 1).max().unwrap_or(0);
        let top = lanes_top + ROW * lane_rows as f64 + GAP;
        let bottom = top + shape.plot_height;
        let y = Scale::from_zero(ys(), Y_TICKS, bottom, -shape.plot_height);
        Self { chart, shape, x, y, left, right, top, bottom, legend, legend_top, lanes, lanes_top }
    }

    /// The drawing as an SVG element.
    pub(super) fn svg(&self) -> String {
        let Shape { class, width, .. } = self.shape;
        let mut svg = format!(
            "<svg class=\"{class}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n",
            pixels(width),
            pixels(self.bottom + 2.0 * ROW + GAP),
            escaped(&self.chart.title)
        );
        self.bands(&mut svg);
        self.axes(&mut svg);
        // What is shaded is below the lines, and a bound is above what keeps to it.
        for layer in [&[Style::Area][..], &[Style::Line, Style::Step], &[Style::Dashed]] {
            for (index, series) in self.chart.series.iter().take(SERIES_MAX).enumerate() {
                if layer.contains(&series.style) {
                    self.series(index, series, &mut svg);
                }
            }
        }
        self.marks(&mut svg);
        self.legend(&mut svg);
        self.hits(&mut svg);
        if !self.chart.series.iter().any(|series| series.points.iter().any(|(_, y)| is_drawn(*y))) {
            let (x, y) = ((self.left + self.right) / 2.0, (self.top + self.bottom) / 2.0);
            svg += &text("middle", x, y, "no data");
        }
        svg + "</svg>\n"
    }

    fn axes(&self, svg: &mut String) {
        let y = self.y.ticks(Y_TICKS);
        for value in &y.values {
            let place = self.y.place(*value);
            let class = if *value == 0.0 { "zero" } else { "grid" };
            *svg += &line(class, (self.left, place), (self.right, place));
            let label = self.y.label(*value, y.step);
            *svg += &text("end", self.left - GAP, place + BASELINE, &label);
        }
        let (ticks, labels) = self.x_ticks();
        for (value, label) in ticks.iter().zip(labels) {
            let place = self.x.place(*value);
            *svg += &line("tick", (place, self.bottom), (place, self.bottom + GAP));
            let half = width(&label) / 2.0;
            let at = place.min(self.shape.width - half).max(half);
            *svg += &text("middle", at, self.bottom + ROW, &label);
        }
        let words = fitted(&self.chart.y.words(), self.right);
        *svg += &text("start", 0.0, ROW - GAP, &words);
        let words = fitted(&self.chart.x.words(), self.right - self.left);
        *svg += &text("middle", (self.left + self.right) / 2.0, self.bottom + 2.0 * ROW, &words);
    }

    /// As many ticks as have room.
    fn x_ticks(&self) -> (Vec<f64>, Vec<String>) {
        let mut count = self.shape.x_ticks;
        loop {
            let ticks = self.x.ticks(count);
            let label = |value: &f64| self.x.label(*value, ticks.step);
            let labels: Vec<String> = ticks.values.iter().map(label).collect();
            let needed: f64 = labels.iter().map(|label| width(label) + 2.0 * GAP).sum();
            if needed <= self.right - self.left || count <= 1 {
                return (ticks.values, labels);
            }
            count -= 1;
        }
    }

    fn series(&self, index: usize, series: &Series, svg: &mut String) {
        let place = |(x, y): &(f64, f64)| {
            let y = if is_drawn(*y) { self.y.place(*y) } else { f64::NAN };
            (self.x.place(*x), y)
        };
        let runs = thinned(series.points.iter().map(place));
        let class = colour(index);
        if series.style == Style::Area {
            let base = self.y.place(self.y.clamp(0.0));
            let area = runs.iter().map(|run| {
                let (first, last) = (run[0].0, run[run.len() - 1].0);
                let back = format!("V{}H{}Z", pixels(base), pixels(first));
                format!("{}H{}{back}", path(run, Style::Area), pixels(last))
            });
            let area: String = area.collect();
            let _ = writeln!(svg, "<path class=\"area {class}\" d=\"{area}\"/>");
        }
        let dashed = if series.style == Style::Dashed { " dashed" } else { "" };
        let d: String = runs.iter().map(|run| path(run, series.style)).collect();
        let name = escaped(&series.name);
        let _ = writeln!(
            svg,
            "<path class=\"line {class}{dashed}\" d=\"{d}\"><title>{name}</title></path>"
        );
    }

    fn bands(&self, svg: &mut String) {
        for band in bands(self.chart) {
            let from = self.x.place(f64::min(band.from, band.to));
            let to = self.x.place(f64::max(band.from, band.to));
            *svg += &rectangle("band", from, self.top, to - from, self.bottom - self.top);
        }
    }

    fn marks(&self, svg: &mut String) {
        let (marks, bands) = (marks(self.chart), bands(self.chart));
        let marks = marks.map(|mark| (mark.x, &mark.text, true));
        let words = marks.chain(bands.map(|band| (band.from, &band.text, false)));
        for ((x, words, lined), placed) in words.zip(&self.lanes) {
            let place = self.x.place(x);
            let whole = format!("{words}, at {}", self.at_x(x));
            let _ = write!(svg, "<g><title>{}</title>", escaped(&whole));
            let lane = placed.as_ref().map_or(0, |placed| placed.lane);
            let top = self.lanes_top + ROW * lane as f64;
            if lined {
                let top = if placed.is_some() { top } else { self.top };
                *svg += &line("mark", (place, top), (place, self.bottom));
            }
            if let Some(placed) = placed {
                *svg += &text("start", placed.left + GAP, top + ROW - GAP, &placed.text);
            }
            *svg += "</g>\n";
        }
    }

    fn legend(&self, svg: &mut String) {
        for (index, placed) in self.legend.iter().enumerate() {
            let top = self.legend_top + ROW * placed.lane as f64;
            let middle = top + ROW / 2.0;
            let (from, to) = (placed.left, placed.left + SAMPLE - 2.0 * GAP);
            if let Some(series) = self.chart.series.get(index).filter(|_| index < SERIES_MAX) {
                let class = colour(index);
                let dashed = if series.style == Style::Dashed { " dashed" } else { "" };
                if series.style == Style::Area {
                    let class = format!("area {class}");
                    *svg += &rectangle(&class, from, middle, to - from, ROW / 2.0 - 2.0);
                }
                let class = format!("line {class}{dashed}");
                *svg += &line(&class, (from, middle), (to, middle));
            }
            *svg += &text("start", placed.left + SAMPLE - GAP, middle + BASELINE, &placed.text);
        }
    }

    /// Parts of the plot that tell the values in them, at round values of x.
    fn hits(&self, svg: &mut String) {
        let ticks = self.x.ticks(self.shape.hits);
        for value in ticks.values {
            let (low, high) = (value - ticks.step / 2.0, value + ticks.step / 2.0);
            let (from, to) = (self.x.clamp(low), self.x.clamp(high));
            let mut told = self.at_x(value);
            let mut dots = String::new();
            for (index, series) in self.chart.series.iter().take(SERIES_MAX).enumerate() {
                let Some(y) = value_at(series, value) else { continue };
                let unit = &self.chart.y.unit;
                let _ = write!(told, "\n{}: {}", series.name, with_unit(y, unit));
                if let Some((least, greatest)) = range_within(series, low, high) {
                    let _ = write!(told, " (from {} to {})", number(least), number(greatest));
                }
                let (x, y) = (pixels(self.x.place(value)), pixels(self.y.place(y)));
                let class = colour(index);
                let _ = write!(dots, "<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"4\"/>");
            }
            let place = self.x.place(value);
            let (from, to) = (self.x.place(from), self.x.place(to));
            let _ = writeln!(
                svg,
                "<g class=\"hit\"><title>{}</title>{}{}{dots}</g>",
                escaped(&told),
                rectangle("pointer", from, self.top, to - from, self.bottom - self.top).trim_end(),
                line("cursor", (place, self.top), (place, self.bottom)).trim_end()
            );
        }
    }

    fn at_x(&self, value: f64) -> String {
        let axis = &self.chart.x;
        format!("{} {}", axis.label, with_unit(value, &axis.unit))
    }
}

fn marks(chart: &Chart) -> impl Iterator<Item = &Mark> {
    chart.marks.iter().filter(|mark| is_drawn(mark.x)).take(MARKS_MAX)
}

fn bands(chart: &Chart) -> impl Iterator<Item = &Band> {
    let drawn = |band: &&Band| is_drawn(band.from) && is_drawn(band.to);
    chart.bands.iter().filter(drawn).take(BANDS_MAX)
}

/// What the legend says of series that are left out.
fn beyond(chart: &Chart) -> Option<String> {
    let beyond = chart.series.len().saturating_sub(SERIES_MAX);
    (beyond > 0).then(|| format!("{} more not shown", number(beyond as f64)))
}

/// Its y at x, if it has one there.
fn value_at(series: &Series, x: f64) -> Option<f64> {
    let points = &series.points;
    let next = points.partition_point(|point| point.0 <= x);
    let before = *points.get(next.checked_sub(1)?)?;
    let value = match points.get(next) {
        _ if before.0 == x || series.style == Style::Step && next < points.len() => before.1,
        Some(after) => {
            let part = (x - before.0) / (after.0 - before.0);
            before.1 + part * (after.1 - before.1)
        }
        None => f64::NAN,
    };
    is_drawn(value).then_some(value)
}

/// Its least and greatest y in this range of x, if there is more than one.
fn range_within(series: &Series, low: f64, high: f64) -> Option<(f64, f64)> {
    let from = series.points.partition_point(|point| point.0 < low);
    let to = series.points.partition_point(|point| point.0 < high);
    let within = series.points[from..to].iter().map(|(_, y)| *y).filter(|y| is_drawn(*y));
    let none = (f64::INFINITY, f64::NEG_INFINITY);
    let (least, greatest) = within.fold(none, |(a, b), y| (f64::min(a, y), f64::max(b, y)));
    (least < greatest).then_some((least, greatest))
}

fn with_unit(value: f64, unit: &str) -> String {
    let space = if unit.is_empty() { "" } else { " " };
    format!("{}{space}{unit}", number(value))
}

fn colour(index: usize) -> String {
    format!("s{}", index + 1)
}

/// A run as a path.
fn path(run: &[(f64, f64)], style: Style) -> String {
    let mut d = String::new();
    for (index, (x, y)) in run.iter().enumerate() {
        let (x, y) = (pixels(*x), pixels(*y));
        let _ = match (index, style) {
            (0, _) => write!(d, "M{x} {y}"),
            (_, Style::Step) => write!(d, "H{x}V{y}"),
            (_, Style::Line | Style::Dashed | Style::Area) => write!(d, "L{x} {y}"),
        };
    }
    // A point alone is drawn by the round end of a line without length.
    if run.len() == 1 { d + "h0" } else { d }
}

fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> String {
    let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(pixels);
    format!("<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>\n")
}

fn rectangle(class: &str, x: f64, y: f64, width: f64, height: f64) -> String {
    let [x, y, width, height] = [x, y, width, height].map(pixels);
    let size = format!("width=\"{width}\" height=\"{height}\"");
    format!("<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" {size}/>\n")
}

fn text(anchor: &str, x: f64, y: f64, words: &str) -> String {
    let [x, y] = [x, y].map(pixels);
    format!("<text class=\"{anchor}\" x=\"{x}\" y=\"{y}\">{}</text>\n", escaped(words))
}

/// A length to a tenth of a pixel, as short as it can be written.
fn pixels(length: f64) -> String {
    let tenths = (length * 10.0).round() / 10.0;
    if tenths == 0.0 { "0".into() } else { format!("{tenths}") }
}

/// As many as there are colours that everybody can tell apart.
const SERIES_MAX: usize = 7;
const MARKS_MAX: usize = 24;
const BANDS_MAX: usize = 24;
const Y_TICKS: usize = 5;
/// Right of the plot.
const MARGIN: f64 = 16.0;
/// The height of a line of text.
const ROW: f64 = 20.0;
/// From the middle of a line of text to its baseline.
const BASELINE: f64 = 4.5;
/// The sample of a series in the legend, and the room around it.
const SAMPLE: f64 = 38.0;

#[cfg(test)]
mod tests;
