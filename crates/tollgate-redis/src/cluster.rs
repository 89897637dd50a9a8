//! A cluster: which of its nodes is asked for which counters, and that each fails alone.
//!
//! Nodes are asked who has which slots at first, and again, by one call in a reconnect interval,
//! after a node was lost or said that it does not have a counter. Nothing is sent again on a node's
//! word: what it does not have is not there, and comes with a later call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Mutex as Turn;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::connection::{Access, Connection, Failed};
use crate::decoder::Bounds;
use crate::health::{Board, FailureKind, Server};
use crate::link::{Link, LinkLimits, Times};
use crate::options::{ADDRESSES_MAX, Address};
use crate::pipeline::{Answer, Pair, Reads, Writes};
use crate::refusal::Refusal;
use crate::seek::Seek;
use crate::slots::{self, Slots};
use tollgate::Addition;
use tollgate::tally::Outcome;

pub(crate) struct Cluster {
    seeds: Vec<Address>,
    access: Access,
    limits: LinkLimits,
    board: Arc<Board>,
    /// Held while nodes are asked who has which slots.
    asking: Turn<()>,
    map: Mutex<Map>,
}

struct Map {
    slots: Option<Slots>,
    links: HashMap<Address, Arc<Link>>,
    is_stale: bool,
    ask_at: Option<Instant>,
}

/// What one node is asked for, by the places in the call.
type Groups = Vec<(Arc<Link>, Address, Vec<usize>)>;

impl Cluster {
    pub(crate) fn new(
        seeds: Vec<Address>,
        access: Access,
        limits: LinkLimits,
        board: Arc<Board>,
    ) -> Self {
        let map = Map { slots: None, links: HashMap::new(), is_stale: true, ask_at: None };
        Self { seeds, access, limits, board, asking: Turn::new(()), map: Mutex::new(map) }
    }

    pub(crate) async fn write(&self, additions: &[Addition], times: Times) -> Vec<Outcome> {
        self.refresh(times.connect_by).await;
        let mut outcomes = vec![Outcome::NotSent; additions.len()];
        let mut tasks = JoinSet::new();
        for (link, node, places) in self.groups(additions.iter().map(|one| one.name.as_str())) {
            let writes = Writes::new(places.iter().map(|place| &additions[*place]));
            // What a task that panics was to write may be there.
            places.iter().for_each(|place| outcomes[*place] = Outcome::Unknown);
            tasks.spawn(async move { (link.write(writes, times).await, node, places) });
        }
        while let Some(joined) = tasks.join_next().await {
            let Ok((answer, node, places)) = joined else { continue };
            self.learn(&answer, &node);
            for (place, outcome) in places.into_iter().zip(answer.values) {
                outcomes[place] = outcome;
            }
        }
        outcomes
    }

    pub(crate) async fn read(&self, names: &[[String; 2]], times: Times) -> Vec<Pair> {
        self.refresh(times.connect_by).await;
        let mut pairs = vec![None; names.len()];
        let mut tasks = JoinSet::new();
        for (link, node, places) in self.groups(names.iter().map(|[one, _]| one.as_str())) {
            let reads = Reads::by_pair(places.iter().map(|place| &names[*place]));
            tasks.spawn(async move { (link.read(reads, times).await, node, places) });
        }
        while let Some(joined) = tasks.join_next().await {
            let Ok((answer, node, places)) = joined else { continue };
            self.learn(&answer, &node);
            for (place, pair) in places.into_iter().zip(answer.values) {
                pairs[place] = pair;
            }
        }
        pairs
    }

    /// The nodes that are asked.
    pub(crate) fn servers(&self) -> Vec<Server> {
        let mut servers: Vec<Server> =
            self.lock().links.values().filter_map(|link| link.server()).collect();
        servers.sort_by(|one, other| one.address.cmp(&other.address));
        servers
    }

    /// Asks who has which slots, if that is not known and it is time.
    async fn refresh(&self, deadline: Instant) {
        // Before anything is known all wait for it; later others go on with what was known.
        let is_new = {
            let map = self.lock();
            if !map.is_due(Instant::now()) {
                return;
            }
            map.ask_at.is_none()
        };
        let turn = match is_new {
            true => timeout_at(deadline, self.asking.lock()).await.ok(),
            false => self.asking.try_lock().ok(),
        };
        let Some(_turn) = turn else { return };
        let nodes: Vec<Address> = {
            let mut map = self.lock();
            if !map.is_due(Instant::now()) {
                return;
            }
            // Also of a call that gives up while it asks.
            map.ask_at = Some(deadline + self.limits.reconnect_interval);
            let known = map.slots.iter().flat_map(|slots| slots.nodes().iter().cloned());
            known.take(ADDRESSES_MAX).chain(self.seeds.iter().cloned()).collect()
        };
        let asked = self.ask(nodes, deadline).await;
        let mut map = self.lock();
        map.ask_at = Some(Instant::now() + self.limits.reconnect_interval);
        match asked {
            Ok(slots) => {
                map.links.retain(|node, _| slots.nodes().contains(node));
                (map.slots, map.is_stale) = (Some(slots), false);
            }
            Err(failed) => {
                drop(map);
                let mut notes = self.board.lock();
                notes.counts.connects_failed += 1;
                notes.fail(failed.kind, failed.text);
            }
        }
    }

    /// The first node that answers is believed; one that is wrong is corrected by `MOVED`.
    async fn ask(&self, nodes: Vec<Address>, deadline: Instant) -> Result<Slots, Failed> {
        let mut tasks = JoinSet::new();
        for node in nodes {
            tasks.spawn(slots_of(node, self.access.clone()));
        }
        let mut failed = Failed::timed_out();
        while let Ok(Some(joined)) = timeout_at(deadline, tasks.join_next()).await {
            match joined {
                Ok(Ok(slots)) => return Ok(slots),
                Ok(Err(other)) => failed = other,
                Err(_) => {}
            }
        }
        Err(failed)
    }

    fn groups<'a>(&self, names: impl Iterator<Item = &'a str>) -> Groups {
        let mut map = self.lock();
        let Map { slots: Some(slots), links, is_stale, .. } = &mut *map else {
            return Vec::new();
        };
        let mut groups: HashMap<&Address, Vec<usize>> = HashMap::new();
        for (place, name) in names.enumerate() {
            match slots.owner(name) {
                Some(node) => groups.entry(node).or_default().push(place),
                None => *is_stale = true,
            }
        }
        let link = |node: &Address| {
            let seek =
                Seek { addresses: vec![node.clone()], access: self.access.clone(), sentinel: None };
            Arc::new(Link::new(seek, self.limits, Arc::clone(&self.board)))
        };
        let mut all = Vec::new();
        for (node, places) in groups {
            let link = links.entry(node.clone()).or_insert_with(|| link(node));
            all.push((Arc::clone(link), node.clone(), places));
        }
        all
    }

    /// Takes in what a node said of where counters are.
    fn learn<T>(&self, answer: &Answer<T>, node: &Address) {
        let mut map = self.lock();
        map.is_stale |= answer.is_lost;
        for (refusal, _) in &answer.refusals {
            let Refusal::Moved { slot, host, port } = refusal else {
                map.is_stale |= *refusal == Refusal::Cluster || *refusal == Refusal::ReadOnly;
                continue;
            };
            map.is_stale = true;
            if let (Some(slots), Some(to)) = (&mut map.slots, slots::address(host, *port, node)) {
                slots.moved(*slot, to);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Map {
    fn is_due(&self, now: Instant) -> bool {
        self.is_stale && self.ask_at.is_none_or(|at| now >= at)
    }
}

async fn slots_of(node: Address, access: Access) -> Result<Slots, Failed> {
    let named = |failed: Failed| Failed { text: format!("{node}: {}", failed.text), ..failed };
    let mut connection = Connection::open(&node, &access).await.map_err(named)?;
    let reply = connection.ask(&[b"CLUSTER", b"SLOTS"], SLOTS_BOUNDS).await.map_err(named)?;
    let no_slots = || Failed {
        kind: FailureKind::Protocol,
        text: format!("{node}: it is no node of a cluster that has slots"),
    };
    Slots::of(&reply, &node).ok_or_else(no_slots)
}

/// A node of a cluster of a thousand that is much split up says less.
const SLOTS_BOUNDS: Bounds = Bounds { elements: 400_000, string_bytes: 1024 };
