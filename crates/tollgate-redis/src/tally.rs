//! The task that has a limiter's cells counted in stores: it drives a [`TallyNode`], gives each
//! store what is to be written and read, so many commands at a time, and takes the answers back.
//!
//! What is written when is decided by the node; what became of it is told by the stores.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::stream::{self, StreamExt as _};
use tokio::sync::{Mutex as Turn, Notify, mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant as Clock, sleep_until};
use tollgate::tally::{Input, Outcome, WallTime};
use tollgate::{Command, Instant, Limiter, TallyNode, TallyOptions};
use tracing::error;

use crate::meters::{MILLIS_BOUNDS, Meters, SIZE_BOUNDS, StoreStatus, TallyStatus};
use crate::options::{StoreError, StoreOptions};
use crate::store::Store;

/// A process's side of its stores. Dropped, it ends at once, and what waits is lost.
pub struct Tally {
    shared: Arc<Shared>,
    stop: Mutex<Option<oneshot::Sender<()>>>,
    task: Turn<JoinHandle<()>>,
    /// The same task, to end it at once.
    abort: AbortHandle,
}

/// Why there is no such task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartError {
    /// There is no store.
    NoStore,
    /// The limiter's [`Options::tally`](tollgate::Options::tally) is off.
    NoCells,
    /// Another task counts for the limiter, or did: only the first one knows the names of all keys.
    Taken,
    /// A store is none, by its place among all.
    Store(usize, StoreError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoStore => f.write_str("there is no store to count in"),
            Self::NoCells => f.write_str("the limiter counts for no store"),
            Self::Taken => f.write_str("another task counts for the limiter, or did"),
            Self::Store(place, error) => write!(f, "store {}: {error}", place + 1),
        }
    }
}

impl std::error::Error for StartError {}

struct Shared {
    /// Cells have something to tell.
    dirty: Notify,
    nodes: AtomicU64,
    status: Mutex<TallyStatus>,
}

impl Tally {
    /// Starts the task on the current tokio runtime. No store need be there yet; of several, each
    /// key is counted in one, by its name.
    ///
    /// `options.stores` is of no meaning: it is how many are given.
    ///
    /// # Errors
    /// [`StartError`]; nothing was started.
    pub fn start(
        limiter: &Limiter,
        stores: Vec<StoreOptions>,
        options: TallyOptions,
    ) -> Result<Self, StartError> {
        if stores.is_empty() {
            return Err(StartError::NoStore);
        }
        let parallel: Vec<usize> = stores.iter().map(|store| store.commands_max).collect();
        let store = |(place, options)| {
            Store::new(options).map(Arc::new).map_err(|error| StartError::Store(place, error))
        };
        let stores = stores.into_iter().enumerate().map(store).collect::<Result<Vec<_>, _>>()?;
        let options = TallyOptions { stores: stores.len(), ..options };
        let (nodes, tick) = (options.worker.nodes, options.worker.tick);
        let probe = format!("{}:{{probe}}", options.prefix);
        let node = TallyNode::new(limiter.clone(), options).ok_or(StartError::NoCells)?;
        let shared = Arc::new(Shared {
            dirty: Notify::new(),
            nodes: AtomicU64::new(nodes),
            status: Mutex::default(),
        });
        let cells = limiter.tally().ok_or(StartError::NoCells)?;
        let woken = Arc::clone(&shared);
        if !cells.on_dirty(Box::new(move || woken.dirty.notify_one())) {
            return Err(StartError::Taken);
        }
        let (answer, answers) = mpsc::channel(ANSWERS_MAX);
        let line = |(number, (store, parallel)): (usize, (Arc<Store>, usize))| {
            Line::start(number, store, parallel, answer.clone(), probe.clone())
        };
        let lines = stores.into_iter().zip(parallel).enumerate().map(line).collect();
        let (stop, stopped) = oneshot::channel();
        let drain_gap = DRAIN_GAP.min(tick / 2);
        let driver = Driver {
            limiter: limiter.clone(),
            node,
            lines,
            answers,
            shared: Arc::clone(&shared),
            drains_at: Some(Clock::now()),
            drain_gap,
            tick,
            tells_at: Instant::ZERO,
            told: 0,
        };
        let task = tokio::spawn(driver.run(stopped));
        let (abort, stop) = (task.abort_handle(), Mutex::new(Some(stop)));
        Ok(Self { shared, stop, task: Turn::new(task), abort })
    }

    /// How it fared at its last tick.
    #[must_use]
    pub fn status(&self) -> TallyStatus {
        self.shared.lock().clone()
    }

    /// How many processes share the stores now, for limits that are `share`d in an outage.
    pub fn set_nodes(&self, nodes: u64) {
        self.shared.nodes.store(nodes.max(1), Ordering::Relaxed);
    }

    /// Writes what was counted so far, in so long at most, and ends the task.
    pub async fn stop(&self, within: Duration) {
        // Not held while this waits: others may stop it too.
        let stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(stop) = stop {
            let _ = stop.send(());
        }
        let ended = async {
            let mut task = self.task.lock().await;
            if !task.is_finished() {
                let _ = (&mut *task).await;
            }
        };
        let _ = tokio::time::timeout(within, ended).await;
        self.abort.abort();
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

impl fmt::Debug for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tally").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, TallyStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task's own.
struct Driver {
    limiter: Limiter,
    node: TallyNode,
    lines: Vec<Line>,
    answers: mpsc::Receiver<(usize, Input)>,
    shared: Arc<Shared>,
    /// When cells are drained next, if one is dirty.
    drains_at: Option<Clock>,
    drain_gap: Duration,
    tick: Duration,
    /// When people are told next how it fares, and how often they were.
    tells_at: Instant,
    told: u64,
}

impl Driver {
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        let mut is_stopping = false;
        loop {
            let wakes_at = self.give();
            if is_stopping && self.node.is_flushed() {
                return;
            }
            let drains_at = self.drains_at;
            tokio::select! {
                answer = self.answers.recv() => {
                    // Without stores there is nothing to do.
                    let Some((store, input)) = answer else { return };
                    let (now, wall) = self.time();
                    self.node.handle(store, input, now, wall);
                }
                () = self.shared.dirty.notified(), if drains_at.is_none() => {
                    self.drains_at = Some(Clock::now() + self.drain_gap);
                }
                () = sleep_until(drains_at.unwrap_or(wakes_at).min(wakes_at)) => self.turn(),
                _ = &mut stopped, if !is_stopping => {
                    is_stopping = true;
                    let (now, wall) = self.time();
                    self.node.drain(now, wall);
                    self.node.flush(now, wall);
                }
            }
        }
    }

    /// Takes in what cells have counted, and lets the node tick if it is time.
    fn turn(&mut self) {
        let (now, wall) = self.time();
        if now >= self.tells_at {
            self.tells_at = now.saturating_add(self.tick);
            self.tell();
        }
        self.drains_at = None;
        self.node.set_nodes(self.shared.nodes.load(Ordering::Relaxed));
        self.node.drain(now, wall);
        self.node.handle_timeout(now, wall);
    }

    /// Gives stores what the node wants of them; returns when it wants to be called.
    fn give(&mut self) -> Clock {
        let mut batches: Vec<Vec<Command>> = self.lines.iter().map(|_| Vec::new()).collect();
        let at = loop {
            let command = self.node.poll();
            match &command {
                Command::Timeout(at) => break *at,
                Command::Write { store, .. } | Command::Read { store, .. } => {
                    let store = *store;
                    batches[store].push(command);
                }
            }
        };
        let mut is_refused = false;
        for (store, batch) in batches.into_iter().enumerate() {
            for command in self.lines[store].give(batch) {
                // Its task has ended: nothing of this is written or read, and nobody waits for it.
                is_refused = true;
                let input = match command {
                    Command::Write { command, additions, .. } => Input::Written {
                        command,
                        outcomes: vec![Outcome::NotSent; additions.len()],
                    },
                    Command::Read { command, .. } => Input::Read { command, counts: Vec::new() },
                    Command::Timeout(_) => continue,
                };
                let (now, wall) = self.time();
                self.node.handle(store, input, now, wall);
            }
        }
        if is_refused {
            error!(target: "tally", "the task of a store has ended; what it counts is not written");
            return Clock::now();
        }
        let (now, _) = self.time();
        Clock::now() + at.saturating_since(now).min(SLEEP_MAX)
    }

    /// Tells how it fares.
    fn tell(&mut self) {
        let (now, _) = self.time();
        let scans = self.told.is_multiple_of(TELLS_BETWEEN_SCANS);
        self.told += 1;
        let mut status = self.shared.lock();
        let before = std::mem::take(&mut status.stores);
        let mut before = before.into_iter();
        for (line, worker) in self.lines.iter().zip(self.node.workers()) {
            let scans = scans || worker.keys() <= KEYS_TO_SCAN;
            let tiers = before.next().map(|store| store.tiers).filter(|_| !scans);
            status.stores.push(StoreStatus {
                health: line.store.health(),
                keys: worker.keys(),
                tiers: tiers.unwrap_or_else(|| worker.tiers(now)),
                waiting: worker.waiting(),
                due: worker.pending_reads(now),
                silent_for: worker.silent_since().map(|since| now.saturating_since(since)),
                counts: worker.counts(),
                meters: *line.meters(),
            });
        }
        status.nameless = self.node.nameless();
    }

    fn time(&self) -> (Instant, WallTime) {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let nanos = since.map_or(0, |since| since.as_nanos());
        let wall = WallTime::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        (self.limiter.now(), wall)
    }
}

/// The way to one store, which is slowed down by no other.
struct Line {
    store: Arc<Store>,
    commands: mpsc::Sender<Vec<Command>>,
    meters: Arc<Mutex<Meters>>,
}

impl Line {
    fn start(
        number: usize,
        store: Arc<Store>,
        parallel: usize,
        answers: mpsc::Sender<(usize, Input)>,
        probe: String,
    ) -> Self {
        // The node waits for all answers of a step before it wants another.
        let (commands, mut batches) = mpsc::channel::<Vec<Command>>(STEPS_MAX);
        let meters = Arc::<Mutex<Meters>>::default();
        let line = Self { store: Arc::clone(&store), commands, meters: Arc::clone(&meters) };
        tokio::spawn(async move {
            // So that what is wrong with it is said before it is needed.
            store.read(&[[probe.clone(), probe]]).await;
            while let Some(batch) = batches.recv().await {
                let began = Clock::now();
                let mut answered = stream::iter(batch)
                    .map(|command| run(&store, command, &meters))
                    .buffer_unordered(parallel.max(1));
                while let Some(input) = answered.next().await {
                    if answers.send((number, input)).await.is_err() {
                        return;
                    }
                }
                lock(&meters).ticks.add(&MILLIS_BOUNDS, millis(began));
            }
        });
        line
    }

    /// Gives a store what is wanted of it; returns what its task does not take.
    fn give(&self, batch: Vec<Command>) -> Vec<Command> {
        if batch.is_empty() {
            return batch;
        }
        match self.commands.try_send(batch) {
            Ok(()) => Vec::new(),
            Err(refused) => refused.into_inner(),
        }
    }

    fn meters(&self) -> MutexGuard<'_, Meters> {
        lock(&self.meters)
    }
}

async fn run(store: &Store, command: Command, meters: &Mutex<Meters>) -> Input {
    let began = Clock::now();
    match command {
        Command::Write { command, additions, .. } => {
            let outcomes = store.write(&additions).await;
            let mut meters = lock(meters);
            meters.writes.add(&MILLIS_BOUNDS, millis(began));
            meters.write_sizes.add(&SIZE_BOUNDS, additions.len() as f64);
            Input::Written { command, outcomes }
        }
        Command::Read { command, names, .. } => {
            let counts = store.read(&names).await;
            let mut meters = lock(meters);
            meters.reads.add(&MILLIS_BOUNDS, millis(began));
            meters.read_sizes.add(&SIZE_BOUNDS, names.len() as f64);
            Input::Read { command, counts }
        }
        Command::Timeout(_) => Input::Timeout,
    }
}

fn lock(meters: &Mutex<Meters>) -> MutexGuard<'_, Meters> {
    meters.lock().unwrap_or_else(PoisonError::into_inner)
}

fn millis(began: Clock) -> f64 {
    began.elapsed().as_secs_f64() * 1_000.0
}

/// Cells are drained so long after one became dirty, and with each tick.
const DRAIN_GAP: Duration = Duration::from_millis(50);
/// Answers that wait for the task; stores wait then.
const ANSWERS_MAX: usize = 64;
/// Steps of a store that are under way: one, and another whose last answer is just told.
const STEPS_MAX: usize = 2;
/// Of so many keys tiers are looked at each time.
const KEYS_TO_SCAN: usize = 10_000;
/// Of more they are looked at so seldom: that goes over all keys.
const TELLS_BETWEEN_SCANS: u64 = 30;
const SLEEP_MAX: Duration = Duration::from_secs(3_600);
