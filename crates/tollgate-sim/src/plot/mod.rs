//! Charts and tables on one page: a single HTML file without scripts, fonts or anything else from
//! outside, for light and dark screens, phones and paper.
//!
//! The same page is the same bytes. All text is data: none of it can become markup. What is drawn
//! is bounded, whatever is given.

mod axis;

mod text;
mod thin;
mod lanes;
mod draw;
mod chart;

use crate::number::number;

pub use chart::{Axis, Band, Chart, Mark, Series, Style};
use text::escaped;

/// A page, from top to bottom.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// What it is about, in a few words.
    pub title: String,
    /// What a reader should know first; one paragraph.
    pub lead: String,
    /// The rest.
    pub sections: Vec<Section>,
}

/// One part of a page.
#[derive(Debug, Clone, PartialEq)]
pub enum Section {
    /// A paragraph.
    Text(String),
    /// A line chart.
    Chart(Chart),
    /// A table.
    Table(Table),
}

/// A table; of more than 2,000 rows the first are shown, and how many there are beyond.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// The names of its columns, with their units.
    pub head: Vec<String>,
    /// Its rows, each with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

/// One cell of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Words, at the left.
    Text(String),
    /// A number, at the right, written as everywhere.
    Number(f64),
}

impl Page {
    /// The page as an HTML file.
    ///
    /// A chart takes at most some 200 kB, of however many points.
    #[must_use]
    pub fn html(&self) -> String {
        let title = escaped(&self.title);
        let mut html = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
             <h1>{title}</h1>\n<p class=\"lead\">{}</p>\n",
            escaped(&self.lead)
        );
        for section in &self.sections {
            match section {
                Section::Text(text) => html += &format!("<p>{}</p>\n", escaped(text)),
                Section::Chart(chart) => html += &chart.html(),
                Section::Table(table) => html += &table.html(),
            }
        }
        html + "</main>\n</body>\n</html>\n"
    }
}

impl Table {
    fn html(&self) -> String {
        let right = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.fold(false, |_, cell| matches!(cell, Cell::Number(_)))
        };
        let heads = self.head.iter().enumerate().map(|(column, name)| {
            let class = if right(column) { " class=\"number\"" } else { "" };
            format!("<th scope=\"col\"{class}>{}</th>", escaped(name))
        });
        let row = |cells: &Vec<Cell>| {
            let cells: String = cells.iter().map(Cell::html).collect();
            format!("<tr>{cells}</tr>\n")
        };
        let rows: String = self.rows.iter().take(ROWS_MAX).map(row).collect();
        let beyond = match self.rows.len().saturating_sub(ROWS_MAX) {
            0 => String::new(),
            beyond => format!("<p>{} more rows are not shown.</p>\n", number(beyond as f64)),
        };
        format!(
            "<section>\n<h2>{}</h2>\n<div class=\"wide-table\"><table>\n\
             <thead><tr>{}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n\
             {beyond}</section>\n",
            escaped(&self.title),
            heads.collect::<String>()
        )
    }
}

impl Cell {
    fn html(&self) -> String {
        match self {
            Self::Text(text) => format!("<td>{}</td>", escaped(text)),
            Self::Number(value) => format!("<td class=\"number\">{}</td>", number(*value)),
        }
    }
}

/// Even if something got in, it could load nothing and run nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";
const STYLE: &str = include_str!("page.css");
const ROWS_MAX: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn page(sections: Vec<Section>) -> String {
        Page { title: "A page".into(), lead: "To begin with.".into(), sections }.html()
    }

    fn table(rows: usize) -> Section {
        let row = |index| vec![Cell::Text(format!("row {index}")), Cell::Number(index as f64)];
        let head = vec!["name".into(), "units".into()];
        let rows = (0..rows).map(row).collect();
        Section::Table(Table { title: "Rows".into(), head, rows })
    }

    #[test]
    fn a_page_has_its_parts_in_order_and_nothing_from_outside() {
        let html = page(vec![table(1_235), Section::Text("At last.".into())]);
        let at = |part: &str| html.find(part).unwrap_or_else(|| panic!("no {part}"));
        assert!(at("<h1>A page</h1>") < at("To begin with."));
        assert!(at("To begin with.") < at("<h2>Rows</h2>"));
        assert!(at("<td>row 1234</td><td class=\"number\">1,234</td>") < at("<p>At last.</p>"));
        assert!(html.contains("<th scope=\"col\">name</th><th scope=\"col\" class=\"number\">"));
        for outside in ["<script", "<link", "<img", "http:", "https:", "url(", "@import", "src="] {
            assert!(!html.contains(outside), "{outside}");
        }
    }

    #[test]
    fn a_name_that_is_markup_does_nothing() {
        let evil = || String::from("<script>alert('1')</script>\"&\u{7}");
        let axis = || Axis { label: evil(), unit: evil() };
        let series = |style| Series { name: evil(), points: vec![(0.0, 1.0), (1.0, 2.0)], style };
        let chart = Chart {
            title: evil(),
            x: axis(),
            y: axis(),
            series: vec![series(Style::Line), series(Style::Area)],
            marks: vec![Mark { x: 0.5, text: evil() }],
            bands: vec![Band { from: 0.2, to: 0.4, text: evil() }],
        };
        let table =
            Table { title: evil(), head: vec![evil()], rows: vec![vec![Cell::Text(evil())]] };
        let sections = vec![Section::Chart(chart), Section::Table(table), Section::Text(evil())];
        let html = Page { title: evil(), lead: evil(), sections }.html();
        assert!(!html.contains("<script") && !html.contains("alert('") && !html.contains('\u{7}'));
        assert!(html.contains("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot;&amp;"));
        text::tests::assert_balanced(html.split_once("<main>").expect("a body").1);
    }

    #[test]
    fn a_table_of_more_rows_than_can_be_read_says_how_many_there_are() {
        let html = page(vec![table(2_000)]);
        assert!(html.contains("row 1999") && !html.contains("not shown"));
        let html = page(vec![table(3_500)]);
        assert!(html.contains("row 1999") && !html.contains("row 2000"));
        assert!(html.contains("1,500 more rows are not shown"));
    }

    #[test]
    fn the_same_page_is_the_same_bytes() {
        assert_eq!(page(vec![table(3)]), page(vec![table(3)]));
    }
}
