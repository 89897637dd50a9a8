//! Protobuf's wire format, read without a copy and written without counting first.
//!
//! For the one message that each request is: the messages made from `proto` allocate every string
//! of it. Tests hold both to the same bytes.

use bytes::{BufMut, BytesMut};

/// Bytes that are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// 4 or 8 bytes, which no field that is read here has.
    Fixed,
}

/// The fields of a message in their order, each with its number.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for (index, byte) in self.rest.iter().enumerate().take(VARINT_BYTES_MAX) {
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if index == VARINT_BYTES_MAX - 1 && *byte > 1 {
                return Err(Malformed);
            }
            number |= bits << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[index + 1..];
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn field(&mut self) -> Result<(u32, Value<'a>), Malformed> {
        let key = u32::try_from(self.varint()?).map_err(|_| Malformed)?;
        if key >> 3 == 0 {
            return Err(Malformed);
        }
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => self.bytes(8).map(|_| Value::Fixed)?,
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                Value::Bytes(self.bytes(length)?)
            }
            5 => self.bytes(4).map(|_| Value::Fixed)?,
            // Groups, which these protocols never had.
            _ => return Err(Malformed),
        };
        Ok((key >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

impl<'a> Value<'a> {
    pub(super) fn number(self) -> Result<u64, Malformed> {
        if let Self::Varint(number) = self { Ok(number) } else { Err(Malformed) }
    }

    pub(super) fn bytes(self) -> Result<&'a [u8], Malformed> {
        if let Self::Bytes(bytes) = self { Ok(bytes) } else { Err(Malformed) }
    }

    pub(super) fn text(self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }
}

/// Writes a number, unless it is 0, which is not sent.
pub(super) fn number(out: &mut BytesMut, field: u8, number: u64) {
    if number != 0 {
        out.put_u8(field << 3);
        varint(out, number);
    }
}

/// Writes a text, unless it is empty, which is not sent.
pub(super) fn text(out: &mut BytesMut, field: u8, text: &str) {
    if !text.is_empty() {
        out.put_u8(field << 3 | 2);
        varint(out, text.len() as u64);
        out.put_slice(text.as_bytes());
    }
}

/// Writes a message that `write` writes the fields of.
pub(super) fn message(out: &mut BytesMut, field: u8, write: impl FnOnce(&mut BytesMut)) {
    out.put_u8(field << 3 | 2);
    // Nearly always the length is one byte.
    let start = out.len() + 1;
    out.put_u8(0);
    write(out);
    let length = out.len() - start;
    if let Ok(short @ 0..0x80) = u8::try_from(length) {
        out[start - 1] = short;
        return;
    }
    let written = out.split_off(start);
    out.truncate(start - 1);
    varint(out, length as u64);
    out.unsplit(written);
}

fn varint(out: &mut BytesMut, mut number: u64) {
    while number >= 0x80 {
        out.put_u8(number as u8 | 0x80);
        number >>= 7;
    }
    out.put_u8(number as u8);
}

const VARINT_BYTES_MAX: usize = 10;
