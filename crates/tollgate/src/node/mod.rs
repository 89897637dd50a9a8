//! A member of a fleet as a state machine: what comes in is [handled](Node::handle), what is to be
//! done is [polled](Node::poll). The daemon and the simulator drive this one type.
//!
//! It touches no cell, socket or clock. The only module that knows all guarantees of a fleet.

mod divided;
mod io;
mod reporting;
mod status;
mod sums;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

pub use io::{Event, Input, NodeCounts, NodeOptions, Output, ShareUsage, StreamUsage};
pub use sums::ShareLimitStatus;

use divided::Dividing;

use crate::coordinator::RingChange;
use crate::key::{KeyHashing, KeyId};
use crate::message::{Message, Refusal, ReportBatch, SnapshotBatch};
use crate::mutant::lacks;
use crate::policy::{FleetLimitId, FleetRules, ViewLimit};
use crate::report::{Lot, Pipeline};
use crate::ring::{NodeId, RingEpoch};
use crate::time::Instant;
use crate::view::handover::{Handover, Sending};
use crate::view::load::Load;
use crate::view::owned::{Owned, Reporter, Standing};
use crate::view::owner::Owner;
use crate::view::tenure::{Began, Charge, Part, Tenure};
use crate::view::worker::{Usage, View};
use crate::view::{CellEpoch, OwnerEpoch, Report};

/// A member of a fleet.
#[derive(Debug)]
pub struct Node {
    me: NodeId,
    start: u64,
    options: NodeOptions,
    rules: FleetRules,
    tenure: Option<Tenure>,
    grants_until: Instant,
    owner: Owner,
    load: Load,
    sending: Sending,
    pipeline: Pipeline,
    views: HashMap<KeyId, Entry, KeyHashing>,
    dividing: Dividing,
    cells: u64,
    outputs: VecDeque<Output>,
    /// What the last `poll` named.
    expected: Instant,
    /// When the process last went on after it had stood still.
    resumed: Instant,
    counts: Done,
    /// What was last heard of each node that reports.
    heard: BTreeMap<NodeId, Heard>,
}

/// What it counts by itself.
#[derive(Debug, Clone, Copy, Default)]
struct Done {
    reports: u64,
    batches: u64,
    misdirected: u64,
    late: u64,
}

/// The last batch of reports of a node.
#[derive(Debug, Clone, Copy)]
struct Heard {
    at: Instant,
    batch: u64,
    /// The last start of its process of which there were cells.
    start: u64,
}

/// A view, its owner by the ring in force, and when it is looked at next.
#[derive(Debug)]
struct Entry {
    view: View,
    owner: Option<NodeId>,
    at: Option<Instant>,
    /// When the report was due that a busy owner refused: it keeps its turn.
    refused: Option<Instant>,
    /// Whether its cell was told to go.
    is_leaving: bool,
}

impl Node {
    /// A node that knows no ring and no limits yet.
    #[must_use]
    pub fn new(me: NodeId, options: NodeOptions) -> Self {
        let times = options.times;
        Self {
            me,
            start: 0,
            options,
            rules: FleetRules::default(),
            tenure: None,
            grants_until: Instant::MAX,
            owner: Owner::new(times, options.keys_max),
            load: Load::new(options.reports_per_second_max, times.sync_interval * 10),
            sending: Sending::default(),
            pipeline: Pipeline::new(times.sync_interval),
            views: HashMap::default(),
            dividing: Dividing::new(options.share, options.keys_max),
            cells: 0,
            outputs: VecDeque::new(),
            expected: Instant::MAX,
            resumed: Instant::ZERO,
            counts: Done::default(),
            heard: BTreeMap::new(),
        }
    }

    /// Handles one input. What comes of it is [polled](Self::poll) before the next one.
    ///
    /// `now` is read after what the input tells was read.
    pub fn handle(&mut self, input: Input, now: Instant) {
        debug_assert!(self.outputs.is_empty(), "outputs are polled before the next input");
        self.notice_pause(now);
        let standing = self.standing();
        let limits = |key, id| self.rules.limit(key, id).copied();
        self.owner.handle_timeout(&limits, &standing, now);
        self.divide_on(now);
        match input {
            Input::Usage(usage) => self.handle_usage(&usage, now),
            Input::Shared(usage) => self.handle_shared(&usage, now),
            Input::Stream(usage) => self.handle_stream(&usage, now),
            Input::StreamGone { key, stream } => self.handle_stream_gone(key, stream, now),
            Input::ShareEvicted { key, gone } => self.handle_share_evicted(key, gone, now),
            Input::Evicted { key, gone } => self.handle_evicted(key, gone, now),
            Input::Message { from, message } => self.handle_message(from, message, now),
            Input::Ring { change, age, start, is_restart } => {
                self.handle_ring(change, age, start, is_restart, now);
            }
            Input::Rules(rules) => self.handle_rules(rules, now),
            Input::Lease(until) => self.grants_until = until,
            Input::Timeout => {}
        }
        self.run(now);
    }

    /// What is to be done next; [`Output::Timeout`] ends it.
    pub fn poll(&mut self) -> Output {
        if let Some(output) = self.outputs.pop_front() {
            return output;
        }
        let times = [
            self.owner.timeout(),
            self.dividing.owner.timeout(),
            self.pipeline.timeout(),
            self.sending.timeout(),
            self.tenure.as_ref().and_then(Tenure::timeout),
        ];
        self.expected = times.into_iter().flatten().min().unwrap_or(Instant::MAX);
        Output::Timeout(self.expected)
    }

    /// What a key has under a limit, as this node knows it: nothing is admitted under a limit that
    /// it does not know.
    #[must_use]
    pub fn limit(&self, key: KeyId, id: FleetLimitId) -> Option<&ViewLimit> {
        self.rules.limit(key, id)
    }

    /// The ring that it knows; zero before the first.
    #[must_use]
    pub fn ring_epoch(&self) -> RingEpoch {
        self.tenure.as_ref().map_or(RingEpoch::ZERO, Tenure::epoch)
    }

    /// Whether it is in charge of a key by the ring that it knows.
    #[must_use]
    pub fn owns(&self, key: KeyId) -> bool {
        self.tenure.as_ref().is_some_and(|tenure| tenure.charge(key) != Charge::Others)
    }

    /// Whether it is in charge of all keys that it owns: others have handed them over.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.tenure.as_ref().is_some_and(|tenure| !tenure.awaits())
    }

    /// Whether it is out of the ring, and all that it owned has arrived at new owners.
    #[must_use]
    pub fn is_handed_over(&self) -> bool {
        let is_out = |tenure: &Tenure| !tenure.ring().contains(self.me);
        self.tenure.as_ref().is_none_or(is_out) && self.sending.is_done()
    }

    fn notice_pause(&mut self, now: Instant) {
        let late = now.saturating_since(self.expected);
        let least = self.options.times.sync_interval * PAUSE_INTERVALS;
        if late >= least && !lacks("pause_is_counted") {
            self.resumed = now;
            self.outputs.push_back(Output::Event(Event::Paused { lasted: late }));
        }
    }

    fn standing(&self) -> Standing {
        Standing {
            start: self.start,
            grants_until: self.grants_until,
            stretch: self.load.stretch(),
        }
    }

    fn handle_rules(&mut self, rules: FleetRules, now: Instant) {
        self.rules.adopt(rules);
        self.divide_by_rules(now);
        self.owner.keep_limits(|id| self.rules.limits.contains_key(&id));
    }

    fn begin(&mut self, key: KeyId, limit: FleetLimitId, base: u64, now: Instant) {
        if let Some(Entry { owner: Some(owner), at: Some(at), .. }) = self.views.remove(&key) {
            self.pipeline.cancel(owner, Lot::View(key), at);
        }
        if self.views.len() >= self.options.keys_max {
            self.outputs.push_back(Output::Event(Event::Full));
            return;
        }
        if !lacks("new_cell_epoch") {
            self.cells += 1;
        }
        let cell_epoch = CellEpoch { start: self.start, cell: self.cells };
        let mut view = View::new(key, limit, cell_epoch, base, self.ring_epoch(), now);
        if let Some(limit) = self.rules.limit(key, limit)
            && let Some(permit) = view.bootstrap(limit, &self.options.times, now)
        {
            self.outputs.push_back(Output::Permit { key, permit });
        }
        let owner = self.tenure.as_ref().and_then(|tenure| tenure.ring().owner(key));
        self.views.insert(key, Entry { view, owner, at: None, refused: None, is_leaving: false });
    }

    fn handle_usage(&mut self, usage: &Usage, now: Instant) {
        let key = usage.drained.key;
        if let Some(base) = usage.drained.base {
            self.begin(key, usage.limit, base, now);
        }
        let Some(entry) = self.views.get_mut(&key) else { return };
        self.counts.late += entry.view.handle_usage(usage, &self.options.times, self.resumed, now);
        self.schedule(key, now);
    }

    fn handle_evicted(&mut self, key: KeyId, gone: bool, now: Instant) {
        // Another cell may have begun meanwhile.
        let Some(entry) = self.views.get_mut(&key).filter(|entry| entry.is_leaving) else { return };
        if gone {
            self.views.remove(&key);
            return;
        }
        entry.is_leaving = false;
        let at = now.saturating_add(self.options.times.sync_interval);
        if let (Some(owner), None) = (entry.owner, entry.at) {
            entry.at = Some(at);
            self.pipeline.schedule(owner, Lot::View(key), at);
        }
    }

    fn handle_message(&mut self, from: NodeId, message: Message, now: Instant) {
        match message {
            Message::Reports(batch) => self.handle_reports(from, &batch, now),
            Message::Snapshots(batch) => self.handle_snapshots(from, &batch, now),
            Message::Refused { batch, why } => {
                let keys = self.pipeline.answered(from, batch, now);
                if let Refusal::Busy { retry_after } = why {
                    let rest = retry_after.min(self.options.times.ttl_max);
                    self.pipeline.rest(from, now.saturating_add(rest));
                    self.keep_turns(&keys, now);
                }
            }
            Message::Handover(handover) => self.handle_handover(from, &handover, now),
            Message::HandoverArrived { ring_epoch, part } => {
                self.sending.acknowledged(from, ring_epoch, part);
            }
        }
    }

    /// Nothing was applied of these keys' reports: when there are more than one batch takes, they
    /// go before those that were applied meanwhile, or an owner that stays busy never hears of
    /// them.
    fn keep_turns(&mut self, lots: &[(Instant, Lot)], now: Instant) {
        for (due, lot) in lots {
            // Members of divisions ask again at their tick.
            let Lot::View(key) = *lot else { continue };
            if let Some(entry) = self.views.get_mut(&key) {
                entry.refused = Some(*due);
                self.schedule(key, now);
            }
        }
    }

    /// A worker reports.
    fn handle_reports(&mut self, from: NodeId, batch: &ReportBatch, now: Instant) {
        let number = batch.batch;
        let refuse =
            |why| Output::Send { to: from, message: Message::Refused { batch: number, why } };
        let ring_epoch = self.ring_epoch();
        if batch.ring_epoch != ring_epoch && !lacks("equal_ring_epoch") {
            self.counts.misdirected += batch.reports.len() as u64;
            self.outputs.push_back(refuse(Refusal::NotOwner { ring_epoch }));
            return;
        }
        let count = batch.reports.len() + batch.demands.len();
        if let Err(retry_after) = self.load.admit(count as u64, now) {
            self.outputs.push_back(refuse(Refusal::Busy { retry_after }));
            return;
        }
        let is_overtaken = self.hear(from, batch, now);
        let by = Reporter { node: from, round_trip: batch.round_trip, is_overtaken };
        let mut snapshots = Vec::with_capacity(batch.reports.len());
        for reports in batch.reports.chunks(FETCH_REPORTS) {
            self.owner.fetch(from, reports);
            snapshots.extend(reports.iter().filter_map(|report| self.apply(report, by, now)));
        }
        let allotments = self.handle_demands(from, &batch.demands, now);
        let owner_epoch = OwnerEpoch { ring: ring_epoch, start: self.start };
        let answer = SnapshotBatch { answers: Some(number), owner_epoch, snapshots, allotments };
        self.outputs.push_back(Output::Send { to: from, message: Message::Snapshots(answer) });
    }

    /// Notes a batch. Returns whether a later one of the same process was heard before.
    fn hear(&mut self, from: NodeId, batch: &ReportBatch, now: Instant) -> bool {
        let starts = batch.reports.iter().map(|report| report.cell_epoch.start);
        let starts = starts.chain(batch.demands.iter().map(|demand| demand.epoch.start));
        let start = starts.max().unwrap_or(0);
        let heard = self.heard.entry(from).or_insert(Heard { at: now, batch: 0, start });
        heard.at = now;
        if start <= heard.start && batch.batch <= heard.batch {
            return true;
        }
        (heard.start, heard.batch) = (heard.start.max(start), batch.batch);
        false
    }

    fn apply(
        &mut self,
        report: &Report,
        by: Reporter,
        now: Instant,
    ) -> Option<crate::view::Snapshot> {
        let tenure = self.tenure.as_ref()?;
        // Keys that others own were taken away when the ring changed; those that are still being
        // handed over may be here in part.
        let began = if self.owner.key(report.key).is_some() && !tenure.awaits() {
            KNOWN
        } else {
            match tenure.charge(report.key) {
                Charge::Since(began) => began,
                Charge::Awaited if lacks("handover_awaited") => KNOWN,
                Charge::Awaited | Charge::Others => return None,
            }
        };
        let limits = |key, id| self.rules.limit(key, id).copied();
        let standing = self.standing();
        let answer = self.owner.handle_report(report, by, &limits, began, &standing, now);
        answer.unwrap_or_else(|_| {
            self.outputs.push_back(Output::Event(Event::Full));
            None
        })
    }

    /// An owner answers, or tells what it was not asked.
    fn handle_snapshots(&mut self, from: NodeId, batch: &SnapshotBatch, now: Instant) {
        if let Some(answered) = batch.answers {
            self.pipeline.answered(from, answered, now);
        }
        for snapshot in &batch.snapshots {
            let Some(entry) = self.views.get_mut(&snapshot.key) else { continue };
            if entry.owner != Some(from) {
                continue;
            }
            let limit = self.rules.limit(snapshot.key, entry.view.limit);
            let times = &self.options.times;
            let permit = entry.view.handle_snapshot(snapshot, batch.owner_epoch, limit, times, now);
            if let Some(permit) = permit {
                self.outputs.push_back(Output::Permit { key: snapshot.key, permit });
            }
            self.schedule(snapshot.key, now);
        }
        self.handle_allotments(from, batch, now);
    }

    /// An old owner hands keys over.
    fn handle_handover(&mut self, from: NodeId, handover: &Handover, now: Instant) {
        let Some(tenure) = &mut self.tenure else { return };
        let part = tenure.handle_part(from, handover, &self.options.times, now);
        if part == Part::Early {
            return;
        }
        if part == Part::New {
            for handed in &handover.keys {
                if !tenure.was_of(handed.key, from) {
                    continue;
                }
                let limit = self.rules.limit(handed.key, handed.limit);
                let bootstrap = limit.map_or(0, |limit| limit.bootstrap);
                let owned = Owned::received(handed, bootstrap, &self.options.times, now);
                if self.owner.put(handed.key, owned, now).is_err() {
                    tenure.distrust(from, &self.options.times, now);
                    self.outputs.push_back(Output::Event(Event::Full));
                }
            }
        }
        let (ring_epoch, part) = (handover.ring_epoch, handover.part);
        let message = Message::HandoverArrived { ring_epoch, part };
        self.outputs.push_back(Output::Send { to: from, message });
    }

    fn handle_ring(
        &mut self,
        change: RingChange,
        age: Duration,
        start: u64,
        is_restart: bool,
        now: Instant,
    ) {
        let is_new_life = start != self.start;
        self.start = start;
        let times = self.options.times;
        match &mut self.tenure {
            None => {
                let tenure = Tenure::new(self.me, change, age, is_restart, &times, now);
                self.tenure = Some(tenure);
            }
            Some(tenure) if change.ring.epoch() <= tenure.epoch() => return,
            Some(tenure) => {
                // Others were in charge without this node having handed anything over.
                let is_cut_off = change.previous.epoch() != tenure.epoch()
                    || change.lost.contains(&self.me)
                    || is_new_life;
                let began = tenure.adopt(change, is_cut_off, &times, now);
                let keys = if is_cut_off && !lacks("missed_ring_forgets") {
                    self.owner.take(|_| true).len() as u64
                } else {
                    self.hand_over(began, now)
                };
                // Nobody waits longer for what it hands over.
                let is_late = is_cut_off || age >= times.handover_max();
                if keys > 0 && is_late && !lacks("overlap_is_counted") {
                    let event = Event::Overlap { lasted: age, keys };
                    self.outputs.push_back(Output::Event(event));
                }
            }
        }
        self.pipeline.clear();
        self.owner.forget_pushes();
        self.heard.clear();
        let epoch = self.ring_epoch();
        let mut keys: Vec<KeyId> = self.views.keys().copied().collect();
        keys.sort_unstable();
        for key in keys {
            if let Some(entry) = self.views.get_mut(&key) {
                entry.view.handle_ring(epoch, start);
                entry.owner = self.tenure.as_ref().and_then(|tenure| tenure.ring().owner(key));
                (entry.at, entry.refused) = (None, None);
            }
            self.schedule(key, now);
        }
        self.divide_by_ring(now);
    }

    /// Freezes the keys that are others' now, and starts to send them. Returns how many.
    fn hand_over(&mut self, began: Began, now: Instant) -> u64 {
        let Some(tenure) = &self.tenure else { return 0 };
        let (me, ring) = (self.me, tenure.ring());
        let moved = self.owner.take(|key| ring.owner(key) != Some(me));
        let count = moved.len() as u64;
        let mut by_heir: BTreeMap<NodeId, Vec<(KeyId, Owned)>> =
            tenure.heirs().map(|heir| (heir, Vec::new())).collect();
        for (key, owned) in moved {
            if let Some(heir) = ring.owner(key) {
                by_heir.entry(heir).or_default().push((key, owned));
            }
        }
        let until = now.saturating_add(self.options.times.handover_max());
        self.sending.start(ring.epoch(), began, by_heir, until, now);
        count
    }
}

/// What a key's tenure does not matter for: it has state here.
const KNOWN: Began = Began::at(Instant::ZERO);
/// Reports whose state is fetched at once: it fits into the nearest cache.
const FETCH_REPORTS: usize = 32;
/// A process that is so many sync intervals late stood still. A permission may have been about to
/// end, so that what was spent since is more by as much as has leaked meanwhile.
const PAUSE_INTERVALS: u32 = 1;
