//! The store by the consensus library's own suite, and after everything that may happen to a file.

use std::fmt::Debug;
use std::fs;
use std::io;
use std::ops::{Bound, RangeBounds};

use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::{EntryPayload, StorageError};
use tollgate::coordinator::{Command, FleetSecret, State};
use tollgate::{Clock, NodeId};

use super::disk::Disk;
use super::random::Random;
use crate::coordinator::machine::Machine;
use crate::coordinator::store::{Identity, Store, StoreError, identity_in};
use crate::coordinator::types::{Entry, Leader, LogId, Meta, OnTokio, Proposal, Vote, Voting};

const OWN: Identity = Identity { fleet: 9, node: NodeId::new(1) };

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(future)
}

fn machine(store: &Store) -> Machine {
    Machine::new(store.clone(), Clock::manual().0).expect("a sound snapshot").0
}

struct Kept;

impl StoreBuilder<OnTokio, Store, Machine> for Kept {
    async fn build(&self) -> Result<((), Store, Machine), StorageError<OnTokio>> {
        let store = Store::create_in(Disk::default(), OWN).expect("an empty disk");
        let machine = machine(&store);
        Ok(((), store, machine))
    }
}

#[test]
fn the_store_keeps_what_the_consensus_library_asks_of_one() {
    run(Suite::<OnTokio, Store, Machine, Kept, ()>::test_all(Kept)).expect("its suite");
}

/// A store that is opened anew for each operation.
#[derive(Clone)]
struct Reopened(Disk);

impl Reopened {
    fn open(&self) -> Store {
        Store::open_in(self.0.clone()).expect("a sound store")
    }
}

impl RaftLogReader<OnTokio> for Reopened {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        RaftLogReader::<OnTokio>::try_get_log_entries(&mut self.open(), range).await
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, io::Error> {
        RaftLogReader::<OnTokio>::limited_get_log_entries(&mut self.open(), start, end).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        RaftLogReader::<OnTokio>::read_vote(&mut self.open()).await
    }
}

impl RaftLogStorage<OnTokio> for Reopened {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<OnTokio>, io::Error> {
        self.open().get_log_state().await
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        RaftLogStorage::<OnTokio>::save_vote(&mut self.open(), vote).await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        RaftLogStorage::<OnTokio>::save_committed(&mut self.open(), committed).await
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        RaftLogStorage::<OnTokio>::read_committed(&mut self.open()).await
    }

    async fn append<I>(&mut self, entries: I, done: IOFlushed<OnTokio>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        self.open().append(entries, done).await
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        RaftLogStorage::<OnTokio>::truncate_after(&mut self.open(), last).await
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        RaftLogStorage::<OnTokio>::purge(&mut self.open(), log_id).await
    }
}

struct Anew;

impl StoreBuilder<OnTokio, Reopened, Machine> for Anew {
    async fn build(&self) -> Result<((), Reopened, Machine), StorageError<OnTokio>> {
        let disk = Disk::default();
        let store = Store::create_in(disk.clone(), OWN).expect("an empty disk");
        drop(store);
        // Its snapshots lie elsewhere: two may not have one disk open.
        let machine = machine(&Store::create_in(Disk::default(), OWN).expect("an empty disk"));
        Ok(((), Reopened(disk), machine))
    }
}

#[test]
fn a_store_that_is_closed_and_opened_after_each_step_keeps_it_too() {
    run(Suite::<OnTokio, Reopened, Machine, Anew, ()>::test_all(Anew)).expect("its suite");
}

fn log_id(index: u64) -> LogId {
    LogId::new(Leader { term: 1, node_id: 1 }, index)
}

/// An entry with a text that a search finds.
fn entry(index: u64) -> Entry {
    let address = format!("address {index}");
    let join = Command::Join { node: None, weight: 1, address, is_candidate: true };
    Entry::new(log_id(index), EntryPayload::Normal(Proposal(join.into())))
}

fn append(store: &mut Store, indices: impl IntoIterator<Item = u64>) -> Result<(), io::Error> {
    let entries: Vec<Entry> = indices.into_iter().map(entry).collect();
    run(RaftLogStorage::<OnTokio>::append(store, entries, IOFlushed::noop()))
}

fn vote(term: u64) -> Vote {
    Vote::new(term, 1)
}

fn save_vote(store: &mut Store, term: u64) -> Result<(), io::Error> {
    run(RaftLogStorage::<OnTokio>::save_vote(store, &vote(term)))
}

fn all(store: &Store) -> Vec<u64> {
    let entries = store.entries((Bound::Unbounded, Bound::Unbounded), usize::MAX);
    entries.expect("a sound log").iter().map(|entry| entry.log_id.index).collect()
}

/// A store with a vote, a log and a snapshot.
fn filled(disk: &Disk) -> Store {
    let mut store = Store::create_in(disk.clone(), OWN).expect("an empty disk");
    save_vote(&mut store, 1).expect("written");
    append(&mut store, 1..=20).expect("written");
    let mut state = State::default();
    let secret = FleetSecret::new([7; 32]);
    state.apply(Command::Found { secret, fleet: 9, voters_max: 3 }).expect("the first");
    let meta = Meta { last_log_id: Some(log_id(5)), last_membership: Voting::default() };
    store.save_snapshot(&meta, &state).expect("written");
    store
}

#[test]
fn whatever_reached_the_disk_when_the_power_went_what_was_promised_is_there() {
    for seed in 1..=60_u64 {
        let mut random = Random::new(seed);
        let disk = Disk::default();
        let mut store = filled(&disk);
        let mut last = 20;
        for _ in 0..random.below(6) {
            save_vote(&mut store, last).expect("written");
            append(&mut store, [last + 1]).expect("written");
            last += 1;
            // Not promised to be there.
            let committed = Some(log_id(last));
            run(RaftLogStorage::<OnTokio>::save_committed(&mut store, committed)).expect("written");
        }
        let after = disk.after_power_loss(|| random.below(2) == 0);
        drop(store);
        let mut store = Store::open_in(after).expect("a sound store");
        assert_eq!(all(&store), (1..=last).collect::<Vec<_>>(), "seed {seed}");
        let promised = if last == 20 { 1 } else { last - 1 };
        assert_eq!(store.vote().expect("sound"), Some(vote(promised)), "seed {seed}");
        assert_eq!(store.snapshot().expect("sound").expect("one").0.last_log_id, Some(log_id(5)));
        append(&mut store, [last + 1]).expect("it goes on");
    }
}

#[test]
fn every_vote_and_every_entry_is_synced_before_it_is_acknowledged() {
    let disk = Disk::default();
    let mut store = filled(&disk);
    for number in 21..30 {
        let before = disk.syncs();
        save_vote(&mut store, number).expect("written");
        assert!(disk.syncs() > before);
        let before = disk.syncs();
        append(&mut store, [number]).expect("written");
        assert!(disk.syncs() > before);
    }
}

#[test]
fn a_changed_byte_is_found_or_changes_nothing() {
    let disk = Disk::default();
    drop(filled(&disk));
    let sound = disk.bytes();
    // All that is not empty space, in steps that reach every page.
    let places = (0..sound.len()).filter(|&place| sound[place] != 0).step_by(7);
    let mut found = 0;
    for place in places {
        let mut changed = sound.clone();
        changed[place] ^= 0x10;
        let opened = Store::open_in(Disk::of(changed)).and_then(|store| store.of(OWN));
        let read = opened.and_then(|store| {
            let entries = store.entries((Bound::Unbounded, Bound::Unbounded), usize::MAX)?;
            let snapshot = store.snapshot()?.map(|(meta, state)| (meta.last_log_id, state.fleet()));
            Ok((store.vote()?, entries, snapshot))
        });
        match read {
            Ok((kept, entries, snapshot)) => {
                assert_eq!(kept, Some(vote(1)), "at {place}");
                assert_eq!(entries, (1..=20).map(entry).collect::<Vec<_>>(), "at {place}");
                assert_eq!(snapshot, Some((Some(log_id(5)), Some(9))), "at {place}");
            }
            Err(StoreError::Damaged(_) | StoreError::OtherVersion { .. }) => found += 1,
            Err(error) => panic!("at {place}: {error:?}"),
        }
    }
    assert!(found > 100, "{found}");
}

#[test]
fn a_file_that_was_cut_is_damaged() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::create(folder.path(), OWN).expect("an empty folder");
    append(&mut store, 1..=20).expect("written");
    drop(store);
    let path = folder.path().join("coordinator.redb");
    let sound = fs::read(&path).expect("a file");
    for length in [0, 1, 100, 4_096, 8_192, sound.len() / 2, sound.len() - 1] {
        fs::write(&path, &sound[..length]).expect("written");
        let opened = Store::open(folder.path()).map(|store| all(&store));
        assert!(matches!(opened, Err(StoreError::Damaged(_))), "{length}: {opened:?}");
    }
    fs::write(&path, b"not a database at all").expect("written");
    let opened = Store::open(folder.path()).map(|_| ());
    assert!(matches!(opened, Err(StoreError::Damaged(_))), "{opened:?}");
}

#[test]
fn a_full_disk_refuses_with_its_name_and_keeps_what_it_had() {
    let disk = Disk::default();
    let mut store = filled(&disk);
    disk.fill(disk.bytes().len());
    let mut last = 20;
    let error = loop {
        match append(&mut store, [last + 1]) {
            Ok(()) => last += 1,
            Err(error) => break error,
        }
        assert!(last < 100_000, "it never fills up");
    };
    assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
    assert!(error.to_string().contains("full"), "{error}");
    drop(store);
    let store = Store::open_in(Disk::of(disk.bytes())).expect("a sound store");
    assert_eq!(all(&store), (1..=last).collect::<Vec<_>>());
}

#[test]
fn after_a_write_that_failed_nothing_is_taken_any_more() {
    let disk = Disk::default();
    let mut store = filled(&disk);
    disk.fail();
    append(&mut store, [21]).expect_err("the disk is broken");
    append(&mut store, [21]).expect_err("and was");
    save_vote(&mut store, 7).expect_err("for votes too");
    drop(store);
    let store = Store::open_in(disk.after_power_loss(|| false)).expect("a sound store");
    assert_eq!((all(&store).len(), store.vote().expect("sound")), (20, Some(vote(1))));
}

#[test]
fn a_store_of_another_node_or_fleet_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(identity_in(folder.path()).expect("none yet"), None);
    drop(Store::create(folder.path(), OWN).expect("an empty folder"));
    assert_eq!(identity_in(folder.path()).expect("one"), Some(OWN));
    let open = |expected| {
        let opened = Store::open(folder.path()).and_then(|store| store.of(expected));
        opened.err().map(|error| error.to_string())
    };
    let other_node = open(Identity { node: NodeId::new(2), ..OWN });
    assert_eq!(other_node.as_deref(), Some("the store is of node 1, not of 2"));
    let other_fleet = open(Identity { fleet: 10, ..OWN });
    let expected = "the store is of fleet 0000000000000009, not of 000000000000000a";
    assert_eq!(other_fleet.as_deref(), Some(expected));
    assert_eq!(open(OWN), None);
}

#[test]
fn a_store_is_open_once_and_made_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = Store::create(folder.path(), OWN).expect("an empty folder");
    let second = Store::open(folder.path()).map(|_| ());
    assert!(matches!(second, Err(StoreError::Locked)), "{second:?}");
    let again = Store::create(folder.path(), OWN).map(|_| ());
    assert!(matches!(again, Err(StoreError::Exists)), "{again:?}");
    drop(first);
    Store::open(folder.path()).expect("closed by now");
}

#[test]
fn what_a_crash_left_of_a_store_that_was_being_made_is_no_store() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("coordinator.redb.new"), b"half").expect("written");
    assert_eq!(identity_in(folder.path()).expect("none"), None);
    Store::create(folder.path(), OWN).expect("made anew");
}
