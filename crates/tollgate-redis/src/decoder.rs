//! The replies of a server as they come in pieces (RESP version 2), and requests as they go out.
//!
//! A reply takes no more memory than was allowed for: longer strings are cut, and more elements
//! than were asked for are an error. It knows no command and no connection.

/// Makes replies of bytes.
#[derive(Debug)]
pub(crate) struct Decoder {
    buffer: Vec<u8>,
    /// How far the buffer was read.
    start: usize,
    /// Bytes of a long string that are still to come and are not kept.
    skipped: u64,
    /// Arrays that are not complete yet, with the number of elements that they still want.
    open: Vec<(Vec<Reply>, usize)>,
    /// A long string that was cut.
    cut: Option<Vec<u8>>,
    bounds: Bounds,
}

/// What a server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A word such as `OK`.
    Status(String),
    /// Why it did not do it.
    Error(String),
    Integer(i64),
    /// A string; at most as much of it as was allowed for.
    Bytes(Vec<u8>),
    Nothing,
    Array(Vec<Reply>),
}

/// How much may come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Elements of arrays that are still allowed.
    pub(crate) elements: usize,
    /// Bytes that are kept of a string.
    pub(crate) string_bytes: usize,
}

/// The server does not speak this protocol, or says more than it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nonsense;

impl Decoder {
    pub(crate) fn new() -> Self {
        let bounds = Bounds { elements: 0, string_bytes: 0 };
        Self { buffer: Vec::new(), start: 0, skipped: 0, open: Vec::new(), cut: None, bounds }
    }

    /// What comes now answers something else.
    pub(crate) fn expect(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// Where the next bytes go.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Whether all that came was taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.buffer.len() && self.open.is_empty() && self.cut.is_none()
    }

    /// The next reply, if all of it has come.
    pub(crate) fn next(&mut self) -> Result<Option<Reply>, Nonsense> {
        while let Some(reply) = self.next_part()? {
            if let Some(reply) = self.close(reply) {
                return Ok(Some(reply));
            }
        }
        Ok(None)
    }

    /// Puts a reply into the array it belongs to; returns what is complete by it.
    fn close(&mut self, mut reply: Reply) -> Option<Reply> {
        while let Some((elements, wanted)) = self.open.last_mut() {
            elements.push(reply);
            *wanted -= 1;
            if *wanted > 0 {
                return None;
            }
            let (elements, _) = self.open.pop()?;
            reply = Reply::Array(elements);
        }
        Some(reply)
    }

    /// The next reply that is no array, or is an empty one.
    fn next_part(&mut self) -> Result<Option<Reply>, Nonsense> {
        loop {
            if self.cut.is_some() {
                let here = self.buffer.len() - self.start;
                let skipped = self.skipped.min(here as u64);
                self.skipped -= skipped;
                self.start += usize::try_from(skipped).map_err(|_| Nonsense)?;
                if self.skipped > 0 {
                    return Ok(None);
                }
                return Ok(self.cut.take().map(Reply::Bytes));
            }
            let rest = &self.buffer[self.start..];
            let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else {
                return if rest.len() > LINE_BYTES_MAX { Err(Nonsense) } else { Ok(None) };
            };
            let (kind, line) = rest[..end].split_first().ok_or(Nonsense)?;
            let text = || String::from_utf8_lossy(line).into_owned();
            let number = || -> Result<i64, Nonsense> {
                std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()).ok_or(Nonsense)
            };
            let after = end + 2;
            let reply = match kind {
                b'+' => Reply::Status(text()),
                b'-' => Reply::Error(text()),
                b':' => Reply::Integer(number()?),
                b'$' => match u64::try_from(number()?) {
                    Err(_) => Reply::Nothing,
                    Ok(length) if length > self.bounds.string_bytes as u64 => {
                        let kept = self.bounds.string_bytes;
                        if rest.len() < after + kept {
                            return Ok(None);
                        }
                        self.cut = Some(rest[after..after + kept].to_vec());
                        self.skipped = length - kept as u64 + 2;
                        self.start += after + kept;
                        continue;
                    }
                    Ok(length) => {
                        let length = usize::try_from(length).map_err(|_| Nonsense)?;
                        let Some(bytes) = rest.get(after..after + length + 2) else {
                            return Ok(None);
                        };
                        let string = bytes[..length].to_vec();
                        self.start += after + length + 2;
                        return Ok(Some(Reply::Bytes(string)));
                    }
                },
                b'*' => match usize::try_from(number()?) {
                    Err(_) => Reply::Nothing,
                    Ok(0) => Reply::Array(Vec::new()),
                    Ok(wanted) => {
                        let left = self.bounds.elements.checked_sub(wanted).ok_or(Nonsense)?;
                        self.bounds.elements = left;
                        self.open.push((Vec::with_capacity(wanted), wanted));
                        self.start += after;
                        continue;
                    }
                },
                _ => return Err(Nonsense),
            };
            self.start += after;
            return Ok(Some(reply));
        }
    }
}

/// Writes a command behind others.
pub(crate) fn put_command(request: &mut Vec<u8>, words: &[&[u8]]) {
    put_length(request, b'*', words.len());
    for word in words {
        put_length(request, b'$', word.len());
        request.extend_from_slice(word);
        request.extend_from_slice(b"\r\n");
    }
}

fn put_length(request: &mut Vec<u8>, kind: u8, length: usize) {
    request.push(kind);
    request.extend_from_slice(length.to_string().as_bytes());
    request.extend_from_slice(b"\r\n");
}

/// No word and no error of a server is longer.
const LINE_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { elements: 6, string_bytes: 4 };

    /// All replies in these bytes, which come in pieces of a size.
    fn decode(bytes: &[u8], piece: usize, bounds: Bounds) -> Result<Vec<Reply>, Nonsense> {
        let mut decoder = Decoder::new();
        decoder.expect(bounds);
        let mut replies = Vec::new();
        for piece in bytes.chunks(piece) {
            decoder.put(piece);
            while let Some(reply) = decoder.next()? {
                replies.push(reply);
            }
        }
        Ok(replies)
    }

    #[test]
    fn replies_are_the_same_in_whatever_pieces_they_come() {
        let bytes = b"+OK\r\n-READONLY no\r\n:-7\r\n$-1\r\n$0\r\n\r\n$4\r\na\r\nb\r\n\
            *3\r\n$1\r\n1\r\n$-1\r\n*2\r\n:1\r\n*0\r\n*-1\r\n:3\r\n";
        let bytes_of = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
        let wanted = vec![
            Reply::Status("OK".to_owned()),
            Reply::Error("READONLY no".to_owned()),
            Reply::Integer(-7),
            Reply::Nothing,
            bytes_of(""),
            bytes_of("a\r\nb"),
            Reply::Array(vec![
                bytes_of("1"),
                Reply::Nothing,
                Reply::Array(vec![Reply::Integer(1), Reply::Array(Vec::new())]),
            ]),
            Reply::Nothing,
            Reply::Integer(3),
        ];
        for piece in 1..=bytes.len() {
            assert_eq!(decode(bytes, piece, BOUNDS), Ok(wanted.clone()), "pieces of {piece}");
        }
    }

    #[test]
    fn a_string_that_is_too_long_is_cut_and_what_follows_is_not() {
        let bytes = b"*2\r\n$9\r\n123456789\r\n$4\r\nabcd\r\n:5\r\n";
        let both = vec![Reply::Bytes(b"1234".to_vec()), Reply::Bytes(b"abcd".to_vec())];
        for piece in 1..=bytes.len() {
            let wanted = vec![Reply::Array(both.clone()), Reply::Integer(5)];
            assert_eq!(decode(bytes, piece, BOUNDS), Ok(wanted), "pieces of {piece}");
        }
    }

    #[test]
    fn more_than_was_asked_for_is_nonsense_and_allocates_nothing() {
        for bytes in [
            &b"*7\r\n"[..],
            b"*9223372036854775807\r\n",
            b"*4\r\n*4\r\n",
            b":x\r\n",
            b"\r\n",
            b"HTTP/1.1 400 Bad Request\r\n",
            b"$99999999999999999999\r\n",
            &[b'+'; LINE_BYTES_MAX + 2],
        ] {
            assert_eq!(decode(bytes, bytes.len(), BOUNDS), Err(Nonsense));
        }
    }

    #[test]
    fn a_command_is_an_array_of_its_words() {
        let mut request = Vec::new();
        put_command(&mut request, &[b"INCRBY", b"a b", b"-3"]);
        assert_eq!(request, b"*3\r\n$6\r\nINCRBY\r\n$3\r\na b\r\n$2\r\n-3\r\n");
    }
}
