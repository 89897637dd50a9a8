//! Where a daemon listens: ports, Unix sockets, and what it does when it may not.

use std::os::unix::net::UnixListener;

use crate::support::{Daemon, Http, Resp, TEN, connect_unix, run};

/// A folder with a policy in it, and the path of that.
fn policy() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("limits.toml");
    std::fs::write(&file, TEN).expect("written");
    let path = file.to_str().expect("a plain path").to_owned();
    (folder, path)
}

#[test]
fn both_doors_open_at_unix_sockets_which_are_gone_when_the_daemon_is() {
    let (folder, config) = policy();
    let at = |name: &str| folder.path().join(name);
    let (http, resp) = (at("http.sock"), at("resp.sock"));
    // What a daemon left that was killed.
    drop(UnixListener::bind(&http).expect("bound"));
    assert!(http.exists());
    let door = |path: &std::path::Path| format!("unix:{}", path.display());
    let options = ["--http", &door(&http), "--resp", &door(&resp)];
    let mut daemon = Daemon::start(folder, config.as_ref(), &options);
    assert_eq!(Http::new(connect_unix(&http)).check("acme").left(), (200, Some(9)));
    assert_eq!(Resp::new(connect_unix(&resp)).throttle(b"k").left(), (true, 9));
    let words = ["check", "tenant=acme", "--server", &door(&http)];
    let (code, out, _) = run(&words);
    assert_eq!((code, out.as_str()), (0, "allowed by api, 8 of 10 left\n"));
    // A second one does not take the place of one that runs.
    let (code, _, log) =
        run(&["serve", "--config", &config, "--http", &door(&http), "--resp", "off"]);
    assert_eq!(code, 3);
    assert!(log.contains("cannot listen at unix:") && log.contains("in use"), "{log}");
    assert_eq!(Http::new(connect_unix(&http)).check("acme").left(), (200, Some(7)));
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(!http.exists() && !resp.exists());
}

/// A mistyped path must not cost a file.
#[test]
fn a_file_that_is_no_socket_is_left_as_it_is() {
    let (folder, config) = policy();
    let precious = folder.path().join("precious");
    std::fs::write(&precious, "all we have").expect("written");
    let door = format!("unix:{}", precious.display());
    let (code, _, log) = run(&["serve", "--config", &config, "--http", &door, "--resp", "off"]);
    assert_eq!(code, 3);
    assert!(log.contains("cannot listen at unix:"), "{log}");
    assert_eq!(std::fs::read_to_string(&precious).expect("it is there"), "all we have");
}

#[test]
fn an_address_in_use_is_told_and_ends_the_start() {
    let daemon = Daemon::new(TEN);
    let (folder, config) = policy();
    let taken = daemon.door("resp").to_string();
    let (code, _, log) =
        run(&["serve", "--config", &config, "--http", "127.0.0.1:0", "--resp", &taken]);
    assert_eq!(code, 3);
    let expected = format!("error: cannot listen at {taken}: Address already in use");
    assert!(log.contains(&expected), "{log}");
    drop(folder);
    assert_eq!(daemon.http().get("/healthz").status, 200);
}

#[test]
fn what_other_machines_could_reach_needs_a_secret() {
    let (folder, config) = policy();
    let secret = folder.path().join("secret");
    let secret_path = secret.to_str().expect("a plain path").to_owned();
    for (http, resp) in [("0.0.0.0:0", "off"), ("off", "[::]:0"), ("127.0.0.1:0,0.0.0.0:0", "off")]
    {
        let (code, _, log) = run(&["serve", "--config", &config, "--http", http, "--resp", resp]);
        assert_eq!(code, 2, "{http} {resp}");
        assert!(log.contains("other machines could use this; give --secret-file"), "{log}");
    }
    let serve = ["serve", "--config", &config, "--http", "0.0.0.0:0", "--resp", "off"];
    let (code, _, log) = run(&[&serve[..], &["--secret-file", &secret_path]].concat());
    assert!(code == 3 && log.contains("secret: No such file"), "{log}");
    std::fs::write(&secret, " \n").expect("written");
    let (code, _, log) = run(&[&serve[..], &["--secret-file", &secret_path]].concat());
    assert!(code == 3 && log.contains("holds no secret"), "{log}");
    std::fs::write(&secret, "sesame").expect("written");
    let options = ["--http", "0.0.0.0:0", "--resp", "off", "--secret-file", &secret_path];
    let daemon = Daemon::start(folder, config.as_ref(), &options);
    let port = daemon.door("http").port();
    let here = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    assert_eq!(Http::new(crate::support::connect(here)).check("acme").status, 401);
}

#[test]
fn a_door_may_be_shut_or_open_at_several_places() {
    let (folder, config) = policy();
    let serve = ["serve", "--config", &config, "--http"];
    let (code, _, log) = run(&[&serve[..], &["off", "--resp", "off"]].concat());
    assert!(code == 2 && log.contains("all off: nobody could ask"), "{log}");
    let (code, _, log) = run(&[&serve[..], &["here", "--resp", "off"]].concat());
    assert!(code == 2 && log.contains("must be an address and a port"), "{log}");
    let second = format!("unix:{}", folder.path().join("second.sock").display());
    let places = ["--http", "127.0.0.1:0", "--http", &second, "--resp", "off"];
    let path = folder.path().join("second.sock");
    let daemon = Daemon::start(folder, config.as_ref(), &places);
    assert_eq!(daemon.http().check("acme").left(), (200, Some(9)));
    assert_eq!(Http::new(connect_unix(&path)).check("acme").left(), (200, Some(8)));
}
