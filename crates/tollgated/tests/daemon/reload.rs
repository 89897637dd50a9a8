//! The policy file changes while the daemon runs: what was used stays used, and a file that is
//! wrong changes nothing.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::Value;

use crate::http::entries;
use crate::support::{Daemon, run, says, tollgate, wait_until};

fn policy(count: u64, comment: &str) -> String {
    format!("# {comment}\n[[limit]]\nname = \"api\"\nkey = [\"tenant\"]\nrate = \"{count}/d\"\n")
}

/// Writes a file as careful programs do: whole, by a rename.
fn replace(path: &Path, text: &str) {
    let fresh = path.with_extension("toml.new");
    fs::write(&fresh, text).expect("written");
    fs::rename(&fresh, path).expect("renamed");
}

fn revision(daemon: &Daemon) -> u64 {
    daemon.http().get("/v1/limits").number("revision").expect("a number")
}

/// Waits for the next revision after `change`.
fn in_force_after(daemon: &Daemon, change: impl FnOnce()) {
    let before = loads(daemon, "ok");
    change();
    wait_until("a reload", || loads(daemon, "ok") > before);
}

fn loads(daemon: &Daemon, result: &str) -> u64 {
    daemon.metric(&format!("tollgate_config_loads_total{{result=\"{result}\"}}"))
}

/// What the tenant has left.
fn left(daemon: &Daemon) -> u64 {
    let zero = daemon.http().post("/v1/check", entries("acme", ",\"cost\":0"));
    zero.number("remaining").expect("a limit applies")
}

/// Ten used of ten; then only a comment changes, the limit is raised, lowered, and as before.
#[test]
fn what_was_used_stays_used_when_the_limit_is_raised_lowered_and_put_back() {
    let daemon = Daemon::new(&policy(10, "first"));
    let file = daemon.folder().join("limits.toml");
    let all = daemon.http().post("/v1/check", entries("acme", ",\"cost\":10"));
    assert_eq!(all.left(), (200, Some(0)));
    let before = revision(&daemon);
    in_force_after(&daemon, || replace(&file, &policy(10, "only a comment")));
    assert_eq!((left(&daemon), daemon.http().check("acme").status), (0, 429));
    // An editor works beside the file, and then writes it in place.
    in_force_after(&daemon, || {
        fs::write(daemon.folder().join(".limits.toml.swp"), "b0VIM").expect("written");
        fs::write(daemon.folder().join("limits.toml~"), policy(10, "backup")).expect("written");
        fs::write(&file, policy(20, "raised")).expect("written");
    });
    assert_eq!(left(&daemon), 10);
    in_force_after(&daemon, || replace(&file, &policy(5, "lowered")));
    assert_eq!(left(&daemon), 0);
    assert_eq!(daemon.http().check("acme").left(), (429, Some(0)));
    in_force_after(&daemon, || replace(&file, &policy(10, "back")));
    assert_eq!(left(&daemon), 0);
    assert!(revision(&daemon) > before);
    assert_eq!(loads(&daemon, "error"), 0);
}

/// A mounted configuration map changes by a swap of the link that all its files lead through.
#[test]
fn a_mounted_folder_whose_data_link_is_swapped_is_loaded() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let at = |name: &str| folder.path().join(name);
    for (version, count) in [("..2026_01", 10), ("..2026_02", 20)] {
        fs::create_dir(at(version)).expect("made");
        fs::write(at(version).join("limits.toml"), policy(count, "mounted")).expect("written");
    }
    symlink("..2026_01", at("..data")).expect("linked");
    symlink("..data/limits.toml", at("limits.toml")).expect("linked");
    let path = folder.path().to_owned();
    let daemon = Daemon::at(folder, &path, &[]);
    let all = daemon.http().post("/v1/check", entries("acme", ",\"cost\":10"));
    assert_eq!(all.left(), (200, Some(0)));
    in_force_after(&daemon, || {
        symlink("..2026_02", path.join("..data_tmp")).expect("linked");
        fs::rename(path.join("..data_tmp"), path.join("..data")).expect("swapped");
        fs::remove_dir_all(path.join("..2026_01")).expect("removed");
    });
    assert_eq!(left(&daemon), 10);
    assert_eq!(loads(&daemon, "error"), 0);
}

#[test]
fn an_invalid_file_leaves_the_limits_before_in_force_and_is_visible_until_it_is_right() {
    let daemon = Daemon::new(&policy(10, "good"));
    let file = daemon.folder().join("limits.toml");
    assert_eq!(daemon.http().check("acme").left(), (200, Some(9)));
    let before = revision(&daemon);
    assert_eq!(daemon.metric("tollgate_config_valid"), 1);
    for wrong in ["[[limit]]\nname = \"api\"\nrat = \"5/d\"\n", "", "[[limit", "\u{0}"] {
        let errors = loads(&daemon, "error");
        replace(&file, wrong);
        wait_until("a failed reload", || loads(&daemon, "error") > errors);
        assert_eq!(daemon.metric("tollgate_config_valid"), 0);
        let limits = daemon.http().get("/v1/limits").json();
        assert_eq!(
            (&limits["config"]["valid"], &limits["revision"]),
            (&false.into(), &before.into())
        );
        let errors = limits["config"]["errors"].as_array().expect("a list");
        assert!(!errors.is_empty() && limits["limits"].as_array().expect("a list").len() == 1);
        assert!(errors[0].as_str().expect("a text").contains("limits.toml:"), "{errors:?}");
        assert_eq!(left(&daemon), 9);
    }
    let misspelt = |line: &Value| {
        line["level"] == "ERROR" && line.to_string().contains("limits.toml:3:1: unknown")
    };
    daemon.wait_for(|log| log.iter().any(misspelt));
    daemon.wait_to_say("the limits before stay in force");
    let errors = loads(&daemon, "error");
    fs::remove_file(&file).expect("removed");
    wait_until("a missing file", || loads(&daemon, "error") > errors);
    assert_eq!((left(&daemon), daemon.http().check("acme").status), (9, 200));
    in_force_after(&daemon, || replace(&file, &policy(20, "right")));
    assert_eq!((left(&daemon), daemon.metric("tollgate_config_valid")), (18, 1));
    let limits = daemon.http().get("/v1/limits").json();
    assert_eq!(limits["config"]["errors"], Value::Array(Vec::new()));
}

#[test]
fn a_hang_up_loads_the_file_even_if_it_looks_the_same() {
    let daemon = Daemon::new(&policy(10, "good"));
    // At once, before the daemon has had time for anything but to say that it listens.
    daemon.signal("HUP");
    wait_until("a second reading", || loads(&daemon, "ok") == 2);
    daemon.signal("HUP");
    wait_until("a third reading", || loads(&daemon, "ok") == 3);
    assert_eq!(daemon.http().check("acme").left(), (200, Some(9)));
}

#[test]
fn a_limit_that_is_taken_out_no_longer_denies_and_one_that_comes_does() {
    let daemon = Daemon::new(&policy(10, "good"));
    let file = daemon.folder().join("limits.toml");
    daemon.http().post("/v1/check", entries("acme", ",\"cost\":10"));
    in_force_after(&daemon, || replace(&file, "limit = []\n"));
    let answer = daemon.http().check("acme");
    assert_eq!((answer.status, &answer.json()["limit"]), (200, &Value::Null));
    in_force_after(&daemon, || replace(&file, &policy(3, "another")));
    let all = daemon.http().post("/v1/check", entries("acme", ",\"cost\":4"));
    assert_eq!((all.status, all.number("burst")), (413, Some(3)));
}

#[test]
fn a_daemon_whose_policy_is_missing_or_wrong_does_not_start_and_says_why() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("limits.toml");
    let path = file.to_str().expect("a plain path");
    let serve = ["serve", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--config", path];
    let (code, _, log) = run(&serve);
    assert_eq!(code, 3);
    assert!(log.contains("limits.toml:1:1: cannot be read: No such file"), "{log}");
    fs::write(&file, "[[limit]]\nname = \"api\"\nrate = \"fast\"\n").expect("written");
    let (code, _, log) = run(&serve);
    assert_eq!(code, 3);
    assert!(log.contains("limits.toml:3:8: "), "{log}");
    let empty = tempfile::tempdir().expect("a folder can be made");
    let output = tollgate().arg("serve").env("TOLLGATE_CONFIG", empty.path()).output();
    let output = output.expect("it was built");
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("holds no .toml or .yaml files"));
}

#[test]
fn a_change_of_limits_under_load_fails_no_request() {
    let daemon = Daemon::new(&policy(1_000_000, "first"));
    let file = daemon.folder().join("limits.toml");
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut http = daemon.http();
                    for _ in 0..500 {
                        assert_eq!(http.check("acme").status, 200);
                    }
                })
            })
            .collect();
        let mut count = 0;
        while clients.iter().any(|client| !client.is_finished()) {
            count += 1;
            replace(&file, &policy(1_000_000 + count, "again"));
            daemon.signal("HUP");
            std::thread::yield_now();
        }
        for client in clients {
            client.join().expect("every request was answered");
        }
    });
    assert!(!daemon.log().iter().any(|line| says(line, "the limits before stay")));
    let allowed = "tollgate_decisions_total{face=\"http\",decision=\"allowed\",reason=\"\"}";
    assert_eq!(daemon.metric(allowed), 2_000);
}
