//! `tollgate plan`: the numbers that are told, the page, and wrong words.

use serde_json::Value;

use crate::support::run;

const EXAMPLE: [&str; 9] =
    ["plan", "--rate", "5000/s", "--burst", "10000", "--workers", "20", "--delay", "1ms"];

fn with<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [&EXAMPLE[..], words].concat()
}

#[test]
fn a_plan_is_told_in_lines_that_fit_a_terminal() {
    let (code, out, err) = run(&EXAMPLE);
    assert_eq!((code, err.as_str()), (0, ""));
    for (name, value) in [
        ("limit", "5000/s, burst 10,000"),
        ("fleet", "20 workers"),
        ("promise", "10,000 + 5,000/s"),
        ("worst excess", "14,500"),
        ("", "4,000"),
        ("local cap", "200"),
        ("  at least", "23"),
        ("  one worker", "100 %"),
        ("served again", "600.2 ms"),
        ("", "2.2 s"),
        ("a worker sends", "29,000 entries/s"),
        ("", "4,000 messages/s"),
        ("", "2.9 MB/s"),
        ("the fleet sends", "117.8 MB/s"),
    ] {
        let begins = format!("{name:15}  {value} ");
        assert!(out.lines().any(|line| line.starts_with(&begins)), "no {begins:?} in {out}");
    }
    assert!(out.lines().all(|line| line.len() <= 100), "{out}");
    assert!(!out.contains("warning") && !out.contains('\x1b'), "{out}");
}

#[test]
fn a_plan_warns_of_what_should_be_changed_and_still_is_one() {
    let (code, out, _) = run(&with(&["--local-cap", "10"]));
    let told = "\nwarning: local_cap = 10 is less than the rate brings in a round trip of 4.5 ms: \
                a worker that has all the traffic reaches 44 % of the rate; set local_cap to 23 or \
                more\n";
    assert!(code == 0 && out.ends_with(told), "{out}");
}

#[test]
fn a_plan_is_told_to_programs_in_json() {
    let (code, out, _) = run(&with(&["--json", "--overlap", "0s", "--local-cap", "10"]));
    let body: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(
        (code, &body["worst_excess"], &body["least_local_cap"]),
        (0, &200.into(), &23.into())
    );
    assert_eq!(body["served_again_after_kill_us"], 600_200);
    assert_eq!(body["warnings"].as_array().expect("a list").len(), 1);
}

#[test]
fn a_plan_is_a_page_that_needs_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("plan.html");
    let name = path.to_str().expect("a plain path");
    let (code, out, _) = run(&with(&["--html", name]));
    assert!(code == 0 && out.ends_with(&format!("\nwritten: {name}\n")), "{out}");
    let page = std::fs::read_to_string(&path).expect("it was written");
    for part in ["<!doctype html>", "A limit of 5000/s, burst 10,000, on 20 workers", "<svg"] {
        assert!(page.contains(part), "{part}");
    }
    for part in ["least sensible: 23", "default: 200", "<td>14,500</td>", "local cap 200 units"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<script") && !page.contains("http:"), "it needs something");
    let (code, out, err) = run(&with(&["--html", "/nowhere/plan.html"]));
    assert_eq!((code, out.as_str()), (3, ""));
    assert!(err.starts_with("error: /nowhere/plan.html: No such file"), "{err}");
}

#[test]
fn a_plan_of_wrong_words_says_which_and_why() {
    for (word, value, why) in [
        ("--rate", "5000", "must be units/period such as"),
        ("--rate", "zero", "nothing ever comes back"),
        ("--burst", "0", "0 is not in 1.."),
        ("--workers", "0", "0 is not in 1..=100000"),
        ("--delay", "1.5ms", "must be a whole number of ns, us, ms or s"),
        ("--delay", "2d", "must be a whole number of ns, us, ms or s"),
        ("--delay", "3601s", "must be at most an hour"),
    ] {
        let mut words = EXAMPLE;
        let at = words.iter().position(|known| *known == word).expect("it is there") + 1;
        words[at] = value;
        let (code, out, err) = run(&words);
        assert_eq!((code, out.as_str()), (2, ""), "{word} {value}: {err}");
        assert!(err.contains(word) && err.contains(why), "{word} {value}: {err}");
    }
    for (words, why) in [
        (["--interval", "0ms"], "must not be 0"),
        (["--hot-keys", "1001"], "--hot-keys 1001: there are only 1000 keys"),
    ] {
        let (code, out, err) = run(&with(&words));
        assert_eq!((code, out.as_str()), (2, ""), "{err}");
        assert!(err.contains(words[0]) && err.contains(why), "{err}");
    }
    let (code, _, err) = run(&["plan", "--rate", "5000/s"]);
    assert!(code == 2 && err.contains("--workers") && err.contains("--delay"), "{err}");
}

#[test]
fn the_documented_plan_is_what_is_told() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/plan.md");
    let document = std::fs::read_to_string(path).expect("it is there");
    let shown = document.split("```console\n$ tollgate ").nth(1).expect("an example");
    let (command, shown) = shown.split_once('\n').expect("a command");
    let words: Vec<&str> = command.split(' ').collect();
    let (code, out, _) = run(&words);
    assert_eq!((code, Some(out.as_str())), (0, shown.split("```").next()));
}
