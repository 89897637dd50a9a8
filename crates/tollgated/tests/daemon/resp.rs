//! The Redis protocol as a client speaks it.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};

use crate::support::Stream;

/// One connection.
pub(crate) struct Resp(BufReader<Box<dyn Stream>>);

/// One reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Reply>),
    /// Keys and values in turn.
    Map(Vec<Reply>),
}

impl Resp {
    pub(crate) fn new(stream: impl Stream + 'static) -> Self {
        Self(BufReader::new(Box::new(stream)))
    }

    /// Sends a line of words as one command, and reads the reply as it is shown.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.ask_reply(line).to_string()
    }

    /// The same, and the reply as it is.
    pub(crate) fn ask_reply(&mut self, line: &str) -> Reply {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.ask_words(&words)
    }

    /// Sends a command of any bytes.
    pub(crate) fn ask_words(&mut self, words: &[&[u8]]) -> Reply {
        self.send(&command(words));
        self.reply()
    }

    /// Throttles a key by 10 a day.
    pub(crate) fn throttle(&mut self, key: &[u8]) -> Reply {
        self.ask_words(&[b"CL.THROTTLE", key, b"9", b"10", b"86400"])
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).expect("the connection is open");
    }

    /// Sends as many bytes as are taken: the other side may close first.
    pub(crate) fn send_some(&mut self, bytes: &[u8]) {
        let _ = self.0.get_mut().write_all(bytes);
    }

    /// Reads the next reply.
    pub(crate) fn reply(&mut self) -> Reply {
        self.try_reply().expect("a reply in time").expect("a reply before the end")
    }

    /// Reads the next reply; nothing when the connection was closed before its first byte.
    pub(crate) fn try_reply(&mut self) -> io::Result<Option<Reply>> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(0) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            read => read?,
        };
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, format!("no reply: {line:?}"));
        let text = line.strip_suffix("\r\n").and_then(|line| line.get(1..)).ok_or_else(wrong)?;
        let number = || text.parse::<i64>().map_err(|_| wrong());
        Ok(Some(match line.as_bytes()[0] {
            b'+' => Reply::Simple(text.into()),
            b'-' => Reply::Error(text.into()),
            b':' => Reply::Integer(number()?),
            b'_' => Reply::Null,
            b'$' if number()? < 0 => Reply::Null,
            b'$' => {
                let mut bytes = vec![0; number()? as usize + 2];
                self.0.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Reply::Bulk(bytes)
            }
            b'*' => Reply::Array(self.replies(number()?)?),
            b'%' => Reply::Map(self.replies(2 * number()?)?),
            _ => return Err(wrong()),
        }))
    }

    /// Reads to the end, which may be a reset.
    pub(crate) fn rest(mut self) -> Vec<u8> {
        crate::support::read_to_end(&mut self.0)
    }

    fn replies(&mut self, count: i64) -> io::Result<Vec<Reply>> {
        let one = |_| self.try_reply()?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into());
        (0..count).map(one).collect()
    }
}

impl Reply {
    /// The five numbers of a throttle.
    pub(crate) fn numbers(&self) -> [i64; 5] {
        let Self::Array(list) = self else { panic!("no list: {self}") };
        let number = |reply: &Reply| match reply {
            Reply::Integer(number) => *number,
            other => panic!("no number: {other}"),
        };
        let numbers: Vec<i64> = list.iter().map(number).collect();
        numbers.try_into().expect("five numbers")
    }

    /// Of a throttle: whether it passed, and what is left.
    pub(crate) fn left(&self) -> (bool, i64) {
        let [limited, _, remaining, ..] = self.numbers();
        (limited == 0, remaining)
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list =
            |list: &[Reply]| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        match self {
            Self::Simple(text) => write!(f, "+{text}"),
            Self::Error(text) => write!(f, "-{text}"),
            Self::Integer(number) => number.fmt(f),
            Self::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Null => f.write_str("null"),
            Self::Array(items) => write!(f, "[{}]", list(items)),
            Self::Map(items) => write!(f, "{{{}}}", list(items)),
        }
    }
}

/// A command as bytes.
pub(crate) fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
