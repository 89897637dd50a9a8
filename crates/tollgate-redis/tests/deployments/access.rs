//! Users and passwords: who is let in, what they need, and that no password is shown.

use tollgate_redis::{FailureKind, Outcome, Password, Store, StoreOptions};

use crate::server::{Server, read, until_done, write};

fn with_password(server: &Server, password: &str) -> StoreOptions {
    StoreOptions { password: Some(Password::from(password.to_owned())), ..server.options() }
}

#[tokio::test]
async fn a_password_that_is_wrong_is_told_and_used_again_until_it_is_right() {
    let server = Server::start(&["--requirepass", "old"]);
    let store = Store::new(with_password(&server, "sesame")).expect("a store");
    assert_eq!(write(&store, "a").await, Outcome::NotSent);
    let health = store.health();
    let failure = health.last_failure.clone().expect("a failure");
    assert_eq!(failure.kind, FailureKind::Auth);
    assert!(failure.text.ends_with("did not accept the password: WRONGPASS"), "{failure:?}");
    assert!(!format!("{health:?} {store:?}").contains("sesame"));
    server.cli(&["-a", "old", "CONFIG", "SET", "requirepass", "sesame"]);
    assert_eq!(until_done(&store, "a").await, 0);
    assert_eq!(read(&store, "a").await, Some(1));
    // Who is in stays in; who comes anew is told.
    server.cli(&["-a", "sesame", "CONFIG", "SET", "requirepass", "new"]);
    assert_eq!(write(&store, "a").await, Outcome::Done);
    server.cli(&["-a", "new", "CLIENT", "KILL", "TYPE", "normal"]);
    assert_eq!(write(&store, "a").await, Outcome::NotSent);
    assert_eq!(store.health().last_failure.map(|failure| failure.kind), Some(FailureKind::Auth));
}

#[tokio::test]
async fn a_server_that_wants_a_password_is_told_of_when_there_is_none() {
    let server = Server::start(&["--requirepass", "old"]);
    let store = server.store();
    assert_eq!(write(&store, "a").await, Outcome::NotSent);
    let failure = store.health().last_failure.expect("a failure");
    assert_eq!(failure.kind, FailureKind::Auth);
    assert!(failure.text.contains("NOAUTH"), "{failure:?}");
}

#[tokio::test]
async fn a_server_that_quotes_what_it_was_sent_shows_no_password() {
    let server = Server::start(&["--rename-command", "AUTH", "LET-IN"]);
    let store = Store::new(with_password(&server, "sesame")).expect("a store");
    assert_eq!(write(&store, "a").await, Outcome::NotSent);
    let failure = store.health().last_failure.expect("a failure");
    assert!(failure.text.ends_with("did not accept the password: ERR"), "{failure:?}");
}

#[tokio::test]
async fn a_user_needs_four_commands_and_its_keys() {
    let server = Server::start(&[]);
    let commands = "on >sesame ~tollgate:* -@all +incrby +expireat +mget +info";
    let words: Vec<&str> =
        ["ACL", "SETUSER", "counter"].into_iter().chain(commands.split(' ')).collect();
    assert_eq!(server.cli(&words), "OK");
    let username = Some("counter".to_owned());
    let options = StoreOptions { username, ..with_password(&server, "sesame") };
    let store = Store::new(options).expect("a store");
    assert_eq!(write(&store, "tollgate:a").await, Outcome::Done);
    assert_eq!(read(&store, "tollgate:a").await, Some(1));
    assert_eq!(store.health().last_failure, None);
    // What it may not touch was not touched, and the connection stays.
    assert_eq!(write(&store, "other").await, Outcome::NotSent);
    assert_eq!(read(&store, "other").await, None);
    let health = store.health();
    assert_eq!((health.counts.refused.auth, health.counts.connects), (2, 1));
    assert!(health.is_connected());
    // Without one of them units are counted, and it is told what is amiss.
    assert_eq!(server.cli(&["ACL", "SETUSER", "counter", "-expireat"]), "OK");
    assert_eq!(write(&store, "tollgate:a").await, Outcome::Done);
    let health = store.health();
    assert_eq!(health.counts.expiries_failed, 1);
    let text = health.last_failure.expect("a failure").text;
    assert!(text.starts_with("no expiry was set: NOPERM"), "{text}");
}
