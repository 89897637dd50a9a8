//! A line chart: what is shown, apart from where.

use super::axis::is_drawn;
use super::draw::{Drawing, NARROW, WIDE};
use super::text::escaped;

/// Series over one x, with what happened meanwhile.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// Along the bottom, from the least to the greatest x.
    pub x: Axis,
    /// At the left, from 0.
    pub y: Axis,
    /// What is drawn; beyond 7 series the rest is left out, and the legend says so.
    pub series: Vec<Series>,
    /// Vertical lines; at most 24.
    pub marks: Vec<Mark>,
    /// Shaded parts; at most 24.
    pub bands: Vec<Band>,
}

/// What an axis shows, and in which unit; the unit may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// What it shows.
    pub label: String,
    /// In which unit.
    pub unit: String,
}

/// Points with a name.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// What the legend calls it.
    pub name: String,
    /// (x, y), of any number. They are drawn in the order of x; a y that is no number is a gap.
    pub points: Vec<(f64, f64)>,
    /// How it is drawn.
    pub style: Style,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// From point to point.
    Line,
    /// Each y until the next x.
    Step,
    /// From point to point, for what is a bound rather than a measurement.
    Dashed,
    /// From point to point, and shaded down to 0.
    Area,
}

/// Something that happened at x.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// Where.
    pub x: f64,
    /// What, in a few words.
    pub text: String,
}

/// Something that was so from one x to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Band {
    /// From where.
    pub from: f64,
    /// To where.
    pub to: f64,
    /// What, in a few words.
    pub text: String,
}

impl Chart {
    /// The chart twice: for screens and paper, and for phones, on which the first would be too
    /// small to read. The page's style shows one of them.
    pub(super) fn html(&self) -> String {
        let sorted = self.sorted();
        let wide = Drawing::new(&sorted, WIDE).svg();
        let narrow = Drawing::new(&sorted, NARROW).svg();
        let title = escaped(&self.title);
        format!("<figure>\n<figcaption>{title}</figcaption>\n{wide}{narrow}</figure>\n")
    }

    /// The same with the points in the order of x, and none that has no x.
    pub(super) fn sorted(&self) -> Self {
        let mut sorted = self.clone();
        for series in &mut sorted.series {
            series.points.retain(|(x, _)| is_drawn(*x));
            series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        sorted
    }
}

impl Axis {
    /// What it shows, with the unit.
    pub(super) fn words(&self) -> String {
        match &*self.unit {
            "" => self.label.clone(),
            unit => format!("{} ({unit})", self.label),
        }
    }
}
