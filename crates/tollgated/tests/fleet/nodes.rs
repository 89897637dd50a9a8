//! What people do to a fleet's nodes and stores from the command line.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Fleet, HUNDRED, ring_members};
use crate::support::{run, wait_until};

/// Runs the command line on a daemon: its exit code, and all that it said.
fn ask(door: SocketAddr, arguments: &[&str]) -> (i32, String) {
    let server = door.to_string();
    let (code, out, err) = run(&[arguments, &["--server", &server]].concat());
    (code, out + &err)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

#[test]
fn a_node_that_is_drained_owns_nothing_and_decides_on_until_it_gets_weight_again() {
    let mut fleet = Fleet::start(3);
    let (first, drained) = (fleet.daemon(0).http_address(), fleet.daemon(1).http_address());
    let (code, told) = ask(first, &["node", "drain", "2"]);
    assert!(code == 0 && told.contains("`tollgate node weight 2 1` undoes it"), "{told}");
    for member in fleet.running() {
        member.wait_for(|lines| ring_members(lines) == Some(2));
    }
    let (_, told) = ask(drained, &["node", "list"]);
    let line = told.lines().find(|line| line.trim_start().starts_with("2 "));
    assert!(line.is_some_and(|line| line.contains("drained")), "{told}");
    for tenant in 0..20 {
        let tenant = format!("tenant=t{tenant}");
        wait_until("it decides", || ask(drained, &["check", &tenant]).0 == 0);
    }
    // Somebody has to own the keys.
    assert_eq!(ask(first, &["node", "drain", "1"]).0, 0);
    let (code, told) = ask(first, &["node", "drain", "3"]);
    assert!(code == 3 && told.contains("only one that owns keys"), "{told}");
    for node in ["1", "2"] {
        assert_eq!(ask(first, &["node", "weight", node, "1"]).0, 0);
    }
    for member in fleet.running() {
        member.wait_for(|lines| ring_members(lines) == Some(3));
        let lost = "taken for lost";
        assert!(!member.running().log().iter().any(|line| line.to_string().contains(lost)));
    }
}

#[test]
fn a_node_that_is_dead_for_good_is_removed_and_one_that_lives_is_not() {
    let mut fleet = Fleet::start(3);
    let first = fleet.daemon(0).http_address();
    let (code, told) = ask(first, &["node", "remove", "3"]);
    assert!(code == 3 && told.contains("node 3 is a member: stop its process"), "{told}");
    fleet.daemon(2).kill9();
    fleet.daemon(0).wait_for(|lines| ring_members(lines) == Some(2));
    let (_, told) = ask(first, &["node", "list"]);
    assert!(told.lines().any(|line| line.contains("away") && line.ends_with("voter")), "{told}");
    let (code, told) = ask(first, &["node", "remove", "3"]);
    assert_eq!(code, 0, "{told}");
    wait_until("it is gone", || !ask(first, &["node", "list"]).1.contains("away"));
    let (code, told) = ask(first, &["node", "remove", "3"]);
    assert!(code == 3 && told.contains("nothing of node 3 to remove"), "{told}");
    // With its folder it is who it was.
    fleet.daemon(2).restart();
    fleet.wait_until_whole();
}

#[test]
fn a_fleet_whose_voters_are_lost_is_restored_from_a_backup_with_its_policies() {
    let mut fleet = Fleet::start(3);
    let folder = fleet.folder();
    let (file, data) = (folder.join("backup"), folder.join("member-0"));
    let (code, told) = ask(fleet.daemon(1).http_address(), &["store", "backup", text(&file)]);
    assert_eq!(code, 0, "{told}");
    let (code, told) = ask(fleet.daemon(1).http_address(), &["store", "backup", text(&file)]);
    assert!(code == 3 && told.contains("exists"), "{told}");
    for index in 0..3 {
        fleet.daemon(index).kill9();
    }
    let peer = fleet.daemon(0).peer().to_string();
    let restore = ["store", "restore", text(&file), "--data", text(&data), "--peer", &peer];
    let (code, _, told) = run(&restore);
    assert!(code == 3 && told.contains("the folder is not empty"), "{told}");
    // What a stopped replica has is a backup as well.
    let other = folder.join("other");
    let (code, _, told) = run(&["store", "backup", text(&other), "--data", text(&data)]);
    assert_eq!(code, 0, "{told}");
    for index in 0..3 {
        fs::remove_dir_all(folder.join(format!("member-{index}"))).expect("a folder");
    }
    let (code, told, err) = run(&restore);
    assert!(code == 0 && told.contains(&format!("--join {peer}")), "{told}{err}");
    comes_back(&mut fleet);
}

#[test]
fn a_fleet_goes_on_from_one_voter_of_three_when_told_so() {
    let mut fleet = Fleet::start(3);
    let (folder, peer) = (fleet.folder(), fleet.daemon(0).peer().to_string());
    let data = folder.join("member-0");
    let recover = ["node", "recover", "--data", text(&data), "--peer", &peer];
    let (code, _, told) = run(&[&recover[..], &["--yes"]].concat());
    assert!(code == 3 && told.contains("stop the daemon that uses it first"), "{told}");
    for index in 0..3 {
        fleet.daemon(index).kill9();
    }
    for index in 1..3 {
        fs::remove_dir_all(folder.join(format!("member-{index}"))).expect("a folder");
    }
    let (code, told, _) = run(&recover);
    assert!(code == 1 && told.contains("Nothing was changed: give --yes"), "{told}");
    let (code, told, err) = run(&[&recover[..], &["--yes"]].concat());
    assert!(code == 0 && told.contains(&format!("--join {peer}")), "{told}{err}");
    comes_back(&mut fleet);
}

/// The first member starts with what it has, the others with empty folders.
fn comes_back(fleet: &mut Fleet) {
    for index in 0..3 {
        fleet.daemon(index).restart();
    }
    fleet.wait_until_whole();
    let (_, told) = ask(fleet.daemon(2).http_address(), &["limit", "history"]);
    let last = told.lines().last().unwrap_or_default();
    assert!(last.trim_start().starts_with("1 ") && last.contains("import"), "{told}");
    let (code, told) = ask(fleet.daemon(1).http_address(), &["node", "list"]);
    // Numbers are never given twice.
    assert!(code == 0 && told.lines().any(|line| line.trim_start().starts_with("5 ")), "{told}");
}

/// Starts a member with this folder, which can't.
fn refused(data: &Path) -> String {
    let any = "127.0.0.1:0";
    let doors = ["--http", any, "--resp", "off", "--grpc", "off"];
    let (code, _, told) =
        run(&[&["serve", "--peer", any, "--data", text(data)], &doors[..]].concat());
    assert_eq!(code, 3, "{told}");
    told
}

#[test]
fn a_store_that_cant_be_used_is_named_with_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let store = folder.path().join("coordinator.redb");
    fs::write(&store, "not what was written").expect("a file can be written");
    let told = refused(folder.path());
    assert!(told.contains(text(folder.path())) && told.contains("coordinator.redb"), "{told}");
    assert!(told.contains("is damaged") && told.contains("join again with an empty one"), "{told}");
    assert_eq!(fs::read(&store).expect("it is there"), b"not what was written");

    let mut fleet = Fleet::start(1);
    fleet.daemon(0);
    let told = refused(&fleet.folder().join("member-0"));
    assert!(told.contains("open in another process"), "{told}");
    assert!(told.contains("stop the daemon that uses it first"), "{told}");
}

#[test]
fn a_disk_that_is_full_is_named() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let Some(_disk) = Disk::mount(folder.path(), "1m") else { return };
    let _ = fs::write(folder.path().join("filler"), vec![0; 1 << 20]);
    let told = refused(folder.path());
    assert!(told.contains("full") && told.contains("make room and start again"), "{told}");
}

#[test]
fn a_disk_that_fills_up_stops_changes_and_nothing_else() {
    let mut fleet = Fleet::with(0, Some(HUNDRED), &[]);
    let data = fleet.folder().join("member-0");
    fs::create_dir(&data).expect("a folder can be made");
    let Some(_disk) = Disk::mount(&data, "4m") else { return };
    let config = fleet.config();
    fleet.add(&["--config".into(), text(&config).into()]);
    let _ = fs::write(data.join("filler"), vec![0; 4 << 20]);
    let limit = |at| format!("[[limit]]\nname = \"limit-{at}\"\nkey = []\nrate = \"1/s\"\n");
    fs::write(&config, (0..3_000).map(limit).collect::<String>()).expect("a file can be written");
    let door = fleet.daemon(0).http_address();
    let apply = move |config: &Path| ask(door, &["limit", "apply", text(config)]);
    let first = config.clone();
    // Whether this one has taken force nobody knows for a while.
    std::thread::spawn(move || apply(&first));
    fleet.member(0).wait_for(|lines| {
        let stopped = "this replica has stopped";
        lines.iter().any(|line| line.to_string().contains(stopped))
    });
    let (code, told) = apply(&config);
    let what = "mend this and start its daemon again";
    assert!(code == 3 && told.contains(what) && told.contains("full"), "{told}");
    assert_eq!(ask(door, &["check", "tenant=acme"]).0, 0);
    fleet.daemon(0).kill9();
    fs::remove_file(data.join("filler")).expect("it is there");
    fleet.daemon(0).restart();
    let door = fleet.daemon(0).http_address();
    let (code, told) = ask(door, &["limit", "apply", text(&config)]);
    assert_eq!(code, 0, "{told}");
}

/// A small file system of its own; unmounted when this is dropped.
struct Disk(PathBuf);

impl Disk {
    /// Nothing if this process may not mount one.
    fn mount(at: &Path, size: &str) -> Option<Self> {
        let size = format!("size={size}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs", text(at)]).output();
        if !mounted.is_ok_and(|mounted| mounted.status.success()) {
            eprintln!("skipped: no file system can be mounted here");
            return None;
        }
        Some(Self(at.into()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a daemon may have files there yet.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_daemon_whose_door_is_taken_does_not_join() {
    let mut fleet = Fleet::start(1);
    let (door, peer) = (fleet.daemon(0).http_address(), fleet.daemon(0).peer());
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (taken, peer) = (door.to_string(), peer.to_string());
    let words = ["serve", "--peer", "127.0.0.1:0", "--data", text(folder.path())];
    let doors = ["--join", &peer, "--http", &taken, "--resp", "off", "--grpc", "off"];
    let (code, _, told) = run(&[&words[..], &doors[..]].concat());
    assert!(code == 3 && told.contains("cannot listen at"), "{told}");
    let (_, told) = ask(door, &["node", "list"]);
    assert_eq!(told.lines().count(), 2, "{told}");
}
