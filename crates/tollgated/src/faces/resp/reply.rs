//! Replies in RESP2 or RESP3, written straight into the bytes to send.

/// The version of the protocol that a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Resp2,
    Resp3,
}

/// Writes replies one behind the other.
pub(crate) struct Replies<'a> {
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) protocol: Protocol,
}

impl Replies<'_> {
    /// `+text`; the text is ours.
    pub(crate) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// `-text`; line ends in it become blanks, since parts of it may be the client's.
    pub(crate) fn error(&mut self, text: &str) {
        self.out.push(b'-');
        let safe = |byte| if byte == b'\r' || byte == b'\n' { b' ' } else { byte };
        self.out.extend(text.bytes().map(safe));
        self.out.extend_from_slice(b"\r\n");
    }

    pub(crate) fn integer(&mut self, value: i64) {
        self.line(b':', itoa::Buffer::new().format(value).as_bytes());
    }

    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        self.line(b'$', itoa::Buffer::new().format(bytes.len()).as_bytes());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// No value.
    pub(crate) fn null(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// The head of an array; `count` replies follow.
    pub(crate) fn array(&mut self, count: usize) {
        self.line(b'*', itoa::Buffer::new().format(count).as_bytes());
    }

    /// The head of a map; twice `pairs` replies follow. RESP2 has none, and gets an array.
    pub(crate) fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(2 * pairs),
            Protocol::Resp3 => self.line(b'%', itoa::Buffer::new().format(pairs).as_bytes()),
        }
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl FnOnce(&mut Replies<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut Replies { out: &mut out, protocol });
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_client_s_line_ends_do_not_end_an_error() {
        let text = written(Protocol::Resp2, |replies| replies.error("ERR a\r\n+OK"));
        assert_eq!(text, "-ERR a  +OK\r\n");
    }

    #[test]
    fn maps_and_nulls_are_what_the_protocol_has_for_them() {
        let both = |replies: &mut Replies<'_>| {
            replies.map(1);
            replies.null();
            replies.integer(-1);
        };
        assert_eq!(written(Protocol::Resp2, both), "*2\r\n$-1\r\n:-1\r\n");
        assert_eq!(written(Protocol::Resp3, both), "%1\r\n_\r\n:-1\r\n");
    }
}
