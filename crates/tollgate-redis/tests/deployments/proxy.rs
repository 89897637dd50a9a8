//! What stands between a store and its server: it passes on what both say, until it is told to cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tollgate_redis::StoreOptions;

use crate::server::{address, options};

pub(crate) struct Proxy {
    port: u16,
    /// Bytes that still pass: of requests, of replies.
    budgets: [Arc<AtomicI64>; 2],
    _tasks: JoinSet<()>,
}

impl Proxy {
    pub(crate) async fn before(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let here = listener.local_addr().expect("an address").port();
        let budgets = [PASS, PASS].map(|budget| Arc::new(AtomicI64::new(budget)));
        let (mut tasks, both) = (JoinSet::new(), budgets.clone());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let [requests, replies] = both.clone();
                connections.spawn(async move {
                    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = server.into_split();
                    // Whoever ends first closes both connections.
                    tokio::select! {
                        () = pass(from_client, to_server, requests) => {}
                        () = pass(from_server, to_client, replies) => {}
                    }
                });
            }
        });
        Self { port: here, budgets, _tasks: tasks }
    }

    /// Lets only so many bytes of replies pass, then closes connections.
    pub(crate) fn cut_replies(&self, after: i64) {
        self.budgets[1].store(after, Ordering::SeqCst);
    }

    /// Lets only so many bytes of requests pass, then closes connections.
    pub(crate) fn cut_requests(&self, after: i64) {
        self.budgets[0].store(after, Ordering::SeqCst);
    }

    pub(crate) fn pass(&self) {
        self.cut_requests(PASS);
        self.cut_replies(PASS);
    }

    pub(crate) fn options(&self) -> StoreOptions {
        options(vec![address(self.port)])
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, budget: Arc<AtomicI64>) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let wanted = i64::try_from(count).expect("few");
        let before = budget.fetch_sub(wanted, Ordering::SeqCst);
        let allowed = usize::try_from(before.clamp(0, wanted)).expect("few");
        if to.write_all(&bytes[..allowed]).await.is_err() || allowed < count {
            return;
        }
    }
}

const PASS: i64 = i64::MAX / 2;
