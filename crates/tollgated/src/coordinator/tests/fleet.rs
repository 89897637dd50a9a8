//! Replicas of the coordinator in virtual time: the real consensus, disks that lose what was not
//! synced, a network that cuts leaders off. Whatever happens, what was acknowledged stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use openraft::AsyncRuntime;
use openraft::type_config::TypeConfigExt;
use openraft_rt_sim::{SimInstant, SimRuntime};
use tollgate::coordinator::{Answer, Command, Edit, FleetSecret, LimitText, Refused};
use tollgate::{Clock, NodeId};

use super::disk::Disk;
use super::random::Random;
use super::router::{Router, Wire};
use crate::coordinator::network::{Envelope, Request, Response};
use crate::coordinator::record;
use crate::coordinator::store::{Identity, Store};
use crate::coordinator::types::{Proposal, Simulated};
use crate::coordinator::{
    ChangeError, ConfirmError, Leadership, ProposeError, Replica, ReplicaOptions,
};

type Member = Replica<Wire<Simulated>, Simulated>;

/// A fleet's daemons, as far as they keep its log.
struct Fleet {
    router: Router<Simulated>,
    /// By node.
    running: BTreeMap<u32, (Member, Disk)>,
    random: Random,
}

fn address(node: u32) -> String {
    format!("10.0.0.{node}:7800")
}

fn addresses(nodes: &[u32]) -> BTreeMap<NodeId, String> {
    nodes.iter().map(|node| (NodeId::new(*node), address(*node))).collect()
}

async fn sleep(millis: u64) {
    Simulated::sleep(Duration::from_millis(millis)).await;
}

impl Fleet {
    /// A fleet of so many daemons, founded by the first; nobody else votes yet.
    async fn founded(seed: u64, daemons: u32) -> Self {
        let (router, random) = (Router::new(seed), Random::new(seed ^ 0xF1EE7));
        let mut fleet = Self { router, running: BTreeMap::new(), random };
        for node in 1..=daemons {
            let disk = Disk::default();
            let identity = Identity { fleet: 9, node: NodeId::new(node) };
            let store = Store::create_in(disk.clone(), identity).expect("an empty disk");
            fleet.start(node, store, disk).await;
        }
        let secret = FleetSecret::new([7; 32]);
        fleet.at(1).found(&address(1), secret, 3).await.expect("founded");
        fleet
    }

    /// With these voters.
    async fn of_voters(seed: u64, voters: &[u32]) -> Self {
        let fleet = Self::founded(seed, voters.iter().copied().max().unwrap_or(1)).await;
        fleet.at(1).set_voters(&addresses(voters)).await.expect("all are there");
        fleet
    }

    async fn start(&mut self, node: u32, store: Store, disk: Disk) {
        let options = ReplicaOptions { clock: Clock::manual().0, ..ReplicaOptions::default() };
        let wire = self.router.wire(NodeId::new(node));
        let replica = Member::start(store, wire, options).await.expect("a sound store");
        self.router.connect(&address(node), replica.clone());
        self.running.insert(node, (replica, disk));
    }

    /// A process is killed and its machine loses power; a while later it starts again.
    async fn crash(&mut self, node: u32, down_millis: u64) {
        self.router.isolate(NodeId::new(node));
        self.router.disconnect(&address(node));
        let (replica, disk) = self.running.remove(&node).expect("it runs");
        let random = &mut self.random;
        let left = disk.after_power_loss(|| random.below(2) == 0);
        replica.stop().await;
        sleep(down_millis).await;
        let store = Store::open_in(left.clone()).expect("a sound store");
        self.router.rejoin(NodeId::new(node));
        self.start(node, store, left).await;
    }

    fn at(&self, node: u32) -> &Member {
        &self.running[&node].0
    }

    fn leader(&self) -> Option<u32> {
        let leads =
            |replica: &Member| matches!(*replica.leadership().borrow(), Leadership::Leads { .. });
        self.running.iter().find(|(_, (replica, _))| leads(replica)).map(|(node, _)| *node)
    }

    async fn wait_for_leader(&self) -> u32 {
        for _ in 0..400 {
            if let Some(leader) = self.leader() {
                return leader;
            }
            sleep(25).await;
        }
        panic!("nobody leads");
    }

    /// Waits until all have applied the same.
    async fn wait_until_equal(&self) {
        for _ in 0..400 {
            let indices: BTreeSet<u64> = self
                .running
                .values()
                .map(|(replica, _)| replica.watch().borrow().state.index())
                .collect();
            if indices.len() == 1 {
                return;
            }
            sleep(25).await;
        }
        panic!("they never agree");
    }

    async fn end(self) {
        self.router.heal();
        for (node, (replica, _)) in self.running {
            self.router.disconnect(&address(node));
            replica.stop().await;
        }
    }
}

fn simulated<T>(seed: u64, run: impl Future<Output = T>) -> (T, Vec<String>) {
    let mut runtime = SimRuntime::with_seed(seed);
    runtime.record_trace(true);
    let result = runtime.block_on(run);
    (result, runtime.take_trace())
}

fn joining() -> Command {
    Command::Join { node: None, weight: 1, address: String::new(), is_candidate: true }
}

fn policy(author: &str) -> Command {
    let edit = Edit { author: author.to_owned(), ..Edit::default() };
    Command::PutPolicy {
        edit,
        limits: vec![LimitText { name: String::from("a"), text: author.to_owned() }],
    }
}

#[test]
fn a_founder_is_ready_at_once_and_others_are_told_everything_before_they_vote() {
    let (_, _) = simulated(1, async {
        let fleet = Fleet::founded(1, 3).await;
        fleet.at(1).propose(policy("before")).await.expect("one voter decides alone");
        fleet.at(1).confirm().await.expect("it is its own majority");
        fleet.at(1).set_voters(&addresses(&[1, 2, 3])).await.expect("all are there");
        fleet.wait_until_equal().await;
        // A follower learns with the next heartbeat that the change is done.
        sleep(300).await;
        for node in 1..=3 {
            let state = fleet.at(node).watch().borrow().state.clone();
            assert_eq!(state.policy().expect("put").author, "before");
            assert_eq!((state.fleet(), state.voters_max()), (Some(9), 3));
            let voters = fleet.at(node).voters();
            assert_eq!((voters.voters, voters.is_changing), (addresses(&[1, 2, 3]), false));
        }
        // Founding again changes nothing.
        let other = FleetSecret::new([8; 32]);
        fleet.at(1).found(&address(1), other, 5).await.expect("founded");
        assert_eq!(fleet.at(1).watch().borrow().state.voters_max(), 3);
        fleet.end().await;
    });
}

#[test]
fn whoever_is_asked_the_leader_proposes_and_the_answer_comes_back() {
    simulated(2, async {
        let fleet = Fleet::of_voters(2, &[1, 2, 3]).await;
        for node in 1..=3 {
            let answer = fleet.at(node).propose(joining()).await.expect("joined");
            let Answer::Joined { node: joined, ring, .. } = answer else { panic!("{answer:?}") };
            assert_eq!((joined.get(), ring.epoch().get()), (node, u64::from(node)));
        }
        let unknown = Command::SetWeight { node: NodeId::new(99), weight: 1 };
        let refused = Refused::NotAMember { node: NodeId::new(99) };
        for node in 1..=3 {
            let answer = fleet.at(node).propose(unknown.clone()).await;
            assert_eq!(answer.err(), Some(ProposeError::Refused(refused.clone())));
        }
        let long = policy(&"x".repeat(10 << 20));
        let answer = fleet.at(2).propose(long).await;
        assert!(matches!(answer, Err(ProposeError::TooLarge { .. })), "{answer:?}");
        fleet.end().await;
    });
}

#[test]
fn whatever_is_asked_of_a_replica_by_mistake_is_answered_and_does_nothing() {
    simulated(8, async {
        let fleet = Fleet::of_voters(8, &[1, 2]).await;
        let before = fleet.at(1).watch().borrow().state.encode();
        let ask = |fleet, to| {
            let request = Request::<Simulated>::Propose(Proposal(joining().into()));
            record::seal_value(&Envelope { fleet, to, request })
        };
        let answer = async |bytes: Vec<u8>| {
            let answer = fleet.at(1).answer(&bytes).await;
            match record::open_value(&answer).expect("an answer") {
                Response::<Simulated>::Failed(why) => why,
                _other => String::from("done"),
            }
        };
        assert_eq!(answer(ask(8, 1)).await, "the request is another fleet's");
        assert_eq!(answer(ask(9, 2)).await, "this is node 1");
        assert_eq!(answer(Vec::new()).await, "a record is not what was written");
        assert_eq!(answer(vec![2; 100]).await, "a record is of version 2; 1 is known");
        let nonsense = record::seal(&[0xFF; 100]);
        assert_eq!(answer(nonsense).await, "a record says nothing that this version knows");
        assert_eq!(fleet.at(1).watch().borrow().state.encode(), before);
        assert_eq!(answer(ask(9, 1)).await, "done");
        fleet.end().await;
    });
}

#[test]
fn a_leader_that_is_cut_off_confirms_nothing_and_another_one_leads() {
    simulated(3, async {
        let fleet = Fleet::of_voters(3, &[1, 2, 3]).await;
        let old = fleet.wait_for_leader().await;
        fleet.at(old).confirm().await.expect("a majority answers");
        let others: Vec<u32> = (1..=3).filter(|node| *node != old).collect();
        let follows = fleet.at(others[0]).confirm().await;
        assert_eq!(follows, Err(ConfirmError::NotLeader));
        fleet.router.isolate(NodeId::new(old));
        let before = Simulated::now();
        let cut_off = fleet.at(old).confirm().await;
        assert_eq!(cut_off, Err(ConfirmError::NoMajority));
        assert!(Simulated::now() - before <= Duration::from_millis(450));
        // The others elect one of them, and it leads in a later term.
        let leads = |node: &&u32| {
            matches!(*fleet.at(**node).leadership().borrow(), Leadership::Leads { .. })
        };
        while !others.iter().any(|node| leads(&node)) {
            sleep(10).await;
        }
        let took = Simulated::now() - before;
        assert!(took < Duration::from_secs(3), "{took:?}");
        let answer = fleet.at(others[0]).propose(policy("after")).await;
        assert!(matches!(answer, Ok(Answer::Revised { .. })), "{answer:?}");
        assert_eq!(fleet.at(old).watch().borrow().state.policy(), None);
        fleet.router.heal();
        fleet.wait_until_equal().await;
        let heard = fleet.at(old).watch().borrow().state.policy().map(|put| put.author.clone());
        assert_eq!(heard.as_deref(), Some("after"));
        let leadership = fleet.at(old).leadership().borrow().clone();
        assert!(matches!(leadership, Leadership::Follows { leader: Some(_) }), "{leadership:?}");
        fleet.end().await;
    });
}

#[test]
fn who_leads_has_applied_all_that_was_acknowledged_before() {
    for seed in 20..30 {
        simulated(seed, async {
            let mut fleet = Fleet::of_voters(seed, &[1, 2, 3]).await;
            for number in 0..8 {
                let author = number.to_string();
                let leader = fleet.wait_for_leader().await;
                fleet.at(leader).propose(policy(&author)).await.expect("a majority is there");
                // It dies as soon as it has answered: the others may know of an entry what it said
                // and not that it was committed.
                fleet.crash(leader, 0).await;
                let applied = loop {
                    match fleet.leader() {
                        Some(leader) => break fleet.at(leader).watch().borrow().state.clone(),
                        None => sleep(1).await,
                    }
                };
                let last = applied.policy().map(|put| put.author.clone());
                assert_eq!(last, Some(author), "seed {seed}");
            }
            fleet.end().await;
        });
    }
}

#[test]
fn without_a_majority_nothing_is_proposed_and_that_is_said() {
    simulated(4, async {
        let mut fleet = Fleet::of_voters(4, &[1, 2, 3]).await;
        let leader = fleet.wait_for_leader().await;
        let others: Vec<u32> = (1..=3).filter(|node| *node != leader).collect();
        for node in others {
            fleet.router.isolate(NodeId::new(node));
        }
        let unknown = fleet.at(leader).propose(policy("lost")).await;
        assert!(
            matches!(unknown, Err(ProposeError::Unknown(_) | ProposeError::NoLeader)),
            "{unknown:?}"
        );
        let late = fleet.at(leader).set_voters(&addresses(&[leader])).await;
        assert!(matches!(late, Err(ChangeError::NotLeader | ChangeError::Other(_))), "{late:?}");
        fleet.router.heal();
        fleet.crash(leader, 100).await;
        fleet.at(leader).propose(policy("kept")).await.expect("a majority is there");
        fleet.end().await;
    });
}

#[test]
fn a_replica_whose_disk_fails_says_so_and_the_others_go_on() {
    simulated(5, async {
        let fleet = Fleet::of_voters(5, &[1, 2, 3]).await;
        let leader = fleet.wait_for_leader().await;
        fleet.running[&leader].1.fail();
        let unknown = fleet.at(leader).propose(policy("x")).await;
        assert!(matches!(unknown, Err(ProposeError::Unknown(_))), "{unknown:?}");
        let leadership = fleet.at(leader).leadership().borrow().clone();
        let Leadership::Failed { why } = leadership else { panic!("{leadership:?}") };
        assert!(why.contains("the disk is broken"), "{why}");
        let other = (1..=3).find(|node| *node != leader).expect("two");
        fleet.at(other).propose(policy("y")).await.expect("two of three go on");
        fleet.end().await;
    });
}

#[test]
fn a_newcomer_starts_from_a_snapshot_when_the_log_no_longer_goes_back() {
    simulated(6, async {
        let fleet = Fleet::founded(6, 2).await;
        for number in 0..1_000 {
            fleet.at(1).propose(policy(&number.to_string())).await.expect("put");
        }
        let first = fleet.running[&1].0.raft.metrics();
        let purged = {
            use openraft::async_runtime::watch::WatchReceiver;
            first.borrow_watched().purged
        };
        assert!(purged.is_some_and(|purged| purged.index > 100), "{purged:?}");
        fleet.at(1).set_voters(&addresses(&[1, 2])).await.expect("both are there");
        fleet.wait_until_equal().await;
        let encoded = |node| fleet.at(node).watch().borrow().state.encode();
        assert_eq!(encoded(1), encoded(2));
        fleet.end().await;
    });
}

#[test]
fn the_leader_sees_to_it_that_three_of_the_daemons_vote() {
    simulated(7, async {
        let mut fleet = Fleet::founded(7, 4).await;
        let (sender, candidates) = tokio::sync::watch::channel(addresses(&[1]));
        for node in 1..=4 {
            let (replica, candidates) = (fleet.at(node).clone(), candidates.clone());
            drop(SimRuntime::spawn(async move { replica.keep_voters(candidates).await }));
        }
        sleep(2_000).await;
        assert_eq!(fleet.at(1).voters().voters, addresses(&[1]));
        sender.send_replace(addresses(&[1, 2, 3, 4]));
        sleep(2_000).await;
        for node in 1..=3 {
            assert_eq!(fleet.at(node).voters().voters, addresses(&[1, 2, 3]));
        }
        // Node 1 dies for good; the others elect a leader, which learns that it is lost.
        let (dead, _) = fleet.running.remove(&1).expect("it runs");
        fleet.router.disconnect(&address(1));
        dead.stop().await;
        let leader = fleet.wait_for_leader().await;
        sender.send_replace(addresses(&[2, 3, 4]));
        sleep(4_000).await;
        let voters = fleet.at(leader).voters();
        assert_eq!((voters.voters, voters.learners), (addresses(&[2, 3, 4]), BTreeMap::new()));
        fleet.wait_until_equal().await;
        // Then there are two left, of which one votes.
        sender.send_replace(addresses(&[2, 4]));
        sleep(4_000).await;
        let leader = fleet.wait_for_leader().await;
        assert_eq!(fleet.at(leader).voters().voters, addresses(&[leader]));
        fleet.end().await;
    });
}

/// What clients know afterwards.
#[derive(Default)]
struct Heard {
    lines: Vec<String>,
    /// Which author was told which revision.
    revisions: BTreeMap<u64, String>,
    starts: BTreeSet<u64>,
}

async fn client(router: Router<Simulated>, name: u64, seed: u64, heard: Arc<Mutex<Heard>>) {
    let mut random = Random::new(seed ^ (name << 32));
    for number in 0..25 {
        sleep(random.below(400)).await;
        let author = format!("{name}-{number}");
        let command = if random.below(3) == 0 { joining() } else { policy(&author) };
        let mut replicas = router.replicas();
        let replica = replicas.swap_remove(random.below(replicas.len() as u64) as usize);
        let answer = replica.propose(command).await;
        let now = SimInstant::try_now().expect("in a run").elapsed_since_start();
        let mut heard = heard.lock().expect("held briefly");
        heard.lines.push(format!("{now:?} {author} {answer:?}"));
        match answer {
            Ok(Answer::Revised { revision }) => {
                let other = heard.revisions.insert(revision.get(), author);
                assert_eq!(other, None, "revision {revision} twice");
            }
            Ok(Answer::Joined { start, .. }) => {
                assert!(heard.starts.insert(start.get()), "start {start} twice");
            }
            Ok(Answer::Done) => panic!("neither is answered so"),
            Err(ProposeError::Unknown(_) | ProposeError::NoLeader | ProposeError::Failed(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// What goes wrong, for some seconds.
async fn faults(fleet: &mut Fleet, heard: &Mutex<Heard>) {
    for _ in 0..6 {
        sleep(300 + fleet.random.below(1_200)).await;
        let node = 1 + fleet.random.below(3) as u32;
        let down = 100 + fleet.random.below(2_000);
        let what = fleet.random.below(3);
        let leader = fleet.leader();
        heard.lock().expect("held briefly").lines.push(format!("fault {what} {node} {leader:?}"));
        match (what, leader) {
            (0, Some(leader)) => {
                fleet.router.isolate(NodeId::new(leader));
                sleep(down).await;
                fleet.router.heal();
            }
            (1, Some(leader)) => fleet.crash(leader, down).await,
            (_, _) => fleet.crash(node, down).await,
        }
    }
}

/// A run with faults: what clients were told, and all that happened.
fn run_with_faults(seed: u64) -> (Vec<String>, Vec<String>) {
    simulated(seed, async {
        let mut fleet = Fleet::of_voters(seed, &[1, 2, 3]).await;
        let heard = Arc::new(Mutex::new(Heard::default()));
        let clients: Vec<_> = (1..=3)
            .map(|name| {
                let client = client(fleet.router.clone(), name, seed, heard.clone());
                SimRuntime::spawn(client)
            })
            .collect();
        faults(&mut fleet, &heard).await;
        for client in clients {
            client.await.expect("no client panics");
        }
        let leader = fleet.wait_for_leader().await;
        fleet.at(leader).propose(policy("last")).await.expect("all is well again");
        fleet.wait_until_equal().await;
        let states: Vec<_> =
            (1..=3).map(|node| fleet.at(node).watch().borrow().state.clone()).collect();
        assert!(states.iter().all(|state| state.encode() == states[0].encode()), "seed {seed}");
        let heard = std::mem::take(&mut *heard.lock().expect("nobody is left"));
        let kept: BTreeMap<u64, &str> = states[0]
            .history()
            .map(|document| (document.revision.get(), &*document.author))
            .collect();
        for (revision, author) in &heard.revisions {
            assert_eq!(kept.get(revision).copied(), Some(&**author), "seed {seed}");
        }
        let seats: BTreeSet<u64> = states[0].members().map(|seat| seat.start.get()).collect();
        assert!(heard.starts.is_subset(&seats), "seed {seed}");
        assert!(!heard.revisions.is_empty() && !heard.starts.is_empty());
        // Whatever replica tells of an epoch, it is the same ring.
        let mut rings = BTreeMap::new();
        for (replica, _) in fleet.running.values() {
            for (_, change) in replica.watch().borrow().changes.iter() {
                let epoch = change.ring.epoch().get();
                let told = rings.entry(epoch).or_insert_with(|| change.clone());
                assert_eq!(told, change, "seed {seed}");
            }
        }
        fleet.end().await;
        heard.lines
    })
}

#[test]
fn nothing_that_was_acknowledged_is_lost_and_all_replicas_agree() {
    for seed in 1..=SEEDS {
        run_with_faults(seed);
    }
}

#[test]
fn the_same_seed_takes_the_same_course() {
    for seed in [1, 2] {
        let (lines, trace) = run_with_faults(seed);
        let (lines_again, trace_again) = run_with_faults(seed);
        assert_eq!(lines, lines_again);
        let differs = trace.iter().zip(&trace_again).position(|(one, other)| one != other);
        assert_eq!(differs, None, "of {} events", trace.len());
        assert_eq!(trace.len(), trace_again.len());
    }
}

const SEEDS: u64 = 8;
