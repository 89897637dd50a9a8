//! What becomes of commands on their way to a store, there, and on the way back.

use tollgate::tally::{Input, Outcome};
use tollgate::{Addition, Command};

use super::{Event, Fleet};
use crate::scenario::{MS, Nanos};
use crate::tally::ledger::Read;

/// A command that its node waits for.
pub(super) struct Open {
    node: u32,
    store: usize,
    command: u64,
    /// How many counts it writes; 0 if it reads.
    writes: usize,
    sent_at: Nanos,
    /// The node's wall clock then.
    wall: u64,
    /// The keys that it reads.
    keys: Vec<u32>,
}

/// A command that comes to its store.
pub(super) struct Arrival {
    number: u64,
    store: usize,
    what: What,
}

enum What {
    Write(Vec<Addition>),
    Read(Vec<[String; 2]>),
}

/// What a node is told of a command.
pub(super) enum Answer {
    Written(Vec<Outcome>),
    Read(Vec<(u64, u64)>),
    /// Nothing, for too long.
    None,
}

/// The key and the window's number in a counter's name.
pub(super) fn parse(name: &str) -> (u32, u64) {
    let parsed = || {
        let (rest, number) = name.rsplit_once(':')?;
        let key = rest.split_once('{')?.1.strip_suffix('}')?;
        Some((key.parse().ok()?, number.parse().ok()?))
    };
    parsed().expect("a counter of a key that is a number")
}

impl Fleet {
    /// Takes what a node wants until it wants nothing.
    pub(super) fn poll(&mut self, node: u32) {
        loop {
            match self.nodes[node as usize].tally.poll() {
                Command::Write { store, command, additions } => {
                    self.ledger.commands[0].0 += 1;
                    self.ledger.commands[0].1 += additions.len() as u64;
                    self.send(node, store, command, What::Write(additions));
                }
                Command::Read { store, command, names } => {
                    self.ledger.commands[1].0 += 1;
                    self.ledger.commands[1].1 += names.len() as u64;
                    self.send(node, store, command, What::Read(names));
                }
                Command::Timeout(at) => {
                    if at != tollgate::Instant::MAX {
                        self.wake_at(node, at.as_nanos());
                    }
                    return;
                }
            }
        }
    }

    fn send(&mut self, node: u32, store: usize, command: u64, what: What) {
        let (_, wall) = self.nodes[node as usize].times(self.now);
        let (writes, keys) = match &what {
            What::Write(additions) => (additions.len(), Vec::new()),
            What::Read(names) => (0, names.iter().map(|[_, name]| parse(name).0).collect()),
        };
        let (sent_at, wall) = (self.now, wall.as_nanos());
        let number = self.sequence;
        self.open.insert(number, Open { node, store, command, writes, sent_at, wall, keys });
        if self.stores[store].refuses_until > self.now {
            // No connection: nothing has left the node.
            let answer = if writes > 0 {
                Answer::Written(vec![Outcome::NotSent; writes])
            } else {
                Answer::None
            };
            return self.push(self.now + MS, Event::Answer(number, answer));
        }
        self.push(self.now + self.way.timeout, Event::Answer(number, Answer::None));
        if !self.chance.happens(self.way.lost) {
            let at = self.now + self.delay();
            self.push(at, Event::Arrive(Arrival { number, store, what }));
        }
    }

    fn delay(&mut self) -> Nanos {
        let most =
            if self.chance.happens(self.way.slow) { self.way.slow_max } else { self.way.delay_max };
        self.chance.between(self.way.delay_min, most.max(self.way.delay_min))
    }

    /// A store does what it is told, and answers.
    pub(super) fn arrive(&mut self, arrival: Arrival) {
        let Arrival { number, store, what } = arrival;
        if self.stores[store].swallows_until > self.now {
            return;
        }
        let answer = match what {
            What::Write(additions) => Answer::Written(self.write(store, &additions)),
            What::Read(names) => {
                let (of, wall) = (&self.stores[store], self.scenario.begins + self.now);
                let read =
                    |[before, now]: &[String; 2]| (of.read(before, wall), of.read(now, wall));
                Answer::Read(names.iter().map(read).collect())
            }
        };
        if !self.chance.happens(self.way.unanswered) {
            let at = self.now + self.delay();
            self.push(at, Event::Answer(number, answer));
        }
    }

    fn write(&mut self, store: usize, additions: &[Addition]) -> Vec<Outcome> {
        if self.stores[store].reads_only_until > self.now {
            return vec![Outcome::NotSent; additions.len()];
        }
        let count = additions.len() as u64;
        let (mut told, mut done) = (count, count);
        if self.chance.happens(self.way.cut) {
            done = self.chance.between(0, count);
            told = self.chance.between(0, done);
        }
        let wall = self.scenario.begins + self.now;
        let mut outcomes = Vec::new();
        for addition in &additions[..done as usize] {
            if self.chance.happens(self.way.refused) {
                outcomes.push(Outcome::Refused);
            } else {
                self.stores[store].add(addition, self.now, wall);
                outcomes.push(Outcome::Done);
            }
        }
        // Of what comes after that nothing was heard.
        outcomes.truncate(told as usize);
        outcomes
    }

    /// A node is told of a command, if it was not before.
    pub(super) fn answer(&mut self, number: u64, answer: Answer) {
        let Some(open) = self.open.remove(&number) else { return };
        let Open { node, store, command, .. } = open;
        self.note_silence(node);
        let input = match answer {
            Answer::Written(outcomes) => Input::Written { command, outcomes },
            Answer::Read(counts) => {
                self.note_read(&open, &counts);
                Input::Read { command, counts: counts.into_iter().map(Some).collect() }
            }
            Answer::None if open.writes > 0 => Input::Written { command, outcomes: Vec::new() },
            Answer::None => Input::Read { command, counts: Vec::new() },
        };
        let of = &mut self.nodes[node as usize];
        let (now, wall) = of.times(self.now);
        of.tally.handle(store, input, now, wall);
        self.poll(node);
    }

    fn note_read(&mut self, open: &Open, counts: &[(u64, u64)]) {
        let length = self.scenario.length();
        for (key, stored) in open.keys.iter().zip(counts) {
            self.ledger.reads.push(Read {
                sent_at: open.sent_at,
                at: self.now,
                key: *key,
                node: open.node,
                number: open.wall / length,
                elapsed: open.wall % length,
                stored: *stored,
            });
        }
    }
}
