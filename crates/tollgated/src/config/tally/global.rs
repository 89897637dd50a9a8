//! The dialect of PostHog's global rate limiter: `[global_rate_limiter]`, one limit for all keys
//! of one entry, with everything that `[tally]` may have.
//!
//! It becomes one limit of that name in the domain `default`: each value of the entry `key` has the
//! threshold in each window, what is refused counts too, and who meets the threshold is limited.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::json;
use tollgate::{DEFAULT_DOMAIN, Oversize};

use super::super::draft::{Draft, Places};
use super::super::finding::Findings;
use super::super::{Reading, read};
use super::custom::{self, CustomKey, KeptKeys};
use super::parameter::{Parameter, Table};
use super::{object, properties};

/// Reads the limit of the table, and what its file of custom keys says. `policy` is the file in
/// which the table is.
pub(in super::super) fn read_limit(
    table: &mut Table<'_>,
    policy: &Path,
    reading: Reading<'_>,
    findings: &mut Findings<'_>,
) -> (Draft, KeptKeys) {
    let threshold = table.value(&THRESHOLD, findings);
    let mut window = table.value(&WINDOW, findings);
    if window.value.subsec_nanos() != 0 {
        findings.error(window.place, format!("{window} must be a whole number of seconds"));
        window.value = Duration::from_secs(60);
    }
    let (keys, kept) = custom_keys(table, policy, window.value, reading, findings);
    let dry_run = table.take("dry_run");
    let shadow_place = dry_run.as_ref().map(|(_, place)| ("shadow", *place));
    let shadow = dry_run.and_then(|(value, place)| read(value, place.file, findings));
    // What is wrong with both together is told where one of them stands.
    let rate = if threshold.is_given { threshold.place } else { window.place };
    let draft = Draft {
        name: NAME.into(),
        domain: DEFAULT_DOMAIN.into(),
        matches: Vec::new(),
        key: vec![("key".into(), table.place)],
        path: Vec::new(),
        group: String::new(),
        replaces: Vec::new(),
        quota: false,
        allowance: custom::allowance(threshold.value, window.value),
        guarantee: "tally".into(),
        on_stale: None,
        count: Some("offered".into()),
        mode: None,
        oversize: Oversize::Never,
        shadow: shadow.unwrap_or(false),
        overrides: keys.iter().map(|key| key.draft(window.value)).collect(),
        places: Places {
            whole: table.place,
            fields: [("rate", rate)].into_iter().chain(shadow_place).collect(),
        },
    };
    (draft, kept)
}

fn custom_keys(
    table: &mut Table<'_>,
    policy: &Path,
    window: Duration,
    reading: Reading<'_>,
    findings: &mut Findings<'_>,
) -> (Vec<CustomKey>, KeptKeys) {
    let (written, file) = (table.take("custom_keys"), table.take("custom_keys_file"));
    if let Some(text) = table.variable(CUSTOM_KEYS) {
        if let Some((_, place)) = file {
            findings
                .no_effect(place, format!("custom_keys_file is not read: {CUSTOM_KEYS} is set"));
        }
        return (custom::of_text(&text, window, table.place, findings), KeptKeys::NONE);
    }
    let Some((file, place)) = file else {
        let Some((value, place)) = written else { return (Vec::new(), KeptKeys::NONE) };
        let keys = match value.as_ref().as_str() {
            Some(text) => custom::of_text(text, window, place, findings),
            None => custom::of_table(value, window, place, findings),
        };
        return (keys, KeptKeys::NONE);
    };
    if let Some((_, other)) = written {
        findings.error(other, "custom_keys and custom_keys_file exclude each other");
    }
    let Some(name) = read::<String>(file, place.file, findings) else {
        return (Vec::new(), KeptKeys::NONE);
    };
    let path = policy.parent().unwrap_or(Path::new("")).join(name);
    let (kept, why) = reading.kept.read(path);
    if let Some(why) = why {
        findings.warning(place, why);
    }
    let text = kept.text().unwrap_or_default();
    (custom::of_text(text, window, place, findings), kept)
}

/// What the schema says of the table; it is read parameter by parameter.
pub(in super::super) struct GlobalTable;

impl JsonSchema for GlobalTable {
    fn schema_name() -> Cow<'static, str> {
        "GlobalRateLimiter".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut all = properties();
        THRESHOLD.put(&mut all);
        WINDOW.put(&mut all);
        let limits = json!({ "type": "object", "additionalProperties": { "type": "integer" } });
        let about = "Keys with a threshold of their own: \"acme=5000,apex=200\", of which elements \
                     that are wrong are left out, or a table of numbers.";
        let keys = json!({ "anyOf": [{ "type": "string" }, limits], "description": about });
        all.insert("custom_keys".into(), keys);
        let about = "A file of such text, beside this one unless its path is absolute. It is \
                     watched; one that can't be read keeps what it said before. Not beside \
                     custom_keys.";
        let file = json!({ "type": "string", "description": about });
        all.insert("custom_keys_file".into(), file);
        let about = "Evaluate and count, but never deny.";
        let dry_run = json!({ "type": "boolean", "default": false, "description": about });
        all.insert("dry_run".into(), dry_run);
        object(all)
    }
}

const NAME: &str = "global_rate_limiter";
/// Given, it makes the limit even where there is no policy file.
pub(in super::super) const VARIABLE: &str = "GLOBAL_RATE_LIMIT_THRESHOLD";
const WINDOW_SECS: &str = "GLOBAL_RATE_LIMIT_WINDOW_INTERVAL_SECS";
const CUSTOM_KEYS: &str = "GLOBAL_RATE_LIMIT_OVERRIDES_CSV";
const THRESHOLD: Parameter<u64> = Parameter {
    name: "global_threshold",
    default: Some(1_000_000),
    least: 1,
    most: u64::MAX,
    variable: Some((VARIABLE, |count| count)),
    about: "Units in a window at which a key is limited: 1000000. 1 to 2^50.",
};
const WINDOW: Parameter<Duration> = Parameter {
    name: "window_interval",
    default: Some(Duration::from_secs(60)),
    least: Duration::from_secs(1),
    most: Duration::from_secs(365 * 86_400),
    variable: Some((WINDOW_SECS, Duration::from_secs)),
    about: "How long a window is. \"60s\"; whole seconds, to 365 days.",
};
/// Variables that say something of the limit alone.
pub(in super::super) const VARIABLES: [&str; 3] = [VARIABLE, WINDOW_SECS, CUSTOM_KEYS];
