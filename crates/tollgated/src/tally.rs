//! The stores in which limits with the guarantee `tally` are counted, as far as this daemon is
//! concerned: a thread of its own drives them, so that no request shares one with it.
//!
//! What is asked of them is decided by `tollgate::TallyNode`.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;
use tollgate_redis::{StoreError, StoreOptions, Tally, Tls};
use tracing::info;

use crate::config::{StoreText, TallySettings};
use crate::overview::Overview;
use crate::service::Service;

/// What is counted in stores, until it is stopped.
pub(crate) struct Counting {
    tally: Arc<Tally>,
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Counting {
    /// Counts the service's limits in stores from now on. `ca_file` says who vouches for those that
    /// are reached by TLS; without it, whom the system trusts.
    ///
    /// # Errors
    /// A store that is none, and a system without another thread.
    pub(crate) fn start(
        settings: &TallySettings,
        ca_file: Option<&Path>,
        service: &Service,
    ) -> Result<Self, String> {
        let store = |text| options(text, ca_file, settings);
        let stores: Result<Vec<_>, _> = settings.stores.iter().map(store).collect();
        let stores = stores.map_err(|error| error.to_string())?;
        let (limiter, options) = (service.limiter().clone(), settings.options.clone());
        let (end, ended) = oneshot::channel();
        let (make, made) = std::sync::mpsc::channel();
        let thread = move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(make.send(Err(error.to_string()))),
            };
            runtime.block_on(async {
                let started = Tally::start(&limiter, stores, options).map(Arc::new);
                let _ = make.send(started.clone().map_err(|error| error.to_string()));
                if let Ok(tally) = started {
                    // Until it is stopped, or forgotten.
                    let _ = ended.await;
                    tally.stop(FLUSH).await;
                }
            });
        };
        let cannot = |error: io::Error| format!("no thread for the stores: {error}");
        let thread = std::thread::Builder::new().name("tally".into()).spawn(thread);
        let thread = thread.map_err(cannot)?;
        let tally = made.recv().map_err(|_| "the stores' thread ended")??;
        service.count_in(tally.clone());
        info!(target: "tally", stores = ?settings.stores, "limits are counted in stores");
        Ok(Self { tally, end, thread })
    }

    /// Has stores know, for limits that are shared in an outage, how many members a fleet has.
    pub(crate) async fn follow(tally: Arc<Tally>, fleet: Arc<dyn Overview>) {
        let mut interval = tokio::time::interval(MEMBERS_INTERVAL);
        loop {
            interval.tick().await;
            tally.set_nodes(fleet.status().members.len() as u64);
        }
    }

    /// The task that counts.
    pub(crate) fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// Writes what waits, as far as a store takes it in time, and ends.
    pub(crate) fn stop(self) {
        let _ = self.end.send(());
        // It ends within the time that it has, or has panicked, which is told.
        let _ = self.thread.join();
    }
}

fn options(
    text: &StoreText,
    ca_file: Option<&Path>,
    settings: &TallySettings,
) -> Result<StoreOptions, StoreError> {
    let urls: Vec<&str> = text.urls().collect();
    let options = StoreOptions::from_urls(&urls)?;
    let tls = options.tls.map(|_| Tls { ca_file: ca_file.map(Path::to_owned) });
    Ok(StoreOptions {
        tls,
        read_timeout: settings.read_timeout,
        write_timeout: settings.write_timeout,
        reconnect_interval: settings.reconnect_interval,
        commands_max: settings.commands_max,
        ..options
    })
}

/// How long what waits may take at the end.
const FLUSH: Duration = Duration::from_secs(2);
const MEMBERS_INTERVAL: Duration = Duration::from_secs(1);
