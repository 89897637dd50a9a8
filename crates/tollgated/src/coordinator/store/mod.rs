//! What a replica must not forget: its vote, its log, its last snapshot, and whose it is.
//!
//! One database file. Each write is one transaction, on the disk before it returns; so whatever
//! stops the process, the file has all of a write or none of it. Writing waits for the disk: a
//! replica belongs on a thread that serves nobody else. When to write what is not known here.
//!
//! The file is made under another name and renamed once it says whose it is: a store that exists
//! is whole, or damaged, and an empty one is never taken for a replica that has promised nothing.

mod error;
mod log;

use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::sync::Arc;

use redb::{
    Database, Durability, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition,
    WriteTransaction,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tollgate::NodeId;
use tollgate::coordinator::State;
use tollgate::mutant::lacks;

use super::record;
use super::types::{Entry, LogId, Meta, Vote};

pub use error::StoreError;

/// Whose a replica is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The fleet's id.
    pub fleet: u64,
    /// The node of the fleet.
    pub node: NodeId,
}

/// A replica's file; clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct Store {
    database: Arc<Database>,
    identity: Identity,
}

impl Store {
    /// Makes the store of a replica that has promised nothing yet.
    ///
    /// # Errors
    /// [`StoreError::Exists`], [`StoreError::Full`], [`StoreError::Io`].
    pub(super) fn create(folder: &Path, identity: Identity) -> Result<Self, StoreError> {
        let (path, unnamed) = (folder.join(FILE), folder.join(UNNAMED));
        fs::create_dir_all(folder)?;
        if path.exists() {
            return Err(StoreError::Exists);
        }
        // What a crash has left of the last attempt.
        if unnamed.exists() {
            fs::remove_file(&unnamed)?;
        }
        let mut options = File::options();
        let file = private(options.read(true).write(true).create_new(true)).open(&unnamed)?;
        let backend = redb::backends::FileBackend::new(file).map_err(redb::Error::from)?;
        let store = Self::create_in(backend, identity)?;
        fs::rename(&unnamed, &path)?;
        File::open(folder)?.sync_all()?;
        Ok(store)
    }

    /// Opens the store of a replica that goes on.
    ///
    /// All of it is read and checked, some 0.1 s for 50 MB.
    ///
    /// # Errors
    /// Whatever [`StoreError`] says, except [`StoreError::Exists`].
    pub(super) fn open(folder: &Path) -> Result<Self, StoreError> {
        let path = folder.join(FILE);
        let file = File::options().read(true).write(true).open(&path)?;
        // The database would take it for a new one.
        if file.metadata()?.len() == 0 {
            return Err(StoreError::Damaged(String::from("the file is empty")));
        }
        Self::open_in(redb::backends::FileBackend::new(file).map_err(redb::Error::from)?)
    }

    /// The same as [`Self::create`], in anything that keeps bytes.
    pub(super) fn create_in(
        backend: impl StorageBackend,
        identity: Identity,
    ) -> Result<Self, StoreError> {
        let database = Arc::new(database(backend)?);
        let store = Self { database, identity };
        store.write(|transaction| {
            transaction.open_table(LOG)?;
            let mut records = transaction.open_table(RECORDS)?;
            records.insert(OWNER, &*record::seal_value(&Owner::of(identity)))?;
            Ok(())
        })?;
        Ok(store)
    }

    /// The same as [`Self::open`], in anything that keeps bytes.
    pub(super) fn open_in(backend: impl StorageBackend) -> Result<Self, StoreError> {
        let database = Arc::new(database(backend)?);
        // Whose it is takes a store.
        let nobody = Identity { fleet: 0, node: NodeId::new(0) };
        let mut store = Self { database, identity: nobody };
        let owner: Option<Owner> = store.read(OWNER)?;
        let owner = owner.ok_or_else(|| StoreError::Damaged(String::from("it is nobody's")))?;
        if owner.format != FORMAT {
            return Err(StoreError::OtherVersion { version: owner.format });
        }
        store.identity = Identity { fleet: owner.fleet, node: NodeId::new(owner.node) };
        Ok(store)
    }

    /// The store, if it is `expected`'s.
    pub(super) fn of(self, expected: Identity) -> Result<Self, StoreError> {
        let Identity { fleet, node } = self.identity;
        if fleet != expected.fleet {
            return Err(StoreError::OtherFleet { found: fleet, expected: expected.fleet });
        }
        if node != expected.node {
            return Err(StoreError::OtherNode { found: node, expected: expected.node });
        }
        Ok(self)
    }

    /// Whose it is.
    pub(super) fn identity(&self) -> Identity {
        self.identity
    }

    pub(super) fn vote(&self) -> Result<Option<Vote>, StoreError> {
        self.read(VOTE)
    }

    /// The last snapshot, and how far it goes.
    pub(super) fn snapshot(&self) -> Result<Option<(Meta, State)>, StoreError> {
        let Some((meta, state)) = self.read::<(Meta, Vec<u8>)>(SNAPSHOT)? else { return Ok(None) };
        Ok(Some((meta, State::decode(&state)?)))
    }

    /// Replaces the last snapshot.
    pub(super) fn save_snapshot(&self, meta: &Meta, state: &State) -> Result<(), StoreError> {
        let snapshot = record::seal_value(&(meta, state.encode()));
        self.write(|transaction| {
            transaction.open_table(RECORDS)?.insert(SNAPSHOT, &*snapshot)?;
            Ok(())
        })
    }

    /// Makes `state`, as of `meta`, all that is known, and `vote` all that was promised.
    pub(super) fn begin_anew(
        &self,
        meta: &Meta,
        state: &State,
        vote: &Vote,
    ) -> Result<(), StoreError> {
        let snapshot = record::seal_value(&(meta, state.encode()));
        self.write(|transaction| {
            transaction.open_table(LOG)?.retain(|_, _| false)?;
            let mut records = transaction.open_table(RECORDS)?;
            records.insert(SNAPSHOT, &*snapshot)?;
            records.insert(VOTE, &*record::seal_value(vote))?;
            records.remove(COMMITTED)?;
            if let Some(last) = &meta.last_log_id {
                records.insert(PURGED, &*record::seal_value(last))?;
            }
            Ok(())
        })
    }

    /// The last entry, or what was purged last.
    pub(super) fn last_log_id(&self) -> Result<Option<LogId>, StoreError> {
        let last = self.look(|transaction| {
            let log = transaction.open_table(LOG)?;
            Ok(log.last()?.map(|(index, entry)| (index.value(), entry.value().to_vec())))
        })?;
        match last {
            Some((index, bytes)) => Ok(Some(entry(index, &bytes)?.log_id)),
            None => self.read(PURGED),
        }
    }

    fn read<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, StoreError> {
        let bytes = self.look(|transaction| {
            let records = transaction.open_table(RECORDS)?;
            Ok(records.get(key)?.map(|bytes| bytes.value().to_vec()))
        })?;
        Ok(bytes.map(|bytes| record::open_value(&bytes)).transpose()?)
    }

    fn keep<T: Serialize>(
        &self,
        key: &str,
        value: &T,
        durability: Durability,
    ) -> Result<(), StoreError> {
        let bytes = record::seal_value(value);
        self.write_as(durability, |transaction| {
            transaction.open_table(RECORDS)?.insert(key, &*bytes)?;
            Ok(())
        })
    }

    fn look<T>(
        &self,
        read: impl FnOnce(&redb::ReadTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        let transaction = self.database.begin_read().map_err(redb::Error::from)?;
        Ok(read(&transaction)?)
    }

    fn write(
        &self,
        write: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), StoreError> {
        let unsynced = lacks("coordinator_writes_synced");
        self.write_as(if unsynced { Durability::None } else { Durability::Immediate }, write)
    }

    fn write_as(
        &self,
        durability: Durability,
        write: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().map_err(redb::Error::from)?;
        transaction.set_durability(durability).map_err(redb::Error::from)?;
        write(&transaction)?;
        Ok(transaction.commit().map_err(redb::Error::from)?)
    }
}

/// The node whose store is in `folder`; `None` if there is none.
///
/// A daemon that finds one goes on as that node.
///
/// # Errors
/// When there is one that can't be opened.
pub fn identity_in(folder: &Path) -> Result<Option<Identity>, StoreError> {
    match Store::open(folder) {
        Ok(store) => Ok(Some(store.identity())),
        Err(StoreError::Missing) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What is wrong with the store in a folder, and what people can do about it.
pub fn in_folder(folder: &Path, error: &StoreError) -> String {
    format!("{}: {error}{}", folder.join(FILE).display(), error.remedy())
}

/// Nobody but this user may read it: there are a fleet's secrets in it.
pub(super) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

fn database(backend: impl StorageBackend) -> Result<Database, StoreError> {
    let mut builder = Database::builder();
    // Without this a changed page is found when it is needed, by a panic.
    builder.set_check_integrity_on_open(true).set_cache_size(CACHE_BYTES);
    Ok(builder.create_with_backend(backend).map_err(redb::Error::from)?)
}

/// An entry from its record, which must be the one of its place.
fn entry(index: u64, bytes: &[u8]) -> Result<Entry, StoreError> {
    let entry: Entry = record::open_value(bytes)?;
    if entry.log_id.index != index {
        return Err(StoreError::Damaged(format!(
            "entry {} is at place {index}",
            entry.log_id.index
        )));
    }
    Ok(entry)
}

/// Whose a store is, as it is written.
#[derive(serde::Serialize, serde::Deserialize)]
struct Owner {
    format: u8,
    fleet: u64,
    node: u32,
}

impl Owner {
    fn of(identity: Identity) -> Self {
        Self { format: FORMAT, fleet: identity.fleet, node: identity.node.get() }
    }
}

/// The version of what the tables hold.
const FORMAT: u8 = 1;
const FILE: &str = "coordinator.redb";
const UNNAMED: &str = "coordinator.redb.new";
/// What the database keeps in memory at most.
const CACHE_BYTES: usize = 16 << 20;

/// Entries by index.
const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
/// All else, by what it is.
const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");
const OWNER: &str = "owner";
const VOTE: &str = "vote";
const COMMITTED: &str = "committed";
/// The last entry that was removed from the front of the log.
const PURGED: &str = "purged";
const SNAPSHOT: &str = "snapshot";
