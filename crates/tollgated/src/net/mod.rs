//! Sockets: who may connect, which worker serves whom, and when a connection has lasted too long.
//!
//! One thread accepts; each worker is a thread with a runtime of its own, and a connection stays on
//! the worker that it was given to, so that workers share nothing but the service. Protocols are
//! the faces'.

mod address;
mod worker;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use socket2::{SockRef, TcpKeepalive};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::app::App;
use crate::face::Face;
use crate::faces::says_full;
pub(crate) use address::{Address, Bound, Listener, Socket};
use worker::Worker;

/// A listener, and who speaks there.
pub(crate) struct Door {
    pub(crate) face: Face,
    pub(crate) listener: Listener,
}

/// Serves all doors until `stop` says so, and then until every connection has ended; by then the
/// service is draining.
pub(crate) async fn serve(
    app: &Arc<App>,
    doors: Vec<Door>,
    threads: usize,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let workers: io::Result<Vec<Worker>> =
        (0..threads).map(|index| Worker::start(index, app.clone())).collect();
    let workers = Arc::new(workers?);
    let accepting: Vec<_> = doors
        .into_iter()
        .map(|door| tokio::spawn(accept_all(door, app.clone(), workers.clone(), stop.clone())))
        .collect();
    // The sender lives as long as the process.
    let _ = stop.wait_for(|stop| *stop).await;
    for task in accepting {
        let _ = task.await;
    }
    // Each worker ends with its last connection, and the deadline is its own.
    for worker in Arc::into_inner(workers).into_iter().flatten() {
        let _ = tokio::task::spawn_blocking(|| worker.end()).await;
    }
    Ok(())
}

async fn accept_all(
    door: Door,
    app: Arc<App>,
    workers: Arc<Vec<Worker>>,
    mut stop: watch::Receiver<bool>,
) {
    let mut failing = false;
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = door.listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok(socket) => {
                failing = false;
                admit(door.face, socket, &app, &workers);
            }
            Err(error) => {
                // Most likely out of file descriptors: connections wait in the backlog.
                if !failing {
                    warn!(target: "net", face = door.face.name(), %error, "cannot accept");
                }
                failing = true;
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    let Door { face, listener } = door;
    // Whoever has connected by now is served.
    for socket in listener.end() {
        admit(face, socket, &app, &workers);
    }
    info!(target: "net", face = face.name(), "stopped listening");
}

/// Gives a connection to the worker with the fewest, unless there are too many.
fn admit(face: Face, socket: Socket, app: &App, workers: &[Worker]) {
    let metrics = app.service.metrics().face(face);
    let open: usize = workers.iter().map(Worker::connections).sum();
    if open >= app.bounds.connections_max {
        metrics.refused.fetch_add(1, Relaxed);
        return socket.say_and_close(says_full(face));
    }
    metrics.opened.fetch_add(1, Relaxed);
    if let Socket::Tcp(stream) = &socket {
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
        // A socket that refuses these works without.
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
    }
    if let Some(worker) = workers.iter().min_by_key(|worker| worker.connections()) {
        worker.give(face, socket);
    }
}

/// Has the system grant a file for each connection, and returns how many connections there may be.
pub(crate) fn raise_files_max(connections_max: usize) -> usize {
    let wanted = (connections_max + FILES_BESIDE) as u64;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(limit.maximum.map_or(wanted, |maximum| maximum.min(wanted)));
        // What the system refuses is found out below.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    let granted = getrlimit(Resource::Nofile).current.unwrap_or(wanted);
    if granted >= wanted {
        return connections_max;
    }
    let connections = usize::try_from(granted).unwrap_or(0).saturating_sub(FILES_BESIDE).max(1);
    let why = "fewer connections: the system grants too few open files";
    warn!(target: "serve", connections, files = granted, "{why}");
    connections
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A peer that vanished is noticed within a few minutes.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// Open files besides connections: listeners, runtimes, the policy file, the log.
const FILES_BESIDE: usize = 64;
