//! The commands against a daemon with an agreement of its own, over a socket.

use std::net::SocketAddr;
use std::sync::Arc;

use clap::Parser;

use super::*;
use crate::agreement::{Agreement, Alone, ProposeError};
use crate::app::App;
use crate::cli::{Arguments, Command as Any};
use crate::face::Face;
use crate::net::{self, Address, Bound};

#[path = "../../../tests/daemon/limit_story.rs"]
mod limit_story;

/// A member of a fleet that is no other's, as long as this lives.
struct Member {
    address: SocketAddr,
    app: Arc<App>,
    stop: tokio::sync::watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Member {
    fn new(agreement: Option<Arc<dyn Agreement>>) -> Self {
        let (mut app, _) = App::for_tests(Vec::new());
        app.agreement = agreement;
        let app = Arc::new(app);
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let (tell, told) = std::sync::mpsc::channel();
        let serving = app.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let any: Address = "127.0.0.1:0".parse().expect("an address");
                let listener = any.bind(false).and_then(Bound::listen).expect("a free port");
                tell.send(listener.address().expect("its own")).expect("somebody waits");
                let doors = vec![net::Door { face: Face::Http, listener }];
                net::serve(&serving, doors, 1, stopped).await.expect("served");
            });
        });
        let Ok(Address::Tcp(address)) = told.recv() else { panic!("it listens at a port") };
        Self { address, app, stop, thread: Some(thread) }
    }

    fn run(&self, words: &[&str]) -> (i32, String, String) {
        let server = self.address.to_string();
        run(&[&["limit"], words, &["--server", &server]].concat())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.app.service.drain();
        self.stop.send_replace(true);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// What the binary would say.
fn run(words: &[&str]) -> (i32, String, String) {
    let words = [&["tollgate"], words].concat();
    let arguments = Arguments::try_parse_from(words).map_err(|error| error.to_string());
    let Any::Limit(limit) = arguments.expect("known words").command else {
        panic!("tollgate limit")
    };
    let Told { code, out, err } = limit.told();
    let text = |lines: Vec<String>| lines.iter().map(|line| format!("{line}\n")).collect();
    (code.into(), text(out), text(err))
}

#[test]
fn limits_come_change_and_come_back() {
    let member = Member::new(Some(Arc::new(Alone::new())));
    let folder = tempfile::tempdir().expect("a folder");
    limit_story::limits_of_a_fleet(&member.address.to_string(), folder.path(), &run);
}

#[test]
fn a_fleet_without_a_leader_and_a_daemon_that_is_alone_say_so() {
    let agreement = Arc::new(Alone::new());
    let waited = std::time::Duration::from_secs(5);
    *agreement.failing.lock().expect("nobody panicked") = Some(ProposeError::NoLeader { waited });
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("one.toml");
    std::fs::write(&file, "[[limit]]\nname = \"api\"\nrate = \"10/s\"\n").expect("written");
    let file = file.to_str().expect("a plain path");
    let (code, out, err) = Member::new(Some(agreement)).run(&["apply", file]);
    assert!(code == 3 && out.contains("+ default/api") && err.contains("no leader"), "{out}{err}");
    for words in [&["get"][..], &["history"], &["apply", file], &["rollback", "1"]] {
        let (code, out, err) = Member::new(None).run(words);
        assert!(code == 3 && out.is_empty(), "{words:?}: {out}");
        assert!(err.contains("409") && err.contains("its policy is what none.toml says"), "{err}");
    }
}

#[test]
fn a_file_that_is_not_there_asks_nobody() {
    let (code, out, err) = run(&["limit", "apply", "/nowhere.toml", "--server", "unix:/nowhere"]);
    assert_eq!((code, out.as_str()), (3, ""));
    assert!(err.starts_with("error: /nowhere.toml: No such file"), "{err}");
}

#[test]
fn a_table_has_numbers_to_the_right_and_no_blanks_at_the_end() {
    let rows = vec![["7".into(), "x".into(), String::new()], ["12".into(), "é".into(), "z".into()]];
    let expected = ["n   name  why", " 7  x", "12  é     z"];
    assert_eq!(table(["n", "name", "why"], rows), expected);
}
