//! Which daemons keep the coordinator's log: the leader decides, and changes one thing at a time.
//!
//! One voter with one or two daemons: two would survive no loss, and one less. Three with three or
//! more; five with five or more, if the founder asked for five. Voters stay as long as they are
//! candidates, since each change costs a copy of the state. Which members of the fleet are
//! candidates is handed in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::type_config::TypeConfigExt;
use tokio::sync::watch;
use tollgate::NodeId;

use super::leadership::{Leadership, Voters};
use super::members::ChangeError;
use super::network::Network;
use super::replica::Replica;
use super::types::Types;

/// What to change next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// These are to vote.
    Voters(BTreeMap<NodeId, String>),
    /// A replica has another address.
    Address(NodeId, String),
    /// These are told everything and will not vote.
    Forget(BTreeSet<NodeId>),
}

/// What `leader` is to change next, so that in the end the right ones of the candidates vote;
/// `None` if they do.
///
/// Without any candidate nothing is changed: someone has to vote.
pub(super) fn next_step(
    candidates: &BTreeMap<NodeId, String>,
    now: &Voters,
    leader: NodeId,
    voters_max: u32,
) -> Option<Step> {
    let count = count(candidates.len(), voters_max);
    let votes = |node: &NodeId| now.voters.contains_key(node);
    let stays = now.voters.keys().filter(|node| candidates.contains_key(node));
    let newcomers = candidates.keys().filter(|node| !votes(node));
    // The leader first: an election is spared if it stays.
    let leader = stays.clone().filter(|node| **node == leader);
    let order = leader.chain(stays.clone()).chain(newcomers);
    let mut voters = BTreeMap::new();
    for node in order {
        if voters.len() == count {
            break;
        }
        voters.insert(*node, candidates[node].clone());
    }
    if voters.is_empty() {
        return None;
    }
    let moved = now
        .voters
        .iter()
        .find(|(node, address)| candidates.get(node).is_some_and(|current| current != *address));
    if let Some((node, _)) = moved.filter(|_| !now.is_changing) {
        return Some(Step::Address(*node, candidates[node].clone()));
    }
    if now.is_changing || !voters.keys().eq(now.voters.keys()) {
        return Some(Step::Voters(voters));
    }
    let learners: BTreeSet<NodeId> = now.learners.keys().copied().collect();
    (!learners.is_empty()).then_some(Step::Forget(learners))
}

fn count(candidates: usize, voters_max: u32) -> usize {
    let most = match candidates {
        0..=2 => 1,
        3..=4 => 3,
        5.. => 5,
    };
    most.min(voters_max as usize)
}

impl<N: Network, C: Types> Replica<N, C> {
    /// Sees to it, whenever this replica leads, that the right ones of `candidates` vote: daemons
    /// that are members of the fleet, by node with their addresses. It ends with the replica, or
    /// when the candidates' sender is gone.
    pub async fn keep_voters(&self, mut candidates: watch::Receiver<BTreeMap<NodeId, String>>) {
        loop {
            if matches!(*self.leadership().borrow(), Leadership::Failed { .. }) {
                return;
            }
            if let Err(error) = self.take_step(&candidates).await {
                tracing::warn!(%error, "the voters of the coordinator are not as they should be");
            }
            let changed = C::timeout(LOOKS_EVERY, candidates.changed());
            if let Ok(Err(_gone)) = changed.await {
                return;
            }
        }
    }

    async fn take_step(
        &self,
        candidates: &watch::Receiver<BTreeMap<NodeId, String>>,
    ) -> Result<(), ChangeError> {
        if !matches!(*self.leadership().borrow(), Leadership::Leads { .. }) {
            return Ok(());
        }
        let voters_max = self.watch().borrow().state.voters_max();
        let own = self.identity().node;
        let step = next_step(&candidates.borrow(), &self.voters(), own, voters_max);
        match step {
            None => Ok(()),
            Some(Step::Voters(voters)) => self.set_voters(&voters).await,
            Some(Step::Address(node, address)) => self.set_address(node, &address).await,
            Some(Step::Forget(learners)) => self.forget_learners(&learners).await,
        }
    }
}

/// How soon it is tried again, and how late a new leader begins.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn map(nodes: &[u32]) -> BTreeMap<NodeId, String> {
        nodes.iter().map(|node| (NodeId::new(*node), format!("{node}:1"))).collect()
    }

    fn voters(voters: &[u32], learners: &[u32]) -> Voters {
        let (voters, learners) = (map(voters), map(learners));
        Voters { voters, learners, ..Voters::default() }
    }

    /// Who votes in the end, after how many steps.
    fn settled(
        candidates: &[u32],
        mut now: Voters,
        leader: u32,
        voters_max: u32,
    ) -> (Vec<u32>, usize) {
        let candidates = map(candidates);
        for steps in 0..10 {
            let step = next_step(&candidates, &now, NodeId::new(leader), voters_max);
            match step {
                None => {
                    assert!(now.learners.is_empty());
                    return (now.voters.keys().map(|node| node.get()).collect(), steps);
                }
                Some(Step::Voters(voters)) => {
                    now.learners.retain(|node, _| !voters.contains_key(node));
                    now = Voters { voters, is_changing: false, ..now };
                }
                Some(Step::Address(node, address)) => drop(now.voters.insert(node, address)),
                Some(Step::Forget(learners)) => {
                    now.learners.retain(|node, _| !learners.contains(node));
                }
            }
        }
        panic!("it never settles: {now:?}");
    }

    #[test]
    fn one_votes_of_one_or_two_and_three_of_three_or_more() {
        let first = || voters(&[1], &[]);
        assert_eq!(settled(&[1], first(), 1, 3), (vec![1], 0));
        assert_eq!(settled(&[1, 2], first(), 1, 3), (vec![1], 0));
        assert_eq!(settled(&[1, 2, 3], first(), 1, 3), (vec![1, 2, 3], 1));
        assert_eq!(settled(&[1, 2, 3, 4, 5, 6], first(), 1, 3), (vec![1, 2, 3], 1));
    }

    #[test]
    fn five_vote_if_the_founder_said_so_and_there_are_five() {
        let first = || voters(&[1], &[]);
        assert_eq!(settled(&[1, 2, 3, 4], first(), 1, 5), (vec![1, 2, 3], 1));
        assert_eq!(settled(&[1, 2, 3, 4, 5, 6], first(), 1, 5), (vec![1, 2, 3, 4, 5], 1));
        assert_eq!(settled(&[1, 2, 3, 4, 5, 6], first(), 1, 1), (vec![1], 0));
    }

    #[test]
    fn who_is_no_candidate_any_more_is_replaced_at_once_and_the_others_stay() {
        assert_eq!(settled(&[2, 4, 5], voters(&[2, 3, 4], &[]), 4, 3), (vec![2, 4, 5], 1));
        // Also the leader, which then leads no longer.
        assert_eq!(settled(&[2, 3, 5], voters(&[2, 3, 4], &[]), 4, 3), (vec![2, 3, 5], 1));
    }

    #[test]
    fn of_too_many_voters_the_leader_stays() {
        assert_eq!(settled(&[2, 3], voters(&[1, 2, 3], &[]), 3, 3), (vec![3], 1));
    }

    #[test]
    fn nobody_is_voted_out_for_nobody() {
        assert_eq!(next_step(&map(&[]), &voters(&[1, 2, 3], &[]), NodeId::new(1), 3), None);
    }

    #[test]
    fn a_replica_that_has_moved_is_found_again_first() {
        let mut now = voters(&[1, 2, 3], &[]);
        now.voters.insert(NodeId::new(2), String::from("old"));
        let step = next_step(&map(&[1, 2, 3, 4]), &now, NodeId::new(1), 3);
        assert_eq!(step, Some(Step::Address(NodeId::new(2), String::from("2:1"))));
    }

    #[test]
    fn a_change_that_was_begun_is_finished_before_anything_else() {
        let mut now = voters(&[1, 2, 3, 4], &[5]);
        now.is_changing = true;
        now.voters.insert(NodeId::new(2), String::from("old"));
        let step = next_step(&map(&[1, 2, 3]), &now, NodeId::new(1), 3);
        assert_eq!(step, Some(Step::Voters(map(&[1, 2, 3]))));
    }

    #[test]
    fn a_newcomer_that_was_never_to_vote_is_forgotten() {
        let now = voters(&[1, 2, 3], &[4]);
        let forget = Step::Forget(BTreeSet::from([NodeId::new(4)]));
        assert_eq!(next_step(&map(&[1, 2, 3, 4]), &now, NodeId::new(1), 3), Some(forget));
    }
}
