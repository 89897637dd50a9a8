//! A worker: a thread with a runtime of its own, its connections, and the sweep that ends those
//! that last too long.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tracing::debug;

use super::Socket;
use crate::app::{App, Bounds};
use crate::face::Face;
use crate::faces::{grpc, http, resp};
use crate::guard::{Guard, Phase, TICK, ticks};

/// One worker, as the accepting thread knows it.
pub(crate) struct Worker {
    thread: JoinHandle<()>,
    sockets: mpsc::UnboundedSender<(Face, Socket)>,
    /// Open connections, those included that it has not seen yet.
    connections: Arc<AtomicUsize>,
}

impl Worker {
    pub(crate) fn start(index: usize, app: Arc<App>) -> io::Result<Self> {
        // Unbounded in itself; the maximum of connections is its bound.
        let (sockets, incoming) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let desk =
            Desk { app, connections: connections.clone(), ticks: Arc::default(), open: Vec::new() };
        let thread = std::thread::Builder::new()
            .name(format!("worker-{index}"))
            .spawn(move || runtime.block_on(desk.run(incoming)))?;
        Ok(Self { thread, sockets, connections })
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// Hands a connection over.
    pub(crate) fn give(&self, face: Face, socket: Socket) {
        self.connections.fetch_add(1, Relaxed);
        // The worker ends only when this sender does.
        let _ = self.sockets.send((face, socket));
    }

    /// Waits until the worker has ended its connections.
    pub(crate) fn end(self) {
        drop(self.sockets);
        let _ = self.thread.join();
    }
}

/// The worker's own side.
struct Desk {
    app: Arc<App>,
    connections: Arc<AtomicUsize>,
    ticks: Arc<AtomicU32>,
    open: Vec<(Arc<Guard>, Face, AbortHandle)>,
}

impl Desk {
    async fn run(mut self, mut incoming: mpsc::UnboundedReceiver<(Face, Socket)>) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut ended, mut draining) = (false, 0);
        while !ended || !self.open.is_empty() {
            tokio::select! {
                given = incoming.recv(), if !ended => match given {
                    Some((face, socket)) => self.take_over(face, socket),
                    None => ended = true,
                },
                _ = tick.tick() => {
                    self.ticks.fetch_add(1, Relaxed);
                    draining += u32::from(self.app.service.is_draining());
                    self.sweep(draining);
                }
            }
            if ended {
                self.open.retain(|(_, _, task)| !task.is_finished());
            }
        }
    }

    fn take_over(&mut self, face: Face, socket: Socket) {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let id = IDS.fetch_add(1, Relaxed);
        let guard = Arc::new(Guard::new(id, self.ticks.clone(), self.app.held.clone()));
        let ticket = Ticket::new(face, &self.app, &self.connections);
        let (app, own) = (self.app.clone(), guard.clone());
        let task = tokio::spawn(async move {
            let _ticket = ticket;
            if let Err(error) = serve(face, socket, &app, own).await {
                debug!(target: "net", face = face.name(), id, %error, "connection lost");
            }
        });
        self.open.push((guard, face, task.abort_handle()));
    }

    /// Ends what has lasted too long; `draining` is for how many ticks the process has been ending.
    fn sweep(&mut self, draining: u32) {
        let Bounds { idle, partial, drain, .. } = self.app.bounds;
        let (idle, partial, drain) = (ticks(idle), ticks(partial), ticks(drain));
        let service = &self.app.service;
        self.open.retain(|(guard, face, task)| {
            if task.is_finished() {
                return false;
            }
            let (phase, age) = guard.doing();
            let late = match phase {
                Phase::Idle => {
                    let rests = age >= idle && !guard.has_lasting();
                    if rests || (draining > 0 && age >= QUIET_TICKS) {
                        guard.ask_to_end();
                    }
                    false
                }
                Phase::Reading | Phase::Writing => age >= partial,
                Phase::Busy => false,
            };
            if draining >= drain {
                guard.ask_to_end();
            }
            if late {
                service.metrics().face(*face).timed_out.fetch_add(1, Relaxed);
                // Counted once, though a busy machine may sweep again before the task is gone.
                guard.note(Phase::Busy);
            }
            if late || draining > drain + LAST_TICKS {
                task.abort();
            }
            true
        });
    }
}

async fn serve(face: Face, socket: Socket, app: &Arc<App>, guard: Arc<Guard>) -> io::Result<()> {
    match socket {
        Socket::Tcp(stream) => speak(face, TcpStream::from_std(stream)?, app, guard).await,
        Socket::Unix(stream) => speak(face, UnixStream::from_std(stream)?, app, guard).await,
    }
}

async fn speak<S>(face: Face, stream: S, app: &Arc<App>, guard: Arc<Guard>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match face {
        Face::Http => http::serve(stream, app, guard).await,
        Face::Grpc => grpc::serve(stream, app, guard).await,
        Face::Resp => resp::serve(stream, app, &guard).await,
    }
}

/// Counts a connection as open until it is dropped, however its task ends.
struct Ticket {
    face: Face,
    app: Arc<App>,
    connections: Arc<AtomicUsize>,
}

impl Ticket {
    fn new(face: Face, app: &Arc<App>, connections: &Arc<AtomicUsize>) -> Self {
        app.service.metrics().face(face).open.fetch_add(1, Relaxed);
        Self { face, app: app.clone(), connections: connections.clone() }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.app.service.metrics().face(self.face).open.fetch_sub(1, Relaxed);
        self.connections.fetch_sub(1, Relaxed);
    }
}

/// How long a connection is quiet before a process that ends closes it.
const QUIET_TICKS: u32 = 2;
/// How long connections may take to end when they are told that it is time.
const LAST_TICKS: u32 = 4;
