//! What may be written is never written again (C13), wherever a connection is cut.

use std::time::Duration;

use tollgate_redis::{Outcome, Store};

use crate::proxy::Proxy;
use crate::server::{Server, addition, read, until_done, write};

#[tokio::test]
async fn an_addition_whose_reply_is_cut_is_there_once_and_unknown() {
    let server = Server::start(&[]);
    let proxy = Proxy::before(server.port).await;
    let store = Store::new(proxy.options()).expect("a store");
    assert_eq!(read(&store, "a").await, Some(0));
    proxy.cut_replies(0);
    assert_eq!(write(&store, "a").await, Outcome::Unknown);
    proxy.pass();
    until_done(&store, "b").await;
    assert_eq!(server.cli(&["GET", "a"]), "1");
    assert_eq!(server.cli(&["GET", "b"]), "1");
}

#[tokio::test]
async fn additions_whose_replies_came_before_the_cut_are_done() {
    let server = Server::start(&[]);
    let proxy = Proxy::before(server.port).await;
    let store = Store::new(proxy.options()).expect("a store");
    assert_eq!(read(&store, "a").await, Some(0));
    // One addition is answered `:1` twice.
    proxy.cut_replies(8);
    let additions = ["a", "b", "c"].map(|name| addition(name, 1));
    let wanted = [Outcome::Done, Outcome::Unknown, Outcome::Unknown];
    assert_eq!(store.write(&additions).await, wanted);
    for name in ["a", "b", "c"] {
        assert_eq!(server.cli(&["GET", name]), "1");
    }
}

#[tokio::test]
async fn wherever_it_is_cut_a_counter_has_what_is_done_and_not_more_than_may_be() {
    let server = Server::start(&[]);
    let proxy = Proxy::before(server.port).await;
    let mut options = proxy.options();
    options.reconnect_interval = Duration::from_millis(1);
    let store = Store::new(options).expect("a store");
    let (mut done, mut unknown) = (0, 0);
    for round in 0..60 {
        // Each place within a request and its replies, of which some have more than one addition.
        match round % 2 {
            0 => proxy.cut_requests(round * 3),
            _ => proxy.cut_replies(round % 17),
        }
        for outcome in store.write(&[addition("a", 1), addition("a", 1)]).await {
            match outcome {
                Outcome::Done => done += 1,
                Outcome::Unknown => unknown += 1,
                Outcome::NotSent => {}
                Outcome::Refused => panic!("refused"),
            }
        }
        proxy.pass();
        unknown += until_done(&store, "a").await;
        done += 1;
    }
    let counted: u64 = server.cli(&["GET", "a"]).parse().expect("a number");
    assert!(
        unknown > 0 && (done..=done + unknown).contains(&counted),
        "{counted}: {done}+{unknown}"
    );
}
