//! One process: a node, its cells, its clock and the requests that wait in it. What the daemon's
//! driver does with threads and sockets, in virtual time.

use std::collections::{HashMap, VecDeque};

use tollgate::{
    Charged, Credits, Drained, FleetLimitId, Input, Instant, KeyId, Message, Node, NodeId,
    NodeOptions, Output, Usage,
};

use crate::scenario::Nanos;

/// A process.
pub(crate) struct Machine {
    pub(crate) node: Node,
    pub(crate) credits: Credits,
    pub(crate) clock: DriftingClock,
    keys: HashMap<KeyId, Kept>,
    /// Keys whose usage is to be told though their cells are clean.
    to_tell: Vec<KeyId>,
    /// When the node wants to be woken (its own clock).
    pub(crate) wakes_at: Instant,
    next_waiter: u64,
}

/// What the driver keeps of a key besides its cell.
#[derive(Default)]
struct Kept {
    drained: Option<Drained>,
    returned: u64,
    waiters: VecDeque<Waiter>,
    /// [`Self::first`], as the node was told.
    told_first: (u64, bool),
}

impl Kept {
    /// The cost of the first that waits, 0 if none does, and whether it waits as those of a door
    /// do: every second client, while the others stand in a queue.
    fn first(&self) -> (u64, bool) {
        self.waiters.front().map_or((0, false), |waiter| (waiter.cost, waiter.demand % 2 == 1))
    }

    /// What the node is told of a key.
    fn usage(&mut self, drained: Drained) -> Usage {
        let first = self.first();
        // Told again it is no news.
        let known = Drained { base: None, refused: 0, refund: None, ..drained };
        (self.drained, self.told_first) = (Some(known), first);
        Usage {
            limit: drained.limit,
            drained,
            returned: std::mem::take(&mut self.returned),
            waiting: first.0,
            is_brief: first.1,
            refused: drained.refused,
        }
    }
}

/// A request that waits for credit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiter {
    pub(crate) id: u64,
    pub(crate) cost: u64,
    /// Where its client belongs, for the ledger.
    pub(crate) demand: usize,
}

/// A clock that is a little wrong, and began anywhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DriftingClock {
    pub(crate) offset: u64,
    /// Parts per million.
    pub(crate) drift_ppm: i64,
}

/// What comes out of a machine.
pub(crate) enum Effect {
    Send {
        to: NodeId,
        message: Message,
    },
    Event(tollgate::Event),
    /// A key has a new cell.
    Contact {
        limit: FleetLimitId,
    },
    /// A request that waited was admitted.
    Admitted {
        waiter: Waiter,
    },
}

/// The answer to a request.
pub(crate) enum Answer {
    Admitted,
    Waits(u64),
    Refused { stale: bool },
}

impl DriftingClock {
    pub(crate) fn read(&self, at: Nanos) -> Instant {
        let drifted = i128::from(at) * i128::from(self.drift_ppm) / 1_000_000;
        Instant::from_nanos((i128::from(self.offset) + i128::from(at) + drifted) as u64)
    }

    /// The first true instant at which the clock shows `at` or later.
    pub(crate) fn shows(&self, at: Instant) -> Nanos {
        let shown = i128::from(at.as_nanos()) - i128::from(self.offset);
        if shown <= 0 {
            return 0;
        }
        let mut guess = (shown * 1_000_000 / (1_000_000 + i128::from(self.drift_ppm))) as u64;
        guess = guess.saturating_sub(2);
        while self.read(guess) < at {
            guess += 1;
        }
        guess
    }
}

impl Machine {
    pub(crate) fn new(id: NodeId, options: NodeOptions, clock: DriftingClock) -> Self {
        Self {
            node: Node::new(id, options),
            credits: Credits::new(options.keys_max as u64),
            clock,
            keys: HashMap::new(),
            to_tell: Vec::new(),
            wakes_at: Instant::MAX,
            next_waiter: 0,
        }
    }

    /// Somebody asks. Whether the node is to be told at once: [`Answer::Admitted`] can wait.
    pub(crate) fn ask(
        &mut self,
        key: KeyId,
        limit: FleetLimitId,
        asked: Asked,
        now: Instant,
    ) -> Answer {
        let kept = self.keys.entry(key).or_default();
        if !asked.waits {
            return match self.credits.charge(key, limit, asked.cost, now) {
                Charged::Allowed { .. } => Answer::Admitted,
                Charged::OverLimit { .. } | Charged::Full => Answer::Refused { stale: false },
                Charged::Stale { .. } => Answer::Refused { stale: true },
            };
        }
        // Those who wait go first.
        if kept.waiters.is_empty() {
            let charged = self.credits.charge_or_wait(key, limit, asked.cost, now);
            if let Charged::Allowed { .. } = charged {
                return Answer::Admitted;
            }
        }
        if kept.waiters.len() >= QUEUE_MAX {
            return Answer::Refused { stale: false };
        }
        self.next_waiter += 1;
        let id = self.next_waiter;
        kept.waiters.push_back(Waiter { id, cost: asked.cost, demand: asked.demand });
        self.to_tell.push(key);
        Answer::Waits(id)
    }

    /// A request's time to wait is over. Returns it, if it still waited.
    pub(crate) fn give_up(&mut self, key: KeyId, id: u64) -> Option<Waiter> {
        let kept = self.keys.get_mut(&key)?;
        let place = kept.waiters.iter().position(|waiter| waiter.id == id)?;
        self.to_tell.push(key);
        kept.waiters.remove(place)
    }

    /// Tells the node one thing, after all that its cells hold, and does what comes of it.
    pub(crate) fn tell(&mut self, input: Input, at: Nanos, effects: &mut Vec<Effect>) {
        self.drain(at, effects);
        self.handle(input, at, effects);
        self.drain(at, effects);
    }

    /// Tells the node what its cells hold, until there is nothing new.
    pub(crate) fn drain(&mut self, at: Nanos, effects: &mut Vec<Effect>) {
        let now = self.clock.read(at);
        // Ends: what a node writes into a cell in answer to what the cell holds, it writes once.
        loop {
            let mut drained = Vec::new();
            self.credits.drain(now, |one| drained.push(one));
            let told = std::mem::take(&mut self.to_tell);
            if drained.is_empty() && told.is_empty() {
                return;
            }
            let mut usages: Vec<Usage> = Vec::new();
            for one in drained {
                // Now: what is returned while these are told is told with the next drain.
                usages.extend(self.keys.get_mut(&one.key).map(|kept| kept.usage(one)));
            }
            for key in told {
                let is_told = usages.iter().any(|usage| usage.drained.key == key);
                let Some(kept) = self.keys.get_mut(&key).filter(|_| !is_told) else { continue };
                let Some(last) = kept.drained else { continue };
                let returned = std::mem::take(&mut kept.returned);
                usages.push(kept.usage(last));
                kept.returned = returned;
            }
            for usage in usages {
                if usage.drained.base.is_some() {
                    effects.push(Effect::Contact { limit: usage.limit });
                }
                self.handle(Input::Usage(usage), at, effects);
            }
        }
    }

    fn handle(&mut self, input: Input, at: Nanos, effects: &mut Vec<Effect>) {
        let now = self.clock.read(at);
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.node.handle(input, now);
            loop {
                match self.node.poll() {
                    Output::Permit { key, permit } => self.permit(key, &permit, at, effects),
                    Output::Evict { key, taken } => {
                        let waits =
                            self.keys.get(&key).is_some_and(|kept| !kept.waiters.is_empty());
                        let gone = !waits && self.credits.evict(key, taken);
                        if gone {
                            self.keys.remove(&key);
                        }
                        inputs.push_back(Input::Evicted { key, gone });
                    }
                    // None of these limits is divided.
                    Output::Give { .. } | Output::Allot { .. } | Output::EvictShare { .. } => {}
                    Output::Send { to, message } => effects.push(Effect::Send { to, message }),
                    Output::Event(event) => effects.push(Effect::Event(event)),
                    Output::Timeout(at) => {
                        self.wakes_at = at;
                        break;
                    }
                }
            }
        }
    }

    fn permit(
        &mut self,
        key: KeyId,
        permit: &tollgate::Permit,
        at: Nanos,
        effects: &mut Vec<Effect>,
    ) {
        let now = self.clock.read(at);
        let Some(kept) = self.keys.get_mut(&key) else { return };
        kept.returned += self.credits.permit(key, permit).unwrap_or(0);
        while let Some(waiter) = kept.waiters.front().copied() {
            let Some(limit) = kept.drained.map(|drained| drained.limit) else { break };
            let charged = self.credits.charge_or_wait(key, limit, waiter.cost, now);
            if !matches!(charged, Charged::Allowed { .. }) {
                break;
            }
            kept.waiters.pop_front();
            effects.push(Effect::Admitted { waiter });
        }
        if kept.first() != kept.told_first {
            self.to_tell.push(key);
        }
    }
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) cost: u64,
    pub(crate) waits: bool,
    pub(crate) demand: usize,
}

/// Requests that may wait for one key.
const QUEUE_MAX: usize = 1_024;
