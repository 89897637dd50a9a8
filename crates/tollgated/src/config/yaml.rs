//! YAML text to a small tree in which every key and value knows its place.
//!
//! It knows YAML and no policy. A scalar keeps its text, since the field decides what it is: the
//! value `404` is a text where a text is wanted. What an alias stands for is counted each time, so
//! that a short text cannot become a large tree.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::finding::{Findings, Place, short};

/// A value, and where it stands; that of an alias stands at its anchor.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
}

#[derive(Debug)]
pub(super) enum Value {
    Scalar {
        text: Rc<str>,
        /// Neither quoted nor a block, so that `null` is nothing and `true` a boolean.
        plain: bool,
    },
    List(Vec<Rc<Node>>),
    /// Each key once, in the order of the file.
    Map(Fields),
}

pub(super) type Fields = Vec<(Key, Rc<Node>)>;

/// A key of a mapping.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) text: Rc<str>,
    pub(super) place: Place,
}

/// One of a file's documents, and where it begins.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) place: Place,
    pub(super) root: Rc<Node>,
}

impl Node {
    /// Whether nothing is written: no text, `~` or `null`.
    pub(super) fn is_empty(&self) -> bool {
        match &self.value {
            Value::Scalar { text, plain } => {
                *plain && ["", "~", "null", "Null", "NULL"].contains(&&**text)
            }
            Value::List(_) | Value::Map(_) => false,
        }
    }

    /// What it is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Scalar { .. } => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }
}

/// The documents of a file that hold anything; `None` after it was reported what is wrong.
pub(super) fn documents(
    text: &str,
    file: usize,
    findings: &mut Findings<'_>,
) -> Option<Vec<Document>> {
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
        places: Places::new(text, file),
        findings,
        anchors: HashMap::new(),
        total: Size::default(),
        twice: false,
    };
    match reader.stream() {
        Ok(documents) => (!reader.twice).then_some(documents),
        Err((place, message)) => {
            findings.error(place, message);
            None
        }
    }
}

struct Reader<'t, 'f, 'g> {
    parser: Parser<'t, StrInput<'t>>,
    places: Places<'t>,
    findings: &'f mut Findings<'g>,
    /// What stands at each anchor of the document; a tree that is not complete is not there yet.
    anchors: HashMap<usize, Anchored>,
    /// All that was read so far, aliases as what they stand for.
    total: Size,
    /// Whether any key was given twice.
    twice: bool,
}

#[derive(Clone)]
struct Anchored {
    node: Rc<Node>,
    size: Size,
    height: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Size {
    nodes: usize,
    bytes: usize,
}

/// Why a file is not read any further.
type Fault = (Place, String);

impl<'t> Reader<'t, '_, '_> {
    fn stream(&mut self) -> Result<Vec<Document>, Fault> {
        let mut documents = Vec::new();
        loop {
            let (event, span) = self.next()?;
            let place = self.places.of(span);
            match event {
                Event::StreamEnd => return Ok(documents),
                Event::DocumentStart(_) => {
                    // Anchors are of one document.
                    self.anchors.clear();
                    let (event, span) = self.next()?;
                    let root = self.node(event, span, 0)?.node;
                    if !root.is_empty() {
                        documents.push(Document { place, root });
                    }
                }
                Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
                _ => return Err((place, "is no YAML here".into())),
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'t>, Span), Fault> {
        let places = &self.places;
        let broken = |error: ScanError| {
            let place = places.at(error.marker().index());
            (place, error.info().to_owned())
        };
        let ended = || (places.at(usize::MAX), "the text ends too early".to_owned());
        self.parser.next_event().ok_or_else(ended)?.map_err(broken)
    }

    /// The tree that begins with `event`, at this depth.
    fn node(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<Anchored, Fault> {
        let place = self.places.of(span);
        if depth > DEPTH_MAX {
            return Err((place, format!("is nested more than {DEPTH_MAX} deep")));
        }
        let before = self.total;
        let (anchor, value, height) = match event {
            Event::Alias(anchor) => return self.alias(anchor, place, depth),
            Event::Scalar(text, style, anchor, tag) => {
                self.count(Size { nodes: 1, bytes: text.len() }, place)?;
                let text_is_meant = check_tag(tag.as_deref(), "str", place)?;
                let plain = style == ScalarStyle::Plain && !text_is_meant;
                (anchor, Value::Scalar { text: text.into(), plain }, 0)
            }
            Event::SequenceStart(anchor, tag) => {
                self.count(Size { nodes: 1, bytes: 0 }, place)?;
                check_tag(tag.as_deref(), "seq", place)?;
                let (list, height) = self.list(depth)?;
                (anchor, Value::List(list), height)
            }
            Event::MappingStart(anchor, tag) => {
                self.count(Size { nodes: 1, bytes: 0 }, place)?;
                check_tag(tag.as_deref(), "map", place)?;
                let (map, height) = self.map(depth)?;
                (anchor, Value::Map(map), height)
            }
            _ => return Err((place, "is no YAML here".into())),
        };
        let size =
            Size { nodes: self.total.nodes - before.nodes, bytes: self.total.bytes - before.bytes };
        let read = Anchored { node: Rc::new(Node { place, value }), size, height };
        if anchor > 0 {
            self.anchors.insert(anchor, read.clone());
        }
        Ok(read)
    }

    fn alias(&mut self, anchor: usize, place: Place, depth: usize) -> Result<Anchored, Fault> {
        let Some(anchored) = self.anchors.get(&anchor).cloned() else {
            let message = "stands for nothing that is complete before it in this document";
            return Err((place, message.into()));
        };
        if depth + anchored.height > DEPTH_MAX {
            return Err((place, format!("is nested more than {DEPTH_MAX} deep")));
        }
        self.count(anchored.size, place)?;
        Ok(anchored)
    }

    fn list(&mut self, depth: usize) -> Result<(Vec<Rc<Node>>, usize), Fault> {
        let (mut list, mut height) = (Vec::new(), 0);
        loop {
            let (event, span) = self.next()?;
            if event == Event::SequenceEnd {
                return Ok((list, height));
            }
            let one = self.node(event, span, depth + 1)?;
            height = height.max(one.height + 1);
            list.push(one.node);
        }
    }

    fn map(&mut self, depth: usize) -> Result<(Fields, usize), Fault> {
        let (mut map, mut height, mut known) = (Vec::new(), 0, HashSet::new());
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                return Ok((map, height));
            }
            let place = self.places.of(span);
            let key = self.node(event, span, depth + 1)?.node;
            let (event, span) = self.next()?;
            let value = self.node(event, span, depth + 1)?;
            height = height.max(value.height + 1);
            let Value::Scalar { text, plain } = &key.value else {
                return Err((place, format!("is {} where a key is wanted", key.kind())));
            };
            if *plain && &**text == "<<" {
                let message = "merges (`<<`) are not read: write the fields, or an alias of all";
                return Err((place, message.into()));
            }
            if known.insert(text.clone()) {
                map.push((Key { text: text.clone(), place }, value.node));
            } else {
                self.twice = true;
                self.findings.error(place, format!("`{}` is given twice", short(text)));
            }
        }
    }

    fn count(&mut self, size: Size, place: Place) -> Result<(), Fault> {
        self.total.nodes = self.total.nodes.saturating_add(size.nodes);
        self.total.bytes = self.total.bytes.saturating_add(size.bytes);
        if self.total.nodes > NODES_MAX || self.total.bytes > BYTES_MAX {
            let message = format!(
                "is too much: a file has at most {NODES_MAX} keys and values and {BYTES_MAX} \
                 bytes of them, with every alias counted as what it stands for"
            );
            return Err((place, message));
        }
        Ok(())
    }
}

/// Whether the tag says what it is; one that would make something else of it is refused.
fn check_tag(tag: Option<&Tag>, own: &str, place: Place) -> Result<bool, Fault> {
    match tag {
        None => Ok(false),
        Some(tag) if tag.is_yaml_core_schema() && tag.suffix == own => Ok(true),
        Some(tag) => {
            let tag = format!("{}{}", tag.handle, tag.suffix);
            Err((place, format!("the tag `{}` is not known", short(&tag))))
        }
    }
}

/// Places by the parser's count of characters.
struct Places<'t> {
    text: &'t str,
    file: usize,
    /// The byte of every [`STRIDE`]th character; not needed if each is one byte.
    strides: Option<Vec<usize>>,
}

impl<'t> Places<'t> {
    fn new(text: &'t str, file: usize) -> Self {
        let bytes = || text.char_indices().map(|(byte, _)| byte).step_by(STRIDE).collect();
        Self { text, file, strides: (!text.is_ascii()).then(bytes) }
    }

    fn of(&self, span: Span) -> Place {
        self.at(span.start.index())
    }

    fn at(&self, chars: usize) -> Place {
        let offset = match &self.strides {
            None => chars,
            Some(strides) => {
                let stride = (chars / STRIDE).min(strides.len().saturating_sub(1));
                let start = strides.get(stride).copied().unwrap_or(0);
                let mut rest = self.text[start..].char_indices();
                let found = rest.nth(chars.saturating_sub(stride * STRIDE));
                found.map_or(self.text.len(), |(byte, _)| start + byte)
            }
        };
        Place { file: self.file, offset: offset.min(self.text.len()) }
    }
}

/// Twice what 16 levels of descriptors need.
const DEPTH_MAX: usize = 64;
/// Keys and values of a file: some 125,000 limits, as many as the default of `--keys-max` has room
/// for.
const NODES_MAX: usize = 1_500_000;
/// Bytes of all keys and values: as many as a file has.
const BYTES_MAX: usize = 16 << 20;
const STRIDE: usize = 1024;
#[cfg(test)]
mod tests {
    use super::super::finding::Text;
    use super::*;

    /// What a text says with the place of each key and value, or what is wrong with it.
    fn read(text: &str) -> Result<Vec<String>, Vec<String>> {
        let texts = [Text { path: "a.yaml".into(), text: text.into() }];
        let mut findings = Findings::new(&texts);
        let documents = documents(text, 0, &mut findings);
        let shown = documents.map(|documents| {
            documents.iter().map(|document| show(&document.root, &texts[0])).collect()
        });
        let errors: Vec<String> = findings.into_list().iter().map(ToString::to_string).collect();
        assert_eq!(shown.is_none(), !errors.is_empty());
        shown.ok_or(errors)
    }

    fn show(node: &Node, text: &Text) -> String {
        let at = |place: Place| {
            let (line, column) = text.position(place.offset);
            format!("{line}:{column}")
        };
        let shown = match &node.value {
            Value::Scalar { text, plain: true } => format!("{text:?}"),
            Value::Scalar { text, plain: false } => format!("text {text:?}"),
            Value::List(list) => {
                let list: Vec<String> = list.iter().map(|one| show(one, text)).collect();
                format!("[{}]", list.join(", "))
            }
            Value::Map(map) => {
                let pair = |(key, value): &(Key, Rc<Node>)| {
                    format!("{} {}: {}", at(key.place), key.text, show(value, text))
                };
                let map: Vec<String> = map.iter().map(pair).collect();
                format!("{{{}}}", map.join(", "))
            }
        };
        format!("{} {shown}", at(node.place))
    }

    fn one(text: &str) -> String {
        let documents = read(text).expect("sound");
        assert_eq!(documents.len(), 1);
        documents.into_iter().next().expect("one")
    }

    fn error(text: &str) -> String {
        let errors = read(text).expect_err("not sound");
        assert_eq!(errors.len(), 1, "{errors:?}");
        errors.into_iter().next().expect("one").replacen("a.yaml:", "", 1)
    }

    #[test]
    fn keys_and_values_know_their_places() {
        let text = "a: 404\nb:\n  - true\n  - 'x'\n  - c: ~\n    d: |\n      t\n";
        let expected = [
            r#"1:1 {1:1 a: 1:4 "404", 2:1 b: 3:3 ["#,
            r#"3:5 "true", 4:5 text "x", 5:5 {5:5 c: 5:8 "~", 6:5 d: 7:7 text "t\n"}]}"#,
        ]
        .concat();
        assert_eq!(one(text), expected);
        assert_eq!(one("{ a: [1, \"2\"] }"), r#"1:1 {1:3 a: 1:6 [1:7 "1", 1:10 text "2"]}"#);
    }

    #[test]
    fn places_are_right_behind_other_scripts_line_ends_and_a_byte_order_mark() {
        assert_eq!(one("# é€😀\r\né: ü\r\nb: 1\r\n"), r#"2:1 {2:1 é: 2:4 "ü", 3:1 b: 3:4 "1"}"#);
        assert_eq!(one("\u{feff}a: é\nb: 1\n"), r#"1:1 {1:1 a: 1:4 "é", 2:1 b: 2:4 "1"}"#);
        let long = format!("# {}\na: {}\nb: 1\n", "é".repeat(3_000), "ü".repeat(3_000));
        assert!(one(&long).ends_with(r#"3:1 b: 3:4 "1"}"#));
    }

    #[test]
    fn documents_that_hold_nothing_are_passed_over() {
        assert!(read("").expect("sound").is_empty());
        assert!(read("# only a comment\n---\n---\n~\n...\n").expect("sound").is_empty());
        let two = read("---\n---\na: 1\n---\nb: 2\n").expect("sound");
        assert_eq!(two, [r#"3:1 {3:1 a: 3:4 "1"}"#, r#"5:1 {5:1 b: 5:4 "2"}"#]);
    }

    #[test]
    fn an_alias_is_what_stands_at_its_anchor() {
        let expected = r#"1:1 {1:1 a: 1:4 [1:8 "1"], 2:1 b: 1:4 [1:8 "1"]}"#;
        assert_eq!(one("a: &x [1]\nb: *x\n"), expected);
        let message = "error: stands for nothing that is complete before it in this document";
        assert_eq!(error("a: &x [1, *x]\n"), format!("1:11: {message}"));
        assert_eq!(error("a: &x 1\n---\nb: *x\n"), format!("3:4: {message}"));
        assert!(error("a: *x\n").starts_with("1:4: error: "));
    }

    #[test]
    fn an_anchor_can_be_given_anew() {
        assert!(one("a: &x 1\nb: &x 2\nc: *x\n").ends_with(r#"3:1 c: 2:4 "2"}"#));
    }

    #[test]
    fn a_short_text_does_not_become_a_large_tree() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..9 {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            text += &format!("a{level}: &a{level} [{aliases}]\n");
        }
        let found = error(&text);
        assert!(found.starts_with("7:"), "{found}");
        assert!(found.contains("a file has at most 1500000 keys and values"), "{found}");
        // Nor does one whose texts are long.
        let text = format!("a: &x {}\nb: [{}]\n", "x".repeat(100_000), "*x,".repeat(168));
        assert!(error(&text).starts_with("2:"));
    }

    #[test]
    fn a_tree_is_64_deep_at_most_whether_written_or_by_aliases() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(read(&nested(65)).is_ok());
        assert_eq!(error(&nested(66)), "1:66: error: is nested more than 64 deep");
        assert_eq!(error(&"[".repeat(200)), "1:66: error: is nested more than 64 deep");
        assert_eq!(error(&"- ".repeat(3_000)), "1:131: error: is nested more than 64 deep");
        let chain = |depth: usize| {
            let (open, close) = ("[".repeat(depth), "]".repeat(depth));
            format!("a: &a {}\nb: &b {open}*a{close}\nc: {open}*b{close}\n", nested(20))
        };
        assert!(read(&chain(20)).is_ok());
        assert_eq!(error(&chain(24)), "3:28: error: is nested more than 64 deep");
    }

    #[test]
    fn a_key_that_is_given_twice_is_an_error_each_time() {
        let found = read("a: 1\nb: 2\na: 3\n\"b\": 4\n").expect_err("twice");
        let expected = ["3:1: error: `a` is given twice", "4:1: error: `b` is given twice"];
        assert_eq!(found, expected.map(|line| format!("a.yaml:{line}")));
    }

    #[test]
    fn what_is_not_read_is_refused_by_name() {
        let merge = "error: merges (`<<`) are not read: write the fields, or an alias of all";
        assert_eq!(error("a: &x { b: 1 }\nc:\n  <<: *x\n"), format!("3:3: {merge}"));
        assert_eq!(
            error("a: !!binary aGk=\n"),
            "1:4: error: the tag `tag:yaml.org,2002:binary` is not known"
        );
        assert_eq!(error("a: !own {}\n"), "1:4: error: the tag `!own` is not known");
        assert_eq!(error("? [a]\n: 1\n"), "1:3: error: is a list where a key is wanted");
        let tagged = r#"1:1 {1:1 a: 1:4 text "404", 2:1 b: 2:4 [], 3:1 c: 3:4 {}}"#;
        assert_eq!(one("a: !!str 404\nb: !!seq []\nc: !!map {}\n"), tagged);
    }

    #[test]
    fn what_is_no_yaml_is_an_error_at_its_place() {
        for (text, place) in [
            ("a: [1, 2\n", "2:1"),
            ("a: b: c\n", "1:5"),
            ("a: 'x\n", "1:4"),
            ("a: 1\n b: 2\n", "2:3"),
            ("a: 1\n\tb: 2\n", "1:4"),
            ("é: 'ü' x\n", "1:8"),
            ("%YAML 9\n---\na: 1\n", "1:1"),
            ("a: \"\\q\"\n", "1:4"),
            ("}", "1:1"),
        ] {
            assert!(
                error(text).starts_with(&format!("{place}: error: ")),
                "{text:?} {}",
                error(text)
            );
        }
    }
}
