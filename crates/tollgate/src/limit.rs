//! A limit: one immutable rule, checked in full when it is parsed and never again.
//!
//! It knows what was written, not what was used: cells, keys and time are elsewhere. The field
//! names are those of the policy file, and so are the names that errors give.

use std::collections::HashSet;
use std::fmt;
use std::iter;
use std::sync::Arc;

use crate::allowance::{Allowance, Fault};
use crate::gcra::Oversize;
use crate::guarantee::{Counts, Guarantee, ShareMode, Sharing, check_divided};
use crate::path::{Step, StepKind, StepSpec};
use crate::request::{Descriptor, Entry};
use crate::spec::{LimitSpec, OverrideSpec};
use crate::tally::{Meets, OnStale, Window};

/// A limit that was found sound.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    name: Box<str>,
    domain: Box<str>,
    matches: Vec<MatchEntry>,
    key: Vec<Box<str>>,
    path: Vec<Step>,
    group: Box<str>,
    replaces: Vec<Box<str>>,
    quota: bool,
    /// The end of a path that has no limit.
    blank: bool,
    allowance: Allowance,
    guarantee: Guarantee,
    sharing: Option<Sharing>,
    counts: Option<Counts>,
    mode: ShareMode,
    oversize: Oversize,
    shadow: bool,
    /// Shared, since they may be many and limits are handed out.
    overrides: Arc<[Override]>,
}

/// One entry that a descriptor must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MatchEntry {
    pub(crate) name: Box<str>,
    /// `None` is any value.
    pub(crate) value: Option<Box<str>>,
}

/// A key with an allowance of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    pub(crate) parts: Vec<Box<str>>,
    pub(crate) allowance: Allowance,
    pub(crate) sharing: Option<Sharing>,
}

impl Override {
    /// The values of the key, one for each part of the limit's key and in its order.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = &str> {
        self.parts.iter().map(|part| &**part)
    }

    /// What the key may use.
    #[must_use]
    pub fn allowance(&self) -> Allowance {
        self.allowance
    }

    /// As [`Limit::local_cap`], for this key.
    #[must_use]
    pub fn local_cap(&self) -> Option<u64> {
        self.sharing.map(|sharing| sharing.local_cap)
    }

    /// As [`Limit::bootstrap`], for this key.
    #[must_use]
    pub fn bootstrap(&self) -> Option<u64> {
        self.sharing.map(|sharing| sharing.bootstrap)
    }
}

impl Limit {
    /// Checks a limit as written.
    ///
    /// # Errors
    /// [`LimitError`] names the first field that is wrong, its value and the reason.
    pub fn parse(spec: &LimitSpec<'_>) -> Result<Self, LimitError> {
        let refuse = |field, value: &dyn fmt::Display, reason: &dyn fmt::Display| LimitError {
            limit: spec.name.into(),
            field,
            value: value.to_string(),
            reason: reason.to_string(),
        };
        check_name(spec.name).map_err(|reason| refuse("name", &spec.name, &reason))?;
        check_text(spec.domain).map_err(|reason| refuse("domain", &spec.domain, &reason))?;
        let matches = parse_matches(spec.matches)
            .map_err(|(name, reason)| refuse("match", &name, &reason))?;
        let key = parse_key(spec.key).map_err(|(name, reason)| refuse("key", &name, &reason))?;
        let path =
            Step::parse_all(spec.path).map_err(|(step, reason)| refuse("path", &step, &reason))?;
        check_path(spec).map_err(|(field, value, reason)| refuse(field, &value, &reason))?;
        let blank = spec.rate == "none" && !path.is_empty();
        let at_fault = |fault: Fault| refuse(fault.field, &fault.value, &fault.reason);
        let guarantee = Guarantee::parse(spec).map_err(at_fault)?;
        let rate = if blank { "unlimited" } else { spec.rate };
        let allowance = Allowance::parse(rate, spec.burst, spec.burst_ratio).map_err(at_fault)?;
        let sharing = Sharing::parse(guarantee, allowance, spec.local_cap, spec.bootstrap)
            .map_err(at_fault)?;
        let overrides = parse_overrides(spec.overrides, &key, guarantee)
            .map_err(|fault| refuse(fault.override_field(), &fault.value, &fault.reason))?;
        check_divided(guarantee, allowance).map_err(at_fault)?;
        let mode = ShareMode::parse(guarantee, spec.mode).map_err(at_fault)?;
        let counts = Counts::parse(guarantee, spec).map_err(at_fault)?;
        if let Some(counts) = counts {
            counts.check(allowance, allowance).map_err(at_fault)?;
            for one in &overrides {
                counts.check(one.allowance, allowance).map_err(|fault| {
                    let value = format!("{} (key {:?})", fault.value, one.parts);
                    refuse(fault.override_field(), &value, &fault.reason)
                })?;
            }
        }
        // The values of the path's steps are its key.
        let of_path =
            path.iter().flat_map(|step| iter::repeat_n(step.name.clone(), step.key_parts()));
        Ok(Self {
            name: spec.name.into(),
            domain: spec.domain.into(),
            matches,
            key: if path.is_empty() { key } else { of_path.collect() },
            path,
            group: spec.group.into(),
            replaces: spec.replaces.iter().map(|name| (*name).into()).collect(),
            quota: spec.quota,
            blank,
            allowance,
            guarantee,
            sharing,
            counts,
            mode,
            oversize: spec.oversize,
            shadow: spec.shadow,
            overrides: overrides.into(),
        })
    }

    /// The limit's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The domain whose requests it sees.
    #[must_use]
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// The entries that a descriptor must have: (name, value), no value for any.
    pub fn match_entries(&self) -> impl ExactSizeIterator<Item = (&str, Option<&str>)> {
        self.matches.iter().map(|entry| (&*entry.name, entry.value.as_deref()))
    }

    /// The keys with an allowance of their own, in the order in which they were written.
    #[must_use]
    pub fn overrides(&self) -> &[Override] {
        &self.overrides
    }

    /// The steps of its path as they were written; none without a path.
    pub fn path(&self) -> impl ExactSizeIterator<Item = StepSpec<'_>> {
        self.path.iter().map(Step::spec)
    }

    /// The steps of its path as people read them, `name` or `name=value`.
    pub fn path_steps(&self) -> impl ExactSizeIterator<Item = String> {
        self.path.iter().map(ToString::to_string)
    }

    /// The path as people read it, such as `tenant=acme / route`; empty without one.
    #[must_use]
    pub fn path_text(&self) -> String {
        self.path_steps().collect::<Vec<_>>().join(" / ")
    }

    /// Whether all that one of its steps with `*` matches is one key.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.path.iter().any(|step| step.kind == StepKind::Shared)
    }

    /// What limits that replace it call it; empty if it can't be replaced.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The groups whose limits do not apply where this one does.
    pub fn replaces(&self) -> impl ExactSizeIterator<Item = &str> {
        self.replaces.iter().map(|name| &**name)
    }

    /// Whether a request needs only one of its kind.
    #[must_use]
    pub fn is_quota(&self) -> bool {
        self.quota
    }

    /// Whether it stands for the end of a path without a limit (rate `none`).
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.blank
    }

    /// The names of the entries whose values split it into keys. With a path a name may come
    /// twice.
    pub fn key(&self) -> impl ExactSizeIterator<Item = &str> {
        self.key.iter().map(|name| &**name)
    }

    /// The parts of the key that a descriptor has under this limit: (name, value), no value where
    /// the descriptor has no such entry.
    pub fn key_of<'a>(
        &'a self,
        descriptor: &Descriptor<'a>,
    ) -> impl Iterator<Item = (&'a str, Option<&'a [u8]>)> {
        let entries = descriptor.entries();
        let asked = *descriptor;
        let of_set = if self.path.is_empty() { &self.key[..] } else { &[] };
        let of_path = self.path.iter().enumerate().flat_map(move |(index, step)| {
            let entry = entries.get(index);
            let value = (&*step.name, entry.map(Entry::value));
            let name = (&*step.name, entry.map(|entry| entry.name().as_bytes()));
            [name, value].into_iter().skip(2 - step.key_parts())
        });
        of_set.iter().map(move |name| (&**name, asked.value(name))).chain(of_path)
    }

    /// What a key without an override may use.
    #[must_use]
    pub fn allowance(&self) -> Allowance {
        self.allowance
    }

    /// What it promises, and to whom.
    #[must_use]
    pub fn guarantee(&self) -> Guarantee {
        self.guarantee
    }

    /// b, the most units that one worker of a fleet may hold of a key without an override, unless a
    /// single cost is above it; 1 to the burst, or 0 if that is 0. None if the limit is not
    /// `eventual`, or unlimited.
    ///
    /// Unless it was given, at 5,000/s: 2 · 5,000/s · 20 ms = 200.
    #[must_use]
    pub fn local_cap(&self) -> Option<u64> {
        self.sharing.map(|sharing| sharing.local_cap)
    }

    /// Units that a worker of a fleet may spend on a key without an override before it has heard of
    /// the key's owner; 0 to the local cap. None if the limit is not `eventual`, or unlimited.
    ///
    /// With 5 on 20 workers the bound grows by up to 5 · 20 = 100 when all meet a key anew.
    #[must_use]
    pub fn bootstrap(&self) -> Option<u64> {
        self.sharing.map(|sharing| sharing.bootstrap)
    }

    /// The windows in which a key with this allowance is counted; none if the limit is not `tally`,
    /// everything passes or nothing does.
    #[must_use]
    pub fn window_of(&self, allowance: Allowance) -> Option<Window> {
        self.counts.and_then(|counts| counts.window(allowance))
    }

    /// Whether what is refused counts too; none if the limit is not `tally`.
    #[must_use]
    pub fn counts_offered(&self) -> Option<bool> {
        self.counts.map(|counts| counts.meets == Meets::IsLimited)
    }

    /// What is done when a store has not answered for long; none if the limit is not `tally`.
    #[must_use]
    pub fn on_stale(&self) -> Option<OnStale> {
        self.counts.map(|counts| counts.on_stale)
    }

    /// What decides about its keys in a fleet; none if the limit is not `share`.
    #[must_use]
    pub fn share_mode(&self) -> Option<ShareMode> {
        (self.guarantee == Guarantee::Share).then_some(self.mode)
    }

    /// What becomes of a cost above the burst.
    #[must_use]
    pub fn oversize(&self) -> Oversize {
        self.oversize
    }

    /// Whether it is evaluated and counted, but never denies.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// What makes it the limit that it is among those of its domain, when limits are replaced: its
    /// name, or its path. Each text is of one limit alone.
    ///
    /// That of a path has a line for each step, `"name""value"` with escapes as Rust has them, and
    /// begins with a line end, which no name has.
    #[must_use]
    pub fn identity(&self) -> String {
        if self.path.is_empty() {
            return self.name.to_string();
        }
        let steps = self.path.iter().map(|step| format!("\n{:?}{:?}", step.name, step.value));
        steps.collect()
    }

    pub(crate) fn sharing(&self) -> Option<Sharing> {
        self.sharing
    }

    pub(crate) fn matches(&self) -> &[MatchEntry] {
        &self.matches
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.path
    }

    pub(crate) fn key_names(&self) -> &[Box<str>] {
        &self.key
    }
}

/// Why a limit was refused. The limits that were in force stay in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitError {
    limit: Box<str>,
    field: &'static str,
    value: String,
    reason: String,
}

impl LimitError {
    /// The name of the limit, as written; `(options)` for an error in a limiter's options.
    #[must_use]
    pub fn limit(&self) -> &str {
        &self.limit
    }

    /// The field that is wrong, as the policy file spells it; `override.` goes before an
    /// override's.
    #[must_use]
    pub fn field(&self) -> &'static str {
        self.field
    }

    /// The value that was refused.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Why it was refused.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    pub(crate) fn of(limit: &Limit, field: &'static str, value: String, reason: &str) -> Self {
        Self { limit: limit.name.clone(), field, value, reason: reason.into() }
    }

    /// An error in a limiter's options.
    pub(crate) fn of_options(field: &'static str, value: String, reason: &str) -> Self {
        Self { limit: OPTIONS.into(), field, value, reason: reason.into() }
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, field, value, reason } = self;
        if **limit == *OPTIONS {
            return write!(f, "options: {field} = {value}: {reason}");
        }
        write!(f, "limit {limit:?}: {field} = {value:?}: {reason}")
    }
}

impl std::error::Error for LimitError {}

fn check_name(name: &str) -> Result<(), &'static str> {
    let known = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-_.".contains(&c);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(known) {
        return Err("must be 1 to 64 of a-z, 0-9, '-', '_' and '.'");
    }
    Ok(())
}

/// What a limit with a path cannot have, and one without.
fn check_path(spec: &LimitSpec<'_>) -> Result<(), (&'static str, String, &'static str)> {
    let LimitSpec { path, matches, key, group, replaces, quota, shadow, .. } = *spec;
    let first = |list: &[&str]| list.first().map(ToString::to_string).unwrap_or_default();
    if path.is_empty() {
        let reason = "has a meaning only with a path";
        if quota {
            return Err(("quota", "true".into(), reason));
        }
        if !group.is_empty() {
            return Err(("group", group.into(), reason));
        }
        return if replaces.is_empty() {
            Ok(())
        } else {
            Err(("replaces", first(replaces), reason))
        };
    }
    if let Some((name, _)) = matches.first() {
        return Err(("match", (*name).into(), "excludes a path"));
    }
    if !key.is_empty() {
        return Err(("key", first(key), "excludes a path, whose steps are the key"));
    }
    if !spec.overrides.is_empty() {
        let reason = "excludes a path; write a path with the value instead";
        return Err(("override", spec.overrides.len().to_string(), reason));
    }
    if let Some(name) = replaces.iter().find(|name| name.is_empty() || **name == group) {
        return Err(("replaces", (*name).into(), "must be another group"));
    }
    if quota && shadow {
        return Err(("quota", "true".into(), "excludes shadow"));
    }
    Ok(())
}

fn check_text(text: &str) -> Result<(), &'static str> {
    if text.is_empty() || text.len() > TEXT_BYTES_MAX {
        return Err("must be 1 to 256 bytes");
    }
    Ok(())
}

fn parse_matches(written: &[(&str, &str)]) -> Result<Vec<MatchEntry>, (String, &'static str)> {
    if written.len() > MATCHES_MAX {
        return Err((written.len().to_string(), "must be at most 16 entries"));
    }
    let mut matches: Vec<MatchEntry> = Vec::with_capacity(written.len());
    for &(name, value) in written {
        check_text(name).map_err(|reason| (name.into(), reason))?;
        check_text(value).map_err(|reason| (format!("{name} = {value}"), reason))?;
        if value != "*" && value.contains('*') {
            let reason = "stands for any value only when it is alone, as \"*\"";
            return Err((format!("{name} = {value}"), reason));
        }
        if matches.iter().any(|entry| &*entry.name == name) {
            return Err((name.into(), "is given twice"));
        }
        let value = (value != "*").then(|| value.into());
        matches.push(MatchEntry { name: name.into(), value });
    }
    // One order, so that two spellings of one match are one shape.
    matches.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(matches)
}

fn parse_key(written: &[&str]) -> Result<Vec<Box<str>>, (String, &'static str)> {
    if written.len() > KEY_PARTS_MAX {
        return Err((written.len().to_string(), "must be at most 8 parts"));
    }
    let mut key: Vec<Box<str>> = Vec::with_capacity(written.len());
    for &name in written {
        check_text(name).map_err(|reason| (name.into(), reason))?;
        if key.iter().any(|part| &**part == name) {
            return Err((name.into(), "is given twice"));
        }
        key.push(name.into());
    }
    Ok(key)
}

/// The overrides of a limit with this key.
fn parse_overrides(
    written: &[OverrideSpec<'_>],
    key: &[Box<str>],
    guarantee: Guarantee,
) -> Result<Vec<Override>, Fault> {
    let mut overrides: Vec<Override> = Vec::with_capacity(written.len());
    let mut known = HashSet::new();
    for one in written {
        let shown = || show_key(one.key);
        let parts = override_parts(key, one.key).ok_or_else(|| {
            let reason = format!("must give each of the limit's key parts once: {key:?}");
            Fault::new("key", shown(), reason)
        })?;
        if !known.insert(parts.clone()) {
            return Err(Fault::new("key", shown(), "is given twice"));
        }
        let of_key = |fault: Fault| {
            let value = format!("{} (key {})", fault.value, shown());
            Fault { value, ..fault }
        };
        let allowance = Allowance::parse(one.rate, one.burst, one.burst_ratio).map_err(of_key)?;
        check_divided(guarantee, allowance).map_err(of_key)?;
        let sharing =
            Sharing::parse(guarantee, allowance, one.local_cap, one.bootstrap).map_err(of_key)?;
        overrides.push(Override { parts, allowance, sharing });
    }
    Ok(overrides)
}

/// The values of an override's key in the order of the limit's key.
fn override_parts(key: &[Box<str>], written: &[(&str, &str)]) -> Option<Vec<Box<str>>> {
    if key.is_empty() || written.len() != key.len() {
        return None;
    }
    key.iter()
        .map(|part| {
            let (_, value) = written.iter().find(|(name, _)| *name == &**part)?;
            Some((*value).into())
        })
        .collect()
}

fn show_key(key: &[(&str, &str)]) -> String {
    let parts: Vec<String> = key.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    format!("{{ {} }}", parts.join(", "))
}

/// In place of a limit's name, which has no such letters.
const OPTIONS: &str = "(options)";
const NAME_BYTES_MAX: usize = 64;
const TEXT_BYTES_MAX: usize = 256;
const MATCHES_MAX: usize = 16;
/// Parts of a key at most; each costs a hash on every check.
pub(crate) const KEY_PARTS_MAX: usize = 8;
