//! `tollgate sim`: what is told of a run, the page, the exit codes, and mistakes with their places.

use std::path::Path;

use serde_json::Value;

use crate::support::run;

const SOUND: &str = "\
nodes = 3
lasts = \"2s\"
[[limit]]
name = \"api\"
rate = \"100/s\"
burst = 20
[[demand]]
limit = \"api\"
key = \"acme\"
rate = \"300/s\"
[[fault]]
at = \"1s\"
crash = { owner_of = \"api/acme\", back_after = \"500ms\" }
";

/// A scenario in a folder of its own.
fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("crash.toml");
    std::fs::write(&path, text).expect("written");
    let path = path.to_str().expect("a plain path").to_owned();
    (folder, path)
}

fn example(name: &str) -> String {
    format!("{}/../../examples/scenarios/{name}.toml", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_run_tells_what_was_promised_and_seen_and_ends_with_0_if_it_held() {
    let (_folder, path) = file(SOUND);
    let (code, out, err) = run(&["sim", &path]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    for part in ["crash ", "3 nodes, 2 s", " killed, for 500 ms", "api/acme: held", " messages/s"] {
        assert!(out.contains(part), "no {part:?} in {out}");
    }
    assert!(out.contains("  promise       20 + 100/s x t  "), "{out}");
    for name in ["worst window", "used", "admitted"] {
        assert!(out.lines().any(|line| line.starts_with(&format!("  {name}"))), "{out}");
    }
    assert!(out.lines().all(|line| line.len() <= 100), "{out}");
    // The same seed is the same run, another one is not.
    assert_eq!(run(&["sim", &path, "--seed", "1"]).1, out);
    assert_ne!(run(&["sim", &path, "--seed", "2"]).1, out);
}

#[test]
fn a_run_is_told_to_programs_in_json() {
    let (_folder, path) = file(SOUND);
    let (code, out, _) = run(&["sim", &path, "--json"]);
    let body: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &body["held"], &body["seed"]), (0, &true.into(), &1.into()));
    let key = &body["keys"][0];
    assert_eq!((&key["limit"], &key["key"]), (&"api".into(), &"acme".into()));
    assert!(key["worst_excess"].as_f64().expect("a number") <= 0.0);
    assert!(key["admitted"].as_u64() <= key["offered"].as_u64());
    assert_eq!(body["nodes"].as_array().expect("a list").len(), 3);
    assert_eq!(body["faults"][0]["at_us"], 1_000_000);
}

#[test]
fn a_run_is_a_page_that_needs_nothing_else() {
    let (folder, path) = file(SOUND);
    let page = folder.path().join("page.html");
    let name = page.to_str().expect("a plain path");
    let (code, out, _) = run(&["sim", &path, "--html", name]);
    assert!(code == 0 && out.ends_with(&format!("\nwritten: {name}\n")), "{out}");
    let page = std::fs::read_to_string(&page).expect("it was written");
    for part in [
        "<!doctype html>",
        "Simulation: crash",
        "The promise held",
        "api/acme: offered and admitted",
        "api/acme: how near to the promise",
        "api/acme: admitted by each node",
        "Messages between nodes",
        "R, the rate",
        " is back",
        "<td>node 3</td>",
    ] {
        assert!(page.contains(part), "{part}");
    }
    for outside in ["<script", "<link", "<img", "http:", "https:", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    let (code, out, err) = run(&["sim", &path, "--html", "/nowhere/page.html"]);
    assert_eq!((code, out.as_str()), (3, ""));
    assert!(err.starts_with("error: /nowhere/page.html: No such file"), "{err}");
}

#[test]
fn a_scenario_with_mistakes_is_told_each_with_its_place() {
    let (_folder, path) =
        file(&SOUND.replace("burst", "brust").replace("owner_of = \"api/acme\"", "node = 9"));
    let (code, out, err) = run(&["sim", &path]);
    let expected = format!(
        "{path}:6:1: error: unknown field `brust`; did you mean `burst`?\n\
         {path}:13:18: error: there is no node 9: they are numbered from 1 to 3\n"
    );
    assert_eq!((code, out.as_str(), err), (2, "", expected));
    let (code, out, err) = run(&["sim", "/nowhere.toml"]);
    assert_eq!((code, out.as_str()), (3, ""));
    assert!(err.starts_with("error: /nowhere.toml: No such file"), "{err}");
}

#[test]
fn the_examples_hold() {
    for name in ["noisy-neighbour", "owner-crash", "slow-network"] {
        assert!(Path::new(&example(name)).exists());
        let (code, out, err) = run(&["sim", &example(name)]);
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        assert!(out.contains(": held\n") && !out.contains("broken"), "{out}");
    }
}
