//! What people want to know of a member's keys: looked up a few at a time, so that the member's
//! task never stands still for it, and asked of the other members.

use std::collections::{BTreeSet, VecDeque};

use tokio::sync::mpsc;
use tollgate::{FleetLimitId, Instant, KeyId, NodeId, OwnedKey, SpentKey};

use super::Driver;
use crate::keys::{
    Counted, DividedLimits, First, Firsts, Inquiry, KeyName, KeySort, NAMES_MAX, Parts, Told,
    rank_owned, rank_spent,
};
use crate::wire::PeerFrame;

/// Where answers of members go.
pub(crate) type Answers = mpsc::Sender<(NodeId, Told)>;

/// What was asked, here and of others.
#[derive(Debug, Default)]
pub(super) struct Inquiries {
    /// What is being looked up here.
    searches: VecDeque<Search>,
    /// What was asked of others, by number.
    asked: VecDeque<(u64, Answers)>,
    last: u64,
}

/// Keys that are being looked through.
#[derive(Debug)]
struct Search {
    asker: Asker,
    limit: Option<FleetLimitId>,
    sort: KeySort,
    seen: usize,
    found: Found,
}

#[derive(Debug)]
enum Found {
    Owned(First<OwnedKey>),
    Spent(BTreeSet<NodeId>, First<SpentKey>),
    Divided(Firsts),
    Parts(Parts),
}

/// Who waits for an answer.
#[derive(Debug)]
enum Asker {
    /// Another member, by the number of its inquiry.
    Other(NodeId, u64),
    /// A handle of this member.
    Own(Answers),
}

impl Driver {
    /// Asks members, of which this one may be one.
    pub(super) fn inquire(&mut self, of: Vec<(NodeId, Inquiry)>, answers: Answers) {
        let inquiries = &mut self.state.inquiries;
        inquiries.asked.retain(|(_, answers)| !answers.is_closed());
        if inquiries.asked.len() >= INQUIRIES_MAX {
            inquiries.asked.pop_front();
        }
        inquiries.last += 1;
        let number = inquiries.last;
        for (node, inquiry) in of {
            if node == self.me {
                self.look_up(inquiry, Asker::Own(answers.clone()));
            } else {
                self.links.send(node, &PeerFrame::Inquiry(number, inquiry));
            }
        }
        self.state.inquiries.asked.push_back((number, answers));
    }

    /// Another member asks.
    pub(super) fn handle_inquiry(&mut self, from: NodeId, number: u64, inquiry: Inquiry) {
        self.look_up(inquiry, Asker::Other(from, number));
    }

    /// Another member answers.
    pub(super) fn handle_told(&mut self, from: NodeId, number: u64, told: Told) {
        let asked = self.state.inquiries.asked.iter().find(|(asked, _)| *asked == number);
        if let Some((_, answers)) = asked {
            // Whoever asked may have given up.
            let _ = answers.try_send((from, told));
        }
    }

    fn look_up(&mut self, inquiry: Inquiry, asker: Asker) {
        let (limit, sort, found) = match inquiry {
            Inquiry::Counted => return self.answer(asker, Told::Counted(self.counted())),
            Inquiry::Names(keys) => {
                let names = self.names(&keys);
                return self.answer(asker, Told::Names(names));
            }
            Inquiry::Owned { limit, sort, count } => (limit, sort, Found::Owned(First::new(count))),
            Inquiry::Spent { limit, sort, count, owners } => {
                (limit, sort, Found::Spent(owners.into_iter().collect(), First::new(count)))
            }
            Inquiry::Divided(count) => {
                (None, KeySort::default(), Found::Divided(Firsts::new(count)))
            }
            Inquiry::Parts(keys) => {
                let keys = keys.into_iter().take(NAMES_MAX);
                (None, KeySort::default(), Found::Parts(Parts::of(keys)))
            }
        };
        let searches = &mut self.state.inquiries.searches;
        // Beyond that nobody is answered: who asked finds this member missing.
        if searches.len() < SEARCHES_MAX {
            searches.push_back(Search { asker, limit, sort, seen: 0, found });
        }
    }

    /// Whether something is being looked up.
    pub(super) fn is_searching(&self) -> bool {
        !self.state.inquiries.searches.is_empty()
    }

    /// Looks through some more keys.
    pub(super) fn search_on(&mut self) {
        let now = self.clock.now();
        let Some(mut search) = self.state.inquiries.searches.pop_front() else { return };
        let looked = self.look_through(&mut search, now);
        search.seen += looked;
        if looked == SEARCH_KEYS {
            self.state.inquiries.searches.push_back(search);
            return;
        }
        let told = match search.found {
            Found::Owned(first) => Told::Owned(first.total, first.rows()),
            Found::Spent(_, first) => Told::Spent(first.total, first.rows()),
            Found::Divided(firsts) => {
                let keys = firsts.rows().into_iter().map(|(_, key)| key).collect();
                Told::Divided(DividedLimits { limits: self.node.share_limits(), keys })
            }
            Found::Parts(parts) => {
                self.take_share_names();
                Told::Parts(parts.rows(|key| self.state.share_names.get(key).cloned()))
            }
        };
        self.answer(search.asker, told);
    }

    /// Looks through the next keys, and returns how many there were.
    fn look_through(&self, search: &mut Search, now: Instant) -> usize {
        let (limit, sort, skip) = (search.limit, search.sort, search.seen);
        let is_of = |id| limit.is_none_or(|limit| limit == id);
        let mut looked = 0;
        match &mut search.found {
            Found::Owned(first) => {
                for owned in self.node.owned_keys(skip, now).take(SEARCH_KEYS) {
                    looked += 1;
                    if is_of(owned.limit) {
                        first.add(rank_owned(&owned, sort), owned.key, owned);
                    }
                }
            }
            Found::Spent(owners, first) => {
                for spent in self.node.spent_keys(skip, now).take(SEARCH_KEYS) {
                    looked += 1;
                    if is_of(spent.limit) && spent.owner.is_some_and(|node| owners.contains(&node))
                    {
                        first.add(rank_spent(&spent, sort), spent.key, spent);
                    }
                }
            }
            Found::Divided(firsts) => {
                for divided in self.node.divided_keys(skip, now).take(SEARCH_KEYS) {
                    looked += 1;
                    firsts.add(self.me, divided);
                }
            }
            Found::Parts(parts) => {
                for shared in self.node.shared_keys(skip).take(SEARCH_KEYS) {
                    looked += 1;
                    parts.add(&shared);
                }
            }
        }
        looked
    }

    fn answer(&self, asker: Asker, told: Told) {
        match asker {
            Asker::Other(node, number) => self.links.send(node, &PeerFrame::Told(number, told)),
            Asker::Own(answers) => drop(answers.try_send((self.me, told))),
        }
    }

    fn counted(&self) -> Counted {
        let (counts, events) = (self.node.counts(), self.state.events);
        Counted {
            limits: self.node.limit_units(self.clock.now()),
            overlaps: events.overlaps,
            overlapped: events.overlapped,
            pauses: events.pauses,
            paused: events.paused,
            late: counts.late,
            owned: counts.owned,
            spent: counts.views,
        }
    }

    // What keys are made of.

    /// Keeps the names of keys that have a cell now.
    pub(super) fn take_names(&mut self) {
        for arrival in self.limiter.take_arrivals() {
            let bytes: usize = arrival.parts.iter().flatten().map(|part| part.len()).sum();
            if bytes <= NAME_BYTES_MAX
                && let Some(kept) = self.state.keys.get_mut(&arrival.key)
            {
                kept.parts = Some(arrival.parts);
            }
        }
        self.take_share_names();
    }

    /// The names of keys, as far as they have a cell here.
    fn names(&mut self, keys: &[KeyId]) -> Vec<KeyName> {
        self.settle();
        self.take_names();
        let name = |key: &KeyId| {
            let kept = self.state.keys.get(key)?;
            let limit = kept.limit()?;
            Some(KeyName { key: *key, limit, parts: kept.parts.clone()? })
        };
        keys.iter().take(NAMES_MAX).filter_map(name).collect()
    }
}

/// Inquiries of this member's that are under way.
const INQUIRIES_MAX: usize = 16;
/// Inquiries that are looked up here at once.
const SEARCHES_MAX: usize = 16;
/// Keys that are looked through in one turn: less than a millisecond.
const SEARCH_KEYS: usize = 2_048;
/// The values of a key that has longer ones are not kept.
pub(super) const NAME_BYTES_MAX: usize = 512;
