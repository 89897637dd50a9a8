//! What people type: the words, the exit codes, and what is said where.

use std::path::Path;

use serde_json::Value;

use crate::support::{Daemon, TEN, run};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A file in a folder of its own.
fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("limits.toml");
    std::fs::write(&path, text).expect("written");
    let path = path.to_str().expect("a plain path").to_owned();
    (folder, path)
}

#[test]
fn a_check_ends_with_0_for_yes_1_for_no_and_3_for_no_answer() {
    let daemon = Daemon::new(TEN);
    let server = daemon.door("http").to_string();
    let check = |words: &[&str]| run(&[&["check", "--server", &server], words].concat());
    let (code, out, err) = check(&["tenant=acme", "--cost", "9"]);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "allowed by api, 1 of 10 left\n", ""));
    let (code, out, _) = check(&["tenant=acme", "--cost", "2"]);
    assert_eq!(code, 1);
    assert!(out.starts_with("denied by api: over_limit, 1 of 10 left, retry in "), "{out}");
    let (code, out, _) = check(&["tenant=acme", "--cost", "11"]);
    assert_eq!(code, 1);
    let never = "denied by api: cost_exceeds_burst, 1 of 10 left, and waiting does not help\n";
    assert_eq!(out, never);
    let (code, out, _) = check(&["tenant=acme", "--json"]);
    assert_eq!((code, &json(&out)["remaining"]), (0, &0.into()));
    let (code, out, _) = check(&["tenant=acme", "--json"]);
    assert_eq!((code, &json(&out)["reason"]), (1, &"over_limit".into()));
    let (code, out, _) = check(&["other=x", "--domain", "nowhere"]);
    assert_eq!((code, out.as_str()), (0, "allowed: no limit applies\n"));
    let (code, out, err) = check(&["tenant=a", "tenant=b"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.starts_with("error: tenant is given twice\n"), "{err}");
}

#[test]
fn without_an_answer_the_reason_is_on_stderr() {
    let daemon = Daemon::new(TEN);
    let resp = daemon.door("resp").to_string();
    let (code, out, err) = run(&["check", "tenant=acme", "--server", &resp]);
    assert_eq!((code, out.as_str()), (3, ""));
    assert!(err.starts_with("error: the connection broke off: "), "{err}");
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.local_addr().expect("an address").to_string()
    };
    let (code, out, err) = run(&["check", "tenant=acme", "--server", &gone]);
    assert_eq!((code, out.as_str()), (3, ""));
    let expected = format!("error: nothing answers at {gone}: Connection refused");
    assert!(err.starts_with(&expected) && err.contains("is `tollgate serve` running"), "{err}");
    let (code, _, err) = run(&["check", "tenant=acme", "--server", "unix:/nowhere"]);
    assert!(code == 3 && err.contains("nothing answers at unix:/nowhere"), "{err}");
}

#[test]
fn a_secret_is_shown_from_a_file() {
    let (folder, _) = file("");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "sesame\n").expect("written");
    let secret = secret.to_str().expect("a plain path");
    let daemon = Daemon::with(TEN, &["--secret-file", secret]);
    let server = daemon.door("http").to_string();
    let check = ["check", "tenant=acme", "--server", &server];
    let (code, out, err) = run(&check);
    assert_eq!((code, out.as_str()), (3, ""));
    assert!(err.contains("401") && err.contains("Authorization: Bearer"), "{err}");
    let (code, out, _) = run(&[&check[..], &["--secret-file", secret]].concat());
    assert_eq!((code, out.as_str()), (0, "allowed by api, 9 of 10 left\n"));
}

#[test]
fn limits_of_a_daemon_that_is_alone_are_those_of_its_file() {
    let daemon = Daemon::new(TEN);
    let server = daemon.door("http").to_string();
    let (_folder, policy) = file(TEN);
    for words in [&["get"][..], &["history"], &["diff", &policy], &["apply", &policy]] {
        let (code, out, err) = run(&[&["limit"], words, &["--server", &server]].concat());
        assert_eq!((code, out.as_str()), (3, ""), "{words:?}");
        assert!(err.starts_with("error: 409 Conflict: it is no member of a fleet: "), "{err}");
        assert!(err.contains("limits.toml says, which is loaded whenever it changes"), "{err}");
    }
}

#[test]
fn wrong_words_end_with_2_and_help_tells_the_exit_codes() {
    for words in [
        &["serve"][..],
        &["serve", "--config", "x", "--nonsense"],
        &["serve", "--config", "x", "--threads", "0"],
        &["serve", "--config", "x", "--idle-seconds", "0"],
        &["serve", "--config", "x", "--keys-max", "-1"],
        &["serve", "--config", "x", "--headers", "none such"],
        &["serve", "--config", "x", "--table-full", "panic"],
        &["check"],
        &["check", "tenant"],
        &["check", "=acme"],
        &["check", "a=b", "--cost", "-1"],
        &["check", "a=b", "--server", "here"],
        &["lint"],
        &["limit"],
        &["limit", "apply"],
        &["limit", "apply", "x", "--expect", "last"],
        &["limit", "get", "--format", "yaml"],
        &["limit", "rollback", "-1"],
        &["sing"],
        &[],
    ] {
        let (code, out, err) = run(words);
        assert_eq!((code, out.as_str()), (2, ""), "{words:?}: {err}");
        assert!(err.contains("--help"), "{words:?}: {err}");
    }
    let (code, out, _) = run(&["--help"]);
    assert!(code == 0 && out.contains("Exit codes: 0 yes"), "{out}");
    let (code, out, _) = run(&["serve", "--help"]);
    assert!(code == 0 && out.contains("TOLLGATE_KEYS_MAX") && out.contains("--drain-seconds"));
    let (code, out, _) = run(&["--version"]);
    assert_eq!((code, out), (0, format!("tollgate {}\n", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn a_setting_that_cannot_be_ends_with_2_and_names_it() {
    let (_folder, config) = file(TEN);
    let serve = ["serve", "--config", &config, "--http", "127.0.0.1:0", "--resp", "off"];
    for words in [["--log", "=!="], ["--keys-max", "0"], ["--keys-max", "99999999999"]] {
        let (code, out, err) = run(&[&serve[..], &words].concat());
        assert_eq!((code, out.as_str()), (2, ""), "{words:?}");
        assert!(err.starts_with("error: ") && err.contains(words[0]), "{words:?}: {err}");
    }
}

#[test]
fn an_explanation_says_which_limits_apply_and_why_the_others_do_not() {
    let policy = "[[limit]]\nname = \"api\"\nkey = [\"tenant\"]\nrate = \"10/d\"\n\
                  [[limit]]\nname = \"login\"\nmatch = { route = \"login\" }\nrate = \"5/d\"\n\
                  [[limit]]\nname = \"user\"\nmatch = { user = \"*\" }\nrate = \"5/d\"\n";
    let daemon = Daemon::new(policy);
    let server = daemon.door("http").to_string();
    daemon.http().check("acme");
    let words = ["explain", "tenant=acme", "route=logout"];
    let (code, out, _) = run(&[&words[..], &["--server", &server]].concat());
    assert_eq!(code, 0);
    let expected = "allowed by api, 9 of 10 left\n  \
                    applies api key {\"tenant\":\"acme\"}: allowed by api, 9 of 10 left\n  \
                    not     login: the request's \"route\" is not \"login\"\n  \
                    not     user: the request has no entry \"user\"\n";
    assert_eq!(out, expected);
    // By a file nothing is used, and no daemon is asked.
    let (_folder, config) = file(policy);
    let (code, out, _) = run(&[&words[..], &["--config", &config, "--json"]].concat());
    let body = json(&out);
    assert_eq!((code, &body["decision"]["remaining"]), (0, &10.into()));
    assert_eq!(body["limits"].as_array().expect("a list").len(), 3);
    let (code, _, err) = run(&[&words[..], &["--config", "/nowhere.toml"]].concat());
    assert!(code == 3 && err.contains("/nowhere.toml:1:1: error: cannot be read"), "{err}");
    assert_eq!(daemon.http().check("acme").left(), (200, Some(8)));
}

#[test]
fn lint_ends_with_0_for_sound_1_for_mistakes_and_1_for_warnings_if_asked() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let tenants = examples.join("tenants.toml");
    let (code, out, _) = run(&["lint", tenants.to_str().expect("a plain path")]);
    assert_eq!(code, 0);
    assert!(out.ends_with("tenants.toml: ok, 2 limits\n"), "{out}");
    let shadow = examples.join("limits.toml");
    let shadow = shadow.to_str().expect("a plain path");
    let (code, out, _) = run(&["lint", shadow]);
    assert!(code == 0 && out.contains(": warning: limit \"login\" is a shadow"), "{out}");
    let (code, out, _) = run(&["lint", shadow, "--deny-warnings", "--json"]);
    let body = json(&out);
    assert_eq!((code, &body["valid"], &body["limits"]), (1, &true.into(), &3.into()));
    assert_eq!(body["findings"][0]["severity"], "warning");
    let (_folder, config) = file("[[limit]]\nname = \"api\"\nrate = \"5/s\"\nbrust = 9\n");
    let (code, out, _) = run(&["lint", &config]);
    assert_eq!(code, 1);
    let expected = ":4:1: error: unknown field `brust`; did you mean `burst`?\n";
    assert!(out.ends_with(expected), "{out}");
    let (code, out, _) = run(&["lint", &config, "--json"]);
    let finding = &json(&out)["findings"][0];
    assert_eq!((code, &finding["line"], &finding["column"]), (1, &4.into(), &1.into()));
    let (code, out, _) = run(&["lint", "/nowhere.toml"]);
    assert!(code == 3 && out.is_empty(), "{out}");
}

/// A limit of a fleet: its local cap, and one of its override's, are small.
const SHARED: &str = "[[limit]]\nname = \"api\"\nkey = [\"tenant\"]\nrate = \"5000/s\"\n\
                      burst = 10000\nguarantee = \"eventual\"\nlocal_cap = 10\nbootstrap = 2\n\
                      [[limit.override]]\nkey = { tenant = \"small\" }\nrate = \"10/s\"\n";

#[test]
fn lint_tells_what_a_fleet_cannot_do_with_a_limit() {
    let (_folder, config) = file(SHARED);
    let lint = |words: &[&str]| {
        let (code, out, err) = run(&[&["lint", &*config][..], words].concat());
        assert_eq!(err, "", "{words:?}");
        let lines = out.lines().map(|line| line.replace(&config, "limits.toml"));
        (code, lines.collect::<Vec<String>>())
    };
    let cap = "limits.toml:7:13: warning: limit \"api\": local_cap = 10 is less than the rate \
               brings in a round trip of 4.5 ms: a worker that has all the traffic reaches 44 % of \
               the rate; set local_cap to 23 or more";
    let fleet = "limits.toml:11:8: warning: limit \"api\": in this override, a burst of 10 is \
                 little for 20 workers: units wait on workers that do not need them; let callers \
                 wait, or send its requests to at most 4 workers";
    let ok = "limits.toml: ok, 1 limits";
    assert_eq!(lint(&[]), (0, vec![cap.into(), ok.into()]));
    let workers = ["--workers", "20"];
    assert_eq!(lint(&workers), (0, vec![cap.into(), fleet.into(), ok.into()]));
    assert_eq!(lint(&["--deny-warnings"]).0, 1);
    let (_, near) = lint(&["--round-trip", "500us", "--interval", "3ms"]);
    // 0.5 ms + 1.5 ms, in which 10 come.
    assert_eq!(near, [ok]);
    let (code, long) = lint(&["--ttl-max", "400ms", "--session-timeout", "400ms"]);
    let told = "limits.toml:6:13: warning: ttl_max of 400 ms is not below the session timeout of \
                400 ms: a permission could outlive its owner; set ttl_max to less than 400 ms";
    assert_eq!((code, &*long[0], long.len()), (0, told, 3));
    for (words, why) in [
        (["--workers", "0"], "0 is not in 1..=100000"),
        (["--round-trip", "2"], "must be a whole number of ns, us, ms or s"),
        (["--interval", "0ms"], "must not be 0"),
        (["--ttl-max", "0s"], "must not be 0"),
        (["--session-timeout", "1.7s"], "must be a whole number of ns, us, ms or s"),
    ] {
        let (code, out, err) = run(&[&["lint", &*config][..], &words].concat());
        assert_eq!((code, out.as_str()), (2, ""), "{words:?}: {err}");
        assert!(err.contains(words[0]) && err.contains(why), "{words:?}: {err}");
    }
}

#[test]
fn the_guarantee_of_a_limit_is_shown_wherever_the_limit_is() {
    let daemon = Daemon::new(&format!("{SHARED}[[limit]]\nname = \"b\"\nrate = \"9/s\"\n"));
    let mut http = daemon.http();
    let limits = http.get("/v1/limits").json();
    let shown = |index: usize| {
        let limit = &limits["limits"][index];
        ["guarantee", "local_cap", "bootstrap"].map(|member| limit[member].clone())
    };
    assert_eq!(shown(0), [Value::from("eventual"), 10.into(), 2.into()]);
    assert_eq!(shown(1), [Value::from("local"), Value::Null, Value::Null]);
    assert!(limits["config"]["warnings"].to_string().contains("set local_cap to 23 or more"));
    let server = daemon.door("http").to_string();
    let words = ["explain", "tenant=acme", "--server", &server];
    let (_, out, _) = run(&words);
    assert!(out.contains("\n  applies api (eventual) key {\"tenant\":\"acme\"}: "), "{out}");
    assert!(out.contains("\n  applies b key {}: "), "{out}");
    let (_, out, _) = run(&[&words[..], &["--json"]].concat());
    let explained = json(&out);
    let guarantees = [0, 1].map(|index| explained["limits"][index]["guarantee"].clone());
    assert_eq!(guarantees, ["eventual", "local"]);
    // What is described is what is shown.
    let described = http.get("/openapi.json").json();
    let mut members: Vec<&str> = described["components"]["schemas"]["Limit"]["required"]
        .as_array()
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .expect("a list");
    members.sort_unstable();
    let limit = limits["limits"][0].as_object().expect("an object");
    assert_eq!(limit.keys().collect::<Vec<_>>(), members);
}

#[test]
fn explain_tells_the_way_of_a_request_along_the_paths_of_a_yaml_file() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/envoy/ratelimit.yaml");
    let words = ["explain", "--config", example, "--domain", "edge"];
    let (code, out, _) = run(&[&words[..], &["tenant=x", "path=/reports/a"]].concat());
    let expected = "allowed by reports, 60 of 60 left\n  \
                    path: tenant (with any value) / path=/reports/* (by a pattern), ends at a \
                    limit\n  \
                    applies reports key {\"tenant\":\"x\"}: allowed by reports, 60 of 60 left\n";
    assert_eq!((code, &*out), (0, expected));
    // The order of the words is that of the entries.
    let (_, out, _) = run(&[&words[..], &["path=/reports/a", "tenant=x"]].concat());
    let expected = "allowed: no limit applies\n  \
                    path: ends without a limit: no path goes on with this value of \"path\"\n";
    assert_eq!(out, expected);
}

#[test]
fn lint_tells_what_is_otherwise_than_in_envoys_service() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/envoy/ratelimit.yaml");
    let (code, out, _) = run(&["lint", "--differences", example]);
    assert_eq!(code, 0);
    for part in [
        "ratelimit.yaml: ok, 10 limits\n\nOf all limits, compared",
        "\nedge    tenant / path=/reports/*  reports         60/hour        60 at once, one each \
         1 min           shared\n",
        "\nedge    country=nowhere           closed          0/day          denies\n",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let (folder, toml) = file(TEN);
    let (code, out, _) = run(&["lint", "--differences", &toml]);
    assert_eq!(code, 0);
    assert!(out.ends_with("No limit is written in the dialect of Envoy's rate-limit service.\n"));
    let yaml = "domain: d\ndescriptors:\n- key: k\n  value_to_metric: true\n  \
                rate_limit: { unit: minute, requests_per_unit: 4, name: N }\n";
    for name in ["a.yaml", "b.yml"] {
        let text = yaml.replace("key: k", &format!("key: {}", &name[..1]));
        std::fs::write(folder.path().join(name), text).expect("written");
    }
    let folder = folder.path().to_str().expect("a plain path");
    let (code, out, _) = run(&["lint", "--differences", folder]);
    assert_eq!(code, 1);
    assert!(out.contains("b.yml:1:9: error: domain \"d\" is already at "), "{out}");
    assert!(!out.contains("compared"), "{out}");
    let (code, out, _) = run(&["lint", "--differences", "--merge-domains", "--json", folder]);
    let body = json(&out);
    assert_eq!((code, &body["limits"]), (0, &3.into()));
    let told = &body["differences"];
    let limit = serde_json::json!({
        "domain": "d", "limit": "n.2", "path": "b", "written": "4/minute",
        "here": "4 at once, one each 15 s", "flags": [],
    });
    assert_eq!(told["limits"][1], limit);
    assert_eq!(
        (&told["no_effect"][0]["line"], &told["no_effect"][1]["line"]),
        (&4.into(), &4.into())
    );
}

#[test]
fn the_schema_is_json_that_names_the_fields_of_both_dialects() {
    let (code, out, _) = run(&["schema"]);
    let schema = json(&out);
    assert_eq!(code, 0);
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    for (dialect, field) in [("limit", "burst"), ("rate_limits", "overrides")] {
        assert!(schema["properties"][dialect].to_string().contains(field), "{dialect}");
    }
}

#[test]
fn settings_come_from_the_environment_too_and_words_win() {
    let (folder, config) = file(TEN);
    let socket = format!("unix:{}", folder.path().join("http.sock").display());
    let mut command = crate::support::tollgate();
    command.args(["serve", "--http", "nonsense"]);
    command.env("TOLLGATE_CONFIG", &config).env("TOLLGATE_HTTP", &socket);
    let output = command.output().expect("it was built");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--http nonsense: must be"));
    let output = crate::support::tollgate()
        .args(["check", "tenant=acme"])
        .env("TOLLGATE_SERVER", &socket)
        .output()
        .expect("it was built");
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("nothing answers at unix:"));
}
