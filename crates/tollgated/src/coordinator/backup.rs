//! What is left when voters are lost: a copy of the state in a file, a fleet made from such a copy,
//! and a replica that goes on alone.
//!
//! A copy is of one moment, and consistent. What was applied after it is lost with it, and numbers
//! that were issued since will be issued again: a fleet is restored with all its nodes stopped.
//!
//! ```text
//! backup  "tgbackup" | record of the state's bytes
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Bound;
use std::path::Path;

use openraft::{BasicNode, EntryPayload, Membership};
use tollgate::NodeId;
use tollgate::coordinator::State;

use super::network::Network;
use super::record;
use super::replica::Replica;
use super::store::{Identity, Store, StoreError, private};
use super::types::{Leader, LogId, Meta, Types, Vote, Voting, id_of};

impl<N: Network, C: Types> Replica<N, C> {
    /// Writes what is applied here to a new file at `path`. It holds the fleet's secret.
    ///
    /// # Errors
    /// When there is a file already, or it can't be written; whatever was written of it is removed.
    pub fn back_up(&self, path: &Path) -> Result<(), BackupError> {
        let state = self.watch().borrow().state.clone();
        write_backup(path, &backup_of(&state))
    }
}

/// The bytes of a backup.
pub(super) fn backup_of(state: &State) -> Vec<u8> {
    [MAGIC, &record::seal(&state.encode())].concat()
}

/// Writes the bytes of a backup to a new file at `path`. They hold the fleet's secret.
///
/// # Errors
/// As [`Replica::back_up`].
pub fn write_backup(path: &Path, bytes: &[u8]) -> Result<(), BackupError> {
    let mut file = private(File::options().write(true).create_new(true)).open(path)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.map_err(|error| {
        // It would be taken for a backup; and if it can't be removed, its checksum tells.
        let _ = fs::remove_file(path);
        error.into()
    })
}

/// The bytes of a backup of the replica in `folder`, which no process has open: of all that it was
/// ever told, committed or not.
///
/// # Errors
/// When the store can't be read.
pub fn back_up_stopped(folder: &Path) -> Result<Vec<u8>, StoreError> {
    Ok(backup_of(&last_state(&Store::open(folder)?)?.1))
}

/// Makes a fleet of a backup: `folder`, which must be empty or missing, gets the store of its only
/// voter, to be reached at `address`. It goes on as the member with the smallest number.
///
/// # Errors
/// When the folder is not empty, the file is no sound backup, or the store can't be written.
pub fn restore(folder: &Path, file: &Path, address: &str) -> Result<Identity, BackupError> {
    if folder.exists() && fs::read_dir(folder)?.next().is_some() {
        return Err(BackupError::NotEmpty);
    }
    let bytes = fs::read(file)?;
    let sealed = bytes.strip_prefix(MAGIC).ok_or(BackupError::NoBackup)?;
    let state = record::open(sealed).map_err(|error| BackupError::Damaged(error.to_string()))?;
    let state = State::decode(state).map_err(|error| BackupError::Damaged(error.to_string()))?;
    let fleet = state.fleet().ok_or(BackupError::NotFounded)?;
    // The founder's number, before anyone has joined.
    let node = state.members().next().map_or(NodeId::new(1), |seat| seat.node);
    let identity = Identity { fleet, node };
    let store = Store::create(folder, identity)?;
    alone(&store, state, 1, 0, address)?;
    Ok(identity)
}

/// Makes the replica in `folder` the only voter of its fleet, to be reached at `address`, with all
/// that it was ever told, committed or not.
///
/// For a fleet most of whose voters are lost for good. A voter that is not lost must not run on as
/// it was: it joins again, with an empty folder.
///
/// # Errors
/// When the store can't be read or written. Nothing has changed then.
pub fn recover(folder: &Path, address: &str) -> Result<Identity, StoreError> {
    let store = Store::open(folder)?;
    let (meta, state) = last_state(&store)?;
    let last = store.last_log_id()?.max(meta.last_log_id);
    let voted = store.vote()?.map_or(0, |vote| vote.leader_id.term);
    let term = voted.max(last.map_or(0, |last| last.leader_id.term)) + 1;
    alone(&store, state, term, last.map_or(0, |last| last.index + 1), address)?;
    Ok(store.identity())
}

/// What all entries of a store make, and how far its snapshot goes.
fn last_state(store: &Store) -> Result<(Meta, State), StoreError> {
    let (meta, mut state) = store.snapshot()?.unwrap_or_default();
    let known = meta.last_log_id.map_or(0, |last| last.index + 1);
    for entry in store.entries((Bound::Included(known), Bound::Unbounded), usize::MAX)? {
        match entry.payload {
            // Refused is what it was when it was first applied.
            EntryPayload::Normal(proposal) => drop(state.apply(proposal.0.as_ref().clone())),
            EntryPayload::Blank | EntryPayload::Membership(_) => {}
        }
    }
    Ok((meta, state))
}

/// The store of the only voter, as after an entry at `index` that made it so.
fn alone(
    store: &Store,
    state: State,
    term: u64,
    index: u64,
    address: &str,
) -> Result<(), StoreError> {
    let id = id_of(store.identity().node);
    let last = LogId::new(Leader { term, node_id: id }, index);
    let nodes = [(id, BasicNode { addr: address.to_owned() })];
    let voting = Membership::new(vec![[id].into()], BTreeMap::from(nodes));
    let voting = voting.expect("a voter with an address");
    let last_membership = Voting::new(Some(last), voting);
    let meta = Meta { last_log_id: Some(last), last_membership };
    store.begin_anew(&meta, &state, &Vote::new(term, id))
}

/// Why there is no backup, or no fleet from one.
#[derive(Debug)]
pub enum BackupError {
    /// The folder has something in it. Nothing has changed.
    NotEmpty,
    /// The file is something else.
    NoBackup,
    /// The file is not what was written.
    Damaged(String),
    /// The backup is of a replica that knew of no fleet.
    NotFounded,
    /// The file can't be read or written.
    Io(io::Error),
    /// The store can't be written.
    Store(StoreError),
}

impl fmt::Display for BackupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotEmpty => f.write_str("the folder is not empty"),
            Self::NoBackup => f.write_str("the file is no backup of a coordinator"),
            Self::Damaged(how) => write!(f, "the backup is damaged: {how}"),
            Self::NotFounded => f.write_str("the backup is of no fleet"),
            Self::Io(error) => write!(f, "the backup can't be read or written: {error}"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BackupError {}

impl From<io::Error> for BackupError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<StoreError> for BackupError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

const MAGIC: &[u8] = b"tgbackup";
