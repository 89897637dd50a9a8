//! How the stores are used in which limits with the guarantee `tally` are counted: what `[tally]`
//! says of it, or `[global_rate_limiter]`, or a variable of the environment.
//!
//! `parameter` has each by itself, `settle` what they must be beside each other and beside the
//! limits, `global` the dialect that has a limit too, and `custom` its keys. No store is asked.

mod custom;
mod global;
mod parameter;
mod settle;
mod store;

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};
use tollgate::TallyOptions;
use toml::de::DeValue;

use super::finding::{Findings, Place};
pub(crate) use custom::KeptKeys;
pub(super) use global::{GlobalTable, VARIABLE, VARIABLES, read_limit};
pub(crate) use parameter::Env;
use parameter::Said;
pub(super) use parameter::Table;
pub(super) use settle::settle;
pub(crate) use store::StoreText;

/// How stores are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TallySettings {
    /// The stores; each key is counted in one of them.
    pub(crate) stores: Vec<StoreText>,
    /// What is asked of them, and when.
    pub(crate) options: TallyOptions,
    /// How long a read may take.
    pub(crate) read_timeout: Duration,
    /// How long a write may take.
    pub(crate) write_timeout: Duration,
    /// Commands under way at once in one store.
    pub(crate) commands_max: usize,
    /// How often a store that is down is tried again.
    pub(crate) reconnect_interval: Duration,
}

impl TallySettings {
    /// The same with these stores, if any are given; none without a store.
    pub(crate) fn with_stores(mut self, given: &[StoreText]) -> Option<Self> {
        if !given.is_empty() {
            self.stores = given.to_vec();
        }
        self.options.stores = self.stores.len();
        (!self.stores.is_empty()).then_some(self)
    }
}

/// What is said of stores, each parameter by itself.
#[derive(Debug)]
pub(super) struct Given {
    title: &'static str,
    place: Place,
    stores: Vec<StoreText>,
    prefix: String,
    sync: Said<Duration>,
    tick: Said<Duration>,
    keys_max: Said<u64>,
    ttl: Said<Duration>,
    idle: Said<Duration>,
    store_ttl: Option<Said<Duration>>,
    read_timeout: Said<Duration>,
    write_timeout: Said<Duration>,
    reconnect_interval: Said<Duration>,
    floor: Said<u64>,
    read_outage: Option<Said<Duration>>,
    reads_per_tick: Said<u64>,
    keys_per_command: Said<u64>,
    commands_max: Said<u64>,
    writes_max: Said<u64>,
    nodes: Said<u64>,
}

impl Given {
    /// Reads what a table has of the parameters; what is wrong is reported, and is the default.
    pub(super) fn read(mut table: Table<'_>, findings: &mut Findings<'_>) -> Self {
        for parameter in [&parameter::CHANNEL_CAPACITY, &parameter::PENDING_SYNC] {
            if let Some(said) = table.given(parameter, findings) {
                without_effect(&said, parameter.about, findings);
            }
        }
        let ttl = table.value(&parameter::CACHE_TTL, findings);
        if ttl.is_given {
            without_effect(&ttl, parameter::CACHE_TTL.about, findings);
        }
        Self {
            title: table.title,
            place: table.place,
            stores: stores(&mut table, findings),
            prefix: prefix(&mut table, findings),
            sync: table.value(&parameter::SYNC_INTERVAL, findings),
            tick: table.value(&parameter::TICK_INTERVAL, findings),
            keys_max: table.value(&parameter::CACHE_MAX_ENTRIES, findings),
            ttl,
            idle: table.value(&parameter::CACHE_IDLE_TIMEOUT, findings),
            store_ttl: table.given(&parameter::GLOBAL_CACHE_TTL, findings),
            read_timeout: table.value(&parameter::READ_TIMEOUT, findings),
            write_timeout: table.value(&parameter::WRITE_TIMEOUT, findings),
            reconnect_interval: table.value(&parameter::RECONNECT_INTERVAL, findings),
            floor: table.value(&parameter::SYNC_FLOOR, findings),
            read_outage: table.given(&parameter::READ_OUTAGE, findings),
            reads_per_tick: table.value(&parameter::SYNC_KEYS_PER_TICK, findings),
            keys_per_command: table.value(&parameter::KEYS_PER_COMMAND, findings),
            commands_max: table.value(&parameter::CONCURRENT_COMMANDS, findings),
            writes_max: table.value(&parameter::WRITE_BATCH, findings),
            nodes: table.value(&parameter::NODES, findings),
        }
    }

    /// The table of a set that has one, or what is said without any.
    pub(super) fn only_one(all: Vec<Self>, env: Env, findings: &mut Findings<'_>) -> Self {
        let mut all = all.into_iter();
        let Some(first) = all.next() else {
            return Self::read(Table::empty("[tally]", env), findings);
        };
        for other in all {
            let at = findings.show(first.place);
            let message = if other.title == first.title {
                format!("{} is already defined at {at}", other.title)
            } else {
                format!(
                    "{} is beside {} at {at}: how stores are used is said in one of them",
                    other.title, first.title
                )
            };
            findings.error(other.place, message);
        }
        first
    }
}

/// Tells of something that is taken for the sake of files that have it; `about` begins with that.
fn without_effect<T>(said: &Said<T>, about: &str, findings: &mut Findings<'_>) {
    let why = about.strip_prefix("Without effect: ").unwrap_or(about);
    let why = why.split_once(['.', ';']).map_or(why, |(why, _)| why);
    findings.no_effect(said.place, format!("{} has no effect here: {why}", said.name));
}

fn stores(table: &mut Table<'_>, findings: &mut Findings<'_>) -> Vec<StoreText> {
    let Some((list, place)) = table.take("redis") else { return Vec::new() };
    // No message shows what is written: it may have a password.
    let DeValue::Array(list) = list.into_inner() else {
        findings.error(place, "redis is a list: write redis = [\"redis://…\"]");
        return Vec::new();
    };
    let mut stores = Vec::new();
    for one in list {
        let place = Place { offset: one.span().start, ..place };
        match one.get_ref().as_str().map(StoreText::parse) {
            Some(Ok(store)) => stores.push(store),
            Some(Err(why)) => findings.error(place, why),
            None => findings.error(place, "a store must be a text such as \"redis://host:6379\""),
        }
    }
    stores
}

fn prefix(table: &mut Table<'_>, findings: &mut Findings<'_>) -> String {
    let default = || String::from(PREFIX);
    let Some((prefix, place)) = table.take("redis_key_prefix") else { return default() };
    let Some(prefix) = super::read::<String>(prefix, place.file, findings) else {
        return default();
    };
    // A brace would make another hash tag of the name, and so another slot of a cluster.
    let refused = |c: char| c == '{' || c == '}' || c.is_whitespace() || c.is_control();
    if prefix.is_empty() || prefix.len() > PREFIX_BYTES_MAX || prefix.contains(refused) {
        let must = "must be 1 to 64 bytes without braces, blanks and control characters";
        findings.error(place, format!("redis_key_prefix = {prefix:?} {must}"));
    }
    prefix
}

/// What the schema says of `[tally]`; it is read parameter by parameter.
pub(super) struct TallyTable;

impl JsonSchema for TallyTable {
    fn schema_name() -> Cow<'static, str> {
        "Tally".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        object(properties())
    }
}

/// The schema of a table with these fields and no others.
fn object(properties: Map<String, Value>) -> Schema {
    let mut schema = Schema::default();
    schema.insert("type".into(), json!("object"));
    schema.insert("additionalProperties".into(), json!(false));
    schema.insert("properties".into(), properties.into());
    schema
}

/// What both tables may have.
fn properties() -> Map<String, Value> {
    let mut all = Map::new();
    let about = "The stores, each a Redis: [\"redis://host:6379\"]. Each counts a part of the \
                 keys; the addresses of one store are in one text, with commas between them. \
                 --redis goes before it.";
    let text = json!({ "type": "string" });
    all.insert("redis".into(), json!({ "type": "array", "items": text, "description": about }));
    let about = "What the names of all counters begin with; the same on all nodes. 1 to 64 bytes \
                 without braces, blanks and control characters.";
    let prefix = json!({ "type": "string", "default": PREFIX, "description": about });
    all.insert("redis_key_prefix".into(), prefix);
    for time in [
        &parameter::SYNC_INTERVAL,
        &parameter::TICK_INTERVAL,
        &parameter::CACHE_TTL,
        &parameter::CACHE_IDLE_TIMEOUT,
        &parameter::GLOBAL_CACHE_TTL,
        &parameter::READ_TIMEOUT,
        &parameter::WRITE_TIMEOUT,
        &parameter::RECONNECT_INTERVAL,
        &parameter::READ_OUTAGE,
    ] {
        time.put(&mut all);
    }
    for count in [
        &parameter::CACHE_MAX_ENTRIES,
        &parameter::CHANNEL_CAPACITY,
        &parameter::SYNC_FLOOR,
        &parameter::SYNC_KEYS_PER_TICK,
        &parameter::KEYS_PER_COMMAND,
        &parameter::CONCURRENT_COMMANDS,
        &parameter::WRITE_BATCH,
        &parameter::PENDING_SYNC,
        &parameter::NODES,
    ] {
        count.put(&mut all);
    }
    all
}

const PREFIX: &str = "tollgate";
const PREFIX_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests;
