//! What the style guide can have a machine look at, and the invariants that are visible in the
//! text.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn files(folder: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut found = Vec::new();
    let mut folders = vec![root];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of the crate") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let text = fs::read_to_string(&path).expect("a text file");
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty());
    found
}

fn all() -> Vec<(PathBuf, String)> {
    let (daemon, simulator) = ("../tollgated/src", "../tollgate-sim/src");
    let drivers = ["../tollgate-tokio/src", "../tollgate-redis/src", "../tollgate-redis/tests"];
    let own = ["src", "tests", "examples", daemon, simulator];
    own.into_iter().chain(drivers).flat_map(files).collect()
}

fn name(path: &Path) -> String {
    path.file_stem().expect("a file").to_string_lossy().into_owned()
}

/// The text before the file's unit tests.
fn product(text: &str) -> &str {
    let end =
        ["#[cfg(test)]\nmod", "#[cfg(all(test"].iter().filter_map(|tests| text.find(tests)).min();
    &text[..end.unwrap_or(text.len())]
}

#[test]
fn every_file_opens_with_what_it_is_for() {
    for (path, text) in all() {
        assert!(text.starts_with("//! "), "{} has no //! header", path.display());
    }
}

#[test]
fn files_functions_and_lines_are_short() {
    for (path, text) in all() {
        let shown = path.display();
        assert!(text.lines().count() <= 800, "{shown} is longer than 800 lines");
        assert!(product(&text).lines().count() <= 560, "{shown} has too much in it");
        for (index, line) in text.lines().enumerate() {
            assert!(line.chars().count() <= 100, "{shown}:{} is too wide", index + 1);
        }
        let lines: Vec<&str> = text.lines().collect();
        for (start, line) in lines.iter().enumerate() {
            let body = line.trim_start();
            let indent = line.len() - body.len();
            let is_function =
                ["fn ", "pub fn ", "pub(crate) fn "].iter().any(|f| body.starts_with(f));
            if !is_function || line.trim_end().ends_with(['}', ';']) {
                continue;
            }
            let close = format!("{}}}", " ".repeat(indent));
            let length = lines[start..].iter().position(|line| *line == close).unwrap_or(0);
            assert!(length <= 70, "{shown}:{} is a function of {length} lines", start + 1);
        }
    }
}

#[test]
fn atomics_are_in_one_file_and_the_clock_in_another() {
    for (path, text) in files("src") {
        let only = |what: &str, places: &str| {
            let here = product(&text).contains(what);
            let may = places.split(' ').any(|place| place == name(&path));
            assert!(!here || may, "{what} in {}", path.display());
        };
        // The mutant in force is chosen in test builds alone, and not for loom to try.
        only("sync::atomic", "cell mutant");
        only("quanta::", "time");
        only("std::time::Instant", "time");
        only("SystemTime", "time");
        only("RandomState", "key");
        only("unsafe ", "time cell zeroed table handle");
        only("std::net", "nowhere");
        only("std::fs", "nowhere");
        only("thread::spawn", "loom_tests");
        only("sleep(", "nowhere");
    }
}

#[test]
fn a_module_uses_only_modules_above_it() {
    let others = ["../tollgated", "../tollgate-sim", "../tollgate-tokio", "../tollgate-redis"];
    for crate_root in ["."].into_iter().chain(others).map(|root| format!("{root}/src")) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(&crate_root);
        let list = fs::read_to_string(root.join("lib.rs")).expect("lib.rs");
        let order: Vec<String> = list
            .lines()
            .filter_map(|line| {
                let line = line.trim_start_matches("pub ");
                Some(line.strip_prefix("mod ")?.strip_suffix(';')?.to_owned())
            })
            .collect();
        let place = |name: &str| order.iter().position(|module| module == name);
        for (path, text) in files(&crate_root) {
            // A folder is one module to the others.
            let inside = path.strip_prefix(&root).expect("a file of the crate");
            let top = inside.components().next().expect("a name").as_os_str();
            let Some(own) = place(&name(Path::new(top))) else { continue };
            for used in product(&text).split("crate::").skip(1) {
                let end = |c: char| !c.is_ascii_lowercase() && c != '_';
                let used = used.split(end).next().unwrap_or("");
                if let Some(place) = place(used) {
                    assert!(place <= own, "{} uses {used}, which is below it", path.display());
                }
            }
        }
    }
}

#[test]
fn every_mutant_has_a_test_and_every_test_its_mutant() {
    let read = |list: &str| {
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(list)).expect("a list")
    };
    // Tests of one process, and schedules of a fleet.
    let list = read("tests/mutants.txt") + &read("../tollgate-sim/mutants.txt");
    let listed: BTreeSet<&str> = list
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let texts: Vec<(PathBuf, String)> =
        ["src", "../tollgated/src"].into_iter().flat_map(files).collect();
    let in_code: BTreeSet<&str> = texts
        .iter()
        .flat_map(|(_, text)| text.split("lacks(\"").skip(1))
        .filter_map(|rest| rest.split('"').next())
        .collect();
    let alone: Vec<_> = in_code.symmetric_difference(&listed).collect();
    assert!(alone.is_empty(), "in the list or in the code, but not in both: {alone:?}");
}

#[test]
fn the_dependency_list_fits_on_three_lines() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let text = fs::read_to_string(manifest).expect("the manifest");
    let list = text.split("[dependencies]\n").nth(1).expect("a dependency list");
    let count = list.lines().take_while(|line| !line.is_empty()).count();
    assert!(count <= 3, "{count} dependencies");
}
