//! A fleet after the loss of most of its voters, or of all.

use std::fs;
use std::path::Path;

use tollgate::NodeId;
use tollgate::coordinator::{Command, Edit, FleetSecret, LimitText};

use crate::coordinator::backup::{BackupError, recover, restore};
use crate::coordinator::store::{Identity, StoreError};
use crate::coordinator::{CallError, Leadership, Network, Peer, Replica, ReplicaOptions};

/// A fleet of one needs none.
#[derive(Clone)]
struct NoNetwork;

impl Network for NoNetwork {
    async fn call(&self, _peer: &Peer, _request: Vec<u8>) -> Result<Vec<u8>, CallError> {
        Err(CallError::NotSent(String::from("there is no network")))
    }
}

const OWN: Identity = Identity { fleet: 9, node: NodeId::new(1) };

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(future)
}

async fn open(folder: &Path, identity: Identity) -> Replica<NoNetwork> {
    let opened = Replica::open(folder, identity, NoNetwork, ReplicaOptions::default()).await;
    opened.expect("a sound store")
}

fn policy(author: &str) -> Command {
    let edit = Edit { author: author.to_owned(), ..Edit::default() };
    let limit = LimitText { name: String::from("a"), text: author.to_owned() };
    Command::PutPolicy { edit, limits: vec![limit] }
}

async fn founded(folder: &Path) -> Replica<NoNetwork> {
    let replica = open(folder, OWN).await;
    replica.found("a:1", FleetSecret::new([7; 32]), 3).await.expect("founded");
    let join =
        Command::Join { node: None, weight: 1, address: String::from("a:1"), is_candidate: true };
    replica.propose(join).await.expect("joined");
    replica
}

fn author(replica: &Replica<NoNetwork>) -> Option<String> {
    replica.watch().borrow().state.policy().map(|put| put.author.clone())
}

#[test]
fn a_replica_that_starts_again_knows_what_it_knew() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let replica = founded(folder.path()).await;
        replica.propose(policy("x")).await.expect("put");
        let before = replica.watch().borrow().state.encode();
        replica.stop().await;
        drop(replica);
        let replica = open(folder.path(), OWN).await;
        let mut leadership = replica.leadership();
        let leads = |leadership: &Leadership| matches!(leadership, Leadership::Leads { .. });
        leadership.wait_for(leads).await.expect("it is its own majority");
        assert_eq!(replica.watch().borrow().state.encode(), before);
        replica.stop().await;
    });
}

#[test]
fn a_fleet_restored_from_a_backup_is_as_it_was_when_that_was_made() {
    let (folder, other) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("two"));
    let file = folder.path().join("backup");
    run(async {
        let replica = founded(&folder.path().join("data")).await;
        replica.propose(policy("before")).await.expect("put");
        let then = replica.watch().borrow().state.encode();
        replica.back_up(&file).expect("written");
        let again = replica.back_up(&file);
        assert!(matches!(again, Err(BackupError::Io(_))), "{again:?}");
        replica.propose(policy("after")).await.expect("put");
        replica.stop().await;
        assert_eq!(restore(other.path(), &file, "b:1").expect("restored"), OWN);
        let replica = open(other.path(), OWN).await;
        assert_eq!(replica.watch().borrow().state.encode(), then);
        replica.propose(policy("new")).await.expect("it decides alone");
        assert_eq!(author(&replica).as_deref(), Some("new"));
        assert_eq!(replica.voters().voters[&OWN.node], "b:1");
        replica.stop().await;
    });
}

#[test]
fn nothing_is_restored_over_something_or_from_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, file) = (folder.path().join("data"), folder.path().join("backup"));
    run(async {
        let replica = founded(&data).await;
        replica.back_up(&file).expect("written");
        replica.stop().await;
    });
    let over = restore(&data, &file, "a:1");
    assert!(matches!(over, Err(BackupError::NotEmpty)), "{over:?}");
    let empty = folder.path().join("empty");
    let sound = fs::read(&file).expect("a backup");
    for place in 8..sound.len() {
        let mut changed = sound.clone();
        changed[place] ^= 1;
        fs::write(&file, &changed).expect("written");
        let restored = restore(&empty, &file, "a:1");
        assert!(matches!(restored, Err(BackupError::Damaged(_))), "{place}: {restored:?}");
    }
    fs::write(&file, &sound[1..]).expect("written");
    let restored = restore(&empty, &file, "a:1");
    assert!(matches!(restored, Err(BackupError::NoBackup)), "{restored:?}");
    let missing = restore(&empty, &folder.path().join("none"), "a:1");
    assert!(matches!(missing, Err(BackupError::Io(_))), "{missing:?}");
    assert!(!empty.exists());
}

#[test]
fn recovering_where_there_is_no_store_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let recovered = recover(folder.path(), "a:1");
    assert!(matches!(recovered, Err(StoreError::Missing)), "{recovered:?}");
}

#[test]
fn a_replica_that_is_recovered_decides_alone_and_knows_what_it_was_told() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let replica = founded(folder.path()).await;
        replica.propose(policy("kept")).await.expect("put");
        let before = replica.watch().borrow().state.encode();
        // A second voter, which nobody ever hears of again.
        let other = openraft::BasicNode { addr: String::from("gone") };
        replica.raft.add_learner(2, other, false).await.expect("told");
        let both = std::collections::BTreeSet::from([1, 2]);
        let changing = replica.raft.change_membership(both, false);
        tokio::time::timeout(std::time::Duration::from_millis(300), changing)
            .await
            .expect_err("it waits for a majority of both");
        replica.stop().await;
        drop(replica);
        let stuck = open(folder.path(), OWN).await;
        assert!(stuck.voters().voters.contains_key(&NodeId::new(2)));
        stuck.stop().await;
        drop(stuck);
        assert_eq!(recover(folder.path(), "c:1").expect("recovered"), OWN);
        let replica = open(folder.path(), OWN).await;
        assert_eq!(replica.watch().borrow().state.encode(), before);
        replica.propose(policy("alone")).await.expect("it decides alone");
        let voters = replica.voters();
        assert_eq!((voters.voters.len(), voters.is_changing), (1, false));
        assert_eq!(voters.voters[&OWN.node], "c:1");
        replica.stop().await;
    });
}
