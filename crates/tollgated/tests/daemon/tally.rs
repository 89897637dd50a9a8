//! Limits that a fleet counts in a store, as far as one daemon without any shows them: how they are
//! written, and what is told of stores.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Daemon, run, says, tollgate, wait_until};

const DOORS: [&str; 4] = ["--http", "127.0.0.1:0", "--resp", "off"];

/// Checks that pass of nine.
fn passes(daemon: &Daemon, key: &str) -> usize {
    let mut http = daemon.http();
    let body = json!({ "entries": { "key": key } }).to_string();
    (0..9).filter(|_| http.post("/v1/check", &body).status == 200).count()
}

fn told(lines: &[Value], message: &str) -> usize {
    lines.iter().filter(|line| says(line, message)).count()
}

#[test]
fn a_threshold_in_the_environment_is_a_policy_and_no_store_is_told_once() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut command = tollgate();
    command.env("GLOBAL_RATE_LIMIT_THRESHOLD", "3");
    command.env("GLOBAL_RATE_LIMIT_OVERRIDES_CSV", "acme=7");
    let daemon = Daemon::run_by(command, folder, &DOORS);
    assert!((2..=3).contains(&passes(&daemon, "any")) && passes(&daemon, "acme") >= 6);
    daemon.signal("HUP");
    daemon.wait_for(|lines| told(lines, "limits are in force") == 2);
    let no_store = "a limit with guarantee = \"tally\" is this node's alone";
    assert_eq!(told(&daemon.log(), no_store), 1);
    let (code, _, err) = run(&["serve"]);
    assert_eq!(code, 2);
    assert!(err.contains("--config is missing, and GLOBAL_RATE_LIMIT_THRESHOLD is not"), "{err}");
}

#[test]
fn a_file_of_custom_keys_is_in_force_when_it_changes_and_stays_so_when_it_is_away() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (policy, keys) = (folder.path().join("limits.toml"), folder.path().join("keys.csv"));
    let text = "[global_rate_limiter]\nglobal_threshold = 3\ncustom_keys_file = \"keys.csv\"\n";
    fs::write(&policy, text).expect("written");
    fs::write(&keys, "acme=7").expect("written");
    let daemon = Daemon::start(folder, &policy, &DOORS);
    let burst = |key: &str| {
        let body = json!({ "entries": { "key": key }, "cost": 0 }).to_string();
        daemon.http().post("/v1/check", &body).number("burst").expect("a limit applies")
    };
    let before = (burst("acme"), burst("apex"));
    fs::write(&keys, "apex=9").expect("written");
    wait_until("other keys", || (burst("acme"), burst("apex")) != before);
    let after = (burst("acme"), burst("apex"));
    assert!(after.0 < before.0 && after.1 > before.1, "{before:?} {after:?}");
    fs::remove_file(&keys).expect("removed");
    daemon.wait_for(|lines| {
        let kept = |line: &Value| line.to_string().contains("those before stay in force");
        lines.iter().any(kept)
    });
    assert_eq!((burst("acme"), burst("apex")), after);
    fs::write(&keys, "").expect("written");
    wait_until("no keys", || burst("apex") == burst("acme"));
    assert_eq!(burst("acme"), after.0);
}

#[test]
fn a_store_is_told_without_its_password_and_another_one_waits_for_the_next_start() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let policy = folder.path().join("limits.toml");
    let text = |sync: u64| {
        format!(
            "limit = []\n[tally]\nredis = [\"redis://:sesame@a\"]\nsync_interval = \"{sync}s\"\n"
        )
    };
    fs::write(&policy, text(9)).expect("written");
    let daemon = Daemon::start(folder, &policy, &DOORS);
    daemon.wait_to_say("limits are counted in stores");
    fs::write(&policy, text(8)).expect("written");
    daemon.wait_to_say("how stores are used has changed: it takes force with the next start");
    assert!(!format!("{:?}", daemon.log()).contains("sesame"));
    let help =
        tollgate().args(["serve", "--help"]).env("TOLLGATE_REDIS", "redis://:sesame@a").output();
    let help = String::from_utf8(help.expect("it was built").stdout).expect("text");
    assert!(help.contains("TOLLGATE_REDIS") && !help.contains("sesame"), "{help}");
    let (code, _, err) = run(&["serve", "--config", "x", "--redis", ":sesame@a"]);
    assert!(code == 2 && !err.contains("sesame"), "{err}");
    assert!(err.contains("--redis: URL 1 does not begin with redis://"), "{err}");
}
