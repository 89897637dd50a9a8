//! Commands as Redis clients send them: an array of bulk strings, or a line of words.
//!
//! A pure function of the bytes received so far; nothing is copied but the words of a line with
//! quotes. Every length is held to a maximum before anything is done about it. Errors are worded as
//! redis-server words them, and end the connection as there.

use std::borrow::Cow;
use std::fmt;

/// The words of one command.
pub(crate) type Words<'a> = Vec<Cow<'a, [u8]>>;

/// What the bytes received so far hold at their beginning.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// A command of this many bytes; its words are in `words`, which is empty when it is to be
    /// passed over.
    Command { bytes: usize },
    /// The beginning of a command.
    Partial,
}

/// Bytes that are no command. The connection can't be brought back into step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ProtocolError {
    /// Something else than a bulk string in an array.
    ExpectedBulk { got: u8 },
    /// An array's length that is no number, or above [`WORDS_MAX`].
    MultibulkLength,
    /// A bulk string's length that is no number, negative, or above [`WORD_BYTES_MAX`].
    BulkLength,
    /// A command of more than [`COMMAND_BYTES_MAX`].
    CommandTooBig,
    /// A line of more than [`INLINE_BYTES_MAX`].
    InlineTooBig,
    /// A line with a quote that is not closed.
    UnbalancedQuotes,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Escaped: the byte is the client's, and the reply is a line.
            Self::ExpectedBulk { got } => {
                write!(f, "expected '$', got '{}'", char::from(*got).escape_default())
            }
            Self::MultibulkLength => f.write_str("invalid multibulk length"),
            Self::BulkLength => f.write_str("invalid bulk length"),
            Self::CommandTooBig => f.write_str("too big mbulk request"),
            Self::InlineTooBig => f.write_str("too big inline request"),
            Self::UnbalancedQuotes => f.write_str("unbalanced quotes in request"),
        }
    }
}

/// Reads the command at the beginning of `input` into `words`.
pub(crate) fn parse<'a>(input: &'a [u8], words: &mut Words<'a>) -> Result<Parsed, ProtocolError> {
    words.clear();
    match input.first() {
        None => Ok(Parsed::Partial),
        Some(b'*') => parse_array(input, words),
        Some(_) => parse_line(input, words),
    }
}

fn parse_array<'a>(input: &'a [u8], words: &mut Words<'a>) -> Result<Parsed, ProtocolError> {
    let mut at = 1;
    let Some(count) = header(input, &mut at, ProtocolError::MultibulkLength)? else {
        return Ok(Parsed::Partial);
    };
    if count > WORDS_MAX as i64 {
        return Err(ProtocolError::MultibulkLength);
    }
    // An empty or a null array asks for nothing.
    for _ in 0..count {
        match input.get(at) {
            None => return Ok(Parsed::Partial),
            Some(b'$') => at += 1,
            Some(got) => return Err(ProtocolError::ExpectedBulk { got: *got }),
        }
        let Some(length) = header(input, &mut at, ProtocolError::BulkLength)? else {
            return Ok(Parsed::Partial);
        };
        let Ok(length) = usize::try_from(length) else { return Err(ProtocolError::BulkLength) };
        if length > WORD_BYTES_MAX {
            return Err(ProtocolError::BulkLength);
        }
        let end = at + length;
        if end > COMMAND_BYTES_MAX {
            return Err(ProtocolError::CommandTooBig);
        }
        if input.len() < end + 2 {
            return Ok(Parsed::Partial);
        }
        words.push(Cow::Borrowed(&input[at..end]));
        // As redis-server does, the two bytes behind a bulk string are passed over unseen.
        at = end + 2;
    }
    Ok(Parsed::Command { bytes: at })
}

/// A number up to the end of its line, and the place behind it; nothing if the line is not
/// complete.
fn header(
    input: &[u8],
    at: &mut usize,
    error: ProtocolError,
) -> Result<Option<i64>, ProtocolError> {
    let rest = &input[*at..];
    let window = &rest[..rest.len().min(HEADER_BYTES_MAX)];
    let Some(end) = window.iter().position(|byte| *byte == b'\r') else {
        return if rest.len() >= HEADER_BYTES_MAX { Err(error) } else { Ok(None) };
    };
    // The line feed must have come too.
    if rest.len() < end + 2 {
        return Ok(None);
    }
    let number = number(&rest[..end]).ok_or(error)?;
    *at += end + 2;
    Ok(Some(number))
}

/// A decimal number with an optional minus.
fn number(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?.parse().ok()
}

fn parse_line<'a>(input: &'a [u8], words: &mut Words<'a>) -> Result<Parsed, ProtocolError> {
    let window = &input[..input.len().min(INLINE_BYTES_MAX)];
    let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
        let too_big = input.len() >= INLINE_BYTES_MAX;
        return if too_big { Err(ProtocolError::InlineTooBig) } else { Ok(Parsed::Partial) };
    };
    let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
    if line.iter().any(|byte| matches!(byte, b'"' | b'\'')) {
        quoted_words(line, words)?;
    } else {
        let some = |word: &&[u8]| !word.is_empty();
        let split = line.split(u8::is_ascii_whitespace).filter(some);
        words.extend(split.take(WORDS_MAX + 1).map(Cow::Borrowed));
    }
    if words.len() > WORDS_MAX {
        return Err(ProtocolError::MultibulkLength);
    }
    Ok(Parsed::Command { bytes: end + 1 })
}

/// The words of a line in which some are in quotes: "..." with escapes, or '...' without.
fn quoted_words(line: &[u8], words: &mut Words<'_>) -> Result<(), ProtocolError> {
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() || words.len() > WORDS_MAX {
            return Ok(());
        }
        let mut word = Vec::new();
        while let Some((&byte, behind)) = rest.split_first() {
            match byte {
                b'"' | b'\'' => {
                    rest = quoted(behind, byte, &mut word)?;
                    // A closing quote ends the word.
                    if rest.first().is_some_and(|next| !next.is_ascii_whitespace()) {
                        return Err(ProtocolError::UnbalancedQuotes);
                    }
                    break;
                }
                byte if byte.is_ascii_whitespace() => break,
                byte => {
                    word.push(byte);
                    rest = behind;
                }
            }
        }
        words.push(Cow::Owned(word));
    }
}

/// Reads up to the closing quote, and returns what is behind it.
fn quoted<'a>(
    mut rest: &'a [u8],
    quote: u8,
    word: &mut Vec<u8>,
) -> Result<&'a [u8], ProtocolError> {
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte == quote {
            return Ok(rest);
        }
        let escaped = byte == b'\\' && (quote == b'"' || rest.first() == Some(&b'\''));
        let Some((&next, behind)) = rest.split_first().filter(|_| escaped) else {
            word.push(byte);
            continue;
        };
        rest = behind;
        let hex = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        word.push(match next {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'b' => 8,
            b'a' => 7,
            b'x' => match rest.get(..2).and_then(hex) {
                Some(byte) => {
                    rest = &rest[2..];
                    byte
                }
                None => b'x',
            },
            other => other,
        });
    }
    Err(ProtocolError::UnbalancedQuotes)
}

/// Words of a command at most.
pub(crate) const WORDS_MAX: usize = 64;
/// Bytes of a word at most.
pub(crate) const WORD_BYTES_MAX: usize = 64 << 10;
/// Bytes of a command at most, and so of what is kept of one that is not complete.
pub(crate) const COMMAND_BYTES_MAX: usize = 128 << 10;
/// Bytes of a command in a line at most.
const INLINE_BYTES_MAX: usize = 16 << 10;
/// Digits, sign and line end of any 64-bit number, and some.
const HEADER_BYTES_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(input: &[u8]) -> Result<(Vec<String>, usize), ProtocolError> {
        let mut words = Vec::new();
        match parse(input, &mut words)? {
            Parsed::Command { bytes } => {
                let text = |word: &Cow<'_, [u8]>| String::from_utf8_lossy(word).into_owned();
                Ok((words.iter().map(text).collect(), bytes))
            }
            Parsed::Partial => Ok((Vec::new(), 0)),
        }
    }

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_array_of_bulk_strings_is_a_command() {
        let input = b"*2\r\n$4\r\nECHO\r\n$5\r\na\r\nbc\r\n*1";
        assert_eq!(one(input), Ok((words(&["ECHO", "a\r\nbc"]), input.len() - 2)));
    }

    #[test]
    fn every_beginning_of_a_command_is_partial() {
        for whole in [&b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n"[..], b"ECHO \"h i\"\r\n"] {
            for end in 0..whole.len() {
                assert_eq!(one(&whole[..end]), Ok((Vec::new(), 0)), "{end} bytes");
            }
            assert_eq!(one(whole).map(|(_, bytes)| bytes), Ok(whole.len()));
        }
    }

    #[test]
    fn a_line_of_words_is_a_command() {
        assert_eq!(one(b"PING\r\n"), Ok((words(&["PING"]), 6)));
        assert_eq!(one(b"  ECHO   hi \nrest"), Ok((words(&["ECHO", "hi"]), 13)));
        let quoted = b"ECHO \"a \\x41\\n\\\"\" 'b \\' c'\r\n";
        assert_eq!(one(quoted), Ok((words(&["ECHO", "a A\n\"", "b ' c"]), quoted.len())));
        assert_eq!(one(b"ECHO \"\" x\n"), Ok((words(&["ECHO", "", "x"]), 10)));
    }

    #[test]
    fn nothing_asked_is_passed_over() {
        for nothing in [&b"\r\n"[..], b"\n", b"*0\r\n", b"*-1\r\n"] {
            assert_eq!(one(nothing), Ok((Vec::new(), nothing.len())));
        }
    }

    #[test]
    fn errors_are_worded_as_redis_words_them() {
        let error = |input: &[u8]| one(input).expect_err("no command").to_string();
        assert_eq!(error(b"*1\r\nPING\r\n"), "expected '$', got 'P'");
        assert_eq!(error(b"*1\r\n\n"), "expected '$', got '\\n'");
        assert_eq!(error(b"*x\r\n"), "invalid multibulk length");
        assert_eq!(error(b"*65\r\n"), "invalid multibulk length");
        assert_eq!(error(b"*99999999999999999999\r\n"), "invalid multibulk length");
        assert_eq!(error(b"*1\r\n$-1\r\n"), "invalid bulk length");
        assert_eq!(error(b"*1\r\n$65537\r\n"), "invalid bulk length");
        assert_eq!(error(b"*1\r\n$00000000000000000000000000000000000"), "invalid bulk length");
        assert_eq!(error(&[b'a'; INLINE_BYTES_MAX]), "too big inline request");
        assert_eq!(error(b"ECHO \"a\r\n"), "unbalanced quotes in request");
        assert_eq!(error(b"ECHO \"a\"b\r\n"), "unbalanced quotes in request");
        let line = "a ".repeat(WORDS_MAX + 1) + "\n";
        assert_eq!(error(line.as_bytes()), "invalid multibulk length");
    }

    #[test]
    fn a_command_is_bounded_as_a_whole() {
        let word = format!("${WORD_BYTES_MAX}\r\n{}\r\n", "a".repeat(WORD_BYTES_MAX));
        let input = format!("*3\r\n{word}{word}{word}");
        assert_eq!(one(input.as_bytes()), Err(ProtocolError::CommandTooBig));
    }

    proptest! {
        #[test]
        fn any_words_come_out_as_they_went_in(
            list in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..10),
        ) {
            let mut input = format!("*{}\r\n", list.len()).into_bytes();
            for word in &list {
                input.extend(format!("${}\r\n", word.len()).bytes());
                input.extend(word);
                input.extend(b"\r\n");
            }
            let mut words = Vec::new();
            prop_assert_eq!(parse(&input, &mut words), Ok(Parsed::Command { bytes: input.len() }));
            let words: Vec<Vec<u8>> = words.into_iter().map(Cow::into_owned).collect();
            prop_assert_eq!(words, list);
        }

        #[test]
        fn no_bytes_break_it(input in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut words = Vec::new();
            if let Ok(Parsed::Command { bytes }) = parse(&input, &mut words) {
                prop_assert!(bytes <= input.len());
            }
        }
    }
}
