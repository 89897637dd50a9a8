//! `tollgate serve`: everything is put together here, and taken apart on SIGTERM.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tollgate::coordinator::{Command, Document, Edit, Refused, Revision};
use tollgate::{Clock, Options, Secret, TableFull};
use tollgate_tokio::{Alone, Fleet};
use tracing::{error, info, warn};
use tracing_subscriber::EnvFilter;

use super::fleet_args::FleetArgs;
use super::signals::EndSignals;
use super::{FAILED, Merging, secret_in, wrong_arguments};
use crate::agreement::{Agreement, ProposeError, unix_now};
use crate::app::{App, Bounds, HeaderStyle, Member, SharedSecret};
use crate::config::{self, ENVIRONMENT, Finding, Reading, StoreText, TallySettings, Watch};
use crate::division::{Division, Owners};
use crate::exposition::Exposition;
use crate::face::Face;
use crate::fleet::{FleetAgreement, FleetOverview, InForce, Membership, Setup};
use crate::net::{self, Address, Bound, Door};
use crate::overview::Overview;
use crate::policy::Policy;
use crate::quota::Divider;
use crate::service::Service;
use crate::shares;
use crate::tally::Counting;

#[derive(Args)]
pub(crate) struct Serve {
    /// The policy: a .toml or .yaml file, or a folder of them; it is watched. A fleet reads it
    /// once, while it has no limits yet. Without one GLOBAL_RATE_LIMIT_THRESHOLD has to be set
    #[arg(long, env = "TOLLGATE_CONFIG", value_name = "PATH")]
    config: Option<PathBuf>,
    #[command(flatten)]
    merging: Merging,
    /// Where HTTP is spoken: an address, unix:/path, or off; may be given several times
    #[arg(
        long,
        env = "TOLLGATE_HTTP",
        default_value = "127.0.0.1:8080",
        value_name = "ADDRESS",
        value_delimiter = ','
    )]
    http: Vec<String>,
    /// Where gRPC is spoken: Envoy's rate-limit service, health and reflection
    #[arg(
        long,
        env = "TOLLGATE_GRPC",
        default_value = "127.0.0.1:8081",
        value_name = "ADDRESS",
        value_delimiter = ','
    )]
    grpc: Vec<String>,
    /// Where the Redis protocol is spoken
    #[arg(
        long,
        env = "TOLLGATE_RESP",
        default_value = "127.0.0.1:6380",
        value_name = "ADDRESS",
        value_delimiter = ','
    )]
    resp: Vec<String>,
    /// A Redis that counts `tally` limits for all nodes; given several times, each has a part
    #[arg(
        long,
        env = "TOLLGATE_REDIS",
        value_name = "URL",
        value_delimiter = ' ',
        hide_env_values = true
    )]
    redis: Vec<String>,
    /// Who vouches for a Redis that is reached by rediss://, as PEM [default: whom the system
    /// trusts]
    #[arg(long, env = "TOLLGATE_REDIS_CA_FILE", value_name = "FILE")]
    redis_ca_file: Option<PathBuf>,
    /// A file with a secret that every client must show; needed to listen beyond this machine
    #[arg(long, env = "TOLLGATE_SECRET_FILE", value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Threads that serve connections [default: one for each processor]
    #[arg(long, env = "TOLLGATE_THREADS", value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Keys that may have a cell, 32 bytes each; twice that many if CL.THROTTLE is used too
    #[arg(long, env = "TOLLGATE_KEYS_MAX", default_value_t = 1_000_000, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    keys_max: u64,
    /// What becomes of a new key when that many are in use
    #[arg(long, env = "TOLLGATE_TABLE_FULL", default_value = "share", value_name = "POLICY")]
    table_full: WhenFull,
    /// Which header fields an HTTP answer has
    #[arg(long, env = "TOLLGATE_HEADERS", default_value = "ietf", value_name = "STYLE")]
    headers: HeaderStyle,
    /// Which header fields an answer to Envoy adds to the response, besides those that Envoy makes
    #[arg(long, env = "TOLLGATE_GRPC_HEADERS", default_value = "none", value_name = "STYLE")]
    grpc_headers: HeaderStyle,
    /// Connections that may be open at once
    #[arg(long, env = "TOLLGATE_CONNECTIONS_MAX", default_value = "10000", value_name = "N")]
    connections_max: NonZeroUsize,
    /// How long a connection may ask nothing
    #[arg(long, env = "TOLLGATE_IDLE_SECONDS", default_value = "300", value_name = "S")]
    idle_seconds: NonZeroU64,
    /// How long a request may take to arrive, and an answer to be taken
    #[arg(long, env = "TOLLGATE_REQUEST_SECONDS", default_value = "10", value_name = "S")]
    request_seconds: NonZeroU64,
    /// How long an HTTP or gRPC connection may last before an answer closes it [default: for ever]
    #[arg(long, env = "TOLLGATE_AGE_SECONDS", value_name = "S")]
    age_seconds: Option<NonZeroU64>,
    /// How long connections may go on after SIGTERM
    #[arg(long, env = "TOLLGATE_DRAIN_SECONDS", default_value = "10", value_name = "S")]
    drain_seconds: NonZeroU64,
    /// How long /readyz says no before connections are refused and ended, after SIGTERM
    #[arg(long, env = "TOLLGATE_NOTICE_SECONDS", default_value_t = 0, value_name = "S")]
    notice_seconds: u64,
    /// Let a successor listen at the same TCP addresses before this process ends
    #[arg(long, env = "TOLLGATE_REUSE_PORT",
          value_parser = clap::builder::BoolishValueParser::new())]
    reuse_port: bool,
    #[command(flatten)]
    fleet: FleetArgs,
    /// What is logged, such as info or warn,policy=debug
    #[arg(long, env = "TOLLGATE_LOG", default_value = "info,openraft=warn", value_name = "FILTER")]
    log: String,
    /// How it is logged
    #[arg(long, env = "TOLLGATE_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WhenFull {
    /// It shares a cell of its limit with the others that found no place
    Share,
    /// It is denied
    Deny,
}

impl From<WhenFull> for TableFull {
    fn from(when: WhenFull) -> Self {
        match when {
            WhenFull::Share => Self::Share,
            WhenFull::Deny => Self::Deny,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl Serve {
    pub(crate) fn run(&self) -> Result<ExitCode, String> {
        self.start_log();
        let doors = self.doors().unwrap_or_else(|wrong| wrong_arguments(&wrong));
        let is_alone = !self.fleet.is_member();
        if is_alone && self.config.is_none() && !config::is_in_environment() {
            wrong_arguments("--config is missing, and GLOBAL_RATE_LIMIT_THRESHOLD is not set");
        }
        let stores = self.stores().unwrap_or_else(|wrong| wrong_arguments(&wrong));
        let tally = self.tally(is_alone)?.and_then(|tally| tally.with_stores(&stores));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("no runtime: {error}"))?;
        let setup = self.fleet.setup(self.keys_max, self.table_full.into(), tally.is_some());
        match setup.unwrap_or_else(|wrong| wrong_arguments(&wrong)) {
            None => {
                // What divides limits runs there.
                let entered = runtime.enter();
                let (app, mut watch) = (self.app(tally.is_some())?, Watch::new(self.config()));
                drop(entered);
                if app.policy.load().is_err() {
                    return Ok(ExitCode::from(FAILED)); // It is in the log already.
                }
                app.policy.watch_beside(&mut watch);
                let doors = self.bind(doors)?;
                let counting = self.count(tally.as_ref(), &app)?;
                let served = runtime.block_on(self.serve(app, doors, watch));
                // What was counted last is written.
                counting.into_iter().for_each(Counting::stop);
                served?;
            }
            Some(setup) => {
                // Others must not give keys to a daemon that will not serve.
                let doors = self.bind(doors)?;
                let (app, membership) = self.member(setup, tally.is_some(), &runtime)?;
                let watch = Watch::new(self.config());
                let counting = self.count(tally.as_ref(), &app)?;
                let served = runtime.block_on(async {
                    if let (Some(counting), Some(overview)) = (&counting, &app.overview) {
                        let tally = counting.tally().clone();
                        tokio::spawn(Counting::follow(tally, overview.clone()));
                    }
                    let served = self.serve(app, doors, watch).await;
                    leave(&membership.fleet).await;
                    served
                });
                counting.into_iter().for_each(Counting::stop);
                served?;
            }
        }
        info!(target: "serve", "ended");
        Ok(ExitCode::SUCCESS)
    }

    async fn serve(&self, app: Arc<App>, doors: Vec<Taken>, watch: Watch) -> Result<(), String> {
        // First of all: a signal that nobody waits for ends the process.
        let no_signals = |error| format!("cannot receive signals: {error}");
        let hang_up = signal(SignalKind::hangup()).map_err(no_signals)?;
        let mut end = EndSignals::new().map_err(no_signals)?;
        let mut listening = Vec::new();
        for Taken { face, address, bound } in doors {
            let listener = bound.listen().map_err(|error| cannot_listen(&address, &error))?;
            let address = listener.address().unwrap_or(address);
            info!(target: "serve", face = face.name(), %address, "listening");
            listening.push(Door { face, listener });
        }
        let (stop, stopped) = watch::channel(false);
        let (noticing, notice) = (app.clone(), Duration::from_secs(self.notice_seconds));
        let reload = tokio::spawn(reload(app.clone(), watch, hang_up));
        let signals = tokio::spawn(async move {
            let ended = end.next().await;
            info!(target: "serve", signal = ended, "draining");
            noticing.service.give_notice();
            if !notice.is_zero() {
                // Who asks again does not want to wait.
                let _ = tokio::time::timeout(notice, end.next()).await;
            }
            // Before anybody finds a door shut, every answer says that it is the last.
            noticing.service.drain();
            let _ = stop.send(true);
            // A second one means at once.
            let ended = end.next().await;
            info!(target: "serve", signal = ended, "ended at once");
            std::process::exit(i32::from(FAILED));
        });
        let threads = self.threads.map_or_else(processors, usize::from);
        let served = net::serve(&app, listening, threads, stopped).await;
        signals.abort();
        reload.abort();
        served.map_err(|error| format!("cannot serve: {error}"))
    }

    fn count(&self, tally: Option<&TallySettings>, app: &App) -> Result<Option<Counting>, String> {
        let ca_file = self.redis_ca_file.as_deref();
        tally.map(|settings| Counting::start(settings, ca_file, &app.service)).transpose()
    }

    fn bind(&self, doors: Vec<(Face, Address)>) -> Result<Vec<Taken>, String> {
        let bind = |(face, address): (Face, Address)| {
            let bound = address.bind(self.reuse_port);
            let bound = bound.map_err(|error| cannot_listen(&address, &error))?;
            Ok(Taken { face, address, bound })
        };
        doors.into_iter().map(bind).collect()
    }

    fn start_log(&self) {
        let filter = EnvFilter::try_new(&self.log)
            .unwrap_or_else(|error| wrong_arguments(&format!("--log: {error}")));
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        match self.log_format {
            LogFormat::Text => log.with_ansi(super::paint::Paint::is_for_stderr()).init(),
            LogFormat::Json => log.json().init(),
        }
    }

    /// The policy's path, or what stands for it.
    fn config(&self) -> &Path {
        self.config.as_deref().unwrap_or(Path::new(ENVIRONMENT))
    }

    fn stores(&self) -> Result<Vec<StoreText>, String> {
        let stores = self.redis.iter().map(|text| StoreText::parse(text));
        stores.collect::<Result<_, _>>().map_err(|why| format!("--redis: {why}"))
    }

    /// How stores are used; none if the policy is not sound, which is told when it is put in force.
    fn tally(&self, is_alone: bool) -> Result<Option<TallySettings>, String> {
        let reading = Reading::of(self.keys_max, self.merging.merge_domains);
        let load = |path| {
            let first = |findings: Vec<Finding>| findings.first().map(ToString::to_string);
            let loaded = config::load(path, reading).map(|loaded| loaded.tally);
            loaded.map_err(|findings| first(findings).unwrap_or_default())
        };
        match load(self.config()) {
            Ok(tally) => Ok(Some(tally)),
            Err(_) if is_alone => Ok(None),
            // A fleet that has its limits does without the file.
            Err(why) => {
                error!(target: "policy", "{why}; what the file says of stores is not known");
                load(Path::new(ENVIRONMENT)).map(Some)
            }
        }
    }

    fn options(&self, secret: Secret, fleet: bool, tally: bool) -> Options {
        Options {
            keys_max: self.keys_max,
            table_full: self.table_full.into(),
            // A client that waits as long as it was told must not be early by its own clock.
            clock: Clock::monotonic(),
            secret,
            fleet,
            tally,
            share: true,
        }
    }

    /// A daemon that is alone.
    fn app(&self, tally: bool) -> Result<Arc<App>, String> {
        let service = Service::new(self.options(Secret::random(), false, tally));
        let service = Arc::new(service.map_err(|error| error.to_string())?);
        let policy = Policy::new(self.config(), service.clone());
        let policy = Arc::new(policy.with_merged_domains(self.merging.merge_domains));
        let alone = Alone::start(service.limiter());
        let owners = alone.map(Owners::Alone);
        self.app_of(service, policy, Fellows::default(), owners)
    }

    /// A daemon that is a member of a fleet, whose limits are in force when this returns.
    fn member(
        &self,
        setup: Setup,
        tally: bool,
        runtime: &Runtime,
    ) -> Result<(Arc<App>, Membership), String> {
        let (made, makes) = std::sync::mpsc::channel();
        let in_force = InForce::default();
        let (path, merge, put) =
            (self.config().to_owned(), self.merging.merge_domains, in_force.clone());
        let options = self.options(Secret::random(), true, tally);
        let membership = setup.start(Box::new(move |secret| {
            let service = Service::new(Options { secret, ..options });
            let service = Arc::new(service.map_err(|error| error.to_string())?);
            let policy = Policy::new(&path, service.clone()).with_merged_domains(merge);
            let policy = Arc::new(policy);
            let limiter = service.limiter().clone();
            let _ = made.send((service, policy.clone()));
            let enforce = move |document: &Document| {
                let rules = policy.enforce(document)?;
                put.put(document);
                Ok(rules)
            };
            Ok((limiter, Arc::new(enforce)))
        }))?;
        let (service, policy) = makes.recv().map_err(|_| "the member was not made")?;
        let agreement = FleetAgreement::new(membership.fleet.clone(), in_force.clone());
        if self.config.is_some() || config::is_in_environment() {
            runtime.block_on(import(&policy, &agreement, &in_force))?;
        }
        let overview = Arc::new(FleetOverview::new(membership.fleet.clone()));
        let member = Member::new(membership.fleet.clone());
        let agreement = Arc::new(agreement);
        let owners = Owners::Fleet(membership.fleet.clone());
        let fellows =
            Fellows { agreement: Some(agreement), overview: Some(overview), member: Some(member) };
        let app = self.app_of(service, policy, fellows, Some(owners))?;
        Ok((app, membership))
    }

    fn app_of(
        &self,
        service: Arc<Service>,
        policy: Arc<Policy>,
        fellows: Fellows,
        owners: Option<Owners>,
    ) -> Result<Arc<App>, String> {
        let Fellows { agreement, overview, member } = fellows;
        let divider = |owners| Division::new(service.limiter().clone(), owners) as Arc<dyn Divider>;
        let shares = owners.clone().map(shares::source);
        let divider = owners.map(divider);
        let held = Arc::<std::sync::atomic::AtomicUsize>::default();
        let seconds = |seconds: NonZeroU64| Duration::from_secs(seconds.get());
        Ok(Arc::new(App {
            exposition: Exposition::new(
                service.clone(),
                policy.clone(),
                overview.clone(),
                shares.clone(),
                held.clone(),
            ),
            service,
            policy,
            agreement,
            overview,
            member,
            divider,
            shares,
            bounds: Bounds {
                connections_max: net::raise_files_max(self.connections_max.get()),
                idle: seconds(self.idle_seconds),
                partial: seconds(self.request_seconds),
                age: self.age_seconds.map(seconds),
                drain: seconds(self.drain_seconds),
            },
            secret: self.secret()?,
            headers: self.headers,
            grpc_headers: self.grpc_headers,
            held,
        }))
    }

    fn secret(&self) -> Result<Option<SharedSecret>, String> {
        let secret = |path: &PathBuf| secret_in(path, SharedSecret::read);
        self.secret_file.as_ref().map(secret).transpose()
    }

    /// Where to listen. Beyond this machine only clients that show a secret are served.
    fn doors(&self) -> Result<Vec<(Face, Address)>, String> {
        let mut doors = Vec::new();
        let all = [(Face::Http, &self.http), (Face::Grpc, &self.grpc), (Face::Resp, &self.resp)];
        for (face, list) in all {
            for text in list.iter().filter(|text| *text != "off") {
                let address: Address =
                    text.parse().map_err(|error| format!("--{} {text}: {error}", face.name()))?;
                if !address.is_local() && self.secret_file.is_none() {
                    return Err(format!(
                        "--{} {text}: other machines could use this; give --secret-file, or \
                         listen at a loopback address",
                        face.name()
                    ));
                }
                doors.push((face, address));
            }
        }
        if doors.is_empty() {
            return Err("--http, --grpc and --resp are all off: nobody could ask".into());
        }
        Ok(doors)
    }
}

/// What a daemon has of its fleet; nothing if it is alone.
#[derive(Default)]
struct Fellows {
    agreement: Option<Arc<dyn Agreement>>,
    overview: Option<Arc<dyn Overview>>,
    member: Option<Member>,
}

/// Gives a fleet without limits those of the file. One that has limits keeps them: its store is the
/// truth, and the file is not read again.
async fn import(
    policy: &Policy,
    agreement: &FleetAgreement,
    in_force: &InForce,
) -> Result<(), String> {
    let path = policy.path().display();
    if let Some(document) = in_force.get() {
        let (revision, author) = (document.revision.get(), &document.author);
        info!(target: "policy", revision, author, "the fleet has limits: {path} is not read");
        return Ok(());
    }
    let limits = policy.texts().map_err(|_| format!("{path}: nothing was imported"))?;
    let edit = Edit {
        // Whoever is quicker has limits that must not be lost.
        expected: Some(Revision::ZERO),
        author: "import".into(),
        comment: format!("from {path}"),
        unix_seconds: unix_now(),
    };
    match agreement.propose(Command::PutPolicy { edit, limits }).await {
        Ok(_) => info!(target: "policy", "{path} is imported: from now on `tollgate limit apply`"),
        Err(ProposeError::Refused(Refused::OtherRevision { .. })) => {}
        Err(error) => return Err(format!("{path} could not be imported: {error}")),
    }
    let mut looks = tokio::time::interval(Duration::from_millis(5));
    while in_force.get().is_none() {
        looks.tick().await;
    }
    Ok(())
}

/// A door whose address is taken, and where nobody is let in yet.
struct Taken {
    face: Face,
    address: Address,
    bound: Bound,
}

fn cannot_listen(address: &Address, error: &std::io::Error) -> String {
    format!("cannot listen at {address}: {error}")
}

/// Leaves the fleet, which hands over what this member owns.
async fn leave(fleet: &Fleet) {
    if tokio::time::timeout(LEAVE_MAX, fleet.leave()).await.is_err() {
        warn!(target: "fleet", "could not leave in time: this member will be taken for lost");
    }
}

/// Puts a changed policy file in force; also at once on SIGHUP.
async fn reload(app: Arc<App>, watch: Watch, mut hang_up: Signal) {
    let mut look = tokio::time::interval(LOOK_INTERVAL);
    // Looks that were missed are not made up for: a file is at rest when time has passed.
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut watch = Some(watch);
    loop {
        let asked = tokio::select! {
            _ = hang_up.recv() => true,
            _ = look.tick() => false,
        };
        let (app, taken) = (app.clone(), watch.take());
        // Reading takes a while, and this thread accepts connections.
        let looked = tokio::task::spawn_blocking(move || {
            let mut watch = taken?;
            let is_news = watch.changed() || asked;
            if is_news && app.agreement.is_some() {
                warn!(target: "policy", "the file has changed and is not read: the fleet's store \
                      is the truth; use `tollgate limit apply`");
            } else if is_news {
                let _ = app.policy.load(); // What is wrong with it is logged.
                app.policy.watch_beside(&mut watch);
            }
            Some(watch)
        });
        let Ok(Some(back)) = looked.await else {
            return error!(target: "serve", "the policy file is no longer watched");
        };
        watch = Some(back);
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// A member that is taken for lost instead is so after about that long.
const LEAVE_MAX: Duration = Duration::from_secs(3);
/// How often the policy file is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
