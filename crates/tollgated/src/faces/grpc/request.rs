//! A `RateLimitRequest` as it arrives: what is asked, borrowed from the bytes.

use tollgate::Entry;

use super::wire::{Fields, Malformed};

/// What is asked.
#[derive(Debug, Default)]
pub(super) struct Asked<'a> {
    pub(super) domain: &'a str,
    pub(super) descriptors: Vec<AskedDescriptor>,
    /// The entries of all descriptors, one after another.
    pub(super) entries: Vec<Entry<'a>>,
    /// What each descriptor costs that says nothing itself.
    pub(super) hits_addend: u32,
}

/// One descriptor, without its entries.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct AskedDescriptor {
    /// How many entries it has.
    pub(super) entries: usize,
    pub(super) limit: Option<AskedLimit>,
    pub(super) hits_addend: Option<u64>,
    pub(super) is_negative_hits: bool,
}

/// A limit that a descriptor brings.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct AskedLimit {
    pub(super) requests_per_unit: u32,
    pub(super) unit: i32,
}

impl<'a> Asked<'a> {
    /// Reads a message; what it has besides is passed over.
    pub(super) fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut asked = Self::default();
        for field in Fields::of(message) {
            match field? {
                (1, value) => asked.domain = value.text()?,
                // One too many is enough to know.
                (2, value) if asked.descriptors.len() <= DESCRIPTORS_MAX => {
                    let descriptor = asked.read_descriptor(value.bytes()?)?;
                    asked.descriptors.push(descriptor);
                }
                // Wider numbers are cut, as everywhere in protobuf.
                (3, value) => asked.hits_addend = value.number()? as u32,
                _ => {}
            }
        }
        Ok(asked)
    }

    fn read_descriptor(&mut self, message: &'a [u8]) -> Result<AskedDescriptor, Malformed> {
        let mut descriptor = AskedDescriptor::default();
        for field in Fields::of(message) {
            match field? {
                (1, value) if descriptor.entries <= ENTRIES_MAX => {
                    self.entries.push(read_entry(value.bytes()?)?);
                    descriptor.entries += 1;
                }
                (2, value) => read_limit(descriptor.limit.get_or_insert_default(), value.bytes()?)?,
                (3, value) => {
                    let hits = descriptor.hits_addend.get_or_insert_default();
                    for field in Fields::of(value.bytes()?) {
                        if let (1, value) = field? {
                            *hits = value.number()?;
                        }
                    }
                }
                (4, value) => descriptor.is_negative_hits = value.number()? != 0,
                _ => {}
            }
        }
        Ok(descriptor)
    }
}

/// Descriptors of one request.
pub(super) const DESCRIPTORS_MAX: usize = 1_000;
/// Entries of one descriptor; more are refused behind this.
const ENTRIES_MAX: usize = 16;

fn read_entry(message: &[u8]) -> Result<Entry<'_>, Malformed> {
    let (mut name, mut text) = ("", "");
    for field in Fields::of(message) {
        match field? {
            (1, value) => name = value.text()?,
            (2, value) => text = value.text()?,
            _ => {}
        }
    }
    Ok(Entry::new(name, text))
}

fn read_limit(limit: &mut AskedLimit, message: &[u8]) -> Result<(), Malformed> {
    for field in Fields::of(message) {
        match field? {
            (1, value) => limit.requests_per_unit = value.number()? as u32,
            (2, value) => limit.unit = value.number()? as i32,
            _ => {}
        }
    }
    Ok(())
}
