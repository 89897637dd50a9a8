//! Since when this node is in charge of which keys, and of which it is not yet.
//!
//! Rule 6. After a crash the ring has changed late enough that no old permission lives: the new
//! owner starts with the burst spent. After a planned change it waits for what the old owner hands
//! over; what does not come in time counts as a crash, and then old permissions may live, so that
//! the level is held for as long as they can. It knows no meter and no message but the handover.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::coordinator::RingChange;
use crate::key::KeyId;
use crate::mutant::lacks;
use crate::ring::{NodeId, Ring, RingEpoch};
use crate::time::Instant;
use crate::view::ViewTimes;

/// Since when a node is in charge of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Began {
    /// Since then; if that lies in the future, what was permitted by others may live until then.
    pub(crate) at: Instant,
    /// How much longer ago it was, where this node's clock, which begins with its process, is too
    /// young to tell.
    pub(crate) earlier: Duration,
    /// Whether it lay in the future once, so that what was spent meanwhile on what others had
    /// permitted is told to this node.
    pub(crate) is_held: bool,
}

/// Who is in charge of a key, as far as this node is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Charge {
    /// This node, since then.
    Since(Began),
    /// This node, once its last owner has handed the key over.
    Awaited,
    /// Another node, or none.
    Others,
}

/// This node's tenure of its keys.
#[derive(Debug)]
pub(crate) struct Tenure {
    me: NodeId,
    change: RingChange,
    /// Of keys that were this node's in the ring before.
    own: Began,
    /// Of keys that were another's, by that other.
    from: BTreeMap<NodeId, Since>,
    /// Until when a planned change may be unknown to an owner before it: whoever is lost by then
    /// may have waited for that owner.
    unsettled_until: Instant,
}

/// Since when this node is in charge of another's keys.
#[derive(Debug)]
enum Since {
    At(Began),
    /// Once all parts have come; until then parts by number, and when it is too late.
    Awaited {
        until: Instant,
        seen: BTreeSet<u32>,
    },
}

/// What a part of a handover is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// It is new.
    New,
    /// It came before, or too late, or was never awaited; it is acknowledged all the same.
    Known,
    /// It is for a ring that is not yet known here: it must come again.
    Early,
}

impl Tenure {
    /// The tenure of a process that starts, `age` after the ring changed. If it was a member
    /// already, under the same ring, it has forgotten what it permitted, and what it waited for: an
    /// owner before it that has not heard of the change may still grant.
    pub(crate) fn new(
        me: NodeId,
        change: RingChange,
        age: Duration,
        is_restart: bool,
        times: &ViewTimes,
        now: Instant,
    ) -> Self {
        let passed = if is_restart { age } else { Duration::ZERO };
        let unsettled = times.handover_max().saturating_sub(passed);
        let unsettled = if lacks("deaf_owner_awaited") { Duration::ZERO } else { unsettled };
        let hold = times.widened(times.ttl_max).max(unsettled);
        let held = if lacks("restart_hold") { now } else { now.saturating_add(hold) };
        let held = Began { is_held: held > now, ..Began::at(held) };
        // Nothing was ever spent of what nobody has owned: all keys of a fleet that was just
        // founded, and of what a newcomer owned before, which is nothing.
        let is_nobodys = match change.previous.members().is_empty() {
            true => change.ring.epoch() == FIRST,
            false => !change.previous.contains(me),
        };
        let own = match is_restart {
            true => held,
            false if is_nobodys => Began::EVER,
            false => Began::at(now),
        };
        let unsettled_until = now.saturating_add(unsettled);
        let mut tenure = Self { me, change, own, from: BTreeMap::new(), unsettled_until };
        if is_restart {
            for member in tenure.change.previous.members() {
                tenure.from.insert(member.node, Since::At(held));
            }
        } else {
            tenure.await_others(times, now);
        }
        tenure
    }

    /// The ring changes. Returns when this node's tenure began of what it hands over. If others
    /// were in charge meanwhile, without this node knowing, it knows no key any more.
    pub(crate) fn adopt(
        &mut self,
        change: RingChange,
        is_cut_off: bool,
        times: &ViewTimes,
        now: Instant,
    ) -> Began {
        debug_assert!(change.ring.epoch() > self.epoch());
        let hold = now.saturating_add(times.widened(times.ttl_max));
        // What is still awaited goes on as what it is now: unknown. The other may not have heard of
        // the change yet, and is waited for as before.
        let began_of = |since: &Since| match since {
            Since::At(began) => *began,
            Since::Awaited { .. } if lacks("awaited_is_held") => self.own,
            Since::Awaited { until, .. } => Began::held(hold.max(*until)),
        };
        let began = self.from.values().map(began_of).fold(self.own, Began::and);
        // Whoever was in charge meanwhile may not have heard of this change yet.
        let late = hold.max(now.saturating_add(times.handover_max()));
        let forgets = is_cut_off && !lacks("missed_ring_is_held");
        self.own = if forgets { began.and(Began::held(late)) } else { began };
        self.change = change;
        self.from.clear();
        self.await_others(times, now);
        began
    }

    fn await_others(&mut self, times: &ViewTimes, now: Instant) {
        let RingChange { ring, previous, lost } = &self.change;
        let until = now.saturating_add(times.handover_max());
        let alone = if lacks("lost_heir_is_held") { now } else { now.max(self.unsettled_until) };
        let is_lost = |node: NodeId| lost.contains(&node);
        let moves = |node: NodeId| weight(ring, node) != weight(previous, node);
        let nodes = ring.members().iter().chain(previous.members()).map(|member| member.node);
        if nodes.into_iter().any(|node| moves(node) && !is_lost(node)) {
            self.unsettled_until = until;
        }
        for member in previous.members().iter().filter(|member| member.node != self.me) {
            let since = if lost.contains(&member.node) {
                Since::At(Began { is_held: alone > now, ..Began::at(alone) })
            } else if gains(self.me, member.node, ring, previous) {
                Since::Awaited { until, seen: BTreeSet::new() }
            } else {
                continue;
            };
            self.from.insert(member.node, since);
        }
    }

    /// Who is in charge of a key.
    pub(crate) fn charge(&self, key: KeyId) -> Charge {
        if self.change.ring.owner(key) != Some(self.me) {
            return Charge::Others;
        }
        if self.from.is_empty() {
            return Charge::Since(self.own);
        }
        let last = self.change.previous.owner(key).and_then(|last| self.from.get(&last));
        match last {
            None => Charge::Since(self.own),
            Some(Since::At(began)) => Charge::Since(*began),
            Some(Since::Awaited { .. }) => Charge::Awaited,
        }
    }

    /// Whether anything is still to be handed over to this node.
    pub(crate) fn awaits(&self) -> bool {
        self.from.values().any(|since| matches!(since, Since::Awaited { .. }))
    }

    /// A part of a handover has come. When it was the last one, this node is in charge since the
    /// sender was.
    pub(crate) fn handle_part(
        &mut self,
        from: NodeId,
        part: &super::handover::Handover,
        times: &ViewTimes,
        now: Instant,
    ) -> Part {
        if part.ring_epoch > self.epoch() {
            return Part::Early;
        }
        if part.ring_epoch < self.epoch() && !lacks("handover_once") {
            return Part::Known;
        }
        let Some(Since::Awaited { seen, .. }) = self.from.get_mut(&from) else {
            return if lacks("handover_once") { Part::New } else { Part::Known };
        };
        if !seen.insert(part.part) {
            return Part::Known;
        }
        if seen.len() as u64 >= u64::from(part.parts) || lacks("handover_count") {
            let hold_left = if lacks("handed_hold") { Duration::ZERO } else { part.hold_left };
            let began = now.saturating_add(times.widened(hold_left));
            let began = Began::ago(part.tenure_age, began);
            let is_held = !hold_left.is_zero();
            self.from.insert(from, Since::At(Began { is_held, ..began }));
        }
        Part::New
    }

    /// Gives up on handovers that did not come in time. Returns whose.
    pub(crate) fn handle_timeout(&mut self, times: &ViewTimes, now: Instant) -> Vec<NodeId> {
        let hold = now.saturating_add(times.widened(times.ttl_max));
        let mut late = Vec::new();
        for (node, since) in &mut self.from {
            if matches!(since, Since::Awaited { until, .. } if *until <= now) {
                *since = Since::At(Began::held(hold));
                late.push(*node);
            }
        }
        late
    }

    /// What another handed over is not all here: it counts as if it had crashed.
    pub(crate) fn distrust(&mut self, from: NodeId, times: &ViewTimes, now: Instant) {
        let at = now.saturating_add(times.widened(times.ttl_max));
        self.from.insert(from, Since::At(Began::held(at)));
    }

    /// When something is due next.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        let until = |since: &Since| match since {
            Since::At(_) => None,
            Since::Awaited { until, .. } => Some(*until),
        };
        self.from.values().filter_map(until).min()
    }

    /// Whether a key was another node's in the ring before.
    pub(crate) fn was_of(&self, key: KeyId, node: NodeId) -> bool {
        self.change.previous.owner(key) == Some(node)
    }

    /// The members that may own what was this node's in the ring before.
    pub(crate) fn heirs(&self) -> impl Iterator<Item = NodeId> {
        let RingChange { ring, previous, .. } = &self.change;
        let others = ring.members().iter().map(|member| member.node);
        others.filter(|node| *node != self.me && gains(*node, self.me, ring, previous))
    }

    pub(crate) fn ring(&self) -> &Ring {
        &self.change.ring
    }

    pub(crate) fn epoch(&self) -> RingEpoch {
        self.change.ring.epoch()
    }
}

impl Began {
    /// For longer than anything lasts.
    const EVER: Self = Self { earlier: Duration::MAX, ..Self::at(Instant::ZERO) };

    /// Since then, in an instant that may not lie in the future.
    pub(crate) const fn at(at: Instant) -> Self {
        Self { at, earlier: Duration::ZERO, is_held: false }
    }

    /// From then on; what was permitted by others may live until then.
    fn held(at: Instant) -> Self {
        Self { is_held: true, ..Self::at(at) }
    }

    /// So long before an instant.
    fn ago(age: Duration, now: Instant) -> Self {
        let earlier = age.saturating_sub(now.saturating_since(Instant::ZERO));
        Self { earlier, ..Self::at(now.saturating_sub(age)) }
    }

    /// How long ago it was.
    pub(crate) fn age(self, now: Instant) -> Duration {
        now.saturating_since(self.at).saturating_add(self.earlier)
    }

    /// In charge of all, as of two parts.
    fn and(self, other: Self) -> Self {
        let is_later = (self.at, other.earlier) > (other.at, self.earlier);
        let later = if is_later { self } else { other };
        Self { is_held: self.is_held || other.is_held, ..later }
    }
}

/// The first ring of a fleet.
const FIRST: RingEpoch = RingEpoch::ZERO.next();

/// Whether `to` may own keys that `from` owned in the ring before: with rendezvous hashing only if
/// one of them was not, or is not, a member, or weights have changed.
fn gains(to: NodeId, from: NodeId, ring: &Ring, previous: &Ring) -> bool {
    previous.contains(from)
        && [from, to].iter().any(|node| weight(ring, *node) != weight(previous, *node))
}

fn weight(ring: &Ring, node: NodeId) -> Option<u32> {
    ring.members().iter().find(|member| member.node == node).map(|member| member.weight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::Member;
    use crate::view::handover::Handover;

    fn ring(epoch: u64, nodes: &[u32]) -> Ring {
        let member = |node: &u32| Member { node: NodeId::new(*node), weight: 1 };
        Ring::new(RingEpoch::new(epoch), nodes.iter().map(member)).expect("sound members")
    }

    fn change(epoch: u64, nodes: &[u32], previous: &[u32]) -> RingChange {
        let (ring, previous) = (ring(epoch, nodes).into(), ring(epoch - 1, previous).into());
        RingChange { ring, previous, lost: Box::default() }
    }

    fn age(tenure: &Tenure, now: Instant) -> Option<Duration> {
        let charge = tenure.charge(KeyId::from_bits(1, 1));
        if let Charge::Since(began) = charge { Some(began.age(now)) } else { None }
    }

    /// A limit of 30 an hour denied everything in a fleet that was just founded, two minutes for
    /// each unit: its founder took every key for spent, as the successor of a crashed owner must.
    #[test]
    fn the_founder_of_a_fleet_knows_that_nothing_was_spent_before() {
        let (times, now) = (ViewTimes::default(), Instant::ZERO);
        let founded = |epoch, previous: &[u32], is_restart| {
            let change = change(epoch, &[1], previous);
            let tenure =
                Tenure::new(NodeId::new(1), change, Duration::ZERO, is_restart, &times, now);
            age(&tenure, now)
        };
        assert_eq!(founded(1, &[], false), Some(Duration::MAX));
        // It, or others, may have spent what is forgotten now.
        assert_eq!(founded(1, &[], true), Some(Duration::ZERO));
        assert_eq!(founded(2, &[], false), Some(Duration::ZERO));
    }

    /// After a rolling restart each owner's clock was seconds old, and so was its tenure.
    #[test]
    fn a_tenure_that_is_handed_over_is_as_old_as_it_was() {
        let (times, now) = (ViewTimes::default(), Instant::from_nanos(5_000_000_000));
        let joined = change(8, &[2], &[1]);
        let mut tenure = Tenure::new(NodeId::new(2), joined, Duration::ZERO, false, &times, now);
        assert_eq!(age(&tenure, now), None);
        let day = Duration::from_secs(86_400);
        let (part, parts, keys) = (0, 1, Vec::new());
        let (tenure_age, hold_left) = (day, Duration::ZERO);
        let ring_epoch = RingEpoch::new(8);
        let handed = Handover { ring_epoch, part, parts, tenure_age, hold_left, keys };
        assert_eq!(tenure.handle_part(NodeId::new(1), &handed, &times, now), Part::New);
        assert_eq!(age(&tenure, now), Some(day));
        // And it is as old when the ring has changed again.
        let lasted = tenure.adopt(change(9, &[2, 3], &[2]), false, &times, now);
        assert_eq!(lasted.age(now), day);
    }
}
