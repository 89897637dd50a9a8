//! Custom keys: keys of `[global_rate_limiter]` with a threshold of their own, as a text
//! `key=limit,key=limit`, a table, or a file of such text, which is kept when it can't be read.
//!
//! What is wrong with an element of a text is told, and the element is left out: the limiter that
//! this dialect comes from does so. In a table it is an error, as everywhere in a policy.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::super::draft::{AllowanceDraft, OverrideDraft, Places};
use super::super::finding::{Findings, Place, short};
use super::super::watch::Signature;
use super::super::{read, source};

/// A key with a threshold of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CustomKey {
    key: String,
    threshold: u64,
    place: Place,
}

impl CustomKey {
    pub(super) fn draft(&self, window: Duration) -> OverrideDraft {
        OverrideDraft {
            key: vec![("key".into(), self.key.clone())],
            allowance: allowance(self.threshold, window),
            places: Places { whole: self.place, fields: Vec::new() },
        }
    }
}

/// So much in each window.
pub(super) fn allowance(threshold: u64, window: Duration) -> AllowanceDraft {
    let rate = format!("{threshold}/{}s", window.as_secs());
    AllowanceDraft { rate, ..AllowanceDraft::default() }
}

/// What a file of custom keys said when it could last be read.
#[derive(Debug, Default)]
pub(crate) struct KeptKeys(Option<KeptFile>);

#[derive(Debug)]
struct KeptFile {
    path: PathBuf,
    /// As it was before it was read.
    seen: Signature,
    text: Option<String>,
}

impl KeptKeys {
    /// No file was named.
    pub(crate) const NONE: Self = Self(None);

    /// Reads the file of this name, or keeps what one said before; returns why it is kept.
    pub(in super::super) fn read(&self, path: PathBuf) -> (Self, Option<String>) {
        // First, so that a change meanwhile is seen later.
        let seen = Signature::of(&path);
        // Reading a pipe would wait for its other end.
        let read = match fs::metadata(&path) {
            Ok(meta) if !meta.is_file() => Err("is no file".into()),
            _ => source::read(&path).map_err(|finding| finding.message),
        };
        let (text, why) = match read {
            Ok(text) => (Some(text), None),
            Err(why) => (self.text().map(str::to_owned), Some(why)),
        };
        let why = why.map(|why| {
            let then = if text.is_some() { "those before stay in force" } else { "there are none" };
            format!("custom keys: {} {why}; {then}", path.display())
        });
        (Self(Some(KeptFile { path, seen, text })), why)
    }

    pub(super) fn text(&self) -> Option<&str> {
        self.0.as_ref()?.text.as_deref()
    }

    /// The file, and how it was when it was read.
    pub(in super::super) fn file(&self) -> Option<(&Path, &Signature)> {
        self.0.as_ref().map(|file| (&*file.path, &file.seen))
    }
}

/// The keys of a text; what is wrong with it is told at `place`.
pub(super) fn of_text(
    text: &str,
    window: Duration,
    place: Place,
    findings: &mut Findings<'_>,
) -> Vec<CustomKey> {
    let mut keys: Vec<CustomKey> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    let elements = text.trim_start_matches('\u{feff}').split([',', '\n']).map(str::trim);
    for element in elements.filter(|element| !element.is_empty()) {
        let (key, threshold) = match parse(element, window) {
            Ok(sound) => sound,
            Err(why) => {
                let shown = short(element);
                findings.warning(place, format!("custom key {shown:?} is left out: {why}"));
                continue;
            }
        };
        let one = CustomKey { key: key.into(), threshold, place };
        if let Some(known) = places.get(key) {
            let shown = short(key);
            let before = keys[*known].threshold;
            let why = format!("custom key {shown:?} is given twice: {threshold}, not {before}");
            findings.warning(place, why);
            keys[*known] = one;
        } else {
            places.insert(key, keys.len());
            keys.push(one);
        }
    }
    keys
}

fn parse(element: &str, window: Duration) -> Result<(&str, u64), String> {
    // A limit has no such sign, and a key may.
    let (key, limit) = element.rsplit_once('=').ok_or("it has no `=`")?;
    let (key, limit) = (key.trim(), limit.trim());
    if key.is_empty() {
        return Err("its key is empty".into());
    }
    let threshold: u64 =
        limit.parse().map_err(|_| format!("{:?} is no whole number", short(limit)))?;
    check(threshold, window).map(|()| (key, threshold))
}

fn check(threshold: u64, window: Duration) -> Result<(), String> {
    if threshold == 0 {
        return Err("a limit must be at least 1".into());
    }
    match allowance(threshold, window).alone("tally") {
        Some(_) => Ok(()),
        None => Err("a limit must be at most 2^50, and 10^12 a second".into()),
    }
}

/// The keys of a table; what is wrong is an error at its place.
pub(super) fn of_table(
    value: Spanned<DeValue<'_>>,
    window: Duration,
    place: Place,
    findings: &mut Findings<'_>,
) -> Vec<CustomKey> {
    let table = match value.into_inner() {
        DeValue::Table(table) => table,
        other => {
            let form = "must be a text such as \"acme=5000,apex=200\", or a table";
            findings.error(place, format!("custom_keys {form}, not {}", other.type_str()));
            return Vec::new();
        }
    };
    let mut keys = Vec::new();
    for (key, value) in table {
        let place = Place { offset: key.span().start, ..place };
        let Some(threshold) = read::<u64>(value, place.file, findings) else { continue };
        let key = key.into_inner().into_owned();
        let sound = if key.is_empty() { Err("is empty".into()) } else { check(threshold, window) };
        match sound {
            Ok(()) => keys.push(CustomKey { key, threshold, place }),
            Err(why) => findings.error(place, format!("custom key {:?}: {why}", short(&key))),
        }
    }
    keys
}
