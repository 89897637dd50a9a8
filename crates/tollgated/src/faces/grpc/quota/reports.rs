//! A `RateLimitQuotaUsageReports` as it arrives: what was used, borrowed from the bytes.
//!
//! Read whole before any of it counts. Names and values are held to what descriptors are, and none
//! may be empty. An empty list says that a client has no buckets left, as Envoy does. No time is a
//! time: Envoy's first report of a bucket has one of zero.

use std::time::Duration;

use tollgate::{Descriptor, Entry};

use crate::faces::grpc::call::Fault;
use crate::faces::grpc::wire::{Fields, Malformed};

/// What was used.
#[derive(Debug, Default)]
pub(super) struct Reports<'a> {
    pub(super) domain: &'a str,
    usages: Vec<ReadUsage>,
    /// The entries of all usages, one after another, those of each sorted by their names.
    entries: Vec<(&'a str, &'a str)>,
}

/// What was used of one bucket.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadUsage {
    /// How many entries its name has.
    entries: usize,
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) elapsed: Duration,
}

impl<'a> Reports<'a> {
    /// Reads a message; what it has besides is passed over.
    ///
    /// # Errors
    /// When it is none, or a usage is not what it should be: the first such is named.
    pub(super) fn read(message: &'a [u8]) -> Result<Self, Fault> {
        let malformed = |_| Fault::invalid("no RateLimitQuotaUsageReports");
        let mut reports = Self::default();
        // Names the first usage that is wrong, once all of the message is known to be one.
        let mut wrong = None;
        for field in Fields::of(message) {
            match field.map_err(malformed)? {
                (1, value) => reports.domain = value.text().map_err(malformed)?,
                (2, value) => {
                    let index = reports.usages.len();
                    let usage = value.bytes().and_then(|usage| reports.read_usage(usage));
                    match usage.map_err(malformed)? {
                        Ok(usage) => reports.usages.push(usage),
                        Err(why) if wrong.is_none() => {
                            wrong = Some(format!("bucket_quota_usages[{index}].{why}"));
                        }
                        Err(_) => {}
                    }
                }
                _ => {}
            }
        }
        wrong.map_or(Ok(reports), |why| Err(Fault::invalid(why)))
    }

    /// What was used, each bucket by its entries.
    pub(super) fn usages(&self) -> impl Iterator<Item = (&[(&'a str, &'a str)], ReadUsage)> {
        let mut rest = &self.entries[..];
        self.usages.iter().map(move |usage| {
            let entries;
            (entries, rest) = rest.split_at(usage.entries);
            (entries, *usage)
        })
    }

    fn read_usage(&mut self, message: &'a [u8]) -> Result<Result<ReadUsage, String>, Malformed> {
        let start = self.entries.len();
        let mut usage = ReadUsage::default();
        let (mut id, mut time) = (false, None);
        for field in Fields::of(message) {
            match field? {
                (1, value) => {
                    id = true;
                    self.read_id(value.bytes()?, start)?;
                }
                (2, value) => read_duration(time.get_or_insert_default(), value.bytes()?)?,
                (3, value) => usage.allowed = value.number()?,
                (4, value) => usage.denied = value.number()?,
                _ => {}
            }
        }
        let entries = &mut self.entries[start..];
        // Each name is there once.
        entries.sort_unstable_by_key(|(name, _)| *name);
        usage.entries = entries.len();
        let checked = match (id, time) {
            (false, _) => Err("bucket_id: is missing".to_owned()),
            (true, None) => Err("time_elapsed: is missing".to_owned()),
            (true, Some(time)) => check_id(entries)
                .and_then(|()| elapsed(time))
                .map(|elapsed| usage.elapsed = elapsed),
        };
        if checked.is_err() {
            self.entries.truncate(start);
        }
        Ok(checked.map(|()| usage))
    }

    /// Adds the entries of an id to those from `start`; of one name the last value counts.
    fn read_id(&mut self, message: &'a [u8], start: usize) -> Result<(), Malformed> {
        for field in Fields::of(message) {
            let (1, entry) = field? else { continue };
            let (mut name, mut text) = ("", "");
            for field in Fields::of(entry.bytes()?) {
                match field? {
                    (1, value) => name = value.text()?,
                    (2, value) => text = value.text()?,
                    _ => {}
                }
            }
            let own = &mut self.entries[start..];
            let count = own.len();
            if let Some((_, value)) = own.iter_mut().find(|(known, _)| *known == name) {
                *value = text;
            } else if count <= ENTRIES_MAX {
                self.entries.push((name, text)); // One too many is enough to know.
            }
        }
        Ok(())
    }
}

/// Seconds and nanoseconds, as they are written.
type Time = (i64, i32);

fn read_duration((seconds, nanos): &mut Time, message: &[u8]) -> Result<(), Malformed> {
    for field in Fields::of(message) {
        match field? {
            // Numbers of these types are sent as what they are in two's complement.
            (1, value) => *seconds = value.number()? as i64,
            (2, value) => *nanos = value.number()? as i32,
            _ => {}
        }
    }
    Ok(())
}

fn check_id(entries: &[(&str, &str)]) -> Result<(), String> {
    if entries.is_empty() {
        return Err("bucket_id: must not be empty".into());
    }
    let mut checked = [Entry::new("", ""); ENTRIES_MAX + 1];
    for (checked, (name, value)) in checked.iter_mut().zip(entries) {
        *checked = Entry::new(name, value);
    }
    if let Err(error) = Descriptor::new(&checked[..entries.len()]) {
        return Err(format!("bucket_id: {error}"));
    }
    match entries.iter().position(|(_, value)| value.is_empty()) {
        Some(index) => Err(format!("bucket_id: entry {index} has no value")),
        None => Ok(()),
    }
}

fn elapsed((seconds, nanos): Time) -> Result<Duration, String> {
    match (u64::try_from(seconds), u32::try_from(nanos)) {
        (Ok(seconds @ 0..=SECONDS_MAX), Ok(nanos @ 0..=NANOS_MAX)) => {
            Ok(Duration::new(seconds, nanos))
        }
        _ => Err("time_elapsed: must be from 0 s to 10,000 years".into()),
    }
}

/// Entries of one name; more are refused behind this.
const ENTRIES_MAX: usize = 16;
/// The longest duration of protobuf: ten thousand years.
const SECONDS_MAX: u64 = 315_576_000_000;
const NANOS_MAX: u32 = 999_999_999;
