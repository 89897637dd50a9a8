//! Text in markup: escaped, and as wide as it will about be.
//!
//! Which font a reader has is not known here; widths are those of wide common ones, so that what is
//! placed by them does not overlap.

/// Text that no markup comes of. Characters that markup cannot hold are replaced.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(character),
            _ if character.is_control() => safe.push(char::REPLACEMENT_CHARACTER),
            _ => safe.push(character),
        }
    }
    safe
}

/// How wide a text is, in pixels.
pub(super) fn width(text: &str) -> f64 {
    text.chars().map(em).sum::<f64>() * FONT_SIZE
}

/// The text, or as much of its beginning as is not wider.
pub(super) fn fitted(text: &str, width_max: f64) -> String {
    if width(text) <= width_max {
        return text.into();
    }
    let mut left = width_max - em(ELLIPSIS) * FONT_SIZE;
    let begins = text.chars().take_while(|character| {
        left -= em(*character) * FONT_SIZE;
        left >= 0.0
    });
    begins.chain([ELLIPSIS]).collect()
}

fn em(character: char) -> f64 {
    match character {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' | 'I' => 0.34,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '/' | '-' | '"' => 0.43,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 1.0,
        'A'..='Z' | '+' | '=' | '<' | '>' | '~' => 0.78,
        _ if character.is_ascii() => 0.64,
        _ => 1.0,
    }
}

/// In pixels; the style sheet has the same.
pub(super) const FONT_SIZE: f64 = 13.0;
const ELLIPSIS: char = '\u{2026}';

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Each element that is opened is closed in its place, and attributes are quoted.
    pub(in super::super) fn assert_balanced(markup: &str) {
        let mut open = vec!["main"];
        for part in markup.split('<').skip(1) {
            let (tag, _) = part.split_once('>').unwrap_or_else(|| panic!("never ends: {part}"));
            let name = tag.split([' ', '\n', '/']).find(|part| !part.is_empty()).expect("a name");
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            if tag.starts_with('/') {
                let last = open.pop();
                if !["body", "html"].contains(&name) {
                    assert_eq!(last, Some(name), "{tag}");
                }
            } else if !tag.ends_with('/') {
                open.push(name);
            }
        }
    }

    #[test]
    fn what_would_be_markup_is_text() {
        assert_eq!(escaped("a<b>&\"c'\u{0}\n"), "a&lt;b&gt;&amp;&quot;c&#39;\u{fffd}\n");
    }

    #[test]
    fn a_text_that_is_too_wide_is_cut_and_says_so() {
        assert_eq!(fitted("short", 100.0), "short");
        let cut = fitted("a rather long name of a series", 100.0);
        assert!(cut.ends_with('\u{2026}') && width(&cut) <= 100.0 && width(&cut) > 85.0, "{cut}");
        assert_eq!(fitted("none", 1.0), "\u{2026}");
    }
}
