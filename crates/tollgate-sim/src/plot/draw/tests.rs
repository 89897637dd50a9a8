//! A drawing by its structure: which elements it has, and where.

use super::super::chart::Axis;
use super::super::text::tests::assert_balanced;
use super::*;

fn series(name: &str, points: &[(f64, f64)], style: Style) -> Series {
    Series { name: name.into(), points: points.to_vec(), style }
}

/// x from 0 to 10 s, y from 0 to 100 units.
fn chart(series: Vec<Series>) -> Chart {
    let axis = |label: &str, unit: &str| Axis { label: label.into(), unit: unit.into() };
    Chart {
        title: "Admitted".into(),
        x: axis("time", "s"),
        y: axis("units", ""),
        series,
        marks: vec![],
        bands: vec![],
    }
}

fn svg(chart: &Chart) -> String {
    let svg = Drawing::new(&chart.sorted(), WIDE).svg();
    assert_balanced(&svg);
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    svg
}

/// The values of an attribute of the elements of this class.
fn all<'a>(svg: &'a str, class: &str, attribute: &str) -> Vec<&'a str> {
    let elements = svg.split('<').filter(|element| element.contains(&format!("class=\"{class}\"")));
    let value = |element: &'a str| {
        let (_, rest) = element.split_once(&format!(" {attribute}=\""))?;
        rest.split('"').next()
    };
    elements.filter_map(value).collect()
}

fn texts(svg: &str) -> Vec<&str> {
    let parts = svg.split("<text").skip(1);
    parts.filter_map(|part| part.split_once('>')?.1.split('<').next()).collect()
}

#[test]
fn a_small_chart_has_its_lines_ticks_and_names_in_place() {
    let line = series("all", &[(0.0, 0.0), (5.0, 100.0), (10.0, 50.0)], Style::Line);
    let svg = svg(&chart(vec![line]));
    // The plot is from 70 to 744 and, below one line of text, from 30 to 310.
    assert!(svg.starts_with("<svg class=\"wide\" viewBox=\"0 0 760 355\" role=\"img\""), "{svg}");
    assert_eq!(all(&svg, "line s1", "d"), ["M70 310L407 30L744 170"]);
    assert_eq!(all(&svg, "zero", "y1"), ["310"]);
    assert_eq!(all(&svg, "grid", "y1"), ["254", "198", "142", "86", "30"]);
    assert_eq!(all(&svg, "tick", "x1").len(), 11);
    let mut expected = vec!["0", "20", "40", "60", "80", "100"];
    expected.extend(["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
    expected.extend(["units", "time (s)"]);
    assert_eq!(texts(&svg), expected);
    // One series needs no legend; the pointer is told what it is at.
    assert!(svg.contains("<title>time 5 s\nall: 100</title>"), "{svg}");
    assert!(svg.contains("<title>time 2.4 s\nall: 48</title>"), "{svg}");
}

#[test]
fn each_style_draws_its_own_path() {
    let points = [(0.0, 0.0), (5.0, 100.0), (10.0, 50.0)];
    let styles = [Style::Line, Style::Step, Style::Dashed, Style::Area];
    let all_of = styles.map(|style| series("a", &points, style)).to_vec();
    let svg = svg(&chart(all_of));
    let line = "M70 330L407 50L744 190";
    assert_eq!(all(&svg, "line s1", "d"), [line]);
    assert_eq!(all(&svg, "line s2", "d"), ["M70 330H407V50H744V190"]);
    assert_eq!(all(&svg, "line s3 dashed", "d"), [line]);
    assert_eq!(all(&svg, "area s4", "d"), ["M70 330L407 50L744 190H744V330H70Z"]);
    assert_eq!(all(&svg, "line s4", "d"), [line]);
    // Samples in the legend.
    assert_eq!(all(&svg, "line s3 dashed", "x1").len(), 1);
    assert_eq!(all(&svg, "area s4", "width"), ["28"]);
}

#[test]
fn a_step_has_its_value_until_the_next_and_a_line_is_in_between() {
    let points = [(0.0, 0.0), (10.0, 100.0)];
    let value = |style, x| value_at(&series("", &points, style), x);
    assert_eq!(value(Style::Step, 9.0), Some(0.0));
    assert_eq!(value(Style::Line, 9.0), Some(90.0));
    assert_eq!(value(Style::Step, 10.0), Some(100.0));
    for style in [Style::Step, Style::Line] {
        assert_eq!((value(style, -1.0), value(style, 11.0)), (None, None));
    }
    let gap = series("", &[(0.0, 1.0), (1.0, f64::NAN), (2.0, 1.0)], Style::Line);
    assert_eq!(value_at(&gap, 0.5), None);
}

#[test]
fn marks_and_bands_are_named_and_tell_where_they_are() {
    let mut chart = chart(vec![series("all", &[(0.0, 0.0), (10.0, 100.0)], Style::Line)]);
    chart.marks = vec![Mark { x: 5.0, text: "owner killed".into() }];
    chart.bands = vec![Band { from: 6.0, to: 8.0, text: "partition".into() }];
    let svg = svg(&chart);
    assert_eq!(all(&svg, "mark", "x1"), ["407"]);
    // Two fifths of 674 pixels.
    let band = [all(&svg, "band", "x"), all(&svg, "band", "width")].concat();
    assert_eq!(band, ["474.4", "134.8"]);
    assert!(svg.contains("<title>owner killed, at time 5 s</title>"));
    assert!(texts(&svg).contains(&"owner killed") && texts(&svg).contains(&"partition"));
}

#[test]
fn a_million_points_make_no_million_point_file() {
    let wave = |i: u32| (f64::from(i), f64::from(i).sin());
    let many: Vec<(f64, f64)> = (0..1_000_000).map(wave).collect();
    let chart = chart(vec![series("wave", &many, Style::Line), series("step", &many, Style::Step)]);
    let size = svg(&chart).len();
    assert!(size < 150_000, "{size}");
    assert!(svg(&chart).contains(" (from -1 to 1)"), "no range where there are many");
}

#[test]
fn what_is_too_much_is_left_out_and_what_is_missing_is_said() {
    let one = || series("one", &[(0.0, 1.0), (1.0, 1.0)], Style::Line);
    let svg_of = |count| svg(&chart((0..count).map(|_| one()).collect()));
    assert!(!svg_of(7).contains("not shown"));
    assert!(svg_of(9).contains("2 more not shown") && !svg_of(9).contains("s8"));
    let mut marked = chart(vec![one()]);
    marked.marks = (0..30).map(|i| Mark { x: f64::from(i), text: "m".into() }).collect();
    marked.marks.push(Mark { x: f64::NAN, text: "nowhere".into() });
    assert_eq!(all(&svg(&marked), "mark", "x1").len(), 24);
    for points in [&[][..], &[(f64::NAN, 1.0)], &[(1.0, f64::INFINITY)]] {
        assert!(svg(&chart(vec![series("none", points, Style::Area)])).contains("no data"));
    }
    assert!(svg(&chart(vec![])).contains("no data"));
    // A point alone is a dot.
    let dot = svg(&chart(vec![series("dot", &[(1.0, 5.0)], Style::Line)]));
    assert_eq!(all(&dot, "line s1", "d"), ["M70 30h0"]);
}

#[test]
fn extreme_values_stay_on_the_surface() {
    let far = [(-1e300, -1e300), (0.0, 1e-300), (1e300, 1e300), (f64::MAX, 0.0)];
    let chart = chart(vec![series("far", &far, Style::Area)]);
    for shape in [WIDE, NARROW] {
        let svg = Drawing::new(&chart.sorted(), shape).svg();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
