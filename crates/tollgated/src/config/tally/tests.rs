//! That parameters are what the limiter has from which they come, and that what they must not be
//! beside each other is refused at its place.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tollgate::tally::WorkerOptions;
use tollgate::{Entry, Limit, Request, TallyOptions};

use super::super::tests::{READING, found, limiter_of, parsed, parsed_files, shown};
use super::super::{ENVIRONMENT, Loaded, Reading, load};
use super::*;

const LIMIT: &str =
    "[[limit]]\nname = \"api\"\nkey = [\"t\"]\nrate = \"1000/60s\"\nguarantee = \"tally\"\n";

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A limit with windows of 60 s, and `[tally]` from line 6 on, its first field on line 7.
fn with(fields: &str) -> String {
    format!("{LIMIT}[tally]\n{fields}\n")
}

fn settings(fields: &str) -> TallySettings {
    parsed(&with(fields)).expect("sound").tally
}

/// What a set says where these variables are set.
fn in_env(text: &str, env: Env) -> Result<Loaded, Vec<String>> {
    parsed_files(&[("1.toml", text)], Reading { env, ..READING })
}

/// What the environment says without a file.
fn without_file(env: Env) -> Result<Loaded, Vec<String>> {
    load(Path::new(ENVIRONMENT), Reading { env, ..READING }).map_err(|found| shown(&found))
}

fn custom(limit: &Limit) -> Vec<(String, String)> {
    let pair = |one: &tollgate::Override| {
        let tollgate::Allowance::Metered { rate, .. } = one.allowance() else { panic!("metered") };
        (one.parts().collect(), rate.to_string())
    };
    limit.overrides().iter().map(pair).collect()
}

#[test]
fn defaults_are_exactly_those_of_the_limiter_that_they_come_from() {
    let expected = TallySettings {
        stores: Vec::new(),
        options: TallyOptions {
            prefix: "tollgate".into(),
            stores: 0,
            worker: WorkerOptions {
                tick: secs(1),
                sync: secs(15),
                floor: 10,
                read_outage_max: None,
                nodes: 1,
                keys_max: 300_000,
                idle: secs(300),
                writes_max: 200_000,
                writes_per_tick: 200_000,
                reads_per_tick: 20_000,
                keys_per_command: 2_000,
            },
            grace: secs(5),
        },
        read_timeout: Duration::from_millis(250),
        write_timeout: Duration::from_millis(250),
        commands_max: 4,
        reconnect_interval: secs(1),
    };
    assert_eq!(settings(""), expected);
    assert_eq!(parsed("limit = []").expect("sound").tally, expected);
    let global = parsed("[global_rate_limiter]\n").expect("sound");
    assert_eq!(global.tally, expected);
    let window = global.limits[0].window_of(global.limits[0].allowance()).expect("windows");
    assert_eq!((window.threshold(), window.length()), (1_000_000, secs(60)));
    // Whoever writes a default has it too; two of these only have a meaning elsewhere.
    let written = "sync_interval = \"15s\"\ntick_interval = \"1s\"\n\
                   local_cache_max_entries = 300000\nlocal_cache_ttl = \"600s\"\n\
                   local_cache_idle_timeout = \"300s\"\nglobal_cache_ttl = \"120s\"\n\
                   global_read_timeout = \"250ms\"\nglobal_write_timeout = \"250ms\"\n\
                   redis_key_prefix = \"tollgate\"\nchannel_capacity = 1000000\n\
                   min_sync_floor = 10\nmax_sync_keys_per_tick = 20000\n\
                   max_keys_per_command = 2000\nmax_concurrent_commands = 4\n\
                   max_write_batch_entries = 200000\nmax_pending_sync_entries = 200000\n\
                   reconnect_interval = \"1s\"\nnodes = 1\nredis = []\n";
    assert_eq!(settings(written), expected);
    assert_eq!(
        parsed(&format!("[global_rate_limiter]\n{written}")).expect("sound").tally,
        expected
    );
}

#[test]
fn every_parameter_is_where_it_belongs() {
    let all = "redis = [\"redis://:sesame@a:1,redis://b\", \"unix:///r\"]\n\
               redis_key_prefix = \"edge\"\nsync_interval = \"10s\"\ntick_interval = \"500ms\"\n\
               local_cache_max_entries = 900\nlocal_cache_idle_timeout = \"90s\"\n\
               global_cache_ttl = \"150s\"\nglobal_read_timeout = \"1ms\"\n\
               global_write_timeout = \"60s\"\nmin_sync_floor = 0\nmax_read_outage = \"30s\"\n\
               max_sync_keys_per_tick = 7\nmax_keys_per_command = 100000\n\
               max_concurrent_commands = 64\nmax_write_batch_entries = 8\n\
               reconnect_interval = \"2s\"\nnodes = 5\n";
    let settings = settings(all);
    assert_eq!(
        settings.options,
        TallyOptions {
            prefix: "edge".into(),
            stores: 2,
            worker: WorkerOptions {
                tick: Duration::from_millis(500),
                sync: secs(10),
                floor: 0,
                read_outage_max: Some(secs(30)),
                nodes: 5,
                keys_max: 900,
                idle: secs(90),
                writes_max: 8,
                writes_per_tick: 8,
                reads_per_tick: 7,
                keys_per_command: 100_000,
            },
            grace: secs(30),
        }
    );
    let times = [settings.read_timeout, settings.write_timeout, settings.reconnect_interval];
    assert_eq!(times, [Duration::from_millis(1), secs(60), secs(2)]);
    assert_eq!(settings.commands_max, 64);
    let shown = format!("{settings:?}");
    assert!(shown.contains("redis://a:1,redis://b") && !shown.contains("sesame"), "{shown}");
}

#[test]
fn what_is_left_out_is_as_long_as_other_parameters_need_it() {
    assert_eq!(settings("sync_interval = \"100s\"").options.worker.idle, secs(400));
    assert_eq!(
        settings("max_read_outage = \"0s\"").options.worker.read_outage_max,
        Some(Duration::MAX)
    );
    // What a counter has beyond its two windows: at least 5 s, and no more than one.
    for (ttl, grace) in [("120s", 5), ("126s", 6), ("180s", 60), ("3600s", 60)] {
        let fields = format!("global_cache_ttl = \"{ttl}\"");
        assert_eq!(settings(&fields).options.grace, secs(grace), "{ttl}");
    }
    let long = LIMIT.replace("60s", "d");
    assert!(parsed(&long).expect("sound").warnings.is_empty(), "defaults suit long windows");
    let short = format!("{}[tally]\nglobal_cache_ttl = \"30s\"\n", LIMIT.replace("60s", "10s"));
    assert_eq!(parsed(&short).expect("sound").tally.options.grace, secs(10));
}

#[test]
fn stores_on_the_command_line_go_before_those_of_the_file() {
    let store = |text| StoreText::parse(text).expect("a store");
    let given = [store("redis://x"), store("redis://y")];
    let both = settings("redis = [\"redis://a\"]").with_stores(&given).expect("stores");
    assert_eq!((&*both.stores, both.options.stores), (&given[..], 2));
    let of_file = settings("redis = [\"redis://a\"]").with_stores(&[]).expect("a store");
    assert_eq!((of_file.stores, of_file.options.stores), (vec![store("redis://a")], 1));
    assert_eq!(settings("").with_stores(&[]), None);
}

#[test]
fn relations_that_do_not_hold_are_refused_with_both_values_and_the_rule() {
    let free = "the count of the window before would be gone while it still counts, and who is \
                limited would get free time";
    let longest = "the longest window, 60s of limit \"api\"";
    let forgets = "a key would forget a window that still counts";
    for (fields, expected) in [
        (
            "tick_interval = \"16s\"",
            "7:17: error: tick_interval = 16s must be at most sync_interval = 15s (the default): \
             keys are read in ticks"
                .into(),
        ),
        (
            "local_cache_idle_timeout = \"90s\"\nlocal_cache_ttl = \"90s\"",
            "7:28: error: local_cache_idle_timeout = 90s must be less than local_cache_ttl = 90s"
                .into(),
        ),
        (
            "local_cache_ttl = \"300s\"",
            "7:19: error: local_cache_idle_timeout = 300s (the default) must be less than \
             local_cache_ttl = 300s"
                .into(),
        ),
        (
            "local_cache_idle_timeout = \"119s\"\nsync_interval = \"30s\"",
            "7:28: error: local_cache_idle_timeout = 119s must be at least 120s, 4 x \
             sync_interval = 30s: a key below half of its threshold would be forgotten between \
             two reads"
                .into(),
        ),
        (
            "local_cache_idle_timeout = \"59s\"\nsync_interval = \"1s\"",
            format!(
                "7:28: error: local_cache_idle_timeout = 59s must be at least {longest}: {forgets}"
            ),
        ),
        (
            "global_cache_ttl = \"119s\"",
            format!(
                "7:20: error: global_cache_ttl = 119s must be at least 120s, twice {longest}: \
                 {free}"
            ),
        ),
    ] {
        let mut errors = found(&with(fields));
        errors.retain(|found| found.contains(": error: "));
        assert_eq!(errors, [format!("1.toml:{expected}")], "{fields}");
    }
    let both =
        "local_cache_idle_timeout = \"50s\"\nlocal_cache_ttl = \"59s\"\nsync_interval = \"1s\"";
    let errors = found(&with(both));
    let ttl =
        format!("1.toml:8:19: error: local_cache_ttl = 59s must be at least {longest}: {forgets}");
    assert!(errors.contains(&ttl), "{errors:?}");
}

#[test]
fn the_longest_window_is_that_of_limits_that_are_counted() {
    let ttl = "[tally]\nglobal_cache_ttl = \"120s\"\n";
    let other = |rate: &str, guarantee: &str| {
        format!("[[limit]]\nname = \"b\"\nrate = \"{rate}\"\nguarantee = \"{guarantee}\"\n")
    };
    assert!(parsed(&format!("{LIMIT}{}{ttl}", other("5/h", "local"))).is_ok());
    let found = found(&format!("{LIMIT}{}{ttl}", other("5/61s", "tally")));
    assert!(found[0].contains("at least 122s, twice the longest window, 61s of limit \"b\""));
    // A limit that only some keys have.
    let some = "[[limit]]\nname = \"c\"\nkey = [\"t\"]\nrate = \"unlimited\"\n\
                guarantee = \"tally\"\noverride = [{ key = { t = \"x\" }, rate = \"5/2min\" }]\n";
    assert!(parsed(&format!("{some}{ttl}")).is_err());
}

#[test]
fn a_value_that_cannot_be_is_refused_at_its_place() {
    for (fields, expected) in [
        ("tick_interval = \"999us\"", "7:17: error: tick_interval = 999µs must be at least 1ms"),
        (
            "global_read_timeout = \"0s\"",
            "7:23: error: global_read_timeout = 0ns must be 1ms to 60s",
        ),
        (
            "global_write_timeout = \"61s\"",
            "7:24: error: global_write_timeout = 61s must be 1ms to 60s",
        ),
        ("reconnect_interval = \"0s\"", "7:22: error: reconnect_interval = 0ns must be 1ms to 60s"),
        (
            "local_cache_max_entries = 0",
            "7:27: error: local_cache_max_entries = 0 must be at least 1",
        ),
        (
            "max_sync_keys_per_tick = 0",
            "7:26: error: max_sync_keys_per_tick = 0 must be at least 1",
        ),
        (
            "max_write_batch_entries = 0",
            "7:27: error: max_write_batch_entries = 0 must be at least 1",
        ),
        (
            "max_pending_sync_entries = 0",
            "7:28: error: max_pending_sync_entries = 0 must be at least 1",
        ),
        ("channel_capacity = 0", "7:20: error: channel_capacity = 0 must be at least 1"),
        ("nodes = 0", "7:9: error: nodes = 0 must be at least 1"),
        (
            "max_concurrent_commands = 65",
            "7:27: error: max_concurrent_commands = 65 must be 1 to 64",
        ),
        (
            "max_keys_per_command = 100001",
            "7:24: error: max_keys_per_command = 100001 must be 1 to 100000",
        ),
        ("min_sync_floor = -1", "7:18: error: invalid value: integer `-1`, expected u64"),
        (
            "sync_interval = 15",
            "7:17: error: sync_interval must be a text such as \"15s\", not integer",
        ),
        (
            "sync_interval = \"15\"",
            "7:17: error: sync_interval = \"15\" must be a whole number of ns, us, ms or s, such \
             as 250us or 1ms",
        ),
        (
            "redis = \"redis://:sesame@a\"",
            "7:9: error: redis is a list: write redis = [\"redis://…\"]",
        ),
        (
            "redis = [\"redis://a\", \"sesame\"]",
            "7:23: error: URL 1 does not begin with redis://, rediss:// or unix://, or with \
             redis+cluster:// or redis+sentinel://",
        ),
        ("redis = [1]", "7:10: error: a store must be a text such as \"redis://host:6379\""),
        (
            "sync_intervall = \"15s\"",
            "7:1: error: unknown field `sync_intervall`; did you mean \
          `sync_interval`?",
        ),
    ] {
        assert_eq!(found(&with(fields)), [format!("1.toml:{expected}")], "{fields}");
    }
}

#[test]
fn a_prefix_leaves_hash_tags_alone_and_what_is_no_table_is_refused() {
    let blank = "must be 1 to 64 bytes without braces, blanks and control characters";
    for prefix in ["", "a{b", "a}b", "a b", "a\\tb", &"a".repeat(65)] {
        let expected = format!("1.toml:7:20: error: redis_key_prefix = \"{prefix}\" {blank}");
        assert_eq!(found(&with(&format!("redis_key_prefix = \"{prefix}\""))), [expected]);
    }
    assert_eq!(
        found("limit = []\ntally = 3\n"),
        ["1.toml:2:9: error: must be a table, not integer"]
    );
}

#[test]
fn what_has_no_effect_is_told_with_the_reason() {
    let fields = "channel_capacity = 5\nlocal_cache_ttl = \"900s\"\nmax_pending_sync_entries = 5";
    let expected = [
        "7:20: warning: channel_capacity has no effect here: there is no channel, each key counts \
         in its own cell",
        "8:19: warning: local_cache_ttl has no effect here: a key in use is read at least every \
         4 x sync_interval",
        "9:28: warning: max_pending_sync_entries has no effect here: keys that are due wait in \
         their order, each once",
    ];
    assert_eq!(found(&with(fields)), expected.map(|line| format!("1.toml:{line}")));
    let loaded = parsed(&with(fields)).expect("sound");
    assert!(loaded.warnings.iter().all(|finding| finding.no_effect));
}

#[test]
fn windows_of_few_ticks_and_more_keys_than_cells_are_warned_of() {
    let short = LIMIT.replace("60s", "9s");
    let expected = "1.toml:4:8: warning: limit \"api\": its windows of 9s are shorter than 10 \
                    ticks of tick_interval = 1s: nodes hear of each other too late to keep it; set \
                    tick_interval to 900ms or less";
    assert_eq!(found(&format!("{short}[tally]\ntick_interval = \"1s\"\n")), [expected]);
    assert!(found(&short).is_empty(), "a tick of its own");
    assert!(found(&format!("{short}[tally]\ntick_interval = \"900ms\"\n")).is_empty());
    let expected =
        "1.toml:7:27: warning: local_cache_max_entries = 1001 is bounded by --keys-max = 1000";
    assert_eq!(found(&with("local_cache_max_entries = 1001")), [expected]);
}

#[test]
fn settings_stand_in_one_table_of_a_set() {
    let file = |name: &'static str, text: &'static str| (name, text);
    let tally = file("1.toml", "limit = []\n[tally]\n");
    let twice = parsed_files(&[tally, file("2.toml", "limit = []\n[tally]\n")], READING);
    let expected = "2.toml:2:1: error: [tally] is already defined at 1.toml:2:1";
    assert_eq!(twice.expect_err("twice"), [expected]);
    let beside = parsed_files(&[tally, file("2.toml", "[global_rate_limiter]\n")], READING);
    let expected = "2.toml:1:1: error: [global_rate_limiter] is beside [tally] at 1.toml:2:1: how \
                    stores are used is said in one of them";
    assert_eq!(beside.expect_err("both"), [expected]);
    // It is no limit: a file that was cut short behind it must not load.
    let cut = ["1.toml:1:1: error: holds no limits; write `limit = []` to have none"];
    assert_eq!(found("[tally]\n"), cut);
}

#[test]
fn variables_go_before_the_file_and_are_refused_by_name() {
    let env: Env = |name| match name {
        "GLOBAL_RATE_LIMIT_SYNC_INTERVAL_SECS" => Some("20".into()),
        "GLOBAL_RATE_LIMIT_TICK_INTERVAL_MS" => Some(" 250 ".into()),
        "GLOBAL_RATE_LIMIT_LOCAL_CACHE_MAX_ENTRIES" => Some("5000".into()),
        _ => None,
    };
    let worker = in_env(&with("sync_interval = \"10s\""), env).expect("sound").tally.options.worker;
    let expected = (secs(20), Duration::from_millis(250), 5_000);
    assert_eq!((worker.sync, worker.tick, worker.keys_max), expected);
    let wrong: Env = |name| name.starts_with("GLOBAL_RATE_LIMIT_SYNC").then(|| "15s".into());
    let expected =
        "1.toml:6:1: error: GLOBAL_RATE_LIMIT_SYNC_INTERVAL_SECS = \"15s\" must be a whole number";
    assert_eq!(in_env(&with(""), wrong).expect_err("no number"), [expected]);
    let slow: Env = |name| name.starts_with("GLOBAL_RATE_LIMIT_TICK").then(|| "16000".into());
    let found = in_env(&with(""), slow).expect_err("too slow");
    let expected = "1.toml:6:1: error: GLOBAL_RATE_LIMIT_TICK_INTERVAL_MS = 16s must be at most";
    assert!(found.iter().any(|found| found.starts_with(expected)), "{found:?}");
}

#[test]
fn the_table_of_a_global_limiter_is_one_limit_that_counts_what_is_offered() {
    let text = "[global_rate_limiter]\nglobal_threshold = 3\nwindow_interval = \"30s\"\n\
                custom_keys = \"acme=5, apex = 7,\"\ndry_run = true\nsync_interval = \"7s\"\n";
    let loaded = parsed(text).expect("sound");
    let expected = "[[limit]]\nname = \"global_rate_limiter\"\nkey = [\"key\"]\nrate = \"3/30s\"\n\
                    guarantee = \"tally\"\ncount = \"offered\"\nshadow = true\n\
                    override = [{ key = { key = \"acme\" }, rate = \"5/30s\" },\n\
                    { key = { key = \"apex\" }, rate = \"7/30s\" }]\n";
    assert_eq!(loaded.limits, parsed(expected).expect("sound").limits);
    assert_eq!(loaded.tally.options.worker.sync, secs(7));
    let shadow = "1.toml:5:11: warning: limit \"global_rate_limiter\" is a shadow: it counts and \
                  never denies";
    assert_eq!(shown(&loaded.warnings), [shadow]);
    let limiter = limiter_of(parsed(&text.replace("true", "false")).expect("sound"));
    let passes = |key: &'static str| {
        let entries = [Entry::new("key", key)];
        let descriptors = [tollgate::Descriptor::new(&entries).expect("sound")];
        (0..20).filter(|_| limiter.check(&Request::new(&descriptors)).is_allowed()).count()
    };
    assert!(passes("any") <= 3 && passes("acme") > 3);
}

#[test]
fn what_a_global_limiter_cannot_be_is_refused() {
    let of = |fields: &str| found(&format!("[global_rate_limiter]\n{fields}\n"));
    for (fields, expected) in [
        ("global_threshold = 0", "2:20: error: global_threshold = 0 must be at least 1"),
        (
            "window_interval = \"1500ms\"",
            "2:19: error: window_interval = 1.5s must be a whole number of seconds",
        ),
        ("window_interval = \"0s\"", "2:19: error: window_interval = 0ns must be 1s to 31536000s"),
        (
            "global_threshold = 1125899906842625",
            "2:20: error: limit \"global_rate_limiter\": rate = \"1125899906842625/60s\": must be",
        ),
        ("dry_run = 1", "2:11: error: invalid type: integer `1`, expected a boolean"),
        (
            "custom_keys = 3",
            "2:15: error: custom_keys must be a text such as \"acme=5000,apex=200\", or a table, \
             not integer",
        ),
        ("custom_keys = { a = 0 }", "2:17: error: custom key \"a\": a limit must be at least 1"),
        ("custom_keys = { \"\" = 5 }", "2:17: error: custom key \"\": is empty"),
        ("custom_keys = { a = \"5\" }", "2:21: error: invalid type: string \"5\", expected u64"),
        (
            "custom_keys = \"\"\ncustom_keys_file = \"/nowhere\"",
            "2:15: error: custom_keys and custom_keys_file exclude each other",
        ),
        (
            "global_cache_ttl = \"119s\"",
            "2:20: error: global_cache_ttl = 119s must be at least 120s",
        ),
        ("key = \"a\"", "2:1: error: unknown field `key`; known are"),
    ] {
        let found = of(fields);
        assert!(found[0].starts_with(&format!("1.toml:{expected}")), "{found:?} {expected}");
    }
    let other = "[[limit]]\nname = \"a\"\nrate = \"5/s\"\n";
    let expected = "1.toml:1:1: error: limit \"a\" is in the domain \"default\", which is that of \
                    [global_rate_limiter] at 1.toml:4:1; a domain is loaded from one of them";
    assert_eq!(found(&format!("{other}[global_rate_limiter]\n")), [expected]);
    assert!(parsed(&format!("{other}domain = \"edge\"\n[global_rate_limiter]\n")).is_ok());
    let tenants = "[rate_limits]\nenabled = true\n[global_rate_limiter]\n";
    assert!(found(tenants)[0].contains("[global_rate_limiter] is in the domain \"default\""));
}

#[test]
fn elements_of_a_text_that_are_wrong_are_left_out_with_the_reason() {
    let text = "[global_rate_limiter]\ncustom_keys = \"a=5,b,=7,c=x,d=0,a=6,k=v=9,\
                e=9999999999999999\"\n";
    let loaded = parsed(text).expect("sound");
    let key = |key: &str, rate: &str| (key.to_owned(), rate.to_owned());
    assert_eq!(custom(&loaded.limits[0]), [key("a", "6/min"), key("k=v", "9/min")]);
    let expected = [
        "\"b\" is left out: it has no `=`",
        "\"=7\" is left out: its key is empty",
        "\"c=x\" is left out: \"x\" is no whole number",
        "\"d=0\" is left out: a limit must be at least 1",
        "\"a\" is given twice: 6, not 5",
        "\"e=9999999999999999\" is left out: a limit must be at most 2^50, and 10^12 a second",
    ];
    let expected = expected.map(|why| format!("1.toml:2:15: warning: custom key {why}"));
    assert_eq!(shown(&loaded.warnings), expected);
    let table = "[global_rate_limiter.custom_keys]\na = 5\n\"b:c\" = 6\n";
    let limits = parsed(table).expect("sound").limits;
    assert_eq!(custom(&limits[0]), [key("a", "5/min"), key("b:c", "6/min")]);
}

#[test]
fn without_a_file_the_environment_makes_the_limit() {
    let env: Env = |name| match name {
        "GLOBAL_RATE_LIMIT_THRESHOLD" => Some("1000".into()),
        "GLOBAL_RATE_LIMIT_OVERRIDES_CSV" => Some("acme=5,bad".into()),
        "GLOBAL_RATE_LIMIT_WINDOW_INTERVAL_SECS" => Some("30".into()),
        _ => None,
    };
    let loaded = without_file(env).expect("sound");
    assert_eq!(custom(&loaded.limits[0]), [("acme".into(), "5/30s".into())]);
    let threshold =
        |limit: &Limit| limit.window_of(limit.allowance()).expect("windows").threshold();
    assert_eq!(threshold(&loaded.limits[0]), 1_000);
    let expected = "(environment):1:1: warning: custom key \"bad\" is left out: it has no `=`";
    assert_eq!(shown(&loaded.warnings), [expected]);
    // Where there is a table they go before it, and where there is none they are told.
    let text = "[global_rate_limiter]\nglobal_threshold = 7\ncustom_keys = \"apex=9\"\n";
    assert_eq!(in_env(text, env).expect("sound").limits, loaded.limits);
    let told = in_env("limit = []", env).expect("sound").warnings;
    let expected = "1.toml:1:1: warning: GLOBAL_RATE_LIMIT_THRESHOLD is set and is not read: there \
                    is no [global_rate_limiter]";
    assert!(told.len() == 3 && told[0].to_string() == expected, "{told:?}");
    let wrong: Env = |name| (name == "GLOBAL_RATE_LIMIT_THRESHOLD").then(|| "many".into());
    let expected =
        "(environment):1:1: error: GLOBAL_RATE_LIMIT_THRESHOLD = \"many\" must be a whole number";
    assert_eq!(without_file(wrong).expect_err("no number"), [expected]);
}

#[test]
fn a_file_of_custom_keys_that_is_away_keeps_them_and_one_that_is_empty_clears_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let (policy, keys) = (folder.path().join("a.toml"), folder.path().join("keys.csv"));
    let text = "[global_rate_limiter]\ncustom_keys_file = \"keys.csv\"\n";
    fs::write(&policy, text).expect("written");
    let mut kept = KeptKeys::NONE;
    let mut read = || {
        let loaded = load(&policy, Reading { kept: &kept, ..READING }).expect("sound");
        let keys: Vec<String> = custom(&loaded.limits[0])
            .into_iter()
            .map(|(key, rate)| format!("{key} {rate}"))
            .collect();
        let warnings: Vec<String> =
            loaded.warnings.iter().map(|finding| finding.message.clone()).collect();
        kept = loaded.keys;
        (keys.join(" "), warnings.join(" "))
    };
    let (none, told) = read();
    assert!(none.is_empty() && told.ends_with("(os error 2); there are none"), "{told}");
    fs::write(&keys, "acme=5,\napex=7\n").expect("written");
    assert_eq!(read(), ("acme 5/min apex 7/min".into(), String::new()));
    fs::write(&keys, "acme=6").expect("written");
    assert_eq!(read(), ("acme 6/min".into(), String::new()));
    let stays = |(keys, told): (String, String), why: &str| {
        assert_eq!(keys, "acme 6/min");
        assert!(told.contains(why) && told.ends_with("; those before stay in force"), "{told}");
    };
    fs::remove_file(&keys).expect("removed");
    stays(read(), "keys.csv cannot be read: No such file");
    fs::create_dir(&keys).expect("made");
    stays(read(), "keys.csv is no file");
    fs::remove_dir(&keys).expect("removed");
    fs::write(&keys, b"acme=\xff").expect("written");
    stays(read(), "keys.csv is not UTF-8 from here on");
    fs::write(&keys, "").expect("written");
    assert_eq!(read(), (String::new(), String::new()));
}
