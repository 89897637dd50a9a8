//! The parameters of `[tally]`: what each is called, what it is when nobody says, between what it
//! may be, and by what variable of the environment it can be given.
//!
//! The schema and the reading are made of the same list. What parameters must be beside each other
//! is known in `settle`. Names and defaults are those of PostHog's global rate limiter.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::super::finding::{Findings, Place};
use super::super::read;
use super::super::time::{LONG_TIME_MAX, long_time};

/// A number or a time.
#[derive(Debug)]
pub(super) struct Parameter<T: 'static> {
    pub(super) name: &'static str,
    /// None if it depends on others.
    pub(super) default: Option<T>,
    pub(super) least: T,
    pub(super) most: T,
    /// What goes before the file.
    pub(super) variable: Option<Variable<T>>,
    pub(super) about: &'static str,
}

/// A variable's name, and what a whole number in it is.
pub(super) type Variable<T> = (&'static str, fn(u64) -> T);

/// A value, and how it was given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Said<T> {
    /// As messages call it: the parameter, or the variable.
    pub(super) name: &'static str,
    pub(super) value: T,
    /// Where it stands; where it would, if it does not.
    pub(super) place: Place,
    pub(super) is_given: bool,
}

impl<T: fmt::Debug> fmt::Display for Said<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, is_given, .. } = self;
        write!(f, "{name} = {value:?}{}", if *is_given { "" } else { " (the default)" })
    }
}

/// A table that is read parameter by parameter, so that one that is wrong hides no other.
pub(in super::super) struct Table<'t> {
    pub(super) title: &'static str,
    pub(super) place: Place,
    fields: DeTable<'t>,
    env: Env,
}

/// How a variable of the environment is looked up.
pub(crate) type Env = fn(&str) -> Option<String>;

impl<'t> Table<'t> {
    /// The table of this title; what is no table is reported, and is an empty one.
    pub(in super::super) fn new(
        title: &'static str,
        table: Spanned<DeValue<'t>>,
        file: usize,
        env: Env,
        findings: &mut Findings<'_>,
    ) -> Self {
        let place = Place { file, offset: table.span().start };
        let fields = match table.into_inner() {
            DeValue::Table(fields) => fields,
            other => {
                findings.error(place, format!("must be a table, not {}", other.type_str()));
                DeTable::new()
            }
        };
        Self { title, place, fields, env }
    }

    /// One in which nothing is written, so that only variables and defaults say anything.
    pub(in super::super) fn empty(title: &'static str, env: Env) -> Self {
        let place = Place { file: 0, offset: 0 };
        Self { title, place, fields: DeTable::new(), env }
    }

    pub(super) fn variable(&self, name: &str) -> Option<String> {
        (self.env)(name)
    }

    /// Takes out a value, and where it stands.
    pub(super) fn take(&mut self, name: &str) -> Option<(Spanned<DeValue<'t>>, Place)> {
        let value = self.fields.remove(name)?;
        let place = Place { offset: value.span().start, ..self.place };
        Some((value, place))
    }

    /// A parameter with a default.
    pub(super) fn value<T: Kind>(
        &mut self,
        of: &Parameter<T>,
        findings: &mut Findings<'_>,
    ) -> Said<T> {
        let value = of.default.unwrap_or(of.least);
        let default = Said { name: of.name, value, place: self.place, is_given: false };
        self.given(of, findings).unwrap_or(default)
    }

    /// A parameter, if it was given and is sound.
    pub(super) fn given<T: Kind>(
        &mut self,
        of: &Parameter<T>,
        findings: &mut Findings<'_>,
    ) -> Option<Said<T>> {
        let written = self.take(of.name);
        let variable = of.variable.and_then(|(name, unit)| Some((name, unit, (self.env)(name)?)));
        let said = match (variable, written) {
            (Some((name, unit, text)), _) => {
                let Ok(count) = text.trim().parse() else {
                    let message = format!("{name} = {text:?} must be a whole number");
                    findings.error(self.place, message);
                    return None;
                };
                Said { name, value: unit(count), place: self.place, is_given: true }
            }
            (None, Some((value, place))) => {
                let value = T::read(of.name, value, place, findings)?;
                Said { name: of.name, value, place, is_given: true }
            }
            (None, None) => return None,
        };
        if !(of.least..=of.most).contains(&said.value) {
            let must = match of.most == T::MOST {
                true => format!("must be at least {:?}", of.least),
                false => format!("must be {:?} to {:?}", of.least, of.most),
            };
            findings.error(said.place, format!("{said} {must}"));
            return None;
        }
        Some(said)
    }
}

/// What a parameter can be: a number or a time.
pub(super) trait Kind: Copy + PartialOrd + fmt::Debug {
    /// What stands for having no maximum.
    const MOST: Self;

    /// A value that is written; none after it was reported.
    fn read(
        name: &str,
        value: Spanned<DeValue<'_>>,
        place: Place,
        findings: &mut Findings<'_>,
    ) -> Option<Self>;

    /// What the schema says of it.
    fn schema(of: &Parameter<Self>) -> Value;
}

impl Kind for u64 {
    const MOST: Self = Self::MAX;

    fn read(
        _name: &str,
        value: Spanned<DeValue<'_>>,
        place: Place,
        findings: &mut Findings<'_>,
    ) -> Option<Self> {
        read(value, place.file, findings)
    }

    fn schema(of: &Parameter<Self>) -> Value {
        let mut schema = json!({ "type": "integer", "minimum": of.least });
        if of.most != Self::MOST {
            schema["maximum"] = json!(of.most);
        }
        if let Some(default) = of.default {
            schema["default"] = json!(default);
        }
        schema
    }
}

impl Kind for Duration {
    const MOST: Self = LONG_TIME_MAX;

    fn read(
        name: &str,
        value: Spanned<DeValue<'_>>,
        place: Place,
        findings: &mut Findings<'_>,
    ) -> Option<Self> {
        let time = match value.into_inner() {
            DeValue::String(text) => {
                long_time(&text).map_err(|why| format!("{name} = {text:?} {why}"))
            }
            other => {
                let form = "must be a text such as \"15s\"";
                Err(format!("{name} {form}, not {}", other.type_str()))
            }
        };
        time.map_err(|why| findings.error(place, why)).ok()
    }

    fn schema(of: &Parameter<Self>) -> Value {
        let mut schema = json!({ "type": "string", "pattern": "^[0-9]+(ns|us|ms|s)$" });
        if let Some(default) = of.default {
            schema["default"] = json!(format!("{default:?}"));
        }
        schema
    }
}

impl<T: Kind> Parameter<T> {
    /// Its entry in a schema.
    pub(super) fn put(&self, properties: &mut Map<String, Value>) {
        let mut schema = T::schema(self);
        schema["description"] = json!(self.about);
        properties.insert(self.name.into(), schema);
    }
}

const fn count(name: &'static str, default: u64, about: &'static str) -> Parameter<u64> {
    Parameter { name, default: Some(default), least: 1, most: u64::MAX, variable: None, about }
}

const fn time(name: &'static str, default: Duration, about: &'static str) -> Parameter<Duration> {
    let (default, least) = (Some(default), Duration::from_millis(1));
    Parameter { name, default, least, most: LONG_TIME_MAX, variable: None, about }
}

const fn timeout(
    name: &'static str,
    default: Duration,
    about: &'static str,
) -> Parameter<Duration> {
    Parameter { most: Duration::from_secs(60), ..time(name, default, about) }
}

/// How often keys are read.
pub(super) const SYNC_INTERVAL: Parameter<Duration> = Parameter {
    variable: Some(("GLOBAL_RATE_LIMIT_SYNC_INTERVAL_SECS", Duration::from_secs)),
    ..time(
        "sync_interval",
        Duration::from_secs(15),
        "For how long what was read of a key counts: half of it for a key above 80 %, four times \
         it for one below 50 %, and a quarter of a window if that is less. \"15s\"; at least \
         tick_interval.",
    )
};
pub(super) const TICK_INTERVAL: Parameter<Duration> = Parameter {
    variable: Some(("GLOBAL_RATE_LIMIT_TICK_INTERVAL_MS", Duration::from_millis)),
    ..time(
        "tick_interval",
        Duration::from_secs(1),
        "How often what was counted is written, and then what is due is read. \"1s\"; 1ms to \
         sync_interval.",
    )
};
pub(super) const CACHE_MAX_ENTRIES: Parameter<u64> = Parameter {
    variable: Some(("GLOBAL_RATE_LIMIT_LOCAL_CACHE_MAX_ENTRIES", |count| count)),
    ..count(
        "local_cache_max_entries",
        300_000,
        "Keys that this node knows at most: 300000. --keys-max bounds it.",
    )
};
pub(super) const CACHE_TTL: Parameter<Duration> = time(
    "local_cache_ttl",
    Duration::from_secs(600),
    "Without effect: a key in use is read at least every 4 x sync_interval. More than \
     local_cache_idle_timeout.",
);
pub(super) const CACHE_IDLE_TIMEOUT: Parameter<Duration> = time(
    "local_cache_idle_timeout",
    Duration::from_secs(300),
    "After so long without a request, and two windows, a key is forgotten. \"300s\"; at least \
     4 x sync_interval and the longest window. Left out, it is as long as it must be.",
);
pub(super) const GLOBAL_CACHE_TTL: Parameter<Duration> = Parameter {
    default: None,
    least: Duration::from_secs(1),
    ..time(
        "global_cache_ttl",
        Duration::ZERO,
        "For how long a counter is kept at least, from the start of its window; never for more \
         than three windows. Left out, twice the longest window, which is also the least.",
    )
};
pub(super) const READ_TIMEOUT: Parameter<Duration> = timeout(
    "global_read_timeout",
    Duration::from_millis(250),
    "How long a read may take. \"250ms\"; 1ms to 60s.",
);
pub(super) const WRITE_TIMEOUT: Parameter<Duration> = timeout(
    "global_write_timeout",
    Duration::from_millis(250),
    "How long a write may take. \"250ms\"; 1ms to 60s.",
);
pub(super) const CHANNEL_CAPACITY: Parameter<u64> = count(
    "channel_capacity",
    1_000_000,
    "Without effect: there is no channel, each key counts in its own cell.",
);
pub(super) const SYNC_FLOOR: Parameter<u64> = Parameter {
    least: 0,
    ..count(
        "min_sync_floor",
        10,
        "Units that this node must have counted of a key below a tenth of its threshold before it \
         is read, and at most a hundredth of the threshold. 10; 0 reads no such key.",
    )
};
pub(super) const READ_OUTAGE: Parameter<Duration> = Parameter {
    default: None,
    least: Duration::ZERO,
    ..time(
        "max_read_outage",
        Duration::ZERO,
        "After so long without an answer keys are judged as their limit's on_stale says. Left \
         out, a window of the limit; \"0s\" is never.",
    )
};
pub(super) const SYNC_KEYS_PER_TICK: Parameter<u64> =
    count("max_sync_keys_per_tick", 20_000, "Keys that are read in one tick: 20000.");
pub(super) const KEYS_PER_COMMAND: Parameter<u64> = Parameter {
    most: 100_000,
    ..count("max_keys_per_command", 2_000, "Keys in one command: 2000. 1 to 100000.")
};
pub(super) const CONCURRENT_COMMANDS: Parameter<u64> = Parameter {
    most: 64,
    ..count("max_concurrent_commands", 4, "Commands under way at once in one store: 4. 1 to 64.")
};
pub(super) const WRITE_BATCH: Parameter<u64> = count(
    "max_write_batch_entries",
    200_000,
    "Counts that wait to be written, and are written in one tick; what is beyond is dropped. \
     200000.",
);
pub(super) const PENDING_SYNC: Parameter<u64> = count(
    "max_pending_sync_entries",
    200_000,
    "Without effect: keys that are due wait in their order, each once.",
);
pub(super) const RECONNECT_INTERVAL: Parameter<Duration> = timeout(
    "reconnect_interval",
    Duration::from_secs(1),
    "How often a store that is down is tried again. \"1s\"; 1ms to 60s.",
);
pub(super) const NODES: Parameter<u64> = count(
    "nodes",
    1,
    "Nodes that share the stores, by which on_stale = \"share\" divides a limit.",
);
