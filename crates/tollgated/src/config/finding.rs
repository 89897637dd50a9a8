//! Findings: what is wrong or doubtful in a source, and where it stands.
//!
//! It turns byte offsets into lines and columns, and keeps the list within bounds. What is worth a
//! finding is decided by whoever reports it.

use std::fmt;
use std::path::{Path, PathBuf};

/// One thing that is wrong or doubtful, and where.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Finding {
    /// Whether the source can be used in spite of it.
    pub severity: Severity,
    /// The file in which it stands; the source itself when it is about no file in particular.
    #[serde(serialize_with = "as_shown")]
    pub file: PathBuf,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// What is wrong, and what to do about it.
    pub message: String,
    /// Whether it is about something that was accepted and has no effect.
    #[serde(skip)]
    pub no_effect: bool,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// The source cannot be used, and what was in force stays in force.
    Error,
    /// The source is used as it is written, which may not be what was meant.
    Warning,
}

impl Finding {
    /// An error about a file as a whole.
    pub(crate) fn whole(file: &Path, message: impl Into<String>) -> Self {
        let (severity, file) = (Severity::Error, file.into());
        Self { severity, file, line: 1, column: 1, message: message.into(), no_effect: false }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { severity, file, line, column, message, .. } = self;
        write!(f, "{}:{line}:{column}: {severity}: {message}", file.display())
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// A byte of a source's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The file's position in the source.
    pub(super) file: usize,
    /// The byte's position in the file.
    pub(super) offset: usize,
}

/// One file's text.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl Text {
    /// Line and column of a byte, from 1; beyond the end, those of the end.
    pub(super) fn position(&self, offset: usize) -> (usize, usize) {
        let before = &self.text[..self.text.floor_char_boundary(offset)];
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        // Editors show no column for a byte order mark.
        let before = before[start..].trim_start_matches('\u{feff}');
        (line, before.chars().count() + 1)
    }
}

/// What was found so far.
#[derive(Debug)]
pub(super) struct Findings<'t> {
    texts: &'t [Text],
    list: Vec<Finding>,
    errors: Tally,
    warnings: Tally,
}

/// How many findings of one severity there were, and the first that was not kept.
#[derive(Debug, Default)]
struct Tally {
    found: usize,
    left_off: Option<Finding>,
}

impl<'t> Findings<'t> {
    pub(super) fn new(texts: &'t [Text]) -> Self {
        Self { texts, list: Vec::new(), errors: Tally::default(), warnings: Tally::default() }
    }

    pub(super) fn error(&mut self, at: Place, message: impl Into<String>) {
        self.add(Severity::Error, at, message.into(), false);
    }

    pub(super) fn warning(&mut self, at: Place, message: impl Into<String>) {
        self.add(Severity::Warning, at, message.into(), false);
    }

    /// A warning about something that is read and changes nothing.
    pub(super) fn no_effect(&mut self, at: Place, message: impl Into<String>) {
        self.add(Severity::Warning, at, message.into(), true);
    }

    /// How many errors there were, kept or not.
    pub(super) fn errors(&self) -> usize {
        self.errors.found
    }

    /// A place as messages name it.
    pub(super) fn show(&self, at: Place) -> String {
        let text = &self.texts[at.file];
        let (line, column) = text.position(at.offset);
        format!("{}:{line}:{column}", text.path.display())
    }

    /// All findings by file, line and column.
    pub(super) fn into_list(self) -> Vec<Finding> {
        let Self { mut list, errors, warnings, .. } = self;
        list.sort_by(|a, b| {
            (&a.file, a.line, a.column, a.severity).cmp(&(&b.file, b.line, b.column, b.severity))
        });
        for tally in [errors, warnings] {
            let more = tally.found.saturating_sub(FINDINGS_MAX);
            list.extend(tally.left_off.map(|first| Finding {
                message: format!("{}; {more} findings of this kind are left off", first.message),
                ..first
            }));
        }
        list
    }

    fn add(&mut self, severity: Severity, at: Place, message: String, no_effect: bool) {
        let tally = match severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        };
        tally.found += 1;
        if tally.left_off.is_some() {
            return;
        }
        let text = &self.texts[at.file];
        let (line, column) = text.position(at.offset);
        let message = printable(&cut(&message, MESSAGE_CHARS_MAX));
        let file = text.path.clone();
        let finding = Finding { severity, file, line, column, message, no_effect };
        if tally.found <= FINDINGS_MAX {
            self.list.push(finding);
        } else {
            tally.left_off = Some(finding);
        }
    }
}

/// A name from a source, short enough to stand in a message.
pub(super) fn short(name: &str) -> String {
    cut(name, NAME_CHARS_MAX)
}

fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

/// A message without control characters: it may hold text from a source, which must not move the
/// reader's cursor.
fn printable(message: &str) -> String {
    let mut printable = String::with_capacity(message.len());
    for char in message.chars() {
        if char.is_control() {
            printable.extend(char.escape_default());
        } else {
            printable.push(char);
        }
    }
    printable
}

fn as_shown<S: serde::Serializer>(file: &Path, to: S) -> Result<S::Ok, S::Error> {
    // A path that is no UTF-8 must not make the whole list unprintable.
    to.collect_str(&file.display())
}

/// Findings of one severity that are kept; a generated file can be wrong on every line.
const FINDINGS_MAX: usize = 1_000;
/// A wrong value can be as long as its file.
const MESSAGE_CHARS_MAX: usize = 500;
const NAME_CHARS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Text {
        Text { path: "a.toml".into(), text: text.into() }
    }

    #[test]
    fn lines_and_columns_count_from_1_and_in_characters() {
        let text = text("é=1\r\n\nb");
        assert_eq!(text.position(0), (1, 1));
        assert_eq!(text.position(1), (1, 1), "within a character");
        assert_eq!(text.position(2), (1, 2));
        assert_eq!(text.position(5), (1, 5), "the line break is the last of its line");
        assert_eq!(text.position(6), (2, 1));
        assert_eq!(text.position(7), (3, 1));
        assert_eq!(text.position(8), (3, 2));
        assert_eq!(text.position(usize::MAX), (3, 2));
    }

    #[test]
    fn a_byte_order_mark_has_no_column() {
        assert_eq!(text("\u{feff}ab").position(4), (1, 2));
    }

    #[test]
    fn a_finding_is_shown_as_file_line_column_severity_and_message() {
        let texts = [text("ab\ncd")];
        let mut findings = Findings::new(&texts);
        findings.warning(Place { file: 0, offset: 4 }, "odd");
        findings.error(Place { file: 0, offset: 0 }, "wrong");
        let list = findings.into_list();
        let shown: Vec<String> = list.iter().map(Finding::to_string).collect();
        assert_eq!(shown, ["a.toml:1:1: error: wrong", "a.toml:2:2: warning: odd"]);
        let json = serde_json::to_value(&list[1]).expect("plain data");
        let expected = serde_json::json!({
            "severity": "warning", "file": "a.toml", "line": 2, "column": 2, "message": "odd",
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn beyond_a_thousand_errors_the_rest_is_counted() {
        let texts = [text("a")];
        let mut findings = Findings::new(&texts);
        for _ in 0..FINDINGS_MAX + 2 {
            findings.error(Place { file: 0, offset: 0 }, "wrong");
        }
        findings.warning(Place { file: 0, offset: 0 }, "odd");
        assert_eq!(findings.errors(), FINDINGS_MAX + 2);
        let list = findings.into_list();
        assert_eq!(list.len(), FINDINGS_MAX + 2);
        let last = list.last().expect("one");
        assert_eq!(last.message, "wrong; 2 findings of this kind are left off");
    }

    #[test]
    fn text_from_a_source_is_cut_and_its_control_characters_are_spelt_out() {
        let texts = [text("a")];
        let mut findings = Findings::new(&texts);
        findings.error(Place { file: 0, offset: 0 }, "wrong\u{1b}[2J\n");
        findings.error(Place { file: 0, offset: 0 }, "é".repeat(501));
        let list = findings.into_list();
        assert_eq!(list[0].message, "wrong\\u{1b}[2J\\n");
        assert_eq!(list[1].message, format!("{}…", "é".repeat(500)));
        assert_eq!(short(&"é".repeat(65)), format!("{}…", "é".repeat(64)));
        assert_eq!(short(&"é".repeat(64)), "é".repeat(64));
    }
}
