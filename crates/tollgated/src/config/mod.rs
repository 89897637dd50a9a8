//! The policy file: text to limits, and everything that is wrong with it by line and column.
//!
//! Five dialects load into the same limits: in TOML `own` (`[[limit]]`), `tenant` (`[rate_limits]`)
//! and `tally`'s (`[global_rate_limiter]`), in YAML `envoy`, and in JSON that of a fleet's store,
//! which has all of them. `tally` also has how stores are used that count for a fleet.
//! This file puts the parts together; `source` reads files, `set` checks the limits together,
//! `lint` and `fleet` warn, `watch` says when to load again, and `shown` writes limits as a file.
//! Nothing here puts a limit in force.

mod draft;
mod envoy;
mod fields;
mod finding;
mod fleet;
mod json;
mod lint;
mod own;
mod scenario;
mod set;
mod shown;
mod source;
mod tally;
mod tenant;
mod time;
mod watch;
mod yaml;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use tollgate::mutant::lacks;
use tollgate::{DEFAULT_DOMAIN, Limit};

use draft::Draft;
use envoy::Domains;
use fields::refuse_unknown;
use finding::{Findings, Place, Text, short};
use set::Checked;
use tally::{Env, Given, GlobalTable, Table, TallyTable, VARIABLE, VARIABLES};
use tenant::Tenants;

pub(crate) use envoy::{AsWritten, WrittenLimits, as_written_of, unit_name};
pub(crate) use finding::{Finding, Severity};
pub(crate) use fleet::Fleet;
pub(crate) use scenario::{Staged, load as load_scenario};
pub(crate) use set::attempt as check_together;
pub(crate) use shown::{list_of, toml_of};
pub(crate) use tally::{KeptKeys, StoreText, TallySettings};
pub(crate) use time::{positive_time, time};
pub(crate) use watch::Watch;

/// What one source (a file, or a folder whose files are one set) says.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The limits as written, file by file: those of `[[limit]]` and of JSON, of `[rate_limits]`,
    /// of YAML.
    pub limits: Vec<Limit>,
    /// What is doubtful about them.
    pub warnings: Vec<Finding>,
    /// What limits in YAML say of themselves, by domain and label.
    pub as_written: WrittenLimits,
    /// The files that were read.
    pub files: Vec<PathBuf>,
    /// How the stores are used in which limits are counted.
    pub tally: TallySettings,
    /// What the file of custom keys said.
    pub keys: KeptKeys,
}

/// How a source is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading<'k> {
    /// The limiter's: it bounds how many limits and overrides there can be.
    pub keys_max: u64,
    /// Whether a domain may be in several YAML files; its limits are then those of all of them.
    pub merge_domains: bool,
    /// What is warned of where limits are those of a fleet.
    pub fleet: Fleet,
    /// The variables that go before what files say of stores.
    pub env: Env,
    /// What is in force of a file of custom keys, should it be away.
    pub kept: &'k KeptKeys,
}

impl Reading<'static> {
    /// As a process reads a source for itself, for the first time.
    pub(crate) const fn of(keys_max: u64, merge_domains: bool) -> Self {
        let (fleet, kept) = (Fleet::USUAL, &KeptKeys::NONE);
        Self { keys_max, merge_domains, fleet, env: process_env, kept }
    }
}

/// In place of a path: there is no file, and variables of the environment say what is limited.
pub(crate) const ENVIRONMENT: &str = "(environment)";

/// The variables of this process.
fn process_env(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// No variables.
pub(crate) fn no_env(_: &str) -> Option<String> {
    None
}

/// Whether [`ENVIRONMENT`] can stand for a path in this process.
pub(crate) fn is_in_environment() -> bool {
    process_env(VARIABLE).is_some()
}

/// Reads a source.
///
/// # Errors
/// All that is wrong with it, with the warnings; at least one is an error. Nothing is changed.
pub(crate) fn load(path: &Path, reading: Reading<'_>) -> Result<Loaded, Vec<Finding>> {
    if path == Path::new(ENVIRONMENT) {
        return parse(vec![(path.into(), String::new())], reading);
    }
    let files = source::list(path).map_err(|finding| vec![finding])?;
    let mut readable = Vec::new();
    let mut findings = Vec::new();
    for file in files {
        match source::read(&file) {
            Ok(text) => readable.push((file, text)),
            Err(finding) => findings.push(finding),
        }
    }
    if findings.is_empty() {
        return parse(readable, reading);
    }
    // A set with a file missing is not loaded, but what is wrong with the others is known already.
    if !readable.is_empty() {
        findings.extend(parse(readable, reading).err().into_iter().flatten());
    }
    Err(findings)
}

/// What the files of a source, sorted by name, say together.
///
/// # Errors
/// As [`load`].
pub(crate) fn parse(
    files: Vec<(PathBuf, String)>,
    reading: Reading<'_>,
) -> Result<Loaded, Vec<Finding>> {
    let texts: Vec<Text> = files.into_iter().map(|(path, text)| Text { path, text }).collect();
    if texts.is_empty() {
        return Err(vec![Finding::whole(Path::new(""), "there is no file")]);
    }
    let mut findings = Findings::new(&texts);
    let mut written = Written::read(&texts, reading, &mut findings);
    let given = Given::only_one(std::mem::take(&mut written.stores), reading.env, &mut findings);
    let keys = std::mem::take(&mut written.keys);
    let (drafts, as_written) = written.drafts(&mut findings);
    let Judged { limits, warnings, tally } = judge(drafts, given, reading, findings)?;
    let mut known = envoy::as_written_of(&limits);
    known.extend(as_written);
    let files = texts.into_iter().map(|text| text.path).collect();
    Ok(Loaded { limits, warnings, as_written: known, files, tally, keys })
}

/// What limits in JSON say together; `text` is what they are part of, and where it came from.
///
/// # Errors
/// As [`load`].
pub(crate) fn parse_limits(
    limits: &[&RawValue],
    text: (&str, &str),
    reading: Reading<'_>,
) -> Result<(Vec<Limit>, Vec<Finding>), Vec<Finding>> {
    let (path, text) = text;
    let texts = [Text { path: path.into(), text: text.into() }];
    let mut findings = Findings::new(&texts);
    let drafts = json::drafts_of(limits, text, 0, &mut findings);
    let drafts = drafts.into_iter().map(|draft| (draft, true)).collect();
    let given = Given::only_one(Vec::new(), reading.env, &mut findings);
    judge(drafts, given, reading, findings).map(|judged| (judged.limits, judged.warnings))
}

/// What drafts come to.
struct Judged {
    limits: Vec<Limit>,
    warnings: Vec<Finding>,
    tally: TallySettings,
}

/// The limits that drafts come to, and what is doubtful about them; or all that was found.
fn judge(
    drafts: Vec<(Draft, bool)>,
    given: Given,
    reading: Reading<'_>,
    mut findings: Findings<'_>,
) -> Result<Judged, Vec<Finding>> {
    let mut checked = Vec::new();
    for (draft, enabled) in drafts {
        // A limit that is not enabled is checked, and then left out.
        let limit = draft.check(&mut findings).filter(|_| enabled);
        checked.extend(limit.map(|limit| Checked { draft, limit }));
    }
    set::check(&checked, reading.keys_max, Place { file: 0, offset: 0 }, &mut findings);
    lint::lint(&checked, &mut findings);
    fleet::lint(&checked, &reading.fleet, &mut findings);
    let tally = tally::settle(given, &checked, reading, &mut findings);
    let failed = findings.errors() > 0;
    let warnings = findings.into_list();
    if failed {
        return Err(warnings);
    }
    let limits = checked.into_iter().map(|checked| checked.limit).collect();
    Ok(Judged { limits, warnings, tally })
}

/// What the files say, dialect by dialect.
struct Written {
    own: Vec<Draft>,
    tenants: Vec<Tenants>,
    /// That of `[global_rate_limiter]`.
    global: Option<Draft>,
    envoy: Domains,
    /// What each table says of stores.
    stores: Vec<Given>,
    keys: KeptKeys,
}

impl Written {
    fn read(texts: &[Text], reading: Reading<'_>, findings: &mut Findings<'_>) -> Self {
        let schema = schema();
        let mut written = Self {
            own: Vec::new(),
            tenants: Vec::new(),
            global: None,
            envoy: Domains::new(reading.merge_domains),
            stores: Vec::new(),
            keys: KeptKeys::NONE,
        };
        let mut silent: Vec<Place> = Vec::new();
        for (file, text) in texts.iter().enumerate() {
            if source::is_yaml(&text.path) {
                written.envoy.read(&text.text, file, findings);
                continue;
            }
            if source::is_json(&text.path, &text.text) {
                written.own.extend(json::drafts(&text.text, file, findings));
                continue;
            }
            let Some(mut document) = document(text, file, &schema, findings) else { continue };
            let (limits, table) = (document.remove("limit"), document.remove("rate_limits"));
            let (tally, global) = (document.remove(TALLY), document.remove(GLOBAL));
            let is_file = text.path != Path::new(ENVIRONMENT);
            if is_file && limits.is_none() && table.is_none() && global.is_none() {
                silent.push(Place { file, offset: 0 });
            }
            let limits = limits.into_iter().flat_map(|limits| own::drafts(limits, file, findings));
            written.own.extend(limits);
            written.tenants.extend(table.map(|table| Tenants::new(table, file, findings)));
            if let Some(table) = tally {
                let table = Table::new("[tally]", table, file, reading.env, findings);
                written.stores.push(Given::read(table, findings));
            }
            let global = match global {
                Some(table) => Some(Table::new(GLOBAL_TITLE, table, file, reading.env, findings)),
                None => (!is_file).then(|| Table::empty(GLOBAL_TITLE, reading.env)),
            };
            if let Some(table) = global {
                written.read_global(table, &text.path, reading, findings);
            }
        }
        warn_of_variables(written.global.is_some(), reading.env, findings);
        refuse_silence(&silent, findings);
        refuse_two_dialects(&written, findings);
        written
    }

    fn read_global(
        &mut self,
        mut table: Table<'_>,
        path: &Path,
        reading: Reading<'_>,
        findings: &mut Findings<'_>,
    ) {
        let (draft, keys) = tally::read_limit(&mut table, path, reading, findings);
        self.stores.push(Given::read(table, findings));
        // A second one is refused with what it says of stores.
        if self.global.is_none() {
            (self.global, self.keys) = (Some(draft), keys);
        }
    }

    /// All limits, and whether they are enabled; and what was written of those in YAML.
    fn drafts(self, findings: &mut Findings<'_>) -> (Vec<(Draft, bool)>, WrittenLimits) {
        let shared = refuse_yaml_beside_toml(&self, findings);
        let Self { own, tenants, global, envoy, .. } = self;
        let (of_envoy, as_written) = envoy.finish(findings);
        let of_tenants = tenants.into_iter().flat_map(|tenants| {
            tenants.drafts.into_iter().map(move |draft| (draft, tenants.enabled))
        });
        // What is refused as a whole is not refused limit by limit as well.
        let of_envoy = of_envoy.into_iter().filter(|draft| !shared.contains(&draft.domain));
        let enabled = |draft| (draft, true);
        let all = own.into_iter().chain(global).map(enabled);
        (all.chain(of_tenants).chain(of_envoy.map(enabled)).collect(), as_written)
    }

    /// The tables that have the domain `default` to themselves.
    fn tables(&self) -> impl Iterator<Item = (&'static str, Place)> {
        let tenants = self.tenants.first().map(|tenants| ("[rate_limits]", tenants.place));
        let global = self.global.as_ref().map(|limit| (GLOBAL_TITLE, limit.places.whole));
        tenants.into_iter().chain(global)
    }
}

/// The JSON Schema of the policy file, all dialects in TOML, for editors and other tools.
pub(crate) fn schema() -> serde_json::Value {
    schema_of::<PolicyFile>()
}

fn schema_of<T: JsonSchema>() -> serde_json::Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        // In one piece, so that `fields` finds its way without looking up references.
        settings.inline_subschemas = true;
    });
    let settings = settings.with_transform(RecursiveTransform(tidy));
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// Makes of comments in the code descriptions that editors can show, and leaves out what TOML
/// cannot say.
fn tidy(schema: &mut Schema) {
    if let Some(serde_json::Value::String(text)) = schema.get_mut("description") {
        *text = text.replace('\n', " ");
    }
    if schema.get("default").is_some_and(serde_json::Value::is_null) {
        schema.remove("default");
    }
}

/// The limits of a policy file, and how they are counted.
#[derive(JsonSchema)]
#[schemars(title = "Tollgate policy file", deny_unknown_fields)]
#[expect(dead_code, reason = "the schema is made of it; the parts are read one by one")]
struct PolicyFile {
    /// Limits in Tollgate's own dialect; `limit = []` has none.
    #[serde(default)]
    #[schemars(with = "Vec<own::LimitTable>")]
    limit: Vec<own::LimitTable>,
    /// Limits by tenant, in the domain `default`, which then has no others.
    #[serde(default)]
    #[schemars(with = "tenant::RateLimits")]
    rate_limits: Option<tenant::RateLimits>,
    /// How the stores are used in which limits with the guarantee `tally` are counted.
    #[serde(default)]
    #[schemars(with = "TallyTable")]
    tally: Option<TallyTable>,
    /// One limit for all keys of the entry `key`, as PostHog's global rate limiter has it, and how
    /// the stores are used in which it is counted. The domain `default` then has no others.
    #[serde(default)]
    #[schemars(with = "GlobalTable")]
    global_rate_limiter: Option<GlobalTable>,
}

/// A file's table without the fields that are unknown; `None` when it is no TOML.
fn document<'t>(
    text: &'t Text,
    file: usize,
    schema: &serde_json::Value,
    findings: &mut Findings<'_>,
) -> Option<DeTable<'t>> {
    let table = match DeTable::parse(&text.text) {
        Ok(table) => table,
        Err(error) => {
            report(&error, file, findings);
            return None;
        }
    };
    let mut document = Spanned::new(table.span(), DeValue::Table(table.into_inner()));
    refuse_unknown(&mut document, schema, file, findings);
    match document.into_inner() {
        DeValue::Table(table) => Some(table),
        _ => None,
    }
}

/// Reads a value whose unknown fields were taken out; `None` after it was reported.
fn read<T: DeserializeOwned>(
    value: Spanned<DeValue<'_>>,
    file: usize,
    findings: &mut Findings<'_>,
) -> Option<T> {
    let read = T::deserialize(ValueDeserializer::from(value));
    read.map_err(|error| report(&error, file, findings)).ok()
}

fn report(error: &toml::de::Error, file: usize, findings: &mut Findings<'_>) {
    let offset = error.span().map_or(0, |span| span.start);
    findings.error(Place { file, offset }, error.message());
}

/// A file that was cut short must not remove its limits.
fn refuse_silence(silent: &[Place], findings: &mut Findings<'_>) {
    // What was misspelt (`limits = []`) was reported already.
    if findings.errors() > 0 || lacks("cut_file_loads") {
        return;
    }
    for place in silent {
        findings.error(*place, "holds no limits; write `limit = []` to have none");
    }
}

/// A domain is loaded from one dialect, so that one rule says which of its limits apply.
fn refuse_two_dialects(written: &Written, findings: &mut Findings<'_>) {
    if let [first, others @ ..] = &*written.tenants {
        let place = findings.show(first.place);
        for other in others {
            let message = format!("[rate_limits] is already defined at {place}");
            findings.error(other.place, message);
        }
    }
    let mut tables = written.tables();
    let Some((title, place)) = tables.next() else { return };
    let place = findings.show(place);
    let domain = format!(
        "is in the domain \"default\", which is that of {title} at {place}; a domain is loaded \
         from one of them"
    );
    if let Some(limit) = written.own.iter().find(|limit| limit.domain == DEFAULT_DOMAIN) {
        findings.error(limit.places.whole, format!("limit {:?} {domain}", limit.name));
    }
    for (other, place) in tables {
        findings.error(place, format!("{other} {domain}"));
    }
}

/// The same for YAML: returns the domains that are in it and in TOML.
fn refuse_yaml_beside_toml(written: &Written, findings: &mut Findings<'_>) -> HashSet<String> {
    let mut shared = HashSet::new();
    for (domain, place) in written.envoy.places() {
        let limit = written.own.iter().find(|limit| limit.domain == domain).map(|limit| {
            let at = findings.show(limit.places.whole);
            format!("limit {:?} at {at}", limit.name)
        });
        let table = written.tables().next().filter(|_| domain == DEFAULT_DOMAIN);
        let table = table.map(|(title, place)| format!("{title} at {}", findings.show(place)));
        if let Some(other) = limit.or(table) {
            let message = format!(
                "domain {:?} is that of {other}; a domain is loaded from one of them",
                short(domain)
            );
            findings.error(place, message);
            shared.insert(domain.to_owned());
        }
    }
    shared
}

/// Who moves here may have set what nothing reads.
fn warn_of_variables(is_read: bool, env: Env, findings: &mut Findings<'_>) {
    for name in VARIABLES.iter().filter(|name| !is_read && env(name).is_some()) {
        let message = format!("{name} is set and is not read: there is no {GLOBAL_TITLE}");
        findings.no_effect(Place { file: 0, offset: 0 }, message);
    }
}

const TALLY: &str = "tally";
const GLOBAL: &str = "global_rate_limiter";
const GLOBAL_TITLE: &str = "[global_rate_limiter]";

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;
    use tollgate::{Clock, Descriptor, Entry, Limiter, Options, Request};
    use tollgate_tokio::limit_text::{from_text, to_texts};

    use super::*;

    /// What the files `1.toml`, `2.toml` and so on say together, or all that was found.
    fn parsed_all(texts: &[&str]) -> Result<Loaded, Vec<String>> {
        let names: Vec<String> = (1..=texts.len()).map(|index| format!("{index}.toml")).collect();
        let names = names.iter().map(String::as_str);
        parsed_files(&names.zip(texts.iter().copied()).collect::<Vec<_>>(), READING)
    }

    /// What files of these names say together, or all that was found.
    pub(super) fn parsed_files(
        files: &[(&str, &str)],
        reading: Reading<'_>,
    ) -> Result<Loaded, Vec<String>> {
        let files = files.iter().map(|(name, text)| ((*name).into(), (*text).into()));
        let loaded = parse(files.collect(), reading).map_err(|found| shown(&found))?;
        // Whatever loads can be kept by a fleet.
        for (text, limit) in to_texts(&loaded.limits).iter().zip(&loaded.limits) {
            assert_eq!(from_text(&text.name, &text.text).as_ref(), Ok(limit));
        }
        Ok(loaded)
    }

    pub(super) fn parsed(text: &str) -> Result<Loaded, Vec<String>> {
        parsed_all(&[text])
    }

    /// What is found in files, whether or not they load.
    fn found_in(texts: &[&str]) -> Vec<String> {
        parsed_all(texts).map_or_else(|found| found, |loaded| shown(&loaded.warnings))
    }

    pub(super) fn found(text: &str) -> Vec<String> {
        found_in(&[text])
    }

    /// A limiter of what a file says; its clock stands still.
    pub(super) fn limiter(text: &str) -> Limiter {
        limiter_of(parsed(text).expect("a sound file"))
    }

    pub(super) fn limiter_of(loaded: Loaded) -> Limiter {
        let limits = loaded.limits;
        let options = Options { keys_max: 1_000, clock: Clock::manual().0, ..Options::default() };
        Limiter::new(limits, options).expect("limits that were checked together")
    }

    pub(super) fn shown(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(Finding::to_string).collect()
    }

    pub(super) fn names(loaded: &Loaded) -> Vec<&str> {
        loaded.limits.iter().map(tollgate::Limit::name).collect()
    }

    pub(super) const READING: Reading<'_> = Reading {
        keys_max: 1_000,
        merge_domains: false,
        fleet: Fleet::USUAL,
        env: no_env,
        kept: &KeptKeys::NONE,
    };
    const API: &str = "[[limit]]\nname = \"api\"\nrate = \"10/s\"\n";
    const TENANTS: &str = "[rate_limits]\nenabled = true\ndefault.read_iops.rate = 5\n";
    const EXAMPLES: [&str; 5] = [
        include_str!("../../../../examples/limits.toml"),
        include_str!("../../../../examples/tenants.toml"),
        include_str!("../../../../examples/tally.toml"),
        include_str!("../../../../examples/global-rate-limiter.toml"),
        include_str!("../../../../examples/share.toml"),
    ];

    #[test]
    fn a_file_without_limits_is_an_error_unless_it_says_so() {
        let message = "error: holds no limits; write `limit = []` to have none";
        for text in ["", "\n", "# only a comment\n"] {
            assert_eq!(found(text), [format!("1.toml:1:1: {message}")], "{text:?}");
        }
        assert_eq!(found_in(&[API, ""]), [format!("2.toml:1:1: {message}")]);
        let both = [format!("1.toml:1:1: {message}"), format!("2.toml:1:1: {message}")];
        assert_eq!(found_in(&["", "# nor here"]), both);
        assert!(parsed("limit = []").expect("sound").limits.is_empty());
    }

    #[test]
    fn the_limits_of_a_set_are_in_the_order_of_its_files() {
        let other = "[[limit]]\nname = \"b\"\nrate = \"1/s\"\nkey = [\"y\"]\n\
                     [[limit]]\nname = \"a\"\nrate = \"1/s\"\nkey = [\"x\"]\n";
        let loaded = parsed_all(&[other, API]).expect("sound");
        assert_eq!(names(&loaded), ["b", "a", "api"]);
        assert_eq!(loaded.files, [PathBuf::from("1.toml"), PathBuf::from("2.toml")]);
    }

    #[test]
    fn a_syntax_error_is_reported_once_for_each_file() {
        let broken = "[[limit]]\nname = \"api\nrate = \"10/s\n";
        let expected = [
            "1.toml:2:12: error: invalid basic string, expected `\"`",
            "2.toml:1:5: error: string values must be quoted, expected literal string",
        ];
        assert_eq!(found_in(&[broken, "a = \n", API]), expected);
        assert_eq!(found("a = 1\na = 2\n"), ["1.toml:2:1: error: duplicate key"]);
        assert!(found("\u{feff}a = = 1")[0].starts_with("1.toml:1:5: "));
    }

    #[test]
    fn a_field_that_nobody_reads_is_an_error_at_its_place() {
        let expected = [
            "1.toml:1:1: error: unknown field `limits`; did you mean `limit`?",
            "1.toml:2:2: error: unknown field `rate_limit`; did you mean `rate_limits`?",
        ];
        assert_eq!(found("limits = []\n[rate_limit]\n"), expected);
        let expected = [
            "1.toml:4:3: error: unknown field `brust`; did you mean `burst`?",
            "1.toml:5:1: error: unknown field `keys`; did you mean `key`?",
        ];
        assert_eq!(found(&format!("{API}  brust = 5\nkeys = [\"a\"]\n")), expected);
    }

    #[test]
    fn what_comes_with_later_guarantees_is_refused_by_name() {
        let expected = "1.toml:4:1: error: `windows` belongs to a guarantee that this version does \
                        not have; it keeps only \"local\", \"eventual\" and \"tally\"";
        assert_eq!(found(&format!("{API}windows = [\"60/60s\"]\n")), [expected]);
    }

    #[test]
    fn a_domain_is_loaded_from_one_dialect() {
        let both = |limit: &str, table: &str| {
            format!(
                "{limit}: error: limit \"api\" is in the domain \"default\", which is that of \
                 [rate_limits] at {table}; a domain is loaded from one of them"
            )
        };
        assert_eq!(found(&format!("{TENANTS}{API}")), [both("1.toml:4:1", "1.toml:1:1")]);
        assert_eq!(found_in(&[API, TENANTS]), [both("1.toml:1:1", "2.toml:1:1")]);
        let elsewhere = format!("{API}domain = \"edge\"\n");
        let loaded = parsed_all(&[TENANTS, &elsewhere]).expect("two domains");
        assert_eq!(names(&loaded), ["api", "read_iops"]);
    }

    #[test]
    fn a_set_has_one_table_of_tenants() {
        let expected = "2.toml:1:1: error: [rate_limits] is already defined at 1.toml:1:1";
        assert_eq!(found_in(&[TENANTS, TENANTS])[0], expected);
    }

    #[test]
    fn the_examples_load_and_only_the_shadow_is_worth_a_warning() {
        let loaded = parsed(EXAMPLES[0]).expect("sound");
        assert_eq!(names(&loaded), ["api", "login", "download"]);
        let warnings = shown(&loaded.warnings);
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].ends_with("limit \"login\" is a shadow: it counts and never denies"));
        let loaded = parsed(EXAMPLES[1]).expect("sound");
        assert_eq!(names(&loaded), ["read_iops", "read_throughput"]);
        assert!(loaded.warnings.is_empty());
        for (example, name) in [(2, "api"), (3, "global_rate_limiter")] {
            let loaded = parsed(EXAMPLES[example]).expect("sound");
            assert_eq!(names(&loaded), [name]);
            assert_eq!((loaded.warnings.len(), loaded.tally.stores.len()), (0, 1));
            assert_eq!(loaded.limits[0].overrides().len(), 1);
        }
    }

    #[test]
    fn the_example_limits_what_its_comments_say() {
        let limiter = limiter(EXAMPLES[0]);
        let admitted_in = |domain, entries: &[Entry<'_>], cost| {
            let descriptors = [Descriptor::new(entries).expect("sound").with_cost(cost)];
            let request = Request::new(&descriptors).in_domain(domain);
            (0..500).take_while(|_| limiter.check(&request).is_allowed()).count()
        };
        let admitted = |entries: &[Entry<'_>]| admitted_in("default", entries, 1);
        assert_eq!(admitted(&[Entry::new("tenant", "small")]), 20);
        assert_eq!(admitted(&[Entry::new("tenant", "acme")]), 400);
        let login = [Entry::new("route", "login"), Entry::new("user", "ann")];
        assert_eq!(admitted(&login), 20, "by `api` alone");
        let moved = |tenant, cost| admitted_in("downloads", &[Entry::new("tenant", tenant)], cost);
        assert_eq!(moved("small", 64 << 20), 2);
        assert_eq!(moved("large", 1 << 40), 1);
    }

    #[test]
    fn a_source_is_a_file_or_a_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("b.toml"), API).expect("written");
        fs::write(at("a.toml"), "limit = []").expect("written");
        assert_eq!(load(&at("b.toml"), READING).expect("sound").files, [at("b.toml")]);
        let loaded = load(folder.path(), READING).expect("sound");
        assert_eq!(names(&loaded), ["api"]);
        assert_eq!(loaded.files, [at("a.toml"), at("b.toml")]);
    }

    #[test]
    fn a_file_that_cannot_be_read_does_not_hide_what_is_wrong_with_the_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a.toml"), b"\xff").expect("written");
        fs::write(at("b.toml"), "limit = 3").expect("written");
        let found = load(folder.path(), READING).expect_err("neither is sound");
        let messages: Vec<&str> = found.iter().map(|finding| &*finding.message).collect();
        let expected = ["is not UTF-8 from here on", "`limit` is a list: write [[limit]]"];
        assert_eq!(messages, expected);
        fs::write(at("b.toml"), API).expect("written");
        assert_eq!(load(folder.path(), READING).expect_err("one is not sound").len(), 1);
    }

    #[test]
    fn the_schema_says_what_is_read() {
        let schema = schema();
        assert_eq!(schema["additionalProperties"], false);
        let limit = &schema["properties"]["limit"]["items"];
        assert_eq!(limit["required"], serde_json::json!(["name", "rate"]));
        assert_eq!(limit["properties"]["override"]["items"]["additionalProperties"], false);
        assert_eq!(limit["properties"]["oversize"]["enum"], serde_json::json!(["never", "pace"]));
        let guarantees = serde_json::json!(["local", "eventual", "share", "tally"]);
        assert_eq!(limit["properties"]["guarantee"]["enum"], guarantees);
        let on_stale = serde_json::json!(["allow", "share", "deny"]);
        assert_eq!(limit["properties"]["on_stale"]["enum"], on_stale);
        for properties in [limit, &limit["properties"]["override"]["items"]] {
            assert_eq!(properties["properties"]["local_cap"]["minimum"], 1);
            assert_eq!(properties["properties"]["bootstrap"]["minimum"], 0);
        }
        let metrics = &schema["properties"]["rate_limits"]["properties"]["default"];
        assert_eq!(metrics["properties"]["read_iops"]["properties"]["rate"]["minimum"], 1);
        let tables = ["tally", "global_rate_limiter"].map(|name| &schema["properties"][name]);
        for table in tables {
            assert_eq!(table["additionalProperties"], false);
            assert_eq!(table["properties"]["tick_interval"]["default"], "1s");
            assert_eq!(table["properties"]["max_concurrent_commands"]["maximum"], 64);
        }
        let [tally, global] = tables.map(|table| table["properties"].as_object().expect("some"));
        assert_eq!((tally.len(), global.len()), (20, 25));
        let text = schema.to_string();
        assert!(!text.contains("null"), "TOML has no null");
        assert!(!text.contains("\\n"), "descriptions are lines");
    }

    /// Pieces of which nearly-right files are made.
    const PIECES: [&str; 26] = [
        "[[limit]]\n",
        "[[limit.override]]\n",
        "[rate_limits]\n",
        "[rate_limits.default]\n",
        "[rate_limits.overrides.\"\"]\n",
        "[limit]",
        "\n",
        "name = \"api\"\n",
        "name",
        "=",
        "\"",
        "rate = \"10/s\"\n",
        "rate = 0\n",
        "burst_ratio = nan\n",
        "burst = -1\n",
        "key = [",
        "match = { a = \"*\" }\n",
        "]",
        "{",
        "}",
        "enabled = true\n",
        "read_iops = { rate = 5 }\n",
        "\u{feff}",
        "é",
        "\r\n",
        "'''",
    ];

    /// Every finding lies within its text, and a file loads exactly if none is an error.
    pub(super) fn assert_sane(name: &str, text: String) {
        let lines = text.split('\n').count();
        let (findings, loads) = match parse(vec![(name.into(), text)], READING) {
            Ok(loaded) => (loaded.warnings, true),
            Err(findings) => (findings, false),
        };
        for finding in &findings {
            assert!((1..=lines).contains(&finding.line), "{finding}");
        }
        let is_error = |finding: &Finding| finding.severity == Severity::Error;
        assert_eq!(findings.iter().any(is_error), !loads);
    }

    proptest! {
        // A case that fails becomes a test of its own, not a file.
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_text_is_answered(text in "\\PC*") {
            assert_sane("a.toml", text);
        }

        #[test]
        fn any_heap_of_pieces_is_answered(
            pieces in prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..40),
        ) {
            assert_sane("a.toml", pieces.concat());
        }

        #[test]
        fn any_change_of_a_sound_file_is_answered(
            example in 0..EXAMPLES.len(),
            cuts in prop::collection::vec(
                (any::<prop::sample::Index>(), 0_usize..40, prop::sample::select(PIECES.to_vec())),
                1..4,
            ),
        ) {
            let mut text = EXAMPLES[example].to_string();
            for (start, length, piece) in cuts {
                let start = text.floor_char_boundary(start.index(text.len() + 1));
                let end = text.floor_char_boundary(start + length);
                text.replace_range(start..end, piece);
            }
            assert_sane("a.toml", text);
        }
    }
}
