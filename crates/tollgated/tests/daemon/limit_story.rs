//! What happens to a fleet's limits from the command line, told once for whatever serves them.

use std::path::Path;

/// What a run of the binary with these words comes to: exit code, stdout, stderr.
pub(crate) type Run<'a> = &'a dyn Fn(&[&str]) -> (i32, String, String);

/// Changes the limits of a fleet that has none yet; `server` is the HTTP door of a member.
pub(crate) fn limits_of_a_fleet(server: &str, folder: &Path, run: Run<'_>) {
    let limit = |words: &[&str]| run(&[&["limit"], words, &["--server", server]].concat());
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("a plain path").to_owned()
    };
    let one = file("one.toml", "[[limit]]\nname = \"api\"\nkey = [\"tenant\"]\nrate = \"10/s\"\n");
    let (code, out, err) = limit(&["history"]);
    assert!(code == 0 && out.starts_with("no policy was ever put"), "{out}{err}");

    // The first policy: shown, tried, put; then it is there already.
    let (code, out, _) = limit(&["diff", &one]);
    let added = "+ default/api: rate 10/s, burst 10, key tenant\n1 added, 0 removed, 0 changed, 0 ";
    assert!(code == 1 && out.starts_with(added), "{out}");
    let (code, out, _) = limit(&["apply", &one, "--dry-run"]);
    assert!(code == 0 && out.ends_with("revision 0 stays in force\n"), "{out}");
    let (code, out, err) = limit(&["apply", &one, "--comment", "begin", "--author", "ada"]);
    assert!(code == 0 && out.ends_with("ok, revision 1 is in force in the fleet\n"), "{out}{err}");
    assert_eq!(limit(&["diff", &one]).0, 0);
    let (code, out, _) = limit(&["apply", &one]);
    assert_eq!((code, &*out), (0, "revision 1 says the same already: nothing was changed\n"));

    // What is printed is a file that changes nothing.
    let (code, out, _) = limit(&["get"]);
    assert!(code == 0 && out.contains("by \"ada\": begin"), "{out}");
    let printed = file("printed.toml", &out);
    assert_eq!(limit(&["diff", &printed]).0, 0);

    // Another one, in another dialect; mistakes and other people's changes are refused.
    let yaml = "domain: edge\ndescriptors:\n- key: tenant\n  rate_limit: { unit: day, \
                requests_per_unit: 5, name: Per Day }\n";
    let two = file("two.yaml", yaml);
    let (code, _, err) = limit(&["apply", &two, "--expect", "7"]);
    assert!(code == 1 && err.contains("revision 1 is in force, and not 7"), "{err}");
    let (code, out, _) = limit(&["apply", &two, "--expect", "1"]);
    assert!(code == 0 && out.contains("- default/api\n+ edge/tenant: rate 5/d, burst 5"), "{out}");
    assert!(out.ends_with("    `tollgate limit rollback 1` undoes it\n"), "{out}");
    let wrong = file("wrong.toml", "[[limit]]\nname = \"api\"\nrate = \"10\"\n");
    let (code, out, err) = limit(&["apply", &wrong]);
    let told = "wrong.toml:3:8: error: limit \"api\": rate";
    assert!(code == 1 && out.contains(told), "{out}{err}");
    let (code, out, err) = limit(&["get", "--format", "toml"]);
    assert!(code == 3 && out.is_empty() && err.contains("ask for JSON"), "{err}");
    let (code, out, _) = limit(&["get"]);
    assert!(code == 0 && out.starts_with('{'), "{out}");
    // Whatever its name is.
    for name in ["printed.json", "printed"] {
        let (code, out, _) = limit(&["diff", &file(name, &out)]);
        assert!(code == 0 && out.starts_with("revision 2, which is in force"), "{name}: {out}");
    }

    // Back.
    let (code, out, err) = limit(&["rollback", "1", "--author", "bea"]);
    assert!(code == 0 && out.contains("ok, revision 3 is in force"), "{out}{err}");
    let (code, out, _) = limit(&["rollback", "1"]);
    assert!(
        code == 0 && out.contains("revision 3, which is in force, says the same as 1"),
        "{out}"
    );
    let (code, _, err) = limit(&["rollback", "9"]);
    assert!(code == 3 && err.contains("404") && err.contains("revision 9 was never put"), "{err}");
    let (code, out, _) = limit(&["get", "--revision", "2", "--format", "json"]);
    assert!(code == 0 && out.contains("\"Per Day\""), "{out}");
    let (_, out, _) = limit(&["history"]);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 4, "{out}");
    assert!(lines[0].starts_with("revision  put "), "{out}");
    assert!(lines[1].starts_with("       3  ") && lines[1].ends_with("  bea"), "{out}");
    assert!(lines[3].starts_with("       1  ") && lines[3].ends_with("  ada  begin"), "{out}");
}
