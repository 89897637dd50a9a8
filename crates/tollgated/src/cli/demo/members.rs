//! The three nodes: daemons as `serve --peer` starts them, less the faces. They share a process,
//! and nothing in it: they speak over sockets, and each has a store of its own.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tollgate::coordinator::{Command, Document, Edit, Revision, SessionOptions};
use tollgate::{
    Clock, Descriptor, Entry, KeyId, Limit, LimitSpec, Member, Options, Rate, Request, Ring,
    TableFull, Wait,
};
use tollgate_tokio::limit_text::to_texts;
use tollgate_tokio::wire::PeerSecret;
use tollgate_tokio::{Build, Fleet, MemberStatus};

use super::super::FAILED;
use super::super::signals::EndSignals;
use super::tally::Promise;
use crate::agreement::Agreement;
use crate::fleet::{FleetAgreement, InForce, Membership, Setup};
use crate::service::Service;

/// The fleet.
pub(super) struct Members {
    members: Vec<Option<Membership>>,
    noisy: KeyId,
    roles: Roles,
    /// Last, so that nobody writes into it any more.
    _folder: Folder,
}

/// Who is who, by places among the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Roles {
    /// The quiet tenant's name.
    pub(super) quiet: String,
    /// The node that keeps the noisy tenant's level.
    pub(super) noisy_owner: usize,
    /// The one that keeps the quiet tenant's: another one.
    pub(super) quiet_owner: usize,
}

impl Members {
    /// Founds the fleet, lets two more join, and puts the limit in force on all of them.
    ///
    /// # Errors
    /// What went wrong, for people. Nothing is left behind.
    pub(super) fn start() -> Result<Self, String> {
        let folder = Folder::new()?;
        end_on_signals(folder.0.clone())?;
        let mut members: Vec<Option<Membership>> = Vec::new();
        for place in 0..NODES {
            let first = members.first().and_then(Option::as_ref);
            let join = first.map(|first| first.address.clone()).into_iter().collect();
            members.push(Some(start_one(&folder.0.join(format!("node{place}")), join)?));
        }
        let fleets = fleets(&members);
        let runtime = runtime()?;
        runtime.block_on(put_limit(&fleets[0]))?;
        runtime.block_on(wait_until_ready(&fleets))?;
        let noisy = key_of(&fleets[0], NOISY)?;
        let roles = roles(&fleets, noisy)?;
        for fleet in &fleets {
            for tenant in [NOISY, &roles.quiet] {
                runtime.block_on(wait_until_served(fleet, tenant))?;
            }
        }
        Ok(Self { members, noisy, roles, _folder: folder })
    }

    /// Who kept what when the fleet stood.
    pub(super) fn roles(&self) -> &Roles {
        &self.roles
    }

    /// The place of the noisy tenant's owner, by the last ring that a member has told of.
    pub(super) fn noisy_owner(&self) -> Option<usize> {
        owner(&fleets(&self.members), self.noisy)
    }

    /// Ends a node's tasks and closes its sockets, as a kill -9 does.
    pub(super) fn kill(&mut self, place: usize) {
        self.members[place] = None;
    }

    /// Those that live, by their places.
    pub(super) fn living(&self) -> impl Iterator<Item = (usize, Fleet)> {
        let fleet = |(place, member): (usize, &Option<Membership>)| {
            Some((place, member.as_ref()?.fleet.clone()))
        };
        self.members.iter().enumerate().filter_map(fleet)
    }
}

fn fleets(members: &[Option<Membership>]) -> Vec<Fleet> {
    members.iter().flatten().map(|member| member.fleet.clone()).collect()
}

/// The place of a key's owner, by the last ring that one of them has told of.
fn owner(fleets: &[Fleet], key: KeyId) -> Option<usize> {
    let statuses = fleets.iter().map(|fleet| fleet.status().borrow().clone());
    let latest: MemberStatus = statuses.max_by_key(|status| status.ring_epoch)?;
    // As `start_one` has them, all weigh the same.
    let members = latest.members.iter().map(|(node, _)| Member { node: *node, weight: 1 });
    let ring = Ring::new(latest.ring_epoch, members).ok()?;
    // Numbers are given in the order in which they joined, from 1 on.
    usize::try_from(ring.owner(key)?.get()).ok()?.checked_sub(1)
}

/// Looks for a quiet tenant that another node keeps than the noisy one.
fn roles(fleets: &[Fleet], noisy: KeyId) -> Result<Roles, String> {
    let nobody = || String::from("nobody owns the tenants' keys");
    let noisy_owner = owner(fleets, noisy).ok_or_else(nobody)?;
    for number in 1..=NAMES_MAX {
        let quiet = if number == 1 { "quiet".into() } else { format!("quiet{number}") };
        let quiet_owner = owner(fleets, key_of(&fleets[0], &quiet)?).ok_or_else(nobody)?;
        if quiet_owner != noisy_owner {
            return Ok(Roles { quiet, noisy_owner, quiet_owner });
        }
    }
    Err(nobody())
}

/// Founds the fleet, or joins it at one of these addresses.
fn start_one(data: &Path, join: Vec<String>) -> Result<Membership, String> {
    let setup = Setup {
        peer: SocketAddr::from(([127, 0, 0, 1], 0)),
        advertise: None,
        secret: PeerSecret::default(),
        data: data.to_owned(),
        join,
        weight: 1,
        voters_max: 3,
        keys_max: KEYS_MAX,
        table_full: TableFull::default(),
        tally: false,
        sessions: SessionOptions::default(),
    };
    let build: Build = Box::new(|secret| {
        let clock = Clock::monotonic();
        let table_full = TableFull::default();
        let (fleet, tally, share, keys_max) = (true, false, true, KEYS_MAX);
        let options = Options { keys_max, table_full, clock, secret, fleet, tally, share };
        let service = Arc::new(Service::new(options).map_err(|error| error.to_string())?);
        let limiter = service.limiter().clone();
        Ok((limiter, Arc::new(move |document: &Document| service.enforce(document))))
    });
    setup.start(build)
}

/// What the limit promises.
pub(super) fn promise() -> Result<Promise, String> {
    let rate = Rate::parse(LIMIT.rate).map_err(|error| error.to_string())?;
    Ok(Promise { rate, burst: LIMIT.burst.unwrap_or(rate.units()) })
}

async fn put_limit(fleet: &Fleet) -> Result<(), String> {
    let limit = Limit::parse(&LIMIT).map_err(|error| error.to_string())?;
    let agreement = FleetAgreement::new(fleet.clone(), InForce::default());
    let edit = Edit {
        expected: Some(Revision::ZERO),
        author: "demo".into(),
        comment: String::new(),
        unix_seconds: 0,
    };
    let put = Command::PutPolicy { edit, limits: to_texts(&[limit]) };
    agreement.propose(put).await.map(drop).map_err(|error| error.to_string())
}

/// Waits until all know each other and the limit, and all three have a vote: any may die then.
async fn wait_until_ready(fleets: &[Fleet]) -> Result<(), String> {
    let began = Instant::now();
    let is_ready = |status: &MemberStatus| {
        status.members.len() == NODES
            && status.sessions.len() == NODES
            && status.revision > Revision::ZERO
    };
    for fleet in fleets {
        let left = READY_WITHIN.saturating_sub(began.elapsed());
        let mut status = fleet.status();
        let ready = tokio::time::timeout(left, status.wait_for(is_ready)).await;
        let why = || format!("the fleet does not stand after {READY_WITHIN:?}");
        ready.map_err(|_| why())?.map_err(|_| why())?;
    }
    Ok(())
}

/// The key of a tenant that nobody has asked for yet.
fn key_of(fleet: &Fleet, tenant: &str) -> Result<KeyId, String> {
    let entries = [Entry::new("tenant", tenant)];
    let descriptor = Descriptor::new(&entries).map_err(|error| error.to_string())?;
    match fleet.limiter().contact(&Request::new(&[descriptor])) {
        Some(Wait::Credit { key, .. }) => Ok(key),
        Some(Wait::Until(_)) | None => Err(format!("no limit of the fleet applies to {tenant}")),
    }
}

/// Waits until a tenant's owner permits something: members that have just come take over keys, and
/// who takes over waits for what was permitted before.
async fn wait_until_served(fleet: &Fleet, tenant: &str) -> Result<(), String> {
    let entries = [Entry::new("tenant", tenant)];
    let descriptor = Descriptor::new(&entries).map_err(|error| error.to_string())?;
    let descriptors = [descriptor];
    let request = Request::new(&descriptors);
    let began = Instant::now();
    while fleet.limiter().contact(&request).is_some() {
        if began.elapsed() > READY_WITHIN {
            return Err(format!("{tenant} is not served after {READY_WITHIN:?}"));
        }
        let _contact = fleet.contact(&request).await;
    }
    Ok(())
}

/// Where the nodes' stores are; removed when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, String> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(|error| error.to_string())?;
        let name = format!("tollgate-demo-{:016x}", u64::from_le_bytes(bytes));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What can't be removed is the system's to remove: it is in its folder for such things.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// On Ctrl-C the folder is removed, and nothing else has to be done.
fn end_on_signals(folder: PathBuf) -> Result<(), String> {
    let runtime = runtime()?;
    let no_signals = |error| format!("cannot receive signals: {error}");
    let signals = runtime.block_on(async { EndSignals::new() });
    let mut signals = signals.map_err(no_signals)?;
    std::thread::spawn(move || {
        runtime.block_on(signals.next());
        let _ = fs::remove_dir_all(folder);
        eprintln!("ended before the verdict");
        std::process::exit(i32::from(FAILED));
    });
    Ok(())
}

pub(super) fn runtime() -> Result<Runtime, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| format!("no runtime: {error}"))
}

pub(super) const NODES: usize = 3;
pub(super) const NOISY: &str = "noisy";
const LIMIT: LimitSpec<'_> = LimitSpec {
    name: "api",
    key: &["tenant"],
    rate: "1000/s",
    burst: Some(200),
    guarantee: "eventual",
    ..LimitSpec::DEFAULT
};
/// The same for people.
pub(super) const LIMIT_WORDS: &str = "1,000/s, burst 200";
const KEYS_MAX: u64 = 1_000;
/// Two thirds of all names have another owner than the noisy tenant.
const NAMES_MAX: usize = 64;
const READY_WITHIN: Duration = Duration::from_secs(20);
